//! Detection of credentials that several hosted clusters of one management cluster share.
//!
//! One node identity reads the vault for all hosted clusters. The names of vault and secret are
//! therefore the only boundary between tenants, and users control both names.

use std::collections::BTreeMap;

use super::ValidatedHostedCluster;
use crate::problem::ValidationProblems;

/// Lints every credential that a cluster shares with an earlier cluster in the list. Vault and
/// secret names are compared case-insensitively, as Azure does. The order of the clusters decides
/// only which cluster gets the lint. The field of a lint begins with the cluster's
/// `<namespace>/<name>`.
pub fn lint_shared_credentials<'a>(
    clusters: impl IntoIterator<Item = &'a ValidatedHostedCluster>,
) -> ValidationProblems {
    let mut owners: BTreeMap<(String, String), &ValidatedHostedCluster> = BTreeMap::new();
    let mut problems = ValidationProblems::default();
    for cluster in clusters {
        for (component, identity) in cluster.running_components() {
            let vault = cluster.vault.name.as_str().to_ascii_lowercase();
            let secret = identity.secret_name.as_str().to_ascii_lowercase();
            let owner = *owners.entry((vault, secret)).or_insert(cluster);
            if owner.namespaced_name() == cluster.namespaced_name() {
                continue;
            }
            problems.lint(
                format!("{}: {}", cluster.namespaced_name(), component.field_path()),
                format!(
                    "the secret `{}` of the vault `{}` is a credential of `{}` too",
                    identity.secret_name,
                    cluster.vault.name,
                    owner.namespaced_name()
                ),
                "use separate identities and secrets for each cluster",
            );
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture::{CONTROL_PLANE, example_with_changes, validated_cluster};

    fn example_named(name: &str, changes: &[(String, Value)]) -> ValidatedHostedCluster {
        let mut all = vec![("/metadata/name".to_owned(), json!(name))];
        all.extend_from_slice(changes);
        validated_cluster(&example_with_changes(&all))
    }

    #[test]
    fn a_credential_of_another_cluster_is_linted_whatever_its_case() {
        let secret = |name: &str| {
            let rename = |component: &str| {
                let field = format!("{CONTROL_PLANE}/{component}/credentialsSecretName");
                (field, json!(format!("{name}-{component}")))
            };
            ["cloudProvider", "nodePoolManagement", "controlPlaneOperator", "imageRegistry"]
                .into_iter()
                .chain(["ingress", "network", "disk"])
                .map(rename)
                .collect::<Vec<_>>()
        };
        let one = example_named("one", &[]);
        let mut changes = secret("two");
        changes
            .push((format!("{CONTROL_PLANE}/file/credentialsSecretName"), json!("HARBOUR-FILE")));
        changes.push(("/spec/secretEncryption".to_owned(), Value::Null));
        let two = example_named("two", &changes);
        let problems = lint_shared_credentials([&one, &two]);
        let found: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "clusters/two: spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.file: the secret `HARBOUR-FILE` of the vault `harbour-identities` is a credential of `clusters/one` too"
            ]
        );
    }

    #[test]
    fn the_same_name_in_another_vault_is_another_credential() {
        let vault = format!("{CONTROL_PLANE}/managedIdentitiesKeyVault/name");
        let (one, two) =
            (example_named("one", &[]), example_named("two", &[(vault, json!("another"))]));
        assert_eq!(lint_shared_credentials([&one, &two]), ValidationProblems::default());
        assert_eq!(lint_shared_credentials([&one, &one]), ValidationProblems::default());
    }
}
