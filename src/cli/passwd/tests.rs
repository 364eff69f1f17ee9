//! The flags of `mosquitto_passwd`, on files.

use std::path::Path;

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Alone {
    #[command(flatten)]
    args: PasswdArgs,
}

fn parse(line: &[&str]) -> Result<PasswdArgs, clap::Error> {
    Alone::try_parse_from([&["passwd"], line].concat()).map(|alone| alone.args)
}

/// A password file in a folder of its own.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> String {
        self.0.path().join("pw").to_str().unwrap().to_owned()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap()
    }

    fn run(&self, flags: &[&str], rest: &[&str]) -> Result<String, String> {
        let path = self.path();
        let args = parse(&[flags, &[path.as_str()], rest].concat()).unwrap();
        edit(&args, |_| Ok(Zeroizing::new("asked".to_owned()))).map_err(|error| error.to_string())
    }
}

/// Cheap enough for a debug build, where the default takes its time.
const FAST: &str = "-Hsha512-pbkdf2";

/// What `mosquitto_passwd` makes of `secret`.
const SECRET: &str =
    "$7$101$rWTqDFhcWhQR/stx$YB3r7khx8Z9Mx67ZW3+DrBPdC4NRm8d/qILLqZx8UgBtGAfWzkhfqefBf5gRbHvy3ef9VoztL1OimVpZ+RicDA==";

#[test]
fn a_user_is_added_changed_and_removed() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["-c", "-b", FAST], &["alice", "one"]).unwrap().ends_with("user \"alice\" added"));
    let first = scratch.text();
    assert!(first.starts_with("alice:$7$210000$"), "{first}");
    assert!(scratch.run(&["-b", FAST], &["alice", "two"]).unwrap().ends_with("has a new password"));
    assert_ne!(scratch.text(), first);
    scratch.run(&["-b", FAST], &["bob", "three"]).unwrap();
    assert_eq!(scratch.text().lines().count(), 2);
    scratch.run(&["-D"], &["alice"]).unwrap();
    assert!(scratch.text().starts_with("bob:"));
    assert!(scratch.run(&["-D"], &["alice"]).unwrap_err().contains("no user \"alice\""));
}

#[test]
fn argon2id_is_what_is_written_unless_asked_otherwise() {
    let scratch = Scratch::new();
    scratch.run(&["-c", "-b"], &["alice", "one"]).unwrap();
    assert!(scratch.text().starts_with("alice:$argon2id$v=19$"));
}

#[test]
fn without_b_the_password_is_asked_for() {
    let scratch = Scratch::new();
    scratch.run(&["-c", FAST], &["alice"]).unwrap();
    let hash: PasswordHash = scratch.text().trim_end().split_once(':').unwrap().1.parse().unwrap();
    assert!(hash.verify(b"asked"));
}

#[test]
fn create_overwrites_and_nothing_else_does() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["-b", FAST], &["alice", "one"]).unwrap_err().ends_with("does not exist; -c makes it"));
    std::fs::write(scratch.path(), format!("old:{SECRET}\n")).unwrap();
    scratch.run(&["-c", "-b", FAST], &["alice", "one"]).unwrap();
    assert!(!scratch.text().contains("old:"));
}

#[test]
fn a_file_with_a_wrong_line_is_not_touched() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path(), "bob:plain\n").unwrap();
    for (flags, rest) in [(&["-b", FAST][..], &["alice", "one"][..]), (&["-D"][..], &["bob"][..])] {
        assert!(scratch.run(flags, rest).unwrap_err().contains("pw:1: "));
        assert_eq!(scratch.text(), "bob:plain\n");
    }
}

#[test]
fn upgrade_hashes_what_is_not_hashed() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path(), format!("# mine\nold:{SECRET}\nbob:plain\n")).unwrap();
    assert!(scratch.run(&["-U", FAST], &[]).unwrap().ends_with("1 passwords hashed, 2 users in all"));
    let text = scratch.text();
    assert!(text.starts_with(&format!("# mine\nold:{SECRET}\nbob:$7$")), "{text}");
    let file = PasswordFile::load(Path::new(&scratch.path())).unwrap();
    assert_eq!(file.len(), 2);
}

#[test]
fn names_and_passwords_that_cannot_be_are_refused() {
    let scratch = Scratch::new();
    assert!(scratch.run(&["-c", "-b", FAST], &["a:b", "one"]).unwrap_err().contains("user name"));
    assert!(scratch.run(&["-c", "-b", FAST], &["alice", ""]).unwrap_err().contains("empty"));
    assert!(scratch.run(&["-c", "-b", FAST], &["alice", &"x".repeat(65_536)]).is_err());
    assert!(!Path::new(&scratch.path()).exists(), "nothing was written");
}

#[test]
fn flags_that_contradict_are_wrong_usage() {
    let wrong: [&[&str]; 9] = [
        &[],
        &["pw"],
        &["-b", "pw", "alice"],
        &["pw", "alice", "secret"],
        &["-U", "pw", "alice"],
        &["-c", "-D", "pw", "alice"],
        &["-c", "-U", "pw"],
        &["-D", "-b", "pw", "alice", "secret"],
        &["-H", "md5", "pw", "alice"],
    ];
    for line in wrong {
        let error = parse(line).map(|_| ()).expect_err(&line.join(" "));
        assert_eq!(error.exit_code(), 2, "{line:?}");
    }
    for line in [&["-cb", "pw", "alice", "secret"][..], &["-D", "pw", "alice"], &["-U", "pw"], &["pw", "alice"]] {
        assert!(parse(line).is_ok(), "{line:?}");
    }
}
