//! The certificate authorities that clients registered, and the contacts of a vault.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A registered certificate authority. Its password is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateIssuer {
    pub name: String,
    pub provider: String,
    pub account_id: Option<String>,
    pub organization: Option<IssuerOrganization>,
    pub enabled: bool,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// The organization of an issuer's account, in its wire format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IssuerOrganization {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_details: Option<Vec<IssuerAdministrator>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct IssuerAdministrator {
    #[serde(skip_serializing_if = "Option::is_none")]
    first_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
}

/// A person whom the service would notify about certificates, in its wire format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateContact {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phone: Option<String>,
}
