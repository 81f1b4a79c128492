//! `cargo xtask prose`: checks the language of the documentation with Vale. Its rules are in `.vale`.

use std::process::Command;

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

/// The checked files and directories.
const DOCUMENTATION: [&str; 7] = [
    "docs",
    "charts",
    "conformance/README.md",
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
];

pub(crate) fn check(repository: &Repository) -> Result<(), TaskError> {
    let mut vale = Command::new(tools::go_program(repository, "vale")?.join("vale"));
    vale.args(["--no-global", "--glob=*.md"]).args(DOCUMENTATION);
    process::run(vale.current_dir(repository.root()))
}
