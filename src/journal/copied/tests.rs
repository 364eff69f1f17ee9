//! What an heir has written is read at its next start, and nothing else is taken for it.

use proptest::prelude::*;

use crate::journal::{Header, encode_header};

use super::*;

const HOME: Home = Home { node: NodeId(0x0102 << 112 | 5), shard: 3 };

fn value_of(write: Write) -> (u64, ItemValue) {
    let Entry::Put { owner, item, value, body: None } = copied_entry(write) else { panic!("it is put") };
    (owner.0, (item, value.to_vec()))
}

type ItemValue = (u64, Vec<u8>);

#[test]
fn headers_and_streams_as_bytes() {
    let session =
        CopyHeader::Session { home: HOME, owner: OwnerId(20), client_id: "c".into(), began: 7, complete: true };
    #[rustfmt::skip]
    let bytes = vec![
        65, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 3, 0,
        20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, b'c',
    ];
    assert_eq!(decode_copied_header(&bytes), Some(session.clone()));
    assert_eq!(value_of(Write::Header { owner: OwnerId(30), header: session }), (30, (HEADER, bytes)));

    let streams = CopyHeader::Streams { home: HOME, up_to: 258 };
    let bytes = vec![66, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 3, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode_copied_header(&bytes), Some(streams.clone()));
    assert_eq!(value_of(Write::Header { owner: OwnerId(31), header: streams }), (31, (HEADER, bytes)));

    let id = MessageId { node: 9, shard: 2, sequence: 258 };
    let bytes = vec![1, 9, 0, 0, 0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0, 0, 0, 0];
    assert_eq!(decode_stream(&bytes), Some(id));
    assert_eq!(value_of(Write::Stream { owner: OwnerId(31), item: 4, id }), (31, (4, bytes)));
}

proptest! {
    #[test]
    fn the_header_of_a_session_is_none_of_a_copy(
        client in ".{0,9}", began: u64, node: u128, shard: u16, owner: u64, complete: bool, up_to: u64,
    ) {
        prop_assert_eq!(decode_copied_header(&encode_header(&client, began)), None);
        let home = Home { node: NodeId(node), shard };
        let session = CopyHeader::Session { home, owner: OwnerId(owner), client_id: client.into(), began, complete };
        for header in [session, CopyHeader::Streams { home, up_to }] {
            let value = super::encode_header(&header);
            prop_assert_eq!(Header::decode(&value), None);
            prop_assert_eq!(decode_copied_header(&value[..value.len() - 1]), None);
            prop_assert_eq!(decode_copied_header(&value), Some(header));
        }
    }

    #[test]
    fn bytes_that_are_nothing_are_none(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = (decode_copied_header(&bytes), decode_stream(&bytes));
    }
}
