//! Whether a generation already holds what shall be published.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::{DirectoryEntryKind, FileAttributes, OpenDirectory, VolumeDiskError};
use crate::generation::VolumeGeneration;
use crate::payload::Payload;

/// What a generation lacks of a payload.
#[derive(Debug)]
pub(crate) enum PayloadComparison {
    /// The same files with the same bytes; some may need other attributes.
    Equal { corrections: Vec<AttributeCorrection> },
    /// Another set of files, or other bytes.
    Differs,
}

/// A file whose mode or group is not what it shall be.
#[derive(Debug)]
pub(crate) struct AttributeCorrection {
    folder: OpenDirectory,
    name: OsString,
    attributes: FileAttributes,
}

impl AttributeCorrection {
    pub(crate) fn apply(&self) -> Result<(), VolumeDiskError> {
        self.folder.change_attributes(&self.name, self.attributes)
    }
}

/// Compares bytes, modes and groups; files that name no group belong to `group`.
pub(crate) fn compare_generation(
    volume: &OpenDirectory,
    generation: &VolumeGeneration,
    payload: &Payload<'_>,
    group: u32,
) -> Result<PayloadComparison, VolumeDiskError> {
    let root = volume.open_child(generation.as_str().as_ref())?;
    let mut held = BTreeMap::new();
    if !collect_files(&root, "", &mut held)?
        || !held.keys().eq(payload.files().map(|f| f.path.as_str()))
    {
        return Ok(PayloadComparison::Differs);
    }
    let mut corrections = Vec::new();
    for (entry, (folder, name)) in payload.files().zip(held.into_values()) {
        if !folder.content_equals(&name, entry.content)? {
            return Ok(PayloadComparison::Differs);
        }
        let attributes = FileAttributes { mode: entry.mode, gid: entry.gid.unwrap_or(group) };
        if folder.attributes(&name)? != attributes {
            corrections.push(AttributeCorrection { folder, name, attributes });
        }
    }
    Ok(PayloadComparison::Equal { corrections })
}

/// Collects the files below `folder` by path; false if there is anything that we never write.
fn collect_files(
    folder: &OpenDirectory,
    above: &str,
    held: &mut BTreeMap<String, (OpenDirectory, OsString)>,
) -> Result<bool, VolumeDiskError> {
    for (name, occupant) in folder.list()? {
        let Some(text) = OsStr::to_str(&name) else { return Ok(false) };
        let path = format!("{above}{text}");
        match occupant {
            DirectoryEntryKind::Symlink(_) => return Ok(false),
            DirectoryEntryKind::File => {
                held.insert(path, (folder.clone(), name));
            }
            DirectoryEntryKind::Directory => {
                let child = folder.open_child(&name)?;
                if !collect_files(&child, &format!("{path}/"), held)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
