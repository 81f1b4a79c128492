//! Fault plans: each breaks one hop for one component, to test that the break is found.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use lanyard_vocabulary::{Component, ObjectEncoding};
use serde::{Deserialize, Serialize};

use crate::azure_state::AzureState;
use crate::operation_context::IdGenerator;
use crate::seed::{self, ComponentIdentity, SeedError};
use crate::services::keyvault::{KeyVaultObjectKind, object_scope};

/// A fault of one component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultPlan {
    pub fault: IdentityFault,
    #[serde(with = "crate::seed::component_name")]
    pub component: Component,
}

/// A deliberate fault in the identity flow of a component, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum IdentityFault {
    /// The secret's value is in another encoding than the declared one.
    Encoding,
    /// The secret does not exist in the vault.
    MissingSecret,
    /// The vault reader has no permission on the secret.
    VaultRole,
    /// The certificate has expired, while the timestamps of the document are still valid.
    Expired,
    /// The private key does not match the certificate.
    KeyMismatch,
    /// The bundle has the private key and the certificate of the authority, but no certificate of the key.
    MissingLeaf,
    /// The tenant has no application with the client id.
    UnknownApplication,
    /// The document names an authority with another token endpoint than the assertion's audience.
    Audience,
    /// The identity has no role assignment.
    ArmRole,
}

impl IdentityFault {
    /// Every fault.
    pub const ALL: [Self; 9] = [
        Self::Encoding,
        Self::MissingSecret,
        Self::VaultRole,
        Self::Expired,
        Self::KeyMismatch,
        Self::MissingLeaf,
        Self::UnknownApplication,
        Self::Audience,
        Self::ArmRole,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::MissingSecret => "missing-secret",
            Self::VaultRole => "vault-role",
            Self::Expired => "expired",
            Self::KeyMismatch => "key-mismatch",
            Self::MissingLeaf => "missing-leaf",
            Self::UnknownApplication => "unknown-application",
            Self::Audience => "audience",
            Self::ArmRole => "arm-role",
        }
    }

    /// Whether the fault is in the value of the secret, so that it takes effect by writing a new version.
    pub(crate) const fn changes_secret_value(self) -> bool {
        match self {
            Self::Encoding
            | Self::Expired
            | Self::KeyMismatch
            | Self::MissingLeaf
            | Self::Audience => true,
            Self::MissingSecret | Self::VaultRole | Self::UnknownApplication | Self::ArmRole => {
                false
            }
        }
    }
}

impl fmt::Display for IdentityFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// For serde: the name of the fault, as on the command line.
impl From<IdentityFault> for &'static str {
    fn from(fault: IdentityFault) -> Self {
        fault.name()
    }
}

/// The text is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fault; known: {known}", known = IdentityFault::ALL.map(IdentityFault::name).join(", "))]
pub struct ParseIdentityFaultError(pub String);

impl FromStr for IdentityFault {
    type Err = ParseIdentityFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|fault| fault.name() == text)
            .ok_or_else(|| ParseIdentityFaultError(text.to_owned()))
    }
}

/// For serde: parses the name of a fault, such as `missing-secret`.
impl TryFrom<String> for IdentityFault {
    type Error = ParseIdentityFaultError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// An encoding that differs from the declared one.
pub(crate) const fn mismatched_encoding(declared: ObjectEncoding) -> ObjectEncoding {
    match declared {
        ObjectEncoding::Utf8 | ObjectEncoding::Hex => ObjectEncoding::Base64,
        ObjectEncoding::Base64 => ObjectEncoding::Utf8,
    }
}

/// Applies a fault to the running emulator. A fault of the value creates a new version of the secret, and
/// later rotations keep the fault; the other faults remove an object.
pub(crate) fn apply_fault_plan(
    azure: &mut AzureState,
    planned_fault: FaultPlan,
    ids: &mut IdGenerator,
    now: Timestamp,
) -> Result<(), SeedError> {
    let FaultPlan { fault, component } = planned_fault;
    let identity = azure
        .registry
        .component_identity_mut(component)
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    identity.faults.insert(fault);
    let identity = identity.clone();
    if fault.changes_secret_value() {
        for sharing in azure.registry.identities_sharing_secret_mut(&identity) {
            sharing.faults.insert(fault);
        }
        seed::rotate_credential(azure, component, ids, now, 0)?;
        return Ok(());
    }
    remove_faulted_objects(azure, fault, &identity);
    Ok(())
}

/// Removes the object that a fault affects; does nothing for a fault of the value.
pub(crate) fn remove_faulted_objects(
    azure: &mut AzureState,
    fault: IdentityFault,
    identity: &ComponentIdentity,
) {
    match fault {
        IdentityFault::MissingSecret => {
            azure.vaults.secrets.remove(&identity.vault_host, identity.secret_name.as_str());
        }
        IdentityFault::VaultRole => {
            let Some(vault) = azure.vaults.vault_at_host(&identity.vault_host) else { return };
            let scope =
                object_scope(vault, KeyVaultObjectKind::Secret, identity.secret_name.as_str());
            azure.authorization.revoke_at(&scope);
        }
        IdentityFault::UnknownApplication => {
            azure.directory.remove_service_principal(identity.object_id);
        }
        IdentityFault::ArmRole => {
            azure.authorization.revoke_of_principal(identity.object_id);
        }
        IdentityFault::Encoding
        | IdentityFault::Expired
        | IdentityFault::KeyMismatch
        | IdentityFault::MissingLeaf
        | IdentityFault::Audience => {}
    }
}

#[cfg(test)]
mod tests;
