//! The keys of the tables of vault objects.

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

/// The vault's host and the object's name, both in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VaultObjectKey {
    host: String,
    name: String,
}

impl VaultObjectKey {
    pub(super) fn new(host: &str, name: &str) -> Self {
        Self { host: host.to_ascii_lowercase(), name: name.to_ascii_lowercase() }
    }

    /// The start of the objects of a vault after the one with the name `marker`.
    pub(super) fn first_after(host: &str, marker: Option<&str>) -> Bound<Self> {
        match marker {
            None => Bound::Included(Self::new(host, "")),
            Some(name) => Bound::Excluded(Self::new(host, name)),
        }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for VaultObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.name)
    }
}

impl FromStr for VaultObjectKey {
    type Err = InvalidVaultObjectKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, name) = text.split_once('/').ok_or(InvalidVaultObjectKey)?;
        Ok(Self::new(host, name))
    }
}

/// The text is not `host/name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidVaultObjectKey;
