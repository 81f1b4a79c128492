//! The JSON form of a ServiceAccount token, as kubelets, drivers and providers write it.

use std::sync::Arc;

use jiff::Timestamp;
use lanyard_keyvault::{ServiceAccountToken, SharedSecretBytes};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// A token: one value of a JSON object keyed by audience. Ignores unknown fields, which a newer kubelet may
/// add.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ServiceAccountTokenJson {
    pub(crate) token: ZeroizedText,
    expiration_timestamp: Timestamp,
}

impl From<&ServiceAccountToken> for ServiceAccountTokenJson {
    fn from(token: &ServiceAccountToken) -> Self {
        Self { token: token.token.as_ref().into(), expiration_timestamp: token.expires }
    }
}

impl From<ServiceAccountTokenJson> for ServiceAccountToken {
    fn from(wire: ServiceAccountTokenJson) -> Self {
        Self { token: wire.token.into(), expires: wire.expiration_timestamp }
    }
}

/// A text that is zeroized on drop, from the moment it is deserialized.
pub(crate) struct ZeroizedText(Zeroizing<String>);

impl ZeroizedText {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for ZeroizedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ZeroizedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

impl From<&SharedSecretBytes> for ZeroizedText {
    fn from(secret: &SharedSecretBytes) -> Self {
        Self(String::from_utf8_lossy(secret.expose()).into_owned().into())
    }
}

impl From<ZeroizedText> for Arc<SharedSecretBytes> {
    /// Moves the buffer without a copy.
    fn from(mut text: ZeroizedText) -> Self {
        Self::new(std::mem::take(&mut *text.0).into())
    }
}
