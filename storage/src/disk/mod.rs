//! The door to the file system: one directory of flat files, with exactly the operations that a journal needs.
//!
//! | module | what it is |
//! | --- | --- |
//! | `real` | a directory of the operating system |
//! | `frozen` | another directory, read only |
//! | `simulated` | a directory in memory that forgets what was not synced, tears writes, fills up and fails, for tests |
//!
//! What survives a power cut is what was synced: the bytes of a file with [`DiskFile::sync`], and names (that a file was made,
//! renamed or removed) with [`Disk::sync`]. Anything else may survive or not, names in the order in which they were changed.
//!
//! Test to read first: `tests::what_was_not_synced_may_be_lost`.

mod frozen;
mod real;
mod simulated;

use std::io;
use std::sync::Arc;

pub use frozen::FrozenDisk;
pub use real::RealDisk;
pub use simulated::SimulatedDisk;

/// One directory.
pub trait Disk: Send + Sync {
    /// The names of the files in it, in no order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if there is one of this name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none of this name.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, in one step. A file that had the name is gone.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name; who has the file open may go on using it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable what was done to names until now.
    fn sync(&self) -> io::Result<()>;

    /// Copies a file into the folder `quarantine` beside this directory, under its name or a name made from it, and syncs
    /// the copy. For people: nothing reads it again.
    fn quarantine(&self, name: &str) -> io::Result<()>;
}

/// One file that is open. It may be used from several threads.
pub trait DiskFile: Send + Sync {
    /// How many bytes it has.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has none.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Reads up to `buf.len()` bytes from `offset` on; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `bytes`. The file grows if need be.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file at least `len` bytes long, with zeros written where it was shorter: later writes below `len` change
    /// neither its size nor its place on the disk, so they are quick to sync and do not meet a full disk. Not yet synced.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes durable what was written until now. After an error nothing that was written since the last success can be
    /// relied upon, not even after a later success: the operating system may have thrown it away.
    fn sync(&self) -> io::Result<()>;
}

/// Whether an error means that there is no room, as opposed to a disk that fails.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests;
