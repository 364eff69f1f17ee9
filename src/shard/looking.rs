//! What a shard does about copies when it hears how the control state stands: see [`looking`](crate::cluster::copies::looking), which decides it.
//!
//! Owner: the shard, in [`Heir`](super::heir::Heir). Invariant: whoever waits for a look is told when nothing is searched any more, so that a session that this node has is in its routes before
//! it opens its listeners.
//!
//! Test to read first: `cluster-tests/tests/cluster/taking_up.rs`.

use std::sync::Arc;

use hashbrown::HashSet;
use holdfast_raft::Command;

use crate::cluster::copies::inheriting::{Found, Way};
use crate::cluster::copies::looking::{Outlook, Tasks};
use crate::cluster::copies::receiving::Taken;
use crate::session::Seen;
use crate::subscriptions::ShardId;

use super::Shard;
use super::heir::seen_by;
use super::keeping::Due;
use super::mailbox::{Event, Turned};

/// Sessions of which it is said in one command that they were found.
const FOUND_PER_COMMAND: usize = 1_024;

impl Shard {
    /// The control state stands like that.
    pub(super) fn look(&mut self, outlook: &Outlook, done: Option<Arc<Turned>>) {
        let (shared, id) = (self.shared.clone(), self.id);
        let (by_client, heir) = (&self.by_client, &mut self.heir);
        let inheriting = &heir.inheriting;
        let is_here = |client: &str| by_client.contains_key(client) || inheriting.awaits(client);
        let tasks = outlook.tasks(|client| shared.shard_of(client) == id, is_here, &mut heir.copies);
        let Tasks { passes, passed_on_all, searches, found, writes } = tasks;
        for (from, client, passed) in passes {
            self.heir.inheriting.passed_on(from, &client, passed);
        }
        passed_on_all.into_iter().for_each(|life| self.heir.inheriting.passed_on_all(life));
        searches.iter().for_each(|(client, passed)| self.heir.inheriting.want(client, *passed));
        for clients in found.chunks(FOUND_PER_COMMAND) {
            self.propose(Command::Found { clients: clients.to_vec() });
        }
        self.write_of_copies(writes);
        self.heir.looks.extend(done);
        self.heir.looked = true;
        self.go_on_inheriting();
        self.resume_links();
    }

    /// Asks every shard for copies of the sessions that have to be somewhere here.
    pub(super) fn begin_search(&mut self) {
        let Some((search, clients)) = self.heir.inheriting.begin_search() else { return };
        let clients: Arc<HashSet<Arc<str>>> = Arc::new(clients.into_iter().collect());
        for shard in 0..self.mail.len() as ShardId {
            self.mail_or_keep(shard, Event::CopiesWanted { by: self.id, search, clients: clients.clone() });
        }
    }

    /// Another shard, or this one, searches.
    pub(super) fn copies_wanted(&mut self, by: ShardId, search: u64, clients: Arc<HashSet<Arc<str>>>) {
        if self.keeping.storage().is_some() {
            self.keeping.when_kept(Due::GiveCopies { by, search, clients });
        } else {
            self.give_copies(by, search, &clients);
        }
    }

    /// All that came of the copies is kept: those that are searched go to who does.
    pub(super) fn give_copies(&mut self, by: ShardId, search: u64, clients: &HashSet<Arc<str>>) {
        let mut found = Vec::new();
        for (home, Taken { seen, sessions, .. }) in self.heir.copies.take_some(|client| clients.contains(client)) {
            let mut of_home = Seen::default();
            // One that lives again has seen what was not for this session.
            if self.peers.slot_of(home).is_none() {
                seen.into_iter().for_each(|id| of_home.note(id));
            }
            let seen = Arc::new(of_home);
            found.extend(sessions.into_iter().map(|copied| Found { seen: seen_by(&copied, &seen), copied }));
        }
        self.mail_or_keep(by, Event::Copies { of: Way::Searched(search), found, seen: Vec::new() });
    }
}
