//! The token service of the local Azure, and the services that issue tokens and credentials of
//! managed identities: the metadata service of virtual machines, the token endpoint of App Service,
//! and the data plane of managed identities.

pub mod app_service;
pub mod imds;
pub mod managed_identity;
pub mod token_service;
