//! The creation of a certificate version as a record: a request that waits for its certificate, or a
//! completed one.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::{
    VaultMut, VaultRef, VaultView, authorize_call, authorized_vault_mut, store_error_reply,
};
use super::certificate_content::CertificateContent;
use super::certificate_policy::IssuerParameters;
use super::error::VaultServiceError;
use super::object_kind::{CERTIFICATE_PERMISSIONS, KeyVaultObjectKind, UPDATE_CERTIFICATE};
use super::object_store::{ObjectStoreError, StoredVaultObject};
use super::objects::object_id;
use super::request_body::parse_body;
use crate::keys::AsymmetricKey;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// The record of a creation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CertificateOperation {
    /// 32 hexadecimal digits.
    pub(super) request_id: String,
    pub(super) issuer: IssuerParameters,
    /// The certificate request (PKCS#10), base64 of DER.
    pub(super) csr: String,
    pub(super) status: CertificateOperationStatus,
    pub(super) is_cancellation_requested: bool,
    pub(super) preserve_order: bool,
    /// The version that waits for its certificate.
    pub(super) waiting: Option<WaitingVersion>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum CertificateOperationStatus {
    InProgress,
    Completed,
    Cancelled,
}

/// A version without a certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct WaitingVersion {
    pub(super) id: String,
    pub(super) key: AsymmetricKey,
    pub(super) enabled: bool,
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct CancelOperationBody {
    cancellation_requested: bool,
}

impl CertificateOperation {
    /// Whether the record waits for its certificate.
    pub(super) fn is_in_progress(&self) -> bool {
        self.status == CertificateOperationStatus::InProgress
    }

    /// The record as in replies, with a status that may differ from the stored one.
    pub(super) fn to_json(
        &self,
        certificate_id: &str,
        status: CertificateOperationStatus,
    ) -> Value {
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

/// The certificate request in the form of a record.
pub(super) fn encode_csr(der: &[u8]) -> String {
    STANDARD.encode(der)
}

/// `GET /certificates/{name}/pending`.
pub(super) fn get_operation(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, .. } =
        authorize_call(call, CERTIFICATE_PERMISSIONS.get)?;
    operation_reply(reference.view(), name, vaults.certificates.object(&vault.host, name))
}

/// `PATCH /certificates/{name}/pending`: cancels a creation. A completed one stays completed.
pub(super) fn cancel_operation(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, UPDATE_CERTIFICATE)?;
    // Rejects a missing record before the body is read.
    operation_reply(reference.view(), name, vaults.certificates.object(&vault.host, name))?;
    let body: CancelOperationBody = parse_body(call)?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let changed = vaults.certificates.change_object(&requested.vault.host, name, |object| {
        let Some(operation) = &mut object.details.operation else { return };
        operation.is_cancellation_requested = body.cancellation_requested;
        if body.cancellation_requested && operation.is_in_progress() {
            operation.status = CertificateOperationStatus::Cancelled;
            operation.waiting = None;
        }
    });
    let object = changed.and_then(|()| vaults.certificates.object(&requested.vault.host, name));
    let view = requested.view();
    operation_reply(view, name, object)
}

/// `DELETE /certificates/{name}/pending`: deletes the record. The certificate stays as it is.
pub(super) fn delete_operation(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, .. } = authorize_call(call, UPDATE_CERTIFICATE)?;
    let reply =
        operation_reply(reference.view(), name, vaults.certificates.object(&vault.host, name))?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let changed = vaults
        .certificates
        .change_object(&requested.vault.host, name, |object| object.details.operation = None);
    match changed {
        Ok(()) => Ok(reply),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Certificate, call)),
    }
}

fn operation_reply(
    view: VaultView<'_>,
    name: &str,
    object: Result<&StoredVaultObject<CertificateContent>, ObjectStoreError>,
) -> Result<ServiceReply, ServiceReply> {
    let found = object.ok().and_then(|object| Some((object, object.details.operation.as_ref()?)));
    let Some((object, operation)) = found else { return Err(operation_not_found_reply(name)) };
    let id = object_id::<CertificateContent>(view, &object.name);
    Ok(ServiceReply::json(StatusCode::OK, &operation.to_json(&id, operation.status)))
}

/// The error for a certificate without a record.
pub(super) fn operation_not_found_reply(name: &str) -> ServiceReply {
    VaultServiceError::OtherNotFound {
        code: "PendingCertificateNotFound",
        message: format!("Pending certificate not found: {name}"),
    }
    .to_reply()
}
