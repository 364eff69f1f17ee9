//! The names of files after a power cut, replayed from what the shim noted.

use std::collections::{BTreeMap, HashMap};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::dice::Dice;

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File(u32),
    Folder(BTreeMap<String, Node>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Create(String, u32),
    Folder(String),
    Rename(String, String),
    Remove(String),
}

/// The notes of one process.
#[derive(Default)]
pub struct Names {
    /// With whether a power cut leaves them for certain.
    changes: Vec<(Change, bool)>,
    /// Which file an inode is; a number that was used again is that of the later file.
    file_of_inode: HashMap<u64, u32>,
}

impl Names {
    /// # Panics
    /// When the notes are not those of the shim.
    pub fn read(notes: &str) -> Self {
        let mut names = Self::default();
        // A line without its end was cut off by the kill.
        for line in notes.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let fields: Vec<_> = line.split('\t').collect();
            match fields[..] {
                ["folder", path] => names.changes.push((Change::Folder(path.to_owned()), true)),
                ["mkdir", path] => names.changes.push((Change::Folder(path.to_owned()), false)),
                [kind @ ("file" | "create"), path, id, inode] => {
                    let id = id.parse().expect("an id");
                    names.file_of_inode.insert(inode.parse().expect("an inode"), id);
                    names.changes.push((Change::Create(path.to_owned(), id), kind == "file"));
                }
                ["rename", from, to] => names.changes.push((Change::Rename(from.to_owned(), to.to_owned()), false)),
                ["remove", path] => names.changes.push((Change::Remove(path.to_owned()), false)),
                ["sync", folder] => names.sync(folder),
                _ => panic!("a note that is none: {line}"),
            }
        }
        names
    }

    /// All changes in this folder become durable; a rename takes along what made its source.
    fn sync(&mut self, folder: &str) {
        let mut sources = Vec::new();
        for (change, durable) in self.changes.iter_mut().rev() {
            let made = match change {
                Change::Create(path, _) | Change::Folder(path) | Change::Rename(_, path) => sources.contains(path),
                Change::Remove(_) => false,
            };
            let here = match change {
                Change::Create(path, _) | Change::Folder(path) | Change::Remove(path) => parent(path) == folder,
                Change::Rename(from, to) => parent(from) == folder || parent(to) == folder,
            };
            if here || made {
                *durable = true;
                if let Change::Rename(from, _) = change {
                    sources.push(from.clone());
                }
            }
        }
    }

    /// The tree that a power cut leaves; with dice, also the first few of the changes that were not synced.
    pub fn after_loss(&self, dice: Option<&mut Dice>) -> BTreeMap<String, Node> {
        let unsynced = self.changes.iter().filter(|(_, durable)| !durable).count() as u64;
        let mut kept = dice.map_or(0, |dice| dice.below(unsynced + 1));
        let mut tree = BTreeMap::new();
        for (change, durable) in &self.changes {
            if *durable || kept > 0 {
                kept -= u64::from(!durable);
                apply(&mut tree, change);
            }
        }
        tree
    }

    /// Where the files of the notes are now, below a root.
    pub fn live_files(&self, root: &Path) -> HashMap<u32, PathBuf> {
        let mut live = HashMap::new();
        walk(root, "", &mut |name, metadata| {
            if let Some(id) = self.file_of_inode.get(&metadata.ino()).filter(|_| metadata.is_file()) {
                live.insert(*id, root.join(name));
            }
        });
        live
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// A change whose folder or source was lost does nothing.
fn apply(tree: &mut BTreeMap<String, Node>, change: &Change) {
    match change {
        Change::Create(path, id) => put(tree, path, Node::File(*id)),
        Change::Folder(path) => put(tree, path, Node::Folder(BTreeMap::new())),
        Change::Rename(from, to) => {
            if let Some(node) = take(tree, from) {
                put(tree, to, node);
            }
        }
        Change::Remove(path) => drop(take(tree, path)),
    }
}

fn folder_of<'t, 'p>(
    mut tree: &'t mut BTreeMap<String, Node>,
    path: &'p str,
) -> Option<(&'t mut BTreeMap<String, Node>, &'p str)> {
    let mut rest = path;
    while let Some((first, behind)) = rest.split_once('/') {
        match tree.get_mut(first) {
            Some(Node::Folder(inner)) => tree = inner,
            _ => return None,
        }
        rest = behind;
    }
    Some((tree, rest))
}

fn put(tree: &mut BTreeMap<String, Node>, path: &str, node: Node) {
    if let Some((folder, name)) = folder_of(tree, path) {
        folder.insert(name.to_owned(), node);
    }
}

fn take(tree: &mut BTreeMap<String, Node>, path: &str) -> Option<Node> {
    let (folder, name) = folder_of(tree, path)?;
    folder.remove(name)
}

/// Calls `each` for every folder and file below `root`, with its path from there; folders before what is in them.
///
/// # Panics
/// When the folder cannot be read.
pub fn walk(root: &Path, below: &str, each: &mut dyn FnMut(&str, &Metadata)) {
    for entry in std::fs::read_dir(root.join(below)).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        let name = entry.file_name().into_string().expect("a name in UTF-8");
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let metadata = entry.metadata().expect("a readable file");
        each(&path, &metadata);
        if metadata.is_dir() {
            walk(root, &path, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(notes: &str, dice: Option<&mut Dice>) -> String {
        format!("{:?}", Names::read(notes).after_loss(dice))
    }

    #[test]
    fn a_name_is_kept_by_the_sync_of_its_folder_only() {
        let create = "mkdir\ta\nsync\t\ncreate\ta/b\t1\t7\n";
        assert_eq!(listed(create, None), r#"{"a": Folder({})}"#);
        assert_eq!(listed(&format!("{create}sync\ta\n"), None), r#"{"a": Folder({"b": File(1)})}"#);
        // The folder itself was not synced: it is gone with what is in it.
        assert_eq!(listed("mkdir\ta\ncreate\ta/b\t1\t7\nsync\ta\n", None), "{}");
    }

    #[test]
    fn a_rename_is_old_or_new() {
        let start = "file\ta\t1\t7\nfile\tb\t2\t8\n";
        assert_eq!(listed(&format!("{start}rename\ta\tb\n"), None), r#"{"a": File(1), "b": File(2)}"#);
        assert_eq!(listed(&format!("{start}rename\ta\tb\nsync\t\n"), None), r#"{"b": File(1)}"#);
        // Between folders, one sync is enough, and it keeps the file too.
        let between = "folder\td\nfolder\te\ncreate\td/a\t1\t7\nrename\td/a\te/a\nsync\te\n";
        assert_eq!(listed(between, None), r#"{"d": Folder({}), "e": Folder({"a": File(1)})}"#);
    }

    #[test]
    fn unsynced_changes_are_kept_from_the_first_to_a_random_one() {
        let notes = "create\ta\t1\t7\ncreate\tb\t2\t8\nremove\ta\n";
        let mut found = std::collections::BTreeSet::new();
        let mut dice = Dice::new(1);
        for _ in 0..100 {
            found.insert(listed(notes, Some(&mut dice)));
        }
        let all = [r#"{"a": File(1), "b": File(2)}"#, r#"{"a": File(1)}"#, r#"{"b": File(2)}"#, "{}"];
        assert!(found.iter().eq(all.iter()), "{found:?}");
    }
}
