//! The log of a broker under test, kept line by line; tests wait for lines with a deadline.

use std::fs::File;
use std::io::{BufRead as _, Write as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One line.
#[derive(Debug, Clone)]
pub struct Line {
    pub text: String,
    json: Option<Value>,
}

impl Line {
    fn new(text: String) -> Self {
        let json = serde_json::from_str(&text).ok();
        Self { text, json }
    }

    /// A field by its name, at the top or below `fields`, as text.
    pub fn field(&self, name: &str) -> Option<String> {
        let json = self.json.as_ref()?;
        let value = json.get(name).or_else(|| json.get("fields")?.get(name))?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    pub fn contains(&self, part: &str) -> bool {
        self.text.contains(part)
    }
}

#[derive(Default)]
struct Kept {
    lines: Vec<Line>,
    ended: bool,
}

/// The file for a process, if it was asked for.
fn copy(name: &str) -> Option<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let folder = std::env::var_os("HOLDFAST_LOGS")?;
    let file = format!("{name}-{}.log", COUNT.fetch_add(1, Ordering::Relaxed));
    Some(File::create(std::path::Path::new(&folder).join(file)).expect("the folder that was asked for can be written"))
}

/// All lines so far. Cloning shares them.
#[derive(Clone, Default)]
pub struct Log {
    kept: Arc<(Mutex<Kept>, Condvar)>,
}

impl Log {
    /// Reads to the end of a stream; run by the thread that keeps the process. `HOLDFAST_LOGS` names a folder for all lines, in a file for each
    /// process, for whom those that a failed test prints are not enough; `name` is the beginning of the file's name.
    pub(super) fn follow(&self, stream: impl std::io::Read, name: &str) {
        let mut copy = copy(name);
        for line in std::io::BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            if let Some(copy) = &mut copy {
                writeln!(copy, "{line}").expect("the folder that was asked for can be written");
            }
            self.change(|kept| kept.lines.push(Line::new(line)));
        }
        self.change(|kept| kept.ended = true);
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) {
        let (kept, changed) = &*self.kept;
        change(&mut kept.lock().expect("no holder panics"));
        changed.notify_all();
    }

    /// The number of lines so far: a position to search from.
    pub fn len(&self) -> usize {
        self.kept.0.lock().expect("no holder panics").lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All lines from a position on.
    pub fn since(&self, position: usize) -> Vec<Line> {
        self.kept.0.lock().expect("no holder panics").lines[position..].to_vec()
    }

    /// All lines so far as one text, for messages.
    pub fn text(&self) -> String {
        let lines: Vec<_> = self.since(0).into_iter().map(|line| line.text).collect();
        lines.join("\n")
    }

    /// The first line from a position on that `wanted` is true for, or `None` after `patience` or at the end of the log.
    pub fn wait(&self, position: usize, patience: Duration, wanted: impl Fn(&Line) -> bool) -> Option<Line> {
        let deadline = Instant::now() + patience;
        let (kept, changed) = &*self.kept;
        let mut guard = kept.lock().expect("no holder panics");
        let mut next = position;
        loop {
            if let Some(line) = guard.lines[next.min(guard.lines.len())..].iter().find(|line| wanted(line)) {
                return Some(line.clone());
            }
            next = guard.lines.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if guard.ended || left.is_zero() {
                return None;
            }
            guard = changed.wait_timeout(guard, left).expect("no holder panics").0;
        }
    }
}
