//! What an entry costs the thread that writes, and what a commit costs: `cargo run --release -p holdfast-storage --example commit_cost [directory]`.
//!
//! The common load: a Put with a body of 100 bytes, and its Delete in the same gathering, or in the next one. Without a directory the disk is simulated, so that only the work of the
//! processor counts; times are then of the whole process, the handing in included.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use holdfast_storage::disk::{Disk, RealDisk, SimulatedDisk};
use holdfast_storage::journal;
use holdfast_storage::{Audience, Body, BodyId, Entry, ItemId, Options, OwnerId, State, Storage, Value};

struct Payload(u128, [u8; 100]);

impl Body for Payload {
    fn id(&self) -> BodyId {
        BodyId(self.0)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.1);
    }

    fn size(&self) -> usize {
        self.1.len()
    }
}

#[derive(Default)]
struct Ears(Mutex<u64>, Condvar);

impl Audience for Ears {
    fn kept(&self, _source: usize, submission: u64) {
        *self.0.lock().expect("unpoisoned") = submission;
        self.1.notify_all();
    }

    fn loaded(&self, _source: usize, _ticket: u64, _bodies: Vec<(OwnerId, ItemId, Option<Vec<u8>>)>) {}

    fn state(&self, state: State) {
        eprintln!("{state:?}");
    }
}

impl Ears {
    fn wait(&self, submission: u64) {
        let mut kept = self.0.lock().expect("unpoisoned");
        while *kept < submission {
            kept = self.1.wait(kept).expect("unpoisoned");
        }
    }
}

fn put(number: u64) -> Entry {
    let body: Arc<dyn Body> = Arc::new(Payload(u128::from(number), [7; 100]));
    let (owner, item) = (OwnerId(number % 1000), number);
    Entry::Put { owner, item, value: Value::from_slice(&[1; 16]), body: Some(body) }
}

fn delete(number: u64) -> Entry {
    Entry::Delete { owner: OwnerId(number % 1000), item: number }
}

/// Groups of `group` messages, each deleted `behind` groups later; of `groups` groups.
fn run(name: &str, storage: &Storage, ears: &Ears, (groups, group, behind): (u64, u64, u64), numbers: &mut u64) {
    let mut entries = Vec::new();
    let (mut handing, before) = (Duration::ZERO, storage.figures());
    let cpu = cpu_time();
    let begun = Instant::now();
    let first = *numbers;
    for at in 0..groups {
        let from = first + at * group;
        entries.extend((from..from + group).map(put));
        if at >= behind {
            entries.extend((from..from + group).map(|number| delete(number - behind * group)));
        }
        let handed = Instant::now();
        let submission = storage.submit(0, &mut entries, true);
        handing += handed.elapsed();
        ears.wait(submission);
    }
    let (wall, cpu) = (begun.elapsed(), cpu_time() - cpu);
    *numbers += groups * group;
    for number in *numbers - behind * group..*numbers {
        entries.push(delete(number));
    }
    ears.wait(storage.submit(0, &mut entries, true));
    let after = storage.figures();
    let count = (groups * group * 2) as f64;
    let ns = |time: Duration| time.as_nanos() as f64 / count;
    println!(
        "{name:40} {group:5} per group: {:6.0} ns of wall, {:6.0} of all processors, {:4.0} in submit per entry; {:7.1} µs per commit, {} batches, {} B cleaned",
        ns(wall),
        ns(cpu),
        ns(handing),
        wall.as_micros() as f64 / groups as f64,
        after.batches - before.batches,
        after.cleaned_bytes - before.cleaned_bytes,
    );
}

/// Of all threads, in steps of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

fn main() {
    let directory = std::env::args().nth(1).map(PathBuf::from);
    let disk: Arc<dyn Disk> = match &directory {
        Some(directory) => Arc::new(RealDisk::open_or_create(directory).expect("the directory opens")),
        None => Arc::new(SimulatedDisk::new()),
    };
    let journal = journal::Options { segment_bytes: 32 << 20, bytes_max: None, ..Default::default() };
    let options = Options { journal, sources: 1, lazy: Duration::from_millis(200) };
    let opened = Storage::open_on(disk.clone(), options.clone()).expect("it opens");
    let mut numbers =
        1 + opened.recovered.owners.iter().flat_map(|(_, items)| items).map(|at| at.item).max().unwrap_or(0);
    let ears = Arc::new(Ears::default());
    let begun = Instant::now();
    let clock = move || begun.elapsed().as_millis() as u64;
    let storage = Storage::start(opened, ears.clone(), Arc::new(clock)).expect("threads start");
    for group in [32, 256, 2048] {
        let groups = 400_000 / group;
        run("deleted in the same gathering", &storage, &ears, (groups, group, 0), &mut numbers);
        run("deleted in the next gathering", &storage, &ears, (groups, group, 1), &mut numbers);
    }
    // A million that stay, and the same load beside them.
    let mut entries = Vec::new();
    let begun = Instant::now();
    for from in (0..1_000_000).step_by(1000) {
        entries.extend((from..from + 1000).map(|at| match put(numbers + at) {
            Entry::Put { item, value, body, .. } => Entry::Put { owner: OwnerId(2000 + at % 1000), item, value, body },
            other => other,
        }));
        storage.submit(0, &mut entries, true);
    }
    numbers += 1_000_000;
    ears.wait(storage.submit(0, &mut entries, true));
    println!("a million put in {:?}: {:?}", begun.elapsed(), storage.figures());
    run("beside a million", &storage, &ears, (1500, 256, 1), &mut numbers);
    storage.close().expect("it closes");
    println!("{:?}", storage.figures());
    let begun = Instant::now();
    let opened = Storage::open_on(disk, options).expect("it opens");
    println!("opened again in {:?}: {:?}", begun.elapsed(), opened.report);
}
