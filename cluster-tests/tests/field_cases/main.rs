//! What broke for users of other brokers in the field, and must not break here: cases that need one node.
//!
//! The numbers are those of the project's list of field cases; each function is named `field_case_NN_…` and says what must hold. Where a
//! case is about time it is told here in shorter times, with several clients at once. Cases that need several nodes come with the cluster.
//!
//! Read first: `wills.rs`.

mod admission;
mod bans;
mod certificates;
mod counting;
mod credentials;
mod delivery;
mod keep_alive;
mod limits;
mod malformed;
mod overload;
mod races;
mod reconnect;
mod rights;
mod shared;
mod silent;
mod storm;
mod topics;
mod websocket;
mod websocket_handshake;
mod wills;

use std::sync::OnceLock;

use holdfast_cluster_tests::client::got_before_marker;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::transport::Transport;
use holdfast_cluster_tests::wire::{Message, Version};

/// A stage on the shared broker, over plain TCP.
fn tcp() -> Stage<'static> {
    Stage::shared(Transport::Tcp)
}

/// A stage on the broker with listeners of all four transports.
fn over(transport: Transport) -> Stage<'static> {
    static BROKER: OnceLock<Broker> = OnceLock::new();
    let broker = BROKER.get_or_init(|| Setup::new().with_tls().start().expect("these tests start their own broker"));
    Stage::new(broker, transport)
}

/// A broker of a test's own.
fn start(setup: Setup) -> Broker {
    setup.start().expect("these tests start their own broker")
}

/// 3.1.1 and 5.0.
const BOTH_VERSIONS: [Version; 2] = [Version::V311, Version::V5];

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}
