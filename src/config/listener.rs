//! `[[listener]]`: one address on which clients are accepted, and what holds there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::acl::{LISTENER_KEYS, ListenerAcl};
use super::auth::{self, Auth, ListenerAuth};
use super::cidr::Cidr;
use super::limits::Rate;
use super::mqtt::Mqtt;
use super::reading::Section;
use super::values::{expected, parse_integer};

pub(super) const KEYS: &[&str] = &[
    "name",
    "protocol",
    "bind",
    "path",
    "tls",
    "allow_anonymous",
    "acl",
    "auth",
    "max_connections",
    "max_conn_rate",
    "max_conn_rate_per_ip",
    "proxy_protocol",
    "trusted_proxies",
    "xff",
    "allowed_origins",
    "ping_interval",
    "max_server_keepalive",
    "handshake_timeout",
    "connect_timeout",
    "protocol_versions",
];

pub(super) const TLS_KEYS: &[&str] = &["cert", "key", "ca", "crl", "verify", "min_version"];

/// Keys that mean something on a WebSocket listener only.
const WS_KEYS: &[&str] = &["path", "allowed_origins", "ping_interval", "xff"];

/// Most ranges of addresses of proxies.
const PROXIES_MAX: usize = 256;

/// Where 25 s come from: the proxies of the field drop a silent connection after 30 s at the earliest.
const PING_INTERVAL: Duration = Duration::from_secs(25);

/// Browsers and proxies: a client that keeps alive every 45 s stays below their limit of 60 s.
const WS_SERVER_KEEPALIVE: Duration = Duration::from_secs(45);

/// One `[[listener]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// What people call it, in logs and metrics. 1 to 64 bytes; no two listeners share one.
    pub name: String,
    /// What is spoken there.
    pub protocol: Protocol,
    /// Address and port. Port 0 lets the kernel choose one.
    pub bind: SocketAddr,
    /// Path of the WebSocket, beside `/`, which is always accepted.
    pub path: String,
    /// TLS; `None` is plain text.
    pub tls: Option<Tls>,
    /// Whether clients without a user name are let in. `Some` in every configuration that was loaded: the default is yes on a
    /// loopback address as long as there is no password file, and no elsewhere.
    pub allow_anonymous: Option<bool>,
    /// The keys of `[auth]` that differ here.
    pub auth: Option<ListenerAuth>,
    /// The keys of `[acl]` that differ here.
    pub acl: Option<ListenerAcl>,
    /// Most connections at one time. 1 to 10,000,000.
    pub max_connections: usize,
    /// Most new connections. `None`: no limit.
    pub max_conn_rate: Option<Rate>,
    /// Most new connections of one address; of IPv6, of one /64. `None`: no limit.
    pub max_conn_rate_per_ip: Option<Rate>,
    /// Whether the connections of `trusted_proxies` begin with a PROXY header, which says whose they are.
    pub proxy_protocol: ProxyProtocol,
    /// Who may say whom it speaks for. Empty: nobody.
    pub trusted_proxies: Vec<Cidr>,
    /// WebSocket: which header field of the upgrade says it, where a trusted proxy sends no PROXY header.
    pub xff: ForwardedHeader,
    /// WebSocket: which `Origin` a browser may come from: `same` (the host that the browser connects to, any port), `*` (any), or one such as
    /// `https://app.example`. A request without an Origin is no browser and passes.
    pub allowed_origins: Vec<String>,
    /// WebSocket: how often a ping is sent, so that proxies see life. 1 s to 1 h.
    pub ping_interval: Duration,
    /// Longest Keep Alive granted on this listener, beside `max_keepalive` of `[mqtt]`: the smaller of the two holds. `None` grants all that is asked.
    pub max_server_keepalive: Option<Duration>,
    /// Longest TLS handshake, and longest WebSocket upgrade. 100 ms to 5 min.
    pub handshake_timeout: Duration,
    /// Longest wait for the whole CONNECT packet, once the handshakes are done (MQTT 5.0, 3.1.4). 100 ms to 5 min.
    pub connect_timeout: Duration,
    /// Protocol levels accepted: 3 (MQTT 3.1), 4 (3.1.1), 5 (5.0).
    pub protocol_versions: Vec<u8>,
}

/// What is spoken on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// MQTT right on TCP or TLS.
    Mqtt,
    /// MQTT in WebSocket frames (MQTT 5.0, chapter 6).
    Ws,
}

/// Whether a connection of a trusted proxy begins with a PROXY header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// There is none.
    Off,
    /// The text form.
    V1,
    /// The binary form.
    V2,
    /// Either.
    Auto,
}

/// The header field by which a proxy says from where a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// None is read.
    Off,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// TLS of one listener. The files are read by the listener, not by the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Certificate chain, PEM, the server's own certificate first.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authorities that client certificates must come from, PEM.
    pub ca: Option<PathBuf>,
    /// The client certificates that these authorities have withdrawn: their lists, PEM.
    pub crl: Option<PathBuf>,
    /// What is asked of clients.
    pub verify: Verify,
    /// The oldest version of TLS accepted.
    pub min_version: TlsVersion,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// They are not asked.
    None,
    /// They are asked, and what they show must be valid.
    Optional,
    /// Without a valid one there is no connection.
    Require,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl Listener {
    /// A listener with the defaults of its protocol.
    pub fn new(name: impl Into<String>, protocol: Protocol, bind: SocketAddr) -> Listener {
        Listener {
            name: name.into(),
            protocol,
            bind,
            path: "/mqtt".to_owned(),
            tls: None,
            allow_anonymous: None,
            auth: None,
            acl: None,
            max_connections: 1_000_000,
            max_conn_rate: None,
            max_conn_rate_per_ip: None,
            proxy_protocol: ProxyProtocol::Off,
            trusted_proxies: Vec::new(),
            xff: ForwardedHeader::XForwardedFor,
            allowed_origins: vec!["same".to_owned()],
            ping_interval: PING_INTERVAL,
            max_server_keepalive: (protocol == Protocol::Ws).then_some(WS_SERVER_KEEPALIVE),
            handshake_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(10),
            protocol_versions: vec![3, 4, 5],
        }
    }

    /// The two listeners of a node that was told of none.
    pub(super) fn on_loopback() -> Vec<Listener> {
        let on = |name, protocol, port| Listener::new(name, protocol, SocketAddr::from(([127, 0, 0, 1], port)));
        vec![on("mqtt", Protocol::Mqtt, 1883), on("ws", Protocol::Ws, 8083)]
    }

    /// Whether MQTT is spoken in WebSocket frames.
    pub fn is_websocket(&self) -> bool {
        self.protocol == Protocol::Ws
    }

    /// Whether only this machine can reach the listener.
    pub fn is_loopback(&self) -> bool {
        self.bind.ip().to_canonical().is_loopback()
    }

    /// Fills in the default of `allow_anonymous`: what stays on this machine is open until there are passwords.
    pub(super) fn decide_anonymous(&mut self, auth: &Auth) {
        let default = self.is_loopback() && !self.knows_somebody(auth);
        self.allow_anonymous.get_or_insert(default);
    }

    /// Whether some client can prove who it is here.
    pub fn knows_somebody(&self, auth: &Auth) -> bool {
        let certificates = self.tls.as_ref().is_some_and(|tls| tls.verify != Verify::None);
        auth.at(self.auth.as_ref()).knows_somebody(certificates)
    }

    /// The word that a URL of this listener begins with: `mqtt`, `mqtts`, `ws` or `wss`.
    pub fn scheme(&self) -> &'static str {
        scheme(self.protocol, self.tls.is_some())
    }

    /// The longest Keep Alive granted on this listener, from here and from `[mqtt]`; `None` grants all that is asked.
    pub fn keep_alive_cap(&self, mqtt: &Mqtt) -> Option<Duration> {
        let everywhere = (mqtt.max_keepalive != 0).then(|| Duration::from_secs(mqtt.max_keepalive.into()));
        match (self.max_server_keepalive, everywhere) {
            (Some(here), Some(everywhere)) => Some(here.min(everywhere)),
            (here, everywhere) => here.or(everywhere),
        }
    }

    pub(super) fn read(section: &mut Section<'_, '_>) -> Listener {
        let protocols = [("mqtt", Protocol::Mqtt), ("ws", Protocol::Ws)];
        let protocol = section.choice("protocol", Protocol::Mqtt, &protocols);
        let bind = read_bind(section);
        let tls = section.section("tls", TLS_KEYS, Tls::read).flatten();
        let auth = section.section("auth", auth::LISTENER_KEYS, ListenerAuth::read);
        let acl = section.section("acl", LISTENER_KEYS, ListenerAcl::read);
        let name = section.text("name", 64).unwrap_or_else(|| scheme(protocol, section.given("tls")).to_owned());
        if name.chars().any(char::is_control) {
            section.error_at("name", "name: must not hold control characters");
        }
        refuse_ws_keys(section, protocol);
        let default = Listener::new(name, protocol, bind);
        let second = Duration::from_secs(1);
        let handshakes = Duration::from_millis(100)..=300 * second;
        Listener {
            path: read_path(section).unwrap_or(default.path),
            tls,
            allow_anonymous: section.optional_bool("allow_anonymous"),
            auth,
            acl,
            max_connections: section.integer("max_connections", default.max_connections, 1..=10_000_000),
            max_conn_rate: section.rate("max_conn_rate"),
            max_conn_rate_per_ip: section.rate("max_conn_rate_per_ip"),
            proxy_protocol: section.choice("proxy_protocol", default.proxy_protocol, &PROXY_PROTOCOLS),
            trusted_proxies: read_proxies(section),
            xff: section.choice("xff", default.xff, &FORWARDED_HEADERS),
            allowed_origins: section.list("allowed_origins", default.allowed_origins, 1024, parse_origin),
            ping_interval: section.duration("ping_interval", default.ping_interval, second..=3600 * second),
            max_server_keepalive: read_server_keepalive(section, default.max_server_keepalive),
            handshake_timeout: section.duration("handshake_timeout", default.handshake_timeout, handshakes.clone()),
            connect_timeout: section.duration("connect_timeout", default.connect_timeout, handshakes),
            protocol_versions: read_versions(section, default.protocol_versions),
            ..Listener::new(default.name, protocol, bind)
        }
    }
}

const PROXY_PROTOCOLS: [(&str, ProxyProtocol); 4] =
    [("off", ProxyProtocol::Off), ("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2), ("auto", ProxyProtocol::Auto)];

const FORWARDED_HEADERS: [(&str, ForwardedHeader); 3] = [
    ("off", ForwardedHeader::Off),
    ("x-forwarded-for", ForwardedHeader::XForwardedFor),
    ("forwarded", ForwardedHeader::Forwarded),
];

fn read_proxies(section: &mut Section<'_, '_>) -> Vec<Cidr> {
    if !section.given("trusted_proxies") {
        return Vec::new();
    }
    const EXPECTED: &str = "an address or a range such as \"10.0.0.0/8\"";
    let parse = |value: &DeValue<'_>| {
        let text = value.as_str().ok_or_else(|| expected(EXPECTED, value))?;
        text.parse().map_err(|()| format!("expected {EXPECTED}"))
    };
    section.list("trusted_proxies", Vec::new(), PROXIES_MAX, parse)
}

fn scheme(protocol: Protocol, tls: bool) -> &'static str {
    match (protocol, tls) {
        (Protocol::Mqtt, false) => "mqtt",
        (Protocol::Mqtt, true) => "mqtts",
        (Protocol::Ws, false) => "ws",
        (Protocol::Ws, true) => "wss",
    }
}

fn read_bind(section: &mut Section<'_, '_>) -> SocketAddr {
    if !section.given("bind") {
        section.error_at("bind", "bind is missing: the address to listen on, such as bind = \"127.0.0.1:1883\"");
    }
    section.optional("bind", |value| parse_bind(value, 1883)).unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// An address and a port. `example` is the port that is shown to whoever wrote something else.
pub(super) fn parse_bind(value: &DeValue<'_>, example: u16) -> Result<SocketAddr, String> {
    let expected_here =
        &format!("an address and port such as \"127.0.0.1:{example}\", \"0.0.0.0:{example}\" or \"[::]:{example}\"");
    let Some(text) = value.as_str() else {
        return Err(match parse_integer(value) {
            Ok(port @ 0..=65_535) => {
                format!("expected {expected_here}; did you mean \"127.0.0.1:{port}\"?")
            }
            _ => expected(expected_here, value),
        });
    };
    text.parse().map_err(|_| {
        let port =
            text.strip_prefix("localhost:").or(text.strip_prefix(':')).or(text.strip_prefix("*:")).unwrap_or(text);
        let host = if text.starts_with('*') { "0.0.0.0" } else { "127.0.0.1" };
        match port.parse::<u16>() {
            Ok(port) => format!("expected {expected_here}; did you mean \"{host}:{port}\"?"),
            Err(_) => format!("expected {expected_here}: host names are not looked up"),
        }
    })
}

fn read_path(section: &mut Section<'_, '_>) -> Option<String> {
    let path = section.text("path", 256)?;
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '"' | '\\');
    if path.starts_with('/') && path.chars().all(plain) {
        return Some(path);
    }
    section.error_at("path", "path: must begin with \"/\" and be plain, such as \"/mqtt\", without a query");
    None
}

/// `same`, `*`, or scheme and authority as a browser sends them: lower case, no path, no final slash.
fn parse_origin(value: &DeValue<'_>) -> Result<String, String> {
    const EXPECTED: &str = "\"same\", \"*\" or an origin such as \"https://app.example\"";
    let text = value.as_str().ok_or_else(|| expected(EXPECTED, value))?;
    if matches!(text, "same" | "*" | "null") {
        return Ok(text.to_owned());
    }
    let authority = text.split_once("://").filter(|(scheme, _)| !scheme.is_empty()).map(|(_, authority)| authority);
    match authority {
        Some(authority) if !authority.is_empty() && !authority.contains(['/', '?', '#', '@', ' ', '*']) => {
            Ok(text.to_ascii_lowercase())
        }
        Some(authority) if authority.len() > 1 && authority.ends_with('/') => {
            Err(format!("expected {EXPECTED}: an origin has no path and no \"/\" at its end"))
        }
        _ => Err(format!("expected {EXPECTED}")),
    }
}

fn read_server_keepalive(section: &mut Section<'_, '_>, default: Option<Duration>) -> Option<Duration> {
    let bounds = Duration::ZERO..=Duration::from_secs(65_535);
    let asked =
        section.duration_or("max_server_keepalive", default.unwrap_or_default(), bounds, ("off", Duration::ZERO));
    // Keep Alive is a number of whole seconds on the wire.
    if asked.subsec_millis() != 0 {
        section.error_at("max_server_keepalive", "max_server_keepalive: must be whole seconds, or \"off\"");
    }
    (!asked.is_zero()).then_some(asked)
}

fn read_versions(section: &mut Section<'_, '_>, default: Vec<u8>) -> Vec<u8> {
    const EXPECTED: &str = "protocol levels: 3 (MQTT 3.1), 4 (3.1.1) or 5 (5.0)";
    let parse = |value: &DeValue<'_>| match parse_integer(value) {
        Ok(level @ 3..=5) => Ok(level as u8),
        _ => Err(format!("expected {EXPECTED}")),
    };
    let mut versions = section.list("protocol_versions", default, 3, parse);
    versions.sort_unstable();
    versions.dedup();
    versions
}

fn refuse_ws_keys(section: &mut Section<'_, '_>, protocol: Protocol) {
    if protocol == Protocol::Ws {
        return;
    }
    for key in WS_KEYS {
        if section.given(key) {
            let message = format!("{key}: means something only where protocol = \"ws\"");
            section.refuse(key, message);
        }
    }
}

impl Tls {
    /// `None` if `cert` or `key` is missing, which is noted.
    fn read(section: &mut Section<'_, '_>) -> Option<Tls> {
        let verify = [("none", Verify::None), ("optional", Verify::Optional), ("require", Verify::Require)];
        let versions = [("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)];
        for key in ["cert", "key"] {
            if !section.given(key) {
                section.error_at(key, format!("tls: {key} is missing: the path of a PEM file"));
            }
        }
        let (cert, key) = (section.path("cert"), section.path("key"));
        let (ca, crl) = (section.path("ca"), section.path("crl"));
        let verify = section.choice("verify", Verify::None, &verify);
        let min_version = section.choice("min_version", TlsVersion::V1_2, &versions);
        Some(Tls { cert: cert?, key: key?, ca, crl, verify, min_version })
    }
}
