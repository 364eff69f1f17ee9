//! The cluster of the tests: nodes, a network in memory, and an audience that writes everything down.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::batcher::Ticket;
use crate::clock::boot_ms;
use crate::command::{Command, Effect, Incarnation, NodeId, Outcome};
use crate::group::{Fitness, Group, Options, StartError};
use crate::network::Network;
use crate::seat::{AppliedEntry, Audience};
use crate::state::ControlState;
use crate::wire::Lane;

/// Every wait ends after that, in failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// A task that comes so late, in milliseconds, is on a machine that is too busy for leases as short as these.
const BUSY_MS: u64 = 50;

/// Notes by how much it came too late, as long as the scene lasts.
async fn note_lateness(late_ms: Weak<AtomicU64>) {
    while let Some(late_ms) = late_ms.upgrade() {
        let due = Instant::now() + Duration::from_millis(10);
        tokio::time::sleep_until(due).await;
        late_ms.fetch_max(due.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}

/// Waits until `holds`.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = deadline();
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

type Parcel = (NodeId, Lane, Bytes, Instant);

/// Queues between all nodes.
#[derive(Default)]
pub struct Net {
    inboxes: Mutex<HashMap<NodeId, mpsc::UnboundedSender<Parcel>>>,
    cut: Mutex<HashSet<(NodeId, NodeId)>>,
    /// What is sent to them is lost, and nobody sees it.
    pub deaf: Mutex<HashSet<NodeId>>,
    delay_ms: AtomicU64,
    pub bytes: AtomicU64,
}

impl Net {
    fn is_linked(&self, a: NodeId, b: NodeId) -> bool {
        let inboxes = self.inboxes.lock();
        let cut = self.cut.lock();
        a != b
            && inboxes.contains_key(&a)
            && inboxes.contains_key(&b)
            && !cut.contains(&(a, b))
            && !cut.contains(&(b, a))
    }

    pub fn delay(&self, delay: Duration) {
        self.delay_ms.store(delay.as_millis() as u64, Ordering::Relaxed);
    }
}

struct Port {
    net: Arc<Net>,
    me: NodeId,
}

impl Network for Port {
    fn send(&self, to: NodeId, lane: Lane, message: Bytes) -> bool {
        if !self.net.is_linked(self.me, to) {
            return false;
        }
        self.net.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
        let at = Instant::now() + Duration::from_millis(self.net.delay_ms.load(Ordering::Relaxed));
        self.net.inboxes.lock().get(&to).is_some_and(|inbox| inbox.send((self.me, lane, message, at)).is_ok())
    }

    fn linked(&self) -> Vec<NodeId> {
        let others: Vec<NodeId> = self.net.inboxes.lock().keys().copied().collect();
        others.into_iter().filter(|other| self.net.is_linked(self.me, *other)).collect()
    }
}

/// What one node was told.
#[derive(Default)]
pub struct Diary {
    pub outcomes: Mutex<Vec<(Ticket, Outcome)>>,
    pub effects: Mutex<Vec<Effect>>,
    /// Indexes of the entries, in order.
    pub indexes: Mutex<Vec<u64>>,
    /// With the time at which it was said.
    pub grants: Mutex<Vec<(u64, Option<u64>)>>,
    pub installed: AtomicU64,
    pub heard: Mutex<Vec<(NodeId, u64)>>,
}

impl Audience for Diary {
    fn applied(&self, entry: AppliedEntry) {
        self.indexes.lock().push(entry.index);
        self.effects.lock().extend(entry.effects);
        self.outcomes.lock().extend(entry.own);
    }

    fn installed(&self, _: &ControlState, effects: Vec<Effect>) {
        self.effects.lock().extend(effects);
        self.installed.fetch_add(1, Ordering::SeqCst);
    }

    fn granted(&self, until: Option<u64>) {
        self.grants.lock().push((boot_ms(), until));
    }

    fn applied_by(&self, node: NodeId, index: u64) {
        self.heard.lock().push((node, index));
    }
}

impl Diary {
    /// Whether the node may serve now.
    pub fn is_granted(&self) -> bool {
        self.grants.lock().last().is_some_and(|(_, until)| until.is_some_and(|until| until > boot_ms()))
    }

    pub fn is_ended(&self) -> bool {
        self.grants.lock().last().is_some_and(|(_, until)| until.is_none())
    }

    /// The end of the last time that it might serve.
    pub fn last_granted(&self) -> u64 {
        self.grants.lock().iter().filter_map(|(_, until)| *until).max().unwrap_or(0)
    }

    pub fn outcome(&self, ticket: Ticket) -> Option<Outcome> {
        self.outcomes.lock().iter().find(|(other, _)| *other == ticket).map(|(_, outcome)| *outcome)
    }
}

/// One running node.
#[derive(Clone)]
pub struct TestNode {
    pub id: NodeId,
    pub group: Group,
    pub diary: Arc<Diary>,
    pub complaints: Arc<Mutex<Vec<(NodeId, Incarnation)>>>,
    pub is_fit: Arc<AtomicBool>,
    /// The longest time by which a task of the scene came too late.
    late_ms: Arc<AtomicU64>,
}

impl TestNode {
    pub async fn register(&self) -> Incarnation {
        self.group.register(deadline()).await.expect("is registered")
    }

    /// Proposes one command and waits for its outcome. If the incarnation ends instead, because the machine was too busy for the node to renew it in time, that is said, and the node
    /// registers and proposes anew.
    pub async fn ask(&self, ticket: Ticket, command: Command) -> Outcome {
        let until = deadline();
        loop {
            if let Some(outcome) = self.try_to_ask(ticket, command.clone(), until).await {
                return outcome;
            }
            let slow = self.late_ms.load(Ordering::Relaxed);
            assert!(slow > BUSY_MS, "an incarnation ended on a machine that was late by {slow} ms: {}", self.account());
            self.register().await;
        }
    }

    /// `None`: the incarnation is over, and whoever proposes or has proposed knows it.
    async fn try_to_ask(&self, ticket: Ticket, command: Command, until: Instant) -> Option<Outcome> {
        let refused = self.group.propose([(ticket, command)]);
        if !refused.is_empty() {
            assert!(!self.group.is_registered(), "not taken at {}: {}", self.id.0, self.account());
            return None;
        }
        while self.diary.outcome(ticket).is_none() && self.group.is_registered() {
            assert!(Instant::now() < until, "no outcome of {ticket} at {}: {}", self.id.0, self.account());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.diary.outcome(ticket)
    }

    /// How the node stands, for a failure.
    fn account(&self) -> String {
        let grants = self.diary.grants.lock();
        let last = &grants[grants.len().saturating_sub(5)..];
        format!("now {}, grants {last:?}, {:?}", boot_ms(), self.group.status())
    }

    pub fn digest(&self) -> u64 {
        self.group.read(ControlState::digest)
    }

    pub fn applied(&self) -> Option<u64> {
        self.group.status().applied
    }
}

/// Nodes over one network.
#[derive(Default)]
pub struct Scene {
    pub net: Arc<Net>,
    pub nodes: HashMap<u128, TestNode>,
    runs: u64,
    late_ms: Arc<AtomicU64>,
}

/// Short times, so that tests are.
pub fn options(id: u128, name: &str, run: u64) -> Options {
    Options {
        lease_ms: 1600,
        renew_ms: 160,
        margin_ms: 160,
        fence_grace_ms: 1500,
        election_ms: (200, 400),
        ..Options::new(NodeId(id), name, run)
    }
}

impl Scene {
    /// Nodes 1 to `count`, in memory, registered.
    pub async fn of(count: u128) -> Scene {
        let mut scene = Scene::default();
        for id in 1..=count {
            scene.start(id, None).await;
        }
        tokio::spawn(note_lateness(Arc::downgrade(&scene.late_ms)));
        scene.register_all().await;
        scene
    }

    pub async fn register_all(&self) {
        for node in self.nodes.values() {
            node.register().await;
        }
    }

    /// Starts node `id` under the name that goes with it.
    pub async fn start(&mut self, id: u128, dir: Option<PathBuf>) -> TestNode {
        self.runs += 1;
        let options = Options { dir, ..options(id, &format!("n{id}"), self.runs) };
        self.start_with(options).await.expect("starts")
    }

    pub async fn start_with(&mut self, options: Options) -> Result<TestNode, StartError> {
        let id = options.node;
        let (inbox, mut parcels) = mpsc::unbounded_channel::<Parcel>();
        let diary = Arc::new(Diary::default());
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let is_fit = Arc::new(AtomicBool::new(true));
        let port = Arc::new(Port { net: self.net.clone(), me: id });
        let (named, fit) = (complaints.clone(), is_fit.clone());
        let group = Group::start(
            options,
            port,
            diary.clone(),
            Arc::new(move || named.lock().clone()),
            Arc::new(move || if fit.load(Ordering::SeqCst) { Fitness::Fit } else { Fitness::Unfit }),
        )
        .await?;
        self.net.inboxes.lock().insert(id, inbox);
        let receiver = group.clone();
        let net = self.net.clone();
        tokio::spawn(async move {
            while let Some((from, lane, message, at)) = parcels.recv().await {
                if at > Instant::now() {
                    tokio::time::sleep_until(at).await;
                }
                if net.is_linked(from, id) && !net.deaf.lock().contains(&id) {
                    receiver.receive(from, lane, message);
                }
            }
        });
        let node = TestNode { id, group, diary, complaints, is_fit, late_ms: self.late_ms.clone() };
        self.nodes.insert(id.0, node.clone());
        self.tell_links(id, true);
        Ok(node)
    }

    /// Takes a node from the network in the middle of everything, and its memory with it.
    pub async fn kill(&mut self, id: u128) {
        self.net.inboxes.lock().remove(&NodeId(id));
        self.tell_links(NodeId(id), false);
        if let Some(node) = self.nodes.remove(&id) {
            node.group.stop().await;
        }
    }

    /// Cuts or mends the link between two nodes.
    pub fn link(&self, a: u128, b: u128, up: bool) {
        let (a, b) = (NodeId(a), NodeId(b));
        if up {
            self.net.cut.lock().remove(&(a, b));
            self.net.cut.lock().remove(&(b, a));
        } else {
            self.net.cut.lock().insert((a, b));
        }
        for (from, to) in [(a, b), (b, a)] {
            if let Some(node) = self.nodes.get(&from.0) {
                node.group.link_changed(to, up);
            }
        }
    }

    /// Cuts or mends all links of a node.
    pub fn isolate(&self, id: u128, cut: bool) {
        let others: Vec<u128> = self.nodes.keys().copied().filter(|other| *other != id).collect();
        others.into_iter().for_each(|other| self.link(id, other, !cut));
    }

    fn tell_links(&self, id: NodeId, up: bool) {
        for node in self.nodes.values().filter(|node| node.id != id) {
            node.group.link_changed(id, up);
        }
    }

    /// The node that leads, when all of `of` agree.
    pub async fn leader(&self, of: &[u128]) -> u128 {
        let mut leader = None;
        until("a leader that all agree on", || {
            let all: HashSet<_> = of.iter().map(|id| self.nodes[id].group.status().leader).collect();
            leader = all.iter().next().copied().flatten().filter(|_| all.len() == 1);
            leader.is_some_and(|leader| of.contains(&leader.0))
        })
        .await;
        leader.expect("is there").0
    }

    /// Waits until the states of all nodes are the same.
    pub async fn settle(&self) {
        let deadline = deadline();
        loop {
            let states = self.nodes.values().map(|node| (node.applied(), node.digest()));
            if states.collect::<HashSet<_>>().len() == 1 {
                return;
            }
            if Instant::now() > deadline {
                let all: Vec<_> = self.nodes.values().map(|node| (node.group.status(), node.digest())).collect();
                panic!("the states stay apart: {all:#?}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub fn acquire(client: &str) -> Command {
    Command::Acquire { client: client.into(), clean: false, expiry_secs: 3600, will: None }
}

pub fn detach(client: &str, epoch: u64) -> Command {
    Command::Detach { client: client.into(), epoch, will: crate::command::WillFate::Drop, expiry_secs: 3600 }
}
