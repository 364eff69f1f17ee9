//! Who a client has proved to be, and by what: the one type that authorization, the shards and the log read. [pure]
//!
//! A listener makes it when a client is let in; it then belongs to the connection. Invariant: what is in it was checked; a name that nobody
//! checked is not an identity.

use std::net::IpAddr;
use std::sync::Arc;

use crate::mqtt::ReasonCode;

/// How a client proved who it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(usize)]
pub enum Method {
    /// Not at all.
    #[default]
    Anonymous,
    /// A user of the password file.
    Password,
    /// A JSON Web Token (RFC 7519).
    Token,
    /// A TLS client certificate.
    Certificate,
}

impl Method {
    pub const ALL: [Method; 4] = [Method::Anonymous, Method::Password, Method::Token, Method::Certificate];

    /// The word for logs and the label `method`.
    pub fn label(self) -> &'static str {
        match self {
            Method::Anonymous => "anonymous",
            Method::Password => "password",
            Method::Token => "jwt",
            Method::Certificate => "cert",
        }
    }
}

/// Who a client has proved to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user; `None` is anonymous.
    pub user_name: Option<Arc<str>>,
    /// The client id that its certificate names, whatever CONNECT says.
    pub client_id: Option<Arc<str>>,
    pub method: Method,
    /// What stands behind the name: a number of the user's line in the password file or of the token's key, which is another one when that has changed. 0: nothing
    /// that could be withdrawn.
    pub proof: u64,
    /// When the proof runs out, in seconds of Unix time.
    pub expires_at: Option<u64>,
    /// What a token or a certificate says besides; most clients have neither.
    pub attributes: Option<Box<Attributes>>,
}

/// What a token or a certificate says of a client besides its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Claims of the token that are texts or numbers, and their values.
    pub claims: Vec<(Arc<str>, Arc<str>)>,
    /// The claim `acl` of the token, as JSON.
    pub acl_claim: Option<Arc<str>>,
    /// Common name of the certificate.
    pub cert_cn: Option<Arc<str>>,
}

/// What a client shows when it comes.
#[derive(Debug, Clone, Copy)]
pub struct Login<'a> {
    /// The listener that it came through.
    pub listener: &'a str,
    pub allow_anonymous: bool,
    pub address: IpAddr,
    pub client_id: &'a str,
    pub user_name: Option<&'a str>,
    pub password: Option<&'a [u8]>,
    /// The token of an `Authorization: Bearer` of the WebSocket upgrade.
    pub bearer: Option<&'a str>,
    /// What TLS has verified.
    pub certificate: Option<&'a Certificate>,
}

/// The names in a verified client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    pub cn: Option<String>,
    /// The whole subject.
    pub dn: String,
    pub san_dns: Option<String>,
    pub san_uri: Option<String>,
    /// Of its DER form, in hexadecimal digits.
    pub sha256: String,
}

/// Why a client is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Denial {
    pub reason: ReasonCode,
    /// For the log, and the Reason String.
    pub why: &'static str,
    pub method: Method,
}

impl Denial {
    pub(super) fn new(method: Method, reason: ReasonCode, why: &'static str) -> Denial {
        Denial { reason, why, method }
    }
}
