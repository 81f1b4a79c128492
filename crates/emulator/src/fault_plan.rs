//! Drills: one broken hop each, for one component, to see whether the break is found.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use lanyard_vocabulary::{Component, ObjectEncoding};
use serde::{Deserialize, Serialize};

use crate::azure_state::AzureState;
use crate::operation_context::IdGenerator;
use crate::seed::{self, ComponentIdentity, SeedError};
use crate::services::keyvault::{KeyVaultObjectKind, object_scope};

/// A fault, and the component that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultPlan {
    /// What is broken.
    pub fault: IdentityFault,
    /// For which component.
    #[serde(with = "crate::seed::component_name")]
    pub component: Component,
}

/// Something that can be broken on the way of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum IdentityFault {
    /// The value is stored in another encoding than the one that is declared.
    Encoding,
    /// The vault has no such secret.
    MissingSecret,
    /// The reader of the vault has no right on the secret.
    VaultRole,
    /// The certificate is past its validity; the stamps of the document say nothing of it.
    Expired,
    /// The private key is not that of the certificate.
    KeyMismatch,
    /// The tenant knows no application with the client id.
    UnknownApplication,
    /// The document names an authority whose token endpoint the assertion is not for.
    Audience,
    /// The identity has no role assignment.
    ArmRole,
}

impl IdentityFault {
    /// Every fault.
    pub const ALL: [Self; 8] = [
        Self::Encoding,
        Self::MissingSecret,
        Self::VaultRole,
        Self::Expired,
        Self::KeyMismatch,
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
            Self::UnknownApplication => "unknown-application",
            Self::Audience => "audience",
            Self::ArmRole => "arm-role",
        }
    }

    /// Whether the fault is in the value of the secret, so that it is made by writing one.
    pub(crate) const fn changes_secret_value(self) -> bool {
        matches!(self, Self::Encoding | Self::Expired | Self::KeyMismatch | Self::Audience)
    }
}

impl fmt::Display for IdentityFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl From<IdentityFault> for &'static str {
    fn from(fault: IdentityFault) -> Self {
        fault.name()
    }
}

/// The text names no fault.
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

impl TryFrom<String> for IdentityFault {
    type Error = ParseIdentityFaultError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The encoding that a value is stored in when it is not stored in the declared one.
pub(crate) const fn mismatched_encoding(declared: ObjectEncoding) -> ObjectEncoding {
    match declared {
        ObjectEncoding::Utf8 | ObjectEncoding::Hex => ObjectEncoding::Base64,
        ObjectEncoding::Base64 => ObjectEncoding::Utf8,
    }
}

/// Breaks a running world. A fault of the value comes as a new version of the secret, and later
/// rotations keep it; the others take something away.
pub(crate) fn apply_fault_plan(
    world: &mut AzureState,
    drill: FaultPlan,
    ids: &mut IdGenerator,
    now: Timestamp,
) -> Result<(), SeedError> {
    let FaultPlan { fault, component } = drill;
    let holder = world
        .roster
        .component_identity_mut(component)
        .ok_or(SeedError::ComponentIdentityMissing { component })?;
    holder.faults.insert(fault);
    let holder = holder.clone();
    if fault.changes_secret_value() {
        for sharing in world.roster.identities_sharing_secret_mut(&holder) {
            sharing.faults.insert(fault);
        }
        seed::rotate_credential(world, component, ids, now, 0)?;
        return Ok(());
    }
    remove_faulted_objects(world, fault, &holder);
    Ok(())
}

/// Takes away what a fault takes away; nothing for a fault of the value.
pub(crate) fn remove_faulted_objects(
    world: &mut AzureState,
    fault: IdentityFault,
    holder: &ComponentIdentity,
) {
    match fault {
        IdentityFault::MissingSecret => {
            if let Some(vault) = world.vaults.vault_at_host_mut(&holder.vault_host) {
                vault.secrets.remove(holder.secret_name.as_str());
            }
        }
        IdentityFault::VaultRole => {
            let Some(vault) = world.vaults.vault_at_host(&holder.vault_host) else { return };
            let scope =
                object_scope(vault, KeyVaultObjectKind::Secret, holder.secret_name.as_str());
            world.authorization.revoke(|assignment| assignment.scope == scope);
        }
        IdentityFault::UnknownApplication => {
            world.directory.principals.retain(|known| known.client_id != holder.client_id);
        }
        IdentityFault::ArmRole => {
            world.authorization.revoke(|held| held.principal_id == holder.object_id);
        }
        IdentityFault::Encoding
        | IdentityFault::Expired
        | IdentityFault::KeyMismatch
        | IdentityFault::Audience => {}
    }
}

#[cfg(test)]
mod tests;
