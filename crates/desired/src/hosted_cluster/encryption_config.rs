//! The roles of the KMS keys, and the API server's `EncryptionConfiguration`.
//!
//! Source: HyperShift's control plane operator; `EncryptionConfiguration` of
//! `apiserver.config.k8s.io/v1`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use lanyard_api::HostedCluster;
use serde_json::Value;

use super::kms_api_version::KmsApiVersion;
use super::render_context::{RenderContext, object_metadata};
use super::{EncryptionKey, KmsEncryption, ValidatedHostedCluster};
use crate::hash::{fnv1a, go_json_string};

#[cfg(test)]
mod tests;

/// The name of the Secret with the `EncryptionConfiguration`.
pub const ENCRYPTION_CONFIG_SECRET: &str = "kas-secret-encryption-config";
/// The key in the Secret.
pub const ENCRYPTION_CONFIG_KEY: &str = "config.yaml";

/// The resources that the API server encrypts.
const ENCRYPTED_RESOURCES: [&str; 5] = [
    "secrets",
    "configmaps",
    "routes.route.openshift.io",
    "oauthaccesstokens.oauth.openshift.io",
    "oauthauthorizetokens.oauth.openshift.io",
];

/// The role of a KMS key. Sockets and ports belong to the role and provider names to the key, so a
/// key that is promoted moves from one socket to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// The key encrypts and decrypts.
    Active,
    /// The key only decrypts.
    Backup,
}

impl KeyRole {
    /// Returns the name of the KMS plugin's container.
    pub const fn container_name(self) -> &'static str {
        match self {
            Self::Active => "azure-kms-provider-active",
            Self::Backup => "azure-kms-provider-backup",
        }
    }

    /// Returns the socket on which the KMS plugin listens.
    pub const fn socket_endpoint(self) -> &'static str {
        match self {
            Self::Active => "unix:///opt/azurekmsactive.socket",
            Self::Backup => "unix:///opt/azurekmsbackup.socket",
        }
    }

    /// Returns the port of the plugin's health endpoints.
    pub const fn health_port(self) -> u16 {
        match self {
            Self::Active => 8787,
            Self::Backup => 8788,
        }
    }

    /// Returns the port of the plugin's metrics.
    pub const fn metrics_port(self) -> u16 {
        match self {
            Self::Active => 8095,
            Self::Backup => 8096,
        }
    }
}

impl KmsEncryption {
    /// Returns the keys with their roles.
    pub fn keys(&self) -> impl Iterator<Item = (KeyRole, &EncryptionKey)> {
        let backup = self.backup_key.iter().map(|key| (KeyRole::Backup, key));
        std::iter::once((KeyRole::Active, &self.active_key)).chain(backup)
    }

    /// Returns the name of a key's provider in the configuration: `azure-` and a hash of vault,
    /// name and version. Every encrypted value contains this name.
    pub fn provider_name(&self, key: &EncryptionKey) -> String {
        let field = |name: &str, value: &str| format!("\"{name}\":{}", go_json_string(value));
        let mut fields = vec![
            field("keyVaultName", key.vault.as_str()),
            field("keyName", key.name.as_str()),
            field("keyVersion", key.version.as_str()),
        ];
        if self.is_managed_hsm {
            fields.push(field("keyVaultType", "ManagedHSM"));
        }
        format!("azure-{}", fnv1a(format!("{{{}}}", fields.join(",")).as_bytes()))
    }
}

/// Returns the Secret with the API server's configuration, if a key encrypts.
pub(crate) fn desired_encryption_config(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Option<Secret> {
    let encryption = cluster.encryption.as_ref()?;
    cluster.identities.get(&lanyard_vocabulary::Component::Kms)?;
    let text = render_encryption_config(encryption, names.kms_api_version);
    let text = ByteString(text.into_bytes());
    Some(Secret {
        metadata: object_metadata(cluster, names, ENCRYPTION_CONFIG_SECRET),
        data: Some(BTreeMap::from([(ENCRYPTION_CONFIG_KEY.to_owned(), text)])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

/// Renders YAML as HyperShift's encoder does: sorted keys, lists not indented.
fn render_encryption_config(encryption: &KmsEncryption, api_version: KmsApiVersion) -> String {
    let mut lines = vec![
        "apiVersion: apiserver.config.k8s.io/v1".to_owned(),
        "kind: EncryptionConfiguration".to_owned(),
        "resources:".to_owned(),
        "- providers:".to_owned(),
    ];
    for (part, key) in encryption.keys() {
        lines.extend([
            "  - kms:".to_owned(),
            format!("      apiVersion: {}", api_version.name()),
            format!("      endpoint: {}", part.socket_endpoint()),
            format!("      name: {}", encryption.provider_name(key)),
            "      timeout: 35s".to_owned(),
        ]);
    }
    lines.extend(["  - identity: {}".to_owned(), "  resources:".to_owned()]);
    lines.extend(ENCRYPTED_RESOURCES.iter().map(|name| format!("  - {name}")));
    lines.join("\n") + "\n"
}

/// Returns the cluster with its keys in their current roles.
///
/// Without `status.secretEncryption.activeKey`, the spec determines the roles. With it, the status
/// does, and `backupKey` of the spec is ignored: while a rotation starts, and while a key change in
/// the spec is not yet recorded, the old key encrypts and the new one only decrypts. After the
/// promotion the roles are reversed. No API server therefore meets a value that it cannot decrypt,
/// whether it already has the new configuration or not.
pub(crate) fn with_key_roles(
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
) -> ValidatedHostedCluster {
    let mut cluster = cluster.clone();
    let status = wire.unknown.get("status").and_then(|status| status.get("secretEncryption"));
    if let (Some(encryption), Some(status)) = (&mut cluster.encryption, status)
        && let Some(known) = read_status_key(status, "activeKey")
    {
        let target =
            read_status_key(status, "targetKey").unwrap_or_else(|| encryption.active_key.clone());
        let (active, backup) = if target == known {
            (known, None)
        } else if is_promoted(status) {
            (target, Some(known))
        } else {
            (known, Some(target))
        };
        encryption.active_key = active;
        encryption.backup_key = backup;
    }
    cluster
}

/// Returns whether the current rotation has promoted its key.
pub(super) fn is_promoted(status: &Value) -> bool {
    let state = status.pointer("/history/0/state").and_then(Value::as_str);
    status.get("targetKey").is_some() && matches!(state, Some("WritePromote" | "Migrating"))
}

/// Reads a vault key from the status. An invalid key counts as absent: controllers write the
/// status, while the spec was validated.
pub(super) fn read_status_key(status: &Value, field: &str) -> Option<EncryptionKey> {
    let azure = status.get(field)?.get("azure")?;
    let text = |name: &str| azure.get(name).and_then(Value::as_str);
    Some(EncryptionKey {
        vault: text("keyVaultName")?.parse().ok()?,
        name: text("keyName")?.parse().ok()?,
        version: text("keyVersion")?.parse().ok()?,
    })
}
