//! The command that starts the nodes, watches over them, and stops them.
//!
//! Invariants: no node outlives this process unless it is killed, and then the next start stops what it left; a folder that was there before is never
//! removed.

use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::folder::Folder;
use super::plan::{Node, Plan};
use super::process::{self, LOOK, Process};
use super::{Failure, asking, say, table};

/// From the start of a node to its readiness.
pub(super) const READY_WITHIN: Duration = Duration::from_secs(20);

/// From SIGTERM to SIGKILL.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);

/// How many lines of a log are shown.
const LINES: usize = 10;

/// The nodes of a plan and their processes.
struct Nodes {
    program: PathBuf,
    folder: Folder,
    plan: Plan,
    /// One for each node; `None`: it does not run.
    children: Vec<Option<Child>>,
}

/// `holdfast dev`.
pub(super) fn run(folder: &Folder, count: u8, port_base: Option<u16>, ephemeral: bool) -> Result<(), Failure> {
    let begun = Instant::now();
    let program = std::env::current_exe().map_err(Failure::of("the path of this program is not known"))?;
    let plan_of_last_start = folder.plan()?;
    if plan_of_last_start.is_none() && folder.is_occupied() {
        let place = folder.path().display();
        return Err(Failure::Usage(format!("{place} holds something else: name another folder with --data")));
    }
    let _lock = folder.lock()?;
    let last = plan_of_last_start.map(|last| clear(folder, last, count, ephemeral)).transpose()?.flatten();
    let cluster = last.map_or_else(random_name, |last| Ok(last.cluster))?;
    let plan = Plan::new(cluster, count, port_base, ephemeral).map_err(Failure::of("there are not enough ports"))?;
    if let Some(why) = plan.nodes.iter().find_map(|node| folder.why_left(node, &again(count))) {
        return Err(Failure::Usage(why));
    }
    folder.write(&plan).map_err(Failure::of(format_args!("{} cannot be written", folder.path().display())))?;
    let children = plan.nodes.iter().map(|_| None).collect();
    let nodes = Nodes { program, folder: folder.clone(), plan, children };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(Failure::of("the runtime cannot be started"))?.block_on(nodes.run(begun))
}

/// Ends what the last start left behind. Its plan, if its data are still there.
fn clear(folder: &Folder, last: Plan, count: u8, ephemeral: bool) -> Result<Option<Plan>, Failure> {
    let place = folder.path().display();
    for node in &last.nodes {
        if let Some(process) = Process::of_node(folder, node) {
            say(format_args!("{} of an earlier start still runs (process {}) and is stopped", node.name, process.id));
            process.signal(libc::SIGTERM);
            if !process.ends_within(STOPPED_WITHIN) {
                process.signal(libc::SIGKILL);
            }
        }
    }
    if last.ephemeral {
        let removed = last.nodes.iter().try_for_each(|node| match std::fs::remove_dir_all(folder.of_node(node)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        return removed.map(|()| None).map_err(Failure::of(format_args!("{place} cannot be removed")));
    }
    if ephemeral {
        let message =
            format!("{place} has data that was kept, and --ephemeral would remove it: name another folder with --data");
        return Err(Failure::Usage(message));
    }
    if last.nodes.len() > usize::from(count) {
        let nodes = last.nodes.len();
        let message = format!(
            "the cluster in {place} has {nodes} nodes: start it with  --nodes {nodes}, remove the folder, or name another one with --data"
        );
        return Err(Failure::Usage(message));
    }
    Ok(Some(last))
}

/// The command that starts the cluster.
fn again(nodes: impl std::fmt::Display) -> String {
    format!("holdfast dev --nodes {nodes}")
}

fn random_name() -> Result<String, Failure> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|error| Failure::Failed(format!("there is no randomness: {error}")))?;
    Ok(format!("dev-{:04x}", u16::from_be_bytes(bytes)))
}

/// SIGINT and SIGTERM.
struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Stop> {
        Ok(Stop { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Nodes {
    async fn run(mut self, begun: Instant) -> Result<(), Failure> {
        let mut stop = Stop::new().map_err(Failure::of("signals cannot be received"))?;
        let started = self.start_all();
        let done = match started {
            Err(failure) => Err(failure),
            Ok(()) => tokio::select! {
                biased;
                () = stop.asked() => Ok(()),
                done = self.work(begun) => done,
            },
        };
        if let Err(Failure::Failed(words) | Failure::Usage(words)) = &done {
            say(format_args!("{words}\nstopping"));
        } else {
            say("stopping");
        }
        self.stop_all(&mut stop).await;
        if self.plan.ephemeral {
            let place = self.folder.path().display();
            self.folder.remove(&self.plan).map_err(Failure::of(format_args!("{place} cannot be removed")))?;
        }
        done.map_err(|_| Failure::Failed("the dev cluster did not start".to_owned()))
    }

    fn start_all(&mut self) -> Result<(), Failure> {
        self.plan.nodes.iter().try_for_each(|node| {
            node.taken_port().map_or(Ok(()), |(address, error)| {
                Err(Failure::Failed(format!(
                    "{} did not start: it cannot have {address} ({error}). Stop the program that has it, or let the nodes take ports that are \
                     free:  holdfast dev --port-base 0{}",
                    node.name,
                    self.folder.as_argument()
                )))
            })
        })?;
        (0..self.children.len()).try_for_each(|index| self.start(index))
    }

    fn start(&mut self, index: usize) -> Result<(), Failure> {
        let node = &self.plan.nodes[index];
        let child = process::start(&self.program, &self.folder, node);
        self.children[index] = Some(child.map_err(Failure::of(format_args!("{} cannot be started", node.name)))?);
        Ok(())
    }

    /// Until it is dropped, or a node does not get ready.
    async fn work(&mut self, begun: Instant) -> Result<(), Failure> {
        self.until_ready(begun).await?;
        let took = begun.elapsed();
        let rows: Vec<_> = self.plan.nodes.iter().map(|node| table::row(node, &asking::role(node))).collect();
        let title = table::title(&self.plan, self.folder.path(), took);
        say(format_args!("{title}\n{}\n{}", table::table(&rows), table::hints(&self.plan, &self.folder)));
        loop {
            tokio::time::sleep(LOOK).await;
            self.watch();
        }
    }

    /// Asks all nodes in turn until each has said that it is ready.
    async fn until_ready(&mut self, begun: Instant) -> Result<(), Failure> {
        let mut waiting: Vec<(Node, String)> =
            self.plan.nodes.iter().map(|node| (node.clone(), String::new())).collect();
        loop {
            let asked = tokio::task::spawn_blocking(move || ask_all(waiting)).await;
            waiting = asked.map_err(|error| Failure::Failed(format!("the nodes cannot be asked: {error}")))?;
            if waiting.is_empty() {
                return Ok(());
            }
            if let Some(&index) = self.ended().first() {
                let node = &self.plan.nodes[index];
                if let Some(why) = self.folder.why_left(node, &again(self.plan.nodes.len())) {
                    return Err(Failure::Failed(why));
                }
                let lines = self.folder.last_lines(node, LINES);
                return Err(Failure::Failed(format!("{} did not start; the last lines of its log:{lines}", node.name)));
            }
            if begun.elapsed() > READY_WITHIN {
                return Err(Failure::Failed(self.not_ready(&waiting)));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn not_ready(&self, waiting: &[(Node, String)]) -> String {
        let late = waiting.iter().map(|(node, reason)| {
            let lines = self.folder.last_lines(node, LINES);
            let log = self.folder.file_of(node, "log");
            let secs = READY_WITHIN.as_secs();
            format!("{} is not ready after {secs} s: {reason}; the last lines of {}:{lines}", node.name, log.display())
        });
        late.collect::<Vec<_>>().join("\n")
    }

    /// Nodes whose process has ended by itself since this was last asked.
    fn ended(&mut self) -> Vec<usize> {
        let mut ended = Vec::new();
        for (index, child) in self.children.iter_mut().enumerate() {
            if child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|status| status.is_some())) {
                *child = None;
                ended.push(index);
            }
        }
        ended
    }

    /// Says which nodes have ended, and starts those that are asked for.
    fn watch(&mut self) {
        let data = self.folder.as_argument();
        for index in self.ended() {
            let node = &self.plan.nodes[index];
            let again = format!("holdfast dev --start {}", node.name);
            match self.folder.why_left(node, &again) {
                Some(why) => say(why),
                None => say(format_args!("{} has ended; to start it again:  {again}{data}", node.name)),
            }
        }
        for index in 0..self.children.len() {
            if self.folder.take_request(&self.plan.nodes[index]) && self.children[index].is_none() {
                match self.start(index) {
                    Ok(()) => say(format_args!("{} started", self.plan.nodes[index].name)),
                    Err(Failure::Failed(words) | Failure::Usage(words)) => say(words),
                }
            }
        }
    }

    /// SIGTERM to all, and SIGKILL to who does not end, or at a second request to stop.
    async fn stop_all(&mut self, stop: &mut Stop) {
        let running: Vec<Process> =
            self.children.iter().flatten().filter_map(|child| Process::of(child.id())).collect();
        for process in running {
            process.signal(libc::SIGTERM);
        }
        let all_end = async {
            while self.children.iter().any(Option::is_some) {
                self.ended();
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            () = all_end => {}
            () = stop.asked() => {}
            () = tokio::time::sleep(STOPPED_WITHIN) => {}
        }
        for child in self.children.iter_mut().flatten() {
            // It may have ended by now, and then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
        for node in &self.plan.nodes {
            let _ = std::fs::remove_file(self.folder.file_of(node, "pid"));
        }
    }
}

/// Those that are not ready, and why.
fn ask_all(waiting: Vec<(Node, String)>) -> Vec<(Node, String)> {
    waiting.into_iter().filter_map(|(node, _)| asking::ready(&node).err().map(|reason| (node, reason))).collect()
}
