//! The rules for the resources of a fleet.

use lanyard_azure::{
    ArmBody as _, FederatedCredentialBody, ManagedClusterBody, ManagedIdentityBody,
    RateLimitHeadroom, RoleAssignmentBody,
};
use lanyard_changes::{
    AzureAccess, AzureEffect, AzureGraph, DestroyPlan, EffectError, Plan, PreflightFinding,
    ResourceId, ResourceKey, StackName, StackRules,
};
use lanyard_infra::AzureSubscription;

use crate::cluster_graph::{CREDENTIAL_KEYS, FLEET, GROUP_KEY};
use crate::credential_budget::check_credential_budget;

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
        findings.extend(check_credential_budget(&self.subscription.access.arm, plan).await?);
        Ok(findings)
    }

    async fn check_removal(&self, plan: &DestroyPlan) -> Result<Vec<String>, EffectError> {
        self.subscription.check_removal(plan).await
    }
}

/// Whether lanyard can write a resource with this id in the stack of a fleet: the rule for its journals. The
/// subscription is that of the identities; the cluster and the vaults can be in others.
pub fn can_contain(stack: &StackName, id: &ResourceId, subscription: &str) -> bool {
    let Some(arm) = id.arm().filter(|_| *stack == FLEET) else { return false };
    let own = [ManagedIdentityBody::RESOURCE_TYPE, FederatedCredentialBody::RESOURCE_TYPE];
    let elsewhere = [ManagedClusterBody::RESOURCE_TYPE, RoleAssignmentBody::RESOURCE_TYPE];
    let has_type = |types: &[&str]| types.iter().any(|it| arm.has_type(it));
    let is_group = arm.resource_type().is_none() && arm.resource_group().is_some();
    let is_in_subscription = arm.subscription().eq_ignore_ascii_case(subscription);
    has_type(&elsewhere) || (is_in_subscription && (is_group || has_type(&own)))
}
