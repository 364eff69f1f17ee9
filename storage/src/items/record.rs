//! The records of items: what stands in the head of a journal record. The tail is the body, where there is one. \[pure\]
//!
//! | kind | then |
//! | --- | --- |
//! | 1 Put | owner, item, value to the end |
//! | 2 Put that refers to a body elsewhere | owner, item, 16 bytes of the body's id, value to the end |
//! | 3 Put with its body in the tail | the same |
//! | 4 Delete | owner, item |
//! | 5 Drop | owner |
//! | 6 Body, in the tail | 16 bytes of its id |
//!
//! Owner and item are in groups of seven bits, the lowest first, the top bit set in all but the last byte. Heads are kept in the index of a segment, so they are short.

use crate::entry::{BodyId, ItemId, OwnerId};

const PUT: u8 = 1;
const PUT_REFERRING: u8 = 2;
const PUT_CARRYING: u8 = 3;
const DELETE: u8 = 4;
const DROP: u8 = 5;
const BODY: u8 = 6;

/// A head, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head<'a> {
    Put { owner: OwnerId, item: ItemId, body: HeadBody, value: &'a [u8] },
    Delete { owner: OwnerId, item: ItemId },
    Drop { owner: OwnerId },
    Body { id: BodyId },
}

/// The body of a Put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadBody {
    None,
    /// In another record.
    Elsewhere(BodyId),
    /// In the tail of this one.
    Here(BodyId),
}

impl Head<'_> {
    /// Writes the head into `out`, which is emptied first.
    pub(super) fn encode<'o>(&self, out: &'o mut Vec<u8>) -> &'o [u8] {
        out.clear();
        match *self {
            Head::Put { owner, item, body, value } => {
                let (kind, id) = match body {
                    HeadBody::None => (PUT, None),
                    HeadBody::Elsewhere(id) => (PUT_REFERRING, Some(id)),
                    HeadBody::Here(id) => (PUT_CARRYING, Some(id)),
                };
                out.push(kind);
                put_number(out, owner.0);
                put_number(out, item);
                if let Some(id) = id {
                    out.extend_from_slice(&id.0.to_le_bytes());
                }
                out.extend_from_slice(value);
            }
            Head::Delete { owner, item } => {
                out.push(DELETE);
                put_number(out, owner.0);
                put_number(out, item);
            }
            Head::Drop { owner } => {
                out.push(DROP);
                put_number(out, owner.0);
            }
            Head::Body { id } => {
                out.push(BODY);
                out.extend_from_slice(&id.0.to_le_bytes());
            }
        }
        out
    }

    /// `None`: not a head that this version writes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Head<'_>> {
        let (&kind, mut rest) = bytes.split_first()?;
        let head = match kind {
            PUT | PUT_REFERRING | PUT_CARRYING => {
                let owner = OwnerId(take_number(&mut rest)?);
                let item = take_number(&mut rest)?;
                let body = match kind {
                    PUT => HeadBody::None,
                    PUT_REFERRING => HeadBody::Elsewhere(take_id(&mut rest)?),
                    _ => HeadBody::Here(take_id(&mut rest)?),
                };
                return Some(Head::Put { owner, item, body, value: rest });
            }
            DELETE => Head::Delete { owner: OwnerId(take_number(&mut rest)?), item: take_number(&mut rest)? },
            DROP => Head::Drop { owner: OwnerId(take_number(&mut rest)?) },
            BODY => Head::Body { id: take_id(&mut rest)? },
            _ => return None,
        };
        rest.is_empty().then_some(head)
    }
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        if (low << shift) >> shift != low {
            return None;
        }
        number |= low << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn take_id(bytes: &mut &[u8]) -> Option<BodyId> {
    let (id, rest) = bytes.split_first_chunk::<16>()?;
    *bytes = rest;
    Some(BodyId(u128::from_le_bytes(*id)))
}
