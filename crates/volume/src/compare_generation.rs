//! Compares a generation with the payload to publish.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::{DirectoryEntryKind, FileAttributes, OpenDirectory, VolumeDiskError};
use crate::generation::VolumeGeneration;
use crate::payload::Payload;

/// The outcome of [`compare_generation`].
#[derive(Debug)]
pub(crate) enum PayloadComparison {
    /// The files and their bytes are the same; some may need other modes or groups.
    Equal { corrections: Vec<AttributeCorrection> },
    /// There are other files, or other bytes.
    Differs,
}

/// A file whose mode or group must be corrected.
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

/// Compares bytes, modes and groups. Files without a group belong to `group`.
pub(crate) fn compare_generation(
    volume: &OpenDirectory,
    generation: &VolumeGeneration,
    payload: &Payload<'_>,
    group: u32,
) -> Result<PayloadComparison, VolumeDiskError> {
    let root = volume.open_child(generation.as_str().as_ref())?;
    let mut found = BTreeMap::new();
    if !collect_files(&root, "", &mut found)?
        || !found.keys().eq(payload.files().map(|f| f.path.as_str()))
    {
        return Ok(PayloadComparison::Differs);
    }
    let mut corrections = Vec::new();
    for (entry, (folder, name)) in payload.files().zip(found.into_values()) {
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

/// Collects the files below `folder` by path. Returns false if it contains an entry that this
/// driver never writes, such as a link.
fn collect_files(
    folder: &OpenDirectory,
    above: &str,
    found: &mut BTreeMap<String, (OpenDirectory, OsString)>,
) -> Result<bool, VolumeDiskError> {
    for (name, kind) in folder.list()? {
        let Some(text) = OsStr::to_str(&name) else { return Ok(false) };
        let path = format!("{above}{text}");
        match kind {
            DirectoryEntryKind::Symlink(_) => return Ok(false),
            DirectoryEntryKind::File => {
                found.insert(path, (folder.clone(), name));
            }
            DirectoryEntryKind::Directory => {
                let child = folder.open_child(&name)?;
                if !collect_files(&child, &format!("{path}/"), found)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
