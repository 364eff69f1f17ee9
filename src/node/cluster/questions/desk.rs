//! Questions that are under way, and who waits for their answers.
//!
//! Invariants: at most [`UNDER_WAY_MAX`] are; an answer counts only from the node that was asked; whoever waits no longer leaves nothing behind.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use holdfast_raft::NodeId;

use super::codec::Answer;

/// Questions of this node at one time: those of all requests of its admin port to all other nodes.
const UNDER_WAY_MAX: usize = 512;

/// See the module.
pub(super) struct Desk(Mutex<Open>);

struct Open {
    next: u64,
    waiting: HashMap<u64, (NodeId, oneshot::Sender<Answer>)>,
}

/// A question under way; it ends when this goes.
pub(super) struct Asked<'d> {
    desk: &'d Desk,
    id: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Desk {
    /// `first` is the first id: random, so that no answer to an earlier life of this process is taken for one to this.
    pub fn new(first: u64) -> Desk {
        Desk(Mutex::new(Open { next: first, waiting: HashMap::new() }))
    }

    /// Begins a question to `node`; `None` when there are too many.
    pub fn ask(&self, node: NodeId) -> Option<Asked<'_>> {
        let (sender, answer) = oneshot::channel();
        let mut open = self.0.lock();
        if open.waiting.len() >= UNDER_WAY_MAX {
            return None;
        }
        let id = open.next;
        open.next = id.wrapping_add(1);
        open.waiting.insert(id, (node, sender));
        Some(Asked { desk: self, id, answer })
    }

    /// `from` answers. What nobody waits for is dropped.
    pub fn answered(&self, from: NodeId, id: u64, answer: Answer) {
        let mut open = self.0.lock();
        if open.waiting.get(&id).is_some_and(|(node, _)| *node == from)
            && let Some((_, waiting)) = open.waiting.remove(&id)
        {
            // Who asked may have gone just now.
            let _ = waiting.send(answer);
        }
    }
}

impl Asked<'_> {
    pub fn id(&self) -> u64 {
        self.id
    }

    pub async fn answer(&mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.desk.0.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u128) -> NodeId {
        NodeId(number)
    }

    fn answer(text: &str) -> Answer {
        Answer::Failed(text.to_owned())
    }

    #[tokio::test]
    async fn an_answer_reaches_who_asked_and_only_from_the_node_that_was_asked() {
        let desk = Desk::new(u64::MAX);
        let (mut one, mut other) = (desk.ask(node(1)).unwrap(), desk.ask(node(2)).unwrap());
        assert_ne!(one.id(), other.id());
        desk.answered(node(2), one.id(), answer("forged"));
        desk.answered(node(2), other.id(), answer("two"));
        desk.answered(node(1), one.id(), answer("one"));
        desk.answered(node(1), one.id(), answer("again"));
        assert_eq!((one.answer().await, other.answer().await), (Some(answer("one")), Some(answer("two"))));
    }

    #[test]
    fn there_is_a_bound_and_who_goes_makes_room() {
        let desk = Desk::new(0);
        let mut asked: Vec<_> = (0..UNDER_WAY_MAX).map(|_| desk.ask(node(1)).unwrap()).collect();
        assert!(desk.ask(node(1)).is_none());
        let gone = asked.pop().unwrap().id();
        desk.answered(node(1), gone, answer("late"));
        assert!(desk.ask(node(1)).is_some());
        drop(asked);
        assert!(desk.0.lock().waiting.is_empty());
    }
}
