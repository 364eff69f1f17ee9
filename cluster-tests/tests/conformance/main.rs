//! A wire-level test for each normative statement of MQTT 5.0 that a server can violate, and for those of 3.1.1 that differ.
//!
//! A function carries the number of its statement: `mqtt_3_1_4_3_…` is [MQTT-3.1.4-3] of 5.0, `mqtt311_3_1_2_2_…` is [MQTT-3.1.2-2] of 3.1.1.
//! One file per chapter. Each test runs over TCP and again over WebSocket, on one broker that all share, unless it needs a
//! configuration of its own. `CONFORMANCE.md` says which test covers which statement; `table.rs` keeps it honest.
//!
//! "Nothing came" is shown by a fence (a marker from the same publisher, or a PINGRESP), not by waiting. Where the statement is about
//! time (keep-alive, expiry, Will Delay) the test lets that time pass.
//!
//! Read first: `connect.rs`.

mod acknowledgements;
mod authentication;
mod connack;
mod connect;
mod connect_will;
mod data;
mod disconnect;
mod errors;
mod flow_control;
mod ordering;
mod publish;
mod publish_properties;
mod qos;
mod session;
mod shared;
mod subscribe;
mod table;
mod topics;
mod unsubscribe;
mod v31;
mod v311;
mod v311_connect;
mod websocket;

use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::stage::Stage;
use holdfast_cluster_tests::wire::{Message, Subscribe};

/// Malformed Packet or Protocol Error: the specification lets a server choose where a packet is both.
const BAD_PACKET: &[u8] = &[0x81, 0x82];

/// Byte sequences that are no well-formed UTF-8: a lone lead byte, a surrogate, an overlong slash, beyond U+10FFFF, cut short.
const ILL_FORMED: &[&[u8]] =
    &[&[b'a', 0xC3, b'('], &[0xED, 0xA0, 0x80], &[0xC0, 0xAF], &[0xF4, 0x90, 0x80, 0x80], &[b'a', 0xE2, 0x82]];

/// Lets the time pass that a statement is about.
fn let_pass(duration: Duration) {
    std::thread::sleep(duration);
}

/// Subscribes and returns the retained messages that this brings, acknowledged. They may come at any time after the SUBACK, so the last filter
/// of the same packet asks for a retained marker [MQTT-3.8.4-5].
#[track_caller]
fn retained_by(on: &Stage, client: &mut Client, filter: &str, options: u8) -> Vec<Message> {
    let marker = on.client_id("marker");
    client.publish_retained(&marker, "retained marker", 1);
    let packet_id = client.packet_id();
    let codes = client.send_subscribe(&Subscribe::new(packet_id).filter(filter, options).filter(&marker, 1));
    assert!(codes.iter().all(|code| *code <= 2), "refused: {codes:02X?}");
    let got = client.take_until("retained marker");
    client.unsubscribe(&marker);
    client.publish_retained(&marker, "", 1);
    got
}

/// What `subscriber` got before `publisher`'s marker on this topic (which the subscriber must have subscribed to).
#[track_caller]
fn got_before_marker(publisher: &mut Client, subscriber: &mut Client, topic: &str) -> Vec<Message> {
    publisher.publish(topic, "marker", 0);
    subscriber.take_until("marker")
}
