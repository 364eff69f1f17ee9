//! A session on its way to another node: two streams of bytes, each cut into parts of at most [`PART_BYTES_MAX`] without regard to what is in them.
//!
//! The first has the clock of the holder, the subscriptions and what of their replays is not done ([`yield_parts`], [`YieldReader`]), the second everything else ([`StateWriter`], [`StateReader`]): items as
//! they are on disk, messages as bodies, but with the milliseconds that are left in the place of times, as clocks differ.
//!
//! What is read came from a network: all of it is checked, nothing is allocated for a length before its bytes are there, and both streams are bounded.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashSet;
use holdfast_storage::Body as _;
use thiserror::Error;

use crate::cluster::session_move::PART_BYTES_MAX;
use crate::cluster::share_groups::SharedMessage;
use crate::limits;
use crate::mqtt::{Message, MessageId, PacketId, QoS, REMAINING_LENGTH_MAX, WillName};
use crate::session::{
    Bounds, Exporter, Item, Position, Queued, QueuedBody, Restored, Seen, Session, Step, Subscription,
};
use crate::topic::{self, TopicFilter};

use super::bytes::{Sink as _, Source};
use super::items::{decode_any_item, encode_item, shared_once};
use super::message::decode_message;

const VERSION: u8 = 1;

const ITEM: u8 = 1;
const SEEN: u8 = 2;
const END: u8 = 3;

/// Bytes of an item at the most: two texts, and 65,000 subscription identifiers.
pub(super) const ITEM_BYTES_MAX: usize = 400 * 1024;
/// Bytes of a body at the most: a packet, and two texts that are not part of it.
const BODY_BYTES_MAX: usize = REMAINING_LENGTH_MAX + 256 * 1024;
/// Bytes of all subscriptions: the filters, and what goes with each.
const YIELD_BYTES_MAX: usize = 16 * limits::SUBSCRIPTION_BYTES_MAX;

/// A session that gives a million positions a second reaches it in a hundred thousand years.
pub(super) const POSITION_MAX: Position = 1 << 62;

/// Why bytes are not a session, or not one that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    #[error("the bytes of a moving session are malformed: {0}")]
    Malformed(&'static str),
    #[error("the moving session is larger than this node takes")]
    TooLarge,
    #[error("the moving session ends in the middle")]
    Unfinished,
}

/// A replay of retained messages that the end of the connection cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutReplay {
    /// Of its subscription, without share prefix.
    pub filter: Arc<str>,
    /// The topic of the last one that was sent.
    pub after: Option<Arc<str>>,
}

/// The first stream, in parts. There is at least one.
pub fn yield_parts(session: &Session, clock: u64, replays: &[CutReplay]) -> impl Iterator<Item = Bytes> + use<> {
    let mut out = Vec::new();
    out.u8(VERSION);
    out.u64(clock);
    out.u32(replays.len() as u32);
    for CutReplay { filter, after } in replays {
        out.text(filter);
        // No topic is empty.
        out.text(after.as_deref().unwrap_or(""));
    }
    for (position, filter, subscription) in session.export_subscriptions() {
        out.u64(position);
        out.blob(&encode_item(Item::Subscription { filter: &filter, subscription }));
    }
    let mut out = Bytes::from(out);
    std::iter::from_fn(move || (!out.is_empty()).then(|| out.split_to(PART_BYTES_MAX.min(out.len()))))
}

/// What the first stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Yielded {
    /// The hybrid clock of the holder.
    pub clock: u64,
    /// In their order. One whose subscription is not among `subscriptions` is of no use.
    pub replays: Vec<CutReplay>,
    /// In the order of their positions.
    pub subscriptions: Vec<(Position, Arc<str>, Subscription)>,
}

/// Puts the first stream together.
#[derive(Debug, Default)]
pub struct YieldReader(Vec<u8>);

impl YieldReader {
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        if self.0.len() + bytes.len() > YIELD_BYTES_MAX {
            return Err(WireError::TooLarge);
        }
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    /// All parts are here.
    pub fn finish(self) -> Result<Yielded, WireError> {
        let mut source = Source(&self.0);
        if source.u8().ok_or(WireError::Unfinished)? != VERSION {
            return Err(WireError::Malformed("a version that this node does not know"));
        }
        let clock = source.u64().ok_or(WireError::Unfinished)?;
        let replays = read_replays(&mut source)?;
        let mut subscriptions: Vec<(Position, Arc<str>, Subscription)> = Vec::new();
        let mut filters = HashSet::new();
        while !source.0.is_empty() {
            let position = source.u64().ok_or(WireError::Unfinished)?;
            let item = source.blob().ok_or(WireError::Unfinished)?;
            let restored = decode_any_item(position, item).filter(can_be);
            let Some(Restored::Subscription { filter, subscription }) = restored else {
                return Err(WireError::Malformed("not a subscription"));
            };
            let in_order = subscriptions.last().map_or(0, |(last, ..)| *last) < position && position < POSITION_MAX;
            if !in_order || !filters.insert(filter.clone()) {
                return Err(WireError::Malformed("a subscription that cannot be"));
            }
            subscriptions.push((position, filter, subscription));
        }
        Ok(Yielded { clock, replays, subscriptions })
    }
}

fn read_replays(source: &mut Source<'_>) -> Result<Vec<CutReplay>, WireError> {
    let mut replays = Vec::new();
    for _ in 0..source.u32().ok_or(WireError::Unfinished)? {
        let filter = source.text().ok_or(WireError::Unfinished)?;
        let after = Some(source.text().ok_or(WireError::Unfinished)?).filter(|after| !after.is_empty());
        if TopicFilter::parse(filter).is_err() || after.is_some_and(|after| topic::name::validate(after).is_err()) {
            return Err(WireError::Malformed("a replay that cannot be"));
        }
        replays.push(CutReplay { filter: filter.into(), after: after.map(Arc::from) });
    }
    Ok(replays)
}

/// The next part of a session that is on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatePart {
    Made {
        last: bool,
        bytes: Bytes,
    },
    /// As [`Step::Wanted`].
    Wanted(Vec<Position>),
    /// As [`Step::Unkept`].
    Unkept,
}

/// Makes the second stream.
#[derive(Debug)]
pub struct StateWriter {
    exporter: Exporter,
    pending: Vec<u8>,
    /// Bytes of `pending` that have gone.
    at: usize,
    ended: bool,
    /// What has gone of share groups, and no other member may get.
    shares: Vec<SharedMessage>,
}

impl StateWriter {
    /// `here`: what the shard of the session has seen until now.
    pub fn new(session: &Session, here: &Seen) -> StateWriter {
        let mut pending = Vec::new();
        pending.u8(VERSION);
        for MessageId { node, shard, sequence } in session.seen(here).iter() {
            pending.u8(SEEN);
            pending.u64(node);
            pending.u16(shard);
            pending.u64(sequence);
        }
        StateWriter { exporter: Exporter::new(session), pending, at: 0, ended: false, shares: Vec::new() }
    }

    /// Where the session stood when the writing began.
    pub fn bounds(&self) -> Bounds {
        self.exporter.bounds()
    }

    pub fn shares(&self) -> &[SharedMessage] {
        &self.shares
    }

    /// `now`: of the clock by which messages expire.
    pub fn next(&mut self, session: &mut Session, now: u64) -> StatePart {
        while !self.ended && self.pending.len() - self.at < PART_BYTES_MAX {
            match self.exporter.step(session) {
                Step::Item(position, item) => {
                    if let Item::Message { queued, .. } = &item {
                        let left = limits::SHARES_MOVED_MAX.saturating_sub(self.shares.len());
                        self.shares.extend(shared_once(queued).take(left));
                    }
                    write_item(&mut self.pending, position, item, now);
                }
                Step::Wanted(positions) => return StatePart::Wanted(positions),
                Step::Unkept => return StatePart::Unkept,
                Step::End(Bounds { next_position, last_packet_id }) => {
                    self.pending.u8(END);
                    self.pending.u64(next_position);
                    self.pending.u16(last_packet_id);
                    self.ended = true;
                }
            }
        }
        let end = self.pending.len().min(self.at + PART_BYTES_MAX);
        let bytes = Bytes::copy_from_slice(&self.pending[self.at..end]);
        self.at = end;
        let all = self.at == self.pending.len();
        if all {
            // A large message does not leave its room behind.
            self.pending = Vec::new();
            self.at = 0;
        }
        StatePart::Made { last: all && self.ended, bytes }
    }
}

fn write_item(out: &mut Vec<u8>, position: Position, item: Item<'_>, now: u64) {
    out.u8(ITEM);
    out.u64(position);
    let Item::Message { queued, packet_id } = item else {
        out.blob(&encode_item(item));
        out.u32(0);
        return;
    };
    let Some(message) = queued.message() else {
        debug_assert!(false, "what is exported is in memory");
        return;
    };
    let left = message.expires_at.map(|at| at.saturating_sub(now));
    let message = Arc::new(Message { expires_at: left, ..(**message).clone() });
    let queued = Queued { body: QueuedBody::Here(message.clone()), ..queued.clone() };
    out.blob(&encode_item(Item::Message { queued: &queued, packet_id }));
    let length_at = out.len();
    out.u32(0);
    message.encode(out);
    // No packet is larger than 256 MiB.
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
}

/// What is known at the end of the second stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub bounds: Bounds,
    /// What the session has seen where it was.
    pub seen: Seen,
}

/// Takes the second stream apart, in the order in which it was made.
#[derive(Debug)]
pub struct StateReader {
    partial: Vec<u8>,
    bytes_left: u64,
    begun: bool,
    bounds: Option<Bounds>,
    seen: Seen,
    missed: bool,
    wills: HashSet<WillName>,
    positions: HashSet<Position>,
    accepted: HashSet<PacketId>,
    inflight: HashSet<PacketId>,
    /// The last position of the queue.
    queued: Position,
}

impl StateReader {
    /// `subscriptions`: those of the first stream. `bytes_max`: of the whole stream.
    pub fn new(subscriptions: &[(Position, Arc<str>, Subscription)], bytes_max: u64) -> StateReader {
        StateReader {
            partial: Vec::new(),
            bytes_left: bytes_max,
            begun: false,
            bounds: None,
            seen: Seen::default(),
            missed: false,
            wills: HashSet::new(),
            positions: subscriptions.iter().map(|(position, ..)| *position).collect(),
            accepted: HashSet::new(),
            inflight: HashSet::new(),
            queued: 0,
        }
    }

    /// The items that a part completes, in the order in which they are to be imported. `now`: of the clock by which messages are to expire.
    pub fn take(&mut self, bytes: &[u8], now: u64) -> Result<Vec<(Position, Restored)>, WireError> {
        self.bytes_left = self.bytes_left.checked_sub(bytes.len() as u64).ok_or(WireError::TooLarge)?;
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut items = Vec::new();
        let mut source = Source(&partial);
        while !source.0.is_empty() {
            let mut ahead = Source(source.0);
            match self.record(&mut ahead, now)? {
                Some(Record::Item(position, restored)) => items.push((position, restored)),
                Some(Record::Other) => {}
                None => break,
            }
            source = ahead;
        }
        let done = partial.len() - source.0.len();
        partial.drain(..done);
        self.partial = partial;
        Ok(items)
    }

    /// All parts are here.
    pub fn finish(self) -> Result<Imported, WireError> {
        let bounds = self.bounds.filter(|_| self.partial.is_empty()).ok_or(WireError::Unfinished)?;
        Ok(Imported { bounds, seen: self.seen })
    }

    /// The next record; none if it is not all there yet.
    fn record(&mut self, source: &mut Source<'_>, now: u64) -> Result<Option<Record>, WireError> {
        if self.bounds.is_some() {
            return Err(WireError::Malformed("something follows the end"));
        }
        let Some(kind) = source.u8() else { return Ok(None) };
        if !std::mem::replace(&mut self.begun, true) {
            return if kind == VERSION {
                Ok(Some(Record::Other))
            } else {
                Err(WireError::Malformed("a version that this node does not know"))
            };
        }
        match kind {
            ITEM => self.item(source, now),
            SEEN => self.seen(source),
            END => self.end(source),
            _ => Err(WireError::Malformed("a record of a kind that this node does not know")),
        }
    }

    fn seen(&mut self, source: &mut Source<'_>) -> Result<Option<Record>, WireError> {
        let (Some(node), Some(shard), Some(sequence)) = (source.u64(), source.u16(), source.u64()) else {
            return Ok(None);
        };
        if self.seen.len() >= limits::STREAMS_MAX {
            return Err(WireError::Malformed("more streams than there can be"));
        }
        self.seen.note(MessageId { node, shard, sequence });
        Ok(Some(Record::Other))
    }

    fn end(&mut self, source: &mut Source<'_>) -> Result<Option<Record>, WireError> {
        let (Some(next_position), Some(last_packet_id)) = (source.u64(), source.u16()) else {
            return Ok(None);
        };
        let behind = self.positions.iter().any(|position| *position >= next_position);
        if behind || next_position == 0 || next_position > POSITION_MAX {
            return Err(WireError::Malformed("an item behind the end"));
        }
        self.bounds = Some(Bounds { next_position, last_packet_id });
        Ok(Some(Record::Other))
    }

    fn item(&mut self, source: &mut Source<'_>, now: u64) -> Result<Option<Record>, WireError> {
        let Some(position) = source.u64() else { return Ok(None) };
        let Some(item) = bounded_blob(source, ITEM_BYTES_MAX)? else { return Ok(None) };
        let Some(body) = bounded_blob(source, BODY_BYTES_MAX)? else { return Ok(None) };
        let restored = decode_any_item(position, item).ok_or(WireError::Malformed("not an item"))?;
        let restored = match restored {
            Restored::Message { queued, packet_id } => {
                let message = decode_body(body, now).ok_or(WireError::Malformed("not a message"))?;
                let queued = Queued { body: QueuedBody::Here(Arc::new(message)), ..queued };
                Restored::Message { queued, packet_id }
            }
            other if body.is_empty() => other,
            _ => return Err(WireError::Malformed("a body that belongs to nothing")),
        };
        let is_position = position > 0 && position < POSITION_MAX;
        if !is_position || !can_be(&restored) || !self.positions.insert(position) || !self.fits(&restored) {
            return Err(WireError::Malformed("an item that cannot be there"));
        }
        Ok(Some(Record::Item(position, restored)))
    }

    /// Whether the item can stand behind those before it.
    fn fits(&mut self, restored: &Restored) -> bool {
        match restored {
            // What it has seen goes behind all.
            Restored::Subscription { .. } | Restored::Seen { .. } => false,
            Restored::Accepted { packet_id, .. } => self.accepted.insert(*packet_id),
            Restored::Missed { .. } => !std::mem::replace(&mut self.missed, true),
            Restored::HadWill { will } => self.wills.insert(will.clone()),
            Restored::Received { packet_id } => self.inflight.insert(*packet_id),
            Restored::Message { packet_id: Some(packet_id), .. } => self.inflight.insert(*packet_id),
            Restored::Message { queued, packet_id: None } => {
                std::mem::replace(&mut self.queued, queued.position) < queued.position
            }
        }
    }
}

/// Whether an item is one that a session can have, whatever else it has.
pub(super) fn can_be(restored: &Restored) -> bool {
    match restored {
        Restored::Subscription { filter, subscription } => {
            let no_local = subscription.options.no_local;
            TopicFilter::parse(filter).is_ok_and(|filter| filter.share.is_none() || !no_local)
                && are_ids(subscription.subscription_id)
        }
        Restored::Message { queued, packet_id } => {
            let share = queued.share.as_deref().map(TopicFilter::parse);
            share.is_none_or(|share| share.is_ok_and(|filter| filter.share.is_some()))
                && (packet_id.is_none() || queued.qos != QoS::AtMostOnce)
                && are_ids(queued.subscription_ids.as_slice().iter().copied())
        }
        Restored::Accepted { .. } | Restored::Received { .. } => true,
        Restored::Missed { .. } | Restored::Seen { .. } | Restored::HadWill { .. } => true,
    }
}

/// Whether all are Subscription Identifiers (3.8.2.1.2).
fn are_ids(ids: impl IntoIterator<Item = u32>) -> bool {
    ids.into_iter().all(|id| id > 0 && id as usize <= REMAINING_LENGTH_MAX)
}

enum Record {
    Item(Position, Restored),
    Other,
}

/// A blob of at most `max` bytes; none if it is not all there yet.
fn bounded_blob<'a>(source: &mut Source<'a>, max: usize) -> Result<Option<&'a [u8]>, WireError> {
    let Some(length) = source.u32() else { return Ok(None) };
    if length as usize > max {
        return Err(WireError::Malformed("a length that nothing has"));
    }
    Ok(source.take(length as usize))
}

/// The message of a body in which the place of its time is taken by what is left of it.
pub(super) fn decode_body(body: &[u8], now: u64) -> Option<Message> {
    let message = decode_message(body)?;
    topic::name::validate(&message.topic).ok()?;
    let expires_at = message.expires_at.map(|left| now.saturating_add(left));
    Some(Message { expires_at, ..message })
}

const _: () = assert!(BODY_BYTES_MAX < u32::MAX as usize);

#[cfg(test)]
mod tests;
