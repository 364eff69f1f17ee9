//! A directory of the operating system. Directory and files are for their owner only.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Disk, DiskFile};

/// What is written at a time when a file is filled with zeros.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// The folder for damaged files, beside the directory.
const QUARANTINE: &str = "quarantine";

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    dir: PathBuf,
    /// Open for as long as the directory is used, so that syncing names needs no look-up.
    names: File,
    /// Files are opened to be read alone.
    read_only: bool,
}

impl RealDisk {
    /// Opens the directory, and makes it, durably and with mode 0700, if it does not exist.
    pub fn open_or_create(dir: &Path) -> io::Result<RealDisk> {
        if !dir.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                File::open(parent)?.sync_all()?;
            }
        }
        Ok(RealDisk { dir: dir.to_owned(), names: File::open(dir)?, read_only: false })
    }

    /// Opens a directory whose files are only read. For use below a [`FrozenDisk`](super::FrozenDisk): what is written fails.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none.
    pub fn open_read_only(dir: &Path) -> io::Result<RealDisk> {
        Ok(RealDisk { dir: dir.to_owned(), names: File::open(dir)?, read_only: true })
    }

    fn free_name(folder: &Path, name: &str) -> PathBuf {
        let numbered = (1u32..).map(|number| folder.join(format!("{name}.{number}")));
        std::iter::once(folder.join(name))
            .chain(numbered)
            .find(|path| !path.exists())
            .unwrap_or_else(|| folder.join(name))
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(self.dir.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile(File::options().read(true).write(!self.read_only).open(self.dir.join(name))?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.dir.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.names.sync_all()
    }

    fn quarantine(&self, name: &str) -> io::Result<()> {
        let folder = self.dir.parent().unwrap_or(&self.dir).join(QUARANTINE);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let copy = Self::free_name(&folder, name);
        std::fs::copy(self.dir.join(name), &copy)?;
        File::open(&copy)?.sync_all()?;
        File::open(&folder)?.sync_all()
    }
}

struct RealFile(File);

impl DiskFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.0.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut at = self.len()?;
        reserve(&self.0, at, len)?;
        while at < len {
            let step = ZEROS.len().min(usize::try_from(len - at).unwrap_or(usize::MAX));
            self.0.write_all_at(&ZEROS[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Asks for the room before anything is written, so that a disk that has not enough of it says so at once, and is not filled to
/// its last byte only to learn that. The size of the file stays as it is.
#[cfg(target_os = "linux")]
fn reserve(file: &File, from: u64, to: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    let (Ok(offset), Ok(len)) = (i64::try_from(from), i64::try_from(to.saturating_sub(from))) else {
        return Err(io::ErrorKind::FileTooLarge.into());
    };
    if len == 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is that of `file`, open until this function returns; the call takes no pointer.
    if unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, len) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // Not every file system can; then the zeros find out.
    if super::is_full(&error) { Err(error) } else { Ok(()) }
}

#[cfg(not(target_os = "linux"))]
fn reserve(_file: &File, _from: u64, _to: u64) -> io::Result<()> {
    Ok(())
}
