//! The service principals of an ARO HCP control plane in development environments, where no managed identity
//! service issues credentials.
//!
//! Each component has an application in Entra ID, a certificate in a Key Vault, and a secret in the same vault
//! with the credential document that the component reads. The engine of `lanyard-changes` creates the applications,
//! [`ServicePrincipalClient::create`] creates what else is missing, [`ServicePrincipalClient::rotate`] replaces a
//! certificate without a gap, and [`ServicePrincipalClient::delete`] removes what lanyard created.
//!
//! Reference: the scripts in `contrib/managed-azure` of HyperShift, and `UserAssignedIdentityCredentials` of
//! `github.com/Azure/msi-dataplane` v0.4.3 for the document.

mod certificate_policy;
mod client;
mod credential_json;
mod credential_times;
mod credential_vault;
mod error;
mod live_state;
mod names;
mod public_certificate;
mod token_proof;

pub use client::{
    ChangeObserver, CreatedObjects, CreatedServicePrincipal, Deletion, RotationOptions,
    ServicePrincipalClient, VaultObjectState,
};
pub use credential_vault::{
    CredentialVault, VAULT_PURGE_ACTIONS, VAULT_REMOVAL_ACTIONS, VAULT_WRITE_ACTIONS,
};
pub use error::ServicePrincipalError;
pub use names::{
    EnvironmentPrefix, InvalidPrefixError, ServicePrincipalNames, service_principal_components,
};
pub use token_proof::TokenProof;
