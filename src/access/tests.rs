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

/// Whether a decision was made, and for whom.
type Answer = Result<Option<String>, ReasonCode>;

fn named(name: &str) -> Answer {
    Ok(Some(name.to_owned()))
}

fn login<'a>(allow_anonymous: bool, user_name: Option<&'a str>, password: Option<&'a [u8]>) -> Login<'a> {
    Login {
        listener: "test",
        allow_anonymous,
        address: std::net::Ipv4Addr::LOCALHOST.into(),
        client_id: "c",
        user_name,
        password,
        bearer: None,
        certificate: None,
    }
}

fn short(answer: Result<Identity, Denial>) -> Answer {
    answer.map(|identity| identity.user_name.map(|name| name.to_string())).map_err(|denial| denial.reason)
}

async fn ask(access: &Access, allow_anonymous: bool, user_name: Option<&str>, password: Option<&[u8]>) -> Answer {
    short(access.authenticate(&login(allow_anonymous, user_name, password)).await)
}

/// The answer of a decision that must not wait.
fn at_once(access: &Access, allow_anonymous: bool, user_name: Option<&str>, password: Option<&[u8]>) -> Answer {
    let login = login(allow_anonymous, user_name, password);
    assert!(!access.takes_time(&login));
    let decision = pin!(access.authenticate(&login));
    match decision.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => short(decision),
        Poll::Pending => panic!("this decision waits"),
    }
}

#[tokio::test]
async fn who_is_let_in() {
    let Fixture { access, .. } = Fixture::new();
    for allow_anonymous in [false, true] {
        let ask = async |user: Option<&str>, password: Option<&str>| {
            ask(&access, allow_anonymous, user, password.map(str::as_bytes)).await
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
    assert_eq!(at_once(&access, true, None, None), Ok(None));
    assert_eq!(at_once(&access, false, None, None), Err(ReasonCode::NotAuthorized));
    assert!(access.takes_time(&login(false, Some("alice"), None)));
}

#[test]
fn without_a_password_file_a_name_proves_nothing() {
    let access = Access::new(None).unwrap();
    assert_eq!(at_once(&access, true, Some("alice"), Some(b"secret")), Ok(None));
    assert_eq!(at_once(&access, false, Some("alice"), Some(b"secret")), Err(ReasonCode::NotAuthorized));
    assert!(!access.reload().unwrap(), "there is nothing to read again");
}

#[tokio::test]
async fn reload_takes_a_good_file_and_keeps_the_old_users_when_the_new_one_is_broken() {
    let fixture = Fixture::new();
    let access = &fixture.access;
    let secret = Some(&b"secret"[..]);
    for broken in ["bob:plain\n", "bob", &format!("{ALICE}{ALICE}")] {
        fixture.rewrite(broken);
        assert!(access.reload().is_err());
        assert_eq!(ask(access, false, Some("alice"), secret).await, named("alice"));
        assert_eq!(ask(access, false, Some("bob"), Some(b"plain")).await, Err(ReasonCode::BadUserNameOrPassword));
    }
    std::fs::remove_file(fixture.dir.path().join("pw")).unwrap();
    assert!(access.reload().is_err());
    assert_eq!(ask(access, false, Some("alice"), secret).await, named("alice"));

    fixture.rewrite(&ALICE.replace("alice", "carol"));
    access.reload().unwrap();
    assert_eq!(ask(access, false, Some("carol"), secret).await, named("carol"));
    assert_eq!(ask(access, false, Some("alice"), secret).await, Err(ReasonCode::BadUserNameOrPassword));
}

#[tokio::test]
async fn what_was_proved_holds_until_the_user_or_its_password_changes() {
    let fixture = Fixture::new();
    let access = &fixture.access;
    let alice = access.authenticate(&login(false, Some("alice"), Some(b"secret"))).await.unwrap();
    let anonymous = access.authenticate(&login(true, None, None)).await.unwrap();
    assert_eq!((alice.method, anonymous.method), (Method::Password, Method::Anonymous));
    let holds = || (access.still_holds("test", &alice), access.still_holds("test", &anonymous));
    // Another user, and a comment: nothing changes for this one.
    fixture.rewrite(&format!("# all\n{}{ALICE}", ALICE.replace("alice", "carol")));
    access.reload().unwrap();
    assert_eq!(holds(), (true, true));
    // The same password with another salt is a new line, whoever wrote it.
    let anew = PasswordHash::new(HashKind::Sha512Pbkdf2, b"secret").unwrap();
    fixture.rewrite(&format!("alice:{anew}\n"));
    access.reload().unwrap();
    assert_eq!(holds(), (false, true));
    fixture.rewrite("# nobody\n");
    access.reload().unwrap();
    assert_eq!(holds(), (false, true));
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
    let Fixture { mut access, .. } = Fixture::new();
    access.hashing = Hashing::new(1);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (running, started) = std::sync::mpsc::channel();
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let finished = Arc::new(Mutex::new(finished));
    // Every thread has something to do, and the queue is full.
    let mut held = Vec::new();
    for number in 0..(cores / 2).max(1) + 1 {
        let (running, finished) = (running.clone(), finished.clone());
        let mut work = Box::pin(access.hashing.run(move || {
            let _ = running.send(());
            let _ = finished.lock().recv();
        }));
        assert!(work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        held.push(work);
        if number < (cores / 2).max(1) {
            started.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }
    assert_eq!(ask(&access, false, Some("alice"), Some(b"secret")).await, Err(ReasonCode::ServerBusy));
    assert_eq!(access.counts.get(Method::Password as usize, AuthResult::Busy), 1);
    drop(finish);
    for work in held {
        let _ = work.await;
    }
    assert_eq!(ask(&access, false, Some("alice"), Some(b"secret")).await, named("alice"));
    assert_eq!(access.counts.get(Method::Password as usize, AuthResult::Allowed), 1);
}

#[tokio::test]
async fn a_wrong_password_makes_the_next_attempts_of_its_user_and_address_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pw");
    std::fs::write(&path, ALICE).unwrap();
    let settings = AuthSettings { order: vec![Method::Password], password_file: Some(path), ..AuthSettings::default() };
    let access = Access::with((settings, Vec::new()), Duration::from_millis(100)..=Duration::from_secs(60)).unwrap();
    // The answers to both are held back, and the second attempt waits for its turn.
    for at_least in [100, 200] {
        let began = Instant::now();
        assert_eq!(ask(&access, false, Some("alice"), Some(b"wrong")).await, Err(ReasonCode::BadUserNameOrPassword));
        assert!(began.elapsed() >= Duration::from_millis(at_least), "{:?}", began.elapsed());
    }
    // The right one from there has to wait as well, but not one from elsewhere, or of somebody else.
    let pair = access.pair(&login(false, Some("alice"), None));
    assert!(access.failed.lock().arrive(pair, access.now_ms()).is_some());
    assert!(access.failed.lock().arrive(pair, access.now_ms()) > Some(0));
    for free in
        [Login { address: [192, 0, 2, 1].into(), ..login(false, Some("alice"), None) }, login(false, Some("bob"), None)]
    {
        assert_eq!(access.failed.lock().arrive(access.pair(&free), access.now_ms()), Some(0));
    }
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
                ask(&access, false, Some("alice"), Some(password)).await
            })
        })
        .collect();
    for (index, answer) in asked.into_iter().enumerate() {
        let expected = if index % 2 == 0 { named("alice") } else { Err(ReasonCode::BadUserNameOrPassword) };
        assert_eq!(answer.await.unwrap(), expected);
    }
}

#[tokio::test]
async fn certificates_name_users_and_client_ids_as_far_as_they_are_asked() {
    let certificate = Certificate { cn: Some("sensor".to_owned()), ..Certificate::default() };
    let settings = |user_name_from, client_id_from| AuthSettings {
        order: vec![Method::Password, Method::Token, Method::Certificate],
        user_name_from,
        client_id_from,
        ..AuthSettings::default()
    };
    let judge = async |settings, client_id| {
        let access = Access::with((settings, Vec::new()), Duration::ZERO..=Duration::ZERO).unwrap();
        let login = Login { certificate: Some(&certificate), client_id, ..login(false, Some("claimed"), None) };
        access.authenticate(&login).await
    };
    let (cn, dns) = (Some(CertificateName::Cn), Some(CertificateName::SanDns));
    let sensor = judge(settings(cn, None), "c").await.unwrap();
    assert_eq!((sensor.user_name.as_deref(), sensor.method), (Some("sensor"), Method::Certificate));
    assert_eq!(sensor.attributes.unwrap().cert_cn.as_deref(), Some("sensor"));
    // A name that the certificate has not got, and certificates that prove nobody.
    assert_eq!(judge(settings(dns, None), "c").await.unwrap_err().reason, ReasonCode::NotAuthorized);
    assert_eq!(judge(settings(None, None), "c").await.unwrap_err().reason, ReasonCode::NotAuthorized);
    // The client id is the certificate's, or there is no connection.
    assert_eq!(judge(settings(cn, cn), "sensor").await.unwrap().client_id.as_deref(), Some("sensor"));
    assert_eq!(judge(settings(cn, cn), "").await.unwrap().client_id.as_deref(), Some("sensor"));
    let other = judge(settings(cn, cn), "other").await.unwrap_err();
    assert_eq!(other.reason, ReasonCode::ClientIdentifierNotValid);
}
