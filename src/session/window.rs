//! The inflight window: PUBLISH packets of QoS 1 and 2 on their way to the client, in the order in which they were first sent,
//! which is the order in which they are sent again [MQTT-4.4.0-1], [MQTT-4.6.0-1].

use std::collections::VecDeque;

use crate::mqtt::PacketId;

use super::packet_ids::PacketIds;
use super::queue::Queued;

/// How far the delivery has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// QoS 1: PUBACK is awaited.
    QoS1Sent,
    /// QoS 2: the packet identifier is being written down; the PUBLISH follows when that is kept, else it might go out again with another one.
    QoS2Recorded,
    /// QoS 2: that is kept, and the PUBLISH follows those before it.
    QoS2Kept,
    /// QoS 2: PUBREC is awaited.
    QoS2Sent,
    /// QoS 2: PUBREC came and is being written down; the PUBREL follows when that is kept, else the PUBLISH might go out once more.
    Received,
    /// QoS 2: PUBREL was sent, PUBCOMP is awaited.
    Released,
}

/// One packet in the window. `queued` is there when it may have to be sent again or given back: it is left out for a session
/// that ends with its connection, and once PUBREC has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inflight {
    pub packet_id: PacketId,
    pub stage: Stage,
    /// The position of the message in the session's records.
    pub position: u64,
    pub queued: Option<Queued>,
}

impl Inflight {
    /// Whether its message has to be read back before it can be sent again.
    pub fn is_stored(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| queued.message().is_none())
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    entries: VecDeque<Inflight>,
    packet_ids: PacketIds,
}

impl Window {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A packet identifier that no packet in the window has.
    pub fn next_packet_id(&mut self) -> PacketId {
        let Window { entries, packet_ids } = self;
        packet_ids.next(|id| find(entries, id).is_some())
    }

    /// The identifier that was given last; 0: none.
    pub fn last_packet_id(&self) -> u16 {
        self.packet_ids.last()
    }

    /// The next identifier is the one after `last`.
    pub fn resume_after(&mut self, last: PacketId) {
        self.packet_ids.resume_after(last);
    }

    pub fn push(&mut self, inflight: Inflight) {
        self.packet_ids.resume_after(inflight.packet_id);
        self.entries.push_back(inflight);
    }

    pub fn get_mut(&mut self, packet_id: PacketId) -> Option<&mut Inflight> {
        let at = find(&self.entries, packet_id)?;
        self.entries.get_mut(at)
    }

    pub fn remove(&mut self, packet_id: PacketId) -> Option<Inflight> {
        let at = find(&self.entries, packet_id)?;
        self.entries.remove(at)
    }

    pub fn get_position(&mut self, position: u64) -> Option<&mut Inflight> {
        self.entries.iter_mut().find(|inflight| inflight.position == position)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Inflight> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Inflight> {
        self.entries.iter_mut()
    }

    /// Takes out every packet for which `wanted` holds, in order.
    pub fn take(&mut self, wanted: impl Fn(&Inflight) -> bool) -> Vec<Inflight> {
        let (taken, kept): (VecDeque<Inflight>, VecDeque<Inflight>) =
            self.entries.drain(..).partition(|inflight| wanted(inflight));
        self.entries = kept;
        taken.into()
    }
}

/// Clients acknowledge in order: the first entry is nearly always the one. Otherwise identifiers grow along the window, counted
/// from its front and modulo the wrap, unless some were skipped because they were still in use.
fn find(entries: &VecDeque<Inflight>, packet_id: PacketId) -> Option<usize> {
    let front = entries.front()?.packet_id.get();
    if front == packet_id.get() {
        return Some(0);
    }
    let distance = |id: PacketId| id.get().wrapping_sub(front);
    if let Ok(at) = entries.binary_search_by_key(&distance(packet_id), |inflight| distance(inflight.packet_id)) {
        return Some(at);
    }
    if in_turn(entries, distance) { None } else { entries.iter().position(|inflight| inflight.packet_id == packet_id) }
}

/// Whether the last entry is also the farthest from the front, as it is unless identifiers went all the way round.
fn in_turn(entries: &VecDeque<Inflight>, distance: impl Fn(PacketId) -> u16) -> bool {
    let span = entries.back().map_or(0, |last| usize::from(distance(last.packet_id)));
    span + 1 >= entries.len()
        && entries.iter().zip(entries.iter().skip(1)).all(|(a, b)| distance(a.packet_id) < distance(b.packet_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inflight(id: u16) -> Inflight {
        Inflight {
            packet_id: PacketId::new(id).unwrap(),
            stage: Stage::QoS1Sent,
            position: u64::from(id),
            queued: None,
        }
    }

    #[test]
    fn packets_are_found_in_any_order_of_acknowledgement() {
        let mut window = Window::default();
        (1..=10).for_each(|id| window.push(inflight(id)));
        for id in [1, 10, 5, 2, 9, 3, 8, 4, 7, 6] {
            assert_eq!(window.remove(PacketId::new(id).unwrap()).unwrap().packet_id.get(), id);
            assert!(window.remove(PacketId::new(id).unwrap()).is_none());
        }
    }

    #[test]
    fn an_identifier_that_is_stuck_in_front_stays_findable_after_the_others_wrapped() {
        let mut window = Window::default();
        window.push(inflight(5));
        let mut last = 5;
        for _ in 0..70_000 {
            let id = window.next_packet_id();
            assert_ne!(id.get(), 5);
            window.push(inflight(id.get()));
            let older = window.iter().nth(1).unwrap().packet_id;
            if window.len() > 4 {
                assert!(window.remove(older).is_some());
            }
            last = id.get();
        }
        assert!(window.remove(PacketId::new(last).unwrap()).is_some());
        assert!(window.remove(PacketId::new(5).unwrap()).is_some());
    }
}
