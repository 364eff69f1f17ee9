//! Who is let in, and what happens when the file or the node is not up to it.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

/// User `alice` with the password `secret`, cheap to check.
const ALICE: &str = "alice:$7$101$rWTqDFhcWhQR/stx$YB3r7khx8Z9Mx67ZW3+DrBPdC4NRm8d/qILLqZx8UgBtGAfWzkhfqefBf5gRbHvy3ef9VoztL1OimVpZ+RicDA==\n";

struct Fixture {
    dir: tempfile::TempDir,
    access: Access,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("pw"), ALICE).unwrap();
        let access = Access::new(Some(&dir.path().join("pw"))).unwrap();
        Fixture { dir, access }
    }

    fn rewrite(&self, text: &str) {
        std::fs::write(self.dir.path().join("pw"), text).unwrap();
    }
}

fn named(name: &str) -> Result<Identity, ReasonCode> {
    Ok(Identity { user_name: Some(name.into()) })
}

/// The answer of a decision that must not wait.
fn at_once(
    access: &Access,
    allow_anonymous: bool,
    user_name: Option<&str>,
    password: Option<&[u8]>,
) -> Result<Identity, ReasonCode> {
    assert!(!access.needs_hashing(user_name));
    let decision = pin!(access.authenticate(allow_anonymous, user_name, password));
    match decision.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => panic!("this decision waits"),
    }
}

#[tokio::test]
async fn who_is_let_in() {
    let Fixture { access, .. } = Fixture::new();
    for allow_anonymous in [false, true] {
        let ask = async |user: Option<&str>, password: Option<&str>| {
            access.authenticate(allow_anonymous, user, password.map(str::as_bytes)).await
        };
        assert_eq!(ask(Some("alice"), Some("secret")).await, named("alice"));
        for (user, password) in
            [("alice", Some("Secret")), ("alice", None), ("bob", Some("secret")), ("bob", None), ("", Some(""))]
        {
            let answer = ask(Some(user), password).await;
            assert_eq!(answer, Err(ReasonCode::BadUserNameOrPassword), "{user} {password:?}");
        }
    }
}

#[test]
fn without_a_user_name_only_the_listener_decides_and_at_once() {
    let Fixture { access, .. } = Fixture::new();
    assert_eq!(at_once(&access, true, None, None), Ok(Identity::default()));
    assert_eq!(at_once(&access, false, None, None), Err(ReasonCode::NotAuthorized));
    assert_eq!(at_once(&access, false, None, Some(b"secret")), Err(ReasonCode::NotAuthorized));
    assert!(access.needs_hashing(Some("alice")));
}

#[test]
fn without_a_password_file_a_name_proves_nothing() {
    let access = Access::new(None).unwrap();
    assert_eq!(access.user_count(), 0);
    assert_eq!(at_once(&access, true, Some("alice"), Some(b"secret")), Ok(Identity::default()));
    assert_eq!(at_once(&access, false, Some("alice"), Some(b"secret")), Err(ReasonCode::NotAuthorized));
    access.reload().unwrap();
}

#[tokio::test]
async fn reload_takes_a_good_file_and_keeps_the_old_users_when_the_new_one_is_broken() {
    let fixture = Fixture::new();
    let access = &fixture.access;
    let secret = Some(&b"secret"[..]);
    for broken in ["bob:plain\n", "bob", &format!("{ALICE}{ALICE}")] {
        fixture.rewrite(broken);
        assert!(access.reload().is_err());
        assert_eq!(access.authenticate(false, Some("alice"), secret).await, named("alice"));
        assert_eq!(
            access.authenticate(false, Some("bob"), Some(b"plain")).await,
            Err(ReasonCode::BadUserNameOrPassword)
        );
    }
    std::fs::remove_file(fixture.dir.path().join("pw")).unwrap();
    assert!(access.reload().is_err());
    assert_eq!(access.authenticate(false, Some("alice"), secret).await, named("alice"));

    fixture.rewrite(&ALICE.replace("alice", "carol"));
    access.reload().unwrap();
    assert_eq!(access.authenticate(false, Some("carol"), secret).await, named("carol"));
    assert_eq!(access.authenticate(false, Some("alice"), secret).await, Err(ReasonCode::BadUserNameOrPassword));
}

#[test]
fn a_file_that_is_wrong_at_the_start_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Access::new(Some(&dir.path().join("absent"))).is_err());
    let path = dir.path().join("pw");
    std::fs::write(&path, format!("{ALICE}bob:plain\n")).unwrap();
    let error = Access::new(Some(&path)).unwrap_err().to_string();
    assert!(error.contains("pw:2: "), "{error}");
}

#[tokio::test]
async fn beyond_the_bound_clients_are_told_that_the_server_is_busy() {
    let Fixture { access, .. } = Fixture::new();
    access.waiting.store(WAITING_MAX, Ordering::Relaxed);
    let answer = access.authenticate(false, Some("alice"), Some(b"secret")).await;
    assert_eq!(answer, Err(ReasonCode::ServerBusy));
    assert_eq!(access.waiting.load(Ordering::Relaxed), WAITING_MAX, "who was turned away does not count");
    access.waiting.store(WAITING_MAX - 1, Ordering::Relaxed);
    assert_eq!(access.authenticate(false, Some("alice"), Some(b"secret")).await, named("alice"));
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_leaves_nothing_behind() {
    let Fixture { access, .. } = Fixture::new();
    let all = access.hashing.available_permits();
    let held = Arc::clone(&access.hashing).acquire_many_owned(u32::try_from(all).unwrap()).await.unwrap();
    {
        let mut decision = pin!(access.authenticate(false, Some("alice"), Some(b"secret")));
        assert!(decision.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(access.waiting.load(Ordering::Relaxed), 1);
    }
    assert_eq!(access.waiting.load(Ordering::Relaxed), 0);
    drop(held);
    assert_eq!(access.hashing.available_permits(), all);
    assert_eq!(access.authenticate(false, Some("alice"), Some(b"secret")).await, named("alice"));
}

#[tokio::test]
async fn many_clients_at_once_are_all_answered() {
    let Fixture { access, .. } = Fixture::new();
    let access = Arc::new(access);
    let asked: Vec<_> = (0..100)
        .map(|index| {
            let access = Arc::clone(&access);
            tokio::spawn(async move {
                let password: &[u8] = if index % 2 == 0 { b"secret" } else { b"wrong" };
                access.authenticate(false, Some("alice"), Some(password)).await
            })
        })
        .collect();
    for (index, answer) in asked.into_iter().enumerate() {
        let expected = if index % 2 == 0 { named("alice") } else { Err(ReasonCode::BadUserNameOrPassword) };
        assert_eq!(answer.await.unwrap(), expected);
    }
    assert_eq!(access.waiting.load(Ordering::Relaxed), 0);
}
