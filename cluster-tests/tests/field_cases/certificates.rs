//! Case 37: certificates change while clients are connected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_cluster_tests::certificates::{Authority, Leaf};
use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::process::{Broker, Setup};
use holdfast_cluster_tests::transport::{Link, PATIENCE, read_some, tls};
use holdfast_cluster_tests::wire::{Connect, Version};

use crate::start;

/// How soon a change must be in use after SIGHUP, and how soon without it.
const AFTER_SIGNAL: Duration = Duration::from_secs(5);
const UNASKED: Duration = Duration::from_secs(20);

/// A broker with a TLS listener, and one that asks for client certificates.
struct Scene {
    broker: Broker,
    servers: Authority,
    clients: Authority,
}

impl Scene {
    fn new() -> Self {
        let (servers, clients) = (Authority::new("servers"), Authority::new("old clients"));
        let leaf = servers.server(1_001);
        let broker = start(
            Setup::empty()
                .file("server.crt", &leaf.certificate)
                .file("server.key", &leaf.key)
                .file("clients.crt", &clients.pem)
                .listener("tls", "mqtt", "tls = { cert = \"server.crt\", key = \"server.key\" }")
                .listener(
                    "mutual",
                    "mqtt",
                    "tls = { cert = \"server.crt\", key = \"server.key\", ca = \"clients.crt\", verify = \"require\" }",
                ),
        );
        Self { broker, servers, clients }
    }

    /// Twenty clients that stay, half of them with certificates.
    fn connected(&self) -> Vec<Client> {
        let leaf = self.clients.client("device");
        (0..20)
            .map(|number| {
                let (listener, leaf) = if number % 2 == 0 { ("tls", None) } else { ("mutual", Some(&leaf)) };
                let address = self.broker.listener(listener);
                let socket = tls(address, self.servers.client_config(leaf)).expect("a TLS handshake");
                let mut client = Client::new(Link::Stream(Box::new(socket)), Version::V5);
                client.connect(&Connect::new(Version::V5, format!("{listener}{number}")));
                client
            })
            .collect()
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.broker.folder().join(name), content).expect("the folder can be written");
    }

    fn write_leaf(&self, leaf: &Leaf) {
        self.write("server.key", &leaf.key);
        self.write("server.crt", &leaf.certificate);
    }

    /// The serial number of the certificate that a new connection is shown.
    fn serial(&self) -> u64 {
        // A configuration of its own: a resumed session would show the old certificate.
        let socket = tls(self.broker.listener("tls"), self.servers.client_config(None)).expect("a TLS handshake");
        let certificates = socket.conn.peer_certificates().expect("a certificate");
        serial_of(&certificates[0])
    }

    /// A new connection is shown this serial number within `patience`.
    #[track_caller]
    fn expect_serial(&self, serial: u64, patience: Duration) {
        let start = Instant::now();
        while self.serial() != serial {
            assert!(start.elapsed() < patience, "still the old certificate");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a client with this certificate may connect.
    fn is_accepted(&self, leaf: &Leaf) -> bool {
        let config = self.servers.client_config(Some(leaf));
        login(self.broker.listener("mutual"), config).is_ok()
    }
}

/// CONNECT over TLS up to the first byte of the answer: in TLS 1.3 a refused certificate shows only there.
fn login(address: SocketAddr, config: Arc<rustls::ClientConfig>) -> std::io::Result<()> {
    let mut socket = tls(address, config)?;
    std::io::Write::write_all(&mut socket, &Connect::new(Version::V5, "").bytes())?;
    let mut answer = Vec::new();
    match read_some(&mut socket, &mut answer, Instant::now() + PATIENCE)? {
        0 => Err(std::io::ErrorKind::ConnectionReset.into()),
        _ => Ok(()),
    }
}

/// The serial number in a DER certificate: the INTEGER behind the version, at a fixed place.
fn serial_of(der: &[u8]) -> u64 {
    // SEQUENCE { SEQUENCE { [0] { INTEGER version }, INTEGER serial, … } … }
    let mut rest = der;
    for _ in 0..2 {
        assert_eq!(rest[0], 0x30, "a SEQUENCE");
        rest = &rest[2 + usize::from(rest[1] & 0x7F) * usize::from(rest[1] >= 0x80)..];
    }
    assert_eq!(rest[..5], [0xA0, 3, 2, 1, 2], "version 3");
    assert_eq!(rest[5], 0x02, "an INTEGER");
    let length = usize::from(rest[6]);
    rest[7..7 + length].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[track_caller]
fn all_still_there(clients: &mut [Client]) {
    for client in clients {
        client.expect_quiet();
    }
}

#[test]
fn field_case_37_a_new_certificate_is_used_and_nobody_is_dropped() {
    let scene = Scene::new();
    let mut clients = scene.connected();
    assert_eq!(scene.serial(), 1_001);
    scene.write_leaf(&scene.servers.server(1_002));
    scene.broker.signal(libc::SIGHUP);
    scene.expect_serial(1_002, AFTER_SIGNAL);
    all_still_there(&mut clients);
    // And the clients' authority.
    let newer = Authority::new("new clients");
    let (old, new) = (scene.clients.client("old"), newer.client("new"));
    assert!(scene.is_accepted(&old) && !scene.is_accepted(&new));
    scene.write("clients.crt", &newer.pem);
    scene.broker.signal(libc::SIGHUP);
    let start = Instant::now();
    while scene.is_accepted(&old) || !scene.is_accepted(&new) {
        assert!(start.elapsed() < AFTER_SIGNAL, "the old authority is still in use");
        std::thread::sleep(Duration::from_millis(20));
    }
    all_still_there(&mut clients);
}

#[test]
fn field_case_37_changed_files_are_noticed_without_a_signal() {
    let scene = Scene::new();
    scene.write_leaf(&scene.servers.server(1_003));
    scene.expect_serial(1_003, UNASKED);
}

#[test]
fn field_case_37_broken_files_leave_the_old_ones_in_use() {
    let scene = Scene::new();
    let mut clients = scene.connected();
    let other = scene.servers.server(1_004);
    let broken: [(&str, &str); 3] = [
        ("server.crt", "no PEM at all"),
        ("server.key", &other.key),
        ("clients.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n"),
    ];
    for (name, content) in broken {
        let path = scene.broker.folder().join(name);
        let good = std::fs::read_to_string(&path).expect("it was there");
        let position = scene.broker.log().len();
        scene.write(name, content);
        scene.broker.signal(libc::SIGHUP);
        let line =
            scene.broker.log().wait(position, AFTER_SIGNAL, |line| line.field("level").as_deref() == Some("ERROR"));
        assert!(line.is_some(), "no error about {name} in the log");
        assert_eq!(scene.serial(), 1_001);
        assert!(scene.is_accepted(&scene.clients.client("device")));
        scene.write(name, &good);
    }
    all_still_there(&mut clients);
    assert!(scene.broker.is_running());
    // What is whole again is used again.
    scene.write_leaf(&other);
    scene.broker.signal(libc::SIGHUP);
    scene.expect_serial(1_004, AFTER_SIGNAL);
}
