//! The commands of one node on their way to the leader: gathered into numbered batches, sent again until this node has applied them.
//!
//! Commands are encoded where they are proposed, into one buffer; what else is kept of a command until its outcome comes is its ticket.
//!
//! What a batch costs, it costs on every node: an entry of the log, a sync, messages. So under load batches wait for company: there is one every [`PACE_MS`], or earlier if
//! [`WORTHWHILE`] commands have come and the batch before is applied. What is not used of that pace is saved up, [`SAVED_MAX`] batches at most, so a node with little to propose proposes at once. When
//! answers take longer, up to [`UNDER_WAY_MAX`] are under way.
//!
//! Invariants:
//! - batches are numbered from 1 in each incarnation, and outcomes come in that order, each once;
//! - a batch is kept until this node has applied its number, whatever became of its messages;
//! - without an incarnation nothing is taken: what was proposed under an older one is never answered.
//!
//! Test to read first: `tests::outcomes_find_their_tickets_in_order`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::boot_ms;
use crate::command::{Command, Incarnation};
use crate::entry::{Batch, BatchOrigin};

/// What the caller knows a proposed command by.
pub type Ticket = u64;

/// Commands in a batch at most.
pub const BATCH_COMMANDS_MAX: usize = 4096;
/// Bytes of commands in a batch; a single command may have more, up to [`COMMAND_BYTES_MAX`].
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a command at most: one that is larger is refused, and counted.
pub const COMMAND_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Batches under way at most.
pub const UNDER_WAY_MAX: usize = 4;
/// Bytes of commands that wait, under way and not: beyond it the node cannot keep up and its incarnation ends.
pub const WAITING_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Milliseconds between batches that are small.
pub const PACE_MS: u64 = 8;
/// Batches that need not keep the pace after a time with few.
pub const SAVED_MAX: u64 = 8;
/// Commands that are worth a batch of their own.
pub const WORTHWHILE: usize = 32;
/// Milliseconds until what was sent and not applied is sent again.
const RESEND_MS: u64 = 500;

/// A batch that is under way.
struct UnderWay {
    number: u64,
    tickets: Vec<Ticket>,
    count: u32,
    commands: Bytes,
    /// Boot clock; `None`: to be sent.
    sent_at: Option<u64>,
}

#[derive(Default)]
struct Waiting {
    incarnation: Option<Incarnation>,
    /// Of the last batch.
    number: u64,
    tickets: Vec<Ticket>,
    commands: Vec<u8>,
    /// Until when the pace is used up by batches that went before, by the boot clock.
    paced_until: u64,
    /// Full batches that were gathered while others were under way.
    full: VecDeque<(Vec<Ticket>, Bytes)>,
    under_way: VecDeque<UnderWay>,
    /// Bytes in `full` and `under_way`.
    bytes: usize,
}

/// What became of commands that were proposed.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Taken {
    /// Else too much waits already.
    pub room: bool,
    /// Those that will never have an outcome.
    pub refused: Vec<Ticket>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Batcher {
    waiting: Mutex<Waiting>,
    /// There may be something to send.
    pub wake: Notify,
    discarded: AtomicU64,
}

impl Batcher {
    /// Takes commands in order; never blocks.
    pub fn propose(&self, commands: impl IntoIterator<Item = (Ticket, Command)>) -> Taken {
        let mut waiting = self.waiting.lock();
        let mut taken = Taken { room: true, refused: Vec::new() };
        let before = waiting.tickets.len();
        for (ticket, command) in commands {
            let refused = if waiting.incarnation.is_none() {
                true
            } else if waiting.bytes > WAITING_BYTES_MAX {
                taken.room = false;
                true
            } else {
                !waiting.push(ticket, &command)
            };
            if refused {
                taken.refused.push(ticket);
            }
        }
        self.discarded.fetch_add(taken.refused.len() as u64, Ordering::Relaxed);
        let now = waiting.tickets.len();
        // The first one sets the time at which they go; enough of them go before.
        let enough =
            (before < WORTHWHILE && now >= WORTHWHILE && waiting.under_way.is_empty()) || !waiting.full.is_empty();
        let wake = (before == 0 && now > 0) || enough;
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
        taken
    }

    /// Commands that were not taken: without an incarnation, too large, or too many.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    /// Numbers begin anew, behind `number`.
    pub fn begin(&self, incarnation: Incarnation, number: u64) {
        *self.waiting.lock() = Waiting { incarnation: Some(incarnation), number, ..Waiting::default() };
    }

    /// The incarnation is over: what waits is forgotten.
    pub fn end(&self) {
        *self.waiting.lock() = Waiting::default();
    }

    /// The batches to be sent now, in order, as batches of `node`.
    pub fn to_send(&self, node: u128, now: u64) -> Vec<Batch> {
        let mut waiting = self.waiting.lock();
        let Some(incarnation) = waiting.incarnation else { return Vec::new() };
        waiting.start_batches(now);
        if waiting.under_way.front().and_then(|first| first.sent_at).is_some_and(|at| now >= at + RESEND_MS) {
            waiting.under_way.iter_mut().for_each(|batch| batch.sent_at = None);
        }
        let mut batches = Vec::new();
        for batch in waiting.under_way.iter_mut().filter(|batch| batch.sent_at.is_none()) {
            batch.sent_at = Some(now);
            let origin = BatchOrigin::Node { node, incarnation, number: batch.number };
            batches.push(Batch { at: 0, origin, count: batch.count, commands: batch.commands.clone() });
        }
        batches
    }

    /// All that is under way is sent again with the next [`Batcher::to_send`]: the leader is another one, or is reached again.
    pub fn send_again(&self) {
        let mut waiting = self.waiting.lock();
        waiting.under_way.iter_mut().for_each(|batch| batch.sent_at = None);
        let wake = !waiting.under_way.is_empty();
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// When to look again, in milliseconds of the boot clock, if nothing wakes before.
    pub fn next_at(&self) -> Option<u64> {
        let waiting = self.waiting.lock();
        let follow = (!waiting.tickets.is_empty()).then_some(waiting.next_paced_at());
        let follow = follow.filter(|_| waiting.under_way.len() < UNDER_WAY_MAX);
        let again = waiting.under_way.front().and_then(|first| first.sent_at).map(|at| at + RESEND_MS);
        follow.into_iter().chain(again).min()
    }

    /// This node has applied batch `number` of `incarnation`: whose it is. Empty if it is none of this incarnation.
    pub fn applied(&self, incarnation: Incarnation, number: u64) -> Vec<Ticket> {
        let mut waiting = self.waiting.lock();
        let first = waiting.under_way.front().map(|batch| batch.number);
        if waiting.incarnation != Some(incarnation) || first != Some(number) {
            return Vec::new();
        }
        let Some(batch) = waiting.under_way.pop_front() else { return Vec::new() };
        waiting.bytes -= batch.commands.len();
        let wake = waiting.may_start(boot_ms());
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
        batch.tickets
    }

    /// Whether the outcomes of batches up to `number`, which are applied, have all come here.
    pub fn has_seen(&self, incarnation: Incarnation, number: u64) -> bool {
        let waiting = self.waiting.lock();
        let unseen = waiting.under_way.front().is_some_and(|first| first.number <= number);
        waiting.incarnation != Some(incarnation) || !unseen
    }
}

impl Waiting {
    /// `false`: the command is too large.
    fn push(&mut self, ticket: Ticket, command: &Command) -> bool {
        let start = self.commands.len();
        // Plain data into memory: this cannot fail.
        if let Ok(bytes) = postcard::to_extend(command, std::mem::take(&mut self.commands)) {
            self.commands = bytes;
        }
        let len = self.commands.len() - start;
        if len > COMMAND_BYTES_MAX {
            self.commands.truncate(start);
            return false;
        }
        if start > 0 && start + len > BATCH_BYTES_MAX {
            let rest = self.commands.split_off(start);
            self.fill();
            self.commands = rest;
        }
        self.tickets.push(ticket);
        if self.tickets.len() == BATCH_COMMANDS_MAX {
            self.fill();
        }
        true
    }

    /// What was gathered is a batch.
    fn fill(&mut self) {
        let (tickets, commands) = (std::mem::take(&mut self.tickets), std::mem::take(&mut self.commands));
        self.bytes += commands.len();
        self.full.push_back((tickets, Bytes::from(commands)));
    }

    /// When a small batch may go.
    fn next_paced_at(&self) -> u64 {
        self.paced_until.saturating_sub((SAVED_MAX - 1) * PACE_MS)
    }

    /// Whether a batch may go now.
    fn may_start(&self, now: u64) -> bool {
        let paced = now >= self.next_paced_at();
        let worthwhile = self.tickets.len() >= WORTHWHILE && self.under_way.is_empty();
        let gathered = !self.tickets.is_empty() && (paced || worthwhile);
        self.under_way.len() < UNDER_WAY_MAX && (gathered || !self.full.is_empty())
    }

    fn start_batches(&mut self, now: u64) {
        while self.may_start(now) {
            if self.full.is_empty() {
                self.fill();
            }
            let Some((tickets, commands)) = self.full.pop_front() else { return };
            self.number += 1;
            self.paced_until = self.paced_until.max(now) + PACE_MS;
            let (number, count) = (self.number, tickets.len() as u32);
            self.under_way.push_back(UnderWay { number, tickets, count, commands, sent_at: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn will_done(epoch: u64) -> Command {
        Command::WillDone { client: "c".into(), epoch }
    }

    fn begun() -> Batcher {
        let batcher = Batcher::default();
        batcher.begin(3, 0);
        batcher
    }

    /// With nothing saved up at `now`.
    fn busy(now: u64) -> Batcher {
        let batcher = begun();
        batcher.waiting.lock().paced_until = now + (SAVED_MAX - 1) * PACE_MS;
        batcher
    }

    fn numbers(batches: &[Batch]) -> Vec<(u64, u32)> {
        let number = |batch: &Batch| match batch.origin {
            BatchOrigin::Node { node: 1, incarnation: 3, number } => (number, batch.count),
            _ => panic!("{batch:?}"),
        };
        batches.iter().map(number).collect()
    }

    #[test]
    fn outcomes_find_their_tickets_in_order() {
        let batcher = begun();
        let _ = batcher.propose([(10, will_done(1)), (11, will_done(2))]);
        let now = boot_ms();
        assert_eq!(numbers(&batcher.to_send(1, now)), [(1, 2)]);
        let _ = batcher.propose([(12, will_done(3))]);
        assert!(batcher.applied(3, 2).is_empty());
        assert!(batcher.applied(2, 1).is_empty());
        assert_eq!(batcher.applied(3, 1), [10, 11]);
        assert_eq!(numbers(&batcher.to_send(1, now + PACE_MS)), [(2, 1)]);
        assert!(batcher.applied(3, 1).is_empty());
        assert_eq!(batcher.applied(3, 2), [12]);
    }

    #[test]
    fn batches_go_at_once_after_a_pause() {
        let batcher = begun();
        let now = boot_ms();
        for ticket in 0..10 {
            let _ = batcher.propose([(ticket, will_done(ticket))]);
            let sent = batcher.to_send(1, now);
            assert_eq!(sent.len(), usize::from(ticket < SAVED_MAX), "{sent:?}");
            batcher.applied(3, ticket + 1);
        }
    }

    #[test]
    fn small_batches_keep_a_pace() {
        let now = boot_ms();
        let batcher = busy(now);
        let _ = batcher.propose([(0, will_done(0))]);
        assert_eq!(numbers(&batcher.to_send(1, now)), [(1, 1)]);
        let _ = batcher.propose([(1, will_done(1))]);
        batcher.applied(3, 1);
        assert_eq!(batcher.next_at(), Some(now + PACE_MS));
        assert_eq!(numbers(&batcher.to_send(1, now + PACE_MS - 1)), []);
        let _ = batcher.propose([(2, will_done(2))]);
        assert_eq!(numbers(&batcher.to_send(1, now + PACE_MS)), [(2, 2)]);
    }

    #[test]
    fn many_commands_go_as_soon_as_those_before_are_applied() {
        let now = boot_ms();
        let batcher = busy(now);
        let _ = batcher.propose([(0, will_done(0))]);
        batcher.to_send(1, now);
        let _ = batcher.propose((1..=WORTHWHILE as u64).map(|ticket| (ticket, will_done(ticket))));
        assert_eq!(numbers(&batcher.to_send(1, now)), [], "one is under way");
        batcher.applied(3, 1);
        assert_eq!(numbers(&batcher.to_send(1, now)), [(2, WORTHWHILE as u32)]);
    }

    #[test]
    fn four_batches_are_under_way_at_most() {
        let batcher = begun();
        let now = boot_ms();
        for round in 0..6 {
            let _ = batcher.propose([(round, will_done(round))]);
            let sent = batcher.to_send(1, now + round * PACE_MS);
            assert_eq!(sent.len(), usize::from(round < 4), "{sent:?}");
        }
        assert_eq!(batcher.applied(3, 1), [0]);
        assert_eq!(numbers(&batcher.to_send(1, now + 6 * PACE_MS)), [(5, 2)]);
    }

    #[test]
    fn what_is_not_applied_is_sent_again_in_order() {
        let batcher = busy(boot_ms() + 200);
        let _ = batcher.propose((0..5000).map(|ticket| (ticket, will_done(ticket))));
        let now = boot_ms();
        assert_eq!(numbers(&batcher.to_send(1, now)), [(1, 4096)]);
        assert_eq!(numbers(&batcher.to_send(1, now + 400)), [(2, 904)]);
        assert_eq!(numbers(&batcher.to_send(1, now + 450)), []);
        assert_eq!(batcher.applied(3, 1).len(), 4096);
        batcher.send_again();
        assert_eq!(numbers(&batcher.to_send(1, now + 450)), [(2, 904)]);
        assert_eq!(numbers(&batcher.to_send(1, now + 450 + RESEND_MS)), [(2, 904)]);
    }

    #[test]
    fn batches_end_at_a_mebibyte_and_commands_at_two() {
        let batcher = busy(boot_ms() + 1000);
        let sized = |bytes: usize| Command::WillDone { client: "c".repeat(bytes).into(), epoch: 1 };
        let taken =
            batcher.propose([(0, sized(600_000)), (1, sized(600_000)), (2, sized(1_500_000)), (3, sized(3_000_000))]);
        assert_eq!(taken, Taken { room: true, refused: vec![3] });
        let now = boot_ms();
        assert_eq!(numbers(&batcher.to_send(1, now)), [(1, 1), (2, 1)]);
        assert_eq!(numbers(&batcher.to_send(1, now + 2000)), [(1, 1), (2, 1), (3, 1)], "and the others again");
        assert_eq!(batcher.discarded(), 1);
    }

    #[test]
    fn without_an_incarnation_nothing_is_taken() {
        let batcher = begun();
        let _ = batcher.propose([(0, will_done(0))]);
        batcher.end();
        assert_eq!(batcher.propose([(1, will_done(1)), (2, will_done(2))]).refused, [1, 2]);
        assert_eq!(batcher.to_send(1, boot_ms()).len(), 0);
        batcher.begin(4, 0);
        assert!(batcher.applied(4, 1).is_empty());
        assert_eq!(batcher.discarded(), 2);
    }

    #[test]
    fn a_jump_over_batches_under_way_is_seen() {
        let batcher = begun();
        let _ = batcher.propose([(0, will_done(0))]);
        batcher.to_send(1, boot_ms());
        assert!(batcher.has_seen(3, 0) && !batcher.has_seen(3, 1));
        batcher.applied(3, 1);
        assert!(batcher.has_seen(3, 1));
    }
}
