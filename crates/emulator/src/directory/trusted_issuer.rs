//! Issuers of federated tokens, and certificate authorities of client certificates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::keys::RsaKey;
use crate::published_key::RsaPublicJwk;

/// A certificate authority, for example that of the MSI data plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CertificateAuthority {
    /// The certificate in DER.
    pub(crate) certificate: Vec<u8>,
    pub(crate) key: RsaKey,
}

/// An issuer of federated tokens, with the keys of its `jwks_uri`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TrustedIssuer {
    /// Key pairs of an emulated issuer, by `kid`.
    pub(crate) keys: BTreeMap<String, RsaKey>,
    /// Public keys of an external issuer, by `kid`.
    #[serde(default)]
    pub(crate) published: BTreeMap<String, RsaPublicJwk>,
}

impl TrustedIssuer {
    /// The public key with this `kid`, as `RSAPublicKey` DER. Without a `kid`, the issuer's only key.
    pub(crate) fn public_der(&self, kid: Option<&str>) -> Option<Vec<u8>> {
        let own = self.keys.iter().map(|(known, key)| (known, key.public_der().ok()));
        let others = self.published.iter().map(|(known, key)| (known, key.public_der()));
        let mut keys = own.chain(others);
        if let Some(kid) = kid {
            return keys.find(|(known, _)| *known == kid)?.1;
        }
        let (_, only) = keys.next()?;
        keys.next().is_none().then_some(only)?
    }
}
