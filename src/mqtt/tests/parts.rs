//! What properties and packets are made up of in tests: any values, put together so that the packet is legal.

use proptest::prelude::*;

use super::super::{
    Ack, AckKind, Auth, ConnAck, Connect, Disconnect, Packet, PacketId, PacketType, Peer, PropertiesBuf, Property,
    ProtocolVersion, Publish, QoS, ReasonCode, RetainHandling, SubAck, Subscribe, SubscribeFiltersBuf,
    SubscriptionOptions, UnsubAck, Unsubscribe, UnsubscribeFiltersBuf, Will,
};

/// Where properties are put. The lists below are written from the specification, not from the codec (2.2.2.2, table 2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Connect,
    Will,
    ConnAck,
    PublishFromClient,
    PublishFromServer,
    Ack,
    Subscribe,
    Unsubscribe,
    DisconnectFromClient,
    DisconnectFromServer,
    Auth,
}

impl Place {
    const fn ids(self) -> &'static [u8] {
        match self {
            Place::Connect => &[0x11, 0x15, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27],
            Place::Will => &[0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26],
            Place::ConnAck => {
                &[0x11, 0x12, 0x13, 0x15, 0x1A, 0x1C, 0x1F, 0x21, 0x22, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A]
            }
            Place::PublishFromClient => &[0x01, 0x02, 0x03, 0x08, 0x09, 0x23, 0x26],
            Place::PublishFromServer => &[0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26],
            Place::Ack => &[0x1F, 0x26],
            Place::Subscribe => &[0x0B, 0x26],
            Place::Unsubscribe => &[0x26],
            Place::DisconnectFromClient => &[0x11, 0x1F, 0x26],
            Place::DisconnectFromServer => &[0x1C, 0x1F, 0x26],
            Place::Auth => &[0x16, 0x1F, 0x26],
        }
    }
}

/// Any values, from which a property of any kind can be made.
#[derive(Debug, Clone)]
pub struct Value {
    pick: u8,
    number: u32,
    text: String,
    more: String,
    bytes: Vec<u8>,
}

impl Arbitrary for Value {
    type Parameters = ();
    type Strategy = BoxedStrategy<Value>;

    fn arbitrary_with((): ()) -> BoxedStrategy<Value> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..6);
        (any::<u8>(), number(), plain(), plain(), bytes)
            .prop_map(|(pick, number, text, more, bytes)| Value { pick, number, text, more, bytes })
            .boxed()
    }
}

/// Numbers of every length as a variable byte integer.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..3_u32, 120..140_u32, 16_380..16_390_u32, any::<u32>()]
}

/// Strings without U+0000 and without wildcards.
fn plain() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/]{0,8}", "[^\\x00+#]{0,5}", Just("\u{FEFF}\u{10FFFF}".to_owned())]
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z/]{1,30}", "[^\\x00+#]{1,10}", Just("t".repeat(200)), Just("t".repeat(20_000))]
}

impl Value {
    fn property(&self, id: u8) -> Option<Property<'_>> {
        let (number, short) = (self.number, self.number as u16);
        let flag = number & 1 == 1;
        Some(match id {
            0x01 => Property::PayloadFormatIndicator(flag),
            0x02 => Property::MessageExpiryInterval(number),
            0x03 => Property::ContentType(&self.text),
            0x08 => Property::ResponseTopic(if self.text.is_empty() { "r" } else { &self.text }),
            0x09 => Property::CorrelationData(&self.bytes),
            0x0B => Property::SubscriptionIdentifier(number.clamp(1, 268_435_455)),
            0x11 => Property::SessionExpiryInterval(number),
            0x12 => Property::AssignedClientIdentifier(&self.text),
            0x13 => Property::ServerKeepAlive(short),
            0x15 => Property::AuthenticationMethod(&self.text),
            0x16 => Property::AuthenticationData(&self.bytes),
            0x17 => Property::RequestProblemInformation(flag),
            0x18 => Property::WillDelayInterval(number),
            0x19 => Property::RequestResponseInformation(flag),
            0x1A => Property::ResponseInformation(&self.text),
            0x1C => Property::ServerReference(&self.text),
            0x1F => Property::ReasonString(&self.text),
            0x21 => Property::ReceiveMaximum(short.max(1)),
            0x22 => Property::TopicAliasMaximum(short),
            0x23 => Property::TopicAlias(short.max(1)),
            0x24 => Property::MaximumQoS(if flag { QoS::AtLeastOnce } else { QoS::AtMostOnce }),
            0x25 => Property::RetainAvailable(flag),
            0x26 => Property::UserProperty(&self.text, &self.more),
            0x27 => Property::MaximumPacketSize(number.max(1)),
            0x28 => Property::WildcardSubscriptionAvailable(flag),
            0x29 => Property::SubscriptionIdentifiersAvailable(flag),
            0x2A => Property::SharedSubscriptionAvailable(flag),
            _ => return None,
        })
    }
}

/// Legal properties for this place: one for each value, without those that would be doubled.
pub fn properties(place: Place, values: &[Value]) -> PropertiesBuf {
    let (mut buf, mut seen) = (PropertiesBuf::new(), Vec::new());
    if place == Place::Auth {
        buf.push(Property::AuthenticationMethod("method"));
    }
    for value in values {
        let id = place.ids()[usize::from(value.pick) % place.ids().len()];
        let repeatable = id == 0x26 || (id == 0x0B && place == Place::PublishFromServer);
        if seen.contains(&id) && !repeatable {
            continue;
        }
        seen.push(id);
        buf.push(value.property(id).expect("a known identifier"));
    }
    buf
}

/// Any values, from which a packet of any type can be made.
#[derive(Debug, Clone)]
pub struct Parts {
    pub version: ProtocolVersion,
    flags: [bool; 4],
    qos: QoS,
    packet_id: PacketId,
    number: u32,
    name: String,
    texts: [String; 3],
    payload: Vec<u8>,
    bytes: Vec<u8>,
    values: Vec<Value>,
    more_values: Vec<Value>,
    filters: Vec<(String, SubscriptionOptions)>,
    pick: usize,
}

impl Arbitrary for Parts {
    type Parameters = ();
    type Strategy = BoxedStrategy<Parts>;

    fn arbitrary_with((): ()) -> BoxedStrategy<Parts> {
        let payload = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            proptest::collection::vec(any::<u8>(), 100..200),
            Just(vec![7; 20_000])
        ];
        let values = || proptest::collection::vec(any::<Value>(), 0..6);
        let filters = proptest::collection::vec((name(), options()), 1..4);
        let scalars = (version(), any::<[bool; 4]>(), qos(), 1..=u16::MAX, number());
        let texts = (name(), [plain(), plain(), plain()]);
        let bytes = proptest::collection::vec(any::<u8>(), 0..10);
        (scalars, texts, payload, bytes, values(), values(), filters, any::<usize>())
            .prop_map(|(scalars, texts, payload, bytes, values, more_values, filters, pick)| {
                let (version, flags, qos, packet_id, number) = scalars;
                Parts {
                    version,
                    flags,
                    qos,
                    packet_id: PacketId::new(packet_id).expect("from 1"),
                    number,
                    name: texts.0,
                    texts: texts.1,
                    payload,
                    bytes,
                    values,
                    more_values,
                    filters,
                    pick,
                }
            })
            .boxed()
    }
}

pub fn version() -> impl Strategy<Value = ProtocolVersion> {
    prop_oneof![Just(ProtocolVersion::V3_1), Just(ProtocolVersion::V3_1_1), Just(ProtocolVersion::V5)]
}

fn qos() -> impl Strategy<Value = QoS> {
    prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)]
}

fn options() -> impl Strategy<Value = SubscriptionOptions> {
    (qos(), any::<bool>(), any::<bool>(), 0..3).prop_map(|(qos, no_local, retain_as_published, retain_handling)| {
        SubscriptionOptions {
            qos,
            no_local,
            retain_as_published,
            retain_handling: match retain_handling {
                0 => RetainHandling::SendAtSubscribe,
                1 => RetainHandling::SendIfNew,
                _ => RetainHandling::DoNotSend,
            },
        }
    })
}

/// Every type of packet with a side that may send it.
pub const KINDS: [(PacketType, Peer); 18] = [
    (PacketType::Connect, Peer::Client),
    (PacketType::ConnAck, Peer::Server),
    (PacketType::Publish, Peer::Client),
    (PacketType::Publish, Peer::Server),
    (PacketType::PubAck, Peer::Client),
    (PacketType::PubRec, Peer::Server),
    (PacketType::PubRel, Peer::Client),
    (PacketType::PubComp, Peer::Server),
    (PacketType::Subscribe, Peer::Client),
    (PacketType::SubAck, Peer::Server),
    (PacketType::Unsubscribe, Peer::Client),
    (PacketType::UnsubAck, Peer::Server),
    (PacketType::PingReq, Peer::Client),
    (PacketType::PingResp, Peer::Server),
    (PacketType::Disconnect, Peer::Client),
    (PacketType::Disconnect, Peer::Server),
    (PacketType::Auth, Peer::Client),
    (PacketType::Auth, Peer::Server),
];

/// Whether a version has this packet from this side.
pub fn exists(packet_type: PacketType, from: Peer, version: ProtocolVersion) -> bool {
    match packet_type {
        PacketType::Auth => version.is_v5(),
        PacketType::Disconnect => version.is_v5() || from == Peer::Client,
        _ => true,
    }
}

impl Parts {
    fn v5(&self) -> bool {
        self.version.is_v5()
    }

    /// One of these in MQTT 5.0, else Success.
    fn reason(&self, reasons: &[ReasonCode]) -> ReasonCode {
        if self.v5() { reasons[self.pick % reasons.len()] } else { ReasonCode::Success }
    }

    fn properties(&self, place: Place) -> PropertiesBuf {
        properties(place, if self.v5() { &self.values } else { &[] })
    }

    /// Makes a legal packet and hands it on. It borrows from these parts.
    pub fn with_packet<R>(&self, packet_type: PacketType, from: Peer, then: impl FnOnce(Packet<'_>) -> R) -> R {
        match packet_type {
            PacketType::Connect => self.connect(then),
            PacketType::ConnAck => self.connack(then),
            PacketType::Publish => self.publish(from, then),
            PacketType::PubAck => self.ack(AckKind::PubAck, |ack| then(Packet::PubAck(ack))),
            PacketType::PubRec => self.ack(AckKind::PubRec, |ack| then(Packet::PubRec(ack))),
            PacketType::PubRel => self.ack(AckKind::PubRel, |ack| then(Packet::PubRel(ack))),
            PacketType::PubComp => self.ack(AckKind::PubComp, |ack| then(Packet::PubComp(ack))),
            PacketType::Subscribe => self.subscribe(then),
            PacketType::SubAck => self.suback(then),
            PacketType::Unsubscribe => self.unsubscribe(then),
            PacketType::UnsubAck => self.unsuback(then),
            PacketType::PingReq => then(Packet::PingReq),
            PacketType::PingResp => then(Packet::PingResp),
            PacketType::Disconnect => self.disconnect(from, then),
            PacketType::Auth => self.auth(from, then),
        }
    }

    fn connect<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Connect);
        let will_values: &[Value] = if self.v5() { &self.more_values } else { &[] };
        let will_properties = super::parts::properties(Place::Will, will_values);
        let [clean_start, has_will, has_user_name, has_password] = self.flags;
        let will = Will {
            qos: self.qos,
            retain: self.number & 1 == 1,
            properties: will_properties.as_properties(),
            topic: &self.name,
            payload: &self.payload,
        };
        then(Packet::Connect(Connect {
            version: self.version,
            clean_start,
            keep_alive_secs: self.number as u16,
            client_id: if self.v5() { &self.texts[0] } else { "client" },
            properties: properties.as_properties(),
            will: has_will.then_some(will),
            user_name: has_user_name.then_some(&self.texts[1]),
            password: (has_password && (has_user_name || self.v5())).then_some(&self.bytes),
        }))
    }

    fn connack<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::ConnAck);
        let reasons = [
            ReasonCode::Success,
            ReasonCode::BadUserNameOrPassword,
            ReasonCode::NotAuthorized,
            ReasonCode::ServerUnavailable,
            ReasonCode::UnsupportedProtocolVersion,
            ReasonCode::ClientIdentifierNotValid,
        ];
        let reason = reasons[self.pick % reasons.len()];
        let may_be_present = reason == ReasonCode::Success && self.version != ProtocolVersion::V3_1;
        then(Packet::ConnAck(ConnAck {
            session_present: may_be_present && self.flags[0],
            reason,
            properties: properties.as_properties(),
        }))
    }

    fn publish<R>(&self, from: Peer, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let place = match from {
            Peer::Client => Place::PublishFromClient,
            Peer::Server => Place::PublishFromServer,
        };
        let properties = self.properties(place);
        let by_alias = self.flags[2] && properties.as_properties().topic_alias().is_some();
        then(Packet::Publish(Publish {
            dup: self.flags[0] && self.qos != QoS::AtMostOnce,
            qos: self.qos,
            retain: self.flags[1],
            topic: if by_alias { "" } else { &self.name },
            packet_id: (self.qos != QoS::AtMostOnce).then_some(self.packet_id),
            properties: properties.as_properties(),
            payload: &self.payload,
        }))
    }

    fn ack<R>(&self, kind: AckKind, then: impl FnOnce(Ack<'_>) -> R) -> R {
        let properties = self.properties(Place::Ack);
        let reason = match kind {
            AckKind::PubAck | AckKind::PubRec => {
                self.reason(&[ReasonCode::Success, ReasonCode::NoMatchingSubscribers, ReasonCode::QuotaExceeded])
            }
            AckKind::PubRel | AckKind::PubComp => {
                self.reason(&[ReasonCode::Success, ReasonCode::PacketIdentifierNotFound])
            }
        };
        then(Ack { packet_id: self.packet_id, reason, properties: properties.as_properties() })
    }

    fn subscribe<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Subscribe);
        let mut filters = SubscribeFiltersBuf::default();
        for (filter, options) in &self.filters {
            let before_v5 = SubscriptionOptions { qos: options.qos, ..SubscriptionOptions::default() };
            filters.push(filter, if self.v5() { *options } else { before_v5 });
        }
        then(Packet::Subscribe(Subscribe {
            packet_id: self.packet_id,
            properties: properties.as_properties(),
            filters: filters.as_filters(),
        }))
    }

    fn suback<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Ack);
        let legal = if self.v5() { &[0, 1, 2, 0x80, 0x87, 0x8F, 0xA1, 0xA2][..] } else { &[0, 1, 2, 0x80] };
        let codes: Vec<u8> =
            (0..self.filters.len()).map(|index| legal[self.pick.wrapping_add(index) % legal.len()]).collect();
        then(Packet::SubAck(SubAck {
            packet_id: self.packet_id,
            properties: properties.as_properties(),
            codes: &codes,
        }))
    }

    fn unsubscribe<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Unsubscribe);
        let mut filters = UnsubscribeFiltersBuf::default();
        self.filters.iter().for_each(|(filter, _)| filters.push(filter));
        then(Packet::Unsubscribe(Unsubscribe {
            packet_id: self.packet_id,
            properties: properties.as_properties(),
            filters: filters.as_filters(),
        }))
    }

    fn unsuback<R>(&self, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Ack);
        let codes: &[u8] = if self.v5() { &[0, 0x11, 0x80] } else { &[] };
        then(Packet::UnsubAck(UnsubAck { packet_id: self.packet_id, properties: properties.as_properties(), codes }))
    }

    fn disconnect<R>(&self, from: Peer, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let (place, reasons) = match from {
            Peer::Client => {
                (Place::DisconnectFromClient, [ReasonCode::NormalDisconnection, ReasonCode::DisconnectWithWill])
            }
            Peer::Server => {
                (Place::DisconnectFromServer, [ReasonCode::ServerShuttingDown, ReasonCode::UseAnotherServer])
            }
        };
        let properties = self.properties(place);
        then(Packet::Disconnect(Disconnect { reason: self.reason(&reasons), properties: properties.as_properties() }))
    }

    fn auth<R>(&self, from: Peer, then: impl FnOnce(Packet<'_>) -> R) -> R {
        let properties = self.properties(Place::Auth);
        let other = match from {
            Peer::Client => ReasonCode::ReAuthenticate,
            Peer::Server => ReasonCode::Success,
        };
        then(Packet::Auth(Auth {
            reason: self.reason(&[ReasonCode::ContinueAuthentication, other]),
            properties: properties.as_properties(),
        }))
    }
}
