//! `cargo deny`: checks bans, licences and sources. Advisories are not checked, because they need an external
//! database.

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

pub(crate) fn check(repository: &Repository) -> Result<(), TaskError> {
    let binaries = tools::cargo_tool(repository, tools::CARGO_DENY)?;
    let mut command = repository.cargo();
    command.env("PATH", repository.path_with_prefix(&binaries));
    command.args(["deny", "--locked", "--all-features", "check", "bans", "licenses", "sources"]);
    process::run(&mut command)
}
