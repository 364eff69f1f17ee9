//! What two nodes say to each other at the beginning of every connection, as bytes, and what they prove.
//!
//! ```text
//! dialler   preface, Hello                      who I am, for what, a number that I have never used before
//! acceptor  preface, Hello                      who I am, a number that I have never used before
//! dialler   Proof                               I know the secret, and this is what was said
//! acceptor  Welcome                             so do I
//! ```
//! Instead of its next message either side may say `Refused`, and why, and close. The preface is `holdfast` and a range of versions, and stays so in all
//! versions; a message is a byte for its kind, two for its length, and at most [`MESSAGE_BYTES_MAX`] more.
//!
//! A proof is made with the secret over both prefaces and Hellos, as they were sent, over the side that gives it, and over what is particular to the TLS session,
//! if there is one. So nothing that was said once can be said again to another node, on another connection, for another purpose, or through somebody in between.
//!
//! Tests to read first: `tests::proofs_hold_for_one_exchange_only`.

#[cfg(test)]
#[path = "hello_tests.rs"]
mod tests;

use std::sync::Arc;

use holdfast_raft::NodeId;

use super::Peer;
use super::refusal::Refusal;
use super::secret::{PROOF_BYTES, Secret};
use crate::limits::SHARDS_MAX;

/// What every connection begins with, in both directions.
const MAGIC: [u8; 8] = *b"holdfast";

/// Length of a preface: the magic and two versions.
pub(super) const PREFACE_BYTES: usize = 12;

/// Length of what is in front of a message: its kind and its length.
pub(super) const MESSAGE_HEAD_BYTES: usize = 3;

/// The longest message without its head. Nothing longer is read before the other side has proven that it knows the secret.
pub(super) const MESSAGE_BYTES_MAX: usize = 1000;

const NONCE_BYTES: usize = 32;
const NAME_BYTES_MAX: usize = 64;
const ADDRESS_BYTES_MAX: usize = 300;

/// What a TLS session adds to a proof; all zero without TLS.
pub(super) type Binding = [u8; 32];

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// To learn who is there. It ends with the Welcome.
    Meet,
    Control,
    Bulk,
    /// For the publishes of the dialler's shard of this number.
    Data(u16),
}

/// Who somebody is, and what he wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    /// Its address may be a port behind a colon only: the host is the one at which it is seen.
    pub peer: Peer,
    pub cluster: String,
    /// The cluster that it belongs to; 0 while it belongs to none.
    pub cluster_id: u128,
    pub purpose: Purpose,
    /// Grows with each connection that the dialler's process attempts.
    pub attempt: u64,
    pub nonce: [u8; NONCE_BYTES],
}

/// One message without its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    Hello(Box<Hello>),
    Proof([u8; PROOF_BYTES]),
    Welcome([u8; PROOF_BYTES]),
    Refused(Refusal),
}

const HELLO: u8 = 1;
const PROOF: u8 = 2;
const WELCOME: u8 = 3;
const REFUSED: u8 = 4;

/// The preface of a node that speaks these versions.
pub(super) fn preface((lowest, highest): (u16, u16)) -> [u8; PREFACE_BYTES] {
    let mut bytes = [0; PREFACE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&lowest.to_be_bytes());
    bytes[10..].copy_from_slice(&highest.to_be_bytes());
    bytes
}

/// The versions of a preface; `None` if it is none.
pub(super) fn read_preface(bytes: &[u8; PREFACE_BYTES]) -> Option<(u16, u16)> {
    let (magic, versions) = bytes.split_first_chunk::<8>()?;
    let number = |at: usize| u16::from_be_bytes([versions[at], versions[at + 1]]);
    (*magic == MAGIC).then(|| (number(0), number(2)))
}

/// The highest version that both speak.
pub(super) fn common_version(one: (u16, u16), other: (u16, u16)) -> Option<u16> {
    let (lowest, highest) = (one.0.max(other.0), one.1.min(other.1));
    (lowest <= highest).then_some(highest)
}

/// A message with its head.
pub(super) fn message(message: &Message) -> Vec<u8> {
    let (kind, body) = match message {
        Message::Hello(hello) => (HELLO, hello.encode()),
        Message::Proof(proof) => (PROOF, proof.to_vec()),
        Message::Welcome(proof) => (WELCOME, proof.to_vec()),
        Message::Refused(refusal) => (REFUSED, vec![*refusal as u8]),
    };
    let length = u16::try_from(body.len()).ok().filter(|length| usize::from(*length) <= MESSAGE_BYTES_MAX);
    let length = length.expect("what a message holds is bounded");
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    bytes
}

/// How many bytes of a message follow its head; `None` if there can be no such message.
pub(super) fn body_length(head: [u8; MESSAGE_HEAD_BYTES]) -> Option<usize> {
    let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
    ((HELLO..=REFUSED).contains(&head[0]) && length <= MESSAGE_BYTES_MAX).then_some(length)
}

/// Reads what follows the head of a message; `None` if it is none. The versions are those of the preface.
pub(super) fn read_message(kind: u8, body: &[u8], versions: (u16, u16)) -> Option<Message> {
    match kind {
        HELLO => Hello::decode(body, versions).map(|hello| Message::Hello(Box::new(hello))),
        PROOF => body.try_into().ok().map(Message::Proof),
        WELCOME => body.try_into().ok().map(Message::Welcome),
        REFUSED => body.first().map(|byte| Message::Refused(Refusal::from_u8(*byte))),
        _ => None,
    }
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.peer.id.0.to_be_bytes());
        out.extend_from_slice(&self.peer.run.to_be_bytes());
        out.extend_from_slice(&self.peer.shards.to_be_bytes());
        out.extend_from_slice(&self.cluster_id.to_be_bytes());
        out.extend_from_slice(&self.attempt.to_be_bytes());
        let (purpose, shard) = match self.purpose {
            Purpose::Meet => (0u8, 0),
            Purpose::Control => (1, 0),
            Purpose::Bulk => (2, 0),
            Purpose::Data(shard) => (3, shard),
        };
        out.push(purpose);
        out.extend_from_slice(&shard.to_be_bytes());
        for text in [&self.cluster, &*self.peer.name, self.peer.address.as_str()] {
            out.extend_from_slice(&(text.len() as u16).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }

    /// What a later version adds behind the last field is not looked at.
    fn decode(body: &[u8], versions: (u16, u16)) -> Option<Self> {
        let mut rest = body;
        let nonce = take(&mut rest)?;
        let id = NodeId(u128::from_be_bytes(take(&mut rest)?));
        let run = u64::from_be_bytes(take(&mut rest)?);
        let shards = u16::from_be_bytes(take(&mut rest)?);
        let cluster_id = u128::from_be_bytes(take(&mut rest)?);
        let attempt = u64::from_be_bytes(take(&mut rest)?);
        let [purpose] = take(&mut rest)?;
        let shard = u16::from_be_bytes(take(&mut rest)?);
        let purpose = match purpose {
            0 => Purpose::Meet,
            1 => Purpose::Control,
            2 => Purpose::Bulk,
            3 if shard < shards => Purpose::Data(shard),
            _ => return None,
        };
        let cluster = text(&mut rest, NAME_BYTES_MAX)?.to_owned();
        let name = Arc::from(text(&mut rest, NAME_BYTES_MAX)?);
        let address = text(&mut rest, ADDRESS_BYTES_MAX)?.to_owned();
        if !(1..=SHARDS_MAX).contains(&usize::from(shards)) {
            return None;
        }
        let peer = Peer { id, name, run, address, shards, versions };
        Some(Hello { peer, cluster, cluster_id, purpose, attempt, nonce })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

/// A text that people will read: not empty, bounded, and without control characters.
fn text<'b>(rest: &mut &'b [u8], bytes_max: usize) -> Option<&'b str> {
    let length = usize::from(u16::from_be_bytes(take(rest)?));
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    let text = std::str::from_utf8(taken).ok()?;
    ((1..=bytes_max).contains(&length) && !text.chars().any(char::is_control)).then_some(text)
}

/// What was said on a connection, as both sides prove to have heard it.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Preface and Hello of the dialler.
    pub dialler: Vec<u8>,
    /// Preface and Hello of the acceptor.
    pub acceptor: Vec<u8>,
    pub binding: Binding,
}

/// Who gives a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Dialler,
    Acceptor,
}

impl Said {
    pub(super) fn prove(&self, secret: &Secret, side: Side) -> [u8; PROOF_BYTES] {
        secret.prove(&self.parts(side))
    }

    pub(super) fn is_proven(&self, secret: &Secret, side: Side, proof: &[u8]) -> bool {
        secret.accepts(&self.parts(side), proof)
    }

    fn parts(&self, side: Side) -> [&[u8]; 4] {
        let label: &[u8] = match side {
            Side::Dialler => b"holdfast link, dialler",
            Side::Acceptor => b"holdfast link, acceptor",
        };
        [label, &self.dialler, &self.acceptor, &self.binding]
    }
}
