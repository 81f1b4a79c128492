//! The effect of a Helm release.

use serde_json::{Value, json};

use super::helm_access::HelmAccess;
use super::helm_command::HelmRelease;
use super::helm_output::{DEPLOYED, release_differences};
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::effect_error::EffectError;
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::PropertyDifference;
use crate::property_reference::resolve_references;
use crate::resource_id::ResourceId;

impl HelmRelease {
    fn desired_values(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        let values = resolve_references(&self.values, live).map_err(UnknownValueError)?;
        Ok(if values.is_null() { json!({}) } else { values })
    }
}

impl Effect for HelmRelease {
    type Access = HelmAccess;

    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn diff(&self, found: &LiveResource, live: &LiveState) -> Vec<PropertyDifference> {
        // A reference without a value belongs to a resource that does not exist yet, so it differs.
        let values = self.desired_values(live);
        let values = values.as_ref().unwrap_or(&self.values);
        release_differences(self.version.as_deref(), values, &found.body)
    }

    /// A roll-back needs the revision before the run, which differs from every desired one.
    fn updated_properties(&self, live: &LiveState) -> Result<Value, UnknownValueError> {
        let values = self.desired_values(live)?;
        let version = &self.version;
        Ok(json!({ "chart": { "version": version }, "values": values, "status": DEPLOYED,
            "revision": 0 }))
    }

    async fn write(
        &self,
        access: &HelmAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let values = self.desired_values(live)?;
        let is_marked = existing.is_none_or(|existing| tags.are_on(&existing.body));
        let written = async {
            let id = access.release(id)?;
            if let Some(existing) = existing {
                access.repair(&id, &existing.body).await?;
            }
            access.upgrade(&id, self, &values, is_marked.then_some(tags)).await?;
            access.read_body(&id).await
        };
        let body = written.await.map_err(EffectError::from)?;
        Ok(WriteProgress::Complete(body.unwrap_or_default()))
    }
}
