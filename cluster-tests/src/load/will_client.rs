//! A client that does nothing but have a Will, another one with each connection.

use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::history::{Event, MessageId, Name, Retain};
use crate::wire::{Connect, Packet, Version, Will};

use super::live::{Gone, Live};
use super::{Actor, Round};

pub struct WillClient {
    name: Name,
    version: Version,
    topic: String,
    next: u64,
    dice: Dice,
}

impl WillClient {
    pub fn new(name: &str, version: Version, topic: &str, dice: Dice) -> Self {
        Self { name: name.into(), version, topic: topic.to_owned(), next: 0, dice }
    }

    /// One connection; it ends by the client's choice, or by the end of the round.
    fn connection(&mut self, round: &Round<'_>) -> Result<(), Gone> {
        self.next += 1;
        // Each connection is a session of its own: nothing is said of the order of their Wills.
        let message = MessageId::new(&format!("{}-{}", self.name, self.next), 1);
        let will = Will::new(&self.topic, message.payload(0)).qos(2);
        let connect = Connect::new(self.version, &*self.name).will(will);
        round.history.record(Event::PublishSent {
            message: message.clone(),
            topic: self.topic.clone(),
            qos: 2,
            retain: Retain::No,
        });
        let (live, _) = Live::open(round, &self.name, &connect, false)?;
        let stay = Duration::from_millis(10 + self.dice.below(300));
        let (broken, live) = self.stay(live, stay);
        let acknowledged = Event::Acknowledged { message: message.clone() };
        match live {
            // Neither the end of the connection nor what the client chooses is a DISCONNECT: the Will must be published.
            Some(live) if self.dice.once_in(2) => {
                live.disconnect()?;
                // The close that follows may be that of a process that was killed before it read the DISCONNECT.
                if Live::open(round, &self.name, &Connect::new(self.version, &*self.name), false).is_ok() {
                    round.history.record(Event::Withdrawn { message });
                }
            }
            _ => round.history.record(acknowledged),
        }
        if broken { Err(Gone) } else { Ok(()) }
    }

    /// Stays connected for a time. Returns whether the connection broke, and the connection if it did not.
    fn stay<'r>(&self, mut live: Live<'r>, time: Duration) -> (bool, Option<Live<'r>>) {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return (false, Some(live));
            }
            match live.poll(left.min(Duration::from_millis(10))) {
                Ok(None) => {}
                Ok(Some(Packet::Disconnect { .. })) => return (true, None),
                Ok(Some(packet)) => panic!("{}: {packet:?} to a client that asked for nothing", self.name),
                Err(Gone) => return (true, None),
            }
        }
    }
}

impl Actor for WillClient {
    fn play(&mut self, round: &Round<'_>) {
        if round.is_finishing() {
            return;
        }
        while self.connection(round).is_ok() {}
    }
}
