//! One property of MQTT 5.0 (2.2.2): its identifier, its data type and the values it may have.

use super::codec::Malformed;
use super::wire::{Field, Reader, field, put_binary, put_u16, put_u32, put_variable_int};
use super::{QoS, ReasonCode};

/// A property with its value (2.2.2.2, table 2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property<'a> {
    /// Whether the payload is UTF-8 text.
    PayloadFormatIndicator(bool),
    /// Seconds.
    MessageExpiryInterval(u32),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    /// 1 to 268,435,455.
    SubscriptionIdentifier(u32),
    /// Seconds; `u32::MAX` is never.
    SessionExpiryInterval(u32),
    AssignedClientIdentifier(&'a str),
    /// Seconds; 0 turns it off.
    ServerKeepAlive(u16),
    AuthenticationMethod(&'a str),
    AuthenticationData(&'a [u8]),
    RequestProblemInformation(bool),
    /// Seconds.
    WillDelayInterval(u32),
    RequestResponseInformation(bool),
    ResponseInformation(&'a str),
    ServerReference(&'a str),
    ReasonString(&'a str),
    /// Not 0.
    ReceiveMaximum(u16),
    TopicAliasMaximum(u16),
    /// Not 0.
    TopicAlias(u16),
    /// QoS 0 or 1.
    MaximumQoS(QoS),
    RetainAvailable(bool),
    UserProperty(&'a str, &'a str),
    /// Bytes of a whole packet; not 0.
    MaximumPacketSize(u32),
    WildcardSubscriptionAvailable(bool),
    SubscriptionIdentifiersAvailable(bool),
    SharedSubscriptionAvailable(bool),
}

/// The identifiers of the properties (2.2.2.2). All of them fit in one byte, and in the bits of a `u64`.
pub(super) mod id {
    pub const PAYLOAD_FORMAT_INDICATOR: u8 = 0x01;
    pub const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
    pub const CONTENT_TYPE: u8 = 0x03;
    pub const RESPONSE_TOPIC: u8 = 0x08;
    pub const CORRELATION_DATA: u8 = 0x09;
    pub const SUBSCRIPTION_IDENTIFIER: u8 = 0x0B;
    pub const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
    pub const ASSIGNED_CLIENT_IDENTIFIER: u8 = 0x12;
    pub const SERVER_KEEP_ALIVE: u8 = 0x13;
    pub const AUTHENTICATION_METHOD: u8 = 0x15;
    pub const AUTHENTICATION_DATA: u8 = 0x16;
    pub const REQUEST_PROBLEM_INFORMATION: u8 = 0x17;
    pub const WILL_DELAY_INTERVAL: u8 = 0x18;
    pub const REQUEST_RESPONSE_INFORMATION: u8 = 0x19;
    pub const RESPONSE_INFORMATION: u8 = 0x1A;
    pub const SERVER_REFERENCE: u8 = 0x1C;
    pub const REASON_STRING: u8 = 0x1F;
    pub const RECEIVE_MAXIMUM: u8 = 0x21;
    pub const TOPIC_ALIAS_MAXIMUM: u8 = 0x22;
    pub const TOPIC_ALIAS: u8 = 0x23;
    pub const MAXIMUM_QOS: u8 = 0x24;
    pub const RETAIN_AVAILABLE: u8 = 0x25;
    pub const USER_PROPERTY: u8 = 0x26;
    pub const MAXIMUM_PACKET_SIZE: u8 = 0x27;
    pub const WILDCARD_SUBSCRIPTION_AVAILABLE: u8 = 0x28;
    pub const SUBSCRIPTION_IDENTIFIERS_AVAILABLE: u8 = 0x29;
    pub const SHARED_SUBSCRIPTION_AVAILABLE: u8 = 0x2A;
}

impl<'a> Property<'a> {
    /// The property's identifier.
    pub const fn id(&self) -> u8 {
        match self {
            Property::PayloadFormatIndicator(_) => id::PAYLOAD_FORMAT_INDICATOR,
            Property::MessageExpiryInterval(_) => id::MESSAGE_EXPIRY_INTERVAL,
            Property::ContentType(_) => id::CONTENT_TYPE,
            Property::ResponseTopic(_) => id::RESPONSE_TOPIC,
            Property::CorrelationData(_) => id::CORRELATION_DATA,
            Property::SubscriptionIdentifier(_) => id::SUBSCRIPTION_IDENTIFIER,
            Property::SessionExpiryInterval(_) => id::SESSION_EXPIRY_INTERVAL,
            Property::AssignedClientIdentifier(_) => id::ASSIGNED_CLIENT_IDENTIFIER,
            Property::ServerKeepAlive(_) => id::SERVER_KEEP_ALIVE,
            Property::AuthenticationMethod(_) => id::AUTHENTICATION_METHOD,
            Property::AuthenticationData(_) => id::AUTHENTICATION_DATA,
            Property::RequestProblemInformation(_) => id::REQUEST_PROBLEM_INFORMATION,
            Property::WillDelayInterval(_) => id::WILL_DELAY_INTERVAL,
            Property::RequestResponseInformation(_) => id::REQUEST_RESPONSE_INFORMATION,
            Property::ResponseInformation(_) => id::RESPONSE_INFORMATION,
            Property::ServerReference(_) => id::SERVER_REFERENCE,
            Property::ReasonString(_) => id::REASON_STRING,
            Property::ReceiveMaximum(_) => id::RECEIVE_MAXIMUM,
            Property::TopicAliasMaximum(_) => id::TOPIC_ALIAS_MAXIMUM,
            Property::TopicAlias(_) => id::TOPIC_ALIAS,
            Property::MaximumQoS(_) => id::MAXIMUM_QOS,
            Property::RetainAvailable(_) => id::RETAIN_AVAILABLE,
            Property::UserProperty(..) => id::USER_PROPERTY,
            Property::MaximumPacketSize(_) => id::MAXIMUM_PACKET_SIZE,
            Property::WildcardSubscriptionAvailable(_) => id::WILDCARD_SUBSCRIPTION_AVAILABLE,
            Property::SubscriptionIdentifiersAvailable(_) => id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE,
            Property::SharedSubscriptionAvailable(_) => id::SHARED_SUBSCRIPTION_AVAILABLE,
        }
    }

    /// Reads one property and checks its value. An unknown identifier is refused.
    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Property<'a>, Malformed> {
        let identifier = reader.u8(field!("Property Identifier"))?;
        Ok(match identifier {
            id::PAYLOAD_FORMAT_INDICATOR => {
                Property::PayloadFormatIndicator(flag(reader, field!("Payload Format Indicator"))?)
            }
            id::MESSAGE_EXPIRY_INTERVAL => {
                Property::MessageExpiryInterval(reader.u32(field!("Message Expiry Interval"))?)
            }
            id::CONTENT_TYPE => Property::ContentType(reader.string(field!("Content Type"))?),
            id::RESPONSE_TOPIC => Property::ResponseTopic(response_topic(reader)?),
            id::CORRELATION_DATA => {
                Property::CorrelationData(reader.binary(field!("Correlation Data"))?)
            }
            id::SUBSCRIPTION_IDENTIFIER => {
                Property::SubscriptionIdentifier(subscription_identifier(reader)?)
            }
            id::SESSION_EXPIRY_INTERVAL => {
                Property::SessionExpiryInterval(reader.u32(field!("Session Expiry Interval"))?)
            }
            id::ASSIGNED_CLIENT_IDENTIFIER => Property::AssignedClientIdentifier(
                reader.string(field!("Assigned Client Identifier"))?,
            ),
            id::SERVER_KEEP_ALIVE => {
                Property::ServerKeepAlive(reader.u16(field!("Server Keep Alive"))?)
            }
            id::AUTHENTICATION_METHOD => {
                Property::AuthenticationMethod(reader.string(field!("Authentication Method"))?)
            }
            id::AUTHENTICATION_DATA => {
                Property::AuthenticationData(reader.binary(field!("Authentication Data"))?)
            }
            id::REQUEST_PROBLEM_INFORMATION => Property::RequestProblemInformation(flag(
                reader,
                field!("Request Problem Information"),
            )?),
            id::WILL_DELAY_INTERVAL => {
                Property::WillDelayInterval(reader.u32(field!("Will Delay Interval"))?)
            }
            id::REQUEST_RESPONSE_INFORMATION => Property::RequestResponseInformation(flag(
                reader,
                field!("Request Response Information"),
            )?),
            id::RESPONSE_INFORMATION => {
                Property::ResponseInformation(reader.string(field!("Response Information"))?)
            }
            id::SERVER_REFERENCE => {
                Property::ServerReference(reader.string(field!("Server Reference"))?)
            }
            id::REASON_STRING => Property::ReasonString(reader.string(field!("Reason String"))?),
            id::RECEIVE_MAXIMUM => Property::ReceiveMaximum(not_zero(
                reader.u16(field!("Receive Maximum"))?,
                "Receive Maximum: is 0 (3.1.2.11.3)",
            )?),
            id::TOPIC_ALIAS_MAXIMUM => {
                Property::TopicAliasMaximum(reader.u16(field!("Topic Alias Maximum"))?)
            }
            id::TOPIC_ALIAS => Property::TopicAlias(topic_alias(reader)?),
            id::MAXIMUM_QOS => Property::MaximumQoS(maximum_qos(reader)?),
            id::RETAIN_AVAILABLE => {
                Property::RetainAvailable(flag(reader, field!("Retain Available"))?)
            }
            id::USER_PROPERTY => Property::UserProperty(
                reader.string(field!("User Property, name"))?,
                reader.string(field!("User Property, value"))?,
            ),
            id::MAXIMUM_PACKET_SIZE => Property::MaximumPacketSize(not_zero(
                reader.u32(field!("Maximum Packet Size"))?,
                "Maximum Packet Size: is 0 (3.1.2.11.4)",
            )?),
            id::WILDCARD_SUBSCRIPTION_AVAILABLE => Property::WildcardSubscriptionAvailable(flag(
                reader,
                field!("Wildcard Subscription Available"),
            )?),
            id::SUBSCRIPTION_IDENTIFIERS_AVAILABLE => Property::SubscriptionIdentifiersAvailable(
                flag(reader, field!("Subscription Identifiers Available"))?,
            ),
            id::SHARED_SUBSCRIPTION_AVAILABLE => Property::SharedSubscriptionAvailable(flag(
                reader,
                field!("Shared Subscription Available"),
            )?),
            _ => return Err(Malformed::packet("Property Identifier: unknown (2.2.2.2)")),
        })
    }

    /// Appends the property, identifier first.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.id());
        match *self {
            Property::PayloadFormatIndicator(value)
            | Property::RequestProblemInformation(value)
            | Property::RequestResponseInformation(value)
            | Property::RetainAvailable(value)
            | Property::WildcardSubscriptionAvailable(value)
            | Property::SubscriptionIdentifiersAvailable(value)
            | Property::SharedSubscriptionAvailable(value) => out.push(u8::from(value)),
            Property::MaximumQoS(qos) => out.push(qos as u8),
            Property::ServerKeepAlive(value)
            | Property::ReceiveMaximum(value)
            | Property::TopicAliasMaximum(value)
            | Property::TopicAlias(value) => put_u16(out, value),
            Property::MessageExpiryInterval(value)
            | Property::SessionExpiryInterval(value)
            | Property::WillDelayInterval(value)
            | Property::MaximumPacketSize(value) => put_u32(out, value),
            Property::SubscriptionIdentifier(value) => put_variable_int(out, value as usize),
            Property::CorrelationData(value) | Property::AuthenticationData(value) => {
                put_binary(out, value)
            }
            Property::ContentType(value)
            | Property::ResponseTopic(value)
            | Property::AssignedClientIdentifier(value)
            | Property::AuthenticationMethod(value)
            | Property::ResponseInformation(value)
            | Property::ServerReference(value)
            | Property::ReasonString(value) => put_binary(out, value.as_bytes()),
            Property::UserProperty(name, value) => {
                put_binary(out, name.as_bytes());
                put_binary(out, value.as_bytes());
            }
        }
    }
}

/// A byte that is 0 or 1. Anything else is a Protocol Error (3.1.2.11.6, 3.2.2.3.5, ...).
fn flag(reader: &mut Reader<'_>, field: &'static Field) -> Result<bool, Malformed> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::protocol(
            "Property: a value other than 0 and 1 (2.2.2.2)",
        )),
    }
}

fn not_zero<T: PartialEq + From<u8>>(value: T, what: &'static str) -> Result<T, Malformed> {
    if value == T::from(0) {
        Err(Malformed::protocol(what))
    } else {
        Ok(value)
    }
}

fn topic_alias(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    match reader.u16(field!("Topic Alias"))? {
        0 => Err(Malformed {
            reason: ReasonCode::TopicAliasInvalid,
            what: "Topic Alias: is 0 [MQTT-3.3.2-8]",
        }),
        alias => Ok(alias),
    }
}

fn subscription_identifier(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    not_zero(
        reader.variable_int(field!("Subscription Identifier"))?,
        "Subscription Identifier: is 0 (3.8.2.1.2)",
    )
}

fn maximum_qos(reader: &mut Reader<'_>) -> Result<QoS, Malformed> {
    match reader.u8(field!("Maximum QoS"))? {
        0 => Ok(QoS::AtMostOnce),
        1 => Ok(QoS::AtLeastOnce),
        _ => Err(Malformed::protocol(
            "Maximum QoS: a value other than 0 and 1 (3.2.2.3.4)",
        )),
    }
}

fn response_topic<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let topic = reader.string(field!("Response Topic"))?;
    if topic.is_empty() {
        return Err(Malformed::protocol("Response Topic: empty [MQTT-4.7.3-1]"));
    }
    if memchr::memchr2(b'+', b'#', topic.as_bytes()).is_some() {
        return Err(Malformed::protocol(
            "Response Topic: has wildcards [MQTT-3.3.2-14]",
        ));
    }
    Ok(topic)
}
