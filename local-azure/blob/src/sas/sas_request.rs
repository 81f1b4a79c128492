//! Signatures that a client signs with the key of an account.

use lanyard_emulator_state::storage::account::{AccountKey, StorageAccount};

use super::{
    SasKind, SasParameters, SignedRequestParts, account_string_to_sign, resource_string_to_sign,
};

/// The version of the signatures.
const ISSUED_VERSION: &str = "2022-11-02";

/// A signature that a client requests.
#[derive(Debug, Default)]
pub(crate) struct SasRequest(Vec<(String, String)>);

impl SasRequest {
    /// Sets a parameter, unless the value is empty.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The query of an account signature.
    pub(crate) fn sign_account(mut self, account: &StorageAccount, key: &AccountKey) -> String {
        self.set("sv", ISSUED_VERSION);
        let text = account_string_to_sign(SasParameters(&self.0), account);
        self.into_query(&key.sign(&text))
    }

    /// The query of a service signature for a path such as `container/blob`.
    pub(crate) fn sign_service(
        mut self,
        account: &StorageAccount,
        key: &AccountKey,
        path: &str,
    ) -> String {
        self.set("sv", ISSUED_VERSION);
        let sas = SasParameters(&self.0);
        let signed = SignedRequestParts::default();
        let text = resource_string_to_sign(sas, SasKind::Service, account, path, &signed);
        self.into_query(&key.sign(&text))
    }

    fn into_query(mut self, signature: &str) -> String {
        self.set("sig", signature);
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(self.0).finish()
    }
}
