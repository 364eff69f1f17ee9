//! Chapter 6: WebSocket as a transport. These tests need frames, so they run over WebSocket only.

use std::time::Instant;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Broker;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::{Link, PATIENCE, Transport, tcp};
use holdfast_cluster_tests::websocket::{Frame, Upgrade, WebSocket, opcode, request};
use holdfast_cluster_tests::wire::{PINGREQ, Packet, Publish, Subscribe, Version, Will};

fn stage() -> Stage<'static> {
    Stage::shared(Transport::WebSocket)
}

fn frames(client: &mut Client) -> &mut WebSocket {
    match client.link() {
        Link::WebSocket(websocket) => websocket,
        Link::Stream(_) => panic!("not a WebSocket"),
    }
}

#[test]
fn mqtt_6_0_0_1_a_frame_that_is_not_binary_closes() {
    let on = stage();
    let will = on.topic("will");
    let mut watcher = on.v5("w");
    watcher.subscribe(&will, 0);
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").will(Will::new(&will, "gone")));
    frames(&mut client).send_frame(&Frame::new(opcode::TEXT, PINGREQ)).expect("the connection is open");
    let packets = client.until_closed();
    assert!(!packets.contains(&Packet::PingResp), "{packets:?}");
    assert_eq!(watcher.take().text(), "gone");
}

#[test]
fn mqtt_6_0_0_1_the_server_sends_binary_frames() {
    // The reader refuses any other data frame.
    let on = stage();
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 0);
    client.publish(on.topic("t"), "text that could be a text frame", 0);
    client.take();
}

#[test]
fn mqtt_6_0_0_2_packets_are_not_aligned_with_frames() {
    let on = stage();
    let topic = on.topic("t");
    let all = [
        on.hello(Version::V5, "c").bytes(),
        Subscribe::new(1).filter(&topic, 0).bytes(Version::V5),
        Publish::new(&topic, "x").bytes(Version::V5),
        PINGREQ.to_vec(),
    ]
    .concat();
    for size in [1, 2, 7, all.len()] {
        let mut client = on.open(Version::V5);
        for part in all.chunks(size) {
            frames(&mut client).send_binary(part).expect("the connection is open");
        }
        assert!(matches!(client.recv(), Packet::ConnAck(ack) if ack.reason == 0));
        client.wait_for("SUBACK", |packet| matches!(packet, Packet::SubAck { .. }));
        client.wait_for("PINGRESP", |packet| *packet == Packet::PingResp);
        assert_eq!(client.take().text(), "x");
    }
}

#[test]
fn mqtt_6_0_0_2_a_message_may_be_fragmented() {
    let on = stage();
    let mut client = on.v5("c");
    let websocket = frames(&mut client);
    for frame in [
        Frame::new(opcode::BINARY, &PINGREQ[..1]).unfinished(),
        Frame::new(opcode::CONTINUATION, &[][..]).unfinished(),
        Frame::new(opcode::PING, "between fragments"),
        Frame::new(opcode::CONTINUATION, &PINGREQ[1..]),
        Frame::new(opcode::BINARY, &[][..]),
    ] {
        websocket.send_frame(&frame).expect("the connection is open");
    }
    assert_eq!(client.recv(), Packet::PingResp);
}

#[test]
fn mqtt_6_0_0_3_without_mqtt_on_offer_nothing_else_is_chosen() {
    let address = Broker::shared().address(Transport::WebSocket);
    let mut socket = tcp(address).expect("the listener accepts");
    let upgrade = Upgrade::new("/mqtt").protocol("chat, superchat");
    let response = request(&mut socket, &upgrade.bytes()).expect("an HTTP response");
    assert!(response.status >= 400 || response.header("Sec-WebSocket-Protocol").is_none(), "{response:?}");
}

#[test]
fn mqtt_6_0_0_4_the_subprotocol_chosen_is_mqtt() {
    let address = Broker::shared().address(Transport::WebSocket);
    for list in ["mqtt", "chat, mqtt", "mqtt,chat", "chat,mqtt, superchat"] {
        let socket = tcp(address).expect("the listener accepts");
        let websocket = WebSocket::open(Box::new(socket), &Upgrade::new("/mqtt").protocol(list)).expect("an upgrade");
        assert_eq!(websocket.response.header("Sec-WebSocket-Protocol"), Some("mqtt"));
    }
}

#[test]
fn mqtt_6_0_0_1_a_close_frame_is_answered() {
    let on = stage();
    let mut client = on.v5("c");
    let websocket = frames(&mut client);
    websocket.send_frame(&Frame::new(opcode::CLOSE, 1000u16.to_be_bytes())).expect("the connection is open");
    let frame = websocket.read_frame(Instant::now() + PATIENCE).expect("an answer in time");
    assert!(matches!(frame, Some(Frame { opcode: opcode::CLOSE, .. })), "{frame:?}");
    assert_eq!(websocket.read_frame(Instant::now() + PATIENCE).expect("a close in time"), None);
}
