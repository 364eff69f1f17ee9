//! What a proposed command costs: three nodes in one process over queues in memory, logs in memory or on disk.
//!
//! `cargo run --release -p holdfast-raft --example group_load [commands [per-second [dir]]]`: so many commands in all (default 300,000), half of them
//! Acquire and half Detach, from all three nodes; with a rate, evenly over time, else as fast as the answers come. Prints the CPU time of the process per command, and how long
//! commands took until they were answered.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_raft::{
    AppliedEntry, Audience, Command, ControlState, Effect, Fitness, Group, Lane, Network, NodeId, Options, Outcome,
    WillFate,
};

type Parcel = (NodeId, Lane, Bytes);

#[derive(Default)]
struct Net {
    inboxes: Mutex<HashMap<NodeId, tokio::sync::mpsc::UnboundedSender<Parcel>>>,
}

struct Port(Arc<Net>, NodeId);

impl Network for Port {
    fn send(&self, to: NodeId, lane: Lane, message: Bytes) -> bool {
        let inboxes = self.0.inboxes.lock().expect("no panic");
        inboxes.get(&to).is_some_and(|inbox| inbox.send((self.1, lane, message)).is_ok())
    }

    fn linked(&self) -> Vec<NodeId> {
        let inboxes = self.0.inboxes.lock().expect("no panic");
        inboxes.keys().copied().filter(|node| *node != self.1).collect()
    }
}

/// Answers each Acquire with a Detach, as a client that comes and goes.
struct Clients {
    node: u128,
    start: Instant,
    group: OnceLock<Group>,
    answered: AtomicU64,
    /// Microseconds.
    delays: Mutex<Vec<u32>>,
}

impl Audience for Clients {
    fn applied(&self, entry: AppliedEntry) {
        if entry.own.is_empty() {
            return;
        }
        let now = self.start.elapsed().as_micros() as u64;
        let mut delays = self.delays.lock().expect("no panic");
        let mut follow = Vec::new();
        for (ticket, outcome) in &entry.own {
            let asked = ticket & 0xFF_FFFF_FFFF;
            delays.push((now - asked) as u32);
            if let Outcome::Acquired { epoch, .. } = outcome {
                let client = format!("client-{}-{}", self.node, ticket >> 40).into();
                let command = Command::Detach { client, epoch: *epoch, will: WillFate::Drop, expiry_secs: 0 };
                follow.push(((ticket >> 40) << 40 | now, command));
            }
        }
        self.answered.fetch_add(entry.own.len() as u64, Ordering::Relaxed);
        if let Some(group) = self.group.get() {
            group.propose(follow);
        }
        let ended = entry.effects.iter().filter(|effect| matches!(effect, Effect::SessionEnded { .. })).count();
        assert!(ended <= 4096);
    }

    fn installed(&self, _: &ControlState, _: Vec<Effect>) {}
    fn granted(&self, _: Option<u64>) {}
    fn applied_by(&self, _: NodeId, _: u64) {}
}

fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

type Node = (Group, Arc<Clients>);

/// Three registered nodes, joined by queues.
async fn start_nodes(start: Instant, dir: Option<PathBuf>) -> Vec<Node> {
    let net = Arc::new(Net::default());
    let mut nodes = Vec::new();
    for id in 1..=3_u128 {
        let audience = Arc::new(Clients {
            node: id,
            start,
            group: OnceLock::new(),
            answered: AtomicU64::new(0),
            delays: Mutex::default(),
        });
        let dir = dir.as_ref().map(|dir| dir.join(id.to_string()));
        let options = Options { dir, ..Options::new(NodeId(id), &format!("n{id}"), id as u64) };
        let port = Arc::new(Port(net.clone(), NodeId(id)));
        let group = Group::start(options, port, audience.clone(), Arc::new(Vec::new), Arc::new(|| Fitness::Fit))
            .await
            .expect("starts");
        assert!(audience.group.set(group.clone()).is_ok());
        let (inbox, mut parcels) = tokio::sync::mpsc::unbounded_channel::<Parcel>();
        net.inboxes.lock().expect("no panic").insert(NodeId(id), inbox);
        let receiver = group.clone();
        tokio::spawn(async move {
            while let Some((from, lane, message)) = parcels.recv().await {
                receiver.receive(from, lane, message);
            }
        });
        nodes.push((group, audience));
    }
    for (group, _) in &nodes {
        group.register(tokio::time::Instant::now() + Duration::from_secs(20)).await.expect("registers");
    }
    nodes
}

/// Proposes so many Acquires at each node, which are answered by as many Detaches, and waits for the end of them.
async fn load(nodes: &[Node], start: Instant, each: u64, rate: Option<u64>) {
    let began = Instant::now();
    let mut proposed = 0;
    while proposed < each {
        let due = match rate {
            // Acquires of one node, half of the rate in all.
            Some(rate) => (began.elapsed().as_secs_f64() * rate as f64 / 2.0 / nodes.len() as f64) as u64,
            None => nodes[0].1.answered.load(Ordering::Relaxed) / 2 + 500,
        };
        for ticket in proposed..due.min(each) {
            for (id, (group, _)) in (1..).zip(nodes) {
                let now = start.elapsed().as_micros() as u64;
                let client = format!("client-{id}-{ticket}").into();
                let acquire = Command::Acquire { client, clean: true, expiry_secs: 0, will: None };
                group.propose([(ticket << 40 | now, acquire)]);
            }
        }
        proposed = proposed.max(due.min(each));
        tokio::time::sleep(Duration::from_micros(if rate.is_some() { 1000 } else { 200 })).await;
    }
    while nodes.iter().any(|(_, audience)| audience.answered.load(Ordering::Relaxed) < 2 * each) {
        assert!(began.elapsed() < Duration::from_secs(120), "answers come");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let commands = number(0).unwrap_or(300_000);
    let rate = number(1).filter(|rate| *rate > 0);
    let start = Instant::now();
    let nodes = start_nodes(start, arguments.get(2).map(PathBuf::from)).await;
    let (began, cpu_before) = (Instant::now(), cpu());
    let each = commands / 2 / nodes.len() as u64;
    load(&nodes, start, each, rate).await;
    let (took, used) = (began.elapsed(), cpu().checked_sub(cpu_before).unwrap_or_default());
    let total = 2 * each * nodes.len() as u64;
    let mut delays: Vec<u32> =
        nodes.iter().flat_map(|(_, audience)| audience.delays.lock().expect("no panic").clone()).collect();
    delays.sort_unstable();
    let at = |part: f64| delays[((delays.len() - 1) as f64 * part) as usize];
    println!(
        "{total} commands in {:.2} s: {:.0}/s, CPU {:.2} us per command; answered after p50 {} us, p99 {} us, max {} us; {} entries",
        took.as_secs_f64(),
        total as f64 / took.as_secs_f64(),
        used.as_secs_f64() * 1e6 / total as f64,
        at(0.5),
        at(0.99),
        at(1.0),
        nodes[0].0.status().applied.unwrap_or(0),
    );
    for (group, _) in &nodes {
        group.stop().await;
    }
}
