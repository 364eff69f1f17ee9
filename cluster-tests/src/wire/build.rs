//! Builders of what a client sends. Strings are bytes, so that a test can send what is no UTF-8.

use super::{Properties, Version, first, packet, prefixed};

/// A CONNECT. The flags follow from the fields unless `flags` overrides them.
#[derive(Debug, Clone)]
pub struct Connect {
    pub version: Version,
    pub protocol_name: Vec<u8>,
    pub level: u8,
    /// Instead of the Connect Flags that follow from the other fields.
    pub flags: Option<u8>,
    pub clean: bool,
    pub keep_alive: u16,
    pub properties: Properties,
    pub client_id: Vec<u8>,
    pub will: Option<Will>,
    pub user_name: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
}

/// The Will of a CONNECT.
#[derive(Debug, Clone)]
pub struct Will {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    pub properties: Properties,
}

impl Will {
    /// A QoS 0 Will that is not retained.
    pub fn new(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Self {
        Self {
            topic: topic.as_ref().to_vec(),
            payload: payload.as_ref().to_vec(),
            qos: 0,
            retain: false,
            properties: Properties::new(),
        }
    }

    pub fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    pub fn number(mut self, id: u8, value: u32) -> Self {
        self.properties = self.properties.number(id, value);
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }
}

impl Connect {
    /// Clean Start (Clean Session) 1, Keep Alive 60, nothing else.
    pub fn new(version: Version, client_id: impl AsRef<[u8]>) -> Self {
        let protocol_name = if version == Version::V31 { &b"MQIsdp"[..] } else { b"MQTT" };
        Self {
            version,
            protocol_name: protocol_name.to_vec(),
            level: version as u8,
            flags: None,
            clean: true,
            keep_alive: 60,
            properties: Properties::new(),
            client_id: client_id.as_ref().to_vec(),
            will: None,
            user_name: None,
            password: None,
        }
    }

    pub fn clean(mut self, clean: bool) -> Self {
        self.clean = clean;
        self
    }

    /// Clean Start 0 and, in 5.0, this Session Expiry Interval in seconds.
    pub fn durable(mut self, expiry_secs: u32) -> Self {
        self.clean = false;
        self.session_expiry(expiry_secs)
    }

    /// The Session Expiry Interval in seconds (nothing before 5.0).
    pub fn session_expiry(mut self, expiry_secs: u32) -> Self {
        if self.version == Version::V5 {
            self.properties = self.properties.number(super::id::SESSION_EXPIRY_INTERVAL, expiry_secs);
        }
        self
    }

    pub fn keep_alive(mut self, secs: u16) -> Self {
        self.keep_alive = secs;
        self
    }

    pub fn number(mut self, id: u8, value: u32) -> Self {
        self.properties = self.properties.number(id, value);
        self
    }

    pub fn text(mut self, id: u8, value: &str) -> Self {
        self.properties = self.properties.text(id, value);
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    pub fn will(mut self, will: Will) -> Self {
        self.will = Some(will);
        self
    }

    pub fn user_name(mut self, user_name: impl AsRef<[u8]>) -> Self {
        self.user_name = Some(user_name.as_ref().to_vec());
        self
    }

    pub fn password(mut self, password: impl AsRef<[u8]>) -> Self {
        self.password = Some(password.as_ref().to_vec());
        self
    }

    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = Some(flags);
        self
    }

    /// The Connect Flags that follow from the fields (section 3.1.2.3).
    fn derived_flags(&self) -> u8 {
        let mut flags = u8::from(self.clean) << 1;
        if let Some(will) = &self.will {
            flags |= 0x04 | will.qos << 3 | u8::from(will.retain) << 5;
        }
        flags | u8::from(self.password.is_some()) << 6 | u8::from(self.user_name.is_some()) << 7
    }

    /// The variable header and payload.
    pub fn body(&self) -> Vec<u8> {
        let v5 = self.version == Version::V5;
        let mut body = prefixed(&self.protocol_name);
        body.push(self.level);
        body.push(self.flags.unwrap_or_else(|| self.derived_flags()));
        body.extend(self.keep_alive.to_be_bytes());
        if v5 {
            body.extend(self.properties.bytes());
        }
        body.extend(prefixed(&self.client_id));
        if let Some(will) = &self.will {
            if v5 {
                body.extend(will.properties.bytes());
            }
            body.extend(prefixed(&will.topic));
            body.extend(prefixed(&will.payload));
        }
        for field in [&self.user_name, &self.password].into_iter().flatten() {
            body.extend(prefixed(field));
        }
        body
    }

    pub fn bytes(&self) -> Vec<u8> {
        packet(first::CONNECT, &self.body())
    }
}

/// A PUBLISH from a client.
#[derive(Debug, Clone)]
pub struct Publish {
    pub topic: Vec<u8>,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub packet_id: Option<u16>,
    pub retain: bool,
    pub dup: bool,
    pub properties: Properties,
}

impl Publish {
    /// QoS 0, not retained.
    pub fn new(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Self {
        Self {
            topic: topic.as_ref().to_vec(),
            payload: payload.as_ref().to_vec(),
            qos: 0,
            packet_id: None,
            retain: false,
            dup: false,
            properties: Properties::new(),
        }
    }

    pub fn qos(mut self, qos: u8, packet_id: u16) -> Self {
        self.qos = qos;
        self.packet_id = (qos > 0).then_some(packet_id);
        self
    }

    pub fn retained(mut self) -> Self {
        self.retain = true;
        self
    }

    pub fn dup(mut self) -> Self {
        self.dup = true;
        self
    }

    pub fn number(mut self, id: u8, value: u32) -> Self {
        self.properties = self.properties.number(id, value);
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    pub fn bytes(&self, version: Version) -> Vec<u8> {
        let mut body = prefixed(&self.topic);
        body.extend(self.packet_id.iter().flat_map(|id| id.to_be_bytes()));
        if version == Version::V5 {
            body.extend(self.properties.bytes());
        }
        body.extend_from_slice(&self.payload);
        let flags = u8::from(self.dup) << 3 | self.qos << 1 | u8::from(self.retain);
        packet(first::PUBLISH | flags, &body)
    }
}

/// PUBACK, PUBREC, PUBREL and PUBCOMP: one layout.
#[derive(Debug, Clone)]
pub struct Ack {
    pub first_byte: u8,
    pub packet_id: u16,
    /// `None`: neither reason code nor properties are written.
    pub reason: Option<u8>,
    pub properties: Option<Properties>,
}

impl Ack {
    /// In the two-byte form.
    pub fn new(first_byte: u8, packet_id: u16) -> Self {
        Self { first_byte, packet_id, reason: None, properties: None }
    }

    pub fn reason(mut self, reason: u8) -> Self {
        self.reason = Some(reason);
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = Some(properties);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut body = self.packet_id.to_be_bytes().to_vec();
        body.extend(self.reason);
        body.extend(self.properties.iter().flat_map(Properties::bytes));
        packet(self.first_byte, &body)
    }
}

/// A SUBSCRIBE: filters with their Subscription Options (before 5.0: the requested QoS).
#[derive(Debug, Clone)]
pub struct Subscribe {
    pub packet_id: u16,
    pub properties: Properties,
    pub filters: Vec<(Vec<u8>, u8)>,
}

impl Subscribe {
    pub fn new(packet_id: u16) -> Self {
        Self { packet_id, properties: Properties::new(), filters: Vec::new() }
    }

    pub fn filter(mut self, filter: impl AsRef<[u8]>, options: u8) -> Self {
        self.filters.push((filter.as_ref().to_vec(), options));
        self
    }

    /// A Subscription Identifier for all filters of this packet.
    pub fn identifier(mut self, identifier: u32) -> Self {
        self.properties = self.properties.number(super::id::SUBSCRIPTION_IDENTIFIER, identifier);
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    pub fn bytes(&self, version: Version) -> Vec<u8> {
        let mut body = self.packet_id.to_be_bytes().to_vec();
        if version == Version::V5 {
            body.extend(self.properties.bytes());
        }
        for (filter, options) in &self.filters {
            body.extend(prefixed(filter));
            body.push(*options);
        }
        packet(first::SUBSCRIBE, &body)
    }
}

/// An UNSUBSCRIBE.
#[derive(Debug, Clone)]
pub struct Unsubscribe {
    pub packet_id: u16,
    pub properties: Properties,
    pub filters: Vec<Vec<u8>>,
}

impl Unsubscribe {
    pub fn new(packet_id: u16) -> Self {
        Self { packet_id, properties: Properties::new(), filters: Vec::new() }
    }

    pub fn filter(mut self, filter: impl AsRef<[u8]>) -> Self {
        self.filters.push(filter.as_ref().to_vec());
        self
    }

    pub fn properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    pub fn bytes(&self, version: Version) -> Vec<u8> {
        let mut body = self.packet_id.to_be_bytes().to_vec();
        if version == Version::V5 {
            body.extend(self.properties.bytes());
        }
        for filter in &self.filters {
            body.extend(prefixed(filter));
        }
        packet(first::UNSUBSCRIBE, &body)
    }
}

/// The ordinary DISCONNECT of every version: no reason, no properties.
pub fn disconnect() -> Vec<u8> {
    vec![first::DISCONNECT, 0]
}

/// A DISCONNECT of 5.0 with a reason code and properties.
pub fn disconnect_with(reason: u8, properties: &Properties) -> Vec<u8> {
    let mut body = vec![reason];
    if !properties.is_empty() {
        body.extend(properties.bytes());
    }
    packet(first::DISCONNECT, &body)
}
