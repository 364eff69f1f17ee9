//! SUBSCRIBE as the session sees it: which filters are granted, and why the others are not.

use std::sync::Arc;

use crate::limits;
use crate::mqtt::{ProtocolVersion, ReasonCode, Subscribe, SubscriptionOptions};
use crate::topic::{self, TopicFilter};

use super::inbound::DENIED;
use super::rights::Ruling;
use super::{Limits, Session, Violation};

/// One filter of a SUBSCRIBE: granted, or refused with the code of its SUBACK [MQTT-3.9.3-1].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub filter: Result<Arc<str>, ReasonCode>,
    pub options: SubscriptionOptions,
}

impl Judged {
    /// The code in the SUBACK.
    pub fn code(&self) -> u8 {
        match self.filter {
            Ok(_) => self.options.qos as u8,
            Err(reason) => reason as u8,
        }
    }
}

impl Session {
    /// Judges every filter before the first one is entered, so that a packet which ends the connection changes nothing.
    pub fn judge(&mut self, limits: &Limits, subscribe: &Subscribe<'_>) -> Result<Vec<Judged>, Violation> {
        few_enough(subscribe.filters.iter().count())?;
        let mut room = Room {
            subscriptions: limits.subscriptions_max.saturating_sub(self.subscriptions.len()),
            bytes: limits::SUBSCRIPTION_BYTES_MAX.saturating_sub(self.subscription_bytes),
            broad: None,
            broad_max: limits.broad_subscriptions_max,
        };
        let mut judged = Vec::new();
        for (text, options) in subscribe.filters.iter() {
            let mut filter = judge_filter(limits, text, options)?;
            if filter.is_ok() {
                filter = self.judge_right(text)?;
            }
            let filter = filter.and_then(|()| self.fit(text, &mut room));
            judged.push(Judged { filter, options });
        }
        let v3_1 = self.connected.as_ref().is_some_and(|connected| connected.version == ProtocolVersion::V3_1);
        if v3_1 && judged.iter().any(|judged| judged.filter.is_err()) {
            // In MQTT 3.1 a SUBACK cannot say that a subscription failed: the connection ends instead.
            return Err(Violation::new(ReasonCode::TopicFilterInvalid, "a topic filter that is not valid (4.7)"));
        }
        Ok(judged)
    }

    /// Whether the client may subscribe to that. The outer error ends the connection.
    fn judge_right(&mut self, text: &str) -> Result<Result<(), ReasonCode>, Violation> {
        match self.rights_mut().map_or(Ruling::Allowed, |rights| rights.may_subscribe(text)) {
            Ruling::Allowed => Ok(Ok(())),
            Ruling::Denied => Ok(Err(ReasonCode::NotAuthorized)),
            Ruling::Expelled => Err(Violation::new(ReasonCode::NotAuthorized, DENIED)),
        }
    }

    /// Whether one more subscription is within the limits of the session; an existing one is replaced and needs no room.
    fn fit(&self, text: &str, room: &mut Room) -> Result<Arc<str>, ReasonCode> {
        if !self.subscriptions.contains_key(text) {
            if room.subscriptions == 0 || room.bytes < text.len() {
                return Err(ReasonCode::QuotaExceeded);
            }
            if room.broad_max > 0 && is_broad(text) {
                let counted = || self.subscriptions.keys().filter(|text| is_broad(text)).count();
                let broad = room.broad.get_or_insert_with(counted);
                if *broad >= room.broad_max {
                    return Err(ReasonCode::QuotaExceeded);
                }
                *broad += 1;
            }
            room.subscriptions -= 1;
            room.bytes -= text.len();
        }
        Ok(text.into())
    }
}

/// Bounds the work that one SUBSCRIBE or UNSUBSCRIBE can cause.
pub fn few_enough(filters: usize) -> Result<(), Violation> {
    if filters <= limits::FILTERS_PER_PACKET_MAX {
        return Ok(());
    }
    Err(Violation::new(ReasonCode::QuotaExceeded, "more topic filters in one packet than this server takes"))
}

/// What one more SUBSCRIBE may add.
struct Room {
    subscriptions: usize,
    bytes: usize,
    /// Subscriptions that name no level, once they were counted, and how many there may be.
    broad: Option<usize>,
    broad_max: usize,
}

/// Whether a filter names no level: nearly everything matches it.
fn is_broad(text: &str) -> bool {
    let filter = TopicFilter::parse(text).map_or(text, |parsed| parsed.filter);
    filter.split('/').all(|level| level == "+" || level == "#")
}

/// The outer error ends the connection, the inner one is a code of the SUBACK.
fn judge_filter(
    limits: &Limits,
    text: &str,
    options: SubscriptionOptions,
) -> Result<Result<(), ReasonCode>, Violation> {
    let Ok(parsed) = TopicFilter::parse(text) else {
        return Ok(Err(ReasonCode::TopicFilterInvalid));
    };
    if parsed.share.is_some() && options.no_local {
        return Err(Violation::new(ReasonCode::ProtocolError, "No Local on a shared subscription [MQTT-3.8.3-4]"));
    }
    if topic::name::levels(parsed.filter) > limits.topic_levels_max {
        return Ok(Err(ReasonCode::TopicFilterInvalid));
    }
    Ok(Ok(()))
}
