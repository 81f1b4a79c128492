//! Access to Azure Resource Manager and to the applications of Entra ID for effects.

use std::collections::BTreeSet;

use lanyard_azure::{
    ArmBody as _, ArmClient, ArmRequest, AzureCallError, GraphClient, OperationError,
    OperationStart, PollPolicy, PrivateDnsLinkBody, ResourceGroupBody, RoleAssignmentBody,
};
use lanyard_clock::{RetryClass, SharedClock};
use serde_json::Value;
use uuid::Uuid;

use super::api_versions::api_version_of;
use super::application_requests::{
    delete_application, live_application, read_application, unique_name,
};
use super::arm_bodies::{is_restored, restored_body};
use super::group_content::unrecorded_in_group;
use super::live_arm_resource::{arm_resource, listed_resource};
use crate::accepted_write::{AcceptedWrite, WaitLimits, WriteProgress};
use crate::effect::EffectAccess;
use crate::effect_error::{EffectError, EffectErrorCause};
use crate::live_state::LiveResource;
use crate::ownership_tags::OwnershipTags;
use crate::recorded_resource::RecordedResource;
use crate::resource_id::ResourceId;

/// Reads and writes resources of Azure.
#[derive(Debug, Clone)]
pub struct AzureAccess {
    /// The client of Azure Resource Manager.
    pub arm: ArmClient,
    /// The client of Microsoft Graph.
    pub graph: GraphClient,
    /// The principals to which a roll-back may give roles again.
    pub known_principals: BTreeSet<Uuid>,
}

impl AzureAccess {
    /// The access with these clients. A roll-back creates no role assignment again.
    pub const fn new(arm: ArmClient, graph: GraphClient) -> Self {
        Self { arm, graph, known_principals: BTreeSet::new() }
    }

    pub(super) async fn read_with(
        &self,
        id: &ResourceId,
        api_version: &'static str,
    ) -> Result<Option<LiveResource>, EffectError> {
        let found = self.arm.fetch_optional(id.as_str(), api_version).await?;
        Ok(found.map(|found| arm_resource(id.clone(), found.body)))
    }

    /// Lists a collection. One that does not exist is empty.
    pub(super) async fn list_with(
        &self,
        path: &str,
        api_version: &'static str,
    ) -> Result<Vec<LiveResource>, EffectError> {
        match self.arm.list(path, api_version, &[]).await {
            Err(AzureCallError::NotFound { .. }) => Ok(Vec::new()),
            listed => Ok(listed?.into_iter().filter_map(listed_resource).collect()),
        }
    }

    /// Lists the role assignments at a scope. A scope that does not exist has none.
    pub(super) async fn list_role_assignments(
        &self,
        scope: &str,
    ) -> Result<Vec<LiveResource>, EffectError> {
        let path = format!("{scope}/providers/{}", RoleAssignmentBody::RESOURCE_TYPE);
        let filter = [("$filter", "atScope()")];
        match self.arm.list(&path, RoleAssignmentBody::API_VERSION, &filter).await {
            Err(AzureCallError::NotFound { code, .. }) if !code.contains("Subscription") => {
                Ok(Vec::new())
            }
            listed => Ok(listed?.into_iter().filter_map(listed_resource).collect()),
        }
    }

    /// Sends a PUT, unless `existing` has changed since it was read.
    pub(super) async fn put(
        &self,
        id: &ResourceId,
        api_version: &'static str,
        body: Value,
        existing: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        let id = existing.map_or(id, |existing| &existing.id);
        let mut request = ArmRequest::put(id.as_str(), api_version, body);
        request.if_match = existing.and_then(|existing| version_tag(&existing.body));
        self.start(&request).await
    }

    /// Sends a PUT, unless `existing` has changed or was deleted since it was read.
    pub(super) async fn put_existing(
        &self,
        api_version: &'static str,
        body: Value,
        existing: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        let mut request = ArmRequest::put(existing.id.as_str(), api_version, body);
        // Without a version, at least a resource that does not exist any more is not created.
        request.if_match = version_tag(&existing.body).or_else(|| Some("*".to_owned()));
        self.start(&request).await
    }

    async fn start(&self, request: &ArmRequest) -> Result<WriteProgress, EffectError> {
        Ok(match self.arm.start(request).await? {
            OperationStart::Completed(response) => WriteProgress::Complete(response.body),
            OperationStart::Pending(operation) => {
                // An operation contains no maps with keys other than strings, so it always serializes.
                let document = serde_json::to_value(operation).unwrap_or_default();
                WriteProgress::Accepted(AcceptedWrite::new(document))
            }
        })
    }
}

impl EffectAccess for AzureAccess {
    /// Azure rejects concurrent writes to the credentials of one managed identity.
    fn write_lock(id: &ResourceId) -> String {
        let mut lock = id.as_str().to_ascii_lowercase();
        if let Some(position) = lock.rfind("/federatedidentitycredentials/") {
            lock.truncate(position);
        }
        lock
    }

    /// Role assignments are always deleted one by one, also those in a group that is deleted: an interrupted deletion
    /// would otherwise leave assignments of principals that do not exist any more. Azure does not delete a private DNS
    /// zone that has links, only a whole resource group with both.
    fn removes(container: &ResourceId, content: &ResourceId) -> bool {
        let (Some(container), Some(content)) = (container.arm(), content.arm()) else {
            return false;
        };
        let needs_group = content.has_type(PrivateDnsLinkBody::RESOURCE_TYPE);
        container.contains(content)
            && !content.has_type(RoleAssignmentBody::RESOURCE_TYPE)
            && (!needs_group || container.resource_type().is_none())
    }

    fn is_immutable(id: &ResourceId) -> bool {
        is_role_assignment(id)
    }

    fn is_container(id: &ResourceId) -> bool {
        // The credentials of an application are lost with it.
        id.arm().is_none_or(|id| id.resource_type().is_none())
    }

    fn has_creators(id: &ResourceId) -> bool {
        is_role_assignment(id)
    }

    fn is_changing(body: &Value) -> bool {
        let state = body.pointer("/properties/provisioningState").and_then(Value::as_str);
        let is_final = |state: &str| {
            ["Succeeded", "Failed", "Canceled"].iter().any(|it| it.eq_ignore_ascii_case(state))
        };
        state.is_some_and(|state| !is_final(state))
    }

    fn live_resource(id: &ResourceId, body: Value) -> LiveResource {
        let of_service = if unique_name(id).is_some() { live_application } else { arm_resource };
        of_service(id.clone(), body)
    }

    /// A roll-back leaves the service principal of an application.
    fn is_restored(id: &ResourceId, body: &Value, live: &Value) -> bool {
        id.arm().is_none_or(|id| is_restored(id, body, live))
    }

    /// A role assignment must be one of a known principal.
    fn may_restore(&self, id: &ResourceId, body: &Value) -> bool {
        let principal = body.pointer("/properties/principalId").and_then(Value::as_str);
        let is_known = |id| self.known_principals.contains(&id);
        !is_role_assignment(id) || principal.and_then(|id| id.parse().ok()).is_some_and(is_known)
    }

    /// Lists the role assignments of a scope.
    async fn list(&self, collection: &str) -> Result<Vec<LiveResource>, EffectError> {
        self.list_role_assignments(collection).await
    }

    async fn read(&self, id: &ResourceId) -> Result<Option<LiveResource>, EffectError> {
        match unique_name(id) {
            Some(name) => read_application(&self.graph, (id, name)).await,
            None => self.read_with(id, version_of(id)).await,
        }
    }

    async fn read_foreign_content(
        &self,
        id: &ResourceId,
        planned: &[&RecordedResource],
        tags: &OwnershipTags,
    ) -> Result<Vec<String>, EffectError> {
        let Some(group) = id.arm() else { return Ok(Vec::new()) };
        Ok(unrecorded_in_group(&self.arm, group, planned, tags).await?)
    }

    async fn delete(
        &self,
        id: &ResourceId,
        _live: &LiveResource,
    ) -> Result<WriteProgress, EffectError> {
        match unique_name(id) {
            Some(name) => delete_application(&self.graph, name).await,
            None => self.start(&ArmRequest::delete(id.as_str(), version_of(id))).await,
        }
    }

    async fn restore(
        &self,
        id: &ResourceId,
        body: &Value,
        live: Option<&LiveResource>,
    ) -> Result<WriteProgress, EffectError> {
        let body = id.arm().map_or(Value::Null, |id| restored_body(id, body));
        self.put(id, version_of(id), body, live).await
    }

    async fn wait(
        &self,
        write: &AcceptedWrite,
        clock: &SharedClock,
        limits: WaitLimits,
    ) -> Result<Value, EffectError> {
        let operation = serde_json::from_value(write.document().clone()).map_err(|source| {
            let source = UnreadableOperationError(source);
            EffectError::new(RetryClass::Invalid, EffectErrorCause::OperationFailed, source)
        })?;
        let policy = PollPolicy { interval: limits.interval, timeout: limits.timeout };
        Ok(self.arm.wait(operation, clock, policy).await?.body)
    }
}

/// The journal's document of an accepted write is not one of Azure Resource Manager.
#[derive(Debug, thiserror::Error)]
#[error("the operation in the journal cannot be read")]
struct UnreadableOperationError(#[source] serde_json::Error);

impl lanyard_clock::ErrorHint for UnreadableOperationError {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some("check who can write to the journal".into())
    }
}

/// The version of a resource for `If-Match`: `etag` of network resources and zones, `eTag` of managed clusters.
fn version_tag(body: &Value) -> Option<String> {
    let tag = ["etag", "eTag"].iter().find_map(|name| body[*name].as_str());
    tag.map(str::to_owned)
}

fn is_role_assignment(id: &ResourceId) -> bool {
    id.arm().is_some_and(|id| id.has_type(RoleAssignmentBody::RESOURCE_TYPE))
}

/// The version of the API for the type of the resource.
fn version_of(id: &ResourceId) -> &'static str {
    id.arm().map_or(ResourceGroupBody::API_VERSION, api_version_of)
}

impl From<AzureCallError> for EffectError {
    fn from(error: AzureCallError) -> Self {
        OperationError::Call(error).into()
    }
}

impl From<OperationError> for EffectError {
    fn from(error: OperationError) -> Self {
        let class = error.class();
        let cause = match &error {
            OperationError::Failed { code, .. } if code == "Conflict" => {
                EffectErrorCause::Conflict { after_accepting: true }
            }
            OperationError::Failed { .. } => EffectErrorCause::OperationFailed,
            OperationError::TimedOut { .. } => EffectErrorCause::StillRunning,
            OperationError::Call(AzureCallError::NotFound { .. }) => EffectErrorCause::NotFound,
            OperationError::Call(error) if error.status() == Some(409) => {
                EffectErrorCause::Conflict { after_accepting: false }
            }
            _ => EffectErrorCause::Rejected,
        };
        Self::new(class, cause, error)
    }
}
