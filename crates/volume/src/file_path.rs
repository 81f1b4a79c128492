//! The path of a file inside a volume.

use std::fmt;
use std::str::FromStr;

/// The path of a file inside a volume: relative, normalized and never above the volume.
///
/// The rules are those of the kubelet's atomic writer, so that each writer can adopt the volumes of
/// the other.
///
/// ```
/// use lanyard_volume::FilePath;
///
/// assert!("tls/server.crt".parse::<FilePath>().is_ok());
/// assert!("../etc/passwd".parse::<FilePath>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

impl FilePath {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components from the volume down to the file.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The first component, which is the name that readers see in the volume.
    pub fn top_level_name(&self) -> &str {
        self.0.split_once('/').map_or(self.as_str(), |(top, _)| top)
    }

    /// The directories above the file, the nearest last.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }
}

impl FromStr for FilePath {
    type Err = ParseFilePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match find_problem(text) {
            None => Ok(Self(text.to_owned())),
            Some(problem) => Err(ParseFilePathError { path: text.to_owned(), problem }),
        }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// The error for text that is not a valid file path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("file path {path:?} is invalid: {problem}")]
pub struct ParseFilePathError {
    /// The rejected text.
    pub path: String,
    /// The rule that it violates.
    pub problem: FilePathProblem,
}

/// A rule that a file path violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilePathProblem {
    /// The path is empty.
    #[error("it is empty")]
    Empty,
    /// The path is longer than [`MAX_PATH`] bytes.
    #[error("it is longer than {MAX_PATH} bytes")]
    TooLong,
    /// The path begins with `/`.
    #[error("it is absolute")]
    Absolute,
    /// The path contains a NUL byte, which no file name can.
    #[error("it contains a NUL byte")]
    Nul,
    /// A component is `..`.
    #[error("it contains the component `..`")]
    ParentComponent,
    /// The first component begins with `..`, which is reserved for the layout of the volume.
    #[error("it begins with `..`, which is reserved for the layout of the volume")]
    Reserved,
    /// A component is longer than [`MAX_COMPONENT`] bytes.
    #[error("a component is longer than {MAX_COMPONENT} bytes")]
    ComponentTooLong,
    /// A component is empty or `.`, so that the path has a shorter spelling.
    #[error("it is not normalized (`.`, `//` or a trailing `/`)")]
    NotNormalized,
}

/// The longest path, in bytes (`PATH_MAX` of Linux).
pub const MAX_PATH: usize = 4096;

/// The longest component of a path, in bytes (`NAME_MAX` of Linux).
pub const MAX_COMPONENT: usize = 255;

fn find_problem(text: &str) -> Option<FilePathProblem> {
    let any = |test: fn(&str) -> bool| text.split('/').any(test);
    let rules = [
        (text.is_empty(), FilePathProblem::Empty),
        (text.len() > MAX_PATH, FilePathProblem::TooLong),
        (text.starts_with('/'), FilePathProblem::Absolute),
        (text.contains('\0'), FilePathProblem::Nul),
        (any(|part| part == ".."), FilePathProblem::ParentComponent),
        (text.starts_with(".."), FilePathProblem::Reserved),
        (any(|part| part.len() > MAX_COMPONENT), FilePathProblem::ComponentTooLong),
        (any(|part| part.is_empty() || part == "."), FilePathProblem::NotNormalized),
    ];
    rules.into_iter().find_map(|(broken, problem)| broken.then_some(problem))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_path_rule_rejects_only_its_violations() {
        let long_component = "a".repeat(MAX_COMPONENT + 1);
        let longest_component = "a".repeat(MAX_COMPONENT);
        let long_path = "a/".repeat(MAX_PATH / 2) + "a";
        let refused = [
            ("", FilePathProblem::Empty),
            (long_path.as_str(), FilePathProblem::TooLong),
            ("/etc/passwd", FilePathProblem::Absolute),
            ("a\0b", FilePathProblem::Nul),
            ("..", FilePathProblem::ParentComponent),
            ("../a", FilePathProblem::ParentComponent),
            ("a/../b", FilePathProblem::ParentComponent),
            ("..data", FilePathProblem::Reserved),
            ("..a/b", FilePathProblem::Reserved),
            (long_component.as_str(), FilePathProblem::ComponentTooLong),
            (".", FilePathProblem::NotNormalized),
            ("./a", FilePathProblem::NotNormalized),
            ("a/./b", FilePathProblem::NotNormalized),
            ("a//b", FilePathProblem::NotNormalized),
            ("a/", FilePathProblem::NotNormalized),
        ];
        for (text, problem) in refused {
            assert_eq!(text.parse::<FilePath>().map_err(|e| e.problem), Err(problem), "{text:?}");
        }
        for text in ["a", ".a", "a..b", "a/..b", "a/b/c", "a b", "ä", longest_component.as_str()] {
            assert!(text.parse::<FilePath>().is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_path_knows_its_top_and_the_directories_above_it() {
        let path: FilePath = "a/b/c".parse().unwrap();
        assert_eq!(path.top_level_name(), "a");
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["a", "a/b"]);
        let path: FilePath = "a".parse().unwrap();
        assert_eq!((path.top_level_name(), path.ancestors().count()), ("a", 0));
    }

    proptest! {
        #[test]
        fn an_accepted_path_stays_inside_the_volume(text in "[./a\0]{0,12}") {
            if let Ok(path) = text.parse::<FilePath>() {
                let clean: std::path::PathBuf = std::path::Path::new(&text).components().collect();
                prop_assert_eq!(clean.to_str(), Some(path.as_str()));
                prop_assert!(path.components().all(|part| !part.is_empty() && part != ".."));
            }
        }
    }
}
