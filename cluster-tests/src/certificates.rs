//! An authority and its leaf certificates, made when a test runs; nothing secret is ever in the repository.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SerialNumber};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A certificate authority of one test.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, as PEM.
    pub pem: String,
}

/// A certificate and its private key, as PEM.
#[derive(Debug, Clone)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// # Panics
    /// When the machine cannot make keys.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names, no bad names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key pair");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for `localhost` and 127.0.0.1 with this serial number.
    ///
    /// # Panics
    /// When the machine cannot make keys.
    pub fn server(&self, serial: u64) -> Leaf {
        self.leaf(&["localhost", "127.0.0.1"], serial)
    }

    /// A client's certificate.
    ///
    /// # Panics
    /// When the machine cannot make keys.
    pub fn client(&self, name: &str) -> Leaf {
        self.leaf(&[name], 7)
    }

    fn leaf(&self, names: &[&str], serial: u64) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("legal names");
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().expect("a key pair");
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate").pem();
        Leaf { certificate, key: key.serialize_pem() }
    }

    /// A client's configuration that trusts this authority, with or without a certificate of the client's own.
    ///
    /// # Panics
    /// When the leaf's key and certificate do not fit.
    pub fn client_config(&self, leaf: Option<&Leaf>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM of our own making");
        roots.add(authority).expect("a certificate of our own making");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions that the provider has")
            .with_root_certificates(roots);
        Arc::new(match leaf {
            None => builder.with_no_client_auth(),
            Some(leaf) => {
                let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).expect("PEM")];
                let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(chain, key).expect("a key that fits its certificate")
            }
        })
    }
}
