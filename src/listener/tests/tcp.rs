//! Plain MQTT: what is handed over, what is refused, and what is closed at its deadline.

use std::time::Instant;

use super::*;
use crate::access::{HashKind, PasswordFile, PasswordHash};
use crate::byte_stream::Transport;

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

#[test]
fn a_connect_is_handed_over_with_what_followed_it() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        for version in VERSIONS {
            let mut peer = rig.connect().await;
            let connect = connect_packet(version, "client");
            peer.write_all(&[&connect[..], &[0xC0, 0, 0xC0]].concat()).await.unwrap();
            let mut greeted = rig.greeted().await;
            assert_eq!(greeted.connect[..], connect[..]);
            assert_eq!(greeted.rest, [0xC0, 0, 0xC0]);
            assert_eq!(&*greeted.client_id, "client");
            assert!(!greeted.assigned_client_id);
            assert_eq!(greeted.peer, peer.local_addr().unwrap());
            assert_eq!(greeted.stream.transport(), Transport::Tcp);
            assert_eq!(greeted.identity.user_name, None);
            // The stream goes on where the listener stopped.
            peer.write_all(&[0]).await.unwrap();
            assert_eq!(read_exactly(&mut greeted.stream, 1).await, [0]);
            greeted.stream.write_all(b"ok").await.unwrap();
            assert_eq!(read_exactly(&mut peer, 2).await, b"ok");
        }
        assert_eq!(rig.state.counts.greeted.load(Ordering::Relaxed), 3);
    });
}

/// Field case 34 (d).
#[test]
fn a_connect_may_come_byte_by_byte() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        for version in VERSIONS {
            let mut peer = rig.connect().await;
            let connect = connect_packet(version, "slow");
            write_pieces(&mut peer, connect.chunks(1)).await;
            let greeted = rig.greeted().await;
            assert_eq!(greeted.connect[..], connect[..]);
            assert!(greeted.rest.is_empty());
        }
    });
}

#[test]
fn a_client_without_an_id_is_given_one() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "")).await.unwrap();
        let greeted = rig.greeted().await;
        assert!(greeted.assigned_client_id);
        assert!(greeted.client_id.starts_with("auto-"), "{}", greeted.client_id);
    });
}

#[test]
fn the_refused_are_told_why_and_closed() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |config| {
            config.protocol_versions = vec![5];
            config.allow_anonymous = Some(false);
        });
        let mut peer = rig.connect().await;
        // What follows a refused CONNECT is not read [MQTT-3.1.4-6], and does not cost the client its CONNACK.
        let packets = [&connect_packet(ProtocolVersion::V3_1_1, "a")[..], &[0xC0, 0].repeat(1000)].concat();
        peer.write_all(&packets).await.unwrap();
        assert_eq!(read_to_end(&mut peer).await, [0x20, 2, 0, 1]);
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
        let connack = read_to_end(&mut peer).await;
        assert_eq!(connack[2..4], [0, 0x87]);
        rig.counted(|state| &state.counts.refused, 2).await;
        until(|| rig.state.connections() == 0).await;
    });
}

#[test]
fn above_the_limit_a_client_is_told_so() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |config| config.max_connections = 1);
        let mut first = rig.connect().await;
        first.write_all(&connect_packet(ProtocolVersion::V3_1_1, "a")).await.unwrap();
        let greeted = rig.greeted().await;
        let mut second = rig.connect().await;
        second.write_all(&connect_packet(ProtocolVersion::V3_1_1, "b")).await.unwrap();
        assert_eq!(read_to_end(&mut second).await, [0x20, 2, 0, 3]);
        drop((second, greeted));
        until(|| rig.state.connections() == 0).await;
        let mut third = rig.connect().await;
        third.write_all(&connect_packet(ProtocolVersion::V3_1_1, "c")).await.unwrap();
        assert_eq!(&*rig.greeted().await.client_id, "c");
    });
}

#[test]
fn a_password_is_asked_for_where_there_are_passwords() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        let mut users = PasswordFile::default();
        let hash = PasswordHash::new(HashKind::Sha512Pbkdf2, b"secret").unwrap();
        users.set("ann", hash).unwrap();
        users.save(&path).unwrap();
        let mut rig = Rig::start_with(Protocol::Mqtt, Some(&path), |_| {});
        let login = |password: &[u8]| {
            let mut packet = Vec::new();
            Connect {
                version: ProtocolVersion::V3_1_1,
                clean_start: true,
                keep_alive_secs: 1,
                client_id: "a",
                properties: Properties::EMPTY,
                will: None,
                user_name: Some("ann"),
                password: Some(password),
            }
            .encode(ProtocolVersion::V3_1_1, &mut packet);
            packet
        };
        let mut wrong = rig.connect().await;
        wrong.write_all(&login(b"guess")).await.unwrap();
        assert_eq!(read_to_end(&mut wrong).await, [0x20, 2, 0, 4]);
        let mut nobody = rig.connect().await;
        nobody.write_all(&connect_packet(ProtocolVersion::V3_1_1, "a")).await.unwrap();
        assert_eq!(read_to_end(&mut nobody).await, [0x20, 2, 0, 5]);
        let mut right = rig.connect().await;
        right.write_all(&login(b"secret")).await.unwrap();
        assert_eq!(rig.greeted().await.identity.user_name.as_deref(), Some("ann"));
    });
}

/// Field case 33: what is malformed closes its own connection only.
#[test]
fn malformed_first_packets_are_closed() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        let malformed: [&[u8]; 7] = [
            &[0x11, 0],
            &[0x10, 0xFF, 0xFF, 0xFF, 0xFF, 0x01],
            &[0x10, 0x80, 0x00],
            &[0xC0, 0],
            &[0x30, 4, 0, 1, b'a', b'x'],
            &[0x10, 0xFF, 0xFF, 0xFF, 0x7F],
            b"\0\0\0\0",
        ];
        for bytes in malformed {
            let mut peer = rig.connect().await;
            peer.write_all(bytes).await.unwrap();
            assert_eq!(read_to_end(&mut peer).await, b"", "{bytes:x?}");
        }
        rig.counted(|state| &state.counts.malformed, malformed.len() as u64).await;
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "good")).await.unwrap();
        assert_eq!(&*rig.greeted().await.client_id, "good");
    });
}

#[test]
fn a_browser_on_the_mqtt_port_is_told_where_to_go() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |_| {});
        let mut peer = rig.connect().await;
        let request = "GET /mqtt HTTP/1.1\r\nHost: broker.example:1883\r\nUpgrade: websocket\r\n\r\n";
        write_pieces(&mut peer, request.as_bytes().chunks(7)).await;
        let answer = String::from_utf8(read_to_end(&mut peer).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.contains("ws://broker.example:8083/mqtt"), "{answer}");
    });
}

#[test]
fn a_tls_client_on_a_plain_port_is_closed_without_a_word() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |_| {});
        let mut peer = rig.connect().await;
        peer.write_all(b"\x16\x03\x01\x02\x00\x01\x00").await.unwrap();
        assert_eq!(read_to_end(&mut peer).await, b"");
        rig.counted(|state| &state.counts.malformed, 1).await;
    });
}

/// Field case 38: silent, and one byte at a time.
#[test]
fn who_does_not_finish_a_connect_is_closed_at_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(300);
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |config| config.connect_timeout = DEADLINE);
        let begin = Instant::now();
        let mut silent = rig.connect().await;
        let mut trickling = rig.connect().await;
        let (mut reading, mut writing) = trickling.split();
        let drip = async {
            for byte in connect_packet(ProtocolVersion::V5, &"x".repeat(100)) {
                if writing.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(DEADLINE / 20).await;
            }
        };
        tokio::select! {
            () = drip => panic!("nobody closed the connection"),
            left = read_to_end(&mut reading) => assert_eq!(left, b""),
        }
        assert_eq!(read_to_end(&mut silent).await, b"");
        let took = begin.elapsed();
        assert!(took >= DEADLINE && took < DEADLINE + Duration::from_secs(1), "{took:?}");
        rig.counted(|state| &state.counts.timed_out, 2).await;
        until(|| rig.state.connections() == 0).await;
    });
}

#[test]
fn a_probe_that_says_nothing_leaves_nothing() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |_| {});
        for count in 1..=20 {
            drop(rig.connect().await);
            rig.counted(|state| &state.counts.silent, count).await;
        }
        until(|| rig.state.connections() == 0).await;
        assert_eq!(rig.state.counts.accepted.load(Ordering::Relaxed), 20);
    });
}

#[test]
fn a_storm_is_taken_in_order_of_arrival() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        // More than one batch is in the queue before the loop runs for the first time.
        let mut peers = Vec::new();
        for number in 0..100 {
            let mut peer = std::net::TcpStream::connect(rig.address).unwrap();
            std::io::Write::write_all(&mut peer, &connect_packet(ProtocolVersion::V5, &format!("c{number}"))).unwrap();
            peers.push(peer);
        }
        for number in 0..100 {
            assert_eq!(*rig.greeted().await.client_id, *format!("c{number}"));
        }
    });
}

#[test]
fn shutdown_ends_the_loop_and_closes_the_port() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |_| {});
        drop(rig.connect().await);
        rig.shutdown.send(true).unwrap();
        rig.accepting.await.unwrap().unwrap();
        assert!(TcpStream::connect(rig.address).await.is_err());
    });
}

#[test]
fn connections_inherit_the_options_of_the_listening_socket() {
    let listening = sockets::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let _peer = std::net::TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    let listening = socket2::Socket::from(listening);
    let accepted = loop {
        match sockets::accept(&listening) {
            sockets::Accepted::Connection(socket, _) => break socket,
            sockets::Accepted::Nothing => std::thread::yield_now(),
            _ => panic!("accept failed"),
        }
    };
    assert!(accepted.nodelay().unwrap());
    let accepted = socket2::SockRef::from(&accepted);
    assert!(accepted.keepalive().unwrap() && accepted.nonblocking().unwrap());
}
