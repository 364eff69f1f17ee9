//! Two nodes bring their retained messages into agreement: on joining, and now and then.
//!
//! One of them asks, the other answers, over an order-keeping way. A *round*: the asker sends its digest and is told which buckets differ. Then it lists what it has in them, a page at
//! a time, in the order of topics; the other one answers each page with what it has newer or in addition, and with the topics that it wants, which it gets before the
//! next page. It may say that it got through a part of the page only: then the asker goes on from there. At the end each has the newer of both of everything that
//! either had when its page was made; what is published meanwhile reaches the other node by itself.
//!
//! Every frame of a round has a number. A gap breaks the round, and so does anything that cannot be; what was taken over until then is good. Whoever drives the asker
//! starts another round when one is broken or has made no progress for too long ([`Sync::start`]); the answering side needs nothing but frames.
//!
//! Owned by whoever drives it; it sends nothing itself and knows no time. Memory: a page in either direction, and one message. Test to read first:
//! `tests::two_maps_end_equal_whatever_happened`.

mod frame;
mod replica;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use bytes::Bytes;

use crate::limits;
use crate::topic;

use super::{Buckets, Digest, Version};

pub use frame::{Body, FRAME_BYTES_MAX, Frame, List, Listed, Listing};
pub use replica::Replica;
pub use values::Copy;

/// Which side of a sync it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Asks,
    Answers,
}

/// The retained messages of a node, as a sync sees them.
pub trait Store {
    fn digest(&self) -> Digest;
    /// What there is in `buckets` behind `after` and up to `until`, in the order of topics, as far as one page goes.
    fn page(&self, buckets: &Buckets, after: Option<&str>, until: Option<&str>) -> Page;
    /// Whether the node would take this over.
    fn wants(&self, listing: &Listing) -> bool;
    /// What there is of a topic, to be sent.
    fn copy(&self, topic: &str) -> Option<Copy>;
    /// Takes over what the other node has, if it is newer.
    fn put(&mut self, copy: Copy);
}

/// See [`Store::page`].
#[derive(Debug, Default)]
pub struct Page {
    pub listings: Vec<Listing>,
    /// The page holds everything up to this topic. `None`: up to where it was asked for.
    pub until: Option<Arc<str>>,
}

/// One side of a sync.
#[derive(Debug)]
pub struct Sync {
    role: Role,
    round: u32,
    /// Numbers of the next frame of this round, in either direction.
    to_send: u32,
    expected: u32,
    state: State,
    /// Values of which the end has not come yet.
    coming: Vec<u8>,
    /// Most bytes of one value that are taken.
    value_bytes_max: usize,
    /// Of the values that are coming more came than are taken: the rest is left out too.
    skipping: bool,
    skipped: u64,
}

#[derive(Debug)]
enum State {
    /// No round was started, or it was broken.
    Idle {
        broken: bool,
    },
    /// The asker has sent its digest.
    Compares,
    /// The asker has sent a page.
    Lists {
        buckets: Buckets,
        after: Option<Arc<str>>,
        until: Option<Arc<str>>,
    },
    /// The asker has said that it is through.
    Finishes,
    /// The other one answers.
    Answers,
    Done,
}

/// A frame that cannot be.
struct Wrong;

impl Sync {
    /// `value_bytes_max`: messages that are larger, with their topic, are not taken from the other node.
    pub fn new(role: Role, value_bytes_max: usize) -> Sync {
        Sync {
            role,
            round: 0,
            to_send: 0,
            expected: 0,
            state: State::Idle { broken: false },
            coming: Vec::new(),
            value_bytes_max: value_bytes_max.max(limits::SYNC_PAGE_BYTES),
            skipping: false,
            skipped: 0,
        }
    }

    /// Begins a round, and gives up one that is under way. For the side that asks.
    pub fn start(&mut self, store: &impl Store) -> Frame {
        debug_assert_eq!(self.role, Role::Asks);
        self.begin(self.round.wrapping_add(1), State::Compares);
        self.frame(Body::Digest(Box::new(store.digest())))
    }

    /// A round has come to its end.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// A round has failed: the asker has to start another one, some time.
    pub fn is_broken(&self) -> bool {
        matches!(self.state, State::Idle { broken: true })
    }

    /// Messages that were left out because they are too large.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes a frame of the other node, and returns what to send, in this order.
    pub fn handle(&mut self, frame: Frame, store: &mut impl Store) -> Vec<Frame> {
        if self.role == Role::Answers && frame.number == 0 && matches!(frame.body, Body::Digest(_)) {
            self.begin(frame.round, State::Answers);
        }
        if frame.round != self.round || matches!(self.state, State::Idle { .. }) {
            return Vec::new();
        }
        let mut out = Vec::new();
        let is_next = frame.number == self.expected;
        self.expected = self.expected.wrapping_add(1);
        if !is_next || self.take(frame.body, store, &mut out).is_err() {
            self.coming = Vec::new();
            self.state = State::Idle { broken: true };
            return if self.role == Role::Answers { vec![self.frame(Body::Broken)] } else { Vec::new() };
        }
        out
    }

    fn begin(&mut self, round: u32, state: State) {
        self.round = round;
        self.state = state;
        (self.to_send, self.expected) = (0, 0);
        self.coming.clear();
        self.skipping = false;
    }

    fn frame(&mut self, body: Body) -> Frame {
        let number = self.to_send;
        self.to_send = number.wrapping_add(1);
        Frame { round: self.round, number, body }
    }

    fn take(&mut self, body: Body, store: &mut impl Store, out: &mut Vec<Frame>) -> Result<(), Wrong> {
        match (body, std::mem::replace(&mut self.state, State::Idle { broken: true })) {
            (Body::Values { more, bytes }, state) => {
                self.state = state;
                return self.take_values(more, &bytes, store);
            }
            _ if !self.coming.is_empty() || self.skipping => return Err(Wrong),
            (Body::Digest(theirs), State::Answers) => {
                out.push(self.frame(Body::Differing(store.digest().differing(&theirs))));
                self.state = State::Answers;
            }
            (Body::List(list), State::Answers) => {
                self.answer(&list, store, out)?;
                self.state = State::Answers;
            }
            (Body::Finish, State::Answers) => {
                out.push(self.frame(Body::Finished));
                self.state = State::Done;
            }
            (Body::Differing(buckets), State::Compares) => self.list(buckets, None, store, out),
            (Body::Listed(listed), State::Lists { buckets, after, until }) => {
                let reached = reached(&listed, after.as_deref(), until)?;
                self.send(&listed.wanted, store, out);
                match reached {
                    Some(after) => self.list(buckets, Some(after), store, out),
                    None => self.finish(out),
                }
            }
            (Body::Finished, State::Finishes) => self.state = State::Done,
            _ => return Err(Wrong),
        }
        Ok(())
    }

    /// The next page behind `after`.
    fn list(&mut self, buckets: Buckets, after: Option<Arc<str>>, store: &impl Store, out: &mut Vec<Frame>) {
        if buckets.is_empty() {
            return self.finish(out);
        }
        let Page { listings, until } = store.page(&buckets, after.as_deref(), None);
        self.state = State::Lists { buckets, after: after.clone(), until: until.clone() };
        out.push(self.frame(Body::List(List { buckets, after, until, listings })));
    }

    fn finish(&mut self, out: &mut Vec<Frame>) {
        out.push(self.frame(Body::Finish));
        self.state = State::Finishes;
    }

    /// Answers a page of the asker: with what is newer here, and with what is wanted.
    fn answer(&mut self, list: &List, store: &impl Store, out: &mut Vec<Frame>) -> Result<(), Wrong> {
        if !is_in_order(list) {
            return Err(Wrong);
        }
        let own = store.page(&list.buckets, list.after.as_deref(), list.until.as_deref());
        let compared = compare(&list.listings, own, &mut |listing| store.wants(listing));
        self.send(&compared.newer, store, out);
        out.push(self.frame(Body::Listed(Listed { until: compared.until, wanted: compared.wanted })));
        Ok(())
    }

    /// Sends what there is of these topics.
    fn send(&mut self, topics: &[Arc<str>], store: &impl Store, out: &mut Vec<Frame>) {
        let (mut batch, mut one) = (Vec::new(), Vec::new());
        for topic in topics {
            let Some(copy) = store.copy(topic) else { continue };
            one.clear();
            copy.encode(&mut one);
            // A large one goes alone, so that one which is not taken leaves out nothing else.
            if batch.len() + one.len() > limits::SYNC_PAGE_BYTES {
                self.send_batch(&mut batch, out);
            }
            batch.append(&mut one);
        }
        self.send_batch(&mut batch, out);
    }

    fn send_batch(&mut self, batch: &mut Vec<u8>, out: &mut Vec<Frame>) {
        let mut bytes = Bytes::from(std::mem::take(batch));
        while !bytes.is_empty() {
            let page = bytes.split_to(bytes.len().min(limits::SYNC_PAGE_BYTES));
            out.push(self.frame(Body::Values { more: !bytes.is_empty(), bytes: page }));
        }
    }

    fn take_values(&mut self, more: bool, bytes: &[u8], store: &mut impl Store) -> Result<(), Wrong> {
        if self.skipping || self.coming.len() + bytes.len() > self.value_bytes_max {
            self.coming = Vec::new();
            self.skipped += u64::from(!more);
            self.skipping = more;
            return Ok(());
        }
        if more {
            self.coming.extend_from_slice(bytes);
            return Ok(());
        }
        let coming = std::mem::take(&mut self.coming);
        let mut rest = if coming.is_empty() { bytes } else { &[coming.as_slice(), bytes].concat() };
        while !rest.is_empty() {
            store.put(Copy::decode(&mut rest).ok_or(Wrong)?);
        }
        Ok(())
    }
}

/// How far the asker is after this answer to its page behind `after`. `None`: through.
fn reached(listed: &Listed, after: Option<&str>, until: Option<Arc<str>>) -> Result<Option<Arc<str>>, Wrong> {
    let Some(reached) = &listed.until else {
        return Ok(until);
    };
    let moves = after.is_none_or(|after| topic::compare(after, reached).is_lt());
    let within = until.is_none_or(|until| topic::compare(reached, &until).is_le());
    if moves && within { Ok(Some(reached.clone())) } else { Err(Wrong) }
}

/// Whether the listings rise, between the ends of the page.
fn is_in_order(list: &List) -> bool {
    let topics = list.listings.iter().map(|listing| &listing.topic);
    let mut all = list.after.iter().chain(topics).peekable();
    while let Some(topic) = all.next() {
        if all.peek().is_some_and(|next| topic::compare(topic, next).is_ge()) {
            return false;
        }
    }
    let last = list.listings.last().map(|listing| &listing.topic).or(list.after.as_ref());
    match (last, &list.until) {
        (Some(last), Some(until)) => topic::compare(last, until).is_le(),
        _ => true,
    }
}

#[derive(Default)]
struct Compared {
    newer: Vec<Arc<str>>,
    wanted: Vec<Arc<str>>,
    until: Option<Arc<str>>,
}

/// Holds the page of the other node against what there is here, until a page is full in either direction.
fn compare(theirs: &[Listing], own: Page, wants: &mut dyn FnMut(&Listing) -> bool) -> Compared {
    let mut compared = Compared::default();
    let (mut newer_bytes, mut wanted_bytes) = (0, 0);
    let mut last = None;
    let mut theirs = theirs.iter().peekable();
    let mut ours = own.listings.iter().peekable();
    loop {
        let order = match (theirs.peek(), ours.peek()) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(their), Some(our)) => topic::compare(&their.topic, &our.topic),
        };
        let their = theirs.next_if(|_| order.is_le());
        let our = ours.next_if(|_| order.is_ge());
        let Some(topic) = our.or(their).map(|listing| &listing.topic) else { break };
        if own.until.as_ref().is_some_and(|until| topic::compare(topic, until).is_gt()) {
            break;
        }
        if newer_bytes >= limits::SYNC_PAGE_BYTES || wanted_bytes >= limits::SYNC_PAGE_BYTES {
            return Compared { until: last, ..compared };
        }
        last = Some(topic.clone());
        let version = |listing: Option<&Listing>| listing.map(|listing| listing.version);
        match version(their).cmp(&version(our)) {
            std::cmp::Ordering::Less => {
                newer_bytes += our.map_or(0, Listing::bytes);
                compared.newer.push(topic.clone());
            }
            std::cmp::Ordering::Greater => {
                if let Some(their) = their.filter(|their| wants(their)) {
                    wanted_bytes += their.bytes();
                    compared.wanted.push(topic.clone());
                }
            }
            std::cmp::Ordering::Equal => {}
        }
    }
    Compared { until: own.until, ..compared }
}

impl Listing {
    /// About what it takes to send it.
    fn bytes(&self) -> usize {
        self.topic.len() + self.size as usize + std::mem::size_of::<Version>()
    }
}
