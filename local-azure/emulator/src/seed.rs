//! Creates the initial state of the emulator: the Azure side of one hosted cluster.
//!
//! `apply_plan` creates from plain data: the tenants with their signing keys, the certificate
//! authority of managed identities, the resource groups with the resources that the components'
//! first requests read, and the vaults. It also creates one user-assigned identity per component
//! with its roles and its credential document in the vault, and the identity of the node that reads
//! the vault.

mod administrator;
mod arm_resources;
pub(crate) mod credential;
mod directory_access;
mod identities;
mod nodes;
pub mod plan;
mod seed_error;
mod storage_accounts;
mod tenants;
pub(crate) mod test_clients;
pub(crate) mod test_credentials;
mod vaults;

use jiff::Timestamp;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::keys::{RsaKey, RsaKeySize};
use lanyard_vocabulary::cloud::CloudEndpoints;

pub(crate) use self::credential::{renew_credential, rotate_credential};
pub(crate) use self::nodes::add_nodes;
pub(crate) use self::plan::SeedPlan;
pub use self::seed_error::{SeedError, SeedPlanProblem};
use crate::fault_plan;

/// Creates the state of `plan`.
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
    /// Returns the next key. With an id seed, the keys are reproducible.
    fn next_rsa_key(&mut self) -> Result<RsaKey, SeedError> {
        match self.ids.next_rsa_key(RsaKeySize::Bits2048) {
            Some(key) => key.map_err(SeedError::key_generation_error),
            None => self.keys.take(),
        }
    }
}

/// RSA keys that were generated in advance on all cores: key generation is most of the time of a
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

/// Returns the number of keys that the plan needs. An underestimate only costs time.
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
