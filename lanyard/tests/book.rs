//! The command blocks of the tutorials and how-to guides, as `docs/SUMMARY.md` lists them.
//!
//! A block with the info string `console` runs here, in a directory that contains only `examples/`. `TRYCMD=overwrite`
//! writes the actual output into the page. Blocks that cannot run here are marked with `ignore` and a reason.

#![cfg(all(feature = "cli", feature = "emulator", feature = "node"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
#![expect(clippy::disallowed_methods, reason = "the commands of the pages need PATH")]

use std::path::{Path, PathBuf};

/// Why a command block may be ignored here.
const REASONS: [&str; 4] = [
    // A conformance suite runs the block.
    "suite",
    "needs-azure",
    "needs-cluster",
    "needs-azure-cli",
];

#[test]
fn every_command_of_the_book_prints_what_the_page_shows() {
    // Commands within `lanyard azure run` may be `lanyard` itself.
    let programs = Path::new(env!("CARGO_BIN_EXE_lanyard")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    for page in task_pages() {
        // The blocks of a page share the state directories that they create; pages do not.
        let directory = tempfile::tempdir().unwrap();
        let examples = directory.path().join("examples");
        std::os::unix::fs::symlink(repository().join("examples"), examples).unwrap();
        std::env::set_current_dir(directory.path()).unwrap();
        trycmd::TestCases::new().env("PATH", &path).case(page).run();
    }
}

#[test]
fn every_ignored_command_block_has_a_reason() {
    for page in task_pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let fences = text.lines().filter_map(|line| line.trim_start().strip_prefix("```"));
        for info in fences.step_by(2) {
            let mut parts = info.split(',');
            let language = parts.next().unwrap_or_default();
            let marks: Vec<&str> = parts.collect();
            assert!(
                !["", "sh", "bash", "shell"].contains(&language),
                "{}: `{info}`",
                page.display()
            );
            let is_known = match marks.as_slice() {
                [] => true,
                ["ignore", reason] => language == "console" && REASONS.contains(reason),
                _ => false,
            };
            assert!(is_known, "{}: `{info}`", page.display());
        }
    }
}

/// The pages with commands for a reader to run.
fn task_pages() -> Vec<PathBuf> {
    let docs = repository().join("docs");
    let mut pages = Vec::new();
    for directory in ["tutorial", "how-to"] {
        let entries = std::fs::read_dir(docs.join(directory)).unwrap();
        pages.extend(entries.map(|entry| entry.unwrap().path()));
    }
    pages.sort();
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}
