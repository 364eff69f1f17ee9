//! Who a node is: a random number that is made with its data directory and never changes, and the lock that keeps the directory to one
//! process.
//!
//! The identity comes from nothing that can change or repeat (no address, no host name): two directories never share one unless
//! somebody copied it, and then the lock cannot help, since each copy has a lock of its own.
//!
//! A directory that is filled before it is one is [`Unborn`].
//!
//! Invariant: while an [`Identity`] lives, no other process has one of the same directory.

mod unborn;

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub use unborn::Unborn;

/// The version of the directory's layout that this program writes. A directory of an older one becomes one of this when it is opened.
///
/// 1: the identity alone. 2: the journal beside it.
pub const FORMAT: u32 = 2;

const LOCK_FILE: &str = "lock";
const FORMAT_FILE: &str = "format";
const ID_FILE: &str = "node.id";
pub(crate) const ALIVE_FILE: &str = "alive";
const JOURNAL_DIR: &str = "journal";
const QUARANTINE_DIR: &str = "quarantine";
/// A file system of its own has this folder at its root.
const LOST_AND_FOUND: &str = "lost+found";
/// What a file is called until it is complete.
const UNFINISHED: &str = ".new";

/// More than any of these files holds; what is longer is damaged.
const FILE_BYTES_MAX: u64 = 1024;

/// A node's identity, and with it the sole use of its data directory. Dropping it gives the directory free.
#[derive(Debug)]
pub struct Identity {
    node_id: u128,
    dir: PathBuf,
    /// Locked for as long as it is open. `None`: nobody can write to the directory, so there is nothing to keep out.
    _lock: Option<File>,
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The operating system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("data directory {} is in use by {}", dir.display(), shown(*pid))]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that has it, if it left its id.
        pid: Option<u32>,
    },
    /// The directory holds files, but no identity.
    #[error(
        "data directory {} holds \"{found}\" but no {ID_FILE}: it is not a data directory, or it has lost its identity. \
         Name an empty directory, or restore {ID_FILE}",
        dir.display()
    )]
    NoIdentity {
        /// The directory.
        dir: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// The directory should have been empty.
    #[error(
        "data directory {} is not empty, it holds \"{found}\": name a new or empty directory, or move away what is in this one",
        dir.display()
    )]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
        /// One of the things in it.
        found: String,
    },
    /// A file does not hold what it should. It is left as it is.
    #[error("{}: {what}; restore it from a copy", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was expected.
        what: &'static str,
    },
    /// The directory has a layout that did not exist yet when this program was made.
    #[error(
        "data directory {} was written by a newer Holdfast: it has format {found}, and this program knows formats up to {FORMAT}. \
         Run the newer program, or name another directory",
        dir.display()
    )]
    NewerFormat {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
    },
}

fn shown(pid: Option<u32>) -> String {
    match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

impl Identity {
    /// Takes the data directory `dir`, and makes directory and identity if they do not exist.
    ///
    /// # Errors
    /// See [`IdentityError`]. Nothing in the directory has then been changed but the lock file.
    pub fn open_or_create(dir: &Path) -> Result<Identity, IdentityError> {
        create_dir(dir).map_err(io_error(dir))?;
        let lock = lock(dir)?;
        let id_path = dir.join(ID_FILE);
        let node_id = match read_small(&id_path)? {
            Some(text) => {
                let format = known_format(dir)?;
                let node_id = parse_id(&text)
                    .ok_or(IdentityError::Damaged { path: id_path, what: "expected 32 hexadecimal digits" })?;
                if format != FORMAT {
                    write_in_one_step(dir, FORMAT_FILE, &format!("{FORMAT}\n"))?;
                }
                node_id
            }
            None => create_identity(dir)?,
        };
        Ok(Identity { node_id, dir: dir.to_owned(), _lock: Some(lock) })
    }

    /// Takes the data directory `dir` to look at it. `None` if there is no data directory: nothing of that name, or nothing in it yet.
    ///
    /// # Errors
    /// See [`IdentityError`]. Nothing in the directory is changed, now or when the identity goes, but the lock file.
    pub fn open(dir: &Path) -> Result<Option<Identity>, IdentityError> {
        let id_path = dir.join(ID_FILE);
        let Some(text) = read_small(&id_path)? else {
            return match foreign_entry(dir) {
                Ok(None) => Ok(None),
                Ok(Some(found)) => Err(IdentityError::NoIdentity { dir: dir.to_owned(), found }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(IdentityError::Io { path: dir.to_owned(), source }),
            };
        };
        let lock = lock_to_read(dir)?;
        known_format(dir)?;
        let node_id =
            parse_id(&text).ok_or(IdentityError::Damaged { path: id_path, what: "expected 32 hexadecimal digits" })?;
        Ok(Some(Identity { node_id, dir: dir.to_owned(), _lock: lock }))
    }

    /// The node's identity: 128 random bits.
    pub fn node_id(&self) -> u128 {
        self.node_id
    }

    /// The directory that this identity belongs to.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the node's journal is. The folder need not exist.
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join(JOURNAL_DIR)
    }

    /// Where damaged files are put when the node goes on without them. The folder need not exist.
    pub fn quarantine_dir(&self) -> PathBuf {
        self.dir.join(QUARANTINE_DIR)
    }
}

/// Makes the directory, for its owner only, and makes its name survive a power cut.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Directories above may be new too. One that may not be opened was there before.
    for above in dir.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        match File::open(above) {
            Ok(above) => above.sync_all()?,
            Err(_) => break,
        }
    }
    Ok(())
}

fn lock(dir: &Path) -> Result<File, IdentityError> {
    let path = dir.join(LOCK_FILE);
    let mut open = File::options();
    let mut file =
        open.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io_error(&path))?;
    try_lock(dir, &path, &file)?;
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    match write(&mut file) {
        // It is for people; a node on a full disk starts, and serves what needs no room.
        Err(error) if crate::disk::is_full(&error) => Ok(file),
        Err(error) => Err(io_error(&path)(error)),
        Ok(()) => Ok(file),
    }
}

fn try_lock(dir: &Path, path: &Path, file: &File) -> Result<(), IdentityError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            // Only to name it: a process that has just locked may not have written yet.
            let _ = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
            Err(IdentityError::InUse { dir: dir.to_owned(), pid: text.trim().parse().ok() })
        }
        Err(TryLockError::Error(source)) => Err(IdentityError::Io { path: path.to_owned(), source }),
    }
}

/// The lock for who writes nothing: also on what cannot be written.
fn lock_to_read(dir: &Path) -> Result<Option<File>, IdentityError> {
    let refused = match lock(dir) {
        Err(IdentityError::Io { path, source }) => (path, source),
        locked => return locked.map(Some),
    };
    let (path, source) = refused;
    if !matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) {
        return Err(IdentityError::Io { path, source });
    }
    match File::open(&path) {
        Ok(file) => try_lock(dir, &path, &file).map(|()| Some(file)),
        // A node that runs has made it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(IdentityError::Io { path, source }),
    }
}

/// The format of the directory, which is [`FORMAT`] or an older one.
fn known_format(dir: &Path) -> Result<u32, IdentityError> {
    let path = dir.join(FORMAT_FILE);
    let number = read_small(&path)?.and_then(|text| text.trim_end().parse().ok());
    match number {
        Some(found @ 1..=FORMAT) => Ok(found),
        Some(found) if found > FORMAT => Err(IdentityError::NewerFormat { dir: dir.to_owned(), found }),
        _ => Err(IdentityError::Damaged { path, what: "expected the version of the directory's format" }),
    }
}

/// The first start in this directory, or the next one after a crash in the middle of the first.
fn create_identity(dir: &Path) -> Result<u128, IdentityError> {
    if let Some(found) = foreign_entry(dir).map_err(io_error(dir))? {
        return Err(IdentityError::NoIdentity { dir: dir.to_owned(), found });
    }
    if read_small(&dir.join(FORMAT_FILE))?.is_some() {
        known_format(dir)?;
    }
    write_identity(dir)
}

fn write_identity(dir: &Path) -> Result<u128, IdentityError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| IdentityError::Io { path: dir.join(ID_FILE), source: io::Error::other(error.to_string()) })?;
    let node_id = u128::from_be_bytes(bytes);
    // The identity comes last: where it is, the format is too.
    write_in_one_step(dir, FORMAT_FILE, &format!("{FORMAT}\n"))?;
    write_in_one_step(dir, ID_FILE, &format!("{node_id:032x}\n"))?;
    Ok(node_id)
}

/// Something in the directory that a first start does not leave behind.
fn foreign_entry(dir: &Path) -> io::Result<Option<String>> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let ours =
            [LOCK_FILE, FORMAT_FILE, ID_FILE, ALIVE_FILE].contains(&name.strip_suffix(UNFINISHED).unwrap_or(&name));
        // Somebody may have made a folder for a file system of its own.
        let prepared = [JOURNAL_DIR, QUARANTINE_DIR].contains(&name.as_str()) && is_empty_folder(&entry.path());
        if !ours && !prepared && name != LOST_AND_FOUND {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn is_empty_folder(path: &Path) -> bool {
    let is_there =
        |entry: io::Result<std::fs::DirEntry>| entry.map_or(true, |entry| entry.file_name() != LOST_AND_FOUND);
    std::fs::read_dir(path).is_ok_and(|entries| !entries.into_iter().any(is_there))
}

fn parse_id(text: &str) -> Option<u128> {
    let digits = text.strip_suffix('\n').unwrap_or(text);
    let plain = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(digits, 16).ok()).flatten()
}

/// The text of a small file; `None` if there is no such file.
fn read_small(path: &Path) -> Result<Option<String>, IdentityError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(IdentityError::Io { path: path.to_owned(), source });
        }
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(io_error(path))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => Err(IdentityError::Damaged { path: path.to_owned(), what: "expected text" }),
    }
}

fn write_in_one_step(dir: &Path, name: &str, text: &str) -> Result<(), IdentityError> {
    let (path, unfinished) = (dir.join(name), dir.join(format!("{name}{UNFINISHED}")));
    let write = || {
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &path)?;
        File::open(dir)?.sync_all()
    };
    write().map_err(io_error(&path))
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::Io { path, source }
}

#[cfg(test)]
mod tests;
