//! A property of questions: whichever nodes die, and whenever, each message of QoS 2 comes to one member, once, and who waits for it is answered.
//!
//! The other nodes are simulated: what comes to one waits there until it is handled, and so do its answers; when it dies all of that is lost, and what it has is another one's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdfast_raft::{NodeId, ShareMembers};
use proptest::prelude::*;

use crate::mqtt::{Message, MessageId, Names, QoS};

use super::*;

const SHARE: &str = "$share/g/t";

enum Frame {
    Give { message: u64 },
    Ask { ids: Vec<u64> },
}

/// One other node.
#[derive(Default)]
struct Other {
    frames: VecDeque<(u64, Frame)>,
    /// By their sequences, and whether they are good.
    answers: VecDeque<(u64, bool)>,
    /// The places of the messages that its members have.
    has: BTreeSet<u64>,
}

struct World {
    groups: ShareGroups<u64>,
    now: u64,
    sequence: u64,
    others: BTreeMap<u8, Other>,
    next_node: u8,
    published: u64,
    came: BTreeMap<u64, usize>,
    answered: BTreeMap<u64, usize>,
}

fn bounds() -> Bounds {
    Bounds { messages: 10_000, bytes: 1 << 30, retry_ms: 100, patience_ms: 1_000, absence_ms: 3_000, doubt_ms: 9_000 }
}

impl World {
    fn new() -> World {
        World {
            groups: ShareGroups::new(bounds(), false, MessageId::default()),
            now: 0,
            sequence: 0,
            others: (2..=4).map(|node| (node, Other::default())).collect(),
            next_node: 5,
            published: 0,
            came: BTreeMap::new(),
            answered: BTreeMap::new(),
        }
    }

    fn offer(&mut self, mut offer: Offer<u64>) {
        let members = ShareMembers::new(1, false);
        let there: Vec<_> = self.others.keys().map(|node| (*node, members)).collect();
        let message = offer.message.id.sequence;
        match choose(offer.keeper, offer.refusals, None, &there, message as usize) {
            Choice::There(slot, wanted) => {
                let sequence = self.send(slot, Frame::Give { message });
                self.groups.give(NodeId(slot.into()), (sequence, wanted), offer);
            }
            _ => {
                offer.refusals = Refusals::default();
                let actions = self.groups.wait(self.now, true, offer);
                self.carry_out(actions);
            }
        }
    }

    fn send(&mut self, node: u8, frame: Frame) -> u64 {
        self.sequence += 1;
        self.others.get_mut(&node).expect("it lives").frames.push_back((self.sequence, frame));
        self.sequence
    }

    fn carry_out(&mut self, actions: Actions<u64>) {
        for action in actions {
            match action {
                Action::Offer(offer) => self.offer(offer),
                Action::Ask(number) => {
                    let (_, ids, _) = self.groups.question(number).expect("it is open");
                    let ids: Vec<u64> = ids.all().iter().map(|id| id.sequence).collect();
                    let nodes: Vec<u8> = self.others.keys().copied().collect();
                    let ask = |node: u8| (NodeId(node.into()), self.send(node, Frame::Ask { ids: ids.clone() }));
                    let frames = nodes.into_iter().map(ask).collect();
                    let actions = self.groups.asked(number, frames);
                    self.carry_out(actions);
                }
                Action::Answer(message) => *self.answered.entry(message).or_default() += 1,
                other => panic!("{other:?} of a message that nobody may drop"),
            }
        }
    }

    fn publish(&mut self) {
        self.published += 1;
        let message = Arc::new(Message::sample(
            MessageId { sequence: self.published, ..Default::default() },
            "t",
            QoS::ExactlyOnce,
        ));
        self.offer(Offer::new(SHARE.into(), message, Keeper::Here).with_leg(Some(self.published)));
    }

    /// A node handles the next frame. `refuses`: its member is not there now.
    fn handle(&mut self, node: u8, refuses: bool) {
        let Some(other) = self.others.get_mut(&node) else { return };
        match other.frames.pop_front() {
            Some((sequence, Frame::Give { message })) => {
                if !refuses {
                    other.has.insert(sequence);
                    *self.came.entry(message).or_default() += 1;
                }
                other.answers.push_back((sequence, !refuses));
            }
            Some((sequence, Frame::Ask { ids })) => {
                other.answers.push_back((sequence, ids.iter().any(|id| other.has.contains(id))));
            }
            None => {}
        }
    }

    /// Its next answer arrives.
    fn hear(&mut self, node: u8) {
        let Some((sequence, good)) = self.others.get_mut(&node).and_then(|other| other.answers.pop_front()) else {
            return;
        };
        let id = NodeId(node.into());
        let mut actions = self.groups.accepted(id, sequence);
        actions.extend(if good {
            self.groups.settled(id, sequence)
        } else {
            self.groups.refused((id, node), sequence)
        });
        self.carry_out(actions);
    }

    /// The node dies, another one has its sessions, and a new one comes.
    fn die(&mut self, node: u8, heir: usize) {
        let Some(dead) = self.others.remove(&node) else { return };
        let heirs = self.others.len();
        let heir = self.others.values_mut().nth(heir % heirs).expect("others live");
        heir.has.extend(dead.has);
        self.others.insert(self.next_node, Other::default());
        self.next_node += 1;
        let actions = self.groups.node_gone(self.now, NodeId(node.into()), None, true);
        self.carry_out(actions);
    }

    fn pass(&mut self) {
        self.now += 100;
        let actions = self.groups.tick(self.now);
        self.carry_out(actions);
    }

    fn act(&mut self, (what, which, how): (u8, u8, u8)) {
        let node = *self.others.keys().nth(usize::from(which) % self.others.len()).expect("there are three");
        match what {
            0..=4 => self.publish(),
            5..=9 => self.handle(node, how == 0),
            10..=13 => self.hear(node),
            14 if self.next_node < 40 => self.die(node, how.into()),
            _ => self.pass(),
        }
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            for node in self.others.keys().copied().collect::<Vec<_>>() {
                while self.others[&node].frames.len() + self.others[&node].answers.len() > 0 {
                    self.handle(node, false);
                    self.hear(node);
                }
            }
            self.pass();
        }
    }
}

proptest! {
    #[test]
    fn each_message_comes_to_one_member_whoever_dies(acts in proptest::collection::vec((0u8..17, any::<u8>(), 0u8..6), 0..300)) {
        let mut world = World::new();
        acts.into_iter().for_each(|act| world.act(act));
        world.settle();
        prop_assert_eq!(world.groups.kept(), (0, 0));
        let all: BTreeMap<u64, usize> = (1..=world.published).map(|message| (message, 1)).collect();
        prop_assert_eq!(&world.came, &all, "how often each came");
        prop_assert_eq!(&world.answered, &all, "how often its publisher was answered");
    }
}

/// So that the property says something.
#[test]
fn what_is_not_asked_for_would_come_twice() {
    let mut world = World::new();
    world.publish();
    let node = *world.others.iter().find(|(_, other)| !other.frames.is_empty()).expect("one has got it").0;
    world.handle(node, false);
    world.die(node, 0);
    let open = Names::new(MessageId { sequence: 1, ..Default::default() });
    assert_eq!(world.groups.question(1).map(|(_, ids, _)| ids), Some(open));
    world.settle();
    assert_eq!((world.came[&1], world.groups.kept()), (1, (0, 0)));
}
