mod damage;
mod model;

use std::sync::Arc;

use super::*;
use crate::disk::SimulatedDisk;

const SMALL: Options = Options { segment_bytes: 4096, bytes_max: None, on_corruption: OnCorruption::Halt };

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
