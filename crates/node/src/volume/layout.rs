//! How a volume stands on disk, and the walks over it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::{Attributes, Directory, DiskError, Occupant};
use crate::generation::{Generation, Generations};
use crate::links::{DATA, LinkChanges, NEXT_LINK, target_of};
use crate::payload::FileEntry;

/// A volume as it stands on disk.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) occupants: BTreeMap<OsString, Occupant>,
    pub(super) generations: Generations,
}

impl Survey {
    pub(super) fn of(directory: &Directory) -> Result<Self, DiskError> {
        let occupants: BTreeMap<_, _> = directory.list()?.into_iter().collect();
        let generations: Vec<Generation> = occupants
            .iter()
            .filter(|(_, occupant)| **occupant == Occupant::Directory)
            .filter_map(|(name, _)| name.to_str()?.parse().ok())
            .collect();
        let current = match occupants.get(OsStr::new(DATA)) {
            Some(Occupant::Link(target)) => {
                generations.iter().find(|generation| *target == generation.as_str()).cloned()
            }
            _ => None,
        };
        Ok(Self { occupants, generations: Generations::tell_apart(generations, current) })
    }
}

pub(super) fn write_file(
    root: &Directory,
    entry: &FileEntry<'_>,
    group: u32,
) -> Result<(), DiskError> {
    let attributes = Attributes { mode: entry.mode, gid: entry.gid.unwrap_or(group) };
    match entry.path.as_str().rsplit_once('/') {
        None => root.create_file(entry.path.as_str().as_ref(), entry.content, attributes),
        Some((above, name)) => {
            let mut folder = find_or_create(root, above.split('/').next().unwrap_or(above))?;
            for part in above.split('/').skip(1) {
                folder = find_or_create(&folder, part)?;
            }
            folder.create_file(name.as_ref(), entry.content, attributes)
        }
    }
}

fn find_or_create(folder: &Directory, name: &str) -> Result<Directory, DiskError> {
    match folder.find_child(name.as_ref())? {
        Some(child) => Ok(child),
        None => folder.create_child(name.as_ref()),
    }
}

pub(super) fn sync_tree(folder: &Directory) -> Result<(), DiskError> {
    for (name, occupant) in folder.list()? {
        if occupant == Occupant::Directory {
            sync_tree(&folder.open_child(&name)?)?;
        }
    }
    folder.sync()
}

pub(super) fn create_links(directory: &Directory, links: &LinkChanges) -> Result<(), DiskError> {
    links.create.iter().try_for_each(|name| directory.link(name, &target_of(name)))
}

pub(super) fn settle_links(directory: &Directory, links: &LinkChanges) -> Result<(), DiskError> {
    for name in &links.discard {
        directory.release(name)?;
    }
    for (name, is_directory) in &links.replace {
        directory.release(NEXT_LINK.as_ref())?;
        directory.link(NEXT_LINK.as_ref(), &target_of(name))?;
        if *is_directory {
            directory.exchange(NEXT_LINK.as_ref(), name)?;
            // What another writer left may be open: its readers were promised no grace, and get
            // the whole of what they opened.
            directory.release(NEXT_LINK.as_ref())?;
        } else {
            directory.rename(NEXT_LINK.as_ref(), name)?;
        }
    }
    Ok(())
}

pub(super) type Visit<'a> = dyn FnMut(&Directory, &OsStr) -> Result<(), DiskError> + 'a;

/// Visits every file of a generation, whatever becomes of the others; the first failure is told.
pub(super) fn each_file(
    directory: &Directory,
    generation: &Generation,
    visit: &mut Visit<'_>,
) -> Result<(), DiskError> {
    match directory.find_child(generation.as_str().as_ref())? {
        Some(root) => each_file_below(&root, visit),
        None => Ok(()),
    }
}

fn each_file_below(folder: &Directory, visit: &mut Visit<'_>) -> Result<(), DiskError> {
    let mut outcome = Ok(());
    for (name, occupant) in folder.list()? {
        let visited = match occupant {
            Occupant::File => visit(folder, &name),
            Occupant::Directory => {
                folder.open_child(&name).and_then(|child| each_file_below(&child, visit))
            }
            Occupant::Link(_) => Ok(()),
        };
        outcome = outcome.and(visited);
    }
    outcome
}

pub(super) fn bytes_of(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}
