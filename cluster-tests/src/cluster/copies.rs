//! Which nodes have the copies of whose sessions, by what the nodes say.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Cluster;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(50);

impl Cluster {
    /// Waits until each of these nodes has complete copies of all of its sessions on the others of them, and on no other.
    ///
    /// # Panics
    /// When that does not come in this time; with what each node says.
    #[track_caller]
    pub fn copied_within(&self, nodes: &[usize], patience: Duration) {
        let deadline = Instant::now() + patience;
        while !nodes.iter().all(|home| self.is_copied(*home, nodes)) {
            let said: Vec<_> = nodes.iter().map(|node| self.copies_of(*node)).collect();
            assert!(Instant::now() < deadline, "no copies on all of {nodes:?} after {patience:?}, but {said:#?}");
            std::thread::sleep(PAUSE);
        }
    }

    /// Waits until `home` fills `heir`.
    ///
    /// # Panics
    /// When it does not begin to in this time.
    #[track_caller]
    pub fn filling_within(&self, home: usize, heir: usize, patience: Duration) {
        let deadline = Instant::now() + patience;
        let filling = (self.node(heir).name().to_owned(), "filling".to_owned());
        while !self.copies_of(home).contains(&filling) {
            assert!(Instant::now() < deadline, "{} is not filled after {patience:?}", filling.0);
            std::thread::sleep(PAUSE);
        }
    }

    fn is_copied(&self, home: usize, nodes: &[usize]) -> bool {
        let others = nodes.iter().filter(|node| **node != home);
        let mut wanted: Vec<_> =
            others.map(|node| (self.node(*node).name().to_owned(), "complete".to_owned())).collect();
        wanted.sort();
        self.copies_of(home) == wanted && self.node(home).metric("holdfast_sessions_without_copy", &[]) == Some(0.0)
    }

    /// The heirs of a node and how complete its copies are there, by what it says itself; sorted.
    fn copies_of(&self, home: usize) -> Vec<(String, String)> {
        let status = self.node(home).ask_json("/api/v1/cluster/status");
        let rows = status.as_ref().and_then(|status| status.get("copies")?.as_array());
        let mut copies: Vec<_> = rows.into_iter().flatten().filter_map(|row| self.row(home, row)).collect();
        copies.sort();
        copies
    }

    fn row(&self, home: usize, row: &Value) -> Option<(String, String)> {
        let text = |key: &str| Some(row.get(key)?.as_str()?.to_owned());
        (text("home")? == self.node(home).name()).then_some((text("heir")?, text("state")?))
    }
}
