//! What the session machine costs per message: delivery at each QoS with its acknowledgements, intake of a PUBLISH, and the queue
//! of a session without a connection.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use holdfast::metrics::ShardMetrics;
use holdfast::mqtt::{
    Ack, Connect, PacketId, Properties, PropertiesBuf, Property, ProtocolVersion, Publish, QoS, ReasonCode,
};
use holdfast::session::{Delivery, Limits, NoJournal, Outgoing, QueueFull, Session, Turn, Wire, accept};

const TOPIC: &str = "fleet/0042/sensor/000/tmp";
const PAYLOAD: [u8; 64] = [0x5A; 64];

#[derive(Default)]
struct Pipe(Vec<u8>);

impl Wire for Pipe {
    fn has_room(&self) -> bool {
        true
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    fn append_shared(&mut self, bytes: Bytes) {
        self.0.extend_from_slice(&bytes);
    }
}

fn limits() -> Limits {
    Limits {
        packet_size_max: 2_000_000,
        inflight_max: 100,
        receive_maximum: 100,
        topic_alias_max: 32,
        topic_levels_max: 32,
        subscriptions_max: 10_000,
        broad_subscriptions_max: 5,
        queued_messages_max: 10_000,
        queue_window_bytes: usize::MAX,
        queued_bytes_max: 16_000_000,
        queue_full: QueueFull::DropOldest,
        queue_qos0: false,
        session_expiry_max_secs: u32::MAX,
        retain_available: true,
        keep_alive_backoff: 1.5,
        will_bytes_max: 16_384,
    }
}

fn session(limits: &Limits, expiry_secs: u32) -> Session {
    let mut properties = PropertiesBuf::default();
    properties.push(Property::SessionExpiryInterval(expiry_secs));
    let connect = Connect {
        version: ProtocolVersion::V5,
        clean_start: true,
        keep_alive_secs: 60,
        client_id: "bench",
        properties: properties.as_properties(),
        will: None,
        user_name: None,
        password: None,
    };
    let mut session = Session::new("bench".into(), None);
    session.connect(1, &accept(&connect, limits, 0), 0);
    session
}

/// One delivery and the acknowledgements that end it.
fn deliver(
    session: &mut Session,
    turn: &mut Turn<'_, NoJournal>,
    outgoing: &Outgoing<'_>,
    pipe: &mut Pipe,
    id: &mut u16,
) {
    let delivery = Delivery { qos: outgoing.qos, retain: false, subscription_ids: &[], share: None };
    session.deliver(turn, outgoing, delivery, Some(pipe));
    if outgoing.qos == QoS::AtMostOnce {
        return;
    }
    *id = id.checked_add(1).unwrap_or(1);
    let packet_id = PacketId::new(*id).expect("never 0");
    let ack = Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY };
    if outgoing.qos == QoS::AtLeastOnce {
        session.puback(turn, packet_id).expect("in flight");
    } else {
        session.pubrec(turn, &ack, pipe.buffer()).expect("in flight");
        session.pubcomp(turn, packet_id).expect("released");
    }
}

fn benches(c: &mut Criterion) {
    let (limits, metrics, publisher): (Limits, ShardMetrics, Arc<str>) =
        (limits(), ShardMetrics::default(), "p".into());
    let turn = || Turn { now: 1, limits: &limits, metrics: &metrics, journal: NoJournal };
    let mut group = c.benchmark_group("session");
    group.throughput(Throughput::Elements(1));
    for (name, qos, expiry) in [
        ("deliver QoS 0", QoS::AtMostOnce, 0),
        ("deliver QoS 1, clean", QoS::AtLeastOnce, 0),
        ("deliver QoS 2, clean", QoS::ExactlyOnce, 0),
        ("deliver QoS 1, persistent", QoS::AtLeastOnce, 3600),
    ] {
        group.bench_function(name, |b| {
            let (mut session, mut pipe, mut id) = (session(&limits, expiry), Pipe::default(), 0);
            b.iter(|| {
                pipe.0.clear();
                let outgoing = Outgoing::new(Default::default(), TOPIC, &PAYLOAD, &[], (qos, false), None, &publisher);
                deliver(&mut session, &mut turn(), black_box(&outgoing), &mut pipe, &mut id);
            });
        });
    }
    group.bench_function("take a PUBLISH of QoS 1", |b| {
        let (mut session, mut pipe) = (session(&limits, 0), Pipe::default());
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: TOPIC,
            packet_id: PacketId::new(7),
            properties: Properties::EMPTY,
            payload: &PAYLOAD,
        };
        b.iter(|| {
            pipe.0.clear();
            black_box(session.publish(&mut turn(), black_box(&publish), None).expect("routed"));
            if let Some(answer) = session.acknowledge(&mut turn(), &publish, ReasonCode::Success) {
                session.write_answer(answer, pipe.buffer());
            }
        });
    });
    group.bench_function("queue for a detached session", |b| {
        let mut session = session(&limits, 3600);
        session.disconnect();
        b.iter(|| {
            let outgoing =
                Outgoing::new(Default::default(), TOPIC, &PAYLOAD, &[], (QoS::AtLeastOnce, false), None, &publisher);
            let delivery = Delivery { qos: QoS::AtLeastOnce, retain: false, subscription_ids: &[], share: None };
            session.deliver::<Pipe, _>(&mut turn(), black_box(&outgoing), delivery, None);
        });
    });
    group.finish();
}

criterion_group!(session_benches, benches);
criterion_main!(session_benches);
