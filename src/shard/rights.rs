//! What the client of a connection may do: the rules of [`access::acl`](crate::access::acl) as a session asks for them, counted, and each denial told.
//!
//! A Will outlives its connection, and perhaps its node: who its client was travels behind it, and it is asked once more when the Will is published.
//!
//! Invariants: a denial is a line in the log, one for each client, action and second, with a count of those left out; without rules nothing is counted.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use tracing::warn;

use crate::access::acl::{Action, Rights, Subject};
use crate::metrics::{self, DropReason};
use crate::mqtt::{Connect, Message, ReasonCode};
use crate::session::will::EncodedWill;
use crate::session::{self, Rights as _, Ruling, Violation, will};
use crate::subscriptions::ShardId;

use super::Shard;
use super::greeted::Greeted;
use super::shared::Shared;

/// The largest [`Subject`] that travels behind a Will, encoded.
const AUTHOR_BYTES_MAX: usize = 16 * 1024;

/// See the module.
pub(super) struct ClientRights {
    rights: Rights,
    shared: Arc<Shared>,
    shard: ShardId,
    /// `None`: it has gone, and left a Will.
    peer: Option<SocketAddr>,
}

impl fmt::Debug for ClientRights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rights.fmt(out)
    }
}

impl ClientRights {
    pub fn new(shared: &Arc<Shared>, shard: ShardId, greeted: &Greeted) -> ClientRights {
        let attributes = greeted.identity.attributes.as_deref().cloned().unwrap_or_default();
        let subject = Subject {
            client_id: greeted.client_id.clone(),
            user_name: greeted.identity.user_name.clone(),
            cert_cn: attributes.cert_cn,
            claims: attributes.claims,
            acl_claim: attributes.acl_claim,
            is_local: greeted.peer.ip().to_canonical().is_loopback(),
            listener: greeted.listener.config.name.as_str().into(),
        };
        let rights = shared.acl.rights(subject);
        ClientRights { rights, shared: shared.clone(), shard, peer: Some(greeted.peer) }
    }

    /// The encoded Will with its author behind it. `None`: that is too long.
    pub fn sign(&self, will: &[u8]) -> Option<Bytes> {
        let author = postcard::to_extend(self.rights.subject(), will.to_vec()).ok()?;
        (author.len() - will.len() <= AUTHOR_BYTES_MAX).then(|| author.into())
    }

    fn allows(&mut self, action: Action, topic: &str) -> bool {
        let answer = self.rights.ask(action, topic);
        if answer.asked {
            let counts = &self.shared.metrics.shards[usize::from(self.shard)].acl_checks[action as usize];
            counts[usize::from(!answer.allowed)].add(1);
        }
        if !answer.allowed {
            self.tell(action, topic);
        }
        answer.allowed
    }

    #[cold]
    fn tell(&mut self, action: Action, topic: &str) {
        let client_id = self.rights.subject().client_id.clone();
        let Some(left_out) = metrics::admit_line(&format!("acl {} {client_id}", action.label())) else {
            return;
        };
        let left_out = (left_out > 0).then_some(left_out);
        let decision = self.rights.explain(action, topic);
        let user_name = self.rights.subject().user_name.as_deref();
        let peer = self.peer.map(tracing::field::display);
        let (action, rule, by) = (action.label(), decision.rule.as_str(), decision.by.as_str());
        warn!(
            event = "denied",
            client_id = &*client_id,
            user_name,
            peer,
            action,
            topic,
            rule,
            by,
            left_out,
            "{decision}"
        );
    }

    fn ruling(&mut self, action: Action, topic: &str) -> Ruling {
        match self.allows(action, topic) {
            true => Ruling::Allowed,
            false if self.shared.denial_expels => Ruling::Expelled,
            false => Ruling::Denied,
        }
    }
}

impl session::Rights for ClientRights {
    fn may_publish(&mut self, topic: &str) -> Ruling {
        self.ruling(Action::Publish, topic)
    }

    fn may_subscribe(&mut self, filter: &str) -> Ruling {
        self.ruling(Action::Subscribe, filter)
    }

    fn may_read(&mut self, topic: &str) -> bool {
        self.allows(Action::Read, topic)
    }
}

impl Shard {
    /// Whether the client of a Will may still publish it. Counts one that is dropped. `author` is what [`ClientRights::sign`] put behind it; without
    /// that, the client is anonymous.
    pub(super) fn may_publish_will(&mut self, message: &Message, author: &[u8]) -> bool {
        let nobody = || Subject { client_id: message.publisher.clone(), ..Subject::default() };
        let subject = postcard::from_bytes(author).unwrap_or_else(|_| nobody());
        let rights = self.shared.acl.rights(subject);
        let mut rights = ClientRights { rights, shared: self.shared.clone(), shard: self.id, peer: None };
        let may = rights.allows(Action::Publish, &message.topic);
        if !may {
            self.metrics().dropped(DropReason::Acl, 1);
        }
        may
    }
}

/// The Will of a CONNECT as the control state keeps it, if its client may publish it.
pub(super) fn will_of(
    connect: &Connect<'_>,
    limits: &session::Limits,
    rights: &mut ClientRights,
) -> Result<Option<EncodedWill>, Violation> {
    let Some(encoded) = will::encode(connect, limits)? else { return Ok(None) };
    let topic = connect.will.as_ref().map_or("", |will| will.topic);
    if rights.may_publish(topic) != Ruling::Allowed {
        return Err(Violation::new(ReasonCode::NotAuthorized, "the client may not publish its Will"));
    }
    match rights.sign(&encoded.message) {
        Some(message) => Ok(Some(EncodedWill { message, ..encoded })),
        None => Err(Violation::new(ReasonCode::PacketTooLarge, "what the Will's author is known by is too long")),
    }
}
