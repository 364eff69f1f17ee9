//! Damaged files: found and named, never read as emptiness.

use super::*;

const TINY: Options = Options { segment_bytes: 512, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 0 };
const QUARANTINE: Options = Options { on_corruption: OnCorruption::Quarantine, ..TINY };

/// A journal of several segments, the first with an index, and the heads of its batches of one record each.
fn sample() -> (SimulatedDisk, Vec<u8>) {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), TINY, &mut |_, _| {}).expect("opens");
    let heads: Vec<u8> = (1..=16).collect();
    for &head in &heads {
        append(&mut journal, head).expect("room");
        if journal.segments().count() == 2 {
            run_chores(&mut journal);
        }
    }
    assert!(journal.segments().count() >= 4);
    (disk.crash_all_lost(), heads)
}

fn append(journal: &mut Journal, head: u8) -> Result<Placed, AppendError> {
    let mut batch = Batch::new();
    batch.push(&[head], |tail| tail.extend_from_slice(&[head; 40]));
    journal.append(u64::from(head), &mut batch)
}

fn run_chores(journal: &mut Journal) {
    while let Some(chore) = journal.chore(0) {
        let done = chore.run();
        assert!(done.error().is_none());
        journal.done(done);
    }
}

/// Heads of what can be read, and whether something could not be read.
fn contents(disk: &SimulatedDisk, options: Options) -> Result<(Journal, OpenReport, Vec<u8>, bool), OpenError> {
    let mut seen = Vec::new();
    let (journal, report) =
        Journal::open(Arc::new(disk.clone()), options, &mut |location, head| seen.push((location, head.to_vec())))?;
    let reader = journal.reader();
    let (mut heads, mut unreadable) = (Vec::new(), false);
    for (location, head) in seen {
        match reader.read(location) {
            Ok(record) => {
                assert_eq!((&record.head, record.tail), (&head, vec![head[0]; 40]));
                heads.push(head[0]);
            }
            Err(ReadError::Damaged { .. }) => unreadable = true,
            Err(error) => panic!("{error}"),
        }
    }
    Ok((journal, report, heads, unreadable))
}

/// Every file and its size.
fn files(disk: &SimulatedDisk) -> Vec<(String, usize)> {
    let names = disk.list().expect("lists");
    names
        .into_iter()
        .map(|name| (name.clone(), disk.open(&name).expect("opens").len().expect("has") as usize))
        .collect()
}

#[test]
fn no_bit_that_changes_loses_a_batch_in_silence() {
    let (disk, heads) = sample();
    let (mut halted, mut tails) = (0, 0);
    for (name, len) in files(&disk) {
        for at in 0..len {
            let damaged = disk.crash_all_lost();
            damaged.flip_bit(&name, at, (at * 5 + at / 8) as u8);
            match contents(&damaged, TINY) {
                Err(OpenError::Damaged(damage)) => {
                    assert_eq!(damage.file, name);
                    halted += 1;
                }
                Err(error) => panic!("{name} {at}: {error}"),
                Ok((_, _, seen, unreadable)) => {
                    let last_is_torn = name == "0000000004.segment" && seen == heads[..heads.len() - 1];
                    tails += usize::from(last_is_torn);
                    assert!(seen == heads || unreadable || last_is_torn, "{name} {at}: {seen:?}");
                }
            }
        }
    }
    assert!(halted > 800 && (80..200).contains(&tails), "{halted} {tails}");
}

#[test]
fn quarantine_keeps_all_that_can_be_read_and_does_so_once() {
    let (disk, heads) = sample();
    for (name, len) in files(&disk) {
        for at in (0..len).step_by(3) {
            let damaged = disk.crash_all_lost();
            damaged.flip_bit(&name, at, at as u8);
            let (mut journal, report, seen, unreadable) = contents(&damaged, QUARANTINE).expect("opens");
            let lost = heads.iter().filter(|head| !seen.contains(head)).count();
            assert!(lost <= 1, "{name} {at}: {seen:?}");
            assert!(seen.is_sorted());
            assert_eq!(report.damage.is_empty(), damaged.quarantined().is_empty());
            assert!(lost == 0 || unreadable || !report.damage.is_empty() || !seen.contains(&16));
            append(&mut journal, 99).expect("room");
            drop(journal);
            let (_, report, again, _) = contents(&damaged, TINY).unwrap_or_else(|error| panic!("{name} {at}: {error}"));
            assert_eq!(report.damage, vec![]);
            assert_eq!(again, [&seen[..], &[99]].concat());
        }
    }
}

#[test]
fn a_power_cut_during_a_repair_leaves_something_to_repair() {
    let (disk, heads) = sample();
    for (name, at) in [("0000000002.segment", 70), ("0000000002.segment", 1), ("0000000003.segment", 300)] {
        for good in 0..8 {
            let damaged = disk.crash_all_lost();
            damaged.flip_bit(name, at, 0);
            damaged.stop_after_syncs(good);
            drop(contents(&damaged, QUARANTINE));
            let cut = damaged.crash(good);
            let (_, _, seen, _) = contents(&cut, QUARANTINE).expect("opens");
            assert!(seen.len() >= heads.len() - 1);
            let (_, report, again, _) = contents(&cut, TINY).expect("opens");
            assert_eq!((report.damage, again), (vec![], seen));
        }
    }
}

#[test]
fn a_segment_that_is_missing_in_the_middle_is_damage() {
    let (disk, heads) = sample();
    disk.remove("0000000003.segment").expect("removed");
    let Err(OpenError::Damaged(damage)) = contents(&disk, TINY) else { panic!("opened") };
    assert_eq!((damage.file.as_str(), damage.what), ("0000000003.segment", "the segment is missing"));
    let (journal, report, seen, _) = contents(&disk, QUARANTINE).expect("opens");
    assert!(seen.len() < heads.len() && seen.contains(&1) && seen.contains(&16));
    assert!(!report.damage.is_empty());
    drop(journal);
    let (_, report, again, _) = contents(&disk, TINY).expect("opens");
    assert_eq!((report.damage, again), (vec![], seen));
}

#[test]
fn a_segment_that_is_cut_off_is_damage() {
    let (disk, _) = sample();
    for (name, len) in [("0000000002.segment", 200), ("0000000001.segment", 30), ("0000000004.segment", 0)] {
        let damaged = disk.crash_all_lost();
        damaged.truncate(name, len);
        let Err(OpenError::Damaged(damage)) = contents(&damaged, TINY) else { panic!("{name} was opened") };
        assert_eq!(damage.file, name);
        let (_, _, seen, _) = contents(&damaged, QUARANTINE).expect("opens");
        let (_, report, again, _) = contents(&damaged, TINY).expect("opens");
        assert_eq!((report.damage, again), (vec![], seen));
    }
}

#[test]
fn a_journal_without_segments_is_damage_and_not_a_new_journal() {
    let (disk, _) = sample();
    for (name, _) in files(&disk).iter().filter(|(name, _)| name.ends_with(".segment")) {
        disk.remove(name).expect("removed");
    }
    assert!(matches!(contents(&disk, TINY), Err(OpenError::Damaged(_))));
    let (mut journal, report, seen, _) = contents(&disk, QUARANTINE).expect("opens");
    assert_eq!((report.damage.len(), seen), (1, vec![]));
    append(&mut journal, 1).expect("room");
    assert_eq!(contents(&disk, TINY).expect("opens").2, [1]);
}

#[test]
fn all_that_is_needed_stands_in_the_segments() {
    let (disk, heads) = sample();
    for (name, _) in files(&disk).iter().filter(|(name, _)| !name.ends_with(".segment")) {
        disk.remove(name).expect("removed");
    }
    assert_eq!(contents(&disk, TINY).expect("opens").2, heads);
}

#[test]
fn a_newer_format_is_refused_by_name() {
    for name in ["0000000002.segment", "journal.id"] {
        let (disk, _) = sample();
        let file = disk.open(name).expect("opens");
        let mut bytes = [0; FILE_HEADER];
        file.read_at(0, &mut bytes).expect("reads");
        bytes[8..12].copy_from_slice(&7_u32.to_le_bytes());
        let crc = crc32fast::hash(&[&bytes[..12], &bytes[16..]].concat());
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        file.write_at(0, &bytes).expect("written");
        for options in [TINY, QUARANTINE] {
            let Err(error) = contents(&disk, options) else { panic!("opened") };
            assert_eq!(
                error.to_string(),
                format!("journal file {name} was written by a newer Holdfast (format 7, this one reads 1)")
            );
        }
    }
}

#[test]
fn the_error_says_what_to_do() {
    let (disk, _) = sample();
    disk.flip_bit("0000000002.segment", 70, 0);
    let Err(error) = contents(&disk, TINY) else { panic!("opened") };
    let text = error.to_string();
    assert!(
        text.starts_with("journal file 0000000002.segment, byte 64: a batch is damaged that others follow"),
        "{text}"
    );
    assert!(text.contains("Restore the data directory from a copy") && text.contains("on_corruption = \"quarantine\""));
}

#[test]
fn what_a_client_writes_never_passes_for_a_batch() {
    let disk = SimulatedDisk::new();
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), SMALL, &mut |_, _| {}).expect("opens");
    // What a client could make that knows all but the salt: a batch of the right segment and number.
    let mut forged = Batch::new();
    forged.push(b"forged", |_| {});
    let forged = forged.close(2, 0, 1, format::seed(0, 1)).to_vec();
    let mut batch = Batch::new();
    batch.push(b"real", |tail| (0..8).for_each(|shift| tail.extend([&vec![0; shift], &forged[..]].concat())));
    journal.append(0, &mut batch).expect("room");
    // Only the header is torn off.
    disk.flip_bit("0000000001.segment", 70, 0);
    let mut seen = 0;
    let (_, report) = Journal::open(Arc::new(disk), SMALL, &mut |_, _| seen += 1).expect("a torn tail, no damage");
    assert_eq!((seen, report.damage), (0, vec![]));
}

#[test]
fn verification_reads_everything_and_changes_nothing() {
    let (disk, heads) = sample();
    let verified = |disk: &SimulatedDisk| {
        let (syncs, before) = (disk.syncs(), files(disk));
        let mut seen = Vec::new();
        let report = verify(Arc::new(disk.clone()), &mut |_, head| seen.push(head[0])).expect("verifies");
        assert_eq!((disk.syncs(), files(disk), disk.quarantined().len()), (syncs, before, 0));
        (report, seen)
    };
    let (report, seen) = verified(&disk);
    assert_eq!((report.damage, report.batches, seen), (vec![], 16, heads));
    // In a record of the segment that has an index, in another one, and a header.
    for (name, at) in [("0000000001.segment", 120), ("0000000002.segment", 70), ("0000000003.segment", 20)] {
        disk.flip_bit(name, at, 0);
    }
    let (report, seen) = verified(&disk);
    let damaged: Vec<&str> = report.damage.iter().map(|damage| damage.file.as_str()).collect();
    assert_eq!(damaged, ["0000000003.segment", "0000000001.segment", "0000000002.segment"]);
    assert_eq!(seen.len(), 14);
    // What is missing is found too, and an empty directory is none.
    disk.remove("0000000002.segment").expect("removed");
    assert_eq!(verified(&disk).0.damage[1].what, "the segment is missing");
    assert_eq!(verified(&SimulatedDisk::new()).0, OpenReport::default());
}

/// Heads of what an inspection reads, and what it has found.
fn inspected(disk: &SimulatedDisk) -> (Inspected, Vec<u8>) {
    let mut heads = Vec::new();
    let (inspected, reader) = inspect(Arc::new(disk.clone()), &mut |_, head| heads.push(head[0])).expect("reads");
    assert_eq!(reader.is_some(), inspected.files > 0);
    (inspected, heads)
}

fn damaged_places(inspected: &Inspected) -> Vec<(&str, u64)> {
    let all = inspected.report.damage.iter().chain(&inspected.harmless);
    all.map(|damage| (damage.file.as_str(), damage.offset)).collect()
}

#[test]
fn an_inspection_names_what_is_damaged() {
    let (disk, heads) = sample();
    let (good, seen) = inspected(&disk);
    assert_eq!((damaged_places(&good), good.torn.is_some(), &seen), (vec![], false, &heads));
    assert_eq!((good.files, good.bytes), (files(&disk).len() as u64, disk.bytes()));
    let mut torn = 0;
    for (name, len) in files(&disk) {
        for at in 0..len {
            let damaged = disk.crash_all_lost();
            damaged.flip_bit(&name, at, (at * 3 + at / 8) as u8);
            let before = damaged.crash_all_lost();
            let (found, seen) = inspected(&damaged);
            let places = damaged_places(&found);
            assert!(
                places.iter().all(|(file, offset)| *file == name && *offset <= at as u64),
                "{name} {at}: {places:?}"
            );
            torn += usize::from(found.torn.is_some());
            let is_told =
                !places.is_empty() || found.torn.is_some() || (name == "0000000004.segment" && seen.len() == 15);
            assert!(seen == heads || is_told, "{name} {at}: {seen:?}");
            if !name.ends_with(".segment") && !name.starts_with("spare") {
                assert!(!places.is_empty() && found.is_whole(), "{name} {at}");
            }
            assert_eq!(contents_of(&damaged), contents_of(&before), "an inspection changes nothing");
        }
    }
    assert!(torn > 20, "{torn}");
}

fn contents_of(disk: &SimulatedDisk) -> Vec<(String, Vec<u8>)> {
    let read = |(name, len): (String, usize)| {
        let mut bytes = vec![0; len];
        disk.open(&name).expect("opens").read_at(0, &mut bytes).expect("reads");
        (name, bytes)
    };
    files(disk).into_iter().map(read).collect()
}

/// After a clean end the index knows the last batch, so that it is missed.
#[test]
fn an_index_witnesses_the_end() {
    let (disk, heads) = sample();
    let (mut journal, ..) = contents(&disk, TINY).expect("opens");
    append(&mut journal, 17).expect("room");
    journal.seal();
    let segment = journal.segments().last().expect("a segment");
    let (name, end) = (names::segment(segment.number), segment.used as usize);
    drop(journal);
    assert_eq!(inspected(&disk).1, [&heads[..], &[17]].concat());
    for at in end - 40..end {
        let damaged = disk.crash_all_lost();
        damaged.flip_bit(&name, at, 0);
        let (found, seen) = inspected(&damaged);
        if seen.len() == heads.len() {
            assert!(!found.is_whole() && found.torn.is_none());
            assert!(damaged_places(&found).iter().all(|(file, _)| *file == name));
        }
    }
    // Without it, that is a batch of which nobody was told.
    let damaged = disk.crash_all_lost();
    damaged.remove(&names::index(segment.number)).expect("removes");
    damaged.flip_bit(&name, end - 9, 0);
    let (found, _) = inspected(&damaged);
    assert!(found.is_whole() && found.torn.is_some_and(|torn| torn.file == name));
}

#[test]
fn an_index_that_lies_is_found_out() {
    let (disk, heads) = sample();
    let other = SimulatedDisk::new();
    let (mut journal, ..) = contents(&other, TINY).expect("opens");
    for head in 0..16 {
        append(&mut journal, head).expect("room");
    }
    run_chores(&mut journal);
    let (_, bytes) = contents_of(&other).into_iter().find(|(name, _)| name == "0000000001.index").expect("an index");
    disk.remove("0000000001.index").expect("removes");
    disk.create("0000000001.index").expect("creates").write_at(0, &bytes).expect("writes");
    let (found, seen) = inspected(&disk);
    assert_eq!((damaged_places(&found), seen), (vec![("0000000001.index", 0)], heads));
}
