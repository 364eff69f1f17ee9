//! MQTT 3.1.1.

use bytes::{Bytes, BytesMut};
use holdfast::mqtt::{self, Packet, Peer, ProtocolVersion};
use mqttbytes::v4;
use proptest::prelude::*;

use super::{decode, encode, id_or_zero, name, packet_id, payload, qos, their_qos};

const VERSION: ProtocolVersion = ProtocolVersion::V3_1_1;

/// Writes with theirs, decodes, and translates back; then encodes and reads with theirs.
fn agree(theirs: &v4::Packet, from: Peer) -> Result<(), TestCaseError> {
    let mut bytes = BytesMut::new();
    write(theirs, &mut bytes).expect("they write it");
    let ours = decode(&bytes, VERSION, from);
    prop_assert_eq!(&translate(&ours), theirs);
    let mut again = encode(&ours, VERSION);
    prop_assert_eq!(&again, &bytes);
    let read = v4::read(&mut again, usize::MAX);
    prop_assert_eq!(read.as_ref(), Ok(theirs));
    prop_assert!(again.is_empty());
    Ok(())
}

fn write(packet: &v4::Packet, out: &mut BytesMut) -> Result<usize, mqttbytes::Error> {
    match packet {
        v4::Packet::Connect(packet) => packet.write(out),
        v4::Packet::ConnAck(packet) => packet.write(out),
        v4::Packet::Publish(packet) => packet.write(out),
        v4::Packet::PubAck(packet) => packet.write(out),
        v4::Packet::PubRec(packet) => packet.write(out),
        v4::Packet::PubRel(packet) => packet.write(out),
        v4::Packet::PubComp(packet) => packet.write(out),
        v4::Packet::Subscribe(packet) => packet.write(out),
        v4::Packet::SubAck(packet) => packet.write(out),
        v4::Packet::Unsubscribe(packet) => packet.write(out),
        v4::Packet::UnsubAck(packet) => packet.write(out),
        v4::Packet::PingReq => v4::PingReq.write(out),
        v4::Packet::PingResp => v4::PingResp.write(out),
        v4::Packet::Disconnect => v4::Disconnect.write(out),
    }
}

fn translate(packet: &Packet<'_>) -> v4::Packet {
    match packet {
        Packet::Connect(packet) => v4::Packet::Connect(translate_connect(packet)),
        Packet::ConnAck(packet) => {
            let code = packet.reason.connect_return_code();
            let code = RETURN_CODES.iter().find(|theirs| **theirs as u8 == code);
            v4::Packet::ConnAck(v4::ConnAck::new(*code.expect("one of theirs"), packet.session_present))
        }
        Packet::Publish(packet) => v4::Packet::Publish(v4::Publish {
            dup: packet.dup,
            qos: their_qos(packet.qos),
            retain: packet.retain,
            topic: packet.topic.to_owned(),
            pkid: id_or_zero(packet.packet_id),
            payload: Bytes::copy_from_slice(packet.payload),
        }),
        Packet::PubAck(ack) => v4::Packet::PubAck(v4::PubAck::new(ack.packet_id.get())),
        Packet::PubRec(ack) => v4::Packet::PubRec(v4::PubRec::new(ack.packet_id.get())),
        Packet::PubRel(ack) => v4::Packet::PubRel(v4::PubRel::new(ack.packet_id.get())),
        Packet::PubComp(ack) => v4::Packet::PubComp(v4::PubComp::new(ack.packet_id.get())),
        Packet::Subscribe(packet) => v4::Packet::Subscribe(v4::Subscribe {
            pkid: packet.packet_id.get(),
            filters: packet
                .filters
                .iter()
                .map(|(filter, options)| v4::SubscribeFilter::new(filter.to_owned(), their_qos(options.qos)))
                .collect(),
        }),
        Packet::SubAck(packet) => {
            let codes = packet.codes.iter().map(|code| (*code).try_into());
            let codes = codes.collect::<Result<_, _>>().expect("codes of theirs");
            v4::Packet::SubAck(v4::SubAck::new(packet.packet_id.get(), codes))
        }
        Packet::Unsubscribe(packet) => v4::Packet::Unsubscribe(v4::Unsubscribe {
            pkid: packet.packet_id.get(),
            topics: packet.filters.iter().map(str::to_owned).collect(),
        }),
        Packet::UnsubAck(packet) => v4::Packet::UnsubAck(v4::UnsubAck::new(packet.packet_id.get())),
        Packet::PingReq => v4::Packet::PingReq,
        Packet::PingResp => v4::Packet::PingResp,
        Packet::Disconnect(_) => v4::Packet::Disconnect,
        Packet::Auth(_) => unreachable!("MQTT 3.1.1 has no AUTH"),
    }
}

fn translate_connect(packet: &mqtt::Connect<'_>) -> v4::Connect {
    v4::Connect {
        protocol: mqttbytes::Protocol::V4,
        keep_alive: packet.keep_alive_secs,
        client_id: packet.client_id.to_owned(),
        clean_session: packet.clean_start,
        last_will: packet
            .will
            .map(|will| v4::LastWill::new(will.topic, will.payload, their_qos(will.qos), will.retain)),
        login: packet.user_name.map(|user_name| v4::Login {
            username: user_name.to_owned(),
            password: String::from_utf8(packet.password.unwrap_or_default().to_vec()).expect("theirs are UTF-8"),
        }),
    }
}

const RETURN_CODES: [v4::ConnectReturnCode; 6] = [
    v4::ConnectReturnCode::Success,
    v4::ConnectReturnCode::RefusedProtocolVersion,
    v4::ConnectReturnCode::BadClientId,
    v4::ConnectReturnCode::ServiceUnavailable,
    v4::ConnectReturnCode::BadUserNamePassword,
    v4::ConnectReturnCode::NotAuthorized,
];

fn connect() -> impl Strategy<Value = v4::Connect> {
    let will = (name(), payload(), qos(), any::<bool>())
        .prop_filter("a Will Payload is short", |(_, payload, ..)| payload.len() < 1_000)
        .prop_map(|(topic, payload, qos, retain)| v4::LastWill::new(topic, payload, qos, retain));
    let login = (name(), prop_oneof![Just(String::new()), name()])
        .prop_map(|(username, password)| v4::Login { username, password });
    let (will, login) = (proptest::option::of(will), proptest::option::of(login));
    (any::<u16>(), name(), any::<bool>(), will, login).prop_map(
        |(keep_alive, client_id, clean_session, last_will, login)| v4::Connect {
            protocol: mqttbytes::Protocol::V4,
            keep_alive,
            client_id,
            clean_session,
            last_will,
            login,
        },
    )
}

fn publish() -> impl Strategy<Value = v4::Publish> {
    let flags = (any::<bool>(), any::<bool>());
    (flags, qos(), name(), packet_id(), payload()).prop_map(|((dup, retain), qos, topic, pkid, payload)| {
        let acknowledged = qos != mqttbytes::QoS::AtMostOnce;
        v4::Publish { dup: dup && acknowledged, qos, retain, topic, pkid: if acknowledged { pkid } else { 0 }, payload }
    })
}

fn subscribe() -> impl Strategy<Value = v4::Subscribe> {
    let filter = (name(), qos()).prop_map(|(path, qos)| v4::SubscribeFilter::new(path, qos));
    (packet_id(), proptest::collection::vec(filter, 1..4)).prop_map(|(pkid, filters)| v4::Subscribe { pkid, filters })
}

fn suback() -> impl Strategy<Value = v4::SubAck> {
    let code = prop_oneof![qos().prop_map(v4::SubscribeReasonCode::Success), Just(v4::SubscribeReasonCode::Failure)];
    (packet_id(), proptest::collection::vec(code, 1..4)).prop_map(|(pkid, codes)| v4::SubAck::new(pkid, codes))
}

proptest! {
    #[test]
    fn connect_agrees(packet in connect()) {
        agree(&v4::Packet::Connect(packet), Peer::Client)?;
    }

    #[test]
    fn connack_agrees(code in proptest::sample::select(&RETURN_CODES[..]), present in any::<bool>()) {
        let present = present && code == v4::ConnectReturnCode::Success;
        agree(&v4::Packet::ConnAck(v4::ConnAck::new(code, present)), Peer::Server)?;
    }

    #[test]
    fn publish_agrees(packet in publish()) {
        agree(&v4::Packet::Publish(packet.clone()), Peer::Client)?;
        agree(&v4::Packet::Publish(packet), Peer::Server)?;
    }

    #[test]
    fn acknowledgements_agree(pkid in packet_id()) {
        for from in [Peer::Client, Peer::Server] {
            agree(&v4::Packet::PubAck(v4::PubAck::new(pkid)), from)?;
            agree(&v4::Packet::PubRec(v4::PubRec::new(pkid)), from)?;
            agree(&v4::Packet::PubRel(v4::PubRel::new(pkid)), from)?;
            agree(&v4::Packet::PubComp(v4::PubComp::new(pkid)), from)?;
        }
        agree(&v4::Packet::UnsubAck(v4::UnsubAck::new(pkid)), Peer::Server)?;
    }

    #[test]
    fn subscribe_and_suback_agree(subscribe in subscribe(), suback in suback()) {
        agree(&v4::Packet::Subscribe(subscribe), Peer::Client)?;
        agree(&v4::Packet::SubAck(suback), Peer::Server)?;
    }

    #[test]
    fn unsubscribe_agrees(pkid in packet_id(), topics in proptest::collection::vec(name(), 1..4)) {
        agree(&v4::Packet::Unsubscribe(v4::Unsubscribe { pkid, topics }), Peer::Client)?;
    }
}

#[test]
fn packets_without_a_body_agree() -> Result<(), TestCaseError> {
    agree(&v4::Packet::PingReq, Peer::Client)?;
    agree(&v4::Packet::PingResp, Peer::Server)?;
    agree(&v4::Packet::Disconnect, Peer::Client)
}
