//! The load of `bench/durability`: persistent sessions, with and without their clients. One thread, the broker's own codec; each phase is
//! a command that prints one line of JSON, with what it cost the broker, this program and the rest of the machine.
//!
//! - [`pairs`]: publishers and subscribers that are there
//! - [`queue`]: sessions that are away: `prepare`, `fill`, `first` (after a start), `drain`
//! - [`churn`]: a backlog of constant length
//! - [`net`], [`publisher`], [`measure`]: what they share
//!
//! Every message that is due must come, once and in order, or the program ends with an error.

mod churn;
mod measure;
mod net;
mod pairs;
mod publisher;
mod queue;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Durable load for an MQTT broker.
#[derive(Parser)]
struct Arguments {
    /// Address of the broker
    #[arg(long, global = true, default_value = "127.0.0.1:1883")]
    addr: SocketAddr,
    /// Processes whose CPU and memory are read
    #[arg(long, global = true, value_delimiter = ',')]
    broker_pid: Vec<u32>,
    /// Folder of the broker whose size on disk is read
    #[arg(long, global = true)]
    folder: Option<PathBuf>,
    /// Bytes of a payload
    #[arg(long, global = true, default_value_t = 256)]
    size: usize,
    /// Seconds without anything from the broker after which the run has failed
    #[arg(long, global = true, default_value_t = 20.0)]
    patience: f64,
    #[command(subcommand)]
    phase: Phase,
}

#[derive(Subcommand)]
enum Phase {
    /// Publishers and subscribers in pairs, all of them connected
    Pairs(pairs::Options),
    /// Make persistent sessions and leave
    Prepare(queue::Sessions),
    /// Publish to sessions that are away
    Fill(queue::Filling),
    /// Connect one session as soon as the broker lets it
    First {
        #[arg(long, default_value_t = 0)]
        number: usize,
    },
    /// All sessions come back and take everything
    Drain(queue::Draining),
    /// A backlog of constant length, through which messages go
    Churn(churn::Options),
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let subject = measure::Subject { broker: arguments.broker_pid, folder: arguments.folder };
    let patience = Duration::from_secs_f64(arguments.patience);
    let mut net = net::Net::new(arguments.addr)?;
    match arguments.phase {
        Phase::Pairs(options) => pairs::run(&mut net, &subject, arguments.size, &options, patience),
        Phase::Prepare(sessions) => queue::prepare(&mut net, &subject, sessions.sessions, patience),
        Phase::Fill(options) => queue::fill(&mut net, &subject, arguments.size, &options, patience),
        Phase::First { number } => queue::first(&mut net, &subject, number, patience),
        Phase::Drain(options) => queue::drain(&mut net, &subject, &options, patience),
        Phase::Churn(options) => churn::run(&mut net, &subject, arguments.size, &options, patience),
    }
}
