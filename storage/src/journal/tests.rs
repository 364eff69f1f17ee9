//! The journal on a disk that works; its bytes and names. Read `model` first.

mod damage;
mod model;
mod room;

use std::sync::Arc;

use super::*;
use crate::disk::SimulatedDisk;

const SMALL: Options =
    Options { segment_bytes: 4096, bytes_max: None, on_corruption: OnCorruption::Halt, unindexed: 0 };

type Seen = Vec<(Location, Vec<u8>)>;

fn open(disk: &SimulatedDisk) -> (Journal, OpenReport, Seen) {
    let mut seen = Vec::new();
    let opened =
        Journal::open(Arc::new(disk.clone()), SMALL, &mut |location, head| seen.push((location, head.to_vec())));
    let (journal, report) = opened.expect("opens");
    (journal, report, seen)
}

#[test]
fn what_was_appended_is_found_again() {
    let disk = SimulatedDisk::new();
    let (mut journal, report, seen) = open(&disk);
    assert_eq!((report, seen.len()), (OpenReport { segments_read: 0, ..OpenReport::default() }, 0));
    let mut batch = Batch::new();
    let mut expected = Vec::new();
    for round in 0..100_u32 {
        batch.clear();
        let places: Vec<u32> =
            (0..3_u32).map(|i| batch.push(&[round as u8, i as u8], |tail| tail.extend_from_slice(&[7; 50]))).collect();
        let placed = journal.append(u64::from(round), &mut batch).expect("room");
        for (i, place) in places.into_iter().enumerate() {
            expected.push((placed.location(&batch, place), vec![round as u8, i as u8]));
        }
    }
    assert!(journal.segments().count() > 3);
    let reader = journal.reader();
    for (location, head) in &expected {
        assert_eq!(reader.read(*location).expect("reads"), Record { head: head.clone(), tail: vec![7; 50] });
    }
    let (_, report, seen) = open(&disk.crash_all_lost());
    assert_eq!(seen, expected);
    assert_eq!((report.batches, report.records, report.last_time), (100, 300, 99));
    assert_eq!(report.torn_bytes, 0);
}

/// The heads, each of one byte, that a start finds.
fn heads(disk: &SimulatedDisk) -> Vec<u8> {
    open(disk).2.iter().map(|(_, head)| head[0]).collect()
}

/// Appends one record of about a quarter of a small segment.
fn append(journal: &mut Journal, time: u64, head: u8) -> Result<(Placed, Location), AppendError> {
    let mut batch = Batch::new();
    let place = batch.push(&[head], |tail| tail.extend_from_slice(&[head; 950]));
    let placed = journal.append(time, &mut batch)?;
    Ok((placed, placed.location(&batch, place)))
}

/// Does all that there is to do beside.
fn run_chores(journal: &mut Journal, now: u64) {
    while let Some(chore) = journal.chore(now) {
        journal.done(chore.run());
    }
}

#[test]
fn the_bytes_are_as_documented() {
    let header = FileHeader { number: 3, first: 9, salt: 0x0102_0304_0506_0708 };
    let mut batch = Batch::new();
    assert_eq!(batch.push(b"he", |tail| tail.extend_from_slice(b"tail")), 40);
    let mut expected = b"HFsegmnt\x01\0\0\0".to_vec();
    expected.extend(header.encode(Kind::Segment)[12..16].iter());
    expected.extend(b"\x03\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
    expected.resize(64, 0);
    assert_eq!(header.encode(Kind::Segment).to_vec(), expected);
    let bytes = batch.close(9, 5, 3, format::seed(header.salt, 3));
    assert_eq!(bytes.len(), 40 + 12 + 6);
    assert_eq!(&bytes[..4], b"hfB1");
    assert_eq!(&bytes[8..36], b"\x09\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x12\0\0\0\x01\0\0\0\x03\0\0\0");
    assert_eq!(&bytes[44..], b"\x06\0\0\0\x02\0\0\0hetail");
    // The CRCs as well: what is written today must be read by all later versions.
    let crcs = [&expected[12..16], &bytes[4..8], &bytes[36..40], &bytes[40..44]].map(|crc| format::u32_at(crc, 0));
    assert_eq!(crcs, [675_485_496, 3_894_557_409, 707_734_511, 3_314_220_039]);
}

#[test]
fn names_say_what_a_file_is() {
    use names::{Named, parse};
    for (name, named) in [
        ("journal.id", Named::Identity),
        ("0000000012.segment", Named::Segment(12)),
        ("0000000012.index", Named::Index(12)),
        ("spare-7", Named::Spare(7)),
        ("spare-7.new", Named::Unfinished),
        ("0000000012.index.new", Named::Unfinished),
        ("journal.id.new", Named::Unfinished),
        ("12.segment", Named::Other),
        ("9999999999.segment", Named::Other),
        ("notes.new", Named::Other),
        ("", Named::Other),
    ] {
        assert_eq!(parse(name), named, "{name}");
    }
    assert_eq!(parse(&names::segment(u32::MAX)), Named::Segment(u32::MAX));
}

#[test]
fn after_a_clean_end_a_start_reads_no_segment() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    let written: Vec<u8> = (0..20).collect();
    written.iter().for_each(|head| _ = append(&mut journal, 7, *head).expect("room"));
    assert_eq!(open(&disk.crash_all_lost()).1.segments_read, 5);
    run_chores(&mut journal, 0);
    assert_eq!(open(&disk).1.segments_read, 1, "the active segment has no index");
    journal.seal();
    let disk = disk.crash_all_lost();
    let (mut journal, report, seen) = open(&disk);
    assert_eq!((report.segments_read, report.records, report.last_time), (0, 20, 7));
    assert_eq!(seen.iter().map(|(_, head)| head[0]).collect::<Vec<_>>(), written);
    // What comes behind the index is found too.
    append(&mut journal, 8, 99).expect("room");
    append(&mut journal, 9, 98).expect("room");
    let (_, report, seen) = open(&disk);
    assert_eq!((report.segments_read, report.records, report.last_time), (1, 22, 9));
    assert_eq!(seen[20..].iter().map(|(_, head)| head[0]).collect::<Vec<_>>(), [99, 98]);
}

#[test]
fn a_sync_that_fails_moves_the_batch_to_the_next_segment() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0, 1).expect("room");
    disk.fail_sync_after(0);
    assert!(matches!(append(&mut journal, 0, 2), Err(AppendError::Io(_))));
    let (placed, location) = append(&mut journal, 0, 3).expect("works again");
    assert_eq!(placed.segment(), 2);
    assert_eq!(journal.reader().read(location).expect("reads").head, [3]);
    assert_eq!(heads(&disk), [1, 3], "the batch whose sync failed was replaced");
    assert_eq!(heads(&disk.crash_all_lost()), [1, 3]);
}

#[test]
fn what_a_start_has_found_survives_even_if_its_sync_had_failed() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0, 1).expect("room");
    disk.fail_syncs(true);
    append(&mut journal, 0, 2).expect_err("fails");
    disk.fail_syncs(false);
    drop(journal);
    assert_eq!(heads(&disk), [1, 2], "the system still shows it");
    assert_eq!(heads(&disk.crash_all_lost()), [1, 2]);
}

#[test]
fn a_batch_larger_than_a_segment_gets_its_own() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    append(&mut journal, 0, 1).expect("room");
    let mut batch = Batch::new();
    let place = batch.push(&[2], |tail| tail.extend_from_slice(&[7; 50_000]));
    let placed = journal.append(0, &mut batch).expect("room");
    append(&mut journal, 0, 3).expect("room");
    let sizes: Vec<u64> = journal.segments().map(|segment| segment.bytes).collect();
    assert_eq!(sizes, [4096, 64 + 40 + 12 + 1 + 50_000 + 3, 4096]);
    let (journal, _, seen) = open(&disk.crash_all_lost());
    assert_eq!(seen.iter().map(|(_, head)| head[0]).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(journal.reader().read(placed.location(&batch, place)).expect("reads").tail, vec![7; 50_000]);
}

#[test]
fn a_reader_sees_what_is_gone_and_what_is_damaged() {
    let disk = SimulatedDisk::new();
    let (mut journal, ..) = open(&disk);
    let locations: Vec<Location> =
        (0..8).map(|head| append(&mut journal, 0, head).map(|(_, location)| location).expect("room")).collect();
    let reader = journal.reader();
    disk.flip_bit("0000000002.segment", locations[5].offset as usize + 500, 1);
    assert!(matches!(reader.read(locations[5]), Err(ReadError::Damaged { segment: 2, .. })));
    let short = Location { len: locations[6].len - 1, ..locations[6] };
    assert!(matches!(reader.read(short), Err(ReadError::Damaged { segment: 2, .. })));
    let beyond = Location { offset: 4090, ..locations[6] };
    assert!(matches!(reader.read(beyond), Err(ReadError::Damaged { segment: 2, .. })));
    assert!(journal.remove_front().expect("removed"));
    assert!(matches!(reader.read(locations[0]), Err(ReadError::Gone(1))));
    assert!(matches!(journal.heads(1, &mut |_, _| {}), Err(ReadError::Gone(1))));
    assert_eq!(reader.read(locations[6]).expect("reads").head, [6]);
}
