//! `SecretProviderClass` of the Secrets Store CSI driver.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::namespaced_kind::namespaced_kind;
use crate::parameters::{ParameterProblems, ProviderParameters};

/// A SecretProviderClass: the provider that supplies the files of a volume, and its parameters.
///
/// API `secrets-store.csi.x-k8s.io/v1`. The schema has no required fields, and the status is not
/// used. Unknown fields are preserved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretProviderClass {
    /// Always [`SecretProviderClass::API_VERSION`] in objects that lanyard writes.
    #[serde(default)]
    pub api_version: String,
    /// Always [`SecretProviderClass::KIND`] in objects that lanyard writes.
    #[serde(default)]
    pub kind: String,
    /// Name, namespace, labels, annotations, owners.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The provider and its parameters.
    #[serde(default)]
    pub spec: SecretProviderClassSpec,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// `spec` of a [`SecretProviderClass`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretProviderClassSpec {
    /// The name of the provider, which is also the name of its socket; `azure` for Key Vault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's parameters; [`ProviderParameters`] parses and renders those of `azure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
    /// Kubernetes Secrets to synchronize with the mounted files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_objects: Vec<SecretObject>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A Kubernetes Secret to synchronize with mounted files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretObject {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// The type of the Secret, such as `Opaque` or `kubernetes.io/tls`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub secret_type: Option<String>,
    /// Labels of the Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Secret.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The files to copy, each with its key in the Secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub data: Vec<SecretObjectData>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

/// A mounted file that is copied to a key of a Secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretObjectData {
    /// The path of the file in the mount: the alias or the name of the object, followed by
    /// `/<index>` for one version of a history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_name: Option<String>,
    /// The key in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Fields that this type does not define, preserved as they were read.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl SecretProviderClass {
    /// `apiVersion`.
    pub const API_VERSION: &str = "secrets-store.csi.x-k8s.io/v1";
    /// `kind`.
    pub const KIND: &str = "SecretProviderClass";
    /// The name of the Azure Key Vault provider.
    pub const AZURE_PROVIDER: &str = "azure";

    /// Creates a class for Azure Key Vault with these parameters.
    pub fn for_azure(metadata: ObjectMeta, parameters: &ProviderParameters) -> Self {
        Self {
            api_version: Self::API_VERSION.to_owned(),
            kind: Self::KIND.to_owned(),
            metadata,
            spec: SecretProviderClassSpec {
                provider: Some(Self::AZURE_PROVIDER.to_owned()),
                parameters: Some(parameters.to_parameters()),
                ..SecretProviderClassSpec::default()
            },
            unknown: Map::new(),
        }
    }

    /// Parses the parameters of a class for Azure Key Vault. Does not check that `spec.provider` is
    /// `azure`.
    ///
    /// # Errors
    /// Returns every problem of the parameters.
    pub fn parse_parameters(&self) -> Result<ProviderParameters, ParameterProblems> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        ProviderParameters::parse(self.spec.parameters.as_ref().unwrap_or(&NONE))
    }
}

namespaced_kind!(SecretProviderClass, "secrets-store.csi.x-k8s.io", "v1", "secretproviderclasses");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        let text = serde_json::json!({
            "apiVersion": SecretProviderClass::API_VERSION,
            "kind": SecretProviderClass::KIND,
            "metadata": {"name": "c", "namespace": "n"},
            "spec": {
                "provider": "azure",
                "parameters": {"keyvaultName": "kv"},
                "secretObjects": [{
                    "secretName": "s", "type": "Opaque", "future": 1,
                    "data": [{"objectName": "a", "key": "b", "newer": true}],
                }],
                "later": {"x": [1]},
            },
            "status": {},
        });
        let class: SecretProviderClass = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&class).unwrap(), text);
    }

    #[test]
    fn a_class_without_a_spec_is_read_and_lacks_every_parameter() {
        let class: SecretProviderClass = serde_json::from_str("{}").unwrap();
        assert!(class.parse_parameters().is_err());
    }
}
