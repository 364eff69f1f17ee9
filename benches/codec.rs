//! What the codec costs for small packets: a 25-byte topic and a 64-byte payload, decoded from a buffer of 64 packets as a shard
//! reads them, and encoded into a buffer that is reused.

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use holdfast::mqtt::{
    Ack, AckKind, Packet, PacketId, Peer, Properties, PropertiesBuf, Property, ProtocolVersion, Publish, PublishHead,
    QoS, ReasonCode, decode, next_frame,
};

const TOPIC: &str = "fleet/0042/sensor/000/tmp";
const PAYLOAD: [u8; 64] = [0x5A; 64];
const PACKETS: usize = 64;

const CASES: [(&str, ProtocolVersion, bool); 3] = [
    ("v3.1.1", ProtocolVersion::V3_1_1, false),
    ("v5", ProtocolVersion::V5, false),
    ("v5 with expiry and a user property", ProtocolVersion::V5, true),
];

fn properties(with: bool) -> PropertiesBuf {
    let mut properties = PropertiesBuf::new();
    if with {
        properties.push(Property::MessageExpiryInterval(3600));
        properties.push(Property::UserProperty("trace", "0123456789abcdef"));
    }
    properties
}

fn publish(properties: Properties<'_>) -> Publish<'_> {
    Publish {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: false,
        topic: TOPIC,
        packet_id: PacketId::new(4711),
        properties,
        payload: &PAYLOAD,
    }
}

fn decode_publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode 64 PUBLISH");
    group.throughput(Throughput::Elements(PACKETS as u64));
    for (name, version, with) in CASES {
        let properties = properties(with);
        let mut buffer = Vec::new();
        for _ in 0..PACKETS {
            publish(properties.as_properties()).encode(version, &mut buffer);
        }
        group.bench_function(name, |bencher| {
            bencher.iter(|| decode_all(black_box(&buffer), version));
        });
    }
    group.finish();
}

/// Decodes every packet of the buffer and touches what a shard would.
fn decode_all(buffer: &[u8], version: ProtocolVersion) -> usize {
    let (mut rest, mut sum) = (buffer, 0);
    while let Ok(Some(frame)) = next_frame(rest, 1 << 20) {
        rest = &rest[frame.total_len..];
        if let Ok(Packet::Publish(publish)) = decode(&frame, version, Peer::Client) {
            sum += black_box(&publish).topic.len() + publish.payload.len();
        }
    }
    sum
}

fn encode_publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode PUBLISH head");
    group.throughput(Throughput::Elements(1));
    for (name, version, with) in CASES {
        let properties = properties(with);
        let head = PublishHead {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: TOPIC,
            packet_id: PacketId::new(4711),
            message_expiry_secs: None,
            topic_alias: None,
            subscription_ids: &[],
            properties: properties.as_properties().as_bytes(),
            payload_len: PAYLOAD.len(),
        };
        let mut out = Vec::with_capacity(4096);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                black_box(&head).encode(version, &mut out);
                black_box(&mut out);
            });
        });
    }
    group.finish();
}

fn acks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("PUBACK");
    let ack = Ack { packet_id: PacketId::MIN, reason: ReasonCode::Success, properties: Properties::EMPTY };
    let mut out = Vec::with_capacity(64);
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            out.clear();
            black_box(&ack).encode(AckKind::PubAck, ProtocolVersion::V5, &mut out);
            black_box(&mut out);
        });
    });
    let bytes = [0x40, 2, 0, 1];
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            let frame = next_frame(black_box(&bytes), 1 << 20).ok().flatten();
            frame.map(|frame| decode(&frame, ProtocolVersion::V5, Peer::Client).is_ok())
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = decode_publish, encode_publish, acks
}
criterion_main!(benches);
