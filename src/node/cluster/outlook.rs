//! How this node sees its cluster: who is in it, who leads, who is linked, and how close it is to losing its majority.
//!
//! Reads what the group, the links and the plane say at one moment; owns nothing. Tests to read first: `tests`.

use std::collections::BTreeMap;

use holdfast_raft::{ControlState, HeirsView, MemberView, NodeId};

use crate::admin::view;
use crate::cluster::copies::Lag;
use crate::link::PeerView;
use crate::node::admin_source::Local;

use super::plane::ClusterPlane;

/// The cluster called `cluster`, as this node sees it.
pub(super) fn of(local: &Local, plane: &ClusterPlane, cluster: &str) -> view::Cluster {
    let shared = &local.shared;
    let mut seen = view::Cluster {
        name: cluster.to_owned(),
        clustered: true,
        node: local.name.to_string(),
        grant_remaining_ms: shared.grant.remaining_ms(),
        suspended: !shared.grant.is_valid(),
        suspended_total: plane.suspended_total(),
        ..view::Cluster::default()
    };
    let own = view::Member { id: id(shared.node), name: seen.node.clone(), own: true, ..view::Member::default() };
    let mut members = BTreeMap::from([(shared.node, own)]);
    if let Some(group) = plane.group() {
        let status = group.status();
        group.read(|state| {
            take_nodes(&mut members, state);
            seen.will_bytes = state.counts().will_bytes;
            seen.copies = copies_in(state);
            take_figures(&mut seen.copies, &own_figures(plane, state));
        });
        take_members(&mut members, &status.members, status.leader);
        seen.id = Some(status.cluster_id).filter(|cluster| *cluster != 0).map(|cluster| format!("{cluster:032x}"));
        seen.leader = status.leader.and_then(|leader| Some(members.get(&leader)?.name.clone()));
        seen.term = status.term;
        seen.quorum = status.quorum;
        seen.last_log = status.last_log.unwrap_or(0);
        seen.applied = status.applied.unwrap_or(0);
        seen.apply_lag = seen.last_log.saturating_sub(seen.applied);
        seen.leader_changes_total = status.leader_changes;
    }
    if let Some(links) = plane.links() {
        if let Some(own) = members.get_mut(&shared.node) {
            own.address = Some(links.own().address.clone());
        }
        let peers = links.peers();
        take_addresses(&mut members, &peers);
        seen.links = links_of(&members, peers, &plane.owed_bytes(), &plane.watch().lags());
    }
    seen.nodes = members.into_values().collect();
    seen.nodes.sort_by(|one, other| (&one.name, &one.id).cmp(&(&other.name, &other.id)));
    seen.quorum_critical = !seen.quorum || is_critical(&seen.nodes);
    seen
}

fn id(node: NodeId) -> String {
    format!("{:032x}", node.0)
}

type Members = BTreeMap<NodeId, view::Member>;

fn take_nodes(members: &mut Members, state: &ControlState) {
    for node in state.nodes() {
        let member =
            members.entry(node.id).or_insert_with(|| view::Member { id: id(node.id), ..view::Member::default() });
        member.name = node.name.to_string();
        member.incarnation = node.incarnation;
        member.live = node.live;
    }
}

fn take_members(members: &mut Members, of_group: &[MemberView], leader: Option<NodeId>) {
    for there in of_group {
        let member =
            members.entry(there.id).or_insert_with(|| view::Member { id: id(there.id), ..view::Member::default() });
        member.name = there.name.clone();
        member.voter = there.voter;
        member.leader = leader == Some(there.id);
    }
}

fn take_addresses(members: &mut Members, peers: &[PeerView]) {
    for peer in peers {
        if let Some(member) = members.get_mut(&peer.peer.id) {
            member.address = Some(peer.peer.address.clone());
        }
    }
}

/// The links to nodes that are in the cluster or linked; of several under one name, as when a node has lost its disk, the one that is up or in it.
fn links_of(
    members: &Members,
    mut peers: Vec<PeerView>,
    owed: &BTreeMap<NodeId, usize>,
    lags: &BTreeMap<NodeId, Lag>,
) -> Vec<view::Link> {
    let weight = |peer: &PeerView| {
        let member = members.get(&peer.peer.id);
        (peer.is_up, member.is_some_and(|member| member.live), member.is_some())
    };
    peers.retain(|peer| peer.is_up || members.contains_key(&peer.peer.id));
    peers.sort_by(|one, other| one.peer.name.cmp(&other.peer.name).then_with(|| weight(other).cmp(&weight(one))));
    peers.dedup_by(|later, first| later.peer.name == first.peer.name);
    let link = |peer: PeerView| view::Link {
        peer: peer.peer.name.to_string(),
        peer_id: id(peer.peer.id),
        address: Some(peer.peer.address.clone()),
        up: peer.is_up,
        rtt_ms: peer.rtt_ms.filter(|_| peer.is_up),
        bytes_in: peer.bytes_in,
        bytes_out: peer.bytes_out,
        queue_bytes: (peer.control_queue_bytes + peer.bulk_queue_bytes) as u64,
        forward_queue_bytes: owed.get(&peer.peer.id).map_or(0, |bytes| *bytes as u64),
        copy_lag_bytes: lags.get(&peer.peer.id).map_or(0, |lag| lag.bytes as u64),
        copy_lag_records: lags.get(&peer.peer.id).map_or(0, |lag| lag.records as u64),
        last_error: peer.last_error.unwrap_or_default(),
    };
    peers.into_iter().map(link).collect()
}

/// Who has whose copies, by the names of the nodes.
fn copies_in(state: &ControlState) -> Vec<view::CopiesAt> {
    let name = |node: NodeId| state.node(node).map_or_else(|| id(node), |node| node.name.to_string());
    let mut copies = Vec::new();
    for home in state.nodes() {
        let HeirsView { base, next, whole } = state.heirs(home.id).unwrap_or_default();
        let (_, next) = next.unwrap_or_default();
        let complete = if whole { "complete" } else { "incomplete" };
        let of_base = base.iter().map(|(heir, stale)| (*heir, if *stale { "stale" } else { complete }));
        let of_base = of_base.filter(|(heir, state)| *state != "stale" || !next.contains(heir));
        let is_new = |heir: &&NodeId| !base.contains(&(**heir, false));
        let filled = next.iter().filter(is_new).map(|heir| (*heir, "filling"));
        copies.extend(of_base.chain(filled).map(|(heir, state)| view::CopiesAt {
            home: home.name.to_string(),
            heir: name(heir),
            home_id: id(home.id),
            heir_id: id(heir),
            state: state.to_owned(),
            figures: None,
        }));
    }
    let key = |row: &view::CopiesAt| (row.home.clone(), row.heir.clone(), row.home_id.clone(), row.heir_id.clone());
    copies.sort_by_cached_key(key);
    copies
}

/// What this node says of the copies of its own sessions.
pub(super) fn own_copies(plane: &ClusterPlane) -> Vec<view::CopiesAt> {
    let Some(group) = plane.group() else { return Vec::new() };
    group.read(|state| own_figures(plane, state))
}

fn own_figures(plane: &ClusterPlane, state: &ControlState) -> Vec<view::CopiesAt> {
    let own = id(plane.shared().node);
    let mut lags = plane.watch().lags();
    let mut copies = copies_in(state);
    copies.retain(|copies| copies.home_id == own);
    for node in state.nodes() {
        let lag = lags.remove(&node.id).unwrap_or_default();
        let heir = id(node.id);
        let there = copies.iter_mut().filter(|copies| copies.heir_id == heir);
        there.for_each(|copies| copies.figures = Some(figures(&lag)));
    }
    copies
}

fn figures(lag: &Lag) -> view::CopyFigures {
    view::CopyFigures {
        to_fill: lag.to_fill as u64,
        filled: lag.filled as u64,
        filled_bytes: lag.filled_bytes,
        lag_bytes: lag.bytes as u64,
        lag_records: lag.records as u64,
    }
}

/// Takes over the figures that a home has told. What it says beside them is what the state says.
pub(super) fn take_figures(copies: &mut [view::CopiesAt], told: &[view::CopiesAt]) {
    for one in told {
        let same = copies.iter_mut().filter(|copies| copies.home_id == one.home_id && copies.heir_id == one.heir_id);
        same.for_each(|copies| copies.figures = one.figures);
    }
}

/// Whether the others would have no majority to spare without this node, or none at all.
pub(super) fn is_critical_without(plane: &ClusterPlane) -> bool {
    let Some(group) = plane.group() else { return false };
    let status = group.status();
    let own = plane.shared().node;
    let live: Vec<NodeId> = group.read(|state| state.live_nodes().map(|node| node.id).collect());
    let member = |there: &MemberView| view::Member {
        voter: there.voter,
        live: live.contains(&there.id),
        ..view::Member::default()
    };
    let votes = status.members.iter().any(|there| there.voter && there.id == own);
    !status.quorum || (votes && is_critical(&status.members.iter().map(member).collect::<Vec<_>>()))
}

/// Whether the loss of one more live voter would end the majority.
fn is_critical(nodes: &[view::Member]) -> bool {
    let voters = nodes.iter().filter(|node| node.voter).count();
    let live = nodes.iter().filter(|node| node.voter && node.live).count();
    live <= voters / 2 + 1
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::link::Peer;

    fn voters(live: usize, dead: usize) -> Vec<view::Member> {
        let member = |live| view::Member { voter: true, live, ..view::Member::default() };
        let learner = view::Member { live: true, ..view::Member::default() };
        let voters = (0..live).map(|_| member(true)).chain((0..dead).map(|_| member(false)));
        voters.chain([learner]).collect()
    }

    #[test]
    fn a_majority_is_critical_when_it_has_no_voter_to_spare() {
        for (live, dead, critical) in [
            (3, 0, false),
            (2, 1, true),
            (5, 0, false),
            (4, 1, false),
            (3, 2, true),
            (2, 0, true),
            (1, 0, true),
            (4, 0, false),
        ] {
            assert_eq!(is_critical(&voters(live, dead)), critical, "{live} live, {dead} dead");
        }
    }

    fn peer(number: u128, name: &str, is_up: bool) -> PeerView {
        let address = format!("127.0.0.1:{number}");
        let peer = Peer { id: NodeId(number), name: name.into(), run: 1, address, shards: 1, versions: (1, 1) };
        let last_error = (!is_up).then(|| "refused".to_owned());
        PeerView {
            peer: Arc::new(peer),
            is_up,
            rtt_ms: Some(0.5),
            bytes_in: 1,
            bytes_out: 2,
            control_queue_bytes: 3,
            bulk_queue_bytes: 4,
            last_error,
        }
    }

    #[test]
    fn figures_of_a_home_go_to_its_own_rows() {
        let row = |home: &str, heir: &str, figures| view::CopiesAt {
            home: "n".to_owned(),
            heir: "n".to_owned(),
            home_id: home.to_owned(),
            heir_id: heir.to_owned(),
            state: "filling".to_owned(),
            figures,
        };
        let told = figures(&Lag { bytes: 1, records: 2, to_fill: 4, filled: 3, filled_bytes: 5 });
        let mut copies = vec![row("n1", "n2", None), row("n2", "n1", None)];
        take_figures(&mut copies, &[row("n2", "n1", Some(told)), row("n2", "n3", Some(told))]);
        assert_eq!(copies, [row("n1", "n2", None), row("n2", "n1", Some(told))]);
        assert_eq!((told.lag_bytes, told.lag_records, told.to_fill, told.filled, told.filled_bytes), (1, 2, 4, 3, 5));
    }

    #[test]
    fn a_name_has_one_link_which_is_that_of_the_node_that_is_there() {
        let member = |live| view::Member { live, ..view::Member::default() };
        let members =
            BTreeMap::from([(NodeId(2), member(false)), (NodeId(3), member(true)), (NodeId(4), member(false))]);
        let peers = vec![peer(2, "n2", false), peer(3, "n2", true), peer(4, "n3", false), peer(9, "gone", false)];
        let links = links_of(&members, peers, &BTreeMap::from([(NodeId(3), 77)]), &BTreeMap::new());
        let told: Vec<_> = links.iter().map(|link| (link.peer.as_str(), link.up, link.queue_bytes)).collect();
        assert_eq!(told, [("n2", true, 7), ("n3", false, 7)]);
        assert_eq!((links[0].forward_queue_bytes, links[1].forward_queue_bytes), (77, 0));
        assert_eq!((links[0].last_error.as_str(), links[1].last_error.as_str()), ("", "refused"));
        assert_eq!((links[0].rtt_ms, links[1].rtt_ms), (Some(0.5), None));
    }
}
