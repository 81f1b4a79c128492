//! User delegation keys, with which clients sign shared access signatures on behalf of a principal.
//!
//! A key is derived from its parameters and from a secret of the account, so that the emulator does not store
//! it.

use lanyard_emulator_state::keys::RedactedText;
use lanyard_emulator_state::request::ServiceRequest;
use lanyard_emulator_state::storage::account::StorageAccount;

/// The parameters of a key as texts, which a shared access signature repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UserDelegationKeyParameters {
    /// The object id of the principal.
    pub(super) object_id: String,
    pub(super) tenant: String,
    pub(super) start: String,
    pub(super) expiry: String,
    /// `b` for the Blob service.
    pub(super) service: String,
    pub(super) version: String,
}

impl UserDelegationKeyParameters {
    /// The parameters in the query of a signature.
    pub(super) fn from_query(request: &ServiceRequest) -> Self {
        let get = |name| request.query(name).unwrap_or_default().to_owned();
        Self {
            object_id: get("skoid"),
            tenant: get("sktid"),
            start: get("skt"),
            expiry: get("ske"),
            service: get("sks"),
            version: get("skv"),
        }
    }

    /// The key in base64.
    pub(super) fn derive_key(&self, account: &StorageAccount) -> RedactedText {
        let Self { object_id, tenant, start, expiry, service, version } = self;
        let text = [object_id, tenant, start, expiry, service, version].map(String::as_str);
        RedactedText::new(account.delegation_key.sign(&text.join("\n")))
    }
}
