//! Mutual TLS between nodes: each shows a certificate, and each certificate must come from the cluster's authorities.
//!
//! Names in certificates are not compared with the address that was dialled: nodes are reached through names and addresses that change, and who
//! somebody is, is proven with the cluster's secret. That proof holds for this TLS session alone ([`Binding`]), so nobody who has a certificate and
//! not the secret can sit between two nodes. No session is resumed: a resumed one is not verified again.
//!
//! The files are read again when they have changed; a broken or half-written set changes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::hello::Binding;
use super::refusal::permit;
use crate::byte_stream::{ByteStream, Layered, Socket, Transport};
use crate::config::ClusterTls;

/// How often the files are looked at, when connections come and go.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

const BINDING_LABEL: &[u8] = b"EXPORTER-holdfast-link";

/// Why the files cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct LinkTlsError {
    /// The key of `tls` that names the file at fault.
    pub key: &'static str,
    message: String,
}

/// Both ends of mutual TLS.
pub(super) struct LinkTls {
    files: ClusterTls,
    state: Mutex<State>,
}

struct State {
    ends: Ends,
    read: Vec<Look>,
    looked_at: Instant,
}

#[derive(Clone)]
struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

type Look = Option<(u64, Option<SystemTime>)>;

impl LinkTls {
    pub(super) fn new(files: &ClusterTls) -> Result<Self, LinkTlsError> {
        let looked = look(files);
        let state = State { ends: read(files)?, read: looked, looked_at: Instant::now() };
        Ok(Self { files: files.clone(), state: Mutex::new(state) })
    }

    pub(super) async fn dial(&self, socket: Socket) -> io::Result<(ByteStream, Binding)> {
        // Nothing is compared with this name, and none is sent.
        let name = ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into());
        let stream = TlsConnector::from(self.ends().client).connect(name, socket).await?;
        let binding = stream.get_ref().1.export_keying_material(Binding::default(), BINDING_LABEL, None);
        bound(TlsStream::from(stream), binding)
    }

    pub(super) async fn accept(&self, socket: Socket) -> io::Result<(ByteStream, Binding)> {
        let stream = TlsAcceptor::from(self.ends().server).accept(socket).await?;
        let binding = stream.get_ref().1.export_keying_material(Binding::default(), BINDING_LABEL, None);
        bound(TlsStream::from(stream), binding)
    }

    fn ends(&self) -> Ends {
        let mut state = self.state.lock();
        if state.looked_at.elapsed() >= LOOK_INTERVAL {
            state.looked_at = Instant::now();
            let looked = look(&self.files);
            if looked != state.read {
                state.read = looked;
                match read(&self.files) {
                    Ok(ends) => {
                        state.ends = ends;
                        tracing::info!(event = "link", "TLS files of the cluster read again");
                    }
                    Err(error) => {
                        if let Some(left_out) = permit("link: TLS files") {
                            tracing::error!(event = "link", left_out, %error, "TLS files of the cluster are not usable; those read before stay in use");
                        }
                    }
                }
            }
        }
        state.ends.clone()
    }
}

fn bound(stream: TlsStream<Socket>, binding: Result<Binding, rustls::Error>) -> io::Result<(ByteStream, Binding)> {
    let binding = binding.map_err(io::Error::other)?;
    Ok((ByteStream::Layered(Box::new(LinkLayer(stream))), binding))
}

fn look(files: &ClusterTls) -> Vec<Look> {
    let one = |path: &PathBuf| std::fs::metadata(path).ok().map(|metadata| (metadata.len(), metadata.modified().ok()));
    [&files.cert, &files.key, &files.ca].map(one).to_vec()
}

fn read(files: &ClusterTls) -> Result<Ends, LinkTlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = certificates("cert", &files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| fault("key", format!("{}: {error}", files.key.display())))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", &files.ca)? {
        roots.add(certificate).map_err(|error| fault("ca", format!("{}: {error}", files.ca.display())))?;
    }
    let roots = Arc::new(roots);
    let pair = |error: rustls::Error| {
        fault("key", format!("{} and {} do not go together: {error}", files.cert.display(), files.key.display()))
    };
    let setup = |error: rustls::Error| fault("cert", error.to_string());
    let versions = &[&rustls::version::TLS13];

    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| fault("ca", format!("{}: {error}", files.ca.display())))?;
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let server = server.map_err(setup)?.with_client_cert_verifier(verifier);
    let mut server = server.with_single_cert(chain.clone(), key.clone_key()).map_err(pair)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;

    let client = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(versions);
    let client = client.map_err(setup)?.dangerous();
    let client = client.with_custom_certificate_verifier(Arc::new(AnyName { roots, provider }));
    let mut client = client.with_client_auth_cert(chain, key).map_err(pair)?;
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    Ok(Ends { client: Arc::new(client), server: Arc::new(server) })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, LinkTlsError> {
    let file = |error: rustls_pki_types::pem::Error| fault(key, format!("{}: {error}", path.display()));
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(file)?.collect::<Result<_, _>>().map_err(file)?;
    if chain.is_empty() { Err(fault(key, format!("{}: no certificate in it", path.display()))) } else { Ok(chain) }
}

fn fault(key: &'static str, message: String) -> LinkTlsError {
    LinkTlsError { key, message }
}

/// Accepts a certificate of the cluster's authorities, whatever name is in it.
#[derive(Debug)]
struct AnyName {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The stream of a TLS connection behind its handshake.
struct LinkLayer(TlsStream<Socket>);

impl Layered for LinkLayer {
    fn socket(&mut self) -> &mut Socket {
        self.0.get_mut().0
    }

    fn transport(&self) -> Transport {
        Transport::Tls
    }
}

impl AsyncRead for LinkLayer {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_read(cx, buf)
    }
}

impl AsyncWrite for LinkLayer {
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
