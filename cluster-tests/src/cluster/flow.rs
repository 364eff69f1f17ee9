//! One publisher and one subscriber, on any two nodes, that number and time everything: what was acknowledged, what came, and when nothing did.
//!
//! Both have threads of their own from [`Flow::start`] to [`Flow::finish`], which returns the [`FlowReport`]. Neither reconnects: a flow is between
//! nodes that must not fail their clients. What a report demands is the default verdict of the field cases.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::ClusterStage;
use super::latency::Latencies;
use crate::client::{Client, Event};
use crate::wire::{Message, Packet, Publish, Version, first};

/// How long the last acknowledgement and the last message may take after the flow is told to finish.
const FINISH: Duration = Duration::from_secs(30);

/// A subscriber with QoS 0 to which nothing came for so long has got what it gets.
const QUIET: Duration = Duration::from_secs(2);

/// What is published.
#[derive(Debug, Clone)]
pub struct FlowPlan {
    pub name: String,
    pub qos: u8,
    /// Most messages in a second; 0: as fast as the window lets it.
    pub per_sec: u32,
    /// Messages without acknowledgement at a time, below 1,000.
    pub window: usize,
    /// Bytes of a payload.
    pub size: usize,
    /// It ends by itself after so many.
    pub count: Option<u64>,
    /// The subscriber's session is kept.
    pub kept: bool,
}

impl FlowPlan {
    /// QoS 1, ten small messages in a second, to a clean session, until told to finish.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), qos: 1, per_sec: 10, window: 100, size: 16, count: None, kept: false }
    }

    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    pub fn per_sec(mut self, per_sec: u32) -> Self {
        self.per_sec = per_sec;
        self
    }

    pub fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }

    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    pub fn count(mut self, count: u64) -> Self {
        self.count = Some(count);
        self
    }

    pub fn kept(mut self) -> Self {
        self.kept = true;
        self
    }
}

/// A message as its publisher saw it.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    pub at: Instant,
    /// PUBACK, or PUBCOMP; with QoS 0 the time of sending.
    pub acked: Option<Instant>,
}

/// A message as its subscriber saw it.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    pub number: u64,
    pub at: Instant,
    pub dup: bool,
}

/// A publisher and its subscribers at work.
pub struct Flow {
    plan: FlowPlan,
    over: Arc<AtomicBool>,
    /// How many messages the subscribers wait for; all there are until it is known.
    wanted: Arc<AtomicU64>,
    publisher: JoinHandle<Vec<Sent>>,
    subscribers: Vec<JoinHandle<Vec<Arrival>>>,
}

impl Flow {
    /// From one node to one or more others.
    #[track_caller]
    pub fn start(on: &ClusterStage<'_>, from: usize, to: &[usize], plan: FlowPlan) -> Self {
        let topic = on.topic(&format!("flow/{}", plan.name));
        let (over, wanted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
        let subscribers = to.iter().enumerate().map(|(index, node)| {
            let hello = on.hello(Version::V5, &format!("{}s{index}", plan.name)).keep_alive(0);
            let hello = if plan.kept { hello.durable(3_600) } else { hello };
            let (mut client, _) = on.connect(*node, &hello);
            assert_eq!(client.subscribe(&topic, plan.qos), plan.qos);
            let (wanted, qos) = (Arc::clone(&wanted), plan.qos);
            std::thread::spawn(move || receive(client, qos, &wanted))
        });
        let subscribers = subscribers.collect();
        let (client, _) = on.connect(from, &on.hello(Version::V5, &format!("{}p", plan.name)).keep_alive(0));
        let sender = Sender {
            client,
            topic,
            plan: plan.clone(),
            over: Arc::clone(&over),
            sent: Vec::new(),
            open: BTreeMap::new(),
        };
        Self { plan, over, wanted, publisher: std::thread::spawn(move || sender.run()), subscribers }
    }

    /// Waits until the publisher has sent and been answered for all that its plan says, and the subscribers got it.
    ///
    /// # Panics
    /// When one of the threads did.
    pub fn join(self) -> FlowReport {
        let sent = joined(self.publisher);
        let must = sent.iter().filter(|sent| sent.acked.is_some()).count();
        self.wanted.store(must as u64, Ordering::Relaxed);
        let got = self.subscribers.into_iter().map(joined).collect();
        FlowReport { plan: self.plan, sent, got }
    }

    /// The same, now.
    pub fn finish(self) -> FlowReport {
        self.over.store(true, Ordering::Relaxed);
        self.join()
    }
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Sender {
    client: Client,
    topic: String,
    plan: FlowPlan,
    over: Arc<AtomicBool>,
    sent: Vec<Sent>,
    /// Packet identifier → number.
    open: BTreeMap<u16, usize>,
}

impl Sender {
    fn run(mut self) -> Vec<Sent> {
        let began = Instant::now();
        let mut deadline = None;
        loop {
            let next = self.plan.count.is_none_or(|count| (self.sent.len() as u64) < count);
            if !next || self.over.load(Ordering::Relaxed) {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + FINISH);
                if self.open.is_empty() || Instant::now() > deadline {
                    return self.sent;
                }
            } else {
                self.send_what_is_due(began);
            }
            self.hear(Duration::from_millis(if self.plan.per_sec == 0 { 1 } else { 3 }));
        }
    }

    fn send_what_is_due(&mut self, began: Instant) {
        let due = match self.plan.per_sec {
            0 => u64::MAX,
            rate => (began.elapsed().as_secs_f64() * f64::from(rate)) as u64,
        };
        let due = due.min(self.plan.count.unwrap_or(u64::MAX)).min(self.sent.len() as u64 + 200);
        let mut bytes = Vec::new();
        while (self.sent.len() as u64) < due && self.open.len() < self.plan.window {
            let number = self.sent.len();
            let mut payload = format!("{number} ").into_bytes();
            payload.resize(payload.len().max(self.plan.size), b'.');
            let packet_id = (number % 60_000) as u16 + 1;
            let at = Instant::now();
            bytes.extend(Publish::new(&self.topic, payload).qos(self.plan.qos, packet_id).bytes(Version::V5));
            self.sent.push(Sent { at, acked: (self.plan.qos == 0).then_some(at) });
            if self.plan.qos > 0 {
                self.open.insert(packet_id, number);
            }
        }
        if !bytes.is_empty() {
            self.client.send(&bytes);
        }
    }

    /// Takes the answers of this time.
    fn hear(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while let Some(event) = self.client.event(deadline) {
            match event {
                Event::Packet(Packet::PubAck { packet_id, reason, .. }) => self.answered(packet_id, reason),
                Event::Packet(Packet::PubComp { packet_id, .. }) => self.answered(packet_id, 0),
                Event::Packet(Packet::PubRec { packet_id, reason, .. }) if reason >= 0x80 => {
                    self.answered(packet_id, reason);
                }
                Event::Packet(Packet::PubRec { packet_id, .. }) => self.client.send_ack(first::PUBREL, packet_id),
                other => panic!("{}: {other:?} to a publisher", self.plan.name),
            }
        }
    }

    fn answered(&mut self, packet_id: u16, reason: u8) {
        let Some(number) = self.open.remove(&packet_id) else {
            panic!("{}: {packet_id} is answered and was not sent", self.plan.name);
        };
        if reason < 0x80 {
            self.sent[number].acked = Some(Instant::now());
        }
    }
}

/// Takes messages until all that are wanted have come, or do not come any more.
fn receive(mut client: Client, qos: u8, wanted: &AtomicU64) -> Vec<Arrival> {
    let (mut got, mut distinct, mut deadline) = (Vec::<Arrival>::new(), BTreeSet::new(), None);
    loop {
        let wanted = wanted.load(Ordering::Relaxed);
        if wanted != u64::MAX {
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + FINISH);
            // What is not acknowledged may be dropped; then the end is when nothing comes any more.
            let quiet = qos == 0 && got.last().is_none_or(|last| last.at.elapsed() > QUIET);
            if distinct.len() as u64 >= wanted || quiet || Instant::now() > deadline {
                return got;
            }
        }
        match client.event(Instant::now() + Duration::from_millis(20)) {
            None => {}
            Some(Event::Packet(Packet::Publish(message))) => {
                let arrival = arrived(&message);
                distinct.insert(arrival.number);
                got.push(arrival);
                match message.qos {
                    0 => {}
                    1 => client.send_ack(first::PUBACK, message.packet_id),
                    _ => client.send_ack(first::PUBREC, message.packet_id),
                }
            }
            Some(Event::Packet(Packet::PubRel { packet_id, .. })) => client.send_ack(first::PUBCOMP, packet_id),
            Some(other) => panic!("{}: {other:?} to a subscriber", client.client_id),
        }
    }
}

fn arrived(message: &Message) -> Arrival {
    let text = message.text();
    let number = text.split(' ').next().and_then(|word| word.parse().ok());
    Arrival { number: number.expect("a payload of a flow"), at: Instant::now(), dup: message.dup }
}

/// All that came of a flow.
#[derive(Debug)]
pub struct FlowReport {
    pub plan: FlowPlan,
    /// By number.
    pub sent: Vec<Sent>,
    /// Of each subscriber.
    pub got: Vec<Vec<Arrival>>,
}

impl FlowReport {
    /// The default verdict: everything was answered, what was acknowledged came, in order, and of QoS 2 once.
    ///
    /// # Panics
    /// When it did not.
    #[track_caller]
    pub fn assert_kept(&self) {
        let faults = self.faults();
        assert!(
            faults.is_empty(),
            "{}: {} faults: {:?}",
            self.plan.name,
            faults.len(),
            &faults[..faults.len().min(20)]
        );
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let unanswered = self.sent.iter().filter(|sent| sent.acked.is_none()).count();
        if unanswered > 0 {
            faults.push(format!("{unanswered} were not answered"));
        }
        for (subscriber, got) in self.got.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for arrival in got {
                let (latest, number) = (seen.last().copied(), arrival.number);
                if !seen.insert(number) {
                    if self.plan.qos == 2 || !arrival.dup {
                        faults.push(format!("{number} came to {subscriber} again"));
                    }
                } else if latest.is_some_and(|latest| latest > number) {
                    faults.push(format!("{number} came to {subscriber} after {latest:?}"));
                }
            }
            let lost = self.sent.iter().enumerate().filter(|(_, sent)| sent.acked.is_some());
            let lost = lost.filter(|(number, _)| self.plan.qos > 0 && !seen.contains(&(*number as u64)));
            faults.extend(lost.map(|(number, _)| format!("{number} did not come to {subscriber}")));
        }
        faults
    }

    /// The longest time for which nothing came to a subscriber after `from` although something was sent: between one arrival and the next.
    pub fn longest_silence(&self, from: Instant) -> Duration {
        let gaps = |got: &Vec<Arrival>| {
            let gaps = got.windows(2).filter(|pair| pair[1].at > from);
            gaps.map(|pair| pair[1].at.duration_since(pair[0].at)).max().unwrap_or_default()
        };
        self.got.iter().map(gaps).max().unwrap_or_default()
    }

    /// What the publisher waited for its acknowledgements, of messages sent after `from`.
    pub fn acknowledgements(&self, from: Instant) -> Latencies {
        let sent = self.sent.iter().filter(|sent| sent.at >= from);
        sent.filter_map(|sent| Some(sent.acked?.duration_since(sent.at))).collect()
    }

    /// What messages took from the publisher to the subscribers, of messages sent after `from`.
    pub fn deliveries(&self, from: Instant) -> Latencies {
        let all = self.got.iter().flatten();
        let sent = all.filter_map(|arrival| Some((arrival, self.sent.get(usize::try_from(arrival.number).ok()?)?)));
        sent.filter(|(_, sent)| sent.at >= from).map(|(arrival, sent)| arrival.at.duration_since(sent.at)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Arrival, FlowPlan, FlowReport, Sent};

    fn report(qos: u8, acked: &[bool], got: &[(u64, bool)]) -> FlowReport {
        let at = Instant::now();
        let sent = acked.iter().map(|acked| Sent { at, acked: acked.then_some(at) }).collect();
        let arrival = |(place, (number, dup)): (usize, &(u64, bool))| Arrival {
            number: *number,
            at: at + Duration::from_secs(place as u64),
            dup: *dup,
        };
        FlowReport { plan: FlowPlan::new("f").qos(qos), sent, got: vec![got.iter().enumerate().map(arrival).collect()] }
    }

    #[test]
    fn what_is_kept_is_no_fault() {
        assert!(report(1, &[true, true], &[(0, false), (1, false), (0, true)]).faults().is_empty());
        assert!(report(0, &[true, true], &[(1, false)]).faults().is_empty());
    }

    #[test]
    fn what_is_lost_doubled_out_of_order_or_unanswered_is() {
        assert_eq!(report(1, &[true, true], &[(1, false)]).faults(), ["0 did not come to 0"]);
        assert_eq!(report(1, &[true], &[(0, false), (0, false)]).faults(), ["0 came to 0 again"]);
        assert_eq!(report(2, &[true], &[(0, false), (0, true)]).faults(), ["0 came to 0 again"]);
        assert_eq!(report(1, &[true, true], &[(1, false), (0, false)]).faults(), ["0 came to 0 after Some(1)"]);
        assert_eq!(report(1, &[true, false], &[(0, false)]).faults(), ["1 were not answered"]);
    }

    #[test]
    fn silence_is_between_two_arrivals() {
        let mut report = report(1, &[true, true, true], &[(0, false), (1, false), (2, false)]);
        report.got[0][2].at += Duration::from_secs(5);
        let from = report.got[0][0].at;
        assert_eq!(report.longest_silence(from), Duration::from_secs(6));
        assert_eq!(report.longest_silence(report.got[0][2].at), Duration::ZERO);
    }
}
