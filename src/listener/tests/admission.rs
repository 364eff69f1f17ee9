//! Who comes too fast, for whom a proxy speaks, and TLS sessions that are resumed elsewhere.

use std::net::IpAddr;

use rustls::HandshakeKind;

use super::tls::{Authority, Client, Files, shake_hands};
use super::*;
use crate::admission::RateKind;
use crate::config::{ForwardedHeader, ProxyProtocol, Rate, Verify};

const UPGRADE: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: mqtt\r\n";

/// So slow that none is added during a test.
fn in_an_hour(amount: u64) -> Option<Rate> {
    Some(Rate { amount, per: Duration::from_secs(3_600) })
}

fn behind_proxy(config: &mut Listener, protocol: ProxyProtocol) {
    config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    config.proxy_protocol = protocol;
}

fn v2_from(last: u8) -> Vec<u8> {
    let body = [203, 0, 113, last, 10, 0, 0, 1, 0, 80, 7, 91];
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &body].concat()
}

#[test]
fn who_comes_too_fast_is_told_so_by_its_version() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |config| config.max_conn_rate_per_ip = in_an_hour(1));
        let mut first = rig.connect().await;
        first.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
        rig.greeted().await;
        let mut second = rig.connect().await;
        second.write_all(&connect_packet(ProtocolVersion::V5, "b")).await.unwrap();
        assert_eq!(read_to_end(&mut second).await[2..4], [0, 0x9F]);
        let mut third = rig.connect().await;
        third.write_all(&connect_packet(ProtocolVersion::V3_1_1, "c")).await.unwrap();
        assert_eq!(read_to_end(&mut third).await, [0x20, 2, 0, 3]);
        rig.counted(|state| &state.counts.refused, 2).await;
        assert_eq!(rig.state.node.limited(RateKind::Address), 2);
        assert!(rig.greeted.try_recv().is_err());
    });
}

#[test]
fn over_tls_who_comes_too_fast_is_closed_before_the_handshake() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let rig = Rig::start(Protocol::Mqtt, |config| {
            config.tls = Some(files.tls(Verify::None));
            config.max_conn_rate = in_an_hour(1);
        });
        let connector = Client::default().connector(&authority);
        shake_hands(&rig, &connector).await.unwrap();
        assert!(shake_hands(&rig, &connector).await.is_err());
        rig.counted(|state| &state.counts.refused, 1).await;
        assert_eq!(rig.state.counts.tls_failed.load(Ordering::Relaxed), 0);
        assert_eq!(rig.state.node.limited(RateKind::Listener), 1);
    });
}

#[test]
fn the_address_that_a_trusted_proxy_says_is_the_peer_and_has_its_own_rate() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |config| {
            behind_proxy(config, ProxyProtocol::Auto);
            config.max_conn_rate_per_ip = in_an_hour(1);
        });
        for last in [7, 8] {
            let mut peer = rig.connect().await;
            // In pieces, and with the CONNECT right behind it.
            let bytes = [v2_from(last), connect_packet(ProtocolVersion::V5, "a")].concat();
            write_pieces(&mut peer, bytes.chunks(5)).await;
            assert_eq!(rig.greeted().await.peer, SocketAddr::from(([203, 0, 113, last], 80)));
        }
        let mut peer = rig.connect().await;
        let header = b"PROXY TCP4 203.0.113.7 10.0.0.1 81 1883\r\n";
        peer.write_all(&[&header[..], &connect_packet(ProtocolVersion::V5, "a")].concat()).await.unwrap();
        assert_eq!(read_to_end(&mut peer).await[2..4], [0, 0x9F], "it is the same address, whatever the version");
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
        assert!(read_to_end(&mut peer).await.is_empty(), "the proxy has to send a header");
        rig.counted(|state| &state.counts.malformed, 1).await;
    });
}

#[test]
fn a_header_of_somebody_who_is_no_trusted_proxy_is_no_header() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |config| {
            behind_proxy(config, ProxyProtocol::V2);
            config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
        });
        let mut peer = rig.connect().await;
        peer.write_all(&[v2_from(7), connect_packet(ProtocolVersion::V5, "a")].concat()).await.unwrap();
        read_to_end(&mut peer).await;
        rig.counted(|state| &state.counts.malformed, 1).await;
    });
}

#[test]
fn a_header_that_does_not_come_is_waited_for_as_long_as_a_handshake() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |config| {
            behind_proxy(config, ProxyProtocol::V2);
            config.handshake_timeout = Duration::from_millis(100);
        });
        let mut peer = rig.connect().await;
        peer.write_all(&v2_from(7)[..10]).await.unwrap();
        read_to_end(&mut peer).await;
        rig.counted(|state| &state.counts.timed_out, 1).await;
    });
}

#[test]
fn a_websocket_has_the_address_of_the_header_field_or_503() {
    run(async {
        let mut rig = Rig::start(Protocol::Ws, |config| {
            behind_proxy(config, ProxyProtocol::Off);
            config.max_conn_rate_per_ip = in_an_hour(1);
        });
        let with = |list: &str| format!("{UPGRADE}X-Forwarded-For: {list}\r\n\r\n");
        let mut peer = rig.connect().await;
        peer.write_all(with("6.6.6.6, 203.0.113.9, 127.0.0.9").as_bytes()).await.unwrap();
        let mut frame = vec![0x82, 0x80 | connect_packet(ProtocolVersion::V5, "a").len() as u8, 0, 0, 0, 0];
        frame.extend(connect_packet(ProtocolVersion::V5, "a"));
        peer.write_all(&frame).await.unwrap();
        assert_eq!(rig.greeted().await.peer.ip(), IpAddr::from([203, 0, 113, 9]));
        let mut peer = rig.connect().await;
        peer.write_all(with("203.0.113.9").as_bytes()).await.unwrap();
        let answer = String::from_utf8(read_to_end(&mut peer).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 5\r\n"), "{answer}");
        assert_eq!(rig.state.node.limited(RateKind::Address), 1);
    });
}

#[test]
fn forwarded_fields_of_strangers_count_for_nothing() {
    run(async {
        let mut rig = Rig::start(Protocol::Ws, |config| config.xff = ForwardedHeader::XForwardedFor);
        let mut peer = rig.connect().await;
        peer.write_all(format!("{UPGRADE}X-Forwarded-For: 203.0.113.9\r\n\r\n").as_bytes()).await.unwrap();
        let mut frame = vec![0x82, 0x80 | connect_packet(ProtocolVersion::V5, "a").len() as u8, 0, 0, 0, 0];
        frame.extend(connect_packet(ProtocolVersion::V5, "a"));
        peer.write_all(&frame).await.unwrap();
        assert_eq!(rig.greeted().await.peer, peer.local_addr().unwrap());
    });
}

#[test]
fn a_tls_session_is_resumed_on_another_node_of_the_cluster_and_on_no_other() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let node = |key: [u8; 32]| Rig::with_ticket_key(&files, &key);
        let mut nodes = [node([1; 32]), node([1; 32]), node([2; 32])];
        let connector = Client::default().connector(&authority);
        for (number, expected) in [
            (0, HandshakeKind::Full),
            (1, HandshakeKind::Resumed),
            (0, HandshakeKind::Resumed),
            (2, HandshakeKind::Full),
        ] {
            let rig = &mut nodes[number];
            let mut peer = shake_hands(rig, &connector).await.unwrap();
            peer.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
            let mut greeted = rig.greeted().await;
            greeted.stream.write_all(b"x").await.unwrap();
            greeted.stream.flush().await.unwrap();
            // What is read comes behind the ticket.
            assert_eq!(read_exactly(&mut peer, 1).await, b"x");
            assert_eq!(peer.get_ref().1.handshake_kind(), Some(expected));
        }
    });
}
