//! Bans of a node that is alone: whom they are about, what they close, and that they last.

use holdfast_cluster_tests::cluster::admin;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::scene::Scene;
use holdfast_cluster_tests::transport::PATIENCE;
use holdfast_cluster_tests::wire::{Connect, Version};

const BANNED: u8 = 0x8A;
const ADMINISTRATIVE_ACTION: u8 = 0x98;

#[track_caller]
fn ban(broker: &Broker, body: &str) {
    let (status, answer) = admin::post(broker.admin(), "/api/v1/bans", body, PATIENCE).expect("an answer");
    assert_eq!(status, 201, "{answer}");
}

#[track_caller]
fn cli(broker: &Broker, args: &[&str]) -> (Option<i32>, String) {
    let admin = format!("http://{}", broker.admin());
    let program = holdfast_cluster_tests::process::program_path();
    let output = std::process::Command::new(program).args(args).args(["--admin", &admin]).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn field_case_42_who_is_banned_is_closed_and_stays_out() {
    let setup = Setup::empty().listener("tcp", "mqtt", "allow_anonymous = true").with_alice();
    let mut scene = Scene::with(setup);
    let named = |name: &str| Connect::new(Version::V5, name).user_name("alice").password("secret");
    let (mut by_id, _) = scene.connect(&Connect::new(Version::V5, "by-id"));
    let (mut by_user, _) = scene.connect(&named("by-user"));
    let mut good = scene.client("good");
    ban(&scene.broker, r#"{"by": "client_id", "value": "by-id", "reason": "two devices"}"#);
    by_id.expect_disconnect(&[ADMINISTRATIVE_ACTION]);
    ban(&scene.broker, r#"{"by": "user_name", "value": "alice"}"#);
    by_user.expect_disconnect(&[ADMINISTRATIVE_ACTION]);
    assert_eq!(good.fence(), [], "nobody else is closed");
    let code = |scene: &Scene, connect: &Connect| scene.open(connect.version).handshake(connect).reason;
    for _ in 0..2 {
        assert_eq!(code(&scene, &Connect::new(Version::V5, "by-id")), BANNED);
        assert_eq!(code(&scene, &Connect::new(Version::V311, "by-id")), 5);
        assert_eq!(code(&scene, &named("another")), BANNED);
        assert_eq!(code(&scene, &Connect::new(Version::V5, "fine")), 0);
        // They are there when the node is.
        scene.kill_and_start();
    }
    let (done, list) = cli(&scene.broker, &["ban", "list"]);
    assert!(
        done == Some(0) && list.contains("by-id") && list.contains("two devices") && list.contains("alice"),
        "{list}"
    );
    assert_eq!(cli(&scene.broker, &["ban", "rm", "user_name", "alice"]).0, Some(0));
    assert_eq!(code(&scene, &named("another")), 0);
    assert_eq!(cli(&scene.broker, &["ban", "rm", "user_name", "alice"]).0, Some(1));
}

#[test]
fn field_case_51_an_address_that_is_banned_does_not_get_as_far_as_a_connect() {
    let scene = Scene::new();
    let mut there = scene.client("there");
    let (done, _) = cli(&scene.broker, &["ban", "add", "address", "127.0.0.0/8", "--for", "1h", "--reason", "test"]);
    assert_eq!(done, Some(0));
    there.expect_disconnect(&[ADMINISTRATIVE_ACTION]);
    let mut client = scene.open(Version::V5);
    client.send_unless_closed(&Connect::new(Version::V5, "c").bytes());
    let said = client.bytes_until_closed();
    assert!(said.is_empty(), "it is closed before anything is said: {said:02X?}");
    let (_, text) = admin::get(scene.broker.admin(), "/metrics", PATIENCE).expect("the admin port answers");
    let refused = admin::metric(&text, "holdfast_connections_rejected_total", &["reason=\"banned\""]);
    assert!(refused.is_some_and(|refused| refused >= 1.0), "{text}");
    let (done, _) = cli(&scene.broker, &["ban", "rm", "address", "127.0.0.0/8"]);
    assert_eq!(done, Some(0));
    scene.client("again").fence();
}

#[test]
fn acl_test_says_what_the_node_says() {
    let setup = Setup::new()
        .file("acl.conf", "# comment\ntopic read a/#\nuser bob\ntopic write b/+\npattern read d/%c/#\n")
        .section("[acl]\nfile = \"acl.conf\"");
    let scene = Scene::with(setup);
    let config = scene.broker.folder().join("holdfast.toml");
    let config = config.to_str().expect("a path of ours");
    let cases: [(&[&str], i32, &str); 5] = [
        (&["read", "a/b"], 0, "acl.conf:2: topic read a/#"),
        (&["pub", "a/b"], 1, "no_match"),
        (&["pub", "b/x", "--user", "bob"], 0, "acl.conf:4: topic write b/+"),
        (&["sub", "d/c1/+", "--client", "c1"], 0, "acl.conf:5: pattern read d/%c/#"),
        (&["sub", "d/+/x", "--client", "c1"], 1, "no_match"),
    ];
    for (args, code, said) in cases {
        let asked = cli(&scene.broker, &[&["acl", "test"], args].concat());
        let offline = cli(&scene.broker, &[&["acl", "test"], args, &["--config", config]].concat());
        assert!(asked.0 == Some(code) && asked.1.contains(said), "{args:?}: {asked:?}");
        let end = |text: &str| text.rsplit('/').next().map(str::to_owned);
        assert_eq!((asked.0, end(&asked.1)), (offline.0, end(&offline.1)), "the same code answers");
    }
    assert_eq!(cli(&scene.broker, &["acl", "test", "fly", "a"]).0, Some(2));
}
