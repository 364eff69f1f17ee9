//! Who votes, who learns and who goes, step by step.

use super::*;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const D: NodeId = NodeId(4);

/// `me` has heard of `others` at `now`.
fn founding(me: NodeId, size: usize, others: &[NodeId], now: u64) -> Founding {
    let mut founding = Founding::new(me, &format!("n{}", me.0), size);
    others.iter().for_each(|other| founding.hello(*other, now));
    founding
}

#[test]
fn the_smallest_id_founds_when_enough_have_promised() {
    let mut a = founding(A, 3, &[B, C, D], 0);
    let mut b = founding(B, 3, &[A, C, D], 0);
    let linked = [B, C, D];
    assert_eq!(b.step(&[A, C, D], 0), FoundingStep::Wait);
    let FoundingStep::Ask { attempt, of } = a.step(&linked, 0) else { panic!("it asks") };
    assert_eq!(of, [B, C]);
    assert!(b.asked(A, 10));
    a.promise(B, attempt, "n2".to_owned());
    a.promise(D, attempt, "n4".to_owned());
    assert_eq!(a.step(&linked, 20), FoundingStep::Ask { attempt, of: vec![C] }, "D was not asked");
    a.promise(C, attempt, "n3".to_owned());
    let members = [A, B, C].map(|node| (node, format!("n{}", node.0))).into();
    assert_eq!(a.step(&linked, 30), FoundingStep::Found(members));
}

#[test]
fn a_promise_binds_to_one_founder_for_longer_than_its_attempt_lasts() {
    let mut c = founding(C, 2, &[A, B], 0);
    assert!(c.asked(A, 0));
    assert!(!c.asked(B, ATTEMPT_MS + 1), "A may just be founding");
    assert!(c.asked(A, 2000));
    assert!(!c.asked(B, 2000 + PROMISE_MS - 1));
    assert!(c.asked(B, 2000 + PROMISE_MS));
    assert_eq!(c.promised_to(2000 + PROMISE_MS), Some(B));
}

#[test]
fn promises_of_an_older_attempt_do_not_count() {
    let mut a = founding(A, 2, &[B], 0);
    let FoundingStep::Ask { attempt, .. } = a.step(&[B], 0) else { panic!("it asks") };
    a.hello(B, ATTEMPT_MS);
    let FoundingStep::Ask { attempt: next, .. } = a.step(&[B], ATTEMPT_MS) else { panic!("it asks again") };
    assert_ne!(attempt, next);
    a.promise(B, attempt, "n2".to_owned());
    assert!(matches!(a.step(&[B], ATTEMPT_MS), FoundingStep::Ask { .. }));
}

#[test]
fn who_has_promised_itself_to_another_does_not_found() {
    let mut b = founding(B, 2, &[C], 0);
    assert!(b.asked(A, 0));
    assert_eq!(b.step(&[C], 1), FoundingStep::Wait);
    assert!(!b.asked(D, 2));
    // And who is founding promises nothing.
    let mut a = founding(A, 2, &[B], 0);
    a.step(&[B], 0);
    assert!(!a.asked(D, 1));
}

#[test]
fn nodes_that_are_silent_or_without_link_are_not_counted_on() {
    let mut a = founding(A, 3, &[B, C], 0);
    assert_eq!(a.step(&[B], 10), FoundingStep::Wait);
    let mut a = founding(A, 3, &[B, C], 0);
    a.hello(B, SEEN_MS);
    assert_eq!(a.step(&[B, C], SEEN_MS), FoundingStep::Wait);
    let mut alone = founding(A, 1, &[], 0);
    assert_eq!(alone.step(&[], 0), FoundingStep::Found([(A, "n1".to_owned())].into()));
}

/// Voters and learners, named after their ids unless they say another.
fn members(voters: &[u128], learners: &[(u128, &str)]) -> Members {
    let named = voters.iter().map(|id| (*id, format!("n{id}")));
    let nodes = named.chain(learners.iter().map(|(id, name)| (*id, (*name).to_owned())));
    let nodes = nodes.map(|(id, name)| (id, Member { name })).collect();
    let voters: BTreeSet<u128> = voters.iter().copied().collect();
    Members { configs: vec![voters.clone()], voters, nodes, settled: true }
}

fn joining(id: u128, name: &str) -> BTreeMap<u128, String> {
    [(id, name.to_owned())].into()
}

#[test]
fn who_joins_is_a_learner_and_then_a_voter() {
    let before = members(&[1, 2, 3], &[]);
    let wish = joining(4, "n4");
    let step = next_step(&before, &wish, None, |_| true, |_| true);
    assert_eq!(step, Some(MemberStep::AddLearner { id: 4, name: "n4".to_owned() }));
    let learning = members(&[1, 2, 3], &[(4, "n4")]);
    assert_eq!(next_step(&learning, &wish, None, |_| false, |_| true), None, "it has not caught up");
    assert_eq!(next_step(&learning, &wish, None, |_| true, |id| id != 4), None, "it is not there");
    let step = next_step(&learning, &wish, None, |_| true, |_| true);
    assert_eq!(step, Some(MemberStep::Voters([1, 2, 3, 4].into())));
    let full = members(&[1, 2, 3, 4, 5], &[(6, "n6")]);
    assert_eq!(next_step(&full, &wish, None, |_| true, |_| true), None);
}

#[test]
fn who_is_about_to_vote_is_known_until_that_is_done() {
    let is_to_vote = |members: &Members, ids: [u128; 3]| ids.map(|id| members.is_to_vote(id));
    let learning = members(&[1, 2, 3], &[(9, "n3")]);
    assert_eq!(is_to_vote(&learning, [9, 1, 3]), [true, false, false], "the dead one counts still");
    let halves = [[1, 2, 3], [1, 2, 9]].map(|voters| voters.into_iter().collect());
    let changing = Members { configs: halves.into(), ..members(&[1, 2, 3, 9], &[]) };
    assert_eq!(is_to_vote(&changing, [9, 1, 3]), [true, false, false], "one comes and one goes");
    assert_eq!(is_to_vote(&members(&[1, 2, 9], &[]), [9, 1, 3]), [false; 3]);
    let full = members(&[1, 2, 3, 4, 5], &[(6, "n6"), (9, "n5")]);
    assert_eq!(is_to_vote(&full, [6, 9, 7]), [false, true, false], "one follows only, one is no member");
    assert!(members(&[1, 2, 3], &[(4, "n4")]).is_to_vote(4), "there is a place");
}

#[test]
fn a_new_id_takes_the_place_of_a_dead_namesake_only() {
    let before = members(&[1, 2, 3], &[]);
    let wish = joining(9, "n3");
    let step = next_step(&before, &wish, None, |_| true, |_| true);
    assert!(matches!(step, Some(MemberStep::Refuse { id: 9, .. })), "{step:?}");
    let dead = |id| id != 3;
    let step = next_step(&before, &wish, None, |_| true, dead);
    assert_eq!(step, Some(MemberStep::AddLearner { id: 9, name: "n3".to_owned() }));
    let both = members(&[1, 2, 3], &[(9, "n3")]);
    assert_eq!(next_step(&both, &wish, None, |_| true, dead), Some(MemberStep::Voters([1, 2, 9].into())));
    // Among five voters too, for it takes a place that there is.
    let five = members(&[1, 2, 3, 4, 5], &[(9, "n3")]);
    assert_eq!(next_step(&five, &wish, None, |_| true, dead), Some(MemberStep::Voters([1, 2, 4, 5, 9].into())));
    let old_learner = members(&[1, 2], &[(3, "n3"), (9, "n3")]);
    assert_eq!(next_step(&old_learner, &wish, None, |_| true, dead), Some(MemberStep::RemoveLearner(3)));
}

#[test]
fn ids_are_told_as_everywhere() {
    let reason = "node 3 is alive".to_owned();
    let told = format!("{}", MemberStep::Refuse { id: 0xab, reason });
    assert_eq!(told, "000000000000000000000000000000ab is refused: node 3 is alive");
    assert_eq!(
        format!("{}", MemberStep::Voters([1, 2].into())),
        "the voters are 00000000000000000000000000000001, 00000000000000000000000000000002"
    );
}

#[test]
fn who_leaves_is_removed_unless_it_is_the_last() {
    let none = BTreeMap::new();
    let three = members(&[1, 2, 3], &[(4, "n4")]);
    let leave = |members: &Members, id| next_step(members, &none, Some(id), |_| false, |_| true);
    assert_eq!(leave(&three, 2), Some(MemberStep::Voters([1, 3].into())));
    assert_eq!(leave(&three, 4), Some(MemberStep::RemoveLearner(4)));
    assert_eq!(leave(&three, 7), None);
    assert!(matches!(leave(&members(&[1], &[]), 1), Some(MemberStep::Refuse { id: 1, .. })));
    assert_eq!(three.find("n2"), Some(2));
    assert_eq!(three.find("00000000000000000000000000000003"), Some(3));
    assert_eq!(three.find("n9"), None);
}

#[test]
fn voters_are_there_when_they_answer_what_they_are_asked_from_now_on() {
    let (few, more) = (BTreeSet::from([1, 2]), BTreeSet::from([1, 2, 3]));
    let mut sounding = Sounding::default();
    // It died a moment ago: what it said before is no answer.
    assert_eq!(sounding.sound(&few, Some(999), 1000, 3000), Sounded::Wait);
    assert_eq!(sounding.sound(&few, Some(999), 3999, 3000), Sounded::Wait);
    assert_eq!(sounding.sound(&few, Some(999), 4000, 3000), Sounded::Missing);
    assert_eq!(sounding.sound(&few, Some(999), 4005, 3000), Sounded::Missing);
    sounding.forget();
    assert_eq!(sounding.sound(&few, None, 4010, 3000), Sounded::Wait, "the question comes up anew");
    assert_eq!(sounding.sound(&few, Some(4010), 4100, 3000), Sounded::There);
    assert_eq!(sounding.sound(&few, Some(4010), 4200, 3000), Sounded::Wait, "for each change");
    assert_eq!(sounding.sound(&more, Some(4250), 4300, 3000), Sounded::Wait, "for other voters too");
    sounding.forget();
    assert_eq!(sounding.sound(&more, Some(4350), 7400, 3000), Sounded::Wait);
}

#[test]
fn a_change_that_is_half_done_goes_on_or_back() {
    let half = |old: &[u128], new: &[u128]| {
        let both: BTreeSet<u128> = old.iter().chain(new).copied().collect();
        let both: Vec<u128> = both.into_iter().collect();
        let configs = [old, new].map(|voters| voters.iter().copied().collect()).into();
        Members { configs, ..members(&both, &[]) }
    };
    let to = |voters: &[u128]| Some(MemberStep::Voters(voters.iter().copied().collect()));
    let goes = half(&[1, 2, 3], &[1, 2]);
    assert_eq!(rest_of_change(&goes, Some(3), |_| true, |_| true), to(&[1, 2]), "it still wants to go");
    assert_eq!(rest_of_change(&goes, None, |id| id != 3, |_| true), to(&[1, 2]), "it has ended");
    assert_eq!(rest_of_change(&goes, None, |_| true, |_| true), to(&[1, 2, 3]), "it has given up, and serves on");
    assert_eq!(rest_of_change(&goes, Some(3), |_| true, |voters| voters.len() == 3), to(&[1, 2, 3]), "2 has died");
    assert_eq!(rest_of_change(&goes, Some(3), |_| true, |_| false), None);
    let comes = half(&[1, 2, 3], &[1, 2, 3, 4]);
    assert_eq!(rest_of_change(&comes, None, |_| true, |_| true), to(&[1, 2, 3, 4]));
    assert_eq!(rest_of_change(&comes, None, |_| true, |voters| voters.len() == 3), to(&[1, 2, 3]));
    assert_eq!(rest_of_change(&members(&[1, 2, 3], &[]), Some(3), |_| true, |_| true), None);
}
