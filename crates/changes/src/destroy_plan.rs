//! What a removal deletes, and in which order. Does no I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::effect::EffectAccess;
use crate::graph_run::{GraphNode, sort_by_dependencies};
use crate::journal::RecordedState;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;
use crate::resource_key::{ResourceKey, StackName};

/// The resources that a destroy command removes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DestroyPlan {
    /// The resources, each after the resources that need it.
    pub resources: Vec<DestroyedResource>,
    /// The resource groups that stay, because they contain other resources.
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
    pub id: ResourceId,
    /// The ids of the resources in the group that are not removed, as Azure lists them.
    pub other_resources: Vec<String>,
}

/// A resource in a group that does not belong to the removal of the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrecordedResource {
    /// The resource group.
    pub group: ResourceId,
    /// The id of the resource, as Azure lists it. Names of some types contain characters that an id of lanyard's
    /// resources cannot have, such as spaces.
    pub id: String,
}

/// A resource to remove.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DestroyedResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: StackName,
    /// The id of the resource.
    pub id: ResourceId,
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
    /// What the deletion of another resource does not remove with certainty is deleted one by one, such as role
    /// assignments: an interrupted deletion of their group would otherwise leave assignments of principals that do not
    /// exist any more.
    pub fn new<A: EffectAccess>(recorded: &RecordedState, stacks: &[StackName]) -> Self {
        Self::keeping::<A>(recorded, stacks, &[], |_, _| false)
    }

    /// The resources of `stacks` that belong to lanyard, without the shared groups that contain one of `others`, which
    /// the removal leaves. What the stacks have in such a group is removed one by one.
    pub fn keeping<A: EffectAccess>(
        recorded: &RecordedState,
        stacks: &[StackName],
        others: &[UnrecordedResource],
        is_shared: impl Fn(&ResourceKey, &StackName) -> bool,
    ) -> Self {
        let is_removed = |record: &RecordedResource| {
            record.ownership.is_ours() && stacks.contains(&record.stack)
        };
        let groups = recorded
            .resources()
            .filter(|(key, record)| is_removed(record) && is_shared(key, &record.stack));
        let kept_groups = groups.filter_map(|(key, record)| {
            let others = others.iter().filter(|other| other.group == record.id);
            let other_resources: Vec<_> = others.map(|other| other.id.clone()).collect();
            let (key, id) = (key.clone(), record.id.clone());
            (!other_resources.is_empty()).then_some(KeptGroup { key, id, other_resources })
        });
        let kept_groups: Vec<_> = kept_groups.collect();
        let is_kept = |key: &ResourceKey| kept_groups.iter().any(|group| group.key == *key);
        let ours = recorded.resources().filter(|(key, record)| is_removed(record) && !is_kept(key));
        let plan = Self::of_resources::<A>(&ours.collect(), &[]);
        Self { kept_groups, ..plan }
    }

    /// The records of the removed resources.
    pub(crate) fn records(&self) -> Vec<&RecordedResource> {
        self.resources.iter().map(|resource| &resource.record).collect()
    }

    /// The removal of `ours`. What `dependents` need is removed after them, although they stay.
    pub(crate) fn of_resources<A: EffectAccess>(
        ours: &BTreeMap<&ResourceKey, &RecordedResource>,
        dependents: &[(&ResourceKey, &[ResourceKey])],
    ) -> Self {
        let containers: BTreeMap<&ResourceKey, &ResourceKey> = ours
            .keys()
            .filter_map(|key| Some((*key, outermost_container::<A>(key, ours)?)))
            .collect();
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
                    stack: record.stack.clone(),
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
fn outermost_container<'a, A: EffectAccess>(
    key: &ResourceKey,
    ours: &BTreeMap<&'a ResourceKey, &'a RecordedResource>,
) -> Option<&'a ResourceKey> {
    let record = ours.get(key)?;
    let removes = |container: &RecordedResource| A::removes(&container.id, &record.id);
    let containers = ours.iter().filter(|(other, it)| **other != key && removes(it));
    containers.min_by_key(|(_, it)| it.id.as_str().len()).map(|(key, _)| *key)
}

impl DestroyedResource {
    pub(crate) fn node<A: EffectAccess>(&self) -> GraphNode {
        let (key, depends_on) = (self.key.clone(), self.after.clone());
        GraphNode { key, depends_on, lock: A::write_lock(&self.id) }
    }
}

impl KeptGroup {
    /// The node that runs after the removals in the group. If one of them fails, the next run decides again whether
    /// the group stays.
    pub(crate) fn node<A: EffectAccess>(&self, plan: &DestroyPlan) -> GraphNode {
        let removed = plan.resources.iter().filter(|it| self.id.contains(&it.id));
        let depends_on = removed.map(|it| it.key.clone()).collect();
        GraphNode { key: self.key.clone(), depends_on, lock: A::write_lock(&self.id) }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::effects::AzureAccess;
    use crate::journal::JournalEntry;
    use crate::resource_key::Ownership;

    const INFRA: StackName = StackName::new("infra");

    fn record(
        state: &mut RecordedState,
        key: &str,
        path: &str,
        ownership: Ownership,
        needs: &[&str],
    ) {
        record_of_stack(state, INFRA, (key, path, ownership, needs));
    }

    fn record_of_stack(
        state: &mut RecordedState,
        stack: StackName,
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

    fn id_of_group(name: &str) -> ResourceId {
        format!("/subscriptions/s/resourceGroups/{name}").parse().unwrap()
    }

    const ASSIGNMENT: &str = "providers/Microsoft.Authorization/roleAssignments/a";
    const IDENTITY: &str = "providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";

    fn plan(state: &RecordedState) -> Vec<(String, Option<String>)> {
        let plan = DestroyPlan::new::<AzureAccess>(state, &[INFRA]);
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
        let plan = DestroyPlan::new::<AzureAccess>(&state, &[INFRA]);
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
    fn kept_group_is_forgotten_after_the_removals_in_it() {
        let mut state = RecordedState::default();
        let identity = format!("g/{IDENTITY}");
        let credential = format!("{identity}/federatedIdentityCredentials/c");
        for (key, path, needs) in [
            ("group", "g", &[][..]),
            ("identity", &*identity, &["group"][..]),
            ("credential", &*credential, &["identity"][..]),
        ] {
            record(&mut state, key, path, Ownership::Created, needs);
        }
        let key = ResourceKey::new("group");
        let other = UnrecordedResource { group: id_of_group("G"), id: "x".to_owned() };
        let is_shared = |shared: &ResourceKey, _: &StackName| *shared == key;
        let plan = DestroyPlan::keeping::<AzureAccess>(&state, &[INFRA], &[other], is_shared);
        let removed: Vec<_> = plan
            .resources
            .iter()
            .map(|it| (it.key.as_str(), it.removed_with.as_ref().map(ResourceKey::as_str)))
            .collect();
        assert_eq!(removed, [("identity", None), ("credential", Some("identity"))]);
        let node = plan.kept_groups[0].node::<AzureAccess>(&plan);
        assert_eq!(node.depends_on, ["identity", "credential"].map(ResourceKey::new));
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
