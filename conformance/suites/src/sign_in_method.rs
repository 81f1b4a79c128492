//! The ways in which the test clients authenticate.

/// How a client authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignInMethod {
    Certificate,
    Secret,
    Federated,
    ManagedIdentity,
    /// A user who signs in to the Azure CLI's public client.
    User,
}

impl SignInMethod {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Secret => "secret",
            Self::Federated => "federated",
            Self::ManagedIdentity => "managed-identity",
            Self::User => "user",
        }
    }
}
