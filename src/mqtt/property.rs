//! One property of MQTT 5.0 (2.2.2): its identifier, its data type and the values it may have, all in one table.

use super::codec::Malformed;
use super::wire::{Field, Reader, field, put_binary, put_u16, put_u32, put_variable_int};
use super::{QoS, ReasonCode};

/// Makes the type, the identifiers and both directions of the codec from the table below. A line is: identifier, its constant,
/// the variant with the type of its value, the function that reads and checks the value, the one that writes it, and the name
/// as the specification prints it. User Property, the only pair, is written out.
macro_rules! properties {
    ($($id:literal $constant:ident $variant:ident($value:ty) $read:ident $put:ident $text:literal;)*) => {
        /// A property with its value (2.2.2.2, table 2-4). Intervals and Keep Alive are seconds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Property<'a> {
            $(#[doc = $text] $variant($value),)*
            /// User Property: a name and a value
            UserProperty(&'a str, &'a str),
        }

        /// The identifiers (2.2.2.2). All of them fit in one byte, and in the bits of a `u64`.
        pub(super) mod id {
            $(pub const $constant: u8 = $id;)*
            pub const USER_PROPERTY: u8 = 0x26;
        }

        impl<'a> Property<'a> {
            /// The property's identifier.
            pub const fn id(&self) -> u8 {
                match self {
                    $(Property::$variant(_) => $id,)*
                    Property::UserProperty(..) => id::USER_PROPERTY,
                }
            }

            /// Reads one property and checks its value. An unknown identifier is refused.
            pub(super) fn read(reader: &mut Reader<'a>) -> Result<Property<'a>, Malformed> {
                Ok(match reader.u8(field!("Property Identifier"))? {
                    $($id => Property::$variant($read(reader, field!($text))?),)*
                    id::USER_PROPERTY => Property::UserProperty(
                        reader.string(field!("User Property, name"))?,
                        reader.string(field!("User Property, value"))?,
                    ),
                    _ => return Err(Malformed::packet("Property Identifier: unknown (2.2.2.2)")),
                })
            }

            /// Appends the property, identifier first.
            pub(super) fn put(&self, out: &mut Vec<u8>) {
                out.push(self.id());
                match *self {
                    $(Property::$variant(value) => $put(out, value),)*
                    Property::UserProperty(name, value) => {
                        put_string(out, name);
                        put_string(out, value);
                    }
                }
            }
        }
    };
}

properties! {
    0x01 PAYLOAD_FORMAT_INDICATOR PayloadFormatIndicator(bool) flag put_flag "Payload Format Indicator";
    0x02 MESSAGE_EXPIRY_INTERVAL MessageExpiryInterval(u32) four_bytes put_u32 "Message Expiry Interval";
    0x03 CONTENT_TYPE ContentType(&'a str) string put_string "Content Type";
    0x08 RESPONSE_TOPIC ResponseTopic(&'a str) response_topic put_string "Response Topic";
    0x09 CORRELATION_DATA CorrelationData(&'a [u8]) binary put_binary "Correlation Data";
    0x0B SUBSCRIPTION_IDENTIFIER SubscriptionIdentifier(u32) subscription_identifier put_subscription_identifier "Subscription Identifier";
    0x11 SESSION_EXPIRY_INTERVAL SessionExpiryInterval(u32) four_bytes put_u32 "Session Expiry Interval";
    0x12 ASSIGNED_CLIENT_IDENTIFIER AssignedClientIdentifier(&'a str) string put_string "Assigned Client Identifier";
    0x13 SERVER_KEEP_ALIVE ServerKeepAlive(u16) two_bytes put_u16 "Server Keep Alive";
    0x15 AUTHENTICATION_METHOD AuthenticationMethod(&'a str) string put_string "Authentication Method";
    0x16 AUTHENTICATION_DATA AuthenticationData(&'a [u8]) binary put_binary "Authentication Data";
    0x17 REQUEST_PROBLEM_INFORMATION RequestProblemInformation(bool) flag put_flag "Request Problem Information";
    0x18 WILL_DELAY_INTERVAL WillDelayInterval(u32) four_bytes put_u32 "Will Delay Interval";
    0x19 REQUEST_RESPONSE_INFORMATION RequestResponseInformation(bool) flag put_flag "Request Response Information";
    0x1A RESPONSE_INFORMATION ResponseInformation(&'a str) string put_string "Response Information";
    0x1C SERVER_REFERENCE ServerReference(&'a str) string put_string "Server Reference";
    0x1F REASON_STRING ReasonString(&'a str) string put_string "Reason String";
    0x21 RECEIVE_MAXIMUM ReceiveMaximum(u16) receive_maximum put_u16 "Receive Maximum";
    0x22 TOPIC_ALIAS_MAXIMUM TopicAliasMaximum(u16) two_bytes put_u16 "Topic Alias Maximum";
    0x23 TOPIC_ALIAS TopicAlias(u16) topic_alias put_u16 "Topic Alias";
    0x24 MAXIMUM_QOS MaximumQoS(QoS) maximum_qos put_qos "Maximum QoS";
    0x25 RETAIN_AVAILABLE RetainAvailable(bool) flag put_flag "Retain Available";
    0x27 MAXIMUM_PACKET_SIZE MaximumPacketSize(u32) maximum_packet_size put_u32 "Maximum Packet Size";
    0x28 WILDCARD_SUBSCRIPTION_AVAILABLE WildcardSubscriptionAvailable(bool) flag put_flag "Wildcard Subscription Available";
    0x29 SUBSCRIPTION_IDENTIFIERS_AVAILABLE SubscriptionIdentifiersAvailable(bool) flag put_flag "Subscription Identifiers Available";
    0x2A SHARED_SUBSCRIPTION_AVAILABLE SharedSubscriptionAvailable(bool) flag put_flag "Shared Subscription Available";
}

/// A byte that is 0 or 1. Anything else is a Protocol Error (3.1.2.11.6, 3.2.2.3.5, ...).
fn flag(reader: &mut Reader<'_>, field: &'static Field) -> Result<bool, Malformed> {
    match reader.u8(field)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::protocol("Property: a value other than 0 and 1 (2.2.2.2)")),
    }
}

fn two_bytes(reader: &mut Reader<'_>, field: &'static Field) -> Result<u16, Malformed> {
    reader.u16(field)
}

fn four_bytes(reader: &mut Reader<'_>, field: &'static Field) -> Result<u32, Malformed> {
    reader.u32(field)
}

fn string<'a>(reader: &mut Reader<'a>, field: &'static Field) -> Result<&'a str, Malformed> {
    reader.string(field)
}

fn binary<'a>(reader: &mut Reader<'a>, field: &'static Field) -> Result<&'a [u8], Malformed> {
    reader.binary(field)
}

fn receive_maximum(reader: &mut Reader<'_>, field: &'static Field) -> Result<u16, Malformed> {
    match reader.u16(field)? {
        0 => Err(Malformed::protocol("Receive Maximum: is 0 (3.1.2.11.3)")),
        maximum => Ok(maximum),
    }
}

fn maximum_packet_size(reader: &mut Reader<'_>, field: &'static Field) -> Result<u32, Malformed> {
    match reader.u32(field)? {
        0 => Err(Malformed::protocol("Maximum Packet Size: is 0 (3.1.2.11.4)")),
        maximum => Ok(maximum),
    }
}

fn topic_alias(reader: &mut Reader<'_>, field: &'static Field) -> Result<u16, Malformed> {
    match reader.u16(field)? {
        0 => Err(Malformed { reason: ReasonCode::TopicAliasInvalid, what: "Topic Alias: is 0 [MQTT-3.3.2-8]" }),
        alias => Ok(alias),
    }
}

fn subscription_identifier(reader: &mut Reader<'_>, field: &'static Field) -> Result<u32, Malformed> {
    match reader.variable_int(field)? {
        0 => Err(Malformed::protocol("Subscription Identifier: is 0 (3.8.2.1.2)")),
        identifier => Ok(identifier),
    }
}

fn maximum_qos(reader: &mut Reader<'_>, field: &'static Field) -> Result<QoS, Malformed> {
    match reader.u8(field)? {
        0 => Ok(QoS::AtMostOnce),
        1 => Ok(QoS::AtLeastOnce),
        _ => Err(Malformed::protocol("Maximum QoS: a value other than 0 and 1 (3.2.2.3.4)")),
    }
}

fn response_topic<'a>(reader: &mut Reader<'a>, field: &'static Field) -> Result<&'a str, Malformed> {
    let topic = reader.string(field)?;
    if topic.is_empty() {
        return Err(Malformed::protocol("Response Topic: empty [MQTT-4.7.3-1]"));
    }
    if memchr::memchr2(b'+', b'#', topic.as_bytes()).is_some() {
        return Err(Malformed::protocol("Response Topic: has wildcards [MQTT-3.3.2-14]"));
    }
    Ok(topic)
}

fn put_flag(out: &mut Vec<u8>, value: bool) {
    out.push(u8::from(value));
}

fn put_qos(out: &mut Vec<u8>, value: QoS) {
    out.push(value as u8);
}

fn put_string(out: &mut Vec<u8>, value: &str) {
    put_binary(out, value.as_bytes());
}

fn put_subscription_identifier(out: &mut Vec<u8>, value: u32) {
    put_variable_int(out, value as usize);
}
