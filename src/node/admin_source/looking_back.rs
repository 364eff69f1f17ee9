//! What this node tells of connections that have ended, and of who would receive a message.

use std::sync::Arc;

use crate::admin::{ClosedRequest, PAGE_MAX, Trouble, view};
use crate::shard::closing::{CLOSED_MAX, Closed};
use crate::shard::inspecting::{Inspect, Matching};
use crate::subscriptions::ShardId;
use crate::topic::TopicFilter;

use super::{Local, version};

impl Local {
    /// Connections of this node that have ended, the latest first.
    pub fn closed(&self, asked: &ClosedRequest) -> view::ClosedPage {
        let (all, _) = self.shared.closed.newest(CLOSED_MAX, None, asked.client_id.as_deref());
        let mut closed: Vec<_> = all.into_iter().map(|closed| self.closed_view(closed)).collect();
        if let Some(after) = &asked.after {
            closed.retain(|one| one.cursor() < *after);
        }
        // Shards do not read the clock at the same time.
        closed.sort_by_cached_key(|one| std::cmp::Reverse(one.cursor()));
        let more = closed.len() > asked.limit;
        closed.truncate(asked.limit);
        let next = closed.last().filter(|_| more).map(|last| last.cursor().to_string());
        view::ClosedPage { closed, next, missing: Vec::new() }
    }

    fn closed_view(&self, closed: Closed) -> view::ClosedConnection {
        view::ClosedConnection {
            client_id: closed.client_id.to_string(),
            node: self.name.to_string(),
            number: closed.number,
            user_name: closed.user_name.as_deref().map(str::to_owned),
            peer: closed.peer.to_string(),
            listener: closed.listener.config.name.clone(),
            version: version(closed.version).to_owned(),
            accepted_at_ms: closed.accepted_at,
            closed_at_ms: closed.closed_at,
            reason: closed.ended.reason.label().to_owned(),
            detail: closed.ended.what.to_owned(),
            packets_in: closed.totals.packets_in,
            bytes_in: closed.totals.bytes_in,
            bytes_out: closed.totals.bytes_out,
        }
    }

    /// Who on this node would receive a message of this topic.
    pub async fn topic_match(&self, topic: Arc<str>) -> Result<view::Matches, Trouble> {
        let mut found = view::Matches { topic: topic.to_string(), ..view::Matches::default() };
        let node = self.name.to_string();
        for shard in 0..self.shared.mailboxes.len() as ShardId {
            let question = |reply| Inspect::Matching { topic: topic.clone(), at_most: PAGE_MAX, reply };
            let Matching { list, truncated } = self.ask(shard, question).await?;
            found.truncated |= truncated;
            found.receivers.extend(list.into_iter().map(|one| view::Receiver {
                client_id: one.client_id.to_string(),
                node: node.clone(),
                filter: one.filter.to_string(),
                share: None,
                qos: one.qos as u8,
                connected: one.connected,
            }));
        }
        let (mut members, mut truncated) = (Vec::new(), false);
        self.shared.index.for_each_member(&topic, |share, member| {
            truncated |= members.len() == PAGE_MAX;
            if !truncated && let Ok(TopicFilter { share: Some(name), filter }) = TopicFilter::parse(share) {
                members.push(view::Receiver {
                    client_id: member.client_id.to_string(),
                    node: node.clone(),
                    filter: filter.to_owned(),
                    share: Some(name.to_owned()),
                    qos: member.options.qos as u8,
                    connected: member.connected,
                });
            }
        });
        found.truncated |= truncated;
        found.receivers.extend(members);
        found.receivers.sort();
        Ok(found)
    }
}
