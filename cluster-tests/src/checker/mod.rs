//! Judges a [`History`](crate::history::History) by the promises of a broker that keeps what it acknowledged.
//!
//! It is fed event by event and needs no look back, so that a test can judge after every restart. What it demands:
//! - a session that was promised is present, one that ended is not (`sessions`);
//! - an acknowledged QoS 1 or 2 message reaches every kept subscription that was acknowledged before the message was sent, unless
//!   somebody asked to unsubscribe; a shared subscription counts as one; QoS 2 is once; messages keep their order and only QoS 1
//!   repeats; nothing comes to who did not ask for it or has unsubscribed; a Will that was taken back never comes (`deliveries`);
//! - a retained value is that of the last acknowledged change or of a later attempt; a deleted one never comes back (`retained`).
//!
//! Read first: `checker/tests.rs`, where each rule has a history that breaks it.

mod deliveries;
mod filter;
mod retained;
mod sessions;
#[cfg(test)]
mod tests;

use crate::history::{Event, History, MessageId, Name};

pub use filter::matches;

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The place in the history of the event that shows it.
    pub place: usize,
    /// What is broken, in words.
    pub what: String,
    /// Whom and what it is about, to look for in the history.
    pub clients: Vec<Name>,
    pub messages: Vec<MessageId>,
}

impl Violation {
    fn new(what: String, client: Option<&Name>, messages: &[&MessageId]) -> Self {
        let messages: Vec<_> = messages.iter().map(|message| (*message).clone()).collect();
        let publishers = messages.iter().map(|message| &message.publisher);
        let clients = client.into_iter().chain(publishers).cloned().collect();
        Self { place: 0, what, clients, messages }
    }
}

/// What the checker knows so far.
#[derive(Default)]
pub struct Checker {
    place: usize,
    sessions: sessions::Sessions,
    deliveries: deliveries::Deliveries,
    retained: retained::Retained,
    violations: Vec<Violation>,
}

impl Checker {
    /// Reads what the history has more than at the last time.
    pub fn read(&mut self, history: &History) {
        for event in history.since(self.place) {
            self.observe(&event);
        }
    }

    /// Takes one event.
    pub fn observe(&mut self, event: &Event) {
        let mut found = Vec::new();
        self.sessions.observe(event, &mut found);
        self.deliveries.observe(self.place, event, &mut found);
        self.retained.observe(event, &mut found);
        if let Event::Broken { client, what } = event {
            found.push(Violation::new(format!("{client}: {what}"), Some(client), &[]));
        }
        self.violations.extend(found.into_iter().map(|violation| Violation { place: self.place, ..violation }));
        self.place += 1;
    }

    /// Whether an acknowledged message has not come yet to somebody who must get it.
    pub fn is_owed(&self) -> bool {
        self.deliveries.is_owed()
    }

    /// Call when every publisher has finished and every kept subscriber has taken all that was queued: what is owed still is lost.
    pub fn settle(&mut self) {
        let lost = self.deliveries.settle();
        self.violations.extend(lost.into_iter().map(|violation| Violation { place: self.place, ..violation }));
    }

    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// How much was judged: (messages published, messages received).
    pub fn counts(&self) -> (usize, usize) {
        self.deliveries.counts()
    }

    /// Fails with the first violations and what the history says about them. `HOLDFAST_HISTORY` names a file for all of it.
    ///
    /// # Panics
    /// When a promise was broken.
    #[track_caller]
    pub fn assert_kept(&self, history: &History) {
        let Some(first) = self.violations.first() else { return };
        let list: Vec<_> =
            self.violations.iter().take(20).map(|found| format!("{}: {}", found.place, found.what)).collect();
        history.write_if_asked();
        panic!(
            "{} broken promises:\n{}\nabout the first:\n{}",
            self.violations.len(),
            list.join("\n"),
            history.about(&first.clients, &first.messages)
        );
    }
}
