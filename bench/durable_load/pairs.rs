//! Pairs: each publisher has a subscriber of its own, whose session is persistent (or clean). Closed loop: a publisher goes on as long as
//! less than its window is without PUBACK and less than twice the window has not come to the subscriber yet.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use holdfast::mqtt::{Ack, Packet, Properties, ReasonCode};

use crate::measure::{Latencies, Line, Subject};
use crate::net::{Load, Net};
use crate::publisher::{Form, Leaving, Opening, Publisher, payload_head, session, topic};

/// How a run is made.
#[derive(clap::Args)]
pub struct Options {
    /// Publishers, and as many subscribers
    #[arg(long, default_value_t = 100)]
    pub pairs: usize,
    /// Messages of one publisher without PUBACK
    #[arg(long, default_value_t = 100)]
    pub window: u16,
    #[arg(long, default_value_t = 5.0)]
    pub secs: f64,
    #[arg(long, default_value_t = 1.0)]
    pub warmup: f64,
    /// Subscribers with clean sessions
    #[arg(long)]
    pub clean: bool,
    /// The nodes of the publishers, in turn, instead of --addr
    #[arg(long, value_delimiter = ',')]
    pub pub_addr: Vec<SocketAddr>,
    /// The same of the subscribers
    #[arg(long, value_delimiter = ',')]
    pub sub_addr: Vec<SocketAddr>,
}

struct Pairs {
    form: Form,
    publishers: Vec<Publisher>,
    received: Vec<u64>,
    window: u64,
    publishing: bool,
    delivered: u64,
    duplicates: u64,
    puback: Latencies,
    delivery: Latencies,
}

impl Pairs {
    fn pump(&mut self, net: &mut Net, pair: usize) -> Result<()> {
        let publisher = &mut self.publishers[pair];
        while self.publishing && publisher.may_publish() && publisher.published - self.received[pair] < 2 * self.window
        {
            let seq = publisher.published;
            publisher.publish(net, &self.form, pair, seq)?;
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.publishers
            .iter()
            .zip(&self.received)
            .all(|(publisher, received)| publisher.published == publisher.acked && publisher.published == *received)
    }
}

impl Load for Pairs {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()> {
        let pairs = self.publishers.len();
        match packet {
            Packet::PubAck(ack) => {
                let latency = self.publishers[token - pairs].acknowledged(net, ack)?;
                self.puback.add(latency);
                self.pump(net, token - pairs)
            }
            Packet::Publish(publish) => {
                let (seq, sent_ns) = payload_head(publish.payload)?;
                if let Some(packet_id) = publish.packet_id {
                    let ack = Ack { packet_id, reason: ReasonCode::Success, properties: Properties::EMPTY };
                    net.send(token, &Packet::PubAck(ack))?;
                }
                let expected = self.received[token];
                if seq < expected {
                    self.duplicates += 1;
                    return Ok(());
                }
                if seq > expected {
                    bail!("subscriber {token} got {seq} instead of {expected}");
                }
                self.received[token] += 1;
                self.delivered += 1;
                self.delivery.add(net.now_ns() - sent_ns);
                self.pump(net, token)
            }
            other => bail!("unexpected: {other:?}"),
        }
    }
}

pub fn run(net: &mut Net, subject: &Subject, size: usize, options: &Options, patience: Duration) -> Result<()> {
    let pairs = options.pairs;
    let mut opening = Opening::default();
    for pair in 0..pairs {
        let at = |nodes: &[SocketAddr]| if nodes.is_empty() { None } else { Some(nodes[pair % nodes.len()]) };
        opening.add_at(at(&options.sub_addr), pair, session(pair), options.clean, Some(topic(pair)));
        opening.add_at(at(&options.pub_addr), pairs + pair, format!("publisher-{pair}"), true, None);
    }
    opening.run(net, patience)?;
    let mut load = Pairs {
        form: Form::new(size)?,
        publishers: (0..pairs).map(|pair| Publisher::new(pairs + pair, options.window)).collect(),
        received: vec![0; pairs],
        window: u64::from(options.window),
        publishing: true,
        delivered: 0,
        duplicates: 0,
        puback: Latencies::new(),
        delivery: Latencies::new(),
    };
    for pair in 0..pairs {
        load.pump(net, pair)?;
    }
    turns(net, &mut load, options.warmup, patience)?;
    load.puback.clear();
    load.delivery.clear();
    let (start, before) = (subject.sample(), load.delivered);
    turns(net, &mut load, options.secs, patience)?;
    let mut result = Line::new("pairs");
    start.until(&subject.sample(), load.delivered - before, &mut result);
    load.puback.report("puback", &mut result);
    load.delivery.report("delivery", &mut result);
    load.publishing = false;
    while !load.settled() {
        if !net.turn(&mut load, patience)? {
            let (sent, got): (u64, u64) =
                (load.publishers.iter().map(|publisher| publisher.published).sum(), load.received.iter().sum());
            bail!("of {sent} messages {got} came");
        }
    }
    result.number("duplicates", load.duplicates as f64);
    Leaving::run(net, 0..2 * pairs, patience)?;
    result.print();
    Ok(())
}

/// Turns for so many seconds.
fn turns(net: &mut Net, load: &mut Pairs, secs: f64, patience: Duration) -> Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(secs);
    let mut heard = Instant::now();
    while Instant::now() < end {
        if net.turn(load, Duration::from_millis(10))? {
            heard = Instant::now();
        } else if heard.elapsed() > patience {
            bail!("nothing came for {patience:?}");
        }
    }
    Ok(())
}
