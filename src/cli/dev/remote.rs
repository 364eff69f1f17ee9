//! The commands for another terminal: they find the nodes by the files of the folder.

use std::time::{Duration, Instant};

use super::folder::Folder;
use super::plan::{Node, Plan};
use super::process::{LOOK, Process};
use super::running::READY_WITHIN;
use super::{Failure, asking, say, table};

/// From SIGKILL to the end of a process.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// From SIGTERM to its end: more than clients are given to take what was written to them.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);

/// From the request to a new process.
const STARTED_WITHIN: Duration = Duration::from_secs(5);

fn plan(folder: &Folder) -> Result<Plan, Failure> {
    let place = folder.path().display();
    folder.plan()?.ok_or_else(|| {
        Failure::Usage(format!(
            "there is no dev cluster in {place}: start one with  holdfast dev{}",
            folder.as_argument()
        ))
    })
}

fn node(folder: &Folder, name: &str) -> Result<Node, Failure> {
    let plan = plan(folder)?;
    plan.node(name).cloned().ok_or_else(|| {
        let names: Vec<_> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
        Failure::Usage(format!("there is no node \"{name}\"; there are {}", names.join(", ")))
    })
}

fn running(folder: &Folder, node: &Node) -> Result<Process, Failure> {
    Process::of_node(folder, node).ok_or_else(|| Failure::Failed(format!("{} does not run", node.name)))
}

/// `--kill`: as a crash.
pub(super) fn kill(folder: &Folder, name: &str) -> Result<(), Failure> {
    end(folder, name, libc::SIGKILL, KILLED_WITHIN, "killed")
}

/// `--stop`: in good order.
pub(super) fn stop(folder: &Folder, name: &str) -> Result<(), Failure> {
    end(folder, name, libc::SIGTERM, STOPPED_WITHIN, "stopped")
}

fn end(folder: &Folder, name: &str, signal: i32, patience: Duration, word: &str) -> Result<(), Failure> {
    let node = node(folder, name)?;
    let process = running(folder, &node)?;
    process.signal(signal);
    if !process.ends_within(patience) {
        return Err(Failure::Failed(format!(
            "{name} (process {}) has not ended in {} s",
            process.id,
            patience.as_secs()
        )));
    }
    let data = folder.as_argument();
    say(format_args!("{name} {word} (process {}). To start it again:  holdfast dev --start {name}{data}", process.id));
    Ok(())
}

/// `--start`: the process that watches over the nodes does it, so that they all end with it.
pub(super) fn start(folder: &Folder, name: &str) -> Result<(), Failure> {
    let node = node(folder, name)?;
    if !folder.is_locked() {
        let place = folder.path().display();
        return Err(Failure::Usage(format!(
            "no dev cluster runs in {place}: start it with  holdfast dev{}",
            folder.as_argument()
        )));
    }
    if let Some(process) = Process::of_node(folder, &node) {
        return Err(Failure::Failed(format!("{name} runs already (process {})", process.id)));
    }
    if let Some(why) = folder.why_left(&node, &again(name)) {
        return Err(Failure::Failed(why));
    }
    let (begun, before) = (Instant::now(), Process::last_of_node(folder, &node));
    folder.request(&node).map_err(Failure::of("the request cannot be written"))?;
    let process = loop {
        // It may have ended as soon as it had started.
        if let Some(process) = Process::last_of_node(folder, &node).filter(|process| Some(*process) != before) {
            break process;
        }
        if begun.elapsed() > STARTED_WITHIN {
            folder.take_request(&node);
            return Err(Failure::Failed(format!(
                "{name} was not started: does  holdfast dev  still run?{}",
                folder.last_lines(&node, 5)
            )));
        }
        std::thread::sleep(LOOK);
    };
    until_ready(folder, &node, process, begun)?;
    say(format_args!(
        "{name} ready in {:.1} s\n{}",
        begun.elapsed().as_secs_f64(),
        table::table(&[table::row(&node, &asking::role(&node))])
    ));
    Ok(())
}

/// The command that starts a node.
fn again(name: &str) -> String {
    format!("holdfast dev --start {name}")
}

fn until_ready(folder: &Folder, node: &Node, process: Process, begun: Instant) -> Result<(), Failure> {
    while let Err(reason) = asking::ready(node) {
        let lines = || folder.last_lines(node, 10);
        if !process.runs() {
            if let Some(why) = folder.why_left(node, &again(&node.name)) {
                return Err(Failure::Failed(why));
            }
            return Err(Failure::Failed(format!("{} has ended; the last lines of its log:{}", node.name, lines())));
        }
        if begun.elapsed() > READY_WITHIN {
            return Err(Failure::Failed(format!(
                "{} is not ready: {reason}; the last lines of its log:{}",
                node.name,
                lines()
            )));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether a node that does not run is no member any more: it knows it itself, or the others took it out.
fn has_left(folder: &Folder, plan: &Plan, node: &Node) -> bool {
    if folder.cluster_left(node).is_some() {
        return true;
    }
    // One that has never joined has not left.
    let was_there = folder.file_of(node, "data").join("raft").exists();
    let others = plan.nodes.iter().filter(|other| was_there && Process::of_node(folder, other).is_some());
    others.filter_map(asking::members).next().is_some_and(|members| !members.contains(&node.name))
}

/// `--status`. All of them running and ready is success, anything else is not.
pub(super) fn status(folder: &Folder) -> Result<(), Failure> {
    let plan = plan(folder)?;
    let mut rows = Vec::new();
    let mut all_ready = true;
    for node in &plan.nodes {
        let state = match (Process::of_node(folder, node), asking::ready(node)) {
            (None, _) if has_left(folder, &plan, node) => Err("left".to_owned()),
            (None, _) => Err("down".to_owned()),
            (Some(_), Ok(())) => Ok(asking::role(node)),
            (Some(_), Err(reason)) => Err(format!("not ready: {reason}")),
        };
        all_ready &= state.is_ok();
        rows.push(table::row(node, &state.unwrap_or_else(|reason| reason)));
    }
    let runs = if folder.is_locked() { "" } else { "  (not running)" };
    say(format_args!(
        "dev cluster \"{}\"  data {}{runs}\n{}",
        plan.cluster,
        folder.path().display(),
        table::table(&rows)
    ));
    if all_ready { Ok(()) } else { Err(Failure::Failed("not all nodes are ready".to_owned())) }
}
