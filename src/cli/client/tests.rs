//! The client against a broker that does what a test says, on a real socket.

use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::cli::{pub_, sub};
use crate::mqtt::{ConnAck, Properties, SubAck};

#[derive(Debug, Parser)]
struct Pub {
    #[command(flatten)]
    args: pub_::PubArgs,
}

#[derive(Debug, Parser)]
struct Sub {
    #[command(flatten)]
    args: sub::SubArgs,
}

#[derive(Debug, Parser)]
struct Connecting {
    #[command(flatten)]
    args: ConnectionArgs,
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    std::iter::once("holdfast").chain(line.split(' '))
}

/// One connection as the broker of a test sees it.
struct Broker {
    stream: TcpStream,
    received: Vec<u8>,
    version: ProtocolVersion,
}

impl Broker {
    async fn accept(listening: &TcpListener, version: ProtocolVersion) -> Self {
        let (stream, _) = listening.accept().await.unwrap();
        Self { stream, received: Vec::new(), version }
    }

    /// The next packet, as its debug text: enough to be compared with.
    async fn packet(&mut self) -> String {
        loop {
            if let Some(frame) = next_frame(&self.received, u32::MAX).unwrap() {
                let text = format!("{:?}", decode(&frame, self.version, Peer::Client).unwrap());
                let len = frame.total_len;
                self.received.drain(..len);
                return text;
            }
            if self.stream.read_buf(&mut self.received).await.unwrap() == 0 {
                return "end".to_owned();
            }
        }
    }

    async fn expect(&mut self, beginning: &str) {
        let packet = self.packet().await;
        assert!(packet.starts_with(beginning), "{packet}");
    }

    async fn send(&mut self, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes);
        self.stream.write_all(&bytes).await.unwrap();
    }

    async fn welcome(&mut self) {
        self.expect("Connect").await;
        let connack = ConnAck { session_present: false, reason: ReasonCode::Success, properties: Properties::EMPTY };
        self.send(Packet::ConnAck(connack)).await;
    }
}

fn ack(packet_id: u16) -> Ack<'static> {
    Ack { packet_id: PacketId::new(packet_id).unwrap(), reason: ReasonCode::Success, properties: Properties::EMPTY }
}

fn publish(qos: QoS, packet_id: u16, dup: bool) -> Packet<'static> {
    let packet_id = PacketId::new(packet_id);
    Packet::Publish(Publish {
        dup,
        qos,
        retain: false,
        topic: "a",
        packet_id,
        properties: Properties::EMPTY,
        payload: b"x",
    })
}

/// A listening socket, and `pub` or `sub` with the options that lead to it.
async fn listen_for<C: Parser>(options: &str) -> (TcpListener, C) {
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let line = format!("-h 127.0.0.1 -p {} {options}", listening.local_addr().unwrap().port());
    (listening, C::parse_from(words(&line)))
}

/// A listening socket, and the options that lead to it.
async fn listen(options: &str) -> (TcpListener, ConnectionArgs) {
    let listening = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let line = format!("-h 127.0.0.1 -p {} {options}", listening.local_addr().unwrap().port());
    (listening, Connecting::parse_from(words(line.trim())).args)
}

async fn connect(args: &ConnectionArgs) -> Result<Client, ClientError> {
    Client::connect(args, &args.target().unwrap()).await
}

#[test]
fn the_options_are_those_of_mosquitto() {
    for line in [
        "-h host -p 1 -t a -m b -q 2 -r -u u -P p -i id -V 5 -k 30 -c -d",
        "-t a -f file -V mqttv31",
        "-t a -l",
        "-t a -s -x 5 -V mqttv5",
        "-t a -n -r",
        "-L mqtts://u:p@host/a -m b --cafile f --cert c --key k --insecure",
        "-t a -m b --will-topic w --will-payload p --will-qos 1 --will-retain",
    ] {
        Pub::try_parse_from(words(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    for line in [
        "-t a",
        "-t a -m b -n",
        "-t a -m b -q 3",
        "-t a -m b -V 4",
        "-t a -m b --cert c",
        "-t a -m b -c",
        "-L mqtt://h -h g -m b",
        "-t a -m b --will-payload p",
    ] {
        assert!(Pub::try_parse_from(words(line)).is_err(), "{line}");
    }
    Sub::try_parse_from(words("-v -t a -t b/# -C 3 -W 10 -R -N -q 1 -i c -c")).unwrap();
    assert!(Sub::try_parse_from(words("-t a -C 0")).is_err());
}

#[test]
fn every_option_is_explained_and_the_message_comes_first() {
    use clap::CommandFactory as _;
    for command in [Pub::command(), Sub::command()] {
        for option in command.get_arguments() {
            assert!(option.get_help().is_some(), "{} has no help", option.get_id());
        }
    }
    let help = Pub::command().render_help().to_string();
    let at = |option: &str| help.find(option).unwrap_or_else(|| panic!("{option} in {help}"));
    assert!(at("-t, --topic") < at("-m, --message") && at("-m, --message") < at("-h, --host"), "{help}");
}

#[test]
fn what_no_connect_can_carry_is_refused_before_connecting() {
    let long = "x".repeat(65_536);
    for line in [format!("-u {long}"), format!("-u u -P {long}"), format!("-i {long}"), format!("--will-topic {long}")]
    {
        let args = Connecting::try_parse_from(words(&line)).unwrap().args;
        let text = args.target().unwrap_err().to_string();
        assert!(text.len() < 600 && (text.contains("65535") || text.contains("65,535")), "{text}");
    }
}

#[test]
fn a_port_and_a_password_follow_from_the_rest() {
    let args = |line| Connecting::try_parse_from(words(line)).unwrap().args;
    assert_eq!(args("-d").target().unwrap().port, 1883);
    assert_eq!(args("--cafile f").target().unwrap().port, 8883);
    assert!(args("--cafile f").target().unwrap().tls);
    assert!(args("-P secret").target().is_err(), "3.1.1 [MQTT-3.1.2-22]");
    assert!(args("-P secret -V 5").target().is_ok());
    assert_eq!(args("-c -i x -V 5").session_expiry_secs(), Some(u32::MAX));
    assert_eq!(args("-c -i x -x 9 -V 5").session_expiry_secs(), Some(9));
    assert_eq!(args("-c -i x").session_expiry_secs(), None);
}

#[tokio::test]
async fn a_refusal_is_the_exit_code() {
    for (options, version, expected) in [("", ProtocolVersion::V3_1_1, 5), ("-V 5", ProtocolVersion::V5, 0x87)] {
        let (listening, args) = listen(options).await;
        let broker = async {
            let mut broker = Broker::accept(&listening, version).await;
            broker.expect("Connect").await;
            let reason = ReasonCode::NotAuthorized;
            broker
                .send(Packet::ConnAck(ConnAck { session_present: false, reason, properties: Properties::EMPTY }))
                .await;
        };
        let (client, ()) = tokio::join!(connect(&args), broker);
        let error = client.err().unwrap();
        assert_eq!(error.exit_code(), expected, "{error}");
        assert!(!error.is_lost_connection());
    }
}

#[tokio::test]
async fn every_quality_of_service_comes_to_its_end() {
    let (listening, args) = listen("").await;
    let broker = async {
        let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
        broker.welcome().await;
        broker.expect("Publish(Publish { dup: false, qos: AtMostOnce").await;
        broker.expect("Publish(Publish { dup: false, qos: AtLeastOnce").await;
        broker.send(Packet::PubAck(ack(1))).await;
        broker.expect("Publish(Publish { dup: false, qos: ExactlyOnce").await;
        broker.send(Packet::PubRec(ack(2))).await;
        broker.expect("PubRel").await;
        broker.send(Packet::PubComp(ack(2))).await;
        broker.expect("Disconnect").await;
        broker.expect("end").await;
    };
    let client = async {
        let mut client = connect(&args).await.unwrap();
        assert_eq!(client.publish("a", b"x", QoS::AtMostOnce, false).unwrap(), None);
        for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
            let sent = client.publish("a", b"x", qos, false).unwrap().unwrap();
            let Event::Published { packet_id, reason } = client.next().await.unwrap() else { panic!("{qos:?}") };
            assert_eq!((packet_id, reason), (sent, ReasonCode::Success));
        }
        client.disconnect().await.unwrap();
    };
    tokio::join!(client, broker);
}

#[tokio::test]
async fn a_message_of_qos_2_is_told_once() {
    let (listening, args) = listen("").await;
    let broker = async {
        let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
        broker.welcome().await;
        broker.expect("Subscribe").await;
        let packet_id = PacketId::MIN;
        broker.send(Packet::SubAck(SubAck { packet_id, properties: Properties::EMPTY, codes: &[2] })).await;
        for dup in [false, true] {
            broker.send(publish(QoS::ExactlyOnce, 7, dup)).await;
            broker.expect("PubRec").await;
        }
        broker.send(Packet::PubRel(ack(7))).await;
        broker.expect("PubComp").await;
        broker.send(publish(QoS::AtLeastOnce, 7, false)).await;
        broker.expect("PubAck").await;
        broker.send(publish(QoS::ExactlyOnce, 7, false)).await;
        broker.expect("PubRec").await;
    };
    let client = async {
        let mut client = connect(&args).await.unwrap();
        client.subscribe(&["a".to_owned()], SubscriptionOptions::default());
        let Event::Subscribed { codes } = client.next().await.unwrap() else { panic!("no SUBACK") };
        assert_eq!(codes, [2]);
        let mut messages = 0;
        while !matches!(client.next().await, Err(ClientError::Closed(None))) {
            messages += 1;
        }
        assert_eq!(messages, 3);
    };
    tokio::join!(client, broker);
}

#[tokio::test]
async fn a_silent_connection_is_kept_alive_and_a_dead_one_noticed() {
    let (listening, args) = listen("-k 1").await;
    let broker = async {
        let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
        broker.welcome().await;
        broker.expect("PingReq").await;
        broker.send(Packet::PingResp).await;
        broker.expect("PingReq").await;
        broker
    };
    let client = async { connect(&args).await.unwrap().next().await.unwrap_err() };
    let (error, _broker) = tokio::join!(client, broker);
    assert!(matches!(error, ClientError::NoPingResponse), "{error}");
    assert!(error.is_lost_connection());
}

#[tokio::test]
async fn a_broker_that_says_why_it_closes_is_quoted() {
    let (listening, args) = listen("-V 5").await;
    let broker = async {
        let mut broker = Broker::accept(&listening, ProtocolVersion::V5).await;
        broker.welcome().await;
        let reason = ReasonCode::ServerShuttingDown;
        broker.send(Packet::Disconnect(Disconnect { reason, properties: Properties::EMPTY })).await;
    };
    let client = async { connect(&args).await.unwrap().next().await.unwrap_err() };
    let (error, ()) = tokio::join!(client, broker);
    assert!(matches!(error, ClientError::Closed(Some(ReasonCode::ServerShuttingDown))), "{error}");
}

#[tokio::test]
async fn rubbish_is_an_error_and_no_panic() {
    for bytes in [&b"SSH-2.0-OpenSSH\r\n"[..], &[0x20, 2, 0, 0, 0xFF, 0xFF], &[0xD0, 0]] {
        let (listening, args) = listen("").await;
        let broker = async {
            let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
            broker.expect("Connect").await;
            broker.stream.write_all(bytes).await.unwrap();
        };
        let client = async {
            match connect(&args).await {
                Ok(mut client) => client.next().await.unwrap_err(),
                Err(error) => error,
            }
        };
        let (error, ()) = tokio::join!(client, broker);
        assert!(matches!(error, ClientError::Malformed(_) | ClientError::OutOfTurn(_)), "{error}");
    }
}

fn disconnect(reason: ReasonCode) -> Packet<'static> {
    Packet::Disconnect(Disconnect { reason, properties: Properties::EMPTY })
}

#[tokio::test]
async fn a_connection_that_is_taken_over_is_closed_and_made_again_behind_a_pause() {
    let (listening, command) = listen_for::<Sub>("-t a -i same -V 5").await;
    let broker = async {
        let mut told: Option<Instant> = None;
        for _ in 0..2 {
            let mut broker = Broker::accept(&listening, ProtocolVersion::V5).await;
            if let Some(told) = told {
                assert!(told.elapsed() >= Duration::from_millis(790), "again after {:?}", told.elapsed());
            }
            broker.welcome().await;
            broker.expect("Subscribe").await;
            broker.send(disconnect(ReasonCode::SessionTakenOver)).await;
            told = Some(Instant::now());
            broker.expect("end").await;
            assert!(told.is_some_and(|told| told.elapsed() < Duration::from_millis(700)), "open during the pause");
        }
    };
    let target = command.args.connection.target().unwrap();
    tokio::select! {
        outcome = sub::watch(&command.args, &target, std::future::pending()) => panic!("{outcome:?}"),
        () = broker => {}
    }
}

#[tokio::test]
async fn whoever_is_told_to_stop_says_goodbye() {
    let (listening, command) = listen_for::<Sub>("-t a").await;
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let broker = async {
        let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
        broker.welcome().await;
        broker.expect("Subscribe").await;
        stop.send(TIMED_OUT).unwrap();
        broker.expect("Disconnect").await;
        broker.expect("end").await;
    };
    let target = command.args.connection.target().unwrap();
    let watching = sub::watch(&command.args, &target, async { stopped.await.unwrap() });
    let (outcome, ()) = tokio::join!(watching, broker);
    assert_eq!(outcome.unwrap(), TIMED_OUT);
}

#[tokio::test]
async fn a_message_larger_than_the_broker_takes_is_not_sent() {
    let (listening, command) = listen_for::<Pub>("-t abc -m 0123456789 -V 5 -q 1").await;
    // Type, length, topic, packet id, properties, payload.
    for (packet_bytes_max, fits) in [(2 + 5 + 2 + 1 + 10, true), (2 + 5 + 2 + 1 + 10 - 1, false)] {
        let broker = async {
            let mut broker = Broker::accept(&listening, ProtocolVersion::V5).await;
            broker.expect("Connect").await;
            let mut properties = PropertiesBuf::default();
            properties.push(Property::MaximumPacketSize(packet_bytes_max));
            let properties = properties.as_properties();
            let connack = ConnAck { session_present: false, reason: ReasonCode::Success, properties };
            broker.send(Packet::ConnAck(connack)).await;
            if fits {
                broker.expect("Publish").await;
                broker.send(Packet::PubAck(ack(1))).await;
            }
            broker.expect("Disconnect").await;
        };
        let target = command.args.connection.target().unwrap();
        let (outcome, ()) = tokio::join!(pub_::publish_all(&command.args, &target), broker);
        assert_eq!(outcome.is_ok(), fits, "{outcome:?}");
        if let Err(error) = outcome {
            assert_eq!(error.exit_code(), 1);
            assert!(
                error.to_string().contains("a packet of 20, and the largest that the broker takes is 19"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_broker_that_leaves_before_it_has_taken_a_message_of_qos_0_is_an_error() {
    for taken in [true, false] {
        let (listening, command) = listen_for::<Pub>("-t a -m x").await;
        let broker = async {
            let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
            broker.welcome().await;
            broker.expect("Publish").await;
            if taken {
                broker.expect("PingReq").await;
                broker.send(Packet::PingResp).await;
                broker.expect("Disconnect").await;
            }
        };
        let target = command.args.connection.target().unwrap();
        let (outcome, ()) = tokio::join!(pub_::publish_all(&command.args, &target), broker);
        match outcome {
            Ok(exit_code) => assert!(taken && exit_code == 0),
            Err(error) => assert!(!taken && error.exit_code() == 1, "{error}"),
        }
    }
}

#[tokio::test]
async fn a_broker_that_closes_before_its_connack_speaks_something_else() {
    for (answer, expected) in [(&b""[..], "--cafile"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "-L ws://127.0.0.1:")] {
        let (listening, args) = listen("").await;
        let broker = async {
            let mut broker = Broker::accept(&listening, ProtocolVersion::V3_1_1).await;
            broker.expect("Connect").await;
            broker.stream.write_all(answer).await.unwrap();
        };
        let (client, ()) = tokio::join!(connect(&args), broker);
        let error = client.err().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn files_of_the_options_are_read_before_connecting() {
    let (_listening, args) = listen("--cafile /nonexistent/ca.crt").await;
    let error = connect(&args).await.err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/ca.crt: No such file"), "{error}");
    assert!(!error.is_lost_connection());
}
