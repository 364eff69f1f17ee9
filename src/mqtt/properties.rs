//! The properties of a packet (MQTT 5.0, 2.2.2): validated where they stand, kept as the bytes they came in.
//!
//! Read first: `tests/properties.rs`.

use std::borrow::Cow;

use super::codec::Malformed;
use super::property::id;
use super::wire::{Reader, field, put_variable_int};
use super::{Property, QoS};

/// Where properties stand, which decides what is allowed (2.2.2.2, table 2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Connect,
    Will,
    ConnAck,
    /// A PUBLISH that the server sent.
    Publish,
    /// A PUBLISH that a client sent: no Subscription Identifier.
    PublishFromClient,
    Ack,
    Subscribe,
    SubAck,
    Unsubscribe,
    UnsubAck,
    Disconnect,
    Auth,
}

const fn set(ids: &[u8]) -> u64 {
    let mut bits = 0;
    let mut index = 0;
    while index < ids.len() {
        bits |= 1 << ids[index];
        index += 1;
    }
    bits
}

const CONNECT: u64 = set(&[
    id::SESSION_EXPIRY_INTERVAL,
    id::AUTHENTICATION_METHOD,
    id::AUTHENTICATION_DATA,
    id::REQUEST_PROBLEM_INFORMATION,
    id::REQUEST_RESPONSE_INFORMATION,
    id::RECEIVE_MAXIMUM,
    id::TOPIC_ALIAS_MAXIMUM,
    id::USER_PROPERTY,
    id::MAXIMUM_PACKET_SIZE,
]);
const WILL: u64 = FORWARDED | set(&[id::WILL_DELAY_INTERVAL, id::MESSAGE_EXPIRY_INTERVAL]);
const CONNACK: u64 = set(&[
    id::SESSION_EXPIRY_INTERVAL,
    id::ASSIGNED_CLIENT_IDENTIFIER,
    id::SERVER_KEEP_ALIVE,
    id::AUTHENTICATION_METHOD,
    id::AUTHENTICATION_DATA,
    id::RESPONSE_INFORMATION,
    id::SERVER_REFERENCE,
    id::REASON_STRING,
    id::RECEIVE_MAXIMUM,
    id::TOPIC_ALIAS_MAXIMUM,
    id::MAXIMUM_QOS,
    id::RETAIN_AVAILABLE,
    id::USER_PROPERTY,
    id::MAXIMUM_PACKET_SIZE,
    id::WILDCARD_SUBSCRIPTION_AVAILABLE,
    id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
    id::SHARED_SUBSCRIPTION_AVAILABLE,
]);
const PUBLISH: u64 = FORWARDED | set(&[id::MESSAGE_EXPIRY_INTERVAL, id::SUBSCRIPTION_IDENTIFIER, id::TOPIC_ALIAS]);
const ACK: u64 = set(&[id::REASON_STRING, id::USER_PROPERTY]);
const SUBSCRIBE: u64 = set(&[id::SUBSCRIPTION_IDENTIFIER, id::USER_PROPERTY]);
const UNSUBSCRIBE: u64 = set(&[id::USER_PROPERTY]);
const DISCONNECT: u64 = set(&[id::SESSION_EXPIRY_INTERVAL, id::SERVER_REFERENCE, id::REASON_STRING, id::USER_PROPERTY]);
const AUTH: u64 = set(&[id::AUTHENTICATION_METHOD, id::AUTHENTICATION_DATA, id::REASON_STRING, id::USER_PROPERTY]);

/// What of a PUBLISH or a Will travels to the subscribers unchanged [MQTT-3.3.2-4], [MQTT-3.3.2-15], [MQTT-3.3.2-16],
/// [MQTT-3.3.2-17], [MQTT-3.3.2-20].
const FORWARDED: u64 =
    set(&[id::PAYLOAD_FORMAT_INDICATOR, id::CONTENT_TYPE, id::RESPONSE_TOPIC, id::CORRELATION_DATA, id::USER_PROPERTY]);

impl Place {
    const fn allowed(self) -> u64 {
        match self {
            Place::Connect => CONNECT,
            Place::Will => WILL,
            Place::ConnAck => CONNACK,
            Place::Publish | Place::PublishFromClient => PUBLISH,
            Place::Ack | Place::SubAck | Place::UnsubAck => ACK,
            Place::Subscribe => SUBSCRIBE,
            Place::Unsubscribe => UNSUBSCRIBE,
            Place::Disconnect => DISCONNECT,
            Place::Auth => AUTH,
        }
    }

    /// What may stand here more than once.
    const fn repeatable(self) -> u64 {
        match self {
            Place::Publish => set(&[id::USER_PROPERTY, id::SUBSCRIPTION_IDENTIFIER]),
            _ => set(&[id::USER_PROPERTY]),
        }
    }
}

/// Properties that were validated against the packet they stand in: known, allowed there, not doubled, with legal values. They
/// are the raw bytes without their length, in the order in which they came. Before MQTT 5.0 there are none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Properties<'a> {
    bytes: &'a [u8],
    /// One bit for each identifier that occurs, so that asking for what is not there costs nothing.
    present: u64,
}

impl std::fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One accessor for each property that occurs at most once.
macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident, $id:ident, $variant:ident, $value:ty;)*) => {
        impl<'a> Properties<'a> {
            $($(#[$doc])*
            #[inline]
            pub fn $name(&self) -> Option<$value> {
                if self.present & (1 << id::$id) == 0 {
                    return None;
                }
                self.iter().find_map(|property| match property {
                    Property::$variant(value) => Some(value),
                    _ => None,
                })
            })*
        }
    };
}

accessors! {
    /// Whether the payload is UTF-8 text (3.3.2.3.2, 3.1.3.2.3).
    payload_format_indicator, PAYLOAD_FORMAT_INDICATOR, PayloadFormatIndicator, bool;
    /// Seconds (3.3.2.3.3, 3.1.3.2.4). 0 is legal.
    message_expiry_interval, MESSAGE_EXPIRY_INTERVAL, MessageExpiryInterval, u32;
    /// (3.3.2.3.9, 3.1.3.2.5)
    content_type, CONTENT_TYPE, ContentType, &'a str;
    /// A topic name without wildcards (3.3.2.3.5, 3.1.3.2.6).
    response_topic, RESPONSE_TOPIC, ResponseTopic, &'a str;
    /// (3.3.2.3.6, 3.1.3.2.7)
    correlation_data, CORRELATION_DATA, CorrelationData, &'a [u8];
    /// The first Subscription Identifier, 1 to 268,435,455; SUBSCRIBE has at most one (3.8.2.1.2).
    subscription_identifier, SUBSCRIPTION_IDENTIFIER, SubscriptionIdentifier, u32;
    /// Seconds; `u32::MAX` is never (3.1.2.11.2, 3.2.2.3.2, 3.14.2.2.2).
    session_expiry_interval, SESSION_EXPIRY_INTERVAL, SessionExpiryInterval, u32;
    /// (3.2.2.3.7)
    assigned_client_identifier, ASSIGNED_CLIENT_IDENTIFIER, AssignedClientIdentifier, &'a str;
    /// Seconds (3.2.2.3.14).
    server_keep_alive, SERVER_KEEP_ALIVE, ServerKeepAlive, u16;
    /// (3.1.2.11.9, 3.2.2.3.17, 3.15.2.2.2)
    authentication_method, AUTHENTICATION_METHOD, AuthenticationMethod, &'a str;
    /// Never without an Authentication Method (3.1.2.11.10, 3.2.2.3.18, 3.15.2.2.3).
    authentication_data, AUTHENTICATION_DATA, AuthenticationData, &'a [u8];
    /// (3.1.2.11.7)
    request_problem_information, REQUEST_PROBLEM_INFORMATION, RequestProblemInformation, bool;
    /// Seconds (3.1.3.2.2).
    will_delay_interval, WILL_DELAY_INTERVAL, WillDelayInterval, u32;
    /// (3.1.2.11.6)
    request_response_information, REQUEST_RESPONSE_INFORMATION, RequestResponseInformation, bool;
    /// (3.2.2.3.15)
    response_information, RESPONSE_INFORMATION, ResponseInformation, &'a str;
    /// (3.2.2.3.16, 3.14.2.2.5)
    server_reference, SERVER_REFERENCE, ServerReference, &'a str;
    /// For people, not for programs (3.2.2.3.9, 3.4.2.2.2, ...).
    reason_string, REASON_STRING, ReasonString, &'a str;
    /// Never 0 (3.1.2.11.3, 3.2.2.3.3).
    receive_maximum, RECEIVE_MAXIMUM, ReceiveMaximum, u16;
    /// (3.1.2.11.5, 3.2.2.3.8)
    topic_alias_maximum, TOPIC_ALIAS_MAXIMUM, TopicAliasMaximum, u16;
    /// Never 0 (3.3.2.3.4).
    topic_alias, TOPIC_ALIAS, TopicAlias, u16;
    /// QoS 0 or 1 (3.2.2.3.4).
    maximum_qos, MAXIMUM_QOS, MaximumQoS, QoS;
    /// (3.2.2.3.5)
    retain_available, RETAIN_AVAILABLE, RetainAvailable, bool;
    /// Bytes of a whole packet; never 0 (3.1.2.11.4, 3.2.2.3.6).
    maximum_packet_size, MAXIMUM_PACKET_SIZE, MaximumPacketSize, u32;
    /// (3.2.2.3.11)
    wildcard_subscription_available, WILDCARD_SUBSCRIPTION_AVAILABLE, WildcardSubscriptionAvailable, bool;
    /// (3.2.2.3.12)
    subscription_identifiers_available, SUBSCRIPTION_IDENTIFIERS_AVAILABLE, SubscriptionIdentifiersAvailable, bool;
    /// (3.2.2.3.13)
    shared_subscription_available, SHARED_SUBSCRIPTION_AVAILABLE, SharedSubscriptionAvailable, bool;
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Properties<'static> = Properties { bytes: &[], present: 0 };

    /// The raw bytes, without the Property Length.
    #[inline]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All properties in the order in which they came.
    #[inline]
    pub fn iter(&self) -> PropertiesIter<'a> {
        PropertiesIter { reader: Reader::new(self.bytes) }
    }

    /// The Subscription Identifiers of a PUBLISH, one for each subscription that matched [MQTT-3.3.4-4].
    pub fn subscription_identifiers(&self) -> impl Iterator<Item = u32> + use<'a> {
        let all =
            if self.present & (1 << id::SUBSCRIPTION_IDENTIFIER) == 0 { Properties::EMPTY.iter() } else { self.iter() };
        all.filter_map(|property| match property {
            Property::SubscriptionIdentifier(value) => Some(value),
            _ => None,
        })
    }

    /// The User Properties, which may repeat names and keep their order [MQTT-3.3.2-18].
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let all = if self.present & (1 << id::USER_PROPERTY) == 0 { Properties::EMPTY.iter() } else { self.iter() };
        all.filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// What of a PUBLISH or a Will travels to the subscribers unchanged and in its order: all but Topic Alias, Message Expiry
    /// Interval, Subscription Identifiers and Will Delay Interval. It borrows unless something of those stands in between.
    pub fn forwarded(&self) -> Cow<'a, [u8]> {
        if self.present & !FORWARDED == 0 {
            return Cow::Borrowed(self.bytes);
        }
        let (mut kept, mut kept_end) = (Cow::Borrowed(&[][..]), 0);
        let (mut properties, mut start) = (self.iter(), 0);
        while let Some(property) = properties.next() {
            let end = self.bytes.len() - properties.reader.rest().len();
            if FORWARDED & (1 << property.id()) != 0 {
                match &mut kept {
                    Cow::Borrowed(run) if run.is_empty() => *run = &self.bytes[start..end],
                    Cow::Borrowed(run) if kept_end == start => *run = &self.bytes[start - run.len()..end],
                    more => more.to_mut().extend_from_slice(&self.bytes[start..end]),
                }
                kept_end = end;
            }
            start = end;
        }
        kept
    }

    /// Reads the Property Length and validates the properties behind it.
    #[inline]
    pub(super) fn read(reader: &mut Reader<'a>, place: Place) -> Result<Properties<'a>, Malformed> {
        let len = reader.variable_int(field!("Property Length"))?;
        if len == 0 {
            return Ok(Properties::EMPTY);
        }
        let bytes = reader.bytes(len as usize, field!("Properties"))?;
        let present = validate(bytes, place)?;
        Ok(Properties { bytes, present })
    }

    /// Appends the Property Length and the properties.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_variable_int(out, self.bytes.len());
        out.extend_from_slice(self.bytes);
    }
}

/// Checks properties against the place where they stand, and returns which of them there are.
fn validate(bytes: &[u8], place: Place) -> Result<u64, Malformed> {
    let (allowed, repeatable) = (place.allowed(), place.repeatable());
    let mut reader = Reader::new(bytes);
    let mut present: u64 = 0;
    while !reader.is_empty() {
        let bit = 1 << Property::read(&mut reader)?.id();
        if allowed & bit == 0 {
            return Err(Malformed::packet("Property Identifier: not one of this packet (2.2.2.2)"));
        }
        if present & bit & !repeatable != 0 {
            return Err(Malformed::protocol("Property: more than once (2.2.2.2)"));
        }
        present |= bit;
    }
    if place == Place::PublishFromClient && present & (1 << id::SUBSCRIPTION_IDENTIFIER) != 0 {
        return Err(Malformed::protocol("PUBLISH: Subscription Identifier from a client [MQTT-3.3.4-6]"));
    }
    if present & (1 << id::AUTHENTICATION_DATA) != 0 && present & (1 << id::AUTHENTICATION_METHOD) == 0 {
        return Err(Malformed::protocol("Authentication Data: without an Authentication Method (3.1.2.11.10)"));
    }
    Ok(present)
}

/// Whether bytes are properties as [`Properties::forwarded`] leaves them.
pub fn are_forwarded(bytes: &[u8]) -> bool {
    bytes.is_empty() || validate(bytes, Place::Publish).is_ok_and(|present| present & !FORWARDED == 0)
}

/// The properties of a packet, one after the other.
#[derive(Debug, Clone)]
pub struct PropertiesIter<'a> {
    reader: Reader<'a>,
}

impl<'a> Iterator for PropertiesIter<'a> {
    type Item = Property<'a>;

    #[inline]
    fn next(&mut self) -> Option<Property<'a>> {
        // The bytes are valid, so that reading them fails only at their end.
        if self.reader.is_empty() { None } else { Property::read(&mut self.reader).ok() }
    }
}

/// Properties that are being written. The order is that of the pushes. Who pushes sees to it that they may stand in the packet
/// for which they are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PropertiesBuf {
    bytes: Vec<u8>,
    present: u64,
}

impl PropertiesBuf {
    pub const fn new() -> PropertiesBuf {
        PropertiesBuf { bytes: Vec::new(), present: 0 }
    }

    /// Appends a property. Its strings and binary data are at most 65,535 bytes long.
    pub fn push(&mut self, property: Property<'_>) {
        property.put(&mut self.bytes);
        self.present |= 1 << property.id();
    }

    pub fn as_properties(&self) -> Properties<'_> {
        Properties { bytes: &self.bytes, present: self.present }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.present = 0;
    }
}
