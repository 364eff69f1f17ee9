//! Who asks, and what that one may: whoever has the token or an API key; without a token, whoever is on this machine and is no web page.
//!
//! A port on loopback is open to every page that a browser on this machine shows, unless it looks twice: a page may send requests anywhere, and
//! a name of its own may be made to mean 127.0.0.1. So without a token the Host must be an address or `localhost`, and a request that says which page it
//! comes from (`Origin`) is refused. No answer ever says that a page may read it (CORS).
//!
//! A request that shows something is judged by that alone, also where nothing need be shown. An address that has shown [`WRONG_MAX`] wrong ones within [`WRONG_WINDOW`] is not listened to until that is over.
//!
//! Owner: the admin port. Invariant: what is remembered of addresses has a bound.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Uri};
use parking_lot::Mutex;
use tracing::warn;

use super::keys::{Keys, Shown};
use super::table::{Role, Route, Scope};
use super::token::Token;
use super::{Exposition, Kind, Trouble};
use crate::metrics;

/// Wrong tokens and keys of one address within a while.
pub(super) const WRONG_MAX: u32 = 20;
const WRONG_WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered; beyond that all others share one.
const ADDRESSES_MAX: usize = 1_024;

/// The other header that keys come in.
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    /// `local`, `token` or `key NAME`.
    pub name: String,
    role: Role,
    /// `None`: all.
    scopes: Option<Vec<Scope>>,
}

impl Caller {
    /// Whoever may do everything.
    fn all(name: &str) -> Caller {
        Caller { name: name.to_owned(), role: Role::Admin, scopes: None }
    }

    fn of(key: Shown) -> Caller {
        Caller { name: format!("key {}", key.name), role: key.role, scopes: Some(key.scopes) }
    }

    /// Whether it may ask this.
    pub fn may(&self, route: &Route) -> Result<(), Trouble> {
        let (role, scope) = (route.role, route.scope);
        if self.scopes.as_ref().is_some_and(|scopes| !scopes.contains(&scope)) {
            let message = format!("the {} has not the scope {:?}, which this needs", self.name, scope.name());
            return Err(Trouble::new(403, "scope", message).hint("`holdfast key add` makes one that has it"));
        }
        if self.role < role {
            let message =
                format!("the {} is of the role {:?}, and this needs {:?}", self.name, self.role.name(), role.name());
            return Err(Trouble::new(403, "role", message).hint("`holdfast key add --role` makes one of another role"));
        }
        Ok(())
    }
}

/// Why requests were turned away, each with its counter.
const REASONS: [&str; 6] = ["unauthorized", "throttled", "origin", "host", "role", "scope"];

/// See the module.
#[derive(Debug)]
pub(super) struct Callers {
    token: Option<Token>,
    wrong: Mutex<HashMap<Option<IpAddr>, (Instant, u32)>>,
    refused: [AtomicU64; REASONS.len()],
}

impl Callers {
    pub fn new(token: Option<Token>) -> Callers {
        Callers { token, wrong: Mutex::default(), refused: Default::default() }
    }

    /// Judges a request by its head and where it comes from. What is refused is counted and told.
    pub fn judge(
        &self,
        keys: &Keys,
        route: Option<&Route>,
        from: IpAddr,
        (uri, headers): (&Uri, &HeaderMap),
    ) -> Result<Caller, Trouble> {
        let judged = self.who(keys, from, uri, headers);
        let judged = judged.and_then(|caller| route.map_or(Ok(()), |route| caller.may(route)).map(|()| caller));
        if let Err(trouble) = &judged {
            self.note(trouble, from, uri);
        }
        judged
    }

    fn who(&self, keys: &Keys, from: IpAddr, uri: &Uri, headers: &HeaderMap) -> Result<Caller, Trouble> {
        if let Some(shown) = shown(headers) {
            return self.by_what_is_shown(keys, from, shown);
        }
        if self.token.is_some() {
            return Err(unauthorized("a token or an API key is needed here"));
        }
        if headers.contains_key(ORIGIN) {
            return Err(Trouble::new(403, "origin", "web pages may not ask here").hint("set token_file under [admin]"));
        }
        if !is_addressed_here(uri, headers) {
            let message = "the Host of the request is neither an address nor localhost";
            return Err(
                Trouble::new(403, "host", message).hint("ask http://127.0.0.1:PORT, or set token_file under [admin]")
            );
        }
        Ok(Caller::all("local"))
    }

    fn by_what_is_shown(&self, keys: &Keys, from: IpAddr, shown: &[u8]) -> Result<Caller, Trouble> {
        if self.is_throttled(from) {
            let message = "too many wrong tokens and keys came from there";
            return Err(Trouble::new(429, "throttled", message)
                .hint(format!("show nothing wrong for {} s", WRONG_WINDOW.as_secs())));
        }
        if self.token.as_ref().is_some_and(|token| token.is(shown)) {
            return Ok(Caller::all("token"));
        }
        keys.shown(shown).map(Caller::of).ok_or_else(|| {
            self.note_wrong(from);
            unauthorized("this is neither the token nor an API key of this node")
        })
    }

    fn is_throttled(&self, from: IpAddr) -> bool {
        let wrong = self.wrong.lock();
        let count_of = |key| wrong.get(&key).filter(|(since, _)| since.elapsed() < WRONG_WINDOW);
        let known = count_of(Some(from)).or_else(|| count_of(None).filter(|_| wrong.len() >= ADDRESSES_MAX));
        known.is_some_and(|(_, count)| *count >= WRONG_MAX)
    }

    fn note_wrong(&self, from: IpAddr) {
        let mut wrong = self.wrong.lock();
        if wrong.len() >= ADDRESSES_MAX {
            wrong.retain(|_, (since, _)| since.elapsed() < WRONG_WINDOW);
        }
        let key = Some(from).filter(|from| wrong.len() < ADDRESSES_MAX || wrong.contains_key(&Some(*from)));
        let entry = wrong.entry(key).or_insert((Instant::now(), 0));
        if entry.0.elapsed() >= WRONG_WINDOW {
            *entry = (Instant::now(), 0);
        }
        entry.1 += 1;
    }

    fn note(&self, trouble: &Trouble, from: IpAddr, uri: &Uri) {
        if let Some(at) = REASONS.iter().position(|reason| *reason == trouble.code) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
        if metrics::admit_line("admin refused").is_some() {
            let (path, message) = (uri.path().chars().take(200).collect::<String>(), &trouble.message);
            warn!(event = "admin_refused", %from, path, reason = trouble.code, "the admin port refused a request: {message}");
        }
    }

    pub fn metrics(&self, out: &mut Exposition) {
        out.family("admin_refused_total", Kind::Counter, "Requests that the admin port turned away.");
        for (reason, count) in REASONS.iter().zip(&self.refused) {
            out.sample(&[("reason", reason)], count.load(Ordering::Relaxed) as f64);
        }
    }
}

fn unauthorized(message: &str) -> Trouble {
    Trouble::new(401, "unauthorized", message)
        .hint("send the header  Authorization: Bearer TOKEN,  or say --token-file FILE")
}

/// What a request shows to be let in; a scheme that is not known here shows nothing good.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(&X_API_KEY) {
        return Some(key.as_bytes().trim_ascii());
    }
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let given = value.split_at_checked("Bearer ".len()).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    Some(given.map_or(&[], |(_, given)| given.trim_ascii()))
}

fn is_addressed_here(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = uri.authority().map(|authority| authority.as_str()).or(host) else {
        return true;
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::table::TABLE;
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

    fn map(headers: &[(&'static str, &str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    struct Port {
        callers: Callers,
        keys: Keys,
    }

    impl Port {
        fn new(token: Option<&str>) -> Port {
            let token = token.map(|token| {
                let file = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(file.path(), token).unwrap();
                Token::read(file.path()).unwrap()
            });
            Port { callers: Callers::new(token), keys: Keys::open(None, None).unwrap() }
        }

        fn from(&self, from: IpAddr, headers: &[(&'static str, &str)]) -> Result<String, &'static str> {
            let judged = self.callers.judge(&self.keys, None, from, (&Uri::from_static("/x"), &map(headers)));
            judged.map(|caller| caller.name).map_err(|trouble| trouble.code)
        }

        fn judged(&self, headers: &[(&'static str, &str)]) -> Result<String, &'static str> {
            self.from(HERE, headers)
        }
    }

    #[test]
    fn without_a_token_web_pages_and_other_names_are_refused() {
        let port = Port::new(None);
        let local = Ok("local".to_owned());
        for host in ["127.0.0.1:18083", "localhost", "LocalHost:1", "[::1]:18083", "10.0.0.1"] {
            assert_eq!(port.judged(&[("host", host)]), local, "{host}");
        }
        assert_eq!(port.judged(&[]), local, "HTTP/1.0");
        for host in ["evil.example", "evil.example:18083", "localhost.evil.example:1", "[evil]:1", ""] {
            assert_eq!(port.judged(&[("host", host)]), Err("host"), "{host}");
        }
        assert_eq!(port.judged(&[("host", "127.0.0.1"), ("origin", "http://127.0.0.1")]), Err("origin"));
    }

    #[test]
    fn a_token_and_a_key_let_in_and_nothing_else_does() {
        let port = Port::new(Some("0123456789abcdef"));
        let made = port.keys.add("ci", Role::Viewer, &[Scope::Read], 1).unwrap();
        let bearer = format!("Bearer {}", made.secret);
        for good in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef "] {
            assert_eq!(port.judged(&[("authorization", good)]), Ok("token".to_owned()), "{good}");
        }
        assert_eq!(port.judged(&[("authorization", &bearer)]), Ok("key ci".to_owned()));
        assert_eq!(port.judged(&[("x-api-key", &made.secret)]), Ok("key ci".to_owned()));
        for wrong in ["", "Bearer", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer 0123456789abcdeg"]
        {
            assert_eq!(port.judged(&[("authorization", wrong)]), Err("unauthorized"), "{wrong:?}");
        }
        assert_eq!(port.judged(&[]), Err("unauthorized"));
        assert_eq!(Port::new(None).judged(&[("authorization", &bearer)]), Err("unauthorized"), "what is shown counts");
    }

    #[test]
    fn a_key_may_what_its_role_and_its_scopes_say() {
        let may = |role, scopes: &[Scope], path: &str, method: &str| {
            let route = TABLE.iter().find(|route| route.path == path && route.method.name() == method).unwrap();
            let caller = Caller::of(Shown { name: "k".to_owned(), role, scopes: scopes.to_vec() });
            caller.may(route).map_err(|trouble| trouble.code)
        };
        let kick = "/api/v1/clients/{id}/kick";
        assert_eq!(may(Role::Viewer, &[Scope::Read], "/api/v1/clients", "get"), Ok(()));
        assert_eq!(may(Role::Viewer, &[Scope::Metrics], "/api/v1/clients", "get"), Err("scope"));
        assert_eq!(may(Role::Viewer, &[Scope::Metrics], "/metrics", "get"), Ok(()));
        assert_eq!(may(Role::Viewer, &Scope::ALL, kick, "post"), Err("role"));
        assert_eq!(may(Role::Operator, &[Scope::Read], kick, "post"), Err("scope"));
        assert_eq!(may(Role::Operator, &[Scope::Manage], kick, "post"), Ok(()));
        assert_eq!(may(Role::Operator, &Scope::ALL, "/api/v1/keys", "post"), Err("role"));
        assert_eq!(may(Role::Admin, &Scope::ALL, "/api/v1/keys", "post"), Ok(()));
    }

    #[test]
    fn an_address_that_guesses_is_not_listened_to_and_others_are() {
        let port = Port::new(Some("0123456789abcdef"));
        let (wrong, good) = ([("authorization", "Bearer x")], [("authorization", "Bearer 0123456789abcdef")]);
        for _ in 0..WRONG_MAX {
            assert_eq!(port.from(THERE, &good), Ok("token".to_owned()));
            assert_eq!(port.from(THERE, &wrong), Err("unauthorized"));
        }
        assert_eq!(port.from(THERE, &wrong), Err("throttled"));
        assert_eq!(port.from(THERE, &good), Err("throttled"), "else the next guess would tell");
        assert_eq!(port.from(HERE, &good), Ok("token".to_owned()));
        let mut out = Exposition::default();
        port.callers.metrics(&mut out);
        let text = out.finish();
        assert!(text.contains("holdfast_admin_refused_total{reason=\"unauthorized\"} 20\n"), "{text}");
        assert!(text.contains("holdfast_admin_refused_total{reason=\"throttled\"} 2\n"), "{text}");
    }

    #[test]
    fn no_more_addresses_are_remembered_than_there_is_room_for() {
        let port = Port::new(Some("0123456789abcdef"));
        let address = |number: usize| IpAddr::V4(Ipv4Addr::from(number as u32));
        for number in 0..ADDRESSES_MAX + WRONG_MAX as usize + 10 {
            let _ = port.from(address(number), &[("authorization", "Bearer x")]);
        }
        assert!(port.callers.wrong.lock().len() <= ADDRESSES_MAX + 1);
        assert_eq!(port.from(THERE, &[("authorization", "Bearer x")]), Err("throttled"), "they count as one");
    }
}
