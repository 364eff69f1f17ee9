//! When the node last ran: a file with one number, rewritten in place every second and never synced.
//!
//! The journal knows the time of its last batch, but a node that has nothing to write would seem to have been down for as long. What is in
//! this file survives the process at once and a power cut some half a minute late, which is as exact as the time of a downtime has to be. It takes
//! no room that it did not have at the start.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Digits of the number, so that each rewrites the one before.
const DIGITS: usize = 20;

/// See the module.
#[derive(Debug)]
pub struct Alive {
    file: File,
    last: u64,
}

impl Alive {
    /// Opens the file in the data directory, or makes it. One that cannot be read as a number says nothing.
    ///
    /// # Errors
    /// Those of the operating system; a full disk is none, the file is then written when there is room.
    pub fn open(dir: &Path) -> io::Result<Alive> {
        let path = dir.join(super::identity::ALIVE_FILE);
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut bytes = [0; DIGITS];
        let read = file.read_at(&mut bytes, 0)?;
        let last = std::str::from_utf8(&bytes[..read]).ok().and_then(|text| text.trim_end().parse().ok());
        Ok(Alive { file, last: last.unwrap_or(0) })
    }

    /// When the node ran last, in milliseconds of its clock; 0 if that is not known.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The node runs, and its clock says `now`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn beat(&self, now: u64) -> io::Result<()> {
        self.file.write_all_at(format!("{now:0width$}\n", width = DIGITS - 1).as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_beat_is_found_again_and_rubbish_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let alive = Alive::open(dir.path()).unwrap();
        assert_eq!(alive.last(), 0);
        alive.beat(1_764_480_000_000).unwrap();
        alive.beat(1_764_480_001_000).unwrap();
        assert_eq!(Alive::open(dir.path()).unwrap().last(), 1_764_480_001_000);
        std::fs::write(dir.path().join("alive"), "yesterday").unwrap();
        assert_eq!(Alive::open(dir.path()).unwrap().last(), 0);
    }
}
