//! JSON Web Tokens (RFC 7519) as proof of who a client is. [pure but for the reading of the key files]
//!
//! [`Tokens`] owns the keys that were read last and what is asked of a token. A token is three parts in base64url: header, claims, signature.
//!
//! Invariants: the key decides which algorithms it is good for, never the token alone, so that a public key is never taken for the secret of an HMAC and `none`
//! is no algorithm; nothing of a token is believed before its signature is; fails closed. No part of a token reaches a log or an error.
//!
//! The tests to read first: `tests::who_is_let_in_by_a_token`, `tests::algorithms_are_not_confused`.

mod keys;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::identity::{Attributes, Identity, Method};
pub use keys::KeyError;
use keys::{Algorithm, Keys};

/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Claims that are handed on, and the longest of them.
const CLAIMS_MAX: usize = 64;
const CLAIM_BYTES_MAX: usize = 1024;

/// What the configuration says about tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenSettings {
    /// The secret of an HMAC, as it is in the file but for one line end.
    pub secret_file: Option<PathBuf>,
    /// Public keys in PEM.
    pub public_key_file: Option<PathBuf>,
    /// A JSON Web Key Set (RFC 7517).
    pub jwks_file: Option<PathBuf>,
    /// Whether the token is in the user name instead of the password.
    pub in_user_name: bool,
    /// Claims and what they must be; `${username}` and `${clientid}` stand for those of CONNECT.
    pub verify_claims: BTreeMap<String, String>,
    pub issuer: Option<String>,
    pub audience: Option<String>,
    /// By how many seconds clocks may differ.
    pub leeway_secs: u64,
    /// Whether a connection ends when its token does.
    pub disconnect_after_expire: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tokens {
    settings: TokenSettings,
    keys: Keys,
}

/// Whose token it is said to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bearer<'a> {
    pub client_id: &'a str,
    pub user_name: Option<&'a str>,
}

impl Tokens {
    pub fn load(settings: &TokenSettings) -> Result<Tokens, KeyError> {
        Ok(Tokens { settings: settings.clone(), keys: Keys::load(settings)? })
    }

    pub fn in_user_name(&self) -> bool {
        self.settings.in_user_name
    }

    /// Whether a key of that number is among those that hold.
    pub fn holds(&self, key: u64) -> bool {
        self.keys.holds(key)
    }

    /// Who the bearer of a token is. The error says why it is nobody. `now`: seconds of Unix time.
    pub fn judge(&self, token: &str, bearer: Bearer<'_>, now: u64) -> Result<Identity, &'static str> {
        let (header, claims, signed, signature) = split(token).ok_or("this is no token")?;
        if header.contains_key("crit") {
            return Err("the token asks for an extension that is not known");
        }
        let algorithm = header.get("alg").and_then(Value::as_str).and_then(Algorithm::of);
        let algorithm = algorithm.ok_or("the algorithm of the token is not one that is accepted")?;
        let key_id = header.get("kid").and_then(Value::as_str);
        let key = self.keys.verify(algorithm, key_id, signed.as_bytes(), &signature);
        let proof = key.ok_or("the signature of the token is of none of the keys")?;
        let expires_at = self.check_times(&claims, now)?;
        self.check_claims(&claims, bearer)?;
        let is_bound = |claim: &String| claim == "${username}";
        let user_name = match bearer.user_name {
            Some(name) if !self.settings.in_user_name && self.settings.verify_claims.values().any(is_bound) => {
                Some(name.into())
            }
            _ => claims.get("sub").and_then(Value::as_str).map(Arc::from),
        };
        let expires_at = expires_at.filter(|_| self.settings.disconnect_after_expire);
        let attributes = Some(Box::new(attributes(&claims)));
        Ok(Identity { user_name, client_id: None, method: Method::Token, proof, expires_at, attributes })
    }

    /// When the token runs out, if it is one that holds now.
    fn check_times(&self, claims: &Map<String, Value>, now: u64) -> Result<Option<u64>, &'static str> {
        let leeway = self.settings.leeway_secs;
        let time = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => {
                let secs =
                    value.as_u64().or_else(|| value.as_f64().filter(|secs| *secs >= 0.0).map(|secs| secs as u64));
                secs.map(Some).ok_or("exp or nbf of the token is no time")
            }
        };
        let expires_at = time("exp")?.map(|at| at.saturating_add(leeway));
        if expires_at.is_some_and(|at| at <= now) {
            return Err("the token has expired");
        }
        if time("nbf")?.is_some_and(|from| from > now.saturating_add(leeway)) {
            return Err("the token does not hold yet");
        }
        Ok(expires_at)
    }

    fn check_claims(&self, claims: &Map<String, Value>, bearer: Bearer<'_>) -> Result<(), &'static str> {
        let is = |name: &str, expected: &str| claims.get(name).and_then(Value::as_str) == Some(expected);
        if self.settings.issuer.as_deref().is_some_and(|issuer| !is("iss", issuer)) {
            return Err("the issuer of the token is another one");
        }
        if let Some(audience) = self.settings.audience.as_deref() {
            let listed = |all: &Vec<Value>| all.iter().any(|one| one.as_str() == Some(audience));
            if !is("aud", audience) && !claims.get("aud").and_then(Value::as_array).is_some_and(listed) {
                return Err("the token is for another audience");
            }
        }
        for (name, expected) in &self.settings.verify_claims {
            let expected = match expected.as_str() {
                "${username}" => bearer.user_name,
                "${clientid}" => Some(bearer.client_id),
                text => Some(text),
            };
            let found = claims.get(name).and_then(text_of);
            if expected.is_none() || found.as_deref() != expected {
                return Err("a claim of the token is not what verify_claims asks for");
            }
        }
        Ok(())
    }
}

/// Whether a text has the form of a token.
pub(super) fn looks_like_token(text: &str) -> bool {
    let header = || {
        let bytes = URL_SAFE_NO_PAD.decode(text.split('.').next()?).ok()?;
        serde_json::from_slice::<Map<String, Value>>(&bytes).ok()
    };
    text.len() <= TOKEN_BYTES_MAX
        && text.bytes().filter(|byte| *byte == b'.').count() == 2
        && header().is_some_and(|header| header.contains_key("alg"))
}

/// Header, claims, what was signed, and the signature.
type Parts<'a> = (Map<String, Value>, Map<String, Value>, &'a str, Vec<u8>);

fn split(token: &str) -> Option<Parts<'_>> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let object = |part: &str| serde_json::from_slice(&decode(part)?).ok();
    Some((object(header)?, object(claims)?, signed, decode(signature)?))
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

fn attributes(claims: &Map<String, Value>) -> Attributes {
    let texts = claims.iter().filter_map(|(name, value)| Some((name.as_str().into(), text_of(value)?.into())));
    let short = |(name, value): &(Arc<str>, Arc<str>)| name.len().max(value.len()) <= CLAIM_BYTES_MAX;
    Attributes {
        claims: texts.filter(short).take(CLAIMS_MAX).collect(),
        acl_claim: claims.get("acl").map(|acl| acl.to_string().into()),
        cert_cn: None,
    }
}
