//! The fill: what is made next for which heir, and when that has all of it.
//!
//! Test to read first: `super::tests::a_fill_waits_while_its_heir_has_much_to_accept`.

use super::covering::Cover;
use super::{Batch, Copied, DROPS_UNDER_WAY_MAX, FILL_BYTES_MAX, Frame, OwnerId, Sending, Slot, Step, Work};

/// The fill.
impl<E: Clone> Sending<E> {
    /// What is to be made next. Who `may` not is filled no further; it is told whether somebody waits for what would be filled.
    pub fn next_work(&mut self, may: impl Fn(Slot, bool) -> bool) -> Option<Work> {
        for (heir, stream) in &mut self.streams {
            if stream.work.is_some() && stream.making {
                continue;
            }
            let is_awaited = |id: &OwnerId| {
                let lacking = self.owners.get(id).filter(|owner| owner.lacks(*heir));
                lacking.is_some_and(|owner| matches!(owner.cover, Cover::Awaited(_)))
            };
            while stream.awaited.pop_front_if(|id| !is_awaited(id)).is_some() {}
            let awaited = !stream.awaited.is_empty() || stream.work.is_some_and(|work| is_awaited(&work.owner));
            let fills = stream.fill_bytes < FILL_BYTES_MAX && may(*heir, awaited);
            let drops = stream.work.is_none() && stream.under_way.len() < DROPS_UNDER_WAY_MAX;
            let owners = &self.owners;
            let mut work = stream.work.filter(|_| fills).map(|work| (work.owner, Step::GoOn));
            while drops
                && work.is_none()
                && let Some(owner) = stream.to_drop.pop_front()
            {
                let is_pick = owners.get(&owner).is_some_and(|owner| owner.is_pick(*heir));
                work = (!is_pick).then_some((owner, Step::Drop));
            }
            while fills
                && work.is_none()
                && let Some(owner) = stream.awaited.pop_front().or_else(|| stream.to_fill.pop_front())
            {
                let lacks = owners.get(&owner).is_some_and(|owner| owner.lacks(*heir));
                work = lacks.then_some((owner, Step::Begin));
            }
            if let Some((owner, step)) = work {
                self.number += 1;
                stream.work = Some(Work { number: self.number, heir: *heir, owner, step });
                stream.making = true;
                return stream.work;
            }
        }
        None
    }

    /// What [`next_work`](Self::next_work) asked for, as it stands now; `last`: there is no more of it. Nobody waits for it any more if the owner has ended or the
    /// heirs have changed.
    pub fn made(&mut self, work: Work, entries: impl IntoIterator<Item = Copied<E>>, last: bool) -> Vec<Frame<E>> {
        let stream = self.streams.get_mut(&work.heir).filter(|stream| stream.work == Some(work) && stream.making);
        let Some(stream) = stream else {
            return Vec::new();
        };
        stream.making = false;
        if last {
            stream.work = None;
            if let Some(owner) = self.owners.get_mut(&work.owner).filter(|_| work.step != Step::Drop) {
                owner.complete |= 1 << work.heir;
            }
        }
        let is_whole = last && work.step != Step::Drop;
        // It is as of now, so it comes behind what is held.
        let frames = self.write_behind_held(work.heir, entries);
        if let Some(stream) = self.streams.get_mut(&work.heir).filter(|_| is_whole) {
            // It ends with the last frame there is.
            stream.whole.push_back((self.number, work.owner));
        }
        frames
    }

    /// What an heir that was filled has to hear besides, of no owner, behind what is held: it is accepted before the fill is complete.
    pub fn tell(&mut self, heir: Slot, entries: impl IntoIterator<Item = Copied<E>>) -> Vec<Frame<E>> {
        self.write_behind_held(heir, entries)
    }

    fn write_behind_held(&mut self, heir: Slot, entries: impl IntoIterator<Item = Copied<E>>) -> Vec<Frame<E>> {
        let (mut released, mut batch) = (Batch::default(), Batch::default());
        self.release(&mut released, heir, u64::MAX);
        entries.into_iter().for_each(|copied| self.write(&mut batch, heir, None, &copied));
        released.frames.append(&mut batch.frames);
        released.frames
    }

    /// The fill that has just ended: every owner is completely with its pick in next. Told once.
    pub fn fill_complete(&mut self) -> Option<u64> {
        let next = &self.heirs.next.slots;
        let owners = &self.owners;
        let is_done = next.iter().all(|heir| {
            let Some(heir) = heir else {
                return false;
            };
            let Some(stream) = self.streams.get_mut(heir) else {
                return true;
            };
            let lacks = |owner: &OwnerId| owners.get(owner).is_some_and(|owner| owner.lacks(*heir));
            while stream.to_fill.pop_front_if(|owner| !lacks(owner)).is_some() {}
            stream.to_fill.is_empty() && stream.work.is_none() && stream.fill_bytes == 0
        });
        if is_done { self.heirs.fill.take() } else { None }
    }
}
