//! Case 35: sub-protocol, path and origin of the WebSocket handshake.

use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::transport::{Transport, tcp};
use holdfast_cluster_tests::websocket::{ACCEPT, Response, Upgrade, request};

use crate::{over, start};

fn send(broker: &Broker, upgrade: &Upgrade) -> Response {
    let mut socket = tcp(broker.address(Transport::WebSocket)).expect("the listener accepts");
    request(&mut socket, &upgrade.bytes()).expect("an HTTP response")
}

fn shared(upgrade: &Upgrade) -> Response {
    send(over(Transport::WebSocket).broker(), upgrade)
}

#[test]
fn field_case_35_the_subprotocol_offered_is_echoed() {
    for (offered, chosen) in
        [("mqtt", "mqtt"), ("mqttv3.1", "mqttv3.1"), ("foo, mqtt", "mqtt"), ("foo,mqtt", "mqtt"), ("mqtt, foo", "mqtt")]
    {
        let response = shared(&Upgrade::new("/mqtt").protocol(offered));
        assert_eq!(response.status, 101, "{offered}");
        assert_eq!(response.header("Sec-WebSocket-Protocol"), Some(chosen), "{offered}");
        assert_eq!(response.header("Sec-WebSocket-Accept"), Some(ACCEPT));
    }
    // Both names: one of them, once.
    let response = shared(&Upgrade::new("/mqtt").protocol("mqttv3.1, mqtt"));
    assert!(matches!(response.header("Sec-WebSocket-Protocol"), Some("mqtt" | "mqttv3.1")), "{response:?}");
}

#[test]
fn field_case_35_a_name_that_was_not_offered_is_never_chosen() {
    for upgrade in
        [Upgrade::new("/mqtt").protocol("foo"), Upgrade::new("/mqtt").protocol("MQTTX, foo"), Upgrade::new("/mqtt")]
    {
        let response = shared(&upgrade);
        let refused = (400..500).contains(&response.status);
        assert!(refused || response.status == 101, "{response:?}");
        assert_eq!(response.header("Sec-WebSocket-Protocol"), None);
    }
}

#[test]
fn field_case_35_the_path_is_checked_without_its_query() {
    for path in ["/mqtt", "/mqtt?x=1", "/", "/?token=a"] {
        assert_eq!(shared(&Upgrade::new(path).protocol("mqtt")).status, 101, "{path}");
    }
    for path in ["/other", "/mqttx", "/mqtt/x"] {
        assert_eq!(shared(&Upgrade::new(path).protocol("mqtt")).status, 404, "{path}");
    }
}

#[test]
fn field_case_35_header_names_and_values_come_in_any_case() {
    let odd = Upgrade::new("/mqtt")
        .header("UPGRADE", "WebSocket")
        .header("conNECtion", "keep-alive, Upgrade")
        .header("sec-websocket-PROTOCOL", "mqtt");
    let response = shared(&odd);
    assert_eq!((response.status, response.header("Sec-WebSocket-Protocol")), (101, Some("mqtt")));
}

#[test]
fn field_case_35_what_is_no_upgrade_gets_an_answer() {
    let good = || Upgrade::new("/mqtt").protocol("mqtt");
    let old = shared(&good().header("Sec-WebSocket-Version", "12"));
    assert_eq!((old.status, old.header("Sec-WebSocket-Version")), (426, Some("13")));
    for bad in [
        good().without("Sec-WebSocket-Key"),
        good().without("Upgrade"),
        good().without("Connection"),
        good().header("Sec-WebSocket-Key", "short"),
    ] {
        let status = shared(&bad).status;
        assert!((400..500).contains(&status), "{status} to {bad:?}");
    }
}

#[test]
fn field_case_35_without_a_rule_an_origin_must_be_the_servers_own() {
    // `allowed_origins = ["same"]`: a page of this server's own name passes, and a client that is no browser.
    let broker = over(Transport::WebSocket).broker();
    let own = format!("localhost:{}", broker.address(Transport::WebSocket).port());
    let from = |origin: &str| Upgrade::new("/mqtt").protocol("mqtt").header("Host", &own).header("Origin", origin);
    assert_eq!(send(broker, &Upgrade::new("/mqtt").protocol("mqtt").header("Host", &own)).status, 101);
    assert_eq!(send(broker, &from(&format!("http://{own}"))).status, 101);
    assert_eq!(send(broker, &from("https://elsewhere.example")).status, 403);
    assert_eq!(send(broker, &from("null")).status, 403);
}

#[test]
fn field_case_35_an_allow_list_is_kept() {
    let rule = "allowed_origins = [\"https://good.example\"]";
    let broker = start(Setup::empty().listener("tcp", "mqtt", "").listener("ws", "ws", rule));
    let from = |origin: &str| Upgrade::new("/mqtt").protocol("mqtt").header("Origin", origin);
    assert_eq!(send(&broker, &from("https://good.example")).status, 101);
    assert_eq!(send(&broker, &Upgrade::new("/mqtt").protocol("mqtt")).status, 101);
    for wrong in
        ["http://good.example", "https://good.example.evil", "https://evil.example", "https://good.example:444", "null"]
    {
        assert_eq!(send(&broker, &from(wrong)).status, 403, "{wrong}");
    }
    // And a list with a star lets everybody in.
    let broker = start(Setup::empty().listener("tcp", "mqtt", "").listener("ws", "ws", "allowed_origins = [\"*\"]"));
    assert_eq!(send(&broker, &from("https://anything.example")).status, 101);
}
