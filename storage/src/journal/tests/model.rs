//! The journal against a list of batches: whatever the disk does, what was acknowledged is found, in order, and nothing else but
//! the batch that was on its way.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// What is done to a journal. Sizes are chosen so that a segment holds a few batches.
#[derive(Debug, Clone)]
enum Step {
    Append(Vec<u16>),
    RemoveFront,
    Chores,
    /// As at a clean end; may be followed by more.
    Seal,
    /// The process is killed; the disk goes on.
    Kill,
    /// Power cut while nothing is on its way.
    PowerCut(u64),
    FailSyncAfter(u64),
    FailSyncs(bool),
    FailWrites(bool),
    Limit(Option<u64>),
    /// Bytes of the first segment's index change.
    SpoilIndex(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => vec(0..400_u16, 0..5).prop_map(Step::Append),
        2 => vec(0..6000_u16, 0..3).prop_map(Step::Append),
        3 => Just(Step::RemoveFront),
        3 => Just(Step::Chores),
        1 => Just(Step::Seal),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerCut),
        1 => (0..3_u64).prop_map(Step::FailSyncAfter),
        1 => any::<bool>().prop_map(Step::FailSyncs),
        1 => any::<bool>().prop_map(Step::FailWrites),
        1 => prop_oneof![Just(None), (4000..30_000_u64).prop_map(Some)].prop_map(Step::Limit),
        1 => any::<u16>().prop_map(Step::SpoilIndex),
    ]
}

/// The records of a batch: number and length each.
type Records = Vec<(u32, u16)>;

/// A journal, and what it must hold.
struct World {
    disk: SimulatedDisk,
    journal: Option<Journal>,
    /// Segment and records of each batch that was acknowledged.
    kept: VecDeque<(u32, Records)>,
    /// Batches that were refused since the last that was not: one of them may be there.
    unsure: Vec<Records>,
    /// A removal of this segment failed: it may be gone.
    leaving: Option<u32>,
    next_record: u32,
    clock: u64,
}

fn tail_of(record: u32, len: u16) -> Vec<u8> {
    (0..len).map(|at| (record as u8).wrapping_mul(31).wrapping_add(at as u8)).collect()
}

impl World {
    fn begin(disk: SimulatedDisk) -> World {
        let (kept, unsure) = (VecDeque::new(), Vec::new());
        World { disk, journal: None, kept, unsure, leaving: None, next_record: 0, clock: 1 }
    }

    /// The same expectations of another disk.
    fn on(&self, disk: SimulatedDisk) -> World {
        let (kept, unsure) = (self.kept.clone(), self.unsure.clone());
        World { disk, journal: None, kept, unsure, leaving: self.leaving, ..*self }
    }

    /// Begins a journal on a disk that may be off before it is there.
    fn open_on_a_failing_disk(&mut self) -> bool {
        self.journal =
            Journal::open(Arc::new(self.disk.clone()), SMALL, &mut |_, _| {}).ok().map(|(journal, _)| journal);
        self.journal.is_some()
    }

    /// Opens what is on the disk and compares.
    fn open(&mut self) {
        self.journal = None;
        let (journal, report, seen) = open(&self.disk);
        assert_eq!(report.damage, vec![]);
        let seen: Vec<(Location, u32)> = seen.into_iter().map(|(at, head)| (at, number_of(&head))).collect();
        if let Some(leaving) = self.leaving.take()
            && journal.segments().next().is_none_or(|front| front.number > leaving)
        {
            self.kept.retain(|(segment, _)| *segment != leaving);
        }
        let expected: Records = self.kept.iter().flat_map(|(_, records)| records.iter().copied()).collect();
        let numbers: Vec<u32> = seen.iter().map(|(_, number)| *number).collect();
        assert!(numbers.len() >= expected.len(), "{numbers:?} lack some of {expected:?}");
        let (known, extra) = numbers.split_at(expected.len());
        assert!(known.iter().eq(expected.iter().map(|(number, _)| number)), "{numbers:?} are not {expected:?}");
        let mut all = expected;
        if !extra.is_empty() {
            let found = self.unsure.iter().find(|records| records.iter().map(|(number, _)| number).eq(extra));
            let found = found.unwrap_or_else(|| panic!("{extra:?} is none of {:?}", self.unsure)).clone();
            let segment = seen.last().map_or(0, |(at, _)| at.segment);
            all.extend(&found);
            self.kept.push_back((segment, found));
        }
        self.unsure.clear();
        let reader = journal.reader();
        for ((at, number), (_, len)) in seen.iter().zip(&all) {
            assert_eq!(reader.read(*at).expect("reads").tail, tail_of(*number, *len));
        }
        self.journal = Some(journal);
    }

    /// Whether the step went well.
    fn take(&mut self, step: &Step) -> bool {
        self.clock += 400;
        match step {
            Step::Append(lens) => return self.append(lens),
            Step::RemoveFront => return self.remove_front(),
            Step::Chores => self.chores(),
            Step::Seal => self.journal().seal(),
            Step::Kill => {
                // A full disk is no reason not to start.
                self.heal();
                self.open();
            }
            Step::PowerCut(seed) => {
                self.disk = self.disk.crash(*seed);
                self.open();
            }
            Step::FailSyncAfter(good) => self.disk.fail_sync_after(*good),
            Step::FailSyncs(fail) => self.disk.fail_syncs(*fail),
            Step::FailWrites(fail) => self.disk.fail_writes(*fail),
            Step::Limit(bytes) => self.disk.limit(*bytes),
            Step::SpoilIndex(at) => {
                let first = self.journal().segments().next().map_or(0, |segment| segment.number);
                self.disk.flip_bit(&names::index(first), usize::from(*at) % 200, *at as u8);
            }
        }
        true
    }

    fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().expect("open")
    }

    fn heal(&mut self) {
        self.disk.fail_syncs(false);
        self.disk.fail_sync_after(u64::MAX);
        self.disk.fail_writes(false);
    }

    /// A start on a disk that works again and has room.
    fn healthy_reopen(&mut self) {
        self.heal();
        self.disk.limit(None);
        self.open();
    }

    fn append(&mut self, lens: &[u16]) -> bool {
        let first = self.next_record;
        let records: Records = lens.iter().enumerate().map(|(i, len)| (first + i as u32, *len)).collect();
        self.next_record += lens.len() as u32;
        let mut batch = Batch::new();
        for (number, len) in &records {
            batch.push(&number.to_le_bytes(), |tail| tail.extend_from_slice(&tail_of(*number, *len)));
        }
        let clock = self.clock;
        match self.journal().append(clock, &mut batch) {
            Ok(placed) => {
                self.kept.push_back((placed.segment(), records));
                self.unsure.clear();
                true
            }
            Err(_) => {
                self.unsure.push(records);
                false
            }
        }
    }

    fn remove_front(&mut self) -> bool {
        let Some(front) = self.journal().segments().next() else { return true };
        match self.journal().remove_front() {
            Ok(false) => {}
            Ok(true) => {
                self.leaving = None;
                self.kept.retain(|(segment, _)| *segment != front.number);
            }
            Err(_) => {
                self.leaving = Some(front.number);
                assert_eq!(self.journal().segments().next().map(|segment| segment.number), Some(front.number));
                return false;
            }
        }
        true
    }

    fn chores(&mut self) {
        let clock = self.clock;
        for _ in 0..3 {
            if let Some(chore) = self.journal().chore(clock) {
                let done = chore.run();
                self.journal().done(done);
            }
        }
    }

    /// Every segment says of its records what a start says.
    fn compare_heads(&mut self) {
        let kept = self.kept.clone();
        let journal = self.journal();
        for segment in journal.segments().collect::<Vec<_>>() {
            let mut numbers = Vec::new();
            journal.heads(segment.number, &mut |_, head| numbers.push(number_of(head))).expect("readable");
            let kept = kept.iter().filter(|(number, _)| *number == segment.number).flat_map(|(_, records)| records);
            assert!(numbers.iter().eq(kept.map(|(number, _)| number)));
        }
    }
}

fn number_of(head: &[u8]) -> u32 {
    u32::from_le_bytes(head.try_into().expect("four bytes"))
}

/// Steps that use the journal and leave disk and process alone.
fn use_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => vec(0..400_u16, 0..5).prop_map(Step::Append),
        2 => vec(0..6000_u16, 0..3).prop_map(Step::Append),
        2 => Just(Step::RemoveFront),
        2 => Just(Step::Chores),
        1 => Just(Step::Seal),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_is_found_whatever_the_disk_does(steps in vec(step(), 1..60)) {
        let mut world = World::begin(SimulatedDisk::new());
        world.open();
        for step in &steps {
            world.take(step);
        }
        world.compare_heads();
        for disk in [world.disk.crash_all_lost(), world.disk.crash(1), world.disk.crash(2)] {
            world.on(disk).open();
        }
        // A disk that works again serves again.
        world.healthy_reopen();
        prop_assert!(world.take(&Step::Append(vec![10, 20])));
        world.healthy_reopen();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_at_any_sync_loses_nothing(
        first in vec(use_step(), 1..14),
        second in vec(use_step(), 1..8),
        seed in any::<u64>(),
    ) {
        for good in 0.. {
            let mut world = World::begin(SimulatedDisk::new());
            world.disk.stop_after_syncs(good);
            if world.open_on_a_failing_disk() {
                first.iter().for_each(|step| _ = world.take(step));
            }
            let finished = world.disk.list().is_ok();
            world.disk = if good % 3 == 0 { world.disk.crash_all_lost() } else { world.disk.crash(seed ^ good) };
            world.open();
            second.iter().for_each(|step| _ = world.take(step));
            world.disk = world.disk.crash(seed.rotate_left(7) ^ good);
            world.open();
            prop_assert!(world.take(&Step::Append(vec![30])));
            world.healthy_reopen();
            world.compare_heads();
            if finished {
                break;
            }
        }
    }
}

/// What these steps leave on the disk opens, whatever a power cut takes.
fn replay(steps: &[Step]) {
    let mut world = World::begin(SimulatedDisk::new());
    world.open();
    steps.iter().for_each(|step| _ = world.take(step));
    (0..50).for_each(|seed| world.on(world.disk.crash(seed)).open());
    world.healthy_reopen();
}

#[test]
fn a_journal_whose_first_batch_fails_keeps_its_segment() {
    replay(&[Step::FailSyncAfter(0), Step::Append(vec![]), Step::RemoveFront]);
}

#[test]
fn a_segment_takes_no_batch_once_the_next_may_have_its_name() {
    // The batch does not fit, the name of the next segment fails to sync, and a smaller batch comes.
    replay(&[Step::FailSyncAfter(2), Step::Append(vec![3977]), Step::Append(vec![0])]);
    replay(&[Step::Append(vec![1]), Step::FailSyncAfter(2), Step::Append(vec![3977]), Step::Append(vec![0])]);
}
