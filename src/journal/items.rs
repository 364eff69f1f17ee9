//! The items of a session.

use std::sync::Arc;

use holdfast_storage::Value;

use crate::cluster::share_groups::SharedMessage;
use crate::mqtt::{MessageId, Names, PacketId, QoS, SubscriptionOptions, WillName};
use crate::session::{
    Item, Missed, Position, Queued, QueuedBody, Restored, Seen, StoredBody, Subscription, SubscriptionIds,
};

use super::bytes::{Sink as _, Source};

const VERSION: u8 = 1;

const SUBSCRIPTION: u8 = 1;
const MESSAGE: u8 = 2;
const RECEIVED: u8 = 3;
const ACCEPTED: u8 = 4;
const MISSED: u8 = 5;
const HAD_WILL: u8 = 6;
const SEEN: u8 = 7;

const QOS_BITS: u8 = 0x03;
const RETAIN: u8 = 0x04;
const EXPIRES: u8 = 0x08;
const SHARED: u8 = 0x10;
const IDENTIFIED: u8 = 0x20;
const NAMED: u8 = 0x40;

/// Where the value of a message says when it expires: behind version, kind, flags, packet identifier and size.
const EXPIRES_AT: usize = 1 + 1 + 1 + 2 + 4;

/// Whose session it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub client_id: Arc<str>,
    /// The epoch of its first connection, by which the lease knows it.
    pub began: u64,
}

/// `began`: see [`Header`].
pub fn encode_header(client_id: &str, began: u64) -> Value {
    let mut out = Value::new();
    out.u8(VERSION);
    out.u64(began);
    out.text(client_id);
    out
}

impl Header {
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut source = Source(bytes);
        if source.u8()? != VERSION {
            return None;
        }
        let began = source.u64()?;
        let client_id = source.text()?.into();
        source.end(Header { client_id, began })
    }
}

/// The value of an item. Of a message, what has to be known before its body is read.
pub fn encode_item(item: Item<'_>) -> Value {
    let mut out = Value::new();
    out.u8(VERSION);
    match item {
        Item::Subscription { filter, subscription } => {
            out.u8(SUBSCRIPTION);
            encode_subscription(&mut out, filter, subscription);
        }
        Item::Message { queued, packet_id } => {
            out.u8(MESSAGE);
            encode_queued(&mut out, queued, packet_id);
        }
        Item::Received { packet_id } => {
            out.u8(RECEIVED);
            out.u16(packet_id.get());
        }
        Item::Accepted { packet_id, names } => {
            out.u8(ACCEPTED);
            out.u16(packet_id.get());
            names.into_iter().flat_map(Names::all).for_each(|id| encode_id(&mut out, *id));
        }
        Item::Missed { missed } => {
            out.u8(MISSED);
            for Missed { after, up_to } in missed {
                out.u64(*after);
                encode_id(&mut out, *up_to);
            }
        }
        Item::Seen { seen } => {
            out.u8(SEEN);
            seen.iter().for_each(|id| encode_id(&mut out, id));
        }
        Item::HadWill { will: WillName { client, epoch } } => {
            out.u8(HAD_WILL);
            out.u64(*epoch);
            out.text(client);
        }
    }
    out
}

fn encode_id(out: &mut Value, id: MessageId) {
    out.u64(id.node);
    out.u16(id.shard);
    out.u64(id.sequence);
}

pub(super) fn decode_id(source: &mut Source<'_>) -> Option<MessageId> {
    Some(MessageId { node: source.u64()?, shard: source.u16()?, sequence: source.u64()? })
}

/// The item that was put at `position`. None for bytes that are none.
pub fn decode_item(position: Position, bytes: &[u8]) -> Option<Restored> {
    // Messages of QoS 0 are never written down.
    decode_any_item(position, bytes)
        .filter(|item| !matches!(item, Restored::Message { queued, .. } if queued.qos == QoS::AtMostOnce))
}

/// The same, messages of QoS 0 too.
pub(super) fn decode_any_item(position: Position, bytes: &[u8]) -> Option<Restored> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let restored = match source.u8()? {
        SUBSCRIPTION => decode_subscription(&mut source)?,
        MESSAGE => decode_queued(&mut source, position)?,
        RECEIVED => Restored::Received { packet_id: PacketId::new(source.u16()?)? },
        ACCEPTED => decode_accepted(&mut source)?,
        MISSED => decode_missed(&mut source)?,
        SEEN => decode_seen(&mut source)?,
        HAD_WILL => {
            let epoch = source.u64()?;
            Restored::HadWill { will: WillName { epoch, client: source.text()?.into() } }
        }
        _ => return None,
    };
    source.end(restored)
}

fn decode_accepted(source: &mut Source<'_>) -> Option<Restored> {
    let packet_id = PacketId::new(source.u16()?)?;
    let mut ids = Vec::new();
    while !source.0.is_empty() {
        ids.push(decode_id(source).filter(|_| ids.len() < Names::MAX)?);
    }
    Some(Restored::Accepted { packet_id, names: Names::from_ids(ids).map(Box::new) })
}

fn decode_missed(source: &mut Source<'_>) -> Option<Restored> {
    let mut missed = Vec::new();
    while !source.0.is_empty() {
        missed.push(Missed { after: source.u64()?, up_to: decode_id(source)? });
    }
    Some(Restored::Missed { missed })
}

fn decode_seen(source: &mut Source<'_>) -> Option<Restored> {
    let mut seen = Seen::default();
    while !source.0.is_empty() {
        seen.note(decode_id(source)?);
    }
    Some(Restored::Seen { seen })
}

/// Changes when the message of an item expires, if it does.
pub(super) fn change_expiry(value: &mut [u8], change: impl FnOnce(u64) -> u64) {
    if let [VERSION, MESSAGE, flags, ..] = *value
        && flags & EXPIRES != 0
        && let Some(at) = value.get_mut(EXPIRES_AT..).and_then(<[u8]>::first_chunk_mut)
    {
        *at = change(u64::from_le_bytes(*at)).to_le_bytes();
    }
}

fn encode_subscription(out: &mut Value, filter: &str, subscription: Subscription) {
    out.u8(subscription.options.to_bits());
    out.u32(subscription.subscription_id.unwrap_or(0));
    out.text(filter);
}

fn decode_subscription(source: &mut Source<'_>) -> Option<Restored> {
    let options = SubscriptionOptions::from_bits(source.u8()?)?;
    let subscription_id = Some(source.u32()?).filter(|id| *id > 0);
    let filter = source.text()?.into();
    Some(Restored::Subscription { filter, subscription: Subscription { options, subscription_id } })
}

fn encode_queued(out: &mut Value, queued: &Queued, packet_id: Option<PacketId>) {
    let StoredBody { size, expires_at } = queued.stored_body();
    let retain = if queued.retain { RETAIN } else { 0 };
    let expires = if expires_at.is_some() { EXPIRES } else { 0 };
    let shared = if queued.share.is_some() { SHARED } else { 0 };
    // Of a message that is on disk alone the item is never written again.
    let message = queued.share.as_ref().and(queued.message());
    let (id, name) = (message.map(|message| message.id), message.and_then(|message| message.name));
    let identified = if id.is_some() { IDENTIFIED } else { 0 };
    let named = if name.is_some() { NAMED } else { 0 };
    out.u8(queued.qos as u8 | retain | expires | shared | identified | named);
    out.u16(packet_id.map_or(0, PacketId::get));
    out.u32(size);
    if let Some(at) = expires_at {
        out.u64(at);
    }
    if let Some(share) = &queued.share {
        out.text(share);
    }
    id.into_iter().chain(name).for_each(|id| encode_id(out, id));
    for id in queued.subscription_ids.as_slice() {
        out.u32(*id);
    }
}

/// Whether an item is a QoS 1 message that the client has been sent: it is gone as soon as that acknowledges.
pub fn is_passing(value: &[u8]) -> bool {
    let [VERSION, MESSAGE, flags, low, high, ..] = *value else {
        return false;
    };
    flags & QOS_BITS == QoS::AtLeastOnce as u8 && [low, high] != [0, 0]
}

/// Whether an item says that its session has had a Will, which comes behind the message.
pub fn is_had_will(value: &[u8]) -> bool {
    matches!(*value, [VERSION, HAD_WILL, ..])
}

/// What the message of an item is known by, if that says so: it does for messages of share groups, which no other session of the group may get. First its place in a
/// stream, then the name of its packet, if it has one.
pub fn shared_message(bytes: &[u8]) -> impl Iterator<Item = SharedMessage> + use<> {
    let mut source = Source(bytes);
    let is_message = source.u8() == Some(VERSION) && source.u8() == Some(MESSAGE);
    let head = if is_message { decode_queued_head(&mut source) } else { None };
    let ids = head.and_then(|head| Some((head.share?, [head.id, head.name])));
    ids.into_iter().flat_map(|(share, ids)| ids.into_iter().flatten().map(move |id| SharedMessage::new(&share, id)))
}

/// The same of a message in memory, if it is delivered at QoS 2.
pub fn shared_once(queued: &Queued) -> impl Iterator<Item = SharedMessage> + use<> {
    let share = queued.share.clone().filter(|_| queued.qos == QoS::ExactlyOnce);
    let known_by = share.zip(queued.message()).map(|(share, message)| (share, [Some(message.id), message.name]));
    known_by
        .into_iter()
        .flat_map(|(share, ids)| ids.into_iter().flatten().map(move |id| SharedMessage::new(&share, id)))
}

/// Whether an item is a message of a share group that is delivered at QoS 2.
pub fn is_shared_once(bytes: &[u8]) -> bool {
    matches!(*bytes, [VERSION, MESSAGE, flags, ..] if flags & (SHARED | QOS_BITS) == SHARED | QoS::ExactlyOnce as u8)
}

/// Whether the message of an item has been given no packet identifier.
pub fn is_unsent(bytes: &[u8]) -> bool {
    matches!(*bytes, [VERSION, MESSAGE, _, 0, 0, ..])
}

/// The part of it that has fields of its own.
struct QueuedHead {
    flags: u8,
    packet_id: Option<PacketId>,
    stored: StoredBody,
    share: Option<Arc<str>>,
    id: Option<MessageId>,
    name: Option<MessageId>,
}

fn decode_queued_head(source: &mut Source<'_>) -> Option<QueuedHead> {
    let flags = source.u8()?;
    let packet_id = PacketId::new(source.u16()?);
    let size = source.u32()?;
    let expires_at = if flags & EXPIRES == 0 { None } else { Some(source.u64()?) };
    let share = if flags & SHARED == 0 { None } else { Some(source.text()?.into()) };
    let id = if flags & IDENTIFIED == 0 { None } else { Some(decode_id(source)?) };
    let name = if flags & NAMED == 0 { None } else { Some(decode_id(source)?) };
    Some(QueuedHead { flags, packet_id, stored: StoredBody { size, expires_at }, share, id, name })
}

fn decode_queued(source: &mut Source<'_>, position: Position) -> Option<Restored> {
    let QueuedHead { flags, packet_id, stored, share, .. } = decode_queued_head(source)?;
    let mut ids = Vec::new();
    while !source.0.is_empty() {
        ids.push(source.u32()?);
    }
    let queued = Queued {
        position,
        body: QueuedBody::Stored(stored),
        qos: QoS::from_u8(flags & 3)?,
        retain: flags & RETAIN != 0,
        subscription_ids: SubscriptionIds::from_slice(&ids),
        share,
        kept: true,
        awaited: false,
    };
    Some(Restored::Message { queued, packet_id })
}
