//! One request and its answer over HTTP/1.1: a connection of its own, no TLS, no redirects.
//!
//! Invariants: everything ends within [`TIMEOUT`]; an answer is never larger than [`ANSWER_BYTES_MAX`]; one that is cut short is an error.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::config::Admin;

/// From the first look at the name to the end of the answer: more than a node takes for any of them.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long one address is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A thousand clients with the longest ids and names.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Lines of a head.
const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// A port to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Target {
    /// Without brackets.
    host: String,
    port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority())
    }
}

impl Target {
    pub(in crate::cli) fn of(address: SocketAddr) -> Target {
        Target { host: address.ip().to_string(), port: address.port() }
    }

    /// The admin port of a node that was told of no other one.
    pub(super) fn usual() -> Target {
        Target::of(SocketAddr::from((Ipv4Addr::LOCALHOST, Admin::PORT)))
    }

    fn authority(&self) -> String {
        let Target { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Answer {
    pub status: u16,
    pub body: String,
}

/// Why nothing came back that could be used.
#[derive(Debug, Error)]
pub(in crate::cli) enum AskError {
    #[error("there is no such host: {0}")]
    Name(io::Error),
    #[error("nobody listens there: {0}")]
    Connect(io::Error),
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    TimedOut,
    #[error("the connection broke: {0}")]
    Lost(io::Error),
    #[error("what answers there speaks no HTTP")]
    NoHttp,
    #[error("the answer was cut short")]
    CutShort,
    #[error("the answer is larger than {ANSWER_BYTES_MAX} bytes")]
    TooLarge,
}

/// A value of `--admin`: `http://host:port`, or a part of it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse_url(text: &str) -> Result<Target, String> {
    let expected = || "expected a URL such as http://127.0.0.1:18083".to_owned();
    if text.starts_with("https://") {
        return Err("the admin port speaks no TLS: reach it over a tunnel, or where it is".to_owned());
    }
    let rest = text.strip_prefix("http://").unwrap_or(text);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(expected)?,
        None => rest.split_at(rest.find(':').unwrap_or(rest.len())),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(expected)?,
        None if port.is_empty() => Admin::PORT,
        None => return Err(expected()),
    };
    let is_host = !host.is_empty()
        && host.chars().all(|character| character.is_ascii_alphanumeric() || "-._:".contains(character));
    if !is_host {
        return Err(expected());
    }
    Ok(Target { host: host.to_owned(), port })
}

/// One step of a path, as it is written in one.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // A dot may not stand alone in a step of a path.
            escaped += &format!("%{byte:02X}");
        }
    }
    escaped
}

/// Asks and waits.
pub(super) fn ask(
    target: &Target,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Answer, AskError> {
    ask_until(Instant::now() + TIMEOUT, target, token, method, path, body)
}

/// Asks, and waits no longer than that.
pub(in crate::cli) fn ask_until(
    deadline: Instant,
    target: &Target,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Answer, AskError> {
    let mut stream = connect(target, deadline)?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", target.authority());
    if let Some(token) = token {
        request += &format!("Authorization: Bearer {token}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    request += &format!("\r\n{body}");
    stream.set_write_timeout(Some(left(deadline)?)).map_err(AskError::Lost)?;
    // Who refuses early may not take all of it, and has said why.
    let written = stream.write_all(request.as_bytes());
    match read(&mut stream, deadline) {
        Ok(bytes) if bytes.is_empty() => Err(written.map_or_else(AskError::Lost, |()| AskError::CutShort)),
        read => parse(&read?),
    }
}

fn left(deadline: Instant) -> Result<Duration, AskError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(AskError::TimedOut) } else { Ok(left) }
}

fn connect(target: &Target, deadline: Instant) -> Result<TcpStream, AskError> {
    let addresses: Vec<SocketAddr> =
        (target.host.as_str(), target.port).to_socket_addrs().map_err(AskError::Name)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match TcpStream::connect_timeout(&address, left(deadline)?.min(CONNECT_TIMEOUT)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(AskError::Connect(last))
}

/// Everything up to the end.
fn read(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, AskError> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?)).map_err(AskError::Lost)?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(AskError::TimedOut);
            }
            // What came before says more than that.
            Err(_) if !bytes.is_empty() => return Ok(bytes),
            Err(error) => return Err(AskError::Lost(error)),
        }
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(AskError::TooLarge);
        }
    }
}

/// The answer that these bytes are: its length is told in its head.
fn parse(bytes: &[u8]) -> Result<Answer, AskError> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let length = match response.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_BYTES_MAX => return Err(AskError::CutShort),
        _ => return Err(AskError::NoHttp),
    };
    let named = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let announced = named.and_then(|header| std::str::from_utf8(header.value).ok()?.trim().parse::<usize>().ok());
    let announced = announced.ok_or(AskError::NoHttp)?;
    let body = bytes[length..].get(..announced).ok_or(AskError::CutShort)?;
    let body = String::from_utf8(body.to_vec()).map_err(|_| AskError::NoHttp)?;
    Ok(Answer { status: response.code.unwrap_or_default(), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_a_port() {
        let target = |host: &str, port| Ok(Target { host: host.to_owned(), port });
        for (text, host, port) in [
            ("http://127.0.0.1:18083", "127.0.0.1", 18083),
            ("http://n1.example:80/", "n1.example", 80),
            ("n1:1", "n1", 1),
            ("localhost", "localhost", 18083),
            ("http://[::1]:9", "::1", 9),
            ("[::1]", "::1", 18083),
        ] {
            assert_eq!(parse_url(text), target(host, port), "{text}");
        }
        for wrong in [
            "",
            "http://",
            "http://:1",
            "http://h:0",
            "http://h:x",
            "http://h:1/x",
            "h:1:2",
            "[::1",
            "[::1]x",
            "a b",
            "u@h",
            "ftp://h",
        ] {
            assert!(parse_url(wrong).is_err_and(|error| error.starts_with("expected a URL")), "{wrong}");
        }
        assert!(parse_url("https://h").unwrap_err().contains("no TLS"));
        assert_eq!(parse_url("[::1]:9").unwrap().to_string(), "http://[::1]:9");
    }

    #[test]
    fn a_client_id_is_one_step_of_a_path() {
        assert_eq!(escaped("a-B_9~"), "a-B_9~");
        assert_eq!(escaped("a/b?c#d%e .é"), "a%2Fb%3Fc%23d%25e%20%2E%C3%A9");
    }

    #[test]
    fn answers_are_whole_or_errors() {
        let whole = "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(parse(whole.as_bytes()).unwrap(), Answer { status: 404, body: "no".to_owned() });
        for length in 1..whole.len() {
            assert!(matches!(parse(&whole.as_bytes()[..length]), Err(AskError::CutShort)), "{length}");
        }
        for wrong in
            ["SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\n\r\nno length", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"]
        {
            assert!(matches!(parse(wrong.as_bytes()), Err(AskError::NoHttp)), "{wrong}");
        }
    }
}
