//! From where a WebSocket upgrade came, as trusted proxies say it in `X-Forwarded-For` or `Forwarded` (RFC 7239).
//!
//! Pure. Each proxy adds at the right end the address that it sees; so the list is read from there, past the addresses that are trusted themselves, and the
//! first one that is not counts. What is further left was written by anybody.

use core::net::{IpAddr, SocketAddr};

use super::http::split_port;
use crate::config::{Cidr, ForwardedHeader};

/// The address for which the fields of this name speak; `None` if they say none. `values` are their values, as they came.
pub(super) fn client<'v>(
    kind: ForwardedHeader,
    values: impl DoubleEndedIterator<Item = &'v [u8]>,
    trusted: &[Cidr],
) -> Option<IpAddr> {
    let mut last = None;
    let elements = values.rev().flat_map(|value| value.rsplit(|byte| *byte == b','));
    for element in elements {
        let text = str::from_utf8(element).ok()?.trim();
        let address = match kind {
            ForwardedHeader::Off => None,
            ForwardedHeader::XForwardedFor => node(text),
            ForwardedHeader::Forwarded => for_parameter(text).and_then(node),
        };
        // What cannot be read ends the list: nothing left of it is vouched for.
        let Some(address) = address else { break };
        last = Some(address);
        if !trusted.iter().any(|range| range.contains(address)) {
            break;
        }
    }
    last
}

/// The name of the field.
pub(super) fn field(kind: ForwardedHeader) -> Option<&'static str> {
    match kind {
        ForwardedHeader::Off => None,
        ForwardedHeader::XForwardedFor => Some("x-forwarded-for"),
        ForwardedHeader::Forwarded => Some("forwarded"),
    }
}

/// `for=…` of one element, without its quotes.
fn for_parameter(element: &str) -> Option<&str> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then(|| value.trim().trim_matches('"'))
    })
}

/// An address, perhaps in brackets, perhaps with a port.
fn node(text: &str) -> Option<IpAddr> {
    let bare = |text: &str| text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text).parse().ok();
    let address: Option<IpAddr> = bare(text).or_else(|| bare(split_port(text).0));
    address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip())).map(|ip| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_most_address_that_is_not_trusted_counts() {
        let trusted: Vec<Cidr> = ["10.0.0.0/8", "fd00::/8"].iter().map(|range| range.parse().unwrap()).collect();
        let xff = ForwardedHeader::XForwardedFor;
        let rfc = ForwardedHeader::Forwarded;
        let table: [(ForwardedHeader, &[&str], Option<&str>); 14] = [
            (xff, &["203.0.113.7"], Some("203.0.113.7")),
            (xff, &["1.1.1.1, 203.0.113.7"], Some("203.0.113.7")),
            (xff, &["1.1.1.1, 203.0.113.7, 10.0.0.2"], Some("203.0.113.7")),
            (xff, &["1.1.1.1", "203.0.113.7", "10.0.0.2,10.0.0.3"], Some("203.0.113.7")),
            (xff, &["10.0.0.9, 10.0.0.2"], Some("10.0.0.9")),
            (xff, &["evil, 10.0.0.2"], Some("10.0.0.2")),
            (xff, &["unknown"], None),
            (xff, &[], None),
            (xff, &["203.0.113.7:5000"], Some("203.0.113.7")),
            (xff, &["[2001:db8::1]:5000, fd00::1"], Some("2001:db8::1")),
            (rfc, &["for=1.1.1.1, for=203.0.113.7;proto=https, For=\"[fd00::2]:80\""], Some("203.0.113.7")),
            (rfc, &["for=\"[2001:db8::1]:47011\""], Some("2001:db8::1")),
            (rfc, &["for=_hidden"], None),
            (ForwardedHeader::Off, &["203.0.113.7"], None),
        ];
        for (kind, values, expected) in table {
            let found = client(kind, values.iter().map(|value| value.as_bytes()), &trusted);
            assert_eq!(found, expected.map(|text| text.parse().unwrap()), "{values:?}");
        }
    }
}
