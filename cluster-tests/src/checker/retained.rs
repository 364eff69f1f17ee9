//! The retained value of each topic. A topic has one writer, which sends its changes in order: the value is that of the last
//! acknowledged change or of a later one.

use std::collections::HashMap;

use super::Violation;
use crate::history::{Event, MessageId, Retain};

#[derive(Default)]
struct Topic {
    /// All attempts in order; `true`: a deletion.
    attempts: Vec<(MessageId, bool)>,
    /// How many of them are certain: the last of these is acknowledged.
    certain: usize,
}

#[derive(Default)]
pub(super) struct Retained {
    topics: HashMap<String, Topic>,
    topic_of: HashMap<MessageId, String>,
}

impl Retained {
    pub(super) fn observe(&mut self, event: &Event, found: &mut Vec<Violation>) {
        match event {
            Event::PublishSent { message, topic, retain, .. } if *retain != Retain::No => {
                let entry = self.topics.entry(topic.clone()).or_default();
                entry.attempts.push((message.clone(), *retain == Retain::Delete));
                self.topic_of.insert(message.clone(), topic.clone());
            }
            Event::Acknowledged { message } => {
                let Some(topic) = self.topic_of.get(message).and_then(|topic| self.topics.get_mut(topic)) else {
                    return;
                };
                let place = topic.attempts.iter().rposition(|(attempt, _)| attempt == message);
                topic.certain = topic.certain.max(place.map_or(0, |place| place + 1));
            }
            Event::RetainedRead { topic, value } => {
                let wrong = self.judge(topic, value.as_ref());
                let messages = self.about(topic, value.as_ref());
                found.extend(wrong.map(|what| Violation::new(format!("retained {topic}: {what}"), None, &messages)));
            }
            _ => {}
        }
    }

    /// The value that was read and the last certain change.
    fn about<'t>(&'t self, topic: &str, value: Option<&'t MessageId>) -> Vec<&'t MessageId> {
        let topic = self.topics.get(topic).filter(|topic| topic.certain > 0);
        let last = topic.map(|topic| &topic.attempts[topic.certain - 1].0);
        value.into_iter().chain(last).collect()
    }

    /// What is wrong with a value that was read.
    fn judge(&self, name: &str, value: Option<&MessageId>) -> Option<String> {
        let none = Topic::default();
        let topic = self.topics.get(name).unwrap_or(&none);
        // The last certain attempt and those behind it; before anything is certain, nothing may be there as well.
        let possible = &topic.attempts[topic.certain.saturating_sub(1)..];
        let last = topic.certain.checked_sub(1).map(|place| &topic.attempts[place]);
        match value {
            None if last.is_none() || possible.iter().any(|(_, deletes)| *deletes) => None,
            None => Some(format!("{} was acknowledged and is gone", last?.0)),
            Some(id) if possible.iter().any(|(attempt, deletes)| attempt == id && !deletes) => None,
            Some(id) => Some(match last {
                Some((last, true)) => format!("{id} is there, but {last} deleted it and was acknowledged"),
                Some((last, false)) => format!("{id} is there instead of {last}, which was acknowledged"),
                None => format!("{id} is there, which nobody published"),
            }),
        }
    }
}
