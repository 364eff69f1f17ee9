//! Case 33: malformed input ends its own connection and touches nothing else.

use std::time::{Duration, Instant};

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{
    Ack, Connect, PINGREQ, Publish, Subscribe, Unsubscribe, Version, Will, first, id, packet, prefixed,
};

use crate::start;

/// Bytes after a CONNECT that end the connection.
fn bad_after_connect(on: &Stage) -> Vec<Vec<u8>> {
    let topic = on.topic("t");
    let mut items = vec![
        Publish::new("#", "x").bytes(Version::V5),
        Publish::new("a/+", "x").bytes(Version::V5),
        Publish::new(&topic, "x").qos(3, 1).bytes(Version::V5),
        packet(0x32, &prefixed(&topic)),
        packet(0x32, &[&prefixed(&topic)[..], &[7]].concat()),
        Publish::new(&topic, "x").qos(1, 0).bytes(Version::V5),
        Publish::new(&topic, "x").qos(2, 0).bytes(Version::V5),
        vec![0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
        packet(0x80, &Subscribe::new(1).filter(&topic, 0).bytes(Version::V5)[2..]),
        packet(0x8F, &Subscribe::new(1).filter(&topic, 0).bytes(Version::V5)[2..]),
        Subscribe::new(1).bytes(Version::V5),
        Subscribe::new(0).filter(&topic, 0).bytes(Version::V5),
        Subscribe::new(1).filter(&topic, 0xC0).bytes(Version::V5),
        Unsubscribe::new(1).bytes(Version::V5),
        on.hello(Version::V5, "second").bytes(),
        Publish::new(&topic, "x").number(id::SUBSCRIPTION_IDENTIFIER, 1).bytes(Version::V5),
        Publish::new(&topic, "x")
            .number(id::MESSAGE_EXPIRY_INTERVAL, 1)
            .number(id::MESSAGE_EXPIRY_INTERVAL, 1)
            .bytes(Version::V5),
        Publish::new(&topic, "x").number(0x7E, 1).bytes(Version::V5),
        Ack::new(0x60, 1).bytes(),
        packet(first::PUBACK, &[]),
        packet(0x00, &[]),
        packet(first::CONNACK, &[0, 0, 0]),
        packet(first::PINGREQ, &[0; 100]),
        packet(first::DISCONNECT, &[0, 200, 0]),
        vec![0x30, 0xFF, 0xFF, 0xFF, 0x7F],
        vec![0xFF; 64],
    ];
    for bad in [&b"a\0b"[..], &[0xC3, 0x28], &[0xED, 0xA0, 0x80], &[0xF5, 0x80, 0x80, 0x80]] {
        items.push(Publish::new(bad, "x").bytes(Version::V5));
        items.push(Subscribe::new(1).filter(bad, 0).bytes(Version::V5));
        items.push(Unsubscribe::new(1).filter(bad).bytes(Version::V5));
    }
    items
}

/// Bytes instead of a CONNECT, or CONNECTs that are none.
fn bad_from_the_start(on: &Stage) -> Vec<Vec<u8>> {
    let mut items = vec![
        PINGREQ.to_vec(),
        Publish::new(on.topic("t"), "x").bytes(Version::V5),
        Subscribe::new(1).filter(on.topic("t"), 0).bytes(Version::V5),
        vec![first::DISCONNECT, 0],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        vec![0; 64],
        vec![first::CONNECT, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
        packet(first::CONNECT, &[]),
        on.hello(Version::V5, "flags").flags(0xFF).bytes(),
    ];
    for bad in [&b"a\0b"[..], &[0xC3, 0x28], &[0xED, 0xA0, 0x80]] {
        items.push(Connect::new(Version::V5, bad).bytes());
        items.push(on.hello(Version::V5, "will").will(Will::new(bad, "x")).bytes());
        items.push(on.hello(Version::V311, "user").user_name(bad).bytes());
    }
    items
}

/// Two clients that go on working, and a subscriber to everything that must see nothing but them.
struct Bystanders {
    publisher: Client,
    subscriber: Client,
    topic: String,
    count: u32,
}

impl Bystanders {
    fn new(on: &Stage) -> Self {
        let topic = on.topic("bystanders");
        let mut subscriber = on.v5("bystander");
        subscriber.subscribe("#", 1);
        Self { publisher: on.v5("other"), subscriber, topic, count: 0 }
    }

    /// One message goes through at once, and is all that came.
    fn go_on(&mut self) {
        self.count += 1;
        let start = Instant::now();
        self.publisher.publish(&self.topic, self.count.to_string(), 1);
        let message = self.subscriber.take();
        assert_eq!((message.topic.as_str(), message.text()), (self.topic.as_str(), self.count.to_string()));
        assert!(start.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn field_case_33_malformed_input_hurts_nobody_else() {
    for transport in [Transport::Tcp, Transport::WebSocket] {
        let broker = start(Setup::new());
        let on = Stage::new(&broker, transport);
        let mut bystanders = Bystanders::new(&on);
        for bytes in bad_after_connect(&on) {
            let mut client = on.v5("bad");
            client.send(&bytes);
            client.until_closed();
            bystanders.go_on();
        }
        for bytes in bad_from_the_start(&on) {
            let mut client = on.open(Version::V5);
            client.send(&bytes);
            client.bytes_until_closed();
            bystanders.go_on();
        }
        assert!(broker.is_running());
        // Nothing was stored either.
        let mut later = on.v5("later");
        later.subscribe("#", 0);
        later.publish(on.topic("marker"), "marker", 0);
        assert!(later.take_until("marker").is_empty());
    }
}

#[test]
fn field_case_33_a_large_length_and_silence_cost_no_memory() {
    let broker = start(Setup::new().mqtt("max_packet_size = \"256MB\"\nmax_queued_bytes = \"256MB\""));
    let on = Stage::new(&broker, Transport::Tcp);
    let mut bystanders = Bystanders::new(&on);
    bystanders.go_on();
    let before = broker.resident_bytes();
    let clients: Vec<_> = (0..50)
        .map(|number| {
            let mut client = on.v5(&format!("large{number}"));
            // 200 MB are announced, a few bytes come.
            client.send(&[0x30, 0x80, 0xC2, 0xD7, 0x5F, 0, 1, b't']);
            client
        })
        .collect();
    for _ in 0..20 {
        bystanders.go_on();
    }
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MB for 50 promises", grown >> 20);
    drop(clients);
}

#[test]
fn field_case_33_http_on_the_mqtt_port_is_told_where_websocket_is() {
    let on = Stage::shared(Transport::Tcp);
    let mut client = on.open(Version::V5);
    client.send(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n");
    let answer = String::from_utf8_lossy(&client.bytes_until_closed()).into_owned();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let websocket = on.broker().address(Transport::WebSocket);
    assert!(answer.contains("ws://") && answer.contains(&websocket.port().to_string()), "{answer}");
}

#[test]
fn field_case_33_the_log_names_address_client_and_reason_once() {
    let broker = start(Setup::new());
    let on = Stage::new(&broker, Transport::Tcp);
    let position = broker.log().len();
    let begin = Instant::now();
    let mut addresses = Vec::new();
    for _ in 0..100 {
        let mut client = on.v5("noisy");
        addresses.push(client.link().tcp().local_addr().expect("a socket").to_string());
        client.send(&[0xC1, 0]);
        client.until_closed();
    }
    let seconds = begin.elapsed().as_secs() as usize + 1;
    let client_id = on.client_id("noisy");
    let warns = |line: &holdfast_cluster_tests::process::Line| {
        line.field("level").as_deref() == Some("WARN") && line.contains(&client_id)
    };
    let line = broker.log().wait(position, Duration::from_secs(5), warns).expect("a warning about the client");
    assert!(addresses.iter().any(|address| line.contains(address)), "no address: {}", line.text);
    assert!(line.field("reason").is_some(), "no reason: {}", line.text);
    let lines = broker.log().since(position).iter().filter(|line| warns(line)).count();
    assert!(lines <= seconds + 1, "{lines} lines in {seconds} s for one cause");
}
