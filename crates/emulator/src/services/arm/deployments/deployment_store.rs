//! Stored deployments and their operations.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::deployment_plan::DeploymentPlan;
use super::deployment_run::DeploymentOutcome;
use super::planned_resource::PlannedResource;
use crate::authorization::AccessScope;
use crate::table::Table;

/// The type of a deployment.
pub(super) const DEPLOYMENT_TYPE: &str = "Microsoft.Resources/deployments";

/// The maximum number of deployments in the history of a scope. Reference: "Automatic deletions from
/// deployment history".
const MAX_DEPLOYMENTS: usize = 800;

/// The deployments by id in lower case.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct DeploymentStore(pub(crate) Table<String, StoredDeployment>);

impl DeploymentStore {
    pub(super) fn deployment(&self, id: &AccessScope) -> Option<&StoredDeployment> {
        self.0.get(&id.as_str().to_lowercase())
    }

    /// The deployments to a scope, the latest first.
    pub(super) fn of_scope(&self, scope: &AccessScope) -> Vec<&StoredDeployment> {
        let mut found: Vec<_> =
            self.0.values().filter(|deployment| deployment.scope == *scope).collect();
        found.sort_by_key(|deployment| std::cmp::Reverse(deployment.timestamp));
        found
    }

    /// Stores a deployment. Removes the oldest one of the scope if there are too many.
    pub(super) fn insert(&mut self, deployment: StoredDeployment) {
        let key = deployment.id.as_str().to_lowercase();
        if !self.0.contains_key(&key) {
            let history = self.of_scope(&deployment.scope);
            let oldest = history.last().map(|oldest| oldest.id.clone());
            if history.len() >= MAX_DEPLOYMENTS
                && let Some(oldest) = oldest
            {
                self.remove(&oldest);
            }
        }
        self.0.insert(key, deployment);
    }

    pub(super) fn remove(&mut self, id: &AccessScope) {
        self.0.remove(&id.as_str().to_lowercase());
    }

    /// Removes the deployments in a scope that was deleted.
    pub(in crate::services::arm) fn remove_within(&mut self, scope: &AccessScope) {
        self.0.extract_if(|_, deployment| scope.contains(&deployment.id));
    }
}

/// A finished deployment. `Debug` omits the template, which can contain secrets.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredDeployment {
    pub(super) id: AccessScope,
    /// The subscription or resource group.
    pub(super) scope: AccessScope,
    /// The region of a deployment to a subscription.
    pub(super) location: Option<String>,
    pub(super) tags: Option<Value>,
    pub(super) template: Value,
    /// The properties that are known when the deployment starts, as in replies.
    pub(super) properties: Map<String, Value>,
    pub(super) timestamp: Timestamp,
    pub(super) outcome: DeploymentOutcome,
    /// The name of the status that clients poll.
    pub(super) status_id: Uuid,
}

impl fmt::Debug for StoredDeployment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StoredDeployment").field("id", &self.id).finish_non_exhaustive()
    }
}

impl StoredDeployment {
    /// The deployment as in replies.
    pub(super) fn to_json(&self) -> Value {
        let mut properties = self.properties.clone();
        properties.insert("provisioningState".to_owned(), json!(self.outcome.state()));
        if let Some(error) = &self.outcome.error {
            properties.insert("error".to_owned(), error.clone());
        } else {
            let resources = self.outcome.deployed_resources.iter();
            let resources: Vec<_> = resources.map(|id| json!({ "id": id })).collect();
            properties.insert("outputs".to_owned(), json!(self.outcome.outputs));
            properties.insert("outputResources".to_owned(), json!(resources));
        }
        self.with_properties(properties)
    }

    /// The deployment in the reply to its creation, from which clients start to poll.
    pub(super) fn accepted_json(&self) -> Value {
        let mut properties = self.properties.clone();
        properties.insert("provisioningState".to_owned(), json!("Accepted"));
        self.with_properties(properties)
    }

    fn with_properties(&self, properties: Map<String, Value>) -> Value {
        let mut wire = json!({
            "id": self.id,
            "name": self.name(),
            "type": DEPLOYMENT_TYPE,
            "properties": properties,
        });
        if let Some(location) = &self.location {
            wire["location"] = json!(location);
        }
        if let Some(tags) = &self.tags {
            wire["tags"] = tags.clone();
        }
        wire
    }

    pub(super) fn name(&self) -> &str {
        self.id.as_str().rsplit('/').next().unwrap_or_default()
    }

    /// An operation of this deployment as in replies.
    pub(super) fn operation_json(&self, operation: &DeploymentOperation) -> Value {
        let mut properties = json!({
            "provisioningOperation": operation.kind.name(),
            "provisioningState": if operation.error.is_some() { "Failed" } else { "Succeeded" },
            "timestamp": self.timestamp.to_string(),
            "duration": NO_DURATION,
            "trackingId": operation.tracking_id,
            "statusCode": operation.status_code,
        });
        if let Some(error) = &operation.error {
            properties["statusMessage"] = json!({ "status": "Failed", "error": error });
        }
        if let Some(target) = &operation.target {
            properties["targetResource"] = target.to_json();
        }
        json!({
            "id": format!("{}/operations/{}", self.id, operation.id),
            "operationId": operation.id,
            "properties": properties,
        })
    }
}

/// The duration of deployments and operations: the emulated time stands still during a request.
pub(super) const NO_DURATION: &str = "PT0S";

/// What an operation of a deployment did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DeploymentOperationKind {
    /// A resource was written.
    Create,
    /// The outputs were evaluated.
    EvaluateOutput,
}

impl DeploymentOperationKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::EvaluateOutput => "EvaluateDeploymentOutput",
        }
    }
}

/// An operation of a deployment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct DeploymentOperation {
    /// 16 hexadecimal digits.
    pub(super) id: String,
    pub(super) tracking_id: Uuid,
    pub(super) kind: DeploymentOperationKind,
    /// The status of the reply to the write, such as `Created`.
    pub(super) status_code: String,
    /// The error object of a failed operation.
    pub(super) error: Option<Value>,
    pub(super) target: Option<TargetResource>,
}

/// A resource of a template, as in replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TargetResource {
    id: AccessScope,
    resource_type: String,
    name: String,
}

impl TargetResource {
    pub(super) fn new(resource: &PlannedResource) -> Self {
        Self {
            id: resource.id.clone(),
            resource_type: resource.resource_type.clone(),
            name: resource.name.clone(),
        }
    }

    fn to_json(&self) -> Value {
        json!({ "id": self.id, "resourceType": self.resource_type, "resourceName": self.name })
    }
}

/// The properties of a deployment that its plan determines, as in replies.
pub(super) fn planned_properties(plan: &DeploymentPlan) -> Map<String, Value> {
    let properties = [
        ("parameters", json!(plan.parameters())),
        ("mode", json!("Incremental")),
        ("duration", json!(NO_DURATION)),
        ("providers", providers_json(plan)),
        ("dependencies", dependencies_json(plan)),
    ];
    properties.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn providers_json(plan: &DeploymentPlan) -> Value {
    let mut providers: Vec<(&str, Vec<Value>)> = Vec::new();
    for resource in plan.resources() {
        let (namespace, kind) = resource.resource_type.split_once('/').unwrap_or_default();
        let location = resource.members.get("location").cloned().unwrap_or_default();
        let kind = json!({ "resourceType": kind, "locations": [location] });
        match providers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(namespace)) {
            Some((_, kinds)) if kinds.contains(&kind) => {}
            Some((_, kinds)) => kinds.push(kind),
            None => providers.push((namespace, vec![kind])),
        }
    }
    let json = |(namespace, kinds)| json!({ "namespace": namespace, "resourceTypes": kinds });
    providers.into_iter().map(json).collect()
}

fn dependencies_json(plan: &DeploymentPlan) -> Value {
    let target = |resource: &PlannedResource| TargetResource::new(resource).to_json();
    let dependent = plan.resources().iter().filter(|resource| !resource.dependencies.is_empty());
    let json = |resource: &PlannedResource| {
        let places = resource.dependencies.iter();
        let depends_on: Vec<_> =
            places.filter_map(|place| plan.resources().get(*place)).map(target).collect();
        let mut wire = target(resource);
        wire["dependsOn"] = json!(depends_on);
        wire
    };
    dependent.map(json).collect()
}
