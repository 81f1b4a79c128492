//! The id of a resource that lanyard changes.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use lanyard_vocabulary::ArmResourceId;
use serde::{Deserialize, Serialize};

/// The id of a resource: that of Azure Resource Manager, or `scheme:...` of another service.
///
/// The original case is kept, and comparison ignores it, as in Azure Resource Manager.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ResourceId(IdForm);

#[derive(Debug, Clone)]
enum IdForm {
    Arm(ArmResourceId),
    Other(String),
}

impl ResourceId {
    /// The id in its original case.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            IdForm::Arm(id) => id.as_str(),
            IdForm::Other(text) => text,
        }
    }

    /// The id in Azure Resource Manager; `None` for a resource of another service.
    pub const fn arm(&self) -> Option<&ArmResourceId> {
        match &self.0 {
            IdForm::Arm(id) => Some(id),
            IdForm::Other(_) => None,
        }
    }

    /// The type of a resource of Azure Resource Manager as `Namespace/type/childType`; `None` for a resource group, and
    /// for a resource of another service.
    pub fn resource_type(&self) -> Option<String> {
        self.arm()?.resource_type()
    }

    /// Whether the resource has this type of Azure Resource Manager.
    pub fn has_type(&self, resource_type: &str) -> bool {
        self.arm().is_some_and(|id| id.has_type(resource_type))
    }

    /// What the resource is in: the name of its resource group, or the scheme of another service.
    pub fn group(&self) -> &str {
        match &self.0 {
            IdForm::Arm(id) => id.resource_group().unwrap_or_default(),
            IdForm::Other(text) => text.split_once(':').map_or("", |(scheme, _)| scheme),
        }
    }

    /// The name of the resource: the last segment of its id.
    pub fn name(&self) -> &str {
        self.as_str().rsplit(['/', ':']).next().unwrap_or_default()
    }

    /// Whether `other` equals this id or is below it.
    pub fn contains(&self, other: &Self) -> bool {
        let (own, other) = (self.as_str(), other.as_str());
        let (Some(start), Some(rest)) = (other.get(..own.len()), other.get(own.len()..)) else {
            return false;
        };
        start.eq_ignore_ascii_case(own) && (rest.is_empty() || rest.starts_with('/'))
    }

    /// The id without the name.
    pub(crate) fn collection(&self) -> &str {
        self.as_str().rsplit_once('/').map_or("", |(collection, _)| collection)
    }

    /// Whether the ids differ at most in the name.
    pub(crate) fn is_in_same_collection(&self, other: &Self) -> bool {
        self.collection().eq_ignore_ascii_case(other.collection())
    }
}

impl From<ArmResourceId> for ResourceId {
    fn from(id: ArmResourceId) -> Self {
        Self(IdForm::Arm(id))
    }
}

impl From<String> for ResourceId {
    /// Text that is no id of Azure Resource Manager is the id of another service.
    fn from(text: String) -> Self {
        Self(text.parse().map_or(IdForm::Other(text), IdForm::Arm))
    }
}

impl FromStr for ResourceId {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::from(text.to_owned()))
    }
}

impl From<ResourceId> for String {
    fn from(id: ResourceId) -> Self {
        match id.0 {
            IdForm::Arm(id) => id.into(),
            IdForm::Other(text) => text,
        }
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.as_str().eq_ignore_ascii_case(other.as_str())
    }
}

impl Eq for ResourceId {}

impl PartialEq<ArmResourceId> for ResourceId {
    fn eq(&self, other: &ArmResourceId) -> bool {
        self.as_str().eq_ignore_ascii_case(other.as_str())
    }
}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        let lower = |text: &Self| text.as_str().to_ascii_lowercase();
        lower(self).cmp(&lower(other))
    }
}
