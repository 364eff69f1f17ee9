//! What a conformance test works on: a broker, a transport, and names that no other test uses.
//!
//! All tests of one binary share a broker unless they need a configuration of their own, so every client id, topic and
//! share name goes through the stage, which makes it unique.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::client::Client;
use crate::process::Broker;
use crate::transport::{Link, Transport};
use crate::wire::{ConnAck, Connect, Version};

/// One test's view of a broker.
pub struct Stage<'b> {
    broker: &'b Broker,
    pub transport: Transport,
    prefix: String,
}

impl Stage<'static> {
    /// On the broker that all tests of this binary share.
    pub fn shared(transport: Transport) -> Self {
        Self::new(Broker::shared(), transport)
    }
}

impl<'b> Stage<'b> {
    pub fn new(broker: &'b Broker, transport: Transport) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Letters and digits only, and short, so that client ids are those that every server must take [MQTT-3.1.3-5].
        Self { broker, transport, prefix: format!("t{:x}x{count}", broker.salt()) }
    }

    pub fn broker(&self) -> &'b Broker {
        self.broker
    }

    /// A client id of this test.
    pub fn client_id(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// A topic name or filter below this test's own first level.
    pub fn topic(&self, rest: &str) -> String {
        format!("{}/{rest}", self.prefix)
    }

    /// A share name of this test.
    pub fn share(&self, filter: &str) -> String {
        format!("$share/{}/{}", self.prefix, self.topic(filter))
    }

    /// A connection on which no MQTT has been spoken yet.
    #[track_caller]
    pub fn open(&self, version: Version) -> Client {
        match Link::open(self.transport, self.broker.address(self.transport), self.broker.client_config()) {
            Ok(link) => Client::new(link, version),
            Err(error) => panic!("cannot connect over {:?}: {error}", self.transport),
        }
    }

    /// A CONNECT with a client id of this test.
    pub fn hello(&self, version: Version, name: &str) -> Connect {
        Connect::new(version, self.client_id(name))
    }

    /// Connects, which must succeed.
    #[track_caller]
    pub fn connect(&self, connect: &Connect) -> (Client, ConnAck) {
        let mut client = self.open(connect.version);
        let ack = client.connect(connect);
        (client, ack)
    }

    /// A connected client with a clean session.
    #[track_caller]
    pub fn client(&self, version: Version, name: &str) -> Client {
        self.connect(&self.hello(version, name)).0
    }

    /// A connected 5.0 client with a clean session.
    #[track_caller]
    pub fn v5(&self, name: &str) -> Client {
        self.client(Version::V5, name)
    }

    /// A connected 3.1.1 client with a clean session.
    #[track_caller]
    pub fn v311(&self, name: &str) -> Client {
        self.client(Version::V311, name)
    }

    /// Sends bytes after a 5.0 CONNECT: the server must answer with DISCONNECT, one of these reasons, and close.
    #[track_caller]
    pub fn refused_after_connect(&self, bytes: &[u8], reasons: &[u8]) {
        let mut client = self.v5("refused");
        client.send(bytes);
        client.expect_disconnect(reasons);
    }

    /// Sends bytes after a 3.1.1 CONNECT: the server must close.
    #[track_caller]
    pub fn closed_after_connect_v311(&self, bytes: &[u8]) {
        let mut client = self.v311("closed");
        client.send(bytes);
        client.expect_close();
    }

    /// Sends a CONNECT that must be refused: the reason of the CONNACK, or `None` when there was none; closed in any case.
    #[track_caller]
    pub fn refused_connect(&self, version: Version, bytes: &[u8]) -> Option<u8> {
        let mut client = self.open(version);
        client.send(bytes);
        let packets = client.until_closed();
        match packets.as_slice() {
            [] => None,
            [crate::wire::Packet::ConnAck(ack)] if ack.reason != 0 => Some(ack.reason),
            other => panic!("{other:?} to a CONNECT that must be refused"),
        }
    }
}

/// Makes of each function `fn name(on: &Stage)` two tests, `tcp::name` and `websocket::name`.
#[macro_export]
macro_rules! over_tcp_and_websocket {
    ($($name:ident),* $(,)?) => {
        mod tcp {
            $(#[test]
            fn $name() {
                super::$name(&$crate::stage::Stage::shared($crate::transport::Transport::Tcp));
            })*
        }
        mod websocket {
            $(#[test]
            fn $name() {
                super::$name(&$crate::stage::Stage::shared($crate::transport::Transport::WebSocket));
            })*
        }
    };
}
