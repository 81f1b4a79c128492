//! Typed bodies of resources.

use std::collections::BTreeMap;

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arm_request::ArmRequest;

/// The tags of a resource.
pub type ResourceTags = BTreeMap<String, String>;

/// The body of a resource of one type, with the properties that lanyard writes.
///
/// Reading a live resource into such a type drops its other properties, so such a value is not a body for a
/// PUT of a resource that others change, too.
pub trait ArmBody: Serialize {
    /// The type of the resource, for example `Microsoft.Network/virtualNetworks`.
    const RESOURCE_TYPE: &'static str;
    /// The API version of the requests.
    const API_VERSION: &'static str;

    /// The JSON of the body.
    fn to_json(&self) -> Value
    where
        Self: Sized,
    {
        json!(self)
    }

    /// The PUT request that creates or replaces the resource `id`.
    fn put(&self, id: &ArmResourceId) -> ArmRequest
    where
        Self: Sized,
    {
        ArmRequest::put(id.as_str(), Self::API_VERSION, self.to_json())
    }

    /// The request that reads the resource `id`.
    fn get(id: &ArmResourceId) -> ArmRequest {
        ArmRequest::get(id.as_str(), Self::API_VERSION)
    }

    /// The request that deletes the resource `id`.
    fn delete(id: &ArmResourceId) -> ArmRequest {
        ArmRequest::delete(id.as_str(), Self::API_VERSION)
    }
}

/// A reference to another resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReference {
    /// The id of the other resource.
    pub id: ArmResourceId,
}

impl From<ArmResourceId> for ResourceReference {
    fn from(id: ArmResourceId) -> Self {
        Self { id }
    }
}

#[cfg(test)]
pub(crate) fn resource_id(path: &str) -> ArmResourceId {
    format!("/subscriptions/s/resourceGroups/g/providers/{path}").parse().unwrap()
}

/// Asserts the JSON of a body, and that the body reads back from it.
#[cfg(test)]
pub(crate) fn assert_body<B>(body: &B, expected: Value)
where
    B: ArmBody + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(body.to_json(), expected);
    assert_eq!(&serde_json::from_value::<B>(expected).unwrap(), body);
}
