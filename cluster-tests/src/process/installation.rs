//! A configuration and a data directory that outlive the brokers which run on them: what is left when a process is killed.
//!
//! At most one broker runs on an installation at a time; [`copy`](Installation::copy) makes another one of what its disk holds.

use std::ffi::OsString;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use super::{Broker, Setup};

/// How long a start may take that has little to read (field case 47).
pub const START: Duration = Duration::from_secs(10);

/// Where brokers live, one after another.
pub struct Installation {
    folder: TempDir,
    listeners: usize,
    environment: Vec<(String, OsString)>,
}

impl Installation {
    /// Writes the configuration.
    pub fn new(setup: Setup) -> Self {
        let listeners = setup.listener_count();
        let (_, folder, _) = setup.write();
        Self { folder, listeners, environment: Vec::new() }
    }

    /// On a configuration `holdfast.toml` that is written already, with so many listeners.
    pub(crate) fn in_folder(folder: TempDir, listeners: usize) -> Self {
        Self { folder, listeners, environment: Vec::new() }
    }

    /// The folder of the configuration file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn data_dir(&self) -> PathBuf {
        self.folder().join("data")
    }

    /// Where the journal's files are.
    pub fn journal_dir(&self) -> PathBuf {
        self.data_dir().join("journal")
    }

    /// The journal's files with this ending, in the order of their names.
    ///
    /// # Panics
    /// When the folder cannot be read.
    pub fn journal_files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.journal_dir()).expect("the journal is there");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|there| there == ending));
        paths.sort();
        paths
    }

    /// An environment variable of the brokers that are started from now on.
    pub fn set_environment(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.retain(|(there, _)| there != name);
        self.environment.push((name.to_owned(), value.into()));
    }

    /// No environment variables of ours any more.
    pub fn clear_environment(&mut self) {
        self.environment.clear();
    }

    /// Starts a broker, which must be ready within [`START`].
    ///
    /// # Panics
    /// When it is not; with its log.
    pub fn start(&self) -> Broker {
        self.start_within(START)
    }

    /// Starts a broker, which must be ready within `patience`.
    ///
    /// # Panics
    /// When it is not; with its log.
    pub fn start_within(&self, patience: Duration) -> Broker {
        Broker::run(self).until_ready(self.listeners, patience)
    }

    /// Starts a broker and waits only until it accepts connections: for clients that are there too early.
    ///
    /// # Panics
    /// When it does not accept within [`START`]; with its log.
    pub fn start_until_listening(&self) -> Broker {
        Broker::run(self).with_addresses(self.listeners, START)
    }

    /// Starts the process and does not wait for anything: for starts that are refused or watched.
    pub fn launch(&self) -> Broker {
        Broker::run(self)
    }

    /// Another installation with the same configuration and a copy of the data.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn copy(&self) -> Self {
        let folder = tempfile::Builder::new().prefix("holdfast-test").tempdir().expect("a temporary folder");
        copy_folder(self.folder(), folder.path());
        Self { folder, listeners: self.listeners, environment: self.environment.clone() }
    }

    /// Replaces the data by a copy of another folder.
    ///
    /// # Panics
    /// When it cannot be copied.
    pub fn replace_data(&self, with: &Path) {
        let data = self.data_dir();
        if data.exists() {
            std::fs::remove_dir_all(&data).expect("the temporary folder can be written");
        }
        copy_folder(with, &data);
    }

    pub(super) fn environment(&self) -> &[(String, OsString)] {
        &self.environment
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder().join("holdfast.toml")
    }
}

/// Turns over one bit of the byte at `place` in a file.
///
/// # Panics
/// When there is no such byte, or it cannot be written.
pub fn flip(path: &Path, place: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("a file of ours");
    let mut byte = [0];
    file.read_exact_at(&mut byte, place).expect("a byte");
    file.write_all_at(&[byte[0] ^ 0x10], place).expect("a byte");
}

/// Copies a folder with all that is in it.
///
/// # Panics
/// When it cannot be read or written.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the temporary folder can be written");
    for entry in std::fs::read_dir(from).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a file type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}
