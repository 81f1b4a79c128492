//! How a journal, a plan and progress events name a resource.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a resource within one cluster, such as `vnet` or `identity/disk`.
///
/// The journal, plans and progress events identify resources by their key, because it is known before Azure
/// assigns ids, and stays the same when a name changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResourceKey(String);

impl ResourceKey {
    /// Creates a key.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// The name of the resources that one command creates and one `destroy` command removes, such as `infra`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StackName(Cow<'static, str>);

impl StackName {
    /// Creates a name.
    pub const fn new(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The name in commands and in the journal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StackName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// Whether a destroy command may delete a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ownership {
    /// Lanyard created the resource, so `destroy` deletes it.
    Created,
    /// `lanyard import azure` added a resource that another tool created for this cluster, so `destroy` deletes
    /// it.
    Imported,
    /// The resource existed before and belongs to the user. Lanyard never deletes it.
    Existing,
}

impl Ownership {
    /// Whether `destroy` deletes the resource.
    pub const fn is_ours(self) -> bool {
        matches!(self, Self::Created | Self::Imported)
    }
}
