//! `cargo deny`: bans, licences and sources. Its advisories need a database that is not ours.

use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;
use crate::tools;

pub(crate) fn check(house: &Repository) -> Result<(), TaskError> {
    let binaries = tools::cargo_tool(house, tools::CARGO_DENY)?;
    let mut command = house.cargo();
    command.env("PATH", house.path_with_prefix(&binaries));
    command.args(["deny", "--locked", "--all-features", "check", "bans", "licenses", "sources"]);
    process::run(&mut command)
}
