//! The item store as a deliberately dumb map, for tests here and of the group commit; and bodies that can be told apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::commit::Recovered;
use crate::entry::{Body, BodyId, Entry, ItemId, OwnerId, Value};

/// A body whose bytes follow from its id.
pub(crate) struct TestBody(pub(crate) u128);

impl TestBody {
    pub(crate) fn shared(id: u128) -> Arc<dyn Body> {
        Arc::new(TestBody(id))
    }

    pub(crate) fn bytes(id: u128) -> Vec<u8> {
        let len = 20 + (id % 7) as usize * 60;
        (0..len).map(|at| (id as usize * 31 + at) as u8).collect()
    }
}

impl Body for TestBody {
    fn id(&self) -> BodyId {
        BodyId(self.0)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&TestBody::bytes(self.0));
    }

    fn size(&self) -> usize {
        TestBody::bytes(self.0).len()
    }
}

pub(crate) type Items = BTreeMap<(OwnerId, ItemId), (Value, Option<BodyId>)>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) items: Items,
    pub(crate) early: BTreeSet<(OwnerId, ItemId)>,
}

impl Model {
    pub(crate) fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Put { owner, item, value, body } => {
                let key = (*owner, *item);
                if self.early.remove(&key) {
                    return;
                }
                let old = self.items.get(&key).and_then(|(_, body)| *body);
                let body = body.as_ref().map(|body| body.id()).or(old);
                self.items.insert(key, (value.clone(), body));
            }
            Entry::Delete { owner, item } => {
                let key = (*owner, *item);
                if self.items.remove(&key).is_none() {
                    self.early.insert(key);
                }
            }
            Entry::Drop { owner } => {
                self.items.retain(|(of, _), _| of != owner);
                self.early.retain(|(of, _)| of != owner);
            }
        }
    }
}

/// What was recovered, as the model has it.
pub(crate) fn items_of(recovered: &Recovered) -> Items {
    let mut items = Items::new();
    for (owner, of_owner) in &recovered.owners {
        assert!(of_owner.is_sorted_by(|a, b| a.item < b.item), "items come in order");
        items.extend(of_owner.iter().map(|item| ((*owner, item.item), (item.value.clone(), item.body))));
    }
    items
}

/// What a test does, in small numbers; [`Script`] makes entries of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    /// A new item of an owner, without a body or with one of a few.
    Put(u8, u8),
    /// A new item whose body nobody else has.
    PutOwn(u8),
    /// A new value for one that is there; perhaps with a body.
    Update(u16, u8),
    Delete(u16),
    /// Deletes one that comes later.
    DeleteEarly(u8),
    /// The item that was deleted comes.
    PutLate(u16),
    Drop(u8),
    Commit,
    Clean,
    Reopen,
}

/// Turns ops into entries that a well-behaved node would hand in.
#[derive(Default)]
pub(crate) struct Script {
    next: u64,
    there: Vec<(OwnerId, ItemId)>,
    early: Vec<(OwnerId, ItemId)>,
}

impl Script {
    fn new_item(&mut self, owner: u8) -> (OwnerId, ItemId) {
        self.next += 1;
        (OwnerId(u64::from(owner)), self.next)
    }

    fn value(&mut self) -> Value {
        self.next += 1;
        let len = [0, 1, 9, 40, 200][self.next as usize % 5];
        (0..len).map(|at| (self.next + at) as u8).collect()
    }

    pub(crate) fn entry(&mut self, op: Op) -> Option<Entry> {
        let take =
            |of: &mut Vec<(OwnerId, ItemId)>, at: u16| (!of.is_empty()).then(|| of.remove(usize::from(at) % of.len()));
        Some(match op {
            Op::Put(owner, body) => {
                let (owner, item) = self.new_item(owner);
                self.there.push((owner, item));
                Entry::Put { owner, item, value: self.value(), body: few_bodies(body) }
            }
            Op::PutOwn(owner) => {
                let (owner, item) = self.new_item(owner);
                self.there.push((owner, item));
                let body = Some(TestBody::shared(1000 + u128::from(item)));
                Entry::Put { owner, item, value: self.value(), body }
            }
            Op::Update(at, body) => {
                let &(owner, item) = self.there.get(usize::from(at) % self.there.len().max(1))?;
                Entry::Put { owner, item, value: self.value(), body: few_bodies(body) }
            }
            Op::Delete(at) => {
                let (owner, item) = take(&mut self.there, at)?;
                Entry::Delete { owner, item }
            }
            Op::DeleteEarly(owner) => {
                let (owner, item) = self.new_item(owner);
                self.early.push((owner, item));
                Entry::Delete { owner, item }
            }
            Op::PutLate(at) => {
                let (owner, item) = take(&mut self.early, at)?;
                let body = few_bodies(at as u8);
                Entry::Put { owner, item, value: self.value(), body }
            }
            Op::Drop(owner) => {
                let owner = OwnerId(u64::from(owner));
                self.there.retain(|(of, _)| *of != owner);
                self.early.retain(|(of, _)| *of != owner);
                Entry::Drop { owner }
            }
            Op::Commit | Op::Clean | Op::Reopen => return None,
        })
    }

    /// After a restart what was deleted early will not come.
    pub(crate) fn restarted(&mut self, model: &Model) {
        self.early.clear();
        self.there = model.items.keys().copied().collect();
    }
}

fn few_bodies(body: u8) -> Option<Arc<dyn Body>> {
    (!body.is_multiple_of(5)).then(|| TestBody::shared(u128::from(body % 5)))
}
