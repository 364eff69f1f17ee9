//! As much HTTP/1.1 as a broker answers: heads of requests, and responses that end the connection.
//!
//! Pure: bytes in, bytes out. Request heads are bounded by [`HEAD_BYTES_MAX`].

use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest request head that is read: browsers send under 2 KiB, with cookies of a whole site seldom more than 6.
pub(super) const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Most header fields of one request.
pub(super) const HEADERS_MAX: usize = 64;

/// The statuses that are ever sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    BadRequest,
    Forbidden,
    NotFound,
    UpgradeRequired,
    HeadersTooLarge,
    Unavailable,
}

impl Status {
    pub(super) fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::UpgradeRequired => "426 Upgrade Required",
            Self::HeadersTooLarge => "431 Request Header Fields Too Large",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// A response behind which the connection is closed.
pub(super) struct Response {
    head: String,
    body: Cow<'static, str>,
}

impl Response {
    pub(super) fn new(status: Status) -> Self {
        let head =
            format!("HTTP/1.1 {}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n", status.line());
        Self { head, body: Cow::Borrowed("") }
    }

    /// Adds a header field; neither part may come from the network.
    #[must_use]
    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    #[must_use]
    pub(super) fn body(mut self, body: impl Into<Cow<'static, str>>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        format!("{}Content-Length: {}\r\n\r\n{}", self.head, self.body.len(), self.body).into_bytes()
    }
}

/// The host that a request names, without its port; `None` when it names none or one that is not fit to be repeated.
pub(super) fn host_name(head: &[u8]) -> Option<String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request.parse(head).ok()?;
    let host = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("host"))?;
    let (name, _port) = split_port(std::str::from_utf8(host.value).ok()?.trim());
    is_host_name(name).then(|| name.to_owned())
}

/// Splits an authority at its port: `[::1]:80` gives `[::1]` and `80`.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') && (!name.contains(':') || name.ends_with(']')) => (name, Some(port)),
        _ => (authority, None),
    }
}

fn is_host_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':' | b'[' | b']');
    !name.is_empty() && name.len() <= 255 && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_split_off() {
        assert_eq!(split_port("a.example:80"), ("a.example", Some("80")));
        assert_eq!(split_port("a.example"), ("a.example", None));
        assert_eq!(split_port("[::1]:80"), ("[::1]", Some("80")));
        assert_eq!(split_port("[::1]"), ("[::1]", None));
        assert_eq!(split_port("::1"), ("::1", None));
    }

    #[test]
    fn a_host_is_repeated_only_when_it_looks_like_one() {
        assert_eq!(host_name(b"GET / HTTP/1.1\r\nHOST: b.example:1883\r\n\r\n").as_deref(), Some("b.example"));
        assert_eq!(host_name(b"GET / HTTP/1.1\r\nHost: <script>\r\n\r\n"), None);
        assert_eq!(host_name(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn a_response_says_its_length_and_closes() {
        let bytes = Response::new(Status::NotFound).header("X-A", "b").body("gone\n").into_bytes();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 404 Not Found\r\nConnection: close\r\n"), "{text}");
        assert!(text.ends_with("X-A: b\r\nContent-Length: 5\r\n\r\ngone\n"), "{text}");
    }
}
