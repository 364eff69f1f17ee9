//! What another node has not taken because there is no room on its disk, as one shard knows it.
//!
//! A node whose storage is short refuses each message that a session of its own would have to keep. The publisher is told, if it can be; a message that cannot be refused any more
//! *waits* here and is sent again every second. Until a while after the last refusal, and as long as one waits, the topic is *short*: what comes for it is refused, or held,
//! before it goes anywhere. So no more wait than were on their way, and none overtakes another.
//!
//! Owner: the shard, one for each node. Test to read first: `tests::what_cannot_be_refused_is_tried_again_in_order`.

use std::collections::VecDeque;

use hashbrown::HashMap;

/// For so long after a refusal a topic is short, and after so long what waits is sent again. In milliseconds.
const SHORT_MS: u64 = 1_000;
/// Topics that are remembered without a message that waits. To others each message is sent, and refused there.
const TOPICS_MAX: usize = 4_096;
/// As long as so many bytes wait, every topic is short.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A message that waits, as the frame that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Waiting<W> {
    pub topic: Box<str>,
    pub frame: Vec<u8>,
    /// Who waits until it is accepted, if anybody does.
    pub wait: W,
    /// When it was refused.
    pub since: u64,
}

/// See the module. `W` stands for who waits for a message.
#[derive(Debug)]
pub struct NoRoom<W> {
    topics: HashMap<Box<str>, Short>,
    waiting: VecDeque<Waiting<W>>,
    waiting_bytes: usize,
    tried_at: u64,
    /// The last that was sent again, until the node has accepted all up to it: it may still be refused.
    trying: Option<u64>,
}

#[derive(Debug, Default)]
struct Short {
    until: u64,
    waiting: usize,
}

impl Short {
    fn is_over(&self, now: u64) -> bool {
        self.waiting == 0 && now >= self.until
    }
}

impl<W> Default for NoRoom<W> {
    fn default() -> Self {
        Self { topics: HashMap::new(), waiting: VecDeque::new(), waiting_bytes: 0, tried_at: 0, trying: None }
    }
}

impl<W> NoRoom<W> {
    /// A message to this topic was refused.
    pub fn refused(&mut self, now: u64, topic: &str) {
        let until = now + SHORT_MS;
        if let Some(short) = self.topics.get_mut(topic) {
            short.until = until;
        } else if self.topics.len() < TOPICS_MAX {
            self.topics.insert(topic.into(), Short { until, waiting: 0 });
        }
    }

    /// And its publisher cannot be told: it waits.
    pub fn wait(&mut self, now: u64, topic: &str, frame: Vec<u8>, wait: W) {
        if self.waiting.is_empty() {
            self.tried_at = now;
        }
        self.topics.entry(topic.into()).or_default().waiting += 1;
        self.waiting_bytes += frame.len();
        self.waiting.push_back(Waiting { topic: topic.into(), frame, wait, since: now });
    }

    /// Whether a message to this topic would probably be refused, or overtake one that waits.
    pub fn is_short(&self, now: u64, topic: &str) -> bool {
        self.waiting_bytes >= WAITING_BYTES_MAX || self.topics.get(topic).is_some_and(|short| !short.is_over(now))
    }

    /// Whether a message waits, or is on its way once more and may be refused again.
    pub fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty() || self.trying.is_some()
    }

    /// One of those is on its way once more, with a new sequence.
    pub fn sent_again(&mut self, sequence: u64) {
        self.trying = Some(sequence);
    }

    /// The node has accepted all up to a sequence, and said before what of that it refuses. True if nothing is waited for any more.
    pub fn accepted(&mut self, up_to: u64) -> bool {
        self.trying.take_if(|last| *last <= up_to).is_some() && self.waiting.is_empty()
    }

    /// What is to be sent again now, in order; while it is on its way its topics stay short.
    pub fn to_try(&mut self, now: u64) -> VecDeque<Waiting<W>> {
        if now.saturating_sub(self.tried_at) < SHORT_MS {
            return VecDeque::new();
        }
        self.tried_at = now;
        self.waiting_bytes = 0;
        for short in self.topics.values_mut().filter(|short| short.waiting > 0) {
            *short = Short { until: now + SHORT_MS, waiting: 0 };
        }
        std::mem::take(&mut self.waiting)
    }

    /// Forgets topics that are short no longer. True if nothing is left.
    pub fn look(&mut self, now: u64) -> bool {
        self.topics.retain(|_, short| !short.is_over(now));
        self.topics.is_empty() && self.trying.is_none()
    }

    /// The node is gone: what waited, in order.
    pub fn clear(&mut self) -> VecDeque<Waiting<W>> {
        self.topics.clear();
        self.waiting_bytes = 0;
        self.trying = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(room: &mut NoRoom<u32>, now: u64) -> Vec<u32> {
        room.to_try(now).into_iter().map(|waiting| waiting.wait).collect()
    }

    fn refuse_and_wait(room: &mut NoRoom<u32>, now: u64, wait: u32) {
        room.refused(now, "t");
        room.wait(now, "t", vec![1], wait);
    }

    #[test]
    fn what_cannot_be_refused_is_tried_again_in_order() {
        let mut room = NoRoom::default();
        refuse_and_wait(&mut room, 5_000, 1);
        refuse_and_wait(&mut room, 5_100, 2);
        assert!(tried(&mut room, 5_900).is_empty());
        assert!(room.is_short(6_200, "t") && !room.look(6_200), "nothing may overtake what waits");
        assert_eq!(tried(&mut room, 6_300), [1, 2]);
        assert!(room.is_short(7_200, "t") && !room.look(7_200), "it is on its way");
        // One more time refused.
        refuse_and_wait(&mut room, 7_250, 1);
        assert_eq!(tried(&mut room, 8_250), [1]);
        assert!(room.look(9_250), "it was taken");
    }

    #[test]
    fn what_is_on_its_way_again_is_waited_for_until_it_is_accepted() {
        let mut room = NoRoom::default();
        assert!(!room.is_waited_for());
        refuse_and_wait(&mut room, 0, 1);
        assert_eq!(tried(&mut room, 1_000), [1]);
        room.sent_again(7);
        assert!(room.is_waited_for() && !room.look(9_000), "however long that takes");
        assert!(!room.accepted(6) && room.is_waited_for());
        // It is refused once more, which the node says before it accepts what came with it.
        refuse_and_wait(&mut room, 9_000, 1);
        assert!(!room.accepted(7) && room.is_waited_for());
        assert_eq!(tried(&mut room, 10_000), [1]);
        room.sent_again(8);
        assert!(room.accepted(9) && !room.is_waited_for() && room.look(11_000));
        assert!(!room.accepted(10), "said once");
    }

    #[test]
    fn a_topic_is_short_for_a_while_and_others_are_not() {
        let mut room = NoRoom::<u32>::default();
        room.refused(0, "t");
        assert!(room.is_short(999, "t") && !room.is_short(999, "u"));
        assert!(!room.is_short(1_000, "t"), "the next message tries");
        room.refused(1_000, "t");
        assert!(!room.look(1_500) && room.is_short(1_500, "t"));
        assert!(room.look(2_000));
    }

    #[test]
    fn a_node_that_is_gone_leaves_nobody_waiting() {
        let mut room = NoRoom::default();
        refuse_and_wait(&mut room, 0, 7);
        assert_eq!(room.clear().into_iter().map(|waiting| waiting.wait).collect::<Vec<_>>(), [7]);
        assert!(!room.is_short(1, "t") && room.look(1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut room = NoRoom::<u32>::default();
        (0..=TOPICS_MAX).for_each(|number| room.refused(0, &number.to_string()));
        let last = TOPICS_MAX.to_string();
        assert!(room.is_short(1, "0") && !room.is_short(1, &last));
        room.wait(0, &last, vec![0; WAITING_BYTES_MAX], 1);
        assert!(room.is_short(5_000, &last) && room.is_short(5_000, "all"));
        assert_eq!(tried(&mut room, 5_000), [1]);
        assert!(!room.is_short(6_000, "all"));
    }
}
