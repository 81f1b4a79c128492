//! Documents at public URLs that Azure's services fetch: the discovery documents and key sets of token
//! issuers. No request leaves the process.

use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::TrustedIssuer;
use serde_json::{Value, json};

use crate::emulated_service::ServiceSet;

/// The emulator has no public document at a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the emulator has no public document at `{url}`: {reason}")]
pub struct PublicDocumentMissing {
    url: String,
    /// The cause: a fragment of a sentence, or an error code of the Blob service.
    reason: &'static str,
}

/// The path of an issuer's discovery document.
pub(crate) const DISCOVERY_PATH: &str = "/.well-known/openid-configuration";
/// The path of the key sets of issuers whose keys are part of the state, as in Kubernetes.
const KEY_SET_PATH: &str = "/openid/v1/jwks";

/// All documents at public URLs: those of trusted issuers, and public blobs.
#[derive(Debug, Clone, Copy)]
pub struct PublicDocuments<'a> {
    pub azure: &'a AzureState,
    pub clouds: &'a AzureClouds,
    pub services: &'a ServiceSet,
}

impl PublicDocuments<'_> {
    /// Reads a JSON document.
    pub fn read(self, url: &str) -> Result<Value, PublicDocumentMissing> {
        if let Some(document) = trusted_issuer_document(self.azure, url) {
            return Ok(document);
        }
        let missing = |reason| PublicDocumentMissing { url: url.to_owned(), reason };
        let location = url.parse().ok();
        let stored =
            location.and_then(|url| self.services.public_document(self.azure, self.clouds, &url));
        let content = stored.ok_or_else(|| missing("no issuer with this URL is trusted"))?;
        let content = content.map_err(missing)?;
        serde_json::from_slice(&content).map_err(|_malformed| missing("the blob is not JSON"))
    }
}

/// A document of an issuer whose keys are part of the state.
fn trusted_issuer_document(azure: &AzureState, url: &str) -> Option<Value> {
    let of_issuer = |path: &str| {
        let base = url.strip_suffix(path)?;
        find_issuer(azure, base)
    };
    if let Some((issuer, _)) = of_issuer(DISCOVERY_PATH) {
        let keys = format!("{}{KEY_SET_PATH}", issuer.trim_end_matches('/'));
        return Some(json!({
            "issuer": issuer,
            "jwks_uri": keys,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }));
    }
    of_issuer(KEY_SET_PATH).map(|(_, trusted)| trusted.key_set())
}

/// The issuer with a base URL, with or without a trailing slash.
fn find_issuer<'a>(azure: &'a AzureState, base: &str) -> Option<(&'a str, &'a TrustedIssuer)> {
    let issuers = &azure.directory.issuers;
    let known = issuers.get_key_value(base).or_else(|| issuers.get_key_value(&format!("{base}/")));
    known.map(|(issuer, trusted)| (issuer.as_str(), trusted))
}
