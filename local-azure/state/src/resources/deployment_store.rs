//! Stored deployments and their operations.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::authorization::AccessScope;
use crate::table::Table;

/// The type of a deployment.
pub const DEPLOYMENT_TYPE: &str = "Microsoft.Resources/deployments";

/// The maximum number of deployments in the history of a scope. Reference: "Automatic deletions from
/// deployment history".
const MAX_DEPLOYMENTS: usize = 800;

/// The deployments by id in lower case.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeploymentStore(pub Table<String, StoredDeployment>);

impl DeploymentStore {
    pub fn deployment(&self, id: &AccessScope) -> Option<&StoredDeployment> {
        self.0.get(&id.as_str().to_lowercase())
    }

    /// The deployments to a scope, the latest first.
    pub fn of_scope(&self, scope: &AccessScope) -> Vec<&StoredDeployment> {
        let mut found: Vec<_> =
            self.0.values().filter(|deployment| deployment.scope == *scope).collect();
        found.sort_by_key(|deployment| std::cmp::Reverse(deployment.timestamp));
        found
    }

    /// Stores a deployment. Removes the oldest one of the scope if there are too many.
    pub fn insert(&mut self, deployment: StoredDeployment) {
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

    pub fn remove(&mut self, id: &AccessScope) {
        self.0.remove(&id.as_str().to_lowercase());
    }

    /// Removes the deployments in a scope that was deleted.
    pub fn remove_within(&mut self, scope: &AccessScope) {
        self.0.extract_if(|_, deployment| scope.contains(&deployment.id));
    }
}

/// A finished deployment. `Debug` omits the template, which can contain secrets.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredDeployment {
    pub id: AccessScope,
    /// The subscription or resource group.
    pub scope: AccessScope,
    /// The region of a deployment to a subscription.
    pub location: Option<String>,
    pub tags: Option<Value>,
    pub template: Value,
    /// The properties that are known when the deployment starts, as in replies.
    pub properties: Map<String, Value>,
    pub timestamp: Timestamp,
    pub outcome: DeploymentOutcome,
    /// The name of the operation status that clients poll.
    pub status_id: Uuid,
}

lanyard_vocabulary::debug_fields!(StoredDeployment { id });

impl StoredDeployment {
    /// The deployment as in replies.
    pub fn to_json(&self) -> Value {
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
    pub fn accepted_json(&self) -> Value {
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

    pub fn name(&self) -> &str {
        self.id.as_str().rsplit('/').next().unwrap_or_default()
    }

    /// An operation of this deployment as in replies.
    pub fn operation_json(&self, operation: &DeploymentOperation) -> Value {
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
pub const NO_DURATION: &str = "PT0S";

/// What an operation of a deployment did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeploymentOperationKind {
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
pub struct DeploymentOperation {
    /// 16 hexadecimal digits.
    pub id: String,
    pub tracking_id: Uuid,
    pub kind: DeploymentOperationKind,
    /// The status of the reply to the write, such as `Created`.
    pub status_code: String,
    /// The error object of a failed operation.
    pub error: Option<Value>,
    pub target: Option<TargetResource>,
}

/// A resource of a template, as in replies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetResource {
    pub id: AccessScope,
    pub resource_type: String,
    pub name: String,
}

impl TargetResource {
    pub fn to_json(&self) -> Value {
        json!({ "id": self.id, "resourceType": self.resource_type, "resourceName": self.name })
    }
}

/// The result of a deployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeploymentOutcome {
    pub operations: Vec<DeploymentOperation>,
    /// The error object; `None` if the deployment succeeded.
    pub error: Option<Value>,
    /// The outputs, as in replies.
    pub outputs: Map<String, Value>,
    /// The written resources.
    pub deployed_resources: Vec<AccessScope>,
}

impl DeploymentOutcome {
    /// The provisioning state.
    pub const fn state(&self) -> &'static str {
        if self.error.is_some() { "Failed" } else { "Succeeded" }
    }
}
