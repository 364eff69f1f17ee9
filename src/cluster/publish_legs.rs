//! What one shard owes one other node: the frames of its stream that are not stable there yet, in their order.
//!
//! Each publish with a subscriber on that node is a *leg*: it is sent once, and sent again from where the node has it when the connection breaks. Whoever waits
//! for it waits until it is *accepted*, on that node's disk; the frame is kept until it is *stable*, with the heirs of the sessions there too: until then a node
//! that starts anew gets it again, and when the node has died it is [taken out](PublishLegs::take) for its heirs. Answers are cumulative, so a leg costs
//! its bytes and one entry. A node that is slow fills the *window*: what one shard may have under way to it, as much as became stable there within the last
//! second; then publishers that need it are not read from.
//!
//! Owner: the shard. Invariants: sequences ascend; what is stable is accepted; `sent` lies between the first leg that is kept and the end; a wait is given
//! back exactly once.
//!
//! Test to read first: `tests::what_is_not_accepted_is_sent_again_after_a_break`; then `tests::what_is_accepted_is_kept_until_it_is_stable`.

use std::collections::VecDeque;

/// Bytes of one buffer of frames.
const CHUNK_BYTES: usize = 64 * 1024;
/// The smallest window, in bytes: a slow node still gets a few messages at a time.
pub const WINDOW_BYTES_MIN: usize = 64 * 1024;
/// The largest one.
pub const WINDOW_BYTES_MAX: usize = 8 * 1024 * 1024;
/// That of a node that has accepted nothing yet.
const WINDOW_BYTES_FIRST: usize = 1024 * 1024;
/// What a window is measured over, in milliseconds.
const WINDOW_MS: u64 = 1_000;

struct Leg<W> {
    sequence: u64,
    /// Where its frame begins and ends, in bytes of the stream since it began.
    start: u64,
    end: u64,
    /// Who waits until it is accepted.
    wait: Option<W>,
    /// The node has not taken it, and it was given back.
    refused: bool,
}

/// See the module. `W` stands for who waits for a leg.
pub struct PublishLegs<W> {
    legs: VecDeque<Leg<W>>,
    /// So many of them, from the first on, are accepted and not stable.
    accepted: usize,
    /// The frames of the legs, one behind the other; the first buffer begins at `base`.
    chunks: VecDeque<Vec<u8>>,
    base: u64,
    /// The end of all frames, and up to where they were given to the connection there is now.
    end: u64,
    sent: u64,
    /// Up to where they were given to processes of the node that are gone.
    sent_before: u64,
    /// All before it was owed to an earlier life of the node.
    owed_before: u64,
    /// Whether frames may be given to a connection.
    connected: bool,
    /// The sequence of the last leg there ever was.
    last: u64,
    window: usize,
    /// What became stable since `measured_at`.
    stable_bytes: usize,
    measured_at: u64,
    /// When a leg was last accepted, or the first of those that are owed was made.
    progress_at: u64,
}

impl<W> Default for PublishLegs<W> {
    fn default() -> Self {
        Self {
            legs: VecDeque::new(),
            accepted: 0,
            chunks: VecDeque::new(),
            base: 0,
            end: 0,
            sent: 0,
            sent_before: 0,
            owed_before: 0,
            connected: false,
            last: 0,
            window: WINDOW_BYTES_FIRST,
            stable_bytes: 0,
            measured_at: 0,
            progress_at: 0,
        }
    }
}

impl<W> PublishLegs<W> {
    /// Adds a leg. `encode` appends its frame. Sequences ascend.
    pub fn push(&mut self, now: u64, sequence: u64, wait: Option<W>, encode: impl FnOnce(&mut Vec<u8>)) {
        debug_assert!(self.last < sequence, "sequences ascend");
        self.last = sequence;
        if self.accepted == self.legs.len() {
            self.progress_at = now;
        }
        if self.chunks.back().is_none_or(|chunk| chunk.len() >= CHUNK_BYTES) {
            self.chunks.push_back(Vec::new());
        }
        let Some(chunk) = self.chunks.back_mut() else {
            return;
        };
        let before = chunk.len();
        encode(chunk);
        let start = self.end;
        self.end += (chunk.len() - before) as u64;
        self.legs.push_back(Leg { sequence, start, end: self.end, wait, refused: false });
    }

    /// Everything up to `up_to` is accepted, and everything up to `stable` of that is stable; `done` is told who waited, in order.
    pub fn answered(&mut self, now: u64, up_to: u64, stable: u64, mut done: impl FnMut(W)) {
        while let Some(leg) = self.legs.get_mut(self.accepted).filter(|leg| leg.sequence <= up_to) {
            self.accepted += 1;
            self.progress_at = now;
            leg.wait.take().into_iter().for_each(&mut done);
        }
        let before = self.first_kept();
        while self.accepted > 0 && self.legs.pop_front_if(|leg| leg.sequence <= stable).is_some() {
            self.accepted -= 1;
        }
        let first_kept = self.first_kept();
        self.stable_bytes += (first_kept - before) as usize;
        // What was sent to an earlier connection may be stable before it is sent to this one.
        self.sent = self.sent.max(first_kept);
        self.forget_before(first_kept);
    }

    /// The node has given one to nobody: if it has to be sent again there is nothing in it.
    pub fn void(&mut self, sequence: u64) {
        self.void_at(sequence);
    }

    fn void_at(&mut self, sequence: u64) -> Option<&mut Leg<W>> {
        let at = self.legs.binary_search_by_key(&sequence, |leg| leg.sequence).ok()?;
        let leg = &mut self.legs[at];
        leg.refused = true;
        Some(leg)
    }

    /// The node has not taken one, and will say that it has accepted all up to a later one. Returns its frame and who waits for it.
    pub fn refused(&mut self, sequence: u64) -> Option<(Vec<u8>, Option<W>)> {
        let leg = self.void_at(sequence)?;
        let (start, end, wait) = (leg.start, leg.end, leg.wait.take());
        let mut base = self.base;
        for chunk in &self.chunks {
            let behind = base + chunk.len() as u64;
            if start < behind {
                return Some((chunk[(start - base) as usize..(end - base) as usize].to_vec(), wait));
            }
            base = behind;
        }
        None
    }

    /// Where the first leg that is kept begins.
    fn first_kept(&self) -> u64 {
        self.legs.front().map_or(self.end, |leg| leg.start)
    }

    fn forget_before(&mut self, position: u64) {
        while let Some(chunk) = self.chunks.front()
            && self.base + chunk.len() as u64 <= position
        {
            self.base += chunk.len() as u64;
            self.chunks.pop_front();
        }
    }

    /// There is a connection, whose other end has received everything up to `received` from an earlier one. A node that has started anew since then has
    /// received nothing: it gets all that is kept, and `resent` is called with the frame of every leg that was owed to a life before, and with whether that had
    /// refused it: whoever it was given back to sees to it.
    pub fn connect(&mut self, now: u64, received: Option<u64>, mut resent: impl FnMut(&mut [u8], bool)) {
        self.connected = true;
        // It has had no chance to accept anything before.
        self.progress_at = now;
        let first_kept = self.first_kept();
        match received {
            Some(received) => {
                let next = self.legs.partition_point(|leg| leg.sequence <= received);
                self.sent = self.legs.get(next).map_or(self.end, |leg| leg.start);
            }
            None => {
                self.sent_before = self.sent_before.max(self.sent);
                self.sent = first_kept;
                let before = self.sent_before.max(self.owed_before);
                self.each_frame(|leg, frame| {
                    if leg.start < before {
                        resent(frame, leg.refused);
                    }
                });
            }
        }
    }

    /// Calls `each` with every leg that is kept and its frame, in order.
    fn each_frame(&mut self, mut each: impl FnMut(&mut Leg<W>, &mut [u8])) {
        let (mut base, mut at) = (self.base, 0);
        for leg in &mut self.legs {
            while leg.start >= base + self.chunks[at].len() as u64 {
                base += self.chunks[at].len() as u64;
                at += 1;
            }
            let (start, end) = ((leg.start - base) as usize, (leg.end - base) as usize);
            each(leg, &mut self.chunks[at][start..end]);
        }
    }

    /// The node has begun anew: that it has accepted nothing until `now` says nothing of it.
    pub fn begin_life(&mut self, now: u64) {
        self.progress_at = now;
        self.owed_before = self.end;
    }

    /// Whether frames are given to a connection.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// The connection is gone.
    pub fn disconnect(&mut self) {
        self.connected = false;
    }

    /// Whether there is something for the connection.
    pub fn has_unsent(&self) -> bool {
        self.connected && self.sent < self.end
    }

    /// The frames for the connection, as the first pieces of them.
    pub fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        let mut base = self.base;
        let (connected, sent) = (self.connected, self.sent);
        self.chunks.iter().filter_map(move |chunk| {
            let start = base;
            base += chunk.len() as u64;
            (connected && base > sent).then(|| &chunk[sent.saturating_sub(start) as usize..])
        })
    }

    /// The connection has taken so many bytes of them.
    pub fn sent(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes as u64).min(self.end);
    }

    /// Milliseconds since something was last accepted, while something is not.
    pub fn stuck_ms(&self, now: u64) -> u64 {
        if self.accepted == self.legs.len() { 0 } else { now.saturating_sub(self.progress_at) }
    }

    /// Bytes that are kept.
    pub fn owed_bytes(&self) -> usize {
        (self.end - self.first_kept()) as usize
    }

    /// The sequence of the first leg that is not accepted.
    pub fn first_sequence(&self) -> Option<u64> {
        self.legs.get(self.accepted).map(|leg| leg.sequence)
    }

    /// The sequence of the first leg that is kept: a node that starts anew gets it and all behind it.
    pub fn first_kept_sequence(&self) -> Option<u64> {
        self.legs.front().map(|leg| leg.sequence)
    }

    /// The sequence of the first leg that no process of the other node has been sent whole.
    pub fn first_unsent(&self) -> Option<u64> {
        let sent = self.sent.max(self.sent_before);
        self.legs.get(self.legs.partition_point(|leg| leg.end <= sent)).map(|leg| leg.sequence)
    }

    /// Whether no more should be added until [`has_room`](Self::has_room): what is added all the same is kept.
    pub fn is_full(&self) -> bool {
        self.owed_bytes() >= self.window
    }

    /// Whether so much more was added that what need not arrive should not be.
    pub fn is_overfull(&self) -> bool {
        self.owed_bytes() >= 2 * self.window
    }

    pub fn has_room(&self) -> bool {
        self.owed_bytes() < self.window / 2
    }

    /// Sets the window by what became stable within the last second. Called about once in a second.
    pub fn measure(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.measured_at);
        if elapsed < WINDOW_MS {
            return;
        }
        let stable = (self.stable_bytes as u64 * WINDOW_MS / elapsed) as usize;
        if stable > 0 || self.is_full() {
            self.window = stable.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        }
        self.stable_bytes = 0;
        self.measured_at = now;
    }

    /// The node is gone for good: nothing is owed to it any more. `taken` gets the frame of each leg that was not stable, in order, and who still waited for it;
    /// not those that were given back when the node refused them.
    pub fn take(&mut self, mut taken: impl FnMut(&[u8], Option<W>)) {
        self.each_frame(|leg, frame| {
            if !leg.refused {
                taken(frame, leg.wait.take());
            }
        });
        self.legs.clear();
        self.accepted = 0;
        self.chunks.clear();
        self.base = self.end;
        self.sent = self.end;
        self.connected = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(legs: &mut PublishLegs<u64>, sequence: u64, len: usize) {
        legs.push(0, sequence, Some(sequence), |out| out.extend(std::iter::repeat_n(sequence as u8, len)));
    }

    fn unsent(legs: &PublishLegs<u64>) -> Vec<u8> {
        legs.unsent().flatten().copied().collect()
    }

    fn accept(legs: &mut PublishLegs<u64>, up_to: u64) -> Vec<u64> {
        answer(legs, up_to, up_to)
    }

    fn answer(legs: &mut PublishLegs<u64>, up_to: u64, stable: u64) -> Vec<u64> {
        let mut done = Vec::new();
        legs.answered(1, up_to, stable, |wait| done.push(wait));
        done
    }

    #[test]
    fn frames_leave_in_order_and_once() {
        let mut legs = PublishLegs::default();
        push(&mut legs, 1, 3);
        assert!(!legs.has_unsent(), "nobody is there");
        legs.connect(0, Some(0), |_, _| panic!("nothing was sent before"));
        push(&mut legs, 2, 2);
        assert_eq!(unsent(&legs), [1, 1, 1, 2, 2]);
        legs.sent(4);
        assert_eq!((unsent(&legs), legs.first_unsent()), (vec![2], Some(2)));
        legs.sent(1);
        assert!(!legs.has_unsent() && legs.first_unsent().is_none());
        assert_eq!(accept(&mut legs, 1), [1]);
        assert!(accept(&mut legs, 1).is_empty(), "told once");
        assert_eq!(legs.owed_bytes(), 2);
        assert_eq!(accept(&mut legs, 7), [2]);
        assert_eq!((legs.first_sequence(), legs.owed_bytes()), (None, 0));
    }

    #[test]
    fn what_is_not_accepted_is_sent_again_after_a_break() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        (1..=4).for_each(|sequence| push(&mut legs, sequence, 2));
        legs.sent(8);
        accept(&mut legs, 1);
        legs.disconnect();
        assert!(!legs.has_unsent());
        // Two and three have arrived, and their answers have not.
        legs.connect(0, Some(3), |_, _| panic!("the node is the same"));
        assert_eq!(unsent(&legs), [4, 4]);
        legs.disconnect();
        let mut again = 0;
        legs.connect(0, None, |frame, _| {
            again += 1;
            frame[0] |= 0x80;
        });
        assert_eq!(again, 2, "the fourth had not come");
        assert_eq!(unsent(&legs), [0x82, 2, 0x83, 3, 4, 4]);
        assert_eq!(accept(&mut legs, 4), [2, 3, 4]);
    }

    #[test]
    fn what_a_process_that_is_gone_was_sent_counts_as_sent() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        push(&mut legs, 1, 2);
        push(&mut legs, 2, 2);
        legs.sent(3);
        assert_eq!(legs.first_unsent(), Some(2), "not whole");
        legs.sent(1);
        push(&mut legs, 3, 2);
        legs.disconnect();
        let mut again = 0;
        legs.connect(0, None, |_, _| again += 1);
        assert_eq!((again, legs.first_unsent()), (2, Some(3)));
        legs.connect(0, None, |_, _| again += 1);
        assert_eq!((again, legs.first_unsent()), (4, Some(3)));
    }

    #[test]
    fn an_answer_may_come_before_the_frame_is_sent_again() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        push(&mut legs, 1, 2);
        push(&mut legs, 2, 2);
        legs.connect(0, None, |_, _| {});
        assert_eq!(accept(&mut legs, 1), [1]);
        assert_eq!(unsent(&legs), [2, 2]);
    }

    #[test]
    fn what_is_accepted_is_kept_until_it_is_stable() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        (1..=4).for_each(|sequence| push(&mut legs, sequence, 2));
        legs.sent(8);
        assert_eq!(answer(&mut legs, 3, 1), [1, 2, 3]);
        assert_eq!((legs.first_sequence(), legs.first_kept_sequence()), (Some(4), Some(2)));
        assert_eq!(legs.owed_bytes(), 6, "the window is taken by what is not stable");
        assert!(answer(&mut legs, 3, 2).is_empty(), "told once");
        legs.disconnect();
        legs.connect(0, Some(4), |_, _| panic!("the node is the same"));
        assert!(!legs.has_unsent(), "it has everything");
        legs.disconnect();
        // It has started anew, and what it had accepted may have been with no heir.
        legs.connect(0, None, |frame, _| frame[0] |= 0x80);
        assert_eq!(unsent(&legs), [0x83, 3, 0x84, 4]);
        legs.sent(4);
        assert_eq!(answer(&mut legs, 4, 3), [4]);
        assert_eq!(unsent(&legs), [] as [u8; 0]);
        assert!(answer(&mut legs, 4, 4).is_empty());
        assert_eq!((legs.owed_bytes(), legs.first_kept_sequence()), (0, None));
    }

    #[test]
    fn nothing_is_stable_that_is_not_accepted() {
        let mut legs = PublishLegs::default();
        (1..=3).for_each(|sequence| push(&mut legs, sequence, 1));
        assert_eq!(answer(&mut legs, 1, 9), [1], "the answer of a node that is wrong");
        assert_eq!(legs.first_kept_sequence(), Some(2));
        assert!(answer(&mut legs, 0, 0).is_empty(), "or late");
        assert_eq!(answer(&mut legs, 3, 3), [2, 3]);
    }

    #[test]
    fn a_node_is_stuck_while_it_accepts_nothing() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        push(&mut legs, 1, 1);
        assert_eq!(legs.stuck_ms(500), 500);
        legs.answered(600, 1, 0, |_| {});
        assert_eq!(legs.stuck_ms(9_000), 0, "its heirs are slow, and not the node");
        legs.push(9_000, 2, None, |out| out.push(2));
        assert_eq!(legs.stuck_ms(9_100), 100);
    }

    #[test]
    fn one_that_is_refused_is_given_back_and_nobody_waits_for_it_here() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        (1..=3).for_each(|sequence| push(&mut legs, sequence, CHUNK_BYTES / 2 + sequence as usize));
        assert_eq!(legs.refused(3), Some((vec![3; CHUNK_BYTES / 2 + 3], Some(3))));
        assert_eq!(legs.refused(3), Some((vec![3; CHUNK_BYTES / 2 + 3], None)), "it is said twice");
        assert_eq!(accept(&mut legs, 3), [1, 2]);
        assert_eq!(legs.refused(2), None);
    }

    #[test]
    fn one_that_is_refused_is_not_taken_out_with_the_others() {
        let mut legs = PublishLegs::default();
        (1..=3).for_each(|sequence| push(&mut legs, sequence, 1));
        assert_eq!(legs.refused(2), Some((vec![2], Some(2))));
        assert_eq!(answer(&mut legs, 2, 0), [1]);
        let mut taken = Vec::new();
        legs.take(|frame, wait| taken.push((frame[0], wait)));
        assert_eq!(taken, [(1, None), (3, Some(3))]);
    }

    #[test]
    fn what_was_owed_to_an_earlier_life_is_marked_although_that_was_not_sent_it() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        legs.disconnect();
        push(&mut legs, 1, 1);
        legs.begin_life(5);
        push(&mut legs, 2, 1);
        let mut again = Vec::new();
        legs.connect(6, None, |frame, _| again.push(frame[0]));
        assert_eq!(again, [1]);
        assert_eq!(legs.first_unsent(), Some(1), "nobody has it");
    }

    #[test]
    fn one_that_is_refused_is_marked_for_a_node_that_starts_anew() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        (1..=3).for_each(|sequence| push(&mut legs, sequence, 1));
        legs.sent(2);
        legs.sent(1);
        assert_eq!(legs.refused(2), Some((vec![2], Some(2))));
        legs.void(3);
        assert_eq!(answer(&mut legs, 2, 0), [1]);
        legs.disconnect();
        let mut again = Vec::new();
        legs.connect(0, None, |frame, refused| again.push((frame[0], refused)));
        assert_eq!(again, [(1, false), (2, true), (3, true)]);
        assert_eq!(unsent(&legs), [1, 2, 3]);
    }

    #[test]
    fn long_streams_keep_only_what_is_owed() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        let mut taken = Vec::new();
        for sequence in 1..=5_000_u64 {
            push(&mut legs, sequence, 1 + (sequence % 97) as usize);
            let bytes: usize = legs.unsent().map(<[u8]>::len).sum();
            taken.extend(unsent(&legs));
            legs.sent(bytes);
            if sequence % 3 == 0 {
                accept(&mut legs, sequence - 2);
            }
        }
        let expected: Vec<u8> =
            (1..=5_000_u64).flat_map(|s| std::iter::repeat_n(s as u8, 1 + (s % 97) as usize)).collect();
        assert_eq!(taken, expected);
        assert!(legs.chunks.len() <= 2 && legs.owed_bytes() < 1_000);
        assert_eq!(accept(&mut legs, 5_000).len(), 4);
    }

    #[test]
    fn a_node_is_stuck_from_when_it_could_have_accepted_something() {
        let mut legs = PublishLegs::default();
        push(&mut legs, 1, 2);
        push(&mut legs, 2, 2);
        assert_eq!(legs.stuck_ms(3_000), 3_000);
        legs.begin_life(4_000);
        assert_eq!(legs.stuck_ms(4_500), 500, "it has begun anew");
        legs.connect(5_000, None, |_, _| {});
        assert_eq!(legs.stuck_ms(5_200), 200);
        legs.answered(6_000, 1, 0, |_| {});
        assert_eq!(legs.stuck_ms(6_100), 100);
        legs.answered(6_200, 2, 1, |_| {});
        assert_eq!(legs.stuck_ms(9_000), 0, "it owes nothing");
    }

    #[test]
    fn the_window_follows_what_the_node_accepts() {
        let mut legs = PublishLegs::default();
        legs.connect(0, Some(0), |_, _| {});
        push(&mut legs, 1, WINDOW_BYTES_FIRST);
        assert!(legs.is_full());
        legs.measure(1_000);
        assert_eq!(legs.window, WINDOW_BYTES_MIN, "it has accepted nothing");
        accept(&mut legs, 1);
        legs.measure(2_000);
        assert_eq!(legs.window, WINDOW_BYTES_FIRST);
        assert!(legs.has_room());
        legs.measure(4_000);
        assert_eq!(legs.window, WINDOW_BYTES_FIRST, "nothing was asked of it");
    }

    /// H23, H24: in order, for its heirs.
    #[test]
    fn a_node_that_is_gone_leaves_what_was_not_stable() {
        let mut legs = PublishLegs::default();
        let len = CHUNK_BYTES / 2 + 1;
        (1..=5).for_each(|sequence| push(&mut legs, sequence, len));
        answer(&mut legs, 3, 1);
        let mut taken = Vec::new();
        legs.take(|frame, wait| taken.push((frame[0], frame.len(), wait)));
        assert_eq!(taken, [(2, len, None), (3, len, None), (4, len, Some(4)), (5, len, Some(5))]);
        legs.take(|_, _| panic!("they are taken once"));
        legs.connect(0, Some(0), |_, _| {});
        push(&mut legs, 6, 1);
        assert_eq!(unsent(&legs), [6]);
        assert_eq!(accept(&mut legs, 6), [6]);
    }
}
