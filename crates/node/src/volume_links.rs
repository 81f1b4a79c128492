//! The links that readers follow, and what has to change about them.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::directory::DirectoryEntryKind;

/// The link that names the current generation.
pub(crate) const DATA_LINK: &str = "..data";
/// The name under which the next [`DATA_LINK`] is made.
pub(crate) const DATA_LINK_TMP: &str = "..data_tmp";
/// The name under which a link that replaces something is made.
pub(crate) const REPLACED_LINK_TMP: &str = "..link_tmp";

/// What has to change so that the names in a volume are the right links.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkChanges {
    /// Names that do not exist. They may be made before the swap: until then they lead nowhere.
    pub(crate) create: Vec<OsString>,
    /// Names under which something else stands, and whether it is a directory. They are replaced
    /// after the swap, so that the name always leads to a file.
    pub(crate) replace: Vec<(OsString, bool)>,
    /// Our links that no file needs any more, and what a crash left.
    pub(crate) remove: Vec<OsString>,
}

impl LinkChanges {
    pub(crate) fn desired(
        occupants: &BTreeMap<OsString, DirectoryEntryKind>,
        tops: &[&str],
    ) -> Self {
        let mut changes = Self::default();
        for top in tops {
            let name = OsStr::new(top);
            match occupants.get(name) {
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
        for (name, occupant) in occupants {
            let ours = matches!(occupant, DirectoryEntryKind::Symlink(target) if *target == link_target(name));
            let leftover = name == DATA_LINK_TMP || name == REPLACED_LINK_TMP;
            if leftover || (ours && !needed(name)) {
                changes.remove.push(name.clone());
            }
        }
        changes
    }
}

/// Where the link `name` leads.
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
        let occupants = BTreeMap::from(
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
            .map(|(name, occupant)| (OsString::from(name), occupant)),
        );
        let tops = ["file", "folder", "new", "right", "wrong"];
        let changes = LinkChanges::desired(&occupants, &tops);
        assert_eq!(changes.create, ["new"]);
        let replaced = [("file", false), ("folder", true), ("wrong", false)];
        assert_eq!(changes.replace, replaced.map(|(name, folder)| (name.into(), folder)));
        assert_eq!(changes.remove, [DATA_LINK_TMP, REPLACED_LINK_TMP, "stale"]);
    }
}
