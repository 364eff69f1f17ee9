//! The Wills that a session has had. A Will is published once more, by another node or by the same one, when the node that was publishing it ends before all know that it is done;
//! so a session that takes one writes down with it, in the same section, that it has had it, whatever becomes of the message. That goes with the session wherever it goes.
//!
//! Not of what is delivered at QoS 0, of sessions that are not written down, and of what came by way of a share group: there it counts whether the node has seen the Will.
//!
//! Test to read first: `tests::a_session_takes_a_will_once`.

use hashbrown::HashMap;

use crate::mqtt::{QoS, WillName};

use super::outbound::{Delivery, Outgoing};
use super::record::{Item, Journal, Position};
use super::{Session, Turn};

/// Each with the position under which it is written down.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wills(Option<Box<HashMap<WillName, Position>>>);

impl Wills {
    pub fn iter(&self) -> impl Iterator<Item = (&WillName, Position)> {
        self.0.iter().flat_map(|wills| wills.iter()).map(|(will, position)| (will, *position))
    }

    pub fn get(&self, will: &WillName) -> Option<(&WillName, Position)> {
        self.0.as_ref()?.get_key_value(will).map(|(will, position)| (will, *position))
    }

    pub(super) fn enter(&mut self, will: WillName, position: Position) {
        self.0.get_or_insert_default().insert(will, position);
    }

    fn remove(&mut self, will: &WillName) -> Option<Position> {
        let position = self.0.as_mut()?.remove(will);
        self.0.take_if(|wills| wills.is_empty());
        position
    }
}

impl Session {
    /// Whether what comes is for the session, as far as it is a Will.
    pub fn wants_will(&self, outgoing: &Outgoing<'_>, delivery: Delivery<'_>) -> bool {
        match outgoing.will_name().filter(|_| delivery.share.is_none()) {
            None => true,
            Some(will) if self.remembers(outgoing, delivery) => self.wills.get(&will).is_none(),
            Some(_) => !outgoing.known,
        }
    }

    fn remembers(&self, outgoing: &Outgoing<'_>, delivery: Delivery<'_>) -> bool {
        let qos = outgoing.qos.min(delivery.qos);
        self.owner.is_some() && qos != QoS::AtMostOnce && delivery.share.is_none()
    }

    /// The session has taken a message, which may be a Will.
    pub(super) fn note_will<J: Journal>(
        &mut self,
        turn: &mut Turn<'_, J>,
        outgoing: &Outgoing<'_>,
        delivery: Delivery<'_>,
    ) {
        if let Some(will) = outgoing.will_name().filter(|_| self.remembers(outgoing, delivery)) {
            let position = self.take_position();
            self.put(turn, position, Item::HadWill { will: &will });
            self.wills.enter(will, position);
        }
    }

    /// The Wills that it has had, in no order.
    pub fn wills_had(&self) -> impl Iterator<Item = &WillName> {
        self.wills.iter().map(|(will, _)| will)
    }

    /// Nobody publishes that Will any more.
    pub fn forget_will<J: Journal>(&mut self, turn: &mut Turn<'_, J>, will: &WillName) {
        if let Some(position) = self.wills.remove(will) {
            self.delete(turn, position);
        }
    }
}
