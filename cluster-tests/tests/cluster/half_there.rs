//! A home is destroyed when its heir has a message for one of its sessions and not yet for another: each has it in the end, and once.

use std::time::Duration;

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::relay::Fault;
use holdfast_cluster_tests::cluster::rounds::rounds;
use holdfast_cluster_tests::cluster::{ClusterSetup, ClusterStage};
use holdfast_cluster_tests::scene::pass;

use crate::HEALED;
use crate::copies::{LONG, goes_to, home_and_others, start_copied};

#[track_caller]
fn subscribed(on: &ClusterStage, node: usize, name: &str) -> Client {
    let (mut client, _) = on.connect(node, &on.kept(name).keep_alive(0));
    assert_eq!(client.subscribe(on.topic("h/+"), 1), 1);
    client
}

/// Whether what waits for a session of `home` is copied to that heir.
fn is_copied_to(on: &ClusterStage, home: usize, heir: usize, name: &str) -> bool {
    subscribed(on, home, name).disconnect();
    let is = goes_to(on, (home, heir), "h/large");
    on.connect(home, &on.kept(name).clean(true)).0.disconnect();
    is
}

/// The first session is away, and what comes for it goes to the heir at once. The second one has been sent the message, and acknowledges nothing: what it is to have a copy of waits
/// until the heir has answered.
#[test]
fn a_message_that_an_heir_has_for_one_session_comes_to_the_others_too() {
    for _ in 0..rounds(1, 20) {
        let cluster = start_copied(ClusterSetup::new(3).shards(1));
        let [home, heir, b] = home_and_others(&cluster);
        let on = ClusterStage::new(&cluster);
        let names = (0..64).map(|number| format!("s{number}"));
        let names: Vec<_> = names.filter(|name| is_copied_to(&on, home, heir, name)).take(2).collect();
        subscribed(&on, home, &names[0]).disconnect();
        let mut second = subscribed(&on, home, &names[1]);
        let mut publisher = on.v5(b, "publisher");
        publisher.publish(on.topic("h/0"), "zero", 1);
        assert_eq!(second.take().text(), "zero");
        cluster.copied_within(&[0, 1, 2], HEALED);
        let wound = cluster.hurt(&[(home, heir)], Fault::delay(LONG).back());
        // It is acknowledged when it is on the disk of the home.
        publisher.publish(on.topic("h/1"), "one", 1);
        pass(Duration::from_millis(200));
        cluster.node(home).kill();
        cluster.node(home).wipe();
        wound.heal();
        drop(second);
        let mut clients = names.iter().map(|name| {
            let (client, ack) = on.connect_within(heir, &on.kept(name), HEALED);
            assert!(ack.session_present);
            client
        });
        let (mut first, mut second) = (clients.next().expect("two"), clients.next().expect("two"));
        on.v5(b, "end").publish(on.topic("h/end"), "end", 1);
        let texts = |client: &mut Client| -> Vec<String> {
            client.take_until("end").iter().map(|message| message.text()).collect()
        };
        assert_eq!(texts(&mut first), ["zero", "one"]);
        assert_eq!(texts(&mut second), ["one"]);
    }
}
