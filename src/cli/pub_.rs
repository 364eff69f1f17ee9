//! `holdfast pub`: publishes messages, with mosquitto_pub's options.
//!
//! It ends when every message is with the broker: for QoS 1 and 2 the acknowledgement says so, for QoS 0 the answer to a ping behind the last.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines, Stdin};

use super::client::{
    Client, ClientError, ConnectionArgs, Event, PACKET_BYTES_MAX, Target, UsageError, parse_qos, shown,
};
use crate::mqtt::QoS;

/// Messages of QoS 1 and 2 that are on their way at once: enough for a line's round trips, few enough to leave others room.
const WINDOW: usize = 20;

/// `holdfast pub`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct PubArgs {
    /// The topic
    #[arg(short, long)]
    topic: Option<String>,
    #[command(flatten)]
    payload: PayloadArgs,
    /// The quality of service: 0, 1 or 2
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// The server keeps the message for those who subscribe later
    #[arg(short, long)]
    retain: bool,
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
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
    super::client::run(&args.connection, async |target| publish_all(args, target).await)
}

/// Publishes everything; an exit code.
pub(in crate::cli) async fn publish_all(args: &PubArgs, target: &Target) -> Result<u8, ClientError> {
    let topic = args.topic.as_ref().or(target.topic.as_ref());
    let topic = topic.ok_or_else(|| UsageError("which topic? (-t, or behind the host of -L)".to_owned()))?;
    crate::topic::name::validate(topic).map_err(|error| UsageError(format!("-t {}: {error}", shown(topic))))?;
    let mut source = Source::open(&args.payload).await?;
    let mut client = Client::connect(&args.connection, target).await?;
    let exit_code = match publish_from(&mut source, args, topic, &mut client).await {
        Err(error @ ClientError::Input(_)) => {
            // The error is ours, and the connection good: no reason to leave a Will behind.
            let _ = client.disconnect().await;
            return Err(error);
        }
        outcome => outcome?,
    };
    if args.qos == QoS::AtMostOnce {
        client.settle().await?;
    }
    client.disconnect().await?;
    Ok(exit_code)
}

async fn publish_from(
    source: &mut Source,
    args: &PubArgs,
    topic: &str,
    client: &mut Client,
) -> Result<u8, ClientError> {
    let window = WINDOW.min(client.receive_maximum.into());
    let mut on_their_way = 0;
    let mut exit_code = super::DONE;
    while !source.is_drained() || on_their_way > 0 {
        tokio::select! {
            message = source.next(), if on_their_way < window && !source.is_drained() => {
                if let Some(payload) = message? {
                    let packet_id = client.publish(topic, &payload, args.qos, args.retain)?;
                    on_their_way += usize::from(packet_id.is_some());
                    client.flush().await?;
                }
            }
            event = client.next() => {
                if let Event::Published { packet_id, reason } = event? {
                    on_their_way -= 1;
                    if reason.is_error() {
                        eprintln!("warning: message {packet_id} was refused: {}", reason.name());
                        exit_code = super::FAILED;
                    }
                }
            }
        }
    }
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
            read_bounded(path).await.map_err(|error| ClientError::Input(format!("{}: {error}", path.display())))?
        } else if args.stdin_file {
            let mut all = Vec::new();
            let mut input = tokio::io::stdin().take(u64::from(PACKET_BYTES_MAX) + 1);
            input.read_to_end(&mut all).await.map_err(unreadable_input)?;
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
            Self::Lines(lines) => match lines.next_line().await.map_err(unreadable_input)? {
                Some(line) => Ok(Some(line.into_bytes())),
                None => {
                    *self = Self::Ready(VecDeque::new());
                    Ok(None)
                }
            },
        }
    }
}

fn unreadable_input(error: io::Error) -> ClientError {
    ClientError::Input(format!("standard input: {error}"))
}

/// A file that may be one message; a longer one is not read.
async fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    let len = file.metadata().await?.len();
    if len > u64::from(PACKET_BYTES_MAX) {
        let message = format!("has {len} bytes, and the largest packet that MQTT knows is {PACKET_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    let mut bytes = Vec::new();
    file.take(u64::from(PACKET_BYTES_MAX) + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
