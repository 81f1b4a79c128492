//! The certificate operations of Key Vault: the creation of a certificate version, which waits for
//! its certificate or is completed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::certificate_policy::IssuerParameters;
use crate::keys::AsymmetricKey;

/// The creation of a certificate version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CertificateOperation {
    /// 32 hexadecimal digits.
    pub request_id: String,
    pub issuer: IssuerParameters,
    /// The certificate request (PKCS#10), base64 of DER.
    pub csr: String,
    pub status: CertificateOperationStatus,
    pub is_cancellation_requested: bool,
    pub preserve_order: bool,
    /// The version that waits for its certificate.
    pub waiting: Option<WaitingVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CertificateOperationStatus {
    InProgress,
    Completed,
    Cancelled,
}

/// A version without a certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingVersion {
    pub id: String,
    pub key: AsymmetricKey,
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
}

impl CertificateOperation {
    /// Whether the operation waits for its certificate.
    pub fn is_in_progress(&self) -> bool {
        self.status == CertificateOperationStatus::InProgress
    }

    /// The operation as in replies, with a status that may differ from the stored one.
    pub fn to_json(&self, certificate_id: &str, status: CertificateOperationStatus) -> Value {
        let mut wire = json!({
            "id": format!("{certificate_id}/pending"),
            "issuer": self.issuer,
            "csr": self.csr,
            "cancellation_requested": self.is_cancellation_requested,
            "status": status,
            "request_id": self.request_id,
        });
        match status {
            CertificateOperationStatus::InProgress => {
                wire["status_details"] = json!(if self.issuer.is_unknown() {
                    "Pending certificate created. Please Perform Merge to complete the request."
                } else {
                    "Pending certificate created. Certificate request is in progress. This may take \
                     some time based on the issuer provider. Please check again later."
                });
            }
            CertificateOperationStatus::Completed => wire["target"] = json!(certificate_id),
            CertificateOperationStatus::Cancelled => {
                wire["status_details"] = json!("The certificate request was cancelled.");
            }
        }
        if self.preserve_order {
            wire["preserveCertOrder"] = json!(true);
        }
        wire
    }
}
