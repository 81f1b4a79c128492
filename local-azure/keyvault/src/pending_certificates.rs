//! Certificate operations (`/certificates/{name}/pending`): creations of a certificate version that
//! wait for their certificate, or are complete.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::certificate_operation::CertificateOperationStatus;
use lanyard_emulator_state::vaults::object_kind::{
    CERTIFICATE_PERMISSIONS, KeyVaultObjectKind, UPDATE_CERTIFICATE,
};
use lanyard_emulator_state::vaults::object_store::{ObjectStoreError, StoredVaultObject};
use serde::Deserialize;

use super::access::{authorize_call, authorized_vault_mut};
use super::error::VaultServiceError;
use super::object_errors::store_error_reply;
use super::request_body::parse_body;
use super::stored_object::object_id;
use super::vault_view::{VaultMut, VaultRef, VaultView};

#[derive(Deserialize)]
struct CancelOperationBody {
    cancellation_requested: bool,
}

/// Encodes the certificate signing request in a certificate operation: base64.
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
    // Rejects a missing certificate operation before the body is read.
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

/// `DELETE /certificates/{name}/pending`: deletes the operation. The certificate stays as it is.
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

/// The error for a certificate without a certificate operation.
pub(super) fn operation_not_found_reply(name: &str) -> ServiceReply {
    VaultServiceError::OtherNotFound {
        code: "PendingCertificateNotFound",
        message: format!("Pending certificate not found: {name}"),
    }
    .to_reply()
}
