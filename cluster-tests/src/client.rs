//! An MQTT client that does nothing by itself: no keep-alive, no acknowledgement, no resend, unless the test says so.
//!
//! One thread owns it. It reads one packet at a time, strictly (see [`wire`](crate::wire)); what a wait for something else passes by is kept in
//! the inbox, in order. Every wait fails the test after [`PATIENCE`], at the line that waited.

use std::collections::VecDeque;
use std::time::Instant;

use crate::transport::{Link, PATIENCE};
use crate::wire::{
    Ack, ConnAck, Connect, Message, PINGREQ, Packet, Publish, Subscribe, Unsubscribe, Version, disconnect,
    disconnect_with, first, parse,
};

/// What comes out of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Packet(Packet),
    /// The other side closed, with or without a reset.
    Closed,
}

/// A connection and the protocol version spoken on it.
pub struct Client {
    link: Link,
    pub version: Version,
    pub client_id: String,
    buffer: Vec<u8>,
    inbox: VecDeque<Packet>,
    closed: bool,
    last_packet_id: u16,
}

impl Client {
    /// Over a link on which nothing has been said.
    pub fn new(link: Link, version: Version) -> Self {
        Self {
            link,
            version,
            client_id: String::new(),
            buffer: Vec::new(),
            inbox: VecDeque::new(),
            closed: false,
            last_packet_id: 0,
        }
    }

    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// The code of the WebSocket Close frame that the server sent.
    pub fn close_code(&self) -> Option<u16> {
        match &self.link {
            Link::Stream(_) => None,
            Link::WebSocket(websocket) => websocket.close_code,
        }
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.link.write(bytes) {
            panic!("{}: cannot send: {error}", self.client_id);
        }
    }

    /// Sends bytes to a server that may close at any moment.
    pub fn send_unless_closed(&mut self, bytes: &[u8]) {
        // What the server did instead is seen by the next read.
        let _ = self.link.write(bytes);
    }

    /// The next packet or the close; `None` when nothing came until the deadline.
    #[track_caller]
    pub fn event(&mut self, deadline: Instant) -> Option<Event> {
        if let Some(packet) = self.inbox.pop_front() {
            return Some(Event::Packet(packet));
        }
        self.event_from_link(deadline)
    }

    #[track_caller]
    fn event_from_link(&mut self, deadline: Instant) -> Option<Event> {
        loop {
            match parse(self.version, &self.buffer) {
                Ok(Some((packet, size))) => {
                    self.buffer.drain(..size);
                    return Some(Event::Packet(packet));
                }
                Ok(None) if self.closed => return Some(Event::Closed),
                Ok(None) => {}
                Err(error) => panic!("{}: the server sent {error}", self.client_id),
            }
            match self.link.read(&mut self.buffer, deadline) {
                Ok(0) => self.closed = true,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::TimedOut => return None,
                Err(error) => panic!("{}: cannot receive: {error}", self.client_id),
            }
        }
    }

    /// The next packet.
    #[track_caller]
    pub fn recv(&mut self) -> Packet {
        match self.event(Instant::now() + PATIENCE) {
            Some(Event::Packet(packet)) => packet,
            Some(Event::Closed) => panic!("{}: closed instead of a packet", self.client_id),
            None => panic!("{}: no packet came", self.client_id),
        }
    }

    /// The next packet, which must be a PUBLISH. It is not acknowledged.
    #[track_caller]
    pub fn recv_publish(&mut self) -> Message {
        match self.recv() {
            Packet::Publish(message) => message,
            other => panic!("{}: {other:?} instead of a PUBLISH", self.client_id),
        }
    }

    /// The first packet from now on that `wanted` is true for; others are kept for later, in order.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Packet) -> bool) -> Packet {
        if let Some(position) = self.inbox.iter().position(&wanted) {
            return self.inbox.remove(position).expect("the position was just found");
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.event_from_link(deadline) {
                Some(Event::Packet(packet)) if wanted(&packet) => return packet,
                Some(Event::Packet(packet)) => self.inbox.push_back(packet),
                Some(Event::Closed) => {
                    panic!("{}: closed instead of {what}; before that {:?}", self.client_id, self.inbox)
                }
                None => panic!("{}: {what} did not come, but {:?}", self.client_id, self.inbox),
            }
        }
    }

    /// The next packet, or `None` at the close.
    #[track_caller]
    pub fn until_first(&mut self) -> Option<Packet> {
        match self.event(Instant::now() + PATIENCE) {
            Some(Event::Packet(packet)) => Some(packet),
            Some(Event::Closed) => None,
            None => panic!("{}: neither a packet nor a close came", self.client_id),
        }
    }

    /// Everything up to the close, which must come.
    #[track_caller]
    pub fn until_closed(&mut self) -> Vec<Packet> {
        let deadline = Instant::now() + PATIENCE;
        let mut packets = Vec::new();
        loop {
            match self.event(deadline) {
                Some(Event::Packet(packet)) => packets.push(packet),
                Some(Event::Closed) => return packets,
                None => panic!("{}: not closed; came {packets:?}", self.client_id),
            }
        }
    }

    /// All bytes up to the close, unparsed.
    #[track_caller]
    pub fn bytes_until_closed(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        while !self.closed {
            match self.link.read(&mut self.buffer, deadline) {
                Ok(count) => self.closed = count == 0,
                Err(error) => panic!("{}: not closed ({error}); came {:02X?}", self.client_id, self.buffer),
            }
        }
        std::mem::take(&mut self.buffer)
    }

    /// The server must close; in 5.0 a DISCONNECT with one of these reason codes must be its last packet, before 5.0 there is none.
    /// Returns the packets before that.
    #[track_caller]
    pub fn expect_disconnect(&mut self, reasons: &[u8]) -> Vec<Packet> {
        let mut packets = self.until_closed();
        if self.version == Version::V5 {
            match packets.pop() {
                Some(Packet::Disconnect { reason, .. }) if reasons.contains(&reason) => {}
                other => {
                    panic!("{}: closed after {other:02X?}, not a DISCONNECT with one of {reasons:02X?}", self.client_id)
                }
            }
        }
        packets
    }

    /// The server must close without a packet.
    #[track_caller]
    pub fn expect_close(&mut self) {
        let packets = self.until_closed();
        assert!(packets.is_empty(), "{}: {packets:?} before the close", self.client_id);
    }

    /// Sends a CONNECT and returns the CONNACK, which must be the first packet [MQTT-3.2.0-1].
    #[track_caller]
    pub fn handshake(&mut self, connect: &Connect) -> ConnAck {
        self.version = connect.version;
        self.client_id = String::from_utf8_lossy(&connect.client_id).into_owned();
        self.send(&connect.bytes());
        match self.recv() {
            Packet::ConnAck(ack) => ack,
            other => panic!("{}: {other:?} instead of a CONNACK", self.client_id),
        }
    }

    /// A handshake that must succeed.
    #[track_caller]
    pub fn connect(&mut self, connect: &Connect) -> ConnAck {
        let ack = self.handshake(connect);
        assert_eq!(ack.reason, 0, "{}: refused: {ack:?}", self.client_id);
        ack
    }

    /// A packet identifier that this connection has not used (1, 2, 3, …).
    pub fn packet_id(&mut self) -> u16 {
        self.last_packet_id += 1;
        self.last_packet_id
    }

    /// Subscribes to one filter and returns its reason code. Options as on the wire; before 5.0 the QoS.
    #[track_caller]
    pub fn subscribe(&mut self, filter: impl AsRef<[u8]>, options: u8) -> u8 {
        let packet_id = self.packet_id();
        let codes = self.send_subscribe(&Subscribe::new(packet_id).filter(filter, options));
        assert_eq!(codes.len(), 1, "one code for each filter [MQTT-3.8.4-6]");
        codes[0]
    }

    /// Sends a SUBSCRIBE and returns the codes of its SUBACK.
    #[track_caller]
    pub fn send_subscribe(&mut self, subscribe: &Subscribe) -> Vec<u8> {
        self.send(&subscribe.bytes(self.version));
        let wanted = subscribe.packet_id;
        match self
            .wait_for("SUBACK", |packet| matches!(packet, Packet::SubAck { packet_id, .. } if *packet_id == wanted))
        {
            Packet::SubAck { codes, .. } => codes,
            other => unreachable!("waited for SUBACK, not {other:?}"),
        }
    }

    /// Unsubscribes from one filter; the reason codes (none before 5.0).
    #[track_caller]
    pub fn unsubscribe(&mut self, filter: impl AsRef<[u8]>) -> Vec<u8> {
        let wanted = self.packet_id();
        self.send(&Unsubscribe::new(wanted).filter(filter).bytes(self.version));
        match self
            .wait_for("UNSUBACK", |packet| matches!(packet, Packet::UnsubAck { packet_id, .. } if *packet_id == wanted))
        {
            Packet::UnsubAck { codes, .. } => codes,
            other => unreachable!("waited for UNSUBACK, not {other:?}"),
        }
    }

    /// Publishes and, for QoS 1 and 2, goes through the acknowledgements. The reason code (0 for QoS 0).
    #[track_caller]
    pub fn publish(&mut self, topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>, qos: u8) -> u8 {
        let packet_id = self.packet_id();
        self.deliver(&Publish::new(topic, payload).qos(qos, packet_id))
    }

    /// Like [`publish`](Self::publish), with RETAIN.
    #[track_caller]
    pub fn publish_retained(&mut self, topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>, qos: u8) -> u8 {
        let packet_id = self.packet_id();
        self.deliver(&Publish::new(topic, payload).qos(qos, packet_id).retained())
    }

    /// Sends a PUBLISH and goes through its acknowledgements to the end.
    #[track_caller]
    pub fn deliver(&mut self, publish: &Publish) -> u8 {
        self.send_publish(publish);
        let Some(packet_id) = publish.packet_id else {
            return 0;
        };
        if publish.qos == 1 {
            return self.wait_puback(packet_id);
        }
        let reason = self.wait_pubrec(packet_id);
        if reason < 0x80 {
            self.send_ack(first::PUBREL, packet_id);
            self.wait_pubcomp(packet_id);
        }
        reason
    }

    #[track_caller]
    pub fn send_publish(&mut self, publish: &Publish) {
        self.send(&publish.bytes(self.version));
    }

    /// Waits for the PUBACK of a packet identifier; its reason code.
    #[track_caller]
    pub fn wait_puback(&mut self, wanted: u16) -> u8 {
        match self
            .wait_for("PUBACK", |packet| matches!(packet, Packet::PubAck { packet_id, .. } if *packet_id == wanted))
        {
            Packet::PubAck { reason, .. } => reason,
            other => unreachable!("waited for PUBACK, not {other:?}"),
        }
    }

    #[track_caller]
    pub fn wait_pubrec(&mut self, wanted: u16) -> u8 {
        match self
            .wait_for("PUBREC", |packet| matches!(packet, Packet::PubRec { packet_id, .. } if *packet_id == wanted))
        {
            Packet::PubRec { reason, .. } => reason,
            other => unreachable!("waited for PUBREC, not {other:?}"),
        }
    }

    #[track_caller]
    pub fn wait_pubrel(&mut self, wanted: u16) -> u8 {
        match self
            .wait_for("PUBREL", |packet| matches!(packet, Packet::PubRel { packet_id, .. } if *packet_id == wanted))
        {
            Packet::PubRel { reason, .. } => reason,
            other => unreachable!("waited for PUBREL, not {other:?}"),
        }
    }

    #[track_caller]
    pub fn wait_pubcomp(&mut self, wanted: u16) -> u8 {
        match self
            .wait_for("PUBCOMP", |packet| matches!(packet, Packet::PubComp { packet_id, .. } if *packet_id == wanted))
        {
            Packet::PubComp { reason, .. } => reason,
            other => unreachable!("waited for PUBCOMP, not {other:?}"),
        }
    }

    /// Sends PUBACK, PUBREC, PUBREL or PUBCOMP in its two-byte form.
    #[track_caller]
    pub fn send_ack(&mut self, first_byte: u8, packet_id: u16) {
        self.send(&Ack::new(first_byte, packet_id).bytes());
    }

    /// Acknowledges a message to the end.
    #[track_caller]
    pub fn acknowledge(&mut self, message: &Message) {
        match message.qos {
            0 => {}
            1 => self.send_ack(first::PUBACK, message.packet_id),
            _ => {
                self.send_ack(first::PUBREC, message.packet_id);
                self.wait_pubrel(message.packet_id);
                self.send_ack(first::PUBCOMP, message.packet_id);
            }
        }
    }

    /// The next PUBLISH (it must be the next packet), acknowledged to the end.
    #[track_caller]
    pub fn take(&mut self) -> Message {
        let message = self.recv_publish();
        self.acknowledge(&message);
        message
    }

    /// Takes messages up to the one with this payload and returns those before it: the fence for "nothing came".
    /// The same publisher must have sent it behind what must not come.
    #[track_caller]
    pub fn take_until(&mut self, payload: &str) -> Vec<Message> {
        let mut before = Vec::new();
        loop {
            let message = self.take();
            if message.payload == payload.as_bytes() {
                return before;
            }
            before.push(message);
        }
    }

    /// Sends a PINGREQ and returns what came before its PINGRESP.
    #[track_caller]
    pub fn fence(&mut self) -> Vec<Packet> {
        self.send(&PINGREQ);
        let mut before = Vec::new();
        loop {
            match self.recv() {
                Packet::PingResp => return before,
                packet => before.push(packet),
            }
        }
    }

    /// The connection must be open and idle: a PINGREQ is answered at once by nothing but its PINGRESP.
    #[track_caller]
    pub fn expect_quiet(&mut self) {
        let before = self.fence();
        assert!(before.is_empty(), "{}: {before:?} came", self.client_id);
    }

    /// An ordinary DISCONNECT. Returns when the server has closed, and so has processed it.
    #[track_caller]
    pub fn disconnect(mut self) {
        self.send(&disconnect());
        self.until_closed();
    }

    /// A DISCONNECT of 5.0 with a reason code. Returns when the server has closed.
    #[track_caller]
    pub fn disconnect_with(mut self, reason: u8, properties: &crate::wire::Properties) {
        self.send(&disconnect_with(reason, properties));
        self.until_closed();
    }

    /// Breaks the connection with a TCP reset.
    pub fn reset(self) {
        self.link.reset();
    }
}
