//! A publisher that never has more than a few messages open. With a kept session it resends them after a reconnect, in order, with DUP and
//! the same packet identifiers [MQTT-4.4.0-1]; without one it lets them go.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::history::{Event, MessageId, Name, Retain};
use crate::wire::{Ack, Connect, Packet, Publish, Version, first};

use super::live::{Gone, Live};
use super::{Actor, Round};

/// Messages that are open at a time at the most.
const WINDOW: usize = 8;

/// The longest Session Expiry Interval that a test needs, in seconds.
pub(super) const KEPT_SECS: u32 = 3_600;

/// A message on its way.
struct Open {
    message: MessageId,
    publish: Publish,
    /// PUBREC has come; what is resent is PUBREL.
    received: bool,
}

pub struct Publisher {
    name: Name,
    version: Version,
    qos: u8,
    keeps: bool,
    topics: Vec<String>,
    /// Its topics are its own, and it sets and deletes their retained values.
    retains: bool,
    pause: Duration,
    payload_max: u64,
    next: u64,
    last_packet_id: u16,
    open: VecDeque<Open>,
    dice: Dice,
}

impl Publisher {
    /// A publisher with a session that ends with its connection.
    pub fn new(name: &str, version: Version, qos: u8, topics: &[String], dice: Dice) -> Self {
        Self {
            name: name.into(),
            version,
            qos,
            keeps: false,
            topics: topics.to_vec(),
            retains: false,
            pause: Duration::from_millis(2),
            payload_max: 1_500,
            next: 0,
            last_packet_id: 0,
            open: VecDeque::new(),
            dice,
        }
    }

    /// Its session stays when the connection ends.
    pub fn kept(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// It sets and deletes retained values on its topics, on which nobody else may publish.
    pub fn retaining(mut self) -> Self {
        self.retains = true;
        self
    }

    /// It waits so long from one message to the next.
    pub fn paced(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    fn connect(&self) -> Connect {
        let connect = Connect::new(self.version, &*self.name).clean(!self.keeps);
        connect.session_expiry(if self.keeps { KEPT_SECS } else { 0 })
    }

    fn connection(&mut self, round: &Round<'_>) -> Result<(), Gone> {
        let (mut live, present) = Live::open(round, &self.name, &self.connect(), self.keeps)?;
        if present {
            self.resend(&mut live, round)?;
        } else {
            self.open.clear();
        }
        let mut next = Instant::now();
        loop {
            if round.is_finishing() && self.open.is_empty() {
                return live.disconnect();
            }
            if !round.is_finishing() && self.open.len() < WINDOW && Instant::now() >= next {
                self.publish(&mut live, round)?;
                next += self.pause;
            }
            if round.is_finishing() {
                live.waits_for(format!("an acknowledgement of {:?}", self.open.front().map(|open| &open.message)));
            }
            if let Some(packet) = live.poll(Duration::from_millis(1))? {
                self.answer(packet, &mut live, round)?;
            }
        }
    }

    fn resend(&self, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        for open in &self.open {
            let packet_id = open.publish.packet_id.unwrap_or(0);
            if open.received {
                live.send(&Ack::new(first::PUBREL, packet_id).bytes())?;
            } else {
                round.history.record(Event::Resent { message: open.message.clone() });
                live.send(&open.publish.clone().dup().bytes(self.version))?;
            }
        }
        Ok(())
    }

    /// The next message; now and then one of QoS 0 between those of the publisher's own.
    fn publish(&mut self, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        self.next += 1;
        let message = MessageId { publisher: self.name.clone(), number: self.next };
        let topic = self.dice.pick(&self.topics).clone();
        let qos = if !self.retains && self.dice.once_in(8) { 0 } else { self.qos };
        let retain = match self.retains {
            false => Retain::No,
            true if self.dice.once_in(3) => Retain::Delete,
            true => Retain::Set,
        };
        let length = usize::try_from(self.dice.below(self.payload_max)).unwrap_or(0);
        let payload = if retain == Retain::Delete { Vec::new() } else { message.payload(length) };
        let packet_id = self.packet_id();
        let mut publish = Publish::new(&topic, payload).qos(qos, packet_id);
        publish.retain = self.retains;
        round.history.record(Event::PublishSent { message: message.clone(), topic, qos, retain });
        let bytes = publish.bytes(self.version);
        if qos > 0 {
            self.open.push_back(Open { message, publish, received: false });
        }
        live.send(&bytes)
    }

    /// A packet identifier that is not in use.
    fn packet_id(&mut self) -> u16 {
        loop {
            self.last_packet_id = self.last_packet_id % 1_000 + 1;
            if !self.open.iter().any(|open| open.publish.packet_id == Some(self.last_packet_id)) {
                return self.last_packet_id;
            }
        }
    }

    fn answer(&mut self, packet: Packet, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        match packet {
            Packet::PubAck { packet_id, reason, .. } => self.acknowledged(packet_id, reason, round),
            Packet::PubRec { packet_id, reason, .. } => {
                self.acknowledged(packet_id, reason, round);
                if reason < 0x80 {
                    live.send(&Ack::new(first::PUBREL, packet_id).bytes())?;
                }
            }
            Packet::PubComp { packet_id, .. } => self.forget(packet_id),
            Packet::Disconnect { .. } => return Err(Gone),
            other => panic!("{}: {other:?} to a publisher", self.name),
        }
        Ok(())
    }

    fn acknowledged(&mut self, packet_id: u16, reason: u8, round: &Round<'_>) {
        let Some(open) = self.open.iter_mut().find(|open| open.publish.packet_id == Some(packet_id)) else {
            panic!("{}: {packet_id} is acknowledged and was not sent", self.name);
        };
        if reason < 0x80 && !open.received {
            round.history.record(Event::Acknowledged { message: open.message.clone() });
        }
        open.received = true;
        if reason >= 0x80 || open.publish.qos == 1 {
            self.forget(packet_id);
        }
    }

    fn forget(&mut self, packet_id: u16) {
        self.open.retain(|open| open.publish.packet_id != Some(packet_id));
    }
}

impl Actor for Publisher {
    fn play(&mut self, round: &Round<'_>) {
        // In a finishing round the connection must not end before everything is done; in another it may.
        while let Err(Gone) = self.connection(round) {
            if !round.is_finishing() {
                return;
            }
        }
    }
}
