//! Packets of MQTT 5.0 in their words, made up of any values.

use bytes::Bytes;
use holdfast::mqtt::Peer;
use mqttbytes::v5;
use proptest::prelude::*;

use crate::{name, packet_id, payload, qos, text};

pub const CONNACK_CODES: [v5::ConnectReturnCode; 6] = [
    v5::ConnectReturnCode::Success,
    v5::ConnectReturnCode::MalformedPacket,
    v5::ConnectReturnCode::NotAuthorized,
    v5::ConnectReturnCode::ServerBusy,
    v5::ConnectReturnCode::QuotaExceeded,
    v5::ConnectReturnCode::ConnectionRateExceeded,
];
pub const PUBACK_REASONS: [v5::PubAckReason; 4] = [
    v5::PubAckReason::Success,
    v5::PubAckReason::NoMatchingSubscribers,
    v5::PubAckReason::NotAuthorized,
    v5::PubAckReason::PayloadFormatInvalid,
];
pub const PUBREC_REASONS: [v5::PubRecReason; 4] = [
    v5::PubRecReason::Success,
    v5::PubRecReason::NoMatchingSubscribers,
    v5::PubRecReason::PacketIdentifierInUse,
    v5::PubRecReason::QuotaExceeded,
];
pub const PUBREL_REASONS: [v5::PubRelReason; 2] =
    [v5::PubRelReason::Success, v5::PubRelReason::PacketIdentifierNotFound];
pub const PUBCOMP_REASONS: [v5::PubCompReason; 2] =
    [v5::PubCompReason::Success, v5::PubCompReason::PacketIdentifierNotFound];
pub const SUBACK_CODES: [v5::SubscribeReasonCode; 5] = [
    v5::SubscribeReasonCode::QoS0,
    v5::SubscribeReasonCode::QoS2,
    v5::SubscribeReasonCode::NotAuthorized,
    v5::SubscribeReasonCode::TopicFilterInvalid,
    v5::SubscribeReasonCode::WildcardSubscriptionsNotSupported,
];
pub const UNSUBACK_REASONS: [v5::UnsubAckReason; 3] =
    [v5::UnsubAckReason::Success, v5::UnsubAckReason::NoSubscriptionExisted, v5::UnsubAckReason::NotAuthorized];

pub fn user() -> impl Strategy<Value = Vec<(String, String)>> {
    proptest::collection::vec((text(), text()), 0..3)
}

fn flag() -> impl Strategy<Value = Option<u8>> {
    proptest::option::of(0..=1_u8)
}

fn maybe_text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(text())
}

fn maybe_bytes() -> impl Strategy<Value = Option<Bytes>> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..10).prop_map(Bytes::from);
    proptest::option::of(bytes)
}

fn not_zero() -> impl Strategy<Value = Option<u16>> {
    proptest::option::of(1..=u16::MAX)
}

/// Authentication Data stands only with a method.
fn authentication() -> impl Strategy<Value = (Option<String>, Option<Bytes>)> {
    (maybe_text(), maybe_bytes()).prop_map(|(method, data)| {
        let data = method.as_ref().and(data);
        (method, data)
    })
}

fn connect_properties() -> impl Strategy<Value = Option<v5::ConnectProperties>> {
    let numbers = (any::<Option<u32>>(), not_zero(), proptest::option::of(1..=u32::MAX), any::<Option<u16>>());
    (numbers, flag(), flag(), user(), authentication()).prop_map(
        |(numbers, request_response_info, request_problem_info, user_properties, authentication)| {
            let properties = v5::ConnectProperties {
                session_expiry_interval: numbers.0,
                receive_maximum: numbers.1,
                max_packet_size: numbers.2,
                topic_alias_max: numbers.3,
                request_response_info,
                request_problem_info,
                user_properties,
                authentication_method: authentication.0,
                authentication_data: authentication.1,
            };
            let empty = v5::ConnectProperties {
                session_expiry_interval: None,
                receive_maximum: None,
                max_packet_size: None,
                topic_alias_max: None,
                request_response_info: None,
                request_problem_info: None,
                user_properties: Vec::new(),
                authentication_method: None,
                authentication_data: None,
            };
            (properties != empty).then_some(properties)
        },
    )
}

fn will_properties() -> impl Strategy<Value = Option<v5::WillProperties>> {
    // The delay is always there, so that the properties are never empty.
    let properties =
        (any::<u32>(), flag(), any::<Option<u32>>(), maybe_text(), proptest::option::of(name()), maybe_bytes(), user());
    let properties = properties.prop_map(|parts| v5::WillProperties {
        delay_interval: Some(parts.0),
        payload_format_indicator: parts.1,
        message_expiry_interval: parts.2,
        content_type: parts.3,
        response_topic: parts.4,
        correlation_data: parts.5,
        user_properties: parts.6,
    });
    proptest::option::of(properties)
}

pub fn connect() -> impl Strategy<Value = v5::Connect> {
    let will_payload = proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let will = (name(), will_payload, qos(), any::<bool>(), will_properties())
        .prop_map(|(topic, message, qos, retain, properties)| v5::LastWill { topic, message, qos, retain, properties });
    let login = (name(), name()).prop_map(|(username, password)| v5::Login { username, password });
    let (will, login) = (proptest::option::of(will), proptest::option::of(login));
    let head = (any::<u16>(), text(), any::<bool>());
    (head, will, login, connect_properties()).prop_map(
        |((keep_alive, client_id, clean_session), last_will, login, properties)| v5::Connect {
            protocol: mqttbytes::Protocol::V5,
            keep_alive,
            client_id,
            clean_session,
            last_will,
            login,
            properties,
        },
    )
}

pub fn connack() -> impl Strategy<Value = v5::ConnAck> {
    let numbers = (any::<Option<u32>>(), not_zero(), 1..=u32::MAX, any::<Option<u16>>(), any::<Option<u16>>());
    let flags = (flag(), flag(), flag(), flag(), flag());
    let texts = (maybe_text(), maybe_text(), maybe_text(), maybe_text());
    let code = proptest::sample::select(&CONNACK_CODES[..]);
    (code, any::<bool>(), numbers, flags, texts, user(), authentication()).prop_map(
        |(code, present, numbers, flags, texts, user_properties, authentication)| v5::ConnAck {
            session_present: present && code == v5::ConnectReturnCode::Success,
            code,
            properties: Some(v5::ConnAckProperties {
                session_expiry_interval: numbers.0,
                receive_max: numbers.1,
                max_packet_size: Some(numbers.2),
                topic_alias_max: numbers.3,
                server_keep_alive: numbers.4,
                max_qos: flags.0,
                retain_available: flags.1,
                wildcard_subscription_available: flags.2,
                subscription_identifiers_available: flags.3,
                shared_subscription_available: flags.4,
                assigned_client_identifier: texts.0,
                reason_string: texts.1,
                response_information: texts.2,
                server_reference: texts.3,
                user_properties,
                authentication_method: authentication.0,
                authentication_data: authentication.1,
            }),
        },
    )
}

fn publish_properties(from: Peer) -> impl Strategy<Value = Option<v5::PublishProperties>> {
    let id = prop_oneof![1..200_usize, 1..=268_435_455_usize];
    let ids = proptest::collection::vec(id, if from == Peer::Server { 0..=1 } else { 0..=0 });
    // The expiry is always there, so that the properties are never empty.
    let properties =
        (flag(), any::<u32>(), not_zero(), proptest::option::of(name()), maybe_bytes(), user(), ids, maybe_text());
    let properties = properties.prop_map(|parts| v5::PublishProperties {
        payload_format_indicator: parts.0,
        message_expiry_interval: Some(parts.1),
        topic_alias: parts.2,
        response_topic: parts.3,
        correlation_data: parts.4,
        user_properties: parts.5,
        subscription_identifiers: parts.6,
        content_type: parts.7,
    });
    proptest::option::of(properties)
}

pub fn publish(from: Peer) -> impl Strategy<Value = v5::Publish> {
    let flags = (any::<bool>(), any::<bool>());
    (flags, qos(), name(), packet_id(), publish_properties(from), payload()).prop_map(
        |((dup, retain), qos, topic, pkid, properties, payload)| {
            let acknowledged = qos != mqttbytes::QoS::AtMostOnce;
            v5::Publish {
                dup: dup && acknowledged,
                qos,
                retain,
                topic,
                pkid: if acknowledged { pkid } else { 0 },
                properties,
                payload,
            }
        },
    )
}

pub fn subscribe() -> impl Strategy<Value = v5::Subscribe> {
    let rule = prop_oneof![
        Just(v5::RetainForwardRule::OnEverySubscribe),
        Just(v5::RetainForwardRule::OnNewSubscribe),
        Just(v5::RetainForwardRule::Never)
    ];
    let filter =
        (name(), qos(), any::<bool>(), any::<bool>(), rule).prop_map(|(path, qos, nolocal, preserve_retain, rule)| {
            let mut filter = v5::SubscribeFilter::new(path, qos);
            filter.nolocal = nolocal;
            filter.preserve_retain = preserve_retain;
            filter.retain_forward_rule = rule;
            filter
        });
    let properties = (1..=268_435_455_usize, user())
        .prop_map(|(id, user_properties)| v5::SubscribeProperties { id: Some(id), user_properties });
    let filters = proptest::collection::vec(filter, 1..4);
    (packet_id(), filters, proptest::option::of(properties)).prop_map(|(pkid, filters, properties)| v5::Subscribe {
        pkid,
        filters,
        properties,
    })
}

/// A Reason String, always there so that the properties are never empty, and User Properties.
pub fn reason_properties() -> impl Strategy<Value = Option<(String, Vec<(String, String)>)>> {
    proptest::option::of((text(), user()))
}
