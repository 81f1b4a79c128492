//! Creates the initial state of the emulator: the Azure side of one hosted cluster.
//!
//! `apply_plan` creates from plain data: the tenants with their signing keys, the authority that issues the
//! certificates of managed identities, the resource groups with the resources that the components' first
//! requests read, the vaults, one user-assigned identity per component with its roles and its credential
//! document in the vault, and the identity of the node that reads the vault.

mod administrator;
mod arm_resources;
pub(crate) mod credential;
mod directory_access;
mod identities;
mod nodes;
pub mod plan;
mod storage_accounts;
mod tenants;
pub(crate) mod test_clients;
pub(crate) mod test_credentials;
mod vaults;

use std::borrow::Cow;

use jiff::Timestamp;
use lanyard_clock::ErrorHint;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::client_certificate::ClientCertificateError;
use lanyard_emulator_state::directory::CredentialIssueError;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::asymmetric_key::AsymmetricKeyError;
use lanyard_emulator_state::keys::{RsaKey, RsaKeySize};
use lanyard_vocabulary::Component;
use lanyard_vocabulary::cloud::CloudEndpoints;

pub(crate) use self::credential::{renew_credential, rotate_credential};
pub(crate) use self::nodes::add_nodes;
pub(crate) use self::plan::{SeedPlan, SeedPlanProblem};
#[cfg(test)]
pub(crate) use self::test_clients::SubjectTokenError;
use crate::fault_plan;

/// The Azure state could not be created from a seed plan, or its seeded objects could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// The plan contradicts itself.
    #[error("the seed plan has {} problem(s): {}", problems.len(), join_problems(problems))]
    Plan {
        /// All problems of the plan.
        problems: Vec<SeedPlanProblem>,
    },
    /// The plan could not be serialized as JSON.
    #[error("the plan could not be written as JSON")]
    PlanFingerprint(#[source] serde_json::Error),
    /// A key could not be created or used.
    #[error("a key could not be {step}")]
    Key {
        /// The failed step, as a participle.
        step: &'static str,
        /// The cause.
        #[source]
        source: AsymmetricKeyError,
    },
    /// A certificate could not be created.
    #[error("a certificate could not be written")]
    Certificate(#[source] rcgen::Error),
    /// A PKCS#12 file could not be created.
    #[error("a PKCS#12 file could not be written")]
    Pkcs12(#[source] p12_keystore::error::Error),
    /// A credential document could not be serialized.
    #[error("a credential document could not be written")]
    Document(#[source] serde_json::Error),
    /// A credential exceeds the size of a vault secret.
    #[error("the credential has {bytes} bytes, and a vault secret at most {most}")]
    CredentialTooLarge {
        /// The size of the credential.
        bytes: usize,
        /// The maximum size of a secret.
        most: usize,
    },
    /// The storage account could not be created.
    #[error("the storage account could not be created")]
    StorageAccount(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The component has no identity.
    #[error("the emulator has no identity for `{component}`")]
    ComponentIdentityMissing { component: Component },
    /// The vault rejects the secret, because its name belongs to a deleted one.
    #[error(
        "the vault `{vault}` does not take the secret `{secret}`: it is deleted and not purged"
    )]
    SecretDeleted {
        /// The host name of the vault.
        vault: String,
        /// The name of the secret.
        secret: String,
    },
    /// An object that the seed created has been removed.
    #[error("the emulator no longer has the {what}")]
    SeedObjectMissing {
        /// A description of the missing object.
        what: &'static str,
    },
}

impl From<ClientCertificateError> for SeedError {
    fn from(error: ClientCertificateError) -> Self {
        match error {
            ClientCertificateError::Key(source) => Self::Key { step: "read", source },
            ClientCertificateError::Certificate(source) => Self::Certificate(source),
        }
    }
}

impl From<CredentialIssueError> for SeedError {
    fn from(error: CredentialIssueError) -> Self {
        match error {
            CredentialIssueError::AuthorityMissing => {
                Self::SeedObjectMissing { what: "authority of managed identities" }
            }
            CredentialIssueError::Certificate(error) => error.into(),
            CredentialIssueError::Pkcs12(error) => Self::Pkcs12(error),
        }
    }
}

impl ErrorHint for SeedError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Plan { .. } => Some("correct the named fields of the seed plan"),
            Self::CredentialTooLarge { .. } => {
                Some("ask for less padding, or declare `utf-8`: `hex` doubles the size")
            }
            Self::ComponentIdentityMissing { .. } => {
                Some("name a component that the plan gives an identity")
            }
            Self::SecretDeleted { .. } => Some("recover or purge the secret first"),
            Self::SeedObjectMissing { .. } => Some("start with an empty state directory"),
            Self::PlanFingerprint(_)
            | Self::Key { .. }
            | Self::Certificate(_)
            | Self::Pkcs12(_)
            | Self::Document(_)
            | Self::StorageAccount(_) => None,
        };
        hint.map(Cow::Borrowed)
    }
}

impl SeedError {
    fn key_generation_error(source: impl Into<AsymmetricKeyError>) -> Self {
        Self::Key { step: "generated", source: source.into() }
    }
}

fn join_problems(problems: &[SeedPlanProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Applies `plan` to the state.
pub(crate) fn apply_plan(
    plan: &SeedPlan,
    azure: &mut AzureState,
    ids: &mut IdGenerator,
    now: Timestamp,
) -> Result<(), SeedError> {
    let problems = plan.validation_problems();
    let Some(endpoints) = plan.cloud.endpoints().filter(|_| problems.is_empty()) else {
        return Err(SeedError::Plan { problems });
    };
    let mut seed = AzureSeeder { plan, endpoints, azure, ids, now, keys: RsaKeyPool::default() };
    if *seed.ids == IdGenerator::Random {
        seed.keys = RsaKeyPool::generate(required_key_count(plan))?;
    }
    seed.add_tenants()?;
    seed.add_arm_resources();
    seed.add_storage_account()?;
    seed.add_vaults()?;
    seed.add_identities()?;
    seed.add_vault_reader();
    if plan.test_clients {
        seed.add_test_clients()?;
    }
    for planned_fault in &plan.drills {
        if let Some(holder) =
            seed.azure.registry.component_identity(planned_fault.component).cloned()
        {
            fault_plan::remove_faulted_objects(seed.azure, planned_fault.fault, &holder);
        }
    }
    Ok(())
}

/// A state that is being created from a plan.
struct AzureSeeder<'a> {
    plan: &'a SeedPlan,
    /// The endpoints of the plan's cloud.
    endpoints: &'static CloudEndpoints,
    azure: &'a mut AzureState,
    ids: &'a mut IdGenerator,
    now: Timestamp,
    keys: RsaKeyPool,
}

impl AzureSeeder<'_> {
    /// The next key: reproducible with a seed.
    fn next_rsa_key(&mut self) -> Result<RsaKey, SeedError> {
        match self.ids.next_rsa_key(RsaKeySize::Bits2048) {
            Some(key) => key.map_err(SeedError::key_generation_error),
            None => self.keys.take(),
        }
    }
}

/// Keys that were generated in advance on all cores, because key generation takes most of the time of a
/// start.
#[derive(Default)]
struct RsaKeyPool(Vec<RsaKey>);

impl RsaKeyPool {
    fn generate(count: usize) -> Result<Self, SeedError> {
        RsaKey::generate_many(count).map(Self).map_err(SeedError::key_generation_error)
    }

    fn take(&mut self) -> Result<RsaKey, SeedError> {
        match self.0.pop() {
            Some(key) => Ok(key),
            None => RsaKey::generate().map_err(SeedError::key_generation_error),
        }
    }
}

/// The number of keys that the plan needs; an underestimate only costs time.
fn required_key_count(plan: &SeedPlan) -> usize {
    let tenants = if plan.tenant == plan.vault.tenant { 1 } else { 2 };
    let authority = 1;
    let kms = usize::from(plan.kms_key.is_some());
    let client_keys = if plan.test_clients { test_clients::KEY_COUNT } else { 0 };
    let mismatched = plan
        .drills
        .iter()
        .filter(|planned_fault| planned_fault.fault == fault_plan::IdentityFault::KeyMismatch)
        .count();
    tenants + authority + kms + client_keys + plan.identities.len() + mismatched
}

#[cfg(test)]
mod tests;
