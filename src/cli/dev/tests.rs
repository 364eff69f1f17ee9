//! The plan and what nodes are told, the files of the folder, and what is printed. That real nodes start is tested in `cluster-tests`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use super::folder::Folder;
use super::plan::Plan;
use super::{Failure, remote, table};
use crate::config::Config;

fn plan(count: u8, base: Option<u16>) -> Plan {
    Plan::new("dev-7f3a".to_owned(), count, base, false).expect("ports")
}

#[test]
fn nodes_understand_what_they_are_told() {
    let plan = plan(3, None);
    for (node, number) in plan.nodes.iter().zip(0..) {
        let config = Config::parse(&plan.configuration(node), Path::new("dev/n1/holdfast.toml")).expect("it is good");
        assert_eq!(config.node.name, node.name);
        assert_eq!(config.node.data_dir.as_deref(), Some(Path::new("dev/n1/data")));
        assert_eq!(config.admin.bind.map(|bind| bind.port()), Some(18083 + 1000 * number));
        let binds: Vec<_> = config.listeners.iter().map(|listener| (listener.scheme(), listener.bind.port())).collect();
        assert_eq!(binds, [("mqtt", 1883 + 1000 * number), ("ws", 8083 + 1000 * number)]);
        assert!(config.listeners.iter().all(|listener| listener.allow_anonymous == Some(true)));
        let cluster = config.cluster.expect("a cluster");
        assert_eq!((cluster.name.as_str(), cluster.expected_size), ("dev-7f3a", 3));
        assert_eq!(cluster.bind.port(), 7946 + 1000 * number);
        assert_eq!(cluster.advertise, Some(cluster.bind.to_string()));
        assert_eq!(cluster.secret_file, Path::new("dev/n1/../secret"));
        assert_eq!(cluster.seeds, ["127.0.0.1:7946", "127.0.0.1:8946", "127.0.0.1:9946"]);
    }
}

#[test]
fn a_large_cluster_is_founded_by_five() {
    let plan = plan(9, Some(20_000));
    let config = Config::parse(&plan.configuration(&plan.nodes[8]), Path::new("holdfast.toml")).expect("it is good");
    let cluster = config.cluster.expect("a cluster");
    assert_eq!((cluster.expected_size, cluster.seeds.len(), cluster.bind.port()), (5, 9, 20_083));
}

#[test]
fn no_two_ports_are_the_same() {
    for base in [None, Some(0), Some(1024), Some(65_452)] {
        let plan = plan(9, base);
        let ports: BTreeSet<_> =
            plan.nodes.iter().flat_map(|node| [node.mqtt, node.ws, node.admin, node.cluster]).collect();
        assert_eq!(ports.len(), 36, "{base:?}");
    }
    assert!(Plan::new(String::new(), 9, Some(65_453), false).is_err());
}

#[test]
fn the_folder_keeps_plan_and_secret() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::new(&place.path().join("dev"));
    assert!(!folder.is_occupied() && !folder.is_locked());
    assert_eq!(folder.plan().expect("no error"), None);
    let lock = folder.lock().expect("nobody has it");
    assert!(folder.is_locked());
    assert!(matches!(folder.lock(), Err(Failure::Usage(_))), "one cluster at a time");
    let plan = plan(2, Some(0));
    folder.write(&plan).expect("it can be written");
    assert_eq!(folder.plan().expect("good"), Some(plan.clone()));
    let secret = || std::fs::read_to_string(folder.path().join("secret")).expect("a secret");
    let first = secret();
    assert_eq!(first.len(), 64);
    let mode = std::fs::metadata(folder.path().join("secret")).expect("a secret").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    folder.write(&plan).expect("it can be written");
    assert_eq!(secret(), first, "nodes that are back prove the same");
    drop(lock);
    assert!(!folder.is_locked());
    folder.remove(&plan).expect("it can be removed");
    assert!(!folder.path().exists());
}

#[test]
fn what_is_not_ours_stays() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::new(place.path());
    let plan = plan(1, Some(0));
    folder.write(&plan).expect("it can be written");
    std::fs::write(place.path().join("thesis"), "years").expect("it can be written");
    folder.remove(&plan).expect("ours can be removed");
    let left: Vec<_> =
        std::fs::read_dir(place.path()).expect("still there").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["thesis"]);
}

#[test]
fn a_node_that_has_left_is_not_started_and_its_remedy_is_named() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::new(place.path());
    let plan = plan(2, Some(0));
    let _lock = folder.lock().expect("nobody has it");
    folder.write(&plan).expect("it can be written");
    assert_eq!(folder.why_left(&plan.nodes[1], "again"), None);
    let data = folder.file_of(&plan.nodes[1], "data");
    std::fs::create_dir(&data).expect("it can be made");
    std::fs::write(data.join("left-cluster"), "dev-7f3a\n").expect("it can be written");
    let remedy = format!("rm -rf {}\n    holdfast dev --start n2 --data ", data.display());
    let refused = remote::start(&folder, "n2");
    assert!(
        matches!(&refused, Err(Failure::Failed(why)) if why.contains("\"dev-7f3a\" any more") && why.contains(&remedy)),
        "{refused:?}"
    );
}

#[test]
fn a_port_that_somebody_has_is_found() {
    let mut plan = plan(1, Some(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    plan.nodes[0].cluster = address.port();
    assert_eq!(plan.nodes[0].taken_port().map(|(address, _)| address), Some(address));
}

#[test]
fn only_the_end_of_a_log_is_shown() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::new(place.path());
    let plan = plan(1, Some(0));
    folder.write(&plan).expect("it can be written");
    let node = &plan.nodes[0];
    assert_eq!(folder.last_lines(node, 3), "");
    let lines: String = (0..10_000).map(|number| format!("line {number}\n\n")).collect();
    std::fs::write(folder.file_of(node, "log"), lines).expect("it can be written");
    assert_eq!(folder.last_lines(node, 2), "\n    line 9998\n    line 9999");
}

#[test]
fn a_row_per_node_and_lines_to_try() {
    let plan = plan(3, None);
    let folder = Folder::new(Path::new("./holdfast-dev"));
    let roles = ["leader", "follower", "follower"];
    let rows: Vec<_> = plan.nodes.iter().zip(roles).map(|(node, role)| table::row(node, role)).collect();
    let title = table::title(&plan, folder.path(), Duration::from_millis(420));
    assert!(
        title
            .ends_with("dev cluster \"dev-7f3a\"  data ./holdfast-dev (kept; --ephemeral to drop)      ready in 0.4 s")
    );
    let expected = [
        " node   mqtt                    ws                          admin                    raft",
        " n1     mqtt://127.0.0.1:1883   ws://127.0.0.1:8083/mqtt    http://127.0.0.1:18083   leader",
        " n2     mqtt://127.0.0.1:2883   ws://127.0.0.1:9083/mqtt    http://127.0.0.1:19083   follower",
        " n3     mqtt://127.0.0.1:3883   ws://127.0.0.1:10083/mqtt   http://127.0.0.1:20083   follower",
    ];
    assert_eq!(table::table(&rows).lines().collect::<Vec<_>>(), expected);
    let hints = table::hints(&plan, &folder);
    for line in
        ["pub -p 2883 -r -t hello/world -m hi", "sub -p 3883 -v -t 'hello/#'", "dev --kill n2 ", "dev --start n2"]
    {
        assert!(hints.contains(line), "{hints}");
    }
    assert!(table::hints(&plan, &Folder::new(Path::new("x"))).contains("--kill n2 --data x"));
}

#[test]
fn another_terminal_is_told_what_is_missing() {
    let place = tempfile::tempdir().expect("a temporary folder");
    let folder = Folder::new(place.path());
    let usage = |done| matches!(done, Err(Failure::Usage(words)) if !words.is_empty());
    assert!(
        usage(remote::kill(&folder, "n1")) && usage(remote::start(&folder, "n1")) && usage(remote::status(&folder))
    );
    folder.write(&plan(1, Some(0))).expect("it can be written");
    assert!(usage(remote::kill(&folder, "n2")), "no such node");
    assert!(usage(remote::start(&folder, "n1")), "nobody who could start it");
    assert!(matches!(remote::stop(&folder, "n1"), Err(Failure::Failed(words)) if words == "n1 does not run"));
    assert!(matches!(remote::status(&folder), Err(Failure::Failed(_))));
}
