//! A client that sends any packets to its session, while messages come for it, its outbox fills up and empties, and it reconnects: nothing
//! panics, everything written is whole packets, and what the session has written down gives back its queue and its packet identifiers; with a disk that
//! keeps at once, later, or not yet, and messages that are read back from it.

#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use holdfast::metrics::ShardMetrics;
use holdfast::mqtt::{
    Connect, Message, Packet, Peer, PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, decode, next_frame,
};
use holdfast::session::{
    Asked, Delivery, Inbound, Limits, Outgoing, QueueFull, Restored, Session, Shelf, Turn, Wire, accept,
};
use holdfast_storage::OwnerId;
use libfuzzer_sys::fuzz_target;

#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    closed: bool,
}

impl Wire for Pipe {
    fn has_room(&self) -> bool {
        !self.closed
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    fn append_shared(&mut self, bytes: Bytes) {
        self.bytes.extend_from_slice(&bytes);
    }
}

struct World {
    session: Session,
    pipe: Pipe,
    limits: Limits,
    metrics: ShardMetrics,
    shelf: Shelf,
    now: u64,
    epoch: u64,
}

impl World {
    fn turn(&mut self) -> (&mut Session, &mut Pipe, Turn<'_, &mut Shelf>) {
        let turn = Turn { now: self.now, limits: &self.limits, metrics: &self.metrics, journal: &mut self.shelf };
        (&mut self.session, &mut self.pipe, turn)
    }

    fn connect(&mut self, choice: u8) {
        let mut properties = PropertiesBuf::default();
        properties.push(Property::SessionExpiryInterval(3600));
        properties.push(Property::ReceiveMaximum(u16::from(choice % 4) + 1));
        properties.push(Property::TopicAliasMaximum(u16::from(choice % 3)));
        if choice & 8 != 0 {
            properties.push(Property::MaximumPacketSize(u32::from(choice) + 20));
        }
        let connect = Connect {
            version: ProtocolVersion::V5,
            clean_start: false,
            keep_alive_secs: 0,
            client_id: "c",
            properties: properties.as_properties(),
            will: None,
            user_name: None,
            password: None,
        };
        let agreed = accept(&connect, &self.limits, 0);
        self.epoch += 1;
        self.session.disconnect();
        self.session.connect(self.epoch, &agreed, self.now);
        let (session, pipe, mut turn) = self.turn();
        pipe.bytes.clear();
        session.resend(&mut turn, pipe);
        session.pump(&mut turn, pipe);
    }

    fn deliver(&mut self, choice: u8) {
        let qos = QoS::from_u8(choice % 3).unwrap_or(QoS::AtMostOnce);
        let message = Arc::new(Message {
            id: Default::default(),
            stamp: 0,
            topic: format!("t/{}", choice % 5).into(),
            payload: vec![choice; usize::from(choice)].into(),
            properties: Bytes::new(),
            qos,
            retain: false,
            expires_at: (choice & 64 != 0).then_some(self.now + 5),
            publisher: "p".into(),
            name: None,
            will: 0,
        });
        let (session, pipe, mut turn) = self.turn();
        let delivery =
            Delivery { qos, retain: false, subscription_ids: &[1, 2][..usize::from(choice % 3).min(2)], share: None };
        let wire = session.connected().is_some().then_some(pipe);
        session.deliver(&mut turn, &Outgoing::from_message(&message), delivery, wire);
    }

    /// Serves a packet as a shard does. False ends the connection.
    fn serve(&mut self, packet: &Packet<'_>) -> bool {
        let (session, pipe, mut turn) = self.turn();
        if session.connected().is_none() {
            return false;
        }
        let served = match packet {
            Packet::Publish(publish) => session.publish(&mut turn, publish, None).map(|inbound| {
                let reason = if let Inbound::Refused(reason) = inbound { reason } else { ReasonCode::Success };
                if let Some(answer) = session.acknowledge(&mut turn, publish, reason) {
                    session.write_answer(answer, pipe.buffer());
                }
            }),
            Packet::PubAck(ack) => session.puback(&mut turn, ack.packet_id),
            Packet::PubRec(ack) => session.pubrec(&mut turn, ack, pipe.buffer()),
            Packet::PubRel(ack) => {
                let answer = session.pubrel(&mut turn, ack.packet_id);
                session.write_answer(answer, pipe.buffer());
                Ok(())
            }
            Packet::PubComp(ack) => session.pubcomp(&mut turn, ack.packet_id),
            Packet::Subscribe(subscribe) => session.judge(turn.limits, subscribe).map(drop),
            _ => Ok(()),
        };
        session.pump(&mut turn, pipe);
        served.is_ok()
    }

    fn check(&self) {
        let mut at = 0;
        while let Some(frame) = next_frame(&self.pipe.bytes[at..], u32::MAX).expect("a frame") {
            decode(&frame, ProtocolVersion::V5, Peer::Server).expect("a packet that a client accepts");
            at += frame.total_len;
        }
        assert_eq!(at, self.pipe.bytes.len(), "half a packet");
        let mut restored = Session::new("c".into(), None);
        self.shelf.items.iter().for_each(|(position, item)| restored.restore(*position, item.clone()));
        let waiting = |session: &Session| {
            let kept = session.queue().iter().filter(|queued| queued.qos > QoS::AtMostOnce);
            kept.map(|queued| (queued.position, queued.size())).collect::<Vec<_>>()
        };
        assert_eq!(waiting(&restored), waiting(&self.session));
        assert_eq!(restored.inflight_count(), self.session.inflight_count());
    }

    /// The disk has some of what was written down: those who asked are told.
    fn keep(&mut self, at_most: usize) {
        let asked: Vec<Asked> = self.shelf.asked.drain(..at_most.min(self.shelf.asked.len())).collect();
        for asked in asked {
            let (session, pipe, mut turn) = self.turn();
            let connected = session.connected().is_some();
            match asked {
                Asked::Packet(packet_id) => _ = session.kept(&mut turn, packet_id, connected.then_some(&mut *pipe)),
                Asked::Message(position) => _ = session.message_kept(turn.limits.queue_window_bytes, position),
            }
            session.pump(&mut turn, pipe);
        }
    }

    fn read_back(&mut self, lose: bool) {
        for position in self.session.wanted(self.limits.queue_window_bytes) {
            let message = match self.shelf.items.get(&position) {
                Some(Restored::Message { queued, .. }) if !lose => queued.message().cloned(),
                _ => None,
            };
            let (session, _, mut turn) = self.turn();
            session.read_back(&mut turn, position, message);
        }
        let (session, pipe, mut turn) = self.turn();
        session.reading_ends();
        session.pump(&mut turn, pipe);
    }
}

fn limits() -> Limits {
    Limits {
        broad_subscriptions_max: 5,
        packet_size_max: 4_096,
        inflight_max: 8,
        receive_maximum: 4,
        topic_alias_max: 4,
        topic_levels_max: 8,
        subscriptions_max: 4,
        queued_messages_max: 6,
        queued_bytes_max: 2_000,
        queue_window_bytes: 300,
        queue_full: QueueFull::DropOldest,
        queue_qos0: true,
        session_expiry_max_secs: u32::MAX,
        retain_available: true,
        keep_alive_backoff: 1.5,
        will_bytes_max: 1_000,
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World {
        session: Session::new("c".into(), Some(OwnerId(16))),
        pipe: Pipe::default(),
        limits: limits(),
        metrics: ShardMetrics::default(),
        shelf: Shelf { defers: data.first().is_some_and(|first| first & 64 != 0), ..Shelf::default() },
        now: 1,
        epoch: 0,
    };
    world.connect(0);
    let mut rest = data;
    while let [step, choice, tail @ ..] = rest {
        rest = tail;
        match step % 10 {
            0 => world.connect(*choice),
            1 => world.session.disconnect(),
            2..=4 => world.deliver(*choice),
            5 => world.pipe.closed = choice & 1 != 0,
            6 => world.now += u64::from(*choice),
            7 => world.keep(usize::from(*choice)),
            8 => world.read_back(choice & 7 == 0),
            _ => match next_frame(rest, 4_096) {
                Ok(Some(frame)) => {
                    rest = &rest[frame.total_len..];
                    let keep =
                        decode(&frame, ProtocolVersion::V5, Peer::Client).is_ok_and(|packet| world.serve(&packet));
                    if !keep {
                        world.session.disconnect();
                    }
                }
                _ => return,
            },
        }
    }
    world.check();
});
