//! The admin port of a node: HTTP by hand, and what its answers mean.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// The largest answer that is read, in bytes.
const ANSWER_MAX: u64 = 16 * 1024 * 1024;

/// Sends a GET and reads the whole answer: its status and body.
///
/// # Errors
/// When nobody answers in this time, or not in HTTP.
pub fn get(address: SocketAddr, path: &str, patience: Duration) -> io::Result<(u16, String)> {
    ask(address, "GET", path, "", patience)
}

/// Sends a POST and reads the whole answer: its status and body.
///
/// # Errors
/// As [`get`].
pub fn post(address: SocketAddr, path: &str, body: &str, patience: Duration) -> io::Result<(u16, String)> {
    ask(address, "POST", path, body, patience)
}

fn ask(address: SocketAddr, method: &str, path: &str, body: &str, patience: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}");
    write!(stream, "{head}\r\n\r\n{body}")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    read(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("no answer in HTTP"))
}

fn read(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Some((status, if chunked { unchunk(body)? } else { body.to_owned() }))
}

/// Joins the chunks of a body (RFC 9112, 7.1).
fn unchunk(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, after) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(after.get(..size)?);
        rest = after.get(size..)?.strip_prefix("\r\n")?;
    }
}

/// How a node sees the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub ready: bool,
    /// The names of the nodes that are live, itself among them, sorted.
    pub live: Vec<String>,
    /// All names that it knows, sorted.
    pub members: Vec<String>,
    pub leader: Option<String>,
}

impl View {
    /// Reads `/health/cluster`.
    pub fn read(json: &Value, ready: bool) -> Option<Self> {
        let nodes = json.get("nodes")?.as_array()?;
        let name = |node: &Value| node.get("name")?.as_str().map(str::to_owned);
        let names = |wanted: &dyn Fn(&Value) -> bool| {
            let mut names: Vec<_> = nodes.iter().filter(|node| wanted(node)).filter_map(name).collect();
            names.sort();
            names
        };
        let is_live = |node: &Value| node.get("live").and_then(Value::as_bool).unwrap_or(false);
        let leader = json.get("leader").and_then(Value::as_str).map(str::to_owned);
        Some(Self { ready, live: names(&is_live), members: names(&|_| true), leader })
    }
}

/// The value of a metric in the text format of Prometheus: the sum over its label sets that contain all of `labels`.
pub fn metric(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut sum = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (there, set) = series.split_once('{').unwrap_or((series, ""));
        if there == name && labels.iter().all(|label| set.contains(label)) {
            sum = Some(sum.unwrap_or(0.0) + value.parse::<f64>().ok()?);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::{View, metric, read};

    #[test]
    fn answers_have_a_status_and_a_body() {
        let plain = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(read(plain), Some((200, "ok".to_owned())));
        let chunked = "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnot\r\n6\r\n ready\r\n0\r\n\r\n";
        assert_eq!(read(chunked), Some((503, "not ready".to_owned())));
        assert_eq!(read("SSH-2.0"), None);
        assert_eq!(read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nshort"), None);
    }

    #[test]
    fn a_view_has_the_live_nodes_and_the_leader() {
        let json = serde_json::json!({
            "leader": "n2",
            "nodes": [{"name": "n3", "live": false}, {"name": "n2", "live": true}, {"name": "n1", "live": true}],
        });
        let view = View::read(&json, true).unwrap();
        assert_eq!(
            (view.live, view.members),
            (vec!["n1".into(), "n2".into()], vec!["n1".into(), "n2".into(), "n3".into()])
        );
        assert_eq!(view.leader.as_deref(), Some("n2"));
        assert_eq!(View::read(&serde_json::json!({}), true), None);
    }

    #[test]
    fn metrics_are_summed_over_labels() {
        let text = "# HELP x y\nx{a=\"1\",b=\"2\"} 3\nx{a=\"1\"} 4\nxy 9\nz 1.5\n";
        assert_eq!(metric(text, "x", &["a=\"1\""]), Some(7.0));
        assert_eq!(metric(text, "x", &["b=\"2\""]), Some(3.0));
        assert_eq!(metric(text, "z", &[]), Some(1.5));
        assert_eq!(metric(text, "missing", &[]), None);
    }
}
