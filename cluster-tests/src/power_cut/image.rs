//! The folder that a power cut leaves: durable bytes, and of what was written since a part.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Loss;
use super::names::{Names, Node};
use crate::dice::Dice;

const PAGE: usize = 4_096;
const SECTOR: usize = 512;

pub(super) fn write(root: &Path, shadow: &Path, mut loss: Loss, into: &Path) {
    let notes = std::fs::read_to_string(shadow.join("names")).expect("the notes of the shim");
    let names = Names::read(&notes);
    let live = names.live_files(root);
    let tree = names.after_loss(match &mut loss {
        Loss::All => None,
        Loss::Part(dice) => Some(dice),
    });
    let content = |id: u32, loss: &mut Loss| {
        // A file that was never synced has nothing durable, and one whose last name is gone nothing else.
        let durable = std::fs::read(shadow.join(id.to_string())).unwrap_or_default();
        match (loss, live.get(&id)) {
            (Loss::Part(dice), Some(path)) => mix(durable, &std::fs::read(path).expect("a file of the program"), dice),
            _ => durable,
        }
    };
    write_folder(&tree, into, &mut loss, &content);
}

fn write_folder(
    tree: &BTreeMap<String, Node>,
    into: &Path,
    loss: &mut Loss,
    content: &impl Fn(u32, &mut Loss) -> Vec<u8>,
) {
    std::fs::create_dir_all(into).expect("a folder");
    std::fs::set_permissions(into, Permissions::from_mode(0o700)).expect("a folder of ours");
    for (name, node) in tree {
        let path = into.join(name);
        match node {
            Node::Folder(inner) => write_folder(inner, &path, loss, content),
            Node::File(id) => {
                std::fs::write(&path, content(*id, loss)).expect("the image can be written");
                std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a file of ours");
            }
        }
    }
}

/// Of each page that differs the durable or the later state; now and then a page is torn between sectors.
fn mix(durable: Vec<u8>, live: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut mixed = durable;
    if mixed.len() != live.len() && dice.once_in(2) {
        mixed.resize(live.len(), 0);
    }
    for start in (0..mixed.len().min(live.len())).step_by(PAGE) {
        let page = start..(start + PAGE).min(mixed.len()).min(live.len());
        if mixed[page.clone()] == live[page.clone()] {
            continue;
        }
        if dice.once_in(8) {
            for sector in page.clone().step_by(SECTOR).filter(|_| dice.once_in(2)) {
                let sector = sector..(sector + SECTOR).min(page.end);
                mixed[sector.clone()].copy_from_slice(&live[sector]);
            }
        } else if dice.once_in(2) {
            mixed[page.clone()].copy_from_slice(&live[page]);
        }
    }
    mixed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_made_of_pages_of_both_states() {
        let (durable, live) = (vec![1; 6 * PAGE], vec![2; 8 * PAGE + 100]);
        let mut dice = Dice::new(3);
        let (mut short, mut torn) = (false, false);
        for _ in 0..50 {
            let mixed = mix(durable.clone(), &live, &mut dice);
            assert!(mixed.len() == durable.len() || mixed.len() == live.len());
            short |= mixed.len() == durable.len();
            for (index, sector) in mixed.chunks(SECTOR).enumerate() {
                let old = if index * SECTOR < durable.len() { 1 } else { 0 };
                assert!(sector.iter().all(|byte| *byte == sector[0]) && [old, 2].contains(&sector[0]));
            }
            torn |= mixed.chunks(PAGE).any(|page| page.iter().any(|byte| *byte != page[0]));
        }
        assert!(short && torn);
    }
}
