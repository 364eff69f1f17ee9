//! A connection that may end at any moment, without that being a failure of the test.

use std::time::{Duration, Instant};

use crate::client::{Client, Event as Incoming};
use crate::history::{Event, Name};
use crate::transport::{Link, Transport};
use crate::wire::{Connect, PINGREQ, Packet, Version, disconnect};

use super::Round;

/// The reasons of a CONNACK that says "not now": 0x88 and 0x89, before 5.0 the return code 3.
const NOT_NOW: [u8; 3] = [0x88, 0x89, 3];

/// The connection has ended, or the round is cut.
#[derive(Debug)]
pub(super) struct Gone;

/// A connection on which the CONNECT was accepted.
pub(super) struct Live<'r> {
    client: Client,
    round: &'r Round<'r>,
    waits_for: String,
}

impl<'r> Live<'r> {
    /// Connects and records it. `keeps`: the session shall outlive the connection. Returns Session Present too.
    pub(super) fn open(
        round: &'r Round<'r>,
        name: &Name,
        connect: &Connect,
        keeps: bool,
    ) -> Result<(Self, bool), Gone> {
        Self::open_with(round, name, connect, keeps, || {})
    }

    /// The same; `sent` is called when the server may have seen the CONNECT.
    pub(super) fn open_with(
        round: &'r Round<'r>,
        name: &Name,
        connect: &Connect,
        keeps: bool,
        sent: impl FnOnce(),
    ) -> Result<(Self, bool), Gone> {
        let link = Link::open(Transport::Tcp, round.address, None).map_err(|error| {
            // Without this, a finishing round would try for ever when the broker has died.
            assert!(round.deadline.is_none(), "{name}: nobody listens where a broker should be: {error}");
            Gone
        })?;
        let mut live = Self { client: Client::new(link, connect.version), round, waits_for: "CONNACK".to_owned() };
        live.client.client_id = name.to_string();
        round.history.record(Event::ConnectSent { client: name.clone(), clean: connect.clean, keeps });
        sent();
        live.send(&connect.bytes())?;
        loop {
            match live.poll(Duration::from_millis(20))? {
                Some(Packet::ConnAck(ack)) if ack.reason == 0 => {
                    let present = ack.session_present;
                    round.history.record(Event::Connected { client: name.clone(), present });
                    return Ok((live, present));
                }
                Some(Packet::ConnAck(ack)) if round.may_be_refused && NOT_NOW.contains(&ack.reason) => {
                    std::thread::sleep(Duration::from_millis(20));
                    return Err(Gone);
                }
                Some(Packet::Disconnect { .. }) if round.may_be_refused => return Err(Gone),
                Some(other) => panic!("{name}: {other:?} to a CONNECT that must be accepted"),
                None => {}
            }
        }
    }

    /// Says what the actor waits for, for the message when it does not come.
    pub(super) fn waits_for(&mut self, what: impl Into<String>) {
        self.waits_for = what.into();
    }

    pub(super) fn version(&self) -> Version {
        self.client.version
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.client.link().write(bytes).map_err(|_| Gone)
    }

    /// The next packet; `None` when none came in this time.
    ///
    /// # Panics
    /// After the deadline of a finishing round.
    pub(super) fn poll(&mut self, patience: Duration) -> Result<Option<Packet>, Gone> {
        if self.round.is_cut() {
            return Err(Gone);
        }
        if self.round.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            let name: Name = self.client.client_id.as_str().into();
            self.round.history.write_if_asked();
            let history = self.round.history.about(&[name], &[]);
            panic!("{}: {} does not come\n{history}", self.client.client_id, self.waits_for);
        }
        match self.client.event(Instant::now() + patience) {
            Some(Incoming::Packet(packet)) => Ok(Some(packet)),
            Some(Incoming::Closed) => Err(Gone),
            None => Ok(None),
        }
    }

    /// Waits until the server has processed all that was sent, and returns what came before its answer.
    pub(super) fn fence(&mut self) -> Result<Vec<Packet>, Gone> {
        self.waits_for("PINGRESP");
        self.send(&PINGREQ)?;
        let mut before = Vec::new();
        loop {
            match self.poll(Duration::from_millis(20))? {
                Some(Packet::PingResp) => return Ok(before),
                Some(packet) => before.push(packet),
                None => {}
            }
        }
    }

    /// An ordinary DISCONNECT; the server has processed it when it has closed.
    pub(super) fn disconnect(mut self) -> Result<(), Gone> {
        self.waits_for("the close");
        self.send(&disconnect())?;
        loop {
            match self.poll(Duration::from_millis(20)) {
                // A cut round says nothing about what the server did.
                Err(Gone) if self.round.is_cut() => return Err(Gone),
                Err(Gone) => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}
