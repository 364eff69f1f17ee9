//! The 3×3 matrix: what is published on any node comes to a subscriber on any node.

use holdfast_cluster_tests::client::Client;
use holdfast_cluster_tests::cluster::ClusterStage;

/// Subscribes on each of these nodes, publishes on each, and every subscriber gets every message once. `round` makes names.
#[track_caller]
pub fn passes(on: &ClusterStage, nodes: &[usize], round: &str) {
    let topic = on.topic(&format!("matrix/{round}"));
    let mut subscribers: Vec<Client> = nodes.iter().map(|node| on.v5(*node, &format!("ms{round}{node}"))).collect();
    subscribers.iter_mut().for_each(|client| assert_eq!(client.subscribe(&topic, 1), 1));
    for node in nodes {
        let mut publisher = on.v5(*node, &format!("mp{round}{node}"));
        assert!(publisher.publish(&topic, node.to_string(), 1) < 0x80);
    }
    for client in &mut subscribers {
        let mut got: Vec<_> = nodes.iter().map(|_| client.take().text()).collect();
        got.sort();
        let mut wanted: Vec<_> = nodes.iter().map(usize::to_string).collect();
        wanted.sort();
        assert_eq!(got, wanted, "{}", client.client_id);
        client.expect_quiet();
    }
}
