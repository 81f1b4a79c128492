//! The annotations that the API server stores with a ciphertext of version 2, and their check
//! before decryption.
//!
//! Names, values, order and error texts match kubernetes-kms v0.11.0 and its OpenShift fork.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_clock::ErrorHint;

use crate::algorithm::KeyAlgorithm;
use crate::key::PinnedKey;
use crate::layout::CiphertextLayout;

/// Annotations of a ciphertext: domain-qualified names and byte values.
pub type CiphertextAnnotations = BTreeMap<String, Vec<u8>>;

const DATE: &str = "date.azure.akv.io";
const REQUEST_ID: &str = "x-ms-request-id.azure.akv.io";
const REGION: &str = "x-ms-keyvault-region.azure.akv.io";
const VERSION: &str = "version.azure.akv.io";
const ALGORITHM: &str = "algorithm.azure.akv.io";

/// The version of the annotation format.
const FORMAT: &str = "1";

/// The only algorithm of version 2 of the KMS API.
const SEALED_WITH: KeyAlgorithm = KeyAlgorithm::RsaOaep256;

/// Headers of the vault's reply; a missing header is an empty string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VaultReplyHeaders {
    /// `Date`.
    pub date: String,
    /// `x-ms-request-id`.
    pub request_id: String,
    /// `x-ms-keyvault-region`.
    pub region: String,
}

/// The annotations of a ciphertext are missing, or name another key, algorithm or version than this
/// plugin's. The texts match those of the other plugins, which operators search their logs for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForeignCiphertextError {
    /// The ciphertext has no annotations.
    #[error("invalid annotations, annotations cannot be empty")]
    NoAnnotations,
    /// Another key, or another version of the key, encrypted it.
    #[error("key id {got} does not match expected key id {expected} used for encryption")]
    Key {
        /// The key id that is stored with the ciphertext.
        got: String,
        /// The id of this plugin's key.
        expected: String,
    },
    /// Another algorithm encrypted the ciphertext.
    #[error("algorithm {got} does not match expected algorithm {SEALED_WITH} used for encryption")]
    Algorithm {
        /// The algorithm that is stored with the ciphertext.
        got: String,
    },
    /// The annotations have another version.
    #[error("version {got} does not match expected version {FORMAT} used for encryption")]
    Version {
        /// The version that is stored with the ciphertext.
        got: String,
    },
}

impl ErrorHint for ForeignCiphertextError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Key { .. } => {
                "run a second plugin with the key that encrypted it, under the provider name in etcd"
            }
            Self::NoAnnotations | Self::Algorithm { .. } | Self::Version { .. } => {
                "compare the object's bytes in etcd with a backup: this is not a ciphertext of a Key Vault plugin"
            }
        }))
    }
}

/// The annotations of a new ciphertext. The fork no longer writes three of the five, because its
/// client library does not return the headers.
pub fn desired_annotations(
    layout: CiphertextLayout,
    reply_headers: &VaultReplyHeaders,
) -> CiphertextAnnotations {
    let both = [(VERSION, FORMAT), (ALGORITHM, SEALED_WITH.name())];
    let upstream = [
        (DATE, reply_headers.date.as_str()),
        (REQUEST_ID, reply_headers.request_id.as_str()),
        (REGION, reply_headers.region.as_str()),
    ];
    let more = match layout {
        CiphertextLayout::Upstream => &upstream[..],
        CiphertextLayout::OpenShift => &[],
    };
    let all = both.iter().chain(more);
    all.map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
}

/// Checks that a ciphertext with this key id and these annotations was encrypted with `key`.
/// Unknown annotations are ignored.
///
/// # Errors
///
/// [`ForeignCiphertextError`] for the first mismatch, in the order of the other plugins.
pub fn check_ciphertext_origin(
    key: &PinnedKey,
    key_id: &str,
    annotations: &CiphertextAnnotations,
) -> Result<(), ForeignCiphertextError> {
    if annotations.is_empty() {
        return Err(ForeignCiphertextError::NoAnnotations);
    }
    if key_id != key.id() {
        return Err(ForeignCiphertextError::Key {
            got: printable_excerpt(key_id.as_bytes()),
            expected: key.id().to_owned(),
        });
    }
    let value = |name| annotations.get(name).map(Vec::as_slice).unwrap_or_default();
    if value(ALGORITHM) != SEALED_WITH.name().as_bytes() {
        return Err(ForeignCiphertextError::Algorithm { got: printable_excerpt(value(ALGORITHM)) });
    }
    if value(VERSION) != FORMAT.as_bytes() {
        return Err(ForeignCiphertextError::Version { got: printable_excerpt(value(VERSION)) });
    }
    Ok(())
}

/// The start of a stored value as one printable line.
fn printable_excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 128;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    text.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Cloud;

    use super::*;
    use crate::key::VaultKind;

    fn pinned_key() -> PinnedKey {
        let [vault, name] = ["example", "mykey"];
        PinnedKey::new(
            Cloud::Public.endpoints().unwrap(),
            VaultKind::Vault,
            vault.parse().unwrap(),
            name.parse().unwrap(),
            "ABCD".parse().unwrap(),
        )
    }

    fn matching_annotations() -> CiphertextAnnotations {
        desired_annotations(CiphertextLayout::OpenShift, &VaultReplyHeaders::default())
    }

    fn annotations_with(name: &str, value: Option<&str>) -> CiphertextAnnotations {
        let mut annotations = matching_annotations();
        match value {
            Some(value) => annotations.insert(name.to_owned(), value.into()),
            None => annotations.remove(name),
        };
        annotations
    }

    #[test]
    fn each_layout_writes_its_annotations_and_an_absent_header_leaves_its_key() {
        let reply_headers =
            VaultReplyHeaders { date: "Sat".to_owned(), ..VaultReplyHeaders::default() };
        let upstream = desired_annotations(CiphertextLayout::Upstream, &reply_headers);
        let pairs: Vec<_> = upstream
            .iter()
            .map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap()))
            .collect();
        let expected = [
            ("algorithm.azure.akv.io", "RSA-OAEP-256"),
            ("date.azure.akv.io", "Sat"),
            ("version.azure.akv.io", "1"),
            ("x-ms-keyvault-region.azure.akv.io", ""),
            ("x-ms-request-id.azure.akv.io", ""),
        ];
        assert_eq!(pairs, expected);
        let openshift = desired_annotations(CiphertextLayout::OpenShift, &reply_headers);
        let names: Vec<_> = openshift.keys().map(String::as_str).collect();
        assert_eq!(names, ["algorithm.azure.akv.io", "version.azure.akv.io"]);
    }

    #[test]
    fn first_mismatch_uses_upstream_error_text() {
        let key = pinned_key();
        let id = key.id();
        let cases = [
            (id, CiphertextAnnotations::new(), "invalid annotations, annotations cannot be empty"),
            (
                "other",
                CiphertextAnnotations::new(),
                "invalid annotations, annotations cannot be empty",
            ),
            (
                "other",
                annotations_with(ALGORITHM, None),
                "key id other does not match expected key id 567d783db3043fe298fe0d9eeedb0029a3815cdd4fe4b059d018c91e6acffe3b used for encryption",
            ),
            (
                id,
                annotations_with(ALGORITHM, None),
                "algorithm  does not match expected algorithm RSA-OAEP-256 used for encryption",
            ),
            (
                id,
                annotations_with(ALGORITHM, Some("RSA1_5")),
                "algorithm RSA1_5 does not match expected algorithm RSA-OAEP-256 used for encryption",
            ),
            (
                id,
                annotations_with(VERSION, Some("2")),
                "version 2 does not match expected version 1 used for encryption",
            ),
            (
                id,
                annotations_with(VERSION, None),
                "version  does not match expected version 1 used for encryption",
            ),
        ];
        for (key_id, annotations, expected) in cases {
            let error = check_ciphertext_origin(&key, key_id, &annotations).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn unknown_annotations_are_ignored() {
        let key = pinned_key();
        assert_eq!(check_ciphertext_origin(&key, key.id(), &matching_annotations()), Ok(()));
        let more = annotations_with("later.azure.akv.io", Some("anything"));
        assert_eq!(check_ciphertext_origin(&key, key.id(), &more), Ok(()));
    }

    #[test]
    fn foreign_values_are_truncated_to_one_line() {
        let key = pinned_key();
        let long = annotations_with(VERSION, Some(&format!("a\n{}", "b".repeat(500))));
        let text = check_ciphertext_origin(&key, key.id(), &long).unwrap_err().to_string();
        assert!(text.len() < 256 && !text.contains('\n'), "{text}");
    }
}
