//! The items of a journal that nobody has open, for who wants to look at them: nothing is changed, and every byte is read.
//!
//! Test to read first: `tests::an_inspection_says_which_bodies_are_lost`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::catalog::Catalog;
use super::recovery::Recovery;
use crate::commit::{OpenError, Recovered};
use crate::disk::{Disk, RealDisk};
use crate::entry::{ItemId, OwnerId};
use crate::journal::{self, Damage, Inspected, ReadError, Reader};

/// See the module.
pub struct Inspection {
    pub journal: Inspected,
    /// What a start would give back.
    pub recovered: Recovered,
    catalog: Catalog,
    reader: Option<Reader>,
}

/// Why a body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error("{}, byte {}: {}", .0.file, .0.offset, .0.what)]
    Damaged(Damage),
    #[error("{file}: {source}")]
    Io { file: String, source: io::Error },
}

impl Inspection {
    /// Looks into a directory. One that does not exist is an empty one.
    ///
    /// # Errors
    /// See [`OpenError`]; damage is none.
    pub fn open(dir: &Path) -> Result<Inspection, OpenError> {
        match RealDisk::open_read_only(dir) {
            Ok(disk) => Inspection::open_on(Arc::new(disk)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Inspection {
                journal: Inspected::default(),
                recovered: Recovered::default(),
                catalog: Catalog::default(),
                reader: None,
            }),
            Err(error) => Err(OpenError::Directory(dir.display().to_string(), error)),
        }
    }

    /// The same on any disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(disk: Arc<dyn Disk>) -> Result<Inspection, OpenError> {
        let mut recovery = Recovery::default();
        let (mut inspected, reader) = journal::inspect(disk, &mut |location, head| recovery.record(location, head))?;
        if let Some(location) = recovery.unknown {
            let what = "a record of a kind that this version does not know";
            inspected.report.damage.push(Damage { file: location.file(), offset: location.offset.into(), what });
        }
        let (catalog, recovered) = recovery.finish(inspected.report.last_time);
        Ok(Inspection { journal: inspected, recovered, catalog, reader })
    }

    /// Where the newest record of an item stands: file, byte.
    #[must_use]
    pub fn place(&self, owner: OwnerId, item: ItemId) -> Option<(String, u64)> {
        let location = self.catalog.item(owner, item)?.location;
        Some((location.file(), location.offset.into()))
    }

    /// The body of an item, from disk. `None`: the item has none, or there is no such item.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn body(&self, owner: OwnerId, item: ItemId) -> Result<Option<Vec<u8>>, Unreadable> {
        let (Some(found), Some(reader)) = (self.catalog.item(owner, item), &self.reader) else { return Ok(None) };
        if found.body.id().is_none() {
            return Ok(None);
        }
        let damaged = |at: journal::Location, what| {
            Unreadable::Damaged(Damage { file: at.file(), offset: at.offset.into(), what })
        };
        let Some(location) = self.catalog.body_of(&found) else {
            return Err(damaged(found.location, "this refers to a message that is nowhere"));
        };
        match reader.read(location) {
            Ok(record) => Ok(Some(record.tail)),
            Err(ReadError::Io { source, .. }) => Err(Unreadable::Io { file: location.file(), source }),
            Err(_) => Err(damaged(location, "a record is damaged")),
        }
    }
}
