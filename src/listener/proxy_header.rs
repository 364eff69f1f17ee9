//! The PROXY header: how a load balancer says, before anything else, whose connection it brings (proxy-protocol.txt of HAProxy, versions 1 and 2).
//!
//! Pure: bytes in, a header out. It is read from trusted proxies only; what they send is bounded by [`HEADER_BYTES_MAX`] all the same.
//!
//! The test to read first: `headers_as_they_are_sent`.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::ProxyProtocol;

/// The longest header: one of version 2 with some extras. That of version 1 has 107 bytes at the most.
pub const HEADER_BYTES_MAX: usize = 2_048;
const V1_BYTES_MAX: usize = 107;

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// What a proxy says of a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Header {
    /// From where it came. `None`: it is the proxy's own, or has no address.
    pub source: Option<SocketAddr>,
    /// The Common Name of the certificate that the client has shown to the proxy, which has verified it.
    pub common_name: Option<String>,
}

/// Bytes that are no PROXY header, or not one of the version that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoHeader(pub &'static str);

/// Reads a header from the beginning of these bytes: it, and its length. `None`: there is more to come.
///
/// # Errors
/// What is wrong with it.
pub fn parse(bytes: &[u8], wanted: ProxyProtocol) -> Result<Option<(Header, usize)>, NoHeader> {
    let starts = |with: &[u8]| bytes.starts_with(&with[..with.len().min(bytes.len())]);
    let (v1, v2) = match wanted {
        ProxyProtocol::Off => (false, false),
        ProxyProtocol::V1 => (true, false),
        ProxyProtocol::V2 => (false, true),
        ProxyProtocol::Auto => (true, true),
    };
    if v2 && starts(SIGNATURE) {
        parse_v2(bytes)
    } else if v1 && starts(b"PROXY ") {
        parse_v1(bytes)
    } else {
        Err(NoHeader("a trusted proxy sent no PROXY header of the version that proxy_protocol says"))
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<(Header, usize)>, NoHeader> {
    const WRONG: NoHeader = NoHeader("a PROXY header of version 1 that is malformed");
    let within = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    let Some(end) = within.windows(2).position(|pair| pair == b"\r\n") else {
        return if bytes.len() < V1_BYTES_MAX { Ok(None) } else { Err(WRONG) };
    };
    let line = str::from_utf8(&bytes[..end]).map_err(|_| WRONG)?;
    let mut words = line.split(' ').skip(1);
    let family = words.next().ok_or(WRONG)?;
    let source = match family {
        // Whatever follows is to be ignored.
        "UNKNOWN" => None,
        "TCP4" | "TCP6" => {
            let mut ip = || words.next().and_then(|word| word.parse::<IpAddr>().ok());
            let (from, to) = (ip().ok_or(WRONG)?, ip().ok_or(WRONG)?);
            let mut port = || words.next().and_then(|word| word.parse::<u16>().ok());
            let (from_port, _) = (port().ok_or(WRONG)?, port().ok_or(WRONG)?);
            let is_v4 = family == "TCP4";
            if from.is_ipv4() != is_v4 || to.is_ipv4() != is_v4 || words.next().is_some() {
                return Err(WRONG);
            }
            Some(SocketAddr::new(from, from_port))
        }
        _ => return Err(WRONG),
    };
    Ok(Some((Header { source, common_name: None }, end + 2)))
}

fn parse_v2(bytes: &[u8]) -> Result<Option<(Header, usize)>, NoHeader> {
    const WRONG: NoHeader = NoHeader("a PROXY header of version 2 that is malformed");
    let Some([version, family, high, low]) = bytes.get(12..16) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    if version >> 4 != 2 || version & 0xF > 1 {
        return Err(WRONG);
    }
    if 16 + len > HEADER_BYTES_MAX {
        return Err(NoHeader("a PROXY header of version 2 that is too long"));
    }
    let Some(body) = bytes.get(16..16 + len) else {
        return Ok(None);
    };
    // LOCAL: the proxy's own connection, such as a health check; nothing in it counts.
    if version & 0xF == 0 {
        return Ok(Some((Header::default(), 16 + len)));
    }
    let (source, extras) = match family {
        0x11 | 0x12 => (Some(source_v4(body).ok_or(WRONG)?), 12),
        0x21 | 0x22 => (Some(source_v6(body).ok_or(WRONG)?), 36),
        // AF_UNIX: two paths of 108 bytes.
        0x31 | 0x32 => (None, 216),
        _ => (None, 0),
    };
    let extras = body.get(extras..).ok_or(WRONG)?;
    let common_name = if family >> 4 == 0 { None } else { common_name(extras).map_err(|()| WRONG)? };
    Ok(Some((Header { source, common_name }, 16 + len)))
}

fn source_v4(body: &[u8]) -> Option<SocketAddr> {
    let address: [u8; 4] = body.get(..4)?.try_into().ok()?;
    let port: [u8; 2] = body.get(8..10)?.try_into().ok()?;
    Some(SocketAddr::from((Ipv4Addr::from(address), u16::from_be_bytes(port))))
}

fn source_v6(body: &[u8]) -> Option<SocketAddr> {
    let address: [u8; 16] = body.get(..16)?.try_into().ok()?;
    let port: [u8; 2] = body.get(32..34)?.try_into().ok()?;
    Some(SocketAddr::from((Ipv6Addr::from(address), u16::from_be_bytes(port))))
}

const TYPE_SSL: u8 = 0x20;
const SUBTYPE_SSL_CN: u8 = 0x22;
/// The client has shown a certificate on this connection, or on the session that it resumes.
const CLIENT_CERTIFICATE: u8 = 0x02 | 0x04;

/// The Common Name in the extras, if the proxy has verified the certificate.
fn common_name(extras: &[u8]) -> Result<Option<String>, ()> {
    let mut name = None;
    for extra in Extras(extras) {
        let (TYPE_SSL, value) = extra? else { continue };
        let (Some(client), Some(verified), Some(inner)) = (value.first(), value.get(1..5), value.get(5..)) else {
            return Err(());
        };
        let trusted = client & CLIENT_CERTIFICATE != 0 && verified == [0; 4];
        for extra in Extras(inner) {
            let (kind, value) = extra?;
            if kind == SUBTYPE_SSL_CN && trusted {
                name = Some(str::from_utf8(value).map_err(drop)?.to_owned());
            }
        }
    }
    Ok(name)
}

/// Type, length and value, one after the other.
struct Extras<'a>(&'a [u8]);

impl<'a> Iterator for Extras<'a> {
    type Item = Result<(u8, &'a [u8]), ()>;

    fn next(&mut self) -> Option<Self::Item> {
        let [kind, high, low, rest @ ..] = self.0 else {
            let left = std::mem::take(&mut self.0);
            return (!left.is_empty()).then_some(Err(()));
        };
        match rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low]))) {
            Some((value, behind)) => {
                self.0 = behind;
                Some(Ok((*kind, value)))
            }
            None => {
                self.0 = &[];
                Some(Err(()))
            }
        }
    }
}

#[cfg(test)]
#[path = "proxy_header_tests.rs"]
mod tests;
