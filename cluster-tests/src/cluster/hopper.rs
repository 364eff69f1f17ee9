//! A subscriber whose kept session moves from node to node while messages come, and who records all that it sees in a
//! [`History`](crate::history::History).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::latency::Latencies;
use super::try_connect;
use crate::client::{Client, Event as Incoming};
use crate::history::{Event, History, MessageId, Name};
use crate::wire::{Connect, Message, Packet, Version, disconnect, first, reason};

/// How it leaves the node where it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It does not: the next connection takes the session over.
    Not,
    Disconnect,
    Reset,
}

/// The client and its part of the session.
pub struct Hopper<'h> {
    name: Name,
    history: &'h History,
    filters: Vec<(String, u8)>,
    client: Option<Client>,
    /// QoS 2 identifiers between PUBLISH and PUBREL; they belong to the session.
    held: HashMap<u16, MessageId>,
    /// From each CONNECT to its CONNACK.
    pub moves: Latencies,
}

impl<'h> Hopper<'h> {
    pub fn new(name: &str, filters: &[(String, u8)], history: &'h History) -> Self {
        let (filters, moves) = (filters.to_vec(), Latencies::default());
        Self { name: name.into(), history, filters, client: None, held: HashMap::new(), moves }
    }

    /// Moves the session to a node, which must take it within `patience`.
    ///
    /// # Panics
    /// When it does not, or an older connection that was not left is not told of the takeover.
    #[track_caller]
    pub fn hop(&mut self, to: SocketAddr, leave: Leave, patience: Duration) {
        let old = self.client.take();
        let old = match leave {
            Leave::Not => old,
            Leave::Disconnect => {
                old.into_iter().for_each(|mut client| client.send_unless_closed(&disconnect()));
                None
            }
            Leave::Reset => {
                old.into_iter().for_each(Client::reset);
                None
            }
        };
        let connect = Connect::new(Version::V5, &*self.name).durable(3_600).keep_alive(0);
        self.history.record(Event::ConnectSent { client: self.name.clone(), clean: false, keeps: true });
        let began = Instant::now();
        let (client, ack) = try_connect(to, &connect, patience)
            .unwrap_or_else(|refusal| panic!("{} may not move: {refusal}", self.name));
        self.moves.add(began.elapsed());
        self.history.record(Event::Connected { client: self.name.clone(), present: ack.session_present });
        if let Some(mut old) = old {
            // What it has not read of its old connection it has not got.
            old.expect_disconnect(&[reason::SESSION_TAKEN_OVER]);
        }
        self.client = Some(client);
        if !ack.session_present {
            self.held.clear();
            self.subscribe();
        }
    }

    #[track_caller]
    fn subscribe(&mut self) {
        for (filter, options) in self.filters.clone() {
            let client = self.name.clone();
            self.history.record(Event::SubscribeSent { client: client.clone(), filter: filter.clone() });
            let code = self.client.as_mut().expect("it is connected").subscribe(&filter, options);
            assert!(code <= 2, "{client}: {filter} is refused with {code:#04X}");
            self.history.record(Event::Subscribed { client, filter, granted: Some(code) });
        }
    }

    /// Takes and acknowledges messages for a time.
    ///
    /// # Panics
    /// When the connection ends.
    #[track_caller]
    pub fn stay(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step(until);
        }
    }

    /// Takes messages until `done`, which must be in this time.
    #[track_caller]
    pub fn stay_until(&mut self, patience: Duration, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + patience;
        while !done() {
            assert!(Instant::now() < deadline, "{} waits in vain", self.name);
            self.step(Instant::now() + Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn step(&mut self, until: Instant) {
        let client = self.client.as_mut().expect("it is connected");
        match client.event(until) {
            None => {}
            Some(Incoming::Packet(Packet::Publish(message))) => {
                match message.qos {
                    0 => {}
                    1 => client.send_ack(first::PUBACK, message.packet_id),
                    _ => client.send_ack(first::PUBREC, message.packet_id),
                }
                self.received(message);
            }
            Some(Incoming::Packet(Packet::PubRel { packet_id, .. })) => {
                self.held.remove(&packet_id);
                client.send_ack(first::PUBCOMP, packet_id);
            }
            Some(other) => panic!("{}: {other:?} to a subscriber", self.name),
        }
    }

    fn received(&mut self, message: Message) {
        let Some(id) = MessageId::of(&message.payload) else { return };
        if message.qos == 2 {
            match self.held.insert(message.packet_id, id.clone()) {
                Some(before) if before == id => return,
                Some(before) => {
                    let what = format!("{id} with the packet identifier {} that {before} still has", message.packet_id);
                    self.history.record(Event::Broken { client: self.name.clone(), what });
                }
                None => {}
            }
        }
        let Message { topic, qos, dup, retain, .. } = message;
        self.history.record(Event::Received { client: self.name.clone(), message: id, topic, qos, dup, retain });
    }
}
