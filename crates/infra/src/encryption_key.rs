//! The key in a vault that encrypts the secrets of a hosted cluster.

use std::borrow::Cow;

use lanyard_azure::{ArmBody as _, ArmClient, ArmRequest, AzureCallError, VaultBody, VaultKeyBody};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{
    ArmResourceId, KeyVersion, ParseVaultKeyIdError, SubscriptionId, VaultKeyId, VaultName,
};
use serde_json::Value;

/// A key that exists, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionKey {
    /// The key with the version.
    pub id: VaultKeyId,
    /// The version, which is also in `id`.
    pub version: KeyVersion,
    /// The id of the key as a resource: the narrowest scope of a role for it.
    pub scope: ArmResourceId,
    /// Whether the call created the key.
    pub is_new: bool,
}

/// The vault key of the secret encryption could not be read, or does not exist.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncryptionKeyError {
    /// Azure rejected a request.
    #[error("{operation} failed")]
    Azure {
        /// What was tried.
        operation: &'static str,
        /// The error of the request.
        #[source]
        source: Box<AzureCallError>,
    },
    /// The subscription has no such vault.
    #[error("the subscription has no vault `{0}`")]
    NoVault(VaultName),
    /// The vault has no such version of the key.
    #[error("the vault has no version `{version}` of the key `{key}`")]
    NoVersion {
        /// The id of the key.
        key: ArmResourceId,
        /// The version.
        version: KeyVersion,
    },
    /// Azure returned a key without its URL.
    #[error("Azure returned the key `{key}` without a readable URL")]
    NoUrl {
        /// The id of the key.
        key: ArmResourceId,
        /// The problem of the URL; `None` if there is none.
        #[source]
        source: Option<ParseVaultKeyIdError>,
    },
}

impl ErrorHint for EncryptionKeyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Azure { source, .. } => return source.hint(),
            Self::NoVault(_) => {
                "create the vault with `lanyard create keyvault azure`, or correct --encryption-key-id or --subscription"
            }
            Self::NoVersion { .. } => {
                "omit the version in --encryption-key-id to use the current one"
            }
            Self::NoUrl { .. } => {
                "check that no proxy answers in the place of Azure Resource Manager"
            }
        }))
    }
}

/// Finds the key, and creates an RSA key if the vault has none and no version is named. The key stays when the
/// environment is removed, because lost keys make the secrets of clusters unreadable.
///
/// # Errors
///
/// [`EncryptionKeyError`] of the first step that fails.
pub async fn find_or_create_encryption_key(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    key: &VaultKeyId,
) -> Result<EncryptionKey, EncryptionKeyError> {
    let vault = find_vault(arm, subscription, &key.vault).await?;
    let scope = VaultKeyBody::id(&vault, &key.name);
    if let Some(version) = &key.version {
        let id = scope.child("versions", version.as_str());
        let found = arm.fetch_optional(id.as_str(), VaultKeyBody::API_VERSION).await;
        if found.map_err(|source| azure_error("reading the key", source))?.is_none() {
            return Err(EncryptionKeyError::NoVersion { key: scope, version: version.clone() });
        }
        let version = version.clone();
        return Ok(EncryptionKey { id: key.clone(), version, scope, is_new: false });
    }
    let found = arm.fetch_optional(scope.as_str(), VaultKeyBody::API_VERSION).await;
    let found = found.map_err(|source| azure_error("reading the key", source))?;
    let is_new = found.is_none();
    let body = if let Some(found) = found {
        found.body
    } else {
        let body = VaultKeyBody::rsa().to_json();
        let request = ArmRequest::put(scope.as_str(), VaultKeyBody::API_VERSION, body);
        let created = arm.send(&request).await;
        created.map_err(|source| azure_error("creating the key", source))?.body
    };
    let url = body.pointer("/properties/keyUriWithVersion").and_then(Value::as_str);
    let no_url = |source| EncryptionKeyError::NoUrl { key: scope.clone(), source };
    let id = url.ok_or_else(|| no_url(None))?.parse::<VaultKeyId>();
    let id = id.map_err(|error| no_url(Some(error)))?;
    let version = id.version.clone().ok_or_else(|| no_url(None))?;
    Ok(EncryptionKey { id, version, scope, is_new })
}

/// The id of a vault; its name is unique in the cloud.
async fn find_vault(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    name: &VaultName,
) -> Result<ArmResourceId, EncryptionKeyError> {
    let scope = ArmResourceId::subscription_scope(subscription);
    let path = format!("{scope}/providers/{}", VaultBody::RESOURCE_TYPE);
    let listed = arm.list(&path, VaultBody::API_VERSION, &[]).await;
    let listed = listed.map_err(|source| azure_error("listing the vaults", source))?;
    let ids = listed.iter().filter_map(|vault| vault["id"].as_str()?.parse().ok());
    let mut same_name =
        ids.filter(|id: &ArmResourceId| id.name().eq_ignore_ascii_case(name.as_str()));
    same_name.next().ok_or_else(|| EncryptionKeyError::NoVault(name.clone()))
}

fn azure_error(operation: &'static str, source: AzureCallError) -> EncryptionKeyError {
    EncryptionKeyError::Azure { operation, source: Box::new(source) }
}
