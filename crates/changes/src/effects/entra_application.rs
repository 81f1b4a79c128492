//! The effect of an application in Entra ID with its service principal.

use serde_json::Value;

use super::application_requests::{
    APPLICATIONS, SERVICE_PRINCIPAL, create_application, unique_name,
};
use super::azure_access::AzureAccess;
use crate::accepted_write::WriteProgress;
use crate::effect::{Effect, EffectUsage, EffectWriteError, UnknownValueError};
use crate::live_state::{LiveResource, LiveState};
use crate::ownership_tags::OwnershipTags;
use crate::property_diff::PropertyDifference;
use crate::resource_id::ResourceId;

/// An application in Entra ID with its service principal, identified by its unique name. Credentials are not part of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntraApplication;

impl EntraApplication {
    /// The id of the application with this unique name.
    pub fn id(unique_name: &str) -> ResourceId {
        ResourceId::from(format!("{APPLICATIONS}{unique_name}"))
    }
}

impl Effect for EntraApplication {
    type Access = AzureAccess;

    /// Not shared, because `--import` adopts no shared resources.
    fn usage(&self) -> EffectUsage {
        EffectUsage::Own
    }

    fn diff(&self, found: &LiveResource, _live: &LiveState) -> Vec<PropertyDifference> {
        let (path, live) = (SERVICE_PRINCIPAL.to_owned(), found.body[SERVICE_PRINCIPAL].clone());
        let missing = PropertyDifference { path, desired: "an object id".into(), live };
        if missing.live.is_null() { vec![missing] } else { Vec::new() }
    }

    fn updated_properties(&self, _live: &LiveState) -> Result<Value, UnknownValueError> {
        Ok(Value::Null)
    }

    async fn write(
        &self,
        access: &AzureAccess,
        id: &ResourceId,
        existing: Option<&LiveResource>,
        _live: &LiveState,
        tags: &OwnershipTags,
    ) -> Result<WriteProgress, EffectWriteError> {
        let name = unique_name(id).unwrap_or_default();
        Ok(create_application(&access.graph, name, existing, tags).await?)
    }
}
