//! From the configuration to who may connect, and the news of a change to all shards.

use std::sync::Arc;

use crate::access::{Access, AuthSettings, CertificateName, LoadError, Method, TokenSettings};
use crate::config::{Auth, Authenticator, CertName, Config, Jwt, TokenFrom};
use crate::shard::mailbox::{Event, Mailbox};

/// Reads passwords and keys as a configuration names them.
pub fn open(config: &Config) -> Result<Access, LoadError> {
    let at_listener = config.listeners.iter().filter_map(|listener| {
        let own = listener.auth.as_ref()?;
        Some((listener.name.clone(), settings(&config.auth.at(Some(own)))))
    });
    Access::with((settings(&config.auth), at_listener.collect()), config.auth.fail_delay.clone())
}

/// Passwords or keys have changed: every shard asks for those that are connected again.
pub(super) fn judge_all(access: &Arc<Access>, mailboxes: &[Mailbox]) {
    for mailbox in mailboxes {
        mailbox.push(Event::CredentialsChanged { access: access.clone() });
    }
}

fn settings(auth: &Auth) -> AuthSettings {
    let method = |authenticator: &Authenticator| match authenticator {
        Authenticator::File => Method::Password,
        Authenticator::Jwt => Method::Token,
        Authenticator::Cert => Method::Certificate,
    };
    AuthSettings {
        order: auth.order.iter().map(method).collect(),
        password_file: auth.password_file.clone(),
        tokens: auth.jwt.as_ref().map(token_settings),
        user_name_from: auth.cert.username_from.map(certificate_name),
        client_id_from: auth.cert.clientid_from.map(certificate_name),
    }
}

fn token_settings(jwt: &Jwt) -> TokenSettings {
    TokenSettings {
        secret_file: jwt.secret_file.clone(),
        public_key_file: jwt.public_key_file.clone(),
        jwks_file: jwt.jwks_file.clone(),
        in_user_name: jwt.from == TokenFrom::UserName,
        verify_claims: jwt.verify_claims.clone(),
        issuer: jwt.issuer.clone(),
        audience: jwt.audience.clone(),
        leeway_secs: jwt.leeway.as_secs(),
        disconnect_after_expire: jwt.disconnect_after_expire,
    }
}

fn certificate_name(name: CertName) -> CertificateName {
    match name {
        CertName::Cn => CertificateName::Cn,
        CertName::Dn => CertificateName::Dn,
        CertName::SanDns => CertificateName::SanDns,
        CertName::SanUri => CertificateName::SanUri,
        CertName::Sha256 => CertificateName::Sha256,
    }
}
