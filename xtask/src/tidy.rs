//! `cargo xtask tidy`: habits that no lint sees.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::TaskError;
use crate::house::House;
use crate::process;

/// The longest file, in lines that are not tests.
const LONGEST_FILE: usize = 600;

/// Module names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "common", "helpers", "misc"];

/// Directories that are built, installed, generated or kept by tools.
const NOT_OURS: [&str; 8] =
    [".git", "target", ".venv", "node_modules", "__pycache__", "artifacts", "corpus", "generated"];

/// Files that people wrote.
const TEXT: [&str; 9] = ["rs", "toml", "md", "yaml", "yml", "json", "py", "go", "sh"];

/// First directories of paths that exist on one machine only.
const MACHINE_PLACES: [&str; 3] = ["home", "Users", "work"];

/// Checks every file of the repository; returns how many there were.
pub(crate) fn check(house: &House) -> Result<usize, TaskError> {
    let files = files(house.root())?;
    let mut findings = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).map_err(|source| TaskError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        let relative = path.strip_prefix(house.root()).unwrap_or(path);
        findings.extend(findings_in(relative, &text));
    }
    if findings.is_empty() {
        process::say(&format!("{} files are tidy", files.len()));
        return Ok(files.len());
    }
    Err(TaskError::Findings { check: "untidy places", findings })
}

/// The text files of the repository that people wrote, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    let unreadable =
        |source| TaskError::File { action: "list", path: directory.to_path_buf(), source };
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let path = entry.path();
        let kind = entry.file_type().map_err(unreadable)?;
        let name = entry.file_name();
        if kind.is_dir() {
            if !NOT_OURS.iter().any(|it| name.to_str() == Some(it)) {
                collect(&path, files)?;
            }
        } else if kind.is_file() && is_text(&path) {
            files.push(path);
        }
    }
    Ok(())
}

fn is_text(path: &Path) -> bool {
    path.extension().and_then(|it| it.to_str()).is_some_and(|it| TEXT.contains(&it))
}

fn findings_in(path: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let place = path.display();
    if path.extension().is_some_and(|it| it == "rs") {
        let stem = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default();
        if stem == "mod" {
            found.push(format!("{place}: write `foo.rs` beside `foo/`, not `mod.rs`"));
        }
        if EMPTY_NAMES.contains(&stem) {
            found.push(format!("{place}: `{stem}` does not say what is inside"));
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

/// Whether a file has tests or benchmarks only.
pub(crate) fn is_test_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|it| it == "tests")
        || path.components().any(|part| {
            part.as_os_str().to_str().is_some_and(|it| matches!(it, "tests" | "benches"))
        })
}

/// Counts the lines before an inline test module; files of tests count as none.
pub(crate) fn lines_without_tests(path: &Path, text: &str) -> usize {
    if is_test_file(path) {
        return 0;
    }
    let lines: Vec<&str> = text.lines().collect();
    lines
        .windows(2)
        .position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "))
        .unwrap_or(lines.len())
}

fn machine_path(line: &str) -> Option<String> {
    MACHINE_PLACES.iter().map(|place| format!("/{place}/")).find(|path| {
        line.match_indices(path.as_str()).any(|(start, _)| is_path_start(&line[..start]))
    })
}

/// A path begins after a blank, a quote, a bracket or a separator, not inside another path or URL.
fn is_path_start(before: &str) -> bool {
    before.chars().next_back().is_none_or(|it| !it.is_alphanumeric() && !"/.-_}*~".contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        findings_in(Path::new(path), text)
    }

    #[test]
    fn long_files_are_found_and_their_tests_do_not_count() {
        let code = "fn a() {}\n".repeat(LONGEST_FILE);
        assert!(found("crates/a/src/b.rs", &code).is_empty());
        let with_tests = format!("{code}#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(found("crates/a/src/b.rs", &with_tests).is_empty());
        let longer = format!("{code}fn b() {{}}\n");
        assert_eq!(found("crates/a/src/b.rs", &longer).len(), 1);
        for tests in ["crates/a/src/b/tests.rs", "crates/a/tests/whole.rs", "crates/a/benches/b.rs"]
        {
            assert!(found(tests, &longer).is_empty(), "{tests}");
        }
    }

    #[test]
    fn names_that_say_nothing_are_found() {
        for name in ["mod", "utils", "common", "helpers", "misc"] {
            assert_eq!(found(&format!("crates/a/src/{name}.rs"), "").len(), 1, "{name}");
        }
        assert!(found("crates/a/src/model.rs", "").is_empty());
        assert!(found("docs/common.md", "").is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        for place in MACHINE_PLACES {
            let line = format!("see \"/{place}/somebody/notes\"");
            assert_eq!(found("README.md", &line).len(), 1, "{line}");
            let url = format!("https://example.org/{place}/notes");
            assert!(found("README.md", &url).is_empty(), "{url}");
        }
        assert!(found("README.md", "the HOME directory, /var/lib/kubelet").is_empty());
    }
}
