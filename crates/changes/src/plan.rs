//! The plan: how the live resources differ from the desired ones. Does no I/O.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use serde::Serialize;

use crate::destroy_plan::DestroyPlan;
use crate::effect::{Effect, EffectAccess, EffectUsage};
use crate::journal::RecordedState;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::PropertyDifference;
use crate::recorded_resource::RecordedResource;
use crate::resource_graph::{DesiredResource, ResourceGraph};
use crate::resource_id::ResourceId;
use crate::resource_key::{Ownership, ResourceKey, StackName};

/// The changes that bring the live resources to the desired state.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// One entry for each desired resource, each behind its dependencies, then the resources to delete.
    pub resources: Vec<PlannedResource>,
}

/// The planned change of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedResource {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The stack that the resource belongs to.
    pub stack: StackName,
    /// The id of the resource: the live one if the resource exists.
    pub id: ResourceId,
    /// What is planned.
    #[serde(flatten)]
    pub change: ResourceChange,
}

/// What is planned for one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "change", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ResourceChange {
    /// The resource does not exist and is created.
    Create,
    /// The resource differs and is changed in place.
    Update {
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
    /// The resource differs, or has another id, and the service rejects changes of it, such as a role assignment. It is
    /// deleted and created.
    Replace {
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
    /// The resource is as desired.
    None {
        /// Whether `destroy` deletes the resource.
        ownership: Ownership,
    },
    /// Lanyard created the resource for an earlier configuration, which needed it. It is deleted.
    Delete,
    /// The plan cannot be applied.
    Problem {
        /// Why.
        problem: PlanProblem,
    },
}

/// The reason why the plan of a resource cannot be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize)]
#[serde(tag = "code", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanProblem {
    /// A resource that the user named does not exist.
    #[error("`{id}` does not exist")]
    Missing {
        /// The id of the resource.
        id: ResourceId,
    },
    /// A resource with the name of a desired one exists, but lanyard did not create it, and it differs.
    #[error(
        "`{id}` exists and differs, and neither its tags nor the journal show that lanyard created it for this purpose"
    )]
    NotOurs {
        /// The id of the resource.
        id: ResourceId,
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
    /// The configuration gives a resource another id than the one under which lanyard created or imported it.
    #[error("the journal records `{recorded}`, and the configuration now names it `{id}`")]
    Renamed {
        /// The id in the journal.
        recorded: ResourceId,
        /// The id by the configuration.
        id: ResourceId,
    },
    /// Azure cannot change a property of an existing resource.
    #[error("Azure cannot change the location of `{id}`")]
    Immutable {
        /// The id of the resource.
        id: ResourceId,
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
}

impl PlanProblem {
    /// The id in the journal, if the configuration gives the resource another one.
    pub const fn recorded_id(&self) -> Option<&ResourceId> {
        match self {
            Self::Renamed { recorded, .. } => Some(recorded),
            _ => None,
        }
    }
}

impl ErrorHint for PlanProblem {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Missing { .. } => "create it, or correct the id",
            Self::NotOurs { .. } => {
                "choose another name or infrastructure id, or adopt the resource, so that it is changed now and `lanyard destroy` removes it: with `lanyard import azure` for a cluster, otherwise with --import"
            }
            Self::Renamed { .. } => {
                "restore the earlier setting, or remove the resource first: run the command without it, or run `lanyard destroy` and create all again"
            }
            Self::Immutable { .. } => {
                "restore the earlier location, or remove the resources with `lanyard destroy` and create them again"
            }
        }))
    }
}

impl ResourceChange {
    /// Whether apply writes to Azure for this change.
    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Create | Self::Update { .. } | Self::Replace { .. } | Self::Delete)
    }
}

impl Plan {
    /// Compares the desired resources with the live ones. What an earlier configuration needed is deleted, except the
    /// recorded resources for which `stays` returns true.
    pub fn new<E: Effect>(
        graph: &ResourceGraph<E>,
        live: &LiveState,
        recorded: &RecordedState,
        tags: &OwnershipTags,
        stays: impl Fn(&ResourceKey) -> bool,
    ) -> Self {
        let desired = graph.resources().iter().map(|resource| {
            let found = live.get(&resource.key);
            PlannedResource {
                key: resource.key.clone(),
                stack: resource.stack.clone(),
                id: found.map_or_else(|| resource.id.clone(), |found| found.id.clone()),
                change: decide_change(resource, found, recorded, live, tags),
            }
        });
        let stacks = graph.stacks();
        let superseded = recorded.resources().filter_map(|(key, record)| {
            let obsolete = graph.get(key).is_none()
                && record.ownership.is_ours()
                && stacks.contains(&record.stack)
                && !stays(key);
            obsolete.then(|| PlannedResource {
                key: key.clone(),
                stack: record.stack.clone(),
                id: record.id.clone(),
                change: ResourceChange::Delete,
            })
        });
        Self { resources: desired.chain(superseded).collect() }
    }

    /// The plan without deletions: what an earlier configuration needed stays.
    #[must_use]
    pub fn without_deletions(mut self) -> Self {
        self.resources.retain(|planned| planned.change != ResourceChange::Delete);
        self
    }

    /// The deletions of the plan, as the plan of a removal.
    pub fn removals<A: EffectAccess>(&self, recorded: &RecordedState) -> DestroyPlan {
        let deleted = self.resources.iter().filter(|it| it.change == ResourceChange::Delete);
        let records = deleted.filter_map(|it| Some((&it.key, recorded.get(&it.key)?)));
        DestroyPlan::of_resources::<A>(&records.collect(), &[])
    }

    /// The entries that write.
    pub fn writes(&self) -> impl Iterator<Item = &PlannedResource> {
        self.resources.iter().filter(|resource| resource.change.is_write())
    }

    /// The reasons why the plan cannot be applied.
    pub fn problems(&self) -> impl Iterator<Item = (&ResourceKey, &PlanProblem)> {
        self.resources.iter().filter_map(|resource| match &resource.change {
            ResourceChange::Problem { problem } => Some((&resource.key, problem)),
            _ => None,
        })
    }
}

fn decide_change<E: Effect>(
    resource: &DesiredResource<E>,
    found: Option<&LiveResource>,
    recorded: &RecordedState,
    live: &LiveState,
    tags: &OwnershipTags,
) -> ResourceChange {
    let record = recorded.get(&resource.key);
    if let Some(record) = record.filter(|it| is_renamed(it, resource)) {
        return change_of_renamed(resource, record);
    }
    let usage = resource.effect.usage();
    let Some(found) = found else {
        return if usage.must_exist() {
            let problem = PlanProblem::Missing { id: resource.id.clone() };
            ResourceChange::Problem { problem }
        } else {
            ResourceChange::Create
        };
    };
    let ownership = if usage.must_exist() {
        Ownership::Existing
    } else {
        OwnershipEvidence::of_id(recorded, &resource.key, &found.id, tags).ownership_of(found)
    };
    let differences = resource.effect.diff(found, live);
    if differences.is_empty() {
        return ResourceChange::None { ownership };
    }
    let id = found.id.clone();
    if usage == EffectUsage::Adjusted {
        ResourceChange::Update { differences }
    } else if ownership == Ownership::Existing {
        ResourceChange::Problem { problem: PlanProblem::NotOurs { id, differences } }
    } else if E::Access::is_immutable(&id) {
        ResourceChange::Replace { differences }
    } else if differences.iter().any(|it| it.path == "location") {
        ResourceChange::Problem { problem: PlanProblem::Immutable { id, differences } }
    } else {
        ResourceChange::Update { differences }
    }
}

/// Whether the configuration gives a resource of lanyard another id than the journal records. The names of resources that
/// a service knows by their content may differ.
pub(crate) fn is_renamed<E: Effect>(
    record: &RecordedResource,
    resource: &DesiredResource<E>,
) -> bool {
    let is_same = if resource.effect.is_known_by_content() {
        record.id.is_in_same_collection(&resource.id)
    } else {
        record.id == resource.id
    };
    record.ownership.is_ours() && !is_same
}

/// The change of a resource that the journal records under another id. The new record replaces that one, so nothing
/// else removes the recorded resource: what a service rejects to change is deleted with the change, and anything else is
/// a problem.
fn change_of_renamed<E: Effect>(
    resource: &DesiredResource<E>,
    record: &RecordedResource,
) -> ResourceChange {
    let (recorded, id) = (record.id.clone(), resource.id.clone());
    if !E::Access::is_immutable(&id) {
        return ResourceChange::Problem { problem: PlanProblem::Renamed { recorded, id } };
    }
    let (path, desired) = ("id".to_owned(), id.to_string().into());
    let differences = vec![PropertyDifference { path, desired, live: recorded.to_string().into() }];
    ResourceChange::Replace { differences }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::creation_evidence::CreationEvidence;
    use crate::effects::{AzureEffect, PrincipalReference, RoleAssignment, arm_resource};
    use crate::recorded_resource::WritePhase;

    fn id(path: &str) -> ResourceId {
        format!("/subscriptions/s/resourceGroups/{path}").parse().unwrap()
    }

    fn resource(path: &str, effect: AzureEffect) -> DesiredResource<AzureEffect> {
        let key = ResourceKey::new("link");
        let stack = StackName::new("infra");
        DesiredResource { key, stack, id: id(path), effect, depends_on: Vec::new() }
    }

    fn record(path: &str, ownership: Ownership) -> RecordedResource {
        let (stack, id) = (StackName::new("infra"), id(path));
        let (depends_on, phase) = (Vec::new(), WritePhase::Complete);
        let creation = CreationEvidence::Unknown;
        RecordedResource { stack, id, ownership, depends_on, phase, creation }
    }

    fn tags() -> OwnershipTags {
        OwnershipTags::new("harbour", "harbour-x")
    }

    fn tagged(mut body: Value) -> Value {
        tags().add_to(&mut body);
        body
    }

    fn plain() -> AzureEffect {
        AzureEffect::untagged("2024-01-01", json!({}))
    }

    fn change(
        resource: &DesiredResource<AzureEffect>,
        record: &RecordedResource,
        found: Option<&LiveResource>,
    ) -> ResourceChange {
        let mut recorded = RecordedState::default();
        recorded.insert(resource.key.clone(), record.clone());
        decide_change(resource, found, &recorded, &LiveState::default(), &tags())
    }

    #[test]
    fn record_of_another_id_is_no_ownership() {
        let (resource, record) = (resource("ours", plain()), record("ours", Ownership::Created));
        for (found, ownership) in [("OURS", Ownership::Created), ("other", Ownership::Existing)] {
            let body = match ownership {
                Ownership::Created => tagged(json!({})),
                _ => json!({}),
            };
            let found = arm_resource(id(found), body);
            let change = change(&resource, &record, Some(&found));
            assert_eq!(change, ResourceChange::None { ownership });
        }
    }

    #[test]
    fn resource_of_lanyard_that_gets_another_id_is_a_problem() {
        let existing = || AzureEffect::existing("2024-01-01");
        let role = |scope: &str| {
            AzureEffect::RoleAssignment(RoleAssignment {
                subscription: "s".parse().unwrap(),
                role: lanyard_vocabulary::RoleDefinitionId::KEY_VAULT_CRYPTO_USER,
                scope: id(scope).arm().unwrap().clone(),
                principal: PrincipalReference::ObjectId(Uuid::nil()),
            })
        };
        let assignment = |scope: &str, name| {
            format!("{scope}/providers/Microsoft.Authorization/roleAssignments/{name}")
        };
        let created = Ownership::Created;
        let cases = [
            ("a".to_owned(), created, "b".to_owned(), plain(), true),
            ("a".to_owned(), Ownership::Imported, "b".to_owned(), plain(), true),
            // The user now names a resource of their own for the one of lanyard.
            ("a".to_owned(), created, "b".to_owned(), existing(), true),
            ("a".to_owned(), created, "A".to_owned(), plain(), false),
            ("a".to_owned(), Ownership::Existing, "b".to_owned(), existing(), false),
            // It is replaced instead.
            (assignment("a", "1"), created, assignment("b", "1"), role("b"), false),
            // An imported assignment has the name that another tool chose.
            (assignment("a", "1"), Ownership::Imported, assignment("A", "2"), role("a"), false),
        ];
        for (recorded, ownership, desired, definition, expected) in cases {
            let resource = resource(&desired, definition);
            let change = change(&resource, &record(&recorded, ownership), None);
            let problem = PlanProblem::Renamed { recorded: id(&recorded), id: id(&desired) };
            let is_renamed = change == ResourceChange::Problem { problem };
            assert_eq!(is_renamed, expected, "{recorded} -> {desired}: {change:?}");
        }
    }

    #[test]
    fn change_of_the_location_is_a_problem() {
        let definition = AzureEffect::untagged("2024-01-01", json!({ "location": "westus" }));
        let (resource, record) = (resource("a", definition), record("a", Ownership::Created));
        for (location, is_problem) in [("eastus", true), ("West US", false)] {
            let body = tagged(json!({ "location": location }));
            let found = arm_resource(id("a"), body);
            let change = change(&resource, &record, Some(&found));
            let found_problem = matches!(
                change,
                ResourceChange::Problem { problem: PlanProblem::Immutable { .. } }
            );
            assert_eq!(found_problem, is_problem, "{location}: {change:?}");
        }
    }
}
