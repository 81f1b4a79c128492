//! The subscription in which stacks are created, with the rules that hold for their resources.

use std::collections::BTreeSet;

use lanyard_azure::RateLimitHeadroom;
use lanyard_changes::{
    AzureAccess, AzureEffect, AzureGraph, DestroyPlan, EffectError, OwnershipTags, Plan,
    PreflightFinding, RecordedState, ResourceKey, RollBackPlan, StackError, StackName, StackRules,
    assigns_roles, recorded_principals,
};
use lanyard_vocabulary::SubscriptionId;
use uuid::Uuid;

use crate::management_locks::{LockedResource, find_locked_deletions};
use crate::name_availability::check_names;
use crate::preflight::check_plan;
use crate::role_keys::stays_beside;
use crate::shared_groups::is_shared_group;

/// A subscription, with the clients that read and change its resources.
#[derive(Debug, Clone)]
pub struct AzureSubscription {
    /// The id of the subscription.
    pub id: SubscriptionId,
    /// The access to its resources; [`roll_back_access`](Self::roll_back_access) for a roll-back.
    pub access: AzureAccess,
}

impl AzureSubscription {
    /// The access for a roll-back. It creates role assignments again only for `principals` and for the managed identities
    /// of the journal that have lanyard's tags.
    ///
    /// # Errors
    ///
    /// [`StackError::Principals`] if the managed identities cannot be read.
    pub async fn roll_back_access(
        &self,
        plan: &RollBackPlan,
        recorded: &RecordedState,
        tags: &OwnershipTags,
        principals: impl IntoIterator<Item = Uuid>,
    ) -> Result<AzureAccess, StackError> {
        let mut known_principals: BTreeSet<_> = principals.into_iter().collect();
        let arm = &self.access.arm;
        if assigns_roles(plan) {
            let recorded = recorded_principals(arm, recorded, tags).await;
            let recorded = recorded.map_err(|error| StackError::Principals(error.into()))?;
            known_principals.extend(recorded);
        }
        Ok(AzureAccess { known_principals, ..self.access.clone() })
    }
}

impl StackRules for AzureSubscription {
    type Effect = AzureEffect;

    fn access(&self) -> &AzureAccess {
        &self.access
    }

    fn rate_limit_headroom(&self) -> Option<RateLimitHeadroom> {
        self.access.arm.lowest_headroom()
    }

    fn stays(&self, key: &ResourceKey, graph: &AzureGraph) -> bool {
        stays_beside(key, graph)
    }

    fn is_shared(&self, key: &ResourceKey, stack: &StackName) -> bool {
        is_shared_group(key, stack)
    }

    async fn check_plan(
        &self,
        plan: &Plan,
        graph: &AzureGraph,
    ) -> Result<Vec<PreflightFinding>, EffectError> {
        Ok(check_plan(&self.access.arm, &self.id, plan, graph).await?)
    }

    async fn check_run(
        &self,
        plan: &Plan,
        graph: &AzureGraph,
    ) -> Result<Vec<PreflightFinding>, EffectError> {
        Ok(check_names(&self.access.arm, &self.id, plan, graph).await?)
    }

    async fn check_removal(&self, plan: &DestroyPlan) -> Result<Vec<String>, EffectError> {
        let locked = find_locked_deletions(&self.access.arm, plan).await?.into_iter();
        let reason = |it: LockedResource| {
            format!("the lock `{}` prevents the deletion of `{}`", it.lock, it.id)
        };
        Ok(locked.map(reason).collect())
    }
}
