//! The snapshot on disk: one file, made beside its place, synced, renamed.
//!
//! Magic (8), then frames of length (4), CRC32 (4) and bytes: first what it is a snapshot of, with the number of its pieces, then the pieces.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use crate::entry::SnapshotMeta;

pub(super) const NAME: &str = "snapshot";
const UNFINISHED: &str = "snapshot.new";
const MAGIC: &[u8; 8] = b"HFraftS1";
/// More than any frame has.
const FRAME_BYTES_MAX: u32 = 16 * 1024 * 1024;

/// Why a snapshot cannot be used.
#[derive(Debug, Error)]
pub enum SnapshotFault {
    #[error("{0}. Is there room on the disk, and may the node read and write there?")]
    Io(#[from] io::Error),
    #[error(
        "it is damaged. A node that has lost its log must not come back under its old id: \
         give it an empty data directory"
    )]
    Damaged,
    #[error(
        "it cannot be restored: {0}. If a newer version of the program has written it, start that one; \
         else give the node an empty data directory"
    )]
    State(String),
    #[error("the node stops")]
    Stopped,
}

/// What a snapshot is of, and its pieces.
pub(super) type Snapshot = (SnapshotMeta, Arc<Vec<Bytes>>);

/// The snapshot at `path`, if there is one.
pub(super) fn read(path: &Path) -> Result<Option<Snapshot>, SnapshotFault> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut file = BufReader::with_capacity(1 << 18, file);
    let mut magic = [0; 8];
    file.read_exact(&mut magic).map_err(damaged)?;
    if magic != *MAGIC {
        return Err(SnapshotFault::Damaged);
    }
    let head = read_frame(&mut file)?;
    let (meta, count): (SnapshotMeta, u32) = postcard::from_bytes(&head).map_err(|_| SnapshotFault::Damaged)?;
    let mut chunks = Vec::new();
    for _ in 0..count {
        chunks.push(read_frame(&mut file)?);
    }
    Ok(Some((meta, chunks.into())))
}

/// Puts a snapshot at `path`, durably.
pub(super) fn write(path: &Path, meta: &SnapshotMeta, chunks: &[Bytes]) -> Result<(), SnapshotFault> {
    let unfinished = path.with_file_name(UNFINISHED);
    let mut file = BufWriter::with_capacity(1 << 18, File::create(&unfinished)?);
    file.write_all(MAGIC)?;
    let count = u32::try_from(chunks.len()).map_err(|_| SnapshotFault::Damaged)?;
    let head = postcard::to_allocvec(&(meta, count)).map_err(|_| SnapshotFault::Damaged)?;
    write_frame(&mut file, &head)?;
    for chunk in chunks {
        write_frame(&mut file, chunk)?;
    }
    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    if let Some(dir) = path.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn read_frame(file: &mut impl Read) -> Result<Bytes, SnapshotFault> {
    let mut head = [0; 8];
    file.read_exact(&mut head).map_err(damaged)?;
    let [a, b, c, d, e, f, g, h] = head;
    let (len, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if len > FRAME_BYTES_MAX {
        return Err(SnapshotFault::Damaged);
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact(&mut bytes).map_err(damaged)?;
    if crc32fast::hash(&bytes) != crc { Err(SnapshotFault::Damaged) } else { Ok(bytes.into()) }
}

fn write_frame(file: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    file.write_all(&len.to_le_bytes())?;
    file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
    file.write_all(bytes)
}

fn damaged(error: io::Error) -> SnapshotFault {
    if error.kind() == io::ErrorKind::UnexpectedEof { SnapshotFault::Damaged } else { error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_comes_back_and_damage_is_seen() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(NAME);
        assert!(read(&path).expect("nothing there").is_none());
        let meta = SnapshotMeta { snapshot_id: "7".to_owned(), ..SnapshotMeta::default() };
        let chunks = vec![Bytes::from_static(b"one"), Bytes::from_static(b""), Bytes::from(vec![7; 100_000])];
        write(&path, &meta, &chunks).expect("written");
        write(&path, &meta, &chunks).expect("written again");
        let (found, pieces) = read(&path).expect("reads").expect("is there");
        assert_eq!((found, &*pieces), (meta, &chunks));
        let whole = std::fs::read(&path).expect("reads");
        for at in [0, 9, 14, 30, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).expect("written");
            assert!(matches!(read(&path), Err(SnapshotFault::Damaged)), "{at}");
            std::fs::write(&path, &whole[..at]).expect("written");
            assert!(matches!(read(&path), Err(SnapshotFault::Damaged)), "{at}");
        }
    }
}
