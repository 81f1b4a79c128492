//! Whether the vaults of a fleet can grant access to single secrets.

use std::collections::BTreeSet;

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, VaultBody};
use lanyard_changes::PreflightFinding;

use crate::fleet::{Application, FleetCluster};

/// Checks the vaults whose secrets the applications read on a cluster. Sends GET requests only.
///
/// # Errors
///
/// The error of a request. A vault that the signed-in identity may not read is a finding.
pub(crate) async fn check_vaults(
    arm: &ArmClient,
    cluster: &FleetCluster,
    applications: &[Application],
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let accesses = applications.iter().filter_map(|it| it.secrets_on(cluster));
    let vaults: BTreeSet<_> = accesses.map(|access| access.vault.as_str()).collect();
    let mut findings = Vec::new();
    for vault in vaults {
        let found = match arm.fetch_optional(vault, VaultBody::API_VERSION).await {
            Err(AzureCallError::Forbidden { .. }) => {
                findings.push(PreflightFinding::warning(
                    "vaults",
                    format!(
                        "the vault `{vault}` is not checked: the signed-in identity may not read it"
                    ),
                    "ask for the role Reader on the vault, or check that it uses Azure RBAC",
                ));
                continue;
            }
            found => found?,
        };
        let Some(found) = found else {
            findings.push(PreflightFinding::error(
                "vaults",
                format!("the vault `{vault}` does not exist"),
                "correct `keyVault.id`, or create the vault; a deleted vault keeps its name until it is purged",
            ));
            continue;
        };
        if found.body.pointer("/properties/enableRbacAuthorization") != Some(&true.into()) {
            findings.push(PreflightFinding::error(
                "vaults",
                format!("the vault `{vault}` uses access policies, which give access to all its secrets"),
                "change the vault to Azure RBAC: `az keyvault update --enable-rbac-authorization true`; its present readers then need roles",
            ));
        }
    }
    Ok(findings)
}
