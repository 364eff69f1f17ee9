//! Sections 3.4 to 3.7: PUBACK, PUBREC, PUBREL, PUBCOMP.

use holdfast_cluster_tests::over_tcp_and_websocket;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Ack, Packet, Properties, Publish, Version, first, id, packet, reason};

use crate::BAD_PACKET;

over_tcp_and_websocket! {
    mqtt_3_4_2_1_puback_has_one_of_its_reason_codes,
    mqtt_3_4_2_2_acknowledgements_stay_within_the_maximum_packet_size,
    mqtt_3_5_2_1_pubrec_has_one_of_its_reason_codes,
    mqtt_3_6_1_1_pubrel_has_its_flags,
    mqtt_3_6_2_1_pubrel_has_one_of_its_reason_codes,
    mqtt_3_7_2_1_pubcomp_has_one_of_its_reason_codes,
    mqtt_3_4_2_1_a_clients_reason_code_out_of_the_list_is_refused,
    mqtt_3_4_2_1_all_forms_of_an_acknowledgement_are_accepted,
    mqtt_3_4_2_1_an_acknowledgement_of_a_wrong_length_is_refused,
}

fn mqtt_3_4_2_1_puback_has_one_of_its_reason_codes(on: &Stage) {
    // The parser knows the list; with a subscriber it is Success.
    let mut client = on.v5("c");
    let nobody = client.publish(on.topic("t"), "x", 1);
    assert!(matches!(nobody, 0 | reason::NO_MATCHING_SUBSCRIBERS), "0x{nobody:02X}");
    client.subscribe(on.topic("t"), 0);
    assert_eq!(client.publish(on.topic("t"), "x", 1), 0);
}

fn mqtt_3_4_2_2_acknowledgements_stay_within_the_maximum_packet_size(on: &Stage) {
    // Room for no Reason String and no User Property, in no acknowledgement of any kind.
    let (mut client, _) = on.connect(&on.hello(Version::V5, "c").number(id::MAXIMUM_PACKET_SIZE, 60));
    let mut publisher = on.v5("p");
    client.subscribe(on.topic("t"), 2);
    client.send_publish(&Publish::new(on.topic("nobody"), "x").qos(1, 11));
    client.send_publish(&Publish::new(on.topic("nobody"), "x").qos(2, 12));
    client.send_ack(first::PUBREL, 12);
    client.send_ack(first::PUBREL, 999);
    client.send_ack(first::PUBREC, 999);
    publisher.publish(on.topic("t"), "x", 2);
    let message = client.wait_for("PUBLISH", |packet| matches!(packet, Packet::Publish(_)));
    let Packet::Publish(message) = message else { unreachable!("waited for it") };
    client.send_ack(first::PUBREC, message.packet_id);
    client.wait_pubrel(message.packet_id);
    for answer in client.fence() {
        let (Packet::PubAck { properties, .. }
        | Packet::PubRec { properties, .. }
        | Packet::PubRel { properties, .. }
        | Packet::PubComp { properties, .. }) = answer
        else {
            panic!("{answer:?}")
        };
        // Four bytes come before the properties, and the Property Length.
        assert!(4 + 1 + 1 + properties.body().len() <= 60, "{properties:?}");
    }
}

fn mqtt_3_5_2_1_pubrec_has_one_of_its_reason_codes(on: &Stage) {
    let mut client = on.v5("c");
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 1));
    let nobody = client.wait_pubrec(1);
    assert!(matches!(nobody, 0 | reason::NO_MATCHING_SUBSCRIBERS), "0x{nobody:02X}");
    // Sent again, it is acknowledged again.
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 1).dup());
    let again = client.wait_pubrec(1);
    assert!(matches!(again, 0 | reason::NO_MATCHING_SUBSCRIBERS), "0x{again:02X}");
}

fn mqtt_3_6_1_1_pubrel_has_its_flags(on: &Stage) {
    for first_byte in [0x60, 0x61, 0x63, 0x6A] {
        on.refused_after_connect(&Ack::new(first_byte, 1).bytes(), &[reason::MALFORMED]);
    }
    // What the server sends has them too: the parser refuses others.
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 2);
    client.publish(on.topic("t"), "x", 2);
    client.take();
}

fn mqtt_3_6_2_1_pubrel_has_one_of_its_reason_codes(on: &Stage) {
    let mut client = on.v5("c");
    client.subscribe(on.topic("t"), 2);
    client.publish(on.topic("t"), "x", 2);
    let message = client.recv_publish();
    client.send_ack(first::PUBREC, message.packet_id);
    assert_eq!(client.wait_pubrel(message.packet_id), 0);
    // To a PUBREC that belongs to nothing, the answer is PUBREL with 0x92, if there is one.
    client.send_ack(first::PUBREC, 999);
    for answer in client.fence() {
        assert!(
            matches!(answer, Packet::PubRel { packet_id: 999, reason: reason::PACKET_ID_NOT_FOUND, .. }),
            "{answer:?}"
        );
    }
}

fn mqtt_3_7_2_1_pubcomp_has_one_of_its_reason_codes(on: &Stage) {
    let mut client = on.v5("c");
    client.send_publish(&Publish::new(on.topic("t"), "x").qos(2, 1));
    client.wait_pubrec(1);
    client.send_ack(first::PUBREL, 1);
    assert_eq!(client.wait_pubcomp(1), 0);
    // A PUBREL that belongs to nothing is answered as well, with 0x92.
    client.send_ack(first::PUBREL, 1);
    assert_eq!(client.wait_pubcomp(1), reason::PACKET_ID_NOT_FOUND);
}

fn mqtt_3_4_2_1_a_clients_reason_code_out_of_the_list_is_refused(on: &Stage) {
    for first_byte in [first::PUBACK, first::PUBREC, first::PUBREL, first::PUBCOMP] {
        for reason in [0x01, 0x8E, 0xFF] {
            on.refused_after_connect(&Ack::new(first_byte, 1).reason(reason).bytes(), BAD_PACKET);
        }
    }
}

fn mqtt_3_4_2_1_all_forms_of_an_acknowledgement_are_accepted(on: &Stage) {
    let topic = on.topic("t");
    let mut client = on.v5("c");
    client.subscribe(&topic, 2);
    let long = Properties::new().text(id::REASON_STRING, "because").user("a", "b");
    for (reason, properties) in
        [(None, None), (Some(0), None), (Some(0), Some(Properties::new())), (Some(0x10), Some(long))]
    {
        let form = |first_byte, packet_id| {
            let reason = reason.filter(|_| first_byte == first::PUBACK || first_byte == first::PUBREC);
            let reason = reason.or(properties.as_ref().map(|_| 0));
            Ack { first_byte, packet_id, reason, properties: properties.clone() }.bytes()
        };
        client.publish(&topic, "x", 1);
        let message = client.recv_publish();
        client.send(&form(first::PUBACK, message.packet_id));
        client.publish(&topic, "x", 2);
        let message = client.recv_publish();
        client.send(&form(first::PUBREC, message.packet_id));
        client.wait_pubrel(message.packet_id);
        client.send(&form(first::PUBCOMP, message.packet_id));
        client.send_publish(&Publish::new(on.topic("u"), "x").qos(2, 77));
        client.wait_pubrec(77);
        client.send(&form(first::PUBREL, 77));
        assert_eq!(client.wait_pubcomp(77), 0);
        client.expect_quiet();
    }
}

fn mqtt_3_4_2_1_an_acknowledgement_of_a_wrong_length_is_refused(on: &Stage) {
    for first_byte in [first::PUBACK, first::PUBREC, first::PUBREL, first::PUBCOMP] {
        for body in [&[][..], &[1], &[0, 1, 0, 5], &[0, 1, 0, 0, 0]] {
            on.refused_after_connect(&packet(first_byte, body), BAD_PACKET);
        }
        on.closed_after_connect_v311(&packet(first_byte, &[0, 1, 0]));
    }
}
