//! The frames of a data connection: publishes, marks, copies and questions one way, answers the other way of the same connection.
//!
//! Written by hand, so that a topic and a payload are slices of the buffer that was read. All numbers are big-endian:
//!
//! ```text
//! u32 length of the rest | u8 kind | fields
//! Mark:    u64 sequence | u64 index
//! Publish: u8 flags | u64 sequence | [u32 remaining_secs] | [u64 stamp] | text publisher | text topic
//!          | [text share, u8 whether detached members will do] | [name] | bytes properties | payload up to the end of the frame
//! name:    u8 0, text client, u64 epoch | u8 1, u8 count, as often: u64 node, u16 shard, u64 sequence
//! Orphan:  as Publish, and behind its sequence u64 dead node | u64 incarnation | u8 0, or 1 and u64 earlier sequence
//! Copy:    u64 sequence | entries up to the end of the frame
//! Ask:     u64 sequence | u8 0, or 1 and u64 dead node, u64 incarnation | u8 0, or 1 and u64 home, u64 node, u64 owner, u64 item, u64 began | text share | u8 count, as often: u64 node, u16 shard, u64 sequence
//! Aware:   u64 sequence | u64 dead node | u64 incarnation
//! Void:    u8 | u64 sequence | what was a Publish or an Orphan
//! ```
//! A field in brackets is there if its flag is set. A text or bytes is its length, seven bits in a byte with the lowest first and the top
//! bit for "more follows", and then as many bytes.
//!
//! Invariants: decoding allocates nothing and never looks beyond the frame; whatever bytes come, it ends in a frame, in
//! [`Malformed`], or in "not all here yet"; a topic that it returns is a valid topic name.
//!
//! Tests to read first: `tests::a_publish_as_bytes` and `tests::mutations_never_panic`.

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;

use thiserror::Error;

use crate::mqtt::{MessageId, Names, QoS, REMAINING_LENGTH_MAX, are_forwarded};
use crate::topic::name;

/// Bytes of the length in front of a frame.
pub const LENGTH_BYTES: usize = 4;

/// What a frame has beside topic, texts, properties and payload at the most.
const OVERHEAD_BYTES_MAX: usize =
    LENGTH_BYTES + 2 + 8 + 8 + 8 + 1 + 8 + 4 + 8 + 1 + 2 + Names::MAX * ID_BYTES + 5 * LENGTH_OF_BYTES_MAX;

/// Of a message: node, shard and sequence.
const ID_BYTES: usize = 8 + 2 + 8;

const LENGTH_OF_BYTES_MAX: usize = 5;

/// Bytes of a text at the most, as everything in MQTT that has a length of its own.
const TEXT_BYTES_MAX: usize = u16::MAX as usize;

/// What a frame of copies has in front of its last message at the most, and the item that goes with that.
const COPY_BYTES_MAX: usize = 512 * 1024;

/// Topic, properties and payload together at the most: those of the longest PUBLISH, with a topic that an alias stood for.
const MESSAGE_BYTES_MAX: usize = REMAINING_LENGTH_MAX + TEXT_BYTES_MAX;

const PUBLISH: u8 = 1;
const MARK: u8 = 2;
const COPY: u8 = 3;
const ORPHAN: u8 = 4;
const VOID: u8 = 5;
const ASK: u8 = 6;
const AWARE: u8 = 7;
const WELCOME: u8 = 16;
const ACCEPTED: u8 = 17;
const SETTLED: u8 = 18;
const REFUSED: u8 = 19;

/// Kinds of names.
const WILL: u8 = 0;
const PACKET: u8 = 1;

const QOS: u8 = 0b0000_0011;
const RETAIN: u8 = 0b0000_0100;
const RESEND: u8 = 0b0000_1000;
const SHARE: u8 = 0b0001_0000;
const STAMP: u8 = 0b0010_0000;
const NAMED: u8 = 0b0100_0000;
const REMAINING: u8 = 0b1000_0000;

/// Why bytes are no frame. The connection is of no use then: where the next frame begins is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    #[error("a frame of {length} bytes, and {max} are the most")]
    TooLong { length: u32, max: usize },
    #[error("an empty frame")]
    Empty,
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("a frame that ends within a field")]
    Short,
    #[error("a frame with bytes behind its last field")]
    Surplus,
    #[error("a length of more than 32 bits")]
    Length,
    #[error("a text that is not UTF-8")]
    Text,
    #[error("a topic that is no topic name")]
    Topic,
    #[error("QoS 3")]
    QoS,
    #[error("a choice of {0}, and there is none with that number")]
    Choice(u8),
    #[error("a name that no message has")]
    Name,
    #[error("a text of {0} bytes, which no text of MQTT has")]
    TextTooLong(usize),
    #[error("a message of {0} bytes, which no packet could carry")]
    MessageTooLong(usize),
    #[error("properties that are none of a PUBLISH on its way to subscribers")]
    Properties,
}

/// One message on its way to another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// The QoS at which the publisher sent it.
    pub qos: QoS,
    /// The RETAIN flag as the publisher set it.
    pub retain: bool,
    /// It may have been sent before: the receiver compares it with the high-water mark of its stream.
    pub resend: bool,
    /// Its place in the stream of the sending shard.
    pub sequence: u64,
    /// What is left of its Message Expiry Interval, in seconds.
    pub remaining_secs: Option<u32>,
    /// The hybrid clock's time of a retained message.
    pub stamp: Option<u64>,
    /// The client id of the publisher, for No Local.
    pub publisher: &'a str,
    /// A valid topic name.
    pub topic: &'a str,
    /// The properties that travel unchanged, as raw valid bytes.
    pub properties: &'a [u8],
    pub payload: &'a [u8],
    /// The share group for which a member is wanted, in full: `$share/name/filter`; not checked here. And whether one that is not connected will do,
    /// because no node has another one.
    pub share: Option<(&'a str, bool)>,
    /// What it is known by beside its place in a stream.
    pub name: Option<Name<'a>>,
    /// A dead node would have got it, whose heirs have still to say what their sessions want.
    pub orphan: Option<Orphan>,
}

/// The name of a message that more than one node, or more than one life of a node, may send: whoever has seen it drops the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    /// The Will of the session of that client and epoch.
    Will { client: &'a str, epoch: u64 },
    /// The message of a QoS 2 packet. With one for a share group go places too that it has had before.
    Packet(Names),
}

/// See [`Publish::orphan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// The tag of the dead node, and which of its incarnations died.
    pub of: u64,
    pub incarnation: u64,
    /// It had been on its way to that node, as this place in the same stream: whoever else wants it has got it, and it is for sessions inherited from that
    /// node only, unless they have it under that sequence.
    pub only: Option<u64>,
}

/// Whether a member of a share group has a message of QoS 2, or has had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Its place in the stream of the sending shard, as that of a publish.
    pub sequence: u64,
    /// The tag of the node that died last, as far as the sender knows, and its incarnation: who is asked has to know of that death first. At the least it is an earlier life of the
    /// sender.
    pub behind: Option<(u64, u64)>,
    /// From whom the message was inherited, if it was, and by whom: of two that ask one another the greater one has it.
    pub rank: Option<[u64; 5]>,
    /// `$share/name/filter`; not checked here.
    pub share: &'a str,
    /// The message may have come as each of these: places in streams, or names of packets.
    pub ids: Names,
}

/// What a shard sends on its own data connection. A view that is looked at and never kept, so its size is nobody's memory.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataFrame<'a> {
    Publish(Publish<'a>),
    /// Everything in front of it was routed with an older state, and all behind it is routed with that of this log index or a newer one.
    Mark {
        /// Its place in the stream of the sending shard, as that of a publish.
        sequence: u64,
        index: u64,
    },
    /// A publish that is sent otherwise.
    Void {
        /// Its place in the stream of the sending shard.
        sequence: u64,
    },
    /// What has changed in the sessions of which the receiver has copies. Not looked into here.
    Copy {
        /// Its place in the stream of the sending shard, as that of a publish.
        sequence: u64,
        entries: &'a [u8],
    },
    /// Answered by [`AnswerFrame::Settled`] or, with [`NO_MEMBER`], by [`AnswerFrame::Refused`].
    Ask(Ask<'a>),
    /// The sending shard knows that this incarnation of the node of that tag is dead: everything in front of it was sent before.
    Aware {
        /// Its place in the stream of the sending shard, as that of a publish.
        sequence: u64,
        of: u64,
        incarnation: u64,
    },
}

/// Reasons of [`AnswerFrame::Refused`]: nobody here is a member of the share group; there is no room on the disk to keep the message for a session.
pub const NO_MEMBER: u8 = 0;
pub const NO_ROOM: u8 = 1;

/// What comes back on the other half of the same connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFrame {
    /// The first: who answers, as which incarnation of its node, and up to which sequence it has received the stream.
    Welcome { run: u64, incarnation: u64, received: u64 },
    /// All up to `up_to` are in the queues that they belong to, and all up to `stable` with the heirs of those sessions too. The clock is the answering node's
    /// hybrid clock.
    Accepted { up_to: u64, stable: u64, clock: u64 },
    /// This one was acknowledged by the member that got it.
    Settled { sequence: u64 },
    /// This one was not taken, for one of the reasons above.
    Refused { sequence: u64, reason: u8 },
}

impl<'a> DataFrame<'a> {
    /// Appends the whole frame.
    ///
    /// # Panics
    /// When the frame is 4 GiB or longer: no packet is.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = begin(out);
        match self {
            Self::Publish(publish) => publish.encode(out),
            Self::Mark { sequence, index } => {
                number(out, MARK, *sequence);
                out.extend_from_slice(&index.to_be_bytes());
            }
            Self::Copy { sequence, entries } => {
                number(out, COPY, *sequence);
                out.extend_from_slice(entries);
            }
            Self::Ask(ask) => ask.encode(out),
            Self::Aware { sequence, of, incarnation } => {
                number(out, AWARE, *sequence);
                out.extend_from_slice(&of.to_be_bytes());
                out.extend_from_slice(&incarnation.to_be_bytes());
            }
            Self::Void { sequence } => {
                out.extend_from_slice(&[VOID, 0]);
                out.extend_from_slice(&sequence.to_be_bytes());
            }
        }
        end(out, start);
    }

    /// The longest frame in bytes, the four of the length not counted, of nodes that take packets of `packet_bytes_max`. The topic of a packet may stand in an
    /// alias.
    pub fn bytes_max(packet_bytes_max: u32) -> usize {
        packet_bytes_max as usize + OVERHEAD_BYTES_MAX + 4 * TEXT_BYTES_MAX + COPY_BYTES_MAX
    }

    /// The frame at the beginning of `bytes` and its length in bytes; `None` while it is not all here. `max` bounds the
    /// length of a frame in bytes, the four of the length not counted; that of copies is bounded by what MQTT knows, as a message may have been queued when nodes
    /// took larger packets.
    ///
    /// # Errors
    /// [`Malformed`], as soon as the bytes that are here show it.
    pub fn decode(bytes: &'a [u8], max: usize) -> Result<Option<(Self, usize)>, Malformed> {
        let max_of = |kind| match kind {
            COPY => Some(Self::bytes_max(REMAINING_LENGTH_MAX as u32)),
            kind => (PUBLISH..=AWARE).contains(&kind).then_some(max),
        };
        let Some((mut fields, length)) = split(bytes, max_of)? else {
            return Ok(None);
        };
        let frame = match fields.u8()? {
            kind @ (PUBLISH | ORPHAN) => Self::Publish(Publish::decode(fields, kind == ORPHAN)?),
            MARK => Self::Mark { sequence: fields.u64()?, index: fields.last_u64()? },
            COPY => Self::Copy { sequence: fields.u64()?, entries: fields.0 },
            ASK => Self::Ask(Ask::decode(fields)?),
            AWARE => Self::Aware { sequence: fields.u64()?, of: fields.u64()?, incarnation: fields.last_u64()? },
            VOID => {
                fields.u8()?;
                Self::Void { sequence: fields.u64()? }
            }
            other => return Err(Malformed::Kind(other)),
        };
        Ok(Some((frame, length)))
    }
}

impl<'a> Publish<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[if self.orphan.is_some() { ORPHAN } else { PUBLISH }, self.flags()]);
        out.extend_from_slice(&self.sequence.to_be_bytes());
        if let Some(Orphan { of, incarnation, only }) = self.orphan {
            out.extend_from_slice(&of.to_be_bytes());
            out.extend_from_slice(&incarnation.to_be_bytes());
            out.push(u8::from(only.is_some()));
            only.into_iter().for_each(|earlier| out.extend_from_slice(&earlier.to_be_bytes()));
        }
        if let Some(secs) = self.remaining_secs {
            out.extend_from_slice(&secs.to_be_bytes());
        }
        if let Some(stamp) = self.stamp {
            out.extend_from_slice(&stamp.to_be_bytes());
        }
        put_bytes(out, self.publisher.as_bytes());
        put_bytes(out, self.topic.as_bytes());
        if let Some((share, detached)) = self.share {
            put_bytes(out, share.as_bytes());
            out.push(u8::from(detached));
        }
        match &self.name {
            None => {}
            Some(Name::Will { client, epoch }) => {
                out.push(WILL);
                put_bytes(out, client.as_bytes());
                out.extend_from_slice(&epoch.to_be_bytes());
            }
            Some(Name::Packet(names)) => put_names(out, names),
        }
        put_bytes(out, self.properties);
        out.extend_from_slice(self.payload);
    }

    fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        self.qos as u8
            | flag(self.retain, RETAIN)
            | flag(self.resend, RESEND)
            | flag(self.share.is_some(), SHARE)
            | flag(self.stamp.is_some(), STAMP)
            | flag(self.name.is_some(), NAMED)
            | flag(self.remaining_secs.is_some(), REMAINING)
    }

    fn decode(mut fields: Fields<'a>, is_orphan: bool) -> Result<Self, Malformed> {
        let flags = fields.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let qos = QoS::from_u8(flags & QOS).ok_or(Malformed::QoS)?;
        let sequence = fields.u64()?;
        let orphan = if is_orphan { Some(fields.orphan()?) } else { None };
        let remaining_secs = if has(REMAINING) { Some(fields.u32()?) } else { None };
        let stamp = if has(STAMP) { Some(fields.u64()?) } else { None };
        let publisher = fields.text()?;
        let topic = fields.text()?;
        name::validate(topic).map_err(|_| Malformed::Topic)?;
        let share = if has(SHARE) { Some((fields.text()?, fields.u8()? != 0)) } else { None };
        let name = if has(NAMED) { Some(fields.name(|id| share.is_some() || id.is_of_packet())?) } else { None };
        let properties = fields.bytes()?;
        let message_bytes = topic.len() + properties.len() + fields.0.len();
        if message_bytes > MESSAGE_BYTES_MAX {
            return Err(Malformed::MessageTooLong(message_bytes));
        }
        if !are_forwarded(properties) {
            return Err(Malformed::Properties);
        }
        Ok(Publish {
            qos,
            retain: has(RETAIN),
            resend: has(RESEND),
            sequence,
            remaining_secs,
            stamp,
            publisher,
            topic,
            properties,
            payload: fields.0,
            share,
            name,
            orphan,
        })
    }
}

impl<'a> Ask<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        number(out, ASK, self.sequence);
        let numbers = self.behind.map(|(node, incarnation)| [node, incarnation]);
        put_numbers(out, numbers.as_ref().map(<[u64; 2]>::as_slice));
        put_numbers(out, self.rank.as_ref().map(<[u64; 5]>::as_slice));
        put_bytes(out, self.share.as_bytes());
        put_ids(out, &self.ids);
    }

    fn decode(mut fields: Fields<'a>) -> Result<Self, Malformed> {
        let sequence = fields.u64()?;
        let behind = fields.numbers()?.map(|[node, incarnation]| (node, incarnation));
        let ask = Ask { sequence, behind, rank: fields.numbers()?, share: fields.text()?, ids: fields.ids(|_| true)? };
        fields.end()?;
        Ok(ask)
    }
}

impl AnswerFrame {
    /// The longest, in bytes: what [`AnswerFrame::decode`] is given as the most.
    pub const BYTES_MAX: usize = 25;

    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = begin(out);
        match *self {
            Self::Welcome { run, incarnation, received } => {
                number(out, WELCOME, run);
                out.extend_from_slice(&incarnation.to_be_bytes());
                out.extend_from_slice(&received.to_be_bytes());
            }
            Self::Accepted { up_to, stable, clock } => {
                number(out, ACCEPTED, up_to);
                out.extend_from_slice(&stable.to_be_bytes());
                out.extend_from_slice(&clock.to_be_bytes());
            }
            Self::Settled { sequence } => {
                number(out, SETTLED, sequence);
            }
            Self::Refused { sequence, reason } => {
                number(out, REFUSED, sequence);
                out.push(reason);
            }
        }
        end(out, start);
    }

    /// As [`DataFrame::decode`].
    ///
    /// # Errors
    /// [`Malformed`], as soon as the bytes that are here show it.
    pub fn decode(bytes: &[u8], max: usize) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((mut fields, length)) = split(bytes, |kind| (WELCOME..=REFUSED).contains(&kind).then_some(max))?
        else {
            return Ok(None);
        };
        let frame = match fields.u8()? {
            WELCOME => Self::Welcome { run: fields.u64()?, incarnation: fields.u64()?, received: fields.last_u64()? },
            ACCEPTED => Self::Accepted { up_to: fields.u64()?, stable: fields.u64()?, clock: fields.last_u64()? },
            SETTLED => Self::Settled { sequence: fields.last_u64()? },
            REFUSED => {
                let sequence = fields.u64()?;
                let reason = fields.u8()?;
                fields.end()?;
                Self::Refused { sequence, reason }
            }
            other => return Err(Malformed::Kind(other)),
        };
        Ok(Some((frame, length)))
    }
}

/// Notes in the whole frame of a publish that it may have been sent before; if it `is_void`, that it counts no more. Other frames stay as they are.
pub fn mark_resent(frame: &mut [u8], is_void: bool) {
    if let [_, _, _, _, kind @ (PUBLISH | ORPHAN), flags, ..] = frame {
        *flags |= RESEND;
        if is_void {
            *kind = VOID;
        }
    }
}

/// Leaves room for the length. Returns where the frame begins.
fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    start
}

/// Fills in the length of the frame that begins at `start`.
fn end(out: &mut [u8], start: usize) {
    let length = out.len() - start - LENGTH_BYTES;
    let length = u32::try_from(length).expect("a frame is far shorter than 4 GiB");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// A kind and the number behind it.
fn number(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    out.extend_from_slice(&number.to_be_bytes());
}

fn put_numbers(out: &mut Vec<u8>, numbers: Option<&[u64]>) {
    out.push(u8::from(numbers.is_some()));
    numbers.into_iter().flatten().for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
}

fn put_names(out: &mut Vec<u8>, names: &Names) {
    out.push(PACKET);
    put_ids(out, names);
}

fn put_ids(out: &mut Vec<u8>, names: &Names) {
    out.push(names.all().len() as u8);
    for id in names.all() {
        out.extend_from_slice(&id.node.to_be_bytes());
        out.extend_from_slice(&id.shard.to_be_bytes());
        out.extend_from_slice(&id.sequence.to_be_bytes());
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// What the first frame holds behind its length, and how long it is with it. A length or a kind that is none is refused before the rest
/// of the frame is here. `max_of` a kind: the most that its frames have; `None` if it is none.
fn split(bytes: &[u8], max_of: impl Fn(u8) -> Option<usize>) -> Result<Option<(Fields<'_>, usize)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length);
    let size = usize::try_from(length).unwrap_or(usize::MAX);
    if size == 0 {
        return Err(Malformed::Empty);
    }
    let Some(kind) = rest.first() else {
        return Ok(None);
    };
    let max = max_of(*kind).ok_or(Malformed::Kind(*kind))?;
    if size > max {
        return Err(Malformed::TooLong { length, max });
    }
    Ok(rest.get(..size).map(|fields| (Fields(fields), LENGTH_BYTES + size)))
}

/// What of a frame has not been read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    fn orphan(&mut self) -> Result<Orphan, Malformed> {
        let (of, incarnation) = (self.u64()?, self.u64()?);
        let only = match self.u8()? {
            0 => None,
            1 => Some(self.u64()?),
            other => return Err(Malformed::Choice(other)),
        };
        Ok(Orphan { of, incarnation, only })
    }

    fn numbers<const N: usize>(&mut self) -> Result<Option<[u64; N]>, Malformed> {
        let mut numbers = [0; N];
        match self.u8()? {
            0 => return Ok(None),
            1 => {}
            other => return Err(Malformed::Choice(other)),
        }
        for number in &mut numbers {
            *number = self.u64()?;
        }
        Ok(Some(numbers))
    }

    /// `is_one`: what a message may be known by.
    fn name(&mut self, is_one: impl Fn(MessageId) -> bool) -> Result<Name<'a>, Malformed> {
        match self.u8()? {
            WILL => Ok(Name::Will { client: self.text()?, epoch: self.u64()? }),
            PACKET => self.ids(is_one).map(Name::Packet),
            other => Err(Malformed::Choice(other)),
        }
    }

    fn ids(&mut self, is_one: impl Fn(MessageId) -> bool) -> Result<Names, Malformed> {
        let count = self.u8()?;
        if usize::from(count) > Names::MAX {
            return Err(Malformed::Name);
        }
        let mut ids = [MessageId::default(); Names::MAX];
        for id in &mut ids[..usize::from(count)] {
            *id = MessageId { node: self.u64()?, shard: self.u16()?, sequence: self.u64()? };
            if !is_one(*id) {
                return Err(Malformed::Name);
            }
        }
        Names::from_ids(ids.into_iter().take(count.into())).ok_or(Malformed::Name)
    }

    fn last_u64(&mut self) -> Result<u64, Malformed> {
        let number = self.u64()?;
        self.end()?;
        Ok(number)
    }

    fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Surplus) }
    }

    fn length(&mut self) -> Result<usize, Malformed> {
        let mut length = 0u64;
        for place in 0..LENGTH_OF_BYTES_MAX {
            let byte = self.u8()?;
            length |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                return usize::try_from(length).map_err(|_| Malformed::Length);
            }
        }
        Err(Malformed::Length)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.length()?;
        self.take(length)
    }

    fn text(&mut self) -> Result<&'a str, Malformed> {
        let bytes = self.bytes()?;
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(Malformed::TextTooLong(bytes.len()));
        }
        std::str::from_utf8(bytes).map_err(|_| Malformed::Text)
    }
}
