//! TLS: versions, client certificates, resumption, certificates that change, and handshakes that do not end.

use std::path::PathBuf;
use std::time::Instant;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::client::Resumption;
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::byte_stream::Transport;
use crate::config::{Tls, TlsVersion, Verify};

/// An authority, made for one test.
pub(super) struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
struct Leaf {
    certificate: String,
    key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate: certificate.der().clone(), pem: certificate.pem(), issuer: Issuer::new(params, key) }
    }

    fn leaf(&self, serial: u64) -> Leaf {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Authority {
    /// The list of the serial numbers that it has withdrawn, from the start of that year to the start of the other one.
    fn withdraws(&self, serials: &[u64], from: i32, until: i32) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(from, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(from, 1, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// The TLS files of a listener.
pub(super) struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    pub(super) fn new(authority: &Authority) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.put(&authority.leaf(1));
        std::fs::write(files.path("ca.pem"), &authority.pem).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, leaf: &Leaf) {
        std::fs::write(self.path("cert.pem"), &leaf.certificate).unwrap();
        std::fs::write(self.path("key.pem"), &leaf.key).unwrap();
    }

    pub(super) fn tls(&self, verify: Verify) -> Tls {
        Tls {
            cert: self.path("cert.pem"),
            key: self.path("key.pem"),
            ca: (verify != Verify::None).then(|| self.path("ca.pem")),
            crl: None,
            verify,
            min_version: TlsVersion::V1_2,
        }
    }
}

/// How a client connects.
#[derive(Default)]
pub(super) struct Client<'a> {
    identity: Option<&'a Leaf>,
    only_version: Option<&'static rustls::SupportedProtocolVersion>,
}

impl Client<'_> {
    pub(super) fn connector(&self, authority: &Authority) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions = self.only_version.map_or(rustls::ALL_VERSIONS.to_vec(), |version| vec![version]);
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match self.identity {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.resumption = Resumption::in_memory_sessions(8);
        TlsConnector::from(Arc::new(config))
    }
}

pub(super) async fn shake_hands(rig: &Rig, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    connector.connect(ServerName::try_from("localhost").unwrap(), rig.connect().await).await
}

/// Connects as `client_id`, and says something that the listener has to pass on, so that tickets behind the handshake are read as well.
async fn open(
    rig: &mut Rig,
    connector: &TlsConnector,
    client_id: &str,
) -> std::io::Result<(TlsStream<TcpStream>, Greeted)> {
    let mut peer = shake_hands(rig, connector).await?;
    peer.write_all(&connect_packet(ProtocolVersion::V5, client_id)).await?;
    // Under TLS 1.3 a client hears that its certificate was refused only now, instead of an answer.
    let greeted = tokio::select! {
        greeted = rig.greeted.recv() => greeted.unwrap(),
        refused = peer.read_u8() => return Err(refused.err().unwrap_or(std::io::ErrorKind::InvalidData.into())),
    };
    let mut greeted = greeted;
    greeted.stream.attach().unwrap();
    assert_eq!(&*greeted.client_id, client_id);
    speak(&mut peer, &mut greeted).await;
    Ok((peer, greeted))
}

async fn speak(peer: &mut TlsStream<TcpStream>, greeted: &mut Greeted) {
    peer.write_all(b"ping").await.unwrap();
    assert_eq!(read_exactly(&mut greeted.stream, 4).await, b"ping");
    greeted.stream.write_all(b"pong").await.unwrap();
    greeted.stream.flush().await.unwrap();
    assert_eq!(read_exactly(peer, 4).await, b"pong");
}

/// The serial number of the certificate that the server showed.
fn serial(peer: &TlsStream<TcpStream>) -> Vec<u8> {
    let der = peer.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    // Certificate, TBSCertificate, version, then the serial number: INTEGER with a length of one byte.
    let at = der.windows(5).position(|bytes| bytes == [0xA0, 3, 2, 1, 2]).unwrap() + 5;
    assert_eq!(der[at], 2);
    der[at + 2..at + 2 + usize::from(der[at + 1])].to_vec()
}

fn rig(files: &Files, verify: Verify) -> Rig {
    Rig::start(Protocol::Mqtt, |config| config.tls = Some(files.tls(verify)))
}

#[test]
fn both_versions_of_tls_carry_mqtt() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let mut rig = rig(&files, Verify::None);
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let client = Client { only_version: Some(version), ..Client::default() };
            let (mut peer, mut greeted) = open(&mut rig, &client.connector(&authority), "tls").await.unwrap();
            assert_eq!(greeted.stream.transport(), Transport::Tls);
            greeted.stream.write_all(&[9; 100_000]).await.unwrap();
            greeted.stream.shutdown().await.unwrap();
            assert_eq!(read_to_end(&mut peer).await, [9; 100_000]);
        }
    });
}

#[test]
fn a_listener_may_ask_for_1_3() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let mut rig = Rig::start(Protocol::Mqtt, |config| {
            config.tls = Some(Tls { min_version: TlsVersion::V1_3, ..files.tls(Verify::None) });
        });
        let old = Client { only_version: Some(&rustls::version::TLS12), ..Client::default() };
        assert!(shake_hands(&rig, &old.connector(&authority)).await.is_err());
        rig.counted(|state| &state.counts.tls_failed, 1).await;
        open(&mut rig, &Client::default().connector(&authority), "new").await.unwrap();
    });
}

#[test]
fn client_certificates_are_asked_for_as_configured() {
    run(async {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let files = Files::new(&authority);
        let (known, unknown) = (authority.leaf(7), stranger.leaf(8));
        let with = |identity| Client { identity, ..Client::default() }.connector(&authority);
        let mut require = rig(&files, Verify::Require);
        assert!(open(&mut require, &with(None), "a").await.is_err());
        assert!(open(&mut require, &with(Some(&unknown)), "b").await.is_err());
        open(&mut require, &with(Some(&known)), "c").await.unwrap();
        let mut optional = rig(&files, Verify::Optional);
        open(&mut optional, &with(None), "d").await.unwrap();
        assert!(open(&mut optional, &with(Some(&unknown)), "e").await.is_err());
        open(&mut optional, &with(Some(&known)), "f").await.unwrap();
    });
}

/// A client that comes back saves the server a signature, also when the certificate was renewed meanwhile; one with a certificate never does,
/// since a resumed session is not verified again.
#[test]
fn sessions_are_resumed_unless_client_certificates_are_asked_for() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut rig = rig(&files, Verify::None);
            let connector = Client { only_version: Some(version), ..Client::default() }.connector(&authority);
            let mut kinds = Vec::new();
            for round in 0..3 {
                let (peer, _greeted) = open(&mut rig, &connector, "again").await.unwrap();
                kinds.push(peer.get_ref().1.handshake_kind().unwrap());
                if round == 1 {
                    files.put(&authority.leaf(5));
                    rig.tls.as_ref().unwrap().reload().unwrap();
                }
            }
            assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed], "{version:?}");
        }
        let identity = authority.leaf(9);
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut rig = rig(&files, Verify::Require);
            let connector = Client { only_version: Some(version), identity: Some(&identity) }.connector(&authority);
            for _ in 0..2 {
                let (peer, _greeted) = open(&mut rig, &connector, "again").await.unwrap();
                assert_eq!(peer.get_ref().1.handshake_kind(), Some(HandshakeKind::Full), "{version:?}");
            }
        }
    });
}

/// Field case 37: a new serial for new connections, no old connection dropped, and what is broken changes nothing.
#[test]
fn certificates_change_under_open_connections() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let mut rig = rig(&files, Verify::None);
        // A client for each connection: one that resumes is shown no certificate.
        let connector = || Client::default().connector(&authority);
        let (mut old_peer, mut old) = open(&mut rig, &connector(), "old").await.unwrap();
        assert_eq!(serial(&old_peer), [1]);
        let tls = rig.tls.clone().unwrap();

        files.put(&authority.leaf(2));
        tls.reload().unwrap();
        let (new_peer, _new) = open(&mut rig, &connector(), "new").await.unwrap();
        assert_eq!(serial(&new_peer), [2]);
        speak(&mut old_peer, &mut old).await;

        let other = authority.leaf(3);
        for (name, contents) in
            [("cert.pem", "rubbish".to_owned()), ("cert.pem", String::new()), ("key.pem", other.key)]
        {
            let good = std::fs::read(files.path(name)).unwrap();
            std::fs::write(files.path(name), contents).unwrap();
            let error = tls.reload().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            std::fs::write(files.path(name), good).unwrap();
            let (peer, _greeted) = open(&mut rig, &connector(), "still").await.unwrap();
            assert_eq!(serial(&peer), [2]);
        }
        std::fs::remove_file(files.path("key.pem")).unwrap();
        assert!(tls.reload().is_err());
        assert_eq!(tls.counts(), (1, 4));
        speak(&mut old_peer, &mut old).await;
    });
}

/// Field case 37: authorities change as well.
#[test]
fn authorities_change_for_new_connections() {
    run(async {
        let (authority, successor) = (Authority::new(), Authority::new());
        let files = Files::new(&authority);
        let mut rig = rig(&files, Verify::Require);
        let (old, new) = (authority.leaf(10), successor.leaf(11));
        let with = |identity| Client { identity: Some(identity), ..Client::default() }.connector(&authority);
        let (mut peer, mut greeted) = open(&mut rig, &with(&old), "a").await.unwrap();
        std::fs::write(files.path("ca.pem"), &successor.pem).unwrap();
        rig.tls.clone().unwrap().reload().unwrap();
        assert!(open(&mut rig, &with(&old), "b").await.is_err());
        open(&mut rig, &with(&new), "c").await.unwrap();
        speak(&mut peer, &mut greeted).await;
    });
}

/// A certificate that was withdrawn opens nothing from the reload on; lists that are broken, or speak for nobody, let nobody new in.
#[test]
fn withdrawn_certificates_are_refused_for_new_connections() {
    run(async {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let files = Files::new(&authority);
        let list = files.path("list.pem");
        std::fs::write(&list, authority.withdraws(&[99], 2020, 2090)).unwrap();
        let tls = Tls { crl: Some(list.clone()), ..files.tls(Verify::Require) };
        let mut rig = Rig::start(Protocol::Mqtt, |config| config.tls = Some(tls.clone()));
        let (one, other) = (authority.leaf(10), authority.leaf(11));
        let with = |identity| Client { identity: Some(identity), ..Client::default() }.connector(&authority);
        let (mut peer, mut greeted) = open(&mut rig, &with(&one), "a").await.unwrap();
        open(&mut rig, &with(&other), "b").await.unwrap();
        std::fs::write(&list, authority.withdraws(&[10], 2020, 2090)).unwrap();
        let reload = rig.tls.clone().unwrap();
        reload.reload().unwrap();
        assert!(open(&mut rig, &with(&one), "c").await.is_err());
        open(&mut rig, &with(&other), "d").await.unwrap();
        speak(&mut peer, &mut greeted).await;
        for broken in ["", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"] {
            std::fs::write(&list, broken).unwrap();
            assert_eq!(reload.reload().unwrap_err().key(&tls), Some("crl"), "{broken:?}");
            assert!(open(&mut rig, &with(&one), "e").await.is_err(), "what was read before stays in use");
            open(&mut rig, &with(&other), "f").await.unwrap();
        }
        for useless in [stranger.withdraws(&[1], 2020, 2090), authority.withdraws(&[10], 2020, 2021)] {
            std::fs::write(&list, useless).unwrap();
            reload.reload().unwrap();
            assert!(open(&mut rig, &with(&other), "g").await.is_err());
        }
    });
}

#[test]
fn changed_files_are_read_when_they_look_the_same_twice() {
    let authority = Authority::new();
    let files = Files::new(&authority);
    let tls = TlsReload::new("tls", &files.tls(Verify::None)).unwrap();
    assert!(!tls.reload_if_changed().unwrap(), "nothing changed");
    let new = authority.leaf(2);
    std::fs::write(files.path("cert.pem"), format!("{}\n", new.certificate)).unwrap();
    assert!(!tls.reload_if_changed().unwrap(), "the key may follow");
    std::fs::write(files.path("key.pem"), format!("{}\n", new.key)).unwrap();
    assert!(!tls.reload_if_changed().unwrap(), "and something else may");
    assert!(tls.reload_if_changed().unwrap());
    assert!(!tls.reload_if_changed().unwrap());
    std::fs::write(files.path("cert.pem"), "rubbish").unwrap();
    assert!(!tls.reload_if_changed().unwrap());
    assert!(tls.reload_if_changed().is_err());
    assert!(!tls.reload_if_changed().unwrap(), "an error is told once");
    assert_eq!(tls.counts(), (1, 1));
}

/// Field case 37: without anybody asking for it, within five seconds.
#[test]
fn a_watched_certificate_is_taken_up_by_itself() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let tls = TlsReload::new("tls", &files.tls(Verify::None)).unwrap();
        let (stop, stopped) = watch::channel(false);
        let watching = tokio::spawn(Arc::clone(&tls).watch(stopped));
        files.put(&authority.leaf(1_000_000));
        let begin = Instant::now();
        until(|| tls.counts() == (1, 0)).await;
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        stop.send(true).unwrap();
        watching.await.unwrap();
    });
}

#[test]
fn clients_without_tls_are_turned_away() {
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let rig = rig(&files, Verify::None);
        let mut mqtt = rig.connect().await;
        mqtt.write_all(&connect_packet(ProtocolVersion::V5, "plain")).await.unwrap();
        assert_eq!(read_to_end(&mut mqtt).await, b"");
        let mut http = rig.connect().await;
        http.write_all(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(read_to_end(&mut http).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("mqtts://"), "{answer}");
        rig.counted(|state| &state.counts.tls_failed, 2).await;
        drop(rig.connect().await);
        rig.counted(|state| &state.counts.silent, 1).await;
    });
}

/// Field case 38: those who stop half way are closed at the deadlines, and nobody else waits for them.
#[test]
fn half_handshakes_are_closed_at_the_deadline_and_stop_nobody() {
    const DEADLINE: Duration = Duration::from_millis(500);
    const STUCK: usize = 30;
    run(async {
        let authority = Authority::new();
        let files = Files::new(&authority);
        let mut rig = Rig::start(Protocol::Mqtt, |config| {
            config.tls = Some(files.tls(Verify::None));
            config.handshake_timeout = DEADLINE;
            config.connect_timeout = DEADLINE;
        });
        let connector = Client::default().connector(&authority);
        let begin = Instant::now();
        let mut stuck = Vec::new();
        for _ in 0..STUCK {
            stuck.push(rig.connect().await);
            let mut half = rig.connect().await;
            half.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.unwrap();
            stuck.push(half);
        }
        let mut silent = shake_hands(&rig, &connector).await.unwrap();
        let (mut peer, mut greeted) = open(&mut rig, &connector, "good").await.unwrap();
        for mut peer in stuck {
            let _ = read_to_end(&mut peer).await;
        }
        let _ = read_to_end(&mut silent).await;
        let took = begin.elapsed();
        assert!(took >= DEADLINE && took < 2 * DEADLINE + Duration::from_secs(1), "{took:?}");
        rig.counted(|state| &state.counts.timed_out, 2 * STUCK as u64 + 1).await;
        speak(&mut peer, &mut greeted).await;
        assert_eq!(rig.state.connections(), 1);
    });
}

#[test]
fn a_listener_does_not_open_with_unusable_files() {
    let authority = Authority::new();
    let files = Files::new(&authority);
    let without_ca = Tls { ca: None, ..files.tls(Verify::Require) };
    assert!(TlsReload::new("tls", &without_ca).is_err());
    std::fs::remove_file(files.path("key.pem")).unwrap();
    assert!(TlsReload::new("tls", &files.tls(Verify::None)).is_err());
}
