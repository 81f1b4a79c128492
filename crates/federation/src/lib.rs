//! OIDC issuers for Kubernetes service account tokens: the signing key, the discovery document and
//! the key set that Entra ID fetches, and the identities of `CredentialsRequest` objects.
//!
//! Everything here is pure: no file, no network, no clock. Only [`SigningKey::generate`] uses
//! randomness.

mod credentials_requests;
mod discovery;
mod federated_credential_name;
mod identity_plan;
mod issuer;
mod key_id;
mod key_set;
mod manifests;
mod output_file;
mod pem;
mod publication;
mod signing_key;
mod storage_names;

pub use credentials_requests::{
    CredentialsRequestFile, CredentialsRequestsError, IdentityRequest, MAX_FEDERATED_CREDENTIALS,
    RequestProblem, SecretReference, parse_credentials_requests,
};
pub use discovery::{DiscoveryError, IssuerDiscovery};
pub use federated_credential_name::workload_identity_credential_name;
pub use identity_plan::{
    FederatedCredentialSpec, IdentityPlanError, IdentityPlanProblem, IdentityPlanSettings,
    IdentitySpec, OPENSHIFT_AUDIENCE, RoleScopeGroups, plan_identities,
};
pub use issuer::{DISCOVERY_PATH, IssuerUrl, KEY_SET_PATH, ParseIssuerUrlError};
pub use key_id::KeyId;
pub use key_set::{KeySetError, PublishedKey, PublishedKeySet};
pub use manifests::{
    IdentityIds, cluster_authentication_file, credentials_secret_file, discovery_file,
    key_set_file, signing_key_files, webhook_secret_file,
};
pub use output_file::OutputFile;
pub use publication::{PublicationProblem, verify_publication};
pub use signing_key::{SigningKey, SigningKeyError, SigningKeySize, SigningPublicKey};
pub use storage_names::{IssuerContainer, IssuerStorageAccount, StorageNameError};
