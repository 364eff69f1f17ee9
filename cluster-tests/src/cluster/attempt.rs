//! Connects that may fail, which is nothing to be surprised at while a node is away.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client::{Client, Event};
use crate::transport::{Link, Transport};
use crate::wire::{ConnAck, Connect, Packet};

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a connect did not succeed.
#[derive(Debug)]
pub enum Refusal {
    /// Nobody listens.
    Nobody(std::io::Error),
    /// A CONNACK with this reason.
    Refused(u8),
    /// Closed without a CONNACK.
    Closed,
    /// No CONNACK in time.
    Silent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody(error) => write!(f, "nobody listens: {error}"),
            Self::Refused(reason) => write!(f, "refused with {reason:#04X}"),
            Self::Closed => write!(f, "closed without a CONNACK"),
            Self::Silent => write!(f, "no CONNACK"),
        }
    }
}

/// One attempt.
///
/// # Errors
/// See [`Refusal`].
///
/// # Panics
/// When the server sends something else than a CONNACK.
#[track_caller]
pub fn try_connect(address: SocketAddr, connect: &Connect, patience: Duration) -> Result<(Client, ConnAck), Refusal> {
    let link = Link::open(Transport::Tcp, address, None).map_err(Refusal::Nobody)?;
    let mut client = Client::new(link, connect.version);
    client.client_id = String::from_utf8_lossy(&connect.client_id).into_owned();
    client.send_unless_closed(&connect.bytes());
    match client.event(Instant::now() + patience) {
        Some(Event::Packet(Packet::ConnAck(ack))) if ack.reason == 0 => Ok((client, ack)),
        Some(Event::Packet(Packet::ConnAck(ack))) => Err(Refusal::Refused(ack.reason)),
        Some(Event::Packet(other)) => panic!("{}: {other:?} instead of a CONNACK", client.client_id),
        Some(Event::Closed) => Err(Refusal::Closed),
        None => Err(Refusal::Silent),
    }
}

/// Attempts until one succeeds.
///
/// # Panics
/// When none does in this time.
#[track_caller]
pub fn connect_within(address: SocketAddr, connect: &Connect, patience: Duration) -> (Client, ConnAck) {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match try_connect(address, connect, left.max(PAUSE)) {
            Ok(connected) => return connected,
            Err(refusal) => {
                let name = String::from_utf8_lossy(&connect.client_id);
                assert!(Instant::now() < deadline, "{name} is not let in within {patience:?}: {refusal}");
            }
        }
        std::thread::sleep(PAUSE);
    }
}
