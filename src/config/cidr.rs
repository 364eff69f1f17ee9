//! Address ranges as people write them: `"10.0.0.0/8"`, `"fd00::/8"`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A range of addresses. An IPv4 address that came as an IPv6 one is the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// Without the bits that the prefix leaves open.
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                bits(u128::from(address.to_bits()), self.prefix, 32) == u128::from(network.to_bits())
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                bits(address.to_bits(), self.prefix, 128) == network.to_bits()
            }
            _ => false,
        }
    }
}

/// The first `prefix` of so many bits; the others are zero.
fn bits(address: u128, prefix: u8, of: u8) -> u128 {
    let open = of - prefix;
    if open >= 128 { 0 } else { address >> open << open }
}

impl FromStr for Cidr {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let of = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u8 = prefix.map_or(Ok(of), |prefix| prefix.parse().map_err(drop))?;
        if prefix > of {
            return Err(());
        }
        let network = match address {
            IpAddr::V4(address) => IpAddr::V4((bits(u128::from(address.to_bits()), prefix, 32) as u32).into()),
            IpAddr::V6(address) => IpAddr::V6(bits(address.to_bits(), prefix, 128).into()),
        };
        Ok(Cidr { network, prefix })
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_what_they_say() {
        let table = [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "203.0.113.7", true),
            ("0.0.0.0/0", "::1", false),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/64", "2001:db8::ffff", true),
            ("2001:db8::/64", "2001:db8:0:1::1", false),
        ];
        for (range, address, expected) in table {
            let range: Cidr = range.parse().unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), expected, "{range} {address}");
        }
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "localhost", "10.0.0.0/-1", "10.0.0.0/"] {
            assert_eq!(wrong.parse::<Cidr>(), Err(()), "{wrong}");
        }
        assert_eq!("10.1.2.3/8".parse::<Cidr>().unwrap().to_string(), "10.0.0.0/8");
    }
}
