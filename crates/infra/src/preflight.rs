//! The checks before the first write: values, permissions, resource providers, locks and limits.
//!
//! Every finding is collected, so that one run shows all problems.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{
    ArmBody as _, ArmClient, AzureCallError, ProviderRegistration, ResourceGroupBody,
    RoleAssignmentBody,
};
use lanyard_changes::{
    AzureGraph, Plan, PlannedResource, PreflightFinding, ResourceChange, ResourceKey,
};
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};

use crate::caller_permissions::{RequiredAction, missing_actions};
use crate::management_locks::{LockableWrite, LockedResource, find_locked_resources};
use crate::quotas::check_quotas;
use crate::value_checks::check_values;

/// The name of the check of the signed-in identity's permissions.
pub const PERMISSIONS_CHECK: &str = "permissions";

/// Checks whether the writes of a plan can succeed. Sends GET requests only.
///
/// # Errors
///
/// The error of a read that failed; a missing permission to read something is a finding instead.
pub(crate) async fn check_plan(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    plan: &Plan,
    graph: &AzureGraph,
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let writes: Vec<ArmWrite<'_>> = plan.writes().filter_map(ArmWrite::of).collect();
    let mut findings = Vec::new();
    if writes.is_empty() {
        return Ok(findings);
    }
    findings.extend(check_values(arm, subscription, plan, graph).await?);
    let groups = existing_groups(arm, subscription, &writes).await?;
    let required = required_actions(subscription, &writes, &groups);
    for action in missing_actions(arm, &required).await? {
        findings.push(PreflightFinding::error(
            PERMISSIONS_CHECK,
            format!("the signed-in identity lacks `{}` at `{}`", action.action, action.scope),
            "ask an owner of the scope for a role with this action; `lanyard check azure` lists all of them",
        ));
    }
    findings.extend(check_providers(arm, subscription, &writes).await?);
    findings.extend(check_locks(arm, &writes).await?);
    findings.extend(check_quotas(arm, subscription, plan, graph).await?);
    Ok(findings)
}

/// A planned write of a resource of Azure Resource Manager.
#[derive(Clone, Copy)]
struct ArmWrite<'a> {
    key: &'a ResourceKey,
    id: &'a ArmResourceId,
    change: &'a ResourceChange,
}

impl<'a> ArmWrite<'a> {
    fn of(planned: &'a PlannedResource) -> Option<Self> {
        let PlannedResource { key, change, .. } = planned;
        Some(Self { key, id: planned.id.arm()?, change })
    }
}

/// The groups of the writes that exist, in lower case, with their ids.
async fn existing_groups(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    writes: &[ArmWrite<'_>],
) -> Result<BTreeMap<String, ArmResourceId>, AzureCallError> {
    let names: BTreeSet<String> = writes
        .iter()
        .filter(|it| it.id.subscription().eq_ignore_ascii_case(subscription.as_str()))
        .filter_map(|it| it.id.resource_group().map(str::to_ascii_lowercase))
        .collect();
    let mut groups = BTreeMap::new();
    for name in names {
        let id = ResourceGroupBody::id(subscription, &name);
        match arm.fetch_optional(id.as_str(), ResourceGroupBody::API_VERSION).await {
            // The signed-in identity may have roles only below the group.
            Ok(Some(_)) | Err(AzureCallError::Forbidden { .. }) => {
                groups.insert(name, id);
            }
            found => {
                found?;
            }
        }
    }
    Ok(groups)
}

/// The actions that the writes need, at existing scopes.
fn required_actions(
    subscription: &SubscriptionId,
    writes: &[ArmWrite<'_>],
    groups: &BTreeMap<String, ArmResourceId>,
) -> Vec<RequiredAction> {
    let whole_subscription = ArmResourceId::subscription_scope(subscription);
    let mut required = BTreeSet::new();
    for write in writes {
        // The scope of an assignment that is deleted may be gone.
        let own_scope = assignment_scope(write.id).filter(|scope| {
            *write.change != ResourceChange::Delete && !is_created_with(writes, scope)
        });
        let own_scope = own_scope.or_else(|| group_elsewhere(write.id, subscription));
        let group = write.id.resource_group().map(str::to_ascii_lowercase);
        let group = group.and_then(|name| groups.get(&name)).unwrap_or(&whole_subscription);
        let scope = own_scope.as_ref().unwrap_or(group);
        let resource_type = write.id.resource_type().unwrap_or_else(|| GROUP_TYPE.to_owned());
        for verb in verbs(write.change) {
            required.insert(RequiredAction::new(scope, format!("{resource_type}/{verb}")));
        }
        for action in join_actions(&resource_type) {
            required.insert(RequiredAction::new(scope, *action));
        }
    }
    required.into_iter().collect()
}

/// The scope of a role assignment; `None` for another resource.
fn assignment_scope(id: &ArmResourceId) -> Option<ArmResourceId> {
    let (scope, _) = id.as_str().rsplit_once("/providers/")?;
    id.has_type(RoleAssignmentBody::RESOURCE_TYPE).then(|| scope.parse().ok()).flatten()
}

/// The group of a resource in another subscription, in which no command creates groups.
fn group_elsewhere(id: &ArmResourceId, subscription: &SubscriptionId) -> Option<ArmResourceId> {
    let is_elsewhere = !id.subscription().eq_ignore_ascii_case(subscription.as_str());
    let subscription: SubscriptionId = id.subscription().parse().ok()?;
    let group = id.resource_group().filter(|_| is_elsewhere)?;
    Some(ResourceGroupBody::id(&subscription, group))
}

/// Whether the plan creates the resource, or one that contains it.
fn is_created_with(writes: &[ArmWrite<'_>], id: &ArmResourceId) -> bool {
    writes.iter().any(|it| *it.change == ResourceChange::Create && it.id.contains(id))
}

const fn verbs(change: &ResourceChange) -> &'static [&'static str] {
    match change {
        ResourceChange::Create | ResourceChange::Update { .. } => &["write"],
        ResourceChange::Replace { .. } => &["write", "delete"],
        ResourceChange::Delete => &["delete"],
        ResourceChange::None { .. } | ResourceChange::Problem { .. } => &[],
    }
}

/// The resource type of resource groups in the names of actions.
pub(crate) const GROUP_TYPE: &str = "Microsoft.Resources/subscriptions/resourceGroups";

/// The actions on other resources that a write of this type needs, because its body refers to them.
pub(crate) fn join_actions(resource_type: &str) -> &'static [&'static str] {
    match resource_type {
        "Microsoft.Network/virtualNetworks" => {
            &["Microsoft.Network/networkSecurityGroups/join/action"]
        }
        "Microsoft.Network/loadBalancers" => &["Microsoft.Network/publicIPAddresses/join/action"],
        "Microsoft.Network/privateDnsZones/virtualNetworkLinks" => {
            &["Microsoft.Network/virtualNetworks/join/action"]
        }
        _ => &[],
    }
}

/// Azure rejects writes of a namespace that is not registered in the subscription.
async fn check_providers(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    writes: &[ArmWrite<'_>],
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let is_here =
        |it: &&ArmWrite<'_>| it.id.subscription().eq_ignore_ascii_case(subscription.as_str());
    let namespaces: BTreeSet<String> = writes
        .iter()
        .filter(is_here)
        .filter_map(|it| it.id.resource_type()?.split('/').next().map(str::to_owned))
        .filter(|namespace| !is_always_registered(namespace))
        .collect();
    let mut findings = Vec::new();
    for namespace in namespaces {
        let request = ProviderRegistration::get(subscription, &namespace);
        let reply = match arm.send(&request).await {
            Err(AzureCallError::Forbidden { .. }) => continue,
            reply => reply?,
        };
        let is_registered = serde_json::from_value::<ProviderRegistration>(reply.body)
            .is_ok_and(|registration| registration.is_registered());
        if !is_registered {
            findings.push(PreflightFinding::error(
                "providers",
                format!(
                    "the resource provider `{namespace}` is not registered in the subscription"
                ),
                format!("run `az provider register --namespace {namespace} --wait`"),
            ));
        }
    }
    Ok(findings)
}

fn is_always_registered(namespace: &str) -> bool {
    ["Microsoft.Authorization", "Microsoft.Resources"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(namespace))
}

/// The changes that management locks of the subscription, of groups and of resources prevent.
async fn check_locks(
    arm: &ArmClient,
    writes: &[ArmWrite<'_>],
) -> Result<Vec<PreflightFinding>, AzureCallError> {
    let writes = writes.iter().map(|write| LockableWrite {
        key: write.key,
        id: write.id,
        deletes: matches!(write.change, ResourceChange::Delete | ResourceChange::Replace { .. }),
    });
    let locked = find_locked_resources(arm, &writes.collect::<Vec<_>>()).await?;
    let finding = |LockedResource { lock, key, .. }| {
        PreflightFinding::error(
            "locks",
            format!("the lock `{lock}` prevents the change of `{key}`"),
            "remove the lock, or ask the person who set it",
        )
    };
    Ok(locked.into_iter().map(finding).collect())
}

#[cfg(test)]
mod tests {
    use lanyard_changes::ResourceKey;

    use super::*;
    use crate::stacks;

    const VAULT: &str =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v/keys/k";

    fn created(id: &str) -> PlannedResource {
        PlannedResource {
            key: ResourceKey::new(id),
            stack: stacks::INFRA,
            id: id.parse().unwrap(),
            change: ResourceChange::Create,
        }
    }

    #[test]
    fn role_assignment_needs_its_permission_at_its_own_scope_if_that_exists() {
        let role = |scope: &str| {
            created(&format!("{scope}/providers/Microsoft.Authorization/roleAssignments/a"))
        };
        let subscription: SubscriptionId = "s".parse().unwrap();
        let group = ResourceGroupBody::id(&subscription, "g");
        let groups = BTreeMap::from([("g".to_owned(), group.clone())]);
        let network = format!("{group}/providers/Microsoft.Network/virtualNetworks/n");
        for (writes, scope) in [
            (vec![role(VAULT)], VAULT),
            (
                vec![role("/subscriptions/dns/resourceGroups/z")],
                "/subscriptions/dns/resourceGroups/z",
            ),
            (vec![role("/subscriptions/s")], "/subscriptions/s"),
            // The plan creates the network, so only the scope of the group exists.
            (vec![role(&network), created(&network)], group.as_str()),
        ] {
            let writes: Vec<_> = writes.iter().filter_map(ArmWrite::of).collect();
            let action = "Microsoft.Authorization/roleAssignments/write";
            let expected = RequiredAction::new(&scope.parse().unwrap(), action);
            let required = required_actions(&subscription, &writes, &groups);
            assert!(required.contains(&expected), "{scope}: {required:?}");
        }
    }
}
