//! How clients are let go without a storm: a few at a time, and only as long as they come back elsewhere. [pure]
//!
//! A [`Pace`] closes so many connections, in small batches at a rate, with a gap between batches that a die stretches and shortens; it stops for a while when too few of those that were closed
//! have come back on other nodes, and gives up when they do not. A [`Drain`] is what a node does that is to be taken away: it is *not ready* for a while, so that load balancers notice; it *stops accepting*; it
//! closes what there is by its pace; it has sessions and leadership handed over; and it is *drained* only when the others can do without it. Each step is taken in [`Drain::step`], which is asked again and again with what is seen.
//!
//! Owner: the node (`node::draining`). Invariants: no more is closed than there was to close; no batch is larger than the rate and the longest gap allow; a drain never ends drained while
//! the quorum is critical.
//!
//! Tests to read first: `tests::the_order_of_a_drain`.

use std::collections::VecDeque;

/// The gap between two batches, before a die makes it half or one and a half of that.
const GAP_MS: u64 = 500;

/// Who was closed so long ago should be back elsewhere.
pub const RETURN_MS: u64 = 10_000;

/// So few that do not come back say nothing.
const RETURNS_COUNT_MIN: u64 = 10;

/// A pause that has lasted so long is the end of it.
pub const PAUSE_MAX_MS: u64 = 60_000;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How long the node is not ready and accepts all the same.
    pub grace_ms: u64,
    /// In which time all are closed, when no rate is said.
    pub spread_ms: u64,
    /// Connections a second.
    pub rate: Option<u32>,
    /// Of a hundred that were closed, so many must come back; 0: nobody looks.
    pub returns_min_percent: u32,
}

/// What there is at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    pub now: u64,
    /// Here, and on all other nodes; `None` if one of these does not say.
    pub connections: u64,
    pub elsewhere: Option<u64>,
    /// Connections a second that the others have shown to take, together; 0: not known.
    pub capacity: u32,
    /// The others could not do without one more voter.
    pub critical: bool,
    /// Copies of the sessions are complete elsewhere, all that was written down is kept, and another node leads.
    pub handed_over: bool,
    /// Random.
    pub die: u32,
}

/// Why it does not go on, or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hitch {
    /// Too few have come back elsewhere.
    TooFewReturn { due: u64, back: u64 },
    /// Another node does not say how many clients it has.
    NodesSilent,
    /// The quorum would be lost with this node.
    QuorumCritical,
    /// Sessions or leadership are not handed over yet.
    HandingOver,
}

/// What a pace wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stride {
    Close(u32),
    Wait,
    /// All of them were closed.
    Over,
    GiveUp(Hitch),
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Connections a second, and how many may be closed.
    rate: u32,
    left: u64,
    returns_min_percent: u32,
    /// How many there were elsewhere when it began.
    baseline: Option<u64>,
    closed: u64,
    /// When they were closed, and how many then in all.
    batches: VecDeque<(u64, u64)>,
    /// Closed longer ago than [`RETURN_MS`].
    due: u64,
    next_at: u64,
    /// Thousandths of a connection that rounding left to the next batch.
    rest: u64,
    paused: Option<(u64, Hitch)>,
}

impl Pace {
    /// To close `count` connections. The rate is what was asked for, or what spreads them over the time; never more than others have shown to take.
    pub fn new(terms: &Terms, count: u64, seen: &Seen) -> Pace {
        let spread = count.saturating_mul(1_000).div_ceil(terms.spread_ms.max(1));
        let asked = terms.rate.map_or(spread, u64::from);
        let capped = if terms.rate.is_none() && seen.capacity > 0 { asked.min(seen.capacity.into()) } else { asked };
        Pace {
            rate: u32::try_from(capped).unwrap_or(u32::MAX).max(1),
            left: count,
            returns_min_percent: terms.returns_min_percent,
            baseline: seen.elsewhere,
            closed: 0,
            batches: VecDeque::new(),
            due: 0,
            next_at: seen.now,
            rest: 0,
            paused: None,
        }
    }

    pub fn rate(&self) -> u32 {
        self.rate
    }

    pub fn closed(&self) -> u64 {
        self.closed
    }

    /// How many more there are elsewhere than when it began.
    pub fn returned(&self, seen: &Seen) -> Option<u64> {
        Some(seen.elsewhere?.saturating_sub(self.baseline?))
    }

    /// How many are still to be closed.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn hitch(&self) -> Option<Hitch> {
        self.paused.map(|(_, hitch)| hitch)
    }

    /// How long the rest takes if nothing comes in between.
    pub fn eta_ms(&self, connections: u64) -> u64 {
        self.left.min(connections).saturating_mul(1_000) / u64::from(self.rate)
    }

    /// What to do now. `Close` is done by then.
    pub fn step(&mut self, seen: &Seen) -> Stride {
        while let Some((at, closed)) = self.batches.front().copied()
            && at + RETURN_MS <= seen.now
        {
            self.due = closed;
            self.batches.pop_front();
        }
        match self.look(seen) {
            Some(hitch) => {
                let (since, _) = *self.paused.get_or_insert((seen.now, hitch));
                self.paused = Some((since, hitch));
                return if since + PAUSE_MAX_MS <= seen.now { Stride::GiveUp(hitch) } else { Stride::Wait };
            }
            None if self.paused.take().is_some() => self.next_at = seen.now,
            None => {}
        }
        let open = self.left.min(seen.connections);
        if open == 0 {
            return Stride::Over;
        }
        if seen.now < self.next_at {
            return Stride::Wait;
        }
        self.batch(open, seen)
    }

    fn batch(&mut self, open: u64, seen: &Seen) -> Stride {
        let slow = 1_000_u64.div_ceil(self.rate.into()).max(GAP_MS);
        let gap = slow / 2 + u64::from(seen.die) % slow;
        let thousandths = u64::from(self.rate) * gap + self.rest;
        let count = (thousandths / 1_000).min(open).max(u64::from(self.closed == 0));
        self.rest = thousandths % 1_000;
        self.next_at = seen.now + gap;
        if count == 0 {
            return Stride::Wait;
        }
        self.left -= count;
        self.closed += count;
        self.batches.push_back((seen.now, self.closed));
        Stride::Close(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn look(&mut self, seen: &Seen) -> Option<Hitch> {
        if self.returns_min_percent == 0 {
            return None;
        }
        let Some(elsewhere) = seen.elsewhere else { return Some(Hitch::NodesSilent) };
        let back = elsewhere.saturating_sub(*self.baseline.get_or_insert(elsewhere));
        let due = self.due;
        let few = due >= RETURNS_COUNT_MIN && back * 100 < due * u64::from(self.returns_min_percent);
        few.then_some(Hitch::TooFewReturn { due, back })
    }
}

/// Where a drain is.
#[derive(Debug, Clone)]
pub enum Phase {
    NotReady {
        until: u64,
    },
    Closing(Pace),
    HandingOver(Hitch),
    Drained,
    /// Given up: the node accepts again.
    Aborted(Hitch),
}

/// What a drain wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Wait,
    StopAccepting,
    Close(u32),
    HandOver,
    /// Nothing more is to be done.
    Drained,
    /// Accept again.
    Abort,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Drain {
    terms: Terms,
    phase: Phase,
    /// Connections when it began.
    pub began_with: u64,
}

impl Drain {
    /// From here on the node is not ready.
    pub fn begin(terms: Terms, seen: &Seen) -> Drain {
        let phase = Phase::NotReady { until: seen.now + terms.grace_ms };
        Drain { terms, phase, began_with: seen.connections }
    }

    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// How long it takes until nobody is left, if nothing comes in between.
    pub fn eta_ms(&self, seen: &Seen) -> u64 {
        match &self.phase {
            Phase::NotReady { until } => {
                until.saturating_sub(seen.now) + Pace::new(&self.terms, seen.connections, seen).eta_ms(seen.connections)
            }
            Phase::Closing(pace) => pace.eta_ms(seen.connections),
            _ => 0,
        }
    }

    /// What is to be done now; what it says is taken for done the next time.
    pub fn step(&mut self, seen: &Seen) -> Step {
        match &mut self.phase {
            Phase::NotReady { until } if seen.now < *until => Step::Wait,
            Phase::NotReady { .. } => {
                self.phase = Phase::Closing(Pace::new(&self.terms, seen.connections, seen));
                Step::StopAccepting
            }
            Phase::Closing(pace) => match pace.step(seen) {
                Stride::Close(count) => Step::Close(count),
                Stride::Wait => Step::Wait,
                // Who was on the way in when accepting stopped goes too.
                Stride::Over if seen.connections > 0 => {
                    pace.left = seen.connections;
                    Step::Wait
                }
                Stride::Over => {
                    self.phase = Phase::HandingOver(Hitch::HandingOver);
                    Step::HandOver
                }
                Stride::GiveUp(hitch) => {
                    self.phase = Phase::Aborted(hitch);
                    Step::Abort
                }
            },
            Phase::HandingOver(hitch) => {
                *hitch = if seen.critical { Hitch::QuorumCritical } else { Hitch::HandingOver };
                if seen.critical {
                    return Step::Wait;
                }
                if !seen.handed_over {
                    return Step::HandOver;
                }
                self.phase = Phase::Drained;
                Step::Drained
            }
            Phase::Drained | Phase::Aborted(_) => Step::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn terms() -> Terms {
        Terms { grace_ms: 1_000, spread_ms: 10_000, rate: None, returns_min_percent: 50 }
    }

    fn seen(now: u64, connections: u64, elsewhere: u64) -> Seen {
        Seen { now, connections, elsewhere: Some(elsewhere), handed_over: true, ..Seen::default() }
    }

    /// What a drain does, one look every 100 ms, when `returning` of a hundred clients come back at once. Ends with it, or after so long.
    fn script(
        terms: Terms,
        clients: u64,
        returning: u64,
        die: u32,
        look: impl Fn(&mut Seen),
    ) -> (Vec<(u64, Step)>, Drain) {
        let (mut here, mut closed, mut done) = (clients, 0, Vec::new());
        let mut drain = Drain::begin(terms, &seen(0, clients, 7));
        for now in (0..400_000).step_by(100) {
            let mut sight = seen(now, here, 7 + closed * returning / 100);
            sight.die = die.wrapping_mul(now as u32 + 1);
            look(&mut sight);
            let step = drain.step(&sight);
            if let Step::Close(count) = step {
                assert!(u64::from(count) <= here, "more than there are");
                here -= u64::from(count);
                closed += u64::from(count);
            }
            if step != Step::Wait {
                done.push((now, step));
            }
            if matches!(step, Step::Drained | Step::Abort) {
                break;
            }
        }
        (done, drain)
    }

    #[test]
    fn the_order_of_a_drain() {
        let (done, _) = script(terms(), 300, 100, 0, |_| {});
        assert_eq!(done[0], (1_000, Step::StopAccepting), "the load balancer has its time first");
        assert!(matches!(done[1], (1_100, Step::Close(_))), "{:?}", done[1]);
        let closes: Vec<_> = done.iter().filter(|(_, step)| matches!(step, Step::Close(_))).collect();
        assert!(closes.len() > 20, "small batches: {}", closes.len());
        let last = closes.last().unwrap().0;
        assert!((9_000..13_000).contains(&last), "spread over ten seconds: {last}");
        assert_eq!(done[done.len() - 2].1, Step::HandOver);
        assert_eq!(done[done.len() - 1].1, Step::Drained);
    }

    #[test]
    fn nobody_is_closed_once_too_few_have_come_back() {
        let (done, drain) = script(Terms { spread_ms: 60_000, ..terms() }, 3_000, 20, 0, |_| {});
        let closed: u64 =
            done.iter().map(|(_, step)| if let Step::Close(count) = step { u64::from(*count) } else { 0 }).sum();
        assert!(closed < 700, "those of the first ten seconds: {closed}");
        assert_eq!(done.last().unwrap().1, Step::Abort);
        assert!(matches!(drain.phase(), Phase::Aborted(Hitch::TooFewReturn { .. })), "{:?}", drain.phase());
        let (done, _) = script(Terms { returns_min_percent: 0, ..terms() }, 3_000, 0, 0, |_| {});
        assert_eq!(done.last().unwrap().1, Step::Drained, "nobody was to look");
    }

    #[test]
    fn it_goes_on_when_they_come_back_after_all() {
        let late = |sight: &mut Seen| {
            if sight.now < 40_000 {
                sight.elsewhere = Some(7);
            }
        };
        let (done, _) = script(Terms { spread_ms: 60_000, ..terms() }, 600, 100, 0, late);
        assert_eq!(done.last().unwrap().1, Step::Drained);
        let gap = done.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
        assert!(gap > 20_000, "it has paused: {gap}");
    }

    #[test]
    fn nodes_that_do_not_answer_hold_it_up() {
        let (done, drain) = script(terms(), 300, 100, 0, |sight| sight.elsewhere = None);
        assert!(done.iter().all(|(_, step)| !matches!(step, Step::Close(_))), "{done:?}");
        assert!(matches!(drain.phase(), Phase::Aborted(Hitch::NodesSilent)));
    }

    #[test]
    fn it_does_not_finish_while_the_quorum_needs_the_node() {
        let (done, drain) = script(terms(), 30, 100, 0, |sight| sight.critical = sight.now < 300_000);
        let (at, last) = *done.last().unwrap();
        assert!(at >= 300_000 && last == Step::Drained, "{at} {last:?}");
        assert!(matches!(drain.phase(), Phase::Drained));
        let (done, _) = script(terms(), 30, 100, 0, |sight| sight.handed_over = sight.now > 200_000);
        assert!(done.last().unwrap().0 > 200_000, "nor before its sessions are elsewhere");
    }

    #[test]
    fn the_rate_is_what_the_others_can_take() {
        let rate = |rate, capacity| {
            let sight = Seen { capacity, ..seen(0, 6_000, 0) };
            Pace::new(&Terms { rate, ..terms() }, 6_000, &sight).rate()
        };
        assert_eq!(rate(None, 0), 600, "connections by spread");
        assert_eq!(rate(None, 200), 200);
        assert_eq!(rate(None, 9_000), 600);
        assert_eq!(rate(Some(50), 9_000), 50);
        assert_eq!(rate(Some(900), 200), 900, "who says a number means it");
        let drain = Drain::begin(terms(), &seen(0, 6_000, 0));
        assert_eq!(drain.eta_ms(&Seen { capacity: 200, ..seen(0, 6_000, 0) }), 1_000 + 30_000);
    }

    #[test]
    fn a_slow_rate_is_held() {
        let (done, _) = script(Terms { rate: Some(2), ..terms() }, 20, 100, 3, |_| {});
        assert!(done.iter().all(|(_, step)| !matches!(step, Step::Close(count) if *count > 2)), "{done:?}");
        let last = done.last().unwrap().0;
        assert!((8_000..13_000).contains(&last), "{last}");
    }

    #[test]
    fn a_pace_closes_no_more_than_it_was_told() {
        let mut pace = Pace::new(&Terms { rate: Some(100), ..terms() }, 30, &seen(0, 500, 0));
        let (mut closed, mut now) = (0, 0);
        loop {
            match pace.step(&seen(now, 500 - closed, closed)) {
                Stride::Close(count) => closed += u64::from(count),
                Stride::Over => break,
                Stride::Wait => {}
                Stride::GiveUp(hitch) => panic!("{hitch:?}"),
            }
            now += 50;
        }
        assert_eq!((closed, pace.closed(), pace.returned(&seen(now, 470, 30))), (30, 30, Some(30)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever the die says, everybody is closed once, about as fast as the rate says, and no batch is much of it.
        #[test]
        fn dice_change_neither_the_rate_nor_the_end(clients in 1_u64..5_000, rate in 1_u32..2_000, die: u32) {
            let (done, _) = script(Terms { rate: Some(rate), ..terms() }, clients, 100, die, |_| {});
            let counts: Vec<u64> =
                done.iter().filter_map(|(_, step)| if let Step::Close(count) = step { Some(u64::from(*count)) } else { None }).collect();
            let whole = clients * 1_000 / u64::from(rate) < 390_000;
            if whole {
                prop_assert_eq!(counts.iter().sum::<u64>(), clients);
                prop_assert_eq!(done.last().unwrap().1, Step::Drained);
            }
            let most = u64::from(rate) * 3 / 4 + 2;
            prop_assert!(counts.iter().all(|count| *count <= most), "{:?} at {}", counts.iter().max(), rate);
        }
    }
}
