//! Images of leases: what is kept of them at rest, and how they come back.
//!
//! Kept is a lease that matters after the end of the node: its session outlives its connection, or a Will of it is still to be
//! published. Each command that changes such a lease gives it a new image under a new number, and the image before is void. A
//! client whose session ends with its connection and who has no Will is never written down.
//!
//! Invariants:
//! - [`Lease::item`] is the number of the newest image that was handed out and is not void;
//! - a number is never used twice, not even after a restart: somebody may still remember that it is void;
//! - to restore, hand out what changed and restore again comes to the same state.
//!
//! Test to read first: `tests/restore.rs`.

use super::lease::{Flag, Lease, Phase};
use super::leases::Leases;
use super::nodes::NodeSlot;
use super::wills::DueWills;
use crate::command::{ClientId, LeaseChange, LeaseImage};

/// What the leases know of their images.
#[derive(Debug, Clone, Default)]
pub(super) struct Images {
    kept: bool,
    /// The last number that was given to an image.
    last_item: u64,
    /// Leases that the command at hand has changed, each with the item that it had, 0 for none.
    touched: Vec<(ClientId, u64)>,
}

impl Images {
    pub(super) fn keep(&mut self, keep: bool) {
        self.kept = keep;
    }

    pub(super) fn are_kept(&self) -> bool {
        self.kept
    }

    /// Says that the lease of `client`, whose image is `item`, changes. Comes before it goes.
    pub(super) fn touch(&mut self, client: &ClientId, item: u64) {
        if self.kept {
            self.touched.push((ClientId::clone(client), item));
        }
    }
}

/// When leases come back.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub(super) now: u64,
    /// When the node is last known to have run.
    pub(super) down_since: u64,
}

impl Times {
    /// Above every number that was given out before `now`, as long as it was less than a million a millisecond: items and epochs of leases
    /// that were not kept are not known any more, and must not come again either.
    fn numbers_above(self) -> u64 {
        self.now.saturating_mul(1 << 20)
    }
}

impl Leases {
    /// What the command at hand changed of what is kept, one change for each client, in the order of client ids.
    pub(super) fn take_changes(&mut self, wills: &DueWills) -> Vec<LeaseChange> {
        if self.images.touched.is_empty() {
            return Vec::new();
        }
        let mut touched = std::mem::take(&mut self.images.touched);
        // Stable: the item that the lease had before the command comes first, and stays.
        touched.sort_by(|(one, _), (other, _)| one.cmp(other));
        touched.dedup_by(|(later, _), (earlier, _)| later == earlier);
        let changes = touched.into_iter().filter_map(|(client, item)| self.change(client, item, wills));
        changes.collect()
    }

    /// Gives the lease of `client` a new image instead of `item`, if it is worth keeping.
    fn change(&mut self, client: ClientId, item: u64, wills: &DueWills) -> Option<LeaseChange> {
        let gone = (item != 0).then_some(item);
        let lease = self.table.find(&client).map(|key| self.table.lease_mut(key));
        let image = lease.and_then(|lease| {
            lease.item = 0;
            is_worth_keeping(lease).then(|| {
                self.images.last_item += 1;
                lease.item = self.images.last_item;
                image(lease, client, wills)
            })
        });
        (gone.is_some() || image.is_some()).then_some(LeaseChange { gone, image })
    }

    /// Takes up what `images` are of, into an empty table. Returns what is to be written so that they are right again.
    pub(super) fn restore(
        &mut self,
        holder: NodeSlot,
        times: Times,
        mut images: Vec<LeaseImage>,
        wills: &mut DueWills,
    ) -> Vec<LeaseChange> {
        images.sort_unstable_by_key(|image| image.item);
        self.images.last_item = images.last().map_or(0, |image| image.item).max(times.numbers_above());
        let epochs = images.iter().map(|image| image.epoch.max(image.began));
        self.epoch_floor = epochs.max().unwrap_or(0).max(times.numbers_above());
        self.table.reserve(images.len());
        let mut changes = Vec::new();
        for image in images.into_iter().rev() {
            let is_void = image.ended && image.wills_due.is_empty();
            if is_void || self.table.find(&image.client).is_some() {
                changes.push(LeaseChange { gone: Some(image.item), image: None });
            } else {
                self.restore_one(holder, times, image, wills);
            }
        }
        changes.extend(self.take_changes(wills));
        changes
    }

    /// Takes up the newest image of a client.
    fn restore_one(&mut self, holder: NodeSlot, times: Times, mut image: LeaseImage, wills: &mut DueWills) {
        let client = ClientId::clone(&image.client);
        let phase = if image.ended {
            Phase::Ended
        } else if image.connected {
            self.images.touch(&client, image.item);
            Phase::Detached { since: times.down_since }
        } else {
            Phase::Detached { since: image.detached_since.min(times.now) }
        };
        let any_due = !image.wills_due.is_empty();
        // Oldest first in the end, for the newest image comes first here.
        for (epoch, message) in std::mem::take(&mut image.wills_due).into_iter().rev() {
            wills.restore(&client, epoch, message);
        }
        // A Will is waiting or due, never both.
        if image.ended || wills.get(&client, image.epoch).is_some() {
            image.will = None;
        }
        let LeaseImage { item, epoch, began, expiry_secs, will, .. } = image;
        let mut lease = Lease::new(epoch, holder, self.tenure(holder).era, phase);
        lease.set(Flag::WillDue, any_due);
        self.will_bytes += will.as_ref().map_or(0, |will| will.message.len() as u64);
        (lease.item, lease.began, lease.expiry_secs, lease.will) = (item, began, expiry_secs, will.map(Box::new));
        let key = self.table.insert(client, lease);
        self.arm(key);
    }
}

/// Whether the end of the node would leave anything of the lease.
fn is_worth_keeping(lease: &Lease) -> bool {
    let outlives_connection = !lease.is_ended() && lease.expiry_secs > 0;
    outlives_connection || lease.will.is_some() || lease.has(Flag::WillDue)
}

fn image(lease: &Lease, client: ClientId, wills: &DueWills) -> LeaseImage {
    let (connected, detached_since, ended) = match lease.phase() {
        Phase::Connected => (true, 0, false),
        Phase::Detached { since } => (false, since, false),
        Phase::Ended => (false, 0, true),
    };
    let &Lease { item, epoch, began, expiry_secs, ref will, .. } = lease;
    let will = will.as_deref().cloned();
    let wills_due = wills.of(&client).map(|(epoch, message)| (epoch, message.clone())).collect();
    LeaseImage { item, client, epoch, began, expiry_secs, connected, detached_since, ended, will, wills_due }
}
