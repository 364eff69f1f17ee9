//! The seat of this node in the group: its run, its incarnation, its grant, and the batches that it has under way.
//!
//! All changes of the grant are reported to the [`Audience`] under one lock, so they arrive in the order in which they happened.
//!
//! Test to read first: those of `group` about suspended and expired nodes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::batcher::Batcher;
use crate::clock::{boot_ms, wall_ms};
use crate::command::{Effect, Incarnation, NodeId, Outcome};
use crate::liveness::{Standing, Tenure, Timing};
use crate::state::ControlState;

/// What came of one entry of the log.
#[derive(Debug)]
pub struct AppliedEntry {
    /// Place in the log.
    pub index: u64,
    /// What became of commands that this node proposed, in the order in which it did.
    pub own: Vec<(crate::batcher::Ticket, Outcome)>,
    /// What follows, in order, for all nodes; it happens before anything is done about `own`.
    pub effects: Vec<Effect>,
    /// Routes were added, or a cut was made: somebody waits to hear that all shards route with this index.
    pub asked: bool,
    /// The incarnation that this process has, or has got by this entry. Without one, and that is so while the log of an earlier run is applied once more, what follows for
    /// sessions and Wills is nothing for this node to do: it hears of what is still to be done when it is registered.
    pub incarnation: Option<Incarnation>,
}

/// Who is told what happens in the group. Nothing here may block, or call the group while the state is locked.
pub trait Audience: Send + Sync + 'static {
    /// An entry was applied. In the order of the log, while the state is locked: [`Group::read`](crate::Group::read) would wait for ever.
    fn applied(&self, entry: AppliedEntry);

    /// The state was replaced by `state`, and `effects` is what that brings, as if all commands between had been applied here. Also once at a
    /// start, before anything is applied, if something was on disk. While the state is locked.
    fn installed(&self, state: &ControlState, effects: Vec<Effect>);

    /// Until when this node may acknowledge, deliver and publish, in milliseconds of the boot clock ([`clock::boot_ms`](crate::clock::boot_ms)); a time that
    /// has passed: it is suspended. `None`: its incarnation is over, and commands that it has proposed are not answered any more.
    /// The group must not be called from here.
    fn granted(&self, until: Option<u64>);

    /// All shards of `node` route with the state of `index`.
    fn applied_by(&self, node: NodeId, index: u64);
}

/// See the module.
pub(crate) struct Seat {
    pub me: NodeId,
    pub batcher: Batcher,
    audience: Arc<dyn Audience>,
    sitting: Mutex<Sitting>,
    incarnation: watch::Sender<Option<Incarnation>>,
}

struct Sitting {
    tenure: Tenure,
    run: u64,
    /// That run has had an incarnation, which is over.
    worn: bool,
    reported: Option<Standing>,
    /// Somebody waits to be registered.
    wanted: bool,
    /// The process stops: no incarnation begins any more.
    closed: bool,
}

impl Seat {
    pub fn new(me: NodeId, run: u64, timing: Timing, audience: Arc<dyn Audience>) -> Seat {
        let tenure = Tenure::new(timing);
        let sitting = Sitting { tenure, run, worn: false, reported: None, wanted: false, closed: false };
        Seat {
            me,
            batcher: Batcher::default(),
            audience,
            sitting: Mutex::new(sitting),
            incarnation: watch::Sender::new(None),
        }
    }

    pub fn audience(&self) -> &dyn Audience {
        &*self.audience
    }

    /// The incarnation that is not over.
    pub fn incarnation(&self) -> Option<Incarnation> {
        *self.incarnation.borrow()
    }

    pub fn watch(&self) -> watch::Receiver<Option<Incarnation>> {
        self.incarnation.subscribe()
    }

    /// Asks to be registered. After an incarnation that is over, under a new run: for the state it is another start.
    pub fn want(&self, wanted: bool, next_run: impl FnOnce() -> u64) {
        let mut sitting = self.sitting.lock();
        sitting.wanted = wanted && !sitting.closed;
        if wanted && sitting.worn {
            sitting.run = next_run();
            sitting.worn = false;
        }
    }

    /// The run to register, while somebody waits for it.
    pub fn wanted(&self) -> Option<u64> {
        let sitting = self.sitting.lock();
        let wanted = sitting.wanted && !sitting.worn && self.incarnation().is_none();
        wanted.then_some(sitting.run)
    }

    /// `run` is registered, with `number` batches applied.
    pub fn registered(&self, run: u64, incarnation: Incarnation, number: u64) {
        let mut sitting = self.sitting.lock();
        if sitting.run != run || sitting.worn || sitting.closed || self.incarnation() == Some(incarnation) {
            return;
        }
        sitting.tenure.registered(incarnation, boot_ms());
        sitting.wanted = false;
        self.batcher.begin(incarnation, number);
        self.incarnation.send_replace(Some(incarnation));
    }

    /// The state says that this incarnation is over, or the leader does.
    pub fn expired(&self, incarnation: Incarnation) {
        let mut sitting = self.sitting.lock();
        sitting.tenure.expired(incarnation);
        self.report(&mut sitting);
    }

    /// Ends the incarnation, if there is one.
    pub fn end(&self) {
        let mut sitting = self.sitting.lock();
        sitting.tenure.end();
        self.report(&mut sitting);
    }

    /// Ends the incarnation, if there is one, and takes no other.
    pub fn close(&self) {
        {
            let mut sitting = self.sitting.lock();
            (sitting.closed, sitting.wanted) = (true, false);
        }
        self.end();
    }

    pub fn renewed(&self, incarnation: Incarnation, sent: u64, granted: u64) {
        let mut sitting = self.sitting.lock();
        sitting.tenure.renewed(incarnation, sent, granted, boot_ms());
        self.report(&mut sitting);
    }

    /// The incarnation whose renewal has to go out now, if one has to. Counts as sent at that time.
    pub fn renewal(&self, now: u64) -> Option<Incarnation> {
        let mut sitting = self.sitting.lock();
        if !sitting.tenure.renewal_due(now) {
            return None;
        }
        sitting.tenure.sent(now);
        sitting.tenure.incarnation()
    }

    /// Looks at the clocks, and at whether there are links to a majority.
    pub fn look(&self, majority_linked: bool) -> Standing {
        let mut sitting = self.sitting.lock();
        sitting.tenure.linked(majority_linked);
        self.report(&mut sitting)
    }

    pub fn standing(&self) -> Standing {
        self.sitting.lock().reported.unwrap_or(Standing::Unregistered)
    }

    fn report(&self, sitting: &mut Sitting) -> Standing {
        let standing = sitting.tenure.standing(boot_ms(), wall_ms());
        if sitting.reported == Some(standing) {
            return standing;
        }
        sitting.reported = Some(standing);
        match standing {
            Standing::Unregistered => {}
            Standing::Granted { until } => self.audience.granted(Some(until)),
            Standing::Suspended => self.audience.granted(Some(0)),
            Standing::Ended => {
                sitting.worn = true;
                self.batcher.end();
                self.incarnation.send_replace(None);
                self.audience.granted(None);
            }
        }
        standing
    }
}
