//! Topic aliases of one connection, both ways. They end with the connection and are never part of the session
//! [MQTT-3.3.2-7].

use std::sync::Arc;

use hashbrown::HashMap;

use crate::mqtt::ReasonCode;

use super::Violation;

/// Aliases that the client gave to topics.
#[derive(Debug, Default)]
pub struct InboundAliases {
    names: Vec<Option<Arc<str>>>,
}

impl InboundAliases {
    /// The topic of a PUBLISH that carries `alias`; a non-empty `topic` gives the alias its new meaning
    /// [MQTT-3.3.2-8], [MQTT-3.3.2-9], [MQTT-3.3.2-10].
    pub fn resolve(&mut self, alias: u16, topic: &str, alias_max: u16) -> Result<Arc<str>, Violation> {
        if alias == 0 || alias > alias_max {
            return Err(Violation::new(
                ReasonCode::TopicAliasInvalid,
                "Topic Alias is 0 or above the Topic Alias Maximum [MQTT-3.3.2-8]",
            ));
        }
        let at = usize::from(alias) - 1;
        if self.names.len() <= at {
            self.names.resize(at + 1, None);
        }
        if topic.is_empty() {
            return self.names[at].clone().ok_or_else(|| {
                Violation::new(
                    ReasonCode::ProtocolError,
                    "Topic Alias without a topic name was never set on this connection",
                )
            });
        }
        if self.names[at].as_deref() != Some(topic) {
            self.names[at] = Some(topic.into());
        }
        Ok(self.names[at].clone().expect("set just above"))
    }
}

/// Aliases that this server gave to topics, up to the client's Topic Alias Maximum [MQTT-3.1.2-26], [MQTT-3.1.2-27].
/// The first topics of a connection get them and keep them.
#[derive(Debug, Default)]
pub struct OutboundAliases {
    max: u16,
    given: HashMap<Box<str>, u16>,
}

impl OutboundAliases {
    pub fn new(max: u16) -> OutboundAliases {
        OutboundAliases { max, given: HashMap::new() }
    }

    /// The alias to send with `topic`, and whether the client knows it already, so that the topic may be left out.
    pub fn alias_for(&mut self, topic: &str) -> Option<(u16, bool)> {
        if self.max == 0 {
            return None;
        }
        if let Some(alias) = self.given.get(topic) {
            return Some((*alias, true));
        }
        if self.given.len() >= usize::from(self.max) {
            return None;
        }
        let alias = self.given.len() as u16 + 1;
        self.given.insert(topic.into(), alias);
        Some((alias, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_names_its_topic_until_it_is_set_anew() {
        let mut aliases = InboundAliases::default();
        assert_eq!(&*aliases.resolve(2, "a/b", 4).unwrap(), "a/b");
        assert_eq!(&*aliases.resolve(2, "", 4).unwrap(), "a/b");
        assert_eq!(&*aliases.resolve(2, "c", 4).unwrap(), "c");
        assert_eq!(&*aliases.resolve(2, "", 4).unwrap(), "c");
    }

    #[test]
    fn an_alias_that_is_zero_too_large_or_unknown_is_refused() {
        let mut aliases = InboundAliases::default();
        assert_eq!(aliases.resolve(0, "a", 4).unwrap_err().reason, ReasonCode::TopicAliasInvalid);
        assert_eq!(aliases.resolve(5, "a", 4).unwrap_err().reason, ReasonCode::TopicAliasInvalid);
        assert_eq!(aliases.resolve(3, "", 4).unwrap_err().reason, ReasonCode::ProtocolError);
    }

    #[test]
    fn the_first_topics_get_aliases_and_only_as_many_as_the_client_takes() {
        let mut aliases = OutboundAliases::new(2);
        assert_eq!(aliases.alias_for("a"), Some((1, false)));
        assert_eq!(aliases.alias_for("a"), Some((1, true)));
        assert_eq!(aliases.alias_for("b"), Some((2, false)));
        assert_eq!(aliases.alias_for("c"), None);
        assert_eq!(OutboundAliases::new(0).alias_for("a"), None);
    }
}
