//! Error replies about an object: its name is invalid, or the store does not find or accept it.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::object_kind::KeyVaultObjectKind;
use lanyard_emulator_state::vaults::object_store::ObjectStoreError;

use super::error::VaultServiceError;
use super::stored_object::requested_name_and_version;

/// The error for a name that no object can have.
pub(super) fn invalid_name_reply(name: &str) -> ServiceReply {
    let rule = "1 to 127 letters, digits and `-`";
    let message = format!("The request URI contains an invalid name: {name} (a name has {rule})");
    VaultServiceError::BadParameter(message).to_reply()
}

/// The reply to an error of the object store, about the object in the path.
pub(super) fn store_error_reply(
    problem: ObjectStoreError,
    kind: KeyVaultObjectKind,
    call: &OperationContext<'_>,
) -> ServiceReply {
    let (name, version) = requested_name_and_version(call);
    object_error_reply(problem, kind, name, version)
}

/// The reply to an error of the object store, about an object or one of its versions.
pub(super) fn object_error_reply(
    problem: ObjectStoreError,
    kind: KeyVaultObjectKind,
    name: &str,
    version: Option<&str>,
) -> ServiceReply {
    match problem {
        ObjectStoreError::NotFound => {
            let version = version.map_or_else(String::new, |version| format!("/{version}"));
            VaultServiceError::NotFound { kind, name: format!("{name}{version}") }.to_reply()
        }
        ObjectStoreError::NameTaken => {
            VaultServiceError::DeletedButRecoverable { kind, name }.to_reply()
        }
        ObjectStoreError::AlreadyExists => already_exists_reply(kind, name),
    }
}

/// The error for a name that an object already has.
fn already_exists_reply(kind: KeyVaultObjectKind, name: &str) -> ServiceReply {
    let message =
        format!("A {} with the name {name} already exists in this key vault.", kind.noun());
    VaultServiceError::Conflict(message).to_reply()
}
