//! Whoever does not belong here: other secrets, other clusters, replays, and bytes of all kinds.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::super::accept::NEWCOMERS_MAX;
use super::super::hello::{self, Hello, Message, Purpose};
use super::*;

fn connect(node: &Node) -> TcpStream {
    let socket = TcpStream::connect(node.links.local_addr()).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket.set_write_timeout(Some(LIMIT)).unwrap();
    socket
}

/// All that comes until the connection ends, however it does.
fn read_all(socket: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return bytes,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return bytes,
            Err(error) => panic!("the connection is not closed: {error}"),
        }
    }
}

/// Preface and Hello of a node that does not exist.
fn opening(purpose: Purpose) -> Vec<u8> {
    let own = Peer {
        id: NodeId(99),
        name: Arc::from("n99"),
        run: 1,
        address: "127.0.0.1:1".to_owned(),
        shards: 2,
        versions: (1, 1),
    };
    let hello = Hello { peer: own, cluster: cluster(), cluster_id: 0, purpose, attempt: 1, nonce: [7; 32] };
    [&hello::preface((1, 1))[..], &hello::message(&Message::Hello(Box::new(hello)))].concat()
}

/// The refusal that these bytes end with, if they do.
fn refusal(bytes: &[u8]) -> Option<Refusal> {
    let at = bytes.len().checked_sub(4)?;
    (bytes[at..at + 3] == [4, 0, 1]).then(|| Refusal::from_u8(bytes[at + 3]))
}

/// Two nodes that must not be linked: each says why, the one to the other.
fn kept_apart(one: Plan, two: Plan, refused: Refusal) {
    let runtime = runtime();
    let one = one.start(&runtime);
    let two = two.seeds(&[&one.address()]).start(&runtime);
    let (here, there) = (one.links.counts(), two.links.counts());
    eventually("one of them refuses", || here.refused(refused) + there.refused(refused) > 0);
    for counts in [here, there] {
        eventually("both know why", || counts.refused(refused) + counts.refused_by_peers(refused) > 0);
    }
    assert!(one.links.peers().is_empty() && two.links.peers().is_empty());
}

#[test]
fn another_secret_is_refused() {
    let mut stranger = node(2);
    stranger.secret = "the secret of some other nodes";
    kept_apart(node(1), stranger, Refusal::Secret);
}

#[test]
fn another_cluster_is_refused() {
    let mut stranger = node(2);
    stranger.config.name = "d".to_owned();
    kept_apart(node(1), stranger, Refusal::ClusterName);
}

#[test]
fn versions_without_one_in_common_are_refused() {
    let mut stranger = node(2);
    stranger.versions = (2, 3);
    kept_apart(node(1), stranger, Refusal::Version);
}

#[test]
fn versions_with_one_in_common_are_not() {
    let runtime = runtime();
    let mut newer = node(2);
    newer.versions = (1, 3);
    let newer = newer.start(&runtime);
    let one = node(1).seeds(&[&newer.address()]).start(&runtime);
    assert_eq!(one.up().versions, (1, 3));
}

#[test]
fn another_cluster_of_the_same_name_is_refused() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    one.links.set_cluster_id(11);
    let two = node(2).start(&runtime);
    two.links.set_cluster_id(22);
    two.links.add_seed(&one.address());
    eventually("the id is refused", || one.links.counts().refused(Refusal::ClusterId) > 0);
    assert!(one.links.linked().is_empty());
    // Whoever belongs to no cluster yet may come.
    let three = node(3).seeds(&[&one.address()]).start(&runtime);
    assert_eq!(one.up().id, three.id());
}

#[test]
fn what_was_said_once_cannot_be_said_again() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    // Listens in on a whole exchange between two nodes.
    let relay = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let relay_address = relay.local_addr().unwrap().to_string();
    let target = one.links.local_addr();
    let recorded = std::thread::spawn(move || {
        let (mut near, _) = relay.accept().unwrap();
        let mut far = TcpStream::connect(target).unwrap();
        let (mut back_from, mut back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
        let mut said = Vec::new();
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = near.read(&mut buffer) {
            said.extend_from_slice(&buffer[..count]);
            if far.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        said
    });
    let two = node(2).seeds(&[&relay_address]).start(&runtime);
    let said = recorded.join().unwrap();
    both_up(&one, &two);
    two.stop(&runtime);
    one.down();
    // The same bytes again, from somebody who does not know the secret.
    let before = one.links.counts().refused(Refusal::Secret);
    let mut replayed = connect(&one);
    replayed.write_all(&said).unwrap();
    assert_eq!(refusal(&read_all(&mut replayed)), Some(Refusal::Secret));
    eventually("it is counted", || one.links.counts().refused(Refusal::Secret) == before + 1);
    assert!(one.links.linked().is_empty());
}

#[test]
fn a_proof_cannot_be_given_back() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    for proof in [[0; 32], [255; 32]] {
        let mut socket = connect(&one);
        socket.write_all(&opening(Purpose::Control)).unwrap();
        socket.write_all(&hello::message(&Message::Proof(proof))).unwrap();
        assert_eq!(refusal(&read_all(&mut socket)), Some(Refusal::Secret));
    }
    assert!(one.links.peers().is_empty());
}

#[test]
fn bytes_of_all_kinds_are_closed_over() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    let garbage: Vec<u8> = (0u32..1_000_000).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut long = hello::preface((1, 1)).to_vec();
    long.extend_from_slice(&[1, 0xFF, 0xFF]);
    let mut unknown = hello::preface((1, 1)).to_vec();
    unknown.extend_from_slice(&[77, 0, 1, 0]);
    let too_early = [&hello::preface((1, 1))[..], &hello::message(&Message::Proof([0; 32]))].concat();
    let mut large = opening(Purpose::Control);
    // Behind a Hello, where a proof should be: a length of 2 GiB, as frames have one.
    large.extend_from_slice(&[0x80, 0, 0, 0, 1]);
    for (name, bytes) in [
        ("garbage", garbage),
        ("a message of 64 KiB", long),
        ("a message of no kind", unknown),
        ("a proof of nothing", too_early),
        ("2 GiB", large),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
    ] {
        let mut socket = connect(&one);
        // It may be closed before all of it was taken.
        let _ = socket.write_all(&bytes);
        let answer = read_all(&mut socket);
        assert!(answer.len() < 1100, "{name}: {} bytes", answer.len());
    }
    assert!(one.links.send(two.id(), Lane::Control, 1, Bytes::new()));
    two.until("a frame", |seen| matches!(seen, Seen::Frame(..)).then_some(()));
    one.is_quiet(Duration::from_millis(50));
}

#[test]
fn silence_before_a_proof_is_not_waited_for() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    let mut sockets: Vec<_> = (0..3).map(|_| connect(&one)).collect();
    sockets[1].write_all(b"hold").unwrap();
    sockets[2].write_all(&opening(Purpose::Data(0))).unwrap();
    let began = Instant::now();
    for socket in &mut sockets {
        read_all(socket);
    }
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    eventually("they are counted", || one.links.counts().timed_out() == 3);
}

#[test]
fn a_crowd_that_proves_nothing_keeps_nobody_out() {
    const CROWD: usize = 500;
    let runtime = runtime();
    let one = node(1).start(&runtime);
    let crowd: Vec<_> = (0..CROWD).map(|_| connect(&one)).collect();
    eventually("the oldest go", || one.links.counts().evicted() as usize >= CROWD - NEWCOMERS_MAX);
    let began = Instant::now();
    let two = node(2).seeds(&[&one.address()]).start(&runtime);
    assert_eq!(one.up().id, two.id());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    // Tasks are what a connection costs: those of the crowd are bounded.
    assert!(runtime.metrics().num_alive_tasks() < NEWCOMERS_MAX + 40, "{}", runtime.metrics().num_alive_tasks());
    drop(crowd);
}
