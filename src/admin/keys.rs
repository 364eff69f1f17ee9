//! API keys: made here, shown once, and known by their hashes from then on.
//!
//! A key is `hf_ID_SECRET`: the id finds it, the secret is 256 random bits. What is kept is a SHA-256 hash of the whole, which is enough for what nobody can guess; and it is compared in
//! constant time. They stand in a file, one line of JSON for each: `keys_file` under `[admin]`, else `api-keys` in the data directory; without either they are gone with the process. A file that was
//! changed is read again at the next request; one that is broken then changes nothing, and one that is broken at the start ends that.
//!
//! Owner: the admin port. Invariants: a secret is in no log, file or list; the file has all keys or those before the change; at most [`KEYS_MAX`].

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use thiserror::Error;
use tracing::error;
use zeroize::Zeroizing;

use super::table::{Role, Scope};
use super::view;
use crate::metrics;

/// Keys of a node at the most.
pub const KEYS_MAX: usize = 1_000;

/// Its name within a data directory.
const FILE: &str = "api-keys";

/// What every key begins with.
const PREFIX: &str = "hf_";

/// Why there are no keys to go by.
#[derive(Debug, Error)]
pub enum KeysError {
    #[error("keys_file: {}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("keys_file: {}: line {line}: {error}", path.display())]
    Line { path: PathBuf, line: usize, error: String },
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    id: String,
    name: String,
    role: Role,
    scopes: Vec<Scope>,
    created_at_ms: u64,
    /// 64 hexadecimal digits.
    sha256: String,
}

/// A key that somebody has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub name: String,
    pub role: Role,
    pub scopes: Vec<Scope>,
}

/// See the module.
pub struct Keys {
    path: Option<PathBuf>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: Vec<Kept>,
    /// Of the file that was read last, whether it was good or not.
    stamp: Option<(SystemTime, u64)>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Keys {
    /// Reads the file that is configured, or that of the data directory.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn open(configured: Option<&Path>, data_dir: Option<&Path>) -> Result<Keys, KeysError> {
        let path = configured.map(Path::to_owned).or_else(|| data_dir.map(|dir| dir.join(FILE)));
        let known = match &path {
            Some(path) => Known { keys: read(path)?, stamp: stamp(path) },
            None => Known::default(),
        };
        Ok(Keys { path, known: Mutex::new(known) })
    }

    /// The key that this text is.
    pub fn shown(&self, text: &[u8]) -> Option<Shown> {
        let id = std::str::from_utf8(text).ok()?.strip_prefix(PREFIX)?.split('_').next()?.to_owned();
        let hash = hash(text);
        let mut known = self.known.lock();
        self.look(&mut known);
        let key = known.keys.iter().find(|key| key.id == id)?;
        let is_it: bool = key.sha256.as_bytes().ct_eq(hash.as_bytes()).into();
        is_it.then(|| Shown { name: key.name.clone(), role: key.role, scopes: key.scopes.clone() })
    }

    /// All of them, without what would let anybody in.
    pub fn list(&self) -> Vec<view::Key> {
        let mut known = self.known.lock();
        self.look(&mut known);
        known.keys.iter().map(told).collect()
    }

    /// Makes one. The text is nowhere else.
    ///
    /// # Errors
    /// When there is no randomness, it cannot be written, or there are [`KEYS_MAX`].
    pub fn add(&self, name: &str, role: Role, scopes: &[Scope], now_ms: u64) -> io::Result<view::NewKey> {
        let (mut id, mut secret) = ([0; 6], Zeroizing::new([0; 32]));
        getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
        getrandom::fill(secret.as_mut_slice()).map_err(|error| io::Error::other(error.to_string()))?;
        let id = hex(&id);
        let text = format!("{PREFIX}{id}_{}", URL_SAFE_NO_PAD.encode(secret.as_slice()));
        let mut scopes = scopes.to_vec();
        scopes.sort_unstable();
        scopes.dedup();
        let kept =
            Kept { id, name: name.to_owned(), role, scopes, created_at_ms: now_ms, sha256: hash(text.as_bytes()) };
        let key = told(&kept);
        self.change(|keys| {
            if keys.len() >= KEYS_MAX {
                return Err(io::Error::other(format!("there are {KEYS_MAX} keys already")));
            }
            keys.push(kept);
            Ok(())
        })?;
        Ok(view::NewKey { key, secret: text })
    }

    /// Removes one; false if there is none of that id.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn remove(&self, id: &str) -> io::Result<bool> {
        self.change(|keys| {
            let before = keys.len();
            keys.retain(|key| key.id != id);
            Ok(keys.len() < before)
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Kept>) -> io::Result<T>) -> io::Result<T> {
        let mut known = self.known.lock();
        self.look(&mut known);
        let mut keys = known.keys.clone();
        let changed = change(&mut keys)?;
        if let Some(path) = &self.path {
            write(path, &keys)?;
            known.stamp = stamp(path);
        }
        known.keys = keys;
        Ok(changed)
    }

    /// Reads the file again if it is another one.
    fn look(&self, known: &mut Known) {
        let Some(path) = &self.path else { return };
        let now = stamp(path);
        if now == known.stamp {
            return;
        }
        known.stamp = now;
        match read(path) {
            Ok(keys) => known.keys = keys,
            Err(error) if metrics::admit_line("admin keys").is_some() => {
                error!(event = "keys", %error, "the file of API keys is not usable; those read before stay in force");
            }
            Err(_) => {}
        }
    }
}

fn told(key: &Kept) -> view::Key {
    view::Key {
        id: key.id.clone(),
        name: key.name.clone(),
        role: key.role,
        scopes: key.scopes.clone(),
        created_at_ms: key.created_at_ms,
    }
}

fn hash(text: &[u8]) -> String {
    hex(digest(&SHA256, text).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes whatever it is given.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let told = std::fs::metadata(path).ok()?;
    Some((told.modified().ok()?, told.len()))
}

/// No file is no key.
fn read(path: &Path) -> Result<Vec<Kept>, KeysError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(KeysError::Io { path: path.to_owned(), error }),
    };
    let mut keys: Vec<Kept> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |error: String| KeysError::Line { path: path.to_owned(), line: number + 1, error };
        let key: Kept = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        if key.sha256.len() != 64 || keys.iter().any(|other| other.id == key.id) {
            return Err(wrong("no SHA-256 hash, or an id that is there twice".to_owned()));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn write(path: &Path, keys: &[Kept]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    for key in keys {
        writeln!(file, "{}", serde_json::to_string(key)?)?;
    }
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_again_by_its_text_alone_and_the_text_is_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(None, Some(dir.path())).unwrap();
        let made = keys.add("ci", Role::Operator, &[Scope::Read, Scope::Publish, Scope::Read], 7).unwrap();
        let text = made.secret.as_bytes();
        let expected = Shown { name: "ci".to_owned(), role: Role::Operator, scopes: vec![Scope::Publish, Scope::Read] };
        assert_eq!(keys.shown(text), Some(expected.clone()));
        let again = Keys::open(None, Some(dir.path())).unwrap();
        assert_eq!(again.shown(text), Some(expected));
        assert_eq!(again.list(), [made.key]);
        let file = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let secret = made.secret.splitn(3, '_').last().unwrap();
        assert!(secret.len() >= 30 && !file.contains(secret), "{file}");
        for at in 0..text.len() {
            let mut other = text.to_vec();
            other[at] ^= 1;
            assert_eq!(keys.shown(&other), None, "{at}");
            assert_eq!(keys.shown(&text[..at]), None, "{at}");
        }
    }

    #[test]
    fn who_removes_a_key_locks_its_holder_out() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(None, Some(dir.path())).unwrap();
        let (one, other) = (keys.add("a", Role::Admin, &[], 1).unwrap(), keys.add("b", Role::Admin, &[], 2).unwrap());
        assert!(keys.remove(&one.key.id).unwrap());
        assert!(!keys.remove(&one.key.id).unwrap());
        assert_eq!(keys.shown(one.secret.as_bytes()), None);
        assert!(keys.shown(other.secret.as_bytes()).is_some());
        assert_eq!(Keys::open(None, Some(dir.path())).unwrap().list(), [other.key]);
    }

    #[test]
    fn a_file_that_changes_counts_and_one_that_is_broken_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let keys = Keys::open(Some(&path), None).unwrap();
        let elsewhere = Keys::open(Some(&path), None).unwrap();
        let made = keys.add("a", Role::Viewer, &[Scope::Read], 1).unwrap();
        assert!(elsewhere.shown(made.secret.as_bytes()).is_some(), "it was written by somebody else");
        std::fs::write(&path, "no JSON\n").unwrap();
        assert!(elsewhere.shown(made.secret.as_bytes()).is_some());
        let error = Keys::open(Some(&path), None).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
        std::fs::write(&path, "").unwrap();
        assert_eq!(elsewhere.shown(made.secret.as_bytes()), None);
    }
}
