//! Queues of sessions that are away: made, filled, met again at a start, drained.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use holdfast::mqtt::{Ack, Packet, Properties, ReasonCode};

use crate::measure::{Latencies, Line, Subject};
use crate::net::{Load, Net};
use crate::publisher::{Form, Leaving, Opening, Publisher, payload_head, session, topic};

/// The sessions of a run, the same in all its phases.
#[derive(clap::Args)]
pub struct Sessions {
    #[arg(long, default_value_t = 1000)]
    pub sessions: usize,
    /// Messages for each
    #[arg(long, default_value_t = 1000)]
    pub messages: u64,
}

/// How the queues are filled.
#[derive(clap::Args)]
pub struct Filling {
    #[command(flatten)]
    pub sessions: Sessions,
    #[arg(long, default_value_t = 100)]
    pub publishers: usize,
    /// Messages of one publisher without PUBACK
    #[arg(long, default_value_t = 100)]
    pub window: u16,
    /// Stop after so many seconds, whatever is filled by then
    #[arg(long)]
    pub secs: Option<f64>,
}

/// How they are emptied.
#[derive(clap::Args)]
pub struct Draining {
    #[command(flatten)]
    pub sessions: Sessions,
    /// Stop after so many seconds, whatever has come by then
    #[arg(long)]
    pub secs: Option<f64>,
}

/// Makes the persistent sessions, subscribes them, and leaves.
pub fn prepare(net: &mut Net, subject: &Subject, sessions: usize, patience: Duration) -> Result<()> {
    let mut opening = Opening::default();
    for number in 0..sessions {
        opening.add(number, session(number), false, Some(topic(number)));
    }
    let start = subject.sample();
    opening.run(net, patience)?;
    Leaving::run(net, 0..sessions, patience)?;
    let mut result = Line::new("prepare");
    start.until(&subject.sample(), sessions as u64, &mut result);
    result.print();
    Ok(())
}

struct Fill {
    form: Form,
    publishers: Vec<Publisher>,
    sessions: u64,
    total: u64,
    acked: u64,
    puback: Latencies,
}

impl Fill {
    /// Publisher k of n serves the sessions k, k + n, k + 2n, … by turns.
    fn pump(&mut self, net: &mut Net, index: usize) -> Result<()> {
        let count = self.publishers.len() as u64;
        let own_sessions = (self.sessions - index as u64).div_ceil(count);
        let publisher = &mut self.publishers[index];
        while publisher.may_publish() && publisher.published < own_sessions * (self.total / self.sessions) {
            let (round, turn) = (publisher.published / own_sessions, publisher.published % own_sessions);
            let session = index as u64 + turn * count;
            publisher.publish(net, &self.form, session as usize, round)?;
        }
        Ok(())
    }
}

impl Load for Fill {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()> {
        let Packet::PubAck(ack) = packet else { bail!("unexpected: {packet:?}") };
        let latency = self.publishers[token].acknowledged(net, ack)?;
        self.puback.add(latency);
        self.acked += 1;
        self.pump(net, token)
    }
}

/// Publishes to every session, QoS 1, as fast as PUBACKs come.
pub fn fill(net: &mut Net, subject: &Subject, size: usize, options: &Filling, patience: Duration) -> Result<()> {
    let sessions = options.sessions.sessions;
    let publishers = options.publishers.min(sessions);
    let mut opening = Opening::default();
    for number in 0..publishers {
        opening.add(number, format!("publisher-{number}"), true, None);
    }
    opening.run(net, patience)?;
    let mut load = Fill {
        form: Form::new(size)?,
        publishers: (0..publishers).map(|token| Publisher::new(token, options.window)).collect(),
        sessions: sessions as u64,
        total: sessions as u64 * options.sessions.messages,
        acked: 0,
        puback: Latencies::new(),
    };
    let (start, end) = (subject.sample(), options.secs.map(|secs| Instant::now() + Duration::from_secs_f64(secs)));
    for index in 0..publishers {
        load.pump(net, index)?;
    }
    while load.acked < load.total && end.is_none_or(|end| Instant::now() < end) {
        if !net.turn(&mut load, patience)? {
            bail!("{} of {} messages are acknowledged, no more PUBACK comes", load.acked, load.total);
        }
    }
    let mut result = Line::new("fill");
    start.until(&subject.sample(), load.acked, &mut result);
    load.puback.report("puback", &mut result);
    result.print();
    Ok(())
}

struct First {
    there: Option<bool>,
}

impl Load for First {
    fn packet(&mut self, _net: &mut Net, _token: usize, packet: &Packet<'_>) -> Result<()> {
        if let Packet::ConnAck(ack) = packet {
            if ack.reason != ReasonCode::Success {
                bail!("refused: {:?}", ack.reason);
            }
            self.there = Some(ack.session_present);
        }
        Ok(())
    }
}

/// Connects one of the sessions as soon as the broker lets it, and says when (Unix time) its CONNACK came.
pub fn first(net: &mut Net, subject: &Subject, number: usize, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while let Err(error) = net.open(0, &session(number), false) {
        if Instant::now() > deadline {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut load = First { there: None };
    while load.there.is_none() {
        if !net.turn(&mut load, patience)? {
            bail!("no CONNACK");
        }
    }
    let at = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs_f64();
    if load.there != Some(true) {
        bail!("the session is not there");
    }
    let mut result = Line::new("first");
    result.number("connack_at", at);
    result.memory(&subject.sample());
    result.print();
    // What was on its way to this connection comes again to the next one.
    Ok(())
}

struct Drain {
    sessions: usize,
    opened: usize,
    messages: u64,
    received: Vec<u64>,
    done: usize,
    duplicates: u64,
}

impl Drain {
    fn open_next(&mut self, net: &mut Net) -> Result<()> {
        if self.opened < self.sessions {
            net.open(self.opened, &session(self.opened), false)?;
            self.opened += 1;
        }
        Ok(())
    }

    fn publish(&mut self, token: usize, seq: u64) -> Result<()> {
        let expected = self.received[token];
        if seq > expected {
            bail!("session {token} got message {seq} instead of {expected}");
        }
        if seq < expected {
            self.duplicates += 1;
            return Ok(());
        }
        self.received[token] += 1;
        if self.received[token] == self.messages {
            self.done += 1;
        }
        Ok(())
    }
}

impl Load for Drain {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()> {
        match packet {
            Packet::ConnAck(ack) if ack.session_present => self.open_next(net),
            Packet::Publish(publish) => {
                let (seq, _) = payload_head(publish.payload)?;
                if let Some(packet_id) = publish.packet_id {
                    let ack = Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY };
                    net.send(token, &Packet::PubAck(ack))?;
                }
                self.publish(token, seq)
            }
            other => bail!("unexpected: {other:?}"),
        }
    }
}

/// Connects all sessions, a hundred at a time, and takes everything, in order and complete, or what comes in the time given.
pub fn drain(net: &mut Net, subject: &Subject, options: &Draining, patience: Duration) -> Result<()> {
    let sessions = options.sessions.sessions;
    let end = options.secs.map(|secs| Instant::now() + Duration::from_secs_f64(secs));
    let mut load = Drain {
        sessions,
        opened: 0,
        messages: options.sessions.messages,
        received: vec![0; sessions],
        done: 0,
        duplicates: 0,
    };
    let start = subject.sample();
    let (mut peak, mut sampled) = (start.rss_bytes, Instant::now());
    for _ in 0..100 {
        load.open_next(net)?;
    }
    while load.done < sessions && end.is_none_or(|end| Instant::now() < end) {
        if !net.turn(&mut load, patience)? {
            let got: u64 = load.received.iter().sum();
            bail!("{got} of {} messages came, and no more", sessions as u64 * options.sessions.messages);
        }
        if sampled.elapsed() > Duration::from_millis(200) {
            sampled = Instant::now();
            peak = peak.max(subject.sample().rss_bytes);
        }
    }
    let mut result = Line::new("drain");
    start.until(&subject.sample(), load.received.iter().sum(), &mut result);
    result.number("complete", f64::from(u8::from(load.done == sessions)));
    result.number("duplicates", load.duplicates as f64);
    result.number("peak_rss_bytes", peak.unwrap_or(0) as f64);
    result.print();
    Ok(())
}
