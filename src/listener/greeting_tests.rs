//! What the first bytes of a connection lead to, and in which form a refusal is put.

use proptest::prelude::*;

use super::*;
use crate::config::{Listener, Mqtt, Protocol};
use crate::mqtt::{Properties, QoS, Will};

struct Setting {
    listener: Listener,
    mqtt: Mqtt,
    over_limit: bool,
}

impl Setting {
    fn new() -> Self {
        let listener = Listener::new("mqtt", Protocol::Mqtt, ([127, 0, 0, 1], 0).into());
        Self { listener, mqtt: Mqtt::default(), over_limit: false }
    }

    fn rules(&self) -> Rules<'_> {
        Rules { listener: &self.listener, mqtt: &self.mqtt, over_limit: self.over_limit, too_fast: false }
    }

    fn refusal(&self, bytes: &[u8]) -> Refusal {
        match judge(bytes, &self.rules()) {
            Verdict::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn connect(version: ProtocolVersion, client_id: &str, properties: Properties<'_>) -> Vec<u8> {
    let connect = Connect {
        version,
        clean_start: true,
        keep_alive_secs: 60,
        client_id,
        properties,
        will: None,
        user_name: None,
        password: None,
    };
    let mut packet = Vec::new();
    connect.encode(version, &mut packet);
    packet
}

const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];

#[test]
fn what_the_first_bytes_lead_to() {
    let setting = Setting::new();
    for version in VERSIONS {
        let mut bytes = connect(version, "a", Properties::EMPTY);
        let len = bytes.len();
        for cut in 0..len {
            assert!(matches!(judge(&bytes[..cut], &setting.rules()), Verdict::Incomplete), "{version:?} {cut}");
        }
        bytes.extend([0xC0, 0]);
        let Verdict::Hello { connect, packet_len } = judge(&bytes, &setting.rules()) else { panic!("{version:?}") };
        assert_eq!((connect.version, connect.client_id, packet_len), (version, "a", len));
    }
    assert!(matches!(judge(b"GET / HTTP/1.1", &setting.rules()), Verdict::Foreign(Foreign::Http)));
    assert!(matches!(judge(b"\x16\x03\x01\x02\x00", &setting.rules()), Verdict::Foreign(Foreign::Tls)));
    assert!(matches!(judge(b"\xc0\x00", &setting.rules()), Verdict::Foreign(Foreign::Unknown)));
    assert!(matches!(judge(b"\x82\x05", &setting.rules()), Verdict::Foreign(Foreign::Unknown)));
}

#[test]
fn a_refusal_is_put_in_the_form_of_the_version() {
    let mut setting = Setting::new();
    setting.over_limit = true;
    let refused = |version| setting.refusal(&connect(version, "a", Properties::EMPTY)).connack();
    assert_eq!(refused(ProtocolVersion::V3_1), [0x20, 2, 0, 3]);
    assert_eq!(refused(ProtocolVersion::V3_1_1), [0x20, 2, 0, 3]);
    let v5 = refused(ProtocolVersion::V5);
    assert_eq!(&v5[2..4], [0, 0x97]);
    assert_eq!(v5[5], 0x1F, "a Reason String");
}

#[test]
fn a_reason_string_never_makes_a_connack_larger_than_the_client_takes() {
    let mut setting = Setting::new();
    setting.over_limit = true;
    let mut properties = PropertiesBuf::default();
    properties.push(Property::MaximumPacketSize(10));
    let refusal = setting.refusal(&connect(ProtocolVersion::V5, "a", properties.as_properties()));
    assert_eq!(refusal.connack(), [0x20, 3, 0, 0x97, 0]);
}

#[test]
fn versions_are_let_in_as_the_listener_says() {
    let mut setting = Setting::new();
    setting.listener.protocol_versions = vec![4];
    let v5 = setting.refusal(&connect(ProtocolVersion::V5, "a", Properties::EMPTY));
    assert_eq!((v5.reason, v5.answer), (ReasonCode::UnsupportedProtocolVersion, Some(ProtocolVersion::V5)));
    assert_eq!(setting.refusal(&connect(ProtocolVersion::V3_1, "a", Properties::EMPTY)).connack(), [0x20, 2, 0, 1]);
    assert!(matches!(
        judge(&connect(ProtocolVersion::V3_1_1, "a", Properties::EMPTY), &setting.rules()),
        Verdict::Hello { .. }
    ));
}

/// [MQTT-3.1.2-2] and 3.1.1 [MQTT-3.1.2-2]: a level that does not exist is told so, in the form that its client is nearest to.
#[test]
fn a_version_that_does_not_exist_is_told_so() {
    let setting = Setting::new();
    let with_level = |version, level| {
        let mut packet = connect(version, "a", Properties::EMPTY);
        assert_eq!(packet[8], version.level());
        packet[8] = level;
        setting.refusal(&packet)
    };
    assert_eq!(with_level(ProtocolVersion::V3_1_1, 3).connack(), [0x20, 2, 0, 1]);
    assert_eq!(
        with_level(ProtocolVersion::V5, 6).connack()[..4],
        [0x20, with_level(ProtocolVersion::V5, 6).connack()[1], 0, 0x84]
    );
    let mut other_name = connect(ProtocolVersion::V3_1_1, "a", Properties::EMPTY);
    other_name[4] = b'X';
    assert_eq!(setting.refusal(&other_name).answer, None, "whoever does not say MQTT is not answered");
}

/// [MQTT-3.1.4-1]: 5.0 has codes for what is malformed, 3.1.1 closes the connection without a CONNACK.
#[test]
fn a_malformed_connect_is_answered_in_5_0_only() {
    let setting = Setting::new();
    for version in VERSIONS {
        let mut packet = connect(version, "a", Properties::EMPTY);
        packet.push(0);
        packet[1] += 1;
        let refusal = setting.refusal(&packet);
        assert_eq!(refusal.reason, ReasonCode::MalformedPacket);
        assert_eq!(refusal.answer.is_some(), version.is_v5(), "{version:?}");
    }
}

#[test]
fn an_empty_client_id_is_judged_by_the_version() {
    let setting = Setting::new();
    assert_eq!(setting.refusal(&connect(ProtocolVersion::V3_1, "", Properties::EMPTY)).connack(), [0x20, 2, 0, 2]);
    for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
        let packet = connect(version, "", Properties::EMPTY);
        let Verdict::Hello { connect, .. } = judge(&packet, &setting.rules()) else { panic!("{version:?}") };
        let (one, assigned) = client_id(&connect).unwrap();
        let (other, _) = client_id(&connect).unwrap();
        assert!(assigned && one != other && one.len() == 37, "{one} {other}");
    }
    let mut not_clean = connect(ProtocolVersion::V3_1_1, "", Properties::EMPTY);
    not_clean[9] = 0;
    assert_eq!(setting.refusal(&not_clean).connack(), [0x20, 2, 0, 2], "[MQTT-3.1.3-8]");
}

#[test]
fn limits_of_the_configuration_hold() {
    let mut setting = Setting::new();
    setting.mqtt.max_client_id_bytes = 23;
    let long = setting.refusal(&connect(ProtocolVersion::V3_1_1, &"x".repeat(24), Properties::EMPTY));
    assert_eq!(long.connack(), [0x20, 2, 0, 2]);
    let mut properties = PropertiesBuf::default();
    properties.push(Property::AuthenticationMethod("SCRAM-SHA-1"));
    let method = setting.refusal(&connect(ProtocolVersion::V5, "a", properties.as_properties()));
    assert_eq!(method.reason, ReasonCode::BadAuthenticationMethod);
    // A header that promises 512 KiB and a byte is refused before its body comes.
    assert_eq!(setting.refusal(&[0x10, 0x81, 0x80, 0x20]).reason, ReasonCode::PacketTooLarge);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_it_panic(
        noise in proptest::collection::vec(any::<u8>(), 0..64),
        places in proptest::collection::vec((0usize..60, any::<u8>()), 0..6),
    ) {
        let setting = Setting::new();
        let _ = judge(&noise, &setting.rules());
        let mut packet = Vec::new();
        let will = Will { qos: QoS::AtLeastOnce, retain: true, properties: Properties::EMPTY, topic: "w", payload: b"p" };
        Connect {
            version: ProtocolVersion::V5, clean_start: true, keep_alive_secs: 1, client_id: "abc", properties: Properties::EMPTY,
            will: Some(will), user_name: Some("u"), password: Some(b"p"),
        }.encode(ProtocolVersion::V5, &mut packet);
        for (place, byte) in places {
            let place = place % packet.len();
            packet[place] = byte;
        }
        if let Verdict::Refused(refusal) = judge(&packet, &setting.rules()) {
            let _ = refusal.connack();
        }
    }
}
