//! The operations of the vaults.

use http::{Method, StatusCode};
use lanyard_emulator_core::emulated_service::{
    EmulatedService, EngineError, MAX_BODY_BYTES, coded_error, management_error_reply,
};
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::certificate_content::CertificateContent;
use lanyard_emulator_state::vaults::key_content::KeyContent;
use lanyard_emulator_state::vaults::vault::SecretContent;

use super::access::authenticate;
use super::backups::{back_up_object, restore_object};
use super::deleted_objects::{
    delete_object, get_deleted_object, list_deleted_objects, purge_deleted_object,
    recover_deleted_object,
};
use super::objects::{get_version, list_objects, list_versions};
use super::{
    certificate_creation, certificate_import, certificates, issuers, key_operations, key_rotation,
    keys, secrets,
};
use crate::pending_certificates;

/// The data plane of vaults.
pub const SERVICE: EmulatedService = EmulatedService {
    admit_large_body: |call, _| authenticate(call, &call.request.host).map(|_| MAX_BODY_BYTES),
    error_reply: vault_engine_error,
    ..EmulatedService::new(AzureService::KeyVault, OPERATIONS)
};

/// Every operation of the data plane.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] =
    &[SECRETS, KEYS, KEY_CRYPTOGRAPHY, ISSUERS, CERTIFICATES];

const SECRETS: &[ServiceOperation] = &[
    get("GetSecrets", "/secrets", list_objects::<SecretContent>),
    get("GetSecretVersions", "/secrets/{name}/versions", list_versions::<SecretContent>),
    get("GetSecret", "/secrets/{name}", secrets::get_secret),
    get("GetSecretVersion", "/secrets/{name}/{version}", secrets::get_secret),
    put("SetSecret", "/secrets/{name}", secrets::set_secret),
    patch("UpdateSecret", "/secrets/{name}", secrets::update_secret),
    patch("UpdateSecretVersion", "/secrets/{name}/{version}", secrets::update_secret),
    delete("DeleteSecret", "/secrets/{name}", delete_object::<SecretContent>),
    post("BackupSecret", "/secrets/{name}/backup", back_up_object::<SecretContent>),
    post("RestoreSecret", "/secrets/restore", restore_object::<SecretContent>),
    get("GetDeletedSecrets", "/deletedsecrets", list_deleted_objects::<SecretContent>),
    get("GetDeletedSecret", "/deletedsecrets/{name}", get_deleted_object::<SecretContent>),
    post(
        "RecoverDeletedSecret",
        "/deletedsecrets/{name}/recover",
        recover_deleted_object::<SecretContent>,
    ),
    delete("PurgeDeletedSecret", "/deletedsecrets/{name}", purge_deleted_object::<SecretContent>),
];

const KEYS: &[ServiceOperation] = &[
    get("GetKeys", "/keys", list_objects::<KeyContent>),
    get("GetKeyVersions", "/keys/{name}/versions", list_versions::<KeyContent>),
    get("GetKeyRotationPolicy", "/keys/{name}/rotationpolicy", key_rotation::get_rotation_policy),
    put(
        "UpdateKeyRotationPolicy",
        "/keys/{name}/rotationpolicy",
        key_rotation::set_rotation_policy,
    ),
    get("GetKey", "/keys/{name}", get_version::<KeyContent>),
    get("GetKeyVersion", "/keys/{name}/{version}", get_version::<KeyContent>),
    with_key_types(post("CreateKey", "/keys/{name}/create", keys::create_key)),
    with_key_types(put("ImportKey", "/keys/{name}", keys::import_key)),
    patch("UpdateKey", "/keys/{name}/{version}", keys::update_key),
    patch("UpdateKeyLatest", "/keys/{name}", keys::update_key),
    delete("DeleteKey", "/keys/{name}", delete_object::<KeyContent>),
    post("RotateKey", "/keys/{name}/rotate", key_rotation::rotate_key),
    post("BackupKey", "/keys/{name}/backup", back_up_object::<KeyContent>),
    post("RestoreKey", "/keys/restore", restore_object::<KeyContent>),
    get("GetDeletedKeys", "/deletedkeys", list_deleted_objects::<KeyContent>),
    get("GetDeletedKey", "/deletedkeys/{name}", get_deleted_object::<KeyContent>),
    post("RecoverDeletedKey", "/deletedkeys/{name}/recover", recover_deleted_object::<KeyContent>),
    delete("PurgeDeletedKey", "/deletedkeys/{name}", purge_deleted_object::<KeyContent>),
];

const KEY_CRYPTOGRAPHY: &[ServiceOperation] = &[
    post("Encrypt", "/keys/{name}/{version}/encrypt", key_operations::encrypt_value),
    post("Decrypt", "/keys/{name}/{version}/decrypt", key_operations::decrypt_value),
    post("WrapKey", "/keys/{name}/{version}/wrapkey", key_operations::wrap_key),
    post("UnwrapKey", "/keys/{name}/{version}/unwrapkey", key_operations::unwrap_key),
    post("Sign", "/keys/{name}/{version}/sign", key_operations::sign_digest),
    post("Verify", "/keys/{name}/{version}/verify", key_operations::verify_signature),
    released(post("Release", "/keys/{name}/{version}/release", key_operations::release_key)),
    post("EncryptLatest", "/keys/{name}/encrypt", key_operations::encrypt_value),
    post("DecryptLatest", "/keys/{name}/decrypt", key_operations::decrypt_value),
    post("WrapKeyLatest", "/keys/{name}/wrapkey", key_operations::wrap_key),
    post("UnwrapKeyLatest", "/keys/{name}/unwrapkey", key_operations::unwrap_key),
    post("SignLatest", "/keys/{name}/sign", key_operations::sign_digest),
    post("VerifyLatest", "/keys/{name}/verify", key_operations::verify_signature),
    released(post("ReleaseLatest", "/keys/{name}/release", key_operations::release_key)),
];

/// Precedes [`CERTIFICATES`]: no certificate can have the name `issuers` or `contacts`.
const ISSUERS: &[ServiceOperation] = &[
    get("GetCertificateIssuers", "/certificates/issuers", issuers::list_issuers),
    get("GetCertificateIssuer", "/certificates/issuers/{issuer}", issuers::get_issuer),
    put("SetCertificateIssuer", "/certificates/issuers/{issuer}", issuers::set_issuer),
    patch("UpdateCertificateIssuer", "/certificates/issuers/{issuer}", issuers::update_issuer),
    delete("DeleteCertificateIssuer", "/certificates/issuers/{issuer}", issuers::delete_issuer),
    get("GetCertificateContacts", "/certificates/contacts", issuers::get_contacts),
    put("SetCertificateContacts", "/certificates/contacts", issuers::set_contacts),
    delete("DeleteCertificateContacts", "/certificates/contacts", issuers::delete_contacts),
];

const CERTIFICATES: &[ServiceOperation] = &[
    get("GetCertificates", "/certificates", list_objects::<CertificateContent>),
    get(
        "GetCertificateVersions",
        "/certificates/{name}/versions",
        list_versions::<CertificateContent>,
    ),
    get(
        "GetCertificatePolicy",
        "/certificates/{name}/policy",
        certificates::get_certificate_policy,
    ),
    patch(
        "UpdateCertificatePolicy",
        "/certificates/{name}/policy",
        certificates::update_certificate_policy,
    ),
    get(
        "GetCertificateOperation",
        "/certificates/{name}/pending",
        pending_certificates::get_operation,
    ),
    patch(
        "UpdateCertificateOperation",
        "/certificates/{name}/pending",
        pending_certificates::cancel_operation,
    ),
    delete(
        "DeleteCertificateOperation",
        "/certificates/{name}/pending",
        pending_certificates::delete_operation,
    ),
    post(
        "MergeCertificate",
        "/certificates/{name}/pending/merge",
        certificate_import::merge_certificate,
    ),
    with_issuers(post(
        "CreateCertificate",
        "/certificates/{name}/create",
        certificate_creation::create_certificate,
    )),
    post(
        "ImportCertificate",
        "/certificates/{name}/import",
        certificate_import::import_certificate,
    ),
    get("GetCertificate", "/certificates/{name}", get_version::<CertificateContent>),
    get(
        "GetCertificateVersion",
        "/certificates/{name}/{version}",
        get_version::<CertificateContent>,
    ),
    patch("UpdateCertificate", "/certificates/{name}/{version}", certificates::update_certificate),
    patch("UpdateCertificateLatest", "/certificates/{name}", certificates::update_certificate),
    delete("DeleteCertificate", "/certificates/{name}", delete_object::<CertificateContent>),
    post("BackupCertificate", "/certificates/{name}/backup", back_up_object::<CertificateContent>),
    post("RestoreCertificate", "/certificates/restore", restore_object::<CertificateContent>),
    get(
        "GetDeletedCertificates",
        "/deletedcertificates",
        list_deleted_objects::<CertificateContent>,
    ),
    get(
        "GetDeletedCertificate",
        "/deletedcertificates/{name}",
        get_deleted_object::<CertificateContent>,
    ),
    post(
        "RecoverDeletedCertificate",
        "/deletedcertificates/{name}/recover",
        recover_deleted_object::<CertificateContent>,
    ),
    delete(
        "PurgeDeletedCertificate",
        "/deletedcertificates/{name}",
        purge_deleted_object::<CertificateContent>,
    ),
];

const fn operation(
    id: &'static str,
    method: Method,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method, path, support: OperationSupport::Full, handler }
}

const fn get(id: &'static str, path: &'static str, handler: OperationHandler) -> ServiceOperation {
    operation(id, Method::GET, path, handler)
}

const fn put(id: &'static str, path: &'static str, handler: OperationHandler) -> ServiceOperation {
    operation(id, Method::PUT, path, handler)
}

const fn post(id: &'static str, path: &'static str, handler: OperationHandler) -> ServiceOperation {
    operation(id, Method::POST, path, handler)
}

const fn patch(
    id: &'static str,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    operation(id, Method::PATCH, path, handler)
}

const fn delete(
    id: &'static str,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    operation(id, Method::DELETE, path, handler)
}

/// Marks an operation that creates keys: it supports software keys only.
const fn with_key_types(mut operation: ServiceOperation) -> ServiceOperation {
    operation.support = OperationSupport::Partial("software keys only: RSA and EC");
    operation
}

/// Marks an operation for the release of keys: it always answers 501.
const fn released(mut operation: ServiceOperation) -> ServiceOperation {
    operation.support = OperationSupport::Partial("always 501: software keys cannot be released");
    operation
}

/// Marks an operation that would call a certificate authority in Azure.
const fn with_issuers(mut operation: ServiceOperation) -> ServiceOperation {
    operation.support = OperationSupport::Partial(
        "issued by the vault itself; requests to other issuers wait for a merge",
    );
    operation
}

/// Converts an error of the emulator's engine to the reply of a vault.
fn vault_engine_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::Throttled { .. } => coded_error(
            StatusCode::TOO_MANY_REQUESTS,
            "Throttled",
            "Request was not processed because too many requests were received. Reason: \
             VaultRequestTypeLimitReached",
        ),
        other => management_error_reply(other),
    }
}
