//! A session on its way out: everything that it has, one thing after the other, over as many turns as it takes.
//!
//! What the session has at the beginning is what goes. What comes into it later also comes to the node that takes it, and stays here in case that one gives up.
//! The session has no connection meanwhile, so nothing leaves it but what expires, is damaged, or has to make room.

use crate::limits;
use crate::mqtt::{PacketId, QoS, WillName};

use super::queue::{Queued, QueuedBody};
use super::record::{Item, Position};
use super::seen::Seen;
use super::session::{Session, Subscription};
use super::window::Stage;

/// Bytes of messages that are read back together, on their way out.
const READ_BACK_BYTES: usize = 1024 * 1024;

/// The next thing of a session that goes.
#[derive(Debug)]
pub enum Step<'a> {
    /// A message is in memory. Those of QoS 0 that wait go too.
    Item(Position, Item<'a>),
    /// These messages are on disk alone: to go on, hand each to [`Session::read_back`].
    Wanted(Vec<Position>),
    /// Something is on its way to the disk: go on when the session has been told that it is kept. What is not kept yet may be repeated by its publisher, and would then
    /// be in the session twice.
    Unkept,
    End(Bounds),
}

/// Where the numbers of a session go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub next_position: Position,
    /// 0: none was given yet.
    pub last_packet_id: u16,
}

/// How far the export of one session has come. All but its subscriptions; for these see [`Session::export_subscriptions`].
#[derive(Debug)]
pub struct Exporter {
    /// What the session has missed is still to go.
    missed: bool,
    /// The Wills that are still to go, the last first.
    wills: Vec<(Position, WillName)>,
    /// In the order of their positions.
    accepted: Vec<(Position, PacketId)>,
    /// In the order of the window.
    window: Vec<PacketId>,
    /// What is before it has gone, of `accepted` and then of `window`.
    at: usize,
    /// All of the queue before it has gone.
    queued_from: Position,
    bounds: Bounds,
    /// Messages that were read back for this alone.
    read_back: Vec<Position>,
    /// The one that went last.
    gone: Option<(Position, Option<PacketId>)>,
}

impl Exporter {
    pub fn new(session: &Session) -> Exporter {
        let mut accepted: Vec<_> = session.accepted.iter().map(|(id, accepted)| (accepted.position, *id)).collect();
        accepted.sort_unstable();
        let mut wills: Vec<_> = session.wills.iter().map(|(will, position)| (position, will.clone())).collect();
        wills.sort_unstable_by_key(|(position, _)| std::cmp::Reverse(*position));
        Exporter {
            missed: true,
            wills,
            accepted,
            window: session.window.iter().map(|inflight| inflight.packet_id).collect(),
            at: 0,
            queued_from: 0,
            bounds: Bounds { next_position: session.next_position, last_packet_id: session.window.last_packet_id() },
            read_back: Vec::new(),
            gone: None,
        }
    }

    /// Where the session stood when its export began.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The next thing that goes. What was returned before has been taken.
    pub fn step<'s>(&mut self, session: &'s mut Session) -> Step<'s> {
        self.put_away(session);
        if std::mem::take(&mut self.missed) && session.missed.is_some() {
            return self.missed(session);
        }
        while let Some((_, will)) = self.wills.pop() {
            // Unless it was forgotten meanwhile.
            if session.wills.get(&will).is_some() {
                return self.had_will(session, &will);
            }
        }
        if let Some((position, packet_id)) = self.accepted.get(self.at).copied() {
            self.at += 1;
            let names = session.accepted.get(&packet_id).and_then(|accepted| accepted.message.names());
            return Step::Item(position, Item::Accepted { packet_id, names });
        }
        while let Some(packet_id) = self.window.get(self.at - self.accepted.len()).copied() {
            match self.judge_inflight(session, packet_id) {
                Judged::Goes => {
                    self.at += 1;
                    return self.inflight(session, packet_id);
                }
                Judged::Gone => self.at += 1,
                Judged::Stored => return self.want(session),
                Judged::Unkept => return Step::Unkept,
            }
        }
        self.waiting(session)
    }

    fn missed<'s>(&self, session: &'s Session) -> Step<'s> {
        match session.missed.as_deref() {
            Some((position, missed)) => Step::Item(*position, Item::Missed { missed }),
            None => Step::End(self.bounds),
        }
    }

    fn had_will<'s>(&self, session: &'s Session, will: &WillName) -> Step<'s> {
        match session.wills.get(will) {
            Some((will, position)) => Step::Item(position, Item::HadWill { will }),
            None => Step::End(self.bounds),
        }
    }

    fn waiting<'s>(&mut self, session: &'s Session) -> Step<'s> {
        let next_position = self.bounds.next_position;
        let next = session.queue.first_from(self.queued_from).filter(|queued| queued.position < next_position);
        let Some(queued) = next else {
            return Step::End(self.bounds);
        };
        if queued.message().is_none() {
            return self.want(session);
        }
        if !queued.kept {
            return Step::Unkept;
        }
        self.queued_from = queued.position + 1;
        self.gone = Some((queued.position, None));
        Step::Item(queued.position, Item::Message { queued, packet_id: None })
    }

    fn judge_inflight(&self, session: &mut Session, packet_id: PacketId) -> Judged {
        let Some(inflight) = session.window.get_mut(packet_id) else {
            return Judged::Gone;
        };
        match (inflight.stage, &inflight.queued) {
            (Stage::QoS2Recorded | Stage::Received, _) => Judged::Unkept,
            (Stage::Released, _) => Judged::Goes,
            // Of a session that was to end with its connection: nobody has the message any more.
            (_, None) => Judged::Gone,
            (_, Some(queued)) if queued.message().is_none() => Judged::Stored,
            (_, Some(_)) => Judged::Goes,
        }
    }

    fn inflight<'s>(&mut self, session: &'s mut Session, packet_id: PacketId) -> Step<'s> {
        let Some(inflight) = session.window.get_mut(packet_id) else {
            return Step::Unkept;
        };
        let position = inflight.position;
        match &inflight.queued {
            Some(queued) if inflight.stage != Stage::Released => {
                self.gone = Some((position, Some(packet_id)));
                Step::Item(position, Item::Message { queued, packet_id: Some(packet_id) })
            }
            _ => Step::Item(position, Item::Received { packet_id }),
        }
    }

    /// A message that was read back has gone: the memory is not for it.
    fn put_away(&mut self, session: &mut Session) {
        let Some((position, packet_id)) = self.gone.take() else { return };
        if self.read_back.binary_search(&position).is_ok() {
            session.put_away(position, packet_id);
        }
    }

    /// The next messages that have to be read back, the first of all at least.
    fn want(&mut self, session: &Session) -> Step<'static> {
        let mut bytes = 0;
        let within = |queued: &&Queued| {
            let within = bytes == 0 || bytes + queued.size() <= READ_BACK_BYTES;
            bytes += queued.size();
            within
        };
        let stored = |queued: &&Queued| queued.message().is_none();
        let waiting = self.window.len().saturating_sub(self.at - self.accepted.len());
        let wanted: Vec<Position> = if waiting > 0 {
            let left = &self.window[self.window.len() - waiting..];
            let left: hashbrown::HashSet<PacketId> = left.iter().copied().collect();
            let inflight = session.window.iter().filter(|inflight| left.contains(&inflight.packet_id));
            let queued = inflight.filter_map(|inflight| inflight.queued.as_ref()).filter(stored);
            queued.take_while(within).take(limits::READ_BACK_MESSAGES).map(|queued| queued.position).collect()
        } else {
            let queued = session.queue.kept_from(self.queued_from).filter(stored);
            queued.take_while(within).take(limits::READ_BACK_MESSAGES).map(|queued| queued.position).collect()
        };
        self.read_back.clone_from(&wanted);
        self.read_back.sort_unstable();
        Step::Wanted(wanted)
    }
}

enum Judged {
    Goes,
    Gone,
    Stored,
    Unkept,
}

impl Session {
    /// Its subscriptions, in the order in which they came.
    pub fn export_subscriptions(&self) -> Vec<(Position, std::sync::Arc<str>, Subscription)> {
        let subscriptions = self.subscriptions.iter();
        let mut subscriptions: Vec<_> = subscriptions
            .map(|(filter, (position, subscription))| (*position, filter.clone(), *subscription))
            .collect();
        subscriptions.sort_unstable_by_key(|(position, ..)| *position);
        subscriptions
    }

    /// What the session has seen, if its shard has seen `here`: more, if it has moved and some streams are farther where it was.
    pub fn seen(&self, here: &Seen) -> Seen {
        let mut seen = here.clone();
        if let Some(elsewhere) = self.elsewhere.get() {
            seen.merge(elsewhere);
        }
        seen
    }

    /// Leaves a message to the disk, on which it is.
    fn put_away(&mut self, position: Position, packet_id: Option<PacketId>) {
        let inflight = packet_id.and_then(|packet_id| self.window.get_mut(packet_id));
        if let Some(queued) = inflight.and_then(|inflight| inflight.queued.as_mut()) {
            queued.body = QueuedBody::Stored(queued.stored_body());
        } else if let Some(stored) = self.queue.get(position).map(Queued::stored_body) {
            self.queue.set_body(position, QueuedBody::Stored(stored));
        }
    }

    /// The messages of a shared subscription that came into the session after its export began and that no other node has: another member has to get
    /// them when the session is gone. QoS 0 is not among them.
    pub fn left_behind(&mut self, bounds: Bounds) -> Vec<Queued> {
        let behind = |queued: &Queued| queued.share.is_some() && queued.position >= bounds.next_position;
        self.queue.take(|queued| queued.qos != QoS::AtMostOnce && behind(queued))
    }
}
