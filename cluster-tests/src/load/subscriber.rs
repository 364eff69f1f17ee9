//! A subscriber that takes messages, acknowledges them in order and not at once, leaves and returns, and subscribes and unsubscribes.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::dice::Dice;
use crate::history::{Event, MessageId, Name};
use crate::wire::{Ack, Connect, Message, Packet, Publish, Subscribe, Unsubscribe, Version, first};

use super::live::{Gone, Live};
use super::publisher::KEPT_SECS;
use super::{Actor, Round};

/// A SUBSCRIBE or UNSUBSCRIBE that waits for its answer.
enum Asked {
    Subscribe(String),
    Unsubscribe(String),
}

pub struct Subscriber {
    name: Name,
    version: Version,
    keeps: bool,
    /// Filters and Subscription Options that it always wants.
    wanted: Vec<(String, u8)>,
    /// A filter that it subscribes to and unsubscribes from all the time.
    churn: Option<(String, u8)>,
    /// Now and then it begins with a clean start, which ends its session.
    fickle: bool,
    /// It plays only some rounds, so that its queue outlives several restarts.
    lazy: bool,
    granted: BTreeSet<String>,
    asked: HashMap<u16, Asked>,
    last_packet_id: u16,
    /// QoS 2 identifiers between PUBLISH and PUBREL; they belong to the session.
    held: HashMap<u16, MessageId>,
    /// Acknowledgements that are still to be sent, in order.
    acks: VecDeque<Vec<u8>>,
    fences: u32,
    dice: Dice,
}

/// Why a connection ended that did not just break.
enum Left {
    /// By the subscriber's own choice.
    Moved,
    Finished,
}

impl Subscriber {
    /// A subscriber whose session ends with its connection.
    pub fn new(name: &str, version: Version, wanted: &[(&str, u8)], dice: Dice) -> Self {
        Self {
            name: name.into(),
            version,
            keeps: false,
            wanted: wanted.iter().map(|(filter, options)| ((*filter).to_owned(), *options)).collect(),
            churn: None,
            fickle: false,
            lazy: false,
            granted: BTreeSet::new(),
            asked: HashMap::new(),
            last_packet_id: 0,
            held: HashMap::new(),
            acks: VecDeque::new(),
            fences: 0,
            dice,
        }
    }

    /// Its session stays when the connection ends.
    pub fn kept(mut self) -> Self {
        self.keeps = true;
        self
    }

    /// It subscribes to this filter and unsubscribes from it all the time.
    pub fn churning(mut self, filter: &str, options: u8) -> Self {
        self.churn = Some((filter.to_owned(), options));
        self
    }

    /// Now and then it ends its session.
    pub fn fickle(mut self) -> Self {
        self.fickle = true;
        self
    }

    /// It plays only some rounds.
    pub fn lazy(mut self) -> Self {
        self.lazy = true;
        self
    }

    fn connect(&mut self, round: &Round<'_>) -> Connect {
        // Without Clean Start in any case: a session that ended must not be present. (Before 5.0, only Clean Session ends it.)
        let clean = match self.keeps {
            true => self.fickle && !round.is_finishing() && self.dice.once_in(4),
            false => self.version != Version::V5,
        };
        let connect = Connect::new(self.version, &*self.name).clean(clean);
        connect.session_expiry(if self.keeps { KEPT_SECS } else { 0 })
    }

    fn connection(&mut self, round: &Round<'_>) -> Result<Left, Gone> {
        let connect = self.connect(round);
        self.asked.clear();
        self.acks.clear();
        let (granted, held) = (&mut self.granted, &mut self.held);
        let (mut live, present) = Live::open_with(round, &self.name, &connect, self.keeps, || {
            if connect.clean {
                // The client throws its part of the session away; what the server has done is not known before the CONNACK.
                granted.clear();
                held.clear();
            }
        })?;
        if !present {
            self.granted.clear();
            self.held.clear();
        }
        self.ask_for_wanted(&mut live, round)?;
        if round.is_finishing() {
            return self.finish(live, round);
        }
        loop {
            if let Some(packet) = live.poll(Duration::from_millis(2))? {
                self.take(packet, round)?;
            }
            if self.dice.once_in(2) {
                self.flush(&mut live)?;
            }
            if self.asked.is_empty() && self.dice.once_in(25) {
                self.turn(&mut live, round)?;
            }
            if self.dice.once_in(400) {
                if self.dice.once_in(2) {
                    live.disconnect()?;
                }
                return Ok(Left::Moved);
            }
        }
    }

    fn ask_for_wanted(&mut self, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        for (filter, options) in self.wanted.clone() {
            if !self.granted.contains(&filter) {
                self.subscribe(live, round, &filter, options)?;
            }
        }
        Ok(())
    }

    fn subscribe(&mut self, live: &mut Live<'_>, round: &Round<'_>, filter: &str, options: u8) -> Result<(), Gone> {
        let packet_id = self.packet_id();
        round.history.record(Event::SubscribeSent { client: self.name.clone(), filter: filter.to_owned() });
        self.asked.insert(packet_id, Asked::Subscribe(filter.to_owned()));
        live.send(&Subscribe::new(packet_id).filter(filter, options).bytes(live.version()))
    }

    /// Subscribes to the churning filter, or unsubscribes from it.
    fn turn(&mut self, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        let Some((filter, options)) = self.churn.clone() else { return Ok(()) };
        if !self.granted.contains(&filter) {
            return self.subscribe(live, round, &filter, options);
        }
        let packet_id = self.packet_id();
        round.history.record(Event::UnsubscribeSent { client: self.name.clone(), filter: filter.clone() });
        self.asked.insert(packet_id, Asked::Unsubscribe(filter.clone()));
        self.granted.remove(&filter);
        live.send(&Unsubscribe::new(packet_id).filter(&filter).bytes(live.version()))
    }

    fn packet_id(&mut self) -> u16 {
        self.last_packet_id = self.last_packet_id % 60_000 + 1;
        self.last_packet_id
    }

    fn take(&mut self, packet: Packet, round: &Round<'_>) -> Result<(), Gone> {
        match packet {
            Packet::Publish(message) => self.receive(&message, round),
            Packet::PubRel { packet_id, .. } => {
                self.held.remove(&packet_id);
                self.acks.push_back(Ack::new(first::PUBCOMP, packet_id).bytes());
            }
            Packet::SubAck { packet_id, codes, .. } => match self.asked.remove(&packet_id) {
                Some(Asked::Subscribe(filter)) => {
                    let granted = codes.first().copied().filter(|code| *code <= 2);
                    assert!(granted.is_some(), "{}: {filter} is refused with {codes:02X?}", self.name);
                    self.granted.insert(filter.clone());
                    round.history.record(Event::Subscribed { client: self.name.clone(), filter, granted });
                }
                _ => panic!("{}: a SUBACK for nothing", self.name),
            },
            Packet::UnsubAck { packet_id, .. } => match self.asked.remove(&packet_id) {
                Some(Asked::Unsubscribe(filter)) => {
                    round.history.record(Event::Unsubscribed { client: self.name.clone(), filter });
                }
                _ => panic!("{}: an UNSUBACK for nothing", self.name),
            },
            // Of a fence's marker.
            Packet::PubAck { .. } => {}
            Packet::Disconnect { .. } => return Err(Gone),
            other => panic!("{}: {other:?} to a subscriber", self.name),
        }
        Ok(())
    }

    fn receive(&mut self, message: &Message, round: &Round<'_>) {
        let ack = match message.qos {
            0 => None,
            1 => Some(first::PUBACK),
            _ => Some(first::PUBREC),
        };
        self.acks.extend(ack.map(|first_byte| Ack::new(first_byte, message.packet_id).bytes()));
        // Deletions of retained values have no payload and nothing to be told by.
        let Some(id) = MessageId::of(&message.payload) else { return };
        if message.qos == 2 {
            match self.held.insert(message.packet_id, id.clone()) {
                Some(before) if before == id => return,
                Some(before) => {
                    let what = format!("{id} with the packet identifier {} that {before} still has", message.packet_id);
                    round.history.record(Event::Broken { client: self.name.clone(), what });
                }
                None => {}
            }
        }
        let Message { topic, qos, dup, retain, .. } = message.clone();
        round.history.record(Event::Received { client: self.name.clone(), message: id, topic, qos, dup, retain });
    }

    fn flush(&mut self, live: &mut Live<'_>) -> Result<(), Gone> {
        let bytes: Vec<u8> = self.acks.drain(..).flatten().collect();
        if bytes.is_empty() { Ok(()) } else { live.send(&bytes) }
    }

    /// Takes all that waits for the session: what comes before a message of its own that goes behind it.
    fn finish(&mut self, mut live: Live<'_>, round: &Round<'_>) -> Result<Left, Gone> {
        live.waits_for("an answer to SUBSCRIBE");
        while !self.asked.is_empty() {
            self.step(&mut live, round)?;
        }
        let fence = format!("fence/{}", self.name);
        let packet_id = self.packet_id();
        live.send(&Subscribe::new(packet_id).filter(&fence, 1).bytes(live.version()))?;
        self.until(
            &mut live,
            round,
            |packet| matches!(packet, Packet::SubAck { packet_id: there, .. } if *there == packet_id),
        )?;
        live.waits_for("what was published to itself");
        self.fences += 1;
        let (packet_id, marker) = (self.packet_id(), format!("marker{}", self.fences).into_bytes());
        live.send(&Publish::new(&fence, &marker).qos(1, packet_id).bytes(live.version()))?;
        self.until(&mut live, round, |packet| matches!(packet, Packet::Publish(message) if message.payload == marker))?;
        while !self.held.is_empty() {
            live.waits_for(format!("PUBREL for {:?}", self.held));
            self.step(&mut live, round)?;
        }
        for packet in live.fence()? {
            self.take(packet, round)?;
        }
        self.flush(&mut live)?;
        live.disconnect()?;
        Ok(Left::Finished)
    }

    fn step(&mut self, live: &mut Live<'_>, round: &Round<'_>) -> Result<(), Gone> {
        if let Some(packet) = live.poll(Duration::from_millis(20))? {
            self.take(packet, round)?;
        }
        self.flush(live)
    }

    /// Takes packets up to one that belongs to the fence.
    fn until(&mut self, live: &mut Live<'_>, round: &Round<'_>, end: impl Fn(&Packet) -> bool) -> Result<(), Gone> {
        loop {
            let packet = live.poll(Duration::from_millis(20))?;
            let is_end = packet.as_ref().is_some_and(&end);
            match packet {
                Some(Packet::SubAck { .. }) if is_end => {}
                Some(packet) => self.take(packet, round)?,
                None => {}
            }
            self.flush(live)?;
            if is_end {
                return Ok(());
            }
        }
    }
}

impl Actor for Subscriber {
    fn play(&mut self, round: &Round<'_>) {
        if round.is_finishing() && !self.keeps {
            return;
        }
        if !round.is_finishing() && self.lazy && self.dice.once_in(2) {
            return;
        }
        loop {
            match self.connection(round) {
                Ok(Left::Moved) => {}
                Ok(Left::Finished) => return,
                Err(Gone) if round.is_finishing() => {}
                Err(Gone) => return,
            }
        }
    }
}
