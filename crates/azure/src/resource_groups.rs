//! Resource groups.

use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde::{Deserialize, Serialize};

use crate::arm_body::{ArmBody, ResourceTags};

/// A resource group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceGroupBody {
    /// The region of the metadata. It cannot be changed.
    pub location: String,
    /// The tags; a PUT replaces all of them.
    #[serde(default)]
    pub tags: ResourceTags,
}

impl ArmBody for ResourceGroupBody {
    const RESOURCE_TYPE: &'static str = "Microsoft.Resources/resourceGroups";
    const API_VERSION: &'static str = "2021-04-01";
}

impl ResourceGroupBody {
    /// A group in `location` with these tags.
    pub fn new(location: impl Into<String>, tags: ResourceTags) -> Self {
        Self { location: location.into(), tags }
    }

    /// The id of the group `name`.
    pub fn id(subscription: &SubscriptionId, name: &str) -> ArmResourceId {
        ArmResourceId::subscription_scope(subscription).child("resourceGroups", name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::arm_body::assert_body;

    #[test]
    fn group_has_this_json_and_id() {
        let tags = ResourceTags::from([("owner".to_owned(), "lanyard".to_owned())]);
        let body = ResourceGroupBody::new("westeurope", tags);
        assert_body(&body, json!({ "location": "westeurope", "tags": { "owner": "lanyard" } }));
        let id = ResourceGroupBody::id(&"s".parse().unwrap(), "g");
        assert_eq!(id.as_str(), "/subscriptions/s/resourceGroups/g");
        let request = body.put(&id);
        assert_eq!((&*request.path, &*request.api_version), (id.as_str(), "2021-04-01"));
    }
}
