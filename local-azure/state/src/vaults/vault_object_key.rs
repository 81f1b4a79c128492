//! The keys of the tables of vault objects.

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;

/// The vault's host and the object's name, both in lower case.
///
/// One text `host/name`: a large table compares keys often, and each text is one place in memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VaultObjectKey(Box<str>);

impl VaultObjectKey {
    /// The key of an object; a host has no slash.
    pub fn new(host: &str, name: &str) -> Self {
        // With the exact capacity, the conversion to a box does not allocate again.
        let mut text = String::with_capacity(host.len() + 1 + name.len());
        text.extend([host, "/", name]);
        text.make_ascii_lowercase();
        Self(text.into())
    }

    /// The start of the objects of a vault after the one with the name `marker`.
    pub(crate) fn first_after(host: &str, marker: Option<&str>) -> Bound<Self> {
        match marker {
            None => Bound::Included(Self::new(host, "")),
            Some(name) => Bound::Excluded(Self::new(host, name)),
        }
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or((&self.0, ""))
    }

    pub fn host(&self) -> &str {
        self.parts().0
    }

    pub fn name(&self) -> &str {
        self.parts().1
    }
}

impl fmt::Display for VaultObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
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
pub struct InvalidVaultObjectKey;
