//! Objects of the Kubernetes API that the suites write: SecretProviderClasses and Secrets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::program::Inputs;

/// How a volume proves who it is, as the parameters of a class say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
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
pub(crate) fn class(
    namespace: &str,
    name: &str,
    provider: &str,
    mode: Mode,
    inputs: &Inputs,
    objects: &[String],
) -> Value {
    let client = inputs.client.as_str();
    let entries: Vec<String> = objects.iter().map(|object| format!("  - |\n{object}")).collect();
    let mut parameters = BTreeMap::from([
        ("keyvaultName", vault_name(&inputs.vault)),
        ("tenantID", inputs.tenant.clone()),
        ("objects", format!("array:\n{}\n", indented(&entries))),
    ]);
    match mode {
        Mode::ManagedIdentity => {
            parameters.insert("useVMManagedIdentity", "true".to_owned());
            parameters.insert("userAssignedIdentityID", client.to_owned());
        }
        Mode::WorkloadIdentity => {
            parameters.insert("clientID", client.to_owned());
        }
        Mode::IdentityBinding => {
            parameters.insert("clientID", client.to_owned());
            parameters.insert("useAzureTokenProxy", "true".to_owned());
        }
        Mode::ServicePrincipal => {}
    }
    json!({
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "provider": provider, "parameters": parameters },
    })
}

/// The lines of each entry below its bar.
fn indented(entries: &[String]) -> String {
    let lines = entries.iter().flat_map(|entry| {
        let (bar, body) = entry.split_once('\n').unwrap_or((entry, ""));
        std::iter::once(bar.to_owned())
            .chain(body.lines().map(|line| format!("    {}", line.trim())))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The first label of a vault's host.
fn vault_name(url: &str) -> String {
    let host = url.trim_start_matches("https://");
    host.split('.').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_names_its_vault_and_its_objects() {
        let inputs = Inputs {
            tenant: "t".to_owned(),
            client: "c".to_owned(),
            vault: "https://harbour.vault.azure.net".to_owned(),
            ..Inputs::default()
        };
        let objects = ["objectName: a\nobjectType: secret", "objectName: b\nobjectType: key"]
            .map(str::to_owned);
        let class = class("n", "s", "azure", Mode::ManagedIdentity, &inputs, &objects);
        let parameters = &class["spec"]["parameters"];
        assert_eq!(parameters["keyvaultName"], "harbour");
        assert_eq!(parameters["userAssignedIdentityID"], "c");
        let expected = "array:\n  - |\n    objectName: a\n    objectType: secret\n  - |\n    objectName: b\n    objectType: key\n";
        assert_eq!(parameters["objects"], expected);
    }
}
