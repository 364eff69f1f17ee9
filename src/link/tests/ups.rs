//! Links come up both ways, go down, and come up again.

use super::*;

#[test]
fn one_seed_links_both_ways() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    assert_eq!(one.links.linked(), [two.id()]);
    assert_eq!(two.links.linked(), [one.id()]);
    let seen = one.links.linked_peer(two.id()).unwrap();
    assert_eq!((&*seen.name, seen.run, seen.shards), ("n2", 2, 2));
    assert_eq!(seen.address, two.address());
    eventually("a round trip is measured", || one.links.peers()[0].rtt_ms.is_some());
    let view = &one.links.peers()[0];
    assert!(view.is_up && view.bytes_in > 0 && view.bytes_out > 0 && view.last_error.is_none(), "{view:?}");
}

#[test]
fn a_stop_is_seen_by_both() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    two.stop(&runtime);
    assert_eq!((one.down().id, two.down().id), (two.id(), one.id()));
    assert!(one.links.linked().is_empty() && two.links.linked().is_empty());
    assert!(!one.links.send(two.id(), Lane::Control, 1, Bytes::new()));
    eventually("why is shown", || one.links.peers()[0].last_error.is_some());
}

#[test]
fn it_is_enough_to_know_one_who_knows_the_others() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    let seeds = [one.address()];
    let rest: Vec<_> = (2..5).map(|id| node(id).seeds(&[&seeds[0]]).start(&runtime)).collect();
    let all: Vec<_> = std::iter::once(&one).chain(&rest).collect();
    for node in &all {
        eventually("all are linked", || node.links.linked().len() == 3);
        let others: Vec<_> = all.iter().map(|other| other.id()).filter(|id| *id != node.id()).collect();
        assert_eq!(node.links.linked(), others);
    }
}

#[test]
fn a_new_run_takes_the_place_of_the_old_one() {
    let runtime = runtime();
    let (one, two) = pair_of(&runtime, node(2).alone(2));
    let bind = two.links.local_addr();
    two.stop(&runtime);
    drop(two);
    assert_eq!(one.down().run, 2);
    let mut plan = node(2);
    plan.run = 77;
    plan.config.bind = bind;
    let again = plan.start(&runtime);
    // It has no seeds: it is found where it was.
    assert_eq!((one.up().run, again.up().id), (77, one.id()));
}

#[test]
fn a_new_run_is_seen_before_the_old_one_has_gone() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    let mut plan = node(2).seeds(&[&one.address()]);
    plan.run = 77;
    let later = plan.start(&runtime);
    assert_eq!(one.down().run, 2);
    assert_eq!(one.up().run, 77);
    later.up();
    two.down();
    // The old one tries again, and is told.
    eventually("the old run is refused", || one.links.counts().refused(Refusal::OlderRun) > 0);
    assert_eq!(one.links.linked_peer(later.id()).unwrap().run, 77);
    one.is_quiet(Duration::from_millis(300));
}

#[test]
fn a_node_that_moved_is_found_where_it_is_now() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    two.stop(&runtime);
    drop(two);
    one.down();
    // Another address, no seeds, and the one that looks for it knows only where somebody is.
    let mut plan = node(2);
    plan.run = 9;
    let moved = plan.start(&runtime);
    assert!(one.links.add_seed(&moved.address()));
    assert_eq!((one.up().run, moved.up().id), (9, one.id()));
    assert_eq!(one.links.peers().len(), 1);
    assert_eq!(one.links.linked_peer(moved.id()).unwrap().address, moved.address());
}

#[test]
fn its_own_address_among_the_seeds_is_left_alone() {
    let runtime = runtime();
    let one = node(1).start(&runtime);
    assert!(one.links.add_seed(&one.address()));
    let two = node(2).seeds(&[&one.address()]).start(&runtime);
    assert!(two.links.add_seed(&two.address()));
    one.up();
    eventually("it recognises itself", || one.links.counts().refused(Refusal::Own) > 0);
    assert_eq!(one.links.peers().len(), 1);
}

#[test]
fn seeds_are_names_and_may_be_early() {
    let runtime = runtime();
    // A port that is this test's until it is given to the node.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let early = node(1).seeds(&[&format!("localhost:{port}"), "no-such-host.invalid:1"]).start(&runtime);
    eventually("the name is looked up and dialled", || taken.accept().is_ok());
    drop(taken);
    let mut plan = node(2);
    plan.config.bind.set_port(port);
    let late = plan.start(&runtime);
    assert_eq!((early.up().id, late.up().id), (late.id(), early.id()));
}

#[test]
fn whoever_binds_any_address_is_reached_where_he_is_seen() {
    let runtime = runtime();
    let mut plan = node(1);
    plan.config.bind = "0.0.0.0:0".parse().unwrap();
    let any = plan.start(&runtime);
    let port = any.links.local_addr().port();
    assert_eq!(any.links.own().address, format!(":{port}"));
    let two = node(2).seeds(&[&format!("127.0.0.1:{port}")]).start(&runtime);
    assert_eq!(two.up().address, format!("127.0.0.1:{port}"));
    any.up();
}

#[test]
fn stopping_leaves_nothing_behind() {
    let runtime = runtime();
    let (one, two) = pair(&runtime);
    for node in [&one, &two] {
        node.stop(&runtime);
    }
    drop((one, two));
    eventually("all tasks end", || runtime.metrics().num_alive_tasks() == 0);
}
