//! The KMS identity of an ARO HCP development environment: its key, its role, and what a HostedCluster needs to
//! know of both.

use lanyard_api::hosted_cluster::{
    AzureKmsSpec, KmsKey, KmsSpec, ManagedIdentity, SecretEncryption,
};
use lanyard_changes::RunSummary;
use lanyard_clock::SharedClock;
use lanyard_infra::{EncryptionKey, KmsParameters, find_or_create_encryption_key, kms_resources};
use lanyard_service_principals::{CreatedServicePrincipal, EnvironmentPrefix};
use lanyard_vocabulary::{Cloud, ObjectEncoding, SecretName, VaultKeyId, VaultName};
use serde::Serialize;

use crate::commands::azure_account::AzureAccount;
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::output;

/// The flags of the KMS identity.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Secret encryption")]
pub(super) struct KmsArgs {
    /// Also create the identity `kms-PREFIX`, which encrypts the secrets of clusters, and give it Key Vault Crypto
    /// User at the key
    #[arg(long)]
    pub(super) enable_kms: bool,
    /// The key as `https://VAULT.vault.azure.net/keys/NAME[/VERSION]`. Without a version, an RSA key is created if
    /// the vault has no key with this name [default: the key `etcd-encryption-PREFIX` in the vault of the
    /// environment]
    #[arg(long, value_name = "URL", requires = "enable_kms")]
    encryption_key_id: Option<String>,
}

/// The result for the KMS identity.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KmsResult {
    /// The key with its version, for `create cluster azure --encryption-key-id`.
    encryption_key_id: String,
    /// The secret with the credential, for `create cluster azure --kms-credentials-secret-name`.
    credentials_secret_name: SecretName,
    /// `spec.secretEncryption` of a HostedCluster.
    secret_encryption: SecretEncryption,
    /// What happened to the role.
    role: RunSummary,
}

impl KmsArgs {
    /// The key that the flags name; `None` without the KMS identity.
    pub(super) fn key_id(
        &self,
        cloud: Cloud,
        prefix: &EnvironmentPrefix,
        vault: VaultName,
    ) -> Result<Option<VaultKeyId>, CommandError> {
        if !self.enable_kms {
            return Ok(None);
        }
        let Some(text) = &self.encryption_key_id else {
            let name = format!("etcd-encryption-{prefix}").parse();
            let name = name
                .or_invalid("--prefix does not name a key")
                .hint("name the key with --encryption-key-id")?;
            let (version, is_managed_hsm) = (None, false);
            return Ok(Some(VaultKeyId { vault, name, version, is_managed_hsm, cloud }));
        };
        let id: VaultKeyId = text
            .parse()
            .or_invalid("--encryption-key-id")
            .hint("copy the id from `az keyvault key show --query key.kid`")?;
        if id.is_managed_hsm {
            return Err(CommandError::invalid_input(format!(
                "--encryption-key-id: `{id}` is a key of a managed HSM"
            ))
            .with_hint("name a key of a vault: the roles of a managed HSM are no Azure roles"));
        }
        if id.cloud != cloud {
            return Err(CommandError::invalid_input(format!(
                "--encryption-key-id: `{id}` is in {}, not in {cloud}",
                id.cloud
            ))
            .with_hint("name a key in the cloud of --cloud"));
        }
        Ok(Some(id))
    }
}

/// Finds or creates the key.
pub(super) async fn find_or_create_key(
    account: &AzureAccount,
    key: &VaultKeyId,
) -> Result<EncryptionKey, CommandError> {
    let (arm, subscription) = (&account.arm, &account.subscription);
    let found = find_or_create_encryption_key(arm, subscription, key).await;
    let found = found?;
    if found.is_new {
        let id = &found.id;
        output::print_stderr(&format!("created the key {id}, which `destroy` keeps"));
    }
    Ok(found)
}

/// Gives the identity its role at the key. Returns `None` if that did not succeed.
pub(super) async fn assign_role(
    stack: &SharedStack<'_>,
    key: &EncryptionKey,
    identity: &CreatedServicePrincipal,
    run: &SharedRunArgs,
    clock: &SharedClock,
) -> Result<Option<KmsResult>, CommandError> {
    let parameters = KmsParameters {
        subscription: stack.account.subscription.clone(),
        prefix: stack.name.to_owned(),
        scope: key.scope.clone(),
        principal: identity.object_id,
    };
    let applied = stack.apply(kms_resources(&parameters), run, clock).await?;
    let Some((target, report)) = applied else { return Ok(None) };
    let role = RunSummary::new(&report, &target);
    if !report.succeeded() {
        output::print_stderr(&role.to_string());
        return Ok(None);
    }
    Ok(Some(KmsResult {
        encryption_key_id: key.id.to_string(),
        credentials_secret_name: identity.secret.clone(),
        secret_encryption: secret_encryption(key, identity),
        role,
    }))
}

/// The HostedCluster field for a key and an identity.
fn secret_encryption(key: &EncryptionKey, identity: &CreatedServicePrincipal) -> SecretEncryption {
    let active_key = KmsKey {
        key_vault_name: Some(key.id.vault.to_string()),
        key_name: Some(key.id.name.to_string()),
        key_version: Some(key.version.to_string()),
        ..KmsKey::default()
    };
    let identity = ManagedIdentity {
        client_id: Some(identity.client_id.to_string()),
        object_encoding: Some(ObjectEncoding::Utf8.to_string()),
        credentials_secret_name: Some(identity.secret.to_string()),
        ..ManagedIdentity::default()
    };
    let azure = AzureKmsSpec {
        active_key: Some(active_key),
        kms: Some(identity),
        ..AzureKmsSpec::default()
    };
    SecretEncryption {
        encryption_type: Some("kms".to_owned()),
        kms: Some(KmsSpec {
            provider: Some("Azure".to_owned()),
            azure: Some(azure),
            ..KmsSpec::default()
        }),
        ..SecretEncryption::default()
    }
}

impl KmsResult {
    /// The result for people: the flags of the cluster.
    pub(super) fn to_text(&self) -> String {
        format!(
            "secret encryption: create the cluster with\n  --encryption-key-id {}\n  --kms-credentials-secret-name {}",
            self.encryption_key_id, self.credentials_secret_name
        )
    }
}
