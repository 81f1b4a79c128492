//! What ccoctl, or lanyard in its place, created for an owner: found by tags and descriptions, not by the journal.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_azure::{
    ArmBody as _, ArmClient, AssignedRole, AzureCallError, ManagedIdentity, ManagedIdentityBody,
    ResourceGroupBody, RoleAssignmentBody, RoleDefinitionBody, StorageAccountBody,
};
use lanyard_changes::{
    AzureEffect, AzureGraph, CreationEvidence, CreationMark, LiveResource, LiveState, Ownership,
    OwnershipEvidence, OwnershipTags, RecordedResource, RecordedState, ResourceId, ResourceKey,
    RoleAssignment, WritePhase,
};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde_json::Value;
use uuid::Uuid;

use crate::ccoctl_ownership::{CCOCTL_TAG_VALUE, CcoctlOwner};
use crate::listed_role_assignments::{UnreadableRoleAssignment, assignments_within};
use crate::stacks;

/// Selects what `ccoctl azure delete` removes.
#[derive(Debug, Clone)]
pub struct CcoctlRemoval {
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The owner.
    pub owner: CcoctlOwner,
    /// The resource group of the issuer.
    pub resource_group: String,
    /// The storage account of the issuer.
    pub storage_account: String,
    /// Whether the resource group is removed, too, instead of the storage account alone.
    pub removes_group: bool,
}

/// The resources that `ccoctl azure delete` removes could not be read, or their resource group is not one of
/// ccoctl.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CcoctlRemovalError {
    /// A request failed.
    #[error("{what} failed")]
    Read {
        /// What was tried.
        what: &'static str,
        /// The error of the request.
        #[source]
        source: Box<AzureCallError>,
    },
    /// A resource with the tag of the [`CcoctlOwner`] cannot be read, so nothing shows what belongs to it.
    #[error("{what} `{id}` cannot be read")]
    Unreadable {
        /// What it is, such as `the tagged resource`.
        what: &'static str,
        /// The id as Azure returned it.
        id: String,
    },
    /// A role assignment of the subscription cannot be read.
    #[error(transparent)]
    UnreadableAssignment(#[from] UnreadableRoleAssignment),
    /// The resource group does not have the tag of the [`CcoctlOwner`].
    #[error(
        "the resource group `{group}` does not have the tag `{tag}`, so it was not created for this name"
    )]
    GroupNotOwned {
        /// The name of the group.
        group: String,
        /// The name and the value of the tag.
        tag: String,
    },
}

impl ErrorHint for CcoctlRemovalError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Read { source, .. } => return source.hint(),
            Self::UnreadableAssignment(source) => return source.hint(),
            Self::Unreadable { .. } => {
                "remove its tag or its description of ccoctl, or delete it; then run the command again"
            }
            Self::GroupNotOwned { .. } => {
                "leave out --delete-oidc-resource-group to remove the storage account alone, or delete the group with `az group delete`"
            }
        }))
    }
}

fn read_error(what: &'static str) -> impl Fn(AzureCallError) -> CcoctlRemovalError {
    move |source| CcoctlRemovalError::Read { what, source: Box::new(source) }
}

impl CcoctlRemoval {
    /// Finds the resources to remove: tagged identities of the group with their role assignments, custom roles with the owner's
    /// description and their assignments, and the storage account with the assignments at it, or the group.
    /// Resources below them that the journal `recorded` are included. Sends GET requests only.
    ///
    /// # Errors
    ///
    /// [`CcoctlRemovalError`]
    pub async fn find(
        &self,
        arm: &ArmClient,
        recorded: &RecordedState,
    ) -> Result<RecordedState, CcoctlRemovalError> {
        let mut found = FoundResources { recorded, state: RecordedState::default() };
        let group = ResourceGroupBody::id(&self.subscription, &self.resource_group);
        let group_key =
            self.find_group(arm, &group).await?.map(|id| found.add("group", &id, &[], None));
        let below_group = |id: &ArmResourceId| {
            group_key.iter().filter(|_| group.contains(id)).cloned().collect::<Vec<_>>()
        };
        let mut owners = AssignmentOwners::default();
        for id in self.tagged_resources(arm).await? {
            if id.has_type(ManagedIdentityBody::RESOURCE_TYPE) && group.contains(&id) {
                let identity = read_identity(arm, &id).await?;
                let key = found.add("identity", &id, &below_group(&id), None);
                if let Some(identity) = identity {
                    owners.principals.insert(identity.properties.principal_id, key);
                }
            } else if id.has_type(StorageAccountBody::RESOURCE_TYPE)
                && group.contains(&id)
                && id.name().eq_ignore_ascii_case(&self.storage_account)
            {
                let key = found.add("account", &id, &below_group(&id), None);
                owners.account = Some((id, key));
            }
        }
        for id in self.custom_roles(arm).await? {
            let key = found.add("role-definition", &id, &[], None);
            owners.roles.insert(id.name().to_ascii_lowercase(), key);
        }
        for (id, assignment) in subscription_assignments(arm, &self.subscription).await? {
            let needs = owners.of(&assignment);
            if !needs.is_empty() {
                let created = assignment.properties.created_on.map(CreationMark::at);
                found.add("role", &id, &needs, created);
            }
        }
        found.add_recorded_below();
        Ok(found.state)
    }

    /// The group of the issuer if it exists and is removed.
    async fn find_group(
        &self,
        arm: &ArmClient,
        id: &ArmResourceId,
    ) -> Result<Option<ArmResourceId>, CcoctlRemovalError> {
        if !self.removes_group {
            return Ok(None);
        }
        let found = arm
            .fetch_optional(id.as_str(), ResourceGroupBody::API_VERSION)
            .await
            .map_err(read_error("reading the resource group"))?;
        match found {
            None => Ok(None),
            Some(response) if self.owner.owns(&response.body) => Ok(Some(id.clone())),
            Some(_) => Err(CcoctlRemovalError::GroupNotOwned {
                group: self.resource_group.clone(),
                tag: format!("{}={CCOCTL_TAG_VALUE}", self.owner.tag_name()),
            }),
        }
    }

    async fn tagged_resources(
        &self,
        arm: &ArmClient,
    ) -> Result<Vec<ArmResourceId>, CcoctlRemovalError> {
        let path = format!("{}/resources", ArmResourceId::subscription_scope(&self.subscription));
        let tag = self.owner.tag_name().replace('\'', "''");
        let filter = format!("tagName eq '{tag}' and tagValue eq '{CCOCTL_TAG_VALUE}'");
        let listed = arm
            .list(&path, ResourceGroupBody::API_VERSION, &[("$filter", &filter)])
            .await
            .map_err(read_error("listing the tagged resources"))?;
        own_ids(&listed, "the tagged resource")
    }

    async fn custom_roles(
        &self,
        arm: &ArmClient,
    ) -> Result<Vec<ArmResourceId>, CcoctlRemovalError> {
        let scope = ArmResourceId::subscription_scope(&self.subscription);
        let path = RoleDefinitionBody::list_path(&scope);
        let filter = [("$filter", "type eq 'CustomRole'")];
        let listed = arm
            .list(&path, RoleDefinitionBody::API_VERSION, &filter)
            .await
            .map_err(read_error("listing the custom roles"))?;
        own_ids(listed.iter().filter(|body| self.owner.owns(body)), "the custom role")
    }
}

/// The ids in the bodies of resources that belong to the owner.
fn own_ids<'a>(
    bodies: impl IntoIterator<Item = &'a Value>,
    what: &'static str,
) -> Result<Vec<ArmResourceId>, CcoctlRemovalError> {
    let own_id = |body: &'a Value| {
        let text = body["id"].as_str().unwrap_or_default();
        let parsed: Option<ArmResourceId> = text.parse().ok();
        parsed.ok_or_else(|| CcoctlRemovalError::Unreadable { what, id: text.to_owned() })
    };
    bodies.into_iter().map(own_id).collect()
}

async fn read_identity(
    arm: &ArmClient,
    id: &ArmResourceId,
) -> Result<Option<ManagedIdentity>, CcoctlRemovalError> {
    let found = arm
        .fetch_optional(id.as_str(), ManagedIdentityBody::API_VERSION)
        .await
        .map_err(read_error("reading an identity"))?;
    found.map(|response| parse_identity(id, response.body)).transpose()
}

fn parse_identity(id: &ArmResourceId, body: Value) -> Result<ManagedIdentity, CcoctlRemovalError> {
    serde_json::from_value(body).map_err(|_shape| CcoctlRemovalError::Unreadable {
        what: "the identity",
        id: id.to_string(),
    })
}

async fn subscription_assignments(
    arm: &ArmClient,
    subscription: &SubscriptionId,
) -> Result<Vec<(ArmResourceId, AssignedRole)>, CcoctlRemovalError> {
    let scope = ArmResourceId::subscription_scope(subscription);
    let path = RoleAssignmentBody::list_path(&scope);
    let listed = arm
        .list(&path, RoleAssignmentBody::API_VERSION, &[])
        .await
        .map_err(read_error("listing the role assignments"))?;
    Ok(assignments_within(&scope, listed)?)
}

/// The resources whose role assignments are removed with them.
#[derive(Default)]
struct AssignmentOwners {
    principals: BTreeMap<Uuid, ResourceKey>,
    /// The custom roles by their GUIDs in lower case.
    roles: BTreeMap<String, ResourceKey>,
    account: Option<(ArmResourceId, ResourceKey)>,
}

impl AssignmentOwners {
    /// The resources that the assignment belongs to.
    fn of(&self, assignment: &AssignedRole) -> Vec<ResourceKey> {
        let properties = &assignment.properties;
        let role = properties.role_definition_id.rsplit('/').next().unwrap_or_default();
        let at_account = self.account.as_ref().filter(|(id, _)| {
            properties.scope.parse::<ArmResourceId>().is_ok_and(|scope| id.contains(&scope))
        });
        let principal = self.principals.get(&properties.principal_id);
        let role = self.roles.get(&role.to_ascii_lowercase());
        principal.into_iter().chain(role).chain(at_account.map(|(_, key)| key)).cloned().collect()
    }
}

/// Collects the found resources as records, with the keys of the journal for those that it has.
struct FoundResources<'a> {
    recorded: &'a RecordedState,
    state: RecordedState,
}

impl FoundResources<'_> {
    /// Adds a resource. `created` is known for a resource without tags.
    fn add(
        &mut self,
        kind: &str,
        id: &ArmResourceId,
        needs: &[ResourceKey],
        created: Option<CreationMark>,
    ) -> ResourceKey {
        let known = self.recorded.resources().find(|(_, record)| record.id == *id);
        let key = known.map_or_else(
            || {
                let group =
                    id.resource_group().filter(|_| kind == "identity").map(|it| format!("{it}/"));
                ResourceKey::new(format!("{kind}/{}{}", group.unwrap_or_default(), id.name()))
            },
            |(key, _)| key.clone(),
        );
        self.record(&key, &id.clone().into(), needs, created);
        key
    }

    fn record(
        &mut self,
        key: &ResourceKey,
        id: &ResourceId,
        needs: &[ResourceKey],
        created: Option<CreationMark>,
    ) {
        let record = RecordedResource {
            stack: stacks::CCOCTL,
            id: id.clone(),
            // So the tag or the description is required again immediately before the deletion.
            ownership: Ownership::Created,
            depends_on: needs.to_vec(),
            phase: WritePhase::Complete,
            creation: created.map_or(CreationEvidence::Unknown, CreationEvidence::Confirmed),
        };
        self.state.insert(key.clone(), record);
    }

    /// Adds what the journal recorded below the found resources, such as federated credentials, which are removed
    /// with them.
    fn add_recorded_below(&mut self) {
        let found: Vec<(ResourceKey, ResourceId)> =
            self.state.resources().map(|(key, it)| (key.clone(), it.id.clone())).collect();
        for (key, record) in self.recorded.resources() {
            let parent = found.iter().find(|(_, id)| id.contains(&record.id) && *id != record.id);
            if let Some((parent, _)) = parent
                && record.ownership.is_ours()
                && self.state.get(key).is_none()
            {
                self.record(key, &record.id, std::slice::from_ref(parent), None);
            }
        }
    }
}

/// The role assignments of the graph's identities that the graph does not contain, on and below the subscription.
/// Identities of other clients are left out.
///
/// # Errors
///
/// [`CcoctlRemovalError`] if the request failed, or an assignment to remove cannot be read.
pub async fn find_other_role_assignments(
    arm: &ArmClient,
    subscription: &SubscriptionId,
    graph: &AzureGraph,
    live: &LiveState,
    tags: &OwnershipTags,
) -> Result<Vec<AssignedRole>, CcoctlRemovalError> {
    let listed = subscription_assignments(arm, subscription).await?;
    let is_ours = |found: &&LiveResource| OwnershipEvidence::new(None, tags).is_ours(found);
    let live_body = |key: &ResourceKey| live.get(key).filter(is_ours).map(|found| &found.body);
    let principals: Vec<&str> = graph
        .resources()
        .iter()
        .filter_map(|resource| match &resource.effect {
            AzureEffect::RoleAssignment(RoleAssignment { principal, .. }) => principal.key(),
            AzureEffect::Arm(_) => Some(&resource.key),
            AzureEffect::EntraApplication(_) | AzureEffect::FederatedCredential(_) => None,
        })
        .filter_map(|key| live_body(key)?.pointer("/properties/principalId")?.as_str())
        .collect();
    let wanted: Vec<&ResourceId> = graph
        .resources()
        .iter()
        .filter(|it| matches!(it.effect, AzureEffect::RoleAssignment(_)))
        .filter_map(|it| Some(&live.get(&it.key)?.id))
        .collect();
    let mut others = Vec::new();
    for (id, assignment) in listed {
        let principal = assignment.properties.principal_id.to_string();
        if principals.iter().any(|it| it.eq_ignore_ascii_case(&principal))
            && !wanted.iter().any(|it| **it == id)
        {
            others.push(assignment);
        }
    }
    Ok(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(path: &str) -> ArmResourceId {
        format!("/subscriptions/s/{path}").parse().unwrap()
    }

    #[test]
    fn found_resource_has_the_key_of_the_journal_and_its_recorded_children() {
        const IDENTITY: &str =
            "resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
        let mut recorded = RecordedState::default();
        for (key, path) in [
            ("identity/ns/secret", IDENTITY.to_owned()),
            ("identity/ns/secret/sa", format!("{IDENTITY}/federatedIdentityCredentials/sa")),
            ("installation-group", "resourceGroups/installation".to_owned()),
        ] {
            let record = RecordedResource {
                stack: stacks::CCOCTL,
                id: id(&path).into(),
                ownership: Ownership::Created,
                depends_on: Vec::new(),
                phase: WritePhase::Complete,
                creation: CreationEvidence::Unknown,
            };
            recorded.insert(ResourceKey::new(key), record);
        }
        let mut found = FoundResources { recorded: &recorded, state: RecordedState::default() };
        found.add(
            "identity",
            &id(&IDENTITY.to_ascii_lowercase().replace("resourcegroups", "resourceGroups")),
            &[],
            None,
        );
        found.add("identity", &id(&IDENTITY.replace("/i", "/other")), &[], None);
        found.add_recorded_below();
        let keys: Vec<_> = found.state.resources().map(|(key, _)| key.to_string()).collect();
        assert_eq!(keys, ["identity/g/other", "identity/ns/secret", "identity/ns/secret/sa"]);
    }

    #[test]
    fn resources_of_the_owner_that_cannot_be_read_are_named() {
        const GROUP: &str = "/subscriptions/s/resourceGroups/g/providers";
        let odd = format!("{GROUP}/N/actionGroups/on-call #1");
        let identity: ArmResourceId =
            format!("{GROUP}/Microsoft.ManagedIdentity/userAssignedIdentities/i").parse().unwrap();
        let bodies =
            [serde_json::json!({ "id": identity.as_str() }), serde_json::json!({ "id": odd })];
        assert_eq!(
            own_ids(&bodies[..1], "the tagged resource").unwrap(),
            std::slice::from_ref(&identity)
        );
        let without_ids = serde_json::json!({
            "id": identity.as_str(), "location": "eastus", "properties": {},
        });
        for (error, expected) in [
            (own_ids(&bodies, "the custom role").unwrap_err(), ("the custom role", &odd)),
            (
                parse_identity(&identity, without_ids).unwrap_err(),
                ("the identity", &identity.to_string()),
            ),
        ] {
            let (what, id) = expected;
            assert_eq!(error.to_string(), format!("{what} `{id}` cannot be read"));
            assert!(error.hint().unwrap().starts_with("remove its tag"));
        }
    }

    #[test]
    fn assignment_belongs_to_its_identity_its_custom_role_and_the_account_at_which_it_is() {
        let account = id("resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a");
        let owners = AssignmentOwners {
            principals: BTreeMap::from([(Uuid::from_u128(1), ResourceKey::new("identity"))]),
            roles: BTreeMap::from([(Uuid::from_u128(2).to_string(), ResourceKey::new("role"))]),
            account: Some((account.clone(), ResourceKey::new("account"))),
        };
        let needs = |principal: u128, role: u128, scope: &str| {
            let assignment: AssignedRole = serde_json::from_value(serde_json::json!({
                "id": "x", "name": "x",
                "properties": {
                    "scope": scope, "principalId": Uuid::from_u128(principal),
                    "roleDefinitionId": format!("/r/{}", Uuid::from_u128(role)),
                },
            }))
            .unwrap();
            owners.of(&assignment).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(needs(1, 9, "/subscriptions/s"), "identity");
        assert_eq!(needs(1, 2, "/subscriptions/s"), "identity role");
        assert_eq!(needs(9, 9, account.as_str()), "account");
        assert_eq!(needs(9, 9, "/subscriptions/s"), "");
        assert_eq!(needs(9, 9, "/"), "");
    }
}
