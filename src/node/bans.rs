//! Bans on their way from the control state to whoever asks for them; and, for a node that is alone, to its data directory, as the log of a cluster keeps them otherwise.
//!
//! The file `bans.json` is replaced as a whole: written beside it, synced, renamed.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_raft::{Ban, Effect};
use parking_lot::Mutex;

use crate::access::bans;
use crate::shard::Shared;
use crate::shard::mailbox::Event;

/// The name of the file in the data directory.
pub(super) const FILE: &str = "bans.json";

/// What follows from a ban: listeners and shards know it, and connections end.
pub(super) fn take_ban(shared: &Shared, effect: &Effect) {
    match effect {
        Effect::Banned { ban } => {
            // Before the shards look through their connections: who comes meanwhile is refused.
            shared.bans.set(ban.clone());
            let ban = Arc::new(ban.clone());
            shared.mailboxes.iter().for_each(|mailbox| mailbox.push(Event::Banned(ban.clone())));
        }
        Effect::Unbanned { target } => shared.bans.remove(target),
        _ => {}
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct BansFile {
    /// `None`: there is no data directory. Held while the file is written.
    path: Mutex<Option<PathBuf>>,
    pub is_changed: AtomicBool,
}

impl BansFile {
    /// What the file holds, which is kept from now on.
    pub fn open(&self, path: &Path) -> io::Result<Vec<Ban>> {
        let bans = match std::fs::read_to_string(path) {
            Ok(text) => bans::read_all(&text)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display())))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        *self.path.lock() = Some(path.to_owned());
        Ok(bans)
    }

    /// Writes what `text` says then, if it has changed.
    pub fn write_if_changed(&self, text: impl FnOnce() -> String) -> io::Result<()> {
        let path = self.path.lock();
        if !self.is_changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let Some(path) = &*path else { return Ok(()) };
        let written = replace(path, text().as_bytes());
        if written.is_err() {
            self.is_changed.store(true, Ordering::Release);
        }
        written
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::bans::{BanKind, read_all, target, write_all};

    #[test]
    fn the_file_has_what_changed_and_a_broken_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let ban =
            Ban { target: target(BanKind::ClientId, "c").unwrap(), since_ms: 1, until_ms: None, reason: "r".into() };
        let file = BansFile::default();
        assert!(file.open(&path).unwrap().is_empty());
        file.write_if_changed(|| unreachable!("nothing has changed")).unwrap();
        file.is_changed.store(true, Ordering::Release);
        file.write_if_changed(|| write_all(std::iter::once(&ban))).unwrap();
        assert_eq!(BansFile::default().open(&path).unwrap(), std::slice::from_ref(&ban));
        assert_eq!(read_all(&std::fs::read_to_string(&path).unwrap()).unwrap(), [ban]);
        std::fs::write(&path, "[{}]").unwrap();
        let error = BansFile::default().open(&path).unwrap_err();
        assert!(error.to_string().contains("bans.json"), "{error}");
    }
}
