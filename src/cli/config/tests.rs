//! What `holdfast config check` prints, and its exit codes.

use super::*;

fn checked(file: Option<&Path>) -> (u8, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = check(file, &Environment::default(), &mut out, &mut err).unwrap();
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn checked_text(text: &str) -> (u8, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    std::fs::write(&path, text).unwrap();
    checked(Some(&path))
}

#[test]
fn a_good_file_is_code_0_and_shows_what_it_opens() {
    let (code, out, err) = checked_text(
        "[[listener]]\nname = 'tcp'\nbind = '127.0.0.1:1884'\n\
         [[listener]]\nprotocol = 'ws'\nbind = '0.0.0.0:8083'\npath = '/m'\nallow_anonymous = true\n",
    );
    assert_eq!((code, err.as_str()), (DONE, ""));
    assert!(
        out.contains("a.toml: good\n  tcp  mqtt://127.0.0.1:1884  anonymous\n  ws  ws://0.0.0.0:8083/m  anonymous\n"),
        "{out}"
    );
}

#[test]
fn errors_are_told_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let told = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let mut out = Vec::new();
        let code = check_json(Some(&path), &Environment::of([("HOLDFAST_MQTT__MAX_INFLIGHT", "7")]), &mut out).unwrap();
        (code, serde_json::from_slice::<serde_json::Value>(&out).unwrap())
    };
    let (code, good) = told("[mqtt]\n");
    assert_eq!((code, good["good"].as_bool(), good["errors"].as_array().map(Vec::len)), (DONE, Some(true), Some(0)));
    let (code, wrong) = told("\n[mqtt]\nmax_inflght = 1\n[auth]\npassword_file = 5\n");
    assert_eq!(
        (code, wrong["good"].as_bool(), wrong["errors"].as_array().map(Vec::len)),
        (USAGE, Some(false), Some(2))
    );
    let first = &wrong["errors"][0];
    assert_eq!((first["line"].as_u64(), first["column"].as_u64()), (Some(3), Some(1)));
    assert_eq!(first["file"].as_str(), path.to_str());
    assert!(first["message"].as_str().unwrap().contains("did you mean \"max_inflight\"?"), "{wrong}");
    let (code, file) = told("[auth]\npassword_file = 'absent'\n");
    assert!(code == USAGE && file["errors"][0]["message"].as_str().unwrap().contains("holdfast passwd"), "{file}");
}

#[test]
fn keys_are_shown_with_their_origin() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    std::fs::write(&path, "include = ['b.toml']\n[mqtt]\nmax_inflight = 7\n").unwrap();
    std::fs::write(dir.path().join("b.toml"), "[sys]\ninterval = 'off'\n").unwrap();
    let environment = Environment::of([("HOLDFAST_NODE__NAME", "n1")]);
    let shown = |effective, origin| {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = show(Some(&path), &environment, (effective, origin), (&mut out, &mut err)).unwrap();
        assert_eq!((code, err.len()), (DONE, 0));
        String::from_utf8(out).unwrap().replace(&format!("{}/", dir.path().display()), "")
    };
    assert_eq!(
        shown(false, false),
        "include = ['b.toml']\nnode.name = \"n1\"\nmqtt.max_inflight = 7\nsys.interval = 'off'\n"
    );
    let all = shown(true, true);
    for line in [
        "node.name = \"n1\"  # environment HOLDFAST_NODE__NAME, restart\n",
        "mqtt.max_inflight = 7  # a.toml:3, restart\n",
        "sys.interval = 'off'  # b.toml:2, restart\n",
        "mqtt.max_queued_messages = 10_000  # default, restart\n",
        "acl.no_match = \"deny\"  # default, now\n",
        "listener[1].ping_interval = \"25s\"  # default, restart\n",
    ] {
        assert!(all.contains(line), "{line}{all}");
    }
}

#[test]
fn a_data_directory_is_shown() {
    let (code, out, _) = checked_text("[node]\ndata_dir = '/data'\n");
    assert_eq!(code, DONE);
    assert!(out.ends_with("  data in /data\n"), "{out}");
}

#[test]
fn a_wrong_file_is_code_2_with_all_errors() {
    let (code, out, err) = checked_text("[mqtt]\nmax_inflght = 1\n[logs]\n");
    assert_eq!((code, out.as_str()), (USAGE, ""));
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.contains("a.toml:2:1: ") && err.contains("a.toml:3:2: "), "{err}");
}

#[test]
fn a_file_that_cannot_be_read_is_code_2() {
    let (code, _, err) = checked(Some(Path::new("/nonexistent/a.toml")));
    assert_eq!(code, USAGE);
    assert!(err.starts_with("/nonexistent/a.toml: cannot be read: "), "{err}");
}

/// A certificate and its key, in files of a folder.
fn write_pair(dir: &Path, name: &str) {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join(format!("{name}.crt")), pair.cert.pem()).unwrap();
    std::fs::write(dir.join(format!("{name}.key")), pair.signing_key.serialize_pem()).unwrap();
}

#[test]
fn files_that_it_names_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let with_key = |key: &str| {
        let text = format!(
            "[auth]\npassword_file = 'pw'\n[[listener]]\nname = 'tls'\nbind = '127.0.0.1:8883'\n\
             tls = {{ cert = 'one.crt', key = '{key}.key' }}\n"
        );
        std::fs::write(&path, text).unwrap();
        checked(Some(&path))
    };
    let (code, out, err) = with_key("one");
    assert_eq!((code, out.as_str()), (USAGE, ""));
    assert_eq!(err.lines().count(), 3, "{err}");
    let (password_file, cert) = (err.find(":2:17: password_file: "), err.find(":6:16: cert: "));
    assert!(password_file < cert && cert < err.find(":6:33: key: "), "{err}");
    assert!(password_file.is_some() && cert.is_some() && err.contains("holdfast passwd -c"), "{err}");

    std::fs::write(dir.path().join("pw"), "").unwrap();
    write_pair(dir.path(), "one");
    write_pair(dir.path(), "two");
    let (code, out, _) = with_key("one");
    assert_eq!(code, DONE);
    assert!(out.contains("  tls  mqtts://127.0.0.1:8883  password\n"), "{out}");

    let (code, _, err) = with_key("two");
    assert_eq!(code, USAGE, "the key of another certificate");
    assert!(err.contains(":6:33: key: ") && err.contains("two.key do not belong together"), "{err}");
    std::fs::write(dir.path().join("pw"), "ada:plain\n").unwrap();
    assert!(with_key("one").2.contains("pw:1: the password is not hashed"));
}

#[test]
fn the_files_of_the_cluster_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let text = "[node]\nname = 'n1'\ndata_dir = 'data'\n[[listener]]\nbind = '127.0.0.1:1883'\nallow_anonymous = true\n\
                [cluster]\nname = 'c'\nbind = '127.0.0.1:7946'\nseeds = ['127.0.0.1:7947']\nsecret_file = 'secret'\n\
                tls = { cert = 'n1.crt', key = 'n1.key', ca = 'n1.crt' }\n";
    std::fs::write(&path, text).unwrap();
    let (code, _, err) = checked(Some(&path));
    assert_eq!(code, USAGE, "{err}");
    let (secret, cert) = (err.find("a.toml:11:15: secret_file: "), err.find("a.toml:12:16: cert: "));
    assert!(err.contains("make it with") && err.contains("/dev/urandom"), "{err}");
    assert!(secret.is_some() && secret < cert && err.lines().count() == 2, "{err}");
    std::fs::write(dir.path().join("secret"), "changeme-changeme-changeme").unwrap();
    write_pair(dir.path(), "n1");
    let (code, _, err) = checked(Some(&path));
    assert!(code == USAGE && err.contains("a.toml:11:15: ") && err.contains("holds a sample"), "{err}");
    std::fs::write(dir.path().join("secret"), "0123456789abcdef").unwrap();
    let (code, out, err) = checked(Some(&path));
    assert_eq!(code, DONE, "{err}");
    assert!(out.contains("\n  cluster  c  on 127.0.0.1:7946  TLS  expected_size 3  seeds 127.0.0.1:7947\n"), "{out}");
}

#[test]
fn an_address_of_another_machine_is_a_warning() {
    // 192.0.2.0/24 is for documentation and nobody's (RFC 5737).
    let (code, out, err) = checked_text("[[listener]]\nbind = '192.0.2.1:1883'\nallow_anonymous = true\n");
    assert_eq!(code, DONE, "{err}");
    assert!(out.contains("good"), "{out}");
    assert!(err.starts_with("warning: ") && err.contains("a.toml:2:8: bind: ") && err.contains("192.0.2.1"), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
}

#[test]
fn the_admin_port_and_its_token_are_looked_at() {
    let (code, out, _) = checked_text("[admin]\nbind = 'off'\n");
    assert!(code == DONE && !out.contains("admin"), "{out}");
    let (code, _, err) = checked_text("[admin]\nbind = '0.0.0.0:18083'\ntoken_file = 'gone'\n");
    assert_eq!(code, USAGE);
    assert!(err.contains("a.toml:3:14: token_file: ") && err.contains("gone: "), "{err}");
    let (code, _, err) = checked_text("[admin]\nbind = 'off'\ntoken_file = 'gone'\n");
    assert_eq!(code, DONE, "nobody needs it: {err}");
}
