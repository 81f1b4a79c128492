//! The world that the emulator starts with: the Azure side of one hosted cluster.
//!
//! [`apply_plan`] makes, from plain data: the tenants with their signing keys, the authority that
//! issues the certificates of managed identities, the resource groups with what the components'
//! first requests read, the vaults, one user-assigned identity per component with its roles and
//! its credential document in the vault, and the identity of the node that reads the vault.

mod bundle;
mod certificate;
mod credential;
mod document;
mod guests;
mod identities;
mod landscape;
mod plan;
mod roster;
mod tenants;
mod vaults;

use jiff::Timestamp;
use lanyard_vocabulary::Component;

pub use credential::Issued;
use credential::certificate_subject;
pub(crate) use credential::issue_certificate;
#[cfg(test)]
pub(crate) use guests::MintError;
pub(crate) use guests::mint_federated_token;
pub use plan::{Bundle, DnsZonePlan, IdentityPlan, KmsKeyPlan, PlanProblem, VaultPlan, WorldPlan};
pub(crate) use plan::{PlanFingerprint, component_name};
pub(crate) use roster::{Guests, Holder, Roster};

use crate::call::Ids;
use crate::drill;
use crate::keys::{KeyError, RsaKey};
use crate::world::World;

/// The world could not be made, or could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// The plan contradicts itself.
    #[error("the plan of the world has {} problem(s): {}", problems.len(), listed(problems))]
    Plan {
        /// Every problem.
        problems: Vec<PlanProblem>,
    },
    /// The plan could not be written as JSON.
    #[error("the plan could not be written as JSON")]
    Fingerprint(#[source] serde_json::Error),
    /// A key could not be made or used.
    #[error("an RSA key could not be {step}")]
    Key {
        /// What was tried, as a participle.
        step: &'static str,
        /// What went wrong.
        #[source]
        source: KeyError,
    },
    /// A certificate could not be written.
    #[error("a certificate could not be written")]
    Certificate(#[source] rcgen::Error),
    /// A PKCS#12 file could not be written.
    #[error("a PKCS#12 file could not be written")]
    Pkcs12(#[source] p12_keystore::error::Error),
    /// A credential document could not be written.
    #[error("a credential document could not be written")]
    Document(#[source] serde_json::Error),
    /// A credential is too big for a vault secret.
    #[error("the credential has {bytes} bytes, and a vault secret at most {most}")]
    TooLarge {
        /// What it would have had.
        bytes: usize,
        /// What a secret may have.
        most: usize,
    },
    /// The world has no identity for the component.
    #[error("the world has no identity for `{component}`")]
    NoIdentity {
        /// The component.
        component: Component,
    },
    /// The vault does not take the secret.
    #[error(
        "the vault `{vault}` does not take the secret `{secret}`: it is deleted and not purged"
    )]
    SecretDeleted {
        /// The host name of the vault.
        vault: String,
        /// The secret.
        secret: String,
    },
    /// Something that the seed made is gone.
    #[error("the world has no {what} any more")]
    Gone {
        /// What is missing.
        what: &'static str,
    },
}

impl SeedError {
    const fn generation(source: KeyError) -> Self {
        Self::Key { step: "generated", source }
    }

    const fn reading(source: KeyError) -> Self {
        Self::Key { step: "read", source }
    }

    /// What to do about it.
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Plan { .. } => Some("correct the named fields of the world plan"),
            Self::TooLarge { .. } => {
                Some("ask for less padding, or declare `utf-8`: `hex` doubles the size")
            }
            Self::NoIdentity { .. } => Some("name a component that the plan gives an identity"),
            Self::SecretDeleted { .. } => Some("recover or purge the secret first"),
            Self::Gone { .. } => Some("start with a fresh world"),
            Self::Fingerprint(_)
            | Self::Key { .. }
            | Self::Certificate(_)
            | Self::Pkcs12(_)
            | Self::Document(_) => None,
        }
    }
}

fn listed(problems: &[PlanProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Puts what `plan` says into the world.
pub(crate) fn apply_plan(
    plan: &WorldPlan,
    world: &mut World,
    ids: &mut Ids,
    now: Timestamp,
) -> Result<(), SeedError> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(SeedError::Plan { problems });
    }
    let mut seed = Seed { plan, world, ids, now, keys: KeyPool::filled(key_count(plan))? };
    seed.add_tenants()?;
    seed.add_landscape();
    seed.add_vaults()?;
    seed.add_identities()?;
    seed.add_vault_reader();
    if plan.guests {
        seed.add_guests()?;
    }
    for drill in &plan.drills {
        if let Some(holder) = seed.world.roster.holder(drill.component).cloned() {
            drill::take_away(seed.world, drill.fault, &holder);
        }
    }
    Ok(())
}

/// A world in the making.
struct Seed<'a> {
    plan: &'a WorldPlan,
    world: &'a mut World,
    ids: &'a mut Ids,
    now: Timestamp,
    keys: KeyPool,
}

/// Keys that were made ahead, on every core: they are most of the time that a start takes.
struct KeyPool(Vec<RsaKey>);

impl KeyPool {
    fn filled(count: usize) -> Result<Self, SeedError> {
        RsaKey::generate_many(count).map(Self).map_err(SeedError::generation)
    }

    fn take(&mut self) -> Result<RsaKey, SeedError> {
        match self.0.pop() {
            Some(key) => Ok(key),
            None => RsaKey::generate().map_err(SeedError::generation),
        }
    }
}

/// How many keys the plan needs; one too few costs time only.
fn key_count(plan: &WorldPlan) -> usize {
    let tenants = if plan.tenant == plan.vault.tenant { 1 } else { 2 };
    let authority = 1;
    let kms = usize::from(plan.kms_key.is_some());
    let guests = if plan.guests { guests::KEYS } else { 0 };
    let mismatched =
        plan.drills.iter().filter(|drill| drill.fault == drill::Fault::KeyMismatch).count();
    tenants + authority + kms + guests + plan.identities.len() + mismatched
}

#[cfg(test)]
pub(crate) mod tests;
