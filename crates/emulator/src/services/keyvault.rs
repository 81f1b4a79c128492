//! The data plane of vaults.
//!
//! Reference: Azure Key Vault REST API, versions 7.4 to 2026-04-01 (the operations here are the same in all
//! of them). Names are case-insensitive. A request is challenged, then its token, its permission and its
//! content are checked, in this order.

mod access;
mod certificates;
mod error;
mod key_operations;
mod keys;
mod object_kind;
mod object_store;
mod objects;
mod secrets;
mod vault;

use http::Method;

pub(crate) use access::object_scope;
pub(crate) use keys::{NewKeyMaterial, NewKeyVersion};
pub(crate) use object_kind::KeyVaultObjectKind;
pub(crate) use object_store::{
    DeletedNameConflict, StoredObjectAttributes, StoredObjectVersion, VersionedObjectStore,
};
pub(crate) use secrets::MAX_VALUE_BYTES;
pub(crate) use vault::{
    AccessPolicy, CertificateContent, DeletedVault, EllipticCurvePoint, EmulatedVault, KeyContent,
    SecretContent, StoredVaultKey, VaultSettings, VaultStore,
};

use crate::operations::{OperationHandler, OperationSupport, ServiceOperation};

/// The operations of the vaults.
pub(crate) const OPERATIONS: &[&[ServiceOperation]] = &[SECRETS, KEYS, CERTIFICATES];

const SECRETS: &[ServiceOperation] = &[
    full_operation("GetSecrets", Method::GET, "/secrets", objects::list_objects::<SecretContent>),
    full_operation(
        "GetSecretVersions",
        Method::GET,
        "/secrets/{name}/versions",
        objects::list_versions::<SecretContent>,
    ),
    full_operation(
        "GetSecret",
        Method::GET,
        "/secrets/{name}",
        objects::get_version::<SecretContent>,
    ),
    full_operation(
        "GetSecretVersion",
        Method::GET,
        "/secrets/{name}/{version}",
        objects::get_version::<SecretContent>,
    ),
    full_operation("SetSecret", Method::PUT, "/secrets/{name}", secrets::set_secret),
    full_operation("UpdateSecret", Method::PATCH, "/secrets/{name}", secrets::update_secret),
    full_operation(
        "UpdateSecretVersion",
        Method::PATCH,
        "/secrets/{name}/{version}",
        secrets::update_secret,
    ),
    full_operation("DeleteSecret", Method::DELETE, "/secrets/{name}", secrets::delete_secret),
    full_operation(
        "GetDeletedSecrets",
        Method::GET,
        "/deletedsecrets",
        secrets::list_deleted_secrets,
    ),
    full_operation(
        "GetDeletedSecret",
        Method::GET,
        "/deletedsecrets/{name}",
        secrets::get_deleted_secret,
    ),
    full_operation(
        "RecoverDeletedSecret",
        Method::POST,
        "/deletedsecrets/{name}/recover",
        secrets::recover_deleted_secret,
    ),
    full_operation(
        "PurgeDeletedSecret",
        Method::DELETE,
        "/deletedsecrets/{name}",
        secrets::purge_deleted_secret,
    ),
];

const KEYS: &[ServiceOperation] = &[
    full_operation("GetKeys", Method::GET, "/keys", objects::list_objects::<KeyContent>),
    full_operation(
        "GetKeyVersions",
        Method::GET,
        "/keys/{name}/versions",
        objects::list_versions::<KeyContent>,
    ),
    full_operation("GetKey", Method::GET, "/keys/{name}", objects::get_version::<KeyContent>),
    full_operation(
        "GetKeyVersion",
        Method::GET,
        "/keys/{name}/{version}",
        objects::get_version::<KeyContent>,
    ),
    ServiceOperation {
        id: "CreateKey",
        method: Method::POST,
        path: "/keys/{name}/create",
        support: OperationSupport::Partial("RSA keys only; no HSM, no release policy"),
        handler: keys::create_key,
    },
    ServiceOperation {
        id: "ImportKey",
        method: Method::PUT,
        path: "/keys/{name}",
        support: OperationSupport::Partial("RSA keys only; no HSM, no release policy"),
        handler: keys::import_key,
    },
    full_operation("UpdateKey", Method::PATCH, "/keys/{name}/{version}", keys::update_key),
    full_operation("UpdateKeyLatest", Method::PATCH, "/keys/{name}", keys::update_key),
    crypto_operation("Encrypt", "/keys/{name}/{version}/encrypt", key_operations::encrypt_value),
    crypto_operation("Decrypt", "/keys/{name}/{version}/decrypt", key_operations::decrypt_value),
    crypto_operation("WrapKey", "/keys/{name}/{version}/wrapkey", key_operations::wrap_key),
    crypto_operation("UnwrapKey", "/keys/{name}/{version}/unwrapkey", key_operations::unwrap_key),
    crypto_operation("EncryptLatest", "/keys/{name}/encrypt", key_operations::encrypt_value),
    crypto_operation("DecryptLatest", "/keys/{name}/decrypt", key_operations::decrypt_value),
    crypto_operation("WrapKeyLatest", "/keys/{name}/wrapkey", key_operations::wrap_key),
    crypto_operation("UnwrapKeyLatest", "/keys/{name}/unwrapkey", key_operations::unwrap_key),
];

const CERTIFICATES: &[ServiceOperation] = &[
    partial_operation(
        "GetCertificates",
        "/certificates",
        objects::list_objects::<CertificateContent>,
    ),
    partial_operation(
        "GetCertificateVersions",
        "/certificates/{name}/versions",
        objects::list_versions::<CertificateContent>,
    ),
    partial_operation(
        "GetCertificate",
        "/certificates/{name}",
        objects::get_version::<CertificateContent>,
    ),
    partial_operation(
        "GetCertificateVersion",
        "/certificates/{name}/{version}",
        objects::get_version::<CertificateContent>,
    ),
];

const fn full_operation(
    id: &'static str,
    method: Method,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    ServiceOperation { id, method, path, support: OperationSupport::Full, handler }
}

const fn partial_operation(
    id: &'static str,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    let support =
        OperationSupport::Partial("the policy shows what clients read, not what Azure stores");
    ServiceOperation { id, method: Method::GET, path, support, handler }
}

/// A POST operation that encrypts, decrypts, wraps or unwraps with a key.
const fn crypto_operation(
    id: &'static str,
    path: &'static str,
    handler: OperationHandler,
) -> ServiceOperation {
    let support = OperationSupport::Partial("RSA keys with RSA-OAEP-256, RSA-OAEP and RSA1_5");
    ServiceOperation { id, method: Method::POST, path, support, handler }
}

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
