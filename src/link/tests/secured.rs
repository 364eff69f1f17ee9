//! Mutual TLS between nodes.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::byte_stream::Transport;
use crate::config::ClusterTls;

/// An authority, and how it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// The files of one node, whose name is no address.
    fn files(&self, folder: &Path, name: &str) -> ClusterTls {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let put = |what: &str, content: &str| {
            let path = folder.join(format!("{name}.{what}"));
            std::fs::write(&path, content).unwrap();
            path
        };
        ClusterTls {
            cert: put("crt", &certificate.pem()),
            key: put("key", &key.serialize_pem()),
            ca: put("ca", &self.pem),
        }
    }
}

#[test]
fn nodes_with_certificates_of_one_authority_are_linked() {
    let runtime = runtime();
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let plan = |id: u128| {
        let mut plan = node(id);
        plan.config.tls = Some(authority.files(folder.path(), &format!("n{id}.example")));
        plan
    };
    let one = plan(1).start(&runtime);
    let two = plan(2).seeds(&[&one.address()]).start(&runtime);
    both_up(&one, &two);
    assert!(one.links.send(two.id(), Lane::Bulk, 1, Bytes::from(vec![3; 500_000])));
    two.until("a frame", |seen| {
        matches!(seen, Seen::Frame(_, _, 1, payload) if payload.len() == 500_000).then_some(())
    });
    one.links.want_data(two.id(), 0..1);
    let (mut out, mut into) = (one.data_out(0), two.data_in(0));
    assert_eq!((out.transport(), into.transport()), (Transport::Tls, Transport::Tls));
    runtime.block_on(async {
        out.attach().unwrap();
        into.attach().unwrap();
        out.write_all(b"secured").await.unwrap();
        out.flush().await.unwrap();
        let mut read = [0; 7];
        tokio::time::timeout(LIMIT, into.read_exact(&mut read)).await.unwrap().unwrap();
        assert_eq!(&read, b"secured");
    });
}

#[test]
fn a_certificate_of_another_authority_is_refused_in_spite_of_the_secret() {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let plan = |id: u128, authority: &Authority| {
        let mut plan = node(id);
        plan.config.tls = Some(authority.files(folder.path(), &format!("n{id}")));
        plan
    };
    let one = plan(1, &Authority::new()).start(&runtime);
    let two = plan(2, &Authority::new()).seeds(&[&one.address()]).start(&runtime);
    let plain = node(3).seeds(&[&one.address()]).start(&runtime);
    one.is_quiet(Duration::from_millis(500));
    for node in [&one, &two, &plain] {
        assert!(node.links.peers().is_empty());
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let runtime = runtime();
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let good = authority.files(folder.path(), "a");
    let other = authority.files(folder.path(), "b");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    let start = |tls: ClusterTls| {
        let mut config = Cluster::new("c", "127.0.0.1:0".parse().unwrap(), &secret);
        config.tls = Some(tls);
        let own = node(1).start(&runtime).links.own().clone();
        let (sender, _events) = channel();
        let told = Told { events: Mutex::new(sender), bulk: AtomicUsize::new(0), count_bulk: false };
        Links::start(&config, own, Arc::new(told), runtime.handle()).err().map(|error| error.key())
    };
    assert_eq!(start(good.clone()), None);
    std::fs::write(&secret, "short").unwrap();
    assert_eq!(start(good.clone()).as_deref(), Some("cluster.secret_file"));
    std::fs::write(&secret, "0123456789abcdef").unwrap();
    assert_eq!(start(ClusterTls { key: other.key, ..good.clone() }).as_deref(), Some("cluster.tls.key"));
    assert_eq!(start(ClusterTls { ca: good.key.clone(), ..good.clone() }).as_deref(), Some("cluster.tls.ca"));
    assert_eq!(start(ClusterTls { cert: "/none".into(), ..good }).as_deref(), Some("cluster.tls.cert"));
}
