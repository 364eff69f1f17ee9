//! Who may ask: whoever has the token, where there is one; else whoever is on this machine and is no web page.
//!
//! A port on loopback is open to every page that a browser on this machine shows, unless it looks twice: a page may send requests anywhere, and
//! a name of its own may be made to mean 127.0.0.1. So without a token the Host must be an address or `localhost`, and a request that says which page it
//! comes from (`Origin`) is refused.

use std::net::IpAddr;

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

use super::Trouble;
use super::token::Token;

/// Judges a request by its head.
pub(super) fn judge(token: Option<&Token>, uri: &Uri, headers: &HeaderMap) -> Result<(), Trouble> {
    match token {
        Some(token) if headers.get(AUTHORIZATION).is_some_and(|value| token.is_in(value.as_bytes())) => Ok(()),
        Some(_) => Err(Trouble::new(401, "unauthorized", "a token is needed here")
            .hint("send the header  Authorization: Bearer TOKEN,  or say --token-file FILE")),
        None if headers.contains_key(ORIGIN) => {
            Err(Trouble::new(403, "origin", "web pages may not ask here").hint("set token_file under [admin]"))
        }
        None if !is_addressed_here(uri, headers) => {
            let message = "the Host of the request is neither an address nor localhost";
            Err(Trouble::new(403, "host", message).hint("ask http://127.0.0.1:PORT, or set token_file under [admin]"))
        }
        None => Ok(()),
    }
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
    use super::*;

    fn judged(headers: &[(&'static str, &'static str)]) -> Result<(), &'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        judge(None, &Uri::from_static("/metrics"), &map).map_err(|trouble| trouble.code)
    }

    #[test]
    fn without_a_token_web_pages_and_other_names_are_refused() {
        for host in ["127.0.0.1:18083", "localhost", "LocalHost:1", "[::1]:18083", "10.0.0.1"] {
            assert_eq!(judged(&[("host", host)]), Ok(()), "{host}");
        }
        assert_eq!(judged(&[]), Ok(()), "HTTP/1.0");
        for host in ["evil.example", "evil.example:18083", "localhost.evil.example:1", "[evil]:1", ""] {
            assert_eq!(judged(&[("host", host)]), Err("host"), "{host}");
        }
        assert_eq!(judged(&[("host", "127.0.0.1"), ("origin", "http://127.0.0.1")]), Err("origin"));
    }
}
