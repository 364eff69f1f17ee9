//! `holdfast sub`: prints the messages of topic filters, with mosquitto_sub's options.
//!
//! A connection that breaks after it once stood is made again until it stands, since what is watched is often a broker that
//! is being restarted. Before each attempt there is a pause ([`Backoff`]). A refusal ends the command, and so does a reader that is gone.
//! However it ends, the broker is told by DISCONNECT if there is a connection.

use std::io::{self, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::client::{
    Backoff, Client, ClientError, ConnectionArgs, Event, TIMED_OUT, Target, UsageError, parse_qos, shown,
};
use crate::mqtt::{QoS, SubscriptionOptions};
use crate::topic::filter::TopicFilter;

/// How long the goodbye behind a signal may take before the program ends without it.
const GRACE: Duration = Duration::from_secs(3);

/// `holdfast sub`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct SubArgs {
    /// A topic filter; may be given several times
    #[arg(short, long = "topic", value_name = "FILTER")]
    topics: Vec<String>,
    /// The highest quality of service of what is sent here: 0, 1 or 2
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
    #[command(flatten)]
    pub(super) connection: ConnectionArgs,
}

/// Runs the command to its end.
pub fn run(args: &SubArgs) -> ExitCode {
    super::client::run(&args.connection, async |target| watch(args, target, told_to_stop(args.timeout_secs)).await)
}

/// What waits for SIGINT, SIGTERM or the end of `-W`, from now on; it says the exit code.
fn told_to_stop(timeout_secs: Option<u64>) -> impl Future<Output = u8> {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let signalled = tokio::spawn(async {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            // They then end the program as they always do.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        // Whoever reads our output may have stopped: a write that waits for it would wait for ever.
        tokio::spawn(async {
            tokio::time::sleep(GRACE).await;
            std::process::exit(super::FAILED.into());
        });
    });
    async move {
        let timed_out = async {
            match timeout_secs {
                Some(secs) => tokio::time::sleep(Duration::from_secs(secs)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signalled => super::DONE,
            () = timed_out => TIMED_OUT,
        }
    }
}

/// Prints messages until enough are printed or `stop` says with which exit code to end.
pub(in crate::cli) async fn watch(
    args: &SubArgs,
    target: &Target,
    stop: impl Future<Output = u8>,
) -> Result<u8, ClientError> {
    let mut filters = args.topics.clone();
    filters.extend(target.topic.clone());
    if filters.is_empty() {
        return Err(UsageError("which topic? (-t, or behind the host of -L)".to_owned()).into());
    }
    for filter in &filters {
        TopicFilter::parse(filter).map_err(|error| UsageError(format!("-t {}: {error}", shown(filter))))?;
    }
    let mut stop = pin!(stop);
    let mut printed = 0;
    let mut backoff = Backoff::default();
    let mut client = tokio::select! {
        client = subscribe(args, target, &filters) => client?,
        exit_code = &mut stop => return Ok(exit_code),
    };
    loop {
        let since = Instant::now();
        let outcome = tokio::select! {
            outcome = print_messages(args, &mut client, &mut printed) => outcome,
            exit_code = &mut stop => Ok(exit_code),
        };
        match outcome {
            Err(error) if error.is_lost_connection() => {
                client.close().await;
                let again = subscribe_again(args, target, &filters, &mut backoff, (error, since.elapsed()));
                client = tokio::select! {
                    client = again => client?,
                    exit_code = &mut stop => return Ok(exit_code),
                };
            }
            outcome => {
                // What was to be done is done, or what went wrong is known.
                let _ = client.disconnect().await;
                return outcome;
            }
        }
    }
}

async fn subscribe(args: &SubArgs, target: &Target, filters: &[String]) -> Result<Client, ClientError> {
    let mut client = Client::connect(&args.connection, target).await?;
    client.subscribe(filters, SubscriptionOptions { qos: args.qos, ..Default::default() });
    client.flush().await?;
    Ok(client)
}

/// Connects again, behind a pause each time. `lost` is how the connection before was lost, and how long it had lived.
async fn subscribe_again(
    args: &SubArgs,
    target: &Target,
    filters: &[String],
    backoff: &mut Backoff,
    lost: (ClientError, Duration),
) -> Result<Client, ClientError> {
    let (mut error, mut lived) = lost;
    loop {
        let pause = backoff.pause(lived);
        eprintln!("{}; connecting again in {:.1} s", error.at(target), pause.as_secs_f64());
        tokio::time::sleep(pause).await;
        match subscribe(args, target, filters).await {
            Err(again) if again.is_lost_connection() => (error, lived) = (again, Duration::ZERO),
            other => return other,
        }
    }
}

/// Prints until enough is printed, or there is nothing to wait for; the exit code.
async fn print_messages(args: &SubArgs, client: &mut Client, printed: &mut u64) -> Result<u8, ClientError> {
    loop {
        match client.next().await? {
            Event::Message { retain: true, .. } if args.no_retained => {}
            Event::Message { topic, payload, .. } => {
                print(args, &topic, &payload).map_err(ClientError::Output)?;
                *printed += 1;
                if args.count.is_some_and(|count| *printed >= count) {
                    return Ok(super::DONE);
                }
            }
            Event::Subscribed { codes } if codes.iter().all(|code| *code >= 0x80) => {
                eprintln!("error: the broker refused every subscription");
                return Ok(super::FAILED);
            }
            Event::Subscribed { .. } | Event::Published { .. } => {}
        }
    }
}

/// Prints one message and hands it to whoever reads, since the next one may be long in coming.
fn print(args: &SubArgs, topic: &str, payload: &[u8]) -> io::Result<()> {
    let mut out = std::io::stdout().lock();
    if args.verbose {
        write!(out, "{topic} ")?;
    }
    out.write_all(payload)?;
    if !args.no_newline {
        out.write_all(b"\n")?;
    }
    out.flush()
}
