//! The effect of a Kubernetes object.

use serde_json::Value;

use super::kubernetes_access::KubernetesAccess;
use super::kubernetes_bodies::applied_body;
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::{PropertyDifference, property_differences};
use crate::property_reference::resolve_references;
use crate::resource_id::ResourceId;

/// A Kubernetes object that one server-side apply creates or changes. Its kind and its name are those of the id.
///
/// Only the fields of the body are compared, as the API server returns them: `data` of a Secret, not `stringData`, and
/// quantities in their shortest form.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesObject {
    /// The fields that lanyard sets. Values can be references to those of other resources.
    pub body: Value,
    /// To whom the object belongs.
    pub usage: EffectUsage,
}

impl KubernetesObject {
    fn desired_body(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        resolve_references(&self.body, live).map_err(UnknownValueError)
    }
}

impl Effect for KubernetesObject {
    type Access = KubernetesAccess;

    fn usage(&self) -> EffectUsage {
        self.usage
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        if !matches!(self.usage, EffectUsage::Own | EffectUsage::Adjusted) {
            return Vec::new();
        }
        // A reference without a value belongs to a resource that does not exist yet, so it differs.
        let body = self.desired_body(live);
        property_differences(body.as_ref().unwrap_or(&self.body), &found.body)
    }

    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        self.desired_body(live)
    }

    async fn write(
        &self,
        access: &KubernetesAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let desired = self.desired_body(live)?;
        let (object, existing) = (access.object(id)?, existing.map(|existing| &existing.body));
        let (body, takes_fields) = applied_body(&object, &desired, existing, tags);
        Ok(access.apply(&object, &body, takes_fields).await?)
    }
}
