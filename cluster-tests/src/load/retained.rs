//! Reading the retained values of a broker on which no publisher is at work.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::client::Client;
use crate::history::{Event, History, MessageId};
use crate::transport::{Link, Transport};
use crate::wire::{Connect, Packet, Version};

/// Reads the values of these topics as a fresh subscriber to `filter` and records them; what is there beside them is recorded too.
///
/// # Panics
/// When the broker does not answer.
pub fn read_retained(address: SocketAddr, history: &History, filter: &str, topics: &[String]) {
    let link = Link::open(Transport::Tcp, address, None).expect("the broker is ready");
    let mut client = Client::new(link, Version::V5);
    client.connect(&Connect::new(Version::V5, "reader"));
    assert_eq!(client.subscribe(filter, 0), 0);
    let mut values: BTreeMap<_, _> = topics.iter().map(|topic| (topic.clone(), None)).collect();
    for packet in client.fence() {
        let Packet::Publish(message) = packet else { continue };
        let value = MessageId::of(&message.payload);
        assert!(message.retain && value.is_some(), "{message:?} as a retained value");
        let before = values.insert(message.topic.clone(), value);
        assert!(before.flatten().is_none(), "two retained values of {}", message.topic);
    }
    for (topic, value) in values {
        history.record(Event::RetainedRead { topic, value });
    }
    client.disconnect();
}
