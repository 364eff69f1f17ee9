//! The opening handshake of a WebSocket connection (RFC 6455, section 4.2), as a judgement of bytes.
//!
//! Pure: [`judge`] looks at what has been read and says what to answer. It is written here rather than taken from the WebSocket
//! library because a broker has its own rules for path, Origin and sub-protocol, and because a refusal has to name the rule.
//!
//! The test to read first: `the_table_of_handshakes`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::forwarded;
use super::http::{HEAD_BYTES_MAX, HEADERS_MAX, Response, Status, split_port};
use super::log_limit::shorten;
use crate::config::{Cidr, ForwardedHeader};

/// What a listener asks of a handshake.
pub(super) struct Rules<'a> {
    /// The path beside `/`.
    pub path: &'a str,
    /// `same`, `*`, `null`, or origins in lower case.
    pub allowed_origins: &'a [String],
}

/// What to do with the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The head is not complete.
    Incomplete,
    /// Write `response`; what follows the first `head_len` bytes are frames.
    Accept { response: Vec<u8>, head_len: usize, subprotocol: Option<&'static str> },
    /// Write `response` and close.
    Refuse { response: Vec<u8>, why: Refusal },
}

/// Why an upgrade was refused, for the log and its counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not HTTP, or not a complete handshake.
    Malformed(&'static str),
    HeadTooLarge,
    /// A request that asks for no upgrade, such as a browser that was pointed at the port.
    NoUpgrade,
    Version,
    Path(String),
    Origin(String),
    /// Only sub-protocols that are not MQTT.
    Subprotocol(String),
    /// Connections come faster than they may.
    TooFast,
}

/// For the log.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(what) => f.write_str(what),
            Self::HeadTooLarge => f.write_str("the head of the request is too large"),
            Self::NoUpgrade => f.write_str("a request that asks for no upgrade"),
            Self::Version => f.write_str("a version of WebSocket that is not 13"),
            Self::Path(path) => write!(f, "path {path}"),
            Self::Origin(origin) => write!(f, "origin {origin}"),
            Self::Subprotocol(name) => write!(f, "sub-protocol {name}"),
            Self::TooFast => f.write_str("connections come faster than they may"),
        }
    }
}

/// Sub-protocols of MQTT, the second by the habit of MQTT 3.1 clients [MQTT-6.0.0-3], [MQTT-6.0.0-4].
const SUBPROTOCOLS: [&str; 2] = ["mqtt", "mqttv3.1"];

/// RFC 6455, section 1.3.
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Judges the bytes of a request, from its first on.
pub(super) fn judge(bytes: &[u8], rules: &Rules<'_>) -> Judgement {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(head_len)) if head_len <= HEAD_BYTES_MAX => match answer(&request, rules) {
            Ok((response, subprotocol)) => Judgement::Accept { response, head_len, subprotocol },
            Err(why) => refuse(why, rules),
        },
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => Judgement::Incomplete,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => refuse(Refusal::HeadTooLarge, rules),
        Err(_) => refuse(Refusal::Malformed("this is no HTTP request"), rules),
    }
}

fn answer(request: &httparse::Request<'_, '_>, rules: &Rules<'_>) -> Result<(Vec<u8>, Option<&'static str>), Refusal> {
    if request.method != Some("GET") || request.version != Some(1) {
        return Err(Refusal::Malformed("a WebSocket handshake is a GET of HTTP/1.1"));
    }
    check_path(request.path.unwrap_or("/"), rules)?;
    if !lists(request, "upgrade", "websocket") || !lists(request, "connection", "upgrade") {
        return Err(Refusal::NoUpgrade);
    }
    if header(request, "sec-websocket-version").is_none_or(|version| version != "13") {
        return Err(Refusal::Version);
    }
    let key = header(request, "sec-websocket-key").unwrap_or_default();
    if STANDARD.decode(key).map_or(0, |nonce| nonce.len()) != 16 {
        return Err(Refusal::Malformed("Sec-WebSocket-Key must be 16 bytes in base64"));
    }
    check_origin(request, rules)?;
    let subprotocol = choose_subprotocol(request)?;
    Ok((switching(key, subprotocol), subprotocol))
}

/// The token of an `Authorization: Bearer` (RFC 6750, section 2.1) in a head that was accepted.
pub(super) fn bearer(head: &[u8]) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?;
    let (scheme, token) = header(&request, "authorization")?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn check_path(target: &str, rules: &Rules<'_>) -> Result<(), Refusal> {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if path == rules.path || path == "/" { Ok(()) } else { Err(Refusal::Path(shorten(path))) }
}

/// A request without an Origin comes from no browser and passes; the check protects users of browsers from foreign pages (RFC 6455, section 10.2).
fn check_origin(request: &httparse::Request<'_, '_>, rules: &Rules<'_>) -> Result<(), Refusal> {
    let Some(origin) = header(request, "origin") else {
        return if named(request, "origin").next().is_some() {
            Err(Refusal::Malformed("Origin is no text"))
        } else {
            Ok(())
        };
    };
    let host = header(request, "host").unwrap_or_default();
    let allowed = rules.allowed_origins.iter().any(|rule| match rule.as_str() {
        "*" => true,
        "same" => is_same_host(origin, host),
        rule => rule.eq_ignore_ascii_case(origin),
    });
    if allowed { Ok(()) } else { Err(Refusal::Origin(shorten(origin))) }
}

/// Whether a page came from the host that it now connects to. The port is left out, as cookies leave it out: pages come from a web
/// server, which is never on the port of the broker. All names of this machine for itself are one.
fn is_same_host(origin: &str, host: &str) -> bool {
    let Some((_scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let (page, _) = split_port(authority);
    let (here, _) = split_port(host);
    !page.is_empty() && (page.eq_ignore_ascii_case(here) || (is_loopback(page) && is_loopback(here)))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The first of ours that the client offers. None offered is taken without an answer, for the sake of simple clients; only foreign
/// ones offered is a client that wants something else.
fn choose_subprotocol(request: &httparse::Request<'_, '_>) -> Result<Option<&'static str>, Refusal> {
    let mut foreign = None;
    for offered in named(request, "sec-websocket-protocol").flat_map(|value| value.split(|byte| *byte == b',')) {
        let offered = offered.trim_ascii();
        if let Some(ours) = SUBPROTOCOLS.iter().find(|ours| ours.as_bytes() == offered) {
            return Ok(Some(ours));
        }
        if !offered.is_empty() {
            foreign.get_or_insert(offered);
        }
    }
    match foreign {
        Some(name) => Err(Refusal::Subprotocol(shorten(&String::from_utf8_lossy(name)))),
        None => Ok(None),
    }
}

fn switching(key: &str, subprotocol: Option<&'static str>) -> Vec<u8> {
    let proof = STANDARD.encode(Sha1::new().chain_update(key).chain_update(ACCEPT_GUID).finalize());
    let protocol = subprotocol.map_or(String::new(), |name| format!("Sec-WebSocket-Protocol: {name}\r\n"));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {proof}\r\n{protocol}\r\n"
    )
    .into_bytes()
}

fn refuse(why: Refusal, rules: &Rules<'_>) -> Judgement {
    let response = match &why {
        Refusal::Malformed(what) => Response::new(Status::BadRequest).body(format!("{what}\n")),
        Refusal::HeadTooLarge => Response::new(Status::HeadersTooLarge)
            .body(format!("The head of the request is longer than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} fields\n")),
        Refusal::NoUpgrade => Response::new(Status::UpgradeRequired)
            .header("Upgrade", "websocket")
            .body(format!("This is MQTT over WebSocket, at {}: connect with an MQTT client\n", rules.path)),
        Refusal::Version => Response::new(Status::UpgradeRequired)
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .body("The version of WebSocket is 13\n"),
        Refusal::Path(_) => Response::new(Status::NotFound).body(format!("MQTT over WebSocket is at {}\n", rules.path)),
        Refusal::Origin(_) => Response::new(Status::Forbidden)
            .body("This Origin is not allowed: add it to allowed_origins of the [[listener]]\n"),
        Refusal::TooFast => return Judgement::Refuse { response: too_fast(), why },
        Refusal::Subprotocol(_) => {
            Response::new(Status::BadRequest).body("The sub-protocols here are mqtt and mqttv3.1\n")
        }
    };
    Judgement::Refuse { response: response.into_bytes(), why }
}

/// The answer to a request that comes faster than requests may.
pub(super) fn too_fast() -> Vec<u8> {
    let busy = Response::new(Status::Unavailable).header("Retry-After", "5");
    busy.body("Connections come faster than they may\n").into_bytes()
}

/// From where a request came, as far as its proxies are trusted; `None` if they do not say.
pub(super) fn forwarded_for(bytes: &[u8], kind: ForwardedHeader, trusted: &[Cidr]) -> Option<core::net::IpAddr> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(bytes).ok().filter(httparse::Status::is_complete)?;
    let field = forwarded::field(kind)?;
    let values: Vec<_> = named(&request, field).collect();
    forwarded::client(kind, values.into_iter(), trusted)
}

/// The values of a header field, which may stand several times.
fn named<'r>(request: &'r httparse::Request<'_, '_>, name: &'static str) -> impl Iterator<Item = &'r [u8]> {
    request.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

fn header<'r>(request: &'r httparse::Request<'_, '_>, name: &'static str) -> Option<&'r str> {
    named(request, name).next().and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
}

/// Whether a header field that is a comma-separated list has this element, in any case.
fn lists(request: &httparse::Request<'_, '_>, name: &'static str, element: &str) -> bool {
    named(request, name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .any(|value| value.trim_ascii().eq_ignore_ascii_case(element.as_bytes()))
}

#[cfg(test)]
#[path = "upgrade_tests.rs"]
mod tests;
