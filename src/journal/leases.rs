//! Leases as items.

use bytes::Bytes;
use holdfast_raft::{LeaseChange, LeaseImage, LeaseWill};
use holdfast_storage::{Entry, ItemId, Value};

use super::bytes::{Sink, Source};

const VERSION: u8 = 1;
const CONNECTED: u8 = 0x01;
const ENDED: u8 = 0x02;
const WILL: u8 = 0x04;

/// Changes of leases as entries.
pub fn lease_entries(changes: Vec<LeaseChange>) -> impl Iterator<Item = Entry> {
    changes.into_iter().flat_map(|LeaseChange { gone, image }| {
        let owner = super::LEASES;
        let put = image.map(|image| Entry::Put { owner, item: image.item, value: encode_lease(&image), body: None });
        put.into_iter().chain(gone.map(|item| Entry::Delete { owner, item }))
    })
}

/// The newest state of a lease, which replaces every earlier item of its client.
pub fn encode_lease(image: &LeaseImage) -> Value {
    let LeaseImage { client, epoch, began, expiry_secs, connected, detached_since, ended, will, wills_due, .. } = image;
    let mut out = Value::new();
    out.u8(VERSION);
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    out.u8(flag(*connected, CONNECTED) | flag(*ended, ENDED) | flag(will.is_some(), WILL));
    out.u64(*epoch);
    out.u64(*began);
    out.u32(*expiry_secs);
    out.u64(*detached_since);
    out.text(client);
    if let Some(will) = will {
        out.u32(will.delay_secs);
        out.blob(&will.message);
    }
    for (epoch, message) in wills_due {
        out.u64(*epoch);
        out.blob(message);
    }
    out
}

/// The lease that was put as `item`. None for bytes that are none.
pub fn decode_lease(item: ItemId, bytes: &[u8]) -> Option<LeaseImage> {
    let mut source = Source(bytes);
    if source.u8()? != VERSION {
        return None;
    }
    let flags = source.u8()?;
    let mut image = LeaseImage {
        item,
        epoch: source.u64()?,
        began: source.u64()?,
        expiry_secs: source.u32()?,
        detached_since: source.u64()?,
        client: source.text()?.into(),
        connected: flags & CONNECTED != 0,
        ended: flags & ENDED != 0,
        will: None,
        wills_due: Vec::new(),
    };
    if flags & WILL != 0 {
        let delay_secs = source.u32()?;
        image.will = Some(LeaseWill { delay_secs, message: Bytes::copy_from_slice(source.blob()?) });
    }
    while !source.0.is_empty() {
        let epoch = source.u64()?;
        image.wills_due.push((epoch, Bytes::copy_from_slice(source.blob()?)));
    }
    Some(image)
}
