//! `cargo xtask tidy`: checks conventions that no lint covers.

mod named_tests;

use std::fs;
use std::path::{Path, PathBuf};

use crate::process;
use crate::product_lines::product_lines;
use crate::repository::Repository;
use crate::task_error::TaskError;

/// The maximum length of a file, in lines without tests.
const LONGEST_FILE: usize = 600;

/// Module names without a meaning.
const MEANINGLESS_NAMES: [&str; 5] = ["utils", "util", "common", "helpers", "misc"];

/// Directories of built, installed, generated or tool-managed files.
const SKIPPED_DIRECTORIES: [&str; 9] = [
    ".git",
    ".vale",
    "target",
    ".venv",
    "node_modules",
    "__pycache__",
    "artifacts",
    "corpus",
    "generated",
];

/// The extensions of handwritten files.
const TEXT_EXTENSIONS: [&str; 9] = ["rs", "toml", "md", "yaml", "yml", "json", "py", "go", "sh"];

/// Top-level directories of paths that are specific to one machine.
const MACHINE_DIRECTORIES: [&str; 3] = ["home", "Users", "work"];

/// Checks every file of the repository; returns the number of files.
pub(crate) fn check(repository: &Repository) -> Result<usize, TaskError> {
    let files = text_files(repository.root())?;
    let mut findings = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).map_err(|source| TaskError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        let relative = path.strip_prefix(repository.root()).unwrap_or(path);
        findings.extend(findings_in(relative, &text));
    }
    findings.extend(named_tests::find_missing_tests(repository.root())?);
    if findings.is_empty() {
        process::print_line(&format!("{} files are tidy", files.len()));
        return Ok(files.len());
    }
    Err(TaskError::Findings { check: "untidy places", findings })
}

/// The handwritten text files of the repository, sorted.
fn text_files(root: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let mut files = Vec::new();
    collect_files(root, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    let unreadable =
        |source| TaskError::File { action: "list", path: directory.to_path_buf(), source };
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(unreadable)?;
        let name = entry.file_name();
        if kind.is_dir() {
            if !SKIPPED_DIRECTORIES.iter().any(|it| name.to_str() == Some(it)) {
                collect_files(&path, files)?;
            }
        } else if kind.is_file() && is_text_file(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_text_file(path: &Path) -> bool {
    path.extension().and_then(|it| it.to_str()).is_some_and(|it| TEXT_EXTENSIONS.contains(&it))
}

fn findings_in(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let place = path.display();
    if path.extension().is_some_and(|it| it == "rs") {
        let stem = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
        if stem == "mod" {
            found.push(format!("{place}: use `foo.rs` next to `foo/` instead of `mod.rs`"));
        }
        if MEANINGLESS_NAMES.contains(&stem) {
            found.push(format!("{place}: `{stem}` is a name without a meaning"));
        }
        let lines = lines_without_tests(path, text);
        if lines > LONGEST_FILE {
            found.push(format!("{place}: {lines} lines without tests; split above {LONGEST_FILE}"));
        }
    }
    for (number, line) in text.lines().enumerate() {
        if let Some(place_of_machine) = machine_path(line) {
            let number = number + 1;
            found.push(format!("{place}:{number}: `{place_of_machine}` is a path of one machine"));
        }
    }
    found
}

/// Whether a file contains only tests or benchmarks.
fn is_test_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|it| it == "tests")
        || path.components().any(|part| {
            part.as_os_str().to_str().is_some_and(|it| matches!(it, "tests" | "benches"))
        })
}

/// Counts the lines before an inline test module; test files count as empty.
fn lines_without_tests(path: &Path, text: &str) -> usize {
    if is_test_file(path) {
        return 0;
    }
    product_lines(text)
}

fn machine_path(line: &str) -> Option<String> {
    MACHINE_DIRECTORIES.iter().map(|place| format!("/{place}/")).find(|path| {
        line.match_indices(path.as_str()).any(|(start, _)| is_path_start(&line[..start]))
    })
}

/// Whether a path may start here: after a blank, a quote, a bracket or a separator, not inside another path
/// or URL.
fn is_path_start(before: &str) -> bool {
    before.chars().next_back().is_none_or(|it| !it.is_alphanumeric() && !"/.-_}*~".contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_of(path: &str, text: &str) -> Vec<String> {
        findings_in(Path::new(path), text)
    }

    #[test]
    fn long_files_are_found_and_their_tests_do_not_count() {
        let code = "fn a() {}\n".repeat(LONGEST_FILE);
        assert!(findings_of("crates/a/src/b.rs", &code).is_empty());
        let with_tests = format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(findings_of("crates/a/src/b.rs", &with_tests).is_empty());
        let longer = format!("{code}fn b() {{}}\n");
        assert_eq!(findings_of("crates/a/src/b.rs", &longer).len(), 1);
        for tests in ["crates/a/src/b/tests.rs", "crates/a/tests/whole.rs", "crates/a/benches/b.rs"]
        {
            assert!(findings_of(tests, &longer).is_empty(), "{tests}");
        }
    }

    #[test]
    fn meaningless_names_are_found() {
        for name in ["mod", "utils", "common", "helpers", "misc"] {
            assert_eq!(findings_of(&format!("crates/a/src/{name}.rs"), "").len(), 1, "{name}");
        }
        assert!(findings_of("crates/a/src/model.rs", "").is_empty());
        assert!(findings_of("docs/common.md", "").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for place in MACHINE_DIRECTORIES {
            let line = format!("see \"/{place}/alice/notes\"");
            assert_eq!(findings_of("README.md", &line).len(), 1, "{line}");
            let url = format!("https://example.org/{place}/notes");
            assert!(findings_of("README.md", &url).is_empty(), "{url}");
        }
        assert!(findings_of("README.md", "the HOME directory, /var/lib/kubelet").is_empty());
    }
}
