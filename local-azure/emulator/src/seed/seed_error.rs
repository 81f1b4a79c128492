//! The error of applying a seed plan, and the problems of a seed plan.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use lanyard_emulator_state::client_certificate::ClientCertificateError;
use lanyard_emulator_state::directory::CredentialIssueError;
use lanyard_emulator_state::keys::asymmetric_key::AsymmetricKeyError;
use lanyard_vocabulary::Component;

/// A problem of a field of a seed plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}`: {problem}")]
pub struct SeedPlanProblem {
    /// The path of the field, such as `identities[2].secretName`.
    pub field: String,
    /// A description of the problem.
    pub problem: String,
}

/// The Azure state could not be created from a seed plan, or its seeded objects could not be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SeedError {
    /// The plan is invalid.
    #[error("the seed plan has {} problem(s): {}", problems.len(), join_problems(problems))]
    Plan {
        /// All problems of the plan.
        problems: Vec<SeedPlanProblem>,
    },
    /// The plan could not be serialized as JSON.
    #[error("the plan could not be written as JSON")]
    PlanFingerprint(#[source] serde_json::Error),
    /// A key could not be created or used.
    #[error("a key could not be {step}")]
    Key {
        /// The failed step, as a past participle such as `generated`.
        step: &'static str,
        /// The cause.
        #[source]
        source: AsymmetricKeyError,
    },
    /// A certificate could not be created.
    #[error("a certificate could not be written")]
    Certificate(#[source] rcgen::Error),
    /// A PKCS#12 file could not be created.
    #[error("a PKCS#12 file could not be written")]
    Pkcs12(#[source] p12_keystore::error::Error),
    /// A credential document could not be serialized.
    #[error("a credential document could not be written")]
    Document(#[source] serde_json::Error),
    /// A credential exceeds the size of a vault secret.
    #[error("the credential has {bytes} bytes, and a vault secret at most {most}")]
    CredentialTooLarge {
        /// The size of the credential.
        bytes: usize,
        /// The maximum size of a secret.
        most: usize,
    },
    /// The storage account could not be created.
    #[error("the storage account could not be created")]
    StorageAccount(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The component has no identity.
    #[error("the emulator has no identity for `{component}`")]
    ComponentIdentityMissing { component: Component },
    /// The name of the secret belongs to a deleted secret, so the vault rejects the new one.
    #[error(
        "the vault `{vault}` does not take the secret `{secret}`: it is deleted and not purged"
    )]
    SecretDeleted {
        /// The host name of the vault.
        vault: String,
        /// The name of the secret.
        secret: String,
    },
    /// An object that the seed created has been removed.
    #[error("the emulator no longer has the {what}")]
    SeedObjectMissing {
        /// A description of the missing object.
        what: &'static str,
    },
}

impl From<ClientCertificateError> for SeedError {
    fn from(error: ClientCertificateError) -> Self {
        match error {
            ClientCertificateError::Key(source) => Self::Key { step: "read", source },
            ClientCertificateError::Certificate(source) => Self::Certificate(source),
        }
    }
}

impl From<CredentialIssueError> for SeedError {
    fn from(error: CredentialIssueError) -> Self {
        match error {
            CredentialIssueError::AuthorityMissing => {
                Self::SeedObjectMissing { what: "authority of managed identities" }
            }
            CredentialIssueError::Certificate(error) => error.into(),
            CredentialIssueError::Pkcs12(error) => Self::Pkcs12(error),
        }
    }
}

impl ErrorHint for SeedError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Plan { .. } => Some("correct the named fields of the seed plan"),
            Self::CredentialTooLarge { .. } => {
                Some("ask for less padding, or declare `utf-8`: `hex` doubles the size")
            }
            Self::ComponentIdentityMissing { .. } => {
                Some("name a component that the plan gives an identity")
            }
            Self::SecretDeleted { .. } => Some("recover or purge the secret first"),
            Self::SeedObjectMissing { .. } => Some("start with an empty state directory"),
            Self::PlanFingerprint(_)
            | Self::Key { .. }
            | Self::Certificate(_)
            | Self::Pkcs12(_)
            | Self::Document(_)
            | Self::StorageAccount(_) => None,
        };
        hint.map(Cow::Borrowed)
    }
}

impl SeedError {
    pub(super) fn key_generation_error(source: impl Into<AsymmetricKeyError>) -> Self {
        Self::Key { step: "generated", source: source.into() }
    }
}

fn join_problems(problems: &[SeedPlanProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
