//! The effect of a federated identity credential.

use lanyard_azure::{ArmBody as _, FederatedCredentialBody};
use serde_json::Value;

use super::azure_access::AzureAccess;
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::{PropertyDifference, property_differences};
use crate::resource_id::ResourceId;

/// A federated identity credential. Azure compares credentials of an identity by issuer and subject, and rejects
/// concurrent writes to one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FederatedCredential {
    /// The URL of the token issuer, byte for byte as in the tokens.
    pub issuer: String,
    /// The subject: `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
    /// The audience of the tokens.
    pub audience: String,
}

impl FederatedCredential {
    fn body(&self) -> Value {
        FederatedCredentialBody::new(&self.issuer, &self.subject, &self.audience).to_json()
    }

    fn is_equal(&self, found: &LiveResource) -> bool {
        found.body["properties"]["issuer"] == self.issuer.as_str()
            && found.body["properties"]["subject"] == self.subject.as_str()
    }
}

impl Effect for FederatedCredential {
    type Access = AzureAccess;

    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn is_known_by_content(&self) -> bool {
        true
    }

    async fn read(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
    ) -> Result<Option<LiveResource>, EffectError> {
        match access.read_with(id, FederatedCredentialBody::API_VERSION).await? {
            Some(found) => Ok(Some(found)),
            None => self.read_equal(access, id, &LiveState::default()).await,
        }
    }

    async fn read_equal(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        _live: &LiveState,
    ) -> Result<Option<LiveResource>, EffectError> {
        let version = FederatedCredentialBody::API_VERSION;
        let credentials = access.list_with(id.collection(), version).await?;
        Ok(credentials.into_iter().find(|it| self.is_equal(it)))
    }

    fn diff(&self, found: &LiveResource, _live: &LiveState) -> Vec<PropertyDifference> {
        property_differences(&self.body(), &found.body)
    }

    fn updated_properties(&self, _live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(self.body())
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        _live: &LiveState,
        _tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let version = FederatedCredentialBody::API_VERSION;
        Ok(access.put(id, version, self.body(), existing).await?)
    }
}
