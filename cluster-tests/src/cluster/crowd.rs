//! Many clients at once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::latency::Latencies;
use super::{Cluster, connect_within};
use crate::client::Client;
use crate::wire::Connect;

/// Connects are made by so many threads.
const THREADS: usize = 16;

/// Does something for each number below `count`, on several threads; the results in order.
///
/// # Panics
/// When one of them does.
pub fn in_parallel<T: Send>(count: usize, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = each(number);
                    done.lock().expect("no holder panics").push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no holder panics");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Connected clients, and how that went.
pub struct Crowd {
    pub clients: Vec<Client>,
    /// Of each client, from its first attempt to its CONNACK.
    pub connects: Latencies,
    /// From the first attempt of all to the last CONNACK.
    pub took: Duration,
    /// How many found their session.
    pub present: usize,
}

impl Crowd {
    /// Connects clients; `plan` says where each goes and with which CONNECT. Each tries until it is let in, which must be in this time.
    ///
    /// # Panics
    /// When one is not let in.
    #[track_caller]
    pub fn gather(
        cluster: &Cluster,
        count: usize,
        patience: Duration,
        plan: impl Fn(usize) -> (usize, Connect) + Sync,
    ) -> Self {
        let began = Instant::now();
        let connected = in_parallel(count, |number| {
            let (node, connect) = plan(number);
            let began = Instant::now();
            let (client, ack) = connect_within(cluster.node(node).address(), &connect, patience);
            (client, ack.session_present, began.elapsed())
        });
        let took = began.elapsed();
        let connects = connected.iter().map(|(_, _, took)| *took).collect();
        let present = connected.iter().filter(|(_, present, _)| *present).count();
        Self { clients: connected.into_iter().map(|(client, _, _)| client).collect(), connects, took, present }
    }

    /// Does something with each client, on several threads; the results in order.
    ///
    /// # Panics
    /// When one of them does.
    pub fn each<T: Send>(&mut self, each: impl Fn(usize, &mut Client) -> T + Sync) -> Vec<T> {
        let clients: Vec<_> = self.clients.iter_mut().map(Mutex::new).collect();
        in_parallel(clients.len(), |number| {
            each(number, &mut clients[number].lock().expect("each number is taken once"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::in_parallel;

    #[test]
    fn each_number_is_done_once_and_in_order() {
        assert_eq!(in_parallel(1_000, |number| number * 2), (0..1_000).map(|number| number * 2).collect::<Vec<_>>());
        assert!(in_parallel(0, |number| number).is_empty());
    }
}
