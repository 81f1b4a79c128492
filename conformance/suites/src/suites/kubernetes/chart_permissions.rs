//! The permissions that the node chart grants, read from its golden files.

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use crate::file_error::FileError;

/// The rules of the chart's `ClusterRoles`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChartPermissions {
    /// The rules of every node plugin.
    pub(crate) base_rules: Value,
    /// The additional rules for syncing Secrets.
    pub(crate) secret_sync_rules: Value,
}

/// The rules could not be read from the golden files.
#[derive(Debug, Error)]
pub(crate) enum ChartPermissionsError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} holds no ClusterRole {name} with rules", path.display())]
    NoRole { path: PathBuf, name: &'static str },
}

impl ChartPermissions {
    /// Loads the rules from the directory of golden files, which the suite `chart` compares with the chart.
    pub(crate) fn load(rendered: &Path) -> Result<Self, ChartPermissionsError> {
        let of = |file: &str, name| {
            let path = rendered.join(file);
            let text = std::fs::read_to_string(&path).map_err(FileError::of("read", &path))?;
            role_rules(&text, name).ok_or(ChartPermissionsError::NoRole { path, name })
        };
        Ok(Self {
            base_rules: of("defaults.golden.yaml", "kube-system-conformance-lanyard-node")?,
            secret_sync_rules: of("everything.golden.yaml", "kube-system-plugin-sync")?,
        })
    }

    /// The additional rules without the one for Secrets.
    pub(crate) fn secret_sync_rules_without_secrets(&self) -> Value {
        let rules = self.secret_sync_rules.as_array().cloned().unwrap_or_default();
        let names_secrets = |rule: &Value| {
            rule["resources"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == "secrets"))
        };
        rules.into_iter().filter(|rule| !names_secrets(rule)).collect()
    }
}

/// The rules of a ClusterRole in a stream of YAML documents.
fn role_rules(text: &str, name: &str) -> Option<Value> {
    let roles = text.split("---\n").filter(|it| it.contains("\nkind: ClusterRole\n"));
    let roles = roles.filter_map(|role| serde_saphyr::from_str::<Value>(role).ok());
    let mut rules = roles.filter(|role| role["metadata"]["name"] == name);
    let rules = rules.next()?["rules"].take();
    rules.as_array().is_some_and(|it| !it.is_empty()).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_rules_are_loaded_and_secret_rules_can_be_omitted() {
        let rendered = concat!(env!("CARGO_MANIFEST_DIR"), "/../kubernetes/chart");
        let rights = ChartPermissions::load(Path::new(rendered)).unwrap();
        assert!(rights.base_rules.to_string().contains("secretproviderclasses"));
        assert!(rights.secret_sync_rules.to_string().contains("secrets"));
        let without = rights.secret_sync_rules_without_secrets();
        assert!(!without.to_string().contains("\"secrets\""), "{without}");
        assert!(without.to_string().contains("pods"), "{without}");
    }
}
