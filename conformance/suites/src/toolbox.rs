//! Programs of other projects, by their names in the tool cache.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// A command-line argument of the form `NAME=PATH`.
#[derive(Debug, Clone)]
pub(crate) struct NamedTool {
    name: String,
    path: PathBuf,
}

/// The argument does not have the form `NAME=PATH`.
#[derive(Debug, Error)]
#[error("`{0}` is not NAME=PATH")]
pub(crate) struct ParseNamedToolError(String);

impl FromStr for NamedTool {
    type Err = ParseNamedToolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Self { name: name.to_owned(), path: PathBuf::from(path) })
            }
            _ => Err(ParseNamedToolError(text.to_owned())),
        }
    }
}

/// A program that the suite needs was not given.
#[derive(Debug, Error)]
#[error("the suite needs `--tool {0}=PATH`")]
pub(crate) struct MissingTool(&'static str);

/// The programs of a suite.
#[derive(Debug, Clone, Default)]
pub(crate) struct Toolbox(BTreeMap<String, PathBuf>);

impl Toolbox {
    /// Collects the programs that were given. A later program overrides an earlier one of its name.
    pub(crate) fn new(tools: &[NamedTool]) -> Self {
        Self(tools.iter().map(|tool| (tool.name.clone(), tool.path.clone())).collect())
    }

    pub(crate) fn program_path(&self, name: &'static str) -> Result<&Path, MissingTool> {
        self.0.get(name).map(PathBuf::as_path).ok_or(MissingTool(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_by_name_and_missing_ones_are_reported() {
        let tools: Vec<NamedTool> =
            ["helm=/a/helm", "helm=/b/helm"].map(|it| it.parse().expect("it is one")).to_vec();
        let toolbox = Toolbox::new(&tools);
        assert_eq!(toolbox.program_path("helm").expect("it is there"), Path::new("/b/helm"));
        let absent = toolbox.program_path("etcd").expect_err("it is not there");
        assert!(absent.to_string().contains("--tool etcd="), "{absent}");
        for wrong in ["helm", "=/a", "helm="] {
            assert!(wrong.parse::<NamedTool>().is_err(), "{wrong}");
        }
    }
}
