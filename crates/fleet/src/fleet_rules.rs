//! The rules for the resources of a fleet.

use lanyard_azure::{
    ArmBody as _, FederatedCredentialBody, ManagedIdentityBody, RateLimitHeadroom,
    RoleAssignmentBody,
};
use lanyard_changes::{
    AzureAccess, AzureEffect, AzureGraph, DestroyPlan, EffectError, Ownership, Plan,
    PlannedResource, PreflightFinding, ResourceChange, ResourceId, ResourceKey, StackName,
    StackRules,
};
use lanyard_infra::AzureSubscription;

use crate::cluster_graph::{CREDENTIAL_KEYS, FLEET, GROUP_KEY};

/// The subscription of a cluster's identities, with the rules for the stack [`FLEET`].
#[derive(Debug, Clone)]
pub struct FleetRules {
    /// The subscription of the identities.
    pub subscription: AzureSubscription,
}

impl StackRules for FleetRules {
    type Effect = AzureEffect;

    fn access(&self) -> &AzureAccess {
        self.subscription.access()
    }

    fn rate_limit_headroom(&self) -> Option<RateLimitHeadroom> {
        self.subscription.rate_limit_headroom()
    }

    /// The credential of an earlier cluster with the same name stays: its pods may still run.
    fn stays(&self, key: &ResourceKey, graph: &AzureGraph) -> bool {
        let application = |key: &ResourceKey| {
            let (application, _) = key.as_str().strip_prefix(CREDENTIAL_KEYS)?.rsplit_once('/')?;
            Some(application.to_owned())
        };
        let own = application(key);
        own.is_some() && graph.resources().iter().any(|it| application(&it.key) == own)
    }

    fn is_shared(&self, key: &ResourceKey, _stack: &StackName) -> bool {
        key.as_str() == GROUP_KEY
    }

    async fn check_plan(
        &self,
        plan: &Plan,
        graph: &AzureGraph,
    ) -> Result<Vec<PreflightFinding>, EffectError> {
        let mut findings = self.subscription.check_plan(plan, graph).await?;
        findings.extend(plan.resources.iter().filter_map(foreign_identity));
        Ok(findings)
    }

    async fn check_removal(&self, plan: &DestroyPlan) -> Result<Vec<String>, EffectError> {
        self.subscription.check_removal(plan).await
    }
}

/// Whether lanyard can write a resource with this id in the stack of a fleet: the rule for its journals. The
/// subscription is that of the identities; the vaults can be in others. Lanyard never owns a cluster.
pub fn can_contain(stack: &StackName, id: &ResourceId, subscription: &str) -> bool {
    let Some(arm) = id.arm().filter(|_| *stack == FLEET) else { return false };
    let own = [ManagedIdentityBody::RESOURCE_TYPE, FederatedCredentialBody::RESOURCE_TYPE];
    let has_type = |types: &[&str]| types.iter().any(|it| arm.has_type(it));
    let is_group = arm.resource_type().is_none() && arm.resource_group().is_some();
    let is_in_subscription = arm.subscription().eq_ignore_ascii_case(subscription);
    arm.has_type(RoleAssignmentBody::RESOURCE_TYPE)
        || (is_in_subscription && (is_group || has_type(&own)))
}

/// The finding for an identity that exists and is not lanyard's. It would get the access of the application, and its
/// creator may use it for something else.
fn foreign_identity(planned: &PlannedResource) -> Option<PreflightFinding> {
    let is_foreign = planned.change == ResourceChange::None { ownership: Ownership::Existing };
    let is_identity = planned.id.has_type(ManagedIdentityBody::RESOURCE_TYPE);
    (is_foreign && is_identity).then(|| {
        PreflightFinding::error(
            "identities",
            format!("the identity `{}` exists, and neither its tags nor the journal show that lanyard created it for this cluster", planned.id),
            "set `identityName` of the application to another name",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_contains_no_cluster_and_nothing_of_other_subscriptions_but_roles() {
        let can = |id: &str| can_contain(&FLEET, &id.parse().unwrap(), "s");
        let identity = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
        let role = "providers/Microsoft.Authorization/roleAssignments/r";
        for (id, expected) in [
            ("/subscriptions/s/resourceGroups/g".to_owned(), true),
            (format!("/subscriptions/s/resourceGroups/g/{identity}"), true),
            (format!("/subscriptions/t/resourceGroups/g/{identity}"), false),
            (format!("/subscriptions/t/resourceGroups/g/{role}"), true),
            ("/subscriptions/t/resourceGroups/g".to_owned(), false),
            ("/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c".to_owned(), false),
            ("entra:applications/a".to_owned(), false),
        ] {
            assert_eq!(can(&id), expected, "{id}");
        }
        let identities = StackName::new("identities");
        assert!(!can_contain(
            &identities,
            &"/subscriptions/s/resourceGroups/g".parse().unwrap(),
            "s"
        ));
    }
}
