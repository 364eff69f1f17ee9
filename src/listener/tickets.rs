//! Session tickets that every node of a cluster can read: a client that comes to another node than before resumes its TLS session there.
//!
//! All nodes derive the same keys from the secret of the cluster and the hour, so nothing has to be agreed upon. Each ticket has a key of its own, made by HKDF of the period's key and random
//! bytes that stand in the ticket; so no two tickets share a nonce, however many nodes there are. A key is in use for [`PERIOD_SECS`] and read for one period more, and
//! one earlier, as clocks differ.
//!
//! A ticket: the number of its period (8 bytes), random bytes, the sealed state.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use rustls::server::ProducesTickets;

/// How long tickets are made with one key, in seconds; they are good for as long at least.
pub const PERIOD_SECS: u64 = 6 * 3_600;

const RANDOM_BYTES: usize = 32;
const HEAD_BYTES: usize = 8 + RANDOM_BYTES;
/// No state of rustls comes near.
const TICKET_BYTES_MAX: usize = 16 * 1024;

/// The tickets of one listener, on every node that has one of its name.
pub struct Tickets {
    root: Prk,
    now_secs: fn() -> u64,
}

impl fmt::Debug for Tickets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Tickets")
    }
}

struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

impl Tickets {
    /// `root` is a key that is known to all nodes and is for nothing else.
    pub fn new(root: &[u8; 32]) -> Tickets {
        Tickets { root: Prk::new_less_safe(HKDF_SHA256, root), now_secs: wall_clock }
    }

    fn period(&self) -> u64 {
        (self.now_secs)() / PERIOD_SECS
    }

    /// The key of a ticket with this head.
    fn key(&self, head: &[u8]) -> Option<LessSafeKey> {
        let mut key = [0; 32];
        self.root.expand(&[b"holdfast ticket", head], Bytes32).ok()?.fill(&mut key).ok()?;
        UnboundKey::new(&AES_256_GCM, &key).ok().map(LessSafeKey::new)
    }
}

fn wall_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Each key seals one ticket.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        PERIOD_SECS as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let mut ticket = self.period().to_be_bytes().to_vec();
        let mut random = [0; RANDOM_BYTES];
        // Without randomness there is no ticket, and the next handshake is a whole one.
        getrandom::fill(&mut random).ok()?;
        ticket.extend_from_slice(&random);
        let mut sealed = plain.to_vec();
        self.key(&ticket)?.seal_in_place_append_tag(nonce(), Aad::from(&ticket), &mut sealed).ok()?;
        ticket.extend_from_slice(&sealed);
        (ticket.len() <= TICKET_BYTES_MAX).then_some(ticket)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (head, sealed) = ticket.split_at_checked(HEAD_BYTES)?;
        let period = u64::from_be_bytes(head[..8].try_into().ok()?);
        if ticket.len() > TICKET_BYTES_MAX || period.abs_diff(self.period()) > 1 {
            return None;
        }
        let mut opened = sealed.to_vec();
        let len = self.key(head)?.open_in_place(nonce(), Aad::from(head), &mut opened).ok()?.len();
        opened.truncate(len);
        Some(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(root: u8, now_secs: fn() -> u64) -> Tickets {
        Tickets { now_secs, ..Tickets::new(&[root; 32]) }
    }

    #[test]
    fn another_node_reads_a_ticket_for_one_period_more() {
        let ticket = at(1, || 10 * PERIOD_SECS).encrypt(b"state").unwrap();
        let read = |tickets: Tickets| tickets.decrypt(&ticket);
        assert_eq!(read(at(1, || 10 * PERIOD_SECS)).as_deref(), Some(&b"state"[..]));
        assert_eq!(read(at(1, || 12 * PERIOD_SECS - 1)).as_deref(), Some(&b"state"[..]));
        assert_eq!(read(at(1, || 10 * PERIOD_SECS - 1)).as_deref(), Some(&b"state"[..]), "its clock is behind");
        assert_eq!(read(at(1, || 12 * PERIOD_SECS)), None);
        assert_eq!(read(at(2, || 10 * PERIOD_SECS)), None, "another secret");
    }

    #[test]
    fn what_was_changed_is_no_ticket_and_no_two_are_alike() {
        let tickets = at(1, || 10 * PERIOD_SECS);
        let ticket = tickets.encrypt(b"state").unwrap();
        assert_ne!(tickets.encrypt(b"state").unwrap(), ticket);
        for byte in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[byte] ^= 1;
            assert_eq!(tickets.decrypt(&changed), None, "byte {byte}");
            assert_eq!(tickets.decrypt(&ticket[..byte]), None, "cut at {byte}");
        }
        assert!(ticket.windows(5).all(|part| part != b"state"));
    }
}
