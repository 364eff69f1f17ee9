//! The port over a source that answers what a test wants: statuses, bodies, and what holds whoever wants to hold it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::view::{Check, Client, ClientDetail, ClientPage, Cluster, Kicked, Link, Member};
use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Knows the client `a/b`.
#[derive(Default)]
struct Known {
    failing: AtomicBool,
    banned: parking_lot::Mutex<Vec<Ban>>,
}

fn found() -> ClientDetail {
    let client = Client { client_id: "a/b".to_owned(), ..Client::default() };
    ClientDetail { client, ..ClientDetail::default() }
}

impl Source for Known {
    fn live(&self) -> Vec<Check> {
        vec![Check::new("event_loops", true, "")]
    }

    fn ready(&self) -> Vec<Check> {
        vec![Check::new("storage", !self.failing.load(Ordering::Acquire), "low")]
    }

    fn startup(&self) -> Vec<Check> {
        Vec::new()
    }

    fn cluster(&self) -> Cluster {
        let member = Member { name: "n1".to_owned(), live: true, own: true, leader: true, ..Member::default() };
        let link = Link { peer: "n2".to_owned(), rtt_ms: Some(1.5), ..Link::default() };
        let quorum = !self.failing.load(Ordering::Acquire);
        Cluster {
            node: "n1".to_owned(),
            nodes: vec![member],
            links: vec![link],
            quorum,
            grant_remaining_ms: Some(2_500),
            ..Cluster::default()
        }
    }

    fn metrics<'a>(&'a self, out: &'a mut Exposition) -> Soon<'a, ()> {
        out.single("own", Kind::Gauge, "Own.", 7.0);
        Box::pin(async {})
    }

    fn clients(&self, asked: PageRequest) -> Soon<'_, Result<ClientPage, Trouble>> {
        let next = asked.after.map(|after| format!("{after} and {}", asked.limit));
        Box::pin(async move { Ok(ClientPage { next, ..ClientPage::default() }) })
    }

    fn client(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<ClientDetail>, Trouble>> {
        Box::pin(async move { Ok((&*client_id == "a/b").then(found)) })
    }

    fn closed(&self, asked: ClosedRequest) -> Soon<'_, Result<view::ClosedPage, Trouble>> {
        let next = asked.after.map(|after| format!("{after} {} {:?}", asked.limit, asked.client_id));
        Box::pin(async move { Ok(view::ClosedPage { next, ..view::ClosedPage::default() }) })
    }

    fn topic_match(&self, topic: Arc<str>) -> Soon<'_, Result<view::Matches, Trouble>> {
        Box::pin(async move { Ok(view::Matches { topic: topic.to_string(), ..view::Matches::default() }) })
    }

    fn kick(&self, client_id: Arc<str>) -> Soon<'_, Result<Option<Kicked>, Trouble>> {
        let kicked = Kicked { client_id: client_id.to_string(), node: "n1".to_owned(), was_connected: true };
        Box::pin(async move { Ok((&*client_id == "a/b").then_some(kicked)) })
    }

    fn join(&self, address: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async move { Err(Trouble::new(409, "joined", address).hint("leave first")) })
    }

    fn leave(&self, force: bool) -> Soon<'_, Result<view::Leaving, Trouble>> {
        Box::pin(async move { Ok(view::Leaving { done: force, progress: "the node waits".to_owned() }) })
    }

    fn retained(&self, asked: RetainedRequest) -> Soon<'_, Result<view::RetainedPage, Trouble>> {
        let next = Some(format!("{} {} {}", asked.filter, asked.limit, asked.values));
        Box::pin(async move { Ok(view::RetainedPage { messages: Vec::new(), next }) })
    }

    fn retained_of(&self, topic: &str) -> Option<view::Retained> {
        (topic == "a/b").then(view::Retained::default)
    }

    fn remove_retained(&self, _filter: Arc<str>, dry_run: bool) -> Soon<'_, Result<view::RetainedRemoved, Trouble>> {
        Box::pin(
            async move { Ok(view::RetainedRemoved { matched: 3, removed: if dry_run { 0 } else { 3 }, more: false }) },
        )
    }

    fn publish(&self, messages: Vec<PublishRequest>) -> Soon<'_, Result<Vec<view::Published>, Trouble>> {
        let published = |message: PublishRequest| view::Published { matched: &*message.payload == b"hi" };
        Box::pin(async move { Ok(messages.into_iter().map(published).collect()) })
    }

    fn nodes(&self) -> Soon<'_, view::Nodes> {
        let node = |name: &str| view::NodeLoad {
            member: Member { name: name.to_owned(), ..Member::default() },
            load: Some(view::Load { node: name.to_owned(), ..view::Load::default() }),
        };
        Box::pin(async move { view::Nodes { nodes: vec![node("n1"), node("n2")] } })
    }

    fn drain(&self, node: Arc<str>, terms: view::DrainTerms) -> Soon<'_, Result<view::Drain, Trouble>> {
        let rate = terms.rate.unwrap_or(0);
        Box::pin(async move { Ok(view::Drain { reason: node.to_string(), rate, ..view::Drain::default() }) })
    }

    fn undrain(&self, node: Arc<str>) -> Soon<'_, Result<bool, Trouble>> {
        Box::pin(async move { Ok(&*node == "n1") })
    }

    fn rebalance_plan(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        let node =
            |(node, weight): (String, u32)| view::RebalanceNode { node, weight, ..view::RebalanceNode::default() };
        Box::pin(async move { Ok(view::Rebalance { nodes: asked.weights.into_iter().map(node).collect() }) })
    }

    fn rebalance_start(&self, asked: RebalanceRequest) -> Soon<'_, Result<view::Rebalance, Trouble>> {
        self.rebalance_plan(asked)
    }

    fn rebalance_stop(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { Ok(()) })
    }

    fn transfer_leader(&self) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async { Err(Trouble::new(409, "not_leader", "")) })
    }

    fn force_leave(&self, node: String) -> Soon<'_, Result<(), Trouble>> {
        Box::pin(async move { Err(Trouble::new(404, "no_such_node", node)) })
    }

    fn bans(&self) -> Vec<Ban> {
        self.banned.lock().clone()
    }

    fn change_bans(&self, command: holdfast_raft::Command) -> Soon<'_, Result<(), Trouble>> {
        match command {
            holdfast_raft::Command::Ban { ban } => self.banned.lock().push(ban),
            holdfast_raft::Command::Unban { target } => self.banned.lock().retain(|ban| ban.target != target),
            other => panic!("{other:?}"),
        }
        Box::pin(async { Ok(()) })
    }

    fn explain(&self, subject: Subject, action: Action, topic: &str) -> Decision {
        Arc::new(crate::access::acl::Acl::default()).rights(subject).explain(action, topic)
    }
}

fn open(token_file: Option<std::path::PathBuf>) -> AdminPort {
    let config = config::Admin { bind: Some(SocketAddr::from(([127, 0, 0, 1], 0))), token_file, keys_file: None };
    AdminPort::open(&config, None).unwrap().unwrap()
}

fn begun() -> (AdminPort, Arc<Known>) {
    let (port, known) = (open(None), Arc::<Known>::default());
    port.begin(known.clone());
    (port, known)
}

/// What the port says to these bytes until it closes, or for as long as a test waits.
async fn say(port: &AdminPort, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(port.address()).await.unwrap();
    // A port that has heard enough closes.
    let _ = stream.write_all(bytes.as_ref()).await;
    read_to_end(stream).await
}

async fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the port closes");
    // A reset is an end as well.
    let _ = read;
    String::from_utf8(answer).unwrap()
}

async fn ask(port: &AdminPort, method: &str, path: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", port.address());
    let answer = say(port, format!("{head}Content-Length: {length}\r\n\r\n{body}")).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}

async fn get(port: &AdminPort, path: &str) -> (u16, String) {
    ask(port, "GET", path, "").await
}

#[tokio::test]
async fn a_node_that_starts_is_alive_and_not_ready() {
    let port = open(None);
    assert_eq!(get(&port, "/health/live").await.0, 200);
    for path in ["/health/ready", "/health/startup", "/health/cluster", "/metrics", "/api/v1/clients"] {
        let (status, answer) = get(&port, path).await;
        assert_eq!(status, 503, "{path}");
        assert!(answer.contains("\r\nretry-after: 2\r\n") && answer.contains("starting"), "{answer}");
    }
    port.begin(Arc::new(Known::default()));
    for path in ["/health/live", "/health/ready", "/health/startup", "/health/cluster", "/livez", "/readyz", "/healthz"]
    {
        assert_eq!(get(&port, path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn ended_connections_and_matches_are_asked_for_with_what_was_said() {
    let (port, _) = begun();
    let (status, answer) = get(&port, "/api/v1/connections?state=closed&after=12.3.n.1&limit=5&client=a").await;
    assert!(status == 200 && answer.contains(r#""next":"12.3.n.1 5 Some(\"a\")""#), "{answer}");
    for query in ["", "?state=open", "?state=closed&after=1.2", "?state=closed&limit=0"] {
        assert_eq!(get(&port, &format!("/api/v1/connections{query}")).await.0, 400, "{query}");
    }
    let (status, answer) = get(&port, "/api/v1/topics/match?topic=a%2Fb").await;
    assert!(status == 200 && answer.contains(r#""topic":"a/b""#), "{answer}");
    for topic in ["", "?topic=", "?topic=a%2F%23", "?topic=%2B"] {
        assert_eq!(get(&port, &format!("/api/v1/topics/match{topic}")).await.0, 400, "{topic}");
    }
}

#[tokio::test]
async fn a_check_that_fails_is_503_and_named() {
    let (port, known) = begun();
    known.failing.store(true, Ordering::Release);
    let (status, answer) = get(&port, "/health/ready").await;
    assert_eq!(status, 503);
    assert!(
        answer.ends_with(r#"{"status":"failed","checks":[{"name":"storage","ok":false,"detail":"low"}]}"#),
        "{answer}"
    );
    assert!(
        answer.contains("\r\nretry-after: 2\r\n") && answer.contains("\r\ncache-control: no-store\r\n"),
        "{answer}"
    );
    assert_eq!(get(&port, "/health/cluster").await.0, 503, "no quorum");
    assert_eq!(get(&port, "/health/live").await.0, 200, "a restart would not help");
    assert_eq!(get(&port, "/api/v1/cluster/status").await.0, 200, "a question, not a probe");
}

#[tokio::test]
async fn metrics_have_what_the_cluster_and_the_node_tell() {
    let (port, _) = begun();
    let (status, answer) = get(&port, "/metrics").await;
    assert_eq!(status, 200);
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    for line in [
        "holdfast_own{node=\"n1\"} 7",
        "holdfast_cluster_leader{node=\"n1\"} 1",
        "holdfast_grant_remaining_seconds{node=\"n1\"} 2.5",
        "holdfast_cluster_peer_rtt_seconds{node=\"n1\",peer=\"n2\"} 0.0015",
        "holdfast_cluster_nodes{node=\"n1\",state=\"dead\"} 0",
    ] {
        assert!(answer.contains(&format!("\n{line}\n")), "{line}: {answer}");
    }
}

#[tokio::test]
async fn clients_are_asked_for_by_page_and_by_id() {
    let (port, _) = begun();
    let (_, answer) = get(&port, "/api/v1/clients?limit=7&after=x%26y").await;
    assert!(answer.contains(r#""next":"x&y and 7""#), "{answer}");
    let (_, answer) = get(&port, "/api/v1/clients?after=a").await;
    assert!(answer.contains("a and 100"), "{answer}");
    let (status, answer) = get(&port, "/api/v1/clients/a%2Fb").await;
    assert_eq!(status, 200);
    assert!(answer.contains(r#""client_id":"a/b""#), "{answer}");
    let (status, answer) = ask(&port, "POST", "/api/v1/clients/a%2Fb/kick", "").await;
    assert_eq!((status, answer.contains(r#""was_connected":true"#)), (200, true), "{answer}");
    for (method, path) in [("GET", "/api/v1/clients/nobody"), ("POST", "/api/v1/clients/nobody/kick")] {
        let (status, answer) = ask(&port, method, path, "").await;
        assert_eq!(status, 404);
        assert!(answer.contains(r#"{"code":"no_such_client","message":"#), "{answer}");
    }
}

#[tokio::test]
async fn commands_to_the_cluster_take_what_they_need() {
    let (port, _) = begun();
    let (status, answer) = ask(&port, "POST", "/api/v1/cluster/join", r#"{"address":"n2:7946"}"#).await;
    assert_eq!(status, 409);
    assert!(answer.ends_with(r#"{"code":"joined","message":"n2:7946","hint":"leave first"}"#), "{answer}");
    let (_, answer) = ask(&port, "POST", "/api/v1/cluster/join", "").await;
    assert!(answer.contains("the body: it is empty") && answer.contains("HOST:PORT"), "{answer}");
    let (status, answer) = ask(&port, "POST", "/api/v1/cluster/leave", "").await;
    assert!(status == 202 && answer.ends_with(r#"{"done":false,"progress":"the node waits"}"#), "{answer}");
    assert_eq!(ask(&port, "POST", "/api/v1/cluster/leave", r#"{"force":true}"#).await.0, 200);
    assert_eq!(ask(&port, "POST", "/api/v1/cluster/leave", r#"{"forced":true}"#).await.0, 400);
    assert_eq!(ask(&port, "POST", "/api/v1/cluster/force-leave", r#"{"node":"n2"}"#).await.0, 404);
}

#[tokio::test]
async fn messages_are_published_with_the_payload_that_was_meant() {
    let (port, _) = begun();
    for (body, status, matched) in [
        (r#"{"topic":"t","payload":"hi"}"#, 200, "true"),
        (r#"{"topic":"t","payload":"aGk=","payload_encoding":"base64"}"#, 200, "true"),
        (r#"{"topic":"t","payload":"hi","payload_encoding":"json"}"#, 202, "false"),
        (r#"{"topic":"t","payload":"ho","retain":true}"#, 200, "false"),
    ] {
        let (given, answer) = ask(&port, "POST", "/api/v1/publish", body).await;
        assert!(given == status && answer.ends_with(&format!(r#"{{"matched":{matched}}}"#)), "{body}: {answer}");
    }
    for wrong in [
        r#"{"topic":"t","payload":5}"#,
        r#"{"topic":"t","qos":3}"#,
        r#"{"topic":"t","payload":"*","payload_encoding":"base64"}"#,
        r#"{"payload":"hi"}"#,
        r#"{"topic":"t","retained":true}"#,
    ] {
        assert_eq!(ask(&port, "POST", "/api/v1/publish", wrong).await.0, 400, "{wrong}");
    }
    let (_, answer) =
        ask(&port, "POST", "/api/v1/publish/batch", r#"{"messages":[{"topic":"t"},{"topic":"t","payload":"hi"}]}"#)
            .await;
    assert!(answer.ends_with(r#"{"messages":[{"matched":false},{"matched":true}]}"#), "{answer}");
    let (_, answer) = get(&port, "/api/v1/retained?filter=a%2F%23&limit=5&values=true").await;
    assert!(answer.contains("a/# 5 true"), "{answer}");
    assert_eq!(get(&port, "/api/v1/retained/a%2Fb").await.0, 200);
    assert_eq!(get(&port, "/api/v1/retained/a").await.0, 404);
    let (_, answer) = ask(&port, "POST", "/api/v1/retained/remove", r#"{"filter":"a/#","dry_run":true}"#).await;
    assert!(answer.contains(r#""matched":3,"removed":0"#), "{answer}");
}

#[tokio::test]
async fn nodes_are_emptied_by_name_and_the_one_that_is_asked_is_local() {
    let (port, _) = begun();
    let (status, answer) = ask(&port, "POST", "/api/v1/nodes/local/drain", r#"{"rate":5}"#).await;
    assert!(status == 202 && answer.contains(r#""reason":"n1""#) && answer.contains(r#""rate":5"#), "{answer}");
    let (_, answer) = ask(&port, "POST", "/api/v1/nodes/n2/undrain", "").await;
    assert!(answer.ends_with(r#"{"undone":false}"#), "{answer}");
    assert!(get(&port, "/api/v1/nodes/local").await.1.contains(r#""name":"n1""#));
    assert_eq!(get(&port, "/api/v1/nodes/n9").await.0, 404);
    let (_, answer) = ask(&port, "POST", "/api/v1/cluster/rebalance/plan", r#"{"weights":{"n4":3}}"#).await;
    assert!(answer.contains(r#""node":"n4","weight":3"#), "{answer}");
    for wrong in
        [r#"{"rate":0}"#, r#"{"grace_ms":3600001}"#, r#"{"spread_ms":10}"#, r#"{"redirect":"a\u0000"}"#, r#"{"rat":1}"#]
    {
        assert_eq!(ask(&port, "POST", "/api/v1/nodes/n1/drain", wrong).await.0, 400, "{wrong}");
    }
}

#[tokio::test]
async fn wrong_requests_are_told_what_is_wrong() {
    let (port, _) = begun();
    let large = format!(r#"{{"address":"{}"}}"#, "x".repeat(BODY_BYTES_MAX));
    for (method, path, body, status, code) in [
        ("GET", "/", "", 404, "unknown_path"),
        ("GET", "/api/v1/clients/a/b/c", "", 404, "unknown_path"),
        ("POST", "/metrics", "", 405, "wrong_method"),
        ("POST", "/health/live", "", 405, "wrong_method"),
        ("GET", "/api/v1/cluster/leave", "", 405, "wrong_method"),
        ("GET", "/api/v1/clients?limit=0", "", 400, "invalid"),
        ("GET", "/api/v1/clients?limit=1001", "", 400, "invalid"),
        ("GET", "/api/v1/clients?limit=x", "", 400, "invalid"),
        ("GET", "/api/v1/clients?lmit=1", "", 400, "invalid"),
        ("GET", "/api/v1/clients/%FF", "", 400, "invalid"),
        ("POST", "/api/v1/cluster/join", "", 400, "invalid"),
        ("POST", "/api/v1/cluster/join", "[", 400, "invalid"),
        ("POST", "/api/v1/cluster/join", r#"{"address":5}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/join", r#"{"address":"n2"}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/join", r#"{"address":":1"}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/join", r#"{"address":"n2:0"}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/join", r#"{"address":"n2:1","x":1}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/force-leave", r#"{"node":""}"#, 400, "invalid"),
        ("POST", "/api/v1/cluster/join", &large, 413, "too_large"),
    ] {
        let (given, answer) = ask(&port, method, path, body).await;
        assert_eq!(given, status, "{method} {path} {answer}");
        assert!(answer.contains(&format!(r#"{{"code":"{code}","message":"#)), "{method} {path} {answer}");
    }
}

#[tokio::test]
async fn a_token_is_needed_for_all_but_health() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
    let port = open(Some(file.path().to_owned()));
    port.begin(Arc::new(Known::default()));
    for path in ["/health/live", "/health/ready", "/health/startup", "/health/cluster", "/healthz", "/readyz", "/livez"]
    {
        assert_eq!(get(&port, path).await.0, 200, "{path}");
    }
    for path in ["/metrics", "/api/v1/clients", "/api/v1/cluster/status", "/"] {
        let (status, answer) = get(&port, path).await;
        assert_eq!(status, 401, "{path}");
        assert!(answer.contains(r#""code":"unauthorized""#), "{answer}");
    }
    let head = "GET /metrics HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
    assert!(say(&port, head).await.starts_with("HTTP/1.1 200 "), "whatever the host is called");
}

#[tokio::test]
async fn what_is_no_http_is_closed() {
    let (port, _) = begun();
    let long = [&b"GET /"[..], &[b'x'; 100_000]].concat();
    let many = format!("GET /livez HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1000));
    for bytes in [
        &b"\x10\x10\x00\x04MQTT\x05\x02\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET\r\n\r\n",
        &long,
        many.as_bytes(),
    ] {
        let answer = say(&port, bytes).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(get(&port, "/health/live").await.0, 200);
}

#[tokio::test]
async fn who_holds_connections_open_holds_nobody_up() {
    let (port, _) = begun();
    let mut held = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(port.address()).await.unwrap();
        stream.write_all(b"GET /health/live HTTP/1.1\r\nX: ").await.unwrap();
        held.push(stream);
    }
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(get(&port, "/health/live").await.0, 200);
    }
    assert!(began.elapsed() < HEAD_TIMEOUT, "nobody waited until the slow ones were given up");
    let idle = TcpStream::connect(port.address()).await.unwrap();
    // The oldest made room, the others have their time.
    for stream in held {
        read_to_end(stream).await;
    }
    assert_eq!(read_to_end(idle).await, "", "nor may a connection be idle for long");
}

#[tokio::test]
async fn one_connection_may_ask_several_times() {
    let (port, _) = begun();
    let one = format!("GET /livez HTTP/1.1\r\nHost: {0}\r\n\r\n", port.address());
    let last = format!("GET /livez HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n", port.address());
    let answers = say(&port, format!("{one}{one}{last}")).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
}

#[tokio::test]
async fn a_port_that_cannot_be_opened_says_why() {
    let port = open(None);
    let with = |bind| config::Admin { bind, ..config::Admin::default() };
    let config = with(Some(port.address()));
    let error = AdminPort::open(&config, None).unwrap_err().to_string();
    assert!(error.contains("has this port") && error.contains("[admin]"), "{error}");
    let config = config::Admin { token_file: Some("/nonexistent".into()), ..config };
    let error = AdminPort::open(&config, None).unwrap_err();
    assert!(matches!(error, OpenError::Token(_)), "{error}");
    assert!(AdminPort::open(&with(None), None).unwrap().is_none());
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("api-keys"), "no key\n").unwrap();
    let any = with(Some(SocketAddr::from(([127, 0, 0, 1], 0))));
    let error = AdminPort::open(&any, Some(dir.path())).unwrap_err().to_string();
    assert!(error.contains("api-keys: line 1: "), "who cannot know its keys lets nobody in by them: {error}");
}

/// What one row of the document needs to be asked: its own path with something in place of the names.
fn asked_of(path: &str) -> String {
    path.replace("{id}", "a%2Fb").replace("{topic}", "a%2Fb").replace("{filter}", "a").replace("{name}", "n1")
}

#[tokio::test]
async fn the_document_and_the_port_know_the_same_paths() {
    let (port, _) = begun();
    let (_, answer) = get(&port, "/api/v1/openapi.json").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in ["get", "post", "put", "delete", "patch"] {
            let (status, answer) = ask(&port, &method.to_uppercase(), &asked_of(path), "").await;
            let known = !answer.contains("unknown_path") && status != 405;
            assert_eq!(known, methods.get(method).is_some(), "{method} {path}: {answer}");
        }
    }
}

#[tokio::test]
async fn keys_are_made_shown_once_and_reach_as_far_as_they_say() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "0123456789abcdef\n").unwrap();
    let port = open(Some(file.path().to_owned()));
    port.begin(Arc::new(Known::default()));
    let by = async |key: &str, method: &str, path: &str, body: &str| {
        let (address, length) = (port.address(), body.len());
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {key}");
        let answer = say(&port, format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}")).await;
        let status: u16 = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, body.to_owned())
    };
    let token = "0123456789abcdef";
    let (status, made) = by(token, "POST", "/api/v1/keys", r#"{"name":"probe","scopes":["read"]}"#).await;
    assert_eq!(status, 201, "{made}");
    let made: view::NewKey = serde_json::from_str(&made).unwrap();
    assert_eq!(by(&made.secret, "GET", "/api/v1/clients", "").await.0, 200);
    for (method, path, code) in
        [("GET", "/metrics", "scope"), ("POST", "/api/v1/clients/a/kick", "scope"), ("GET", "/api/v1/keys", "scope")]
    {
        let (status, answer) = by(&made.secret, method, path, "").await;
        assert!(status == 403 && answer.contains(&format!("\"code\":\"{code}\"")), "{method} {path}: {answer}");
    }
    let (_, list) = by(token, "GET", "/api/v1/keys", "").await;
    assert!(list.contains("probe") && !list.contains(&made.secret), "{list}");
    let path = format!("/api/v1/keys/{}", made.key.id);
    assert_eq!(by(token, "DELETE", &path, "").await.0, 200);
    assert_eq!(by(token, "DELETE", &path, "").await.0, 404);
    assert_eq!(by(&made.secret, "GET", "/api/v1/clients", "").await.0, 401);
    let (_, audit) = by(token, "GET", "/api/v1/audit?limit=9", "").await;
    let audit: view::AuditPage = serde_json::from_str(&audit).unwrap();
    let told: Vec<_> = audit
        .changes
        .iter()
        .map(|line| (line.by.as_str(), line.method.as_str(), line.status, line.code.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("token", "DELETE", 404, "no_such_key"),
            ("token", "DELETE", 200, ""),
            ("refused", "POST", 403, "scope"),
            ("token", "POST", 201, "")
        ]
    );
    assert!(audit.changes.iter().all(|line| line.from == "127.0.0.1" && line.at_ms > 0));
}
