//! The state of a node as lines of JSON, for people and programs to read, and to be taken up by another node.
//!
//! The first line is [`Begin`] and the last one [`End`], so that a file that was cut off is known as such. Between them stand, in this order:
//!
//! | type | one for each |
//! | --- | --- |
//! | `lease` | client id whose session outlives its connection, or of whom a Will is still to be published |
//! | `retained` | retained message |
//! | `session` | session; behind it its `subscription`, `message`, `received` and `accepted` lines, in the order in which they came about |
//! | `given_back` | message of a shared subscription whose member's session has ended, and which no other member has got yet |
//!
//! Times are milliseconds since 1970, payloads, properties and Wills are base64. A message that several lines need stands in the first of them, under a number (`shared`)
//! which the others name. None of the node's own numbers is in it: whoever imports gives new ones, so an export of what was imported is the same lines again. What a node
//! remembers of retained messages that are gone is not in it.
//!
//! Pure. Test to read first: `tests::what_is_imported_is_exported_again`.

mod export;
mod import;
#[cfg(test)]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use export::{Fault, Survey, export};
pub use import::Import;

/// The version of this form.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    Holdfast(Begin),
    Lease(Lease),
    Retained(Retained),
    Session(Session),
    Subscription(Subscribed),
    Message(Waiting),
    /// PUBREC came for this packet identifier of the server: PUBREL is owed until PUBCOMP comes.
    Received(Handshake),
    /// A QoS 2 PUBLISH of the client with this packet identifier was accepted; PUBREL is awaited.
    Accepted(Handshake),
    GivenBack(Waiting),
    End(End),
}

/// The first line. A later version may say more in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub format: u32,
    pub exported_at: u64,
    pub node_id: String,
    /// When the node is last known to have run: who was connected then counts as gone since.
    pub last_run: u64,
}

/// Who has a session, or had one, and since when it is without a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub client_id: String,
    /// The Session Expiry Interval; 4,294,967,295 is for ever.
    pub expiry_secs: u32,
    /// Exactly one of these three: the client was connected, it was not since then, its session is over and only Wills are left.
    #[serde(default, skip_serializing_if = "is_false")]
    pub connected: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detached_since: Option<u64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub ended: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub will: Option<Will>,
    /// Wills that were due and not published yet, oldest first, each as in [`Will::message`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wills_due: Vec<Base64>,
}

/// The Will of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Will {
    pub delay_secs: u32,
    /// A PUBLISH packet of MQTT 5.0.
    pub message: Base64,
}

/// A retained message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retained {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Content>,
}

/// A session that was written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    pub client_id: String,
}

/// A subscription. The options are those of MQTT 5.0, 3.8.3.1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscribed {
    pub client_id: String,
    pub filter: String,
    pub qos: u8,
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_local: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub retain_as_published: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retain_handling: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription_id: Option<u32>,
}

/// A message of QoS 1 or 2 in the queue of a session; with a packet identifier: on its way, PUBACK or PUBREC is awaited. One that was given back has neither
/// client nor packet identifier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiting {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_id: Option<u16>,
    /// QoS and RETAIN of the delivery.
    pub qos: u8,
    #[serde(default, skip_serializing_if = "is_false")]
    pub retain: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subscription_ids: Vec<u32>,
    /// The shared subscription that brought it, `$share/name/filter`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Content>,
}

/// Half a QoS 2 flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    pub client_id: String,
    pub packet_id: u16,
}

/// An application message as it was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    pub topic: String,
    pub payload: Base64,
    /// The properties of MQTT 5.0 that are forwarded, as they stand in a packet.
    #[serde(default, skip_serializing_if = "Base64::is_empty")]
    pub properties: Base64,
    /// QoS and RETAIN as the publisher set them.
    pub qos: u8,
    #[serde(default, skip_serializing_if = "is_false")]
    pub retain: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// The client id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub publisher: String,
    /// Of a message that was retained, by which nodes tell which is the newer one: milliseconds since 1970, times 65,536, and a counter.
    #[serde(default, skip_serializing_if = "is_0")]
    pub stamp: u64,
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// How many lines there are before it.
    pub lines: u64,
}

/// What is in a data directory, or a file of lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub sessions: u64,
    pub subscriptions: u64,
    /// Messages in the queues of sessions and on their way to clients.
    pub queued: u64,
    /// QoS 2 flows of which one half is done.
    pub handshakes: u64,
    pub retained: u64,
    /// Wills that are not published yet.
    pub wills: u64,
}

/// Bytes, in JSON as base64 (RFC 4648, section 4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base64(pub Bytes);

impl Base64 {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Base64, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD
            .decode(text)
            .map(|bytes| Base64(bytes.into()))
            .map_err(|error| D::Error::custom(format!("not base64: {error}")))
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_0(value: &u64) -> bool {
    *value == 0
}

fn is_zero(value: &u8) -> bool {
    *value == 0
}
