//! Manifests of the SecretProviderClasses that the suites create.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client_program::ClientInputs;

/// The identity mode of a SecretProviderClass, as its parameters select it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClassIdentityMode {
    /// `useVMManagedIdentity`
    ManagedIdentity,
    /// `clientID` and a ServiceAccount token
    WorkloadIdentity,
    /// `useAzureTokenProxy`, `clientID` and a ServiceAccount token
    IdentityBinding,
    /// `nodePublishSecretRef`
    ServicePrincipal,
}

/// A SecretProviderClass for a vault.
pub(crate) fn class_manifest(
    namespace: &str,
    name: &str,
    provider: &str,
    mode: ClassIdentityMode,
    inputs: &ClientInputs,
    objects: &[String],
) -> Value {
    let client = inputs.client.as_str();
    let entries: Vec<String> = objects.iter().map(|object| format!("  - |\n{object}")).collect();
    let mut parameters = BTreeMap::from([
        ("keyvaultName", vault_name(&inputs.vault)),
        ("tenantID", inputs.tenant.clone()),
        ("objects", format!("array:\n{}\n", indent_entries(&entries))),
    ]);
    match mode {
        ClassIdentityMode::ManagedIdentity => {
            parameters.insert("useVMManagedIdentity", "true".to_owned());
            parameters.insert("userAssignedIdentityID", client.to_owned());
        }
        ClassIdentityMode::WorkloadIdentity => {
            parameters.insert("clientID", client.to_owned());
        }
        ClassIdentityMode::IdentityBinding => {
            parameters.insert("clientID", client.to_owned());
            parameters.insert("useAzureTokenProxy", "true".to_owned());
        }
        ClassIdentityMode::ServicePrincipal => {}
    }
    json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "provider": provider, "parameters": parameters },
    })
}

/// Indents the lines of each entry below its `|`.
fn indent_entries(entries: &[String]) -> String {
    let lines = entries.iter().flat_map(|entry| {
        let (bar, body) = entry.split_once('\n').unwrap_or((entry, ""));
        std::iter::once(bar.to_owned())
            .chain(body.lines().map(|line| format!("    {}", line.trim())))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The vault's name: the first label of its host.
fn vault_name(url: &str) -> String {
    let host = url.trim_start_matches("https://");
    host.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_manifest_contains_vault_and_objects() {
        let inputs = ClientInputs {
            tenant: "t".to_owned(),
            client: "c".to_owned(),
            vault: "https://harbour.vault.azure.net".to_owned(),
            ..ClientInputs::default()
        };
        let objects = ["objectName: a\nobjectType: secret", "objectName: b\nobjectType: key"]
            .map(str::to_owned);
        let class = class_manifest(
            "n",
            "s",
            "azure",
            ClassIdentityMode::ManagedIdentity,
            &inputs,
            &objects,
        );
        let parameters = &class["spec"]["parameters"];
        assert_eq!(parameters["keyvaultName"], "harbour");
        assert_eq!(parameters["userAssignedIdentityID"], "c");
        let expected = "array:\n  - |\n    objectName: a\n    objectType: secret\n  - |\n    objectName: b\n    objectType: key\n";
        assert_eq!(parameters["objects"], expected);
    }
}
