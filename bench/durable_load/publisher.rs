//! A publisher's window and the packet it writes again and again; the connecting of many clients.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use holdfast::mqtt::{Ack, Packet, PacketId, Properties, Publish, QoS, ReasonCode};

use crate::net::{self, Load, Net, VERSION};

/// Sequence number and time in the first bytes of every payload.
pub const PAYLOAD_HEAD: usize = 16;
/// Connections being opened at any time.
const OPENING: usize = 100;

/// `p/0000017`: one length for all, so that one packet serves as the form of every other.
pub fn topic(number: usize) -> String {
    format!("p/{number:07}")
}

/// The client id of a session that subscribes [`topic`] of the same number.
pub fn session(number: usize) -> String {
    format!("session-{number:07}")
}

/// A QoS 1 PUBLISH to [`topic`] whose identifier, topic and payload head are filled in for each message.
pub struct Form {
    bytes: Vec<u8>,
    digits_at: usize,
    id_at: usize,
    head_at: usize,
}

impl Form {
    pub fn new(payload_bytes: usize) -> Result<Form> {
        if payload_bytes < PAYLOAD_HEAD {
            bail!("a payload has {PAYLOAD_HEAD} bytes at least");
        }
        let topic = topic(0);
        let payload = vec![0; payload_bytes];
        let mut bytes = Vec::new();
        let publish = Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: &topic,
            packet_id: PacketId::new(1),
            properties: Properties::EMPTY,
            payload: &payload,
        };
        publish.encode(VERSION, &mut bytes);
        let head_at = bytes.len() - payload_bytes;
        Ok(Form { digits_at: head_at - 2 - 7, id_at: head_at - 2, head_at, bytes })
    }

    fn write(&self, out: &mut Vec<u8>, topic: usize, id: u16, seq: u64, time_ns: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let packet = &mut out[start..];
        let mut rest = topic;
        for digit in packet[self.digits_at..self.id_at].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        packet[self.id_at..self.head_at].copy_from_slice(&id.to_be_bytes());
        packet[self.head_at..self.head_at + 8].copy_from_slice(&seq.to_le_bytes());
        packet[self.head_at + 8..self.head_at + 16].copy_from_slice(&time_ns.to_le_bytes());
    }
}

/// Sequence number and time of a payload that [`Form`] wrote.
pub fn payload_head(payload: &[u8]) -> Result<(u64, u64)> {
    let number = |at: usize| payload.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
    number(0).zip(number(8)).ok_or_else(|| anyhow!("a payload of {} bytes is none of ours", payload.len()))
}

/// One publishing connection with a bounded number of messages without PUBACK.
pub struct Publisher {
    pub token: usize,
    free: Vec<u16>,
    sent_at: Vec<u64>,
    pub published: u64,
    pub acked: u64,
}

impl Publisher {
    pub fn new(token: usize, window: u16) -> Publisher {
        let (free, sent_at) = ((1..=window).rev().collect(), vec![0; usize::from(window) + 1]);
        Publisher { token, free, sent_at, published: 0, acked: 0 }
    }

    pub fn may_publish(&self) -> bool {
        !self.free.is_empty()
    }

    pub fn publish(&mut self, net: &mut Net, form: &Form, topic: usize, seq: u64) -> Result<()> {
        let id = self.free.pop().ok_or_else(|| anyhow!("the window is full"))?;
        let now = net.now_ns();
        self.sent_at[usize::from(id)] = now;
        form.write(net.out(self.token)?, topic, id, seq, now);
        self.published += 1;
        Ok(())
    }

    /// Nanoseconds from PUBLISH to PUBACK.
    pub fn acknowledged(&mut self, net: &Net, ack: &Ack<'_>) -> Result<u64> {
        let id = ack.packet_id.get();
        let sent = self.sent_at.get_mut(usize::from(id)).map(std::mem::take).filter(|at| *at != 0);
        let sent = sent.ok_or_else(|| anyhow!("PUBACK {id} acknowledges nothing"))?;
        self.free.push(id);
        self.acked += 1;
        Ok(net.now_ns() - sent)
    }
}

/// Connects clients, a hundred at a time, and subscribes those that have a filter.
#[derive(Default)]
pub struct Opening {
    waiting: VecDeque<Newcomer>,
    filters: Vec<Option<String>>,
    pending: usize,
}

struct Newcomer {
    /// That of the others if it has none.
    addr: Option<SocketAddr>,
    token: usize,
    client_id: String,
    clean: bool,
}

impl Opening {
    pub fn add(&mut self, token: usize, client_id: String, clean: bool, filter: Option<String>) {
        self.add_at(None, token, client_id, clean, filter);
    }

    /// The same to an address of its own.
    pub fn add_at(
        &mut self,
        addr: Option<SocketAddr>,
        token: usize,
        client_id: String,
        clean: bool,
        filter: Option<String>,
    ) {
        if self.filters.len() <= token {
            self.filters.resize(token + 1, None);
        }
        self.filters[token] = filter;
        self.waiting.push_back(Newcomer { addr, token, client_id, clean });
    }

    /// Until all are there, or nothing came for `patience`.
    pub fn run(mut self, net: &mut Net, patience: Duration) -> Result<()> {
        loop {
            while self.pending < OPENING
                && let Some(next) = self.waiting.pop_front()
            {
                match next.addr {
                    Some(addr) => net.open_at(addr, next.token, &net::connect(&next.client_id, next.clean))?,
                    None => net.open(next.token, &next.client_id, next.clean)?,
                }
                self.pending += 1;
            }
            if self.pending == 0 {
                return Ok(());
            }
            if !net.turn(&mut self, patience)? {
                bail!("{} clients wait for their CONNACK or SUBACK", self.pending);
            }
        }
    }
}

impl Load for Opening {
    fn packet(&mut self, net: &mut Net, token: usize, packet: &Packet<'_>) -> Result<()> {
        match packet {
            Packet::ConnAck(ack) if ack.reason == ReasonCode::Success => match self.filters[token].take() {
                Some(filter) => net.subscribe(token, &filter),
                None => {
                    self.pending -= 1;
                    Ok(())
                }
            },
            Packet::SubAck(ack) if ack.codes == [1] => {
                self.pending -= 1;
                Ok(())
            }
            other => bail!("unexpected: {other:?}"),
        }
    }
}

/// Says goodbye on connections and waits until the server has closed them all.
pub struct Leaving {
    left: usize,
}

impl Leaving {
    pub fn run(net: &mut Net, tokens: impl Iterator<Item = usize>, patience: Duration) -> Result<()> {
        let mut leaving = Leaving { left: 0 };
        for token in tokens {
            net.disconnect(token)?;
            leaving.left += 1;
        }
        while leaving.left > 0 {
            if !net.turn(&mut leaving, patience)? {
                bail!("{} connections are not closed after DISCONNECT", leaving.left);
            }
        }
        Ok(())
    }
}

impl Load for Leaving {
    fn packet(&mut self, _net: &mut Net, _token: usize, _packet: &Packet<'_>) -> Result<()> {
        Ok(())
    }

    fn closed(&mut self, _net: &mut Net, _token: usize) -> Result<()> {
        self.left -= 1;
        Ok(())
    }
}
