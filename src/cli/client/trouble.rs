//! Why a broker cannot be reached, said so that the reader knows what to change: each error names host and port, and the option to look at.
//!
//! Pure: an error in, a [`ClientError`] out. The commonest cause is a port that speaks something else than the client does.
//!
//! The test to read first: `tests::what_to_do_is_in_the_error`.

use std::io;

use rustls::{AlertDescription, CertificateError};
use tokio_tungstenite::tungstenite::Error as FrameError;

use super::ClientError;
use super::options::Target;

/// Trouble that may be over when it is tried again.
fn passing(text: String) -> ClientError {
    ClientError::CannotConnect { text, may_pass: true }
}

/// Trouble that somebody has to mend first.
fn lasting(text: String) -> ClientError {
    ClientError::CannotConnect { text, may_pass: false }
}

/// The name of the host could not be looked up.
pub(super) fn unknown_host(target: &Target, error: &io::Error) -> ClientError {
    let host = &target.host;
    passing(format!("{target}: the host \"{host}\" is not known here ({error}): look at -h, or give its address"))
}

/// No TCP connection came to be.
pub(super) fn not_connected(target: &Target, error: &io::Error) -> ClientError {
    passing(match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            format!("{target}: connection refused: no broker listens there; is it running, and is the port (-p) right?")
        }
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            format!(
                "{target}: cannot be reached ({error}): is the host right, and does a firewall let the port through?"
            )
        }
        _ => format!("{target}: cannot connect: {error}"),
    })
}

/// The TLS handshake failed.
pub(super) fn handshake(target: &Target, error: &io::Error) -> ClientError {
    let host = &target.host;
    let Some(inner) = tls_error(error) else {
        return passing(format!(
            "{target}: the TLS handshake ended early ({error}): does this port speak TLS? A plain port wants no --cafile and \
             no mqtts:// or wss://"
        ));
    };
    match inner {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => lasting(format!(
            "{target}: the broker's certificate comes from an authority that is not trusted here: name the file of that authority with --cafile"
        )),
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => lasting(format!(
            "{target}: the broker's certificate is not for \"{host}\" ({inner}): connect by a name that it holds, or leave the name \
             unchecked with --insecure"
        )),
        rustls::Error::InvalidCertificate(_) => {
            lasting(format!("{target}: the broker's certificate is not accepted: {inner}"))
        }
        rustls::Error::InvalidMessage(_) => lasting(format!(
            "{target}: the answer is not TLS ({inner}): a plain port wants no --cafile and no mqtts:// or wss://"
        )),
        rustls::Error::AlertReceived(alert) => alert_received(target, *alert),
        _ => lasting(format!("{target}: the TLS handshake failed: {inner}")),
    }
}

fn alert_received(target: &Target, alert: AlertDescription) -> ClientError {
    lasting(match alert {
        AlertDescription::CertificateRequired => {
            format!("{target}: the broker asks for a client certificate: name one with --cert and --key")
        }
        _ => {
            format!("{target}: the broker ended the TLS handshake ({alert:?}): are --cert and --key what it asks for?")
        }
    })
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// The WebSocket upgrade failed. What a server that refuses says in the body is what helps.
pub(super) fn upgrade(target: &Target, error: FrameError) -> ClientError {
    match error {
        FrameError::Http(response) => {
            let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            lasting(format!("{target}: WebSocket refused: {} {}", response.status(), body.trim()))
        }
        FrameError::Io(error) if tls_error(&error).is_some() => handshake(target, &error),
        other => {
            let other_port = if target.tls { "mqtts://" } else { "mqtt://, wss://" };
            passing(format!(
                "{target}: no answer of a WebSocket server ({other}): is this the port of a WebSocket listener? Other ports \
                 want {other_port}"
            ))
        }
    }
}

/// The connection ended before a CONNACK, with an error or without, behind these bytes.
pub(super) fn unanswered(target: &Target, received: &[u8], error: Option<&io::Error>) -> ClientError {
    if let Some(rustls::Error::AlertReceived(alert)) = error.and_then(tls_error) {
        return alert_received(target, *alert);
    }
    if received.starts_with(b"HTTP/") {
        return lasting(format!("{target}: the answer is HTTP, not MQTT: WebSocket wants -L ws://{target}/mqtt"));
    }
    if matches!(received, [0x15, 3, ..]) {
        return lasting(format!("{target}: the answer is TLS, not MQTT: {TLS_WANTS}"));
    }
    let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
    let wants = match (&target.websocket_path, target.tls) {
        (None, false) => {
            format!(
                "; or the port speaks something else than MQTT without TLS: {TLS_WANTS}, a WebSocket port -L ws://{target}/mqtt"
            )
        }
        (None, true) => format!("; or the port does not speak MQTT: a WebSocket port wants -L wss://{target}/mqtt"),
        (Some(_), _) => String::new(),
    };
    passing(format!(
        "{target}: the broker closed the connection before its CONNACK{why}: it may not be able to serve now (its log says why, and \
         `holdfast cluster status`){wants}"
    ))
}

const TLS_WANTS: &str = "a TLS port wants --cafile FILE, or mqtts:// in -L";

#[cfg(test)]
mod tests {
    use super::*;

    fn target(tls: bool) -> Target {
        Target {
            host: "broker.lan".to_owned(),
            port: 1884,
            tls,
            websocket_path: None,
            user_name: None,
            password: None,
            topic: None,
        }
    }

    fn certificate(error: CertificateError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error))
    }

    #[test]
    fn what_to_do_is_in_the_error() {
        let (plain, tls) = (target(false), target(true));
        let alert = rustls::Error::AlertReceived(AlertDescription::CertificateRequired);
        let alert = io::Error::new(io::ErrorKind::InvalidData, alert);
        let cases = [
            (not_connected(&plain, &io::ErrorKind::ConnectionRefused.into()), "connection refused", true),
            (unknown_host(&plain, &io::Error::other("no such name")), "-h", true),
            (handshake(&tls, &io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof")), "speak TLS?", true),
            (handshake(&tls, &certificate(CertificateError::UnknownIssuer)), "--cafile", false),
            (handshake(&tls, &certificate(CertificateError::NotValidForName)), "--insecure", false),
            (handshake(&tls, &certificate(CertificateError::Expired)), "not accepted", false),
            (unanswered(&plain, b"", None), "--cafile", true),
            (unanswered(&plain, b"", None), "before its CONNACK: it may not be able to serve now", true),
            (unanswered(&plain, b"HTTP/1.1 400 Bad Request", None), "ws://broker.lan:1884/mqtt", false),
            (unanswered(&tls, b"", None), "wss://broker.lan:1884/mqtt", true),
            (unanswered(&tls, b"", Some(&alert)), "--cert", false),
            (upgrade(&plain, FrameError::ConnectionClosed), "WebSocket listener?", true),
        ];
        for (error, expected, may_pass) in cases {
            let text = error.to_string();
            assert!(text.starts_with("broker.lan:1884: ") && text.contains(expected), "{text}");
            assert_eq!(error.is_lost_connection(), may_pass, "{text}");
        }
    }
}
