//! The data plane of vaults.
//!
//! Reference: Azure Key Vault REST API, versions 7.4 to 2026-04-01 (the operations here are the
//! same in all of them). Names compare without case. A request is challenged, then its token, its
//! right and its content are judged, in this order.

mod certificates;
mod gate;
mod key_operations;
mod keys;
mod kind;
mod objects;
mod refusal;
mod secrets;
mod shelf;
mod vault;

use http::Method;

pub(crate) use gate::object_scope;
pub(crate) use keys::{KeyBirth, KeyMaterial};
pub(crate) use kind::ObjectKind;
pub(crate) use secrets::MAX_VALUE_BYTES;
pub(crate) use shelf::{Attributes, Recoverable, Shelf, Version};
pub(crate) use vault::{
    AccessPolicy, CertificateContent, CurvePoint, DeletedVault, KeyContent, SecretContent, Vault,
    VaultKey, VaultSettings, Vaults,
};

use crate::operations::{Handler, Operation, Support};

/// What this service can do.
pub(crate) const OPERATIONS: &[&[Operation]] = &[SECRETS, KEYS, CERTIFICATES];

const SECRETS: &[Operation] = &[
    full("GetSecrets", Method::GET, "/secrets", objects::list::<SecretContent>),
    full(
        "GetSecretVersions",
        Method::GET,
        "/secrets/{name}/versions",
        objects::versions::<SecretContent>,
    ),
    full("GetSecret", Method::GET, "/secrets/{name}", objects::read::<SecretContent>),
    full(
        "GetSecretVersion",
        Method::GET,
        "/secrets/{name}/{version}",
        objects::read::<SecretContent>,
    ),
    full("SetSecret", Method::PUT, "/secrets/{name}", secrets::set),
    full("UpdateSecret", Method::PATCH, "/secrets/{name}", secrets::update),
    full("UpdateSecretVersion", Method::PATCH, "/secrets/{name}/{version}", secrets::update),
    full("DeleteSecret", Method::DELETE, "/secrets/{name}", secrets::delete),
    full("GetDeletedSecrets", Method::GET, "/deletedsecrets", secrets::list_deleted),
    full("GetDeletedSecret", Method::GET, "/deletedsecrets/{name}", secrets::read_deleted),
    full("RecoverDeletedSecret", Method::POST, "/deletedsecrets/{name}/recover", secrets::recover),
    full("PurgeDeletedSecret", Method::DELETE, "/deletedsecrets/{name}", secrets::purge),
];

const KEYS: &[Operation] = &[
    full("GetKeys", Method::GET, "/keys", objects::list::<KeyContent>),
    full("GetKeyVersions", Method::GET, "/keys/{name}/versions", objects::versions::<KeyContent>),
    full("GetKey", Method::GET, "/keys/{name}", objects::read::<KeyContent>),
    full("GetKeyVersion", Method::GET, "/keys/{name}/{version}", objects::read::<KeyContent>),
    Operation {
        id: "CreateKey",
        method: Method::POST,
        path: "/keys/{name}/create",
        support: Support::Partial("RSA keys only; no HSM, no release policy"),
        handler: keys::create,
    },
    Operation {
        id: "ImportKey",
        method: Method::PUT,
        path: "/keys/{name}",
        support: Support::Partial("RSA keys only; no HSM, no release policy"),
        handler: keys::import,
    },
    full("UpdateKey", Method::PATCH, "/keys/{name}/{version}", keys::update),
    full("UpdateKeyLatest", Method::PATCH, "/keys/{name}", keys::update),
    used("Encrypt", "/keys/{name}/{version}/encrypt", key_operations::encrypt),
    used("Decrypt", "/keys/{name}/{version}/decrypt", key_operations::decrypt),
    used("WrapKey", "/keys/{name}/{version}/wrapkey", key_operations::wrap),
    used("UnwrapKey", "/keys/{name}/{version}/unwrapkey", key_operations::unwrap),
    used("EncryptLatest", "/keys/{name}/encrypt", key_operations::encrypt),
    used("DecryptLatest", "/keys/{name}/decrypt", key_operations::decrypt),
    used("WrapKeyLatest", "/keys/{name}/wrapkey", key_operations::wrap),
    used("UnwrapKeyLatest", "/keys/{name}/unwrapkey", key_operations::unwrap),
];

const CERTIFICATES: &[Operation] = &[
    partial("GetCertificates", "/certificates", objects::list::<CertificateContent>),
    partial(
        "GetCertificateVersions",
        "/certificates/{name}/versions",
        objects::versions::<CertificateContent>,
    ),
    partial("GetCertificate", "/certificates/{name}", objects::read::<CertificateContent>),
    partial(
        "GetCertificateVersion",
        "/certificates/{name}/{version}",
        objects::read::<CertificateContent>,
    ),
];

const fn full(id: &'static str, method: Method, path: &'static str, handler: Handler) -> Operation {
    Operation { id, method, path, support: Support::Full, handler }
}

const fn partial(id: &'static str, path: &'static str, handler: Handler) -> Operation {
    let support = Support::Partial("the policy shows what clients read, not what Azure stores");
    Operation { id, method: Method::GET, path, support, handler }
}

const fn used(id: &'static str, path: &'static str, handler: Handler) -> Operation {
    let support = Support::Partial("RSA keys with RSA-OAEP-256, RSA-OAEP and RSA1_5");
    Operation { id, method: Method::POST, path, support, handler }
}

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
