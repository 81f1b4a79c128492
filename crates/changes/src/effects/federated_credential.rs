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
use crate::resource_key::ResourceKey;

/// A federated identity credential. Azure compares credentials of an identity by issuer and subject, and rejects
/// concurrent writes to one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FederatedCredential {
    /// The token issuer.
    pub issuer: IssuerReference,
    /// The subject: `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
    /// The audience of the tokens.
    pub audience: String,
}

/// The issuer of a federated identity credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IssuerReference {
    /// The URL of the token issuer, byte for byte as in the tokens.
    Url(String),
    /// The URL is a value of another resource in the graph, which this one depends on.
    Property {
        /// The key of the other resource.
        key: ResourceKey,
        /// The JSON pointer (RFC 6901) of the value in its body.
        pointer: &'static str,
    },
}

impl IssuerReference {
    /// The URL, if it is known: also that of a live resource of the graph.
    fn resolve<'a>(&'a self, live: &'a LiveState) -> Result<&'a str, UnknownValueError> {
        match self {
            Self::Url(url) => Ok(url),
            Self::Property { key, pointer } => {
                let value = live.get(key).and_then(|it| it.body.pointer(pointer)?.as_str());
                value.ok_or_else(|| UnknownValueError(key.clone()))
            }
        }
    }
}

impl FederatedCredential {
    fn body(&self, issuer: &str) -> Value {
        FederatedCredentialBody::new(issuer, &self.subject, &self.audience).to_json()
    }

    fn is_equal(&self, found: &LiveResource, issuer: &str) -> bool {
        found.body["properties"]["issuer"] == issuer
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
        live: &LiveState,
    ) -> Result<Option<LiveResource>, EffectError> {
        // The issuer of a cluster that has none yet is in no credential.
        let Ok(issuer) = self.issuer.resolve(live) else { return Ok(None) };
        let version = FederatedCredentialBody::API_VERSION;
        let credentials = access.list_with(id.collection(), version).await?;
        Ok(credentials.into_iter().find(|it| self.is_equal(it, issuer)))
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        // An unknown issuer differs from every live one.
        let issuer = self.issuer.resolve(live).unwrap_or_default();
        property_differences(&self.body(issuer), &found.body)
    }

    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(self.body(self.issuer.resolve(live)?))
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        _tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let version = FederatedCredentialBody::API_VERSION;
        let body = self.body(self.issuer.resolve(live)?);
        Ok(access.put(id, version, body, existing).await?)
    }
}
