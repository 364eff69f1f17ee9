//! Steady churn: messages go through queues whose length, all together, stays the same. A session is away until its queue holds twice its
//! share of the backlog; then it comes, takes everything and leaves again. At the start each is at another point of that round. Some
//! sessions may be left to keep what they hold from the beginning, so that old messages stand among new ones.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use holdfast::mqtt::{Ack, Packet, Properties, ReasonCode};

use crate::measure::{Latencies, Line, Sample, Subject};
use crate::net::{Load, Net};
use crate::publisher::{Form, Leaving, Opening, Publisher, payload_head, session, topic};

#[derive(clap::Args)]
pub struct Options {
    /// Sessions that come and go
    #[arg(long, default_value_t = 100)]
    pub sessions: usize,
    /// Messages in their queues, all together, on average
    #[arg(long, default_value_t = 20_000)]
    pub backlog: u64,
    /// As many sessions again that take nothing; each holds its share of so many messages for ever
    #[arg(long, default_value_t = 0)]
    pub pinned: u64,
    /// Messages that go through
    #[arg(long, default_value_t = 2_000_000)]
    pub messages: u64,
    #[arg(long, default_value_t = 100)]
    pub publishers: usize,
    #[arg(long, default_value_t = 100)]
    pub window: u16,
    /// Seconds after which to stop
    #[arg(long, default_value_t = 600.0)]
    pub secs: f64,
}

#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Away,
    Here,
    Leaving,
}

struct Queue {
    published: u64,
    /// The session comes back when this much is published.
    comes_at: u64,
    received: u64,
    presence: Presence,
}

struct Churn {
    form: Form,
    publishers: Vec<Publisher>,
    queues: Vec<Queue>,
    /// Of one session, at its longest.
    length: u64,
    turn: Vec<usize>,
    acked: u64,
    delivered: u64,
    duplicates: u64,
    connects: u64,
    ending: bool,
    puback: Latencies,
}

impl Churn {
    /// Publisher k of n serves the sessions k, k + n, … by turns; none whose queue is full already.
    fn pump(&mut self, net: &mut Net, index: usize) -> Result<()> {
        let count = self.publishers.len();
        let mut full = 0;
        while !self.ending && self.publishers[index].may_publish() && index + full * count < self.queues.len() {
            let number = self.turn[index];
            self.turn[index] = if number + count < self.queues.len() { number + count } else { index };
            let queue = &mut self.queues[number];
            if queue.published - queue.received >= self.length + self.length / 2 {
                full += 1;
                continue;
            }
            full = 0;
            let seq = queue.published;
            queue.published += 1;
            self.publishers[index].publish(net, &self.form, number, seq)?;
            self.meet(net, number)?;
        }
        Ok(())
    }

    fn meet(&mut self, net: &mut Net, number: usize) -> Result<()> {
        let queue = &mut self.queues[number];
        if queue.presence == Presence::Away && (queue.published >= queue.comes_at || self.ending) {
            queue.presence = Presence::Here;
            self.connects += 1;
            net.open(number, &session(number), false)?;
        }
        Ok(())
    }

    fn received(&mut self, net: &mut Net, number: usize, seq: u64) -> Result<()> {
        let queue = &mut self.queues[number];
        if seq > queue.received {
            bail!("session {number} got message {seq} instead of {}", queue.received);
        }
        if seq < queue.received {
            self.duplicates += 1;
            return Ok(());
        }
        queue.received += 1;
        self.delivered += 1;
        // What came before the connect was the backlog; the few that are published meanwhile may wait for the next time.
        let emptied = queue.received >= queue.comes_at && !self.ending;
        if emptied || queue.received == queue.published {
            queue.presence = Presence::Leaving;
            queue.comes_at = queue.received + self.length;
            net.disconnect(number)?;
        }
        let publisher = number % self.publishers.len();
        self.pump(net, publisher)
    }

    fn settled(&self) -> bool {
        let queues = self.queues.iter().all(|queue| queue.received == queue.published);
        queues && self.publishers.iter().all(|publisher| publisher.published == publisher.acked)
    }
}

impl Load for Churn {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()> {
        match packet {
            Packet::PubAck(ack) => {
                let index = token - self.queues.len();
                let latency = self.publishers[index].acknowledged(net, ack)?;
                self.puback.add(latency);
                self.acked += 1;
                self.pump(net, index)
            }
            Packet::ConnAck(ack) if ack.session_present => Ok(()),
            Packet::Publish(_) if self.queues[token].presence == Presence::Leaving => Ok(()),
            Packet::Publish(publish) => {
                let (seq, _) = payload_head(publish.payload)?;
                if let Some(packet_id) = publish.packet_id {
                    let ack = Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY };
                    net.send(token, &Packet::PubAck(ack))?;
                }
                self.received(net, token, seq)
            }
            other => bail!("unexpected: {other:?}"),
        }
    }

    fn closed(&mut self, net: &mut Net, token: usize) -> Result<()> {
        self.queues[token].presence = Presence::Away;
        if self.ending && self.queues[token].received == self.queues[token].published {
            return Ok(());
        }
        self.meet(net, token)
    }
}

/// What a run holds at each second, from which growth is told.
#[derive(Default)]
struct Course {
    rss: Vec<(f64, f64)>,
    disk: Vec<(f64, f64)>,
}

impl Course {
    fn add(&mut self, done: f64, sample: &Sample) {
        self.rss.extend(sample.rss_bytes.map(|bytes| (done, bytes as f64)));
        self.disk.extend(sample.disk_bytes.map(|bytes| (done, bytes as f64)));
    }

    /// Peak, and the mean of the last quarter over the mean of the second one: 1 when nothing grows.
    fn report(&self, result: &mut Line) {
        for (name, points) in [("rss", &self.rss), ("disk", &self.disk)] {
            let mean = |from: f64, to: f64| {
                let part: Vec<f64> =
                    points.iter().filter(|(done, _)| (from..=to).contains(done)).map(|(_, bytes)| *bytes).collect();
                part.iter().sum::<f64>() / part.len() as f64
            };
            result.number(&format!("{name}_peak_bytes"), points.iter().map(|(_, bytes)| *bytes).fold(0.0, f64::max));
            result.number(&format!("{name}_growth"), mean(0.75, 1.0) / mean(0.25, 0.5));
        }
    }
}

fn prepare(net: &mut Net, options: &Options, patience: Duration) -> Result<()> {
    let keepers = if options.pinned > 0 { options.sessions } else { 0 };
    let mut opening = Opening::default();
    for number in 0..options.sessions + keepers {
        opening.add(number, session(number), false, Some(topic(number)));
    }
    opening.run(net, patience)?;
    Leaving::run(net, 0..options.sessions + keepers, patience)?;
    let mut opening = Opening::default();
    for index in 0..options.publishers.min(options.sessions) {
        opening.add(options.sessions + index, format!("publisher-{index}"), true, None);
    }
    opening.run(net, patience)
}

/// Puts the messages that stay into their sessions, a hundred between two of which PUBACK is waited for.
fn pin(net: &mut Net, load: &mut Churn, options: &Options, patience: Duration) -> Result<()> {
    for number in 0..options.pinned {
        let topic = options.sessions + (number % options.sessions as u64) as usize;
        let publisher = &mut load.publishers[number as usize % options.publishers.min(options.sessions)];
        publisher.publish(net, &load.form, topic, number / options.sessions as u64)?;
        let full = !publisher.may_publish();
        while (full || number + 1 == options.pinned) && load.publishers.iter().any(|one| one.published > one.acked) {
            load.ending = true;
            if !net.turn(load, patience)? {
                bail!("no PUBACK");
            }
        }
    }
    load.ending = false;
    Ok(())
}

fn new_load(size: usize, options: &Options) -> Result<Churn> {
    let count = options.publishers.min(options.sessions);
    let length = 2 * options.backlog / options.sessions as u64;
    let queue = |number: usize| Queue {
        published: 0,
        comes_at: 1 + length * (number as u64 + 1) / options.sessions as u64,
        received: 0,
        presence: Presence::Away,
    };
    Ok(Churn {
        form: Form::new(size)?,
        publishers: (0..count).map(|index| Publisher::new(options.sessions + index, options.window)).collect(),
        queues: (0..options.sessions).map(queue).collect(),
        length,
        turn: (0..count).collect(),
        acked: 0,
        delivered: 0,
        duplicates: 0,
        connects: 0,
        ending: false,
        puback: Latencies::new(),
    })
}

pub fn run(net: &mut Net, subject: &Subject, size: usize, options: &Options, patience: Duration) -> Result<()> {
    prepare(net, options, patience)?;
    let mut load = new_load(size, options)?;
    pin(net, &mut load, options, patience)?;
    let (start, mut course, acked) = (subject.sample(), Course::default(), load.acked);
    let (began, mut sampled) = (Instant::now(), Instant::now());
    for index in 0..load.publishers.len() {
        load.pump(net, index)?;
    }
    let end = began + Duration::from_secs_f64(options.secs);
    while load.delivered < options.messages && Instant::now() < end {
        if !net.turn(&mut load, patience)? {
            bail!("{} messages are acknowledged, {} came, and no more", load.acked - acked, load.delivered);
        }
        if sampled.elapsed() > Duration::from_millis(250) {
            sampled = Instant::now();
            let done = load.delivered as f64 / options.messages as f64;
            course.add(done.max(began.elapsed().as_secs_f64() / options.secs), &subject.sample());
        }
    }
    let mut result = Line::new("churn");
    let backlog: u64 = load.queues.iter().map(|queue| queue.published - queue.received).sum();
    start.until(&subject.sample(), load.delivered, &mut result);
    course.report(&mut result);
    load.puback.report("puback", &mut result);
    result.number("backlog", backlog as f64);
    result.number("connects", load.connects as f64);
    finish(net, &mut load, patience)?;
    result.number("duplicates", load.duplicates as f64);
    result.print();
    Ok(())
}

/// Takes all that is still queued, so that a loss shows.
fn finish(net: &mut Net, load: &mut Churn, patience: Duration) -> Result<()> {
    load.ending = true;
    for number in 0..load.queues.len() {
        if load.queues[number].received < load.queues[number].published {
            load.meet(net, number)?;
        }
    }
    while !load.settled() {
        if !net.turn(load, patience)? {
            bail!("what is left in the queues does not come");
        }
    }
    Ok(())
}
