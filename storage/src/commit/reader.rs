//! The thread that reads bodies back, so that neither a shard nor a commit waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use super::{Audience, Shared};
use crate::entry::{ItemId, OwnerId};
use crate::items::Place;
use crate::journal::Reader;

/// Bodies that were asked for together, with the places where they are.
pub(super) struct Job {
    pub(super) source: usize,
    pub(super) ticket: u64,
    pub(super) places: Vec<(OwnerId, ItemId, Place)>,
}

/// Answers every job, in the order in which they come, until there will be no more.
pub(super) fn run(jobs: &Receiver<Job>, reader: &Reader, audience: &Arc<dyn Audience>, shared: &Shared) {
    for Job { source, ticket, places } in jobs {
        let read = |(owner, item, place)| {
            let body = match place {
                Place::Nowhere => None,
                Place::Memory(bytes) => Some(bytes),
                Place::Disk(location) => reader.read(location).ok().map(|record| record.tail),
            };
            (owner, item, body)
        };
        audience.loaded(source, ticket, places.into_iter().map(read).collect());
        shared.jobs_done.fetch_add(1, Ordering::SeqCst);
        if shared.jobs_awaited.swap(false, Ordering::SeqCst) {
            shared.wake();
        }
    }
}
