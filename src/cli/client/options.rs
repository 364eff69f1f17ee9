//! The options that `pub` and `sub` share, with mosquitto's names, and what they mean together: where to connect, and as whom.

use std::fmt;
use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::mqtt::{ProtocolVersion, QoS};

/// A combination of options that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Where to connect and how.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct ConnectionArgs {
    /// The broker's host name or address
    #[arg(short = 'h', long, default_value = "localhost")]
    pub host: String,
    /// Its port; 8883 with TLS, else 1883
    #[arg(short, long)]
    pub port: Option<u16>,
    /// All in one: mqtt://, mqtts://, with [user[:password]@]host[:port]/topic, or ws://, wss:// with the path of the WebSocket
    #[arg(short = 'L', long, conflicts_with_all = ["host", "port"])]
    pub url: Option<String>,
    /// The user name
    #[arg(short, long)]
    pub username: Option<String>,
    /// The password; others on this machine can see it in the list of processes, and the shell remembers it
    #[arg(short = 'P', long = "pw", value_name = "PASSWORD")]
    pub password: Option<String>,
    /// The client id; without one the broker chooses
    #[arg(short, long)]
    pub id: Option<String>,
    /// mqttv31, mqttv311 or mqttv5; also 31, 311 and 5
    #[arg(short = 'V', long = "protocol-version", default_value = "mqttv311", value_parser = parse_version)]
    pub version: ProtocolVersion,
    /// Keep Alive, in seconds; 0 turns it off
    #[arg(short, long = "keepalive", default_value_t = 60, value_name = "SECONDS")]
    pub keep_alive_secs: u16,
    /// Keep the session: no Clean Session, no Clean Start
    #[arg(short = 'c', long = "disable-clean-session", requires = "id")]
    pub keep_session: bool,
    /// Session Expiry Interval in seconds, MQTT 5.0; with -c it never ends unless this says so
    #[arg(short = 'x', long = "session-expiry-interval", value_name = "SECONDS")]
    session_expiry: Option<u32>,
    /// Tell what is sent and received, on standard error
    #[arg(short, long)]
    pub debug: bool,
    /// Use TLS and trust the authorities in this PEM file
    #[arg(long, value_name = "FILE")]
    pub cafile: Option<PathBuf>,
    /// The client certificate, PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Do not check that the certificate is for this host; its signature is checked all the same
    #[arg(long)]
    pub insecure: bool,
    /// The topic of a Will: the message that the broker publishes when this connection ends without a DISCONNECT
    #[arg(long, value_name = "TOPIC")]
    pub will_topic: Option<String>,
    /// The text of the Will; empty without this
    #[arg(long, value_name = "PAYLOAD", requires = "will_topic")]
    pub will_payload: Option<String>,
    /// The quality of service of the Will: 0, 1 or 2
    #[arg(long, value_name = "QOS", default_value = "0", value_parser = parse_qos)]
    pub will_qos: QoS,
    /// The server keeps the Will for those who subscribe later
    #[arg(long, requires = "will_topic")]
    pub will_retain: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Where the options lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub tls: bool,
    /// The request target of the upgrade; `None` is MQTT without WebSocket.
    pub websocket_path: Option<String>,
    pub user_name: Option<String>,
    pub password: Option<String>,
    /// The topic of an mqtt:// or mqtts:// URL.
    pub topic: Option<String>,
}

/// `host:port`, as a URL has it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Longest text or binary field of MQTT: its length is said in two bytes (MQTT 5.0, 1.5.4, 1.5.6).
const FIELD_BYTES_MAX: usize = 65_535;

impl ConnectionArgs {
    /// What the options mean together.
    ///
    /// # Errors
    /// A URL that is none, or a password without a user name where the protocol has no place for it.
    pub fn target(&self) -> Result<Target, UsageError> {
        let has_tls_files = self.cafile.is_some() || self.cert.is_some();
        let mut target = match &self.url {
            Some(url) => parse_url(url)?,
            None => Target {
                host: self.host.clone(),
                port: self.port.unwrap_or(if has_tls_files { 8883 } else { 1883 }),
                tls: has_tls_files,
                websocket_path: None,
                user_name: None,
                password: None,
                topic: None,
            },
        };
        target.user_name = self.username.clone().or(target.user_name);
        target.password = self.password.clone().or(target.password);
        if target.password.is_some() && target.user_name.is_none() && !self.version.is_v5() {
            return Err(UsageError("a password needs a user name (-u), except in MQTT 5.0".to_owned()));
        }
        self.check_fields(&target)?;
        Ok(target)
    }

    /// What could not be said in a CONNECT at all.
    fn check_fields(&self, target: &Target) -> Result<(), UsageError> {
        let fields = [
            ("the user name (-u)", &target.user_name),
            ("the password (-P)", &target.password),
            ("the client id (-i)", &self.id),
            ("--will-payload", &self.will_payload),
        ];
        for (name, text) in fields {
            let len = text.as_ref().map_or(0, String::len);
            if len > FIELD_BYTES_MAX {
                return Err(UsageError(format!(
                    "{name} has {len} bytes, and MQTT carries {FIELD_BYTES_MAX} at the most"
                )));
            }
        }
        match &self.will_topic {
            Some(topic) => crate::topic::name::validate(topic)
                .map_err(|error| UsageError(format!("--will-topic {}: {error}", shown(topic)))),
            None => Ok(()),
        }
    }

    /// The Session Expiry Interval to ask for; `None` leaves it out, as it must be left out before 5.0.
    pub fn session_expiry_secs(&self) -> Option<u32> {
        if !self.version.is_v5() {
            return None;
        }
        self.session_expiry.or(self.keep_session.then_some(u32::MAX))
    }
}

/// As much of a text as an error shows.
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(128).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A value of `-V`.
fn parse_version(text: &str) -> Result<ProtocolVersion, String> {
    match text {
        "mqttv31" | "31" => Ok(ProtocolVersion::V3_1),
        "mqttv311" | "311" => Ok(ProtocolVersion::V3_1_1),
        "mqttv5" | "5" => Ok(ProtocolVersion::V5),
        _ => Err("expected mqttv31, mqttv311 or mqttv5".to_owned()),
    }
}

/// A value of `-q`.
///
/// # Errors
/// Anything but 0, 1 and 2.
pub fn parse_qos(text: &str) -> Result<QoS, String> {
    text.parse().ok().and_then(QoS::from_u8).ok_or_else(|| "expected 0, 1 or 2".to_owned())
}

fn parse_url(url: &str) -> Result<Target, UsageError> {
    let wrong = |what: &str| UsageError(format!("-L {url}: {what}"));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("expected mqtt://, mqtts://, ws:// or wss://"))?;
    let (tls, is_websocket, default_port) = match scheme {
        "mqtt" => (false, false, 1883),
        "mqtts" => (true, false, 8883),
        "ws" => (false, true, 80),
        "wss" => (true, true, 443),
        _ => return Err(wrong("expected mqtt://, mqtts://, ws:// or wss://")),
    };
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, Some(path)),
        None => (rest, None),
    };
    let (user, address) = match authority.rsplit_once('@') {
        Some((user, address)) => (Some(user), address),
        None => (None, authority),
    };
    let (user_name, password) = match user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
        None => (None, None),
        Some((name, "")) => (Some(name), None),
        Some((name, password)) => (Some(name), Some(password)),
    };
    let (host, port) = split_address(address);
    let port = match port {
        Some(port) => port.parse().map_err(|_| wrong("the port is no number up to 65535"))?,
        None => default_port,
    };
    if host.is_empty() {
        return Err(wrong("there is no host in it"));
    }
    let decode = |text: Option<&str>| {
        text.map(|text| {
            percent_decoded(text).ok_or_else(|| wrong("a % that is followed by no two hex digits of UTF-8"))
        })
        .transpose()
    };
    Ok(Target {
        host: host.to_owned(),
        port,
        tls,
        websocket_path: is_websocket.then(|| format!("/{}", path.unwrap_or("mqtt"))),
        user_name: decode(user_name)?,
        password: decode(password)?,
        topic: path.filter(|path| !is_websocket && !path.is_empty()).map(str::to_owned),
    })
}

/// Host and port; an IPv6 address stands in brackets, which are taken off.
fn split_address(address: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (host, rest.strip_prefix(':'));
    }
    match address.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        parse_url(url).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_url_says_everything() {
        let all = target("mqtts://u%40x:p%3aq@broker.example:1234/a/b");
        assert_eq!(all.host, "broker.example");
        assert_eq!((all.port, all.tls, all.websocket_path), (1234, true, None));
        assert_eq!(all.user_name.as_deref(), Some("u@x"));
        assert_eq!(all.password.as_deref(), Some("p:q"));
        assert_eq!(all.topic.as_deref(), Some("a/b"));
    }

    #[test]
    fn what_a_url_leaves_out_has_its_default() {
        assert_eq!(target("mqtt://h").port, 1883);
        assert_eq!(target("mqtts://h/").topic, None);
        assert_eq!(target("ws://h:8083").websocket_path.as_deref(), Some("/mqtt"));
        assert_eq!(target("wss://[::1]/").websocket_path.as_deref(), Some("/"));
        assert_eq!(target("wss://[::1]/").host, "::1");
        assert_eq!(target("ws://[::1]:8083/x?y=1").port, 8083);
        assert_eq!(target("ws://[::1]:8083/x?y=1").websocket_path.as_deref(), Some("/x?y=1"));
        assert_eq!(target("mqtt://user@h").password, None);
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for url in
            ["h", "http://h", "mqtt://", "mqtt://:1883", "mqtt://h:x", "mqtt://h:65536", "mqtt://%zz@h", "mqtt://%ff@h"]
        {
            assert!(parse_url(url).is_err(), "{url}");
        }
    }
}
