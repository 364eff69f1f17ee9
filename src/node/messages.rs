//! Messages by way of the admin port: what is retained, and what is published.
//!
//! Every node has all retained messages, so they are read where the question comes, a slice at a time under the lock of the store. A message is accepted by the shard of its topic, so that those
//! of one topic keep their order, and its asker has the answer when everybody has it who has to: subscribers' sessions on disk, other nodes, and their copies, as the publisher of a QoS 1 packet.
//!
//! Owns nothing. Test to read first: `cluster-tests/tests/admin/messages.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::admin::{PublishRequest, RetainedRequest, Trouble, view};
use crate::mqtt::{Message, QoS};
use crate::retained::is_system;
use crate::shard::mailbox::{Event, Requested, Turned};
use crate::topic::{TopicFilter, name};

use super::admin_source::Local;

/// Topics that are looked at under one hold of the lock.
const SLICE: usize = 2_000;

/// Retained messages that one request removes at the most; whoever asks again goes on.
const REMOVED_MAX: usize = 10_000;

/// How many of them are on their way at a time.
const REMOVED_AT_ONCE: usize = 256;

/// The longest that it takes until a message is with everybody.
const PUBLISH_PATIENCE: Duration = Duration::from_secs(10);

impl Local {
    /// Retained messages that match a filter, in the order of their topics.
    pub async fn retained(&self, asked: &RetainedRequest) -> Result<view::RetainedPage, Trouble> {
        parsed(&asked.filter)?;
        let mut page = view::RetainedPage::default();
        let mut bytes = 0;
        let mut after = asked.after.clone();
        loop {
            let from = self.slice(&asked.filter, after.as_deref(), |message| {
                bytes += message.size();
                if page.messages.len() == asked.limit
                    || (asked.values && bytes > VALUES_BYTES_MAX && !page.messages.is_empty())
                {
                    page.next = page.messages.last().map(|last: &view::Retained| last.topic.clone());
                    return false;
                }
                page.messages.push(self.told(message, asked.values));
                true
            });
            match from.filter(|_| page.next.is_none()) {
                Some(from) => after = Some(from),
                None => return Ok(page),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Gives matching messages to `each` until that has enough. Where to go on, if there is more.
    fn slice(
        &self,
        filter: &str,
        after: Option<&str>,
        mut each: impl FnMut(&Arc<Message>) -> bool,
    ) -> Option<Arc<str>> {
        let now = self.shared.clock.now();
        let retained = self.shared.retained.read();
        let mut scan = retained.scan(now, filter, after, SLICE);
        for message in scan.by_ref() {
            if !each(message) {
                return None;
            }
        }
        scan.resume().cloned()
    }

    /// The retained message of a topic.
    pub fn retained_of(&self, topic: &str) -> Option<view::Retained> {
        let retained = self.shared.retained.read();
        retained.get(self.shared.clock.now(), topic).map(|message| self.told(message, true))
    }

    fn told(&self, message: &Message, value: bool) -> view::Retained {
        let now = self.shared.clock.now();
        view::Retained {
            topic: message.topic.to_string(),
            qos: message.qos as u8,
            bytes: message.payload.len() as u64,
            publisher: message.publisher.to_string(),
            expires_in_secs: message.expires_at.map(|at| at.saturating_sub(now).div_ceil(1_000)),
            payload_base64: value.then(|| STANDARD.encode(&message.payload)),
        }
    }

    /// Removes the retained messages that match a filter, or counts them.
    pub async fn remove_retained(&self, filter: &str, dry_run: bool) -> Result<view::RetainedRemoved, Trouble> {
        parsed(filter)?;
        let mut topics: Vec<Arc<str>> = Vec::new();
        let (mut after, mut more) = (None, false);
        loop {
            let from = self.slice(filter, after.as_deref(), |message| {
                more = topics.len() == REMOVED_MAX;
                if !more && !is_system(&message.topic) {
                    topics.push(message.topic.clone());
                }
                !more
            });
            match from {
                Some(from) => after = Some(from),
                None => break,
            }
            tokio::task::yield_now().await;
        }
        let matched = topics.len() as u64;
        if !dry_run {
            for some in topics.chunks(REMOVED_AT_ONCE) {
                let gone = some.iter().map(|topic| {
                    self.publish_one(self.message(topic.clone(), Bytes::new(), QoS::AtLeastOnce, true, None))
                });
                join_all(gone).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            }
        }
        Ok(view::RetainedRemoved { matched, removed: if dry_run { 0 } else { matched }, more })
    }

    /// Publishes all of them, or none if one is wrong; the answers in order.
    pub async fn publish(&self, asked: Vec<PublishRequest>) -> Result<Vec<view::Published>, Trouble> {
        let messages = asked.into_iter().map(|one| self.checked(one)).collect::<Result<Vec<_>, _>>()?;
        join_all(messages.into_iter().map(|message| self.publish_one(message))).await.into_iter().collect()
    }

    fn checked(&self, asked: PublishRequest) -> Result<Message, Trouble> {
        let wrong = |why: String| Trouble::new(400, "invalid", why);
        name::validate(&asked.topic).map_err(|error| wrong(format!("topic: {error}")))?;
        if asked.topic.starts_with('$') {
            return Err(wrong("topic: those that begin with $ are the server's own".to_owned()));
        }
        let levels_max = self.shared.limits.topic_levels_max;
        if name::levels(&asked.topic) > levels_max {
            return Err(wrong(format!("topic: it has more than {levels_max} levels")));
        }
        let message = self.message(asked.topic.into(), asked.payload, asked.qos, asked.retain, asked.expiry_secs);
        if message.size() > self.shared.limits.packet_size_max as usize {
            return Err(Trouble::new(413, "too_large", "the message is larger than max_packet_size"));
        }
        Ok(message)
    }

    fn message(&self, topic: Arc<str>, payload: Bytes, qos: QoS, retain: bool, expiry_secs: Option<u32>) -> Message {
        Message {
            id: Default::default(),
            stamp: 0,
            topic,
            payload,
            properties: Bytes::new(),
            qos,
            retain,
            expires_at: expiry_secs.map(|secs| self.shared.clock.now() + u64::from(secs) * 1_000),
            // No client has it: nobody is left out by No Local.
            publisher: "".into(),
            name: None,
            will: 0,
        }
    }

    async fn publish_one(&self, message: Message) -> Result<view::Published, Trouble> {
        let shard = self.shared.shard_of(&message.topic);
        let routed = Arc::new(AtomicU8::new(Requested::UNKNOWN));
        let (done, kept) = oneshot::channel();
        let done = Mutex::new(Some(done));
        let kept_by_all = Turned::new(1, move || {
            // Whoever waited may have given up.
            let _ = done.lock().take().map(|done| done.send(()));
        });
        let requested = Requested { message, routed: routed.clone(), kept: kept_by_all };
        self.shared.mailboxes[usize::from(shard)].push(Event::Request(Box::new(requested)));
        let in_time = timeout(PUBLISH_PATIENCE, kept).await;
        match routed.load(Ordering::Acquire) {
            Requested::REFUSED => Err(Trouble::new(507, "no_room", "there is no room to keep the message")
                .hint("see the storage and the retained messages in /metrics")),
            _ if !matches!(in_time, Ok(Ok(()))) => {
                Err(Trouble::new(503, "not_kept", "the message is not with everybody in time").hint(
                    "it may come to some of them, or all, later: publish it again if it does no harm to have it twice",
                ))
            }
            routed => Ok(view::Published { matched: routed == Requested::MATCHED }),
        }
    }
}

/// Bytes of messages on a page that has their payloads.
const VALUES_BYTES_MAX: usize = 8 * 1024 * 1024;

fn parsed(filter: &str) -> Result<(), Trouble> {
    match TopicFilter::parse(filter) {
        Ok(parsed) if parsed.share.is_none() => Ok(()),
        Ok(_) => Err(Trouble::new(400, "invalid", "filter: retained messages belong to no share group")),
        Err(error) => Err(Trouble::new(400, "invalid", format!("filter: {error}"))),
    }
}
