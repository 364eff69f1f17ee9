//! Leases at rest: what of them is written, and what comes back of it.
//!
//! The property is the rule: a node that was killed and comes back is in the state of one whose clients all lost their connection at that
//! moment, and who went on.

use std::collections::BTreeMap;

use super::*;
use crate::standalone::Standalone;
use WillFate::Keep;

/// What somebody who writes all changes down has in the end.
#[derive(Default)]
struct Kept {
    images: BTreeMap<u64, LeaseImage>,
    last_item: u64,
}

impl Kept {
    fn write(&mut self, changes: Vec<LeaseChange>) {
        for LeaseChange { gone, image } in changes {
            if let Some(item) = gone {
                assert!(self.images.remove(&item).is_some(), "{item} goes and was not there");
            }
            if let Some(image) = image {
                assert!(image.item > self.last_item, "{} does not come after {}", image.item, self.last_item);
                self.last_item = image.item;
                let others = self.images.values().filter(|other| other.client == image.client);
                assert_eq!(others.count(), 0, "two images of {}", image.client);
                self.images.insert(image.item, image);
            }
        }
    }

    fn all(&self) -> Vec<LeaseImage> {
        self.images.values().cloned().collect()
    }

    fn of(&self, client: &str) -> Option<&LeaseImage> {
        self.images.values().find(|image| &*image.client == client)
    }
}

fn restore(now: u64, down_since: u64, images: Vec<LeaseImage>) -> (Standalone, Vec<LeaseChange>) {
    Standalone::restore(NODE, "name", now, down_since, images)
}

/// A node that keeps its leases, on its first day.
fn first_start(kept: &mut Kept, commands: impl IntoIterator<Item = (u64, Command)>) -> Standalone {
    let (mut node, changes) = restore(0, 0, Vec::new());
    assert_eq!(changes, []);
    for (now, command) in commands {
        kept.write(node.propose(now, command).changes);
    }
    node
}

/// Ticks until nothing is due at `now`.
fn tick_all(node: &mut Standalone, now: u64, kept: &mut Kept) -> Vec<Effect> {
    let mut effects = Vec::new();
    while node.next_due().is_some_and(|due| due <= now) {
        let applied = node.tick(now);
        assert!(applied.effects.len() <= TICK_EVENTS_MAX);
        effects.extend(applied.effects);
        kept.write(applied.changes);
    }
    effects
}

/// Leases and due Wills, but not the numbers that only one run has.
fn what_lasts(node: &Standalone) -> (u64, Vec<Effect>) {
    let mut digest = Digest::default();
    node.state().leases.digest_table(&mut digest);
    (digest.value(), node.state().wills_due().collect())
}

/// Ends every connection as a power cut would be seen from outside; returns the effects that matter after it.
fn cut_all(node: &mut Standalone, now: u64, kept: &mut Kept) -> Vec<Effect> {
    let clients: Vec<_> = node.state().clients().cloned().collect();
    let mut effects = Vec::new();
    for client in clients {
        let Some(Session { epoch, connected: true, .. }) = node.state().session(&client) else {
            continue;
        };
        let expiry_secs = kept.of(&client).map(|image| image.expiry_secs);
        let applied = node.propose(now, detach(&client, epoch, Keep, expiry_secs.unwrap_or(0)));
        kept.write(applied.changes);
        // Who was not kept is not missed.
        effects.extend(applied.effects.into_iter().filter(|_| expiry_secs.is_some()));
    }
    effects
}

proptest! {
    #[test]
    fn a_node_that_comes_back_is_as_if_only_the_connections_had_gone(
        steps in steps(any_lease_command()),
        downtime in prop_oneof![Just(0_u64), Just(1_500), Just(10_000)],
    ) {
        let (mut kept, mut now) = (Kept::default(), 0);
        let mut stayed = first_start(&mut kept, []);
        for step in steps.into_iter().filter(|step| !matches!(step.command, Command::Register { .. })) {
            now += step.after;
            kept.write(stayed.propose(now, step.command).changes);
        }
        let mut disk = Kept { images: kept.images.clone(), last_item: kept.last_item };
        let (mut back, changes) = restore(now + downtime, now, disk.all());
        disk.write(changes);

        let mut expected: Vec<_> = stayed.state().wills_due().collect();
        expected.extend(cut_all(&mut stayed, now, &mut kept));
        let now = now + downtime;
        expected.extend(tick_all(&mut stayed, now, &mut kept));
        prop_assert_eq!(sorted(&tick_all(&mut back, now, &mut disk)), sorted(&expected));
        prop_assert_eq!(what_lasts(&back), what_lasts(&stayed));
        prop_assert_eq!(back.next_due(), stayed.next_due());
        prop_assert_eq!(back.state().counts().connected, 0);

        let (again, changes) = restore(now, now, disk.all());
        prop_assert_eq!(changes, []);
        prop_assert_eq!(what_lasts(&again), what_lasts(&back));
    }
}

#[test]
fn a_client_that_leaves_nothing_behind_is_never_written() {
    let mut kept = Kept::default();
    let (mut node, _) = restore(0, 0, Vec::new());
    for command in [acquire("c", true, 0, None), acquire("c", false, 0, None)] {
        assert_eq!(node.propose(0, command).changes, []);
    }
    let Session { epoch, .. } = node.state().session("c").unwrap();
    assert_eq!(node.propose(0, detach("c", epoch, Keep, 0)).changes, []);
    // It may still decide to stay.
    kept.write(node.propose(0, acquire("d", true, 0, None)).changes);
    let Session { epoch, .. } = node.state().session("d").unwrap();
    kept.write(node.propose(0, detach("d", epoch, Keep, 10)).changes);
    assert_eq!(kept.of("d").map(|image| (image.epoch, image.connected)), Some((epoch, false)));
}

#[test]
fn nothing_is_said_to_who_did_not_ask() {
    let mut node = Standalone::new(NODE, "name");
    assert_eq!(node.propose(0, acquire("c", true, 10, Some(0))).changes, []);
    assert_eq!(node.propose(0, detach("c", 1, Keep, 10)).changes, []);
    assert_eq!(node.tick(u64::MAX).changes, []);
}

#[test]
fn a_command_changes_a_client_once_and_its_image_is_how_it_stands_behind_the_command() {
    let mut kept = Kept::default();
    let mut node = first_start(&mut kept, [(0, acquire("c", true, 5, Some(2))), (0, detach("c", 1, Keep, 5))]);
    assert_eq!(kept.images.len(), 1);
    // The Will, the end of the session and the new connection, in one command.
    let applied = node.propose(9_000, acquire("c", false, 7, None));
    let [LeaseChange { gone: Some(2), image: Some(image) }] = applied.changes.as_slice() else {
        panic!("{:?}", applied.changes);
    };
    assert_eq!((image.item, image.connected, image.expiry_secs, image.began), (3, true, 7, 2));
    assert_eq!(image.wills_due, [(1, b"will".as_slice().into())]);
}

#[test]
fn a_connection_of_the_earlier_run_ended_when_the_node_did() {
    let mut kept = Kept::default();
    first_start(&mut kept, [(0, acquire("c", true, 10, Some(3)))]);
    let (mut node, changes) = restore(7_000, 5_000, kept.all());
    kept.write(changes);
    assert_eq!(kept.of("c").map(|image| (image.connected, image.detached_since)), Some((false, 5_000)));
    assert_eq!(tick_all(&mut node, 7_999, &mut kept), []);
    assert!(matches!(tick_all(&mut node, 8_000, &mut kept).as_slice(), [Effect::WillDue { epoch: 1, .. }]));
    assert_eq!(tick_all(&mut node, 14_999, &mut kept), []);
    assert!(matches!(tick_all(&mut node, 15_000, &mut kept).as_slice(), [Effect::SessionEnded { epoch: 1, .. }]));
}

#[test]
fn who_comes_back_first_finds_the_session() {
    let mut kept = Kept::default();
    first_start(&mut kept, [(0, acquire("c", true, 10, Some(3))), (0, acquire("c", false, 10, Some(3)))]);
    let (mut node, _) = restore(2_000, 0, kept.all());
    let applied = node.propose(2_000, acquire("c", false, 10, None));
    assert_eq!(applied.outcome, Outcome::Acquired { epoch: 3, session_present: true, displaced: None });
    assert_eq!(applied.effects, []);
    assert_eq!(
        node.state().session("c"),
        Some(Session { began: 1, epoch: 3, connected: true, holder: NODE, claim: None, missing: false })
    );
}

#[test]
fn a_will_that_was_due_is_handed_out_once_more_and_first() {
    let mut kept = Kept::default();
    let commands = ["c", "d"].map(|client| [(0, acquire(client, true, 0, Some(9))), (0, detach(client, 1, Keep, 0))]);
    first_start(&mut kept, commands.concat());
    assert!(kept.images.values().all(|image| image.ended && image.wills_due.len() == 1));
    let (mut node, changes) = restore(1, 1, kept.all());
    assert_eq!(changes, []);
    assert_eq!(node.next_due(), Some(1));
    let client_of = |effect| match effect {
        Effect::WillDue { client, epoch: 1, .. } => client,
        other => panic!("{other:?}"),
    };
    let clients: Vec<ClientId> = node.tick(1).effects.into_iter().map(client_of).collect();
    assert_eq!(clients, ["c".into(), "d".into()]);
    assert_eq!(node.next_due(), None);
    for client in clients {
        kept.write(node.propose(1, will_done(&client, 1)).changes);
    }
    assert!(kept.images.is_empty());
}

#[test]
fn wills_of_one_client_keep_their_order_though_it_comes_back_before_the_first_tick() {
    let mut kept = Kept::default();
    // The first was due and perhaps not published; the second is that of a connection that the end of the node has cut off.
    let commands = [acquire("c", true, 0, Some(0)), detach("c", 1, Keep, 0), acquire("c", true, 0, Some(0))];
    first_start(&mut kept, commands.map(|command| (0, command)));
    let (mut node, changes) = restore(1, 1, kept.all());
    kept.write(changes);
    let effects = node.propose(1, acquire("c", true, 0, None)).effects;
    let epochs: Vec<u64> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::WillDue { epoch, .. } => Some(*epoch),
            _ => None,
        })
        .collect();
    assert_eq!(epochs, [1, 2]);
    assert!(!node.tick(2).effects.iter().any(|effect| matches!(effect, Effect::WillDue { .. })), "each once");
}

#[test]
fn what_became_due_over_night_comes_in_slices() {
    let mut kept = Kept::default();
    let clients = TICK_EVENTS_MAX * 2 + 7;
    first_start(&mut kept, (0..clients).map(|number| (0, acquire(&format!("{number}"), true, 10, Some(0)))));
    let (mut node, changes) = restore(5_000, 1, kept.all());
    assert_eq!(changes.len(), clients, "who was connected is not any more");
    kept.write(changes);
    let slices: Vec<_> = (0..4).map(|_| node.tick(5_000).effects.len()).collect();
    assert_eq!(slices, [TICK_EVENTS_MAX, TICK_EVENTS_MAX, 7, 0]);
}

#[test]
fn of_two_images_of_a_client_the_newer_counts() {
    let mut kept = Kept::default();
    let mut node = first_start(&mut kept, [(0, acquire("c", true, 10, Some(0)))]);
    let older = kept.all();
    kept.write(node.propose(0, detach("c", 1, Keep, 20)).changes);
    let (node, changes) = restore(0, 0, [kept.all(), older].concat());
    assert_eq!(changes, [LeaseChange { gone: Some(1), image: None }]);
    assert_eq!(node.next_due(), Some(0), "the Will of the newer image is due");
    assert_eq!(node.state().wills_due().count(), 1);
}

#[test]
fn numbers_do_not_come_again_though_nothing_is_left_that_had_them() {
    let numbers = |now: u64, images: Vec<LeaseImage>| {
        let (mut node, _) = restore(now, now, images);
        let changes = node.propose(now, acquire("c", true, 10, None)).changes;
        let image = changes.into_iter().find_map(|change| change.image).unwrap();
        (image.item, image.epoch)
    };
    let (first, later) = (numbers(1_000, Vec::new()), numbers(1_001, Vec::new()));
    assert!(first.0 < later.0 && first.1 < later.1);
    let far = LeaseImage {
        item: u64::MAX / 2,
        client: "d".into(),
        epoch: u64::MAX / 2,
        began: 1,
        expiry_secs: 10,
        connected: false,
        detached_since: 0,
        ended: false,
        will: None,
        wills_due: Vec::new(),
    };
    assert_eq!(numbers(1_000, vec![far.clone()]), (far.item + 1, far.epoch + 1));
}

#[test]
fn an_image_that_no_state_makes_does_no_harm() {
    let mut kept = Kept::default();
    first_start(&mut kept, [(0, acquire("c", true, 10, Some(0)))]);
    let mut images = kept.all();
    images[0].wills_due.push((1, b"will".as_slice().into()));
    let (mut node, _) = restore(0, 0, images.clone());
    assert_eq!(node.tick(0).effects.len(), 1, "waiting and due is due");
    images[0].wills_due.clear();
    images[0].ended = true;
    let (node, changes) = restore(0, 0, images);
    assert_eq!(changes, [LeaseChange { gone: Some(1), image: None }]);
    assert_eq!(node.state().counts().leases, 0);
}

#[test]
fn what_becomes_of_leases_when_a_node_registers_anew_is_written_too() {
    let mut kept = Kept::default();
    let mut node = first_start(&mut kept, [(0, acquire("c", true, 0, None)), (0, acquire("d", true, 10, Some(5)))]);
    kept.write(node.propose(7, restart(NODE, 1, false)).changes);
    assert!(kept.of("c").is_none());
    assert_eq!(
        kept.of("d").map(|image| (image.connected, image.detached_since, image.expiry_secs)),
        Some((false, 7, 10))
    );
    assert_eq!(tick_all(&mut node, 10_007, &mut kept).len(), 3, "two sessions and a Will");
    assert_eq!(kept.of("d").map(|image| (image.ended, image.wills_due.len())), Some((true, 1)));
}
