//! `holdfast pub`: publishes messages, with mosquitto_pub's options.
//!
//! It ends when every message is with the broker: sent for QoS 0, acknowledged for QoS 1 and 2.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines, Stdin};

use super::client::{Client, ClientError, ConnectionArgs, Event, UsageError, parse_qos};
use crate::mqtt::QoS;

/// Messages of QoS 1 and 2 that are on their way at once: enough for a line's round trips, few enough to leave others room.
const WINDOW: usize = 20;

/// `holdfast pub`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PubArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The topic
    #[arg(short, long)]
    topic: Option<String>,
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// The server keeps the message for those who subscribe later
    #[arg(short, long)]
    retain: bool,
    #[command(flatten)]
    payload: PayloadArgs,
}

/// What is published.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct PayloadArgs {
    /// This text
    #[arg(short, long, value_name = "PAYLOAD")]
    message: Option<String>,
    /// The contents of this file
    #[arg(short, long)]
    file: Option<PathBuf>,
    /// Each line of standard input
    #[arg(short = 'l', long)]
    stdin_line: bool,
    /// All of standard input, as one message
    #[arg(short = 's', long)]
    stdin_file: bool,
    /// Nothing: with -r this deletes the retained message
    #[arg(short, long)]
    null_message: bool,
}

/// Runs the command to its end.
pub fn run(args: &PubArgs) -> ExitCode {
    super::client::run(publish_all(args))
}

async fn publish_all(args: &PubArgs) -> Result<u8, ClientError> {
    let target = args.connection.target()?;
    let topic = args.topic.as_ref().or(target.topic.as_ref());
    let topic = topic.ok_or_else(|| UsageError("which topic? (-t, or behind the host of -L)".to_owned()))?;
    crate::topic::name::validate(topic).map_err(|error| UsageError(format!("-t {topic}: {error}")))?;
    let mut source = Source::open(&args.payload).await?;
    let mut client = Client::connect(&args.connection, &target).await?;
    let window = WINDOW.min(client.receive_maximum.into());
    let mut on_their_way = 0;
    let mut exit_code = super::DONE;
    while !source.is_drained() || on_their_way > 0 {
        tokio::select! {
            message = source.next(), if on_their_way < window && !source.is_drained() => {
                if let Some(payload) = message? {
                    let packet_id = client.publish(topic, &payload, args.qos, args.retain);
                    on_their_way += usize::from(packet_id.is_some());
                    client.flush().await?;
                }
            }
            event = client.next() => {
                if let Event::Published { packet_id, reason } = event? {
                    on_their_way -= 1;
                    if reason.is_error() {
                        eprintln!("Warning: message {packet_id} was refused: {}", reason.name());
                        exit_code = super::FAILED;
                    }
                }
            }
        }
    }
    client.disconnect().await?;
    Ok(exit_code)
}

/// Where the messages come from.
enum Source {
    Ready(VecDeque<Vec<u8>>),
    Lines(Lines<BufReader<Stdin>>),
}

impl Source {
    async fn open(args: &PayloadArgs) -> Result<Self, ClientError> {
        if args.stdin_line {
            return Ok(Self::Lines(BufReader::new(tokio::io::stdin()).lines()));
        }
        let payload = if let Some(text) = &args.message {
            text.clone().into_bytes()
        } else if let Some(path) = &args.file {
            tokio::fs::read(path)
                .await
                .map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))?
        } else if args.stdin_file {
            let mut all = Vec::new();
            tokio::io::stdin().read_to_end(&mut all).await?;
            all
        } else {
            Vec::new()
        };
        Ok(Self::Ready(VecDeque::from([payload])))
    }

    fn is_drained(&self) -> bool {
        matches!(self, Self::Ready(messages) if messages.is_empty())
    }

    /// The next message, without the end of its line. Cancelling it loses nothing.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        match self {
            Self::Ready(messages) => Ok(messages.pop_front()),
            Self::Lines(lines) => match lines.next_line().await? {
                Some(line) => Ok(Some(line.into_bytes())),
                None => {
                    *self = Self::Ready(VecDeque::new());
                    Ok(None)
                }
            },
        }
    }
}
