//! The way to other nodes: for each live node the legs that this shard owes it, and the connection over which they go.
//!
//! A publish is written once for each node that has a subscriber, into the buffer of that node's legs, and goes out with the turn. What the node answers counts
//! for all that came before. While there is no connection legs wait; when the node has died they are gone, and whoever waited for them goes on. The control
//! state alone says that it has: a connection that breaks says nothing.
//!
//! Owner: the shard, in [`Peers`]. Invariants: a leg is answered exactly once; to one node everything goes in the order in which it was routed.

mod lives;
mod without_room;

use std::cell::RefCell;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{debug, warn};

use holdfast_raft::{Incarnation, NodeId};

use crate::byte_stream::ByteStream;
use crate::cluster::no_room::NoRoom;
use crate::cluster::publish_legs::PublishLegs;
use crate::limits;
use crate::link::frame::{self, AnswerFrame, DataFrame, NO_ROOM, Name};
use crate::metrics::DropReason;
use crate::mqtt::{QoS, remaining_secs};
use crate::session::Outgoing;
use crate::subscriptions::NodeSlot;

use super::keeping::PromiseKey;
use super::orphans::Orphans;
use super::{ConnectionKey, Owed, Shard};

/// Who waits until a frame is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Promise(PromiseKey),
    /// The copies of sessions: this is their frame of that number.
    Copied(u64),
}

impl Wait {
    fn promise(self) -> Option<PromiseKey> {
        match self {
            Wait::Promise(promise) => Some(promise),
            Wait::Copied(_) => None,
        }
    }
}

/// One other node that is live.
pub(super) struct Peer {
    pub node: NodeId,
    incarnation: Incarnation,
    legs: PublishLegs<Wait>,
    connection: Option<PeerConnection>,
    /// Which life of its process answered last; `None` before it has.
    run: Option<u64>,
    /// Clients that are not read from until there is room in the window.
    waiting: Vec<ConnectionKey>,
    /// What it has refused for lack of room.
    no_room: NoRoom<Option<PromiseKey>>,
    /// A mark that must not come before that.
    held_mark: Option<u64>,
    /// It was last told of the node that it has accepted nothing for a while.
    told_stuck: bool,
}

struct PeerConnection {
    stream: ByteStream,
    serial: u64,
    waker: Option<Waker>,
    /// What has come of an answer that is not whole yet, or that is not read on yet.
    partial: Vec<u8>,
    /// The other end is a later life of its node than this shard knows of: what it says is read when that is known.
    waits: bool,
}

/// The other nodes, by their slot in the control state.
#[derive(Default)]
pub(super) struct Peers {
    slots: Vec<Option<Box<Peer>>>,
    /// Those that have something to write, one bit each.
    dirty: u64,
    /// Those whose window was full when the last message was routed, one bit each.
    full: u64,
    /// Those that have refused something for lack of room, one bit each.
    short: u64,
    /// The dead whose heirs have not all inherited yet.
    pub orphans: Orphans,
    /// The last death that this shard has heard of: of the node of that tag, in that incarnation. Others hear of them in the same order.
    pub last_death: Option<(u64, u64)>,
    serial: u64,
}

impl Peers {
    pub fn get_mut(&mut self, slot: NodeSlot) -> Option<&mut Peer> {
        self.slots.get_mut(usize::from(slot))?.as_deref_mut()
    }

    /// Which life of a node is live, as far as this shard knows.
    pub fn incarnation_of(&self, tag: u64) -> Option<Incarnation> {
        self.iter().find(|peer| peer.node.tag() == tag).map(|peer| peer.incarnation)
    }

    pub fn slot_of(&self, node: NodeId) -> Option<NodeSlot> {
        let at = self.slots.iter().position(|peer| peer.as_ref().is_some_and(|peer| peer.node == node))?;
        Some(at as NodeSlot)
    }

    /// The live nodes, one bit each.
    pub fn all(&self) -> u64 {
        let live = self.slots.iter().enumerate().filter(|(_, peer)| peer.is_some());
        live.fold(0, |all, (slot, _)| all | 1 << slot)
    }

    /// A message of a client is about to be routed, who has to wait for the nodes whose windows are full then, and not for those that others have filled before.
    pub fn begin_route(&mut self) {
        self.full = 0;
    }

    pub fn has_dirty(&self) -> bool {
        self.dirty != 0
    }

    /// Whether a node can take what nobody waits for.
    pub fn has_room(&self, slot: NodeSlot) -> bool {
        self.slots.get(usize::from(slot)).is_some_and(|peer| peer.as_ref().is_some_and(|peer| peer.legs.has_room()))
    }

    pub fn node(&self, slot: NodeSlot) -> Option<NodeId> {
        self.slots.get(usize::from(slot))?.as_ref().map(|peer| peer.node)
    }

    pub fn nodes(&self) -> Vec<NodeId> {
        self.iter().map(|peer| peer.node).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.slots.iter().flatten().map(|peer| &**peer)
    }

    /// Whether each node has accepted everything up to `sequence`.
    pub fn accepted_up_to(&self, sequence: u64) -> bool {
        self.iter().all(|peer| peer.legs.first_sequence().is_none_or(|first| first > sequence))
    }
}

/// The nodes of a set, one bit each.
pub(super) fn slots_of(mut nodes: u64) -> impl Iterator<Item = NodeSlot> {
    std::iter::from_fn(move || {
        let slot = nodes.trailing_zeros();
        nodes &= nodes.wrapping_sub(1);
        (slot < u64::BITS).then_some(slot as NodeSlot)
    })
}

/// The task of one connection to another node: woken by its socket, it lets the shard do the work.
pub(super) struct PeerTask {
    shard: Rc<RefCell<Shard>>,
    slot: NodeSlot,
    serial: u64,
}

impl PeerTask {
    pub fn new(shard: Rc<RefCell<Shard>>, slot: NodeSlot, serial: u64) -> PeerTask {
        PeerTask { shard, slot, serial }
    }
}

impl Future for PeerTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shard = self.shard.borrow_mut();
        shard.now = shard.shared.clock.now();
        let ended = shard.poll_peer(self.slot, self.serial, cx);
        shard.settle();
        ended
    }
}

/// Nodes are connected.
impl Shard {
    /// There is a data connection to a node.
    pub(super) fn peer_connected(&mut self, node: NodeId, mut stream: ByteStream) {
        let Some(slot) = self.peers.slot_of(node) else {
            // It is dialled again until it is known here that the node is live.
            self.control.data_ended(node, self.id);
            return;
        };
        if let Err(error) = stream.attach() {
            warn!(event = "link", %error, "the socket of a data connection cannot be moved to its shard");
            self.control.data_ended(node, self.id);
            return;
        }
        self.peers.serial += 1;
        let serial = self.peers.serial;
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.legs.disconnect();
            let earlier = peer.connection.replace(PeerConnection {
                stream,
                serial,
                waker: None,
                partial: Vec::new(),
                waits: false,
            });
            if let Some(waker) = earlier.and_then(|earlier| earlier.waker) {
                waker.wake();
            }
            self.unborn_peers.push((slot, serial));
        }
    }

    fn poll_peer(&mut self, slot: NodeSlot, serial: u64, cx: &mut Context<'_>) -> Poll<()> {
        let Some(peer) = self.peers.get_mut(slot) else {
            return Poll::Ready(());
        };
        let Some(connection) = peer.connection.as_mut().filter(|connection| connection.serial == serial) else {
            return Poll::Ready(());
        };
        if !connection.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            connection.waker = Some(cx.waker().clone());
        }
        self.flush_peer(slot);
        if let Err(error) = self.read_answers(slot, serial, cx) {
            self.peer_broke(slot, serial, &error);
        }
        let connected = self.peers.get_mut(slot).and_then(|peer| peer.connection.as_ref());
        if connected.is_some_and(|connection| connection.serial == serial) { Poll::Pending } else { Poll::Ready(()) }
    }

    fn peer_broke(&mut self, slot: NodeSlot, serial: u64, error: &io::Error) {
        let id = self.id;
        if let Some(peer) = self.peers.get_mut(slot)
            && peer.connection.take_if(|connection| connection.serial == serial).is_some()
        {
            debug!(event = "link", node = %peer.node, %error, "a data connection has ended");
            peer.legs.disconnect();
            let node = peer.node;
            self.control.data_ended(node, id);
        }
    }

    /// Reads what has come of answers.
    fn read_answers(&mut self, slot: NodeSlot, serial: u64, cx: &mut Context<'_>) -> io::Result<()> {
        let mut buffer = [0; ANSWER_BUFFER_BYTES];
        // It may have waited until a life of the node was known.
        let before = self.peer_connection(slot, serial).map(|connection| std::mem::take(&mut connection.partial));
        let before = before.unwrap_or_default();
        let used = self.take_answers(slot, &before)?;
        if let Some(connection) = self.peer_connection(slot, serial) {
            connection.partial = before[used..].to_vec();
        }
        for _ in 0..limits::READS_PER_TURN {
            let Some(connection) = self.peer_connection(slot, serial).filter(|connection| !connection.waits) else {
                return Ok(());
            };
            let kept = connection.partial.len();
            buffer[..kept].copy_from_slice(&connection.partial);
            let mut read = ReadBuf::new(&mut buffer[kept..]);
            match Pin::new(&mut connection.stream).poll_read(cx, &mut read) {
                Poll::Pending => return Ok(()),
                Poll::Ready(read) => read?,
            }
            let n = read.filled().len();
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let used = self.take_answers(slot, &buffer[..kept + n])?;
            if let Some(connection) = self.peer_connection(slot, serial) {
                connection.partial = buffer[used..kept + n].to_vec();
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn peer_connection(&mut self, slot: NodeSlot, serial: u64) -> Option<&mut PeerConnection> {
        self.peers.get_mut(slot)?.connection.as_mut().filter(|connection| connection.serial == serial)
    }

    /// Handles the whole answers of `bytes` and says how many bytes they were.
    fn take_answers(&mut self, slot: NodeSlot, bytes: &[u8]) -> io::Result<usize> {
        let malformed = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut used = 0;
        while let Some((answer, length)) =
            AnswerFrame::decode(&bytes[used..], AnswerFrame::BYTES_MAX).map_err(malformed)?
        {
            used += length;
            match answer {
                AnswerFrame::Welcome { incarnation, .. } if self.is_unknown_life(slot, incarnation) => {
                    return Ok(used - length);
                }
                AnswerFrame::Welcome { run, incarnation, received } => {
                    self.peer_welcomes(slot, (run, incarnation), received)?;
                }
                AnswerFrame::Accepted { up_to, stable, clock } => {
                    self.hear_clock(clock);
                    self.accepted_by(slot, up_to, stable);
                }
                AnswerFrame::Settled { sequence } => self.share_settled(slot, sequence),
                AnswerFrame::Refused { sequence, reason: NO_ROOM } => self.leg_refused(slot, sequence),
                AnswerFrame::Refused { sequence, .. } => self.share_refused(slot, sequence),
            }
        }
        Ok(used)
    }

    /// Whether the node is not known here to be live as that incarnation. Then nothing is read from the connection until it is.
    fn is_unknown_life(&mut self, slot: NodeSlot, incarnation: Incarnation) -> bool {
        let Some(peer) = self.peers.get_mut(slot) else { return false };
        let is_unknown = incarnation > peer.incarnation;
        peer.connection.iter_mut().for_each(|connection| connection.waits = is_unknown);
        is_unknown
    }

    /// The other end says what it has: the rest goes to it, and again if it is not the process that had it. To another life of its node than this shard knows of nothing goes: what
    /// an earlier one was owed may be for its heirs.
    fn peer_welcomes(&mut self, slot: NodeSlot, (run, incarnation): (u64, u64), received: u64) -> io::Result<()> {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            return Ok(());
        };
        if incarnation < peer.incarnation {
            return Err(io::Error::other("it is an earlier incarnation than is known to be live"));
        }
        let same = peer.run.replace(run).is_none_or(|earlier| earlier == run);
        peer.legs.connect(now, same.then_some(received), frame::mark_resent);
        let (node, kept) = (peer.node, peer.legs.first_kept_sequence());
        self.tell_owed(slot);
        self.mark_peer_dirty(slot);
        let shares = self.share_groups.welcomed(node, run, received, kept);
        self.carry_out_shares(shares);
        Ok(())
    }

    fn accepted_by(&mut self, slot: NodeSlot, up_to: u64, stable: u64) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            return;
        };
        let (mut done, mut copied) = (Vec::new(), None);
        peer.legs.answered(now, up_to, stable, |wait| match wait {
            Wait::Promise(promise) => done.push(promise),
            Wait::Copied(number) => copied = Some(number),
        });
        let has_room = peer.no_room.accepted(up_to);
        let node = peer.node;
        let waiting = if peer.legs.has_room() { std::mem::take(&mut peer.waiting) } else { Vec::new() };
        if peer.told_stuck {
            self.tell_owed(slot);
        }
        done.into_iter().for_each(|promise| self.answered(promise));
        if let Some(number) = copied {
            self.copies_accepted(slot, number);
        }
        self.fill_on();
        let shares = self.share_groups.accepted(node, up_to);
        self.carry_out_shares(shares);
        self.read_waiting(waiting);
        if has_room {
            self.send_held_mark(slot);
        }
        self.settle_waits_for_legs();
    }
}

pub(super) fn publish_in(frame: &[u8]) -> Option<frame::Publish<'_>> {
    match DataFrame::decode(frame, frame.len()) {
        Ok(Some((DataFrame::Publish(publish), _))) => Some(publish),
        _ => None,
    }
}

/// Hybrid clocks.
impl Shard {
    /// What another node says the time is: what is stamped here from now on is newer than what it has stamped.
    pub(super) fn hear_clock(&self, clock: u64) {
        if let Err(error) = self.shared.hybrid.merge(clock, self.now)
            && let Some(left_out) = crate::metrics::admit_line("hybrid clock")
        {
            warn!(event = "clock", %error, left_out, "the clocks of two nodes are too far apart: set them by NTP");
        }
    }
}

/// Answers that are read at once.
const ANSWER_BUFFER_BYTES: usize = 4_096;

/// Sending.
impl Shard {
    /// The nodes that want a message: those with a subscriber and, for one that is retained, all.
    pub(super) fn nodes_for(&self, outgoing: &Outgoing<'_>) -> u64 {
        if !self.shared.clustered {
            return 0;
        }
        let wanted = self.shared.cluster_index.nodes(outgoing.topic);
        let everybody = outgoing.retain && !outgoing.topic.starts_with("$SYS/");
        let live = self.peers.all();
        if everybody { live } else { wanted & live }
    }

    /// Sends the message to every other node that wants it. True if there is a subscriber on one.
    pub(super) fn send_to_peers(&mut self, outgoing: &Outgoing<'_>, name: Option<Name<'_>>) -> bool {
        let nodes = self.nodes_for(outgoing);
        let orphans = self.orphans_for(outgoing);
        if nodes | orphans == 0 {
            return false;
        }
        // The names of packets are a stream beside that of everything which goes to other nodes.
        let is_named = outgoing.id.is_of_packet();
        let sequence = if is_named { self.next_message_id().sequence } else { outgoing.id.sequence };
        for slot in slots_of(nodes | self.heirs_of_orphans(orphans)) {
            let leg = self.keeping.open_remote_leg(self.id);
            let orphan = if orphans == 0 { None } else { self.orphan_for(slot, orphans) };
            let frame = frame::Publish { orphan, sequence, ..frame_of(outgoing, self.now, name) };
            let wait = leg.and_then(|leg| leg.stable).map(Wait::Promise);
            self.push_leg(slot, sequence, wait, &DataFrame::Publish(frame));
        }
        !outgoing.retain || self.shared.cluster_index.nodes(outgoing.topic) != 0
    }

    /// Adds a frame to what a node is owed. A message of QoS 0 for a node that is far behind is dropped.
    pub(super) fn push_leg(&mut self, slot: NodeSlot, sequence: u64, wait: Option<Wait>, frame: &DataFrame<'_>) {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(slot) else {
            wait.and_then(Wait::promise).into_iter().for_each(|promise| self.answered(promise));
            return;
        };
        if peer.legs.is_full() {
            let droppable =
                matches!(frame, DataFrame::Publish(publish) if publish.qos == QoS::AtMostOnce && !publish.retain);
            if droppable && peer.legs.is_overfull() {
                self.metrics().dropped(DropReason::NodeBehind, 1);
                return;
            }
            self.peers.full |= 1 << slot;
        }
        if let Some(peer) = self.peers.get_mut(slot) {
            peer.legs.push(now, sequence, wait, |out| frame.encode(out));
        }
        self.metrics().forwarded.add(1);
        self.mark_peer_dirty(slot);
    }

    /// Adds a frame of copies. False: there is no such node.
    pub(super) fn push_copies(&mut self, slot: NodeSlot, number: u64, entries: &[u8]) -> bool {
        let (now, sequence) = (self.now, self.next_message_id().sequence);
        let Some(peer) = self.peers.get_mut(slot) else {
            return false;
        };
        let frame = DataFrame::Copy { sequence, entries };
        peer.legs.push(now, sequence, Some(Wait::Copied(number)), |out| frame.encode(out));
        self.mark_peer_dirty(slot);
        true
    }

    pub(super) fn mark_peer_dirty(&mut self, slot: NodeSlot) {
        if self.peers.dirty == 0 {
            self.wake_flusher();
        }
        self.peers.dirty |= 1 << slot;
    }

    /// The client whose message was just routed is not read from until the nodes that are behind have caught up.
    pub(super) fn wait_for_full_peers(&mut self, key: ConnectionKey) {
        let full = std::mem::take(&mut self.peers.full);
        for slot in slots_of(full) {
            if let Some(peer) = self.peers.get_mut(slot) {
                peer.waiting.push(key);
                self.connections[key as usize].behind_peer = true;
            }
        }
    }

    fn read_waiting(&mut self, waiting: Vec<ConnectionKey>) {
        for key in waiting {
            if let Some(connection) = self.connection(key) {
                connection.behind_peer = false;
            }
            self.wake(key);
        }
    }

    /// The node may serve again: what waits for other nodes is written.
    pub(super) fn resume_peers(&mut self) {
        slots_of(self.peers.all()).for_each(|slot| self.mark_peer_dirty(slot));
    }

    pub(super) fn flush_peers(&mut self) {
        let dirty = std::mem::take(&mut self.peers.dirty);
        for slot in slots_of(dirty) {
            self.flush_peer(slot);
        }
    }

    fn flush_peer(&mut self, slot: NodeSlot) {
        let sent = &self.shared.metrics.shards[usize::from(self.id)].link_bytes_sent;
        let Some(peer) = self.peers.slots.get_mut(usize::from(slot)).and_then(|peer| peer.as_deref_mut()) else {
            return;
        };
        // Without a waker the task has not run yet; its first poll flushes.
        let Some(waker) = peer.connection.as_mut().and_then(|connection| connection.waker.take()) else {
            return;
        };
        let mut cx = Context::from_waker(&waker);
        let granted = self.shared.grant.is_valid();
        let mut failed = None;
        if granted {
            failed = peer.poll_flush(&mut cx, |n| sent.add(n as u64)).err();
        }
        let Some(connection) = &mut peer.connection else {
            return;
        };
        connection.waker = Some(waker);
        if let Some(error) = failed {
            let serial = connection.serial;
            self.peer_broke(slot, serial, &error);
        }
    }

    /// What is looked after once in a second: windows, and what each node owes.
    pub(super) fn look_after_peers(&mut self) {
        let now = self.now;
        for slot in slots_of(self.peers.all()) {
            let Some(peer) = self.peers.get_mut(slot) else {
                continue;
            };
            peer.legs.measure(now);
            if peer.legs.has_room() {
                let waiting = std::mem::take(&mut peer.waiting);
                self.read_waiting(waiting);
            }
            self.tell_owed(slot);
        }
        self.try_again_for_room();
    }

    /// Tells the node what another one owes this shard. That it is stuck no longer must not wait for the next second: somebody may be given up for it.
    fn tell_owed(&mut self, slot: NodeSlot) {
        let (now, id) = (self.now, self.id);
        if let Some(peer) = self.peers.get_mut(slot) {
            let (bytes, stuck_ms) = (peer.legs.owed_bytes(), peer.legs.stuck_ms(now));
            peer.told_stuck = stuck_ms > 0;
            let (node, incarnation) = (peer.node, peer.incarnation);
            self.control.owed(id, node, Owed { incarnation, bytes, stuck_ms });
        }
    }
}

impl Peer {
    fn poll_flush(&mut self, cx: &mut Context<'_>, mut wrote: impl FnMut(usize)) -> io::Result<()> {
        let Peer { legs, connection: Some(connection), .. } = self else {
            return Ok(());
        };
        while legs.has_unsent() {
            let mut slices = [IoSlice::new(&[]); limits::WRITE_VECTORS];
            let mut count = 0;
            for (slice, bytes) in slices.iter_mut().zip(legs.unsent()) {
                *slice = IoSlice::new(bytes);
                count += 1;
            }
            match Pin::new(&mut connection.stream).poll_write_vectored(cx, &slices[..count])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(n) => {
                    legs.sent(n);
                    wrote(n);
                }
                Poll::Pending => return Ok(()),
            }
        }
        if let ByteStream::Layered(_) = connection.stream {
            let _ = Pin::new(&mut connection.stream).poll_flush(cx)?;
        }
        Ok(())
    }
}

/// A message as a frame.
pub(super) fn frame_of<'a>(outgoing: &'a Outgoing<'_>, now: u64, name: Option<Name<'a>>) -> frame::Publish<'a> {
    frame::Publish {
        qos: outgoing.qos,
        retain: outgoing.retain,
        resend: false,
        sequence: outgoing.id.sequence,
        remaining_secs: remaining_secs(outgoing.expires_at, now),
        stamp: (outgoing.stamp > 0).then_some(outgoing.stamp),
        publisher: outgoing.publisher,
        topic: outgoing.topic,
        properties: outgoing.properties,
        payload: outgoing.payload,
        share: None,
        name,
        orphan: None,
    }
}
