//! Any bytes where a PROXY header is expected: nothing panics, no header is longer than the bytes, and what is decided of a beginning stays so when more comes.
#![no_main]

use holdfast::config::ProxyProtocol;
use holdfast::listener::proxy_header::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for wanted in [ProxyProtocol::V1, ProxyProtocol::V2, ProxyProtocol::Auto] {
        let whole = parse(bytes, wanted);
        if let Ok(Some((_, len))) = &whole {
            assert!(*len <= bytes.len());
        }
        for cut in [bytes.len() / 2, bytes.len().min(12), bytes.len().saturating_sub(1)] {
            let part = parse(&bytes[..cut], wanted);
            assert!(part == whole || part == Ok(None), "{part:?} then {whole:?}");
        }
    }
});
