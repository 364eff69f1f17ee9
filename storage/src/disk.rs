//! One directory of files, as the journal needs it.

use std::io;
use std::sync::Arc;

/// One directory.
pub trait Disk: Send + Sync {
    fn list(&self) -> io::Result<Vec<String>>;
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}

/// One file.
pub trait DiskFile: Send + Sync {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn allocate(&self, len: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
}
