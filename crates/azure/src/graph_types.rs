//! Objects of Microsoft Graph v1.0, with the properties that lanyard uses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use lanyard_vocabulary::EntraClientId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An application (app registration).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphApplication {
    /// The object id of the application, not of its service principal.
    pub id: Uuid,
    /// The client id.
    pub app_id: EntraClientId,
    /// The display name, which need not be unique.
    pub display_name: Option<String>,
    /// The name that identifies the application in its tenant, if its creator chose one.
    #[serde(default)]
    pub unique_name: Option<String>,
    /// The texts with which clients categorize the application.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The certificates. Graph returns their keys only for one application at a time.
    #[serde(default, skip_serializing)]
    pub key_credentials: Vec<GraphKeyCredential>,
}

/// The properties of an application that a client writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphApplicationBody {
    /// The display name.
    pub display_name: String,
    /// Whose accounts the application signs in: `AzureADMyOrg` for those of its own tenant.
    pub sign_in_audience: String,
    /// The texts that categorize the application. Empty leaves those of an existing application as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl GraphApplicationBody {
    /// An application for its own tenant.
    pub fn new(display_name: impl Into<String>) -> Self {
        let sign_in_audience = "AzureADMyOrg".to_owned();
        Self { display_name: display_name.into(), sign_in_audience, tags: Vec::new() }
    }
}

/// A certificate of an application. A PATCH replaces all of them; it contains those that stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphKeyCredential {
    /// `AsymmetricX509Cert`.
    #[serde(rename = "type")]
    pub credential_type: String,
    /// `Verify`.
    pub usage: String,
    /// The certificate: base64 of its DER encoding. May be absent for a credential that stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The id of the credential. Graph chooses one for a new credential without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<Uuid>,
    /// The display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The begin of the validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_date_time: Option<Timestamp>,
    /// The end of the validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_date_time: Option<Timestamp>,
    /// The SHA-1 thumbprint of the certificate, which Graph computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_key_identifier: Option<String>,
}

impl GraphKeyCredential {
    /// A new credential for a certificate (DER) with this validity.
    pub fn of_certificate(
        certificate: &[u8],
        key_id: Uuid,
        display_name: impl Into<String>,
        validity: (Timestamp, Timestamp),
    ) -> Self {
        Self {
            credential_type: "AsymmetricX509Cert".to_owned(),
            usage: "Verify".to_owned(),
            key: Some(STANDARD.encode(certificate)),
            key_id: Some(key_id),
            display_name: Some(display_name.into()),
            start_date_time: Some(validity.0),
            end_date_time: Some(validity.1),
            custom_key_identifier: None,
        }
    }

    /// The certificate (DER), if Graph returned it.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.key.as_deref()?).ok()
    }
}

/// A service principal: an application or a managed identity in a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphServicePrincipal {
    /// The object id, which role assignments name.
    pub id: Uuid,
    /// The client id.
    pub app_id: EntraClientId,
    /// The display name.
    pub display_name: Option<String>,
    /// `Application` or `ManagedIdentity`, for example.
    #[serde(default)]
    pub service_principal_type: Option<String>,
}

/// An object of any type, as `directoryObjects/getByIds` returns it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphDirectoryObject {
    /// The type, for example `#microsoft.graph.servicePrincipal`.
    #[serde(rename = "@odata.type", default)]
    pub odata_type: Option<String>,
    /// The object id.
    pub id: Uuid,
    /// The display name, if the caller may read it.
    #[serde(default)]
    pub display_name: Option<String>,
    /// The client id of an application or a service principal.
    #[serde(default)]
    pub app_id: Option<EntraClientId>,
}

/// The signed-in user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphUser {
    /// The object id.
    pub id: Uuid,
    /// The display name.
    #[serde(default)]
    pub display_name: Option<String>,
    /// The sign-in name, for example `ada@contoso.com`.
    #[serde(default)]
    pub user_principal_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn new_certificate_has_this_json_and_reads_back() {
        let (begin, end) = ("2026-11-24T00:00:00Z", "2027-11-24T00:00:00Z");
        let validity = (begin.parse().unwrap(), end.parse().unwrap());
        let id = Uuid::from_u128(7);
        let credential = GraphKeyCredential::of_certificate(b"der", id, "CN=cpo", validity);
        let sent = json!({
            "type": "AsymmetricX509Cert",
            "usage": "Verify",
            "key": "ZGVy",
            "keyId": "00000000-0000-0000-0000-000000000007",
            "displayName": "CN=cpo",
            "startDateTime": begin,
            "endDateTime": end,
        });
        assert_eq!(serde_json::to_value(&credential).unwrap(), sent);
        assert_eq!(serde_json::from_value::<GraphKeyCredential>(sent).unwrap(), credential);
        assert_eq!(credential.certificate().as_deref(), Some(&b"der"[..]));
    }

    #[test]
    fn application_body_has_this_json() {
        assert_eq!(
            serde_json::to_value(GraphApplicationBody::new("cpo")).unwrap(),
            json!({ "displayName": "cpo", "signInAudience": "AzureADMyOrg" })
        );
    }
}
