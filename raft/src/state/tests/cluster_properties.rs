//! What holds for every sequence of commands of three nodes that start, die, come back, claim sessions, settle and give up.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::*;
use super::*;

/// What is done next. Where it says `right`, the epoch is the one that fits, else a guess.
#[derive(Debug, Clone)]
enum Act {
    Lease(NodeId, Command),
    Detach { client: &'static str, fate: WillFate, expiry_secs: u32 },
    Settle(&'static str),
    Withdraw(&'static str),
    Cut(&'static str),
    WillDone(usize),
    Register { node: NodeId, run: u64, intact: bool },
    Expire(NodeId),
    PassOn(NodeId),
    Forget(NodeId),
    Fill(NodeId, Vec<NodeId>),
    Filled(NodeId),
    Inherited(usize),
    Found(NodeId),
    Lost(&'static str),
}

impl Act {
    /// Who does it, and by which command, as things stand.
    fn resolve(&self, state: &ControlState) -> Option<(NodeId, Command)> {
        let claim = |client: &str| state.claim(client);
        Some(match self.clone() {
            Act::Lease(by, command) => (by, command),
            Act::Detach { client, fate, expiry_secs } => {
                let session = state.session(client)?;
                (session.holder, detach(client, session.epoch, fate, expiry_secs))
            }
            Act::Settle(client) => claim(client).map(|claim| (claim.by, settle(client, claim.epoch)))?,
            Act::Withdraw(client) => claim(client).map(|claim| (claim.by, withdraw(client, claim.epoch)))?,
            Act::Cut(client) => claim(client).map(|claim| (claim.by, cut(client, claim.epoch, &["a/#"])))?,
            Act::WillDone(which) => {
                let due = state.wills.iter().filter_map(|(client, epoch, will)| match will.publisher {
                    wills::Publisher::Node(slot, _) => Some((state.nodes.id(slot), will_done(client, epoch))),
                    wills::Publisher::Nobody { .. } => None,
                });
                due.take(which + 1).last()?
            }
            Act::Register { node, run, intact } => (LEADER, restart(node, run, intact)),
            Act::Expire(node) => (LEADER, expire(node, state.incarnation(node)?)),
            Act::PassOn(node) => (LEADER, pass_on(node, state.incarnation(node)?)),
            Act::Forget(node) => (LEADER, Command::Forget { node }),
            Act::Fill(node, next) => (node, fill(&next)),
            Act::Filled(node) => (node, filled(state.heirs(node)?.next?.0)),
            Act::Inherited(which) => {
                let pending = state.orphans().flat_map(|(node, incarnation, heirs)| {
                    heirs.into_iter().map(move |heir| (heir, inherited(node, incarnation)))
                });
                pending.take(which + 1).last()?
            }
            Act::Found(node) => (node, found(&["c", "d"])),
            Act::Lost(client) => state.session(client).map(|session| (session.holder, lost(client, session.epoch)))?,
        })
    }
}

fn any_node() -> impl Strategy<Value = NodeId> {
    prop_oneof![Just(A), Just(B), Just(C)]
}

fn any_act() -> impl Strategy<Value = Act> {
    let client = || prop_oneof![Just("c"), Just("d")];
    let expiry = || prop_oneof![2 => Just(0_u32), 3 => 1_u32..4, 3 => Just(NEVER_EXPIRES)];
    let fate = prop_oneof![3 => Just(WillFate::Keep), 1 => Just(WillFate::Drop)];
    let will = prop::option::of(prop_oneof![0_u32..4, Just(u32::MAX)]);
    let acquire = (any_node(), client(), prop::bool::weighted(0.3), expiry(), will)
        .prop_map(|(by, client, clean, expiry, will)| Act::Lease(by, acquire(client, clean, expiry, will)));
    let detach =
        (client(), fate, expiry()).prop_map(|(client, fate, expiry_secs)| Act::Detach { client, fate, expiry_secs });
    let register = (any_node(), any::<u64>(), prop::bool::weighted(0.7))
        .prop_map(|(node, run, intact)| Act::Register { node, run, intact });
    prop_oneof![
        8 => acquire,
        4 => detach,
        4 => client().prop_map(Act::Settle),
        2 => client().prop_map(Act::Withdraw),
        2 => client().prop_map(Act::Cut),
        3 => (0_usize..4).prop_map(Act::WillDone),
        3 => register,
        2 => any_node().prop_map(Act::Expire),
        1 => any_node().prop_map(Act::PassOn),
        1 => any_node().prop_map(Act::Forget),
        2 => (any_node(), prop::collection::vec(any_node(), 0..3)).prop_map(|(node, next)| {
            Act::Fill(node, next.into_iter().filter(|heir| *heir != node).collect())
        }),
        1 => (any_node(), any_node()).prop_map(|(node, heir)| Act::Fill(node, vec![heir])),
        3 => any_node().prop_map(Act::Filled),
        3 => (0_usize..3).prop_map(Act::Inherited),
        2 => any_node().prop_map(Act::Found),
        1 => client().prop_map(Act::Lost),
        3 => (any_node(), any_command()).prop_map(|(by, command)| Act::Lease(by, command)),
        3 => Just(Act::Lease(LEADER, Command::Tick)),
    ]
}

fn any_acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let after = prop_oneof![5 => Just(0_u64), 2 => Just(500), 2 => Just(1_000), 1 => Just(5_000)];
    let heirs = |home: NodeId| {
        let others = [A, B, C].into_iter().filter(|other| *other != home).collect();
        [(0, Act::Fill(home, others)), (0, Act::Filled(home))]
    };
    let begin = [A, B, C].map(heirs).concat();
    let acts = prop::collection::vec((after, any_act()), 1..60);
    // Most of them with heirs from the beginning.
    (prop::bool::weighted(0.7), acts).prop_map(
        move |(filled, acts)| {
            if filled { begin.iter().cloned().chain(acts).collect() } else { acts }
        },
    )
}

/// One step of a run: the state before it, what was done, what came of it, and the state behind it.
struct Taken<'a> {
    before: &'a ControlState,
    by: NodeId,
    command: &'a Command,
    applied: &'a Applied,
    after: &'a ControlState,
}

fn run(acts: &[(u64, Act)], mut each: impl FnMut(&Taken<'_>)) -> ControlState {
    let (mut state, mut now) = (three_nodes(), 0);
    for (after, act) in acts {
        now += after;
        let Some((by, command)) = act.resolve(&state) else {
            continue;
        };
        let before = state.clone();
        let applied = apply(&mut state, now, by, command.clone());
        each(&Taken { before: &before, by, command: &command, applied: &applied, after: &state });
    }
    state
}

/// What a node makes of the effects: all that it has to know of the others.
#[derive(Debug, Clone, Default, PartialEq)]
struct Mirror {
    live: BTreeMap<NodeId, Incarnation>,
    routes: BTreeSet<(Arc<str>, NodeId)>,
    shares: BTreeMap<(ShareRoute, NodeId), ShareMembers>,
    wills: BTreeMap<(ClientId, SessionEpoch), NodeId>,
    claims: BTreeMap<ClientId, (SessionEpoch, NodeId, bool, Option<u64>)>,
    /// The incarnations, and whether all is passed on.
    orphans: BTreeMap<NodeId, (Incarnation, bool)>,
    /// From whom to whom.
    inherited: BTreeMap<ClientId, (NodeId, NodeId)>,
}

impl Mirror {
    fn of(state: &ControlState) -> Self {
        let mut mirror = Self::default();
        for node in state.live_nodes() {
            mirror.live.insert(node.id, node.incarnation);
        }
        mirror.routes = state.routes().map(|(filter, node, _)| (Arc::clone(filter), node)).collect();
        mirror.shares =
            state.share_routes().map(|(share, node, _, members)| ((share.clone(), node), members)).collect();
        for (client, epoch, will) in state.wills.iter() {
            if let wills::Publisher::Node(slot, _) = will.publisher {
                mirror.wills.insert((Arc::clone(client), epoch), state.nodes.id(slot));
            }
        }
        for client in state.clients() {
            if let Some(Claim { by, epoch, clean, cut }) = state.claim(client) {
                mirror.claims.insert(Arc::clone(client), (epoch, by, clean, cut));
            }
        }
        for (slot, pending) in state.orphans.iter() {
            let node = state.nodes.get(slot);
            mirror.orphans.insert(node.id, (node.incarnation, pending.passed));
        }
        for table::Entry { client, lease } in state.leases.table.iter().filter(|entry| !entry.lease.is_ended()) {
            if let Some(from) = lease.inherited_from {
                let from_to = (state.nodes.id(from), state.nodes.id(lease.holder));
                mirror.inherited.insert(Arc::clone(client), from_to);
            }
        }
        mirror
    }

    fn take_in(&mut self, effects: &[Effect]) {
        for effect in effects.iter().cloned() {
            self.take_in_one(effect);
        }
    }

    fn take_in_one(&mut self, effect: Effect) {
        let is_move = matches!(effect, Effect::Moved { .. });
        match effect {
            Effect::NodeUp { node, incarnation, .. } => drop(self.live.insert(node, incarnation)),
            Effect::NodeDown { node, incarnation, heirs } => {
                let lived = self.live.remove(&node);
                assert!(!heirs.is_empty() || lived == Some(incarnation));
                self.shares.retain(|(_, other), _| *other != node);
                if heirs.is_empty() {
                    self.routes.retain(|(_, other)| *other != node);
                } else {
                    assert_eq!(self.orphans.insert(node, (incarnation, false)), None);
                }
                // Announced anew if somebody can.
                self.wills.retain(|_, publisher| *publisher != node);
            }
            Effect::OrphansEnded { node, incarnation } => {
                assert_eq!(self.orphans.remove(&node).map(|(ended, _)| ended), Some(incarnation));
                self.routes.retain(|(_, other)| *other != node);
            }
            Effect::PassedOnAll { node, incarnation } => {
                assert_eq!(self.orphans.insert(node, (incarnation, true)), Some((incarnation, false)));
            }
            Effect::PassedOn { client, from, to, .. } => drop(self.inherited.insert(client, (from, to))),
            Effect::SessionEnded { client, .. } => drop(self.inherited.remove(&client)),
            Effect::NodeForgotten { node } => assert!(!self.live.contains_key(&node)),
            Effect::Banned { .. } | Effect::Unbanned { .. } => panic!("nobody is banned here"),
            Effect::RouteAdded { filter, node } => drop(self.routes.insert((filter, node))),
            Effect::RouteRemoved { filter, node } => drop(self.routes.remove(&(filter, node))),
            Effect::ShareRouteSet { share, node, members } => drop(self.shares.insert((share, node), members)),
            Effect::ShareRouteRemoved { share, node } => drop(self.shares.remove(&(share, node))),
            Effect::WillDue { client, epoch, publisher, .. } => drop(self.wills.insert((client, epoch), publisher)),
            Effect::WillForgotten { client, epoch } => drop(self.wills.remove(&(client, epoch))),
            Effect::Claimed { client, epoch, by, clean, .. } => {
                self.claims.insert(client, (epoch, by, clean, None));
            }
            Effect::CutMade { client, epoch, index, .. } => {
                let claim = self.claims.get_mut(&client).expect("a cut is of a claim");
                assert_eq!(claim.0, epoch);
                claim.3 = Some(index);
            }
            Effect::ClaimLost { client, epoch, .. }
            | Effect::Withdrawn { client, epoch, .. }
            | Effect::Moved { client, epoch, .. } => {
                if is_move {
                    self.inherited.remove(&client);
                }
                self.claims.remove(&client).filter(|claim| claim.0 != epoch).into_iter().for_each(|later| {
                    self.claims.insert(Arc::clone(&client), later);
                });
            }
            Effect::Closed { .. } => {}
            // Says only where to look.
            Effect::HeirsChanged { .. } => {}
        }
    }
}

/// All that must hold of one state by itself.
fn check(state: &ControlState) {
    let mut will_bytes = state.wills.iter().map(|(.., will)| will.message.len() as u64).sum::<u64>();
    let mut connected = 0;
    for (slot, node) in state.nodes.all() {
        let mut eras: Vec<u32> = Vec::new();
        for table::Entry { client, lease } in state.leases.table.of(slot) {
            assert_eq!(lease.holder, slot);
            assert!(!lease.is_over(), "{client} is over and still there");
            let claim = state.leases.claims.get(client);
            assert_eq!(lease.has(lease::Flag::Claimed), claim.is_some());
            assert_eq!(lease.has(lease::Flag::WillDue), state.wills.any_of(client));
            assert!(claim.is_none() || lease.phase() != lease::Phase::Connected);
            let closing = lease.has(lease::Flag::Closing);
            assert!(!closing || matches!(lease.phase(), lease::Phase::Detached { .. }));
            assert!(!closing || state.wills.get(client, lease.epoch).is_none(), "{client} may have said goodbye");
            let wills = lease.will.as_deref().into_iter().chain(claim.and_then(|claim| claim.will.as_ref()));
            will_bytes += wills.map(|will| will.message.len() as u64).sum::<u64>();
            eras.push(lease.era);
        }
        assert!(eras.is_sorted());
        let live = node.standing == nodes::Standing::Live;
        let entries = state.leases.table.of(slot);
        for session in entries.filter_map(|entry| state.leases.view(entry, &state.nodes)) {
            assert_eq!(session.missing, !live);
            assert!(live || !session.connected, "who is dead has no connections");
            connected += usize::from(session.connected);
        }
    }
    assert_eq!(state.counts().will_bytes, will_bytes);
    assert_eq!(state.counts().connected, connected);
    for (client, claim) in &state.leases.claims {
        assert!(state.nodes.is_live(claim.by), "{client} is claimed by a dead node");
    }
    check_heirs(state);
    for (client, _, will) in state.wills.iter() {
        if let wills::Publisher::Node(slot, incarnation) = will.publisher {
            let node = state.nodes.get(slot);
            assert!(node.standing == nodes::Standing::Live && node.incarnation == incarnation, "{client}");
        }
    }
}

fn check_heirs(state: &ControlState) {
    for (home, heirs) in state.heirs.iter() {
        let in_order = |slots: &[nodes::NodeSlot]| {
            let ids = state.ids(slots);
            assert!(ids.is_sorted_by(|one, other| one < other) && !slots.contains(&home), "{ids:?}");
        };
        in_order(&heirs.base.iter().map(|heir| heir.slot).collect::<Vec<_>>());
        if let Some((fill, next)) = &heirs.next {
            in_order(next);
            assert!(next.iter().all(|slot| state.nodes.is_live(*slot)), "fill {fill} is of the dead");
        }
    }
    for (node, pending) in state.orphans.iter() {
        assert!(matches!(state.nodes.get(node).standing, nodes::Standing::Dead(_)));
        assert_eq!(pending.passed, !state.leases.has_to_pass_on(node));
        let inheriting = state.heirs.inheriting(node, &state.nodes);
        assert!(!pending.heirs.is_empty() && pending.heirs.iter().all(|heir| inheriting.contains(heir)));
    }
    for table::Entry { client, lease } in state.leases.table.iter() {
        assert!(lease.inherited_from.is_none_or(|from| state.nodes.has(from) && from != lease.holder), "{client}");
    }
    let live = |node: NodeId| state.node(node).is_some_and(|node| node.live);
    let orphans: BTreeSet<NodeId> = state.orphans().map(|(node, ..)| node).collect();
    assert!(state.routes().all(|(_, node, _)| live(node) || orphans.contains(&node)));
    assert!(state.share_routes().all(|(_, node, ..)| live(node)));
}

/// Which node has a complete copy of which session, as far as anybody can be sure.
#[derive(Default)]
struct Copies {
    /// Home, client id, the connection that began the session, and where the copy is.
    of: BTreeSet<(NodeId, ClientId, SessionEpoch, NodeId)>,
    /// The sessions of each home, with the index at which they came to it, if by inheritance.
    known: BTreeMap<(NodeId, ClientId, SessionEpoch), u64>,
}

impl Copies {
    fn follow(&mut self, taken: &Taken<'_>) {
        let (before, after) = (taken.before, taken.after);
        let live = |state: &ControlState, node: NodeId| state.node(node).is_some_and(|node| node.live);
        for effect in &taken.applied.effects {
            if let Effect::PassedOn { client, began, from, to, sure, .. } = effect {
                let copy = (*from, Arc::clone(client), *began, *to);
                // Who has said that it had none may find it after all.
                let has_found = matches!(taken.command, Command::Found { .. });
                assert!(!sure || has_found || self.of.contains(&copy), "{copy:?} is not there");
                self.known.insert((*to, Arc::clone(client), *began), after.index());
            }
        }
        for node in [A, B, C] {
            let (died, gone) = (live(before, node) && !live(after, node), after.node(node).is_none());
            let has_lost = matches!(taken.command, Command::Register { node: who, intact: false, run, .. }
                if *who == node && !before.node(node).is_some_and(|node| node.live && node.run == *run))
                && !matches!(taken.applied.outcome, Outcome::Refused(_));
            // Not who comes back under the id of one that was forgotten: in life nobody does.
            let known = before.incarnation(node).zip(after.incarnation(node));
            let begins = known.is_some_and(|(earlier, now)| earlier != now);
            self.of.retain(|(home, _, _, at)| {
                let misses = *at == node && (has_lost || gone || (died && live(after, *home)));
                // A new run of the home does not know what its heirs have, and one that is dead copies nothing.
                !(misses || begins && *home == node)
            });
            if begins {
                let dead: Vec<NodeId> = [A, B, C].into_iter().filter(|other| !live(after, *other)).collect();
                self.of.retain(|(home, _, _, at)| *home != node || !dead.contains(at));
            }
        }
        self.copy(taken);
    }

    fn copy(&mut self, taken: &Taken<'_>) {
        let after = taken.after;
        let fill = match (taken.command, taken.applied.outcome) {
            (Command::HeirsFilled { fill }, Outcome::Done) => Some(*fill),
            _ => None,
        };
        for home in after.live_nodes().map(|node| node.id) {
            let heirs = after.heirs(home).unwrap_or_default();
            let base: Vec<NodeId> = heirs.base.iter().map(|(node, _)| *node).collect();
            let next = heirs.next.map_or(Vec::new(), |(_, next)| next);
            for (client, session) in after.sessions_of(home) {
                let key = (home, Arc::clone(client), session.began);
                let came = self.known.get(&key).copied();
                let is_filled = fill.filter(|_| taken.by == home).is_some_and(|fill| came.unwrap_or(0) < fill);
                if came.is_none() || is_filled {
                    let pick = heir_of(client, &base).filter(|pick| heirs.base.contains(&(*pick, false)));
                    for at in pick.into_iter().chain(heir_of(client, &next)) {
                        self.of.insert((home, Arc::clone(client), session.began, at));
                    }
                }
                self.known.entry(key).or_insert(0);
            }
        }
        let sessions = &mut self.known;
        sessions.retain(|(home, client, began), _| {
            after.session(client).is_some_and(|session| session.holder == *home && session.began == *began)
        });
        self.of.retain(|(home, client, began, _)| self.known.contains_key(&(*home, Arc::clone(client), *began)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn who_must_have_a_copy_of_what_passes_to_it_has_one(acts in any_acts()) {
        let mut copies = Copies::default();
        run(&acts, |taken| copies.follow(taken));
    }

    #[test]
    fn every_state_is_in_order(acts in any_acts()) {
        run(&acts, |taken| check(taken.after));
    }

    #[test]
    fn effects_are_the_difference_of_two_states(acts in any_acts()) {
        run(&acts, |taken| {
            let difference = taken.before.difference(taken.after);
            assert_eq!(in_order(&difference), in_order(&taken.applied.effects), "{:?}", taken.command);
        });
    }

    #[test]
    fn a_restored_state_goes_on_like_the_one_that_it_was_made_of(acts in any_acts(), at in 0_usize..60) {
        let (mut restored, mut count): (Option<ControlState>, _) = (None, 0);
        let end = run(&acts, |taken| {
            if count == at {
                restored = Some(ControlState::restore(taken.before.snapshot()).expect("it can be read"));
            }
            count += 1;
            if let Some(restored) = &mut restored {
                let applied = apply(restored, taken.after.now(), taken.by, taken.command.clone());
                assert_eq!(&applied, taken.applied);
                assert_eq!(restored.digest(), taken.after.digest());
                assert_eq!(restored.counts(), taken.after.counts());
                assert_eq!(restored.next_due(), taken.after.next_due());
            }
        });
        let again = run(&acts, |_| ());
        prop_assert_eq!(end.digest(), again.digest());
    }

    #[test]
    fn who_jumps_knows_what_who_walks_knows(acts in any_acts(), from in 0_usize..60) {
        let mut walker = Mirror::of(&three_nodes());
        let (mut jumper, mut count): (Option<ControlState>, _) = (None, 0);
        run(&acts, |taken| {
            if count == from {
                jumper = Some(taken.before.clone());
            }
            count += 1;
            walker.take_in(&taken.applied.effects);
            // Wills of an incarnation that ended wait for the next tick.
            walker.wills.retain(|(client, epoch), _| taken.after.wills.get(client, *epoch).is_some_and(|will| {
                matches!(will.publisher, wills::Publisher::Node(..))
            }));
            assert_eq!(walker, Mirror::of(taken.after), "{:?}", taken.command);
            if let Some(jumper) = &jumper {
                let mut mirror = Mirror::of(jumper);
                mirror.take_in(&jumper.difference(taken.after));
                mirror.wills.retain(|(client, epoch), _| taken.after.wills.get(client, *epoch).is_some_and(|will| {
                    matches!(will.publisher, wills::Publisher::Node(..))
                }));
                assert_eq!(mirror, Mirror::of(taken.after), "from {from} over {:?}", taken.command);
                check_sessions(jumper, taken.after);
            }
        });
    }

    #[test]
    fn each_due_will_has_one_publisher_at_a_time_and_is_forgotten_once(acts in any_acts()) {
        let mut wills: BTreeMap<(ClientId, SessionEpoch), Option<(NodeId, Incarnation)>> = BTreeMap::new();
        let mut state = run(&acts, |taken| note_wills(&mut wills, taken.applied, taken.after));
        // In the end all who is there goes away, and somebody publishes what is left.
        for node in [A, B] {
            let incarnation = state.incarnation(node).unwrap_or(0);
            let applied = apply(&mut state, 0, LEADER, expire(node, incarnation));
            note_wills(&mut wills, &applied, &state);
        }
        // Nobody is left who inherits from it.
        apply(&mut state, 0, LEADER, restart(C, 7, true));
        let mut ticks = 0;
        while let Some(at) = state.next_due().filter(|_| ticks < 1_000) {
            let applied = apply(&mut state, at, LEADER, Command::Tick);
            note_wills(&mut wills, &applied, &state);
            ticks += 1;
        }
        prop_assert!(ticks < 1_000, "something is due for ever");
        let due: Vec<_> = state.wills_due().collect();
        for effect in due {
            let Effect::WillDue { client, epoch, publisher, .. } = effect else { continue };
            prop_assert_eq!(publisher, C);
            let applied = apply(&mut state, u64::MAX, C, will_done(&client, epoch));
            note_wills(&mut wills, &applied, &state);
        }
        let left: Vec<_> = wills.iter().filter(|(_, publisher)| publisher.is_some()).collect();
        prop_assert!(left.is_empty(), "{:?}", left);
    }

    #[test]
    fn a_will_is_due_only_when_the_end_of_its_connection_is_known_and_never_after_a_goodbye(acts in any_acts()) {
        let mut ends = Ends::default();
        run(&acts, |taken| ends.note(taken));
    }

    #[test]
    fn nobody_is_accepted_while_another_node_may_still_serve_the_client(acts in any_acts()) {
        let mut open: BTreeMap<ClientId, BTreeSet<(NodeId, SessionEpoch)>> = BTreeMap::new();
        let mut epochs: BTreeMap<ClientId, SessionEpoch> = BTreeMap::new();
        run(&acts, |taken| note_connections(&mut open, &mut epochs, taken));
    }

    #[test]
    fn batches_are_applied_in_their_order_and_each_once(
        batches in prop::collection::vec((any_node(), 0_u64..3, 1_u64..5, any::<bool>()), 1..60),
    ) {
        let mut state = three_nodes();
        let mut last: BTreeMap<NodeId, (Incarnation, u64)> = [A, B, C].map(|node| (node, (1, 0))).into();
        for (place, (node, before, number, restarts)) in batches.into_iter().enumerate() {
            let (incarnation, next) = last.get_mut(&node).expect("all three are there");
            if restarts && number == 1 {
                *incarnation += 1;
                *next = 0;
                state.apply_proposal(state.index() + 1, leader(0, restart(node, place as u64 + 1, true)));
            }
            let said = incarnation.saturating_sub(before / 2);
            let filter = format!("{place}");
            let proposal = batch(0, node, said, number, vec![routes(&[&filter], &[])]);
            let applied = state.apply_proposal(state.index() + 1, proposal);
            let is_next = said == *incarnation && number == *next + 1;
            prop_assert_eq!(applied.ignored, !is_next);
            prop_assert_eq!(state.route(&filter.into()).count(), usize::from(is_next));
            *next += u64::from(is_next);
            prop_assert_eq!(state.batch_number(node), Some(*next));
        }
    }

    #[test]
    fn an_entry_of_the_log_can_be_written_and_read(acts in any_acts(), number in any::<u64>()) {
        let mut commands = Vec::new();
        run(&acts, |taken| commands.push(taken.command.clone()));
        let proposal = batch(number, A, 1, number, commands);
        let bytes = postcard::to_allocvec(&proposal).expect("it can be written");
        prop_assert_eq!(postcard::from_bytes(&bytes), Ok(proposal));
    }

    #[test]
    fn a_damaged_snapshot_is_refused_or_is_another_state(acts in any_acts(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let state = run(&acts, |_| ());
        let mut chunks: Vec<Vec<u8>> = state.snapshot().collect();
        let mut bytes = chunks.remove(0);
        prop_assert!(chunks.is_empty());
        let cut = at.index(bytes.len());
        prop_assert!(ControlState::restore([&bytes[..cut]]).is_err(), "it ends in the middle");
        bytes[cut] ^= 1 << bit;
        if let Ok(other) = ControlState::restore([&bytes]) {
            let _ = (other.digest(), other.next_due(), state.difference(&other).len());
        }
    }
}

/// Whether a claim was lost or given up is not to be seen if another one came with the same command.
fn in_order(effects: &[Effect]) -> Vec<String> {
    let one_word = |effect: &Effect| match effect.clone() {
        Effect::Withdrawn { client, epoch, by, .. } => Effect::ClaimLost { client, epoch, by },
        other => other,
    };
    sorted(&effects.iter().map(one_word).collect::<Vec<_>>())
}

/// A session that is somewhere else or nowhere was moved or has ended; its holder heard of it.
fn check_sessions(before: &ControlState, after: &ControlState) {
    let effects = before.difference(after);
    for client in before.clients() {
        let find =
            |state: &ControlState| state.leases.table.find(client).map(|key| state.leases.table.lease(key).clone());
        let Some(old) = find(before).filter(|lease| !lease.is_ended()) else {
            continue;
        };
        let holder = before.nodes.id(old.holder);
        let stays = find(after)
            .is_some_and(|new| new.began == old.began && !new.is_ended() && after.nodes.id(new.holder) == holder);
        let told = effects.iter().any(|effect| match effect {
            Effect::SessionEnded { client: of, holder: at, .. }
            | Effect::Moved { client: of, from: at, .. }
            | Effect::PassedOn { client: of, from: at, .. } => of == client && *at == holder,
            _ => false,
        });
        assert!(stays != told, "{client}: {effects:?}");
    }
}

fn note_wills(
    wills: &mut BTreeMap<(ClientId, SessionEpoch), Option<(NodeId, Incarnation)>>,
    applied: &Applied,
    after: &ControlState,
) {
    for effect in &applied.effects {
        match effect {
            Effect::WillDue { client, epoch, publisher, .. } => {
                let incarnation = after.incarnation(*publisher).expect("a publisher is a node");
                let told = Some((*publisher, incarnation));
                let earlier = wills.insert((Arc::clone(client), *epoch), told);
                let over = |(node, incarnation)| {
                    after.node(node).is_none_or(|node| !node.live || node.incarnation != incarnation)
                };
                assert!(earlier.is_none_or(|earlier| earlier.is_some_and(over)), "{effect:?} after {earlier:?}");
            }
            Effect::WillForgotten { client, epoch } => {
                let earlier = wills.insert((Arc::clone(client), *epoch), None);
                assert!(earlier.is_some_and(|earlier| earlier.is_some()), "{effect:?}");
            }
            _ => {}
        }
    }
}

/// What is known of the ends of connections.
#[derive(Default)]
struct Ends {
    /// Where connections are that nobody has said to be closed; each node closes its own before it takes another.
    open: BTreeMap<(ClientId, SessionEpoch), NodeId>,
    goodbyes: BTreeSet<(ClientId, SessionEpoch)>,
}

impl Ends {
    fn note(&mut self, taken: &Taken<'_>) {
        match taken.command {
            Command::Acquire { client, .. } => {
                self.open.retain(|(of, _), at| of != client || *at != taken.by);
            }
            Command::Detach { client, epoch, will, .. } if taken.applied.outcome == Outcome::Done => {
                let connection = (Arc::clone(client), *epoch);
                assert_eq!(self.open.remove(&connection), Some(taken.by));
                if *will == WillFate::Drop {
                    self.goodbyes.insert(connection);
                }
            }
            _ => {}
        }
        for effect in &taken.applied.effects {
            if let Effect::NodeDown { node, .. } | Effect::NodeUp { node, .. } = effect {
                self.open.retain(|_, at| at != node);
            }
        }
        for effect in &taken.applied.effects {
            let (Effect::WillDue { client, epoch, .. } | Effect::SessionEnded { client, epoch, .. }) = effect else {
                continue;
            };
            let connection = (Arc::clone(client), *epoch);
            assert!(!self.open.contains_key(&connection), "{effect:?} of a connection that may still be");
            let is_will = matches!(effect, Effect::WillDue { .. });
            assert!(!is_will || !self.goodbyes.contains(&connection), "{effect:?} after a goodbye");
        }
        let accepted = match (taken.command, taken.applied.outcome) {
            (Command::Acquire { client, .. }, Outcome::Acquired { epoch, .. }) => Some((client, epoch)),
            (Command::Settle { client, epoch }, Outcome::Settled { .. }) => Some((client, *epoch)),
            _ => None,
        };
        if let Some((client, epoch)) = accepted {
            self.open.insert((Arc::clone(client), epoch), taken.by);
        }
    }
}

/// Keeps the connections that were accepted and that nobody knows to be closed.
fn note_connections(
    open: &mut BTreeMap<ClientId, BTreeSet<(NodeId, SessionEpoch)>>,
    epochs: &mut BTreeMap<ClientId, SessionEpoch>,
    taken: &Taken<'_>,
) {
    for effect in &taken.applied.effects {
        if let Effect::NodeDown { node, .. } | Effect::NodeUp { node, .. } = effect {
            open.values_mut().for_each(|of_client| of_client.retain(|(at, _)| at != node));
        }
    }
    match (taken.command, taken.applied.outcome) {
        (Command::Acquire { client, .. }, Outcome::Acquired { epoch, .. }) => {
            let of_client = open.entry(Arc::clone(client)).or_default();
            // The node closes its own.
            of_client.retain(|(at, _)| *at != taken.by);
            assert!(of_client.is_empty(), "{client} is still connected: {of_client:?}");
            of_client.insert((taken.by, epoch));
            note_epoch(epochs, client, epoch);
        }
        (Command::Acquire { client, .. }, Outcome::Claimed { epoch, .. }) => note_epoch(epochs, client, epoch),
        (Command::Settle { client, epoch }, Outcome::Settled { .. }) => {
            let of_client = open.entry(Arc::clone(client)).or_default();
            assert!(of_client.is_empty(), "{client} is still connected: {of_client:?}");
            of_client.insert((taken.by, *epoch));
        }
        (Command::Detach { client, epoch, .. }, Outcome::Done) => {
            open.entry(Arc::clone(client)).or_default().remove(&(taken.by, *epoch));
        }
        _ => {}
    }
}

fn note_epoch(epochs: &mut BTreeMap<ClientId, SessionEpoch>, client: &ClientId, epoch: SessionEpoch) {
    let earlier = epochs.insert(Arc::clone(client), epoch);
    assert!(earlier.is_none_or(|earlier| earlier < epoch), "{client} has had {epoch}");
}
