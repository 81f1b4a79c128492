//! Whether the identities of a cluster have room for their federated credentials.

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, FederatedCredentialBody};
use lanyard_changes::{Plan, PlannedResource, PreflightFinding, ResourceChange};

/// How many free places an identity should have after the run.
const SPARE: usize = 2;

/// Counts the federated credentials of each identity that gets a new one. Sends GET requests only.
///
/// # Errors
///
/// The error of a request. An identity that does not exist has none.
pub(crate) async fn check_credential_budget(
    arm: &ArmClient,
    plan: &Plan,
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let is_new_credential = |it: &&PlannedResource| {
        it.change == ResourceChange::Create
            && it.id.has_type(FederatedCredentialBody::RESOURCE_TYPE)
    };
    let mut findings = Vec::new();
    for planned in plan.resources.iter().filter(is_new_credential) {
        let (collection, _) = planned.id.as_str().rsplit_once('/').unwrap_or_default();
        let listed = match arm.list(collection, FederatedCredentialBody::API_VERSION, &[]).await {
            Err(AzureCallError::NotFound { .. }) => Vec::new(),
            listed => listed?,
        };
        let (identity, _) = collection.rsplit_once('/').unwrap_or_default();
        findings.extend(budget_finding(identity, listed.len() + 1));
    }
    Ok(findings)
}

fn budget_finding(identity: &str, count: usize) -> Option<PreflightFinding> {
    let most = FederatedCredentialBody::LIMIT;
    let message =
        format!("`{identity}` would have {count} federated credentials; Azure allows {most}");
    let hint = "delete the credentials of clusters that do not exist any more, or give the application another identity";
    if count > most {
        Some(PreflightFinding::error("credentials", message, hint))
    } else {
        (count + SPARE > most).then(|| PreflightFinding::warning("credentials", message, hint))
    }
}

#[cfg(test)]
mod tests {
    use lanyard_changes::FindingSeverity;

    use super::*;

    #[test]
    fn identity_without_room_is_an_error_and_one_that_is_nearly_full_a_warning() {
        let severity = |count| budget_finding("i", count).map(|it| it.severity);
        assert_eq!(severity(18), None);
        assert_eq!(severity(19), Some(FindingSeverity::Warning));
        assert_eq!(severity(20), Some(FindingSeverity::Warning));
        assert_eq!(severity(21), Some(FindingSeverity::Error));
    }
}
