//! Which key encrypts and which only decrypts, and what the API server is told about both.
//!
//! Source: HyperShift's control plane operator; `EncryptionConfiguration` of
//! `apiserver.config.k8s.io/v1`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use lanyard_api::HostedCluster;
use serde_json::Value;

use super::render_context::{RenderContext, object_metadata};
use super::{EncryptionKey, KmsEncryption, ValidatedHostedCluster};
use crate::hash::{fnv1a, go_json_string};

#[cfg(test)]
mod tests;

/// The Secret with the configuration.
pub const ENCRYPTION_CONFIG_SECRET: &str = "kas-secret-encryption-config";
/// Its key.
pub const ENCRYPTION_CONFIG_KEY: &str = "config.yaml";

/// What is encrypted.
const ENCRYPTED_RESOURCES: [&str; 5] = [
    "secrets",
    "configmaps",
    "routes.route.openshift.io",
    "oauthaccesstokens.oauth.openshift.io",
    "oauthauthorizetokens.oauth.openshift.io",
];

/// The part of a key. Sockets and ports belong to the part and provider names to the key, so a key
/// that is promoted moves from one socket to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// It encrypts.
    Active,
    /// It still decrypts.
    Backup,
}

impl KeyRole {
    /// The container of the plugin.
    pub const fn container_name(self) -> &'static str {
        match self {
            Self::Active => "azure-kms-provider-active",
            Self::Backup => "azure-kms-provider-backup",
        }
    }

    /// Where the plugin listens.
    pub const fn socket_endpoint(self) -> &'static str {
        match self {
            Self::Active => "unix:///opt/azurekmsactive.socket",
            Self::Backup => "unix:///opt/azurekmsbackup.socket",
        }
    }

    /// The port of the plugin's health.
    pub const fn health_port(self) -> u16 {
        match self {
            Self::Active => 8787,
            Self::Backup => 8788,
        }
    }

    /// The port of the plugin's metrics.
    pub const fn metrics_port(self) -> u16 {
        match self {
            Self::Active => 8095,
            Self::Backup => 8096,
        }
    }
}

impl KmsEncryption {
    /// The keys by their part.
    pub fn keys(&self) -> impl Iterator<Item = (KeyRole, &EncryptionKey)> {
        let backup = self.backup_key.iter().map(|key| (KeyRole::Backup, key));
        std::iter::once((KeyRole::Active, &self.active_key)).chain(backup)
    }

    /// The name of a key's provider in the configuration, which is in every value that it
    /// encrypted: `azure-` and a hash of what names the key.
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

/// The Secret that the API server reads, where a key encrypts.
pub(crate) fn desired_encryption_config(
    cluster: &ValidatedHostedCluster,
    names: &RenderContext,
) -> Option<Secret> {
    let encryption = cluster.encryption.as_ref()?;
    cluster.identities.get(&lanyard_vocabulary::Component::Kms)?;
    let text = ByteString(render_encryption_config(encryption).into_bytes());
    Some(Secret {
        metadata: object_metadata(cluster, names, ENCRYPTION_CONFIG_SECRET),
        data: Some(BTreeMap::from([(ENCRYPTION_CONFIG_KEY.to_owned(), text)])),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    })
}

/// YAML as the reference's encoder writes it: keys sorted, lists not indented.
fn render_encryption_config(encryption: &KmsEncryption) -> String {
    let mut lines = vec![
        "apiVersion: apiserver.config.k8s.io/v1".to_owned(),
        "kind: EncryptionConfiguration".to_owned(),
        "resources:".to_owned(),
        "- providers:".to_owned(),
    ];
    for (part, key) in encryption.keys() {
        lines.extend([
            "  - kms:".to_owned(),
            "      apiVersion: v2".to_owned(),
            format!("      endpoint: {}", part.socket_endpoint()),
            format!("      name: {}", encryption.provider_name(key)),
            "      timeout: 35s".to_owned(),
        ]);
    }
    lines.extend(["  - identity: {}".to_owned(), "  resources:".to_owned()]);
    lines.extend(ENCRYPTED_RESOURCES.iter().map(|name| format!("  - {name}")));
    lines.join("\n") + "\n"
}

/// The cluster with its keys in the parts that they play now.
///
/// Without `status.secretEncryption.activeKey` the spec says them. With it the status does, and
/// `backupKey` counts no more: while a rotation begins, and as long as nobody recorded one for a
/// key that the spec changed, the old key encrypts and the new one decrypts; once the new key is
/// promoted it is the other way round. So no API server meets a value that it cannot read, whichever
/// of two configurations it has.
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

/// Whether the rotation that is under way has come to its second stage.
pub(super) fn is_promoted(status: &Value) -> bool {
    let state = status.pointer("/history/0/state").and_then(Value::as_str);
    status.get("targetKey").is_some() && matches!(state, Some("WritePromote" | "Migrating"))
}

/// A key of a vault in the status. One that cannot be used counts as absent: the status is written
/// by controllers, and what the spec says was checked.
pub(super) fn read_status_key(status: &Value, field: &str) -> Option<EncryptionKey> {
    let azure = status.get(field)?.get("azure")?;
    let text = |name: &str| azure.get(name).and_then(Value::as_str);
    Some(EncryptionKey {
        vault: text("keyVaultName")?.parse().ok()?,
        name: text("keyName")?.parse().ok()?,
        version: text("keyVersion")?.parse().ok()?,
    })
}
