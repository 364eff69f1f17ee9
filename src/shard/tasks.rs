//! The tasks of a shard: its mailbox, its flusher and its timers. Those of connections and of links to other nodes begin here too.
//!
//! Owner: none; the state is the shard's, borrowed for a turn and never across a wait. Test to read first: those of `mailbox`.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::limits;
use crate::subscriptions::ShardId;

use super::connection::ConnectionTask;
use super::from_peers::LinkTask;
use super::peers::PeerTask;
use super::{Shard, Shared};

/// Runs the shard on the current thread until the runtime is dropped. Call it inside a `LocalSet`. What is returned is the last turn, to be taken
/// before that.
pub fn spawn(shard: Shard) -> impl FnOnce() {
    let shared = shard.shared.clone();
    let id = shard.id;
    let shard = Rc::new(RefCell::new(shard));
    tokio::task::spawn_local(run_mailbox(shard.clone(), shared.clone(), id));
    tokio::task::spawn_local(run_flusher(shard.clone()));
    tokio::task::spawn_local(run_timers(shard.clone()));
    move || shard.borrow_mut().flush_turn()
}

async fn run_mailbox(shard: Rc<RefCell<Shard>>, shared: Arc<Shared>, id: ShardId) {
    loop {
        shared.mailboxes[usize::from(id)].arrived().await;
        let unborn = {
            let mut this = shard.borrow_mut();
            this.now = shared.clock.now();
            this.take_mail();
            this.settle();
            std::mem::take(&mut this.unborn)
        };
        for (key, serial) in unborn {
            tokio::task::spawn_local(ConnectionTask::new(shard.clone(), key, serial));
        }
        let (peers, links) = {
            let mut this = shard.borrow_mut();
            (std::mem::take(&mut this.unborn_peers), std::mem::take(&mut this.unborn_links))
        };
        for (slot, serial) in peers {
            tokio::task::spawn_local(PeerTask::new(shard.clone(), slot, serial));
        }
        for (key, serial) in links {
            tokio::task::spawn_local(LinkTask::new(shard.clone(), key, serial));
        }
        // More may have arrived meanwhile: the connections have their turn first.
        tokio::task::yield_now().await;
    }
}

async fn run_flusher(shard: Rc<RefCell<Shard>>) {
    poll_fn::<(), _>(|cx| {
        let mut this = shard.borrow_mut();
        this.flush_turn();
        if this.has_to_flush() {
            cx.waker().wake_by_ref();
        } else {
            this.flusher = Some(cx.waker().clone());
        }
        Poll::Pending
    })
    .await;
}

/// Looks at the sockets before timers that fell due while the process stood still.
const TURNS_AFTER_FREEZE: usize = 8;

async fn run_timers(shard: Rc<RefCell<Shard>>) {
    let mut tick = tokio::time::interval(Duration::from_millis(limits::TIMER_TICK_MS));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last = shard.borrow().shared.clock.now();
    loop {
        tick.tick().await;
        if shard.borrow().shared.clock.now() > last + limits::FROZEN_MS {
            // The process has stood still: what clients sent meanwhile is read before their silence is judged.
            for _ in 0..TURNS_AFTER_FREEZE {
                tokio::task::yield_now().await;
            }
        }
        let mut this = shard.borrow_mut();
        this.now = this.shared.clock.now();
        let now = this.now;
        last = now;
        this.connect_delayed();
        this.look_after_shares();
        this.look_after_cluster();
        this.metrics().beat_at.set(now);
        while let Some(key) = this.timers.pop_due(now) {
            this.timer_due(key);
            this.settle();
        }
    }
}
