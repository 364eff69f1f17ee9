//! What is printed: a row for each node, and what to try.

use std::path::Path;
use std::time::Duration;

use super::folder::Folder;
use super::plan::{Node, Plan};

const HEAD: [&str; 5] = ["node", "mqtt", "ws", "admin", "raft"];

/// `role`: what the node is in the control plane, or why it is not.
pub(super) fn row(node: &Node, role: &str) -> [String; 5] {
    [
        node.name.clone(),
        format!("mqtt://127.0.0.1:{}", node.mqtt),
        format!("ws://127.0.0.1:{}/mqtt", node.ws),
        format!("http://127.0.0.1:{}", node.admin),
        role.to_owned(),
    ]
}

/// The rows under their head, each line with a space before it.
pub(super) fn table(rows: &[[String; 5]]) -> String {
    let head = HEAD.map(str::to_owned);
    let width = |column: usize| rows.iter().chain([&head]).map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..HEAD.len()).map(width).collect();
    let lines = [&head].into_iter().chain(rows).map(|row| {
        let cells: String = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$}  ")).collect();
        cells.trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The line above the table.
pub(super) fn title(plan: &Plan, folder: &Path, took: Duration) -> String {
    let kept = if plan.ephemeral { "dropped at the end" } else { "kept; --ephemeral to drop" };
    format!(
        "holdfast {}  dev cluster \"{}\"  data {} ({kept})      ready in {:.1} s",
        env!("CARGO_PKG_VERSION"),
        plan.cluster,
        folder.display(),
        took.as_secs_f64()
    )
}

/// The lines below it.
pub(super) fn hints(plan: &Plan, folder: &Folder) -> String {
    let mut text = String::from(" loopback only, anonymous allowed\n");
    let [from, to] = match plan.nodes.as_slice() {
        [] => return text,
        [only] => [only, only],
        [first, second, rest @ ..] => [second, rest.first().unwrap_or(first)],
    };
    text += &format!(" try   holdfast pub -p {} -r -t hello/world -m hi", from.mqtt);
    text += &format!("        watch with  holdfast sub -p {} -v -t 'hello/#'\n", to.mqtt);
    let data = folder.as_argument();
    text += &format!("       holdfast dev --kill {0}{data}        and then  holdfast dev --start {0}{data}", from.name);
    text
}
