//! Field case 35 as a table, and never-panics.

use proptest::prelude::*;

use super::*;

const ORIGINS: [&str; 1] = ["same"];

fn judge_with(origins: &[&str], request: &str) -> Judgement {
    let allowed_origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
    judge(request.as_bytes(), &Rules { path: "/mqtt", allowed_origins: &allowed_origins })
}

/// A good request with some lines replaced or left out; `None` leaves a line out.
fn request(path: &str, changes: &[(&str, Option<&str>)]) -> String {
    let mut fields = vec![
        ("Host", Some("broker.example:8083")),
        ("Upgrade", Some("websocket")),
        ("Connection", Some("Upgrade")),
        ("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25jZQ==")),
        ("Sec-WebSocket-Version", Some("13")),
        ("Sec-WebSocket-Protocol", Some("mqtt")),
    ];
    for (name, value) in changes {
        match fields.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some(field) => *field = (name, *value),
            None => fields.push((name, *value)),
        }
    }
    let lines: String =
        fields.iter().filter_map(|(name, value)| value.map(|value| format!("{name}: {value}\r\n"))).collect();
    format!("GET {path} HTTP/1.1\r\n{lines}\r\n")
}

fn outcome(judgement: Judgement) -> String {
    match judgement {
        Judgement::Incomplete => "incomplete".to_owned(),
        Judgement::Accept { response, subprotocol, .. } => {
            let text = String::from_utf8(response).unwrap();
            assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
            assert_eq!(text.contains("Sec-WebSocket-Protocol"), subprotocol.is_some(), "{text}");
            format!("101 {}", subprotocol.unwrap_or("-"))
        }
        Judgement::Refuse { response, .. } => String::from_utf8(response).unwrap()[9..12].to_owned(),
    }
}

#[test]
fn the_table_of_handshakes() {
    type Row = (&'static str, &'static [(&'static str, Option<&'static str>)], &'static str);
    let table: [Row; 24] = [
        ("/mqtt", &[], "101 mqtt"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some("mqttv3.1"))], "101 mqttv3.1"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some("foo, mqtt"))], "101 mqtt"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some("mqttv3.1, mqtt"))], "101 mqttv3.1"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some("foo"))], "400"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some("MQTT"))], "400"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", Some(""))], "101 -"),
        ("/mqtt", &[("Sec-WebSocket-Protocol", None)], "101 -"),
        ("/", &[], "101 mqtt"),
        ("/mqtt?x=1", &[], "101 mqtt"),
        ("/?x=1", &[], "101 mqtt"),
        ("/other", &[], "404"),
        ("/mqtt/", &[], "404"),
        (
            "/mqtt",
            &[("SEC-websocket-KEY", Some("dGhlIHNhbXBsZSBub25jZQ==")), ("uPGRADE", Some("WebSocket"))],
            "101 mqtt",
        ),
        ("/mqtt", &[("Connection", Some("keep-alive, Upgrade"))], "101 mqtt"),
        ("/mqtt", &[("Connection", Some("keep-alive"))], "426"),
        ("/mqtt", &[("Upgrade", None), ("Connection", None)], "426"),
        ("/mqtt", &[("Sec-WebSocket-Version", Some("12"))], "426"),
        ("/mqtt", &[("Sec-WebSocket-Version", None)], "426"),
        ("/mqtt", &[("Sec-WebSocket-Key", None)], "400"),
        ("/mqtt", &[("Sec-WebSocket-Key", Some("c2hvcnQ="))], "400"),
        ("/mqtt", &[("Sec-WebSocket-Key", Some("!!!!"))], "400"),
        ("/mqtt", &[("Origin", Some("https://evil.example"))], "403"),
        ("/mqtt", &[("Sec-WebSocket-Extensions", Some("permessage-deflate"))], "101 mqtt"),
    ];
    for (path, changes, expected) in table {
        let request = request(path, changes);
        assert_eq!(outcome(judge_with(&ORIGINS, &request)), expected, "{request}");
    }
}

#[test]
fn origins_are_judged_by_the_rules_of_the_listener() {
    let table: [(&[&str], &str, &str); 16] = [
        (&["same"], "http://broker.example", "101 mqtt"),
        (&["same"], "https://Broker.Example:3000", "101 mqtt"),
        (&["same"], "https://broker.example.evil.example", "403"),
        (&["same"], "https://evil.example", "403"),
        (&["same"], "null", "403"),
        (&["same", "null"], "null", "101 mqtt"),
        (&["same"], "", "403"),
        (&["*"], "https://evil.example", "101 mqtt"),
        (&["*"], "null", "101 mqtt"),
        (&["https://app.example"], "https://app.example", "101 mqtt"),
        (&["https://app.example"], "HTTPS://APP.example", "101 mqtt"),
        (&["https://app.example"], "http://app.example", "403"),
        (&["https://app.example"], "https://app.example:8443", "403"),
        (&["https://app.example"], "https://broker.example", "403"),
        (&[], "https://broker.example", "403"),
        (&["https://app.example", "same"], "https://broker.example", "101 mqtt"),
    ];
    for (rules, origin, expected) in table {
        let request = request("/mqtt", &[("Origin", Some(origin))]);
        assert_eq!(outcome(judge_with(rules, &request)), expected, "{rules:?} {origin}");
    }
}

#[test]
fn all_names_of_this_machine_are_the_same_host() {
    for (host, origin, expected) in [
        ("127.0.0.1:8083", "http://localhost:3000", "101 mqtt"),
        ("[::1]:8083", "http://127.0.0.1", "101 mqtt"),
        ("localhost", "http://[::1]:5173", "101 mqtt"),
        ("localhost", "http://localhost.evil.example", "403"),
        ("10.0.0.1:8083", "http://localhost", "403"),
    ] {
        let request = request("/mqtt", &[("Host", Some(host)), ("Origin", Some(origin))]);
        assert_eq!(outcome(judge_with(&ORIGINS, &request)), expected, "{host} {origin}");
    }
}

#[test]
fn the_key_is_answered_as_in_the_rfc() {
    let Judgement::Accept { response, head_len, .. } = judge_with(&ORIGINS, &request("/mqtt", &[])) else {
        panic!("a good request was not accepted")
    };
    let text = String::from_utf8(response).unwrap();
    assert!(text.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{text}");
    assert_eq!(head_len, request("/mqtt", &[]).len());
}

#[test]
fn a_refusal_says_what_to_do() {
    let body = |judgement| match judgement {
        Judgement::Refuse { response, .. } => String::from_utf8(response).unwrap(),
        other => panic!("not refused: {other:?}"),
    };
    let wrong_path = body(judge_with(&ORIGINS, &request("/ws", &[])));
    assert!(wrong_path.contains("at /mqtt\n"), "{wrong_path}");
    let wrong_version = body(judge_with(&ORIGINS, &request("/mqtt", &[("Sec-WebSocket-Version", Some("8"))])));
    assert!(wrong_version.contains("Sec-WebSocket-Version: 13\r\n"), "{wrong_version}");
    let wrong_origin = body(judge_with(&ORIGINS, &request("/mqtt", &[("Origin", Some("https://evil.example"))])));
    assert!(wrong_origin.contains("allowed_origins"), "{wrong_origin}");
}

#[test]
fn a_head_that_never_ends_is_refused_at_the_limit() {
    let long = format!("GET /mqtt HTTP/1.1\r\nX: {}", "a".repeat(HEAD_BYTES_MAX));
    assert_eq!(outcome(judge_with(&ORIGINS, &long[..HEAD_BYTES_MAX - 1])), "incomplete");
    assert_eq!(outcome(judge_with(&ORIGINS, &long)), "431");
    let many: String = (0..=HEADERS_MAX).map(|n| format!("X-{n}: y\r\n")).collect();
    assert_eq!(outcome(judge_with(&ORIGINS, &format!("GET / HTTP/1.1\r\n{many}\r\n"))), "431");
    assert_eq!(outcome(judge_with(&ORIGINS, "\x16\x03\x01\x02")), "400");
    assert_eq!(outcome(judge_with(&ORIGINS, &request("/mqtt", &[]).replace("HTTP/1.1", "HTTP/1.0"))), "400");
    assert_eq!(outcome(judge_with(&ORIGINS, &request("/mqtt", &[]).replace("GET", "POST"))), "400");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_prefix_of_a_good_request_is_incomplete(cut in 0usize..200) {
        let request = request("/mqtt", &[]);
        let cut = cut.min(request.len() - 1);
        prop_assert_eq!(judge_with(&ORIGINS, &request[..cut]), Judgement::Incomplete);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), good in 0usize..200) {
        let mut all = request("/mqtt", &[]).into_bytes();
        all.truncate(good);
        all.extend(bytes);
        let _ = judge(&all, &Rules { path: "/mqtt", allowed_origins: &[] });
    }
}
