//! Clients that came to the wrong port, told apart by their first bytes.
//!
//! The commonest mistake of a beginner is a browser or an MQTT client with the right host and the wrong port, and what
//! usually answers is a closed connection. What can be told is told: an HTTP client gets the address of the WebSocket listener.

use super::http::{Response, Status, host_name};
use crate::shard::greeted::ListenerState;

/// A protocol that is not the one of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    /// A TLS ClientHello.
    Tls,
    /// An HTTP request line.
    Http,
    /// An MQTT CONNECT packet.
    Mqtt,
    /// None of those that are known.
    Unknown,
}

/// First byte of a TLS record that holds a handshake message.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;
/// First byte of every CONNECT packet [MQTT-3.1.0-1].
pub(super) const CONNECT: u8 = 0x10;

const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS ", b"DELETE ", b"CONNECT ", b"PATCH ", b"PRI "];

/// Which protocol speaks; `None` when these bytes do not yet decide it.
pub(super) fn protocol(bytes: &[u8]) -> Option<Foreign> {
    match bytes {
        [] => None,
        [CONNECT, ..] => Some(Foreign::Mqtt),
        // TLS writes its major version, 3, behind the type of the record.
        [TLS_HANDSHAKE] => None,
        [TLS_HANDSHAKE, 3, ..] => Some(Foreign::Tls),
        _ if METHODS.iter().any(|method| bytes.starts_with(method)) => Some(Foreign::Http),
        _ if METHODS.iter().any(|method| method.starts_with(bytes)) => None,
        _ => Some(Foreign::Unknown),
    }
}

/// The answer to an HTTP request on a port that speaks MQTT.
pub(super) fn http_on_mqtt_port(head: &[u8], listener: &ListenerState) -> Vec<u8> {
    let body = match &listener.websocket {
        Some(address) => {
            let scheme = if address.tls { "wss" } else { "ws" };
            let host = host_name(head).unwrap_or_else(|| host_of(listener));
            format!(
                "This port speaks MQTT, not HTTP. WebSocket is at {scheme}://{host}:{}{}\n",
                address.port, address.path
            )
        }
        None => "This port speaks MQTT, not HTTP, and this broker has no WebSocket listener: \
                 add [[listener]] protocol = \"ws\"\n"
            .to_owned(),
    };
    Response::new(Status::BadRequest).body(body).into_bytes()
}

/// The answer to a plain HTTP request on a port that speaks TLS.
pub(super) fn http_on_tls_port(scheme: &str) -> Vec<u8> {
    let body = format!("This port speaks TLS: the address begins with {scheme}://\n");
    Response::new(Status::BadRequest).body(body).into_bytes()
}

fn host_of(listener: &ListenerState) -> String {
    match listener.bound.ip() {
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
        ip => ip.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_the_protocol() {
        assert_eq!(protocol(b""), None);
        assert_eq!(protocol(b"\x10"), Some(Foreign::Mqtt));
        assert_eq!(protocol(b"\x16"), None);
        assert_eq!(protocol(b"\x16\x03\x01"), Some(Foreign::Tls));
        assert_eq!(protocol(b"\x16\x04"), Some(Foreign::Unknown));
        assert_eq!(protocol(b"GE"), None);
        assert_eq!(protocol(b"GET / HTTP/1.1"), Some(Foreign::Http));
        assert_eq!(protocol(b"GETX"), Some(Foreign::Unknown));
        assert_eq!(protocol(b"SSH-2.0"), Some(Foreign::Unknown));
        assert_eq!(protocol(b"\xc0\x00"), Some(Foreign::Unknown));
    }
}
