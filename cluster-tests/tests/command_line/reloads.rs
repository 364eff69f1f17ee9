//! SIGHUP: what is read again, what is said about it, and what a broken file changes: nothing.

use holdfast_cluster_tests::cluster::admin;
use holdfast_cluster_tests::process::{Broker, Line, Setup};
use holdfast_cluster_tests::transport::PATIENCE;

use super::{publish, start};

/// Sends SIGHUP and waits for such a line.
#[track_caller]
fn reload(broker: &Broker, wanted: impl Fn(&Line) -> bool) -> Line {
    let position = broker.log().len();
    broker.signal(libc::SIGHUP);
    let is_reload = |line: &Line| line.field("event").as_deref() == Some("reload") && wanted(line);
    broker.log().wait(position, PATIENCE, is_reload).unwrap_or_else(|| panic!("{}", broker.log().text()))
}

#[track_caller]
fn figure(broker: &Broker, name: &str, labels: &[&str]) -> f64 {
    let (_, text) = admin::get(broker.admin(), "/metrics", PATIENCE).expect("the admin port answers");
    admin::metric(&text, name, labels).unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Waits for the figure that follows the line in the log.
#[track_caller]
fn until_figure(broker: &Broker, name: &str, is_so: impl Fn(f64) -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so(figure(broker, name, &[])) {
        assert!(std::time::Instant::now() < deadline, "{name} stays {}", figure(broker, name, &[]));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

const SUCCESSFUL: &str = "holdfast_config_last_reload_successful";

#[test]
fn a_reload_takes_up_rules_and_names_what_needs_a_restart() {
    let setup = Setup::empty().listener("tcp", "mqtt", "allow_anonymous = true").file("acl.conf", "topic read #\n");
    let broker = start(setup);
    let file = broker.folder().join("holdfast.toml");
    let before = std::fs::read_to_string(&file).expect("the configuration");
    let denied = || figure(&broker, "holdfast_acl_checks_total", &["action=\"publish\"", "result=\"deny\""]);
    assert_eq!(figure(&broker, SUCCESSFUL, &[]), 1.0);

    let good = format!("{before}\n[acl]\nfile = 'acl.conf'\n[sys]\ninterval = '3s'\n");
    std::fs::write(&file, &good).expect("the folder can be written");
    let line = reload(&broker, |line| line.field("needs_restart").is_some());
    assert_eq!(line.field("needs_restart").as_deref(), Some("sys.interval"));
    until_figure(&broker, "holdfast_config_last_reload_success_timestamp_seconds", |at| at > 0.0);
    publish(&broker, &["-t", "t", "-m", "x", "-q", "1"]);
    assert_eq!(denied(), 1.0, "the rules are in force");

    std::fs::write(&file, format!("{before}\n[mqtt]\nmax_inflght = 1\n")).expect("the folder can be written");
    let line = reload(&broker, |line| line.field("error").is_some());
    let error = line.field("error").unwrap_or_default();
    assert!(error.contains("unknown key \"max_inflght\": did you mean \"max_inflight\"?"), "{error}");
    until_figure(&broker, SUCCESSFUL, |successful| successful == 0.0);
    publish(&broker, &["-t", "t", "-m", "x", "-q", "1"]);
    assert_eq!(denied(), 2.0, "they still are, though the broken file names none");

    std::fs::write(&file, before).expect("the folder can be written");
    let line = reload(&broker, |line| line.field("changed").is_some());
    assert!(line.field("changed").is_some_and(|changed| changed == "acl.file"), "{line:?}");
    until_figure(&broker, SUCCESSFUL, |successful| successful == 1.0);
    publish(&broker, &["-t", "t", "-m", "x", "-q", "1"]);
    assert_eq!(denied(), 2.0, "nobody asks any rules");
}
