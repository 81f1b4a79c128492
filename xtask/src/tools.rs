//! `cargo xtask tools`: installs third-party programs into the tool cache, by version.
//!
//! A tool is installed when it is first needed, outside of the repository. The table below lists all tools;
//! each kind of source has one file that installs from it.

mod cache;
mod cargo;
mod clients;
mod debian;
mod go;
mod maven;
mod node_tools;
mod npm;
mod test_images;

use std::path::PathBuf;

pub(crate) use self::cargo::{CARGO_DENY, CARGO_NEXTEST, LYCHEE, MDBOOK, cargo_tool};
pub(crate) use self::clients::{azure_cli, go_clients, python_clients, rust_clients};
pub(crate) use self::debian::chromium;
pub(crate) use self::go::{go_command, go_program};
pub(crate) use self::maven::java_clients;
pub(crate) use self::node_tools::{KubernetesVersion, node_programs};
pub(crate) use self::npm::{axe_script, azurite_blob_script, has_node, js_clients};
use crate::process;
use crate::repository::Repository;
use crate::task_error::TaskError;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tools to install [default: all tools that CI needs]
    names: Vec<String>,
}

/// An installed tool.
#[derive(Debug)]
pub(crate) struct InstalledTool {
    /// The version as its source spells it, or a fingerprint of its pins.
    pub(crate) version: String,
    /// The program, or the directory of several programs.
    pub(crate) path: PathBuf,
}

struct ToolDefinition {
    name: &'static str,
    /// Whether the tool is installed only when it is named.
    on_demand: bool,
    install: Box<InstallFn>,
}

type InstallFn = dyn Fn(&Repository) -> Result<InstalledTool, TaskError>;

fn all_tools() -> Vec<ToolDefinition> {
    let mut tools = vec![
        required_tool("cargo-deny", |repository| cargo::install(repository, CARGO_DENY)),
        ToolDefinition {
            on_demand: true,
            ..required_tool("cargo-nextest", |repository| cargo::install(repository, CARGO_NEXTEST))
        },
        required_tool("lychee", |repository| cargo::install(repository, LYCHEE)),
        required_tool("mdbook", |repository| cargo::install(repository, MDBOOK)),
    ];
    tools.extend(go::RECIPES.iter().map(|recipe| ToolDefinition {
        name: recipe.name,
        on_demand: recipe.on_demand,
        install: Box::new(move |repository| go::install(repository, recipe)),
    }));
    tools.push(required_tool("containers", debian::install_containers));
    tools.push(required_tool("chromium", debian::install_chromium));
    tools.push(required_tool("axe-core", npm::install_axe));
    tools.push(required_tool("images", test_images::install));
    tools.push(required_tool("go-clients", clients::install_go_clients));
    tools.push(required_tool("python-clients", clients::install_python_clients));
    tools.push(required_tool("azure-cli", clients::install_azure_cli));
    tools.push(required_tool("rust-clients", clients::install_rust_clients));
    tools.push(required_tool("java-clients", maven::install_java_clients));
    tools.push(required_tool("js-clients", npm::install_js_clients));
    tools
        .push(ToolDefinition { on_demand: true, ..required_tool("azurite", npm::install_azurite) });
    tools
}

fn required_tool(
    name: &'static str,
    install: impl Fn(&Repository) -> Result<InstalledTool, TaskError> + 'static,
) -> ToolDefinition {
    ToolDefinition { name, on_demand: false, install: Box::new(install) }
}

/// Installs all tools that CI needs.
pub(crate) fn install_all(repository: &Repository) -> Result<(), TaskError> {
    run(repository, &Args { names: Vec::new() })
}

pub(crate) fn run(repository: &Repository, arguments: &Args) -> Result<(), TaskError> {
    let tools = all_tools();
    let known = || tools.iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
    let unknown = arguments.names.iter().find(|name| !tools.iter().any(|it| it.name == *name));
    if let Some(name) = unknown {
        return Err(TaskError::Unknown { what: "tool", name: name.clone(), known: known() });
    }
    for tool in &tools {
        let wanted = if arguments.names.is_empty() {
            !tool.on_demand
        } else {
            arguments.names.iter().any(|name| name == tool.name)
        };
        if wanted {
            let InstalledTool { version, path } = (tool.install)(repository)?;
            process::print_line(&format!("{} {version} {}", tool.name, path.display()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_unique() {
        let mut names: Vec<_> = all_tools().iter().map(|it| it.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn unknown_tool_error_lists_known_tools() {
        let repository =
            Repository::from_environment().expect("the tests run inside the repository");
        let arguments = Args { names: vec!["cargo-denial".to_owned()] };
        let error = run(&repository, &arguments).expect_err("there is no such tool");
        assert!(error.to_string().contains("cargo-deny, cargo-nextest"), "{error}");
    }
}
