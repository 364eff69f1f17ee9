//! Whether a listener lets anybody in. Shut, its socket stays bound and does not listen: who comes is refused by the kernel and tries another node.
//!
//! There may be several reasons to keep it shut at a time, each of which is its own bit; it opens when the last one is gone. Those who accept watch a number that is odd while it is shut, and so see
//! that it was even if it is open again when they look: their watch on the socket is void then.
//!
//! Owner: whoever has the listener. Invariant: the number is odd exactly while there is a reason.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};

use parking_lot::Mutex;
use tokio::sync::watch;

/// Why a listener is shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutFor {
    /// The node is to be taken away.
    Drain = 1,
    /// An operator has said so.
    Operator = 2,
}

/// See the module.
#[derive(Debug)]
pub struct Doors {
    reasons: Mutex<Reasons>,
    turns: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Reasons {
    bits: u8,
    /// It stays bound for as long as this lives.
    socket: Option<(TcpListener, SocketAddr)>,
}

impl Default for Doors {
    fn default() -> Self {
        Doors { reasons: Mutex::default(), turns: watch::Sender::new(0) }
    }
}

impl Doors {
    /// The socket that those who accept have duplicates of, and its address.
    pub fn hold(&self, socket: TcpListener, bound: SocketAddr) {
        self.reasons.lock().socket = Some((socket, bound));
    }

    /// For those who accept; see [`is_shut`].
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    pub fn is_shut(&self) -> bool {
        self.reasons.lock().bits != 0
    }

    pub fn is_shut_for(&self, why: ShutFor) -> bool {
        self.reasons.lock().bits & why as u8 != 0
    }

    /// Nobody is let in any more. Who is in the queue of the kernel is refused.
    pub fn shut(&self, why: ShutFor) {
        let mut reasons = self.reasons.lock();
        let was_open = reasons.bits == 0;
        reasons.bits |= why as u8;
        if was_open {
            // Those who accept are told first: they need not wonder what their socket says.
            self.turns.send_modify(|turns| *turns += 1);
            if let Some((socket, _)) = &reasons.socket {
                // One that does not listen yet has nothing to shut.
                let _ = socket2::SockRef::from(socket).shutdown(Shutdown::Read);
            }
        }
    }

    /// That reason is gone.
    ///
    /// # Errors
    /// The socket cannot listen any more; it stays shut.
    pub fn open(&self, why: ShutFor, backlog: i32) -> io::Result<()> {
        let mut reasons = self.reasons.lock();
        if reasons.bits != why as u8 {
            reasons.bits &= !(why as u8);
            return Ok(());
        }
        if let Some((socket, bound)) = &reasons.socket {
            listen_again(socket, *bound, backlog)?;
        }
        reasons.bits = 0;
        self.turns.send_modify(|turns| *turns += 1);
        Ok(())
    }
}

/// Whether the number of [`Doors::watch`] is that of a listener that is shut.
pub fn is_shut(turns: u64) -> bool {
    turns % 2 == 1
}

/// A socket for which the kernel has chosen the port gave it back when it stopped listening, though it says that it has it still; every other one is bound.
fn listen_again(socket: &TcpListener, bound: SocketAddr, backlog: i32) -> io::Result<()> {
    let socket = socket2::SockRef::from(socket);
    match socket.bind(&bound.into()) {
        Err(error) if error.kind() != io::ErrorKind::InvalidInput => Err(error),
        _ => socket.listen(backlog),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    fn is_let_in(bound: SocketAddr) -> bool {
        TcpStream::connect(bound).is_ok()
    }

    #[test]
    fn who_comes_to_a_shut_door_is_refused_and_finds_it_open_again_at_the_same_port() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = socket.local_addr().unwrap();
        let doors = Doors::default();
        let watch = doors.watch();
        doors.hold(socket, bound);
        assert!(is_let_in(bound) && !is_shut(*watch.borrow()));
        for _ in 0..3 {
            doors.shut(ShutFor::Drain);
            assert!(!is_let_in(bound) && is_shut(*watch.borrow()) && doors.is_shut());
            doors.open(ShutFor::Drain, 16).unwrap();
            assert!(is_let_in(bound) && !is_shut(*watch.borrow()) && !doors.is_shut());
        }
    }

    #[test]
    fn every_reason_must_be_gone() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = socket.local_addr().unwrap();
        let doors = Doors::default();
        doors.hold(socket, bound);
        doors.shut(ShutFor::Operator);
        doors.shut(ShutFor::Drain);
        doors.shut(ShutFor::Drain);
        doors.open(ShutFor::Operator, 16).unwrap();
        assert!(!is_let_in(bound) && doors.is_shut_for(ShutFor::Drain) && !doors.is_shut_for(ShutFor::Operator));
        doors.open(ShutFor::Operator, 16).unwrap();
        assert!(!is_let_in(bound), "a reason that is not there is no reason to open");
        doors.open(ShutFor::Drain, 16).unwrap();
        assert!(is_let_in(bound));
    }
}
