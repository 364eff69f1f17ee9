//! Files of users: what is read, what is refused, what editing leaves alone.

use super::*;

const ALICE: &str =
    "$6$16QTe72+8o/7m7/L$FzdfWFIdCRmETYI2EKCjp1lhF/C9fVXM/utewMDNCo2XZnUMmocRyYGWHBDKBfdS3L/MfD7lf6p0qikRqsl0LA==";
const BOB: &str =
    "$7$101$rWTqDFhcWhQR/stx$YB3r7khx8Z9Mx67ZW3+DrBPdC4NRm8d/qILLqZx8UgBtGAfWzkhfqefBf5gRbHvy3ef9VoztL1OimVpZ+RicDA==";

fn file(text: &str) -> PasswordFile {
    PasswordFile::parse(text).unwrap_or_else(|lines| panic!("{lines:?}"))
}

fn wrong(text: &str) -> Vec<(usize, String)> {
    PasswordFile::parse(text).expect_err(text)
}

#[test]
fn users_comments_blank_lines_and_windows_line_ends_are_read() {
    let text = format!("# people\r\nalice:{ALICE}\r\n\r\n  bob : {BOB}  \n");
    let file = file(&text);
    assert_eq!(file.len(), 2);
    assert_eq!(file.verify("alice", Some(b"old-secret")).as_ref().map(|(name, _)| &**name), Some("alice"));
    assert_eq!(file.verify("bob", Some(b"secret")).as_ref().map(|(name, _)| &**name), Some("bob"));
}

#[test]
fn only_the_right_password_of_the_right_user_counts() {
    let file = file(&format!("alice:{ALICE}\nbob:{BOB}"));
    for (user, password) in
        [("alice", "secret"), ("bob", "old-secret"), ("Alice", "old-secret"), ("", ""), ("carol", "secret")]
    {
        assert_eq!(file.verify(user, Some(password.as_bytes())), None, "{user} {password}");
    }
    assert_eq!(file.verify("alice", None), None, "no password is no password");
    assert_eq!(file.verify("alice", Some(b"")), None);
}

#[test]
fn an_empty_file_lets_nobody_in() {
    for text in ["", "\n", "# nobody yet\n"] {
        assert!(file(text).is_empty());
        assert_eq!(file(text).verify("alice", Some(b"")), None);
    }
}

#[test]
fn an_unknown_user_costs_as_much_as_the_dearest_known_one() {
    let file = file(&format!("alice:{ALICE}\nbob:{BOB}\n"));
    let dearest: PasswordHash = BOB.parse().unwrap();
    assert_eq!(file.decoy.as_ref().map(PasswordHash::cost), Some(dearest.cost()));
}

#[test]
fn every_wrong_line_is_named_and_no_password_is_shown() {
    let text =
        format!("alice\nbob:hunter2\ncarol:$6$x\n:{ALICE}\ndave:{ALICE}\ndave:{BOB}\nok:{BOB}\ne\u{1}ve:{BOB}\n");
    let lines = wrong(&text);
    let numbers: Vec<usize> = lines.iter().map(|(line, _)| *line).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 6, 8]);
    assert!(lines[0].1.contains("no \":\""));
    assert!(lines[1].1.contains("holdfast passwd -U"), "{}", lines[1].1);
    assert!(lines[4].1.contains("above"));
    let all = AccessError::Lines { path: "pw".into(), lines }.to_string();
    assert!(all.starts_with("pw:1: ") && all.contains("\npw:8: "), "{all}");
    assert!(!all.contains("hunter2"));
}

#[test]
fn an_error_of_very_many_lines_stays_short() {
    let text = "x\n".repeat(1000);
    let all = AccessError::Lines { path: "pw".into(), lines: wrong(&text) }.to_string();
    assert_eq!(all.lines().count(), WRONG_LINES_SHOWN + 1);
    assert!(all.ends_with("pw: and 980 more lines"));
}

#[test]
fn editing_one_user_leaves_the_rest_of_the_file_alone() {
    let mut edited = file(&format!("# first\nalice:{ALICE}\n\n# second\nbob:{BOB}\n"));
    assert!(edited.remove("alice"));
    assert!(!edited.remove("alice"));
    assert_eq!(edited.to_string(), format!("# first\n\n# second\nbob:{BOB}\n"));
    assert_eq!(edited.set("carol", ALICE.parse().unwrap()), Ok(true));
    assert_eq!(edited.set("bob", ALICE.parse().unwrap()), Ok(false));
    assert_eq!(edited.to_string(), format!("# first\n\n# second\nbob:{ALICE}\ncarol:{ALICE}\n"));
    assert!(edited.verify("carol", Some(b"old-secret")).is_some());
    assert!(edited.verify("bob", Some(b"secret")).is_none(), "the new password replaces the old one");
    assert!(edited.verify("bob", Some(b"old-secret")).is_some());
}

#[test]
fn names_that_would_break_the_file_are_refused() {
    let mut edited = PasswordFile::default();
    let hash: PasswordHash = ALICE.parse().unwrap();
    assert_eq!(edited.set("", hash.clone()), Err(UserNameError::Empty));
    assert_eq!(edited.set(&"x".repeat(65_536), hash.clone()), Err(UserNameError::TooLong));
    for name in ["a:b", "a\nb", "a\0", "#a", " a", "a ", "\u{85}"] {
        assert_eq!(edited.set(name, hash.clone()), Err(UserNameError::Character), "{name:?}");
    }
    assert_eq!(edited.set("ä b#c", hash), Ok(true));
    assert_eq!(file(&edited.to_string()).len(), 1);
}

#[test]
fn plain_passwords_are_hashed_and_hashed_ones_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pw");
    std::fs::write(&path, format!("# mixed\nalice:pass:word\nbob:{BOB}\n")).unwrap();
    let (file, count) = PasswordFile::from_plain(&path, HashKind::Sha512Pbkdf2).unwrap();
    assert_eq!((file.len(), count), (2, 1));
    assert!(file.verify("alice", Some(b"pass:word")).is_some(), "only the first colon separates");
    assert!(file.to_string().contains(&format!("bob:{BOB}\n")));
    std::fs::write(&path, "alice:\nbob\n").unwrap();
    let error = PasswordFile::from_plain(&path, HashKind::Sha512Pbkdf2).unwrap_err();
    assert!(matches!(error, AccessError::Lines { lines, .. } if lines.len() == 2));
}

#[test]
fn saving_replaces_the_file_in_one_step_and_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pw");
    let saved = file(&format!("alice:{ALICE}\n"));
    saved.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "a new file is its owner's alone");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    saved.save(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    assert_eq!(PasswordFile::load(&path).unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn saving_through_a_symbolic_link_replaces_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::fs::write(&target, "").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    file(&format!("alice:{ALICE}\n")).save(&link).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(PasswordFile::load(&target).unwrap().len(), 1);
}

#[test]
fn files_that_cannot_be_read_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let latin = dir.path().join("latin1");
    std::fs::write(&latin, [b'a', 0xE4, b':']).unwrap();
    for path in [dir.path().join("absent"), dir.path().to_owned(), latin] {
        let error = PasswordFile::load(&path).unwrap_err();
        assert!(matches!(error, AccessError::Read { .. }));
        assert!(error.to_string().contains(&path.display().to_string()));
    }
    assert!(file(&format!("alice:{ALICE}\n")).save(&dir.path().join("no/such/dir")).is_err());
}

proptest::proptest! {
    #[test]
    fn any_file_is_read_or_refused_without_a_panic(text in r"(\PC{0,20}(:|\n|\$6\$|#|\r)){0,8}") {
        if let Ok(file) = PasswordFile::parse(&text) {
            let again = PasswordFile::parse(&file.to_string()).unwrap();
            proptest::prop_assert_eq!(again.len(), file.len());
        }
    }
}
