//! The tenant that the path of a request names.

use lanyard_emulator_state::directory::{DirectoryReplica, Tenant};

use super::error::{NO_TENANT_NAMED, TENANT_UNKNOWN, TokenServiceError};

/// The tenant in the first segment of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum TenantInPath<'a> {
    /// A tenant by its id or one of its domains.
    Named(&'a Tenant),
    /// A name that stands for the tenant of the user.
    Alias(TenantAlias),
}

/// A name that stands for the tenant of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TenantAlias {
    Common,
    Organizations,
    Consumers,
    Adfs,
}

impl TenantAlias {
    fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "common" => Some(Self::Common),
            "organizations" => Some(Self::Organizations),
            "consumers" => Some(Self::Consumers),
            "adfs" => Some(Self::Adfs),
            _ => None,
        }
    }
}

impl<'a> TenantInPath<'a> {
    pub(super) fn find(
        directory: DirectoryReplica<'a>,
        name: &str,
    ) -> Result<Self, TokenServiceError> {
        if let Some(alias) = TenantAlias::parse(name) {
            return Ok(Self::Alias(alias));
        }
        let unknown = || {
            TENANT_UNKNOWN.with_description(format!(
                "Tenant '{name}' not found. Check to make sure you have the correct tenant ID and \
                 are signing into the correct cloud."
            ))
        };
        directory.tenant(name).map(Self::Named).ok_or_else(unknown)
    }

    /// The named tenant; `None` for an alias.
    pub(super) const fn named(self) -> Option<&'a Tenant> {
        match self {
            Self::Named(tenant) => Some(tenant),
            Self::Alias(_) => None,
        }
    }

    /// The named tenant, which applications need because no user implies one.
    pub(super) fn require_named(self) -> Result<&'a Tenant, TokenServiceError> {
        self.named().ok_or_else(|| {
            NO_TENANT_NAMED.with_description(
                "No tenant-identifying information found in either the request or implied by any \
                 provided credentials.",
            )
        })
    }
}
