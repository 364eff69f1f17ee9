//! Credentials that run out or are taken away: the connection ends with a reason, the Will comes, and the session stays for whoever proves to be its client.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use holdfast_cluster_tests::cluster::admin;
use holdfast_cluster_tests::process::Setup;
use holdfast_cluster_tests::scene::Scene;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Packet, Version, Will, reason};

use crate::BOTH_VERSIONS;

const SECRET: &str = "the secret of the tests, which is long enough";

const OPEN: &str = "allow_anonymous = true";

fn unix_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs()
}

/// A token of HS256 for a user, until then.
fn token(user: &str, expires_at: u64) -> String {
    let encode = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(json!({"alg": "HS256"})), encode(json!({"sub": user, "exp": expires_at})));
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac))
}

fn with_tokens() -> Scene {
    let jwt = "[auth]\nfail_delay = \"off\"\njwt = { secret_file = \"token-secret\" }";
    let setup = Setup::empty().listener("tcp", "mqtt", OPEN).file("token-secret", SECRET).section(jwt);
    Scene::with(setup)
}

fn bearer(version: Version, name: &str, token: &str) -> Connect {
    let will = Will::new(format!("will/{name}"), "gone");
    Connect::new(version, name).user_name("u").password(token).will(will).durable(300)
}

#[test]
fn field_case_45_a_token_that_runs_out_ends_its_connection_and_not_its_session() {
    let scene = with_tokens();
    let mut watcher = scene.client("watcher");
    watcher.subscribe("will/#", 1);
    for version in BOTH_VERSIONS {
        let name = format!("{version:?}");
        let expires_at = unix_secs() + 3;
        let old = token("bob", expires_at);
        let (mut client, _) = scene.connect(&bearer(version, &name, &old));
        client.subscribe(format!("for/{name}"), 1);
        assert!(client.publish("x", "1", 1) < 0x80);
        if version == Version::V5 {
            client.expect_disconnect(&[reason::NOT_AUTHORIZED]);
        } else {
            client.expect_close();
        }
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
        let expiry = Duration::from_secs(expires_at);
        assert!(ended + Duration::from_millis(50) >= expiry, "not before");
        assert!(ended < expiry + Duration::from_secs(2), "{:?} late", ended - expiry);
        assert_eq!(watcher.take().topic, format!("will/{name}"), "the Will is published");
        // The old token is of no use any more; the session is there for a fresh one.
        let mut late = scene.open(version);
        let refused = late.handshake(&bearer(version, &name, &old));
        assert_eq!(refused.reason, if version == Version::V5 { reason::NOT_AUTHORIZED } else { 5 });
        scene.client(&format!("p-{name}")).publish(format!("for/{name}"), "kept", 1);
        let mut fresh = scene.resume(&bearer(version, &name, &token("bob", unix_secs() + 300)));
        assert_eq!(fresh.take().text(), "kept");
        fresh.disconnect();
    }
}

#[test]
fn who_has_lost_its_password_or_key_is_disconnected_and_nobody_else() {
    let auth = "[auth]\npassword_file = \"passwords\"\njwt = { secret_file = \"token-secret\" }";
    let alice = std::fs::read_to_string(Setup::empty().with_alice().path("passwords")).expect("it was just written");
    let setup = Setup::empty()
        .listener("tcp", "mqtt", OPEN)
        .file("passwords", &format!("{alice}{}", alice.replace("alice", "carol")))
        .file("token-secret", SECRET)
        .section(auth);
    let scene = Scene::with(setup);
    let user = |name: &str| Connect::new(Version::V5, name).user_name(name).password("secret");
    let (mut alice_client, _) = scene.connect(&user("alice"));
    let (mut carol, _) = scene.connect(&user("carol"));
    let (mut bob, _) = scene.connect(&Connect::new(Version::V5, "bob").password(token("bob", unix_secs() + 300)));
    let mut anonymous = scene.client("anonymous");
    let reload = |file: &str, text: &str| {
        std::fs::write(scene.broker.folder().join(file), text).expect("the folder can be written");
        scene.broker.signal(libc::SIGHUP);
    };
    // A broken file changes nothing.
    let before = scene.broker.log().len();
    reload("passwords", "alice:plain\n");
    assert!(scene.broker.log().wait(before, PATIENCE, |line| line.contains("is not usable")).is_some());
    alice_client.fence();
    reload("passwords", &alice.replace("alice", "carol"));
    alice_client.expect_disconnect(&[reason::NOT_AUTHORIZED]);
    for client in [&mut carol, &mut bob, &mut anonymous] {
        client.fence();
    }
    reload("token-secret", "another secret, which is long enough as well");
    bob.expect_disconnect(&[reason::NOT_AUTHORIZED]);
    for client in [&mut carol, &mut anonymous] {
        client.fence();
    }
}

#[test]
fn whoever_is_refused_is_told_of_in_the_log_with_what_would_let_him_in_and_without_secrets() {
    let setup = Setup::empty().listener("tcp", "mqtt", "allow_anonymous = false").with_alice();
    let scene = Scene::with(setup);
    let refused = |connect: &Connect| scene.open(Version::V5).handshake(connect).reason;
    let counted = |method: &str| {
        let (_, text) = admin::get(scene.broker.admin(), "/metrics", PATIENCE).expect("the admin port answers");
        let labels = [&*format!("method=\"{method}\""), "result=\"deny\""];
        admin::metric(&text, "holdfast_auth_total", &labels).expect("is counted")
    };
    let before = ["password", "anonymous"].map(counted);
    assert_eq!(refused(&Connect::new(Version::V5, "nobody")), reason::NOT_AUTHORIZED);
    let began = Instant::now();
    let wrong = Connect::new(Version::V5, "guesser").user_name("alice").password("hunter2hunter2");
    assert_eq!(refused(&wrong), reason::BAD_USER_NAME_OR_PASSWORD);
    assert!(began.elapsed() >= Duration::from_millis(200), "the answer is held back");
    let log = scene.broker.log();
    let told = |client: &str| log.wait(0, PATIENCE, |line| line.field("client_id").as_deref() == Some(client));
    let line = told("nobody").expect("a line");
    assert!(line.contains("allow_anonymous = true") && line.contains("[[listener]] with name"), "{}", log.text());
    let line = told("guesser").expect("a line");
    assert_eq!((line.field("user_name"), line.field("method")), (Some("alice".into()), Some("password".into())));
    assert!(line.contains("holdfast passwd"), "{}", log.text());
    assert!(!log.text().contains("hunter2"), "no password is in the log");
    assert_eq!(["password", "anonymous"].map(counted), before.map(|count| count + 1.0));
}

#[test]
fn who_keeps_to_a_wrong_password_slows_nobody_else() {
    let setup = Setup::empty().listener("tcp", "mqtt", OPEN).with_alice();
    let scene = Scene::with(setup);
    let mut bystander = scene.client("bystander");
    let ping = |client: &mut holdfast_cluster_tests::client::Client| {
        let mut times: Vec<Duration> = (0..200)
            .map(|_| {
                let began = Instant::now();
                client.fence();
                began.elapsed()
            })
            .collect();
        times.sort();
        times[times.len() / 2]
    };
    let before = ping(&mut bystander);
    let guesses: Vec<_> = (0..100)
        .map(|number| {
            let mut client = scene.open(Version::V5);
            let user = format!("user-{number}");
            client.send(&Connect::new(Version::V5, &user).user_name(&user).password("wrong").bytes());
            client
        })
        .collect();
    let during = ping(&mut bystander);
    assert!(during < before * 2 + Duration::from_millis(5), "{before:?} before, {during:?} meanwhile");
    for mut client in guesses {
        let answer = client.wait_for("a CONNACK", |packet| matches!(packet, Packet::ConnAck(_)));
        assert!(matches!(answer, Packet::ConnAck(ack) if ack.reason == reason::BAD_USER_NAME_OR_PASSWORD));
    }
}
