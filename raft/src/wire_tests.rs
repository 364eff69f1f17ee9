//! Messages as bytes, and bytes that are none.

use openraft::CommittedLeaderId;
use openraft::EntryPayload;

use super::*;
use crate::entry::{BatchOrigin, Entry, LogId};

fn log_id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(3, 9), index)
}

fn batch(commands: &'static [u8]) -> Batch {
    let origin = BatchOrigin::Node { node: 5, incarnation: 2, number: 9 };
    Batch { at: 0, origin, count: 2, commands: Bytes::from_static(commands) }
}

fn samples() -> Vec<Message> {
    let entries = vec![
        Entry { log_id: log_id(7), payload: EntryPayload::Normal(batch(b"first")) },
        Entry { log_id: log_id(8), payload: EntryPayload::Blank },
    ];
    let rpc = AppendEntriesRequest {
        vote: Vote::new_committed(3, 9),
        prev_log_id: Some(log_id(6)),
        entries,
        leader_commit: None,
    };
    let part = SnapshotPart {
        request: 1,
        transfer: 2,
        vote: Vote::new_committed(3, 9),
        meta: SnapshotMeta::default(),
        position: 3,
        last: true,
        bytes: Bytes::from_static(b"piece"),
    };
    vec![
        Message::Append { request: 4, rpc },
        Message::Propose { hops: 1, batch: batch(b"second") },
        Message::Part(part),
        Message::Control(Control::Renew { incarnation: 1, sent: 2, complaints: vec![(4, 5)], hampered: true }),
        Message::Control(Control::TakeOver),
        Message::Control(Control::NoMember),
        Message::Control(Control::Hello { name: "n1".to_owned() }),
    ]
}

#[test]
fn messages_come_back_as_they_were() {
    for message in samples() {
        let (cluster, back) = decode(encode(77, &message)).expect("a message");
        assert_eq!(cluster, 77);
        assert_eq!(format!("{back:?}"), format!("{message:?}"));
    }
}

#[test]
fn what_ends_early_is_no_message() {
    for message in samples() {
        let whole = encode(77, &message);
        for len in 0..whole.len() {
            decode(whole.slice(..len)).expect_err("too short");
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = encode(1, &samples()[4]).to_vec();
    bytes[0] = 2;
    let fault = decode(bytes.into()).expect_err("another version");
    assert_eq!(fault.to_string(), "the message is of version 2, and this node speaks version 1");
    assert_eq!(
        decode(Bytes::from(vec![1; MESSAGE_BYTES_MAX + 1])).err(),
        Some(WireFault::TooLarge(MESSAGE_BYTES_MAX + 1))
    );
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn changed_bytes_never_panic(at in 0_usize..200, bits in 1_u8..=255, which in 0_usize..5) {
        let mut bytes = encode(77, &samples()[which]).to_vec();
        let at = at % bytes.len();
        bytes[at] ^= bits;
        let _ = decode(bytes.into());
    }
}
