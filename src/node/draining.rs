//! Emptying this node, or part of it: what [`Drain`] and [`Pace`] decide, done to listeners and shards.
//!
//! One work at a time: a drain, which ends when it is undone, or the shedding of some connections to nodes that have fewer. A task looks every [`LOOK_MS`], asks the other nodes how many clients they have, and does what
//! the machine says. The end of the process by a signal is a drain as well, with a time by which it is over whoever comes back.
//!
//! Owner: the node, one for its life. Invariants: the doors are shut for a drain exactly from its `StopAccepting` to its end; a task whose work was replaced does nothing more.
//!
//! Tests to read first: those of `cluster::draining`, then `cluster-tests/tests/cluster/draining.rs`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{error, info, warn};

use crate::admin::{Soon, Trouble, view};
use crate::cluster::draining::{Drain, Hitch, Pace, Phase, Seen, Step, Stride, Terms};
use crate::config;
use crate::listener::tcp;
use crate::mqtt::ReasonCode;
use crate::shard::Shared;
use crate::shard::greeted::ListenerState;
use crate::shard::greeted::doors::ShutFor;
use crate::shard::mailbox::Event;

/// How often it is looked what is to be done.
const LOOK_MS: u64 = 100;

/// So many connections at the end of a process are no storm: they are closed at once.
pub(super) const AT_ONCE: u64 = 200;

/// What a node takes in a second, before it has shown more, for each event loop.
const HANDSHAKES_UNSEEN: u32 = 100;

/// What the other nodes say, and what is done with them.
pub(super) trait Others: Send + Sync {
    /// How many clients they have together (`None` if one does not answer), how many more they take, and how many a second.
    fn look(&self) -> Soon<'_, Crowd>;

    /// Whether the others could not do without this node.
    fn is_critical(&self) -> bool;

    /// Goes on handing sessions and leadership over. Whether that is done.
    fn hand_over(&self) -> Soon<'_, bool>;
}

/// The clients of all other nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Crowd {
    pub nodes: usize,
    pub connections: Option<u64>,
    pub headroom: u64,
    pub capacity: u32,
}

/// What this node does with its clients.
enum Work {
    Drain(Drain),
    Shed(Pace, Option<Hitch>),
}

struct Stand {
    /// Which work it is: a task that knows another number is not wanted any more.
    serial: u64,
    work: Option<Work>,
    elsewhere: Arc<str>,
    crowd: Crowd,
}

/// See the module.
pub(super) struct Draining {
    shared: Arc<Shared>,
    listeners: Vec<Arc<ListenerState>>,
    defaults: config::Shutdown,
    others: OnceLock<Arc<dyn Others>>,
    stand: Mutex<Stand>,
    /// The most clients that came in one second.
    handshakes: AtomicU32,
    closed_total: AtomicU64,
}

impl Draining {
    pub fn new(shared: Arc<Shared>, listeners: Vec<Arc<ListenerState>>, defaults: config::Shutdown) -> Arc<Draining> {
        let stand = Stand { serial: 0, work: None, elsewhere: "".into(), crowd: Crowd::default() };
        let handshakes = AtomicU32::new(HANDSHAKES_UNSEEN * shared.mailboxes.len() as u32);
        Arc::new(Draining {
            shared,
            listeners,
            defaults,
            others: OnceLock::new(),
            stand: Mutex::new(stand),
            handshakes,
            closed_total: AtomicU64::new(0),
        })
    }

    /// The node is one of several.
    pub fn set_others(&self, others: Arc<dyn Others>) {
        // A node starts once.
        let _ = self.others.set(others);
    }

    pub fn connections(&self) -> u64 {
        self.shared.metrics.sum(|shard| &shard.connections)
    }

    /// Connections that a drain or a shedding has closed since the start.
    pub fn closed_total(&self) -> u64 {
        self.closed_total.load(Ordering::Relaxed)
    }

    /// Connections that a drain has still to close.
    pub fn remaining(&self) -> u64 {
        if self.is_draining() { self.connections() } else { 0 }
    }

    /// Whether clients are to go elsewhere.
    pub fn is_draining(&self) -> bool {
        match &self.stand.lock().work {
            Some(Work::Drain(drain)) => !matches!(drain.phase(), Phase::Aborted(_)),
            _ => false,
        }
    }

    /// Notes how many come in a second, for ever.
    pub async fn measure(self: Arc<Self>) {
        let accepted = || self.shared.metrics.sum(|shard| &shard.connections_accepted);
        let mut last = accepted();
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            second.tick().await;
            let now = accepted();
            self.handshakes.fetch_max(u32::try_from(now - last).unwrap_or(u32::MAX), Ordering::Relaxed);
            last = now;
        }
    }

    /// What this node says of itself to others.
    pub fn load(&self, node: &str) -> view::Load {
        let most: usize = self.listeners.iter().map(|listener| listener.config.max_connections).sum();
        view::Load {
            node: node.to_owned(),
            connections: self.connections(),
            connections_max: most as u64,
            handshakes_per_sec: self.handshakes.load(Ordering::Relaxed),
            sessions: self.shared.metrics.sum(|shard| &shard.sessions),
            drain: self.told(),
        }
    }

    fn told(&self) -> Option<view::Drain> {
        let stand = self.stand.lock();
        let seen = self.seen(&stand.crowd, false);
        let crowd = &stand.crowd;
        let common = view::Drain { headroom: crowd.headroom, capacity: crowd.capacity, ..view::Drain::default() };
        Some(match stand.work.as_ref()? {
            Work::Drain(drain) => {
                let (pace, hitch) = match drain.phase() {
                    Phase::Closing(pace) => (Some(pace), pace.hitch()),
                    Phase::HandingOver(hitch) | Phase::Aborted(hitch) => (None, Some(*hitch)),
                    Phase::NotReady { .. } | Phase::Drained => (None, None),
                };
                view::Drain {
                    phase: phase(drain.phase()).to_owned(),
                    reason: hitch.map(in_words).unwrap_or_default(),
                    began_with: drain.began_with,
                    remaining: seen.connections,
                    returned: pace.and_then(|pace| pace.returned(&seen)),
                    closed: pace.map_or(drain.began_with.saturating_sub(seen.connections), Pace::closed),
                    rate: pace.map_or(0, Pace::rate),
                    eta_ms: drain.eta_ms(&seen),
                    ..common
                }
            }
            Work::Shed(pace, given_up) => view::Drain {
                phase: if given_up.is_some() {
                    "aborted"
                } else if pace.hitch().is_some() {
                    "paused"
                } else {
                    "shedding"
                }
                .to_owned(),
                reason: given_up.or(pace.hitch()).map(in_words).unwrap_or_default(),
                remaining: pace.left(),
                closed: pace.closed(),
                began_with: pace.closed() + pace.left(),
                returned: pace.returned(&seen),
                rate: pace.rate(),
                eta_ms: pace.eta_ms(u64::MAX),
                ..common
            },
        })
    }

    fn seen(&self, crowd: &Crowd, handed_over: bool) -> Seen {
        Seen {
            now: self.shared.clock.now(),
            connections: self.connections(),
            elsewhere: crowd.connections,
            capacity: crowd.capacity,
            critical: self.others.get().is_some_and(|others| others.is_critical()),
            handed_over,
            die: die(),
        }
    }

    async fn look_around(&self) -> Crowd {
        match self.others.get() {
            Some(others) => others.look().await,
            None => Crowd::default(),
        }
    }

    fn terms(&self, asked: &view::DrainTerms) -> Terms {
        let or = |asked: Option<u64>, default: Duration| asked.unwrap_or(default.as_millis() as u64);
        Terms {
            grace_ms: or(asked.grace_ms, self.defaults.grace),
            spread_ms: or(asked.spread_ms, self.defaults.spread),
            rate: asked.rate.or(self.defaults.rate),
            returns_min_percent: if asked.force { 0 } else { self.defaults.returns_min_percent },
        }
    }

    /// Begins to empty the node; who asks again is told how far it is.
    ///
    /// # Errors
    /// When clients have nowhere to go.
    pub async fn drain(self: &Arc<Self>, asked: view::DrainTerms) -> Result<view::Drain, Trouble> {
        let crowd = self.look_around().await;
        if crowd.nodes == 0 && !asked.force {
            return Err(Trouble::new(409, "no_other_node", "there is no other node that clients could come back to")
                .hint("`--force` (`{\"force\": true}`) lets them go all the same"));
        }
        let (seen, terms) = (self.seen(&crowd, false), self.terms(&asked));
        if !self.is_draining() {
            let elsewhere = asked.redirect.unwrap_or_default().into();
            let begun = Work::Drain(Drain::begin(terms, &seen));
            let serial = self.begin(begun, elsewhere, crowd);
            warn!(
                event = "drain",
                connections = seen.connections,
                "the node is drained: it is not ready, and lets its clients go"
            );
            tokio::spawn(self.clone().run(serial));
        }
        Ok(self.told().unwrap_or_default())
    }

    /// Takes clients again. Whether there was something to be undone.
    pub fn undrain(&self) -> bool {
        let was = {
            let mut stand = self.stand.lock();
            stand.serial += 1;
            stand.work.take().is_some()
        };
        self.open_doors();
        if was {
            info!(event = "drain", "the node is drained no more, and takes clients again");
        }
        was
    }

    /// Lets so many clients go to nodes that have fewer.
    ///
    /// # Errors
    /// When the node is being drained.
    pub async fn shed(self: &Arc<Self>, count: u64, asked: view::DrainTerms) -> Result<(), Trouble> {
        if self.is_draining() {
            return Err(Trouble::new(409, "draining", "the node is being drained, which lets all of its clients go"));
        }
        let crowd = self.look_around().await;
        let pace = Pace::new(&self.terms(&asked), count, &self.seen(&crowd, false));
        info!(event = "rebalance", count, rate = pace.rate(), "clients are let go to nodes that have fewer");
        let serial = self.begin(Work::Shed(pace, None), asked.redirect.unwrap_or_default().into(), crowd);
        tokio::spawn(self.clone().run(serial));
        Ok(())
    }

    /// Ends a shedding; a drain goes on. Whether there was one.
    pub fn keep(&self) -> bool {
        let mut stand = self.stand.lock();
        let sheds = matches!(stand.work, Some(Work::Shed(..)));
        if sheds {
            stand.serial += 1;
            stand.work = None;
        }
        sheds
    }

    fn begin(&self, work: Work, elsewhere: Arc<str>, crowd: Crowd) -> u64 {
        let mut stand = self.stand.lock();
        stand.serial += 1;
        stand.work = Some(work);
        stand.elsewhere = elsewhere;
        stand.crowd = crowd;
        stand.serial
    }

    async fn run(self: Arc<Self>, serial: u64) {
        let mut tick = interval(Duration::from_millis(LOOK_MS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut handed_over = false;
        loop {
            tick.tick().await;
            let crowd = self.look_around().await;
            let seen = self.seen(&crowd, handed_over);
            let Some(step) = self.decide(serial, crowd, &seen) else { return };
            match step {
                Step::Wait => {}
                Step::StopAccepting => self.shut_doors(serial),
                Step::Close(count) => self.close(count),
                Step::HandOver => handed_over = self.hand_over().await,
                Step::Drained => info!(event = "drain", "the node is drained: nobody is left, and it can be stopped"),
                Step::Abort => {
                    self.open_doors();
                    warn!(
                        event = "drain",
                        reason = self.told().unwrap_or_default().reason,
                        "the drain is given up: the node takes clients again"
                    );
                }
            }
        }
    }

    /// `None`: there is nothing more to do.
    fn decide(&self, serial: u64, crowd: Crowd, seen: &Seen) -> Option<Step> {
        let mut stand = self.stand.lock();
        if stand.serial != serial {
            return None;
        }
        stand.crowd = crowd;
        let (step, over) = match stand.work.as_mut()? {
            Work::Drain(drain) => {
                if matches!(drain.phase(), Phase::Drained | Phase::Aborted(_)) {
                    return None;
                }
                (drain.step(seen), false)
            }
            Work::Shed(_, Some(_)) => return None,
            Work::Shed(pace, given_up) => match pace.step(seen) {
                Stride::Close(count) => (Step::Close(count), false),
                Stride::Wait => (Step::Wait, false),
                Stride::Over => (Step::Wait, true),
                Stride::GiveUp(hitch) => {
                    *given_up = Some(hitch);
                    warn!(event = "rebalance", reason = in_words(hitch), "no more clients are let go");
                    (Step::Wait, false)
                }
            },
        };
        if over {
            stand.work = None;
            info!(event = "rebalance", "as many clients were let go as were to be");
            return None;
        }
        Some(step)
    }

    fn shut_doors(&self, serial: u64) {
        // Who undoes the drain meanwhile opens them behind this.
        let stand = self.stand.lock();
        if stand.serial == serial {
            self.listeners.iter().for_each(|listener| listener.doors.shut(ShutFor::Drain));
        }
    }

    fn open_doors(&self) {
        for listener in &self.listeners {
            if let Err(error) = listener.doors.open(ShutFor::Drain, tcp::BACKLOG) {
                error!(event = "listener", listener = listener.config.name, %error, "it cannot listen again: start the node anew");
            }
        }
    }

    /// Asks each shard for its part.
    fn close(&self, count: u32) {
        let elsewhere = self.stand.lock().elsewhere.clone();
        let reason = match &*self.stand.lock() {
            Stand { work: Some(Work::Drain(_)), elsewhere, .. } if elsewhere.is_empty() => {
                ReasonCode::ServerShuttingDown
            }
            _ => ReasonCode::UseAnotherServer,
        };
        self.closed_total.fetch_add(count.into(), Ordering::Relaxed);
        let open: Vec<u64> = self.shared.metrics.shards.iter().map(|shard| shard.connections.get()).collect();
        for (mailbox, count) in self.shared.mailboxes.iter().zip(parts(count, &open)) {
            if count > 0 {
                mailbox.push(Event::CloseSome { count, reason, elsewhere: elsewhere.clone() });
            }
        }
    }

    async fn hand_over(&self) -> bool {
        match self.others.get() {
            Some(others) => others.hand_over().await,
            None => true,
        }
    }

    /// The process is to end: lets clients go by the pace of a drain, as long as its time allows and `hurry` does not come.
    pub async fn end(&self, hurry: impl Future<Output = ()>) {
        let crowd = self.look_around().await;
        let drained = self.is_draining();
        if self.connections() <= AT_ONCE || crowd.nodes == 0 {
            return;
        }
        let asked = view::DrainTerms { force: true, grace_ms: drained.then_some(0), ..view::DrainTerms::default() };
        let (terms, seen) = (self.terms(&asked), self.seen(&crowd, false));
        let budget = Duration::from_millis(terms.grace_ms + terms.spread_ms);
        let serial = self.begin(Work::Drain(Drain::begin(terms, &seen)), "".into(), crowd);
        info!(
            event = "drain",
            connections = seen.connections,
            budget_ms = budget.as_millis() as u64,
            "clients are let go a few at a time before the node ends"
        );
        tokio::select! {
            () = self.until_empty(serial, Instant::now() + budget) => {}
            () = hurry => {}
        }
    }

    async fn until_empty(&self, serial: u64, deadline: Instant) {
        while self.connections() > 0 && Instant::now() < deadline {
            let crowd = self.stand.lock().crowd;
            let seen = self.seen(&crowd, false);
            match self.decide(serial, crowd, &seen) {
                Some(Step::StopAccepting) => self.shut_doors(serial),
                Some(Step::Close(count)) => self.close(count),
                Some(Step::Wait) => {}
                _ => return,
            }
            sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }
}

/// A count as parts of what each has, none of which is more than that; the whole count, as far as all of them reach.
fn parts(count: u32, have: &[u64]) -> Vec<u32> {
    let all: u64 = have.iter().sum();
    let mut left = u64::from(count).min(all);
    let mut parts: Vec<u64> = have.iter().map(|have| left * have / all.max(1)).collect();
    left -= parts.iter().sum::<u64>();
    for (part, have) in parts.iter_mut().zip(have) {
        let more = left.min(have - *part);
        *part += more;
        left -= more;
    }
    parts.into_iter().map(|part| part as u32).collect()
}

fn die() -> u32 {
    let mut bytes = [0; 4];
    // Without a random source all gaps are the shortest, and the rate is the same.
    let _ = getrandom::fill(&mut bytes);
    u32::from_be_bytes(bytes)
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::NotReady { .. } => "not_ready",
        Phase::Closing(pace) if pace.hitch().is_some() => "paused",
        Phase::Closing(_) => "closing",
        Phase::HandingOver(Hitch::HandingOver) => "handing_over",
        Phase::HandingOver(_) => "waiting",
        Phase::Drained => "drained",
        Phase::Aborted(_) => "aborted",
    }
}

fn in_words(hitch: Hitch) -> String {
    match hitch {
        Hitch::TooFewReturn { due, back } => {
            format!("too few clients come back elsewhere: {back} of the {due} that were let go more than 10 s ago")
        }
        Hitch::NodesSilent => "another node does not say how many clients it has".to_owned(),
        Hitch::QuorumCritical => {
            "quorum_critical: without this node there would be no majority; start the other voters first".to_owned()
        }
        Hitch::HandingOver => "copies of sessions or the leadership are not with other nodes yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_gets_its_part_and_none_more_than_it_has() {
        assert_eq!(parts(10, &[50, 50]), [5, 5]);
        assert_eq!(parts(3, &[1, 100, 0]), [1, 2, 0]);
        assert_eq!(parts(9, &[2, 2]), [2, 2]);
        assert_eq!(parts(5, &[0, 0]), [0, 0]);
        for count in 0..40 {
            let have = [3, 0, 17, 9, 1];
            let parts = parts(count, &have);
            assert_eq!(parts.iter().sum::<u32>(), count.min(30));
            assert!(parts.iter().zip(have).all(|(part, have)| u64::from(*part) <= have));
        }
    }
}
