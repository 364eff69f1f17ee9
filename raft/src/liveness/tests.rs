//! Scripts: what happens at which time, and what must come of it. Times are of one true clock unless a script says otherwise.

use std::collections::BTreeSet;

use super::*;
use crate::command::NodeId;

const TIMING: Timing = Timing { lease_ms: 3000, renew_ms: 500, margin_ms: 500, fence_grace_ms: 5000 };
const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);

fn voters() -> BTreeSet<NodeId> {
    BTreeSet::from([A, B, C])
}

fn asking(complaints: &[NodeId]) -> Asking {
    let complaints = complaints.iter().map(|node| (*node, 1)).collect();
    Asking { incarnation: 1, complaints, hampered: false }
}

/// A leader that has applied an entry of its own term at `now`, and sees `live`.
fn leader(live: &[NodeId], now: u64) -> Renewals {
    let mut renewals = Renewals::new(TIMING);
    renewals.begin(now);
    let live: Vec<(NodeId, u64)> = live.iter().map(|node| (*node, 1)).collect();
    renewals.observe(&live, now);
    renewals
}

fn names(verdicts: &[Verdict]) -> Vec<NodeId> {
    verdicts.iter().map(|verdict| verdict.node).collect()
}

fn tenure(now: u64) -> Tenure {
    let mut tenure = Tenure::new(TIMING);
    tenure.registered(1, now);
    tenure
}

/// What it may do while both clocks go together.
fn standing(tenure: &mut Tenure, now: u64) -> Standing {
    tenure.standing(now, 1_000_000 + now)
}

#[test]
fn a_renewed_node_goes_on_and_a_silent_one_is_expired_after_a_lease() {
    let mut leader = leader(&[A, B, C], 0);
    for now in (0..10_000).step_by(500) {
        for node in [A, B] {
            assert_eq!(leader.renew(node, asking(&[]), Some((1, true)), Some(now), now), Answer::Granted(2500));
        }
        let expired = names(&leader.verdicts(&voters(), A, now));
        assert_eq!(expired, if now >= 3000 { vec![C] } else { vec![] }, "{now}");
    }
}

#[test]
fn a_deposed_leader_grants_nothing_that_outlives_its_successors_patience() {
    // A leads and is cut off with B at 10,000; its last proof of a majority is from then. C and others elect C at 10,700, which has its first entry at 10,900.
    let mut old = leader(&[A, B, C], 0);
    let mut node = tenure(9_000);
    let mut granted_until = 0;
    for now in (10_000..20_000).step_by(250) {
        node.sent(now);
        if let Answer::Granted(granted) = old.renew(B, asking(&[]), Some((1, true)), Some(10_000), now) {
            node.renewed(1, now, granted, now);
        }
        if let Standing::Granted { until } = standing(&mut node, now) {
            granted_until = until;
        }
    }
    assert_eq!(granted_until, 12_500, "a grant ends a lease less a margin after the last proof");
    let mut new = leader(&[A, B, C], 10_900);
    let first = (10_900..20_000).find(|now| names(&new.verdicts(&voters(), C, *now)).contains(&B));
    assert_eq!(first, Some(13_900));
}

#[test]
fn without_any_proof_of_a_majority_nothing_is_granted() {
    let mut leader = leader(&[A, B], 0);
    assert_eq!(leader.renew(B, asking(&[]), Some((1, true)), None, 100), Answer::Silence);
    assert_eq!(leader.renew(B, asking(&[]), Some((1, true)), Some(100), 2_600), Answer::Silence);
    assert_eq!(leader.renew(B, asking(&[]), Some((1, true)), Some(100), 2_599), Answer::Granted(1));
}

#[test]
fn a_leader_answers_nobody_before_it_has_applied_an_entry_of_its_own_term() {
    // What its predecessor has proposed may expire the one who asks.
    let mut renewals = Renewals::new(TIMING);
    assert_eq!(renewals.renew(B, asking(&[]), Some((1, true)), Some(100), 100), Answer::Silence);
    renewals.begin(200);
    assert_eq!(renewals.renew(B, asking(&[]), Some((1, true)), Some(200), 200), Answer::Granted(2500));
    // The old entry was applied with the new one: now it is known that B is dead.
    assert_eq!(renewals.renew(B, asking(&[]), Some((1, false)), Some(300), 300), Answer::Expired);
    assert_eq!(renewals.renew(B, asking(&[]), Some((2, true)), Some(300), 300), Answer::Expired, "it has a newer one");
    let unknown = [None, Some((0, true)), Some((0, false))];
    for latest in unknown {
        let answer = renewals.renew(B, asking(&[]), latest, Some(300), 300);
        assert_eq!(answer, Answer::Silence, "it has applied its registration before the leader");
    }
    renewals.end();
    assert_eq!(renewals.renew(B, asking(&[]), Some((1, true)), Some(400), 400), Answer::Silence);
}

#[test]
fn nobody_is_answered_whose_expiry_is_proposed() {
    let mut leader = leader(&[A, B], 0);
    assert_eq!(names(&leader.verdicts(&voters(), A, 3000)), [A, B]);
    // It thaws just now; its expiry is in the log and not yet applied.
    assert_eq!(leader.renew(B, asking(&[]), Some((1, true)), Some(3100), 3100), Answer::Silence);
    assert_eq!(names(&leader.verdicts(&voters(), A, 3100)), []);
    assert_eq!(names(&leader.verdicts(&voters(), A, 3500)), [A, B], "a proposal may be lost");
    leader.observe(&[(A, 1)], 3600);
    assert_eq!(names(&leader.verdicts(&voters(), A, 4000)), [A]);
    // It registers anew, and has a lease from then on.
    leader.observe(&[(A, 1), (B, 2)], 4100);
    let asking = Asking { incarnation: 2, ..asking(&[]) };
    assert_eq!(leader.renew(B, asking, Some((2, true)), Some(4200), 4200), Answer::Granted(2500));
}

#[test]
fn who_registers_has_a_lease_from_then_on() {
    let mut leader = leader(&[A], 0);
    leader.renew(A, asking(&[]), Some((1, true)), Some(2900), 2900);
    leader.observe(&[(A, 1), (B, 1)], 2900);
    assert_eq!(names(&leader.verdicts(&voters(), A, 5899)), []);
    assert_eq!(names(&leader.verdicts(&voters(), A, 5900)), [A, B]);
}

/// All renew every 250 ms and complain as they do; when is who expired?
fn first_expired(leading: NodeId, complaints: &[(NodeId, &[NodeId])]) -> Option<(u64, NodeId)> {
    let mut leader = leader(&[A, B, C], 0);
    for now in (0..12_000).step_by(250) {
        for (node, of) in complaints {
            leader.renew(*node, asking(of), Some((1, true)), Some(now), now);
        }
        if let Some(verdict) = leader.verdicts(&voters(), leading, now).first() {
            assert!(verdict.complained_of);
            return Some((now, verdict.node));
        }
    }
    None
}

#[test]
fn of_two_without_link_the_one_goes_that_does_not_lead_then_the_larger_id() {
    let cut = |a, b| [(a, vec![b]), (b, vec![a])];
    for (leading, a, b, goes) in [(A, B, C, C), (C, A, B, B), (C, B, C, B), (A, A, C, C), (B, A, B, A)] {
        let pairs = cut(a, b);
        let all: Vec<(NodeId, &[NodeId])> = [A, B, C]
            .map(|node| (node, pairs.iter().find(|(from, _)| *from == node).map_or(&[][..], |(_, of)| &of[..])))
            .to_vec();
        let (when, who) = first_expired(leading, &all).expect("somebody goes");
        assert_eq!(who, goes, "{leading:?} leads, {a:?} and {b:?} do not see one another");
        assert_eq!(when, 3000, "a full lease after it was last answered");
    }
}

#[test]
fn who_is_in_most_complaints_goes_and_who_is_accused_before_who_accuses() {
    assert_eq!(first_expired(A, &[(A, &[B]), (B, &[]), (C, &[B])]).map(|(_, who)| who), Some(B));
    assert_eq!(first_expired(B, &[(A, &[B]), (B, &[A]), (C, &[B])]).map(|(_, who)| who), Some(B), "the leader too");
    assert_eq!(first_expired(A, &[(A, &[]), (B, &[]), (C, &[B])]).map(|(_, who)| who), Some(B));
    assert_eq!(first_expired(A, &[(A, &[]), (B, &[B, NodeId(9)]), (C, &[])]), None);
}

#[test]
fn one_goes_per_lease_time_and_never_below_a_majority() {
    let mut leader = leader(&[A, B, C], 0);
    let mut expired = Vec::new();
    for now in (0..20_000).step_by(250) {
        for (node, of) in [(A, [B]), (B, [C]), (C, [B])] {
            if !expired.contains(&node) {
                leader.renew(node, asking(&of), Some((1, true)), Some(now), now);
            }
        }
        for verdict in leader.verdicts(&voters(), A, now) {
            expired.push(verdict.node);
        }
        let live: Vec<(NodeId, u64)> = [A, B, C].into_iter().filter(|n| !expired.contains(n)).map(|n| (n, 1)).collect();
        leader.observe(&live, now);
    }
    assert_eq!(expired, [B], "two of three are a majority and stay one");
}

#[test]
fn complaints_of_who_is_silent_do_not_count() {
    let mut leader = leader(&[A, B, C], 0);
    leader.renew(C, asking(&[B]), Some((1, true)), Some(0), 0);
    let mut first = None;
    for now in (0..6_000).step_by(250) {
        leader.renew(A, asking(&[]), Some((1, true)), Some(now), now);
        if now >= 500 {
            leader.renew(B, asking(&[]), Some((1, true)), Some(now), now);
        }
        if now > 0 {
            first = first.or(leader.verdicts(&voters(), A, now).first().copied());
        }
    }
    assert_eq!(first.map(|verdict| (verdict.node, verdict.complained_of)), Some((C, false)));
}

/// All renew every 250 ms, and C complains of B from 1 s on as it does at that time; who is expired until 12 s, and when was B last answered?
fn while_c_complains(complaint: impl Fn(u64) -> Vec<(NodeId, u64)>, b: &Asking) -> (Vec<(u64, NodeId)>, u64) {
    let mut leader = leader(&[A, B, C], 0);
    leader.observe(&[(A, 1), (C, 1)], 0);
    leader.observe(&[(A, 1), (B, b.incarnation), (C, 1)], 0);
    let (mut expired, mut answered) = (Vec::new(), 0);
    for now in (0..12_000).step_by(250) {
        leader.renew(A, asking(&[]), Some((1, true)), Some(now), now);
        if leader.renew(B, b.clone(), Some((b.incarnation, true)), Some(now), now) != Answer::Silence {
            answered = now;
        }
        let complaints = if now < 1000 { vec![] } else { complaint(now) };
        leader.renew(C, Asking { complaints, ..asking(&[]) }, Some((1, true)), Some(now), now);
        expired.extend(leader.verdicts(&voters(), A, now).iter().map(|verdict| (now, verdict.node)));
        if !expired.is_empty() {
            break;
        }
    }
    (expired, answered)
}

#[test]
fn a_condemnation_ends_with_its_complaint() {
    let until = |end| move |now: u64| if now < end { vec![(B, 1)] } else { vec![] };
    assert_eq!(while_c_complains(until(12_000), &asking(&[])), (vec![(4000, B)], 1000), "it goes if nothing changes");
    assert_eq!(while_c_complains(until(3_750), &asking(&[])), (vec![], 11_750));
}

#[test]
fn a_complaint_of_an_earlier_incarnation_says_nothing_of_the_next() {
    let b = Asking { incarnation: 2, ..asking(&[]) };
    assert_eq!(while_c_complains(|_| vec![(B, 1)], &b), (vec![], 11_750));
    assert_eq!(while_c_complains(|_| vec![(B, 2)], &b).0, [(4000, B)]);
}

#[test]
fn nobody_is_expired_for_what_waits_for_its_disk() {
    let b = Asking { hampered: true, ..asking(&[]) };
    assert_eq!(while_c_complains(|_| vec![(B, 1)], &b), (vec![], 11_750));
}

#[test]
fn who_complains_and_then_dies_takes_nobody_along() {
    let mut leader = leader(&[A, B, C], 0);
    let mut expired = Vec::new();
    for now in (0..12_000).step_by(250) {
        leader.renew(A, asking(&[]), Some((1, true)), Some(now), now);
        leader.renew(B, asking(&[]), Some((1, true)), Some(now), now);
        if now <= 1000 {
            leader.renew(C, asking(&[B]), Some((1, true)), Some(now), now);
        }
        expired.extend(names(&leader.verdicts(&voters(), A, now)));
    }
    expired.dedup();
    assert_eq!(expired, [C]);
}

#[test]
fn a_grant_counts_from_when_its_renewal_was_sent() {
    let mut node = tenure(0);
    node.sent(1000);
    assert_eq!(standing(&mut node, 1900), Standing::Suspended);
    node.renewed(1, 1000, 2500, 2000);
    assert_eq!(standing(&mut node, 2000), Standing::Granted { until: 3500 });
    assert_eq!(standing(&mut node, 3499), Standing::Granted { until: 3500 });
    assert_eq!(standing(&mut node, 3500), Standing::Suspended);
}

#[test]
fn answers_that_cannot_be_meant_are_not_believed() {
    let mut node = tenure(1000);
    node.renewed(1, 3000, 2500, 2000);
    node.renewed(1, 900, 2500, 2000);
    node.renewed(2, 1500, 2500, 2000);
    assert_eq!(standing(&mut node, 2000), Standing::Suspended);
    node.renewed(1, 1500, u64::MAX, 2000);
    assert_eq!(standing(&mut node, 2000), Standing::Granted { until: 4000 });
    node.renewed(1, 1400, 2500, 2100);
    assert_eq!(standing(&mut node, 2100), Standing::Granted { until: 4000 }, "an older answer takes nothing away");
}

#[test]
fn a_hiccup_suspends_and_only_a_long_one_ends() {
    let mut node = tenure(0);
    node.renewed(1, 100, 2500, 200);
    assert_eq!(standing(&mut node, 2600), Standing::Suspended);
    assert_eq!(standing(&mut node, 7500), Standing::Suspended);
    node.renewed(1, 7550, 2500, 7560);
    assert_eq!(standing(&mut node, 7560), Standing::Granted { until: 10_050 }, "as if nothing had been");
    // Nobody has looked for long: the grace counts from the end of the grant.
    assert_eq!(standing(&mut node, 15_050), Standing::Ended);
    node.renewed(1, 15_060, 2500, 15_070);
    assert_eq!(standing(&mut node, 15_070), Standing::Ended, "what is over stays over");
    assert_eq!(node.incarnation(), None);
    node.registered(2, 16_000);
    node.renewed(2, 16_100, 2500, 16_200);
    assert_eq!(standing(&mut node, 16_200), Standing::Granted { until: 18_600 });
}

#[test]
fn who_is_told_of_its_expiry_ends_at_once() {
    let mut node = tenure(0);
    node.renewed(1, 100, 2500, 200);
    node.expired(7);
    assert_eq!(standing(&mut node, 300), Standing::Granted { until: 2600 });
    node.expired(1);
    assert_eq!(standing(&mut node, 300), Standing::Ended);
}

#[test]
fn without_links_to_a_majority_a_node_stops_at_once() {
    let mut node = tenure(0);
    node.renewed(1, 100, 2500, 200);
    node.linked(false);
    assert_eq!(standing(&mut node, 300), Standing::Suspended);
    node.linked(true);
    assert_eq!(standing(&mut node, 400), Standing::Granted { until: 2600 });
    node.linked(false);
    assert_eq!(standing(&mut node, 500), Standing::Suspended);
    assert_eq!(standing(&mut node, 5500), Standing::Ended);
}

#[test]
fn a_machine_that_was_paused_has_no_grant() {
    let mut node = tenure(0);
    node.renewed(1, 100, 2500, 200);
    assert_eq!(node.standing(1000, 50_000), Standing::Granted { until: 2600 });
    assert_eq!(node.standing(1100, 50_590), Standing::Granted { until: 2600 }, "within the margin");
    // Eight seconds went by, of which the boot clock knows nothing.
    assert_eq!(node.standing(1200, 58_700), Standing::Suspended);
    node.renewed(1, 1150, 2500, 1210);
    assert_eq!(node.standing(1210, 58_710), Standing::Suspended, "that was asked before the pause");
    node.renewed(1, 1220, 2500, 1230);
    assert_eq!(node.standing(1230, 58_730), Standing::Granted { until: 3720 });
}

#[test]
fn renewals_go_out_at_their_pace_and_faster_without_a_grant() {
    let mut node = tenure(0);
    let mut sent = Vec::new();
    for now in 0..2000 {
        if now == 450 {
            node.renewed(1, 400, 2500, 450);
        }
        standing(&mut node, now);
        if node.renewal_due(now) {
            node.sent(now);
            sent.push(now);
        }
    }
    assert_eq!(sent, [0, 100, 200, 300, 400, 900, 1400, 1900]);
}

#[test]
fn proof_of_a_majority_is_as_old_as_the_message_that_completes_it() {
    let three = [BTreeSet::from([1, 2, 3])];
    let mut acks = QuorumAcks::default();
    assert_eq!(acks.quorum_at(5, 1, &three, 1000), None);
    acks.acknowledged(5, 2, 700);
    assert_eq!(acks.quorum_at(5, 1, &three, 1000), Some(700));
    acks.acknowledged(5, 3, 900);
    acks.acknowledged(5, 3, 800);
    assert_eq!(acks.quorum_at(5, 1, &three, 1000), Some(900));
    assert_eq!(acks.quorum_at(6, 1, &three, 1000), None, "what was acknowledged in an earlier term says nothing");
    let joint = [BTreeSet::from([1, 2, 3]), BTreeSet::from([1, 2, 4, 5])];
    acks.acknowledged(5, 4, 300);
    assert_eq!(acks.quorum_at(5, 1, &joint, 1000), Some(300));
    assert_eq!(acks.quorum_at(5, 1, &[BTreeSet::from([1])], 1000), Some(1000));
    assert_eq!(acks.quorum_at(5, 9, &[BTreeSet::from([2, 3])], 1000), Some(700), "a leader that is no voter");
    acks.acknowledged(6, 2, 1100);
    assert_eq!(acks.quorum_at(5, 1, &three, 1200), None);
    assert_eq!(acks.quorum_at(6, 1, &three, 1200), Some(1100));
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 128, failure_persistence: None, ..Default::default() })]

    /// Two leaders, the second elected at any time after the first's last proof of a majority; clocks of different zero; messages that take any time: nobody
    /// has a grant when it is expired.
    #[test]
    fn no_grant_is_valid_when_its_expiry_is_proposed(
        zero in 0_u64..1_000_000,
        last_proof in 1000_u64..8000,
        elected_after in 0_u64..3000,
        renewals in proptest::collection::vec((0_u64..12_000, 0_u64..2500, 0_u64..2500, 0_u8..4), 1..40),
    ) {
        let (mut old, mut new) = (leader(&[A, B, C], 0), Renewals::new(TIMING));
        let mut node = tenure(zero);
        let began = last_proof + elected_after;
        new.begin(began);
        new.observe(&[(A, 1), (B, 1), (C, 1)], began);
        // (when it arrives at the leader, which, sent when, back when)
        let mut events: Vec<(u64, bool, u64, u64)> = renewals
            .into_iter()
            .map(|(sent, there, back, which)| (sent + there, which == 0, sent, sent + there + back))
            .collect();
        events.sort_unstable();
        let mut proposed = None;
        let mut answers: Vec<(u64, u64, u64)> = Vec::new();
        for now in 0..20_000 {
            for (_, to_new, sent, back) in events.iter().filter(|(at, ..)| *at == now) {
                let (leader, proof) = if *to_new { (&mut new, now) } else { (&mut old, last_proof.min(now)) };
                if *to_new && now < began {
                    continue;
                }
                if let Answer::Granted(granted) = leader.renew(B, asking(&[]), Some((1, true)), Some(proof), now) {
                    answers.push((*back, *sent, granted));
                }
            }
            for (_, sent, granted) in answers.iter().filter(|(at, ..)| *at == now) {
                node.renewed(1, zero + sent, *granted, zero + now);
            }
            if now >= began && proposed.is_none() && names(&new.verdicts(&voters(), C, now)).contains(&B) {
                proposed = Some(now);
            }
            if proposed.is_some() {
                let is_granted = matches!(standing(&mut node, zero + now), Standing::Granted { .. });
                proptest::prop_assert!(!is_granted, "expired at {proposed:?}, and has a grant at {now}");
            }
        }
    }
}
