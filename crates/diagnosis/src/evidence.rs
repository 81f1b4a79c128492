//! The evidence of one workload identity.

use lanyard_vocabulary::Hop;

use crate::check_outcome::CheckOutcome;
use crate::claim_comparison::FederatedCredential;
use crate::token_claims::{TokenClaims, TokenProblem};

/// What is known of one workload identity. Each part may be missing.
#[derive(Debug, Clone, Default)]
pub struct WorkloadIdentityEvidence {
    /// The client id with which the token is exchanged.
    pub client_id: Option<String>,
    /// The ServiceAccount of the pod.
    pub service_account: Option<Evidence<ServiceAccountAnnotations>>,
    /// The projected token of the pod.
    pub token: Option<Evidence<Result<TokenClaims, TokenProblem>>>,
    /// The documents of the token's issuer; the error says why they cannot be read.
    pub issuer: Option<Evidence<Result<IssuerDocuments, String>>>,
    /// All federated credentials of the identity.
    pub federated_credentials: Option<Evidence<Vec<FederatedCredential>>>,
    /// The exchange of the token for one of Entra ID.
    pub exchange: CheckOutcome,
    /// A call that a role of the identity permits.
    pub role: CheckOutcome,
}

/// A part of the evidence that was read.
#[derive(Debug, Clone)]
pub struct Evidence<T> {
    /// Where it was read: a file, a URL or an object.
    pub source: String,
    /// The content.
    pub value: T,
}

/// A ServiceAccount with the annotations that the workload identity webhook reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccountAnnotations {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `azure.workload.identity/client-id`.
    pub client_id: Option<String>,
    /// `azure.workload.identity/tenant-id`; without it, the webhook uses its own tenant.
    pub tenant_id: Option<String>,
}

/// The documents that Entra ID reads from an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerDocuments {
    /// The member `issuer` of the discovery document.
    pub issuer: String,
    /// The ids of the keys in the key set.
    pub key_ids: Vec<String>,
}

impl ServiceAccountAnnotations {
    /// The subject of the tokens of the ServiceAccount.
    pub(crate) fn subject(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl WorkloadIdentityEvidence {
    /// Where the evidence of a hop was read.
    pub(crate) fn source(&self, hop: Hop) -> Option<&str> {
        match hop {
            Hop::ServiceAccount => self.service_account.as_ref().map(|it| &*it.source),
            Hop::ProjectedToken => self.token.as_ref().map(|it| &*it.source),
            Hop::Issuer => self.issuer.as_ref().map(|it| &*it.source),
            Hop::FederatedCredential => self.federated_credentials.as_ref().map(|it| &*it.source),
            _ => None,
        }
    }
}
