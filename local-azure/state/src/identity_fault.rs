//! Deliberate faults in the identity flow of a component.

use std::str::FromStr;

use lanyard_vocabulary::ObjectEncoding;
use serde::{Deserialize, Serialize};

/// A deliberate fault in the identity flow of a component, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum IdentityFault {
    /// The secret's value is in another encoding than the declared one.
    Encoding,
    /// The secret does not exist in the vault.
    MissingSecret,
    /// The vault reader has no permission on the secret.
    VaultRole,
    /// The certificate has expired, while the timestamps of the document are still valid.
    Expired,
    /// The private key does not match the certificate.
    KeyMismatch,
    /// The bundle has the private key and the certificate of the authority, but no certificate of the key.
    MissingLeaf,
    /// The tenant has no application with the client id.
    UnknownApplication,
    /// The document names an authority with another token endpoint than the assertion's audience.
    Audience,
    /// The identity has no role assignment.
    ArmRole,
}

impl IdentityFault {
    /// Every fault.
    pub const ALL: [Self; 9] = [
        Self::Encoding,
        Self::MissingSecret,
        Self::VaultRole,
        Self::Expired,
        Self::KeyMismatch,
        Self::MissingLeaf,
        Self::UnknownApplication,
        Self::Audience,
        Self::ArmRole,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Encoding => "encoding",
            Self::MissingSecret => "missing-secret",
            Self::VaultRole => "vault-role",
            Self::Expired => "expired",
            Self::KeyMismatch => "key-mismatch",
            Self::MissingLeaf => "missing-leaf",
            Self::UnknownApplication => "unknown-application",
            Self::Audience => "audience",
            Self::ArmRole => "arm-role",
        }
    }

    /// Whether the fault is in the value of the secret, so that it takes effect by writing a new version.
    pub const fn changes_secret_value(self) -> bool {
        match self {
            Self::Encoding
            | Self::Expired
            | Self::KeyMismatch
            | Self::MissingLeaf
            | Self::Audience => true,
            Self::MissingSecret | Self::VaultRole | Self::UnknownApplication | Self::ArmRole => {
                false
            }
        }
    }
}

lanyard_vocabulary::display_text!(IdentityFault, name());

/// For serde: the name of the fault, as on the command line.
impl From<IdentityFault> for &'static str {
    fn from(fault: IdentityFault) -> Self {
        fault.name()
    }
}

/// The text is not the name of a fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fault; known: {known}", known = IdentityFault::ALL.map(IdentityFault::name).join(", "))]
pub struct ParseIdentityFaultError(pub String);

impl FromStr for IdentityFault {
    type Err = ParseIdentityFaultError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|fault| fault.name() == text)
            .ok_or_else(|| ParseIdentityFaultError(text.to_owned()))
    }
}

/// For serde: parses the name of a fault, such as `missing-secret`.
impl TryFrom<String> for IdentityFault {
    type Error = ParseIdentityFaultError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// An encoding that differs from the declared one.
pub(crate) const fn mismatched_encoding(declared: ObjectEncoding) -> ObjectEncoding {
    match declared {
        ObjectEncoding::Utf8 | ObjectEncoding::Hex => ObjectEncoding::Base64,
        ObjectEncoding::Base64 => ObjectEncoding::Utf8,
    }
}
