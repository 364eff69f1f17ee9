//! A connection that moves between two runtimes, as it does on its way to the shard of its client id, while bytes are under way.

use tokio::io::AsyncWrite;
use tokio::runtime::Builder;

use super::tls::{Authority, Client, Files, shake_hands};
use super::websocket::{BINARY, frame, upgrade};
use super::*;
use crate::byte_stream::{ByteStream, Transport};
use crate::config::Verify;

/// Bytes that go round, and after how many the stream moves on: a number that agrees with no buffer and no frame.
const BYTES: usize = 400_000;
const BYTES_PER_STAY: usize = 30_011;

/// A thread with a runtime of its own that echoes the next bytes of each stream it is given and passes it on. The stream goes
/// back and forth between two of these until it ends.
fn echo_thread(
    streams: std::sync::mpsc::Receiver<ByteStream>,
    next: std::sync::mpsc::Sender<ByteStream>,
) -> std::thread::JoinHandle<usize> {
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut stays = 0;
            while let Ok(mut stream) = streams.recv() {
                stays += 1;
                if !echo(&mut stream, BYTES_PER_STAY).await {
                    break;
                }
                stream.detach().unwrap();
                if next.send(stream).is_err() {
                    break;
                }
            }
            stays
        })
    })
}

/// Echoes this many bytes; false at the end of the stream.
async fn echo(stream: &mut ByteStream, bytes: usize) -> bool {
    stream.attach().unwrap();
    let mut left = bytes;
    let mut buffer = vec![0; 7000];
    while left > 0 {
        let room = left.min(buffer.len());
        let len = stream.read(&mut buffer[..room]).await.unwrap();
        if len == 0 {
            stream.shutdown().await.unwrap();
            return false;
        }
        stream.write_all(&buffer[..len]).await.unwrap();
        stream.flush().await.unwrap();
        left -= len;
    }
    true
}

/// Sends bytes and compares what comes back, with the stream under way between two threads.
async fn go_round(
    mut rig: Rig,
    peer: impl AsyncRead + AsyncWrite + Send + 'static,
    is_websocket: bool,
    expected: Transport,
) {
    let (mut reading, mut writing) = tokio::io::split(peer);
    let wrap = move |bytes: &[u8]| {
        if is_websocket { frame(true, BINARY, bytes) } else { bytes.to_vec() }
    };
    writing.write_all(&wrap(&connect_packet(ProtocolVersion::V5, "traveller"))).await.unwrap();
    writing.flush().await.unwrap();
    let mut greeted = rig.greeted.recv().await.unwrap();
    assert_eq!(greeted.stream.transport(), expected);
    greeted.stream.detach().unwrap();
    let (to_one, one) = std::sync::mpsc::channel();
    let (to_other, other) = std::sync::mpsc::channel();
    let threads = [echo_thread(one, to_other), echo_thread(other, to_one.clone())];
    to_one.send(greeted.stream).unwrap();
    drop(to_one);

    let payload: Vec<u8> = (0..BYTES).map(|n| (n % 251) as u8).collect();
    let sent = payload.clone();
    let sending = async move {
        for part in sent.chunks(9001) {
            writing.write_all(&wrap(part)).await.unwrap();
            writing.flush().await.unwrap();
        }
        writing
    };
    let receiving = async {
        if is_websocket { unwrap_frames(&mut reading, BYTES).await } else { read_exactly(&mut reading, BYTES).await }
    };
    let (mut writing, received) = tokio::join!(sending, receiving);
    assert!(received == payload, "the bytes came back changed");
    writing.shutdown().await.unwrap();
    until(|| threads.iter().any(std::thread::JoinHandle::is_finished)).await;
    let stays: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(stays > BYTES / BYTES_PER_STAY, "the stream stayed {stays} times");
}

/// The payloads of binary frames of the server, of `len` bytes in all.
async fn unwrap_frames(stream: &mut (impl AsyncRead + Unpin), len: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    while payload.len() < len {
        let head = read_exactly(stream, 2).await;
        assert_eq!(head[0], 0x80 | BINARY);
        let len = match head[1] {
            126 => usize::from(stream.read_u16().await.unwrap()),
            127 => usize::try_from(stream.read_u64().await.unwrap()).unwrap(),
            short => usize::from(short),
        };
        payload.extend(read_exactly(stream, len).await);
    }
    payload
}

#[test]
fn tcp() {
    run(async {
        let rig = Rig::start(Protocol::Mqtt, |_| {});
        let peer = rig.connect().await;
        go_round(rig, peer, false, Transport::Tcp).await;
    });
}

#[test]
fn ws() {
    run(async {
        let rig = Rig::start(Protocol::Ws, |_| {});
        let mut peer = rig.connect().await;
        upgrade(&mut peer).await;
        go_round(rig, peer, true, Transport::Ws).await;
    });
}

#[test]
fn tls() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let rig = Rig::start(Protocol::Mqtt, |config| config.tls = Some(files.tls(Verify::None)));
        let peer = shake_hands(&rig, &Client::default().connector(&authority)).await.unwrap();
        go_round(rig, peer, false, Transport::Tls).await;
    });
}

#[test]
fn wss() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let rig = Rig::start(Protocol::Ws, |config| config.tls = Some(files.tls(Verify::None)));
        let mut peer = shake_hands(&rig, &Client::default().connector(&authority)).await.unwrap();
        upgrade(&mut peer).await;
        go_round(rig, peer, true, Transport::Wss).await;
    });
}

/// What has not been attached is an error and not a hang.
#[test]
fn a_detached_stream_reads_and_writes_nothing() {
    run(async {
        let mut rig = Rig::start(Protocol::Mqtt, |_| {});
        let mut peer = rig.connect().await;
        peer.write_all(&connect_packet(ProtocolVersion::V5, "a")).await.unwrap();
        let mut greeted = rig.greeted().await;
        greeted.stream.detach().unwrap();
        greeted.stream.detach().unwrap();
        assert!(!greeted.stream.is_attached());
        assert!(greeted.stream.read_u8().await.is_err());
        assert!(greeted.stream.write_u8(0).await.is_err());
        greeted.stream.attach().unwrap();
        greeted.stream.write_u8(0).await.unwrap();
    });
}
