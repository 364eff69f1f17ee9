//! What other nodes send: their publishes come over data connections that this shard reads like those of its clients.
//!
//! A node's shard has one connection to one shard here; what comes over it is routed to the sessions of this node, each read as a whole: one answer
//! says that everything up to a sequence is in the queues that it belongs to, on disk where that was promised. The position in a node's stream belongs to the
//! [`Stream`], which outlives its connections: whoever connects again hears what has arrived, and repeats the rest.
//!
//! Owner: the shard, in [`FromPeers`]. Invariants: what was received is never taken twice; answers leave in the order of the sequences; nothing is taken from a node
//! that is not live.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use hashbrown::HashMap;
use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{debug, error, warn};

use holdfast_raft::NodeId;

use crate::byte_stream::ByteStream;
use crate::cluster::copies::Home;
use crate::cluster::publish_legs::WINDOW_BYTES_MAX;
use crate::cluster::session_move::Source;
use crate::cluster::share_groups::SharedMessage;
use crate::limits;
use crate::link::frame::{AnswerFrame, DataFrame, NO_MEMBER, NO_ROOM, Name, Publish};
use crate::mqtt::{MessageId, Names, QoS};
use crate::session::Outgoing;

use super::Shard;
use super::keeping::{Due, Ended, Route};

/// The number of a stream in the table of its shard.
pub type StreamKey = u32;

/// The stream of one shard of another node.
struct Stream {
    node: NodeId,
    shard: u16,
    /// The last sequence that came, and the last one up to which everything is where it belongs.
    received: u64,
    accepted: u64,
    /// The last one up to which the heirs of the sessions have everything too.
    stable: u64,
    /// What was read and is not all stable, in order; so many in front are kept.
    pending: VecDeque<Read>,
    kept: usize,
    /// The number of the first of them.
    first: u64,
    connection: Option<u32>,
    /// What was last said of messages for share groups: said once more on a new connection, as it may have been lost with the old one. To hear it twice does no harm.
    share_answers: VecDeque<AnswerFrame>,
    /// The messages that were last refused for lack of room: said once more for the same reason, in front of what was accepted.
    refused: VecDeque<u64>,
    /// When the storage was short for the last of them.
    refused_at: u64,
    /// The last publisher, as clients mostly send more than one message.
    publisher: Arc<str>,
    /// The next frame is for sessions of a dead node that are not all here yet: nothing is read before it can be routed.
    waits: bool,
}

/// What was read together.
struct Read {
    /// Its last sequence.
    up_to: u64,
    kept: bool,
    stable: bool,
}

/// What has come of what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// It is where it belongs.
    Kept,
    /// And with the heirs.
    Stable,
}

/// A data connection from another node.
struct Link {
    stream: ByteStream,
    serial: u64,
    of: StreamKey,
    waker: Option<Waker>,
    /// The bytes of a frame that has not come whole yet.
    partial: Vec<u8>,
    /// Answers on their way.
    outbox: Vec<u8>,
    dirty: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct FromPeers {
    streams: Slab<Stream>,
    by_origin: HashMap<(NodeId, u16), StreamKey>,
    links: Slab<Link>,
    dirty: Vec<u32>,
    serial: u64,
    /// As it was when the bytes came that are being routed.
    room: Room,
    /// Connections of nodes that are not known to be live yet.
    early: Vec<(NodeId, u16, ByteStream)>,
}

impl FromPeers {
    pub fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Whether a frame has to wait.
    pub fn has_waiting(&self) -> bool {
        self.streams.iter().any(|(_, stream)| stream.waits)
    }
}

/// What the disk takes of the messages of one read.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    /// What a session would have to keep is refused.
    short: bool,
    /// What is accepted all the same waits for no disk: nothing of it is kept for a session, and retained messages are on those of other nodes.
    waits_for_nothing: bool,
}

/// The other end has not heard of as many messages at the most as it keeps, and of some that its publishers had sent when it was full.
const SHARE_ANSWERS_MAX: usize = 2 * limits::SHARES_KEPT_MAX;
/// More than can be on their way over one connection, of messages that somebody keeps, the smallest of which take so many bytes.
const REFUSED_MAX: usize = WINDOW_BYTES_MAX / 16;
/// For so long after a refusal room does not count: what was sent before the refusal was heard must not overtake what was refused. In milliseconds, and less than the pause between two attempts.
const REFUSES_MS: u64 = 500;

/// Connections that may wait for the news that their node is live, and this one too.
const EARLY_MAX: usize = 1_024;

fn refusal(sequence: u64) -> AnswerFrame {
    AnswerFrame::Refused { sequence, reason: NO_ROOM }
}

/// The task of one data connection from another node.
pub(super) struct LinkTask {
    shard: Rc<RefCell<Shard>>,
    key: u32,
    serial: u64,
}

impl LinkTask {
    pub fn new(shard: Rc<RefCell<Shard>>, key: u32, serial: u64) -> LinkTask {
        LinkTask { shard, key, serial }
    }
}

impl Future for LinkTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shard = self.shard.borrow_mut();
        shard.now = shard.shared.clock.now();
        let ended = shard.poll_link(self.key, self.serial, cx);
        shard.settle();
        ended
    }
}

/// Connections come and go.
impl Shard {
    /// A shard of another node has a connection to this one, in place of an earlier one.
    pub(super) fn link_from(&mut self, node: NodeId, shard: u16, mut stream: ByteStream) {
        // Nothing that is sent to this node is for an earlier life of it, and nobody knows yet which this is.
        let incarnation = self.shared.incarnation.load(Ordering::Acquire);
        if self.peers.slot_of(node).is_none() || incarnation == 0 {
            self.from_peers.early.retain(|(other, its, _)| (*other, *its) != (node, shard));
            if self.from_peers.early.len() < EARLY_MAX {
                self.from_peers.early.push((node, shard, stream));
            }
            return;
        }
        if let Err(error) = stream.attach() {
            warn!(event = "link", %error, "the socket of a data connection cannot be moved to its shard");
            return;
        }
        let of = self.stream_of(node, shard);
        if let Some(earlier) = self.from_peers.streams[of as usize].connection {
            self.close_link(earlier);
        }
        self.from_peers.serial += 1;
        let serial = self.from_peers.serial;
        let Stream { received, accepted, stable, .. } = self.from_peers.streams[of as usize];
        let mut outbox = Vec::new();
        AnswerFrame::Welcome { run: self.shared.run, incarnation, received }.encode(&mut outbox);
        // What was refused is not to be taken for accepted.
        let Stream { refused, share_answers, .. } = &self.from_peers.streams[of as usize];
        refused.iter().for_each(|sequence| refusal(*sequence).encode(&mut outbox));
        share_answers.iter().for_each(|answer| answer.encode(&mut outbox));
        let clock = self.shared.hybrid.reading(self.now);
        AnswerFrame::Accepted { up_to: accepted, stable, clock }.encode(&mut outbox);
        let link = Link { stream, serial, of, waker: None, partial: Vec::new(), outbox, dirty: false };
        let key = self.from_peers.links.insert(link) as u32;
        self.from_peers.streams[of as usize].connection = Some(key);
        self.unborn_links.push((key, serial));
    }

    fn stream_of(&mut self, node: NodeId, shard: u16) -> StreamKey {
        let FromPeers { streams, by_origin, .. } = &mut self.from_peers;
        *by_origin.entry((node, shard)).or_insert_with(|| {
            let stream = Stream {
                node,
                shard,
                received: 0,
                accepted: 0,
                stable: 0,
                pending: VecDeque::new(),
                kept: 0,
                first: 0,
                connection: None,
                share_answers: VecDeque::new(),
                refused: VecDeque::new(),
                refused_at: 0,
                publisher: Arc::from(""),
                waits: false,
            };
            streams.insert(stream) as StreamKey
        })
    }

    /// A node has become live: connections that it made before that was known here, or before this node was live itself, are taken up.
    pub(super) fn take_early_links(&mut self, node: NodeId) {
        let (of_it, others) =
            std::mem::take(&mut self.from_peers.early).into_iter().partition(|(from, ..)| *from == node);
        self.from_peers.early = others;
        for (node, shard, stream) in of_it as Vec<_> {
            self.link_from(node, shard, stream);
        }
    }

    /// A node is dead: nothing that it still says counts.
    pub(super) fn close_links_from(&mut self, node: NodeId) {
        let of_it = self.from_peers.streams.iter().filter(|(_, stream)| stream.node == node);
        let links: Vec<u32> = of_it.filter_map(|(_, stream)| stream.connection).collect();
        links.into_iter().for_each(|key| self.close_link(key));
    }

    fn close_link(&mut self, key: u32) {
        if let Some(link) = self.from_peers.links.try_remove(key as usize) {
            self.from_peers.streams[link.of as usize].connection = None;
            if let Some(waker) = link.waker {
                waker.wake();
            }
        }
    }

    fn link(&mut self, key: u32, serial: u64) -> Option<&mut Link> {
        self.from_peers.links.get_mut(key as usize).filter(|link| link.serial == serial)
    }

    fn poll_link(&mut self, key: u32, serial: u64, cx: &mut Context<'_>) -> Poll<()> {
        let Some(link) = self.link(key, serial) else {
            return Poll::Ready(());
        };
        if !link.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            link.waker = Some(cx.waker().clone());
        }
        self.flush_link(key);
        if let Err(error) = self.read_link(key, serial, cx) {
            debug!(event = "link", %error, "a data connection from another node has ended");
            if self.link(key, serial).is_some() {
                self.close_link(key);
            }
        }
        if self.link(key, serial).is_some() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Reads and routes what has come, a bufferful at a time. It is never left unread for those who are slow here: the windows of the senders
    /// bound it, and two nodes that waited for one another would wait for ever. Only a node that may not serve reads nothing.
    fn read_link(&mut self, key: u32, serial: u64, cx: &mut Context<'_>) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.read_buffer);
        let ended = self.read_link_into(&mut buffer, key, serial, cx);
        self.read_buffer = buffer;
        ended
    }

    fn read_link_into(&mut self, buffer: &mut [u8], key: u32, serial: u64, cx: &mut Context<'_>) -> io::Result<()> {
        for _ in 0..limits::READS_PER_TURN {
            if !self.shared.grant.is_valid() || self.still_waits(key, serial)? {
                return Ok(());
            }
            let Some(link) = self.link(key, serial) else {
                return Ok(());
            };
            let mut read = ReadBuf::new(buffer);
            match Pin::new(&mut link.stream).poll_read(cx, &mut read)? {
                Poll::Pending => return Ok(()),
                Poll::Ready(()) => {}
            }
            let n = read.filled().len();
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut before = std::mem::take(&mut link.partial);
            self.metrics().link_bytes_received.add(n as u64);
            if before.is_empty() {
                let used = self.received_from(key, serial, &buffer[..n])?;
                before.extend_from_slice(&buffer[used..n]);
            } else {
                before.extend_from_slice(&buffer[..n]);
                let used = self.received_from(key, serial, &before)?;
                before.drain(..used);
            }
            if let Some(link) = self.link(key, serial)
                && !before.is_empty()
            {
                link.partial = before;
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Whether the next frame cannot be routed yet. If it could not be and can now, it is, with what came behind it.
    fn still_waits(&mut self, key: u32, serial: u64) -> io::Result<bool> {
        let Some(link) = self.link(key, serial) else {
            return Ok(true);
        };
        let of = link.of;
        if !self.from_peers.streams[of as usize].waits {
            return Ok(false);
        }
        let mut before = match self.link(key, serial) {
            Some(link) => std::mem::take(&mut link.partial),
            None => return Ok(true),
        };
        let used = self.received_from(key, serial, &before)?;
        before.drain(..used);
        if let Some(link) = self.link(key, serial) {
            link.partial = before;
        }
        Ok(self.from_peers.streams[of as usize].waits)
    }

    /// Routes the whole frames of `bytes`, and owes the answer for them. Returns how many bytes they were.
    fn received_from(&mut self, key: u32, serial: u64, bytes: &[u8]) -> io::Result<usize> {
        let Some(of) = self.link(key, serial).map(|link| link.of) else {
            return Ok(bytes.len());
        };
        let short = self.storage_is_short() || self.heirs_are_short();
        self.from_peers.room = Room { short, waits_for_nothing: self.storage_is_failing() };
        self.keeping.begin_route(Route::Read, None);
        let routed = self.route_frames(of, bytes);
        self.owe_answer(of);
        routed
    }

    /// Returns how many bytes were whole frames.
    fn route_frames(&mut self, of: StreamKey, bytes: &[u8]) -> io::Result<usize> {
        let max = DataFrame::bytes_max(self.shared.limits.packet_size_max);
        self.from_peers.streams[of as usize].waits = false;
        let mut used = 0;
        loop {
            let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let Some((frame, length)) = DataFrame::decode(&bytes[used..], max).map_err(malformed)? else {
                return Ok(used);
            };
            if self.must_wait(of, &frame) {
                self.from_peers.streams[of as usize].waits = true;
                return Ok(used);
            }
            used += length;
            match frame {
                DataFrame::Mark { sequence, index } => {
                    if self.is_new(of, sequence) {
                        let from = self.source_of(of);
                        let place = MessageId { node: from.0.tag(), shard: from.1, sequence };
                        self.marked(from, index, place);
                    }
                }
                DataFrame::Copy { .. } if self.keeping.storage().is_none() => return Err(self.refuse_as_heir(of)),
                DataFrame::Copy { sequence, entries } => {
                    let Stream { node, shard, received, .. } = self.from_peers.streams[of as usize];
                    if sequence > received {
                        self.from_peers.room.waits_for_nothing = false;
                        self.copy_came(Home { node, shard }, sequence, entries)?;
                        self.is_new(of, sequence);
                    }
                }
                DataFrame::Ask(ask) => {
                    if self.is_new(of, ask.sequence) {
                        self.answer_question(of, &ask);
                    }
                }
                DataFrame::Void { sequence } => _ = self.is_new(of, sequence),
                DataFrame::Aware { sequence, of: dead, incarnation } => {
                    if self.is_new(of, sequence) {
                        let from = self.source_of(of);
                        self.heard_of_death((dead, incarnation), from);
                    }
                }
                DataFrame::Publish(publish) => {
                    if self.is_new(of, publish.sequence) {
                        self.route_from_peer(of, &publish);
                    }
                }
            }
        }
    }

    /// The shard whose stream that is.
    pub(super) fn source_of(&self, of: StreamKey) -> Source {
        let Stream { node, shard, .. } = self.from_peers.streams[of as usize];
        (node, shard)
    }

    /// This node keeps nothing, and so is nobody's heir: what only heirs get is not thrown away in silence.
    fn refuse_as_heir(&self, of: StreamKey) -> io::Error {
        let node = self.from_peers.streams[of as usize].node;
        if let Some(left_out) = crate::metrics::admit_line("copies") {
            error!(event = "link", %node, left_out, "a node sends copies of its sessions, and this one keeps none: its connection is closed");
        }
        io::Error::new(io::ErrorKind::InvalidData, "copies of sessions are not kept here")
    }

    /// Notes a sequence as received. False if it was before.
    fn is_new(&mut self, of: StreamKey, sequence: u64) -> bool {
        let stream = &mut self.from_peers.streams[of as usize];
        let is_new = sequence > stream.received;
        stream.received = stream.received.max(sequence);
        is_new
    }

    fn route_from_peer(&mut self, of: StreamKey, publish: &Publish<'_>) {
        self.metrics().forwards_received.add(1);
        if self.has_no_room_for(of, publish) {
            return self.refuse_from_peer(of, publish.sequence);
        }
        let stream = &mut self.from_peers.streams[of as usize];
        if *stream.publisher != *publish.publisher {
            stream.publisher = publish.publisher.into();
        }
        let (publisher, from) = (stream.publisher.clone(), stream.node);
        let place = MessageId { node: stream.node.tag(), shard: stream.shard, sequence: publish.sequence };
        let only = publish.orphan.and_then(|orphan| Some((orphan, orphan.only?)));
        let (mut names, mut will, mut known) = (None, 0, false);
        match publish.name {
            Some(Name::Will { client, epoch }) => {
                known = only.is_none() && !self.shared.wills_seen.note(client, epoch);
                if known {
                    self.wait_for_newer();
                }
                will = epoch;
            }
            Some(Name::Packet(of_packet)) => names = Some(of_packet),
            None => {}
        }
        // What goes to a member is answered by its place.
        let of_share = names.take_if(|_| publish.share.is_some());
        let id = names.as_ref().map_or(place, Names::current);
        let expires_at = publish.remaining_secs.map(|secs| self.now + u64::from(secs) * 1000);
        let (qos, retain) = (publish.qos, publish.retain);
        let mut outgoing = Outgoing::new(
            id,
            publish.topic,
            publish.payload,
            publish.properties,
            (qos, retain),
            expires_at,
            &publisher,
        );
        if let Some(stamp) = publish.stamp {
            self.hear_clock(stamp);
            outgoing.set_stamp(stamp);
        }
        outgoing.resent = publish.resend;
        (outgoing.will, outgoing.known) = (will, known);
        outgoing.earlier = names.as_ref().map_or(&[], Names::earlier);
        self.note_seen(id);
        match (publish.share, only) {
            // A member has it since before this process began.
            (Some((share, _)), _)
                if publish.resend && self.shared_before.0.contains(&SharedMessage::new(share, id)) =>
            {
                self.answer_peer(of, AnswerFrame::Settled { sequence: id.sequence });
            }
            (Some(share), _) => self.share_from_peer(share, &outgoing, (from, of_share)),
            (None, Some((orphan, earlier))) => {
                let earlier = [MessageId { sequence: earlier, ..place }];
                self.route_to_inherited(&outgoing, orphan, names.as_ref().map_or(&earlier, Names::all));
            }
            (None, None) => {
                self.note_plain(&outgoing, publish.orphan.is_some());
                self.route_here(&mut outgoing);
            }
        }
    }

    /// Whether a session of this node would have to keep the message, and there is no room. One for a member of a share group is taken.
    fn has_no_room_for(&mut self, of: StreamKey, publish: &Publish<'_>) -> bool {
        if publish.share.is_some() {
            self.from_peers.room.waits_for_nothing = false;
            return false;
        }
        let refused_at = self.from_peers.streams[of as usize].refused_at;
        let short = self.from_peers.room.short || self.now < refused_at + REFUSES_MS;
        short && publish.qos != QoS::AtMostOnce && self.shared.index.shards(publish.topic).kept != 0
    }

    fn refuse_from_peer(&mut self, of: StreamKey, sequence: u64) {
        let stream = &mut self.from_peers.streams[of as usize];
        if self.from_peers.room.short {
            stream.refused_at = self.now;
        }
        stream.refused.push_back(sequence);
        if stream.refused.len() > REFUSED_MAX {
            stream.refused.pop_front();
        }
        self.answer_peer(of, refusal(sequence));
    }

    /// The frames of one read are routed: the node hears of it when all of them are kept.
    fn owe_answer(&mut self, of: StreamKey) {
        let stream = &mut self.from_peers.streams[of as usize];
        let number = stream.first + stream.pending.len() as u64;
        let up_to = stream.received;
        stream.pending.push_back(Read { up_to, kept: false, stable: false });
        let waits = !self.from_peers.room.waits_for_nothing;
        let (kept, stable) = match waits {
            true => (Due::Accepted { stream: of, number }, Due::Stable { stream: of, number }),
            false => (Due::Nothing, Due::Nothing),
        };
        let ended = self.keeping.end_read(kept, stable);
        // So that both are said at once where both are known.
        for (half, ended) in [Half::Stable, Half::Kept].into_iter().zip(ended) {
            if !waits || matches!(ended, Ended::Now) {
                self.accept_read(of, number, half);
            }
            if let Ended::Promised(promise) = ended {
                self.answered(promise);
            }
        }
    }

    /// What was read as `number` is where it belongs, or with the heirs. Without copies that is the same.
    pub(super) fn accept_read(&mut self, of: StreamKey, number: u64, half: Half) {
        let clock = self.shared.hybrid.reading(self.now);
        let Some(stream) = self.from_peers.streams.get_mut(of as usize) else {
            return;
        };
        if let Some(read) = stream.pending.get_mut((number - stream.first) as usize) {
            read.kept |= half == Half::Kept;
            read.stable |= half == Half::Stable;
        }
        let before = (stream.accepted, stream.stable);
        while let Some(read) = stream.pending.get(stream.kept).filter(|read| read.kept) {
            stream.kept += 1;
            stream.accepted = read.up_to;
        }
        while let Some(Read { up_to, .. }) = stream.pending.pop_front_if(|read| read.kept && read.stable) {
            stream.first += 1;
            stream.kept -= 1;
            stream.stable = up_to;
        }
        let (up_to, stable) = (stream.accepted, stream.stable);
        if (up_to, stable) != before {
            self.answer_peer(of, AnswerFrame::Accepted { up_to, stable, clock });
        }
    }

    /// Writes an answer, if there is a connection. What is lost with that is said again at the next.
    pub(super) fn answer_peer(&mut self, of: StreamKey, answer: AnswerFrame) {
        if let AnswerFrame::Settled { .. } | AnswerFrame::Refused { reason: NO_MEMBER, .. } = answer {
            let answers = &mut self.from_peers.streams[of as usize].share_answers;
            answers.push_back(answer);
            if answers.len() > SHARE_ANSWERS_MAX {
                answers.pop_front();
                self.metrics().share_answers_forgotten.add(1);
            }
        }
        let Some(key) = self.from_peers.streams[of as usize].connection else {
            return;
        };
        let Some(link) = self.from_peers.links.get_mut(key as usize) else {
            return;
        };
        answer.encode(&mut link.outbox);
        if link.outbox.len() > UNREAD_ANSWER_BYTES_MAX {
            let node = self.from_peers.streams[of as usize].node;
            warn!(event = "link", %node, "a data connection is closed: its node does not read the answers");
            self.metrics().links_unread.add(1);
            return self.close_link(key);
        }
        if !std::mem::replace(&mut link.dirty, true) {
            self.from_peers.dirty.push(key);
            self.wake_flusher();
        }
    }

    /// The stream of a message that came from another node.
    pub(super) fn stream_of_message(&self, id: MessageId) -> Option<StreamKey> {
        let streams = self.from_peers.streams.iter();
        let found = streams.into_iter().find(|(_, stream)| (stream.node.tag(), stream.shard) == (id.node, id.shard));
        found.map(|(key, _)| key as StreamKey)
    }

    pub(super) fn flush_links(&mut self) {
        for key in std::mem::take(&mut self.from_peers.dirty) {
            self.flush_link(key);
        }
    }

    fn flush_link(&mut self, key: u32) {
        let granted = self.shared.grant.is_valid();
        let Some(link) = self.from_peers.links.get_mut(key as usize) else {
            return;
        };
        link.dirty = false;
        if !granted {
            return;
        }
        // Without a waker the task has not run yet; its first poll flushes.
        let Some(waker) = link.waker.take() else {
            return;
        };
        let mut cx = Context::from_waker(&waker);
        let flushed = link.poll_flush(&mut cx);
        link.waker = Some(waker);
        if let Err(error) = flushed {
            debug!(event = "link", %error, "a data connection from another node takes no answers");
            self.close_link(key);
        }
    }

    /// The node may serve again: what came meanwhile is read, and what waits is written.
    pub(super) fn resume_links(&mut self) {
        for (_, link) in &mut self.from_peers.links {
            if let Some(waker) = &link.waker {
                waker.wake_by_ref();
            }
        }
    }
}

/// Answers that a node leaves unread: far more than its window can have caused. A connection with more is closed, and its answers are said again on the next.
const UNREAD_ANSWER_BYTES_MAX: usize = 1024 * 1024;

impl Link {
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.outbox)? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(n) => drop(self.outbox.drain(..n)),
                Poll::Pending => return Ok(()),
            }
        }
        self.outbox = Vec::new();
        if let ByteStream::Layered(_) = self.stream {
            let _ = Pin::new(&mut self.stream).poll_flush(cx)?;
        }
        Ok(())
    }
}
