//! What an owner had before it was added here, by a start or an inheritance: from when on its heir has that.
//!
//! A kill may have cut off what was on its way to the heir, of what is on the disk here. So whoever relies on that waits until a pick was sent all of the owner and has accepted it, and
//! such owners are filled before others.
//!
//! Test to read first: `super::tests::what_was_found_at_a_start_counts_when_the_heir_has_all_of_its_session`.

use holdfast_storage::OwnerId;

use super::{Owner, Sending, slots_of};

/// Whether all that there was of an owner at first is with its heir, or was once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cover {
    Open,
    /// Somebody waits for it, as this.
    Awaited(u64),
    Done,
}

/// What there was at first.
impl<E: Clone> Sending<E> {
    /// Somebody relies on what there was of an owner at first. Returns what to wait for: see [`covered`](Self::covered); 0: nothing.
    pub fn cover(&mut self, id: OwnerId) -> u64 {
        let Some(owner) = self.owners.get(&id) else { return 0 };
        match owner.cover {
            Cover::Done => return 0,
            Cover::Awaited(number) => return number,
            // There may be another node soon.
            Cover::Open if owner.picks == 0 && !self.heirs.wanted => return 0,
            Cover::Open => {}
        }
        let is_covered = self.is_covered(owner);
        let lacking = owner.picks & !owner.complete;
        let number = self.covers + 1;
        let cover = if is_covered { Cover::Done } else { Cover::Awaited(number) };
        self.owners.entry(id).and_modify(|owner| owner.cover = cover);
        if is_covered {
            return 0;
        }
        self.covers = number;
        self.uncovered.insert(number, id);
        slots_of(lacking).for_each(|heir| self.streams.entry(heir).or_default().awaited.push_back(id));
        number
    }

    /// Who dies next leaves it to its pick among the base, and nothing else counts while that lives.
    fn is_covered(&self, owner: &Owner) -> bool {
        match self.heirs.base.pick(&owner.client) & owner.picks {
            0 if owner.picks == 0 => !self.heirs.wanted,
            0 => owner.accepted != 0,
            base => owner.accepted & base != 0,
        }
    }

    /// Up to this everything that was awaited is covered.
    pub fn covered(&mut self) -> u64 {
        while let Some((number, id)) = self.uncovered.first_key_value().map(|(number, id)| (*number, *id)) {
            if self.owners.get(&id).is_some_and(|owner| !self.is_covered(owner)) {
                return number - 1;
            }
            self.uncovered.remove(&number);
            self.owners.entry(id).and_modify(|owner| owner.cover = Cover::Done);
        }
        self.covers
    }
}
