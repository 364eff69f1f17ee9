//! Who on this node wants a topic, at two scales: the node knows which *shards* have a subscriber ([`NodeIndex`]),
//! a shard knows which of its *sessions* ([`ShardIndex`]). The cluster's routes are the third, in the control state.
//!
//! A `ShardIndex` belongs to its shard alone. The `NodeIndex` is read by every shard at every publish and written when a filter gets its
//! first subscriber on a shard or loses its last: readers share the lock and never wait for one another. Share groups
//! span the shards, so they live in the node's index, each member with its shard.
//!
//! Order that keeps the promise of SUBACK: a subscriber enters the index of its shard first, then the node's; it leaves them in the same
//! order, and what arrives for it in between finds nobody.

mod cluster_index;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use holdfast_raft::ShareMembers;
use parking_lot::{Mutex, MutexGuard, RwLock};

use crate::mqtt::SubscriptionOptions;
use crate::topic::{FilterTree, TopicFilter};

pub use cluster_index::{ClusterIndex, NodeSlot};

/// The number of a session in the table of its shard.
pub type SessionKey = u32;
/// The number of a shard of this node.
pub type ShardId = u16;

/// One session's subscription as the index of its shard knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscriber {
    pub session: SessionKey,
    pub options: SubscriptionOptions,
    /// 0: none.
    pub subscription_id: u32,
}

/// Lists up to this length are searched; longer ones know each session's place.
const SEARCHED_MAX: usize = 32;

/// The subscribers of one filter on one shard, in one piece of memory for the walk at every publish.
#[derive(Debug, Default)]
pub struct Subscribers {
    /// Whether one of them is, or was, a session that is written down.
    kept: bool,
    list: Vec<Subscriber>,
    places: HashMap<SessionKey, u32>,
}

impl Subscribers {
    pub fn as_slice(&self) -> &[Subscriber] {
        &self.list
    }

    fn place(&self, session: SessionKey) -> Option<usize> {
        if self.places.is_empty() {
            return self.list.iter().position(|subscriber| subscriber.session == session);
        }
        self.places.get(&session).map(|place| *place as usize)
    }

    fn insert(&mut self, subscriber: Subscriber) {
        if let Some(place) = self.place(subscriber.session) {
            self.list[place] = subscriber;
            return;
        }
        self.list.push(subscriber);
        if !self.places.is_empty() {
            self.places.insert(subscriber.session, self.list.len() as u32 - 1);
        } else if self.list.len() > SEARCHED_MAX {
            self.places =
                self.list.iter().enumerate().map(|(place, subscriber)| (subscriber.session, place as u32)).collect();
        }
    }

    fn remove(&mut self, session: SessionKey) -> bool {
        let Some(place) = self.place(session) else {
            return false;
        };
        self.list.swap_remove(place);
        if !self.places.is_empty() {
            self.places.remove(&session);
            if let Some(moved) = self.list.get(place) {
                self.places.insert(moved.session, place as u32);
            }
        }
        true
    }
}

/// The subscriptions of the sessions of one shard.
#[derive(Default)]
pub struct ShardIndex {
    filters: FilterTree<Subscribers>,
}

impl ShardIndex {
    /// Enters or replaces a subscription, of a session that is written down if it is `kept`. Returns whether it is the first of its kind with this
    /// filter on the shard, so that the node's index has to hear of it.
    pub fn insert(&mut self, filter: &str, subscriber: Subscriber, kept: bool) -> bool {
        let subscribers = self.filters.get_or_insert_with(filter, Subscribers::default);
        let first = subscribers.list.is_empty() || (kept && !subscribers.kept);
        subscribers.kept |= kept;
        subscribers.insert(subscriber);
        first
    }

    /// Removes a subscription. Returns whether it was the last with this filter on the shard.
    pub fn remove(&mut self, filter: &str, session: SessionKey) -> bool {
        let Some(subscribers) = self.filters.get_mut(filter) else {
            return false;
        };
        if !subscribers.remove(session) || !subscribers.list.is_empty() {
            return false;
        }
        self.filters.remove(filter);
        true
    }

    /// Calls `each` with the subscribers of every filter that matches.
    pub fn for_each_match<'t>(&'t self, topic: &str, each: impl FnMut(&'t Subscribers)) {
        self.filters.for_each_match(topic, each);
    }

    /// Filters with a subscriber on this shard.
    pub fn len(&self) -> usize {
        self.filters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}

/// A session that is a member of a share group.
#[derive(Debug, Clone)]
pub struct Member {
    pub shard: ShardId,
    pub session: SessionKey,
    pub client_id: Arc<str>,
    pub connected: bool,
    pub options: SubscriptionOptions,
    /// 0: none.
    pub subscription_id: u32,
}

/// The member that a shared message goes to.
#[derive(Debug, Clone)]
pub struct Picked {
    pub member: Member,
    /// The text of the shared subscription, `$share/name/filter`.
    pub share: Arc<str>,
    /// What this node has of the group.
    pub group: ShareMembers,
}

/// The members of one shared subscription (4.8.2). Those that are connected stand in front, so that picking one, and every change, costs the
/// same however many there are.
#[derive(Debug)]
struct ShareGroup {
    share: Arc<str>,
    members: Vec<Member>,
    places: HashMap<Arc<str>, usize>,
    /// Members in front that are connected.
    connected: usize,
    turn: AtomicUsize,
}

impl ShareGroup {
    fn new(share: Arc<str>) -> ShareGroup {
        ShareGroup { share, members: Vec::new(), places: HashMap::new(), connected: 0, turn: AtomicUsize::new(0) }
    }

    /// The next member in turn that is connected; one that is not only when none is.
    fn pick(&self) -> Option<&Member> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let among = if self.connected > 0 { self.connected } else { self.members.len() };
        turn.checked_rem(among).map(|place| &self.members[place])
    }

    fn members(&self) -> ShareMembers {
        ShareMembers::new(self.connected as u64, self.members.len() > self.connected)
    }

    fn picked(&self) -> Option<Picked> {
        self.pick().map(|member| Picked { member: member.clone(), share: self.share.clone(), group: self.members() })
    }

    fn insert(&mut self, member: Member) {
        let connected = member.connected;
        let client_id = member.client_id.clone();
        match self.places.get(&client_id) {
            Some(place) => {
                let was_connected = self.members[*place].connected;
                self.members[*place] = Member { connected: was_connected, ..member };
            }
            None => {
                self.places.insert(client_id.clone(), self.members.len());
                self.members.push(Member { connected: false, ..member });
            }
        }
        self.set_connected(&client_id, connected);
    }

    fn set_connected(&mut self, client_id: &str, connected: bool) {
        let Some(place) = self.places.get(client_id).copied() else { return };
        if self.members[place].connected == connected {
            return;
        }
        self.members[place].connected = connected;
        if connected {
            self.swap(place, self.connected);
            self.connected += 1;
        } else {
            self.connected -= 1;
            self.swap(place, self.connected);
        }
    }

    fn remove(&mut self, client_id: &str) {
        self.set_connected(client_id, false);
        let Some(place) = self.places.get(client_id).copied() else { return };
        self.swap(place, self.members.len() - 1);
        self.members.pop();
        self.places.remove(client_id);
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.members.swap(a, b);
        for place in [a, b] {
            self.places.insert(self.members[place].client_id.clone(), place);
        }
    }
}

#[derive(Default)]
struct Shares {
    /// By topic filter, then by share name.
    groups: FilterTree<Vec<ShareGroup>>,
}

/// The shards that have a subscriber, one bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shards {
    pub all: u64,
    /// Those of them where one of the sessions is written down, so that a publisher has to wait for them.
    pub kept: u64,
}

/// The subscriptions of the whole node.
#[derive(Default)]
pub struct NodeIndex {
    filters: RwLock<FilterTree<Shards>>,
    shares: RwLock<Shares>,
    /// Share groups, so that a publish on a node without any does not take their lock.
    share_groups: AtomicUsize,
    /// Held from a change of the index to the proposal of its routes.
    route_order: Mutex<()>,
}

impl NodeIndex {
    /// Hold the guard while changing the index and proposing the routes that follow: else the removal of a filter by one shard could be proposed
    /// behind its addition by another.
    pub fn route_order(&self) -> MutexGuard<'_, ()> {
        self.route_order.lock()
    }

    /// A shard has its first subscriber of `filter`, or the first that is `kept`. Returns whether it is the first of the node.
    pub fn insert(&self, filter: &str, shard: ShardId, kept: bool) -> bool {
        let mut filters = self.filters.write();
        let shards = filters.get_or_insert_with(filter, Shards::default);
        let first = shards.all == 0;
        shards.all |= 1 << shard;
        shards.kept |= u64::from(kept) << shard;
        first
    }

    /// A shard lost its last subscriber of `filter`. Returns whether it was the last of the node.
    pub fn remove(&self, filter: &str, shard: ShardId) -> bool {
        let mut filters = self.filters.write();
        let Some(shards) = filters.get_mut(filter) else {
            return false;
        };
        shards.all &= !(1 << shard);
        shards.kept &= !(1 << shard);
        if shards.all != 0 {
            return false;
        }
        filters.remove(filter);
        true
    }

    /// The shards that have a subscriber of `topic`.
    pub fn shards(&self, topic: &str) -> Shards {
        let mut shards = Shards::default();
        self.filters.read().for_each_match(topic, |set| {
            shards.all |= set.all;
            shards.kept |= set.kept;
        });
        shards
    }

    /// Whether a message to `topic` may have to be written down for a subscriber.
    pub fn is_kept(&self, topic: &str) -> bool {
        let mut shared = false;
        if self.share_groups.load(Ordering::Acquire) > 0 {
            self.shares.read().groups.for_each_match(topic, |_| shared = true);
        }
        shared || self.shards(topic).kept != 0
    }

    /// Enters or replaces a member of a share group. Returns whether the group is new.
    pub fn join_share(&self, share: &Arc<str>, filter: &str, member: Member) -> bool {
        let mut shares = self.shares.write();
        let groups = shares.groups.get_or_insert_with(filter, Vec::new);
        let known = groups.iter().position(|group| group.share == *share);
        let place = known.unwrap_or_else(|| {
            groups.push(ShareGroup::new(share.clone()));
            self.share_groups.fetch_add(1, Ordering::Release);
            groups.len() - 1
        });
        groups[place].insert(member);
        known.is_none()
    }

    /// Removes a member. Returns whether the group is gone with it.
    pub fn leave_share(&self, share: &str, filter: &str, client_id: &str) -> bool {
        let mut shares = self.shares.write();
        let Some(groups) = shares.groups.get_mut(filter) else {
            return false;
        };
        let Some(at) = groups.iter().position(|group| &*group.share == share) else {
            return false;
        };
        groups[at].remove(client_id);
        if !groups[at].members.is_empty() {
            return false;
        }
        groups.swap_remove(at);
        if groups.is_empty() {
            shares.groups.remove(filter);
        }
        self.share_groups.fetch_sub(1, Ordering::Release);
        true
    }

    /// A member's client has connected or gone.
    pub fn set_share_connected(&self, share: &str, filter: &str, client_id: &str, connected: bool) {
        let mut shares = self.shares.write();
        let groups = shares.groups.get_mut(filter).into_iter().flatten();
        for group in groups.filter(|group| &*group.share == share) {
            group.set_connected(client_id, connected);
        }
    }

    /// Picks one member of every share group that matches `topic`.
    pub fn pick_members(&self, topic: &str, mut each: impl FnMut(Picked)) {
        if self.share_groups.load(Ordering::Acquire) == 0 {
            return;
        }
        self.shares.read().groups.for_each_match(topic, |groups| {
            groups.iter().filter_map(ShareGroup::picked).for_each(&mut each);
        });
    }

    /// Calls `each` with the share group and every member of each that matches `topic`; which of them would be picked is left open.
    pub fn for_each_member(&self, topic: &str, mut each: impl FnMut(&Arc<str>, &Member)) {
        self.shares.read().groups.for_each_match(topic, |groups| {
            groups.iter().for_each(|group| group.members.iter().for_each(|member| each(&group.share, member)));
        });
    }

    /// Members of all share groups of this node.
    pub fn share_members_len(&self) -> usize {
        let mut members = 0;
        self.shares.read().groups.for_each(|_, groups| {
            members += groups.iter().map(|group| group.members.len()).sum::<usize>();
        });
        members
    }

    /// Picks a member of one group anew, for a message that was given back. None without members.
    pub fn pick_again(&self, share: &str, filter: &str) -> Option<Picked> {
        let shares = self.shares.read();
        let group = shares.groups.get(filter)?.iter().find(|group| &*group.share == share)?;
        group.picked()
    }

    /// What this node has of a group; `None`: no member.
    pub fn share_members(&self, share: &str, filter: &str) -> Option<ShareMembers> {
        let shares = self.shares.read();
        shares.groups.get(filter)?.iter().find(|group| &*group.share == share).map(ShareGroup::members)
    }

    /// Whether a member of the group is connected.
    pub fn is_share_connected(&self, share: &str, filter: &str) -> bool {
        let shares = self.shares.read();
        let mut groups = shares.groups.get(filter).into_iter().flatten();
        groups.any(|group| &*group.share == share && group.connected > 0)
    }

    /// Whether anybody on this node wants a filter, which may have a share prefix.
    pub fn has(&self, text: &str) -> bool {
        match TopicFilter::parse(text) {
            Ok(TopicFilter { share: Some(_), filter }) => self.share_members(text, filter).is_some(),
            _ => self.filters.read().get(text).is_some(),
        }
    }

    /// Every filter with a subscriber on this node, shared ones left out.
    pub fn for_each_filter(&self, mut each: impl FnMut(&str)) {
        self.filters.read().for_each(|filter, _| each(filter));
    }

    /// Every share group with a member on this node, and what of it is here.
    pub fn for_each_share(&self, mut each: impl FnMut(&str, ShareMembers)) {
        let mut each_of =
            |groups: &Vec<ShareGroup>| groups.iter().for_each(|group| each(&group.share, group.members()));
        self.shares.read().groups.for_each(|_, groups| each_of(groups));
    }

    /// Filters with a subscriber on this node, shared ones left out.
    pub fn len(&self) -> usize {
        self.filters.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{QoS, RetainHandling};

    const OPTIONS: SubscriptionOptions = SubscriptionOptions {
        qos: QoS::AtLeastOnce,
        no_local: false,
        retain_as_published: false,
        retain_handling: RetainHandling::SendAtSubscribe,
    };

    fn subscriber(session: SessionKey) -> Subscriber {
        Subscriber { session, options: OPTIONS, subscription_id: 0 }
    }

    fn member(client_id: &str, connected: bool) -> Member {
        Member { shard: 0, session: 0, client_id: client_id.into(), connected, options: OPTIONS, subscription_id: 0 }
    }

    fn sessions(index: &ShardIndex, topic: &str) -> Vec<SessionKey> {
        let mut found = Vec::new();
        index.for_each_match(topic, |subscribers| {
            found.extend(subscribers.as_slice().iter().map(|subscriber| subscriber.session))
        });
        found.sort_unstable();
        found
    }

    #[test]
    fn a_shard_tells_the_first_and_the_last_subscriber_of_a_filter() {
        let mut index = ShardIndex::default();
        assert!(index.insert("a/+", subscriber(1), false));
        assert!(!index.insert("a/+", subscriber(2), false));
        assert!(!index.insert("a/+", subscriber(1), false), "replaced, not added");
        assert_eq!(sessions(&index, "a/b"), [1, 2]);
        assert!(!index.remove("a/+", 1));
        assert!(!index.remove("a/+", 1), "twice");
        assert!(index.remove("a/+", 2));
        assert!(index.is_empty());
    }

    #[test]
    fn a_long_list_keeps_every_place_right_while_sessions_come_and_go() {
        let mut index = ShardIndex::default();
        let mut expected: Vec<SessionKey> = (0..1_000).collect();
        expected.iter().for_each(|session| _ = index.insert("t", subscriber(*session), false));
        for session in (0..1_000).step_by(3) {
            index.remove("t", session);
            expected.retain(|other| *other != session);
        }
        (0..1_000).step_by(6).for_each(|session| _ = index.insert("t", subscriber(session), false));
        expected.extend((0..1_000).step_by(6));
        expected.sort_unstable();
        assert_eq!(sessions(&index, "t"), expected);
    }

    #[test]
    fn the_node_knows_the_shards_of_a_topic() {
        let index = NodeIndex::default();
        assert!(index.insert("a/#", 0, false));
        assert!(!index.insert("a/#", 3, true));
        index.insert("a/b", 1, false);
        assert_eq!(index.shards("a/b"), Shards { all: 0b1011, kept: 0b1000 });
        assert!(!index.remove("a/#", 0));
        assert!(index.remove("a/#", 3));
        assert_eq!(index.shards("a/b"), Shards { all: 0b10, kept: 0 });
    }

    #[test]
    fn members_of_a_share_come_and_go_in_any_order() {
        let mut group = ShareGroup::new("$share/g/t".into());
        let mut model: std::collections::BTreeMap<String, bool> = Default::default();
        for step in 0..5_000_usize {
            let name = (step * 7_919 % 23).to_string();
            match step * 31 % 5 {
                0 | 1 => {
                    group.insert(member(&name, step % 3 > 0));
                    model.insert(name, step % 3 > 0);
                }
                2 | 3 => {
                    group.set_connected(&name, step % 2 == 0);
                    model.entry(name).and_modify(|connected| *connected = step % 2 == 0);
                }
                _ => {
                    group.remove(&name);
                    model.remove(&name);
                }
            }
            let members = group.members.iter().map(|member| (member.client_id.to_string(), member.connected));
            assert_eq!(members.collect::<std::collections::BTreeMap<_, _>>(), model);
            assert!(group.members.iter().enumerate().all(|(place, member)| group.places[&member.client_id] == place));
            assert_eq!(group.members.iter().take_while(|member| member.connected).count(), group.connected);
            assert_eq!(group.pick().is_some(), !model.is_empty());
            assert!(group.pick().is_none_or(|picked| picked.connected || group.connected == 0));
        }
    }

    #[test]
    fn connected_members_of_a_share_take_turns_and_detached_ones_wait_in_reserve() {
        let index = NodeIndex::default();
        let share: Arc<str> = "$share/g/t".into();
        for client_id in ["a", "b", "c"] {
            index.join_share(&share, "t", member(client_id, true));
        }
        index.set_share_connected(&share, "t", "b", false);
        let mut picked = Vec::new();
        for _ in 0..6 {
            index.pick_members("t", |pick| picked.push(pick.member.client_id.to_string()));
        }
        assert!(!picked.contains(&"b".to_owned()));
        assert!(picked.contains(&"a".to_owned()) && picked.contains(&"c".to_owned()));
        index.leave_share(&share, "t", "a");
        index.leave_share(&share, "t", "c");
        assert_eq!(&*index.pick_again(&share, "t").unwrap().member.client_id, "b");
        assert!(index.leave_share(&share, "t", "b"));
        index.pick_members("t", |_| panic!("the group is gone"));
    }
}
