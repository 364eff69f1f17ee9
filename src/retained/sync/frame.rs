//! What two nodes send each other in a sync, as bytes.
//!
//! A frame is a kind, the round, the number in it, and what the kind says; numbers are little-endian, texts have their length in front. Lists go on to the end of the
//! frame, so nothing is allocated for what is not there. Test to read first: `tests::frames_there_and_back`, in the folder above.

use std::sync::Arc;

use bytes::Bytes;

use crate::limits;
use crate::retained::{BUCKETS, Buckets, Digest, Version, is_system};
use crate::topic;

/// No frame is longer: a page, and the longest topics that may stand at its ends.
pub const FRAME_BYTES_MAX: usize = 2 * limits::SYNC_PAGE_BYTES;

const DIGEST: u8 = 1;
const DIFFERING: u8 = 2;
const LIST: u8 = 3;
const LISTED: u8 = 4;
const VALUES: u8 = 5;
const LAST_VALUES: u8 = 6;
const FINISH: u8 = 7;
const FINISHED: u8 = 8;
const BROKEN: u8 = 9;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub round: u32,
    pub number: u32,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Of the asker: a round begins.
    Digest(Box<Digest>),
    /// The buckets in which the other one has something else.
    Differing(Buckets),
    /// What the asker has, a page of it.
    List(List),
    Listed(Listed),
    /// Values, cut into pages: `more` says that the last one goes on. Either side sends them.
    Values {
        more: bool,
        bytes: Bytes,
    },
    /// Of the asker: everything was listed.
    Finish,
    Finished,
    /// Of the other one: the round has failed.
    Broken,
}

/// Everything that the asker has in these buckets, behind `after` and up to `until`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    pub buckets: Buckets,
    pub after: Option<Arc<str>>,
    pub until: Option<Arc<str>>,
    pub listings: Vec<Listing>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    pub topic: Arc<str>,
    pub version: Version,
    /// About how many bytes there are to send.
    pub size: u32,
    /// It has no message: only that it had one, or that it was deleted.
    pub gone: bool,
}

/// How far the other one got in the page (`None`: through), and what it wants to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub until: Option<Arc<str>>,
    pub wanted: Vec<Arc<str>>,
}

impl Frame {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64);
        out.push(self.body.kind());
        out.extend(self.round.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        match &self.body {
            Body::Digest(digest) => digest.0.iter().for_each(|sum| out.extend(sum.to_le_bytes())),
            Body::Differing(buckets) => put_buckets(&mut out, *buckets),
            Body::List(list) => {
                put_buckets(&mut out, list.buckets);
                put_end(&mut out, list.after.as_deref());
                put_end(&mut out, list.until.as_deref());
                for Listing { topic, version, size, gone } in &list.listings {
                    put_text(&mut out, topic);
                    put_version(&mut out, *version);
                    out.extend(size.to_le_bytes());
                    out.push(u8::from(*gone));
                }
            }
            Body::Listed(listed) => {
                put_end(&mut out, listed.until.as_deref());
                listed.wanted.iter().for_each(|topic| put_text(&mut out, topic));
            }
            Body::Values { bytes, .. } => out.extend_from_slice(bytes),
            Body::Finish | Body::Finished | Body::Broken => {}
        }
        out.into()
    }

    /// None for bytes that are no frame.
    pub fn decode(bytes: &Bytes) -> Option<Frame> {
        if bytes.len() > FRAME_BYTES_MAX {
            return None;
        }
        let mut source = Source(bytes);
        let (kind, round, number) = (source.u8()?, source.u32()?, source.u32()?);
        let body = match kind {
            DIGEST => {
                let mut digest = Box::<Digest>::default();
                for sum in &mut digest.0 {
                    *sum = source.u64()?;
                }
                Body::Digest(digest)
            }
            DIFFERING => Body::Differing(source.buckets()?),
            LIST => Body::List(source.list()?),
            LISTED => {
                let until = source.end()?;
                let mut wanted = Vec::new();
                while !source.0.is_empty() {
                    wanted.push(source.topic()?);
                }
                Body::Listed(Listed { until, wanted })
            }
            VALUES | LAST_VALUES => {
                let rest = std::mem::take(&mut source.0);
                Body::Values { more: kind == VALUES, bytes: bytes.slice_ref(rest) }
            }
            FINISH => Body::Finish,
            FINISHED => Body::Finished,
            BROKEN => Body::Broken,
            _ => return None,
        };
        source.0.is_empty().then_some(Frame { round, number, body })
    }
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::Digest(_) => DIGEST,
            Body::Differing(_) => DIFFERING,
            Body::List(_) => LIST,
            Body::Listed(_) => LISTED,
            Body::Values { more: true, .. } => VALUES,
            Body::Values { more: false, .. } => LAST_VALUES,
            Body::Finish => FINISH,
            Body::Finished => FINISHED,
            Body::Broken => BROKEN,
        }
    }
}

fn put_buckets(out: &mut Vec<u8>, buckets: Buckets) {
    buckets.0.iter().for_each(|word| out.extend(word.to_le_bytes()));
}

/// No topic is empty: that stands for none.
fn put_end(out: &mut Vec<u8>, topic: Option<&str>) {
    put_text(out, topic.unwrap_or_default());
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    debug_assert!(u16::try_from(text.len()).is_ok(), "longer than any text of MQTT");
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

pub(super) fn put_version(out: &mut Vec<u8>, version: Version) {
    out.extend(version.stamp.to_le_bytes());
    out.extend(version.node.to_le_bytes());
}

/// Reads what was put. `None` when there is not enough, or it cannot be.
pub(super) struct Source<'a>(pub &'a [u8]);

impl<'a> Source<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        let len = self.u16()?;
        std::str::from_utf8(self.take(len.into())?).ok()
    }

    pub fn version(&mut self) -> Option<Version> {
        Some(Version { stamp: self.u64()?, node: self.u64()? })
    }

    /// A topic that nodes have in common.
    pub fn topic(&mut self) -> Option<Arc<str>> {
        let name = self.text()?;
        (topic::name::validate(name).is_ok() && !is_system(name)).then(|| name.into())
    }

    fn end(&mut self) -> Option<Option<Arc<str>>> {
        if self.0.starts_with(&[0, 0]) {
            return self.u16().map(|_| None);
        }
        self.topic().map(Some)
    }

    fn buckets(&mut self) -> Option<Buckets> {
        let mut words = [0; BUCKETS / 64];
        for word in &mut words {
            *word = self.u64()?;
        }
        Some(Buckets(words))
    }

    fn list(&mut self) -> Option<List> {
        let (buckets, after, until) = (self.buckets()?, self.end()?, self.end()?);
        let mut listings = Vec::new();
        while !self.0.is_empty() {
            let (topic, version, size) = (self.topic()?, self.version()?, self.u32()?);
            let gone = match self.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            listings.push(Listing { topic, version, size, gone });
        }
        Some(List { buckets, after, until, listings })
    }
}
