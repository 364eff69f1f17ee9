//! Properties: what they hold, in which order, and what of them is forwarded.

use std::borrow::Cow;

use proptest::prelude::*;

use super::super::{Packet, Peer, Properties, PropertiesBuf, Property, QoS};
use super::parts::{Place, Value, properties};
use super::{V5, decode_one, packet};

/// The properties of a PUBLISH of the server with these raw bytes.
fn of_publish(raw: &[u8]) -> Vec<u8> {
    let mut body = b"\0\x01a".to_vec();
    super::super::wire::put_variable_int(&mut body, raw.len());
    body.extend_from_slice(raw);
    packet(0x30, &body)
}

fn buf(list: &[Property<'_>]) -> PropertiesBuf {
    let mut buf = PropertiesBuf::new();
    for property in list {
        buf.push(*property);
    }
    buf
}

#[test]
fn none_are_none() {
    assert!(Properties::EMPTY.is_empty());
    assert_eq!(Properties::default(), Properties::EMPTY);
    assert_eq!(Properties::EMPTY.iter().count(), 0);
    assert!(Properties::EMPTY.forwarded().is_empty());
    assert!(PropertiesBuf::default().is_empty());
}

#[test]
fn each_accessor_finds_its_own() {
    let buf = buf(&[
        Property::PayloadFormatIndicator(true),
        Property::MessageExpiryInterval(2),
        Property::ContentType("content"),
        Property::ResponseTopic("response"),
        Property::CorrelationData(b"data"),
        Property::SubscriptionIdentifier(3),
        Property::SessionExpiryInterval(4),
        Property::AssignedClientIdentifier("assigned"),
        Property::ServerKeepAlive(5),
        Property::AuthenticationMethod("method"),
        Property::AuthenticationData(b"auth"),
        Property::RequestProblemInformation(false),
        Property::WillDelayInterval(6),
        Property::RequestResponseInformation(true),
        Property::ResponseInformation("information"),
        Property::ServerReference("server"),
        Property::ReasonString("reason"),
        Property::ReceiveMaximum(7),
        Property::TopicAliasMaximum(8),
        Property::TopicAlias(9),
        Property::MaximumQoS(QoS::AtLeastOnce),
        Property::RetainAvailable(false),
        Property::UserProperty("name", "value"),
        Property::MaximumPacketSize(10),
        Property::WildcardSubscriptionAvailable(true),
        Property::SubscriptionIdentifiersAvailable(false),
        Property::SharedSubscriptionAvailable(true),
        Property::UserProperty("name", "other"),
        Property::SubscriptionIdentifier(11),
    ]);
    let all = buf.as_properties();
    assert_eq!(all.payload_format_indicator(), Some(true));
    assert_eq!(all.message_expiry_interval(), Some(2));
    assert_eq!(all.content_type(), Some("content"));
    assert_eq!(all.response_topic(), Some("response"));
    assert_eq!(all.correlation_data(), Some(&b"data"[..]));
    assert_eq!(all.subscription_identifier(), Some(3));
    assert_eq!(all.session_expiry_interval(), Some(4));
    assert_eq!(all.assigned_client_identifier(), Some("assigned"));
    assert_eq!(all.server_keep_alive(), Some(5));
    assert_eq!(all.authentication_method(), Some("method"));
    assert_eq!(all.authentication_data(), Some(&b"auth"[..]));
    assert_eq!(all.request_problem_information(), Some(false));
    assert_eq!(all.will_delay_interval(), Some(6));
    assert_eq!(all.request_response_information(), Some(true));
    assert_eq!(all.response_information(), Some("information"));
    assert_eq!(all.server_reference(), Some("server"));
    assert_eq!(all.reason_string(), Some("reason"));
    assert_eq!(all.receive_maximum(), Some(7));
    assert_eq!(all.topic_alias_maximum(), Some(8));
    assert_eq!(all.topic_alias(), Some(9));
    assert_eq!(all.maximum_qos(), Some(QoS::AtLeastOnce));
    assert_eq!(all.retain_available(), Some(false));
    assert_eq!(all.maximum_packet_size(), Some(10));
    assert_eq!(all.wildcard_subscription_available(), Some(true));
    assert_eq!(all.subscription_identifiers_available(), Some(false));
    assert_eq!(all.shared_subscription_available(), Some(true));
    assert_eq!(all.subscription_identifiers().collect::<Vec<_>>(), [3, 11]);
    assert_eq!(all.user_properties().collect::<Vec<_>>(), [("name", "value"), ("name", "other")]);
    assert_eq!(all.iter().count(), 29);
}

#[test]
fn a_cleared_buffer_is_empty() {
    let mut buf = buf(&[Property::TopicAlias(1)]);
    buf.clear();
    assert!(buf.is_empty());
    assert_eq!(buf.as_properties().topic_alias(), None);
}

/// Raw properties, what of them is forwarded, and whether that borrows.
type Case<'a> = (&'a [&'a [u8]], &'a [&'a [u8]], bool);

#[test]
fn what_is_forwarded_borrows_when_it_stands_together() {
    // [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-17], [MQTT-3.3.2-20]
    let (user, content) = (b"\x26\0\x01n\0\x01v", b"\x03\0\x01t");
    let (expiry, alias) = (b"\x02\0\0\0\x01", b"\x23\0\x01");
    let cases: &[Case<'_>] = &[
        (&[user, content], &[user, content], true),
        (&[expiry, user, content], &[user, content], true),
        (&[user, content, alias], &[user, content], true),
        (&[expiry, user, content, alias], &[user, content], true),
        (&[user, expiry, content], &[user, content], false),
        (&[content, expiry, user, alias, user], &[content, user, user], false),
        (&[expiry, alias], &[], true),
    ];
    for (raw, forwarded, borrowed) in cases {
        let bytes = of_publish(&raw.concat());
        let Ok(Packet::Publish(publish)) = decode_one(&bytes, V5, Peer::Client) else {
            panic!("a PUBLISH");
        };
        let kept = publish.properties.forwarded();
        assert_eq!(kept, forwarded.concat(), "{raw:?}");
        assert_eq!(matches!(kept, Cow::Borrowed(_)), *borrowed, "{raw:?}");
    }
}

fn is_forwarded(property: &Property<'_>) -> bool {
    !matches!(
        property,
        Property::TopicAlias(_)
            | Property::MessageExpiryInterval(_)
            | Property::SubscriptionIdentifier(_)
            | Property::WillDelayInterval(_)
    )
}

proptest! {
    #[test]
    fn order_and_values_survive(
        values in proptest::collection::vec(any::<Value>(), 0..12),
    ) {
        // [MQTT-3.3.2-18]
        let pushed = properties(Place::PublishFromServer, &values);
        let bytes = of_publish(pushed.as_properties().as_bytes());
        let Ok(Packet::Publish(publish)) = decode_one(&bytes, V5, Peer::Server) else {
            panic!("a PUBLISH");
        };
        prop_assert_eq!(publish.properties, pushed.as_properties());
        let expected: Vec<Property<'_>> = pushed.as_properties().iter().collect();
        prop_assert_eq!(publish.properties.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_is_forwarded_is_the_rest_in_its_order(
        values in proptest::collection::vec(any::<Value>(), 0..12),
    ) {
        let pushed = properties(Place::PublishFromServer, &values);
        let mut expected = PropertiesBuf::new();
        pushed.as_properties().iter().filter(is_forwarded).for_each(|property| expected.push(property));
        let forwarded = pushed.as_properties().forwarded();
        prop_assert_eq!(&*forwarded, expected.as_properties().as_bytes());
    }
}
