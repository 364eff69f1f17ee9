//! Shared subscriptions over a kill: what was queued for the group comes to one of its members.

use holdfast_cluster_tests::wire::Version;

use holdfast_cluster_tests::scene::{Scene, kept, numbers, publish_numbers, texts};

const FILTER: &str = "$share/g/t";

#[test]
fn what_waits_for_a_share_group_without_members_arrives_once() {
    for qos in [1, 2] {
        let mut scene = Scene::new();
        for name in ["a", "b"] {
            scene.leave_session(&kept(Version::V5, name), FILTER, qos);
        }
        publish_numbers(&mut scene.client("p"), "t", 1..21, qos);
        scene.kill_and_start();
        publish_numbers(&mut scene.client("p"), "t", 21..31, qos);
        let mut got = Vec::new();
        for name in ["a", "b"] {
            let mut client = scene.resume(&kept(Version::V5, name));
            // The marker goes to whoever is there; the other member is not.
            got.extend(texts(&scene.drain(&mut client, "t")));
            client.disconnect();
        }
        got.sort_by_key(|text| text.parse::<u32>().ok());
        assert_eq!(got, numbers(1..31), "QoS {qos}");
    }
}

#[test]
fn what_a_member_had_in_hand_is_not_lost() {
    let mut scene = Scene::new();
    let (mut a, _) = scene.connect(&kept(Version::V5, "a"));
    let (mut b, _) = scene.connect(&kept(Version::V5, "b"));
    for client in [&mut a, &mut b] {
        client.subscribe(FILTER, 1);
    }
    publish_numbers(&mut scene.client("p"), "t", 1..21, 1);
    // Both have some, neither acknowledges.
    assert!(!a.recv_publish().payload.is_empty() && !b.recv_publish().payload.is_empty());
    scene.kill_and_start();
    let mut got = std::collections::BTreeSet::new();
    for name in ["a", "b"] {
        let mut client = scene.resume(&kept(Version::V5, name));
        got.extend(texts(&scene.drain(&mut client, "t")));
        client.disconnect();
    }
    assert_eq!(got, numbers(1..21).into_iter().collect());
}
