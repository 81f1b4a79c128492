//! Finds the first broken hop of an Azure identity from evidence.
//!
//! The identity is a workload identity: a pod exchanges the projected token of its ServiceAccount for a token of Entra
//! ID. The caller reads the evidence, as much as it can: [`WorkloadIdentityEvidence`]. [`diagnose`] judges each hop and
//! names the cause and the next step of a broken one.
//!
//! The crate has no I/O, no clock and no runtime.

mod check_outcome;
mod claim_comparison;
mod entra_codes;
mod evidence;
mod foreign_text;
mod token_claims;
mod workload_identity;

pub use check_outcome::CheckOutcome;
pub use claim_comparison::FederatedCredential;
pub use entra_codes::has_no_matching_credential;
pub use evidence::{
    Evidence, IssuerDocuments, ServiceAccountAnnotations, WorkloadIdentityEvidence,
};
pub use token_claims::{TokenClaims, TokenProblem};
pub use workload_identity::{HopVerdict, WorkloadIdentityDiagnosis, diagnose};
