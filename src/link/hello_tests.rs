//! Greetings as bytes, bytes that are none, and what a proof is good for.

use proptest::prelude::*;

use super::*;

fn hello(purpose: Purpose) -> Hello {
    Hello {
        peer: Peer {
            id: NodeId(7 << 100),
            name: Arc::from("n1"),
            run: 5,
            address: ":7946".to_owned(),
            shards: 4,
            versions: (1, 2),
        },
        cluster: "prod".to_owned(),
        cluster_id: 9,
        purpose,
        attempt: 3,
        nonce: [8; 32],
    }
}

fn read(bytes: &[u8]) -> Option<Message> {
    let (head, body) = bytes.split_first_chunk().unwrap();
    assert_eq!(body_length(*head), Some(body.len()));
    read_message(head[0], body, (1, 2))
}

#[test]
fn messages_come_back() {
    for purpose in [Purpose::Meet, Purpose::Control, Purpose::Bulk, Purpose::Data(0), Purpose::Data(3)] {
        let hello = Message::Hello(Box::new(hello(purpose)));
        assert_eq!(read(&message(&hello)), Some(hello));
    }
    for other in [Message::Proof([1; 32]), Message::Welcome([2; 32]), Message::Refused(Refusal::Secret)] {
        assert_eq!(read(&message(&other)), Some(other));
    }
}

#[test]
fn the_longest_names_fit() {
    let mut longest = hello(Purpose::Data(3));
    longest.peer.name = Arc::from("n".repeat(NAME_BYTES_MAX));
    longest.cluster = "c".repeat(NAME_BYTES_MAX);
    longest.peer.address = "a".repeat(ADDRESS_BYTES_MAX);
    let longest = Message::Hello(Box::new(longest));
    assert_eq!(read(&message(&longest)), Some(longest));
}

#[test]
fn hellos_that_cannot_be_are_refused() {
    let change = |change: fn(&mut Hello)| {
        let mut hello = hello(Purpose::Control);
        change(&mut hello);
        let bytes = message(&Message::Hello(Box::new(hello)));
        read_message(bytes[0], &bytes[3..], (1, 2))
    };
    assert!(change(|_| ()).is_some());
    assert_eq!(change(|hello| hello.purpose = Purpose::Data(4)), None, "a shard beyond its shards");
    assert_eq!(change(|hello| hello.peer.shards = 0), None);
    assert_eq!(change(|hello| hello.peer.shards = 65), None);
    assert_eq!(change(|hello| hello.peer.name = Arc::from("")), None);
    assert_eq!(change(|hello| hello.peer.name = Arc::from("a\nb")), None);
    assert_eq!(change(|hello| hello.cluster = "c".repeat(65)), None);
}

#[test]
fn versions_meet_at_the_highest_that_both_speak() {
    assert_eq!(common_version((1, 3), (2, 5)), Some(3));
    assert_eq!(common_version((1, 1), (1, 1)), Some(1));
    assert_eq!(common_version((1, 2), (3, 4)), None);
    assert_eq!(read_preface(&preface((1, 770))), Some((1, 770)));
    assert_eq!(read_preface(b"GET / HTTP/1"), None);
}

#[test]
fn proofs_hold_for_one_exchange_only() {
    let secret = Secret::of(b"0123456789abcdef");
    let said = || Said { dialler: vec![1, 2], acceptor: vec![3, 4], binding: [5; 32] };
    let proof = said().prove(&secret, Side::Dialler);
    assert!(said().is_proven(&secret, Side::Dialler, &proof));
    assert!(!said().is_proven(&secret, Side::Acceptor, &proof), "nobody can give it back");
    assert!(!said().is_proven(&Secret::of(b"0123456789abcdeg"), Side::Dialler, &proof));
    let others = [
        Said { dialler: vec![1, 3], ..said() },
        Said { acceptor: vec![3, 5], ..said() },
        Said { dialler: vec![1], acceptor: vec![2, 3, 4], ..said() },
        Said { binding: [6; 32], ..said() },
    ];
    for other in others {
        assert!(!other.is_proven(&secret, Side::Dialler, &proof), "{other:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_read_or_refused(kind in 0u8..6, body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_message(kind, &body, (1, 1));
    }

    #[test]
    fn mutations_never_panic(changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = message(&Message::Hello(Box::new(hello(Purpose::Data(1)))));
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if body_length([bytes[0], bytes[1], bytes[2]]).is_some() {
            let _ = read_message(bytes[0], &bytes[3..], (1, 1));
        }
    }
}
