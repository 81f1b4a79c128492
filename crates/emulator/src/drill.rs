//! Drills: one broken hop each, for one component, to see whether the break is found.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use lanyard_vocabulary::{Component, ObjectEncoding};
use serde::{Deserialize, Serialize};

use crate::call::Ids;
use crate::seed::{self, Holder, SeedError};
use crate::services::keyvault::{ObjectKind, object_scope};
use crate::world::World;

/// A fault, and the component that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drill {
    /// What is broken.
    pub fault: Fault,
    /// For which component.
    #[serde(with = "crate::seed::component_name")]
    pub component: Component,
}

/// Something that can be broken on the way of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum Fault {
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

impl Fault {
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
    pub(crate) const fn is_in_the_value(self) -> bool {
        matches!(self, Self::Encoding | Self::Expired | Self::KeyMismatch | Self::Audience)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl From<Fault> for &'static str {
    fn from(fault: Fault) -> Self {
        fault.name()
    }
}

/// The text names no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fault; known: {known}", known = Fault::ALL.map(Fault::name).join(", "))]
pub struct ParseFaultError(pub String);

impl FromStr for Fault {
    type Err = ParseFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|fault| fault.name() == text)
            .ok_or_else(|| ParseFaultError(text.to_owned()))
    }
}

impl TryFrom<String> for Fault {
    type Error = ParseFaultError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// The encoding that a value is stored in when it is not stored in the declared one.
pub(crate) const fn other_encoding(declared: ObjectEncoding) -> ObjectEncoding {
    match declared {
        ObjectEncoding::Utf8 | ObjectEncoding::Hex => ObjectEncoding::Base64,
        ObjectEncoding::Base64 => ObjectEncoding::Utf8,
    }
}

/// Breaks a running world. A fault of the value comes as a new version of the secret, and later
/// rotations keep it; the others take something away.
pub(crate) fn apply_drill(
    world: &mut World,
    drill: Drill,
    ids: &mut Ids,
    now: Timestamp,
) -> Result<(), SeedError> {
    let Drill { fault, component } = drill;
    let holder = world.roster.holder_mut(component).ok_or(SeedError::NoIdentity { component })?;
    holder.faults.insert(fault);
    let holder = holder.clone();
    if fault.is_in_the_value() {
        for sharing in world.roster.sharing_mut(&holder) {
            sharing.faults.insert(fault);
        }
        seed::issue_certificate(world, component, ids, now, 0)?;
        return Ok(());
    }
    take_away(world, fault, &holder);
    Ok(())
}

/// Takes away what a fault takes away; nothing for a fault of the value.
pub(crate) fn take_away(world: &mut World, fault: Fault, holder: &Holder) {
    match fault {
        Fault::MissingSecret => {
            if let Some(vault) = world.vaults.at_host_mut(&holder.vault_host) {
                vault.secrets.remove(holder.secret_name.as_str());
            }
        }
        Fault::VaultRole => {
            let Some(vault) = world.vaults.at_host(&holder.vault_host) else { return };
            let scope = object_scope(vault, ObjectKind::Secret, holder.secret_name.as_str());
            world.authorization.revoke(|assignment| assignment.scope == scope);
        }
        Fault::UnknownApplication => {
            world.directory.principals.retain(|known| known.client_id != holder.client_id);
        }
        Fault::ArmRole => {
            world.authorization.revoke(|held| held.principal_id == holder.object_id);
        }
        Fault::Encoding | Fault::Expired | Fault::KeyMismatch | Fault::Audience => {}
    }
}

#[cfg(test)]
mod tests;
