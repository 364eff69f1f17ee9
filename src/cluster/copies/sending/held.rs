//! What goes to one heir, but not yet: entries of messages that their subscribers have been sent and may acknowledge at any moment. The item of one that is acknowledged
//! meanwhile goes nowhere, and neither does its deletion.
//!
//! Owner: [`Sending`](super::Sending). Invariant: what is taken out comes in the order in which it was put in, and the first one is there.
//!
//! Test to read first: `tests::a_message_that_is_acknowledged_before_it_is_kept_goes_nowhere` of `sending`.

use std::collections::VecDeque;

use hashbrown::HashMap;
use holdfast_storage::{ItemId, OwnerId};

use super::{Copied, Effect};

/// Bytes, and entries with those that are gone, from which on nothing more is to be held.
const BYTES_MAX: usize = 1024 * 1024;
const ENTRIES_MAX: usize = 16 * 1024;

struct Slot<E> {
    submission: u64,
    copied: Copied<E>,
    /// The one that put the item before.
    before: Option<usize>,
}

pub(super) struct Held<E> {
    slots: VecDeque<Option<Slot<E>>>,
    /// The place of the first slot.
    first: usize,
    bytes: usize,
    count: usize,
    /// The places of those that put an item last.
    puts: HashMap<(OwnerId, ItemId), usize>,
}

impl<E> Default for Held<E> {
    fn default() -> Self {
        Self { slots: VecDeque::new(), first: 0, bytes: 0, count: 0, puts: HashMap::new() }
    }
}

impl<E> Held<E> {
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= BYTES_MAX || self.slots.len() >= ENTRIES_MAX
    }

    /// In bytes and in entries.
    pub fn size(&self) -> (usize, usize) {
        (self.bytes, self.count)
    }

    /// The submission of the first one.
    pub fn submission(&self) -> Option<u64> {
        self.slots.front()?.as_ref().map(|slot| slot.submission)
    }

    pub fn push(&mut self, submission: u64, copied: Copied<E>) {
        let mut before = None;
        if let Effect::Put { item, .. } = copied.effect {
            before = self.puts.insert((copied.owner, item), self.first + self.slots.len());
        }
        self.bytes += copied.bytes;
        self.count += 1;
        self.slots.push_back(Some(Slot { submission, copied, before }));
    }

    /// Takes out everything that puts an item. False: nothing does.
    pub fn cancel(&mut self, owner: OwnerId, item: ItemId) -> bool {
        let mut place = self.puts.remove(&(owner, item));
        let is_put = place.is_some();
        while let Some(slot) = place.and_then(|place| self.slots.get_mut(place.checked_sub(self.first)?)?.take()) {
            self.bytes -= slot.copied.bytes;
            self.count -= 1;
            place = slot.before;
        }
        self.trim();
        is_put
    }

    /// The first one, if its submission is not later than `up_to`.
    pub fn pop(&mut self, up_to: u64) -> Option<(u64, Copied<E>)> {
        self.submission().filter(|submission| *submission <= up_to)?;
        let place = self.first;
        let Slot { submission, copied, .. } = self.slots.pop_front()??;
        self.first += 1;
        self.bytes -= copied.bytes;
        self.count -= 1;
        if let Effect::Put { item, .. } = copied.effect {
            let key = (copied.owner, item);
            if self.puts.get(&key) == Some(&place) {
                self.puts.remove(&key);
            }
        }
        self.trim();
        Some((submission, copied))
    }

    fn trim(&mut self) {
        while self.slots.pop_front_if(|slot| slot.is_none()).is_some() {
            self.first += 1;
        }
    }
}
