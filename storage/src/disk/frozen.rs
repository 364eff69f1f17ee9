//! A directory that nothing changes: it shows another one as it is and swallows all that is written, so that what a start would find can
//! be looked at without a start.

use std::io;
use std::sync::Arc;

use super::{Disk, DiskFile};

/// Another directory, read only. Every change succeeds and has no effect.
pub struct FrozenDisk {
    inner: Arc<dyn Disk>,
    hidden: fn(&str) -> bool,
}

impl FrozenDisk {
    /// Shows what `disk` holds, but for the files whose names are `hidden`.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>, hidden: fn(&str) -> bool) -> FrozenDisk {
        FrozenDisk { inner: disk, hidden }
    }
}

impl Disk for FrozenDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = self.inner.list()?;
        names.retain(|name| !(self.hidden)(name));
        Ok(names)
    }

    fn create(&self, _name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(FrozenFile(None)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if (self.hidden)(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Arc::new(FrozenFile(Some(self.inner.open(name)?))))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn quarantine(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }
}

/// A file of the other directory, or one that was made here and stays empty.
struct FrozenFile(Option<Arc<dyn DiskFile>>);

impl DiskFile for FrozenFile {
    fn len(&self) -> io::Result<u64> {
        self.0.as_ref().map_or(Ok(0), |file| file.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.as_ref().map_or(Ok(0), |file| file.read_at(offset, buf))
    }

    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
