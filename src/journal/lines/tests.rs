//! Lines and the state that they are of: there and back, and everything that is refused.

use std::collections::{BTreeMap, HashMap};

use holdfast_storage::{BodyId, Entry, ItemId, OwnerId, Recovered, RecoveredItem, Value};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::cluster::copies::receiving::Write;
use crate::cluster::copies::{CopyHeader, Home};
use crate::journal::{HEADER, LEASES, RETAINED, copied_entry, decode_message, encode_item};
use crate::mqtt::{MessageId, PacketId, PropertiesBuf, Property, ProtocolVersion, PublishHead, QoS};
use crate::session::Item;

/// A data directory in memory.
#[derive(Default)]
struct Shelf {
    items: BTreeMap<OwnerId, BTreeMap<ItemId, (Value, Option<BodyId>)>>,
    bodies: HashMap<BodyId, Vec<u8>>,
    last_time: u64,
}

impl Shelf {
    fn put(&mut self, entry: Entry) {
        let (owner, item, value, body) = match entry {
            Entry::Put { owner, item, value, body } => (owner, item, value, body),
            Entry::Drop { owner } => {
                assert!(self.items.remove(&owner).is_some());
                return;
            }
            Entry::Delete { .. } => panic!("an import deletes no item"),
        };
        let body = body.map(|body| {
            let id = body.id();
            self.bodies.entry(id).or_insert_with(|| {
                let mut bytes = Vec::new();
                body.encode(&mut bytes);
                bytes
            });
            id
        });
        let old = self.items.entry(owner).or_default().insert(item, (value, body));
        assert!(old.is_none(), "no number comes twice");
    }

    fn recovered(&self) -> Recovered {
        let item = |(item, (value, body)): (&ItemId, &(Value, Option<BodyId>))| RecoveredItem {
            item: *item,
            value: value.clone(),
            body: *body,
        };
        let owners = self.items.iter().map(|(owner, items)| (*owner, items.iter().map(item).collect()));
        Recovered { last_time: self.last_time, owners: owners.collect(), owner_max: None }
    }

    fn export(&self) -> (Vec<Line>, Survey) {
        let recovered = self.recovered();
        let survey = Survey::of(&recovered);
        assert_eq!(survey.faults, []);
        let begin = begin(self.last_time);
        let mut lines = Vec::new();
        let mut read = |owner, item| {
            let body = self.items[&owner][&item].1.expect("a line with a message has a body");
            Ok::<_, ()>(decode_message(&self.bodies[&body]).expect("it was encoded"))
        };
        export(&survey, &recovered, begin, &mut read, &mut |line| {
            lines.push(line.clone());
            Ok(())
        })
        .expect("nothing fails");
        (lines, survey)
    }
}

fn begin(last_run: u64) -> Begin {
    Begin { format: FORMAT, exported_at: 2_000, node_id: "0".repeat(32), last_run }
}

fn import(lines: &[String]) -> Result<(Shelf, Counts), Vec<(usize, String)>> {
    let (mut import, mut shelf, mut entries) = (Import::default(), Shelf::default(), Vec::new());
    let mut errors = Vec::new();
    for (number, line) in (1..).zip(lines) {
        errors.extend(import.line(line.as_bytes(), &mut entries).err().map(|error| (number, error)));
    }
    errors.extend(import.finish().err().map(|error| (lines.len() + 1, error)));
    if !errors.is_empty() {
        return Err(errors);
    }
    shelf.last_time = import.last_run().expect("it has begun");
    entries.into_iter().for_each(|entry| shelf.put(entry));
    Ok((shelf, import.counts()))
}

fn written(lines: &[Line]) -> Vec<String> {
    lines.iter().map(|line| serde_json::to_string(line).expect("lines can be written")).collect()
}

/// Every line with its message in it, whoever else has it.
fn resolved(lines: &[Line]) -> Vec<Line> {
    let mut known = HashMap::new();
    let mut resolve = |shared: &mut Option<u64>, message: &mut Option<Content>| {
        if let Some(number) = shared.take() {
            let content = message.take().unwrap_or_else(|| Content::clone(&known[&number]));
            known.insert(number, content.clone());
            *message = Some(content);
        }
    };
    let mut lines = lines.to_vec();
    for line in &mut lines {
        match line {
            Line::Retained(Retained { shared, message }) => resolve(shared, message),
            Line::Message(waiting) | Line::GivenBack(waiting) => resolve(&mut waiting.shared, &mut waiting.message),
            _ => {}
        }
    }
    lines
}

fn publish_packet(topic: &str, payload: &[u8]) -> Base64 {
    let head = PublishHead {
        dup: false,
        qos: QoS::AtLeastOnce,
        retain: true,
        topic,
        packet_id: Some(PacketId::MIN),
        message_expiry_secs: Some(5),
        topic_alias: None,
        subscription_ids: &[],
        properties: &[],
        payload_len: payload.len(),
    };
    let mut bytes = Vec::new();
    head.encode(ProtocolVersion::V5, &mut bytes);
    bytes.extend_from_slice(payload);
    Base64(bytes.into())
}

fn blob() -> impl Strategy<Value = Base64> {
    vec(any::<u8>(), 1..40).prop_map(|bytes| Base64(bytes.into()))
}

prop_compose! {
    fn content()(
        topic in "[a-zé]{1,6}(/[a-z]{0,3}){0,2}", payload in blob(), name in option::of("[a-z\"\\\\\u{7}]{0,8}"), qos in 0u8..3,
        retain: bool, expires_at in option::of(0u64..1 << 43), publisher in "[a-z]{0,6}", stamp in 0u64..1 << 56,
    ) -> Content {
        let mut properties = PropertiesBuf::new();
        if let Some(name) = name {
            properties.push(Property::UserProperty(&name, "v"));
            properties.push(Property::PayloadFormatIndicator(true));
        }
        let properties = Base64(properties.as_properties().as_bytes().to_vec().into());
        Content { topic, payload, properties, qos, retain, expires_at, publisher, stamp }
    }
}

fn will() -> impl Strategy<Value = Will> {
    (any::<u32>(), "[a-z]{1,5}")
        .prop_map(|(delay_secs, topic)| Will { delay_secs, message: publish_packet(&topic, b"w") })
}

prop_compose! {
    fn lease()(expiry_secs: u32, state in 0u8..3, since in 0u64..1 << 43, will in option::of(will()), due in vec("[a-z]{1,5}", 1..3), has_due: bool)
        -> Lease
    {
        let ended = state == 2;
        let wills_due = due.iter().map(|topic| publish_packet(topic, b"due")).collect();
        Lease {
            client_id: String::new(),
            expiry_secs,
            connected: state == 0,
            detached_since: (state == 1).then_some(since),
            ended,
            will: will.filter(|_| !ended),
            wills_due: if ended || has_due { wills_due } else { Vec::new() },
        }
    }
}

/// What becomes a line of a session. A message is a place among all contents.
#[derive(Debug, Clone)]
enum Part {
    Subscription { qos: u8, bits: u8, id: Option<u32> },
    Message { content: prop::sample::Index, sent: bool, qos: u8, retain: bool, ids: Vec<u32>, share: bool },
    Received,
    Accepted,
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        (0u8..3, 0u8..12, option::of(1u32..=268_435_455)).prop_map(|(qos, bits, id)| Part::Subscription {
            qos,
            bits,
            id
        }),
        (any::<prop::sample::Index>(), any::<bool>(), 1u8..3, any::<bool>(), vec(1u32..9, 0..3), any::<bool>())
            .prop_map(|(content, sent, qos, retain, ids, share)| Part::Message {
                content,
                sent,
                qos,
                retain,
                ids,
                share
            }),
        Just(Part::Received),
        Just(Part::Accepted),
    ]
}

/// Writes lines of contents, numbering each that may come again.
struct Writer {
    contents: Vec<Content>,
    numbers: HashMap<usize, u64>,
    lines: Vec<Line>,
}

impl Writer {
    fn content(&mut self, at: prop::sample::Index) -> (Option<u64>, Option<Content>) {
        let at = at.index(self.contents.len());
        let next = self.numbers.len() as u64 + 1;
        match self.numbers.insert(at, next) {
            Some(number) => {
                self.numbers.insert(at, number);
                (Some(number), None)
            }
            None => (Some(next), Some(self.contents[at].clone())),
        }
    }

    fn part(&mut self, client_id: &str, number: u16, part: Part) {
        let client_id = client_id.to_owned();
        let line = match part {
            Part::Received => Line::Received(Handshake { client_id, packet_id: number }),
            Part::Accepted => Line::Accepted(Handshake { client_id, packet_id: number }),
            Part::Subscription { qos, bits, id } => Line::Subscription(Subscribed {
                client_id,
                filter: format!("f/{number}/#"),
                qos,
                no_local: bits & 1 != 0,
                retain_as_published: bits & 2 != 0,
                retain_handling: bits >> 2,
                subscription_id: id,
            }),
            Part::Message { content, sent, qos, retain, ids, share } => {
                let (shared, message) = self.content(content);
                Line::Message(Waiting {
                    client_id: Some(client_id),
                    packet_id: sent.then_some(number),
                    qos,
                    retain,
                    subscription_ids: ids,
                    share: share.then(|| "$share/g/#".to_owned()),
                    shared,
                    message,
                })
            }
        };
        self.lines.push(line);
    }
}

prop_compose! {
    fn state()(
        contents in vec(content(), 1..6), clients in vec((lease(), option::of(vec(part(), 0..6))), 0..5),
        retained in vec(any::<prop::sample::Index>(), 0..3), given_back in vec((any::<prop::sample::Index>(), 1u8..3), 0..3),
        last_run in 0u64..1 << 43,
    ) -> (Begin, Vec<Line>) {
        let mut writer = Writer { contents, numbers: HashMap::new(), lines: Vec::new() };
        let name = |number: usize| format!("c{number}");
        for (number, (lease, _)) in clients.iter().enumerate() {
            writer.lines.push(Line::Lease(Lease { client_id: name(number), ..lease.clone() }));
        }
        let mut places: Vec<_> = retained.iter().map(|at| at.index(writer.contents.len())).collect();
        places.sort_unstable();
        places.dedup();
        for (number, at) in (1..).zip(places) {
            writer.numbers.insert(at, number);
            let message = Some(writer.contents[at].clone());
            writer.lines.push(Line::Retained(Retained { shared: Some(number), message }));
        }
        for (number, (lease, parts)) in clients.into_iter().enumerate() {
            if let Some(parts) = parts.filter(|_| !lease.ended) {
                writer.lines.push(Line::Session(Session { client_id: name(number) }));
                for (place, part) in (1..).zip(parts) {
                    writer.part(&name(number), place, part);
                }
            }
        }
        for (at, qos) in given_back {
            let (shared, message) = writer.content(at);
            writer.lines.push(Line::GivenBack(Waiting {
                client_id: None, packet_id: None, qos, retain: false, subscription_ids: vec![],
                share: Some("$share/g/t".into()), shared, message,
            }));
        }
        (begin(last_run), writer.lines)
    }
}

fn shared_number(line: &Line) -> Option<u64> {
    match line {
        Line::Retained(retained) => retained.shared,
        Line::Message(waiting) | Line::GivenBack(waiting) => waiting.shared,
        _ => None,
    }
}

/// With the first and the last line.
fn whole(begin: Begin, lines: Vec<Line>) -> Vec<Line> {
    let count = lines.len() as u64 + 1;
    std::iter::once(Line::Holdfast(begin)).chain(lines).chain([Line::End(End { lines: count })]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_imported_is_exported_again((begin, lines) in state()) {
        let file = whole(begin, lines);
        let (shelf, counts) = import(&written(&file)).expect("the file is good");
        let (exported, survey) = shelf.export();
        prop_assert_eq!(resolved(&exported), resolved(&file));
        prop_assert_eq!((survey.counts, survey.ended), (counts, 0));
        let (again, _) = import(&written(&exported)).expect("an export is good");
        prop_assert_eq!(again.export().0, exported.clone());
        // A number stands only where it is needed, and each message once.
        let mut uses = HashMap::<u64, u32>::new();
        exported.iter().filter_map(shared_number).for_each(|number| *uses.entry(number).or_default() += 1);
        prop_assert!(uses.values().all(|uses| *uses > 1), "{:?}", uses);
    }

    #[test]
    fn a_file_that_is_cut_off_is_known_as_such((begin, lines) in state(), at: prop::sample::Index) {
        let mut file = written(&whole(begin, lines));
        file.truncate(at.index(file.len()));
        prop_assert!(import(&file).is_err());
    }

    #[test]
    fn a_line_that_is_nothing_is_refused(bytes in vec(any::<u8>(), 0..60)) {
        prop_assert!(Import::default().line(&bytes, &mut Vec::new()).is_err());
    }
}

const FIRST: &str = r#"{"type":"holdfast","format":1,"exported_at":1,"node_id":"0","last_run":5,"later":"more"}"#;
const LEASE: &str = r#"{"type":"lease","client_id":"c","expiry_secs":9,"connected":true}"#;
const SESSION: &str = r#"{"type":"session","client_id":"c"}"#;
const SENT: &str =
    r#"{"type":"message","client_id":"c","packet_id":3,"qos":1,"message":{"topic":"t","payload":"aGk=","qos":1}}"#;

fn file(lines: &[&str]) -> Vec<String> {
    let mut file: Vec<String> = [FIRST, LEASE, SESSION, SENT].iter().chain(lines).map(ToString::to_string).collect();
    let count = file.len();
    file.push(format!(r#"{{"type":"end","lines":{count}}}"#));
    file
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    assert!(import(&file(&[])).is_ok());
    for (line, expected) in [
        ("{", "EOF"),
        ("[]", "missing field `type`"),
        (r#"{"type":"lese"}"#, "unknown variant `lese`"),
        (r#"{"type":"session","client_id":"c","more":1}"#, "unknown field `more`"),
        (r#"{"type":"session","client_id":"c"}"#, "has had its session"),
        (r#"{"type":"session","client_id":"d"}"#, "no lease of client \"d\""),
        (r#"{"type":"lease","client_id":"c","expiry_secs":9,"connected":true}"#, "a second lease"),
        (r#"{"type":"lease","client_id":"","expiry_secs":9,"connected":true}"#, "client_id is empty"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9}"#, "exactly one"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9,"connected":true,"detached_since":1}"#, "exactly one"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9,"ended":true}"#, "wills_due"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9,"detached_since":9000000000000}"#, "not a time"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9,"connected":true,"wills_due":["MAA="]}"#, "not a PUBLISH"),
        (r#"{"type":"lease","client_id":"e","expiry_secs":9,"connected":true,"wills_due":["?"]}"#, "not base64"),
        (r#"{"type":"subscription","client_id":"d","filter":"t","qos":1}"#, "stands among the lines"),
        (r#"{"type":"subscription","client_id":"c","filter":"t#","qos":1}"#, "MQTT-4.7.1-1"),
        (r#"{"type":"subscription","client_id":"c","filter":"t","qos":3}"#, "0, 1 or 2"),
        (r#"{"type":"subscription","client_id":"c","filter":"t","qos":4}"#, "0, 1 or 2"),
        (r#"{"type":"subscription","client_id":"c","filter":"t","qos":0,"retain_handling":3}"#, "0, 1 or 2"),
        (r#"{"type":"subscription","client_id":"c","filter":"t","qos":0,"subscription_id":0}"#, "from 1"),
        (r#"{"type":"received","client_id":"c","packet_id":3}"#, "in use twice"),
        (r#"{"type":"received","client_id":"c","packet_id":0}"#, "from 1"),
        (
            r#"{"type":"message","client_id":"c","packet_id":3,"qos":2,"message":{"topic":"t","payload":"","qos":1}}"#,
            "twice",
        ),
        (r#"{"type":"message","client_id":"c","qos":0,"message":{"topic":"t","payload":"","qos":1}}"#, "qos 1 or 2"),
        (r#"{"type":"message","client_id":"c","qos":1}"#, "neither a message nor"),
        (r#"{"type":"message","client_id":"c","qos":1,"shared":1}"#, "no shared message 1"),
        (r#"{"type":"message","client_id":"c","qos":1,"shared":0}"#, "numbered from 1"),
        (
            r#"{"type":"message","client_id":"c","qos":1,"shared":2,"message":{"topic":"t","payload":"","qos":1}}"#,
            "number 1 should",
        ),
        (r#"{"type":"message","client_id":"c","qos":1,"message":{"topic":"t/+","payload":"","qos":1}}"#, "wildcard"),
        (r#"{"type":"message","client_id":"c","qos":1,"message":{"topic":"","payload":"","qos":1}}"#, "empty"),
        (
            r#"{"type":"message","client_id":"c","qos":1,"message":{"topic":"t","payload":"","qos":1,"properties":"CwE="}}"#,
            "properties",
        ),
        (
            r#"{"type":"message","client_id":"c","qos":1,"message":{"topic":"t","payload":"","qos":1,"properties":"AQ=="}}"#,
            "properties",
        ),
        (
            r#"{"type":"message","client_id":"c","qos":1,"share":"t","message":{"topic":"t","payload":"","qos":1}}"#,
            "$share",
        ),
        (r#"{"type":"message","qos":1,"message":{"topic":"t","payload":"","qos":1}}"#, "has a client_id"),
        (r#"{"type":"given_back","qos":1,"message":{"topic":"t","payload":"","qos":1}}"#, "has a share"),
        (r#"{"type":"retained","message":{"topic":"t","payload":"","qos":1}}"#, "has a payload"),
        (r#"{"type":"retained","message":{"topic":"$SYS/t","payload":"aGk=","qos":1}}"#, "$SYS"),
        (r#"{"type":"end","lines":7}"#, "should be 7 lines"),
        (FIRST, "not the first"),
    ] {
        let errors = import(&file(&[line])).err().unwrap_or_default();
        let texts: Vec<_> = errors.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(errors.first().map(|(number, _)| *number), Some(5), "{line}: {texts:?}");
        assert!(texts[0].contains(expected), "{line}: {texts:?}");
        assert_eq!(errors.len(), 1, "{line}: {texts:?}");
        assert!(!texts[0].contains(" at line "), "{line}: {texts:?}");
    }
}

#[test]
fn all_errors_are_told() {
    let bad = r#"{"type":"accepted","client_id":"d","packet_id":1}"#;
    let mut lines = file(&[bad, r#"{"type":"retained","message":{"topic":"r","payload":"aGk=","qos":1}}"#, bad]);
    lines.push(LEASE.to_owned());
    let errors = import(&lines).err().unwrap_or_default();
    assert_eq!(errors.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [5, 7, 9], "{errors:?}");
}

#[test]
fn the_first_line_says_what_it_is() {
    let newer = FIRST.replace("\"format\":1", "\"format\":2");
    for (first, expected) in
        [(newer.as_str(), "newer Holdfast"), (LEASE, "holdfast data export"), ("hello", "holdfast data export")]
    {
        let error = Import::default().line(first.as_bytes(), &mut Vec::new()).expect_err(first);
        assert!(error.contains(expected), "{error}");
    }
}

/// What a start would drop is not exported; what it would take over from an ended session is.
#[test]
fn sessions_without_their_lease_are_left_out() {
    let (mut shelf, _) = import(&file(&[])).unwrap_or_else(|errors| panic!("{errors:?}"));
    let whole = shelf.export().0.len();
    let session = *shelf.items.keys().next_back().expect("a session");
    let other = shelf.items[&session].clone();
    shelf.items.insert(OwnerId(session.0 + 1), other);
    let header = crate::journal::encode_header("c", 77);
    shelf.items.get_mut(&OwnerId(session.0 + 1)).expect("a session").insert(HEADER, (header, None));
    let (lines, survey) = shelf.export();
    assert_eq!((lines.len(), survey.ended, survey.counts.sessions), (whole, 1, 1));
    shelf.items.remove(&LEASES);
    let (lines, survey) = shelf.export();
    assert_eq!((lines.len(), survey.ended), (2, 2));
}

#[test]
fn what_cannot_be_read_is_a_fault() {
    let retained = r#"{"type":"retained","message":{"topic":"r","payload":"aGk=","qos":1}}"#;
    let (shelf, _) = import(&file(&[retained])).unwrap_or_else(|errors| panic!("{errors:?}"));
    let good = shelf.recovered();
    for (owner, place) in
        good.owners.iter().enumerate().flat_map(|(at, (_, items))| (0..items.len()).map(move |it| (at, it)))
    {
        let mut bad = good.clone();
        let id = bad.owners[owner].0;
        let item = &mut bad.owners[owner].1[place];
        let number = item.item;
        item.body = None;
        if id != RETAINED {
            item.value = Value::from_slice(&[9]);
        }
        let faults = Survey::of(&bad).faults;
        assert_eq!(faults.first().map(|fault| (fault.owner, fault.item)), Some((id, number)), "{faults:?}");
    }
}

#[test]
fn copies_of_the_sessions_of_other_nodes_are_looked_at_and_left_out() {
    let home = Home { node: holdfast_raft::NodeId(5), shard: 1 };
    let header = |owner, header| copied_entry(Write::Header { owner: OwnerId(owner), header });
    let (client_id, at_home) = ("c".into(), OwnerId(20));
    let mut shelf = Shelf::default();
    shelf.put(header(30, CopyHeader::Session { home, owner: at_home, client_id, began: 1, complete: true }));
    let item = Item::Accepted { packet_id: PacketId::new(7).expect("it is not 0"), names: None };
    shelf.put(Entry::Put { owner: OwnerId(30), item: 1, value: encode_item(item), body: None });
    shelf.put(header(31, CopyHeader::Streams { home, up_to: 9 }));
    let id = MessageId { node: 5, shard: 0, sequence: 3 };
    shelf.put(copied_entry(Write::Stream { owner: OwnerId(31), item: 1, id }));

    let (lines, survey) = shelf.export();
    assert_eq!((survey.copies, survey.counts, lines.len()), (1, Counts::default(), 2), "{lines:?}");
    for owner in [30, 31] {
        let mut bad = shelf.recovered();
        let (_, items) = bad.owners.iter_mut().find(|(of, _)| of.0 == owner).expect("it is there");
        items[1].value = Value::from_slice(&[9]);
        let faults = Survey::of(&bad).faults;
        assert_eq!(faults.iter().map(|fault| fault.owner.0).collect::<Vec<_>>(), [owner]);
    }
}
