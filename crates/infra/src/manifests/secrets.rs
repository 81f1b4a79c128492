//! Renders the Secrets.

use azure_core::base64;
use azure_core::credentials::Secret;
use serde_json::{Map, Value, json};

use super::INFRA_LABEL;
use super::parameters::{HostedClusterParameters, SecretEncryption};

pub(super) const PULL_SECRET_SUFFIX: &str = "-pull-secret";
pub(super) const SSH_KEY_SUFFIX: &str = "-ssh-key";
/// HyperShift puts no dash between the name of the cluster and the suffix.
pub(super) const SIGNING_KEY_SUFFIX: &str = "sa-token-issuer-key";
pub(super) const ENCRYPTION_KEY_SUFFIX: &str = "-etcd-encryption-key";
const CREDENTIALS_SUFFIX: &str = "-cloud-credentials";
/// HyperShift's operator deletes Secrets with the label when the cluster is deleted.
const DELETE_LABEL: &str = "hypershift.openshift.io/safe-to-delete-with-cluster";
/// The length of a key for AES-256.
const ENCRYPTION_KEY_LENGTH: usize = 32;

/// The contents of the Secrets. `Debug` prints none of them.
#[derive(Debug)]
pub struct SecretInputs {
    /// The pull secret.
    pub pull_secret: Secret,
    /// The SSH key of the nodes.
    pub ssh_key: Option<SshKeyInput>,
    /// The private key that signs service account tokens.
    pub signing_key: Option<Secret>,
    /// A new key for the encryption of secrets, encoded with base64. It is used if no vault key encrypts them.
    pub encryption_key: Secret,
}

/// The SSH key of the nodes.
#[derive(Debug)]
pub struct SshKeyInput {
    /// The public key in the format of OpenSSH.
    pub public_key: String,
    /// The private key, if the command generated the pair.
    pub private_key: Option<Secret>,
}

impl SecretInputs {
    pub(super) const fn has_ssh_key(&self) -> bool {
        self.ssh_key.is_some()
    }
}

/// The random generator of the cryptographic library failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no random key could be generated")]
pub struct GenerateKeyError;

/// Generates a key for the encryption of secrets, encoded with base64.
///
/// # Errors
///
/// The random generator failed.
pub fn generate_encryption_key() -> Result<Secret, GenerateKeyError> {
    let mut key = [0; ENCRYPTION_KEY_LENGTH];
    aws_lc_rs::rand::fill(&mut key).map_err(|_unspecified| GenerateKeyError)?;
    Ok(Secret::new(base64::encode(key)))
}

/// A Secret. `Debug` does not print its data.
#[derive(Debug, Clone)]
pub struct SecretManifest {
    /// The name of the object.
    pub name: String,
    /// The namespace of the object.
    pub namespace: String,
    /// Whether the content is random. An existing object is not changed then.
    pub is_generated: bool,
    infra_id: String,
    /// Encoded with base64.
    data: Vec<(&'static str, Secret)>,
}

impl SecretManifest {
    /// The object with its data.
    pub fn to_json(&self) -> Value {
        let data: Map<_, _> = self
            .data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::from(value.secret())))
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": { DELETE_LABEL: "true", INFRA_LABEL: self.infra_id },
            },
            "data": data,
        })
    }
}

impl HostedClusterParameters {
    pub(super) fn secrets(&self, inputs: SecretInputs) -> Vec<SecretManifest> {
        let (options, account) = (&self.options, &self.account);
        let text = |text: &str| Secret::new(base64::encode(text));
        let secret = |suffix: &str, data: Vec<(&'static str, Secret)>| SecretManifest {
            name: format!("{}{suffix}", options.name),
            namespace: options.namespace.to_string(),
            is_generated: false,
            infra_id: self.infra.infra_id.to_string(),
            data,
        };
        let mut secrets = vec![
            secret(
                PULL_SECRET_SUFFIX,
                vec![(".dockerconfigjson", text(inputs.pull_secret.secret()))],
            ),
            secret(
                CREDENTIALS_SUFFIX,
                vec![
                    ("AZURE_SUBSCRIPTION_ID", text(account.subscription.as_str())),
                    ("AZURE_TENANT_ID", text(account.tenant.as_str())),
                ],
            ),
        ];
        if let Some(key) = inputs.ssh_key {
            let mut data = vec![("id_rsa.pub", text(&key.public_key))];
            data.extend(key.private_key.as_ref().map(|key| ("id_rsa", text(key.secret()))));
            let is_generated = key.private_key.is_some();
            secrets.push(SecretManifest { is_generated, ..secret(SSH_KEY_SUFFIX, data) });
        }
        if let Some(key) = inputs.signing_key {
            secrets.push(secret(SIGNING_KEY_SUFFIX, vec![("key", text(key.secret()))]));
        }
        if let SecretEncryption::GeneratedKey = self.encryption {
            let data = vec![("key", inputs.encryption_key)];
            secrets
                .push(SecretManifest { is_generated: true, ..secret(ENCRYPTION_KEY_SUFFIX, data) });
        }
        secrets
    }
}
