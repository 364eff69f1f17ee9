//! Cases 34, 36: packets cut and joined, and the rules of frames.

use std::io::Write;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::{Link, PATIENCE, Transport};
use holdfast_cluster_tests::websocket::{Frame, WebSocket, opcode};
use holdfast_cluster_tests::wire::{PINGREQ, Packet, Publish, Subscribe, Version, Will, disconnect};

use crate::{got_before_marker, over, start};

fn frames(client: &mut Client) -> &mut WebSocket {
    match client.link() {
        Link::WebSocket(websocket) => websocket,
        Link::Stream(_) => panic!("not a WebSocket"),
    }
}

/// CONNECT, SUBSCRIBE, PUBLISH and PINGREQ in one run of bytes.
fn whole_session(on: &Stage) -> Vec<u8> {
    let topic = on.topic("t");
    [
        on.hello(Version::V5, "c").bytes(),
        Subscribe::new(1).filter(&topic, 1).bytes(Version::V5),
        Publish::new(&topic, "x").qos(1, 2).bytes(Version::V5),
        PINGREQ.to_vec(),
    ]
    .concat()
}

/// The answers to [`whole_session`], in any order behind the CONNACK.
fn answers(client: &mut Client) {
    assert!(matches!(client.recv(), Packet::ConnAck(ack) if ack.reason == 0));
    client.wait_for("SUBACK", |packet| matches!(packet, Packet::SubAck { packet_id: 1, .. }));
    assert_eq!(client.wait_puback(2), 0);
    client.wait_for("PINGRESP", |packet| *packet == Packet::PingResp);
    assert_eq!(client.take().text(), "x");
    client.expect_quiet();
}

#[test]
fn field_case_34_packets_may_be_cut_and_joined_in_any_way() {
    for transport in [Transport::Tcp, Transport::Tls, Transport::WebSocket, Transport::SecureWebSocket] {
        for size in [usize::MAX, 1, 2, 3, 5, 13] {
            let on = over(transport);
            let bytes = whole_session(&on);
            let mut client = on.open(Version::V5);
            for part in bytes.chunks(size.min(bytes.len())) {
                client.send(part);
            }
            answers(&mut client);
        }
    }
}

#[test]
fn field_case_34_a_fragmented_message_with_a_ping_inside() {
    for size in [1, 4, 30] {
        let on = over(Transport::WebSocket);
        let bytes = whole_session(&on);
        let mut client = on.open(Version::V5);
        let websocket = frames(&mut client);
        let parts: Vec<_> = bytes.chunks(size).collect();
        for (number, part) in parts.iter().enumerate() {
            let kind = if number == 0 { opcode::BINARY } else { opcode::CONTINUATION };
            let mut frame = Frame::new(kind, *part);
            frame.fin = number + 1 == parts.len();
            websocket.send_frame(&frame).expect("the connection is open");
            if number % 3 == 1 {
                websocket.send_frame(&Frame::new(opcode::PING, "inside")).expect("the connection is open");
            }
        }
        answers(&mut client);
    }
}

#[test]
fn field_case_34_a_large_publish_in_many_frames() {
    for transport in [Transport::WebSocket, Transport::SecureWebSocket] {
        let on = over(transport);
        let mut client = on.v5("c");
        client.subscribe(on.topic("t"), 1);
        let payload: Vec<u8> = (0..100_000u32).map(|number| (number % 251) as u8).collect();
        let bytes = Publish::new(on.topic("t"), &payload).qos(1, 9).bytes(Version::V5);
        for part in bytes.chunks(3_000) {
            frames(&mut client).send_binary(part).expect("the connection is open");
        }
        assert_eq!(client.wait_puback(9), 0);
        assert!(client.take().payload == payload);
    }
}

#[test]
fn field_case_34_frame_lengths_at_their_edges() {
    let on = over(Transport::WebSocket);
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 0);
    let mut publisher = Stage::new(on.broker(), Transport::Tcp).v5("p");
    for size in [124, 125, 126, 127, 65_534, 65_535, 65_536, 65_537] {
        // Fixed header, topic and property length in front of the payload.
        let head = [1 + 1, 1 + 2, 1 + 3][usize::from(size > 129) + usize::from(size > 16_386)] + 2 + topic.len() + 1;
        let payload = vec![b'x'; size - head];
        publisher.publish(&topic, &payload, 0);
        let message = client.take();
        assert!(message.size == size && message.payload == payload, "{size}: {}", message.size);
        client.publish(&topic, &payload, 0);
        assert!(client.take().payload == payload);
    }
}

/// A client with a Will over WebSocket, and a watcher of it.
fn with_will(on: &Stage) -> (Client, Client) {
    let mut watcher = on.v5("w");
    watcher.subscribe(on.topic("will"), 0);
    let (client, _) = on.connect(&on.hello(Version::V5, "c").will(Will::new(on.topic("will"), "gone")));
    (client, watcher)
}

#[test]
fn field_case_36_a_text_frame_closes_with_1003() {
    let on = over(Transport::WebSocket);
    let (mut client, mut watcher) = with_will(&on);
    frames(&mut client).send_frame(&Frame::new(opcode::TEXT, PINGREQ)).expect("the connection is open");
    let packets = client.until_closed();
    assert!(!packets.contains(&Packet::PingResp));
    assert_eq!(client.close_code(), Some(1003));
    assert_eq!(watcher.take().text(), "gone");
}

#[test]
fn field_case_36_an_unmasked_frame_closes() {
    let on = over(Transport::WebSocket);
    let (mut client, mut watcher) = with_will(&on);
    frames(&mut client).send_raw(&Frame::new(opcode::BINARY, PINGREQ).bytes(false)).expect("the connection is open");
    let packets = client.until_closed();
    assert!(!packets.contains(&Packet::PingResp));
    assert_eq!(watcher.take().text(), "gone");
}

#[test]
fn field_case_36_other_breaches_of_the_frame_rules_close() {
    for bytes in [
        // A reserved bit, a reserved opcode, a fragmented ping, a ping of 126 bytes, a continuation of nothing, a message inside a message.
        vec![0xC2, 0x80, 0, 0, 0, 0],
        vec![0x83, 0x80, 0, 0, 0, 0],
        vec![0x09, 0x80, 0, 0, 0, 0],
        Frame::new(opcode::PING, vec![0; 126]).bytes(true),
        Frame::new(opcode::CONTINUATION, PINGREQ).bytes(true),
        [
            Frame::new(opcode::BINARY, &PINGREQ[..1]).unfinished().bytes(true),
            Frame::new(opcode::BINARY, &PINGREQ[1..]).bytes(true),
        ]
        .concat(),
        // A frame that says it has 2^63 bytes.
        vec![0x82, 0xFF, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        let on = over(Transport::WebSocket);
        let (mut client, mut watcher) = with_will(&on);
        frames(&mut client).send_raw(&bytes).expect("the connection is open");
        client.until_closed();
        assert_eq!(watcher.take().text(), "gone", "{bytes:02X?}");
    }
}

#[test]
fn field_case_36_a_close_frame_is_answered_and_publishes_the_will() {
    let on = over(Transport::WebSocket);
    for code in [Some(1000u16), Some(1001), None] {
        let (mut client, mut watcher) = with_will(&on);
        let websocket = frames(&mut client);
        let payload = code.map(|code| code.to_be_bytes().to_vec()).unwrap_or_default();
        websocket.send_frame(&Frame::new(opcode::CLOSE, payload)).expect("the connection is open");
        let answer = websocket.read_frame(Instant::now() + PATIENCE).expect("an answer in time");
        assert!(matches!(answer, Some(Frame { opcode: opcode::CLOSE, .. })), "{answer:?}");
        assert_eq!(watcher.take().text(), "gone");
    }
}

#[test]
fn field_case_36_a_disconnect_before_the_close_publishes_no_will() {
    let on = over(Transport::WebSocket);
    let (mut client, mut watcher) = with_will(&on);
    let both = [
        Frame::new(opcode::BINARY, disconnect()).bytes(true),
        Frame::new(opcode::CLOSE, 1000u16.to_be_bytes()).bytes(true),
    ];
    frames(&mut client).send_raw(&both.concat()).expect("the connection is open");
    client.until_closed();
    let mut publisher = on.v5("p");
    assert!(got_before_marker(&mut publisher, &mut watcher, &on.topic("will")).is_empty());
}

#[test]
fn field_case_36_a_ping_is_answered_with_its_bytes() {
    let on = over(Transport::WebSocket);
    let mut client = on.v5("c");
    let websocket = frames(&mut client);
    for length in [0, 1, 125] {
        let payload: Vec<u8> = (0..length).collect();
        websocket.send_frame(&Frame::new(opcode::PING, payload.clone())).expect("the connection is open");
        let answer = websocket.read_frame(Instant::now() + PATIENCE).expect("an answer in time");
        assert_eq!(answer, Some(Frame::new(opcode::PONG, payload)));
    }
    // An unasked pong is nobody's business.
    websocket.send_frame(&Frame::new(opcode::PONG, "hello")).expect("the connection is open");
    client.expect_quiet();
}

#[test]
fn field_case_36_a_websocket_ping_is_no_mqtt_packet() {
    let on = over(Transport::WebSocket);
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").keep_alive(2));
    let start = Instant::now();
    let mut answered = 0;
    loop {
        let websocket = frames(&mut client);
        // The server may close at any moment now.
        let _ = websocket.send_frame(&Frame::new(opcode::PING, "alive"));
        let next = Instant::now() + Duration::from_millis(500);
        match websocket.read_frame(next) {
            Ok(Some(Frame { opcode: opcode::PONG, .. })) => {
                answered += 1;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            Ok(Some(Frame { opcode: opcode::CLOSE | opcode::BINARY, .. }) | None) => break,
            other => panic!("{other:?}"),
        }
    }
    let after = start.elapsed();
    assert!(answered >= 4 && (2_950..4_700).contains(&after.as_millis()), "{answered} pongs, closed after {after:?}");
}

#[test]
fn field_case_36_server_pings_keep_a_quiet_path_open() {
    // What a proxy that cuts after two quiet seconds would see: no gap as long as that.
    let broker = start(Setup::empty().listener("tcp", "mqtt", "").listener("ws", "ws", "ping_interval = \"1s\""));
    let on = Stage::new(&broker, Transport::WebSocket);
    let mut client = on.v5("c");
    let websocket = frames(&mut client);
    for _ in 0..3 {
        let frame = websocket.read_frame(Instant::now() + Duration::from_secs(2)).expect("no two quiet seconds");
        let Some(Frame { opcode: opcode::PING, payload, .. }) = frame else { panic!("{frame:?}") };
        websocket.send_frame(&Frame::new(opcode::PONG, payload)).expect("the connection is open");
    }
    client.expect_quiet();
}

#[test]
fn field_case_36_close_codes_tell_why() {
    let on = over(Transport::WebSocket);
    // Taken over, a malformed packet, and a normal end.
    let mut old = on.v5("c");
    let _new = on.v5("c");
    old.until_closed();
    assert_eq!(old.close_code(), Some(4000 + 0x8E));
    let mut bad = on.v5("bad");
    bad.send(&[0xC1, 0]);
    bad.until_closed();
    assert!(matches!(bad.close_code(), Some(1002 | 4129)), "{:?}", bad.close_code());
    let mut good = on.v5("good");
    good.send(&disconnect());
    good.until_closed();
    assert_eq!(good.close_code(), Some(1000));
}

#[test]
fn field_case_34_bytes_behind_the_upgrade_request_are_not_lost() {
    // A client that does not wait for the 101.
    let on = over(Transport::WebSocket);
    let mut socket = holdfast_cluster_tests::transport::tcp(on.broker().address(Transport::WebSocket))
        .expect("the listener accepts");
    let upgrade = holdfast_cluster_tests::websocket::Upgrade::new("/mqtt").protocol("mqtt");
    let eager = [upgrade.bytes(), Frame::new(opcode::BINARY, whole_session(&on)).bytes(true)].concat();
    socket.write_all(&eager).expect("the connection is open");
    let websocket = WebSocket::accept_answer(Box::new(socket)).expect("an upgrade");
    let mut client = Client::new(Link::WebSocket(websocket), Version::V5);
    answers(&mut client);
}
