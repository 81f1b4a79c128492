//! The kinds of managed identity endpoints, and how their protocols differ.

use std::fmt;

/// The kind of a managed identity endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ManagedIdentityEndpointKind {
    /// The Instance Metadata Service of virtual machines and scale sets.
    Imds,
    /// App Service, Functions and Container Apps.
    AppService,
}

impl ManagedIdentityEndpointKind {
    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Imds => "2018-02-01",
            Self::AppService => "2019-08-01",
        }
    }

    /// The query parameter that selects an identity by its ARM resource id.
    pub(super) const fn resource_id_parameter(self) -> &'static str {
        match self {
            Self::Imds => "msi_res_id",
            Self::AppService => "mi_res_id",
        }
    }
}

impl fmt::Display for ManagedIdentityEndpointKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Imds => "the instance metadata service",
            Self::AppService => "the app service identity endpoint",
        })
    }
}
