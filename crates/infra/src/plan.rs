//! The plan: how the live resources differ from the desired ones. Does no I/O.

use std::borrow::Cow;
use std::collections::BTreeSet;

use lanyard_azure::{ArmBody as _, FederatedCredentialBody, RoleAssignmentBody};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ArmResourceId;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::destroy::DestroyPlan;
use crate::journal::{RecordedResource, RecordedState};
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_evidence::OwnershipEvidence;
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::{PropertyDifference, property_differences};
use crate::property_reference::resolve_references;
use crate::resource::{
    DesiredResource, Ownership, PrincipalReference, ResourceDefinition, ResourceKey, ResourceStack,
};
use crate::resource_graph::ResourceGraph;

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
    pub stack: ResourceStack,
    /// The id of the resource: the live one if the resource exists.
    pub id: ArmResourceId,
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
    /// The role assignment differs, or has another scope. Azure does not change assignments, so it is deleted and
    /// created.
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
        id: ArmResourceId,
    },
    /// A resource with the name of a desired one exists, but lanyard did not create it, and it differs.
    #[error(
        "`{id}` exists and differs, and neither its tags nor the journal show that lanyard created it for this purpose"
    )]
    NotOurs {
        /// The id of the resource.
        id: ArmResourceId,
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
    /// The configuration gives a resource another id than the one under which lanyard created or imported it.
    #[error("the journal records `{recorded}`, and the configuration now names it `{id}`")]
    Renamed {
        /// The id in the journal.
        recorded: ArmResourceId,
        /// The id by the configuration.
        id: ArmResourceId,
    },
    /// Azure cannot change a property of an existing resource.
    #[error("Azure cannot change the location of `{id}`")]
    Immutable {
        /// The id of the resource.
        id: ArmResourceId,
        /// The properties that differ.
        differences: Vec<PropertyDifference>,
    },
}

impl PlanProblem {
    /// The id in the journal, if the configuration gives the resource another one.
    pub const fn recorded_id(&self) -> Option<&ArmResourceId> {
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
    /// Compares the desired resources with the live ones.
    pub fn new(
        graph: &ResourceGraph,
        live: &LiveState,
        recorded: &RecordedState,
        tags: &OwnershipTags,
    ) -> Self {
        let desired = graph.resources().iter().map(|resource| {
            let found = live.get(&resource.key);
            PlannedResource {
                key: resource.key.clone(),
                stack: resource.stack,
                id: found.map_or_else(|| resource.id.clone(), |found| found.id.clone()),
                change: decide_change(resource, found, recorded, live, tags),
            }
        });
        let stacks: BTreeSet<ResourceStack> =
            graph.resources().iter().map(|resource| resource.stack).collect();
        let has_lasting_role = |role: &str| {
            graph.resources().iter().any(|resource| resource.key.lasting_role() == Some(role))
        };
        let superseded = recorded.resources().filter_map(|(key, record)| {
            let obsolete = graph.get(key).is_none()
                && record.ownership.is_ours()
                && stacks.contains(&record.stack)
                && !key.lasting_role().is_some_and(has_lasting_role);
            obsolete.then(|| PlannedResource {
                key: key.clone(),
                stack: record.stack,
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
    pub fn removals(&self, recorded: &RecordedState) -> DestroyPlan {
        let deleted = self.resources.iter().filter(|it| it.change == ResourceChange::Delete);
        let records = deleted.filter_map(|it| Some((&it.key, recorded.get(&it.key)?)));
        DestroyPlan::of_resources(&records.collect(), &[])
    }

    /// The entries that write to Azure.
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

fn decide_change(
    resource: &DesiredResource,
    found: Option<&LiveResource>,
    recorded: &RecordedState,
    live: &LiveState,
    tags: &OwnershipTags,
) -> ResourceChange {
    let record = recorded.get(&resource.key);
    if let Some(record) = record.filter(|it| it.is_renamed(resource)) {
        return change_of_renamed(resource, record);
    }
    let Some(found) = found else {
        return match resource.definition {
            ResourceDefinition::Existing { .. } => ResourceChange::Problem {
                problem: PlanProblem::Missing { id: resource.id.clone() },
            },
            _ => ResourceChange::Create,
        };
    };
    let ownership = match resource.definition {
        ResourceDefinition::Existing { .. } => Ownership::Existing,
        _ => OwnershipEvidence::of_id(recorded, &resource.key, &found.id, tags)
            .ownership_of(&found.id, &found.body),
    };
    let differences = live_differences(resource, found, live);
    if differences.is_empty() {
        return ResourceChange::None { ownership };
    }
    match resource.definition {
        _ if ownership == Ownership::Existing => ResourceChange::Problem {
            problem: PlanProblem::NotOurs { id: found.id.clone(), differences },
        },
        ResourceDefinition::RoleAssignment { .. } => ResourceChange::Replace { differences },
        _ if differences.iter().any(|it| it.path == "location") => ResourceChange::Problem {
            problem: PlanProblem::Immutable { id: found.id.clone(), differences },
        },
        _ => ResourceChange::Update { differences },
    }
}

/// The change of a resource that the journal records under another id. The new record replaces that one, so nothing
/// else removes the recorded resource: a role assignment is deleted with the change, and anything else is a problem.
fn change_of_renamed(resource: &DesiredResource, record: &RecordedResource) -> ResourceChange {
    let (recorded, id) = (record.id.clone(), resource.id.clone());
    if !matches!(resource.definition, ResourceDefinition::RoleAssignment { .. }) {
        return ResourceChange::Problem { problem: PlanProblem::Renamed { recorded, id } };
    }
    let (desired, live) = (Value::from(id.to_string()), Value::from(recorded.to_string()));
    let path = "id".to_owned();
    ResourceChange::Replace { differences: vec![PropertyDifference { path, desired, live }] }
}

/// The properties of the live resource that differ from the desired ones.
pub(crate) fn live_differences(
    resource: &DesiredResource,
    found: &LiveResource,
    live: &LiveState,
) -> Vec<PropertyDifference> {
    match &resource.definition {
        ResourceDefinition::Existing { .. } | ResourceDefinition::Shared { .. } => Vec::new(),
        ResourceDefinition::Arm { body, .. } => {
            // A reference without a value belongs to a resource that does not exist yet, so it differs.
            let resolved = resolve_references(body, live);
            let mut differences =
                property_differences(resolved.as_ref().unwrap_or(body), &found.body);
            differences.extend(failed_state(&found.body));
            differences
        }
        ResourceDefinition::FederatedCredential { issuer, subject, audience } => {
            let body = FederatedCredentialBody::new(issuer, subject, audience);
            property_differences(&body.to_json(), &found.body)
        }
        ResourceDefinition::RoleAssignment { subscription, role, principal, .. } => {
            // An unknown principal differs from every live one: its identity does not exist.
            let id = principal_id(principal, live).unwrap_or_default();
            let body = RoleAssignmentBody::new(subscription, *role, id)
                .with_principal_type(principal.assigned_type());
            property_differences(&body.to_json(), &found.body)
        }
    }
}

/// The difference of a resource whose last write failed. Azure may lack parts of it that its properties name.
fn failed_state(live: &Value) -> Option<PropertyDifference> {
    let path = "properties.provisioningState".to_owned();
    let state = live.pointer("/properties/provisioningState")?;
    let is_failed = |text: &str| matches!(text, "Failed" | "Canceled");
    let desired = Value::from("Succeeded");
    state.as_str().filter(|text| is_failed(text))?;
    Some(PropertyDifference { path, desired, live: state.clone() })
}

/// The object id of a principal, if it is known.
pub(crate) fn principal_id(principal: &PrincipalReference, live: &LiveState) -> Option<Uuid> {
    match principal {
        PrincipalReference::ObjectId(id) | PrincipalReference::User(id) => Some(*id),
        PrincipalReference::Property { key, pointer } => {
            live.get(key)?.body.pointer(pointer)?.as_str()?.parse().ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::journal::{CreationEvidence, WritePhase};

    fn id(path: &str) -> ArmResourceId {
        format!("/subscriptions/s/resourceGroups/{path}").parse().unwrap()
    }

    fn resource(path: &str, definition: ResourceDefinition) -> DesiredResource {
        let key = ResourceKey::new("link");
        let stack = ResourceStack::Infra;
        DesiredResource { key, stack, id: id(path), definition, depends_on: Vec::new() }
    }

    fn record(path: &str, ownership: Ownership) -> RecordedResource {
        let (stack, id) = (ResourceStack::Infra, id(path));
        let (depends_on, phase) = (Vec::new(), WritePhase::Complete);
        let creation = CreationEvidence::Unknown;
        RecordedResource { stack, id, ownership, depends_on, phase, creation }
    }

    fn tags() -> OwnershipTags {
        OwnershipTags::new(&"harbour".parse().unwrap(), &"harbour-x".parse().unwrap())
    }

    fn tagged(mut body: Value) -> Value {
        tags().add_to(&mut body);
        body
    }

    fn plain() -> ResourceDefinition {
        ResourceDefinition::untagged("2024-01-01", json!({}))
    }

    fn change(
        resource: &DesiredResource,
        record: &RecordedResource,
        found: Option<&LiveResource>,
    ) -> ResourceChange {
        let recorded = RecordedState::of([(resource.key.clone(), record.clone())]);
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
            let found = LiveResource { id: id(found), body };
            let change = change(&resource, &record, Some(&found));
            assert_eq!(change, ResourceChange::None { ownership });
        }
    }

    #[test]
    fn resource_of_lanyard_that_gets_another_id_is_a_problem() {
        let existing = || ResourceDefinition::Existing { api_version: "2024-01-01" };
        let role = |scope: &str| ResourceDefinition::RoleAssignment {
            subscription: "s".parse().unwrap(),
            role: lanyard_vocabulary::RoleDefinitionId::KEY_VAULT_CRYPTO_USER,
            scope: id(scope),
            principal: PrincipalReference::ObjectId(Uuid::nil()),
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
        let definition =
            ResourceDefinition::untagged("2024-01-01", json!({ "location": "westus" }));
        let (resource, record) = (resource("a", definition), record("a", Ownership::Created));
        for (location, is_problem) in [("eastus", true), ("West US", false)] {
            let body = tagged(json!({ "location": location }));
            let found = LiveResource { id: id("a"), body };
            let change = change(&resource, &record, Some(&found));
            let found_problem = matches!(
                change,
                ResourceChange::Problem { problem: PlanProblem::Immutable { .. } }
            );
            assert_eq!(found_problem, is_problem, "{location}: {change:?}");
        }
    }
}
