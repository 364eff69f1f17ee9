//! What applying costs, in a state of a million sessions: `cargo bench -p holdfast-raft`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use holdfast_raft::{Command, ControlState, LeaseWill, NodeId, Origin, Proposal, WillFate};

const NODE: NodeId = NodeId(1);
const OTHER: NodeId = NodeId(2);
const CLIENTS: usize = 1_000_000;
const BATCH: usize = 2_048;

fn acquire(client: &str, expiry_secs: u32, will: Option<LeaseWill>) -> Command {
    Command::Acquire { client: client.into(), clean: expiry_secs == 0, expiry_secs, will }
}

/// The state, and the number of the last batch of [`NODE`].
struct World {
    state: ControlState,
    number: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self { state: ControlState::new(), number: 0 };
        for node in [NODE, OTHER] {
            let (name, versions) = ("node".to_owned(), (1, 1));
            world.lead(Command::Register { node, name, run: 1, versions, intact: true });
        }
        world
    }

    fn with_sessions(clients: usize) -> Self {
        let mut world = Self::new();
        for batch in (0..clients).collect::<Vec<_>>().chunks(BATCH) {
            world.apply(batch.iter().map(|number| acquire(&format!("device-{number}"), 3_600, None)).collect());
        }
        world
    }

    fn lead(&mut self, command: Command) {
        let proposal = Proposal { at: 0, origin: Origin::Leader, commands: vec![command] };
        black_box(self.state.apply_proposal(self.state.index() + 1, proposal));
    }

    fn apply(&mut self, commands: Vec<Command>) {
        self.number += 1;
        let origin = Origin::Node { node: NODE, incarnation: 1, number: self.number };
        let proposal = Proposal { at: 0, origin, commands };
        black_box(self.state.apply_proposal(self.state.index() + 1, proposal));
    }
}

fn connects(criterion: &mut Criterion) {
    let mut world = World::with_sessions(CLIENTS);
    let names: Vec<Arc<str>> = (0..BATCH).map(|number| format!("guest-{number}").into()).collect();
    let mut group = criterion.benchmark_group("a million sessions");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("Acquire and Detach of a clean client", |bencher| {
        bencher.iter_batched(
            || names.iter().map(|name| acquire(name, 0, None)).collect::<Vec<_>>(),
            |commands| {
                world.apply(commands);
                let leave = names.iter().map(|name| Command::Detach {
                    client: Arc::clone(name),
                    epoch: world.state.session(name).map_or(0, |session| session.epoch),
                    will: WillFate::Drop,
                    expiry_secs: 0,
                });
                let leave = leave.collect();
                world.apply(leave);
            },
            BatchSize::LargeInput,
        );
        assert_eq!(world.state.counts().leases, CLIENTS);
    });
    group.finish();
}

fn death(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("the death of a node with a million sessions");
    group.sample_size(10);
    let world = World::with_sessions(CLIENTS);
    group.bench_function("ExpireNode", |bencher| {
        bencher.iter_batched(
            || World { state: world.state.clone(), number: world.number },
            |mut world| {
                world.lead(Command::ExpireNode { node: NODE, incarnation: 1 });
                world
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("the first PassOn", |bencher| {
        bencher.iter_batched(
            || {
                let mut world = World { state: world.state.clone(), number: world.number };
                world.lead(Command::ExpireNode { node: NODE, incarnation: 1 });
                world
            },
            |mut world| {
                world.lead(Command::PassOn { node: NODE, incarnation: 1 });
                world
            },
            BatchSize::PerIteration,
        );
    });
    group.bench_function("snapshot", |bencher| {
        bencher.iter(|| world.state.snapshot().map(|chunk| chunk.len()).sum::<usize>())
    });
    let chunks: Vec<_> = world.state.snapshot().collect();
    group.bench_function("restore", |bencher| {
        bencher.iter(|| ControlState::restore(&chunks).map(|state| state.index()))
    });
    group.finish();
}

criterion_group!(benches, connects, death);
criterion_main!(benches);
