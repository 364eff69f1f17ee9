//! `holdfast sub`: prints the messages of topic filters, with mosquitto_sub's options.
//!
//! A connection that breaks after it once stood is made again until it stands, since what is watched is often a broker that
//! is being restarted. A refusal ends the command.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::time::Instant;

use super::client::{Client, ClientError, ConnectionArgs, Event, TIMED_OUT, Target, UsageError, parse_qos};
use crate::mqtt::{QoS, SubscriptionOptions};
use crate::topic::filter::TopicFilter;

/// Pause between two attempts to connect again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// `holdfast sub`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SubArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// A topic filter; may be given several times
    #[arg(short, long = "topic", value_name = "FILTER")]
    topics: Vec<String>,
    #[arg(short, long, default_value = "0", value_parser = parse_qos)]
    qos: QoS,
    /// Print the topic before each message
    #[arg(short, long)]
    verbose: bool,
    /// End after this many messages
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many seconds, with exit code 27
    #[arg(short = 'W', value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout_secs: Option<u64>,
    /// Leave out retained messages
    #[arg(short = 'R')]
    no_retained: bool,
    /// Print no end of line behind a message
    #[arg(short = 'N')]
    no_newline: bool,
}

/// Runs the command to its end.
pub fn run(args: &SubArgs) -> ExitCode {
    super::client::run(watch(args))
}

async fn watch(args: &SubArgs) -> Result<u8, ClientError> {
    let target = args.connection.target()?;
    let mut filters = args.topics.clone();
    filters.extend(target.topic.clone());
    if filters.is_empty() {
        return Err(UsageError("which topic? (-t, or behind the host of -L)".to_owned()).into());
    }
    for filter in &filters {
        TopicFilter::parse(filter).map_err(|error| UsageError(format!("-t {filter}: {error}")))?;
    }
    let mut printed = 0;
    let watching = watch_until_counted(args, &target, &filters, &mut printed);
    match args.timeout_secs {
        None => watching.await,
        Some(secs) => tokio::time::timeout(Duration::from_secs(secs), watching).await.unwrap_or(Ok(TIMED_OUT)),
    }
}

async fn watch_until_counted(
    args: &SubArgs,
    target: &Target,
    filters: &[String],
    printed: &mut u64,
) -> Result<u8, ClientError> {
    let mut client = subscribe(args, target, filters).await?;
    loop {
        match print_messages(args, &mut client, printed).await {
            Ok(None) => {
                client.disconnect().await?;
                return Ok(super::DONE);
            }
            Ok(Some(exit_code)) => {
                client.disconnect().await?;
                return Ok(exit_code);
            }
            Err(error) if error.is_lost_connection() => {
                eprintln!("{error}; connecting again");
                client = subscribe_again(args, target, filters).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn subscribe(args: &SubArgs, target: &Target, filters: &[String]) -> Result<Client, ClientError> {
    let mut client = Client::connect(&args.connection, target).await?;
    client.subscribe(filters, SubscriptionOptions { qos: args.qos, ..Default::default() });
    client.flush().await?;
    Ok(client)
}

async fn subscribe_again(args: &SubArgs, target: &Target, filters: &[String]) -> Result<Client, ClientError> {
    loop {
        let next_attempt = Instant::now() + RETRY_PAUSE;
        match subscribe(args, target, filters).await {
            Err(error) if error.is_lost_connection() => tokio::time::sleep_until(next_attempt).await,
            other => return other,
        }
    }
}

/// Prints until enough is printed; an exit code when there is nothing to wait for.
async fn print_messages(args: &SubArgs, client: &mut Client, printed: &mut u64) -> Result<Option<u8>, ClientError> {
    loop {
        match client.next().await? {
            Event::Message { retain: true, .. } if args.no_retained => {}
            Event::Message { topic, payload, .. } => {
                print(args, &topic, &payload)?;
                *printed += 1;
                if args.count.is_some_and(|count| *printed >= count) {
                    return Ok(None);
                }
            }
            Event::Subscribed { codes } if codes.iter().all(|code| *code >= 0x80) => {
                eprintln!("Error: the broker refused every subscription");
                return Ok(Some(super::FAILED));
            }
            Event::Subscribed { .. } | Event::Published { .. } => {}
        }
    }
}

/// Prints one message and hands it to whoever reads, since the next one may be long in coming.
fn print(args: &SubArgs, topic: &str, payload: &[u8]) -> Result<(), ClientError> {
    let mut out = std::io::stdout().lock();
    if args.verbose {
        write!(out, "{topic} ")?;
    }
    out.write_all(payload)?;
    if !args.no_newline {
        out.write_all(b"\n")?;
    }
    out.flush()?;
    Ok(())
}
