//! A configuration of several files and variables.

use super::*;
use crate::config::{Config, Loaded};

/// Files by name, and what is made of the first of them.
fn loaded(files: &[(&str, &str)], variables: &[(&str, &str)]) -> (tempfile::TempDir, Result<Loaded, Vec<String>>) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let environment = Environment::of(variables.iter().copied());
    let loaded = Config::load_all(Some(&dir.path().join(files[0].0)), &environment);
    let prefix = format!("{}/", dir.path().display());
    let plain = |errors: super::super::ConfigErrors| {
        errors.iter().map(|error| error.to_string().replace(&prefix, "")).collect()
    };
    let loaded = loaded.map_err(plain);
    (dir, loaded)
}

const LISTENER: &str = "[[listener]]\nname = 'b'\nbind = '127.0.0.1:2'\n";

#[test]
fn files_are_joined_and_listeners_add_up_in_order() {
    let main =
        "include = ['conf.d/*.toml']\n[mqtt]\nmax_inflight = 5\n[[listener]]\nname = 'a'\nbind = '127.0.0.1:1'\n";
    let last =
        "[[listener]]\nname = 'c'\nbind = '127.0.0.1:3'\n[mqtt]\nreceive_maximum = 6\n[auth]\npassword_file = 'pw'\n";
    let files = [("m.toml", main), ("conf.d/20.toml", last), ("conf.d/10.toml", LISTENER), ("conf.d/no.txt", "x = [")];
    let (dir, loaded) = loaded(&files, &[]);
    let config = loaded.unwrap().config;
    let names: Vec<_> = config.listeners.iter().map(|listener| listener.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!((config.mqtt.max_inflight, config.mqtt.receive_maximum), (5, 6));
    assert_eq!(config.auth.password_file, Some(dir.path().join("conf.d/pw")), "relative to the file that says it");
}

#[test]
fn errors_of_all_files_and_variables_are_told_at_once() {
    let main = "include = ['one.toml', 'absent.toml', 'm.toml']\n[mqtt]\nmax_inflight = 0\nmax_queued_bytes = '1KiB'\n";
    let one = "include = ['two.toml']\n[mqtt]\nmax_inflight = 3\nmax_inflght = 4\n[node]\nname = '${NO_SUCH_NAME}'\n";
    let variables = [("HOLDFAST_MQTT__TOPIC_ALIAS_MAX", "x"), ("HOLDFAST_MQTT__TOPIC_ALIAS", "1")];
    let (_dir, loaded) = loaded(&[("m.toml", main), ("one.toml", one)], &variables);
    let errors = loaded.unwrap_err();
    let begins = [
        "m.toml:1:24: include: absent.toml cannot be read: ",
        "m.toml:1:39: include: m.toml is part of the configuration already",
        "m.toml:3:16: max_inflight: must be from 1 to 65535",
        "m.toml:4:20: max_queued_bytes (1024) is smaller than max_packet_size",
        "one.toml:1:1: include: a file that is included cannot include others",
        "one.toml:3:1: mqtt.max_inflight is set already at m.toml:3:16",
        "one.toml:4:1: unknown key \"max_inflght\": did you mean \"max_inflight\"?",
        "one.toml:6:8: the environment variable NO_SUCH_NAME is not set",
        "HOLDFAST_MQTT__TOPIC_ALIAS: no key of the configuration has this name: did you mean HOLDFAST_MQTT__TOPIC_ALIAS_MAX?",
        "HOLDFAST_MQTT__TOPIC_ALIAS_MAX: topic_alias_max: expected a whole number, found a string",
    ];
    assert_eq!(errors.len(), begins.len(), "{errors:#?}");
    for (error, begin) in errors.iter().zip(begins) {
        assert!(error.starts_with(begin), "{error}\n{begin}");
    }
}

#[test]
fn a_syntax_error_of_an_included_file_has_its_place_there() {
    let files = [("m.toml", "include = ['one.toml']\n"), ("one.toml", "[mqtt]\nmax_inflight = \n")];
    let errors = loaded(&files, &[]).1.unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("one.toml:2:"), "{errors:?}");
}

#[test]
fn variables_outrank_files() {
    let main = "[mqtt]\nmax_inflight = 5\n[[listener]]\nname = 'a'\nbind = '127.0.0.1:1'\n";
    let variables = [
        ("HOLDFAST_MQTT__MAX_INFLIGHT", "8"),
        ("HOLDFAST_NODE__NAME", "17"),
        ("HOLDFAST_LISTENER__0__BIND", "127.0.0.1:9"),
        ("HOLDFAST_LISTENER__1__BIND", "127.0.0.1:10"),
        ("HOLDFAST_LISTENER__1__NAME", "b"),
        ("HOLDFAST_SYS__INTERVAL", "5s"),
    ];
    let config = loaded(&[("m.toml", main)], &variables).1.unwrap().config;
    assert_eq!((config.mqtt.max_inflight, config.node.name.as_str()), (8, "17"));
    assert_eq!(config.sys.interval, std::time::Duration::from_secs(5));
    let ports: Vec<_> = config.listeners.iter().map(|listener| listener.bind.port()).collect();
    assert_eq!(ports, [9, 10]);
    let gap = loaded(&[("m.toml", main)], &[("HOLDFAST_LISTENER__2__BIND", "127.0.0.1:9")]).1.unwrap_err();
    assert!(gap[0].contains("without a gap"), "{gap:?}");
}

#[test]
fn a_variable_may_name_the_file_with_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("name");
    std::fs::write(&file, "n7\n").unwrap();
    let variable = [("HOLDFAST_NODE__NAME_FILE", file.to_str().unwrap())];
    assert_eq!(Config::load_all(None, &Environment::of(variable)).unwrap().config.node.name, "n7");
    let absent = [("HOLDFAST_NODE__NAME_FILE", "/nonexistent/name")];
    let errors = Config::load_all(None, &Environment::of(absent)).unwrap_err().to_string();
    assert!(errors.starts_with("HOLDFAST_NODE__NAME_FILE: /nonexistent/name cannot be read: "), "{errors}");
}

#[test]
fn patterns_name_files_as_a_shell_does() {
    assert!(
        matches(b"*.toml", b"a.toml") && matches(b"a?c*", b"abc") && matches(b"*", b"") && matches(b"a*b*c", b"aXbYc")
    );
    assert!(!matches(b"*.toml", b"a.tom") && !matches(b"a?c", b"ac") && !matches(b"", b"a"));
    assert!(matching(Path::new("/nonexistent"), "*.toml").unwrap().is_empty());
    assert!(matching(Path::new("/"), "*/a.toml").is_err());
}
