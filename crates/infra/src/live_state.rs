//! Reads the live resources. Sends GET requests only.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_azure::{ArmBody as _, ArmClient, AzureCallError, RoleAssignmentBody};
use lanyard_vocabulary::ArmResourceId;
use serde_json::Value;

use crate::graph_run::{GraphNode, NodeResult, run_graph};
use crate::plan::principal_id;
use crate::property_diff::property_differences;
use crate::resource::{DesiredResource, ResourceDefinition, ResourceKey};
use crate::resource_graph::ResourceGraph;

/// The live resources of a graph.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LiveState {
    resources: BTreeMap<ResourceKey, LiveResource>,
}

/// A live resource.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveResource {
    /// The id; it can differ from the desired one for resources that Azure compares by content.
    pub id: ArmResourceId,
    /// The resource as Azure returned it.
    pub body: Value,
}

/// The number of concurrent reads.
const PARALLEL_READS: usize = 16;

/// A resource cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("reading {key} failed")]
pub struct ReadError {
    /// The key of the resource.
    pub key: ResourceKey,
    /// The error of the request.
    #[source]
    pub source: AzureCallError,
}

impl LiveState {
    /// The live resource with this key; `None` if it does not exist.
    pub fn get(&self, key: &ResourceKey) -> Option<&LiveResource> {
        self.resources.get(key)
    }

    /// Records the result of a write.
    pub(crate) fn set(&mut self, key: ResourceKey, resource: Option<LiveResource>) {
        match resource {
            Some(resource) => drop(self.resources.insert(key, resource)),
            None => drop(self.resources.remove(&key)),
        }
    }

    /// Reads all resources of the graph.
    ///
    /// # Errors
    ///
    /// The errors of all reads that failed.
    pub async fn read(arm: &ArmClient, graph: &ResourceGraph) -> Result<Self, Vec<ReadError>> {
        let mut live = Self::default();
        let mut errors = Vec::new();
        let (assignments, others): (Vec<_>, Vec<_>) = graph.resources().iter().partition(|resource| {
            matches!(resource.definition, ResourceDefinition::RoleAssignment { .. })
        });
        let nodes = others.iter().map(|resource| read_node(resource.key.as_str())).collect();
        let results = run_graph(nodes, PARALLEL_READS, |key| {
            let resource = graph.get(&key);
            async move {
                match resource {
                    Some(resource) => read_resource(arm, resource).await,
                    None => Ok(None),
                }
            }
        })
        .await;
        for (key, result) in results {
            match result {
                NodeResult::Done(resource) => live.set(key, resource),
                NodeResult::Failed(source) => errors.push(ReadError { key, source }),
                NodeResult::Blocked(_) => {}
            }
        }
        live.read_role_assignments(arm, &assignments, &mut errors).await;
        if errors.is_empty() { Ok(live) } else { Err(errors) }
    }

    /// Reads the role assignments of each scope once.
    async fn read_role_assignments(
        &mut self,
        arm: &ArmClient,
        assignments: &[&DesiredResource],
        errors: &mut Vec<ReadError>,
    ) {
        let scopes: BTreeSet<&str> = assignments.iter().filter_map(|it| scope_of(it)).collect();
        let nodes = scopes.into_iter().map(read_node).collect();
        let mut results = run_graph(nodes, PARALLEL_READS, |scope| async move {
            list_role_assignments(arm, scope.as_str()).await
        })
        .await;
        for resource in assignments {
            let scope = scope_of(resource).map(ResourceKey::new);
            let listed = match scope.as_ref().and_then(|scope| results.get(scope)) {
                Some(NodeResult::Done(listed)) => listed,
                Some(NodeResult::Failed(_)) => {
                    // The error is reported once, for the first resource in the scope.
                    if let Some(NodeResult::Failed(source)) = scope.and_then(|scope| results.remove(&scope)) {
                        errors.push(ReadError { key: resource.key.clone(), source });
                    }
                    continue;
                }
                _ => continue,
            };
            let found = find_role_assignment(resource, listed, self);
            self.set(resource.key.clone(), found);
        }
    }
}

fn read_node(name: &str) -> GraphNode {
    GraphNode { key: ResourceKey::new(name), depends_on: Vec::new(), lock: name.to_owned() }
}

fn scope_of(resource: &DesiredResource) -> Option<&str> {
    match &resource.definition {
        ResourceDefinition::RoleAssignment { scope, .. } => Some(scope.as_str()),
        _ => None,
    }
}

/// Reads a resource that is not a role assignment.
pub(crate) async fn read_resource(
    arm: &ArmClient,
    resource: &DesiredResource,
) -> Result<Option<LiveResource>, AzureCallError> {
    let found = arm.fetch_optional(resource.id.as_str(), resource.api_version()).await?;
    if let Some(response) = found {
        return Ok(Some(LiveResource { id: resource.id.clone(), body: response.body }));
    }
    match &resource.definition {
        ResourceDefinition::FederatedCredential { .. } => find_in_collection(arm, resource).await,
        _ => Ok(None),
    }
}

/// The resource with the desired content in the collection of the desired resource, whatever its name is. Azure
/// accepts the pair of issuer and subject only once for an identity, and a link of a zone to a virtual network
/// only once for the zone.
pub(crate) async fn find_in_collection(
    arm: &ArmClient,
    resource: &DesiredResource,
) -> Result<Option<LiveResource>, AzureCallError> {
    let Some((collection, _)) = resource.id.as_str().rsplit_once('/') else { return Ok(None) };
    let listed = match arm.list(collection, resource.api_version(), &[]).await {
        Err(AzureCallError::NotFound { .. }) => return Ok(None),
        listed => listed?,
    };
    let is_equal = |body: &Value| match &resource.definition {
        ResourceDefinition::FederatedCredential { issuer, subject, .. } => {
            body["properties"]["issuer"] == issuer.as_str()
                && body["properties"]["subject"] == subject.as_str()
        }
        ResourceDefinition::Arm { body: desired, .. } => {
            property_differences(desired, body).is_empty()
        }
        _ => false,
    };
    Ok(listed.into_iter().find(is_equal).and_then(live_with_own_id))
}

fn live_with_own_id(body: Value) -> Option<LiveResource> {
    let id = body["id"].as_str()?.parse().ok()?;
    Some(LiveResource { id, body })
}

/// Lists the role assignments at a scope. A scope that does not exist has none.
pub(crate) async fn list_role_assignments(
    arm: &ArmClient,
    scope: &str,
) -> Result<Vec<Value>, AzureCallError> {
    let path = format!("{scope}/providers/{}", RoleAssignmentBody::RESOURCE_TYPE);
    match arm.list(&path, RoleAssignmentBody::API_VERSION, &[("$filter", "atScope()")]).await {
        Err(AzureCallError::NotFound { code, .. }) if !code.contains("Subscription") => Ok(Vec::new()),
        listed => listed,
    }
}

/// The assignment of the same role to the same principal at the same scope, whatever its name is; otherwise the
/// assignment with the desired name.
pub(crate) fn find_role_assignment(
    resource: &DesiredResource,
    listed: &[Value],
    live: &LiveState,
) -> Option<LiveResource> {
    let ResourceDefinition::RoleAssignment { role, scope, principal, .. } = &resource.definition else {
        return None;
    };
    let principal = principal_id(principal, live);
    let property = |body: &Value, name: &str| {
        body["properties"][name].as_str().unwrap_or_default().to_ascii_lowercase()
    };
    let role = role.0.to_string();
    let equal = |body: &&Value| {
        principal.is_some_and(|id| property(body, "principalId") == id.to_string())
            && property(body, "roleDefinitionId").ends_with(&role)
            && property(body, "scope") == scope.as_str().to_ascii_lowercase()
    };
    let same_name = |body: &&Value| {
        body["id"].as_str().is_some_and(|id| id.eq_ignore_ascii_case(resource.id.as_str()))
    };
    let found = listed.iter().find(equal).or_else(|| listed.iter().find(same_name))?;
    live_with_own_id(found.clone())
}
