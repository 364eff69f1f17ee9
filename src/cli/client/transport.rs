//! What carries a client's bytes: TCP or TLS, and WebSocket over either.

use std::io;
use std::path::Path;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::{Error as FrameError, Message};

use super::options::{ConnectionArgs, Target};
use super::{ClientError, trouble};
use crate::mqtt::ProtocolVersion;

/// Where Linux distributions keep the authorities that the machine trusts.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(super) trait Bytes: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Bytes for S {}

/// An open connection to a broker.
pub(super) enum Transport {
    Stream(Box<dyn Bytes>),
    Frames(Box<WebSocketStream<Box<dyn Bytes>>>),
}

impl Transport {
    /// Connects, with TLS and WebSocket where the target has them. The files that the options name are read first.
    ///
    /// # Errors
    /// Which of the steps failed, and what to do about it.
    pub(super) async fn open(target: &Target, args: &ConnectionArgs) -> Result<Self, ClientError> {
        let unusable = |error: io::Error| ClientError::Input(error.to_string());
        let tls = target.tls.then(|| tls_config(args)).transpose().map_err(unusable)?;
        let found = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
        let addresses: Vec<_> = found.map_err(|error| trouble::unknown_host(target, &error))?.collect();
        let socket =
            TcpStream::connect(&addresses[..]).await.map_err(|error| trouble::not_connected(target, &error))?;
        socket.set_nodelay(true).map_err(|error| trouble::not_connected(target, &error))?;
        let stream: Box<dyn Bytes> = match tls {
            Some(config) => {
                let name = ServerName::try_from(target.host.clone());
                let name = name.map_err(|error| ClientError::Input(format!("{}: {error}", target.host)))?;
                let connecting = tokio_rustls::TlsConnector::from(config).connect(name, socket);
                Box::new(connecting.await.map_err(|error| trouble::handshake(target, &error))?)
            }
            None => Box::new(socket),
        };
        match &target.websocket_path {
            None => Ok(Self::Stream(stream)),
            Some(path) => Ok(Self::Frames(Box::new(upgrade(stream, target, path, args.version).await?))),
        }
    }

    /// Sends all of `bytes`, and what an earlier call that was cancelled left behind. What is sent or queued is gone from `bytes`.
    pub(super) async fn send(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Stream(stream) => {
                while !bytes.is_empty() {
                    let sent = stream.write(bytes).await?;
                    bytes.drain(..sent);
                }
                stream.flush().await
            }
            Self::Frames(frames) => {
                if !bytes.is_empty() {
                    std::future::poll_fn(|cx| frames.poll_ready_unpin(cx)).await.map_err(into_io)?;
                    frames.start_send_unpin(Message::Binary(std::mem::take(bytes).into())).map_err(into_io)?;
                }
                frames.flush().await.map_err(into_io)
            }
        }
    }

    /// Waits for bytes and puts them behind `into`; 0 is the end. Cancelling it loses nothing.
    pub(super) async fn receive(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.read_buf(into).await,
            Self::Frames(frames) => loop {
                match frames.next().await {
                    Some(Ok(Message::Binary(payload))) if !payload.is_empty() => {
                        into.extend_from_slice(&payload);
                        return Ok(payload.len());
                    }
                    Some(Ok(Message::Close(_))) | None => return Ok(0),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(into_io(error)),
                }
            },
        }
    }

    /// Closes our side.
    pub(super) async fn close(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.shutdown().await,
            Self::Frames(frames) => match (**frames).close(None).await {
                Ok(()) | Err(FrameError::ConnectionClosed | FrameError::AlreadyClosed) => Ok(()),
                Err(error) => Err(into_io(error)),
            },
        }
    }
}

async fn upgrade(
    stream: Box<dyn Bytes>,
    target: &Target,
    path: &str,
    version: ProtocolVersion,
) -> Result<WebSocketStream<Box<dyn Bytes>>, ClientError> {
    let scheme = if target.tls { "wss" } else { "ws" };
    let url = format!("{scheme}://{target}{path}");
    let mut request = url.into_client_request().map_err(|error| trouble::upgrade(target, error))?;
    let subprotocol = match version {
        ProtocolVersion::V3_1 => "mqttv3.1",
        ProtocolVersion::V3_1_1 | ProtocolVersion::V5 => "mqtt",
    };
    request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(subprotocol));
    let (frames, _response) =
        tokio_tungstenite::client_async(request, stream).await.map_err(|error| trouble::upgrade(target, error))?;
    Ok(frames)
}

fn into_io(error: FrameError) -> io::Error {
    match error {
        FrameError::Io(error) => error,
        other => io::Error::other(other),
    }
}

fn tls_config(args: &ConnectionArgs) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let roots = Arc::new(roots(args.cafile.as_deref())?);
    let verifier =
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build().map_err(io::Error::other)?;
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = if args.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyName { verifier, provider }))
    } else {
        builder.with_webpki_verifier(verifier)
    };
    let config = match (&args.cert, &args.key) {
        (Some(cert), Some(key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| about(key, error))?;
            let unfit = |error| io::Error::other(format!("{} and --key do not fit: {error}", cert.display()));
            builder.with_client_auth_cert(certificates(cert)?, key).map_err(unfit)?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn roots(cafile: Option<&Path>) -> io::Result<RootCertStore> {
    let system = || SYSTEM_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
    let path = cafile
        .or_else(system)
        .ok_or_else(|| io::Error::other("this machine has no list of authorities: name one with --cafile"))?;
    let mut roots = RootCertStore::empty();
    let (added, _ignored) = roots.add_parsable_certificates(certificates(path)?);
    if added == 0 {
        return Err(io::Error::other(format!("{}: no authority in it", path.display())));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path).and_then(Iterator::collect).map_err(|error| about(path, error))
}

fn about(path: &Path, error: PemError) -> io::Error {
    let path = path.display();
    io::Error::other(match error {
        PemError::Io(error) => format!("{path}: {error}"),
        PemError::NoItemsFound => format!("{path}: no PEM block of the kind that is wanted in it"),
        error => format!("{path}: {error}"),
    })
}

/// Checks everything but the name: what mosquitto calls insecure.
#[derive(Debug)]
struct AnyName {
    verifier: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        // The name is what the verifier looks at last.
        match self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
