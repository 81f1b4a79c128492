//! The symbolic links of a volume and their changes between generations.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::DirectoryEntryKind;

/// The link to the current generation.
pub(crate) const DATA_LINK: &str = "..data";
/// The temporary name of the next [`DATA_LINK`].
pub(crate) const DATA_LINK_TMP: &str = "..data_tmp";
/// The temporary name of a link that replaces another entry.
pub(crate) const REPLACED_LINK_TMP: &str = "..link_tmp";

/// The changes that give a volume the correct links.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkChanges {
    /// Links to create. This may happen before the swap: until then they are dangling.
    pub(crate) create: Vec<OsString>,
    /// Names of entries to replace with links, and whether the entry is a directory. They are
    /// replaced after the swap, so that the name always leads to a file.
    pub(crate) replace: Vec<(OsString, bool)>,
    /// Links of this driver that no file needs, and temporary links that a crash left.
    pub(crate) remove: Vec<OsString>,
}

impl LinkChanges {
    pub(crate) fn desired(entries: &BTreeMap<OsString, DirectoryEntryKind>, tops: &[&str]) -> Self {
        let mut changes = Self::default();
        for top in tops {
            let name = OsStr::new(top);
            match entries.get(name) {
                None => changes.create.push(name.to_owned()),
                Some(DirectoryEntryKind::Symlink(target)) if *target == link_target(name) => {}
                Some(other) => {
                    changes
                        .replace
                        .push((name.to_owned(), *other == DirectoryEntryKind::Directory));
                }
            }
        }
        let needed = |name: &OsStr| tops.iter().any(|top| name == *top);
        for (name, kind) in entries {
            let ours =
                matches!(kind, DirectoryEntryKind::Symlink(target) if *target == link_target(name));
            let leftover = name == DATA_LINK_TMP || name == REPLACED_LINK_TMP;
            if leftover || (ours && !needed(name)) {
                changes.remove.push(name.clone());
            }
        }
        changes
    }
}

/// The target of the link `name`.
pub(crate) fn link_target(name: &OsStr) -> OsString {
    let mut target = OsString::from(DATA_LINK);
    target.push("/");
    target.push(name);
    target
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(target: &str) -> DirectoryEntryKind {
        DirectoryEntryKind::Symlink(target.into())
    }

    #[test]
    fn only_wrong_links_change_and_only_our_own_links_are_removed() {
        let entries = BTreeMap::from(
            [
                ("right", link("..data/right")),
                ("wrong", link("/etc/passwd")),
                ("file", DirectoryEntryKind::File),
                ("folder", DirectoryEntryKind::Directory),
                ("stale", link("..data/stale")),
                ("foreign-link", link("elsewhere")),
                ("foreign-file", DirectoryEntryKind::File),
                (DATA_LINK, link("..2026_01_01_00_00_00.1")),
                (DATA_LINK_TMP, link("..2026_01_01_00_00_00.2")),
                (REPLACED_LINK_TMP, DirectoryEntryKind::Directory),
            ]
            .map(|(name, kind)| (OsString::from(name), kind)),
        );
        let tops = ["file", "folder", "new", "right", "wrong"];
        let changes = LinkChanges::desired(&entries, &tops);
        assert_eq!(changes.create, ["new"]);
        let replaced = [("file", false), ("folder", true), ("wrong", false)];
        assert_eq!(changes.replace, replaced.map(|(name, folder)| (name.into(), folder)));
        assert_eq!(changes.remove, [DATA_LINK_TMP, REPLACED_LINK_TMP, "stale"]);
    }
}
