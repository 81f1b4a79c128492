//! The forms of certificate files.

use serde::{Deserialize, Serialize};

/// The form of a certificate file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BundleForm {
    #[serde(rename = "application/x-pkcs12")]
    Pkcs12,
    #[serde(rename = "application/x-pem-file")]
    Pem,
}

impl BundleForm {
    /// The content type of the secret.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Pkcs12 => "application/x-pkcs12",
            Self::Pem => "application/x-pem-file",
        }
    }

    /// The form with this content type.
    pub fn from_content_type(text: &str) -> Option<Self> {
        [Self::Pkcs12, Self::Pem]
            .into_iter()
            .find(|form| form.content_type().eq_ignore_ascii_case(text))
    }
}
