//! What this node has of the sessions of others: what it says when it has inherited, and which copies are of no use any more.
//!
//! Owner: the node, in [`Heritage`]. Test to read first: `tests::the_last_shard_says_that_all_have_inherited_and_it_is_remembered_while_somebody_waits`.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_raft::{Command, ControlState, Estate, NodeId, ShareRoute};
use parking_lot::Mutex;

use crate::cluster::copies::inheriting::{Life, Passed, Without};
use crate::cluster::copies::looking::{Outlook, Own};
use crate::shard::mailbox::Event;

use super::plane::ClusterPlane;

/// Stands for all shards: more than there can be.
const ALL_SHARDS: usize = usize::MAX;

/// So long after the heirs of a node have changed it is looked which of its copies are elsewhere now, and once more after as long, in milliseconds. A home may be
/// ahead of this node in the log and have begun a copy here by what is not applied here yet; but not for so long.
const SETTLED_MS: u64 = 30_000;

/// So long an heir may take nothing from the others while it enters what it has inherited, in milliseconds: then it is complained of like any node that owes something.
const INHERITING_MS: u64 = 30_000;

/// The heirs of a dead node, and since when they are.
struct Busy {
    heirs: Arc<[NodeId]>,
    since: u64,
    /// Groups that have members among the sessions that are inherited.
    shares: Vec<ShareRoute>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Heritage {
    /// How many shards have entered what they have inherited, of each life from which the node does.
    entered: Mutex<BTreeMap<Life, usize>>,
    /// Nodes whose heirs have changed: when that is to be looked at, and how many times.
    changed: Mutex<BTreeMap<NodeId, (u64, u8)>>,
    /// Who inherits from whom, and since when.
    heirs: Mutex<BTreeMap<Life, Busy>>,
}

impl Heritage {
    /// A shard has entered all that it inherits. True if that was the last one.
    fn entered(&self, life: Life, shards: usize) -> bool {
        let mut entered = self.entered.lock();
        let count = entered.entry(life).or_insert(0);
        *count = count.saturating_add(1);
        let is_last = *count == shards;
        if is_last {
            *count = ALL_SHARDS;
        }
        is_last
    }

    /// Those that all shards have entered.
    fn all_entered(&self) -> Vec<Life> {
        let entered = self.entered.lock();
        entered.iter().filter(|(_, count)| **count == ALL_SHARDS).map(|(life, _)| *life).collect()
    }

    /// Of the others nobody waits for this node any more.
    fn keep(&self, waited_for: &[Life]) {
        self.entered.lock().retain(|life, entered| *entered < ALL_SHARDS || waited_for.contains(life));
    }

    pub fn node_died(&self, life: Life, heirs: &Arc<[NodeId]>, now: u64) {
        if !heirs.is_empty() {
            self.heirs.lock().entry(life).or_insert_with(|| Busy {
                heirs: heirs.clone(),
                since: now,
                shares: Vec::new(),
            });
        }
    }

    /// The routes of the node's share groups are void. Whether they stay in the index until its heirs have its sessions: nobody is given anything by them, but
    /// a message for such a group waits, and is not one without subscribers.
    pub fn keeps_share(&self, node: NodeId, share: &ShareRoute) -> bool {
        let mut heirs = self.heirs.lock();
        let busy = heirs.iter_mut().find(|((dead, _), _)| *dead == node);
        busy.map(|(_, busy)| busy.shares.push(share.clone())).is_some()
    }

    /// Returns the share groups that were kept.
    pub fn orphans_ended(&self, life: Life) -> Vec<ShareRoute> {
        self.heirs.lock().remove(&life).map(|busy| busy.shares).unwrap_or_default()
    }

    /// Whether a node is busy with what it has inherited.
    pub fn is_inheriting(&self, node: NodeId, now: u64) -> bool {
        let heirs = self.heirs.lock();
        heirs.values().any(|busy| busy.heirs.contains(&node) && now < busy.since + INHERITING_MS)
    }

    pub fn heirs_changed(&self, home: NodeId, now: u64) {
        self.changed.lock().insert(home, (now + SETTLED_MS, 2));
    }

    /// The homes to be looked at now.
    fn settled(&self, now: u64) -> Vec<NodeId> {
        let mut changed = self.changed.lock();
        let mut settled = Vec::new();
        changed.retain(|home, (at, times)| {
            if *at <= now {
                settled.push(*home);
                (*at, *times) = (now + SETTLED_MS, *times - 1);
            }
            *times > 0
        });
        settled
    }
}

/// What the control state says of the sessions of a node and of those of which it may have copies.
fn outlook_on_copies(state: &ControlState, own: NodeId) -> Outlook {
    let passed = |estate: &Estate| {
        let without = match (estate.from, estate.sure) {
            (None, _) => Without::Nothing,
            (Some(_), true) => Without::Empty,
            (Some(_), false) => Without::Lost,
        };
        let &Estate { began, epoch, expiry_secs, .. } = estate;
        Passed { epoch, began, expiry_secs, without }
    };
    let all_passed: Vec<Life> = state.passed_on_all().collect();
    let open = state.orphans().filter(|(_, _, heirs)| heirs.contains(&own));
    let open = open.map(|(node, incarnation, _)| ((node, incarnation), all_passed.contains(&(node, incarnation))));
    let estate = state.estate_of(own);
    let missing = state.missing_for(own);
    Outlook {
        own: estate.map(|(client, lease)| (client.clone(), Own { passed: passed(&lease), from: lease.from })).collect(),
        missing: missing.map(|(client, home, lease)| (client.clone(), (home, lease.began))).collect(),
        open: open.collect(),
        live: state.live_nodes().map(|node| node.id).collect(),
    }
}

impl ClusterPlane {
    /// For the shards, while the state is locked.
    pub(super) fn outlook_on_copies(&self, state: &ControlState) -> Arc<Outlook> {
        Arc::new(outlook_on_copies(state, self.shared.node))
    }

    pub(super) fn shard_has_inherited(&self, life: Life) {
        if self.heritage.entered(life, self.shared.mailboxes.len()) {
            self.shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Inherited { life }));
            self.say_inherited(life);
        }
    }

    /// What the shards propose for the sessions that they have entered is in front of it.
    fn say_inherited(&self, (node, incarnation): Life) {
        drop(self.propose_own(Command::Inherited { node, incarnation }));
    }

    /// Looks after what no event moves on.
    pub fn look_after_heritage(&self) {
        self.say_inherited_again();
        let settled = self.heritage.settled(self.shared.clock.now());
        let Some(group) = self.group().filter(|_| !settled.is_empty()) else {
            return;
        };
        for home in settled {
            let Some(heirs) = group.read(|state| state.heirs(home)) else { continue };
            if heirs.next.is_some() {
                // It will change once more.
                continue;
            }
            let base: Arc<[NodeId]> = heirs.base.iter().map(|(heir, _)| *heir).collect();
            let event = || Event::HeirsOf { home, base: base.clone() };
            self.shared.mailboxes.iter().for_each(|mailbox| mailbox.push(event()));
        }
    }

    /// Says once more what the control state has not heard, because the node was not registered then.
    fn say_inherited_again(&self) {
        let entered = self.heritage.all_entered();
        let Some(group) = self.group().filter(|_| !entered.is_empty()) else {
            return;
        };
        let own = self.shared.node;
        let waited_for: Vec<Life> = group.read(|state| {
            let orphans = state.orphans().filter(|(_, _, heirs)| heirs.contains(&own));
            orphans.map(|(node, incarnation, _)| (node, incarnation)).collect()
        });
        self.heritage.keep(&waited_for);
        entered.into_iter().filter(|life| waited_for.contains(life)).for_each(|life| self.say_inherited(life));
    }
}

#[cfg(test)]
mod tests {
    use holdfast_raft::{Origin, Proposal};

    use super::*;

    const HOME: NodeId = NodeId(1);
    const HEIR: NodeId = NodeId(2);

    /// What the entries of a log, each a command of the leader or of a node, have made of the state.
    fn after(entries: Vec<(Option<NodeId>, Command)>) -> ControlState {
        let mut state = ControlState::new();
        let mut numbers = BTreeMap::from([(HOME, 0), (HEIR, 0)]);
        for (index, (by, command)) in (1..).zip(entries) {
            let origin = match by {
                None => Origin::Leader,
                Some(node) => {
                    let number = numbers.entry(node).or_insert(0);
                    *number += 1;
                    Origin::Node { node, incarnation: 1, number: *number }
                }
            };
            state.apply_proposal(index, Proposal { at: 0, origin, commands: vec![command] });
        }
        state
    }

    fn register(node: NodeId) -> (Option<NodeId>, Command) {
        (None, Command::Register { node, name: "n".into(), run: 1, versions: (1, 1), intact: true })
    }

    fn acquire(client: &str) -> (Option<NodeId>, Command) {
        (Some(HOME), Command::Acquire { client: client.into(), clean: false, expiry_secs: 60, will: None })
    }

    /// Who has jumped over the entries sees in the state what they would have told.
    #[test]
    fn a_shard_is_told_of_what_passes_and_of_what_is_missing_as_the_state_stands() {
        let filled = || {
            let fill = (Some(HOME), Command::FillHeirs { next: vec![HEIR] });
            let filled = (Some(HOME), Command::HeirsFilled { fill: 3 });
            vec![register(HOME), register(HEIR), fill, filled, acquire("c")]
        };
        let expire = |node: NodeId| (None, Command::ExpireNode { node, incarnation: 1 });
        let mut entries = filled();
        entries.extend([expire(HOME), (None, Command::PassOn { node: HOME, incarnation: 1 })]);
        let outlook = outlook_on_copies(&after(entries), HEIR);
        let passed = Passed { epoch: 1, began: 1, expiry_secs: 60, without: Without::Empty };
        assert_eq!(outlook.own.get("c"), Some(&Own { passed, from: Some(HOME) }));
        assert_eq!((outlook.open, outlook.live), (vec![((HOME, 1), true)], vec![HEIR]));
        // It was not there when the session was to pass to it.
        let mut entries = filled();
        let again = Command::Register { node: HEIR, name: "n".into(), run: 2, versions: (1, 1), intact: true };
        entries.extend([expire(HOME), expire(HEIR), (None, again)]);
        let outlook = outlook_on_copies(&after(entries), HEIR);
        assert!(outlook.own.is_empty() && outlook.open.is_empty());
        assert_eq!(outlook.missing.get("c"), Some(&(HOME, 1)));
    }

    #[test]
    fn the_last_shard_says_that_all_have_inherited_and_it_is_remembered_while_somebody_waits() {
        let heritage = Heritage::default();
        let life = (NodeId(1), 2);
        assert!(!heritage.entered(life, 2) && heritage.all_entered().is_empty());
        heritage.keep(&[]);
        assert!(heritage.entered(life, 2) && heritage.all_entered() == [life]);
        heritage.keep(&[life]);
        assert_eq!(heritage.all_entered(), [life]);
        heritage.keep(&[]);
        assert!(heritage.all_entered().is_empty());
    }

    #[test]
    fn an_heir_has_time_until_the_orphans_are_no_more_but_not_for_ever() {
        let heritage = Heritage::default();
        let (life, heir) = ((NodeId(1), 2), NodeId(3));
        heritage.node_died((NodeId(9), 1), &[].into(), 0);
        assert!(!heritage.is_inheriting(heir, 0));
        heritage.node_died(life, &[heir].into(), 1_000);
        heritage.node_died(life, &[heir].into(), 2_000);
        assert!(heritage.is_inheriting(heir, 999 + INHERITING_MS) && !heritage.is_inheriting(NodeId(1), 1_000));
        assert!(!heritage.is_inheriting(heir, 1_000 + INHERITING_MS));
        heritage.orphans_ended(life);
        assert!(!heritage.is_inheriting(heir, 1_000));
    }

    #[test]
    fn share_groups_of_a_dead_node_are_kept_until_its_heirs_have_its_sessions() {
        let heritage = Heritage::default();
        let (share, life): (ShareRoute, _) = (("g".into(), "t".into()), (NodeId(9), 2));
        heritage.node_died((NodeId(8), 1), &[].into(), 0);
        assert!(!heritage.keeps_share(NodeId(8), &share), "nobody inherits from it");
        heritage.node_died(life, &[NodeId(1)].into(), 0);
        assert!(heritage.keeps_share(NodeId(9), &share));
        let kept = heritage.orphans_ended(life);
        assert!(kept == [share] && !heritage.keeps_share(NodeId(9), &kept[0]));
    }

    #[test]
    fn heirs_that_have_changed_are_looked_at_twice_when_they_have_settled() {
        let heritage = Heritage::default();
        heritage.heirs_changed(NodeId(1), 1_000);
        heritage.heirs_changed(NodeId(1), 5_000);
        assert!(heritage.settled(4_999 + SETTLED_MS).is_empty());
        assert_eq!(heritage.settled(5_000 + SETTLED_MS), [NodeId(1)]);
        assert!(heritage.settled(5_000 + SETTLED_MS).is_empty());
        assert_eq!(heritage.settled(5_000 + 2 * SETTLED_MS), [NodeId(1)]);
        assert!(heritage.settled(u64::MAX).is_empty());
    }
}
