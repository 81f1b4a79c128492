//! Whether a generation already holds what shall be published.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::{Attributes, Directory, DiskError, Occupant};
use crate::generation::Generation;
use crate::payload::Payload;

/// What a generation lacks of a payload.
#[derive(Debug)]
pub(crate) enum Comparison {
    /// The same files with the same bytes; some may need other attributes.
    Equal { corrections: Vec<Correction> },
    /// Another set of files, or other bytes.
    Differs,
}

/// A file whose mode or group is not what it shall be.
#[derive(Debug)]
pub(crate) struct Correction {
    folder: Directory,
    name: OsString,
    attributes: Attributes,
}

impl Correction {
    pub(crate) fn apply(&self) -> Result<(), DiskError> {
        self.folder.change_attributes(&self.name, self.attributes)
    }
}

/// Compares bytes, modes and groups; files that name no group belong to `group`.
pub(crate) fn compare(
    volume: &Directory,
    generation: &Generation,
    payload: &Payload<'_>,
    group: u32,
) -> Result<Comparison, DiskError> {
    let root = volume.open_child(generation.as_str().as_ref())?;
    let mut held = BTreeMap::new();
    if !collect(&root, "", &mut held)? || !held.keys().eq(payload.files().map(|f| f.path.as_str()))
    {
        return Ok(Comparison::Differs);
    }
    let mut corrections = Vec::new();
    for (entry, (folder, name)) in payload.files().zip(held.into_values()) {
        if !folder.holds(&name, entry.content)? {
            return Ok(Comparison::Differs);
        }
        let attributes = Attributes { mode: entry.mode, gid: entry.gid.unwrap_or(group) };
        if folder.attributes(&name)? != attributes {
            corrections.push(Correction { folder, name, attributes });
        }
    }
    Ok(Comparison::Equal { corrections })
}

/// Collects the files below `folder` by path; false if there is anything that we never write.
fn collect(
    folder: &Directory,
    above: &str,
    held: &mut BTreeMap<String, (Directory, OsString)>,
) -> Result<bool, DiskError> {
    for (name, occupant) in folder.list()? {
        let Some(text) = OsStr::to_str(&name) else { return Ok(false) };
        let path = format!("{above}{text}");
        match occupant {
            Occupant::Link(_) => return Ok(false),
            Occupant::File => {
                held.insert(path, (folder.clone(), name));
            }
            Occupant::Directory => {
                let child = folder.open_child(&name)?;
                if !collect(&child, &format!("{path}/"), held)? {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}
