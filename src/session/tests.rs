//! Scripts of the session machine: each QoS flow with a reconnect at every step, the window, the queue and its limits; and
//! the property that what a persistent session has written down gives back its state.

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use crate::metrics::{DropReason, ShardMetrics};
use crate::mqtt::{
    self, Ack, Connect, Message, MessageId, Packet, PacketId, Peer, Properties, PropertiesBuf, Property,
    ProtocolVersion, Publish, QoS, ReasonCode, RetainHandling, SubscriptionOptions, WillName,
};

use holdfast_storage::OwnerId;

use super::*;

mod moving;

/// An outbox that keeps everything.
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

impl Pipe {
    /// What was written since the last look, each packet in words.
    fn read(&mut self) -> Vec<String> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut words = Vec::new();
        let mut at = 0;
        while let Some(frame) = mqtt::next_frame(&bytes[at..], u32::MAX).unwrap() {
            words.push(in_words(&mqtt::decode(&frame, ProtocolVersion::V5, Peer::Server).unwrap()));
            at += frame.total_len;
        }
        assert_eq!(at, bytes.len(), "half a packet was written");
        words
    }
}

fn in_words(packet: &Packet<'_>) -> String {
    let id = |id: &PacketId| id.get();
    match packet {
        Packet::Publish(publish) => {
            let id = publish.packet_id.map_or(String::new(), |id| format!(" id {id}"));
            let dup = if publish.dup { " dup" } else { "" };
            format!("publish {} qos {}{id}{dup}", String::from_utf8_lossy(publish.payload), publish.qos as u8)
        }
        Packet::PubAck(ack) => format!("puback {} {:?}", id(&ack.packet_id), ack.reason),
        Packet::PubRec(ack) => format!("pubrec {} {:?}", id(&ack.packet_id), ack.reason),
        Packet::PubRel(ack) => format!("pubrel {} {:?}", id(&ack.packet_id), ack.reason),
        Packet::PubComp(ack) => format!("pubcomp {} {:?}", id(&ack.packet_id), ack.reason),
        other => format!("{other:?}"),
    }
}

/// A session with its world.
struct Bench {
    session: Session,
    pipe: Pipe,
    limits: Limits,
    metrics: ShardMetrics,
    shelf: Shelf,
    now: u64,
    epoch: u64,
}

fn limits() -> Limits {
    Limits {
        packet_size_max: 1_000_000,
        inflight_max: 100,
        receive_maximum: 10,
        topic_alias_max: 4,
        topic_levels_max: 8,
        subscriptions_max: 100,
        broad_subscriptions_max: 5,
        queued_messages_max: 100,
        queued_bytes_max: 1_000_000,
        queue_window_bytes: 1_000_000,
        queue_full: QueueFull::DropOldest,
        queue_qos0: false,
        session_expiry_max_secs: u32::MAX,
        retain_available: true,
        keep_alive_backoff: 1.5,
        will_bytes_max: 1_000,
    }
}

impl Bench {
    fn persistent() -> Bench {
        Bench::with(limits(), 3600, &[])
    }

    fn with(limits: Limits, expiry: u32, properties: &[Property<'_>]) -> Bench {
        let owner = (expiry > 0).then_some(OwnerId(20));
        let session = Session::new("client".into(), owner);
        let mut bench = Bench {
            session,
            pipe: Pipe::default(),
            limits,
            metrics: ShardMetrics::default(),
            shelf: Shelf::default(),
            now: 1_000,
            epoch: 0,
        };
        bench.connect(expiry, properties);
        bench
    }

    fn connect(&mut self, expiry: u32, properties: &[Property<'_>]) {
        let mut buf = PropertiesBuf::default();
        buf.push(Property::SessionExpiryInterval(expiry));
        properties.iter().for_each(|property| buf.push(*property));
        let connect = Connect {
            version: ProtocolVersion::V5,
            clean_start: false,
            keep_alive_secs: 60,
            client_id: "client",
            properties: buf.as_properties(),
            will: None,
            user_name: None,
            password: None,
        };
        let agreed = accept(&connect, &self.limits, 0);
        self.epoch += 1;
        self.session.connect(self.epoch, &agreed, self.now);
    }

    fn reconnect(&mut self) -> Vec<String> {
        self.reconnect_with(&[])
    }

    fn reconnect_with(&mut self, properties: &[Property<'_>]) -> Vec<String> {
        self.session.disconnect();
        self.pipe.read();
        let expiry = self.session.expiry_secs();
        self.connect(expiry, properties);
        self.in_turn(|session, turn, pipe| {
            session.resend(turn, pipe);
            session.pump(turn, pipe);
        });
        self.pipe.read()
    }

    fn in_turn<R>(&mut self, act: impl FnOnce(&mut Session, &mut Turn<'_, &mut Shelf>, &mut Pipe) -> R) -> R {
        let mut turn = Turn { now: self.now, limits: &self.limits, metrics: &self.metrics, journal: &mut self.shelf };
        act(&mut self.session, &mut turn, &mut self.pipe)
    }

    fn send(&mut self, payload: &str, qos: QoS) -> Verdict {
        self.send_message(&message(payload, qos), qos)
    }

    fn send_message(&mut self, message: &Arc<Message>, qos: QoS) -> Verdict {
        let delivery = Delivery { qos, retain: false, subscription_ids: &[], share: None };
        self.in_turn(|session, turn, pipe| {
            let wire = session.connected().is_some().then_some(pipe);
            session.deliver(turn, &Outgoing::from_message(message), delivery, wire)
        })
    }

    /// Offers a Will of the connection of that epoch, as a node that has seen it before, or has not. Returns whether it is for the session.
    fn offer_will(&mut self, (payload, epoch): (&str, u64), known: bool, qos: QoS) -> bool {
        let will = Arc::new(Message { will: epoch, ..(*message(payload, ExactlyOnce)).clone() });
        let delivery = Delivery { qos, retain: false, subscription_ids: &[], share: None };
        let mut outgoing = Outgoing::from_message(&will);
        outgoing.known = known;
        let wanted = self.session.wants_will(&outgoing, delivery);
        self.in_turn(|session, turn, pipe| {
            let wire = session.connected().is_some().then_some(pipe);
            wanted.then(|| session.deliver(turn, &outgoing, delivery, wire))
        });
        wanted
    }

    fn forget_will(&mut self, epoch: u64) {
        let will = WillName { client: "p".into(), epoch };
        self.in_turn(|session, turn, _| session.forget_will(turn, &will));
    }

    fn ack(&mut self, kind: &str, id: u16) -> Vec<String> {
        self.ack_with(kind, id, ReasonCode::Success).unwrap()
    }

    fn ack_with(&mut self, kind: &str, id: u16, reason: ReasonCode) -> Result<Vec<String>, Violation> {
        let packet_id = PacketId::new(id).unwrap();
        let ack = Ack { packet_id, reason, properties: Properties::EMPTY };
        self.in_turn(|session, turn, pipe| {
            match kind {
                "puback" => session.puback(turn, packet_id)?,
                "pubrec" => session.pubrec(turn, &ack, pipe.buffer())?,
                "pubrel" => {
                    let answer = session.pubrel(turn, packet_id);
                    session.write_answer(answer, pipe.buffer());
                }
                _ => session.pubcomp(turn, packet_id)?,
            }
            session.pump(turn, pipe);
            Ok(())
        })?;
        Ok(self.pipe.read())
    }

    fn receive(&mut self, qos: QoS, id: u16) -> Result<&'static str, Violation> {
        self.receive_with(qos, id, ReasonCode::Success)
    }

    fn receive_with(&mut self, qos: QoS, id: u16, reason: ReasonCode) -> Result<&'static str, Violation> {
        let publish = Publish {
            dup: false,
            qos,
            retain: false,
            topic: "t",
            packet_id: PacketId::new(id),
            properties: Properties::EMPTY,
            payload: b"",
        };
        self.in_turn(|session, turn, pipe| {
            let routed = match session.publish(turn, &publish, None)? {
                Inbound::Route(_) | Inbound::RouteNamed(..) => "routed",
                Inbound::Repeated => "repeated",
                Inbound::Refused(_) => "refused",
            };
            if let Some(answer) = session.acknowledge(turn, &publish, reason) {
                session.write_answer(answer, pipe.buffer());
            }
            Ok(routed)
        })
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.metrics.messages_dropped[reason as usize].get()
    }
}

fn message(payload: &str, qos: QoS) -> Arc<Message> {
    Arc::new(Message { payload: payload.to_owned().into(), ..Message::sample(Default::default(), "t", qos) })
}

use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};

#[test]
fn qos_1_out_is_sent_again_with_dup_and_its_old_id_until_it_is_acknowledged() {
    let mut bench = Bench::persistent();
    bench.send("a", AtLeastOnce);
    assert_eq!(bench.pipe.read(), ["publish a qos 1 id 1"]);
    assert_eq!(bench.reconnect(), ["publish a qos 1 id 1 dup"]);
    assert_eq!(bench.reconnect(), ["publish a qos 1 id 1 dup"]);
    assert!(bench.ack("puback", 1).is_empty());
    assert!(bench.reconnect().is_empty());
}

#[test]
fn an_empty_queue_keeps_no_memory_of_how_long_it_was() {
    let mut bench = Bench::with(Limits { queued_messages_max: 10_000, ..limits() }, 3600, &[]);
    bench.session.disconnect();
    (0..5_000).for_each(|_| _ = bench.send("a", AtLeastOnce));
    bench.reconnect();
    (1..=5_000).for_each(|id| _ = bench.ack("puback", id));
    assert_eq!((bench.session.queue().len(), bench.session.queue().capacity()), (0, 0));
}

#[test]
fn what_is_sent_again_keeps_to_the_new_receive_maximum() {
    let mut bench = Bench::persistent();
    for payload in ["a", "b", "c", "d"] {
        bench.send(payload, AtLeastOnce);
    }
    let two = [Property::ReceiveMaximum(2)];
    assert_eq!(bench.reconnect_with(&two), ["publish a qos 1 id 1 dup", "publish b qos 1 id 2 dup"], "[MQTT-3.3.4-9]");
    bench.send("e", AtLeastOnce);
    assert!(bench.pipe.read().is_empty());
    assert!(bench.ack("puback", 3).is_empty(), "acknowledged without having been sent again");
    assert_eq!(bench.ack("puback", 1), ["publish d qos 1 id 4 dup"]);
    assert_eq!(bench.reconnect_with(&two), ["publish b qos 1 id 2 dup", "publish d qos 1 id 4 dup"]);
    assert_eq!(bench.ack("puback", 4), ["publish e qos 1 id 5"]);
}

#[test]
fn qos_2_in_that_was_refused_after_routing_leaves_its_id_for_another_message() {
    let mut bench = Bench::persistent();
    for _ in 0..20 {
        assert_eq!(bench.receive_with(ExactlyOnce, 7, ReasonCode::QuotaExceeded).unwrap(), "routed");
    }
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "routed", "[MQTT-4.3.3-9]");
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "repeated");
}

#[test]
fn qos_2_out_goes_on_where_it_was_at_every_step() {
    let mut bench = Bench::persistent();
    bench.send("a", ExactlyOnce);
    assert_eq!(bench.pipe.read(), ["publish a qos 2 id 1"]);
    assert_eq!(bench.reconnect(), ["publish a qos 2 id 1 dup"]);
    assert_eq!(bench.ack("pubrec", 1), ["pubrel 1 Success"]);
    assert_eq!(bench.reconnect(), ["pubrel 1 Success"], "never PUBLISH again [MQTT-4.3.3-10]");
    assert_eq!(bench.ack("pubrec", 1), ["pubrel 1 Success"], "a repeated PUBREC");
    assert!(bench.ack("pubcomp", 1).is_empty());
    assert!(bench.reconnect().is_empty());
}

#[test]
fn a_negative_pubrec_or_puback_ends_the_delivery() {
    let mut bench = Bench::persistent();
    bench.send("a", ExactlyOnce);
    bench.send("b", AtLeastOnce);
    bench.ack_with("pubrec", 1, ReasonCode::QuotaExceeded).unwrap();
    bench.ack_with("puback", 2, ReasonCode::NotAuthorized).unwrap();
    assert!(bench.reconnect().is_empty());
}

#[test]
fn acknowledgements_of_the_wrong_kind_end_the_connection() {
    let mut bench = Bench::persistent();
    bench.send("a", AtLeastOnce);
    bench.send("b", ExactlyOnce);
    for (kind, id) in [("pubrec", 1), ("pubcomp", 1), ("puback", 2), ("pubcomp", 2)] {
        assert_eq!(
            bench.ack_with(kind, id, ReasonCode::Success).unwrap_err().reason,
            ReasonCode::ProtocolError,
            "{kind} {id}"
        );
    }
}

#[test]
fn acknowledgements_of_unknown_packets_are_answered_and_change_nothing() {
    let mut bench = Bench::persistent();
    bench.pipe.read();
    assert!(bench.ack("puback", 9).is_empty());
    assert_eq!(bench.ack("pubrec", 9), ["pubrel 9 PacketIdentifierNotFound"]);
    assert_eq!(bench.ack("pubrel", 9), ["pubcomp 9 PacketIdentifierNotFound"]);
    assert!(bench.ack("pubcomp", 9).is_empty());
}

#[test]
fn qos_2_in_is_routed_once_however_often_it_comes() {
    let mut bench = Bench::persistent();
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "routed");
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "repeated");
    bench.reconnect();
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "repeated");
    assert_eq!(bench.pipe.read(), ["pubrec 7 Success"]);
    assert_eq!(bench.ack("pubrel", 7), ["pubcomp 7 Success"]);
    assert_eq!(bench.receive(ExactlyOnce, 7).unwrap(), "routed", "released: a new message");
}

#[test]
fn more_qos_2_than_the_receive_maximum_ends_the_connection() {
    let mut bench = Bench::persistent();
    (1..=10).for_each(|id| _ = bench.receive(ExactlyOnce, id).unwrap());
    assert_eq!(bench.receive(ExactlyOnce, 11).unwrap_err().reason, ReasonCode::ReceiveMaximumExceeded);
    bench.ack("pubrel", 1);
    assert!(bench.receive(ExactlyOnce, 12).is_ok());
}

#[test]
fn the_window_never_exceeds_the_receive_maximum_and_refills_in_order() {
    let mut bench = Bench::with(limits(), 3600, &[Property::ReceiveMaximum(2)]);
    ["a", "b", "c", "d"].iter().for_each(|payload| _ = bench.send(payload, AtLeastOnce));
    assert_eq!(bench.pipe.read(), ["publish a qos 1 id 1", "publish b qos 1 id 2"]);
    assert_eq!(bench.ack("puback", 2), ["publish c qos 1 id 3"]);
    assert_eq!(bench.ack("puback", 1), ["publish d qos 1 id 4"]);
}

#[test]
fn a_new_connection_has_a_fresh_quota() {
    let mut bench = Bench::with(limits(), 3600, &[Property::ReceiveMaximum(1)]);
    ["a", "b", "c"].iter().for_each(|payload| _ = bench.send(payload, AtLeastOnce));
    assert_eq!(
        bench.reconnect_with(&[Property::ReceiveMaximum(4)]),
        ["publish a qos 1 id 1 dup", "publish b qos 1 id 2", "publish c qos 1 id 3"]
    );
}

#[test]
fn qos_0_passes_a_full_window_but_never_another_qos_0() {
    let mut bench = Bench::with(limits(), 3600, &[Property::ReceiveMaximum(1)]);
    bench.send("a", AtLeastOnce);
    bench.send("b", AtLeastOnce);
    bench.send("x", AtMostOnce);
    assert_eq!(bench.pipe.read(), ["publish a qos 1 id 1", "publish x qos 0"]);
    bench.pipe.closed = true;
    bench.send("y", AtMostOnce);
    bench.pipe.closed = false;
    bench.send("z", AtMostOnce);
    assert!(bench.pipe.read().is_empty(), "z waits behind y");
    bench.in_turn(|session, turn, pipe| session.pump(turn, pipe));
    assert_eq!(bench.pipe.read(), ["publish y qos 0", "publish z qos 0"]);
}

#[test]
fn a_full_queue_drops_the_oldest_or_the_newest_or_ends_the_connection() {
    let kept = |queue_full| {
        let mut bench = Bench::with(Limits { queued_messages_max: 2, queue_full, ..limits() }, 3600, &[]);
        bench.session.disconnect();
        ["a", "b", "c"].iter().for_each(|payload| _ = bench.send(payload, AtLeastOnce));
        assert_eq!((bench.dropped(DropReason::QueueFull), bench.session.dropped()), (1, 1));
        let kept: Vec<String> = bench
            .session
            .queue()
            .iter()
            .map(|queued| String::from_utf8_lossy(&queued.message().unwrap().payload).into_owned())
            .collect();
        kept.join("")
    };
    assert_eq!(kept(QueueFull::DropOldest), "bc");
    assert_eq!(kept(QueueFull::DropNewest), "ab");
    assert_eq!(kept(QueueFull::Disconnect), "ab");
    let mut bench =
        Bench::with(Limits { queued_messages_max: 1, queue_full: QueueFull::Disconnect, ..limits() }, 3600, &[]);
    bench.pipe.closed = true;
    assert_eq!(bench.send("a", AtLeastOnce), Verdict::Taken);
    assert_eq!(bench.send("b", AtLeastOnce), Verdict::Overflow);
}

#[test]
fn the_queue_is_bounded_in_bytes_too() {
    let size = message("a", AtLeastOnce).size();
    let mut bench = Bench::with(Limits { queued_bytes_max: 3 * size, ..limits() }, 3600, &[]);
    bench.session.disconnect();
    (0..10).for_each(|_| _ = bench.send("a", AtLeastOnce));
    assert_eq!((bench.session.queue().len(), bench.session.queue().bytes()), (3, 3 * size));
    assert_eq!(bench.dropped(DropReason::QueueFull), 7);
}

#[test]
fn qos_0_is_kept_for_a_detached_session_only_when_configured() {
    let mut bench = Bench::persistent();
    bench.session.disconnect();
    bench.send("a", AtMostOnce);
    assert_eq!((bench.session.queue().len(), bench.dropped(DropReason::Disconnected)), (0, 1));
    bench.limits.queue_qos0 = true;
    bench.send("b", AtMostOnce);
    assert_eq!(bench.reconnect(), ["publish b qos 0"]);
}

#[test]
fn what_expired_is_dropped_when_its_turn_comes() {
    let mut bench = Bench::persistent();
    bench.session.disconnect();
    let expiring = Arc::new(Message { expires_at: Some(5_000), ..(*message("a", AtLeastOnce)).clone() });
    bench.send_message(&expiring, AtLeastOnce);
    bench.send("b", AtLeastOnce);
    bench.now = 5_000;
    assert_eq!(bench.reconnect(), ["publish b qos 1 id 1"]);
    assert_eq!(bench.dropped(DropReason::Expired), 1);
}

#[test]
fn qos_0_makes_room_for_what_was_acknowledged_and_never_pushes_it_out() {
    for queue_full in [QueueFull::DropOldest, QueueFull::DropNewest, QueueFull::Disconnect] {
        let mut bench = Bench::with(Limits { queued_messages_max: 3, queue_full, ..limits() }, 3600, &[]);
        bench.pipe.closed = true;
        [("a", AtLeastOnce), ("x", AtMostOnce), ("y", AtMostOnce), ("z", AtMostOnce), ("b", AtLeastOnce)]
            .iter()
            .for_each(|(payload, qos)| _ = bench.send(payload, *qos));
        let waiting = |bench: &Bench, qos| bench.session.queue().iter().filter(|queued| queued.qos == qos).count();
        assert_eq!((waiting(&bench, AtLeastOnce), waiting(&bench, AtMostOnce)), (2, 1), "{queue_full:?}");
        bench.in_turn(|session, turn, _| session.discard_qos0(turn));
        bench.pipe.closed = false;
        assert_eq!(bench.reconnect(), ["publish a qos 1 id 1", "publish b qos 1 id 2"], "{queue_full:?}");
        assert_eq!((bench.dropped(DropReason::Qos0Slow), bench.dropped(DropReason::Disconnected)), (2, 1));
    }
}

#[test]
fn a_message_larger_than_the_queue_pushes_nothing_out() {
    let size = message("a", AtLeastOnce).size();
    let mut bench = Bench::with(Limits { queued_bytes_max: 3 * size, ..limits() }, 3600, &[]);
    bench.session.disconnect();
    bench.send("a", AtLeastOnce);
    bench.send(&"x".repeat(4 * size), AtLeastOnce);
    assert_eq!((bench.session.queue().len(), bench.dropped(DropReason::QueueFull)), (1, 1));
}

#[test]
fn expired_messages_make_room_in_a_full_queue() {
    let limits = Limits { queued_messages_max: 2, queue_full: QueueFull::DropNewest, ..limits() };
    let mut bench = Bench::with(limits, 3600, &[]);
    bench.session.disconnect();
    let expiring = Arc::new(Message { expires_at: Some(5_000), ..(*message("a", AtLeastOnce)).clone() });
    bench.send_message(&expiring, AtLeastOnce);
    bench.send("b", AtLeastOnce);
    bench.now = 5_000;
    bench.send("c", AtLeastOnce);
    assert_eq!(bench.reconnect(), ["publish b qos 1 id 1", "publish c qos 1 id 2"]);
    assert_eq!((bench.dropped(DropReason::Expired), bench.dropped(DropReason::QueueFull)), (1, 0));
}

#[test]
fn a_message_that_the_client_cannot_take_is_dropped_and_blocks_nothing() {
    let mut bench = Bench::persistent();
    bench.session.disconnect();
    bench.send("1", AtLeastOnce);
    bench.send(&"x".repeat(500), AtLeastOnce);
    bench.send("2", ExactlyOnce);
    assert_eq!(
        bench.reconnect_with(&[Property::MaximumPacketSize(100)]),
        ["publish 1 qos 1 id 1", "publish 2 qos 2 id 3"].map(str::to_owned)
    );
    assert_eq!(bench.dropped(DropReason::TooLarge), 1);
    // A packet of exactly the limit: 2 (header) + 3 (topic) + 2 (id) + 1 (properties) + payload.
    bench.send(&"y".repeat(92), AtLeastOnce);
    bench.send(&"z".repeat(93), AtLeastOnce);
    assert_eq!(bench.pipe.read().len(), 1);
    assert_eq!(bench.dropped(DropReason::TooLarge), 2);
}

#[test]
fn a_session_that_ends_with_its_connection_keeps_no_bodies() {
    let mut bench = Bench::with(limits(), 0, &[]);
    bench.send("a", AtLeastOnce);
    assert!(bench.session.window.iter().all(|inflight| inflight.queued.is_none()));
    assert!(bench.shelf.items.is_empty(), "and writes nothing down");
}

#[test]
fn a_member_gives_back_qos_1_and_what_it_never_sent_of_qos_2() {
    let mut bench = Bench::with(limits(), 3600, &[Property::ReceiveMaximum(2)]);
    let share: Arc<str> = "$share/g/t".into();
    for (payload, qos) in [("1", AtLeastOnce), ("2", ExactlyOnce), ("3", ExactlyOnce), ("4", AtLeastOnce)] {
        let delivery = Delivery {
            qos,
            retain: false,
            subscription_ids: &[],
            share: Some(ShareText { text: &share, awaited: false }),
        };
        bench.in_turn(|session, turn, pipe| {
            session.deliver(turn, &Outgoing::from_message(&message(payload, qos)), delivery, Some(pipe))
        });
    }
    let given = |bench: &mut Bench, unsent_only| -> String {
        let given = bench.session.give_back(Some("$share/g/t"), unsent_only);
        given.iter().map(|queued| String::from_utf8_lossy(&queued.message().unwrap().payload).into_owned()).collect()
    };
    assert_eq!(given(&mut bench, true), "34", "a member that may come back keeps what it was sent");
    assert_eq!(given(&mut bench, false), "1", "one that leaves for good keeps QoS 2 in delivery [MQTT-4.8.2-5]");
}

#[test]
fn who_keeps_a_message_for_a_member_is_told_when_the_member_is_done_with_it() {
    let few = Limits { queued_messages_max: 2, ..limits() };
    let mut bench = Bench::with(few, 0, &[Property::ReceiveMaximum(3)]);
    let share: Arc<str> = "$share/g/t".into();
    let deliver = |bench: &mut Bench, sequence, qos, awaited| {
        let id = MessageId { node: 7, shard: 0, sequence };
        let message = Arc::new(Message { id, ..(*message("m", qos)).clone() });
        let share = Some(ShareText { text: &share, awaited });
        let delivery = Delivery { qos, retain: false, subscription_ids: &[], share };
        bench.in_turn(|session, turn, pipe| {
            session.deliver(turn, &Outgoing::from_message(&message), delivery, Some(pipe))
        });
    };
    let told = |bench: &mut Bench| -> Vec<u64> {
        std::mem::take(&mut bench.shelf.settled).into_iter().map(|id| id.sequence).collect()
    };
    for (sequence, qos, awaited) in [(1, AtLeastOnce, true), (2, ExactlyOnce, true), (3, AtLeastOnce, false)] {
        deliver(&mut bench, sequence, qos, awaited);
    }
    (4..=6).for_each(|sequence| deliver(&mut bench, sequence, AtLeastOnce, true));
    assert_eq!(told(&mut bench), [2, 4], "of QoS 2 when it is sent; the queue holds two, and the oldest made room");
    bench.ack("puback", 1);
    bench.ack("pubrec", 2);
    assert_eq!(told(&mut bench), [1]);
    bench.ack("puback", 3);
    bench.ack("pubcomp", 2);
    assert!(told(&mut bench).is_empty(), "nobody waits for the third");
    assert_eq!(bench.session.awaited().map(|id| id.sequence).collect::<Vec<_>>(), [5, 6]);
    let given = bench.session.give_back(None, false);
    assert!(given.iter().all(|queued| queued.awaited) && told(&mut bench).is_empty());
    assert_eq!((given.len(), bench.session.awaited().count()), (2, 0));
}

#[test]
fn topics_of_the_server_and_too_deep_ones_are_refused() {
    let mut bench = Bench::persistent();
    for (topic, expected) in [
        ("$SYS/x", "refused"),
        ("$share/x", "refused"),
        ("$own/x", "routed"),
        ("1/2/3/4/5/6/7/8", "routed"),
        ("1/2/3/4/5/6/7/8/9", "refused"),
    ] {
        let publish = Publish {
            dup: false,
            qos: AtMostOnce,
            retain: false,
            topic,
            packet_id: None,
            properties: Properties::EMPTY,
            payload: b"",
        };
        let inbound = bench.in_turn(|session, turn, _| session.publish(turn, &publish, None).unwrap());
        let routed = if matches!(inbound, Inbound::Route(_)) { "routed" } else { "refused" };
        assert_eq!(routed, expected, "{topic}");
    }
}

#[test]
fn a_packet_that_is_found_under_way_is_routed_again_as_one_more_message() {
    let name = |sequence| MessageId { node: 1, shard: 0, sequence }.of_packet();
    let packet_id = PacketId::new(7).unwrap();
    let publish = Publish {
        dup: false,
        qos: ExactlyOnce,
        retain: false,
        topic: "t",
        packet_id: Some(packet_id),
        properties: Properties::EMPTY,
        payload: b"",
    };
    let receive = |bench: &mut Bench, sequence| {
        bench.in_turn(|session, turn, _| match session.publish(turn, &publish, Some(name(sequence))).unwrap() {
            Inbound::RouteNamed(_, names) => names.all().iter().map(|id| id.sequence).collect(),
            Inbound::Repeated => Vec::new(),
            other => panic!("{other:?}"),
        })
    };
    let find_again = |bench: &mut Bench| {
        let mut found = Session::new("client".into(), bench.session.owner());
        bench.shelf.items.iter().for_each(|(position, item)| found.restore(*position, item.clone()));
        found.restored();
        bench.session = found;
        bench.connect(3600, &[]);
    };
    let mut bench = Bench::persistent();
    assert_eq!(receive(&mut bench, 10), [10]);
    assert!(receive(&mut bench, 11).is_empty(), "it is under way");
    assert_eq!(bench.session.under_way(packet_id), Some(name(10)));
    find_again(&mut bench);
    assert!(bench.session.is_unfinished(packet_id) && !bench.session.has_packets_under_way());
    assert_eq!(receive(&mut bench, 20), [10, 20]);
    bench.session.packet_routed(packet_id, name(10));
    assert!(bench.session.has_packets_under_way(), "that was another life");
    find_again(&mut bench);
    assert_eq!(receive(&mut bench, 30), [10, 20, 30]);
    bench.in_turn(|session, turn, _| session.forget_packet(turn, packet_id));
    assert_eq!(receive(&mut bench, 40), [10, 20, 30, 40], "its node was given up");
    bench.session.packet_routed(packet_id, name(40));
    assert!(receive(&mut bench, 41).is_empty() && !bench.session.has_packets_under_way());
    assert_eq!(
        items_of(&bench.session)[&1],
        Restored::Accepted { packet_id, names: None },
        "nobody need route it again"
    );
    bench.in_turn(|session, turn, _| session.pubrel(turn, packet_id));
    assert!(bench.shelf.items.is_empty());
    assert_eq!(receive(&mut bench, 50), [50]);
}

/// However it is delivered, and whatever becomes of it.
#[test]
fn a_session_takes_a_will_once() {
    for (connected, defers, qos) in [(true, false, AtLeastOnce), (true, true, ExactlyOnce), (false, false, AtLeastOnce)]
    {
        let mut bench = Bench::persistent();
        bench.shelf.defers = defers;
        if !connected {
            bench.session.disconnect();
        }
        assert!(bench.offer_will(("a", 1), true, qos), "the session was elsewhere when the node has seen it");
        bench.keep(true);
        let sent = bench.pipe.read();
        assert_eq!(if connected { sent } else { bench.reconnect() }.len(), 1);
        let _ = bench.ack_with("puback", 1, ReasonCode::Success);
        assert!(!bench.offer_will(("again", 1), false, qos) && bench.offer_will(("b", 2), false, qos));
        let mut found = Session::new("client".into(), bench.session.owner());
        bench.shelf.items.iter().for_each(|(position, item)| found.restore(*position, item.clone()));
        bench.session = found;
        assert!(!bench.offer_will(("again", 1), false, qos) && !bench.offer_will(("again", 2), false, qos));
        assert_eq!(bench.session.wills_had().count(), 2);
        bench.forget_will(1);
        assert!(bench.offer_will(("again", 1), false, qos));
    }
}

#[test]
fn what_a_session_does_not_remember_goes_by_what_its_node_has_seen() {
    let mut persistent = Bench::persistent();
    let mut clean = Bench::with(limits(), 0, &[]);
    for (bench, qos) in [(&mut persistent, AtMostOnce), (&mut clean, ExactlyOnce)] {
        assert!(bench.offer_will(("a", 1), false, qos) && !bench.offer_will(("a", 1), true, qos));
        assert!(bench.shelf.items.is_empty() && bench.session.wills_had().next().is_none());
    }
    let full = Limits { queued_messages_max: 1, queue_full: QueueFull::DropNewest, ..limits() };
    let mut bench = Bench::with(full, 3600, &[]);
    bench.session.disconnect();
    bench.send("a", AtLeastOnce);
    assert!(bench.offer_will(("b", 1), false, AtLeastOnce) && bench.session.wills_had().next().is_none());
}

/// One step of a random life.
#[derive(Debug, Clone)]
enum Step {
    Send(QoS, bool),
    Will(u64, QoS),
    ForgetWill(u64),
    Ack(&'static str, u16, bool),
    Receive(u16),
    Reconnect(u16),
    Disconnect,
    Subscribe(u8),
    Unsubscribe(u8),
    Congest(bool),
    Wait(u64),
    Keep(bool),
    ReadBack,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let qos = prop_oneof![Just(AtMostOnce), Just(AtLeastOnce), Just(ExactlyOnce)];
    let kind = prop_oneof![Just("puback"), Just("pubrec"), Just("pubrel"), Just("pubcomp")];
    let step = prop_oneof![
        3 => (1u64..4, qos.clone()).prop_map(|(epoch, qos)| Step::Will(epoch, qos)),
        1 => (1u64..4).prop_map(Step::ForgetWill),
        6 => (qos, any::<bool>()).prop_map(|(qos, expires)| Step::Send(qos, expires)),
        8 => (kind, 1u16..8, prop::bool::weighted(0.1)).prop_map(|(kind, id, negative)| Step::Ack(kind, id, negative)),
        3 => (1u16..6).prop_map(Step::Receive),
        2 => (1u16..5).prop_map(Step::Reconnect),
        1 => Just(Step::Disconnect),
        1 => (0u8..4).prop_map(Step::Subscribe),
        1 => (0u8..4).prop_map(Step::Unsubscribe),
        1 => any::<bool>().prop_map(Step::Congest),
        1 => (0u64..3_000).prop_map(Step::Wait),
        4 => any::<bool>().prop_map(Step::Keep),
        2 => Just(Step::ReadBack),
    ];
    prop::collection::vec(step, 1..80)
}

fn take_step(bench: &mut Bench, number: usize, step: Step) {
    let options = SubscriptionOptions {
        qos: AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::SendAtSubscribe,
    };
    match step {
        Step::Send(qos, expires) => {
            let expires_at = expires.then_some(bench.now + 2_000);
            let message = Arc::new(Message { expires_at, ..(*message(&number.to_string(), qos)).clone() });
            bench.send_message(&message, qos);
        }
        Step::Will(epoch, qos) => _ = bench.offer_will((&number.to_string(), epoch), false, qos),
        Step::ForgetWill(epoch) => bench.forget_will(epoch),
        Step::Ack(kind, id, negative) if bench.session.connected().is_some() => {
            let reason = if negative { ReasonCode::UnspecifiedError } else { ReasonCode::Success };
            // A wrong kind is refused and changes nothing; the shard would close.
            let _ = bench.ack_with(kind, id, reason);
        }
        Step::Receive(id) if bench.session.connected().is_some() => _ = bench.receive(ExactlyOnce, id),
        Step::Ack(..) | Step::Receive(_) => {}
        Step::Reconnect(receive_maximum) => drop(bench.reconnect_with(&[Property::ReceiveMaximum(receive_maximum)])),
        Step::Disconnect => bench.session.disconnect(),
        Step::Subscribe(n) => {
            let filter: Arc<str> = format!("f/{n}").into();
            bench.in_turn(|session, turn, _| {
                session.subscribe(turn, &filter, Subscription { options, subscription_id: Some(u32::from(n) + 1) })
            });
        }
        Step::Unsubscribe(n) => _ = bench.in_turn(|session, turn, _| session.unsubscribe(turn, &format!("f/{n}"))),
        Step::Congest(closed) => {
            bench.pipe.closed = closed;
            if !closed && bench.session.connected().is_some() {
                bench.in_turn(|session, turn, pipe| session.pump(turn, pipe));
            }
        }
        Step::Wait(ms) => bench.now += ms,
        Step::Keep(all) => bench.keep(all),
        Step::ReadBack => bench.read_back(),
    }
}

impl Bench {
    /// The disk has what was written down: all who asked are told, or the first of them only.
    fn keep(&mut self, all: bool) {
        let asked = if all {
            std::mem::take(&mut self.shelf.asked)
        } else {
            self.shelf.asked.drain(..1.min(self.shelf.asked.len())).collect()
        };
        for asked in asked {
            self.in_turn(|session, turn, pipe| match asked {
                Asked::Packet(packet_id) if session.connected().is_some() => {
                    session.kept(turn, packet_id, Some(pipe));
                    session.pump(turn, pipe);
                }
                Asked::Packet(packet_id) => _ = session.kept::<Pipe, _>(turn, packet_id, None),
                Asked::Message(position) => {
                    session.message_kept(turn.limits.queue_window_bytes, position);
                    if session.connected().is_some() {
                        session.pump(turn, pipe);
                    }
                }
            });
        }
    }

    /// Reads back what the session wants, as the shard would.
    fn read_back(&mut self) {
        let window = self.limits.queue_window_bytes;
        while let wanted = self.session.wanted(window)
            && !wanted.is_empty()
        {
            self.session.reading_ends();
            for position in wanted {
                let Some(Restored::Message { queued, .. }) = self.shelf.items.get(&position) else {
                    panic!("{position}")
                };
                let message = queued.message().cloned();
                self.in_turn(|session, turn, _| assert!(session.read_back(turn, position, message)));
            }
            self.in_turn(|session, turn, pipe| session.pump(turn, pipe));
        }
    }
}

fn deferring(limits: Limits) -> Bench {
    let mut bench = Bench::with(limits, 3600, &[]);
    bench.shelf.defers = true;
    bench
}

#[test]
fn qos_2_out_is_sent_when_its_packet_id_is_kept_and_released_when_its_pubrec_is() {
    let mut bench = deferring(limits());
    bench.send("a", ExactlyOnce);
    bench.send("b", ExactlyOnce);
    bench.send("c", AtLeastOnce);
    assert!(bench.pipe.read().is_empty(), "QoS 1 does not overtake");
    bench.keep(true);
    bench.in_turn(|session, turn, pipe| session.pump(turn, pipe));
    assert_eq!(bench.pipe.read(), ["publish a qos 2 id 1", "publish b qos 2 id 2", "publish c qos 1 id 3"]);
    assert!(bench.ack("pubrec", 1).is_empty());
    assert!(bench.ack("pubrec", 1).is_empty(), "a repeated PUBREC");
    bench.keep(true);
    assert_eq!(bench.pipe.read(), ["pubrel 1 Success"]);
    assert_eq!(bench.reconnect(), ["pubrel 1 Success", "publish b qos 2 id 2 dup", "publish c qos 1 id 3 dup"]);
}

#[test]
fn qos_2_out_keeps_its_order_however_the_disk_answers() {
    let mut bench = deferring(limits());
    bench.send("a", ExactlyOnce);
    bench.send("b", ExactlyOnce);
    bench.shelf.asked.reverse();
    bench.keep(false);
    assert!(bench.pipe.read().is_empty());
    bench.keep(false);
    assert_eq!(bench.pipe.read(), ["publish a qos 2 id 1", "publish b qos 2 id 2"]);
}

#[test]
fn what_was_not_kept_when_the_client_came_back_is_sent_when_it_is() {
    let mut bench = deferring(limits());
    bench.send("a", ExactlyOnce);
    assert!(bench.reconnect().is_empty());
    bench.keep(true);
    assert_eq!(bench.pipe.read(), ["publish a qos 2 id 1"]);
}

#[test]
fn a_long_queue_leaves_the_memory_and_comes_back_in_order() {
    let mut bench = deferring(Limits { queue_window_bytes: 600, inflight_max: 1_000, ..limits() });
    bench.session.disconnect();
    for n in 0..50 {
        bench.send(&n.to_string(), if n % 3 == 0 { ExactlyOnce } else { AtLeastOnce });
        bench.keep(true);
    }
    assert!(bench.session.queue().bytes_here() <= 600, "{}", bench.session.queue().bytes_here());
    assert!(bench.session.queue().bytes() > 5_000);
    let mut sent = bench.reconnect();
    for _ in 0..60 {
        bench.read_back();
        bench.keep(true);
        sent.extend(bench.pipe.read());
    }
    let payloads = sent.iter().map(|words| words.split(' ').nth(1).unwrap().parse::<u32>().unwrap());
    assert_eq!(payloads.collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
}

#[test]
fn after_a_restart_qos_1_keeps_its_order_though_not_everything_that_was_sent_is_known_to_be() {
    let mut bench = deferring(limits());
    bench.session.disconnect();
    bench.send("a", AtLeastOnce);
    let waiting = bench.shelf.items.clone();
    assert_eq!(bench.reconnect(), ["publish a qos 1 id 1"]);
    bench.send("b", AtLeastOnce);
    // What a crash leaves: that "b" was sent is on disk, that "a" was is not yet.
    let found = bench.shelf.items.clone().into_iter().chain(waiting);
    let found: std::collections::BTreeMap<_, _> = found.collect();
    bench.session = Session::new("client".into(), Some(OwnerId(20)));
    found.iter().for_each(|(position, item)| bench.session.restore(*position, item.clone()));
    bench.session.restored();
    bench.shelf.items = found;
    assert_eq!(bench.reconnect(), ["publish a qos 1 id 3", "publish b qos 1 id 4"]);
}

#[test]
fn a_message_that_cannot_be_read_back_is_lost_alone() {
    let mut bench = deferring(Limits { queue_window_bytes: 0, ..limits() });
    bench.session.disconnect();
    bench.send("a", AtLeastOnce);
    bench.send("b", AtLeastOnce);
    bench.keep(true);
    assert!(bench.reconnect().is_empty());
    let wanted = bench.session.wanted(0);
    assert_eq!(wanted.len(), 1);
    bench.session.reading_ends();
    bench.in_turn(|session, turn, _| assert!(!session.read_back(turn, wanted[0], None)));
    assert_eq!(bench.dropped(DropReason::Damaged), 1);
    bench.read_back();
    assert_eq!(bench.pipe.read(), ["publish b qos 1 id 1"]);
    assert_eq!(bench.shelf.items.len(), 1);
}

/// What a restart finds is on disk alone, and nothing waits any more for what was kept.
fn as_stored(queued: &queue::Queued) -> queue::Queued {
    queue::Queued { body: QueuedBody::Stored(queued.stored_body()), kept: true, ..queued.clone() }
}

fn window_at_rest(session: &Session) -> Vec<window::Inflight> {
    let mut window: Vec<_> = session.window.iter().cloned().collect();
    window.sort_by_key(|inflight| inflight.position);
    for inflight in &mut window {
        inflight.queued = inflight.queued.as_ref().map(as_stored);
        inflight.stage = match inflight.stage {
            window::Stage::QoS2Recorded | window::Stage::QoS2Kept => window::Stage::QoS2Sent,
            window::Stage::Received => window::Stage::Released,
            stage => stage,
        };
    }
    window
}

fn accepted(session: &Session) -> std::collections::BTreeMap<PacketId, Position> {
    session.accepted.iter().map(|(packet_id, accepted)| (*packet_id, accepted.position)).collect()
}

/// What a copy of the session is made of.
fn items_of(session: &Session) -> std::collections::BTreeMap<Position, Restored> {
    let (mut shelf, owner) = (Shelf::default(), OwnerId(20));
    session.items_without_message(|position, item| shelf.put(owner, position, item));
    for position in session.message_positions() {
        let (queued, packet_id) = session.written_message(position).expect("it is there");
        shelf.put(owner, position, Item::Message { queued, packet_id });
    }
    shelf.items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_a_session_has_written_down_gives_back_its_state(steps in steps(), defers: bool, window_bytes in 0usize..1_000) {
        let limits = Limits { queued_messages_max: 5, queue_window_bytes: window_bytes, ..limits() };
        let mut bench = Bench::with(limits, 3600, &[Property::ReceiveMaximum(3)]);
        bench.shelf.defers = defers;
        for (number, step) in steps.into_iter().enumerate() {
            take_step(&mut bench, number, step);
            let kept = |session: &Session| session.queue.iter().filter(|queued| queued.qos > AtMostOnce).map(as_stored).collect::<Vec<_>>();
            for items in [&bench.shelf.items, &items_of(&bench.session)] {
                let mut restored = Session::new("client".into(), None);
                items.iter().for_each(|(position, item)| restored.restore(*position, item.clone()));
                restored.restored();
                prop_assert_eq!(kept(&restored), kept(&bench.session));
                prop_assert_eq!(window_at_rest(&restored), window_at_rest(&bench.session));
                prop_assert_eq!(accepted(&restored), accepted(&bench.session));
                prop_assert_eq!(&restored.subscriptions, &bench.session.subscriptions);
                prop_assert_eq!(&restored.wills, &bench.session.wills);
            }
            let positions: std::collections::BTreeSet<_> = bench.session.positions().into_iter().collect();
            prop_assert_eq!(positions, bench.shelf.items.keys().copied().collect());
        }
    }
}
