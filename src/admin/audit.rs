//! The audit log: every change that was asked for by way of the admin port, who asked, from where, and what came of it.
//!
//! One line of JSON for each, in `audit.log` of the data directory; when that is [`FILE_BYTES_MAX`] long it becomes `audit.log.1`, and the oldest of [`FILES_MAX`] goes. The newest [`NEWEST_MAX`] are in
//! memory as well, from where they are told; without a data directory they are only there. A line that cannot be written is complained of, and counted.
//!
//! Owner: the admin port. Invariants: numbers only grow, over restarts too; a text from a request is bounded before it comes here.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::error;

use super::view::{AuditPage, Audited};
use crate::metrics;

/// The file, and how long it and its predecessors may be together: 4 MB.
const FILE: &str = "audit.log";
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const FILES_MAX: usize = 4;

/// Lines that can be asked for.
const NEWEST_MAX: usize = 1_000;

/// Bytes of a path that are kept.
pub(super) const PATH_BYTES_MAX: usize = 1_024;

/// See the module.
pub(super) struct Audit {
    path: Option<PathBuf>,
    log: Mutex<Log>,
    unwritten: AtomicU64,
}

#[derive(Default)]
struct Log {
    next: u64,
    newest: VecDeque<Audited>,
    file: Option<(File, u64)>,
}

impl Audit {
    /// Goes on where the file ends.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(data_dir: Option<&Path>) -> io::Result<Audit> {
        let Some(path) = data_dir.map(|dir| dir.join(FILE)) else {
            return Ok(Audit { path: None, log: Mutex::default(), unwritten: AtomicU64::new(0) });
        };
        let mut log = Log::default();
        // The one before first: the file may just have begun.
        for part in [numbered(&path, 1), path.clone()] {
            log.take_up(&part)?;
        }
        log.file = Some(append_to(&path)?);
        Ok(Audit { path: Some(path), log: Mutex::new(log), unwritten: AtomicU64::new(0) })
    }

    /// Notes what was done. It blocks for as long as the disk does.
    pub fn note(&self, mut line: Audited) {
        let mut log = self.log.lock();
        line.number = log.next;
        log.next += 1;
        if let Some(path) = &self.path
            && let Err(error) = log.write(path, &line)
        {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            if metrics::admit_line("admin audit").is_some() {
                error!(event = "audit", %error, path = %path.display(), "a change cannot be written into the audit log");
            }
        }
        log.newest.push_back(line);
        if log.newest.len() > NEWEST_MAX {
            log.newest.pop_front();
        }
    }

    /// The newest, or those before a number.
    pub fn page(&self, limit: usize, before: Option<u64>) -> AuditPage {
        let log = self.log.lock();
        let mut older = log.newest.iter().rev().filter(|line| before.is_none_or(|before| line.number < before));
        let changes: Vec<_> = older.by_ref().take(limit).cloned().collect();
        let next = older.next().and(changes.last()).map(|last| last.number);
        AuditPage { changes, next }
    }

    /// Lines that are in no file though they should be.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Ordering::Relaxed)
    }
}

impl Log {
    fn take_up(&mut self, path: &Path) -> io::Result<()> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            // The last line of a process that was killed may be half of one.
            let Ok(line) = serde_json::from_slice::<Audited>(&line?) else { continue };
            self.next = self.next.max(line.number + 1);
            self.newest.push_back(line);
            if self.newest.len() > NEWEST_MAX {
                self.newest.pop_front();
            }
        }
        Ok(())
    }

    fn write(&mut self, path: &Path, line: &Audited) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let is_full = self.file.as_ref().is_some_and(|(_, bytes)| bytes + text.len() as u64 > FILE_BYTES_MAX);
        if is_full {
            self.file = None;
            rotate(path)?;
        }
        let (file, bytes) = match &mut self.file {
            Some(open) => open,
            none => none.insert(append_to(path)?),
        };
        file.write_all(&text)?;
        *bytes += text.len() as u64;
        file.sync_data()
    }
}

/// Behind half a line, a new one begins.
fn append_to(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    let is_whole = bytes == 0 || std::fs::read(path)?.ends_with(b"\n");
    if !is_whole {
        file.write_all(b"\n")?;
    }
    Ok((file, bytes))
}

fn rotate(path: &Path) -> io::Result<()> {
    for number in (1..FILES_MAX - 1).rev() {
        match std::fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(path: &str) -> Audited {
        Audited { by: "key ci".to_owned(), method: "POST".to_owned(), path: path.to_owned(), ..Audited::default() }
    }

    fn told(audit: &Audit, limit: usize, before: Option<u64>) -> (Vec<u64>, Option<u64>) {
        let page = audit.page(limit, before);
        (page.changes.iter().map(|line| line.number).collect(), page.next)
    }

    #[test]
    fn the_newest_come_first_and_numbers_grow_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(Some(dir.path())).unwrap();
        (0..5).for_each(|number| audit.note(line(&number.to_string())));
        assert_eq!(told(&audit, 2, None), (vec![4, 3], Some(3)));
        assert_eq!(told(&audit, 9, Some(3)), (vec![2, 1, 0], None));
        drop(audit);
        OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap().write_all(b"{\"number\":").unwrap();
        let audit = Audit::open(Some(dir.path())).unwrap();
        audit.note(line("x"));
        assert_eq!(told(&Audit::open(Some(dir.path())).unwrap(), 2, None), (vec![5, 4], Some(4)));
    }

    #[test]
    fn files_have_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(Some(dir.path())).unwrap();
        let long = "x".repeat(200_000);
        (0..40).for_each(|_| audit.note(line(&long)));
        let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(files.len(), FILES_MAX);
        assert!(files.iter().all(|file| file.metadata().unwrap().len() <= FILE_BYTES_MAX));
        assert_eq!((audit.page(1_000, None).changes.len(), audit.unwritten()), (40, 0));
    }

    #[test]
    fn without_a_disk_the_newest_are_told_all_the_same() {
        let audit = Audit::open(None).unwrap();
        (0..NEWEST_MAX + 5).for_each(|_| audit.note(line("x")));
        let page = audit.page(NEWEST_MAX + 5, None);
        assert_eq!((page.changes.len(), page.changes[NEWEST_MAX - 1].number), (NEWEST_MAX, 5));
    }
}
