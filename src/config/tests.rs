//! Every class of error with its place and suggestion, and the files of `configs/` against the code.

use std::fmt::Write as _;
use std::time::Duration;

use super::*;

#[path = "cluster_tests.rs"]
mod cluster;

const FILE: &str = "dir/t.toml";

fn good(text: &str) -> Config {
    Config::parse(text, Path::new(FILE)).unwrap_or_else(|errors| panic!("{errors}\n--\n{text}"))
}

/// The errors of a text, without the file's name: `line:column: message`.
fn errors(text: &str) -> Vec<String> {
    let errors = match Config::parse(text, Path::new(FILE)) {
        Ok(config) => panic!("no error in\n{text}\n{config:?}"),
        Err(errors) => errors,
    };
    let strip = |error: &ConfigError| {
        let error = error.to_string();
        error.strip_prefix("dir/t.toml:").unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    errors.iter().map(strip).collect()
}

/// The one error of a text.
fn error(text: &str) -> String {
    let errors = errors(text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.into_iter().next().unwrap()
}

/// A listener that is good, on line 1 and 2, with more keys from line 3 on.
fn listener(more: &str) -> String {
    format!("[[listener]]\nbind = '127.0.0.1:1'\n{more}")
}

fn ws(more: &str) -> String {
    listener(&format!("protocol = 'ws'\n{more}"))
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(good(""), Config::default_loopback());
    assert_eq!(good("# nothing\n[mqtt]\n[auth]\n[log]\n"), Config::default_loopback());
}

#[test]
fn reference_file_is_the_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/reference.toml");
    let config = Config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(config, Config::default_loopback());
}

#[test]
fn reference_file_names_every_key() {
    let text = include_str!("../../configs/reference.toml");
    for (section, keys) in SECTIONS {
        // Each section's own part of the file; `tls` is shown on one line of the first listener.
        let header = match *section {
            "listener" | "listener.tls" | "listener.acl" | "listener.auth" => "[[listener]]".to_owned(),
            "auth.jwt" | "auth.cert" => "[auth]".to_owned(),
            other => format!("[{other}]"),
        };
        // A node is alone by default, so [cluster] is there as a comment.
        let header = match *section {
            "cluster" | "cluster.tls" => "# [cluster]".to_owned(),
            _ => header,
        };
        let start = text.find(&format!("\n{header}\n")).unwrap_or_else(|| panic!("no {header}"));
        let rest = &text[start + header.len()..];
        let end = if header == "[[listener]]" { rest.find("\n[mqtt]") } else { rest.find("\n[") };
        let part = &rest[..end.unwrap_or(rest.len())];
        for key in *keys {
            assert!(part.contains(&format!("{key} = ")), "{header} does not show {key}");
        }
    }
}

#[test]
fn single_file_opens_all_four_kinds_of_listener() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/single.toml");
    let config = Config::load(&path).unwrap_or_else(|errors| panic!("{errors}"));
    let schemes: Vec<_> = config.listeners.iter().map(Listener::scheme).collect();
    assert_eq!(schemes, ["mqtt", "mqtts", "ws", "wss"]);
    assert!(config.listeners.iter().all(|listener| listener.allow_anonymous == Some(false)));
    assert_eq!(config.auth.password_file, Some(path.with_file_name("passwords")));
}

#[test]
fn three_node_files_are_one_cluster() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let configs: Vec<_> = (1..=3)
        .map(|number| Config::load(&dir.join(format!("node{number}.toml"))).unwrap_or_else(|errors| panic!("{errors}")))
        .collect();
    let clusters: Vec<_> = configs.iter().map(|config| config.cluster.as_ref().unwrap()).collect();
    for (number, (config, cluster)) in (1..).zip(configs.iter().zip(&clusters)) {
        assert_eq!(config.node.name, format!("n{number}"));
        assert!(cluster.seeds.contains(&cluster.bind.to_string()));
        assert_eq!((&cluster.name, &cluster.seeds), (&clusters[0].name, &clusters[0].seeds));
    }
    let mut ports: Vec<_> = configs.iter().flat_map(|config| &config.listeners).map(|at| at.bind.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 6, "they run on one machine");
}

#[test]
fn every_key_is_read() {
    let config = good(
        "[node]\nname = 'n1'\ndata_dir = '/data'\nshards = 2\n\
         [[listener]]\nname = 'a'\nprotocol = 'ws'\nbind = '[::]:9001'\npath = '/p'\nallow_anonymous = false\n\
         max_connections = 7\nxff = 'off'\nallowed_origins = ['*', 'https://A.example']\nping_interval = '5s'\n\
         max_server_keepalive = '1m'\nhandshake_timeout = '1s'\nconnect_timeout = '2s'\nprotocol_versions = [5, 4]\n\
         tls = { cert = 'c', key = 'k', ca = 'ca', crl = 'crl', verify = 'optional', min_version = '1.3' }\nacl = { file = 'own' }\n\
         [mqtt]\nmax_packet_size = '1KiB'\nmax_inflight = 1\nreceive_maximum = 2\nmax_queued_messages = 3\n\
         max_queued_bytes = 4096\nqueue_full = 'disconnect'\nqueue_qos0 = true\nsession_expiry_max = 'never'\n\
         retain_available = false\nretained_max_messages = 0\nretained_max_bytes = 5\nmax_topic_levels = 5\ntopic_alias_max = 0\n\
         max_keepalive = 600\nkeepalive_backoff = 2\nmax_subscriptions = 6\nmax_client_id_bytes = 23\n\
         [limits]\nmax_connections = 9\n[auth]\npassword_file = 'pw'\n\
         [acl]\nfile = 'acl'\nno_match = 'allow'\ndeny_action = 'disconnect'\nmax_broad_subscriptions = 7\n\
         [flapping]\nenabled = false\nwindow = '10s'\nmax_count = 4\naction = 'ban'\nban_time = '1h'\n\
         [storage]\ndurability = 'memory'\nfsync = 'batch'\non_corruption = 'quarantine'\nmax_bytes = '1GB'\n\
         segment_bytes = '1MB'\nqueue_window_bytes = 0\n\
         [log]\nformat = 'json'\nlevel = 'debug'\nconnection_messages = false\n\
         [sys]\ninterval = 'off'\n[shutdown]\ngrace = '0s'\nspread = '5s'\nrate = 7\nreturns_min_percent = 0\n[admin]\nbind = '[::]:9'\ntoken_file = 'token'\n",
    );
    let secs = Duration::from_secs;
    let expected = Config {
        node: Node { name: "n1".into(), data_dir: Some("/data".into()), shards: 2 },
        listeners: vec![Listener {
            name: "a".into(),
            protocol: Protocol::Ws,
            bind: "[::]:9001".parse().unwrap(),
            path: "/p".into(),
            tls: Some(Tls {
                cert: "dir/c".into(),
                key: "dir/k".into(),
                ca: Some("dir/ca".into()),
                crl: Some("dir/crl".into()),
                verify: Verify::Optional,
                min_version: TlsVersion::V1_3,
            }),
            allow_anonymous: Some(false),
            auth: None,
            acl: Some(ListenerAcl { file: Some("dir/own".into()), no_match: None }),
            max_connections: 7,
            max_conn_rate: None,
            max_conn_rate_per_ip: None,
            proxy_protocol: ProxyProtocol::Off,
            trusted_proxies: Vec::new(),
            xff: ForwardedHeader::Off,
            allowed_origins: vec!["*".into(), "https://a.example".into()],
            ping_interval: secs(5),
            max_server_keepalive: Some(secs(60)),
            handshake_timeout: secs(1),
            connect_timeout: secs(2),
            protocol_versions: vec![4, 5],
        }],
        mqtt: Mqtt {
            max_packet_size: 1024,
            max_inflight: 1,
            receive_maximum: 2,
            max_queued_messages: 3,
            max_queued_bytes: 4096,
            queue_full: QueueFull::Disconnect,
            queue_qos0: true,
            session_expiry_max: NEVER,
            retain_available: false,
            retained_max_messages: 0,
            retained_max_bytes: 5,
            max_topic_levels: 5,
            topic_alias_max: 0,
            max_keepalive: 600,
            keepalive_backoff: 2.0,
            max_subscriptions: 6,
            max_client_id_bytes: 23,
        },
        limits: Limits { max_connections: Some(9), max_conn_rate: None },
        auth: Auth { password_file: Some("dir/pw".into()), ..Auth::default() },
        acl: Acl {
            file: Some("dir/acl".into()),
            no_match: NoMatch::Allow,
            deny_action: DenyAction::Disconnect,
            max_broad_subscriptions: 7,
        },
        flapping: Flapping {
            enabled: false,
            window: secs(10),
            max_count: 4,
            action: FlappingAction::Ban,
            ban_time: secs(3_600),
        },
        storage: Storage {
            durability: Durability::Memory,
            fsync: Fsync::Batch,
            on_corruption: OnCorruption::Quarantine,
            max_bytes: Some(1_000_000_000),
            segment_bytes: 1_000_000,
            queue_window_bytes: 0,
        },
        log: Log { format: LogFormat::Json, level: Level::Debug, connection_messages: false },
        sys: Sys { interval: Duration::ZERO },
        shutdown: Shutdown {
            grace: Duration::ZERO,
            spread: Duration::from_secs(5),
            rate: Some(7),
            returns_min_percent: 0,
        },
        cluster: None,
        admin: Admin { bind: Some("[::]:9".parse().unwrap()), token_file: Some("dir/token".into()), keys_file: None },
    };
    assert_eq!(config, expected);
    assert_eq!(config.mqtt.session_expiry_max_secs(), u32::MAX);
    assert_eq!(Mqtt::default().session_expiry_max_secs(), 7 * 86_400);
}

#[test]
fn all_errors_at_once() {
    let text = "\
[node]
nmae = \"n1\"
shards = -1

[[listener]]
bind = \"127.0.0.1:1883\"
protocol = \"mqt\"
  max_conections = 5

[[listener]]
name = \"b\"

[mqtt]
max_inflight = 0
queue_full = \"drop-oldst\"
max_packet_size = \"2XB\"
session_expiry_max = 7

[lgo]
level = \"loud\"
";
    let found = errors(text);
    let expected = [
        "2:1: unknown key \"nmae\": did you mean \"name\"?",
        "3:10: shards: expected a whole number that is not negative and not huge",
        "7:12: protocol: expected one of \"mqtt\", \"ws\"; did you mean \"mqtt\"?",
        "8:3: unknown key \"max_conections\": did you mean \"max_connections\"?",
        "10:1: bind is missing: the address to listen on, such as bind = \"127.0.0.1:1883\"",
        "14:16: max_inflight: must be from 1 to 65535",
        "15:14: queue_full: expected one of \"drop-oldest\", \"drop-newest\", \"disconnect\"; did you mean \"drop-oldest\"?",
        "16:19: max_packet_size: expected a size in bytes such as 65536, \"64KiB\" or \"2MB\", found another string",
        "17:22: session_expiry_max: expected a duration such as \"25s\" (units: ms, s, m, h, d, w), found an integer, or \"never\"",
        "19:2: unknown section or key \"lgo\": did you mean \"log\"?",
    ];
    assert_eq!(found, expected, "{found:#?}");
}

#[test]
fn a_misspelt_name_is_one_error() {
    let first = "[[listener]]\nbind = '127.0.0.1:1'\n";
    for second in ["nmae = 'b'", "porotcol = 'ws'"] {
        let text = format!("{first}[[listener]]\nbind = '127.0.0.1:2'\n{second}\n");
        assert!(error(&text).starts_with("5:1: unknown key"), "{text}");
        let text = format!("[[listener]]\nbind = '127.0.0.1:2'\n{second}\n{first}");
        assert!(error(&text).starts_with("3:1: unknown key"), "{text}");
    }
    assert!(error(&format!("{first}[[listener]]\nbind = '127.0.0.1:2'\n")).contains("another listener called"));
}

#[test]
fn unknown_keys_name_the_section_that_has_them() {
    let cases = [
        ("max_packet_size = 5", "1:1: unknown section or key \"max_packet_size\": it belongs in [mqtt]"),
        ("[mqtt]\nbind = ''", "2:1: unknown key \"bind\": it belongs in [[listener]]"),
        ("[auth]\nverify = ''", "2:1: unknown key \"verify\": it belongs in tls of [[listener]]"),
        (
            "[auth]\nzzzzzzzz = ''",
            "2:1: unknown key \"zzzzzzzz\": known here are order, password_file, fail_delay, jwt, cert",
        ),
        ("[auth.file]", "1:7: unknown key \"file\": it belongs in [acl]"),
        ("mqtt.max-inflight = 5", "1:6: unknown key \"max-inflight\": did you mean \"max_inflight\"?"),
        ("[listeners]", "1:2: unknown section or key \"listeners\": did you mean \"listener\"?"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
    let long = error(&format!("[auth]\n{} = 1", "x".repeat(10_000)));
    assert!(long.len() < 200, "a long key is cut: {long}");
}

#[test]
fn syntax_errors_have_a_place_and_hide_no_other_error() {
    let found = errors("[mqtt]\nmax_inflight = \nmax_inflght = 1\n");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].starts_with("2:"), "{found:#?}");
    assert!(found[1].starts_with("3:1: unknown key"), "{found:#?}");
    assert!(error("[mqtt]\nmax_inflight = 1\nmax_inflight = 2\n").starts_with("3:1: duplicate key"));
    assert!(error("[mqtt\nmax_inflight = 1").starts_with("1:"));
    let found = errors("[mqtt\nmax_inflight = 1\n[log]\nlevl = ''\n");
    assert_eq!(found.len(), 2, "a broken header takes its keys with it, and no more: {found:#?}");
    assert!(found[1].starts_with("4:1: "), "{found:#?}");
    // Half of an address is an error of its line, and not also an address that is missing.
    assert!(error("[[listener]]\nbind = 127.0.0.1:1883\n").starts_with("2:"));
}

#[test]
fn wrong_types_are_named() {
    let cases = [
        ("[mqtt]\nqueue_qos0 = 'yes'", "2:14: queue_qos0: expected true or false, found a string"),
        ("[mqtt]\nmax_inflight = '5'", "2:16: max_inflight: expected a whole number, found a string"),
        ("[mqtt]\nmax_inflight = 5.0", "2:16: max_inflight: expected a whole number, found a number with a fraction"),
        ("[mqtt]\nkeepalive_backoff = '2'", "2:21: keepalive_backoff: expected a number, found a string"),
        ("[mqtt]\nkeepalive_backoff = nan", "2:21: keepalive_backoff: must be from 1.5 to 10"),
        ("[mqtt]\nkeepalive_backoff = 1.2", "2:21: keepalive_backoff: must be from 1.5 to 10"),
        ("[node]\nname = 5", "2:8: name: expected a string, found an integer"),
        ("[node]\nname = ''", "2:8: name: must have from 1 to 64 bytes"),
        ("[node]\nname = \"a\\nb\"", "2:8: name: must not hold control characters"),
        ("[node]\ndata_dir = \"a\\u0000\"", "2:12: data_dir: a path cannot hold U+0000"),
        ("[storage]\nfsync = 'always'", "2:9: fsync: expected one of \"batch\""),
        (
            "[storage]\ndurability = 'disc'",
            "2:14: durability: expected one of \"disk\", \"memory\"; did you mean \"disk\"?",
        ),
        ("[storage]\nmax_bytes = '255MB'", "2:13: max_bytes: must be at least 256000000, or 0 for no quota"),
        ("[storage]\nsegment_bytes = '2GB'", "2:17: segment_bytes: must be from 1000000 to 1000000000"),
        (
            "[storage]\nmax_bytes = '256MB'\nsegment_bytes = '65MB'",
            "2:13: max_bytes (256000000) must hold 4 segments, which are 260000000 bytes with segment_bytes = 65000000",
        ),
        ("[storag]", "1:2: unknown section or key \"storag\": did you mean \"storage\"?"),
        ("[node]\nfsync = 'batch'", "2:1: unknown key \"fsync\": it belongs in [storage]"),
        ("[log]\nlevel = 3", "2:9: level: expected one of \"error\", \"warn\", \"info\", \"debug\", \"trace\""),
        ("[shutdown]\nrate = 0", "2:8: rate: must be from 1 to 1000000"),
        ("[shutdown]\nrate = 'fast'", "2:8: rate: expected a number of connections a second, or \"auto\""),
        ("[shutdown]\nspread = '0s'", "2:10: spread: must be from 1s to 1h"),
        ("[shutdown]\nreturns_min_percent = 101", "2:23: returns_min_percent: must be from 0 to 100"),
        ("[shutdown]\ngrace = '2h'", "2:9: grace: must be from 0s to 1h"),
        (
            "[shutdown]\ngrace = 10",
            "2:9: grace: expected a duration such as \"25s\" (units: ms, s, m, h, d, w), found an integer",
        ),
        ("[sys]\ninterval = '10ms'", "2:12: interval: must be from 1s to 1d, or \"off\""),
        ("mqtt = 5", "1:8: mqtt: expected a table, found an integer"),
        ("[[mqtt]]", "1:1: there is one [mqtt] only: write it with single brackets"),
        ("[listener]\nbind = '127.0.0.1:1'", "1:1: listener: write each one as a table of its own, under [[listener]]"),
        ("listener = []", "1:12: listener: write each one as a table of its own, under [[listener]]"),
        ("listener = [5]", "1:13: listener: expected a table, found an integer"),
        (
            "[mqtt]\nmax_packet_size = 99999999999999999999",
            "2:19: max_packet_size: expected a size in bytes such as 65536, \"64KiB\" or \"2MB\", found an integer",
        ),
        ("[mqtt]\nmax_packet_size = '1GB'", "2:19: max_packet_size: must be from 128 to 268435460"),
        ("[mqtt]\nmax_client_id_bytes = 22", "2:23: max_client_id_bytes: must be from 23 to 65535"),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn columns_count_characters() {
    let found = errors("mqtt = { queue_qos0 = false, \"ä\" = 1, max_inflght = 2 }");
    assert!(found[0].starts_with("1:30: ") && found[1].starts_with("1:39: "), "{found:#?}");
}

#[test]
fn numbers_may_be_written_in_any_form_of_toml() {
    assert_eq!(good("[mqtt]\nmax_inflight = 0x10").mqtt.max_inflight, 16);
    assert_eq!(good("[mqtt]\nmax_queued_messages = 1_000").mqtt.max_queued_messages, 1000);
    assert_eq!(good("[mqtt]\nkeepalive_backoff = 2").mqtt.keepalive_backoff, 2.0);
    assert_eq!(good("[sys]\ninterval = 0").sys.interval, Duration::ZERO);
}

#[test]
fn addresses_that_are_almost_right_get_a_suggestion() {
    for (bind, suggestion) in [
        ("1883", "127.0.0.1:1883"),
        ("':1883'", "127.0.0.1:1883"),
        ("'1883'", "127.0.0.1:1883"),
        ("'localhost:1883'", "127.0.0.1:1883"),
        ("'*:1883'", "0.0.0.0:1883"),
    ] {
        let error = error(&format!("[[listener]]\nbind = {bind}"));
        assert!(error.starts_with("2:8: bind: expected an address and port"), "{error}");
        assert!(error.ends_with(&format!("did you mean \"{suggestion}\"?")), "{error}");
    }
    for bind in ["'broker.example:1883'", "'127.0.0.1'", "70000", "'127.0.0.1:70000'", "true", "''"] {
        assert!(error(&format!("[[listener]]\nbind = {bind}")).starts_with("2:8: bind: expected an address"), "{bind}");
    }
}

#[test]
fn keys_of_websocket_are_refused_elsewhere() {
    for key in ["path = '/x'", "allowed_origins = ['*']", "ping_interval = '20s'"] {
        let name = key.split(' ').next().unwrap();
        let expected = format!("3:1: {name}: means something only where protocol = \"ws\"");
        assert_eq!(error(&listener(key)), expected);
        good(&ws(key));
    }
}

#[test]
fn paths_origins_and_versions_are_checked() {
    for path in ["mqtt", "/a b", "/a?b", "/ä", "/a#"] {
        assert!(error(&ws(&format!("path = '{path}'"))).starts_with("4:8: path: must begin with \"/\""), "{path}");
    }
    for origin in ["example.org", "https://", "https://a/", "https://a/b", "://a", "https://u@a", "https://*.a", "5 5"]
    {
        assert!(
            error(&ws(&format!("allowed_origins = ['{origin}']"))).starts_with("4:20: allowed_origins: expected"),
            "{origin}"
        );
    }
    let two = errors(&ws("allowed_origins = ['same', 'a', 5]"));
    assert!(two[0].starts_with("4:28: ") && two[1].starts_with("4:33: "), "every wrong element: {two:?}");
    assert_eq!(error(&ws("allowed_origins = []")), "4:19: allowed_origins: must have from 1 to 1024 elements");
    assert_eq!(error(&ws("allowed_origins = '*'")), "4:19: allowed_origins: expected a list, found a string");
    for versions in ["[2]", "[6]", "['5']", "[5.0]"] {
        let error = error(&listener(&format!("protocol_versions = {versions}")));
        assert!(error.starts_with("3:22: protocol_versions: expected protocol levels"), "{error}");
    }
    assert_eq!(good(&listener("protocol_versions = [5, 3, 5]")).listeners[0].protocol_versions, [3, 5]);
}

#[test]
fn tls_needs_certificate_and_key_and_an_authority_where_it_verifies() {
    let found = errors(&listener("tls = {}"));
    assert_eq!(
        found,
        ["3:7: tls: cert is missing: the path of a PEM file", "3:7: tls: key is missing: the path of a PEM file"]
    );
    assert_eq!(
        error(&listener("tls = { cert = 'c', key = 'k', vrify = 'none' }")),
        "3:32: unknown key \"vrify\": did you mean \"verify\"?"
    );
    let verify = error(&listener("tls = { cert = 'c', key = 'k', verify = 'require' }"));
    assert_eq!(verify, "3:41: verify: needs ca, the authorities that client certificates must come from");
    assert!(error(&listener("tls = { cert = 'c', key = 'k', ca = 'a' }")).starts_with("3:37: ca: is not used unless"));
    assert!(error(&listener("tls = true")).starts_with("3:7: tls: expected a table"));
    assert!(
        error(&listener("tls = { cert = 'c', key = 'k', min_version = '1.1' }"))
            .contains("expected one of \"1.2\", \"1.3\"")
    );
    let table = good(&listener("[listener.tls]\ncert = '/c'\nkey = 'k'\n"));
    let tls = table.listeners[0].tls.as_ref().unwrap();
    assert_eq!(
        (tls.cert.as_path(), tls.key.as_path(), tls.verify),
        (Path::new("/c"), Path::new("dir/k"), Verify::None)
    );
    assert_eq!(table.listeners[0].name, "mqtts");
}

#[test]
fn listeners_have_names_and_addresses_of_their_own() {
    let two = |first: &str, second: &str| format!("[[listener]]\n{first}\n[[listener]]\n{second}\n");
    let same_name = two("name = 'a'\nbind = '127.0.0.1:1'", "name = 'a'\nbind = '127.0.0.1:2'");
    assert_eq!(error(&same_name), "5:8: name: there is another listener called \"a\"; give each a name of its own");
    let unnamed = two("bind = '127.0.0.1:1'", "bind = '127.0.0.1:2'");
    assert!(error(&unnamed).starts_with("3:1: name: there is another listener called \"mqtt\""));
    let same_address = two("bind = '127.0.0.1:1'", "protocol = 'ws'\nbind = '127.0.0.1:1'");
    assert_eq!(error(&same_address), "5:8: bind: 127.0.0.1:1 is already taken by listener \"mqtt\"");
    good(&two("bind = '127.0.0.1:0'", "protocol = 'ws'\nbind = '127.0.0.1:0'"));
}

#[test]
fn a_listener_that_is_open_to_others_must_be_meant_so() {
    for bind in ["0.0.0.0:1883", "[::]:1883", "192.168.1.5:1883"] {
        let open = format!("[[listener]]\nname = 'tcp'\nbind = '{bind}'\n");
        let error = error(&open);
        assert!(
            error.starts_with(&format!("3:8: listener \"tcp\" on {bind} can be reached from other machines")),
            "{error}"
        );
        for line in [
            "\n      [auth]\n      password_file = \"passwords\"\n",
            "\n      allow_anonymous = true",
            "holdfast passwd -c dir/passwords USER",
        ] {
            assert!(error.contains(line), "{error}");
        }
        // What the message says to paste is enough.
        let anonymous = good(&format!("{open}allow_anonymous = true\n"));
        assert_eq!(anonymous.listeners[0].allow_anonymous, Some(true));
        let passwords = good(&format!("{open}[auth]\npassword_file = 'passwords'\n"));
        assert_eq!(passwords.listeners[0].allow_anonymous, Some(false));
        good(&format!("[auth]\npassword_file = 'passwords'\n{open}allow_anonymous = true\n"));
    }
    // One that refuses anonymous clients, and has no passwords, lets nobody in: also on loopback.
    assert!(
        error(&listener("allow_anonymous = false"))
            .starts_with("3:19: listener \"mqtt\" on 127.0.0.1:1 refuses clients")
    );
    let certificates =
        "[[listener]]\nbind = '0.0.0.0:1'\ntls = { cert = 'c', key = 'k', ca = 'a', verify = 'require' }";
    assert!(error(certificates).contains("(still only with a valid client certificate)"));
    // Several open listeners are several errors.
    let two = errors("[[listener]]\nname = 'a'\nbind = '0.0.0.0:1'\n[[listener]]\nname = 'b'\nbind = '0.0.0.0:2'\n");
    assert_eq!(two.len(), 2);
}

#[test]
fn anonymous_is_the_default_on_loopback_without_passwords_only() {
    for (bind, passwords, expected) in [
        ("127.0.0.1:1", false, true),
        ("127.8.8.8:1", false, true),
        ("[::1]:1", false, true),
        ("[::ffff:127.0.0.1]:1", false, true),
        ("127.0.0.1:1", true, false),
        ("0.0.0.0:1", true, false),
    ] {
        let auth = if passwords { "[auth]\npassword_file = 'p'\n" } else { "" };
        let config = good(&format!("{auth}[[listener]]\nbind = '{bind}'\n"));
        assert_eq!(config.listeners[0].allow_anonymous, Some(expected), "{bind} {passwords}");
    }
    // The listeners that nobody wrote down follow the same rule.
    assert!(
        good("[auth]\npassword_file = 'p'").listeners.iter().all(|listener| listener.allow_anonymous == Some(false))
    );
}

#[test]
fn timers_and_limits_that_contradict_are_refused() {
    let cap = format!("[mqtt]\nmax_keepalive = 60\n{}", listener("max_server_keepalive = '2m'"));
    assert_eq!(
        error(&cap),
        "5:24: max_server_keepalive (2m) contradicts max_keepalive of [mqtt] (1m), which is smaller"
    );
    let ping = ws("ping_interval = '45s'");
    assert_eq!(
        error(&ping),
        "4:17: ping_interval (45s) must be shorter than the longest Keep Alive that clients are granted here (45s)"
    );
    let ping = format!("[mqtt]\nmax_keepalive = 10\n{}", ws("ping_interval = '20s'"));
    assert!(error(&ping).starts_with("6:17: ping_interval (20s) must be shorter"));
    let queue = "[mqtt]\nmax_packet_size = '20MB'";
    assert_eq!(
        error(queue),
        "2:19: max_queued_bytes (16000000) is smaller than max_packet_size (20000000): a queue must hold the largest packet"
    );
    assert!(error("[mqtt]\nmax_packet_size = 2048\nmax_queued_bytes = '1KiB'").starts_with("3:20: max_queued_bytes"));
    assert_eq!(
        error(&listener("max_server_keepalive = '1500ms'")),
        "3:24: max_server_keepalive: must be whole seconds, or \"off\""
    );
    // A cap for all that is shorter than what nobody wrote down is no contradiction.
    good("[mqtt]\nmax_keepalive = 10\n");
    good(&ws("ping_interval = '10m'\nmax_server_keepalive = 'off'"));
}

#[test]
fn lists_of_withdrawn_certificates_need_certificates() {
    let unused = error(&listener("tls = { cert = 'c', key = 'k', crl = 'l' }"));
    assert!(unused.starts_with("3:38: crl: is not used unless clients are asked for a certificate"), "{unused}");
    good(&listener("tls = { cert = 'c', key = 'k', ca = 'a', crl = 'l', verify = 'require' }"));
}

#[test]
fn the_smaller_cap_on_keep_alive_holds() {
    let cap = |text: &str| {
        let config = good(text);
        config.listeners[0].keep_alive_cap(&config.mqtt).map(|cap| cap.as_secs())
    };
    assert_eq!(cap(&listener("")), None);
    assert_eq!(cap(&ws("")), Some(45));
    assert_eq!(cap(&ws("max_server_keepalive = 'off'")), None);
    assert_eq!(cap(&format!("[mqtt]\nmax_keepalive = 30\n{}", ws(""))), Some(30));
    assert_eq!(cap(&format!("[mqtt]\nmax_keepalive = 90\n{}", ws(""))), Some(45));
    assert_eq!(cap(&format!("[mqtt]\nmax_keepalive = 90\n{}", listener(""))), Some(90));
}

#[test]
fn one_mistake_is_one_error() {
    // Each of these would break a rule too if the default stood in for what could not be read.
    for text in [
        "[[listener]]\nbind = '0.0.0.0:1'\nallow_anonymous = 'yes'",
        "[auth]\npassword_file = 5\n[[listener]]\nbind = '0.0.0.0:1'",
        "[mqtt]\nmax_queued_bytes = 'x'\nmax_packet_size = '20MB'",
        &ws("ping_interval = '60s'\nmax_server_keepalive = 'x'"),
        "[[listener]]\nbind = '0.0.0.0:1'\nallow_anonymos = true\n[auth]\npassword_file = 'p'",
    ] {
        error(text);
    }
}

#[test]
fn files_that_cannot_be_read_are_one_error() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent.toml");
    let errors = Config::load(&absent).unwrap_err();
    assert_eq!(errors.count(), 1);
    assert!(errors.to_string().starts_with(&format!("{}: cannot be read: ", absent.display())), "{errors}");
    assert!(Config::load(dir.path()).unwrap_err().to_string().contains("cannot be read"));

    let latin = dir.path().join("latin1.toml");
    std::fs::write(&latin, b"[node]\nname = \"n\xE4\"\n").unwrap();
    assert!(Config::load(&latin).unwrap_err().to_string().starts_with(&format!("{}:2:10: ", latin.display())));

    let huge = dir.path().join("huge.toml");
    std::fs::write(&huge, " ".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
    assert!(Config::load(&huge).unwrap_err().to_string().contains("is larger than"));
}

#[test]
fn errors_show_no_value() {
    // A password in the wrong place must not travel into a log.
    let text = "[auth]\npassword_file = ['hunter2']\n[mqtt]\nmax_inflight = 'hunter2'\nqueue_full = 'hunter2'\n[[listener]]\nbind = 'hunter2'\n";
    let all = errors(text).join("\n");
    assert!(!all.contains("hunter2"), "{all}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in r"(\[{0,2}(mqtt|listener|auth|x)\]{0,2}\n|(bind|tls|max_inflight|path|ä) ?= ?|'[a-z0-9:./]{0,12}'|[0-9]{1,4}|[\[\]{},=.\n])\PC{0,4}") {
        let _ = Config::parse(&text, Path::new(FILE));
    }

    #[test]
    fn any_sequence_of_pieces_is_read_or_refused_in_order(pieces in proptest::collection::vec(0usize..16, 0..24)) {
        const PIECES: [&str; 16] = [
            "[mqtt]\n", "[[listener]]\n", "[auth]\n", "bind = '0.0.0.0:1'\n", "max_inflight = ", "'x'\n", "5\n", "= ", "{ ", "}\n", "[",
            "]\n", "tls = ", "\"\"\"", "# c\n", "password_file = 'p'\n",
        ];
        let text: String = pieces.iter().fold(String::new(), |mut text, piece| {
            let _ = write!(text, "{}", PIECES[*piece]);
            text
        });
        if let Err(errors) = Config::parse(&text, Path::new(FILE)) {
            let places: Vec<_> = errors.iter().map(|error| error.place).collect();
            proptest::prop_assert!(!places.is_empty());
            proptest::prop_assert!(places.is_sorted(), "{:?}", places);
        }
    }
}

#[test]
fn the_admin_port_is_on_loopback_off_or_behind_a_token() {
    assert_eq!(good("").admin.bind, Some("127.0.0.1:18083".parse().unwrap()));
    assert_eq!(good("[admin]\nbind = 'off'\n").admin.bind, None);
    for (bind, token) in [("[::1]:0", ""), ("127.0.0.2:1", ""), ("0.0.0.0:18083", "token_file = 't'")] {
        let admin = good(&format!("[admin]\nbind = '{bind}'\n{token}\n")).admin;
        assert_eq!((admin.bind, admin.token_file.is_some()), (Some(bind.parse().unwrap()), !token.is_empty()));
    }
    for open in ["0.0.0.0:18083", "[::]:0", "192.0.2.1:1"] {
        let error = error(&format!("[admin]\nbind = '{open}'\n"));
        assert!(error.starts_with("2:8: bind: other machines can reach the admin port here"), "{error}");
        assert!(error.contains("dir/admin-token") && error.contains("token_file = \"admin-token\""), "{error}");
    }
    for wrong in ["'localhost:1'", "18083", "'on'", "''"] {
        let error = error(&format!("[admin]\nbind = {wrong}\n"));
        assert!(error.starts_with("2:8: bind: expected an address such as \"127.0.0.1:18083\""), "{error}");
    }
    let error = error("[[listener]]\nbind = '127.0.0.1:18083'\n");
    assert!(error.starts_with("2:8: bind: 127.0.0.1:18083 is the address of the admin port"), "{error}");
}

#[test]
fn limits_are_read_as_they_are_written() {
    let config = good(
        "[limits]\nmax_connections = 5\nmax_conn_rate = '1MB/m'\n\
         [[listener]]\nbind = '127.0.0.1:1883'\nmax_conn_rate = '500/s'\nmax_conn_rate_per_ip = '20/m'\n\
         proxy_protocol = 'auto'\ntrusted_proxies = ['10.0.0.0/8', '::1']\n",
    );
    let rate = |amount, secs| Some(Rate { amount, per: Duration::from_secs(secs) });
    assert_eq!(config.limits, Limits { max_connections: Some(5), max_conn_rate: rate(1_000_000, 60) });
    let listener = &config.listeners[0];
    assert_eq!((listener.max_conn_rate, listener.max_conn_rate_per_ip), (rate(500, 1), rate(20, 60)));
    assert_eq!(listener.proxy_protocol, ProxyProtocol::Auto);
    assert!(listener.trusted_proxies[0].contains([10, 1, 1, 1].into()));
    assert_eq!(good("[limits]\nmax_connections = 'off'\nmax_conn_rate = 'off'").limits, Limits::default());
}

#[test]
fn wrong_limits_are_errors_that_name_their_key() {
    let of_listener = |line: &str| listener(line);
    let table = [
        ("[limits]\nmax_conn_rate = '1000'".to_owned(), "max_conn_rate: expected a rate"),
        ("[limits]\nmax_conn_rate = '0/s'".to_owned(), "max_conn_rate: must be from 1"),
        ("[limits]\nmax_conn_rate = '5/w'".to_owned(), "max_conn_rate: expected a rate"),
        ("[limits]\nmax_connections = 0".to_owned(), "max_connections: must be from 1"),
        (of_listener("proxy_protocol = 'v2'"), "proxy_protocol: needs trusted_proxies"),
        (of_listener("trusted_proxies = ['10.0.0.0/64']"), "trusted_proxies: expected an address"),
        (of_listener("xff = 'off'"), "xff: means something only where"),
    ];
    for (text, expected) in table {
        assert!(error(&text).contains(expected), "{text}: {}", error(&text));
    }
}
