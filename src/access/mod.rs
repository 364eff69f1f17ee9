//! Who a client is: by a password, a token or a certificate. What it may do then is [`acl`]'s.
//!
//! One [`Access`] for each node, shared by all shards. It owns the users and keys that were read last; [`Access::reload`] replaces all of them or
//! none, so that a connection is judged by the old files or the new ones and never by a mixture. Who is connected is asked for again then
//! ([`Access::still_holds`]). It also owns the threads that hash passwords ([`hashing`]) and who has failed of late ([`fail_delay`]).
//!
//! A listener has a [`Policy`]: authenticators in an order. Each knows the client, refuses it, or does not know what it shows; then the next is asked. One
//! that shows something which nobody knows is refused; one that shows nothing is anonymous where the listener lets such in.
//!
//! Invariants: it fails closed. A file that cannot be read, or in which one line is wrong, is refused as a whole: at start the node does
//! not come up, later what was read before stays. A user that does not exist costs as much time as a wrong password.
//! Neither a password, a token nor a hash reaches a log line or an error.
//!
//! Tests to read first: `tests::who_is_let_in`, `password_file::tests`, `jwt::tests`.

pub mod acl;
pub mod bans;
mod fail_delay;
mod hashing;
mod identity;
mod jwt;
mod password_file;
mod password_hash;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use fail_delay::{FailDelay, Pair};
use hashing::{Hashing, WAITING_MAX};
pub use identity::{Attributes, Certificate, Denial, Identity, Login, Method};
use jwt::{Bearer, Tokens, looks_like_token};
pub use jwt::{KeyError, TokenSettings};
pub use password_file::{AccessError, PasswordFile, UserNameError};
pub use password_hash::{HashKind, PasswordHash};

use crate::metrics::{AuthCounts, AuthResult};
use crate::mqtt::ReasonCode;

/// Clients whose answer is held back at one time. More of them are told at once that the server is busy.
const DELAYED_MAX: usize = 4096;

/// What the configuration says for the node, or for one listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthSettings {
    /// Who is asked, in this order: of [`Method::Password`], [`Method::Token`] and [`Method::Certificate`].
    pub order: Vec<Method>,
    pub password_file: Option<PathBuf>,
    pub tokens: Option<TokenSettings>,
    pub user_name_from: Option<CertificateName>,
    pub client_id_from: Option<CertificateName>,
}

/// What of a certificate names its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateName {
    Cn,
    Dn,
    SanDns,
    SanUri,
    Sha256,
}

/// The settings of the node, and those of listeners that differ.
pub type Settings = (AuthSettings, Vec<(String, AuthSettings)>);

/// Why what clients are judged by cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Passwords(#[from] AccessError),
    #[error("keys of tokens: {0}")]
    Keys(#[from] KeyError),
}

/// Who is asked at one listener.
#[derive(Debug, Clone, Default)]
struct Policy {
    order: Vec<Method>,
    users: Option<Arc<PasswordFile>>,
    tokens: Option<Arc<Tokens>>,
    user_name_from: Option<CertificateName>,
    client_id_from: Option<CertificateName>,
}

#[derive(Debug, Default)]
struct Policies {
    everywhere: Policy,
    at_listener: HashMap<String, Policy>,
}

impl Policies {
    fn at(&self, listener: &str) -> &Policy {
        self.at_listener.get(listener).unwrap_or(&self.everywhere)
    }
}

/// Decides who may connect.
#[derive(Debug)]
pub struct Access {
    settings: Settings,
    policies: ArcSwap<Policies>,
    hashing: Hashing,
    failed: Mutex<FailDelay>,
    /// Makes numbers of user names that nobody can choose.
    hasher: foldhash::quality::RandomState,
    /// The zero of the times in `failed`.
    zero: Instant,
    delayed: AtomicUsize,
    /// What became of those that came.
    pub counts: AuthCounts,
}

impl Access {
    /// Reads the password file, if there is one; nobody else is asked, and failures cost no time.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is wrong: all of its wrong lines.
    pub fn new(password_file: Option<&Path>) -> Result<Self, LoadError> {
        let everywhere = AuthSettings {
            order: vec![Method::Password],
            password_file: password_file.map(Path::to_owned),
            ..AuthSettings::default()
        };
        Access::with((everywhere, Vec::new()), Duration::ZERO..=Duration::ZERO)
    }

    /// Reads all files that the settings name.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub fn with(settings: Settings, fail_delay: RangeInclusive<Duration>) -> Result<Self, LoadError> {
        let policies = load(&settings)?;
        let millis = |delay: &Duration| delay.as_millis() as u64;
        Ok(Access {
            settings,
            policies: ArcSwap::from_pointee(policies),
            hashing: Hashing::new(WAITING_MAX),
            failed: Mutex::new(FailDelay::new(millis(fail_delay.start())..=millis(fail_delay.end()))),
            hasher: foldhash::quality::RandomState::default(),
            zero: Instant::now(),
            delayed: AtomicUsize::new(0),
            counts: AuthCounts::default(),
        })
    }

    /// Reads the files again; `false` if there are none. Who is connected is asked for by [`Access::still_holds`].
    ///
    /// # Errors
    /// As [`Access::with`]; everything is then as it was.
    pub fn reload(&self) -> Result<bool, LoadError> {
        let policies = load(&self.settings)?;
        let any = |policy: &Policy| policy.users.is_some() || policy.tokens.is_some();
        let is_read = any(&policies.everywhere) || policies.at_listener.values().any(any);
        self.policies.store(Arc::new(policies));
        Ok(is_read)
    }

    /// How many users have a password.
    pub fn user_count(&self) -> usize {
        let policies = self.policies.load();
        let all = std::iter::once(&policies.everywhere).chain(policies.at_listener.values());
        all.filter_map(|policy| policy.users.as_ref()).map(|users| users.len()).sum()
    }

    /// Whether what a connected client has proved when it came would still let it in. Takes no time.
    pub fn still_holds(&self, listener: &str, identity: &Identity) -> bool {
        let policies = self.policies.load();
        let policy = policies.at(listener);
        match identity.method {
            Method::Password => {
                let users = policy.users.as_deref().zip(identity.user_name.as_deref());
                users.is_some_and(|(users, name)| users.number_of(name) == Some(identity.proof))
            }
            Method::Token => policy.tokens.as_deref().is_some_and(|tokens| tokens.holds(identity.proof)),
            Method::Certificate | Method::Anonymous => true,
        }
    }

    /// Whether deciding about this client may take time. If not, [`Access::authenticate`] never waits.
    pub fn takes_time(&self, login: &Login<'_>) -> bool {
        let shows = login.user_name.is_some() || login.password.is_some() || login.bearer.is_some();
        let policies = self.policies.load();
        let policy = policies.at(login.listener);
        shows && (policy.users.is_some() || policy.tokens.is_some())
    }

    /// Decides about a CONNECT (MQTT 5.0, 3.1.3.5, 3.1.3.6).
    ///
    /// Where neither passwords nor tokens are known, names are not checked: who is let in is anonymous, whatever name it gives. A client that
    /// gives a name or a password where there are some must know the right one, also where anonymous clients are let in.
    ///
    /// May take 100 ms and longer, and seconds after failures. Dropping the future gives up the wait.
    ///
    /// # Errors
    /// `NotAuthorized`: it shows nothing, and anonymous clients are not let in; or its token is refused. `BadUserNameOrPassword`: unknown user, or another
    /// password, or none. `ServerBusy`: too many passwords are waiting to be hashed, or too many attempts of this address and user.
    pub async fn authenticate(&self, login: &Login<'_>) -> Result<Identity, Denial> {
        let policies = self.policies.load_full();
        let policy = policies.at(login.listener);
        let pair = self.takes_time(login).then(|| self.pair(login));
        let answer = match self.wait_for_turn(pair).await {
            Ok(()) => self.ask(policy, login).await,
            Err(denial) => Err(denial),
        };
        let answer = answer.and_then(|identity| policy.check_client_id(login, identity));
        let (method, result) = match &answer {
            Ok(identity) => (identity.method, AuthResult::Allowed),
            Err(denial) if denial.reason == ReasonCode::ServerBusy => (denial.method, AuthResult::Busy),
            Err(denial) => (denial.method, AuthResult::Denied),
        };
        self.counts.count(method as usize, result);
        match (&answer, pair) {
            (Ok(_), Some(pair)) => self.failed.lock().succeeded(pair),
            (Err(denial), Some(pair)) if denial.reason != ReasonCode::ServerBusy => self.hold_back(pair).await,
            _ => {}
        }
        answer
    }

    async fn ask(&self, policy: &Policy, login: &Login<'_>) -> Result<Identity, Denial> {
        for method in &policy.order {
            let answer = match method {
                Method::Password => self.ask_users(policy, login).await,
                Method::Token => ask_tokens(policy, login),
                _ => policy.ask_certificate(login),
            };
            if let Some(answer) = answer {
                return answer;
            }
        }
        let asked = policy.users.is_some() || policy.tokens.is_some();
        if asked && (login.user_name.is_some() || login.bearer.is_some()) {
            let method = if policy.users.is_some() { Method::Password } else { Method::Token };
            return Err(unknown(method));
        }
        if login.allow_anonymous {
            return Ok(Identity { attributes: attributes_of(login), ..Identity::default() });
        }
        let why = "there is no user name, and anonymous clients are not let in";
        Err(Denial::new(Method::Anonymous, ReasonCode::NotAuthorized, why))
    }

    /// `None`: the password file does not know what the client shows, and somebody else is asked.
    async fn ask_users(&self, policy: &Policy, login: &Login<'_>) -> Option<Result<Identity, Denial>> {
        let (users, user_name) = (policy.users.as_ref()?, login.user_name?);
        let text = || login.password.and_then(|password| std::str::from_utf8(password).ok());
        let is_token = policy.tokens.is_some() && text().is_some_and(looks_like_token);
        if users.number_of(user_name).is_none() && (is_token || login.bearer.is_some()) {
            return None;
        }
        let (users, user_name) = (users.clone(), Box::<str>::from(user_name));
        let password = Zeroizing::new(login.password.map(<[u8]>::to_vec));
        let hashed = self.hashing.run(move || users.verify(&user_name, password.as_deref())).await;
        Some(match hashed {
            Ok(Some((user_name, proof))) => {
                let user_name = Some(user_name);
                Ok(Identity { user_name, method: Method::Password, proof, ..with_certificate(login) })
            }
            Ok(None) => Err(unknown(Method::Password)),
            Err(hashing::Busy) => {
                let why = "too many passwords are waiting to be checked";
                Err(Denial::new(Method::Password, ReasonCode::ServerBusy, why))
            }
        })
    }

    fn pair(&self, login: &Login<'_>) -> Pair {
        (login.address.to_canonical(), self.hasher.hash_one(login.user_name.unwrap_or_default()))
    }

    fn now_ms(&self) -> u64 {
        self.zero.elapsed().as_millis() as u64
    }

    async fn wait_for_turn(&self, pair: Option<Pair>) -> Result<(), Denial> {
        let busy = Denial::new(
            Method::Password,
            ReasonCode::ServerBusy,
            "this address has failed with this user too often: fail_delay of [auth]",
        );
        let Some(pair) = pair else { return Ok(()) };
        let wait = self.failed.lock().arrive(pair, self.now_ms()).ok_or(busy)?;
        if wait > 0 && !self.sleep(wait).await {
            return Err(busy);
        }
        Ok(())
    }

    async fn hold_back(&self, pair: Pair) {
        let delay = self.failed.lock().failed(pair, self.now_ms());
        if delay > 0 {
            // Where too many wait, the answer goes at once.
            let _ = self.sleep(delay).await;
        }
    }

    /// `false`, at once: too many sleep already.
    async fn sleep(&self, millis: u64) -> bool {
        let Some(_place) = Place::take(&self.delayed, DELAYED_MAX) else { return false };
        tokio::time::sleep(Duration::from_millis(millis)).await;
        true
    }
}

fn load((everywhere, at_listener): &Settings) -> Result<Policies, LoadError> {
    let read = |settings: &AuthSettings| {
        let asks = |method| settings.order.contains(&method);
        let users = settings.password_file.as_deref().filter(|_| asks(Method::Password));
        let tokens = settings.tokens.as_ref().filter(|_| asks(Method::Token));
        Ok::<_, LoadError>(Policy {
            order: settings.order.clone(),
            users: users.map(PasswordFile::load).transpose()?.map(Arc::new),
            tokens: tokens.map(Tokens::load).transpose()?.map(Arc::new),
            user_name_from: settings.user_name_from.filter(|_| asks(Method::Certificate)),
            client_id_from: settings.client_id_from,
        })
    };
    let at_listener = at_listener.iter().map(|(name, settings)| Ok((name.clone(), read(settings)?)));
    Ok(Policies { everywhere: read(everywhere)?, at_listener: at_listener.collect::<Result<_, LoadError>>()? })
}

fn unknown(method: Method) -> Denial {
    Denial::new(method, ReasonCode::BadUserNameOrPassword, "unknown user or wrong password")
}

/// `None`: there is no token, or nobody judges them.
fn ask_tokens(policy: &Policy, login: &Login<'_>) -> Option<Result<Identity, Denial>> {
    let tokens = policy.tokens.as_deref()?;
    let in_password = login.password.and_then(|password| std::str::from_utf8(password).ok());
    let in_packet = if tokens.in_user_name() { login.user_name } else { in_password };
    let token = in_packet.filter(|text| looks_like_token(text)).or(login.bearer)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |now| now.as_secs());
    let judged = tokens.judge(token, Bearer { client_id: login.client_id, user_name: login.user_name }, now);
    Some(match judged {
        Ok(mut identity) => {
            if let (Some(attributes), Some(certificate)) = (&mut identity.attributes, login.certificate) {
                attributes.cert_cn = certificate.cn.as_deref().map(Arc::from);
            }
            Ok(identity)
        }
        Err(why) => Err(Denial::new(Method::Token, ReasonCode::NotAuthorized, why)),
    })
}

fn attributes_of(login: &Login<'_>) -> Option<Box<Attributes>> {
    let cert_cn = login.certificate?.cn.as_deref().map(Arc::from);
    Some(Box::new(Attributes { cert_cn, ..Attributes::default() }))
}

fn with_certificate(login: &Login<'_>) -> Identity {
    Identity { attributes: attributes_of(login), ..Identity::default() }
}

impl Policy {
    /// `None`: there is no certificate, or certificates prove no user.
    fn ask_certificate(&self, login: &Login<'_>) -> Option<Result<Identity, Denial>> {
        let certificate = login.certificate?;
        Some(match certificate.name(self.user_name_from?) {
            Some(name) => {
                let user_name = Some(name.into());
                Ok(Identity { user_name, method: Method::Certificate, ..with_certificate(login) })
            }
            None => {
                let why = "the certificate has not the name that username_from asks for";
                Err(Denial::new(Method::Certificate, ReasonCode::NotAuthorized, why))
            }
        })
    }

    /// Where the client id is the certificate's, no other one is let in.
    fn check_client_id(&self, login: &Login<'_>, mut identity: Identity) -> Result<Identity, Denial> {
        let Some((from, certificate)) = self.client_id_from.zip(login.certificate) else {
            return Ok(identity);
        };
        match certificate.name(from) {
            Some(name) if login.client_id.is_empty() || login.client_id == name => {
                identity.client_id = Some(name.into());
                Ok(identity)
            }
            _ => {
                let why = "the client id is not the one that its certificate names (clientid_from)";
                Err(Denial::new(Method::Certificate, ReasonCode::ClientIdentifierNotValid, why))
            }
        }
    }
}

impl Certificate {
    fn name(&self, from: CertificateName) -> Option<&str> {
        let name = match from {
            CertificateName::Cn => self.cn.as_deref(),
            CertificateName::Dn => Some(self.dn.as_str()),
            CertificateName::SanDns => self.san_dns.as_deref(),
            CertificateName::SanUri => self.san_uri.as_deref(),
            CertificateName::Sha256 => Some(self.sha256.as_str()),
        };
        name.filter(|name| !name.is_empty())
    }
}

/// Counts one that waits, for as long as it does.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    /// `None` when too many wait already.
    fn take(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        let place = Place(count);
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
