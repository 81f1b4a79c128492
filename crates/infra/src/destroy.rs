//! Removes the resources of a stack that the journal records as created or imported.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{ArmBody as _, PrivateDnsLinkBody, RoleAssignmentBody};
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;

use crate::apply::{ResourceOutcome, RunContext, RunReport};
use crate::graph_run::{GraphNode, run_graph, sort_by_dependencies};
use crate::journal::{
    JournalEntry, JournalError, RecordedResource, RecordedState, RunCommand, WriteKind,
};
use crate::resource::{ResourceKey, ResourceStack, write_lock};
use crate::resource_write::{DeletedRecord, DeletionResult, ResourceError, ResourceWriter};
use crate::run_steps::RunSteps;
use crate::shared_groups::is_shared_group;
use crate::unrecorded_resources::UnrecordedResource;

/// The resources that a destroy command removes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DestroyPlan {
    /// The resources, each after the resources that need it.
    pub resources: Vec<DestroyedResource>,
    /// The resource groups that stay, because several stacks use them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept_groups: Vec<KeptGroup>,
}

/// A resource group of lanyard that stays, because it contains resources that are not removed. The journal does not
/// record it any more after the removal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptGroup {
    /// The key of the group.
    pub key: ResourceKey,
    /// The id of the group.
    pub id: ArmResourceId,
    /// The ids of the resources in the group that are not removed, as Azure lists them.
    pub other_resources: Vec<String>,
}

/// A resource to remove.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DestroyedResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: ResourceStack,
    /// The id of the resource.
    pub id: ArmResourceId,
    /// The resource group or parent whose deletion removes the resource, too. No request is sent for the
    /// resource itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed_with: Option<ResourceKey>,
    /// The resources that are removed first.
    #[serde(skip)]
    pub(crate) after: Vec<ResourceKey>,
    /// What the journal records about the resource.
    #[serde(skip)]
    pub(crate) record: RecordedResource,
}

impl DestroyPlan {
    /// The resources of `stacks` that belong to lanyard.
    ///
    /// Role assignments are always deleted one by one, also those in a group that is deleted: an interrupted
    /// deletion would otherwise leave assignments of principals that do not exist any more.
    pub fn new(recorded: &RecordedState, stacks: &[ResourceStack]) -> Self {
        Self::keeping_shared_groups(recorded, stacks, &[])
    }

    /// The resources of `stacks` that belong to lanyard, without the shared groups that contain one of `others`. What
    /// the stacks have in such a group is removed one by one.
    ///
    /// `others` are resources that the removal leaves. A group that lanyard created for one cluster or one issuer is
    /// not shared, and is not kept.
    pub fn keeping_shared_groups(
        recorded: &RecordedState,
        stacks: &[ResourceStack],
        others: &[UnrecordedResource],
    ) -> Self {
        let mut ours: BTreeMap<&ResourceKey, &RecordedResource> = recorded
            .resources()
            .filter(|(_, record)| record.ownership.is_ours() && stacks.contains(&record.stack))
            .collect();
        let mut kept_groups = Vec::new();
        ours.retain(|key, record| {
            if !is_shared_group(key, record.stack) {
                return true;
            }
            let in_group = others.iter().filter(|other| other.group == record.id);
            let other_resources: Vec<_> = in_group.map(|other| other.id.clone()).collect();
            if other_resources.is_empty() {
                return true;
            }
            let (key, id) = ((*key).clone(), record.id.clone());
            kept_groups.push(KeptGroup { key, id, other_resources });
            false
        });
        Self { kept_groups, ..Self::of_resources(&ours, &[]) }
    }

    /// The records of the removed resources.
    pub(crate) fn records(&self) -> Vec<&RecordedResource> {
        self.resources.iter().map(|resource| &resource.record).collect()
    }

    /// The removal of `ours`. What `dependents` need is removed after them, although they stay.
    pub(crate) fn of_resources(
        ours: &BTreeMap<&ResourceKey, &RecordedResource>,
        dependents: &[(&ResourceKey, &[ResourceKey])],
    ) -> Self {
        let containers: BTreeMap<&ResourceKey, &ResourceKey> =
            ours.keys().filter_map(|key| Some((*key, outermost_container(key, ours)?))).collect();
        // The resource whose delete request removes this one.
        let removed_by = |key: &ResourceKey| (*containers.get(key).unwrap_or(&key)).clone();
        let resources = ours
            .iter()
            .map(|(key, record)| {
                let removed_with = containers.get(key).map(|container| (*container).clone());
                let needs = |depends_on: &[ResourceKey]| {
                    depends_on.iter().any(|dependency| removed_by(dependency) == **key)
                };
                let removed = ours.iter().filter(|(_, it)| needs(&it.depends_on));
                let remaining = dependents.iter().filter(|(_, depends_on)| needs(depends_on));
                let first: BTreeSet<_> = removed
                    .map(|(key, _)| removed_by(key))
                    .chain(remaining.map(|(key, _)| (*key).clone()))
                    .collect();
                let after = match &removed_with {
                    // If the container stays, because it belongs to another client, its content is removed one by one.
                    Some(container) => {
                        let is_beside = |other| containers.get(other) == Some(&container);
                        let users = ours.iter().filter(|(other, it)| {
                            is_beside(**other) && it.depends_on.contains(*key)
                        });
                        let users = users.map(|(other, _)| (*other).clone());
                        std::iter::once(container.clone()).chain(users).collect()
                    }
                    None => first.into_iter().filter(|it| it != *key).collect(),
                };
                DestroyedResource {
                    key: (*key).clone(),
                    stack: record.stack,
                    id: record.id.clone(),
                    removed_with,
                    after,
                    record: (*record).clone(),
                }
            })
            .collect();
        let resources = sort_by_dependencies(resources, |it| &it.key, |it| &it.after);
        Self { resources, kept_groups: Vec::new() }
    }
}

/// The resource of `ours` whose deletion removes this one: the outermost one that contains it.
fn outermost_container<'a>(
    key: &ResourceKey,
    ours: &BTreeMap<&'a ResourceKey, &'a RecordedResource>,
) -> Option<&'a ResourceKey> {
    let record = ours.get(key)?;
    if is_role_assignment(&record.id) {
        return None;
    }
    // Azure does not delete a private DNS zone that has links, only a whole resource group with both.
    let needs_group = record.id.has_type(PrivateDnsLinkBody::RESOURCE_TYPE);
    let containers = ours.iter().filter(|(other, it)| {
        let removes = !needs_group || it.id.resource_type().is_none();
        **other != key && removes && it.id.contains(&record.id)
    });
    containers.min_by_key(|(_, it)| it.id.as_str().len()).map(|(key, _)| *key)
}

fn is_role_assignment(id: &ArmResourceId) -> bool {
    id.has_type(RoleAssignmentBody::RESOURCE_TYPE)
}

/// Removes the resources of the plan, which is one for `stacks`. It can be interrupted and run again at any point.
///
/// Also without resources to remove, it ends an earlier run of the stacks.
///
/// # Errors
///
/// [`JournalError`] if the beginning or the end of the run cannot be recorded. Errors of single deletions are in
/// the report.
pub async fn destroy(
    context: RunContext<'_>,
    plan: &DestroyPlan,
    stacks: &[ResourceStack],
) -> Result<RunReport, JournalError> {
    let planned: BTreeSet<ResourceStack> = plan.resources.iter().map(|it| it.stack).collect();
    if !planned.is_empty() {
        let (at, planned) = (context.clock.now(), Vec::from_iter(planned));
        let caller = context.caller;
        context.journal.start_run(at, RunCommand::Destroy, planned, caller).await?;
    }
    let steps = RunSteps::begin(context);
    let groups = plan.kept_groups.iter().map(|group| group.node(plan));
    let nodes = plan.resources.iter().map(DestroyedResource::node).chain(groups).collect();
    let results = run_graph(nodes, context.options.parallel, async |key| {
        match plan.resources.iter().find(|it| it.key == key) {
            Some(resource) => remove_resource(&steps, plan, resource).await,
            None => forget_group(context, key).await,
        }
    })
    .await;
    let report = steps.report(results);
    if report.succeeded() {
        context.journal.end_run(context.clock.now(), stacks).await?;
    }
    Ok(report)
}

impl DestroyedResource {
    pub(crate) fn node(&self) -> GraphNode {
        let (key, depends_on) = (self.key.clone(), self.after.clone());
        GraphNode { key, depends_on, lock: write_lock(&self.id) }
    }
}

impl KeptGroup {
    /// The node that runs after the removals in the group. If one of them fails, the next run decides again whether
    /// the group stays.
    fn node(&self, plan: &DestroyPlan) -> GraphNode {
        let removed = plan.resources.iter().filter(|it| self.id.contains(&it.id));
        let depends_on = removed.map(|it| it.key.clone()).collect();
        GraphNode { key: self.key.clone(), depends_on, lock: write_lock(&self.id) }
    }
}

/// Ends the record of a group that stays. Sends no request to Azure.
async fn forget_group(
    context: RunContext<'_>,
    key: ResourceKey,
) -> Result<ResourceOutcome, ResourceError> {
    let at = context.clock.now();
    context.journal.record(&JournalEntry::Removed { at, key }).await?;
    Ok(ResourceOutcome::Unchanged)
}

/// Removes one resource of the plan, or records that it was removed with another one.
pub(crate) async fn remove_resource(
    steps: &RunSteps<'_>,
    plan: &DestroyPlan,
    resource: &DestroyedResource,
) -> Result<ResourceOutcome, ResourceError> {
    let context = steps.context;
    // A container that belongs to another client stayed, and the journal records it as such.
    let is_gone = |container: &ResourceKey| context.journal.state().get(container).is_none();
    if resource.removed_with.as_ref().is_some_and(is_gone) {
        let (at, key) = (context.clock.now(), resource.key.clone());
        context.journal.record(&JournalEntry::Removed { at, key }).await?;
        return Ok(ResourceOutcome::Deleted);
    }
    steps
        .run(&resource.key, "delete", async |report| {
            let writer = ResourceWriter {
                context,
                key: &resource.key,
                stack: resource.stack,
                id: &resource.id,
                kind: WriteKind::Delete,
                depends_on: &[],
                before: None,
                desired: None,
                report,
            };
            let (record, contained) = (Some(&resource.record), &*plan.records());
            Ok(match writer.delete(DeletedRecord { record, contained }).await? {
                DeletionResult::Deleted => ResourceOutcome::Deleted,
                DeletionResult::Kept => ResourceOutcome::Kept,
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::resource::Ownership;

    fn record(
        state: &mut RecordedState,
        key: &str,
        path: &str,
        ownership: Ownership,
        needs: &[&str],
    ) {
        record_of_stack(state, ResourceStack::Infra, (key, path, ownership, needs));
    }

    fn record_of_stack(
        state: &mut RecordedState,
        stack: ResourceStack,
        (key, path, ownership, needs): (&str, &str, Ownership, &[&str]),
    ) {
        state.apply(&JournalEntry::Recorded {
            at: Timestamp::UNIX_EPOCH,
            key: ResourceKey::new(key),
            stack,
            id: format!("/subscriptions/s/resourceGroups/{path}").parse().unwrap(),
            ownership,
            depends_on: needs.iter().map(|key| ResourceKey::new(*key)).collect(),
            created: None,
        });
    }

    fn id_of_group(name: &str) -> ArmResourceId {
        format!("/subscriptions/s/resourceGroups/{name}").parse().unwrap()
    }

    const ASSIGNMENT: &str = "providers/Microsoft.Authorization/roleAssignments/a";
    const IDENTITY: &str = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";

    fn plan(state: &RecordedState) -> Vec<(String, Option<String>)> {
        let plan = DestroyPlan::new(state, &[ResourceStack::Infra]);
        let entry = |it: DestroyedResource| {
            (it.key.to_string(), it.removed_with.map(|container| container.to_string()))
        };
        plan.resources.into_iter().map(entry).collect()
    }

    #[test]
    fn content_of_a_group_is_removed_after_its_users_in_case_the_group_stays() {
        let mut state = RecordedState::default();
        let network = |kind: &str| format!("g/providers/Microsoft.Network/{kind}/a");
        record(&mut state, "group", "g", Ownership::Created, &[]);
        let nsg = network("networkSecurityGroups");
        record(&mut state, "nsg", &nsg, Ownership::Created, &["group"]);
        let vnet = network("virtualNetworks");
        record(&mut state, "vnet", &vnet, Ownership::Created, &["group", "nsg"]);
        let plan = DestroyPlan::new(&state, &[ResourceStack::Infra]);
        let after = |key: &str| {
            let resource = plan.resources.iter().find(|it| it.key == ResourceKey::new(key));
            let keys = resource.unwrap().after.iter().map(ToString::to_string);
            keys.collect::<Vec<_>>()
        };
        assert_eq!(after("group"), Vec::<String>::new());
        assert_eq!(after("vnet"), ["group"]);
        assert_eq!(after("nsg"), ["group", "vnet"]);
    }

    #[test]
    fn role_assignments_are_removed_before_the_group_of_their_identity() {
        let mut state = RecordedState::default();
        record(&mut state, "group", "g", Ownership::Created, &[]);
        record(&mut state, "identity", &format!("g/{IDENTITY}"), Ownership::Created, &["group"]);
        record(
            &mut state,
            "role",
            &format!("other/{ASSIGNMENT}"),
            Ownership::Created,
            &["identity"],
        );
        let group = || Some("group".to_owned());
        assert_eq!(
            plan(&state),
            [
                ("role".to_owned(), None),
                ("group".to_owned(), None),
                ("identity".to_owned(), group())
            ]
        );
    }

    #[test]
    fn resources_of_the_user_stay() {
        let mut state = RecordedState::default();
        record(&mut state, "group", "g", Ownership::Existing, &[]);
        record(&mut state, "identity", &format!("g/{IDENTITY}"), Ownership::Imported, &["group"]);
        record(&mut state, "role", &format!("g/{ASSIGNMENT}"), Ownership::Created, &["identity"]);
        assert_eq!(plan(&state), [("role".to_owned(), None), ("identity".to_owned(), None)]);
    }

    #[test]
    fn link_of_a_zone_is_removed_before_the_zone_unless_their_group_is_removed() {
        let zone = "g/providers/Microsoft.Network/privateDnsZones/z";
        for (ownership, expected) in [
            (Ownership::Existing, vec![("link", None), ("zone", None)]),
            (
                Ownership::Created,
                vec![("group", None), ("link", Some("group")), ("zone", Some("group"))],
            ),
        ] {
            let mut state = RecordedState::default();
            record(&mut state, "group", "g", ownership, &[]);
            record(&mut state, "zone", zone, Ownership::Created, &["group"]);
            let link = format!("{zone}/virtualNetworkLinks/l");
            record(&mut state, "link", &link, Ownership::Created, &["zone"]);
            let expected = expected.into_iter().map(|(key, group): (&str, Option<&str>)| {
                (key.to_owned(), group.map(str::to_owned))
            });
            assert_eq!(plan(&state), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn shared_group_with_other_resources_stays_and_is_forgotten_last() {
        let mut state = RecordedState::default();
        let identity = format!("g/{IDENTITY}");
        let credential = format!("{identity}/federatedIdentityCredentials/c");
        for (key, path, needs) in [
            ("identity-group", "g", &[][..]),
            ("identity/disk", &*identity, &["identity-group"][..]),
            ("identity/disk/c", &*credential, &["identity/disk"][..]),
        ] {
            let resource = (key, path, Ownership::Created, needs);
            record_of_stack(&mut state, ResourceStack::Iam, resource);
        }
        let stacks = [ResourceStack::Iam];
        let other = |group: &str| {
            let id =
                format!("/subscriptions/s/resourceGroups/{group}/providers/M/rules/on call #1");
            [UnrecordedResource { group: id_of_group(group), id }]
        };
        let elsewhere = other("other");
        let plan = DestroyPlan::keeping_shared_groups(&state, &stacks, &elsewhere);
        assert_eq!(plan, DestroyPlan::new(&state, &stacks));
        assert!(plan.kept_groups.is_empty());
        let others = other("G");
        let plan = DestroyPlan::keeping_shared_groups(&state, &stacks, &others);
        let [group] = &plan.kept_groups[..] else { panic!("{plan:?}") };
        assert_eq!(
            (group.id.name(), &group.other_resources[..]),
            ("g", &[others[0].id.clone()][..])
        );
        let removed: Vec<_> = plan
            .resources
            .iter()
            .map(|it| (it.key.as_str(), it.removed_with.as_ref().map(ResourceKey::as_str)))
            .collect();
        assert_eq!(removed, [("identity/disk", None), ("identity/disk/c", Some("identity/disk"))]);
        let node = group.node(&plan);
        assert_eq!(node.depends_on, ["identity/disk", "identity/disk/c"].map(ResourceKey::new));
    }

    #[test]
    fn group_of_one_cluster_is_not_kept() {
        let mut state = RecordedState::default();
        record(&mut state, "group", "g", Ownership::Created, &[]);
        let stacks = [ResourceStack::Infra];
        let id = "/subscriptions/s/resourceGroups/g/providers/M/vaults/v".to_owned();
        let others = [UnrecordedResource { group: id_of_group("g"), id }];
        let plan = DestroyPlan::keeping_shared_groups(&state, &stacks, &others);
        assert_eq!(plan, DestroyPlan::new(&state, &stacks));
        assert_eq!(plan.resources.len(), 1);
    }

    #[test]
    fn groups_are_removed_in_the_order_in_which_their_resources_need_each_other() {
        let mut state = RecordedState::default();
        record(&mut state, "nsg-group", "n", Ownership::Created, &[]);
        record(&mut state, "vnet-group", "v", Ownership::Created, &[]);
        let nsg = "n/providers/Microsoft.Network/networkSecurityGroups/n";
        let vnet = "v/providers/Microsoft.Network/virtualNetworks/v";
        record(&mut state, "nsg", nsg, Ownership::Created, &["nsg-group"]);
        record(&mut state, "vnet", vnet, Ownership::Created, &["vnet-group", "nsg"]);
        let order: Vec<_> = plan(&state).into_iter().map(|(key, _)| key).collect();
        let position = |key: &str| order.iter().position(|it| it == key);
        assert!(position("vnet-group") < position("nsg-group"), "{order:?}");
    }
}
