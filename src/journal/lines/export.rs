//! From what is on disk to lines. Everything is looked at first ([`Survey`]), so that nothing is written of a state of which a part cannot be read.
//!
//! What a start would throw away is not exported: sessions whose lease is gone or of another session, leases of which there is a newer image.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use holdfast_raft::LeaseImage;
use holdfast_storage::{BodyId, ItemId, OwnerId, Recovered, RecoveredItem};

use crate::mqtt::Message;
use crate::session::{Queued, Restored};

use super::{
    Base64, Begin, Content, Counts, End, Handshake, Lease, Line, Retained, Session, Subscribed, Waiting, Will,
};
use crate::cluster::copies::CopyHeader;
use crate::journal::{
    HEADER, Header, LEASES, MARKS, NODE, RETAINED, decode_copied_header, decode_item, decode_lease, decode_stream,
    decode_tombstone,
};

/// An item that does not hold what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub owner: OwnerId,
    pub item: ItemId,
    pub what: &'static str,
}

const UNKNOWN: &str = "an item in a form that this program does not know";
const NO_BODY: &str = "a message without its content";

/// What there is to export.
#[derive(Debug, Default)]
pub struct Survey {
    pub counts: Counts,
    pub faults: Vec<Fault>,
    /// Sessions that a start would drop.
    pub ended: u64,
    /// Sessions of other nodes that have a copy here. They are not exported: whose they are their nodes say.
    pub copies: u64,
    /// The newest of each client, in the order of client ids.
    leases: Vec<LeaseImage>,
    /// Places in the list of owners.
    retained: Option<usize>,
    sessions: Vec<(usize, Arc<str>)>,
    given_back: Vec<usize>,
    /// Messages that more than one line needs.
    shared: HashSet<BodyId>,
}

impl Survey {
    /// Looks at every item.
    #[must_use]
    pub fn of(recovered: &Recovered) -> Survey {
        let mut survey = Survey::default();
        for (owner, items) in recovered.owners.iter().filter(|(owner, _)| *owner == LEASES) {
            survey.leases(*owner, items);
        }
        let mut seen = HashSet::new();
        for (place, (owner, items)) in recovered.owners.iter().enumerate() {
            match *owner {
                NODE | LEASES | MARKS => {}
                RETAINED => survey.retained(place, items, &mut seen),
                owner => survey.session(place, owner, items, &mut seen),
            }
        }
        survey
    }

    fn fault(&mut self, owner: OwnerId, item: ItemId, what: &'static str) {
        self.faults.push(Fault { owner, item, what });
    }

    fn leases(&mut self, owner: OwnerId, items: &[RecoveredItem]) {
        let mut newest: HashMap<Arc<str>, LeaseImage> = HashMap::with_capacity(items.len());
        for RecoveredItem { item, value, .. } in items {
            match decode_lease(*item, value) {
                Some(image) => drop(newest.insert(image.client.clone(), image)),
                None => self.fault(owner, *item, UNKNOWN),
            }
        }
        self.leases = newest.into_values().filter(|image| !(image.ended && image.wills_due.is_empty())).collect();
        self.leases.sort_unstable_by(|one, other| one.client.cmp(&other.client));
        let wills = |image: &LeaseImage| image.wills_due.len() + usize::from(image.will.is_some() && !image.ended);
        self.counts.wills = self.leases.iter().map(wills).sum::<usize>() as u64;
    }

    fn retained(&mut self, place: usize, items: &[RecoveredItem], seen: &mut HashSet<BodyId>) {
        self.retained = Some(place);
        for item in items {
            if item.value.is_empty() {
                self.counts.retained += 1;
                self.needs(RETAINED, item, seen);
            } else if decode_tombstone(&item.value).is_none() {
                self.fault(RETAINED, item.item, UNKNOWN);
            }
        }
    }

    /// The line of this item needs a message.
    fn needs(&mut self, owner: OwnerId, item: &RecoveredItem, seen: &mut HashSet<BodyId>) {
        match item.body {
            Some(body) if seen.insert(body) => {}
            Some(body) => drop(self.shared.insert(body)),
            None => self.fault(owner, item.item, NO_BODY),
        }
    }

    fn session(&mut self, place: usize, owner: OwnerId, items: &[RecoveredItem], seen: &mut HashSet<BodyId>) {
        let header = items.iter().find(|item| item.item == HEADER);
        if let Some(header) = header.and_then(|header| decode_copied_header(&header.value)) {
            return self.copied(owner, &header, items);
        }
        let header = items.iter().find(|item| item.item == HEADER).map(|item| Header::decode(&item.value));
        let client_id = match header {
            Some(None) => return self.fault(owner, HEADER, UNKNOWN),
            Some(Some(header)) if !self.is_of_lease(&header) => {
                self.ended += 1;
                return;
            }
            Some(Some(header)) => Some(header.client_id),
            None => None,
        };
        for item in items.iter().filter(|item| item.item != HEADER) {
            let Some(restored) = decode_item(item.item, &item.value) else {
                self.fault(owner, item.item, UNKNOWN);
                continue;
            };
            match restored {
                Restored::Message { queued, .. } if client_id.is_some() || queued.share.is_some() => {
                    self.counts.queued += 1;
                    self.needs(owner, item, seen);
                }
                Restored::Subscription { .. } => self.counts.subscriptions += u64::from(client_id.is_some()),
                Restored::Received { .. } | Restored::Accepted { .. } => {
                    self.counts.handshakes += u64::from(client_id.is_some());
                }
                Restored::Message { .. }
                | Restored::Missed { .. }
                | Restored::Seen { .. }
                | Restored::HadWill { .. } => {}
            }
        }
        match client_id {
            Some(client_id) => {
                self.counts.sessions += 1;
                self.sessions.push((place, client_id));
            }
            None => self.given_back.push(place),
        }
    }

    fn copied(&mut self, owner: OwnerId, header: &CopyHeader, items: &[RecoveredItem]) {
        let is_session = matches!(header, CopyHeader::Session { .. });
        self.copies += u64::from(is_session);
        for item in items.iter().filter(|item| item.item != HEADER) {
            let is_message = if is_session {
                let restored = decode_item(item.item, &item.value);
                restored.map(|restored| matches!(restored, Restored::Message { .. }))
            } else {
                decode_stream(&item.value).map(|_| false)
            };
            match is_message {
                None => self.fault(owner, item.item, UNKNOWN),
                Some(true) if item.body.is_none() => self.fault(owner, item.item, NO_BODY),
                Some(_) => {}
            }
        }
    }

    fn is_of_lease(&self, header: &Header) -> bool {
        let found = self.leases.binary_search_by(|image| image.client.cmp(&header.client_id));
        found.is_ok_and(|at| !self.leases[at].ended && self.leases[at].began == header.began)
    }
}

/// Calls `write` with every line. `read` gives the message of an item. A survey with faults is not to be exported.
///
/// # Errors
/// Those of `read` and `write`, at the first of which it ends.
pub fn export<E>(
    survey: &Survey,
    recovered: &Recovered,
    begin: Begin,
    read: &mut dyn FnMut(OwnerId, ItemId) -> Result<Message, E>,
    write: &mut dyn FnMut(&Line) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = Exporter { survey, recovered, read, write, lines: 0, numbers: HashMap::new() };
    out.line(&Line::Holdfast(begin))?;
    for image in &survey.leases {
        out.line(&Line::Lease(lease(image)))?;
    }
    if let Some(place) = survey.retained {
        let (owner, items) = &recovered.owners[place];
        for item in items.iter().filter(|item| item.value.is_empty()) {
            let (shared, message) = out.content(*owner, item)?;
            out.line(&Line::Retained(Retained { shared, message }))?;
        }
    }
    for (place, client_id) in &survey.sessions {
        out.line(&Line::Session(Session { client_id: client_id.to_string() }))?;
        out.items(*place, Some(client_id))?;
    }
    for place in &survey.given_back {
        out.items(*place, None)?;
    }
    let lines = out.lines;
    out.line(&Line::End(End { lines }))
}

struct Exporter<'a, E> {
    survey: &'a Survey,
    recovered: &'a Recovered,
    read: &'a mut dyn FnMut(OwnerId, ItemId) -> Result<Message, E>,
    write: &'a mut dyn FnMut(&Line) -> Result<(), E>,
    lines: u64,
    /// The numbers of shared messages that were written.
    numbers: HashMap<BodyId, u64>,
}

impl<E> Exporter<'_, E> {
    fn line(&mut self, line: &Line) -> Result<(), E> {
        self.lines += 1;
        (self.write)(line)
    }

    fn items(&mut self, place: usize, client_id: Option<&Arc<str>>) -> Result<(), E> {
        let recovered = self.recovered;
        let (owner, items) = &recovered.owners[place];
        for item in items.iter().filter(|item| item.item != HEADER) {
            let client = || client_id.map(ToString::to_string);
            let line = match (decode_item(item.item, &item.value), client()) {
                (Some(Restored::Message { queued, packet_id }), client_id) => {
                    if client_id.is_none() && queued.share.is_none() {
                        continue;
                    }
                    let (shared, message) = self.content(*owner, item)?;
                    let packet_id = packet_id.map(u16::from).filter(|_| client_id.is_some());
                    let waiting = waiting(queued, Waiting { client_id, packet_id, shared, message, ..empty() });
                    if waiting.client_id.is_some() { Line::Message(waiting) } else { Line::GivenBack(waiting) }
                }
                (Some(Restored::Subscription { filter, subscription }), Some(client_id)) => {
                    let options = subscription.options;
                    Line::Subscription(Subscribed {
                        client_id,
                        filter: filter.to_string(),
                        qos: options.qos as u8,
                        no_local: options.no_local,
                        retain_as_published: options.retain_as_published,
                        retain_handling: options.retain_handling as u8,
                        subscription_id: subscription.subscription_id,
                    })
                }
                (Some(Restored::Received { packet_id }), Some(client_id)) => {
                    Line::Received(Handshake { client_id, packet_id: packet_id.get() })
                }
                (Some(Restored::Accepted { packet_id, .. }), Some(client_id)) => {
                    Line::Accepted(Handshake { client_id, packet_id: packet_id.get() })
                }
                (Some(Restored::Missed { .. } | Restored::Seen { .. } | Restored::HadWill { .. }), _)
                | (_, None)
                | (None, _) => continue,
            };
            self.line(&line)?;
        }
        Ok(())
    }

    /// The number of a shared message, and the content unless it was written before.
    fn content(&mut self, owner: OwnerId, item: &RecoveredItem) -> Result<(Option<u64>, Option<Content>), E> {
        let shared = item.body.filter(|body| self.survey.shared.contains(body));
        if let Some(number) = shared.and_then(|body| self.numbers.get(&body)) {
            return Ok((Some(*number), None));
        }
        let message = (self.read)(owner, item.item)?;
        let number = shared.map(|body| {
            let number = self.numbers.len() as u64 + 1;
            self.numbers.insert(body, number);
            number
        });
        Ok((number, Some(content(message))))
    }
}

fn empty() -> Waiting {
    Waiting {
        client_id: None,
        packet_id: None,
        qos: 0,
        retain: false,
        subscription_ids: Vec::new(),
        share: None,
        shared: None,
        message: None,
    }
}

fn waiting(queued: Queued, with: Waiting) -> Waiting {
    Waiting {
        qos: queued.qos as u8,
        retain: queued.retain,
        subscription_ids: queued.subscription_ids.as_slice().to_vec(),
        share: queued.share.map(|share| share.to_string()),
        ..with
    }
}

fn content(message: Message) -> Content {
    Content {
        topic: message.topic.to_string(),
        payload: Base64(message.payload),
        properties: Base64(message.properties),
        qos: message.qos as u8,
        retain: message.retain,
        expires_at: message.expires_at,
        publisher: message.publisher.to_string(),
        stamp: message.stamp,
    }
}

fn lease(image: &LeaseImage) -> Lease {
    let LeaseImage { client, expiry_secs, connected, detached_since, ended, will, wills_due, .. } = image;
    let connected = *connected && !ended;
    let will = will.as_ref().filter(|_| !ended);
    Lease {
        client_id: client.to_string(),
        expiry_secs: *expiry_secs,
        connected,
        detached_since: (!connected && !ended).then_some(*detached_since),
        ended: *ended,
        will: will.map(|will| Will { delay_secs: will.delay_secs, message: Base64(will.message.clone()) }),
        wills_due: wills_due.iter().map(|(_, message)| Base64(message.clone())).collect(),
    }
}
