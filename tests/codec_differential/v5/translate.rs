//! What the codec says about a packet of MQTT 5.0, in their words.

use bytes::Bytes;
use holdfast::mqtt::{self, Packet, Properties, RetainHandling};
use mqttbytes::v5;

use super::packets::{
    CONNACK_CODES, PUBACK_REASONS, PUBCOMP_REASONS, PUBREC_REASONS, PUBREL_REASONS, UNSUBACK_REASONS,
};
use crate::{id_or_zero, their_qos};

/// The one of their reason codes that has this value.
macro_rules! their_reason {
    ($theirs:expr, $value:expr) => {
        *$theirs.iter().find(|theirs| **theirs as u8 == $value as u8).expect("one of theirs")
    };
}

/// Their form of an acknowledgement.
macro_rules! their_ack {
    ($ack:expr, $theirs:ident, $properties:ident, $reasons:expr) => {
        v5::$theirs {
            pkid: $ack.packet_id.get(),
            reason: their_reason!($reasons, $ack.reason),
            properties: some($ack.properties).map(|properties| v5::$properties {
                reason_string: properties.reason_string().map(str::to_owned),
                user_properties: user_properties(properties),
            }),
        }
    };
}

fn some(properties: Properties<'_>) -> Option<Properties<'_>> {
    (!properties.is_empty()).then_some(properties)
}

fn user_properties(properties: Properties<'_>) -> Vec<(String, String)> {
    properties.user_properties().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub fn translate(packet: &Packet<'_>) -> v5::Packet {
    match packet {
        Packet::Connect(packet) => v5::Packet::Connect(translate_connect(packet)),
        Packet::ConnAck(packet) => v5::Packet::ConnAck(translate_connack(packet)),
        Packet::Publish(packet) => v5::Packet::Publish(translate_publish(packet)),
        Packet::PubAck(ack) => v5::Packet::PubAck(their_ack!(ack, PubAck, PubAckProperties, PUBACK_REASONS)),
        Packet::PubRec(ack) => v5::Packet::PubRec(their_ack!(ack, PubRec, PubRecProperties, PUBREC_REASONS)),
        Packet::PubRel(ack) => v5::Packet::PubRel(their_ack!(ack, PubRel, PubRelProperties, PUBREL_REASONS)),
        Packet::PubComp(ack) => v5::Packet::PubComp(their_ack!(ack, PubComp, PubCompProperties, PUBCOMP_REASONS)),
        Packet::Subscribe(packet) => v5::Packet::Subscribe(translate_subscribe(packet)),
        Packet::SubAck(packet) => {
            let codes = packet.codes.iter().map(|code| (*code).try_into());
            v5::Packet::SubAck(v5::SubAck {
                pkid: packet.packet_id.get(),
                return_codes: codes.collect::<Result<_, _>>().expect("codes of theirs"),
                properties: some(packet.properties).map(|properties| v5::SubAckProperties {
                    reason_string: properties.reason_string().map(str::to_owned),
                    user_properties: user_properties(properties),
                }),
            })
        }
        Packet::Unsubscribe(packet) => v5::Packet::Unsubscribe(v5::Unsubscribe {
            pkid: packet.packet_id.get(),
            filters: packet.filters.iter().map(str::to_owned).collect(),
            properties: some(packet.properties)
                .map(|properties| v5::UnsubscribeProperties { user_properties: user_properties(properties) }),
        }),
        Packet::UnsubAck(packet) => v5::Packet::UnsubAck(v5::UnsubAck {
            pkid: packet.packet_id.get(),
            reasons: packet.codes.iter().map(|code| their_reason!(UNSUBACK_REASONS, *code)).collect(),
            properties: some(packet.properties).map(|properties| v5::UnsubAckProperties {
                reason_string: properties.reason_string().map(str::to_owned),
                user_properties: user_properties(properties),
            }),
        }),
        Packet::PingReq => v5::Packet::PingReq,
        Packet::PingResp => v5::Packet::PingResp,
        Packet::Disconnect(packet) => v5::Packet::Disconnect(translate_disconnect(packet)),
        Packet::Auth(_) => unreachable!("they have no AUTH"),
    }
}

fn translate_connect(packet: &mqtt::Connect<'_>) -> v5::Connect {
    v5::Connect {
        protocol: mqttbytes::Protocol::V5,
        keep_alive: packet.keep_alive_secs,
        client_id: packet.client_id.to_owned(),
        clean_session: packet.clean_start,
        last_will: packet.will.map(|will| v5::LastWill {
            topic: will.topic.to_owned(),
            message: Bytes::copy_from_slice(will.payload),
            qos: their_qos(will.qos),
            retain: will.retain,
            properties: some(will.properties).map(|properties| v5::WillProperties {
                delay_interval: properties.will_delay_interval(),
                payload_format_indicator: properties.payload_format_indicator().map(u8::from),
                message_expiry_interval: properties.message_expiry_interval(),
                content_type: properties.content_type().map(str::to_owned),
                response_topic: properties.response_topic().map(str::to_owned),
                correlation_data: properties.correlation_data().map(Bytes::copy_from_slice),
                user_properties: user_properties(properties),
            }),
        }),
        login: (packet.user_name.is_some() || packet.password.is_some()).then(|| v5::Login {
            username: packet.user_name.unwrap_or_default().to_owned(),
            password: String::from_utf8(packet.password.unwrap_or_default().to_vec()).expect("theirs are UTF-8"),
        }),
        properties: some(packet.properties).map(|properties| v5::ConnectProperties {
            session_expiry_interval: properties.session_expiry_interval(),
            receive_maximum: properties.receive_maximum(),
            max_packet_size: properties.maximum_packet_size(),
            topic_alias_max: properties.topic_alias_maximum(),
            request_response_info: properties.request_response_information().map(u8::from),
            request_problem_info: properties.request_problem_information().map(u8::from),
            user_properties: user_properties(properties),
            authentication_method: properties.authentication_method().map(str::to_owned),
            authentication_data: properties.authentication_data().map(Bytes::copy_from_slice),
        }),
    }
}

fn translate_connack(packet: &mqtt::ConnAck<'_>) -> v5::ConnAck {
    v5::ConnAck {
        session_present: packet.session_present,
        code: their_reason!(CONNACK_CODES, packet.reason),
        properties: some(packet.properties).map(|properties| v5::ConnAckProperties {
            session_expiry_interval: properties.session_expiry_interval(),
            receive_max: properties.receive_maximum(),
            max_qos: properties.maximum_qos().map(|qos| qos as u8),
            retain_available: properties.retain_available().map(u8::from),
            max_packet_size: properties.maximum_packet_size(),
            assigned_client_identifier: properties.assigned_client_identifier().map(str::to_owned),
            topic_alias_max: properties.topic_alias_maximum(),
            reason_string: properties.reason_string().map(str::to_owned),
            user_properties: user_properties(properties),
            wildcard_subscription_available: properties.wildcard_subscription_available().map(u8::from),
            subscription_identifiers_available: properties.subscription_identifiers_available().map(u8::from),
            shared_subscription_available: properties.shared_subscription_available().map(u8::from),
            server_keep_alive: properties.server_keep_alive(),
            response_information: properties.response_information().map(str::to_owned),
            server_reference: properties.server_reference().map(str::to_owned),
            authentication_method: properties.authentication_method().map(str::to_owned),
            authentication_data: properties.authentication_data().map(Bytes::copy_from_slice),
        }),
    }
}

fn translate_publish(packet: &mqtt::Publish<'_>) -> v5::Publish {
    v5::Publish {
        dup: packet.dup,
        qos: their_qos(packet.qos),
        retain: packet.retain,
        topic: packet.topic.to_owned(),
        pkid: id_or_zero(packet.packet_id),
        properties: some(packet.properties).map(|properties| v5::PublishProperties {
            payload_format_indicator: properties.payload_format_indicator().map(u8::from),
            message_expiry_interval: properties.message_expiry_interval(),
            topic_alias: properties.topic_alias(),
            response_topic: properties.response_topic().map(str::to_owned),
            correlation_data: properties.correlation_data().map(Bytes::copy_from_slice),
            user_properties: user_properties(properties),
            subscription_identifiers: properties.subscription_identifiers().map(|id| id as usize).collect(),
            content_type: properties.content_type().map(str::to_owned),
        }),
        payload: Bytes::copy_from_slice(packet.payload),
    }
}

fn translate_subscribe(packet: &mqtt::Subscribe<'_>) -> v5::Subscribe {
    let filters = packet.filters.iter().map(|(filter, options)| {
        let mut theirs = v5::SubscribeFilter::new(filter.to_owned(), their_qos(options.qos));
        theirs.nolocal = options.no_local;
        theirs.preserve_retain = options.retain_as_published;
        theirs.retain_forward_rule = match options.retain_handling {
            RetainHandling::SendAtSubscribe => v5::RetainForwardRule::OnEverySubscribe,
            RetainHandling::SendIfNew => v5::RetainForwardRule::OnNewSubscribe,
            RetainHandling::DoNotSend => v5::RetainForwardRule::Never,
        };
        theirs
    });
    v5::Subscribe {
        pkid: packet.packet_id.get(),
        filters: filters.collect(),
        properties: some(packet.properties).map(|properties| v5::SubscribeProperties {
            id: properties.subscription_identifier().map(|id| id as usize),
            user_properties: user_properties(properties),
        }),
    }
}

fn translate_disconnect(packet: &mqtt::Disconnect<'_>) -> v5::Disconnect {
    v5::Disconnect {
        reason_code: (packet.reason as u8).try_into().expect("one of theirs"),
        properties: some(packet.properties).map(|properties| v5::DisconnectProperties {
            session_expiry_interval: properties.session_expiry_interval(),
            reason_string: properties.reason_string().map(str::to_owned),
            user_properties: user_properties(properties),
            server_reference: properties.server_reference().map(str::to_owned),
        }),
    }
}
