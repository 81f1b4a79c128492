//! The files of a volume.

use std::collections::BTreeMap;
use std::fmt;

use crate::file_path::FilePath;

/// One file of a volume. It borrows its content from the caller's wiped buffer and copies it only
/// into the file.
#[derive(Clone)]
pub struct FileEntry<'a> {
    /// The path in the volume.
    pub path: FilePath,
    /// The content. `Debug` does not print it.
    pub content: &'a [u8],
    /// The permission bits, at most `0o7777`. They are set explicitly, so the umask does not apply.
    pub mode: u32,
    /// The owning group; by default that of this process.
    pub gid: Option<u32>,
}

impl<'a> FileEntry<'a> {
    /// A file with the group of this process.
    pub fn new(path: FilePath, content: &'a [u8], mode: u32) -> Self {
        Self { path, content, mode, gid: None }
    }
}

impl fmt::Debug for FileEntry<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FileEntry")
            .field("path", &self.path)
            .field("content", &"[redacted]")
            .field("mode", &format_args!("{:#o}", self.mode))
            .field("gid", &self.gid)
            .finish()
    }
}

/// The files of a volume, without conflicting paths.
#[derive(Debug)]
pub struct Payload<'a> {
    files: BTreeMap<&'a str, &'a FileEntry<'a>>,
}

impl<'a> Payload<'a> {
    /// Checks files that are to be published together.
    ///
    /// # Errors
    ///
    /// Returns every problem of the paths and modes.
    pub fn parse(entries: &'a [FileEntry<'a>]) -> Result<Self, Vec<PayloadProblem>> {
        let mut files = BTreeMap::new();
        let mut problems = Vec::new();
        if entries.is_empty() {
            problems.push(PayloadProblem::NoFile);
        }
        for entry in entries {
            if entry.mode > MAX_MODE {
                problems.push(PayloadProblem::InvalidMode {
                    path: entry.path.clone(),
                    mode: entry.mode,
                });
            }
            if files.insert(entry.path.as_str(), entry).is_some() {
                problems.push(PayloadProblem::DuplicatePath { path: entry.path.clone() });
            }
        }
        for entry in files.values() {
            if let Some(above) = entry.path.ancestors().find_map(|above| files.get(above)) {
                let (path, above) = (entry.path.clone(), above.path.clone());
                problems.push(PayloadProblem::UnderFile { path, above });
            }
        }
        if problems.is_empty() { Ok(Self { files }) } else { Err(problems) }
    }

    /// The files, sorted by path.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &'a FileEntry<'a>> {
        self.files.values().copied()
    }

    /// The top-level names that readers see in the volume, sorted.
    pub(crate) fn top_level_names(&self) -> Vec<&'a str> {
        let mut tops: Vec<_> = self.files().map(|entry| entry.path.top_level_name()).collect();
        tops.sort_unstable();
        tops.dedup();
        tops
    }
}

/// Why a list of files cannot be the content of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadProblem {
    /// The list is empty: a volume is never published empty.
    #[error("there is no file to publish")]
    NoFile,
    /// Two files have the same path.
    #[error("`{path}` appears twice")]
    DuplicatePath {
        /// The duplicate path.
        path: FilePath,
    },
    /// A path is below the path of another file.
    #[error("`{path}` is below `{above}`, which is a file")]
    UnderFile {
        /// The path below.
        path: FilePath,
        /// The file above it.
        above: FilePath,
    },
    /// The mode has bits that are not permission bits.
    #[error("mode {mode:#o} of `{path}` has bits that are not permission bits")]
    InvalidMode {
        /// The path of the file.
        path: FilePath,
        /// The rejected mode.
        mode: u32,
    },
}

const MAX_MODE: u32 = 0o7777;

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, mode: u32) -> FileEntry<'static> {
        FileEntry::new(path.parse().unwrap(), b"planted-secret", mode)
    }

    #[test]
    fn all_payload_problems_are_reported_together() {
        let entries = [entry("a", 0o644), entry("a", 0o644), entry("a/b", 0o100_644)];
        let problems = Payload::parse(&entries).unwrap_err();
        let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let expected = [
            "`a` appears twice",
            "mode 0o100644 of `a/b` has bits that are not permission bits",
            "`a/b` is below `a`, which is a file",
        ];
        assert_eq!(texts, expected);
        assert_eq!(Payload::parse(&[]).unwrap_err(), [PayloadProblem::NoFile]);
    }

    #[test]
    fn siblings_whose_names_sort_between_a_file_and_its_children_hide_no_conflict() {
        let entries = [entry("a", 0), entry("a-b", 0), entry("a/b/c", 0)];
        let problems = Payload::parse(&entries).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(matches!(&problems[0], PayloadProblem::UnderFile { .. }));
    }

    #[test]
    fn the_content_is_never_printed() {
        let text = format!("{:?}", entry("a", 0o600));
        assert!(!text.contains("planted") && !text.contains("112"), "{text}");
        assert!(text.contains("0o600"));
    }
}
