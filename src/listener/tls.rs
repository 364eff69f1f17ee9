//! TLS by rustls: a listener's certificates, re-read while it runs, and the stream of a connection.
//!
//! [`TlsReload`] owns the files' last good state as one `ServerConfig`, swapped as a whole: certificate, key and authorities always fit
//! together, connections that are open keep what they began with, and a broken or half-written set of files changes nothing.
//!
//! Session tickets outlive a reload, and in a cluster are good on every node (`tickets`), so that a renewed certificate does not cost a whole fleet full handshakes. Where client certificates
//! are asked for there are none: a resumed session is not verified again, and would outlive the withdrawal of its certificate. With lists of what was withdrawn, only the
//! client's own certificate is looked up; one that no list speaks for is refused, and so is everybody when a list has run out.
//!
//! The tests to read first: `listener::tests::tls`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::extensions::GeneralName;

use super::tickets::Tickets;
use crate::access::Certificate;
use crate::byte_stream::{Layered, Socket, Transport};
use crate::config::{Tls, TlsVersion, Verify};

/// How often the files are looked at. A change is taken up when they look the same twice, which is within 4 s.
const WATCH_INTERVAL: Duration = Duration::from_millis(1500);

/// Tickets of TLS 1.3 per handshake: a client resumes one connection at a time.
const TICKETS: usize = 1;

/// Why a set of TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {}", path.display(), said(cause))]
    File { path: PathBuf, cause: PemError },
    #[error("{}: no certificate in it", .0.display())]
    NoCertificate(PathBuf),
    #[error("{}: no list of withdrawn certificates in PEM in it", .0.display())]
    NoList(PathBuf),
    #[error("{}: {cause}", path.display())]
    List { path: PathBuf, cause: rustls::server::VerifierBuilderError },
    #[error("{}: {cause}", path.display())]
    Authority { path: PathBuf, cause: rustls::Error },
    #[error("verify asks for client certificates, and no ca says from whom")]
    NoAuthority,
    #[error("client certificates: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("{} and {} {}", cert.display(), key.display(), unfit(cause))]
    Pair { cert: PathBuf, key: PathBuf, cause: Box<rustls::Error> },
    #[error("{0}")]
    Setup(#[from] rustls::Error),
}

fn said(cause: &PemError) -> String {
    match cause {
        PemError::Io(error) => error.to_string(),
        PemError::NoItemsFound => "no private key in PEM in it".to_owned(),
        other => other.to_string(),
    }
}

fn unfit(cause: &rustls::Error) -> String {
    match cause {
        rustls::Error::InconsistentKeys(_) => {
            "do not belong together: the key must be the one that the certificate was made for".to_owned()
        }
        other => format!("cannot be used: {other}"),
    }
}

impl TlsError {
    /// The key of the configuration that names the file at fault; `None` when it is not one file.
    pub fn key(&self, files: &Tls) -> Option<&'static str> {
        let path = match self {
            Self::File { path, .. } | Self::NoCertificate(path) | Self::Authority { path, .. } => path,
            Self::NoList(path) | Self::List { path, .. } => path,
            Self::Pair { key, .. } => key,
            _ => return None,
        };
        if *path == files.key {
            Some("key")
        } else if *path == files.cert {
            Some("cert")
        } else if files.crl.as_ref() == Some(path) {
            Some("crl")
        } else {
            Some("ca")
        }
    }
}

/// The TLS state of one listener, shared by all its shards.
pub struct TlsReload {
    /// The name of the listener, for the log.
    listener: String,
    files: Tls,
    provider: Arc<CryptoProvider>,
    /// `None` where client certificates are asked for.
    ticketer: Option<Arc<dyn ProducesTickets>>,
    current: ArcSwap<ServerConfig>,
    seen: Mutex<Seen>,
    reloads: AtomicU64,
    failures: AtomicU64,
}

/// What the files looked like: the last time they were looked at, and when they were last read.
#[derive(Default)]
struct Seen {
    looked: Vec<Look>,
    read: Vec<Look>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Look {
    len: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

impl TlsReload {
    /// Reads the files of a listener for the first time.
    ///
    /// # Errors
    /// What is wrong with them: a listener does not open then.
    pub fn new(listener: &str, files: &Tls) -> Result<Arc<Self>, TlsError> {
        Self::with_ticket_key(listener, files, None)
    }

    /// The same, with tickets that all who have this key can read.
    ///
    /// # Errors
    /// Those of [`TlsReload::new`].
    pub fn with_ticket_key(listener: &str, files: &Tls, key: Option<&[u8; 32]>) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let ticketer: Option<Arc<dyn ProducesTickets>> = match (files.verify, key) {
            (Verify::None, Some(key)) => Some(Arc::new(Tickets::new(key))),
            (Verify::None, None) => Some(rustls::crypto::aws_lc_rs::Ticketer::new()?),
            (Verify::Optional | Verify::Require, _) => None,
        };
        let before = look(files);
        let config = read(files, &provider, ticketer.as_ref())?;
        Ok(Arc::new(Self {
            listener: listener.to_owned(),
            files: files.clone(),
            provider,
            ticketer,
            current: ArcSwap::new(config),
            seen: Mutex::new(Seen { looked: before.clone(), read: before }),
            reloads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }))
    }

    /// Reads the files again, for connections to come. Blocks for the time of the reading.
    ///
    /// # Errors
    /// What is wrong with them; what was read before stays in use. It is logged and counted here.
    pub fn reload(&self) -> Result<(), TlsError> {
        let listener = self.listener.as_str();
        let before = look(&self.files);
        let outcome = read(&self.files, &self.provider, self.ticketer.as_ref());
        *self.seen.lock() = Seen { looked: before.clone(), read: before };
        match outcome {
            Ok(config) => {
                self.current.store(config);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(event = "tls", listener, cert = %self.files.cert.display(), "TLS files read again");
                Ok(())
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(event = "tls", listener, %error, "TLS files are not usable; those read before stay in use");
                Err(error)
            }
        }
    }

    /// Reads the files again if they look changed, and looked the same at the last call: whoever writes several files is left to finish.
    ///
    /// # Errors
    /// Those of [`TlsReload::reload`], once per change.
    pub fn reload_if_changed(&self) -> Result<bool, TlsError> {
        let now = look(&self.files);
        let settled_and_new = {
            let mut seen = self.seen.lock();
            let settled = seen.looked == now;
            let new = seen.read != now;
            seen.looked = now;
            settled && new
        };
        if settled_and_new { self.reload().map(|()| true) } else { Ok(false) }
    }

    /// Looks after the files until `shutdown` says true. One task per listener, on any runtime.
    pub async fn watch(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        loop {
            let stop = shutdown.wait_for(|stop| *stop);
            if tokio::time::timeout(WATCH_INTERVAL, stop).await.is_ok() {
                return;
            }
            let files = Arc::clone(&self);
            // An error is logged where it is found, and the old files stay.
            let _ = tokio::task::spawn_blocking(move || files.reload_if_changed()).await;
        }
    }

    /// How often the files were read again with success, and without.
    pub fn counts(&self) -> (u64, u64) {
        (self.reloads.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    pub(super) async fn accept(&self, socket: Socket) -> io::Result<TlsLayer> {
        let acceptor = TlsAcceptor::from(self.current.load_full());
        Ok(TlsLayer(acceptor.accept(socket).await?))
    }
}

fn look(files: &Tls) -> Vec<Look> {
    let one = |path: &Path| match std::fs::metadata(path) {
        Ok(metadata) => Look {
            len: metadata.len(),
            modified: metadata.modified().ok(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(&metadata),
        },
        Err(_) => Look {
            len: 0,
            modified: None,
            #[cfg(unix)]
            inode: 0,
        },
    };
    let paths = [Some(&files.cert), Some(&files.key), files.ca.as_ref(), files.crl.as_ref()];
    paths.into_iter().flatten().map(|path| one(path)).collect()
}

fn read(
    files: &Tls,
    provider: &Arc<CryptoProvider>,
    ticketer: Option<&Arc<dyn ProducesTickets>>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates(&files.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|cause| TlsError::File { path: files.key.clone(), cause })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_protocol_versions(versions(files))?;
    let builder = match verifier(files, provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let pair = |cause| TlsError::Pair { cert: files.cert.clone(), key: files.key.clone(), cause: Box::new(cause) };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    match ticketer {
        Some(ticketer) => {
            config.ticketer = Arc::clone(ticketer);
            config.send_tls13_tickets = TICKETS;
        }
        None => {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
    }
    Ok(Arc::new(config))
}

fn versions(files: &Tls) -> &'static [&'static SupportedProtocolVersion] {
    static ALL: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];
    match files.min_version {
        TlsVersion::V1_2 => &ALL,
        TlsVersion::V1_3 => &ALL[..1],
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |cause| TlsError::File { path: path.to_owned(), cause };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if chain.is_empty() { Err(TlsError::NoCertificate(path.to_owned())) } else { Ok(chain) }
}

fn verifier(files: &Tls, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    if files.verify == Verify::None {
        return Ok(None);
    }
    let path = files.ca.as_ref().ok_or(TlsError::NoAuthority)?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|cause| TlsError::Authority { path: path.clone(), cause })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match files.verify {
        Verify::Require => builder,
        Verify::Optional | Verify::None => builder.allow_unauthenticated(),
    };
    let Some(path) = &files.crl else {
        return Ok(Some(builder.build()?));
    };
    // Who asks for lists wants to know of every client: one that no list speaks for, or whose list has run out, is refused.
    let builder =
        builder.with_crls(withdrawn(path)?).only_check_end_entity_revocation().enforce_revocation_expiration();
    Ok(Some(builder.build().map_err(|cause| match cause {
        cause @ rustls::server::VerifierBuilderError::InvalidCrl(_) => TlsError::List { path: path.clone(), cause },
        other => other.into(),
    })?))
}

/// The lists of withdrawn certificates in a file: at least one.
fn withdrawn(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let file = |cause| TlsError::File { path: path.to_owned(), cause };
    let lists = CertificateRevocationListDer::pem_file_iter(path).map_err(file)?;
    let lists = lists.collect::<Result<Vec<_>, _>>().map_err(file)?;
    if lists.is_empty() { Err(TlsError::NoList(path.to_owned())) } else { Ok(lists) }
}

/// The stream of a TLS connection behind its handshake.
pub(super) struct TlsLayer(TlsStream<Socket>);

impl TlsLayer {
    /// The names in the certificate that the client has shown, and that was verified in the handshake. One that cannot be read names nobody.
    pub(super) fn client_certificate(&self) -> Option<Certificate> {
        let der = self.0.get_ref().1.peer_certificates()?.first()?;
        names_in(der)
    }
}

/// Of several names of a kind the first counts.
fn names_in(der: &[u8]) -> Option<Certificate> {
    let (_, certificate) = x509_parser::parse_x509_certificate(der).ok()?;
    let subject = certificate.subject();
    let names = certificate.subject_alternative_name().ok().flatten().map(|names| &names.value.general_names);
    let alternative =
        |pick: fn(&GeneralName<'_>) -> Option<String>| names.and_then(|names| names.iter().find_map(pick));
    let mut sha256 = String::with_capacity(64);
    for byte in digest::digest(&digest::SHA256, der).as_ref() {
        let _ = write!(sha256, "{byte:02x}");
    }
    Some(Certificate {
        cn: subject.iter_common_name().next().and_then(|name| name.as_str().ok()).map(str::to_owned),
        dn: subject.to_string(),
        san_dns: alternative(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        }),
        san_uri: alternative(|name| match name {
            GeneralName::URI(uri) => Some((*uri).to_owned()),
            _ => None,
        }),
        sha256,
    })
}

impl Layered for TlsLayer {
    fn socket(&mut self) -> &mut Socket {
        self.0.get_mut().0
    }

    fn transport(&self) -> Transport {
        Transport::Tls
    }
}

impl AsyncRead for TlsLayer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.get_mut().0).poll_read(cx, buf) {
            // Devices that are switched off send no close_notify; packets say themselves where they end.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            other => other,
        }
    }
}

impl AsyncWrite for TlsLayer {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod certificate_tests {
    use super::*;

    #[test]
    fn the_names_of_a_certificate_are_read() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned(), "b.example".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "sensor-7");
        params.subject_alt_names.push(rcgen::SanType::URI("spiffe://plant/sensor-7".try_into().unwrap()));
        let der = params.self_signed(&key).unwrap();
        let names = names_in(der.der()).unwrap();
        assert_eq!(names.cn.as_deref(), Some("sensor-7"));
        assert!(names.dn.contains("CN=sensor-7"), "{}", names.dn);
        assert_eq!(names.san_dns.as_deref(), Some("a.example"));
        assert_eq!(names.san_uri.as_deref(), Some("spiffe://plant/sensor-7"));
        assert_eq!(names.sha256.len(), 64);
        assert_eq!(names_in(&der.der()[..20]), None);
    }
}
