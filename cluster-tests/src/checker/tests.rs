//! Each rule of the checker: a history that keeps it and one that breaks it.

use super::{Checker, matches};
use crate::history::{Event, MessageId, Name, Retain};

fn name(text: &str) -> Name {
    text.into()
}

fn id(number: u64) -> MessageId {
    MessageId::new("p", number)
}

fn connect_sent(clean: bool, keeps: bool) -> Event {
    Event::ConnectSent { client: name("s"), clean, keeps }
}

fn connected(present: bool) -> Event {
    Event::Connected { client: name("s"), present }
}

fn connect(clean: bool, keeps: bool, present: bool) -> [Event; 2] {
    [connect_sent(clean, keeps), connected(present)]
}

fn subscribe_as(client: &str, filter: &str, qos: u8) -> Vec<Event> {
    let client = name(client);
    vec![
        Event::SubscribeSent { client: client.clone(), filter: filter.into() },
        Event::Subscribed { client, filter: filter.into(), granted: Some(qos) },
    ]
}

fn unsubscribe_sent() -> Event {
    Event::UnsubscribeSent { client: name("s"), filter: "t/#".into() }
}

fn unsubscribed() -> Event {
    Event::Unsubscribed { client: name("s"), filter: "t/#".into() }
}

fn sent(number: u64, qos: u8) -> Event {
    Event::PublishSent { message: id(number), topic: "t/a".into(), qos, retain: Retain::No }
}

fn acknowledged(number: u64) -> Event {
    Event::Acknowledged { message: id(number) }
}

fn got_by(client: &str, number: u64, qos: u8) -> Event {
    Event::Received { client: name(client), message: id(number), topic: "t/a".into(), qos, dup: false, retain: false }
}

fn got(number: u64, qos: u8) -> Event {
    got_by("s", number, qos)
}

/// A kept session `s` that subscribes to `t/#` with a QoS.
fn subscriber(qos: u8) -> Vec<Event> {
    [connect(false, true, false).to_vec(), subscribe_as("s", "t/#", qos)].concat()
}

/// All violations of a history, settled at its end.
fn judge(events: &[Vec<Event>]) -> Vec<String> {
    let mut checker = Checker::default();
    events.concat().iter().for_each(|event| checker.observe(event));
    checker.settle();
    checker.violations().iter().map(|violation| violation.what.clone()).collect()
}

#[track_caller]
fn keeps(events: &[Vec<Event>]) {
    assert_eq!(judge(events), [""; 0]);
}

#[track_caller]
fn breaks(events: &[Vec<Event>], what: &str) {
    let found = judge(events);
    assert!(found.len() == 1 && found[0].contains(what), "{found:?} instead of {what}");
}

#[test]
fn an_acknowledged_message_must_come() {
    for qos in [1, 2] {
        let published = vec![sent(1, qos), acknowledged(1), Event::Killed];
        keeps(&[subscriber(2), published.clone(), vec![got(1, qos)]]);
        breaks(&[subscriber(2), published.clone()], "did not come to s");
        breaks(&[subscriber(1), published], "did not come to s");
    }
}

#[test]
fn nothing_is_owed_without_an_acknowledgement_or_with_qos_0() {
    keeps(&[subscriber(2), vec![sent(1, 1)]]);
    keeps(&[subscriber(0), vec![sent(1, 1), acknowledged(1)]]);
    keeps(&[subscriber(2), vec![sent(1, 0)]]);
    // Published before the SUBACK.
    let all = subscriber(2);
    keeps(&[all[..3].to_vec(), vec![sent(1, 1), acknowledged(1)], all[3..].to_vec()]);
}

#[test]
fn nothing_is_owed_to_who_unsubscribes_or_ends_the_session() {
    let published = vec![sent(1, 1), acknowledged(1)];
    keeps(&[subscriber(2), published.clone(), vec![unsubscribe_sent()]]);
    keeps(&[subscriber(2), vec![unsubscribe_sent()], published.clone()]);
    keeps(&[subscriber(2), published.clone(), connect(true, true, false).to_vec()]);
    keeps(&[subscriber(2), published.clone(), vec![connect_sent(true, true)]]);
    let clean = [connect(true, false, false).to_vec(), subscribe_as("s", "t/#", 1)].concat();
    keeps(&[clean, published]);
}

#[test]
fn another_filter_that_matches_is_a_reason_of_its_own() {
    let both = [subscriber(2), subscribe_as("s", "t/+", 1)].concat();
    breaks(&[both, vec![sent(1, 1), acknowledged(1), unsubscribe_sent()]], "did not come to s");
}

#[test]
fn a_shared_subscription_gets_a_message_once_whoever_takes_it() {
    let joined = |client: &str| {
        let connect = [
            Event::ConnectSent { client: name(client), clean: false, keeps: true },
            Event::Connected { client: name(client), present: false },
        ];
        [connect.to_vec(), subscribe_as(client, "$share/g/t/#", 2)].concat()
    };
    let start = [joined("s"), joined("u"), vec![sent(1, 2), acknowledged(1)]].concat();
    keeps(&[start.clone(), vec![got_by("u", 1, 2)]]);
    breaks(std::slice::from_ref(&start), "did not come to $share/g/t/#");
    breaks(&[start, vec![got_by("u", 1, 2), got_by("s", 1, 2)]], "QoS 2, and it came before");
}

#[test]
fn qos_2_is_once() {
    let published = vec![sent(1, 2), acknowledged(1)];
    keeps(&[subscriber(2), published.clone(), vec![got(1, 2)]]);
    let twice = [subscriber(2), published.clone(), vec![got(1, 2), Event::Killed, got(1, 2)]];
    assert!(judge(&twice).iter().any(|what| what.contains("QoS 2, and it came before")));
    // On a subscription of QoS 1 it may repeat.
    keeps(&[subscriber(1), published, vec![got(1, 1)], connect(false, true, true).to_vec(), vec![got(1, 1)]]);
}

#[test]
fn order_is_kept_but_for_repeats_of_qos_1() {
    let three = |qos| (1..=3).map(|number| sent(number, qos)).collect::<Vec<_>>();
    let again = || connect(false, true, true).to_vec();
    keeps(&[subscriber(1), three(1), vec![got(1, 1), got(2, 1)], again(), vec![got(1, 1), got(2, 1), got(3, 1)]]);
    // Repeats are for the next connection, and in order there too.
    breaks(&[subscriber(1), three(1), vec![got(1, 1), got(2, 1), got(1, 1)]], "on one connection");
    breaks(
        &[subscriber(1), three(1), vec![got(1, 1), got(2, 1)], again(), vec![got(2, 1), got(1, 1)]],
        "on one connection",
    );
    breaks(&[subscriber(1), three(1), vec![got(1, 1), got(3, 1), got(2, 1)]], "out of order");
    breaks(&[subscriber(2), three(2), vec![got(2, 2), got(1, 2)]], "out of order");
    breaks(&[subscriber(0), three(0), vec![got(1, 0), got(2, 0), got(1, 0)]], "came before");
}

#[test]
fn what_a_publisher_sends_again_may_come_late_or_twice_below_qos_2() {
    let resent = || Event::Resent { message: id(1) };
    keeps(&[subscriber(1), vec![sent(1, 1), sent(2, 1), resent(), got(2, 1), got(1, 1)]]);
    breaks(&[subscriber(1), vec![sent(1, 1), sent(2, 1), got(2, 1), got(1, 1)]], "out of order");
    breaks(&[subscriber(2), vec![sent(1, 2), sent(2, 2), resent(), got(2, 2), got(1, 2)]], "out of order");
    keeps(&[subscriber(0), vec![sent(1, 2), got(1, 0), Event::Killed, resent(), got(1, 0)]]);
    breaks(&[subscriber(0), vec![sent(1, 2), got(1, 0), got(1, 0)]], "came before");
}

#[test]
fn a_new_session_may_get_what_the_one_before_it_got() {
    let clean = || [connect(true, false, false).to_vec(), subscribe_as("s", "t/#", 2)].concat();
    keeps(&[clean(), vec![sent(1, 2), got(1, 2), Event::Killed], clean(), vec![got(1, 2)]]);
}

#[test]
fn what_nobody_asked_for_must_not_come() {
    breaks(&[connect(false, true, false).to_vec(), vec![sent(1, 1), got(1, 1)]], "no subscription matches");
    let over = [subscriber(1), vec![unsubscribe_sent(), unsubscribed(), Event::Killed]].concat();
    breaks(&[over.clone(), vec![sent(1, 1), got(1, 1)]], "no subscription matches");
    // In doubt, queued before, or subscribed again: it may come.
    keeps(&[subscriber(1), vec![unsubscribe_sent(), sent(1, 1), got(1, 1)]]);
    keeps(&[subscriber(1), vec![sent(1, 1), unsubscribe_sent(), unsubscribed(), got(1, 1)]]);
    keeps(&[over, subscribe_as("s", "t/#", 1), vec![sent(1, 1), got(1, 1)]]);
    // What an ended session had queued does not come to the next one.
    let ended = [subscriber(1), vec![sent(1, 1)], connect(true, true, false).to_vec()].concat();
    breaks(&[ended, vec![got(1, 1)]], "no subscription matches");
}

#[test]
fn a_copy_is_what_was_published() {
    breaks(&[subscriber(2), vec![got(1, 1)]], "nobody published it");
    breaks(&[subscriber(2), vec![sent(1, 1), got(1, 2)]], "higher QoS");
    let elsewhere =
        Event::Received { client: name("s"), message: id(1), topic: "t/b".into(), qos: 1, dup: false, retain: false };
    breaks(&[subscriber(2), vec![sent(1, 1), elsewhere]], "another topic");
    let dup =
        Event::Received { client: name("s"), message: id(1), topic: "t/a".into(), qos: 0, dup: true, retain: false };
    breaks(&[subscriber(2), vec![sent(1, 1), dup]], "DUP with QoS 0");
}

#[test]
fn a_will_that_was_taken_back_never_comes() {
    let withdrawn = Event::Withdrawn { message: id(1) };
    keeps(&[subscriber(2), vec![sent(1, 2), withdrawn.clone()]]);
    breaks(&[subscriber(2), vec![sent(1, 2), withdrawn, got(1, 2)]], "taken back");
}

#[test]
fn a_promised_session_is_present() {
    keeps(&[connect(false, true, false).to_vec(), vec![Event::Killed], connect(false, true, true).to_vec()]);
    breaks(
        &[connect(false, true, false).to_vec(), vec![Event::Killed], connect(false, true, false).to_vec()],
        "a promised session is not present",
    );
    // Asked for and not answered: either.
    for present in [false, true] {
        keeps(&[vec![connect_sent(false, true)], connect(false, true, present).to_vec()]);
    }
    // A second CONNECT that is not answered changes nothing.
    breaks(
        &[connect(false, true, false).to_vec(), vec![connect_sent(false, true)], connect(false, true, false).to_vec()],
        "a promised session is not present",
    );
}

#[test]
fn an_ended_session_is_not_present() {
    let kept = connect(false, true, false).to_vec();
    let ended = "a session that had ended is present";
    breaks(&[connect(false, true, true).to_vec()], ended);
    breaks(&[connect(false, false, false).to_vec(), connect(false, false, true).to_vec()], ended);
    breaks(&[kept.clone(), connect(true, false, false).to_vec(), connect(false, true, true).to_vec()], ended);
    breaks(&[kept.clone(), vec![Event::Ended { client: name("s") }], connect(false, true, true).to_vec()], ended);
    breaks(&[kept, connect(true, true, true).to_vec()], "Session Present after Clean Start");
}

fn change(number: u64, retain: Retain) -> Event {
    Event::PublishSent { message: id(number), topic: "r".into(), qos: 1, retain }
}

fn read(value: Option<u64>) -> Vec<Event> {
    vec![Event::RetainedRead { topic: "r".into(), value: value.map(id) }]
}

#[test]
fn a_retained_value_is_the_acknowledged_one_or_a_later_one() {
    let set = vec![change(1, Retain::Set), change(2, Retain::Set), acknowledged(2), change(3, Retain::Set)];
    for value in [2, 3] {
        keeps(&[set.clone(), read(Some(value))]);
    }
    breaks(&[set.clone(), read(Some(1))], "instead of p 2");
    breaks(&[set, read(None)], "p 2 was acknowledged and is gone");
    for value in [None, Some(1)] {
        keeps(&[vec![change(1, Retain::Set)], read(value)]);
    }
    breaks(&[read(Some(9))], "nobody published");
}

#[test]
fn a_deleted_value_does_not_come_back() {
    let deleted = vec![change(1, Retain::Set), acknowledged(1), change(2, Retain::Delete), acknowledged(2)];
    keeps(&[deleted.clone(), read(None)]);
    breaks(&[deleted.clone(), read(Some(1))], "p 2 deleted it");
    for value in [None, Some(3)] {
        keeps(&[deleted.clone(), vec![change(3, Retain::Set)], read(value)]);
    }
}

#[test]
fn what_a_client_sees_is_a_violation() {
    breaks(&[vec![Event::Broken { client: name("s"), what: "an identifier in use".into() }]], "an identifier in use");
}

#[test]
fn filters_match_as_the_specification_says() {
    for (filter, topic) in [
        ("a/+/c", "a/b/c"),
        ("#", "a"),
        ("a/#", "a"),
        ("a/#", "a/b/c"),
        ("+", "a"),
        ("$share/g/a/+", "a/b"),
        ("+/+", "/a"),
    ] {
        assert!(matches(filter, topic), "{filter} {topic}");
    }
    for (filter, topic) in
        [("a/+", "a"), ("a/+", "a/b/c"), ("#", "$SYS/a"), ("+/a", "$SYS/a"), ("a", "a/b"), ("a/b", "a")]
    {
        assert!(!matches(filter, topic), "{filter} {topic}");
    }
}
