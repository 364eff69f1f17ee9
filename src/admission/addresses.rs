//! A bucket for each address that has connected of late.
//!
//! Bounded: a bucket that is full again is forgotten. While there is no room nonetheless, all addresses that are not known share one bucket: an attacker with very
//! many addresses then shuts out others that are new, but not those that are known, and never makes the table grow.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::bucket::Bucket;

/// Addresses that are remembered. A full table is searched for what can be forgotten once in so many milliseconds at the most.
const ADDRESSES_MAX: usize = 65_536;
const SEARCH_EVERY_MS: u64 = 100;

/// See the module. Whoever owns it calls it one at a time.
#[derive(Debug)]
pub struct Addresses {
    bucket: Bucket,
    known: HashMap<u128, u64>,
    others: u64,
    searched_at: u64,
    max: usize,
}

impl Addresses {
    pub fn new(bucket: Bucket) -> Addresses {
        Addresses { bucket, known: HashMap::new(), others: 0, searched_at: 0, max: ADDRESSES_MAX }
    }

    /// Takes a token of the address; false if it has none.
    pub fn take(&mut self, address: IpAddr, now_ms: u64) -> bool {
        let key = key(address);
        if self.known.len() >= self.max && !self.known.contains_key(&key) {
            self.forget_full(now_ms);
            if self.known.len() >= self.max {
                return take_of(self.bucket, &mut self.others, now_ms);
            }
        }
        take_of(self.bucket, self.known.entry(key).or_insert(0), now_ms)
    }

    fn forget_full(&mut self, now_ms: u64) {
        if now_ms >= self.searched_at + SEARCH_EVERY_MS {
            self.searched_at = now_ms;
            self.known.retain(|_, full_at| !Bucket::is_full(*full_at, now_ms));
        }
    }
}

fn take_of(bucket: Bucket, state: &mut u64, now_ms: u64) -> bool {
    let next = bucket.take(*state, now_ms);
    *state = next.unwrap_or(*state);
    next.is_some()
}

/// Whom an address stands for: of IPv6 a whole /64, which one machine may have to itself.
fn key(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Rate;

    fn two_in_a_second() -> Addresses {
        Addresses::new(Bucket::new(Rate { amount: 2, per: Duration::from_secs(1) }))
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_address_has_a_bucket_of_its_own_and_a_64_has_one() {
        let mut addresses = two_in_a_second();
        for (address, passes) in [
            ("10.0.0.1", true),
            ("10.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("10.0.0.2", true),
            ("2001:db8::1", true),
            ("2001:db8::2:3:4", true),
            ("2001:db8::ffff", false),
            ("2001:db8:0:1::1", true),
        ] {
            assert_eq!(addresses.take(at(address), 10_000), passes, "{address}");
        }
        assert!(addresses.take(at("10.0.0.1"), 10_500));
    }

    #[test]
    fn the_table_is_bounded_and_those_without_room_share_one_bucket() {
        let mut addresses = two_in_a_second();
        addresses.max = 3;
        for last in 1..=3 {
            assert!(addresses.take(at(&format!("10.0.0.{last}")), 10_000));
        }
        let strangers = (4..20).filter(|last| addresses.take(at(&format!("10.0.0.{last}")), 10_000)).count();
        assert_eq!((strangers, addresses.known.len()), (2, 3));
        assert!(addresses.take(at("10.0.0.1"), 10_000), "who is known is not harmed");
        assert!(addresses.take(at("10.0.0.9"), 11_000));
        assert!(addresses.known.len() <= 3, "what is full again was forgotten");
        assert!(addresses.known.contains_key(&key(at("10.0.0.9"))));
    }
}
