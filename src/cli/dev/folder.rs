//! The folder of a dev cluster, and its files.
//!
//! | file | what it is |
//! | --- | --- |
//! | `dev.json` | the plan: nodes and ports |
//! | `secret` | what the nodes prove to one another; for its owner's eyes only |
//! | `lock` | locked while the cluster runs |
//! | `n1/holdfast.toml`, `n1/data/` | what a node is told, and what it keeps |
//! | `n1/log` | what it says, since the cluster was started |
//! | `n1/pid` | its process, while it runs |
//! | `n1/start` | there while it is to be started |

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::Failure;
use super::plan::{Node, Plan};

pub(super) const DEFAULT: &str = "./holdfast-dev";

const PLAN: &str = "dev.json";

/// The largest file that is read whole.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// How far back the last lines of a log are looked for.
const TAIL_BYTES: u64 = 16 * 1024;

#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: PathBuf,
}

/// The cluster of a folder runs as long as somebody has this.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Folder {
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder as an argument of further commands; nothing for the usual one.
    pub fn as_argument(&self) -> String {
        if self.path == Path::new(DEFAULT) { String::new() } else { format!(" --data {}", self.path.display()) }
    }

    pub fn of_node(&self, node: &Node) -> PathBuf {
        self.path.join(&node.name)
    }

    pub fn file_of(&self, node: &Node, name: &str) -> PathBuf {
        self.of_node(node).join(name)
    }

    /// The plan of the last start.
    ///
    /// # Errors
    /// It cannot be read. `Ok(None)`: there is none.
    pub fn plan(&self) -> Result<Option<Plan>, Failure> {
        let path = self.path.join(PLAN);
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::of(path.display())(error)),
        };
        let plan = serde_json::from_str(&text);
        plan.map(Some).map_err(|error| Failure::Failed(format!("{} cannot be understood: {error}", path.display())))
    }

    /// Whether there is anything in it, or in its place.
    pub fn is_occupied(&self) -> bool {
        fs::read_dir(&self.path)
            .map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |mut entries| entries.next().is_some())
    }

    /// Makes the folder if it is not there, and locks it.
    ///
    /// # Errors
    /// Another process has it, or it cannot be made.
    pub fn lock(&self) -> Result<Lock, Failure> {
        let cannot = |error| Failure::of(self.path.display())(error);
        fs::create_dir_all(&self.path).map_err(cannot)?;
        let file = self.lock_file().map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(Lock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Failure::Usage(format!(
                "a dev cluster already runs in {}: see  holdfast dev --status{}",
                self.path.display(),
                self.as_argument()
            ))),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }

    /// Whether a dev cluster runs here.
    pub fn is_locked(&self) -> bool {
        let shared = File::open(self.path.join("lock")).map(|file| file.try_lock_shared());
        matches!(shared, Ok(Err(TryLockError::WouldBlock)))
    }

    fn lock_file(&self) -> io::Result<File> {
        OpenOptions::new().create(true).truncate(false).write(true).open(self.path.join("lock"))
    }

    /// Writes down the plan, and what each node is told. Logs begin anew.
    pub fn write(&self, plan: &Plan) -> io::Result<()> {
        self.write_secret()?;
        for node in &plan.nodes {
            fs::create_dir_all(self.of_node(node))?;
            replace(&self.file_of(node, "holdfast.toml"), &plan.configuration(node))?;
            File::create(self.file_of(node, "log"))?;
            self.take_request(node);
        }
        let text = serde_json::to_string_pretty(plan).map_err(io::Error::other)?;
        replace(&self.path.join(PLAN), &text)
    }

    /// One that is there stays: nodes of the last start may still have it.
    fn write_secret(&self) -> io::Result<()> {
        let path = self.path.join("secret");
        if path.exists() {
            return Ok(());
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(text.as_bytes())
    }

    /// Asks the process that watches over the nodes to start one.
    pub fn request(&self, node: &Node) -> io::Result<()> {
        File::create(self.file_of(node, "start")).map(|_| ())
    }

    /// Whether that was asked; it is not any more.
    pub fn take_request(&self, node: &Node) -> bool {
        fs::remove_file(self.file_of(node, "start")).is_ok()
    }

    /// The last lines of a node's log, indented.
    pub fn last_lines(&self, node: &Node, count: usize) -> String {
        let tail = tail(&self.file_of(node, "log")).unwrap_or_default();
        let lines: Vec<_> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
        let from = lines.len().saturating_sub(count);
        lines[from..].iter().map(|line| format!("\n    {line}")).collect()
    }

    /// The cluster that a node is no member of any more, as its data directory knows.
    pub fn cluster_left(&self, node: &Node) -> Option<String> {
        // What cannot be read is for the node to tell, when it is started.
        crate::node::left_cluster(&self.file_of(node, "data")).ok().flatten()
    }

    /// Why a node is not started any more and how it can be all the same, if it is so; `again` is the command for that.
    pub fn why_left(&self, node: &Node, again: &str) -> Option<String> {
        let cluster = self.cluster_left(node)?;
        let (name, data) = (&node.name, self.file_of(node, "data"));
        Some(format!(
            "{name} is no member of the cluster \"{cluster}\" any more: it has left for good, or was taken out. To start it as a new node:\n    \
             rm -rf {}\n    {again}{}",
            data.display(),
            self.as_argument()
        ))
    }

    /// Removes what a dev cluster keeps, and the folder if nothing else is in it.
    pub fn remove(&self, plan: &Plan) -> io::Result<()> {
        for node in &plan.nodes {
            remove(fs::remove_dir_all(self.of_node(node)))?;
        }
        for file in ["secret", PLAN, "lock"] {
            remove(fs::remove_file(self.path.join(file)))?;
        }
        match fs::remove_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => remove(done),
        }
    }
}

fn remove(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Text of a small file.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Who reads it meanwhile sees the old text or the new one.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
