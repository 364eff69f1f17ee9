//! `[auth]`: how clients prove who they are.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeValue;

use super::reading::Section;
use super::units::parse_duration;
use super::values::{expected, parse_choice, parse_text};

pub(super) const KEYS: &[&str] = &["order", "password_file", "fail_delay", "jwt", "cert"];

/// Those that a listener may have of its own.
pub(super) const LISTENER_KEYS: &[&str] = &["order", "password_file", "jwt", "cert"];

pub(super) const JWT_KEYS: &[&str] = &[
    "secret_file",
    "public_key_file",
    "jwks_file",
    "from",
    "verify_claims",
    "issuer",
    "audience",
    "leeway",
    "disconnect_after_expire",
];

pub(super) const CERT_KEYS: &[&str] = &["username_from", "clientid_from"];

/// One way to prove who one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authenticator {
    /// The password file.
    File,
    /// JSON Web Tokens.
    Jwt,
    /// The client certificate.
    Cert,
}

const AUTHENTICATORS: [(&str, Authenticator); 3] =
    [("file", Authenticator::File), ("jwt", Authenticator::Jwt), ("cert", Authenticator::Cert)];

/// `[auth]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// Who is asked, in this order, until one knows the client. One that is not set up is passed over.
    pub order: Vec<Authenticator>,
    /// Users and hashed passwords in mosquitto's format, as `holdfast passwd` writes it. `None`: nobody has a password.
    pub password_file: Option<PathBuf>,
    /// How long the answer to a wrong password is held back, first and at the most. It doubles with each failure of one address and user.
    pub fail_delay: RangeInclusive<Duration>,
    /// Tokens; `None`: none is accepted.
    pub jwt: Option<Jwt>,
    /// What a client certificate says of its client.
    pub cert: Cert,
}

impl Default for Auth {
    fn default() -> Self {
        Auth {
            order: AUTHENTICATORS.map(|(_, authenticator)| authenticator).to_vec(),
            password_file: None,
            fail_delay: Duration::from_millis(200)..=Duration::from_secs(10),
            jwt: None,
            cert: Cert::default(),
        }
    }
}

/// `[auth.jwt]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwt {
    pub secret_file: Option<PathBuf>,
    pub public_key_file: Option<PathBuf>,
    pub jwks_file: Option<PathBuf>,
    pub from: TokenFrom,
    /// Claims and what they must be; `${username}` and `${clientid}` are those of CONNECT.
    pub verify_claims: BTreeMap<String, String>,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    pub leeway: Duration,
    pub disconnect_after_expire: bool,
}

/// Where in CONNECT a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFrom {
    Password,
    UserName,
}

/// `[auth.cert]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cert {
    /// What of the certificate is the user name; `None`: certificates prove no user.
    pub username_from: Option<CertName>,
    /// What of it the client id must be; a client that gives none has it.
    pub clientid_from: Option<CertName>,
}

/// What of a certificate names its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertName {
    Cn,
    Dn,
    SanDns,
    SanUri,
    Sha256,
}

/// The keys of `[auth]` that a listener has of its own; what it does not say is as in `[auth]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerAuth {
    pub order: Option<Vec<Authenticator>>,
    pub password_file: Option<PathBuf>,
    pub jwt: Option<Jwt>,
    pub cert: Option<Cert>,
}

impl Auth {
    pub(super) fn read(section: &mut Section<'_, '_>) -> Auth {
        let default = Auth::default();
        Auth {
            order: read_order(section, default.order),
            password_file: section.path("password_file"),
            fail_delay: section.optional("fail_delay", parse_fail_delay).unwrap_or(default.fail_delay),
            jwt: section.section("jwt", JWT_KEYS, Jwt::read),
            cert: section.section("cert", CERT_KEYS, Cert::read).unwrap_or_default(),
        }
    }

    /// As it holds at a listener.
    pub fn at(&self, listener: Option<&ListenerAuth>) -> Auth {
        let mut auth = self.clone();
        if let Some(own) = listener {
            auth.order = own.order.clone().unwrap_or(auth.order);
            auth.password_file = own.password_file.clone().or(auth.password_file);
            auth.jwt = own.jwt.clone().or(auth.jwt);
            auth.cert = own.cert.clone().unwrap_or(auth.cert);
        }
        auth
    }

    /// Whether some client can prove who it is. `certificates`: whether the listener asks for them.
    pub fn knows_somebody(&self, certificates: bool) -> bool {
        self.order.iter().any(|authenticator| match authenticator {
            Authenticator::File => self.password_file.is_some(),
            Authenticator::Jwt => self.jwt.is_some(),
            Authenticator::Cert => certificates && self.cert.username_from.is_some(),
        })
    }
}

impl ListenerAuth {
    pub(super) fn read(section: &mut Section<'_, '_>) -> ListenerAuth {
        let order = section.given("order").then(|| read_order(section, Vec::new()));
        ListenerAuth {
            order,
            password_file: section.path("password_file"),
            jwt: section.section("jwt", JWT_KEYS, Jwt::read),
            cert: section.section("cert", CERT_KEYS, Cert::read),
        }
    }
}

impl Jwt {
    fn read(section: &mut Section<'_, '_>) -> Jwt {
        let from = [("password", TokenFrom::Password), ("username", TokenFrom::UserName)];
        if !["secret_file", "public_key_file", "jwks_file"].iter().any(|key| section.given(key)) {
            section.error_at(
                "secret_file",
                "jwt: needs secret_file, public_key_file or jwks_file: the keys that tokens are signed with",
            );
        }
        let bounds = Duration::ZERO..=Duration::from_secs(3600);
        Jwt {
            secret_file: section.path("secret_file"),
            public_key_file: section.path("public_key_file"),
            jwks_file: section.path("jwks_file"),
            from: section.choice("from", TokenFrom::Password, &from),
            verify_claims: if section.given("verify_claims") {
                section.map("verify_claims", 32, |value| parse_text(value, 1024))
            } else {
                Default::default()
            },
            issuer: section.text("issuer", 1024),
            audience: section.text("audience", 1024),
            leeway: section.duration("leeway", Duration::ZERO, bounds),
            disconnect_after_expire: section.bool("disconnect_after_expire", true),
        }
    }
}

impl Cert {
    fn read(section: &mut Section<'_, '_>) -> Cert {
        let names = [
            ("cn", CertName::Cn),
            ("dn", CertName::Dn),
            ("san_dns", CertName::SanDns),
            ("san_uri", CertName::SanUri),
            ("sha256", CertName::Sha256),
        ];
        Cert {
            username_from: section.optional("username_from", |value| parse_choice(value, &names)),
            clientid_from: section.optional("clientid_from", |value| parse_choice(value, &names)),
        }
    }
}

fn read_order(section: &mut Section<'_, '_>, default: Vec<Authenticator>) -> Vec<Authenticator> {
    section.list("order", default, AUTHENTICATORS.len(), |value| parse_choice(value, &AUTHENTICATORS))
}

/// `200ms..10s`, or `off`.
fn parse_fail_delay(value: &DeValue<'_>) -> Result<RangeInclusive<Duration>, String> {
    const EXPECTED: &str = "the first and the longest delay, such as \"200ms..10s\", at most 60s; or \"off\"";
    let text = value.as_str().ok_or_else(|| expected(EXPECTED, value))?;
    if text == "off" {
        return Ok(Duration::ZERO..=Duration::ZERO);
    }
    let range =
        text.split_once("..").and_then(|(first, longest)| Some((parse_duration(first)?, parse_duration(longest)?)));
    match range {
        Some((first, longest)) if !first.is_zero() && first <= longest && longest <= Duration::from_secs(60) => {
            Ok(first..=longest)
        }
        _ => Err(format!("expected {EXPECTED}")),
    }
}
