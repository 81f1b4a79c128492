//! `cargo xtask book`: builds the book from `docs` with mdBook, and checks every link of the documentation.

use std::process::Command;

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

/// The pages outside of the book.
const OTHER_PAGES: [&str; 6] = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "charts/*/README.md",
    "conformance/README.md",
];

/// Builds the book in the target directory, and then checks the links of all pages. Links to web sites are
/// not followed.
pub(crate) fn build(repository: &Repository) -> Result<(), TaskError> {
    let output = repository.target_directory().join("book");
    let mut mdbook = Command::new(tools::cargo_tool(repository, tools::MDBOOK)?.join("mdbook"));
    mdbook.args(["build", "docs", "--dest-dir"]).arg(&output);
    process::run(mdbook.current_dir(repository.root()))?;
    check_links(repository)?;
    process::print_line(&format!("the book is in {}", output.display()));
    Ok(())
}

fn check_links(repository: &Repository) -> Result<(), TaskError> {
    let mut lychee = Command::new(tools::cargo_tool(repository, tools::LYCHEE)?.join("lychee"));
    lychee.args(["--offline", "--include-fragments", "--no-progress", "docs/**/*.md"]);
    process::run(lychee.args(OTHER_PAGES).current_dir(repository.root()))
}
