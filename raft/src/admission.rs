//! What of a peer's messages is let in, once they are decoded. [pure]
//!
//! Who is in the cluster may still be wrong, or be somebody else who has got hold of the secret. So what it says is measured before anything is done with it: what enters the log
//! is sent on to every node and applied there, and must not be larger than the messages that carry it, or longer than what the sessions can write down; a number
//! near the end of its type would overflow at the next step; entries with a gap between them would be on disk when the node starts again.
//!
//! Invariant: what passes here reaches no assertion behind it.
//!
//! Test to read first: `tests::a_batch_that_no_message_could_carry_is_refused`.

use std::sync::Arc;

use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft::{EntryPayload, Membership};
use thiserror::Error;

use crate::batcher::{BATCH_COMMANDS_MAX, COMMAND_BYTES_MAX};
use crate::command::{BanTarget, Command, LeaseWill, ShareRoute};
use crate::entry::{Batch, Entry, LogId, Member, SnapshotMeta, TypeConfig, Vote};
use crate::state::CHUNK_BYTES_MAX;
use crate::state_machine::decode_commands;
use crate::wire::{Control, MESSAGE_BYTES_MAX, PartAnswer, SnapshotPart};

/// Bytes of a node's name at most, as the configuration and the links have it.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a client id, or of a topic filter with its share prefix: as long as a string of MQTT can be.
pub const TEXT_BYTES_MAX: usize = u16::MAX as usize;
/// Bytes of a Will.
pub const WILL_BYTES_MAX: usize = 64 * 1024;
/// Bytes of what a node says of its reasons.
const REASON_BYTES_MAX: usize = 1024;
/// Members of a group.
const MEMBERS_MAX: usize = 256;
/// Terms, indexes and times beyond this are not from anybody who counts.
const NUMBER_MAX: u64 = u64::MAX / 2;
/// Bytes of a piece of a snapshot: one record may be larger than a piece should be.
const PART_BYTES_MAX: usize = COMMAND_BYTES_MAX + CHUNK_BYTES_MAX;

/// Everything that an entry has beside its commands fits in the rest of a message, whoever sends it on.
const _: () = assert!(COMMAND_BYTES_MAX + MEMBERS_MAX * 256 < MESSAGE_BYTES_MAX);
const _: () = assert!(PART_BYTES_MAX + MEMBERS_MAX * 256 < MESSAGE_BYTES_MAX);

/// Why a message is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum Inadmissible {
    #[error("{what} of {bytes} bytes, and {max} are the most")]
    TooLong { what: &'static str, bytes: usize, max: usize },
    #[error("{count} {what}, and {max} are the most")]
    TooMany { what: &'static str, count: usize, max: usize },
    #[error("{what} of {number}")]
    Number { what: &'static str, number: u64 },
    #[error("entry {found} where {expected} belongs")]
    Gap { found: u64, expected: u64 },
    #[error("an entry of a term that is older than the one before it, or newer than its leader's")]
    Term,
    #[error("an answer to something else than what was asked")]
    Answer,
    #[error("a voter that is no member")]
    Stranger,
    #[error("a batch that cannot be read: {0}")]
    Batch(String),
}

type Judged = Result<(), Inadmissible>;

/// What is small: its texts and its numbers.
pub(crate) fn control(control: &Control) -> Judged {
    match control {
        Control::Register { name, .. }
        | Control::Join { name, .. }
        | Control::Hello { name }
        | Control::Promise { name, .. } => length("a node's name", name, NAME_BYTES_MAX),
        Control::Depart { who, .. } => length("a node's name", who, NAME_BYTES_MAX),
        Control::JoinRefused { reason } | Control::DepartAnswer { refused: Some(reason), .. } => {
            length("a reason", reason, REASON_BYTES_MAX)
        }
        Control::Vote { rpc, .. } => vote(&rpc.vote).and_then(|()| log_id(rpc.last_log_id.as_ref())),
        Control::VoteAnswer { answer, .. } => vote(&answer.vote).and_then(|()| log_id(answer.last_log_id.as_ref())),
        Control::AppendAnswer { answer: AppendEntriesResponse::HigherVote(higher), .. }
        | Control::PartAnswer { answer: PartAnswer::Installed(higher), .. } => vote(higher),
        _ => Ok(()),
    }
}

/// A batch of a node, for the leader's log. Only what every node can decode goes there, since there it would stop them all.
pub(crate) fn batch(batch: &Batch) -> Judged {
    batch_size(batch)?;
    decode_commands(batch).map_err(Inadmissible::Batch)?.iter().try_for_each(command)
}

fn batch_size(batch: &Batch) -> Judged {
    number("a time", batch.at)?;
    many("commands", batch.count as usize, BATCH_COMMANDS_MAX)?;
    long("a batch", batch.commands.len(), COMMAND_BYTES_MAX)
}

fn command(command: &Command) -> Judged {
    match command {
        Command::Acquire { client, will, .. } => client_id(client).and_then(|()| lease_will(will.as_ref())),
        Command::Cut { client, filters, shares, .. } => {
            client_id(client)?;
            filters.iter().try_for_each(filter)?;
            shares.iter().try_for_each(|(route, _)| share(route))
        }
        Command::Settle { client, .. }
        | Command::Withdraw { client, .. }
        | Command::Detach { client, .. }
        | Command::WillDone { client, .. } => client_id(client),
        Command::Routes { add, remove } => add.iter().chain(remove).try_for_each(filter),
        Command::ShareRoutes { set, remove } => set.iter().map(|(route, _)| route).chain(remove).try_for_each(share),
        Command::Ban { ban } => {
            ban_target(&ban.target)?;
            length("the reason of a ban", &ban.reason, REASON_BYTES_MAX)
        }
        Command::Unban { target } => ban_target(target),
        Command::Register { name, .. } => length("a node's name", name, NAME_BYTES_MAX),
        // Numbers only.
        _ => Ok(()),
    }
}

fn ban_target(target: &BanTarget) -> Judged {
    match target {
        BanTarget::ClientId(text) | BanTarget::UserName(text) => length("whom a ban is about", text, TEXT_BYTES_MAX),
        BanTarget::Addresses { len, .. } => many("the bits of an address", usize::from(*len), 128),
    }
}

fn client_id(client: &Arc<str>) -> Judged {
    length("a client id", client, TEXT_BYTES_MAX)
}

fn filter(filter: &Arc<str>) -> Judged {
    length("a topic filter", filter, TEXT_BYTES_MAX)
}

fn share((name, filter): &ShareRoute) -> Judged {
    long("a topic filter", "$share//".len() + name.len() + filter.len(), TEXT_BYTES_MAX)
}

fn lease_will(will: Option<&LeaseWill>) -> Judged {
    will.map_or(Ok(()), |will| long("a Will", will.message.len(), WILL_BYTES_MAX))
}

/// Entries of a leader: they follow upon the one before them without a gap.
pub(crate) fn append(rpc: &AppendEntriesRequest<TypeConfig>) -> Judged {
    vote(&rpc.vote)?;
    log_id(rpc.prev_log_id.as_ref())?;
    log_id(rpc.leader_commit.as_ref())?;
    let mut expected = rpc.prev_log_id.map_or(0, |id| id.index + 1);
    let mut term = rpc.prev_log_id.map_or(0, |id| id.leader_id.term);
    for entry in &rpc.entries {
        let LogId { leader_id, index } = entry.log_id;
        number("an index", index)?;
        if index != expected {
            return Err(Inadmissible::Gap { found: index, expected });
        }
        if leader_id.term < term || leader_id.term > rpc.vote.leader_id.term {
            return Err(Inadmissible::Term);
        }
        (expected, term) = (index + 1, leader_id.term);
        payload(entry)?;
    }
    Ok(())
}

fn payload(entry: &Entry) -> Judged {
    match &entry.payload {
        EntryPayload::Blank => Ok(()),
        EntryPayload::Normal(batch) => batch_size(batch),
        EntryPayload::Membership(membership) => members(membership),
    }
}

/// A piece of a snapshot.
pub(crate) fn part(part: &SnapshotPart) -> Judged {
    let SnapshotMeta { last_log_id, last_membership, snapshot_id } = &part.meta;
    vote(&part.vote)?;
    log_id(last_log_id.as_ref())?;
    log_id(last_membership.log_id().as_ref())?;
    length("the name of a snapshot", snapshot_id, NAME_BYTES_MAX)?;
    members(last_membership.membership())?;
    long("a piece of a snapshot", part.bytes.len(), PART_BYTES_MAX)
}

/// The answer to entries of this node: it must be one to them.
pub(crate) fn append_answer(
    answer: &AppendEntriesResponse<u128>,
    own: &Vote,
    before: Option<LogId>,
    last: Option<LogId>,
) -> Judged {
    let fits = match answer {
        AppendEntriesResponse::Success => true,
        AppendEntriesResponse::PartialSuccess(matching) => before <= *matching && *matching <= last,
        AppendEntriesResponse::Conflict => before.is_some(),
        AppendEntriesResponse::HigherVote(higher) => higher > own,
    };
    if fits { Ok(()) } else { Err(Inadmissible::Answer) }
}

fn members(membership: &Membership<u128, Member>) -> Judged {
    many("members", membership.nodes().count(), MEMBERS_MAX)?;
    if membership.voter_ids().any(|voter| membership.get_node(&voter).is_none()) {
        return Err(Inadmissible::Stranger);
    }
    membership.nodes().try_for_each(|(_, member)| length("a node's name", &member.name, NAME_BYTES_MAX))
}

fn vote(vote: &Vote) -> Judged {
    number("a term", vote.leader_id.term)
}

fn log_id(id: Option<&LogId>) -> Judged {
    id.map_or(Ok(()), |id| number("a term", id.leader_id.term).and_then(|()| number("an index", id.index)))
}

fn number(what: &'static str, number: u64) -> Judged {
    if number <= NUMBER_MAX { Ok(()) } else { Err(Inadmissible::Number { what, number }) }
}

fn many(what: &'static str, count: usize, max: usize) -> Judged {
    if count <= max { Ok(()) } else { Err(Inadmissible::TooMany { what, count, max }) }
}

fn length(what: &'static str, text: &str, max: usize) -> Judged {
    long(what, text.len(), max)
}

fn long(what: &'static str, bytes: usize, max: usize) -> Judged {
    if bytes <= max { Ok(()) } else { Err(Inadmissible::TooLong { what, bytes, max }) }
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
