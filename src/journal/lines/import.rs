//! From lines to what is written down. Each line is judged by itself and against those before it, as a node judges what clients send; what is not wrong becomes
//! entries for the storage.
//!
//! A client id has one lease and at most one session, whose lines stand together.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use holdfast_raft::{LeaseImage, LeaseWill};
use holdfast_storage::{Body, BodyId, Entry, ItemId, OwnerId};

use super::{Content, Counts, FORMAT, Handshake, Lease, Line, Retained, Subscribed, Waiting};
use crate::journal::{HEADER, LEASES, RETAINED, SESSIONS, encode_header, encode_item, encode_lease};
use crate::mqtt::{
    self, Message, MessageId, PACKET_BYTES_MAX, Packet, PacketId, Peer, ProtocolVersion, PublishHead, QoS,
    SubscriptionOptions,
};
use crate::retained::Version;
use crate::session::{Item, Queued, QueuedBody, StoredBody, Subscription, SubscriptionIds, will};
use crate::topic::{TopicFilter, name};

/// No time of a node is later: leases count up to a million numbers for each millisecond in 64 bits.
const TIME_MAX: u64 = 1 << 43;
const SUBSCRIPTION_ID_MAX: u32 = 268_435_455;
/// Text of MQTT.
const TEXT_BYTES_MAX: usize = 65_535;

/// What has been read so far.
#[derive(Debug, Default)]
pub struct Import {
    lines: u64,
    begun: bool,
    ended: bool,
    last_run: u64,
    counts: Counts,
    leases: HashMap<Arc<str>, Leased>,
    session: Option<Open>,
    owners: u64,
    /// The owner of what was given back, and its last item.
    given_back: Option<(OwnerId, ItemId)>,
    /// Messages that were made.
    sequence: u64,
    /// Shared messages by their number less one.
    shared: Vec<Option<Shared>>,
    /// Who holds on to them, so that later items can refer to what the first one has written: the storage takes a message as shared from the second item
    /// of its first batch on.
    holder: Option<OwnerId>,
}

#[derive(Debug, Clone, Copy)]
struct Leased {
    began: u64,
    /// Whether a session may follow.
    free: bool,
}

/// The session whose lines are being read.
#[derive(Debug)]
struct Open {
    client_id: Arc<str>,
    owner: OwnerId,
    last: ItemId,
    filters: HashSet<String>,
    /// Packet identifiers of the server and of the client.
    window: HashSet<u16>,
    accepted: HashSet<u16>,
}

/// A message that is on its way to disk already, for the items that refer to it.
#[derive(Debug, Clone, Copy)]
struct Shared {
    body: BodyId,
    stored: StoredBody,
}

impl Body for Shared {
    fn id(&self) -> BodyId {
        self.body
    }

    fn encode(&self, _out: &mut Vec<u8>) {
        unreachable!("it is on disk, and held there until the last line");
    }

    fn size(&self) -> usize {
        0
    }
}

/// A message as an item refers to it.
struct Needed {
    body: QueuedBody,
    /// What is handed to the storage.
    entry: Arc<dyn Body>,
}

impl Import {
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// When the node was last known to have run, once the first line has been read.
    #[must_use]
    pub fn last_run(&self) -> Option<u64> {
        self.begun.then_some(self.last_run)
    }

    /// Reads the next line, without its end, and appends what is to be written.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it. Reading may go on, to find what else is wrong.
    pub fn line(&mut self, text: &[u8], out: &mut Vec<Entry>) -> Result<(), String> {
        self.lines += 1;
        let line = serde_json::from_slice(text).map_err(|error| what_serde_says(&error));
        if !self.begun {
            return self.begin(line);
        }
        if self.ended {
            return Err("there is something behind the last line".to_owned());
        }
        let line = line?;
        if !matches!(line, Line::Subscription(_) | Line::Message(_) | Line::Received(_) | Line::Accepted(_)) {
            self.session = None;
        }
        match line {
            Line::Holdfast(_) => Err("this is a first line, and it is not the first".to_owned()),
            Line::Lease(lease) => self.lease(lease, out),
            Line::Retained(retained) => self.retained(retained, out),
            Line::Session(session) => self.open(&session.client_id, out),
            Line::Subscription(subscribed) => self.subscription(subscribed, out),
            Line::Message(waiting) => self.message(waiting, out),
            Line::Received(handshake) => self.handshake(&handshake, true, out),
            Line::Accepted(handshake) => self.handshake(&handshake, false, out),
            Line::GivenBack(waiting) => self.given_back(waiting, out),
            Line::End(end) if end.lines + 1 == self.lines => {
                self.ended = true;
                out.extend(self.holder.map(|owner| Entry::Drop { owner }));
                Ok(())
            }
            Line::End(end) => {
                Err(format!("there should be {} lines before this, and there are {}", end.lines, self.lines - 1))
            }
        }
    }

    /// The end of the file.
    ///
    /// # Errors
    /// The last line is missing.
    pub fn finish(&self) -> Result<(), String> {
        if self.ended {
            return Ok(());
        }
        Err("the last line is missing, the one of type \"end\": the file was cut off".to_owned())
    }

    fn begin(&mut self, line: Result<Line, String>) -> Result<(), String> {
        match line {
            Ok(Line::Holdfast(begin)) if begin.format == 0 || begin.format > FORMAT => Err(format!(
                "this was exported by a newer Holdfast: it has format {}, and this program knows formats up to {FORMAT}",
                begin.format
            )),
            Ok(Line::Holdfast(begin)) => {
                self.last_run = time(begin.last_run)?;
                self.begun = true;
                Ok(())
            }
            _ => Err("this is not what  holdfast data export  has written: its first line is of type \"holdfast\""
                .to_owned()),
        }
    }

    fn lease(&mut self, lease: Lease, out: &mut Vec<Entry>) -> Result<(), String> {
        let client = client_id(&lease.client_id)?;
        let states = [lease.connected, lease.detached_since.is_some(), lease.ended];
        if states.iter().filter(|state| **state).count() != 1 {
            return Err("exactly one of connected, detached_since and ended is to be given".to_owned());
        }
        if lease.ended && (lease.wills_due.is_empty() || lease.will.is_some()) {
            return Err("a session that has ended leaves wills_due and nothing else".to_owned());
        }
        let messages = lease.wills_due.iter().chain(lease.will.as_ref().map(|will| &will.message));
        for message in messages {
            will::decode(&message.0, (&client, 0), MessageId::default(), 0)
                .ok_or("a Will is not a PUBLISH packet of MQTT 5.0")?;
        }
        // The connections before the last one, whose Wills are due, come first.
        let epoch = lease.wills_due.len() as u64 + 1;
        let leased = Leased { began: epoch, free: !lease.ended };
        if self.leases.insert(client.clone(), leased).is_some() {
            return Err(format!("a second lease of client \"{client}\""));
        }
        self.counts.wills += lease.wills_due.len() as u64 + u64::from(lease.will.is_some());
        let image = LeaseImage {
            item: self.leases.len() as u64,
            client,
            epoch,
            began: epoch,
            expiry_secs: lease.expiry_secs,
            connected: lease.connected,
            detached_since: time(lease.detached_since.unwrap_or(0))?,
            ended: lease.ended,
            will: lease.will.map(|will| LeaseWill { delay_secs: will.delay_secs, message: will.message.0 }),
            wills_due: (1..).zip(lease.wills_due).map(|(epoch, message)| (epoch, message.0)).collect(),
        };
        out.push(Entry::Put { owner: LEASES, item: image.item, value: encode_lease(&image), body: None });
        Ok(())
    }

    fn retained(&mut self, retained: Retained, out: &mut Vec<Entry>) -> Result<(), String> {
        if retained.message.as_ref().is_some_and(|message| message.payload.is_empty()) {
            return Err("a retained message has a payload".to_owned());
        }
        if retained.message.as_ref().is_some_and(|message| message.topic.starts_with("$SYS/")) {
            return Err("messages below $SYS are the node's own and are not kept".to_owned());
        }
        let needed = self.needed(retained.shared, retained.message, out)?;
        self.counts.retained += 1;
        let item = self.counts.retained;
        out.push(Entry::Put { owner: RETAINED, item, value: Default::default(), body: Some(needed.entry) });
        Ok(())
    }

    fn next_owner(&mut self) -> OwnerId {
        self.owners += 1;
        OwnerId(SESSIONS.0 + self.owners)
    }

    fn open(&mut self, name: &str, out: &mut Vec<Entry>) -> Result<(), String> {
        let client_id = client_id(name)?;
        let owner = self.next_owner();
        let leased = self.leases.get_mut(&client_id);
        let began = leased.as_ref().map_or(0, |leased| leased.began);
        let is_free = leased.map(|leased| std::mem::take(&mut leased.free));
        // Open in any case: what follows is judged all the same.
        self.session = Some(Open {
            client_id: client_id.clone(),
            owner,
            last: HEADER,
            filters: HashSet::new(),
            window: HashSet::new(),
            accepted: HashSet::new(),
        });
        self.counts.sessions += 1;
        out.push(Entry::Put { owner, item: HEADER, value: encode_header(&client_id, began), body: None });
        match is_free {
            Some(true) => Ok(()),
            Some(false) => Err(format!("client \"{name}\" has had its session already, or it has ended")),
            None => Err(format!("there is no lease of client \"{name}\" before this session")),
        }
    }

    /// The session that a line says it is of.
    fn session_of(&mut self, name: &str) -> Result<&mut Open, String> {
        let Some(open) = &mut self.session else {
            return Err(format!("this does not stand behind the session of client \"{name}\""));
        };
        if *open.client_id == *name {
            return Ok(open);
        }
        Err(format!(
            "this is of client \"{name}\", and stands among the lines of the session of client \"{}\"",
            open.client_id
        ))
    }

    fn subscription(&mut self, line: Subscribed, out: &mut Vec<Entry>) -> Result<(), String> {
        let open = self.session_of(&line.client_id)?;
        TopicFilter::parse(&line.filter).map_err(|error| error.to_string())?;
        if line.subscription_id.is_some_and(|id| id == 0 || id > SUBSCRIPTION_ID_MAX) {
            return Err(format!("a subscription_id is from 1 to {SUBSCRIPTION_ID_MAX}"));
        }
        let in_range = line.qos < 4 && line.retain_handling < 4;
        let bits = line.qos
            | u8::from(line.no_local) << 2
            | u8::from(line.retain_as_published) << 3
            | line.retain_handling.min(3) << 4;
        let options = SubscriptionOptions::from_bits(bits).filter(|_| in_range);
        let options = options.ok_or("qos and retain_handling are 0, 1 or 2")?;
        let filter: Arc<str> = line.filter.as_str().into();
        if !open.filters.insert(line.filter) {
            return Err(format!("a second subscription to \"{filter}\""));
        }
        let subscription = Subscription { options, subscription_id: line.subscription_id };
        open.put(Item::Subscription { filter: &filter, subscription }, None, out);
        self.counts.subscriptions += 1;
        Ok(())
    }

    fn handshake(&mut self, line: &Handshake, of_server: bool, out: &mut Vec<Entry>) -> Result<(), String> {
        let packet_id = packet_id(line.packet_id)?;
        let open = self.session_of(&line.client_id)?;
        let used = if of_server { &mut open.window } else { &mut open.accepted };
        if !used.insert(line.packet_id) {
            return Err(format!("packet identifier {packet_id} is in use twice"));
        }
        let item = if of_server { Item::Received { packet_id } } else { Item::Accepted { packet_id, names: None } };
        open.put(item, None, out);
        self.counts.handshakes += 1;
        Ok(())
    }

    fn message(&mut self, mut line: Waiting, out: &mut Vec<Entry>) -> Result<(), String> {
        let name = line.client_id.take().ok_or("a message has a client_id")?;
        let id = line.packet_id.map(packet_id).transpose()?;
        self.session_of(&name)?;
        let (mut queued, body) = self.queued(line, out)?;
        let open = self.session_of(&name)?;
        if id.is_some_and(|id| !open.window.insert(id.get())) {
            return Err(format!("packet identifier {} is in use twice", id.map_or(0, PacketId::get)));
        }
        queued.position = open.last + 1;
        open.put(Item::Message { queued: &queued, packet_id: id }, Some(body), out);
        self.counts.queued += 1;
        Ok(())
    }

    fn given_back(&mut self, line: Waiting, out: &mut Vec<Entry>) -> Result<(), String> {
        if line.client_id.is_some() || line.packet_id.is_some() || line.share.is_none() {
            return Err("what was given back has a share, no client_id and no packet_id".to_owned());
        }
        let (mut queued, body) = self.queued(line, out)?;
        let (owner, last) = match self.given_back {
            Some(given_back) => given_back,
            None => (self.next_owner(), HEADER),
        };
        let item = last + 1;
        self.given_back = Some((owner, item));
        queued.position = item;
        let value = encode_item(Item::Message { queued: &queued, packet_id: None });
        out.push(Entry::Put { owner, item, value, body: Some(body) });
        self.counts.queued += 1;
        Ok(())
    }

    fn queued(&mut self, line: Waiting, out: &mut Vec<Entry>) -> Result<(Queued, Arc<dyn Body>), String> {
        let qos = QoS::from_u8(line.qos).filter(|qos| *qos != QoS::AtMostOnce);
        let qos = qos.ok_or("a message that waits has qos 1 or 2")?;
        if line.subscription_ids.iter().any(|id| *id == 0 || *id > SUBSCRIPTION_ID_MAX) {
            return Err(format!("subscription_ids are from 1 to {SUBSCRIPTION_ID_MAX}"));
        }
        if let Some(share) = &line.share {
            let filter = TopicFilter::parse(share).map_err(|error| error.to_string())?;
            filter.share.ok_or("share is not a shared subscription, $share/name/filter")?;
        }
        let needed = self.needed(line.shared, line.message, out)?;
        let queued = Queued {
            position: 0,
            body: needed.body,
            qos,
            retain: line.retain,
            subscription_ids: SubscriptionIds::from_slice(&line.subscription_ids),
            share: line.share.map(Into::into),
            kept: true,
            awaited: false,
        };
        Ok((queued, needed.entry))
    }

    /// The message of a line: a new one, or one of an earlier line.
    fn needed(
        &mut self,
        number: Option<u64>,
        content: Option<Content>,
        out: &mut Vec<Entry>,
    ) -> Result<Needed, String> {
        if number == Some(0) {
            return Err("shared messages are numbered from 1".to_owned());
        }
        let Some(content) = content else {
            let number = number.ok_or("there is neither a message nor the number of a shared one")?;
            let known = usize::try_from(number - 1).ok().and_then(|at| *self.shared.get(at)?);
            let known = known.ok_or_else(|| format!("there is no shared message {number} before this line"))?;
            return Ok(Needed { body: QueuedBody::Stored(known.stored), entry: Arc::new(known) });
        };
        let place = number.map(|number| self.reserve(number)).transpose()?;
        let message = Arc::new(self.new_message(content)?);
        if let Some(place) = place {
            self.share(place, &message, out);
        }
        Ok(Needed { body: QueuedBody::Here(message.clone()), entry: message })
    }

    /// Lets later lines refer to a message.
    fn share(&mut self, place: usize, message: &Arc<Message>, out: &mut Vec<Entry>) {
        let size = u32::try_from(message.size()).unwrap_or(u32::MAX);
        let stored = StoredBody { size, expires_at: message.expires_at };
        self.shared[place] = Some(Shared { body: message.id(), stored });
        let owner = match self.holder {
            Some(owner) => owner,
            None => self.next_owner(),
        };
        self.holder = Some(owner);
        out.push(Entry::Put { owner, item: place as u64 + 1, value: Default::default(), body: Some(message.clone()) });
    }

    /// Room for the shared message of this number, which is the next one.
    fn reserve(&mut self, number: u64) -> Result<usize, String> {
        let next = self.shared.len();
        if number != next as u64 + 1 {
            return Err(format!("shared message {number} comes where number {} should", next + 1));
        }
        self.shared.push(None);
        Ok(next)
    }

    fn new_message(&mut self, content: Content) -> Result<Message, String> {
        let qos = QoS::from_u8(content.qos).ok_or("qos is 0, 1 or 2")?;
        check_content(&content)?;
        self.sequence += 1;
        Ok(Message {
            // Below the first of any node's own.
            id: MessageId { node: 0, shard: 0, sequence: self.sequence },
            stamp: stamp(content.stamp)?,
            topic: content.topic.into(),
            payload: content.payload.0,
            properties: content.properties.0,
            qos,
            retain: content.retain,
            expires_at: content.expires_at.map(time).transpose()?,
            publisher: content.publisher.into(),
            name: None,
            will: 0,
        })
    }
}

impl Open {
    fn put(&mut self, item: Item<'_>, body: Option<Arc<dyn Body>>, out: &mut Vec<Entry>) {
        self.last += 1;
        out.push(Entry::Put { owner: self.owner, item: self.last, value: encode_item(item), body });
    }
}

/// Topic and properties must be such as a PUBLISH of a client has them.
fn check_content(content: &Content) -> Result<(), String> {
    name::validate(&content.topic).map_err(|error| error.to_string())?;
    text(&content.publisher, "publisher")?;
    let bytes = content.payload.0.len() + content.properties.0.len() + content.topic.len();
    if bytes + 16 > PACKET_BYTES_MAX as usize {
        return Err(format!("{bytes} bytes are more than a packet can have"));
    }
    let head = PublishHead {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: false,
        topic: &content.topic,
        packet_id: None,
        message_expiry_secs: None,
        topic_alias: None,
        subscription_ids: &[],
        properties: &content.properties.0,
        payload_len: 0,
    };
    let mut packet = Vec::new();
    head.encode(ProtocolVersion::V5, &mut packet);
    let wrong = || "properties are not those that a PUBLISH packet of MQTT 5.0 forwards".to_owned();
    let frame = mqtt::next_frame(&packet, u32::MAX).ok().flatten().ok_or_else(wrong)?;
    match mqtt::decode(&frame, ProtocolVersion::V5, Peer::Client) {
        Ok(Packet::Publish(publish)) if *publish.properties.forwarded() == content.properties.0[..] => Ok(()),
        _ => Err(wrong()),
    }
}

fn text(text: &str, what: &str) -> Result<(), String> {
    if text.len() > TEXT_BYTES_MAX || text.contains('\0') {
        return Err(format!("{what}: not a text of MQTT, which has at most 65,535 bytes and no U+0000"));
    }
    Ok(())
}

fn client_id(name: &str) -> Result<Arc<str>, String> {
    text(name, "client_id")?;
    if name.is_empty() { Err("client_id is empty".to_owned()) } else { Ok(name.into()) }
}

fn packet_id(id: u16) -> Result<PacketId, String> {
    PacketId::new(id).ok_or_else(|| "a packet_id is from 1 to 65535".to_owned())
}

fn stamp(stamp: u64) -> Result<u64, String> {
    if (Version { stamp, node: 0 }).at() > TIME_MAX { Err(format!("{stamp} is not a stamp")) } else { Ok(stamp) }
}

fn time(at: u64) -> Result<u64, String> {
    if at > TIME_MAX { Err(format!("{at} is not a time in milliseconds since 1970")) } else { Ok(at) }
}

/// Without the place, which is that of a line alone.
fn what_serde_says(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => text,
    }
}
