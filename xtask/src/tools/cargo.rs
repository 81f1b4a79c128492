//! Cargo subcommands from the crate registry.

use std::path::PathBuf;

use super::Installed;
use super::cache::in_place;
use crate::failure::TaskError;
use crate::house::House;
use crate::process;

/// A cargo subcommand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CargoTool {
    name: &'static str,
    version: &'static str,
}

pub(crate) const CARGO_DENY: CargoTool = CargoTool { name: "cargo-deny", version: "0.20.2" };
pub(crate) const CARGO_FUZZ: CargoTool = CargoTool { name: "cargo-fuzz", version: "0.13.2" };

/// The directory that holds the program of a cargo subcommand.
pub(crate) fn cargo_tool(house: &House, tool: CargoTool) -> Result<PathBuf, TaskError> {
    let place = house.tool(tool.name, tool.version);
    in_place(&place, |root| {
        let mut command = house.cargo();
        // They run for seconds, and a released build of them takes minutes. In a directory of their
        // own they wait for nobody who builds in the workspace's.
        command.env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.args(["install", tool.name, "--debug", "--version", tool.version, "--locked"]);
        command.arg("--target-dir").arg(house.target().join("tools"));
        command.arg("--root");
        command.arg(root);
        process::run(&mut command)
    })?;
    Ok(place.join("bin"))
}

pub(super) fn install(house: &House, tool: CargoTool) -> Result<Installed, TaskError> {
    let path = cargo_tool(house, tool)?.join(tool.name);
    Ok(Installed { version: tool.version.to_owned(), path })
}
