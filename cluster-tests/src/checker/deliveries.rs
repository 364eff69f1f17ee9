//! Who must get a message, who may, how often, and in which order.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Violation;
use super::filter::{matches, plain};
use crate::history::{Event, MessageId, Name, Retain};

/// What a message is owed to: a session, or a shared subscription as a whole, named by its filter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Debtor {
    Session(Name),
    Share(String),
}

/// One filter of one client.
#[derive(Default)]
struct Holding {
    /// The QoS while the subscription is certainly in force.
    granted: Option<u8>,
    /// When it may have been in force: from its SUBSCRIBE to the UNSUBACK.
    spans: Vec<(usize, Option<usize>)>,
}

/// What came of one publisher's messages on one topic with one QoS.
#[derive(Default)]
struct Progress {
    latest: u64,
    /// On the connection at hand, of those that the publisher sent once.
    latest_here: u64,
    seen: HashSet<u64>,
}

#[derive(Default)]
struct Client {
    /// Whether its session stays when the connection ends: only then is it owed anything.
    keeps: bool,
    clean: bool,
    filters: BTreeMap<String, Holding>,
    progress: HashMap<(Name, String, u8), Progress>,
}

struct Publication {
    place: usize,
    topic: String,
    qos: u8,
    withdrawn: bool,
    /// Its publisher has sent it again, not knowing whether the first time counts: to whom it goes with less than QoS 2, it may come
    /// again, and behind newer ones.
    resent: bool,
}

/// A message for which somebody waits. Each debt with the subscriptions that are its reason.
struct Open {
    acknowledged: bool,
    debts: BTreeMap<Debtor, BTreeSet<(Name, String)>>,
}

#[derive(Default)]
pub(super) struct Deliveries {
    clients: BTreeMap<Name, Client>,
    published: HashMap<MessageId, Publication>,
    open: HashMap<MessageId, Open>,
    /// What came with QoS 2, to each session as long as it lasts.
    once: HashMap<Debtor, HashSet<MessageId>>,
    received: usize,
}

/// A PUBLISH as a client got it.
struct Copy<'e> {
    client: &'e Name,
    message: &'e MessageId,
    topic: &'e str,
    qos: u8,
    dup: bool,
    retain: bool,
}

impl Deliveries {
    pub(super) fn observe(&mut self, place: usize, event: &Event, found: &mut Vec<Violation>) {
        match event {
            Event::PublishSent { message, topic, qos, retain } => self.publish(place, message, topic, *qos, *retain),
            Event::Acknowledged { message } => {
                if let Some(open) = self.open.get_mut(message) {
                    open.acknowledged = true;
                }
            }
            Event::Resent { message } => {
                if let Some(publication) = self.published.get_mut(message) {
                    publication.resent = true;
                }
            }
            Event::Withdrawn { message } => {
                self.open.remove(message);
                if let Some(publication) = self.published.get_mut(message) {
                    publication.withdrawn = true;
                }
            }
            Event::Received { client, message, topic, qos, dup, retain } => {
                let copy = Copy { client, message, topic, qos: *qos, dup: *dup, retain: *retain };
                self.receive(&copy, found);
            }
            _ => self.subscriptions(place, event),
        }
    }

    /// Sessions and their subscriptions.
    fn subscriptions(&mut self, place: usize, event: &Event) {
        match event {
            Event::ConnectSent { client, clean, keeps } => {
                let entry = self.clients.entry(client.clone()).or_default();
                (entry.keeps, entry.clean) = (*keeps, *clean);
                if *clean {
                    // Whether its session ends is not known before the CONNACK; the client has forgotten it in any case.
                    entry.progress.clear();
                    self.once.remove(&Debtor::Session(client.clone()));
                }
                if *clean || !*keeps {
                    self.forgive(client, None);
                    self.forget(client);
                }
            }
            Event::Connected { client, present: false } => self.end(client),
            Event::Connected { client, present: true } => {
                let entry = self.clients.entry(client.clone()).or_default();
                entry.progress.values_mut().for_each(|progress| progress.latest_here = 0);
            }
            Event::Ended { client } => self.end(client),
            Event::SubscribeSent { client, filter } => {
                let holding = self.holding(client, filter);
                if !holding.spans.last().is_some_and(|(_, end)| end.is_none()) {
                    holding.spans.push((place, None));
                }
            }
            Event::Subscribed { client, filter, granted } => self.holding(client, filter).granted = *granted,
            Event::UnsubscribeSent { client, filter } => self.forgive(client, Some(filter)),
            Event::Unsubscribed { client, filter } => {
                if let Some((_, end)) = self.holding(client, filter).spans.last_mut() {
                    *end = Some(place);
                }
            }
            _ => {}
        }
    }

    fn holding(&mut self, client: &Name, filter: &str) -> &mut Holding {
        self.clients.entry(client.clone()).or_default().filters.entry(filter.to_owned()).or_default()
    }

    /// The session is gone with all that was in it.
    fn end(&mut self, client: &Name) {
        self.forgive(client, None);
        self.forget(client);
        self.clients.entry(client.clone()).or_default().filters.clear();
    }

    /// The client does not know any more what it has got.
    fn forget(&mut self, client: &Name) {
        self.once.remove(&Debtor::Session(client.clone()));
        self.clients.entry(client.clone()).or_default().progress.clear();
    }

    /// Nothing is owed any more because of this filter (`None`: all filters) of a client, which is not certainly in force from now on.
    fn forgive(&mut self, client: &Name, filter: Option<&String>) {
        let is_meant = |there: &String| filter.is_none_or(|filter| filter == there);
        let entry = self.clients.entry(client.clone()).or_default();
        for (_, holding) in entry.filters.iter_mut().filter(|(there, _)| is_meant(there)) {
            holding.granted = None;
        }
        self.open.retain(|_, open| {
            open.debts.retain(|_, reasons| {
                reasons.retain(|(name, there)| name != client || !is_meant(there));
                !reasons.is_empty()
            });
            !open.debts.is_empty()
        });
    }

    fn publish(&mut self, place: usize, message: &MessageId, topic: &str, qos: u8, retain: Retain) {
        let publication = Publication { place, topic: topic.to_owned(), qos, withdrawn: false, resent: false };
        self.published.insert(message.clone(), publication);
        // A deletion has no payload by which it could be told from another.
        if qos == 0 || retain == Retain::Delete {
            return;
        }
        let mut debts = BTreeMap::<Debtor, BTreeSet<(Name, String)>>::new();
        for (name, client) in self.clients.iter().filter(|(_, client)| client.keeps) {
            for (filter, holding) in &client.filters {
                if holding.granted.is_some_and(|qos| qos > 0) && matches(filter, topic) {
                    debts.entry(debtor(name, filter)).or_default().insert((name.clone(), filter.clone()));
                }
            }
        }
        if !debts.is_empty() {
            self.open.insert(message.clone(), Open { acknowledged: false, debts });
        }
    }

    fn receive(&mut self, copy: &Copy<'_>, found: &mut Vec<Violation>) {
        self.received += 1;
        let Copy { client, message, .. } = copy;
        let mut latest = None;
        let mut wrong = Vec::new();
        self.judge(copy, &mut wrong, &mut latest);
        let messages: Vec<_> = std::iter::once(*message).chain(&latest).collect();
        let violation = |what| Violation::new(format!("{client} got {message}: {what}"), Some(client), &messages);
        found.extend(wrong.into_iter().map(violation));
    }

    /// What is wrong with a copy, and which message came before it that should not have.
    fn judge(&mut self, copy: &Copy<'_>, wrong: &mut Vec<String>, before: &mut Option<MessageId>) {
        let Copy { client, message, .. } = copy;
        let mut wrong = |what: &str| wrong.push(what.to_owned());
        let Some(publication) = self.published.get(message) else {
            return wrong("nobody published it");
        };
        if publication.topic != copy.topic {
            wrong("on another topic than it was published on");
        }
        if copy.qos > publication.qos {
            wrong("with a higher QoS than it was published with");
        }
        if copy.dup && copy.qos == 0 {
            wrong("DUP with QoS 0 [MQTT-3.3.1-2]");
        }
        if publication.withdrawn {
            wrong("a Will that was taken back");
        }
        let entry = self.clients.entry((*client).clone()).or_default();
        let debtors = entry.debtors(client, copy.topic, publication.place);
        if debtors.is_empty() {
            wrong("no subscription matches, or it was ended before");
        }
        if copy.retain {
            return;
        }
        if !debtors.iter().any(|debtor| matches!(debtor, Debtor::Share(_))) {
            let key = (message.publisher.clone(), copy.topic.to_owned(), publication.qos);
            let progress = entry.progress.entry(key).or_default();
            let repeats = publication.qos == 1 || copy.qos == 1 || (copy.qos == 0 && publication.resent);
            let late = publication.resent && copy.qos < 2;
            *before = Some(MessageId { number: progress.latest, ..(*message).clone() });
            if let Some(what) = progress.advance(message.number, repeats, late) {
                wrong(&what);
            } else if !publication.resent
                && let Some(latest) = progress.advance_here(message.number)
            {
                wrong(&format!("behind {latest} on one connection, and its publisher sent it once [MQTT-4.6.0-1]"));
            }
        }
        for debtor in debtors {
            if let Some(open) = self.open.get_mut(message) {
                open.debts.remove(&debtor);
            }
            let first = self.once.entry(debtor).or_default().insert((*message).clone());
            if copy.qos == 2 && !first {
                wrong("QoS 2, and it came before");
            }
        }
    }

    pub(super) fn is_owed(&self) -> bool {
        self.open.values().any(|open| open.acknowledged && !open.debts.is_empty())
    }

    /// What is owed is lost; what was never acknowledged is forgotten.
    pub(super) fn settle(&mut self) -> Vec<Violation> {
        let mut lost = Vec::new();
        for (message, open) in std::mem::take(&mut self.open) {
            for debtor in open.debts.keys().filter(|_| open.acknowledged) {
                let (name, client) = match debtor {
                    Debtor::Session(name) => (name.to_string(), Some(name)),
                    Debtor::Share(filter) => (filter.clone(), None),
                };
                let what = format!("{message} was acknowledged and did not come to {name}");
                lost.push(Violation::new(what, client, &[&message]));
            }
        }
        lost.sort_by(|one, other| one.messages.cmp(&other.messages));
        lost
    }

    pub(super) fn counts(&self) -> (usize, usize) {
        (self.published.len(), self.received)
    }
}

impl Client {
    /// In whose name a client may get a message that was published at `place`.
    fn debtors(&self, name: &Name, topic: &str, place: usize) -> BTreeSet<Debtor> {
        let may = |holding: &Holding| holding.spans.iter().any(|(_, end)| end.is_none_or(|end| end > place));
        let matching = self.filters.iter().filter(|(filter, holding)| matches(filter, topic) && may(holding));
        matching.map(|(filter, _)| debtor(name, filter)).collect()
    }
}

fn debtor(client: &Name, filter: &str) -> Debtor {
    if plain(filter) == filter { Debtor::Session(client.clone()) } else { Debtor::Share(filter.to_owned()) }
}

impl Progress {
    /// What is wrong with this number as the next one.
    fn advance(&mut self, number: u64, repeats: bool, late: bool) -> Option<String> {
        if self.seen.insert(number) {
            let latest = self.latest;
            self.latest = latest.max(number);
            return (number < latest && !late).then(|| format!("out of order, after {latest}"));
        }
        (!repeats).then(|| "it came before, and it is not of QoS 1".to_owned())
    }

    /// Of messages that their publisher sent once, none comes twice on a connection, nor behind a later one, also when they are resent.
    fn advance_here(&mut self, number: u64) -> Option<u64> {
        let latest = self.latest_here;
        self.latest_here = latest.max(number);
        (number <= latest).then_some(latest)
    }
}
