//! Clients that keep a broker busy, break off at any moment, and come back as the specification says: they resend what was not
//! acknowledged, finish QoS 2 handshakes, and record what they were promised in a [`History`].
//!
//! Each is an [`Actor`] that outlives the connections it makes. Tests play it round by round: in an ordinary round until the connection
//! ends (the broker was killed, or the round was cut), in a finishing round until nothing is open any more.
//!
//! Read first: `cast.rs`, who takes part.

mod cast;
mod live;
mod publisher;
mod retained;
mod subscriber;
mod will_client;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::history::History;

pub use cast::Cast;
pub use publisher::Publisher;
pub use retained::read_retained;
pub use subscriber::Subscriber;
pub use will_client::WillClient;

/// How long a finishing round may take; a broker that does not answer in this time has failed.
pub const FINISH: Duration = Duration::from_secs(20);

/// One life of the broker, as the actors see it.
pub struct Round<'r> {
    address: SocketAddr,
    history: &'r History,
    over: AtomicBool,
    /// A CONNECT may be refused for a while: the session is on a node that is away, or another connection was quicker.
    may_be_refused: bool,
    /// Set in a finishing round.
    deadline: Option<Instant>,
}

impl<'r> Round<'r> {
    /// A round of load that ends with the connections or with [`cut`](Self::cut).
    pub fn of_load(address: SocketAddr, history: &'r History) -> Self {
        Self { address, history, over: AtomicBool::new(false), may_be_refused: false, deadline: None }
    }

    /// A round in which nothing new begins and everything open is brought to its end.
    pub fn finishing(address: SocketAddr, history: &'r History) -> Self {
        Self { deadline: Some(Instant::now() + FINISH), ..Self::of_load(address, history) }
    }

    /// On one of several nodes: clients that are refused for a while take that as the end of a connection.
    pub fn in_cluster(mut self) -> Self {
        self.may_be_refused = true;
        self
    }

    /// Ends a round of load: the actors drop their connections.
    pub fn cut(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn is_finishing(&self) -> bool {
        self.deadline.is_some()
    }
}

/// Cuts rounds when their test fails, so that no actor plays on when nobody is left to end the round.
pub struct CutOnPanic<'r>(pub &'r [Round<'r>]);

impl Drop for CutOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.iter().for_each(Round::cut);
        }
    }
}

/// One client.
pub trait Actor: Send {
    /// Plays one round. It returns when its connection has ended, when the round is cut, or, in a finishing round, when it is done.
    ///
    /// # Panics
    /// When it cannot finish before the deadline of the round.
    fn play(&mut self, round: &Round<'_>);
}
