//! The lives of clients, for `bench/cluster`: each connects, subscribes perhaps, disconnects, and its session ends. One thread, the broker's own
//! codec; prints one line of JSON with what a life cost all nodes together and how long the answers took.
//!
//! A life with `--persistent` has two connections: one that makes the session and leaves it behind, and one with Clean Session that ends it, which every
//! version of the protocol and every broker knows. What is measured is from the first CONNECT of the first life to the moment when the server has
//! closed the last connection, and a moment longer, in which it clears away.
//!
//! A refusal is counted and told in the result; anything else that goes wrong ends the program.

#[path = "../durable_load/measure.rs"]
#[allow(dead_code)]
mod measure;
#[path = "../durable_load/net.rs"]
#[allow(dead_code)]
mod net;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use holdfast::mqtt::{Connect, Packet, Properties, QoS, ReasonCode, Will};

use measure::{Latencies, Line};
use net::{Load, Net};

/// Lives of clients against one node or several.
#[derive(Parser)]
struct Arguments {
    /// Addresses of the nodes; lives are spread over them in turn
    #[arg(long, value_delimiter = ',', default_value = "127.0.0.1:1883")]
    addr: Vec<SocketAddr>,
    /// Processes of the nodes, whose CPU is read
    #[arg(long, value_delimiter = ',')]
    broker_pid: Vec<u32>,
    /// Lives
    #[arg(short = 'n', long, default_value_t = 5_000)]
    lives: usize,
    /// Lives at a time
    #[arg(short = 'C', long, default_value_t = 100)]
    concurrency: usize,
    /// Lives that begin per second; as fast as the concurrency allows if absent
    #[arg(long)]
    rate: Option<f64>,
    /// The session outlives its first connection
    #[arg(long)]
    persistent: bool,
    #[arg(long)]
    will: bool,
    /// Each client subscribes to a topic of its own
    #[arg(long)]
    subscribe: bool,
    /// The second connection of a life goes to the next node
    #[arg(long)]
    elsewhere: bool,
    /// Milliseconds between the last end of a connection and the reading of the CPU
    #[arg(long, default_value_t = 300)]
    settle_ms: u64,
    /// Seconds without anything from the brokers after which the run has failed
    #[arg(long, default_value_t = 20.0)]
    patience: f64,
}

/// Where a connection is.
#[derive(Clone, Copy, Default)]
struct Life {
    /// The connection that ends the session.
    second: bool,
    asked_at_ns: u64,
}

struct Lives {
    arguments: Arguments,
    prefix: String,
    lives: Vec<Life>,
    begun: usize,
    ended: usize,
    refused: u64,
    connack: Latencies,
    suback: Latencies,
}

impl Lives {
    fn open(&mut self, net: &mut Net, life: usize) -> Result<()> {
        let (client_id, arguments) = (format!("{}-{life}", self.prefix), &self.arguments);
        let Life { second, .. } = self.lives[life];
        let topic = format!("{}/will/{life}", self.prefix);
        let will = Will {
            qos: QoS::AtMostOnce,
            retain: false,
            properties: Properties::EMPTY,
            topic: &topic,
            payload: b"gone",
        };
        let connect = Connect {
            clean_start: !arguments.persistent || second,
            will: (arguments.will && !second).then_some(will),
            ..net::connect(&client_id, true)
        };
        let node = life + usize::from(second && arguments.elsewhere);
        net.open_at(arguments.addr[node % arguments.addr.len()], life, &connect)?;
        self.lives[life].asked_at_ns = net.now_ns();
        Ok(())
    }

    /// Begins lives as far as rate and concurrency allow; how long until the next one is due.
    fn begin(&mut self, net: &mut Net, start: Instant) -> Result<Duration> {
        while self.begun < self.lives.len() && self.begun - self.ended < self.arguments.concurrency {
            if let Some(rate) = self.arguments.rate {
                let due = Duration::from_secs_f64(self.begun as f64 / rate);
                let early = due.saturating_sub(start.elapsed());
                if !early.is_zero() {
                    return Ok(early.max(Duration::from_millis(1)));
                }
            }
            self.begun += 1;
            self.open(net, self.begun - 1)?;
        }
        Ok(Duration::from_millis(100))
    }

    fn done(&self) -> bool {
        self.ended == self.lives.len()
    }
}

impl Load for Lives {
    fn packet(&mut self, net: &mut Net, life: usize, packet: &Packet<'_>) -> Result<()> {
        let waited = net.now_ns().saturating_sub(self.lives[life].asked_at_ns);
        match packet {
            Packet::ConnAck(ack) if ack.reason == ReasonCode::Success => {
                self.connack.add(waited);
                if self.arguments.subscribe && !self.lives[life].second {
                    self.lives[life].asked_at_ns = net.now_ns();
                    return net.subscribe(life, &format!("{}/own/{life}", self.prefix));
                }
            }
            Packet::SubAck(ack) if ack.codes.iter().all(|code| *code < 0x80) => self.suback.add(waited),
            Packet::ConnAck(_) | Packet::SubAck(_) => self.refused += 1,
            _ => bail!("a packet that nobody asked for: {packet:?}"),
        }
        net.disconnect(life)
    }

    fn closed(&mut self, net: &mut Net, life: usize) -> Result<()> {
        if self.arguments.persistent && !self.lives[life].second {
            self.lives[life].second = true;
            return self.open(net, life);
        }
        self.ended += 1;
        Ok(())
    }
}

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.addr.is_empty() || arguments.concurrency == 0 || arguments.rate.is_some_and(|rate| rate <= 0.0) {
        bail!("addresses, concurrency and rate must be more than nothing");
    }
    if arguments.rate.is_some() {
        arguments.concurrency = usize::MAX;
    }
    let mut net = Net::new(arguments.addr[0])?;
    let mut lives = Lives {
        prefix: format!("life{}", std::process::id()),
        lives: vec![Life::default(); arguments.lives],
        begun: 0,
        ended: 0,
        refused: 0,
        connack: Latencies::new(),
        suback: Latencies::new(),
        arguments,
    };
    let before = used(&lives.arguments.broker_pid)?;
    let secs = run(&mut net, &mut lives)?;
    std::thread::sleep(Duration::from_millis(lives.arguments.settle_ms));
    let after = used(&lives.arguments.broker_pid)?;
    let (cpu, own) = (after[0] - before[0], after[1] - before[1]);
    let others = (after[2] - before[2] - cpu - own).max(0.0);
    let mut line = Line::new("lives");
    let count = lives.lives.len() as f64;
    line.number("lives", count);
    line.number("refused", lives.refused as f64);
    line.number("secs", secs);
    line.number("lives_per_s", count / secs);
    line.number("tool_cpu_pct", own / secs * 100.0);
    line.number("others_cpu_pct", others / (secs + lives.arguments.settle_ms as f64 / 1000.0) * 100.0);
    if !lives.arguments.broker_pid.is_empty() {
        line.number("broker_cpu_us_per_life", cpu / count * 1e6);
        line.number("lives_per_broker_cpu_s", count / cpu);
    }
    lives.connack.report("connack", &mut line);
    lives.suback.report("suback", &mut line);
    line.print();
    Ok(())
}

/// All lives; how many seconds they took.
fn run(net: &mut Net, lives: &mut Lives) -> Result<f64> {
    let patience = Duration::from_secs_f64(lives.arguments.patience);
    let start = Instant::now();
    let mut heard = start;
    while !lives.done() {
        let next = lives.begin(net, start)?;
        if net.turn(lives, next)? || lives.begun == lives.ended {
            heard = Instant::now();
        }
        if heard.elapsed() > patience {
            bail!(
                "nothing came for {} s; {} lives have begun and {} ended",
                patience.as_secs(),
                lives.begun,
                lives.ended
            );
        }
    }
    Ok(start.elapsed().as_secs_f64())
}

/// CPU seconds of the brokers, of this program, and of the whole machine.
fn used(brokers: &[u32]) -> Result<[f64; 3]> {
    let machine = measure::machine_cpu_s().context("/proc/stat")?;
    Ok([cpu_s(brokers)?, cpu_s(&[std::process::id()])?, machine])
}

/// User and system time of processes, in seconds: as the kernel counts it, in hundredths.
fn cpu_s(processes: &[u32]) -> Result<f64> {
    // SAFETY: takes and returns a number.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let mut ticks = 0.0;
    for pid in processes {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).with_context(|| format!("process {pid}"))?;
        // The name of the program, in parentheses, may have blanks.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        ticks += fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>();
    }
    Ok(ticks / per_s)
}
