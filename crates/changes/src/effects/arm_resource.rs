//! The effect of a resource that one PUT creates in Azure Resource Manager.

use lanyard_azure::{ArmBody as _, PrivateDnsLinkBody};
use serde_json::Value;

use super::arm_bodies::writable_body;
use super::azure_access::AzureAccess;
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::{PropertyDifference, merge_properties, property_differences};
use crate::property_reference::resolve_references;
use crate::resource_id::ResourceId;

/// A resource that one PUT creates. A difference is repaired by a PUT of the live body with the desired properties, so
/// that the additions of controllers stay.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmResource {
    /// The version of the API.
    pub api_version: &'static str,
    /// The properties that lanyard sets.
    pub body: Value,
    /// Further properties of a new resource, which others change later, such as the number of nodes of a pool with an
    /// autoscaler. They are not compared.
    pub initial: Value,
    /// Whether the resource type has tags. Lanyard then adds its ownership tags.
    pub tags: TagSupport,
    /// To whom the resource belongs.
    pub usage: EffectUsage,
}

/// Whether lanyard may set tags on a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagSupport {
    /// The resource type has tags.
    Tagged,
    /// The resource type has no tags; the journal alone records that lanyard created the resource.
    Untagged,
}

impl ArmResource {
    fn desired_body(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        resolve_references(&self.body, live).map_err(UnknownValueError)
    }

    /// The body of the write that creates the resource, or changes `existing`.
    fn written_body(
        &self,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<Value, UnknownValueError> {
        let body = self.desired_body(live)?;
        if let Some(existing) = existing {
            return Ok(writable_body(merge_properties(&body, &existing.body)));
        }
        let mut body =
            if self.initial.is_null() { body } else { merge_properties(&self.initial, &body) };
        if self.tags == TagSupport::Tagged {
            tags.add_to(&mut body);
        }
        Ok(body)
    }
}

impl Effect for ArmResource {
    type Access = AzureAccess;

    fn usage(&self) -> EffectUsage {
        self.usage
    }

    async fn read(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
    ) -> Result<Option<LiveResource>, EffectError> {
        access.read_with(id, self.api_version).await
    }

    /// Azure accepts a link of a zone to a virtual network only once for the zone.
    async fn read_equal(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        _live: &LiveState,
    ) -> Result<Option<LiveResource>, EffectError> {
        let is_link = id.arm().is_some_and(|id| id.has_type(PrivateDnsLinkBody::RESOURCE_TYPE));
        if !is_link {
            return Ok(None);
        }
        let is_equal = |it: &LiveResource| property_differences(&self.body, &it.body).is_empty();
        let links = access.list_with(id.collection(), self.api_version).await?;
        Ok(links.into_iter().find(is_equal))
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        if !matches!(self.usage, EffectUsage::Own | EffectUsage::Adjusted) {
            return Vec::new();
        }
        // A reference without a value belongs to a resource that does not exist yet, so it differs.
        let body = self.desired_body(live);
        let mut differences =
            property_differences(body.as_ref().unwrap_or(&self.body), &found.body);
        if self.usage == EffectUsage::Own {
            differences.extend(failed_state(&found.body));
        }
        differences
    }

    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        self.desired_body(live)
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let body = self.written_body(existing, live, tags)?;
        if let (Some(existing), EffectUsage::Adjusted) = (existing, self.usage) {
            return Ok(access.put_existing(self.api_version, body, existing).await?);
        }
        Ok(access.put(id, self.api_version, body, existing).await?)
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
