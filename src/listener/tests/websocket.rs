//! MQTT over WebSocket on raw sockets: frames are made and read here, byte by byte, by nothing that the broker uses.

use std::time::Instant;

use futures_util::FutureExt;
use tokio::io::AsyncWrite;

use super::*;
use crate::byte_stream::Transport;
use crate::mqtt::ReasonCode;

pub(super) const BINARY: u8 = 0x2;
const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xA;

const HANDSHAKE: &str = "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n";

/// A frame as a client sends it, masked.
pub(super) fn frame(is_final: bool, opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];
    let mut frame = vec![u8::from(is_final) << 7 | opcode];
    match payload.len() {
        len @ ..=125 => frame.push(0x80 | len as u8),
        len @ 126..=65_535 => {
            frame.push(0x80 | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(0x80 | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    frame.extend(MASK);
    frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Reads one frame of the server, which must be whole and not masked.
async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let head = read_exactly(stream, 2).await;
    assert_eq!(head[0] & 0xF0, 0x80, "a final frame without extensions");
    let len = match head[1] {
        126 => usize::from(u16::from_be_bytes(read_exactly(stream, 2).await.try_into().unwrap())),
        127 => u64::from_be_bytes(read_exactly(stream, 8).await.try_into().unwrap()) as usize,
        short => usize::from(short),
    };
    assert!(head[1] != 126 || len > 125, "the shortest form of the length");
    assert!(head[1] != 127 || len > 65_535, "the shortest form of the length");
    (head[0] & 0x0F, read_exactly(stream, len).await)
}

pub(super) async fn upgrade(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 ") && head.contains("Sec-WebSocket-Protocol: mqtt\r\n"), "{head}");
}

/// A peer behind the upgrade, and the connection as it was handed over.
async fn open(rig: &mut Rig) -> (TcpStream, Greeted) {
    let mut peer = rig.connect().await;
    upgrade(&mut peer).await;
    peer.write_all(&frame(true, BINARY, &connect_packet(ProtocolVersion::V5, "ws"))).await.unwrap();
    (peer, rig.greeted().await)
}

fn rig() -> Rig {
    Rig::start(Protocol::Ws, |_| {})
}

/// Field case 34 (a) to (c): one frame for several packets, one byte per frame, a fragmented message with a ping in between.
#[test]
fn packets_are_cut_and_joined_over_frames() {
    run(async {
        let mut rig = rig();
        let connect = connect_packet(ProtocolVersion::V5, "ws");
        let packets = [&connect[..], &[0xC0, 0, 0xC0, 0]].concat();
        let (front, back) = packets.split_at(5);
        let in_one: Vec<u8> = frame(true, BINARY, &packets);
        let by_byte: Vec<u8> = packets.iter().flat_map(|byte| frame(true, BINARY, &[*byte])).collect();
        let empty_ones = [&frame(true, BINARY, b"")[..], &in_one, &frame(true, BINARY, b"")].concat();
        let fragmented = [
            frame(false, BINARY, front),
            frame(true, PING, b"between"),
            frame(false, CONTINUATION, b""),
            frame(true, CONTINUATION, back),
        ]
        .concat();
        for (bytes, pings) in [(in_one, 0), (by_byte, 0), (empty_ones, 0), (fragmented, 1)] {
            let mut peer = rig.connect().await;
            upgrade(&mut peer).await;
            write_pieces(&mut peer, bytes.chunks(3)).await;
            let mut greeted = rig.greeted().await;
            assert_eq!(greeted.stream.transport(), Transport::Ws);
            assert_eq!(greeted.connect[..], connect[..]);
            let missing = 4 - greeted.rest.len();
            let rest = [&greeted.rest[..], &read_exactly(&mut greeted.stream, missing).await].concat();
            assert_eq!(rest, [0xC0, 0, 0xC0, 0]);
            for _ in 0..pings {
                assert_eq!(read_frame(&mut peer).await, (PONG, b"between".to_vec()));
            }
        }
    });
}

/// A client need not wait for the 101 before it sends frames.
#[test]
fn frames_right_behind_the_request_are_not_lost() {
    run(async {
        let mut rig = rig();
        let mut peer = rig.connect().await;
        let connect = connect_packet(ProtocolVersion::V3_1_1, "eager");
        peer.write_all(&[HANDSHAKE.as_bytes(), &frame(true, BINARY, &connect)].concat()).await.unwrap();
        assert_eq!(rig.greeted().await.connect[..], connect[..]);
    });
}

/// Field case 34 (e) and (f).
#[test]
fn every_length_of_a_payload_is_carried_both_ways() {
    run(async {
        let mut rig = rig();
        let (mut peer, mut greeted) = open(&mut rig).await;
        for len in [1, 125, 126, 127, 4095, 4096, 4097, 65_535, 65_536, 100_000] {
            let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            for part in payload.chunks(if len == 100_000 { 3000 } else { len }) {
                peer.write_all(&frame(true, BINARY, part)).await.unwrap();
            }
            assert_eq!(read_exactly(&mut greeted.stream, len).await, payload);
            let writing = async {
                greeted.stream.write_all(&payload).await.unwrap();
                greeted.stream.flush().await.unwrap();
            };
            let reading = async {
                let mut received = Vec::new();
                while received.len() < len {
                    let (opcode, part) = read_frame(&mut peer).await;
                    assert_eq!(opcode, BINARY);
                    received.extend(part);
                }
                assert_eq!(received, payload);
            };
            tokio::join!(writing, reading);
        }
    });
}

#[test]
fn small_writes_become_one_frame_at_the_flush() {
    run(async {
        let mut rig = rig();
        let (mut peer, mut greeted) = open(&mut rig).await;
        for part in [&b"one "[..], b"two ", b"three"] {
            greeted.stream.write_all(part).await.unwrap();
        }
        greeted.stream.flush().await.unwrap();
        assert_eq!(read_frame(&mut peer).await, (BINARY, b"one two three".to_vec()));
        let slices: Vec<_> = (0..40).map(|_| std::io::IoSlice::new(&[7; 1000])).collect();
        let written = greeted.stream.write_vectored(&slices).await.unwrap();
        greeted.stream.flush().await.unwrap();
        assert_eq!(written, 40_000);
        assert_eq!(read_frame(&mut peer).await, (BINARY, vec![7; 40_000]));
    });
}

/// Field case 36 (a) and (b), and what else breaks the rules of frames.
#[test]
fn what_breaks_the_rules_is_closed_with_its_code() {
    run(async {
        let mut rig = rig();
        let unmasked = vec![0x82, 2, 0xC0, 0];
        let reserved_bit = {
            let mut bytes = frame(true, BINARY, &[0xC0, 0]);
            bytes[0] |= 0x40;
            bytes
        };
        let long_ping = frame(true, PING, &[0; 126]);
        let too_large = [&[0x82, 0x80 | 127][..], &0x1000_0000u64.to_be_bytes(), &[0; 4]].concat();
        let lonely_continuation = frame(true, CONTINUATION, b"x");
        for (bytes, code) in [
            (frame(true, TEXT, b"hello"), 1003u16),
            (frame(true, TEXT, b"\xFF"), 1003),
            (unmasked, 1002),
            (reserved_bit, 1002),
            (long_ping, 1002),
            (lonely_continuation, 1002),
            (too_large, 1009),
        ] {
            let (mut peer, mut greeted) = open(&mut rig).await;
            peer.write_all(&bytes).await.unwrap();
            let error = greeted.stream.read_u8().await.unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
            let (opcode, payload) = read_frame(&mut peer).await;
            assert_eq!((opcode, &payload[..2]), (CLOSE, &code.to_be_bytes()[..]), "{bytes:x?}");
            // Its owner may say another reason and close: the first one stands, once.
            greeted.stream.set_close_reason(ReasonCode::MalformedPacket);
            greeted.stream.shutdown().await.unwrap();
            assert_eq!(read_to_end(&mut peer).await, b"");
        }
    });
}

/// Field case 36 (c).
#[test]
fn a_close_frame_is_answered_and_is_the_end() {
    run(async {
        let mut rig = rig();
        let (mut peer, mut greeted) = open(&mut rig).await;
        peer.write_all(&frame(true, BINARY, b"last")).await.unwrap();
        peer.write_all(&frame(true, CLOSE, &1001u16.to_be_bytes())).await.unwrap();
        assert_eq!(read_to_end(&mut greeted.stream).await, b"last");
        assert_eq!(read_frame(&mut peer).await, (CLOSE, 1001u16.to_be_bytes().to_vec()));
        assert!(greeted.stream.write_all(b"late").await.is_err());
        greeted.stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut peer).await, b"");
    });
}

#[test]
fn a_connection_that_just_breaks_is_the_end_as_well() {
    run(async {
        let mut rig = rig();
        let (peer, mut greeted) = open(&mut rig).await;
        drop(peer);
        assert_eq!(read_to_end(&mut greeted.stream).await, b"");
        greeted.stream.set_close_reason(ReasonCode::KeepAliveTimeout);
        let _ = greeted.stream.shutdown().await;
    });
}

/// Field case 36 (e), and pings of our own.
#[test]
fn pings_are_answered_and_sent() {
    run(async {
        let mut rig = rig();
        let (mut peer, mut greeted) = open(&mut rig).await;
        let payload: Vec<u8> = (0..125).collect();
        peer.write_all(&[frame(true, PING, &payload), frame(true, BINARY, b"x")].concat()).await.unwrap();
        assert_eq!(greeted.stream.read_u8().await.unwrap(), b'x');
        assert_eq!(read_frame(&mut peer).await, (PONG, payload));
        greeted.stream.ping();
        greeted.stream.flush().await.unwrap();
        assert_eq!(read_frame(&mut peer).await, (PING, Vec::new()));
        peer.write_all(&[frame(true, PONG, b""), frame(true, BINARY, b"y")].concat()).await.unwrap();
        assert_eq!(greeted.stream.read_u8().await.unwrap(), b'y', "a pong is nothing to the reader");
    });
}

/// OPERATIONS: a browser sees why it was closed, as 4000 + the reason code where WebSocket has no code of its own.
#[test]
fn the_close_frame_carries_the_reason() {
    run(async {
        let mut rig = rig();
        for (reason, code) in [
            (None, 1000u16),
            (Some(ReasonCode::Success), 1000),
            (Some(ReasonCode::NotAuthorized), 4135),
            (Some(ReasonCode::ServerShuttingDown), 4139),
            (Some(ReasonCode::KeepAliveTimeout), 4141),
            (Some(ReasonCode::SessionTakenOver), 4142),
            (Some(ReasonCode::QuotaExceeded), 4151),
            (Some(ReasonCode::AdministrativeAction), 4152),
            (Some(ReasonCode::MalformedPacket), 1002),
            (Some(ReasonCode::PacketTooLarge), 1009),
            (Some(ReasonCode::ServerBusy), 1013),
        ] {
            let (mut peer, mut greeted) = open(&mut rig).await;
            greeted.stream.write_all(b"bye").await.unwrap();
            if let Some(reason) = reason {
                greeted.stream.set_close_reason(reason);
            }
            greeted.stream.shutdown().await.unwrap();
            assert_eq!(read_frame(&mut peer).await, (BINARY, b"bye".to_vec()));
            let (opcode, payload) = read_frame(&mut peer).await;
            assert_eq!((opcode, &payload[..2]), (CLOSE, &code.to_be_bytes()[..]));
            assert_eq!(read_to_end(&mut peer).await, b"");
        }
    });
}

#[test]
fn a_refused_connect_gets_its_connack_and_a_code() {
    run(async {
        let rig = Rig::start(Protocol::Ws, |config| config.allow_anonymous = Some(false));
        let mut peer = rig.connect().await;
        upgrade(&mut peer).await;
        peer.write_all(&frame(true, BINARY, &connect_packet(ProtocolVersion::V3_1_1, "a"))).await.unwrap();
        assert_eq!(read_frame(&mut peer).await, (BINARY, vec![0x20, 2, 0, 5]));
        let (opcode, payload) = read_frame(&mut peer).await;
        assert_eq!((opcode, &payload[..2]), (CLOSE, &4135u16.to_be_bytes()[..]));
    });
}

#[test]
fn refused_upgrades_are_told_why_and_counted() {
    run(async {
        let rig = Rig::start(Protocol::Ws, |config| config.allowed_origins = vec!["https://app.example".to_owned()]);
        for (from, to, status) in [
            ("GET /mqtt", "GET /other", "404"),
            ("Version: 13", "Version: 12", "426"),
            ("Sec-WebSocket-Protocol: mqtt", "Sec-WebSocket-Protocol: foo", "400"),
            ("Host: localhost", "Host: localhost\r\nOrigin: https://evil.example", "403"),
            ("Upgrade: websocket\r\n", "", "426"),
        ] {
            let mut peer = rig.connect().await;
            write_pieces(&mut peer, HANDSHAKE.replace(from, to).as_bytes().chunks(50)).await;
            let answer = String::from_utf8(read_to_end(&mut peer).await).unwrap();
            assert_eq!(&answer[9..12], status, "{answer}");
        }
        rig.counted(|state| &state.counts.upgrade_refused, 5).await;
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
        assert_eq!(read_to_end(&mut peer).await, b"", "plain MQTT on a WebSocket port");
    });
}

/// Field case 38: half a request, and an upgrade with nothing behind it.
#[test]
fn who_does_not_finish_the_handshake_is_closed_at_the_deadline() {
    const DEADLINE: Duration = Duration::from_millis(300);
    run(async {
        let rig = Rig::start(Protocol::Ws, |config| {
            config.handshake_timeout = DEADLINE;
            config.connect_timeout = DEADLINE;
        });
        let begin = Instant::now();
        let mut silent = rig.connect().await;
        let mut half = rig.connect().await;
        half.write_all(&HANDSHAKE.as_bytes()[..60]).await.unwrap();
        let mut upgraded = rig.connect().await;
        upgrade(&mut upgraded).await;
        assert_eq!(read_to_end(&mut silent).await, b"");
        assert_eq!(read_to_end(&mut half).await, b"");
        let _ = read_to_end(&mut upgraded).await;
        let took = begin.elapsed();
        assert!(took >= DEADLINE && took < DEADLINE + Duration::from_secs(1), "{took:?}");
        rig.counted(|state| &state.counts.timed_out, 3).await;
    });
}

/// A reader that is slower than the writer, with pings in between: no frame may be torn apart by another one.
#[test]
fn frames_stay_whole_when_the_peer_reads_slowly() {
    const BYTES: usize = 8 << 20;
    run(async {
        let mut rig = rig();
        let (peer, mut greeted) = open(&mut rig).await;
        let (mut peer_reads, mut peer_writes) = peer.into_split();
        let (mut reading, mut writing) = tokio::io::split(&mut greeted.stream);
        let sent = async {
            let mut number = 0usize;
            while number < BYTES {
                let chunk: Vec<u8> = (number..number + 70_001).map(|n| (n % 251) as u8).collect();
                writing.write_all(&chunk[..(number % 70_001).max(1)]).await.unwrap();
                number += (number % 70_001).max(1);
                if number.is_multiple_of(3) {
                    writing.flush().await.unwrap();
                }
            }
            writing.flush().await.unwrap();
            number
        };
        // The connection reads all the time, which is when pongs are sent.
        let reading = async {
            let mut byte = [0];
            while reading.read(&mut byte).await.unwrap() > 0 && byte[0] != b'.' {}
        };
        let pings = async {
            for number in 0..2000u32 {
                peer_writes.write_all(&frame(true, PING, &number.to_be_bytes())).await.unwrap();
                tokio::task::yield_now().await;
            }
            peer_writes.write_all(&frame(true, BINARY, b".")).await.unwrap();
        };
        let received = async {
            let (mut received, mut pongs) = (0usize, Vec::new());
            while received < BYTES {
                let (opcode, payload) = read_frame(&mut peer_reads).await;
                match opcode {
                    BINARY => {
                        assert!(payload.iter().enumerate().all(|(n, byte)| *byte == ((received + n) % 251) as u8));
                        received += payload.len();
                    }
                    PONG => pongs.push(u32::from_be_bytes(payload.try_into().unwrap())),
                    other => panic!("opcode {other}"),
                }
            }
            assert!(pongs.is_sorted(), "pongs in the order of the pings");
            (received, pongs.len())
        };
        let (sent, (), (), (received, pongs)) = tokio::join!(sent, reading, pings, received);
        assert!(received <= sent && pongs > 0, "{received} of {sent}, {pongs} pongs");
    });
}

/// What an idle connection costs: run alone, with `--ignored --nocapture`, since it looks at the memory of the whole process. The peers
/// are sockets without buffers of their own.
#[test]
#[ignore = "measures the process: run it alone"]
fn memory_of_idle_connections() {
    const CONNECTIONS: usize = 2000;
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    }
    for protocol in [Protocol::Mqtt, Protocol::Ws] {
        run(async {
            let mut rig = Rig::start(protocol, |_| {});
            let (mut peers, mut held) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
            let mut before = 0;
            for number in 0..CONNECTIONS + 100 {
                if number == 100 {
                    before = resident();
                }
                let mut peer = rig.connect().await;
                let connect = connect_packet(ProtocolVersion::V5, "idle");
                if protocol == Protocol::Ws {
                    upgrade(&mut peer).await;
                    peer.write_all(&frame(true, BINARY, &connect)).await.unwrap();
                } else {
                    peer.write_all(&connect).await.unwrap();
                }
                let mut greeted = rig.greeted().await;
                peer.write_all(&if protocol == Protocol::Ws { frame(true, BINARY, &[1]) } else { vec![1] })
                    .await
                    .unwrap();
                greeted.stream.read_u8().await.unwrap();
                greeted.stream.write_all(&[1; 100]).await.unwrap();
                greeted.stream.flush().await.unwrap();
                assert!(greeted.stream.read_u8().now_or_never().is_none(), "a shard reads until nothing is left");
                peers.push(peer.into_std().unwrap());
                held.push(greeted);
            }
            println!("{protocol:?}: {} bytes per idle connection", (resident() - before) / CONNECTIONS);
        });
    }
}
