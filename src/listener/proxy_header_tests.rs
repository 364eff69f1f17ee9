//! What is and is not a PROXY header: both versions, cut anywhere, and whatever else comes.

use proptest::prelude::*;

use super::*;

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    [&SIGNATURE[..], &[0x20 | command, family], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn tlv(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind][..], &(value.len() as u16).to_be_bytes(), value].concat()
}

const OVER_TCP4: [u8; 12] = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x34, 7, 91];

fn ssl(client: u8, verified: u32, inner: &[u8]) -> Vec<u8> {
    tlv(TYPE_SSL, &[&[client][..], &verified.to_be_bytes(), inner].concat())
}

fn source(text: &str) -> Header {
    Header { source: Some(text.parse().unwrap()), common_name: None }
}

#[test]
fn headers_as_they_are_sent() {
    let over_tcp6 = [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0, 80, 0, 81]].concat();
    let named =
        [&OVER_TCP4[..], &tlv(4, b"noop"), &ssl(7, 0, &[tlv(0x21, b"TLSv1.3"), tlv(0x22, b"device-7")].concat())];
    let unverified = [&OVER_TCP4[..], &ssl(7, 1, &tlv(0x22, b"device-7"))].concat();
    let without = [&OVER_TCP4[..], &ssl(1, 0, &tlv(0x22, b"device-7"))].concat();
    let table: [(Vec<u8>, Header); 11] = [
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 1883\r\n".to_vec(), source("203.0.113.7:4660")),
        (b"PROXY TCP6 2001:db8::1 ::1 80 81\r\n".to_vec(), source("[2001:db8::1]:80")),
        (b"PROXY UNKNOWN\r\n".to_vec(), Header::default()),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), Header::default()),
        (v2(1, 0x11, &OVER_TCP4), source("203.0.113.7:4660")),
        (v2(1, 0x21, &over_tcp6), source("[2001:db8::1]:80")),
        (v2(0, 0, &[]), Header::default()),
        (v2(0, 0x11, &OVER_TCP4), Header::default()),
        (v2(1, 0x31, &[b'/'; 216]), Header::default()),
        (v2(1, 0, &[1, 2, 3]), Header::default()),
        (v2(1, 0x11, &named.concat()), Header { common_name: Some("device-7".into()), ..source("203.0.113.7:4660") }),
    ];
    for (bytes, expected) in table {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let behind = [&bytes[..], b"\x10rest"].concat();
        assert_eq!(parse(&behind, ProxyProtocol::Auto), Ok(Some((expected, bytes.len()))), "{text:?}");
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut], ProxyProtocol::Auto), Ok(None), "{text:?} cut at {cut}");
        }
    }
    for body in [unverified, without] {
        let parsed = parse(&v2(1, 0x11, &body), ProxyProtocol::V2);
        assert_eq!(
            parsed.unwrap().unwrap().0,
            source("203.0.113.7:4660"),
            "a certificate that is not verified is none"
        );
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let wrong: [&[u8]; 15] = [
        b"\x10\x0c\0\x04MQTT",
        b"GET / HTTP/1.1\r\n",
        b"PROXY\tTCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 70000\r\n",
        b"PROXY TCP4 ::1 ::1 1 2\r\n",
        b"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
        b"PROXY UDP4 1.2.3.4 5.6.7.8 1 2\r\n",
        &[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100]].concat(),
        &v2(2, 0x11, &OVER_TCP4),
        &v2(1, 0x11, &OVER_TCP4[..11]),
        &v2(1, 0x21, &OVER_TCP4),
        &v2(1, 0x11, &[&OVER_TCP4[..], &[0x20, 0, 9]].concat()),
        &v2(1, 0x11, &vec![0; HEADER_BYTES_MAX]),
    ];
    for bytes in wrong {
        assert!(parse(bytes, ProxyProtocol::Auto).is_err(), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert!(parse(b"PROXY UNKNOWN\r\n", ProxyProtocol::V2).is_err());
    assert!(parse(&v2(0, 0, &[]), ProxyProtocol::V1).is_err());
}

proptest! {
    /// Nothing panics, nothing claims more bytes than there are, and what is decided stays so when more comes.
    #[test]
    fn any_bytes(
        start in 0usize..3,
        mut tail in proptest::collection::vec(any::<u8>(), 0..300),
        cut in 0usize..300,
    ) {
        let start: &[u8] = [&b""[..], b"PROXY TCP4 ", &SIGNATURE[..]][start];
        if let Some(version) = tail.first_mut() {
            *version = 0x20 | (*version & 0x3);
        }
        let bytes = [start, &tail].concat();
        let whole = parse(&bytes, ProxyProtocol::Auto);
        if let Ok(Some((_, len))) = &whole {
            prop_assert!(*len <= bytes.len());
        }
        let part = parse(&bytes[..cut.min(bytes.len())], ProxyProtocol::Auto);
        prop_assert!(part == whole || part == Ok(None), "{:?} then {:?}", part, whole);
    }
}
