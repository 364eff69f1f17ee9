//! Whom this node does not let in, as the control state has it: by client id, user name, or addresses.
//!
//! Owner: the node, which enters what the control state says ([`Bans::set`], [`Bans::remove`]); listeners and shards ask. While there is no ban, a question is one load.
//!
//! Invariants: an address of IPv4 and the same one mapped into IPv6 are one; a ban that has ended says nothing, whether or not it is still here.
//!
//! Tests to read first: `tests::whom_a_ban_is_about`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use holdfast_raft::{Ban, BanTarget};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// Longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 256;

/// Bits of an IPv6 address in front of an IPv4 address that is mapped into it.
const MAPPED_BITS: u8 = 96;

/// See the module.
#[derive(Debug, Default)]
pub struct Bans {
    len: AtomicUsize,
    table: RwLock<Table>,
}

#[derive(Debug, Default)]
struct Table {
    bans: HashMap<BanTarget, Ban>,
    /// How many bans of addresses there are with each number of bits.
    lens: HashMap<u8, usize>,
}

/// Who asks to be let in.
#[derive(Debug, Clone, Copy)]
pub struct Applicant<'a> {
    pub client_id: &'a str,
    /// Whom it has proved to be, and whom it says that it is.
    pub user_names: [Option<&'a str>; 2],
    pub address: IpAddr,
}

impl Bans {
    pub fn set(&self, ban: Ban) {
        let mut table = self.table.write();
        let len = address_len(&ban.target);
        if table.bans.insert(ban.target.clone(), ban).is_none()
            && let Some(len) = len
        {
            *table.lens.entry(len).or_insert(0) += 1;
        }
        self.len.store(table.bans.len(), Ordering::Release);
    }

    pub fn remove(&self, target: &BanTarget) {
        let mut table = self.table.write();
        if table.bans.remove(target).is_some()
            && let Some(len) = address_len(target)
            && let Some(count) = table.lens.get_mut(&len)
        {
            *count -= 1;
            if *count == 0 {
                table.lens.remove(&len);
            }
        }
        self.len.store(table.bans.len(), Ordering::Release);
    }

    /// All that have not ended, in the order of whom they are about.
    pub fn list(&self) -> Vec<Ban> {
        let now_ms = now_ms();
        let mut bans: Vec<Ban> = self.table.read().bans.values().filter(|ban| holds(ban, now_ms)).cloned().collect();
        bans.sort_by(|one, other| one.target.cmp(&other.target));
        bans
    }

    /// The ban of an address.
    pub fn of_address(&self, address: IpAddr) -> Option<Ban> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.table.read().of_address(address, now_ms()).cloned()
    }

    /// The ban of whoever asks to be let in.
    pub fn of(&self, applicant: &Applicant<'_>) -> Option<Ban> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let (table, now_ms) = (self.table.read(), now_ms());
        let client_id = std::iter::once(BanTarget::ClientId(applicant.client_id.into()));
        let user_names = applicant.user_names.iter().flatten().map(|name| BanTarget::UserName((*name).into()));
        let found =
            client_id.chain(user_names).find_map(|target| table.bans.get(&target).filter(|ban| holds(ban, now_ms)));
        found.or_else(|| table.of_address(applicant.address, now_ms)).cloned()
    }
}

impl Table {
    fn of_address(&self, address: IpAddr, now_ms: u64) -> Option<&Ban> {
        let bits = bits_of(address);
        self.lens.keys().find_map(|len| {
            let target = BanTarget::Addresses { prefix: first_bits(bits, *len), len: *len };
            self.bans.get(&target).filter(|ban| holds(ban, now_ms))
        })
    }
}

/// Whether somebody is who a ban is about.
pub fn is_about(target: &BanTarget, applicant: &Applicant<'_>) -> bool {
    match target {
        BanTarget::ClientId(id) => **id == *applicant.client_id,
        BanTarget::UserName(name) => applicant.user_names.contains(&Some(&**name)),
        BanTarget::Addresses { prefix, len } => first_bits(bits_of(applicant.address), *len) == *prefix,
    }
}

fn holds(ban: &Ban, now_ms: u64) -> bool {
    ban.until_ms.is_none_or(|until| until > now_ms)
}

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn address_len(target: &BanTarget) -> Option<u8> {
    match target {
        BanTarget::Addresses { len, .. } => Some(*len),
        BanTarget::ClientId(_) | BanTarget::UserName(_) => None,
    }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn first_bits(bits: u128, len: u8) -> u128 {
    if len == 0 { 0 } else { bits & (u128::MAX << (128 - u32::from(len.min(128)))) }
}

/// By what a ban is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BanKind {
    ClientId,
    UserName,
    /// An address, or a network such as `192.0.2.0/24`.
    Address,
}

impl BanKind {
    pub const ALL: [BanKind; 3] = [BanKind::ClientId, BanKind::UserName, BanKind::Address];

    pub fn name(self) -> &'static str {
        ["client_id", "user_name", "address"][self as usize]
    }
}

/// A ban as people and files write it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenBan {
    pub by: BanKind,
    /// The client id, the user name, the address or network.
    pub value: String,
    /// Milliseconds since 1970.
    pub since_ms: u64,
    /// Milliseconds since 1970; `None`: for ever.
    pub until_ms: Option<u64>,
    pub reason: String,
}

impl From<&Ban> for WrittenBan {
    fn from(ban: &Ban) -> WrittenBan {
        let (by, value) = match &ban.target {
            BanTarget::ClientId(id) => (BanKind::ClientId, id.to_string()),
            BanTarget::UserName(name) => (BanKind::UserName, name.to_string()),
            BanTarget::Addresses { prefix, len } => (BanKind::Address, Network(*prefix, *len).to_string()),
        };
        let Ban { since_ms, until_ms, ref reason, .. } = *ban;
        WrittenBan { by, value, since_ms, until_ms, reason: reason.to_string() }
    }
}

impl WrittenBan {
    /// # Errors
    /// What is wrong with it.
    pub fn read(&self) -> Result<Ban, String> {
        if self.reason.len() > REASON_BYTES_MAX || self.reason.chars().any(char::is_control) {
            return Err(format!("reason: expected {REASON_BYTES_MAX} bytes at the most, without control characters"));
        }
        let target = target(self.by, &self.value)?;
        Ok(Ban { target, since_ms: self.since_ms, until_ms: self.until_ms, reason: self.reason.as_str().into() })
    }
}

/// Whom a ban of that kind is about.
///
/// # Errors
/// The text is none such, and why.
pub fn target(by: BanKind, text: &str) -> Result<BanTarget, String> {
    let is_text = !text.is_empty() && text.len() <= usize::from(u16::MAX);
    match by {
        BanKind::ClientId if is_text => Ok(BanTarget::ClientId(text.into())),
        BanKind::UserName if is_text => Ok(BanTarget::UserName(text.into())),
        BanKind::ClientId | BanKind::UserName => Err("expected 1 to 65535 bytes".to_owned()),
        BanKind::Address => addresses(text),
    }
}

fn addresses(text: &str) -> Result<BanTarget, String> {
    let wrong =
        || format!("\"{text}\" is no address such as 192.0.2.7 or 2001:db8::7, and no network such as 192.0.2.0/24");
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let (before, bits) = if address.is_ipv4() { (MAPPED_BITS, 32) } else { (0, 128) };
    let len: u8 = len.map_or(Ok(bits), str::parse).map_err(|_| wrong())?;
    if len > bits {
        return Err(wrong());
    }
    let len = before + len;
    Ok(BanTarget::Addresses { prefix: first_bits(bits_of(address), len), len })
}

/// The first bits of addresses.
struct Network(u128, u8);

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Network(prefix, len) = *self;
        let address = Ipv6Addr::from_bits(prefix);
        match address.to_ipv4_mapped().filter(|_| len >= MAPPED_BITS) {
            Some(address) if len == 128 => address.fmt(out),
            Some(address) => write!(out, "{address}/{}", len - MAPPED_BITS),
            None if len == 128 => address.fmt(out),
            None => write!(out, "{address}/{len}"),
        }
    }
}

/// The bans of a node that is alone, as its data directory has them.
///
/// # Errors
/// What makes it no such file.
pub fn read_all(text: &str) -> Result<Vec<Ban>, String> {
    let written: Vec<WrittenBan> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    written.iter().map(WrittenBan::read).collect()
}

/// The text that [`read_all`] reads.
pub fn write_all<'a>(bans: impl Iterator<Item = &'a Ban>) -> String {
    let written: Vec<WrittenBan> = bans.map(WrittenBan::from).collect();
    serde_json::to_string_pretty(&written).unwrap_or_default()
}

/// Why a client that is banned is not let in, for the log.
pub fn in_words(ban: &Ban) -> Arc<str> {
    let WrittenBan { by, value, .. } = ban.into();
    format!("banned by {} {value:?}: {}", by.name(), ban.reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ban(by: BanKind, text: &str, until_ms: Option<u64>) -> Ban {
        Ban { target: target(by, text).unwrap(), since_ms: 1, until_ms, reason: "why".into() }
    }

    fn from(address: &str) -> Applicant<'_> {
        Applicant { client_id: "c", user_names: [Some("u"), None], address: address.parse().unwrap() }
    }

    #[test]
    fn whom_a_ban_is_about() {
        let cases = [
            (BanKind::ClientId, "c", true),
            (BanKind::ClientId, "u", false),
            (BanKind::UserName, "u", true),
            (BanKind::UserName, "c", false),
            (BanKind::Address, "192.0.2.7", true),
            (BanKind::Address, "192.0.2.99/24", true),
            (BanKind::Address, "192.0.2.8", false),
            (BanKind::Address, "0.0.0.0/0", true),
            (BanKind::Address, "::ffff:192.0.2.7", true),
            (BanKind::Address, "2001:db8::/32", false),
        ];
        for (by, text, is) in cases {
            let (bans, ban) = (Bans::default(), ban(by, text, None));
            assert!(bans.of(&from("192.0.2.7")).is_none());
            bans.set(ban.clone());
            for address in ["192.0.2.7", "::ffff:192.0.2.7"] {
                assert_eq!(bans.of(&from(address)).is_some(), is, "{text}");
                assert_eq!(is_about(&ban.target, &from(address)), is, "{text}");
                assert_eq!(bans.of_address(address.parse().unwrap()).is_some(), is && by == BanKind::Address, "{text}");
            }
            bans.remove(&ban.target);
            assert!(bans.of(&from("192.0.2.7")).is_none() && bans.list().is_empty());
        }
        let bans = Bans::default();
        bans.set(ban(BanKind::Address, "2001:db8::/32", None));
        assert!(bans.of(&from("2001:db8:1::9")).is_some() && bans.of(&from("2001:db9::9")).is_none());
        bans.set(ban(BanKind::UserName, "claimed", None));
        let claims = Applicant { user_names: [None, Some("claimed")], ..from("192.0.2.7") };
        assert!(bans.of(&claims).is_some(), "whom it says that it is");
    }

    #[test]
    fn a_ban_that_has_ended_says_nothing() {
        let bans = Bans::default();
        bans.set(ban(BanKind::ClientId, "c", Some(now_ms() - 1)));
        bans.set(ban(BanKind::Address, "192.0.2.7", Some(5)));
        assert!(bans.of(&from("192.0.2.7")).is_none() && bans.list().is_empty());
        bans.set(ban(BanKind::ClientId, "c", Some(now_ms() + 60_000)));
        assert!(bans.of(&from("192.0.2.7")).is_some() && bans.list().len() == 1);
        bans.set(ban(BanKind::ClientId, "c", Some(5)));
        assert!(bans.of(&from("192.0.2.7")).is_none(), "a newer one takes the place of an older one");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let bans = [
            ban(BanKind::ClientId, "ü/ \u{1}", None),
            ban(BanKind::UserName, "u", Some(7)),
            ban(BanKind::Address, "10.1.2.3/8", None),
            ban(BanKind::Address, "10.1.2.3", None),
            ban(BanKind::Address, "2001:db8::1/32", None),
            ban(BanKind::Address, "::/0", None),
        ];
        assert_eq!(read_all(&write_all(bans.iter())).unwrap(), bans);
        let shown = bans[2..].iter().map(|ban| WrittenBan::from(ban).value).collect::<Vec<_>>();
        assert_eq!(shown, ["10.0.0.0/8", "10.1.2.3", "2001:db8::/32", "::/0"]);
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "::/129", "localhost", "10.0.0.0/-1"] {
            assert!(target(BanKind::Address, text).is_err(), "{text}");
        }
        assert!(target(BanKind::ClientId, "").is_err() && read_all("{}").is_err());
    }
}
