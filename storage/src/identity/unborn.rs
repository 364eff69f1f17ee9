//! A data directory in the making: it is filled first and becomes one at the end, when it gets its identity. Until then no node starts on it.
//!
//! A mark says that what is in the directory came from here, so that the next attempt may remove what an interrupted one has left.
//!
//! Test to read first: `identity::tests::a_directory_is_born_whole_or_not_at_all`.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{
    FORMAT_FILE, ID_FILE, Identity, IdentityError, JOURNAL_DIR, LOCK_FILE, create_dir, foreign_entry, io_error, lock,
    write_identity, write_in_one_step,
};

/// Is there until the directory is complete.
const MARK: &str = "incomplete";

/// See the module. It is locked like a directory that is complete.
#[derive(Debug)]
pub struct Unborn {
    dir: PathBuf,
    lock: File,
    made_dir: bool,
}

impl Unborn {
    /// Whether [`Unborn::begin`] would find a place for a new directory. Changes nothing.
    ///
    /// # Errors
    /// [`IdentityError::NotEmpty`] if there is something in it already, and those of the operating system.
    pub fn look(dir: &Path) -> Result<(), IdentityError> {
        let found = match fs::metadata(dir) {
            Ok(_) if dir.join(ID_FILE).exists() => Some(ID_FILE.to_owned()),
            Ok(_) if dir.join(MARK).exists() => None,
            Ok(_) => foreign_entry(dir).map_err(io_error(dir))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(IdentityError::Io { path: dir.to_owned(), source }),
        };
        match found {
            Some(found) => Err(IdentityError::NotEmpty { dir: dir.to_owned(), found }),
            None => Ok(()),
        }
    }

    /// Begins a directory where there is none, or an empty one; what an interrupted attempt has left there is removed.
    ///
    /// # Errors
    /// As [`Unborn::look`], and [`IdentityError::InUse`].
    pub fn begin(dir: &Path) -> Result<Unborn, IdentityError> {
        Unborn::look(dir)?;
        let made_dir = !dir.exists();
        create_dir(dir).map_err(io_error(dir))?;
        let unborn = Unborn { dir: dir.to_owned(), lock: lock(dir)?, made_dir };
        // Somebody may have been quicker.
        Unborn::look(dir)?;
        unborn.clear().map_err(io_error(dir))?;
        write_in_one_step(dir, MARK, "this directory is not complete: what filled it was interrupted\n")?;
        Ok(unborn)
    }

    /// Where the journal is to be made.
    #[must_use]
    pub fn journal_dir(&self) -> PathBuf {
        self.dir.join(JOURNAL_DIR)
    }

    /// Makes it a data directory, with an identity of its own. The journal is complete and closed.
    ///
    /// # Errors
    /// Those of the operating system. It is then not one.
    pub fn finish(self) -> Result<Identity, IdentityError> {
        let journal = self.journal_dir();
        create_dir(&journal).and_then(|()| File::open(&journal)?.sync_all()).map_err(io_error(&journal))?;
        let node_id = write_identity(&self.dir)?;
        // With an identity beside it the mark means nothing.
        let _ = fs::remove_file(self.dir.join(MARK));
        Ok(Identity { node_id, dir: self.dir, _lock: Some(self.lock) })
    }

    /// Leaves nothing behind.
    ///
    /// # Errors
    /// Those of the operating system. The next [`Unborn::begin`] removes what is left.
    pub fn abandon(self) -> io::Result<()> {
        self.clear()?;
        fs::remove_file(self.dir.join(MARK))?;
        fs::remove_file(self.dir.join(LOCK_FILE))?;
        if self.made_dir { fs::remove_dir(&self.dir) } else { Ok(()) }
    }

    /// Removes what was made, but for the lock and the mark.
    fn clear(&self) -> io::Result<()> {
        let journal = self.journal_dir();
        if journal.is_dir() {
            for entry in fs::read_dir(&journal)? {
                let entry = entry?;
                if entry.file_type()?.is_file() {
                    fs::remove_file(entry.path())?;
                }
            }
            // It may be a file system of its own, which stays.
            let _ = fs::remove_dir(&journal);
        }
        match fs::remove_file(self.dir.join(FORMAT_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
