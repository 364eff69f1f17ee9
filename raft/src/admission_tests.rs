//! What is let in, and what is not.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::CommittedLeaderId;

use super::*;
use crate::command::ShareMembers;
use crate::entry::BatchOrigin;
use crate::state_machine::encode_commands;
use crate::wire::{self, Message};

const LEADER: u128 = 9;

fn id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, LEADER), index)
}

fn blank(term: u64, index: u64) -> Entry {
    Entry { log_id: id(term, index), payload: EntryPayload::Blank }
}

fn rpc(prev: Option<LogId>, entries: Vec<Entry>) -> AppendEntriesRequest<TypeConfig> {
    AppendEntriesRequest { vote: Vote::new_committed(3, LEADER), prev_log_id: prev, entries, leader_commit: None }
}

fn batch_of(commands: &[Command]) -> Batch {
    let origin = BatchOrigin::Node { node: 5, incarnation: 2, number: 9 };
    Batch { at: 0, origin, count: commands.len() as u32, commands: encode_commands(commands) }
}

fn routes(filter: String) -> Command {
    Command::Routes { add: vec![filter.into()], remove: Vec::new() }
}

#[test]
fn a_batch_that_no_message_could_carry_is_refused() {
    assert_eq!(batch(&batch_of(&[routes("a/b".to_owned())])), Ok(()));
    let filters: Vec<Arc<str>> = (0..40).map(|_| "f".repeat(TEXT_BYTES_MAX).into()).collect();
    let large = batch_of(&[Command::Routes { add: filters, remove: Vec::new() }]);
    assert!(matches!(batch(&large), Err(Inadmissible::TooLong { what: "a batch", .. })));
    // The largest that is let in can be sent on, whatever else is in the entry.
    let most = Batch { commands: Bytes::from(vec![0; COMMAND_BYTES_MAX]), ..large };
    let entry = Entry { log_id: id(3, 7), payload: EntryPayload::Normal(most) };
    let sent = wire::encode(1, &Message::Append { request: 1, rpc: rpc(Some(id(3, 6)), vec![entry]) });
    assert!(sent.len() < MESSAGE_BYTES_MAX);
}

#[test]
fn commands_that_sessions_cannot_keep_are_refused() {
    let text = |bytes: usize| "x".repeat(bytes);
    let acquire = |client: String, will: usize| Command::Acquire {
        client: client.into(),
        clean: false,
        expiry_secs: 0,
        will: Some(LeaseWill { delay_secs: 0, message: Bytes::from(vec![0; will]) }),
    };
    let group = |name: usize, filter: usize| Command::ShareRoutes {
        set: vec![((text(name).into(), text(filter).into()), ShareMembers::default())],
        remove: Vec::new(),
    };
    let good = [acquire(text(65_535), 16 * 1024), routes(text(65_535)), group(30_000, 35_527)];
    good.into_iter().for_each(|command| assert_eq!(batch(&batch_of(&[command])), Ok(())));
    let bad = [acquire(text(65_536), 0), acquire(text(1), 65_537), routes(text(65_536)), group(30_000, 35_528)];
    bad.into_iter().for_each(|command| assert!(batch(&batch_of(&[command])).is_err()));
    let many = vec![Command::RoutesComplete; BATCH_COMMANDS_MAX + 1];
    assert!(matches!(batch(&batch_of(&many)), Err(Inadmissible::TooMany { .. })));
    assert!(batch(&batch_of(&many[1..])).is_ok());
    let claims = Batch { count: 3, ..batch_of(&many[..2]) };
    assert!(matches!(batch(&claims), Err(Inadmissible::Batch(_))));
}

#[test]
fn entries_with_a_gap_are_refused() {
    assert_eq!(append(&rpc(None, vec![blank(1, 0), blank(1, 1), blank(3, 2)])), Ok(()));
    assert_eq!(append(&rpc(Some(id(2, 4)), vec![blank(2, 5)])), Ok(()));
    assert_eq!(append(&rpc(Some(id(2, 4)), Vec::new())), Ok(()));
    let gap = |found, expected| Err(Inadmissible::Gap { found, expected });
    assert_eq!(append(&rpc(None, vec![blank(1, 1)])), gap(1, 0));
    assert_eq!(append(&rpc(Some(id(2, 4)), vec![blank(2, 5), blank(2, 7)])), gap(7, 6));
    assert_eq!(append(&rpc(Some(id(2, 4)), vec![blank(2, 5), blank(2, 5)])), gap(5, 6));
    assert_eq!(append(&rpc(Some(id(2, 4)), vec![blank(1, 5)])), Err(Inadmissible::Term));
    assert_eq!(append(&rpc(Some(id(2, 4)), vec![blank(4, 5)])), Err(Inadmissible::Term));
}

#[test]
fn numbers_that_would_overflow_are_refused() {
    let last = u64::MAX;
    for refused in [
        append(&rpc(Some(id(2, last)), Vec::new())),
        append(&rpc(Some(id(2, last - 1)), vec![blank(2, last)])),
        append(&AppendEntriesRequest { vote: Vote::new(last, 1), ..rpc(None, Vec::new()) }),
        control(&Control::VoteAnswer {
            request: 1,
            answer: openraft::raft::VoteResponse { vote: Vote::new(last, 1), vote_granted: false, last_log_id: None },
        }),
        control(&Control::AppendAnswer { request: 1, answer: AppendEntriesResponse::HigherVote(Vote::new(last, 1)) }),
        batch(&Batch { at: last, ..batch_of(&[]) }),
    ] {
        assert!(matches!(refused, Err(Inadmissible::Number { .. })), "{refused:?}");
    }
}

#[test]
fn names_have_64_bytes_at_most() {
    let join = |bytes: usize| Control::Join { hops: 0, node: 1, name: "n".repeat(bytes) };
    assert_eq!(control(&join(64)), Ok(()));
    assert!(control(&join(65)).is_err());
    let depart = |bytes: usize| Control::Depart {
        hops: 0,
        request: 1,
        asker: 1,
        who: "n".repeat(bytes),
        force: true,
        again: false,
    };
    assert_eq!(control(&depart(64)), Ok(()));
    assert!(control(&depart(65)).is_err());
}

#[test]
fn a_membership_is_of_members_with_names() {
    let entry = |voters: &[u128], name: usize| {
        let nodes = BTreeMap::from([(1_u128, Member { name: "n".repeat(name) })]);
        let voters: BTreeSet<u128> = voters.iter().copied().collect();
        // With all voters among the nodes, as openraft insists on it; what comes over a network need not be so.
        let membership: Membership<u128, Member> =
            postcard::from_bytes(&postcard::to_allocvec(&(vec![voters], nodes)).unwrap()).unwrap();
        Entry { log_id: id(3, 0), payload: EntryPayload::Membership(membership) }
    };
    assert_eq!(append(&rpc(None, vec![entry(&[1], 64)])), Ok(()));
    assert!(append(&rpc(None, vec![entry(&[1], 65)])).is_err());
    assert_eq!(append(&rpc(None, vec![entry(&[1, 2], 2)])), Err(Inadmissible::Stranger));
}

#[test]
fn an_answer_is_to_what_was_sent() {
    let own = Vote::new_committed(3, LEADER);
    let judge = |answer| append_answer(&answer, &own, Some(id(2, 4)), Some(id(3, 6)));
    assert_eq!(judge(AppendEntriesResponse::Success), Ok(()));
    assert_eq!(judge(AppendEntriesResponse::PartialSuccess(Some(id(3, 5)))), Ok(()));
    assert_eq!(judge(AppendEntriesResponse::Conflict), Ok(()));
    assert_eq!(judge(AppendEntriesResponse::HigherVote(Vote::new(4, 1))), Ok(()));
    for wrong in [
        AppendEntriesResponse::PartialSuccess(Some(id(3, 7))),
        AppendEntriesResponse::PartialSuccess(Some(id(2, 3))),
        AppendEntriesResponse::PartialSuccess(None),
        AppendEntriesResponse::HigherVote(Vote::new(2, 1)),
    ] {
        assert_eq!(judge(wrong), Err(Inadmissible::Answer));
    }
    let nothing_before = append_answer(&AppendEntriesResponse::Conflict, &own, None, Some(id(3, 6)));
    assert_eq!(nothing_before, Err(Inadmissible::Answer));
}
