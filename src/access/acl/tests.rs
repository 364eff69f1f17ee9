//! Rules as files and tokens say them, asked as connections ask them.

use std::path::Path;

use super::*;

const FILE: &str = "\
# Anonymous clients.
topic read public/#
topic write public/in

user alice
topic readwrite a/#
topic deny a/secret/#
topic read $SYS/broker/uptime
topic my/own

user bob smith
topic subscribe #
topic read a/1

pattern write devices/%c/up
pattern read devices/%c/down
pattern deny devices/+/private
topic read ${username}/only
pattern readwrite of/%u/${cert.cn}/${claims.site}
";

fn acl(text: &str) -> (tempfile::TempDir, Arc<Acl>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("acl.conf");
    std::fs::write(&path, text).unwrap();
    let settings = AclSettings { file: Some(path), allows_unmatched: false };
    (dir, Arc::new(Acl::new((settings, Vec::new())).unwrap()))
}

fn of(client_id: &str, user_name: Option<&str>) -> Subject {
    Subject { client_id: client_id.into(), user_name: user_name.map(Into::into), is_local: true, ..Subject::default() }
}

fn may(acl: &Arc<Acl>, subject: &Subject, action: Action, topic: &str) -> bool {
    let mut rights = acl.rights(subject.clone());
    let answer = rights.ask(action, topic);
    assert_eq!(rights.ask(action, topic), answer, "the second time");
    assert_eq!(rights.explain(action, topic).allowed, answer.allowed, "{topic}");
    answer.allowed
}

use Action::{Publish, Read, Subscribe};

#[test]
fn precedence_is_that_of_mosquitto() {
    let (_dir, acl) = acl(FILE);
    let (nobody, alice) = (of("c", None), of("c", Some("alice")));
    assert!(may(&acl, &nobody, Read, "public/x") && !may(&acl, &nobody, Publish, "public/x"));
    assert!(may(&acl, &nobody, Publish, "public/in"));
    assert!(!may(&acl, &alice, Read, "public/x"), "lines before the first user are about anonymous clients");
    assert!(may(&acl, &alice, Publish, "a/b") && may(&acl, &alice, Read, "a"));
    assert!(!may(&acl, &alice, Read, "a/secret/x"), "a denial goes first, wherever it stands");
    assert!(
        may(&acl, &alice, Publish, "my/own") && may(&acl, &alice, Read, "my/own"),
        "readwrite when nothing is said"
    );
    assert!(!may(&acl, &alice, Read, "b"), "what no line speaks of is denied");
    assert!(
        may(&acl, &of("d1", None), Publish, "devices/d1/up")
            && may(&acl, &of("d1", Some("alice")), Publish, "devices/d1/up")
    );
    assert!(
        !may(&acl, &of("d1", None), Publish, "devices/d2/up") && !may(&acl, &of("d1", None), Read, "devices/d1/up")
    );
    assert!(!may(&acl, &of("private", None), Publish, "devices/d1/private"));
    assert!(!may(&acl, &of("c", Some("carol")), Read, "a/b"), "a user without lines has the patterns alone");
}

#[test]
fn a_filter_is_granted_when_a_rule_covers_it() {
    let (_dir, acl) = acl(FILE);
    let (alice, bob) = (of("c", Some("alice")), of("c", Some("bob smith")));
    for (filter, granted) in [
        ("a/#", true),
        ("a/+", true),
        ("$share/g/a/+", true),
        ("#", false),
        ("+/x", false),
        ("a/secret/#", false),
        ("$share/g/#", false),
        ("$SYS/#", false),
    ] {
        assert_eq!(may(&acl, &alice, Subscribe, filter), granted, "{filter}");
    }
    assert!(may(&acl, &bob, Subscribe, "#") && may(&acl, &bob, Subscribe, "x/+"));
    assert!(may(&acl, &bob, Read, "a/1") && !may(&acl, &bob, Read, "a/2"), "what is sent is another question");
}

#[test]
fn names_are_put_in_unless_they_would_change_the_filter() {
    let (_dir, acl) = acl(FILE);
    assert!(may(&acl, &of("c", Some("bob smith")), Read, "bob smith/only"));
    let full =
        Subject { cert_cn: Some("gate".into()), claims: vec![("site".into(), "x7".into())], ..of("c", Some("carol")) };
    assert!(may(&acl, &full, Publish, "of/carol/gate/x7") && !may(&acl, &full, Publish, "of/carol/gate/x8"));
    assert!(!may(&acl, &of("c", Some("carol")), Publish, "of/carol/gate/x7"), "it has no certificate and no token");
    for id in ["+", "#", "a/b", "d+", ""] {
        for topic in ["devices/d1/up", "devices/+/up", &format!("devices/{id}/up")] {
            assert!(!may(&acl, &of(id, None), Publish, topic), "{id} {topic}");
        }
    }
    let (_dir, denying) = self::acl(
        "user a/b\ntopic readwrite #\npattern deny x/%u\nuser c\ntopic readwrite #\ntopic deny ${username}/x\n",
    );
    assert!(may(&denying, &of("c", Some("a/b")), Read, "y"), "a topic line of the user goes before patterns");
    assert!(!may(&denying, &of("c", Some("c")), Read, "c/x") && may(&denying, &of("c", Some("c")), Read, "c/y"));
}

#[test]
fn the_system_topics_are_for_this_machine_and_for_whom_they_are_granted() {
    let open = Arc::new(Acl::new(Settings::default()).unwrap());
    let (here, there) = (of("c", None), Subject { is_local: false, ..of("c", Some("alice")) });
    for topic in ["$SYS/broker/uptime", "$SYS"] {
        assert!(may(&open, &here, Read, topic) && !may(&open, &there, Read, topic));
    }
    assert!(!may(&open, &there, Subscribe, "$SYS/#") && !may(&open, &there, Subscribe, "$share/g/$SYS/#"));
    assert!(may(&open, &there, Read, "$SYSTEM/x") && may(&open, &there, Subscribe, "#"));
    assert!(!open.rights(there.clone()).ask(Read, "a").asked);
    let (_dir, acl) = acl(FILE);
    assert!(may(&acl, &there, Read, "$SYS/broker/uptime") && !may(&acl, &here, Read, "$SYS/broker/uptime"));
    let lax = AclSettings { allows_unmatched: true, ..acl.settings.load().0.clone() };
    acl.replace((lax, Vec::new())).unwrap();
    assert!(may(&acl, &there, Read, "zzz") && !may(&acl, &there, Read, "$SYS/broker/version"));
    assert!(may(&acl, &here, Read, "$SYS/broker/version") && !may(&acl, &there, Read, "a/secret/x"));
}

#[test]
fn a_token_goes_before_the_file() {
    let (_dir, acl) = acl(FILE);
    let with = |claim: &str| Subject { acl_claim: Some(claim.into()), ..of("d1", Some("alice")) };
    let ours = with(r#"{"pub": ["t/${clientid}"], "sub": ["s/#"]}"#);
    assert!(may(&acl, &ours, Publish, "t/d1") && may(&acl, &ours, Read, "s/x") && may(&acl, &ours, Subscribe, "s/+"));
    assert!(!may(&acl, &ours, Read, "t/d1") && !may(&acl, &ours, Read, "a/b"), "what is not listed is denied");
    let theirs = with(
        r#"[{"permission":"deny","action":"publish","topic":"a/1"},{"permission":"allow","topic":"z"},{"permission":"deny","action":"all","topic":"z/#"}]"#,
    );
    assert!(!may(&acl, &theirs, Publish, "a/1") && may(&acl, &theirs, Read, "a/1"), "the file speaks of the rest");
    assert!(may(&acl, &theirs, Publish, "z") && !may(&acl, &theirs, Publish, "z/y"));
    for broken in ["", "7", r#"{"pub": "t"}"#, r#"{"pup": ["t"]}"#, r#"[{"permission":"allow","topic":"a/#/b"}]"#] {
        let broken = with(broken);
        assert!(!may(&acl, &broken, Read, "a/b") && !may(&acl, &broken, Publish, "t"), "{broken:?}");
    }
    let open = Arc::new(Acl::new(Settings::default()).unwrap());
    assert!(may(&open, &ours, Publish, "t/d1") && !may(&open, &ours, Publish, "a"), "without a file, too");
}

#[test]
fn a_change_reaches_rights_that_are_in_use() {
    let (dir, acl) = acl(FILE);
    let mut rights = acl.rights(of("c", Some("alice")));
    assert!(rights.ask(Read, "a/b").allowed);
    std::fs::write(dir.path().join("acl.conf"), "user alice\ntopic read b/#\n").unwrap();
    assert!(rights.ask(Read, "a/b").allowed, "nobody has read it yet");
    acl.reload().unwrap();
    assert!(!rights.ask(Read, "a/b").allowed && rights.ask(Read, "b/c").allowed);
    std::fs::write(dir.path().join("acl.conf"), "user alice\ntopic read a/#\ntopic raed b\n").unwrap();
    assert!(acl.reload().is_err());
    assert!(!rights.ask(Read, "a/b").allowed && rights.ask(Read, "b/c").allowed, "the old ones stay in force");
    acl.replace(Settings::default()).unwrap();
    assert_eq!(rights.ask(Read, "a/b"), Answer { allowed: true, asked: false });
}

#[test]
fn a_listener_may_have_rules_of_its_own() {
    let (dir, acl) = acl(FILE);
    let own = dir.path().join("own.conf");
    std::fs::write(&own, "topic read only/here\n").unwrap();
    let here = AclSettings { file: Some(own), allows_unmatched: false };
    acl.replace((acl.settings.load().0.clone(), vec![("ws".to_owned(), here)])).unwrap();
    let at = |listener: &str| Subject { listener: listener.into(), ..of("c", None) };
    assert!(may(&acl, &at("ws"), Read, "only/here") && !may(&acl, &at("ws"), Read, "public/x"));
    assert!(may(&acl, &at("tcp"), Read, "public/x") && !may(&acl, &at("tcp"), Read, "only/here"));
}

#[test]
fn all_wrong_lines_are_named() {
    let text = "topic\ntopic raed x\nuser\nfoo\ntopic a/#/b\ntopic read x y\npattern read $share/g/x\npattern x/${nobody}\ntopic x/${\n";
    let wrong = AclFile::parse(Path::new("acl"), text).unwrap_err();
    assert_eq!(wrong.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 7, 8, 9]);
    let shown = AclError::Lines { path: "acl".into(), lines: wrong }.to_string();
    assert!(shown.starts_with("acl:1: the topic is missing\nacl:2: expected read"), "{shown}");
}

#[test]
fn the_rule_that_decided_is_named() {
    let (dir, acl) = acl(FILE);
    let file = dir.path().join("acl.conf");
    let mut alice = acl.rights(of("c", Some("alice")));
    let explained = |rights: &mut Rights, topic| rights.explain(Publish, topic).to_string();
    assert_eq!(explained(&mut alice, "a/b"), format!("allowed by {}:6: topic readwrite a/#", file.display()));
    assert_eq!(explained(&mut alice, "a/secret/x"), format!("denied by {}:7: topic deny a/secret/#", file.display()));
    assert_eq!(explained(&mut alice, "q"), "denied by no_match = \"deny\": no rule speaks of it");
}

#[test]
fn what_is_remembered_is_what_is_decided_and_bounded() {
    let text: String = (0..40).map(|n| format!("topic read t/{n}\n")).collect();
    let (_dir, acl) = acl(&text);
    let mut rights = acl.rights(of("c", None));
    for round in 0..3 {
        for n in 0..60 {
            assert_eq!(rights.ask(Read, &format!("t/{n}")).allowed, n < 40, "{round}");
            assert!(!rights.ask(Publish, &format!("t/{n}")).allowed, "another action");
        }
    }
    rights.ask(Read, &"x".repeat(REMEMBERED_TOPIC_MAX + 1));
    assert_eq!(rights.remembered.decisions.len(), REMEMBERED_MAX);
    assert!(rights.remembered.decisions.iter().all(|(_, _, topic)| topic.len() <= REMEMBERED_TOPIC_MAX));
}
