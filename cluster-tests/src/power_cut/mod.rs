//! A disk that can lose its power or fail, under the real program: `shim/power_loss.c`, preloaded.
//!
//! A [`PowerCut`] stands over a folder for the life of one process. When that was killed, [`image`](PowerCut::image) makes what a power cut at
//! that moment would have left: what was synced, and of the rest nothing or a random part. While it runs, the disk can be
//! made full or failing.
//!
//! Read first: the head of `shim/power_loss.c`, then `tests/durability/shim.rs`.

mod image;
mod names;

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::dice::Dice;

/// What a power cut takes of what was not synced.
pub enum Loss {
    /// All of it.
    All,
    /// Of pages and sectors a random part, of the changes of names all from a random one on.
    Part(Dice),
}

/// The shared page, see `struct control` of the shim: places of its numbers.
mod control {
    pub const FULL: u64 = 0;
    pub const FAILING: u64 = 8;
    pub const SYNCS: u64 = 16;
    pub const REFUSED: u64 = 24;
    pub const FAILED: u64 = 32;
    pub const STARTED: u64 = 40;
    pub const BYTES: u64 = 4_096;
}

/// The compiled shim; `None` where there is no C compiler, which is said loudly: the tests that need it are skipped.
///
/// # Panics
/// When there is a compiler and it refuses the shim.
pub fn shim() -> Option<&'static Path> {
    static SHIM: OnceLock<Option<(TempDir, PathBuf)>> = OnceLock::new();
    let built = SHIM.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("holdfast-shim").tempdir().expect("a temporary folder");
        let library = folder.path().join("power_loss.so");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-pthread", "-o"]);
        let Ok(output) = cc.arg(&library).arg(sources.join("power_loss.c")).output() else {
            eprintln!("SKIPPED: no C compiler `cc`, so the tests of power cuts, full and failing disks DID NOT RUN");
            return None;
        };
        assert!(output.status.success(), "the shim:\n{}", String::from_utf8_lossy(&output.stderr));
        Some((folder, library))
    });
    built.as_ref().map(|(_, library)| library.as_path())
}

/// The disk under one folder, for one process.
pub struct PowerCut {
    root: PathBuf,
    shadow: TempDir,
    control: File,
}

impl PowerCut {
    /// Over a folder, which is made if it is not there; all that is in it now counts as durable.
    ///
    /// # Panics
    /// When files cannot be copied or written.
    pub fn over(root: &Path) -> Self {
        std::fs::create_dir_all(root).expect("a folder");
        // What the program demands of a data directory.
        std::fs::set_permissions(root, Permissions::from_mode(0o700)).expect("a folder of ours");
        let shadow = tempfile::Builder::new().prefix("holdfast-shadow").tempdir().expect("a temporary folder");
        let mut text = String::new();
        let mut count = 0;
        names::walk(root, "", &mut |name, metadata| {
            if metadata.is_dir() {
                text.push_str(&format!("folder\t{name}\n"));
                return;
            }
            count += 1;
            std::fs::copy(root.join(name), shadow.path().join(count.to_string())).expect("a file can be copied");
            text.push_str(&format!("file\t{name}\t{count}\t{}\n", metadata.ino()));
        });
        std::fs::write(shadow.path().join("names"), text).expect("the shadow can be written");
        let page = shadow.path().join("control");
        let mut file = File::create(&page).expect("the shadow can be written");
        file.write_all(&[0; control::BYTES as usize]).expect("the shadow can be written");
        let control = File::options().read(true).write(true).open(&page).expect("the shadow can be read");
        Self { root: root.to_owned(), shadow, control }
    }

    /// The environment that puts a process on this disk; each sync takes up to two times `pause_us` microseconds.
    ///
    /// # Panics
    /// When the shim was not built: ask [`shim`] first.
    pub fn environment(&self, pause_us: u32) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", shim().expect("asked for before").into()),
            ("POWER_ROOT", self.root.clone().into()),
            ("POWER_SHADOW", self.shadow.path().into()),
            ("POWER_PAUSE_US", pause_us.to_string().into()),
        ]
    }

    fn read(&self, place: u64) -> u64 {
        let mut bytes = [0; 8];
        self.control.read_exact_at(&mut bytes, place).expect("the shared page");
        u64::from_ne_bytes(bytes)
    }

    fn write(&self, place: u64, value: bool) {
        self.control.write_all_at(&u64::from(value).to_ne_bytes(), place).expect("the shared page");
    }

    /// From now on whatever needs room fails with ENOSPC, or does not any more.
    pub fn set_full(&self, full: bool) {
        self.write(control::FULL, full);
    }

    /// From now on fsync and fdatasync fail with EIO and lose what they should have kept, or do not any more.
    pub fn set_failing(&self, failing: bool) {
        self.write(control::FAILING, failing);
    }

    /// Whether the shim is in a process.
    pub fn is_at_work(&self) -> bool {
        self.read(control::STARTED) == 1
    }

    /// Syncs of files so far.
    pub fn syncs(&self) -> u64 {
        self.read(control::SYNCS)
    }

    /// Calls that failed with ENOSPC so far.
    pub fn refused(&self) -> u64 {
        self.read(control::REFUSED)
    }

    /// Syncs that failed with EIO so far.
    pub fn failed_syncs(&self) -> u64 {
        self.read(control::FAILED)
    }

    /// Writes what a power cut leaves into an empty or new folder. The process must have ended.
    ///
    /// # Panics
    /// When files cannot be read or written.
    pub fn image(&self, loss: Loss, into: &Path) {
        image::write(&self.root, self.shadow.path(), loss, into);
    }
}
