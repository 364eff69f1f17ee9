//! One node as a process: starting it, finding it again, and signals.
//!
//! A process is known by its id and by the time at which it started: ids come again.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::folder::{self, Folder};
use super::plan::Node;

/// How often a wait looks.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A process that ran when this was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub id: u32,
    /// Clock ticks since the machine started.
    started: u64,
}

/// What `/proc/ID/stat` says: the state of the process, and when it started.
fn look(id: u32) -> Option<(char, u64)> {
    let stat = folder::read(Path::new(&format!("/proc/{id}/stat"))).ok()?;
    // The name of the program is in parentheses, and may hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // It is the 22nd field; the state was the third.
    Some((state, fields.nth(18)?.parse().ok()?))
}

impl Process {
    pub fn of(id: u32) -> Option<Process> {
        look(id).map(|(_, started)| Process { id, started })
    }

    /// It has not ended, and its id is still its own.
    pub fn runs(self) -> bool {
        look(self.id).is_some_and(|(state, started)| started == self.started && !matches!(state, 'Z' | 'X'))
    }

    /// Sends a signal. `false`: it had ended.
    pub fn signal(self, signal: i32) -> bool {
        let Ok(id) = libc::pid_t::try_from(self.id) else { return false };
        // SAFETY: kill takes no pointers. That the id is still that of our node was looked up just now.
        self.runs() && unsafe { libc::kill(id, signal) } == 0
    }

    /// Waits until it has ended.
    pub fn ends_within(self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.runs() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    fn parse(text: &str) -> Option<Process> {
        let (id, started) = text.trim().split_once(' ')?;
        Some(Process { id: id.parse().ok()?, started: started.parse().ok()? })
    }

    /// The process of a node, if it runs.
    pub fn of_node(folder: &Folder, node: &Node) -> Option<Process> {
        Process::last_of_node(folder, node).filter(|process| process.runs())
    }

    /// The same, also when it has ended.
    pub fn last_of_node(folder: &Folder, node: &Node) -> Option<Process> {
        let text = folder::read(&folder.file_of(node, "pid")).ok()?;
        Process::parse(&text)
    }

    fn write(self, folder: &Folder, node: &Node) -> io::Result<()> {
        folder::replace(&folder.file_of(node, "pid"), &format!("{} {}\n", self.id, self.started))
    }
}

/// Starts a node, as a process group of its own: Ctrl-C at the terminal is for the process that watches over the nodes, which stops them.
pub(super) fn start(program: &Path, folder: &Folder, node: &Node) -> io::Result<Child> {
    let log = OpenOptions::new().create(true).append(true).open(folder.file_of(node, "log"))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--config").arg(folder.file_of(node, "holdfast.toml"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    let mut child = command.spawn()?;
    let written = Process::of(child.id()).ok_or_else(|| io::Error::other("it cannot be found in /proc"));
    if let Err(error) = written.and_then(|process| process.write(folder, node)) {
        // One that nobody finds again would run for ever.
        let _ = child.kill();
        let _ = child.wait();
        return Err(error);
    }
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = Process::of(std::process::id()).expect("this process");
        assert!(own.runs());
        assert_eq!(Process::parse(&format!("{} {}\n", own.id, own.started)), Some(own));
        let other = Process { started: own.started + 1, ..own };
        assert!(!other.runs(), "another had this id");
        assert!(!other.signal(libc::SIGKILL), "or this test would not go on");
        for text in ["", "1", "x 1", "1 x", "1 2 3", "-1 2", "99999999999 1"] {
            assert_eq!(Process::parse(text), None, "{text}");
        }
    }

    #[test]
    fn who_has_ended_and_was_not_waited_for_does_not_run() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep");
        let process = Process::of(child.id()).expect("it runs");
        assert!(process.signal(libc::SIGKILL));
        assert!(process.ends_within(Duration::from_secs(10)));
        assert!(!process.signal(libc::SIGTERM));
        child.wait().expect("a child of ours");
        assert_eq!(Process::of(child.id()), None);
    }
}
