//! The layout of a volume on disk, and functions that walk it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::{DirectoryEntryKind, FileAttributes, OpenDirectory, VolumeDiskError};
use crate::generation::{VolumeGeneration, VolumeGenerations};
use crate::payload::FileEntry;
use crate::volume_links::{DATA_LINK, LinkChanges, REPLACED_LINK_TMP, link_target};

/// The entries of a volume's directory.
#[derive(Debug)]
pub(super) struct VolumeLayout {
    pub(super) entries: BTreeMap<OsString, DirectoryEntryKind>,
    pub(super) generations: VolumeGenerations,
}

impl VolumeLayout {
    pub(super) fn of(directory: &OpenDirectory) -> Result<Self, VolumeDiskError> {
        let entries: BTreeMap<_, _> = directory.list()?.into_iter().collect();
        let generations: Vec<VolumeGeneration> = entries
            .iter()
            .filter(|(_, kind)| **kind == DirectoryEntryKind::Directory)
            .filter_map(|(name, _)| name.to_str()?.parse().ok())
            .collect();
        let current = match entries.get(OsStr::new(DATA_LINK)) {
            Some(DirectoryEntryKind::Symlink(target)) => {
                generations.iter().find(|generation| *target == generation.as_str()).cloned()
            }
            _ => None,
        };
        Ok(Self { entries, generations: VolumeGenerations::classify(generations, current) })
    }
}

pub(super) fn write_file(
    root: &OpenDirectory,
    entry: &FileEntry<'_>,
    group: u32,
) -> Result<(), VolumeDiskError> {
    let attributes = FileAttributes { mode: entry.mode, gid: entry.gid.unwrap_or(group) };
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

fn find_or_create(folder: &OpenDirectory, name: &str) -> Result<OpenDirectory, VolumeDiskError> {
    match folder.find_child(name.as_ref())? {
        Some(child) => Ok(child),
        None => folder.create_child(name.as_ref()),
    }
}

pub(super) fn sync_tree(folder: &OpenDirectory) -> Result<(), VolumeDiskError> {
    for (name, kind) in folder.list()? {
        if kind == DirectoryEntryKind::Directory {
            sync_tree(&folder.open_child(&name)?)?;
        }
    }
    folder.sync()
}

pub(super) fn create_links(
    directory: &OpenDirectory,
    links: &LinkChanges,
) -> Result<(), VolumeDiskError> {
    links.create.iter().try_for_each(|name| directory.create_symlink(name, &link_target(name)))
}

pub(super) fn replace_and_remove_links(
    directory: &OpenDirectory,
    links: &LinkChanges,
) -> Result<(), VolumeDiskError> {
    for name in &links.remove {
        directory.remove_keeping_content(name)?;
    }
    for (name, is_directory) in &links.replace {
        directory.remove_keeping_content(REPLACED_LINK_TMP.as_ref())?;
        directory.create_symlink(REPLACED_LINK_TMP.as_ref(), &link_target(name))?;
        if *is_directory {
            directory.exchange_entries(REPLACED_LINK_TMP.as_ref(), name)?;
            // Another writer's files may be open. That writer's readers have no grace period, so
            // their content stays.
            directory.remove_keeping_content(REPLACED_LINK_TMP.as_ref())?;
        } else {
            directory.rename(REPLACED_LINK_TMP.as_ref(), name)?;
        }
    }
    Ok(())
}

pub(super) type FileVisitor<'a> =
    dyn FnMut(&OpenDirectory, &OsStr) -> Result<(), VolumeDiskError> + 'a;

/// Visits every file of a generation, even after a failure. Returns the first error.
pub(super) fn visit_files(
    directory: &OpenDirectory,
    generation: &VolumeGeneration,
    visit: &mut FileVisitor<'_>,
) -> Result<(), VolumeDiskError> {
    match directory.find_child(generation.as_str().as_ref())? {
        Some(root) => visit_files_below(&root, visit),
        None => Ok(()),
    }
}

fn visit_files_below(
    folder: &OpenDirectory,
    visit: &mut FileVisitor<'_>,
) -> Result<(), VolumeDiskError> {
    let mut outcome = Ok(());
    for (name, kind) in folder.list()? {
        let visited = match kind {
            DirectoryEntryKind::File => visit(folder, &name),
            DirectoryEntryKind::Directory => {
                folder.open_child(&name).and_then(|child| visit_files_below(&child, visit))
            }
            DirectoryEntryKind::Symlink(_) => Ok(()),
        };
        outcome = outcome.and(visited);
    }
    outcome
}

pub(super) fn byte_count(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}
