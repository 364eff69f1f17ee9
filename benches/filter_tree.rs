//! The two topic indexes at the size they must stay fast at: a million filters, a million names.
//!
//! Look-ups are drawn at random over the whole index, so at a million they are paid for in cache misses, as in a broker;
//! the rows with a thousand show what the code itself costs.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use holdfast::topic::{FilterTree, NameTree};

const MILLION: u64 = 1_000_000;

/// A walk over `0..MILLION` in an order that no prefetcher guesses.
struct Draw(u64);

impl Draw {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// 25 bytes, as a point-to-point topic of a benchmark has.
fn exact(number: u64) -> String {
    format!("bench/p2p/client-{number:09}")
}

/// Where a device of a fleet publishes, and what it subscribes to there.
fn device(number: u64) -> String {
    format!("fleet/region-{}/device-{number}", number % 20)
}

fn tree_of(filters: impl Iterator<Item = String>) -> FilterTree<Arc<u64>> {
    let mut tree = FilterTree::new();
    for (number, filter) in (0..).zip(filters) {
        tree.get_or_insert_with(&filter, || Arc::new(number));
    }
    tree
}

/// One match of a name drawn from a thousand prepared ones, or from a hundred thousand, which fit no cache.
fn bench_match(c: &mut Criterion, name: &str, tree: &FilterTree<Arc<u64>>, names: &[String], expected: usize) {
    for name in &names[..100] {
        let mut found = 0;
        tree.for_each_match(name, |_| found += 1);
        assert_eq!(found, expected, "{name}");
    }
    let mut turn = 0;
    c.bench_function(name, |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % names.len();
            let mut found = 0;
            tree.for_each_match(black_box(&names[turn]), |value| found += Arc::strong_count(value));
            found
        });
    });
}

fn names(count: u64, below: u64, make: impl Fn(u64) -> String) -> Vec<String> {
    let mut draw = Draw(1);
    (0..count).map(|_| make(draw.next(below))).collect()
}

fn filter_tree_match(c: &mut Criterion) {
    let tree = tree_of((0..1_000).map(exact));
    bench_match(c, "filter_tree/match/exact/1k", &tree, &names(1_000, 1_000, exact), 1);

    let tree = tree_of((0..MILLION).map(exact));
    bench_match(c, "filter_tree/match/exact/1M", &tree, &names(100_000, MILLION, exact), 1);

    let status = |number| format!("{}/status", device(number));
    let tree = tree_of((0..1_000).map(|number| format!("{}/+", device(number))));
    bench_match(c, "filter_tree/match/one_plus/1k", &tree, &names(1_000, 1_000, status), 1);

    let tree = tree_of((0..MILLION).map(|number| format!("{}/+", device(number))));
    bench_match(c, "filter_tree/match/one_plus/1M", &tree, &names(100_000, MILLION, status), 1);

    let mut tree = tree_of((0..MILLION / 2).flat_map(|number| [exact(number), format!("{}/cmd/#", device(number))]));
    for watcher in ["#", "+/+/+/cmd/#", "fleet/+/+/cmd/+", "fleet/region-7/#", "other/+/#"] {
        tree.get_or_insert_with(watcher, || Arc::new(0));
    }
    let command = |number: u64| format!("{}/cmd/reboot", device(number / 20 * 20));
    bench_match(c, "filter_tree/match/mixed_with_watchers/1M", &tree, &names(100_000, MILLION / 2, command), 4);
}

fn filter_tree_change(c: &mut Criterion) {
    let mut tree = tree_of((0..MILLION).map(|number| format!("{}/+", device(number))));
    let mut draw = Draw(2);
    c.bench_function("filter_tree/remove_and_insert/1M", |bencher| {
        bencher.iter_batched(
            || format!("{}/+", device(draw.next(MILLION))),
            |filter| {
                let value = tree.remove(&filter).expect("every filter is there");
                tree.get_or_insert_with(&filter, || value);
            },
            BatchSize::SmallInput,
        );
    });
}

fn name_tree(c: &mut Criterion) {
    let mut tree = NameTree::new();
    for number in 0..MILLION / 2 {
        for end in ["status", "temperature"] {
            tree.insert(format!("{}/{end}", device(number)).into(), number);
        }
    }
    let all: Vec<String> = names(100_000, MILLION / 2, |number| format!("{}/status", device(number)));
    let mut turn = 0;
    c.bench_function("name_tree/get/1M", |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % all.len();
            tree.get(black_box(&all[turn]))
        });
    });
    c.bench_function("name_tree/next_match/one_level/1M", |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % all.len();
            let filter = &all[turn][..all[turn].len() - "status".len()];
            tree.next_match(black_box(filter), None).map(|(_, number)| *number)
        });
    });
    for (filter, found) in
        [("#", MILLION), ("fleet/region-7/#", MILLION / 20), ("fleet/+/+/status", MILLION / 2), ("+/+/+/none", 0)]
    {
        let mut group = c.benchmark_group("name_tree/scan/1M");
        group.throughput(Throughput::Elements(MILLION)).sample_size(10);
        assert_eq!(tree.scan(filter, None, usize::MAX).count() as u64, found);
        group.bench_function(filter, |bencher| bencher.iter(|| tree.scan(black_box(filter), None, usize::MAX).count()));
    }
    c.bench_function("name_tree/remove_and_insert/1M", |bencher| {
        bencher.iter(|| {
            turn = (turn + 1) % all.len();
            if let Some(number) = tree.remove(&all[turn]) {
                tree.insert(all[turn].as_str().into(), number);
            }
        });
    });
}

criterion_group!(benches, filter_tree_match, filter_tree_change, name_tree);
criterion_main!(benches);
