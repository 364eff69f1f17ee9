//! Probes, the token, and bytes that are no requests.

use std::net::TcpListener;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::transport::{Link, Transport};
use holdfast_cluster_tests::wire::{Connect, Version};

use super::*;

#[test]
fn a_node_that_said_ready_is_so() {
    let broker = start(Setup::new());
    until_good(&broker, "/health/startup");
    for path in ["/health/live", "/health/startup", "/health/ready", "/health/cluster", "/healthz", "/readyz", "/livez"]
    {
        let (status, answer) = ask(&broker, "GET", path);
        assert_eq!(status, 200, "{path}: {answer}");
    }
    let (_, answer) = ask(&broker, "GET", "/health/ready");
    for check in ["started", "event_loops", "listeners", "not_stopping", "storage"] {
        assert!(answer.contains(&format!("\"name\":\"{check}\",\"ok\":true")), "{check}: {answer}");
    }
    for probe in ["live", "ready", "startup", "cluster"] {
        let (code, out, err) = command(&broker, &["health", probe]);
        assert_eq!(code, Some(0), "{probe}: {out}{err}");
    }
    assert!(broker.stop(Duration::from_secs(5)).success());
    let (code, _, err) = command(&broker, &["health"]);
    assert_eq!(code, Some(3), "{err}");
}

#[test]
fn a_node_without_a_cluster_says_so() {
    let broker = start(Setup::new());
    let (code, out, _) = command(&broker, &["cluster", "status"]);
    assert_eq!((code, out.as_str()), (Some(0), "holdfast is a node without a cluster\n"));
    let (code, out, _) = command(&broker, &["cluster", "status", "--json"]);
    assert_eq!(code, Some(0));
    let status: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(
        (&status["clustered"], &status["quorum"], &status["nodes"][0]["own"]),
        (&false.into(), &true.into(), &true.into())
    );
    for args in [&["cluster", "leave"][..], &["cluster", "join", "127.0.0.1:7946"], &["cluster", "force-leave", "n2"]] {
        let (code, _, err) = command(&broker, args);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(err.contains("this node is no part of a cluster") && err.contains("[cluster]"), "{err}");
    }
}

#[test]
fn a_token_is_needed_where_there_is_one() {
    let token = "a-token-that-nobody-guesses";
    let broker = start(Setup::new().file("token", token).admin("token_file = \"token\""));
    let file = broker.folder().join("token");
    let file = file.to_string_lossy();
    until_good(&broker, "/health/ready");
    assert_eq!(ask(&broker, "GET", "/metrics").0, 401);
    let (code, _, err) = command(&broker, &["client", "list"]);
    assert!(code == Some(1) && err.contains("--token-file"), "{err}");
    let (code, out, err) = command(&broker, &["client", "list", "--json", "--token-file", &file]);
    assert_eq!((code, out.as_str()), (Some(0), ""), "{err}");
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound socket");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("holdfast.toml");
    let text = format!("[admin]\nbind = '{address}'\n[[listener]]\nbind = '127.0.0.1:0'\n");
    std::fs::write(&file, text).expect("the temporary folder can be written");
    let (code, _, err) = run(&["serve", &file.to_string_lossy()]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains(&format!("the admin port: cannot listen on {address}")) && err.contains("has this port"),
        "{err}"
    );
}

#[test]
fn bytes_that_are_no_request_do_no_harm() {
    let broker = start(Setup::new());
    let long = [&b"GET /metrics?"[..], &[b'x'; 200_000]].concat();
    let headers = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5_000));
    let body = format!(
        "POST /api/v1/cluster/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\n\r\n{}",
        "x".repeat(200_000)
    );
    let smuggled = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n";
    let connect = Connect::new(Version::V5, "lost").bytes();
    for bytes in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x05hello\r\n\r\n",
        &connect,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &long,
        headers.as_bytes(),
        body.as_bytes(),
        smuggled.as_bytes(),
    ] {
        let answer = say(&broker, bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    for seed in 0..200_u32 {
        // A request with one byte changed.
        let mut bytes =
            b"GET /api/v1/clients?limit=5&after=abc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec();
        let place = seed as usize * 7 % bytes.len();
        bytes[place] = bytes[place].wrapping_add(1 + (seed * 31 % 250) as u8);
        bytes.extend_from_slice(b"\r\n\r\n");
        let answer = say_all(&broker, &bytes);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{answer}");
    }
    until_good(&broker, "/health/ready");
}

#[test]
fn who_holds_the_port_holds_neither_probes_nor_clients_up() {
    let broker = start(Setup::new());
    let held: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(broker.admin()).expect("the port is open");
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").expect("a socket of ours");
            stream
        })
        .collect();
    until_good(&broker, "/health/ready");
    for _ in 0..20 {
        assert_eq!(ask(&broker, "GET", "/health/ready").0, 200);
    }
    let link = Link::open(Transport::Tcp, broker.listener("tcp"), None).expect("the broker listens");
    let mut client = Client::new(link, Version::V5);
    client.connect(&Connect::new(Version::V5, "client"));
    assert!(client.publish("t", "x", 1) < 0x80);
    drop(held);
}
