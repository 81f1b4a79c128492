//! JSON Web Key Sets (RFC 7517) of issuers, and their change during a key rotation.

use std::borrow::Cow;
use std::collections::BTreeMap;

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rsa::PublicKeyComponents;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_clock::ErrorHint;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::ser::PrettyFormatter;

use crate::key_id::KeyId;
use crate::signing_key::SigningPublicKey;

/// The key set of an issuer, in the order in which it was read or built.
///
/// During a rotation, the set lists the old key and the new key, until no token of the old key is
/// valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedKeySet {
    keys: Vec<PublishedKey>,
}

/// A key of a key set. Members that lanyard does not know are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PublishedKey {
    // The order of the fields is that of ccoctl's files.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    usage: Option<String>,
    #[serde(rename = "kty", skip_serializing_if = "Option::is_none")]
    key_type: Option<String>,
    #[serde(rename = "kid", skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    #[serde(rename = "alg", skip_serializing_if = "Option::is_none")]
    algorithm: Option<String>,
    #[serde(rename = "n", skip_serializing_if = "Option::is_none")]
    modulus: Option<String>,
    #[serde(rename = "e", skip_serializing_if = "Option::is_none")]
    exponent: Option<String>,
    #[serde(flatten)]
    other_members: BTreeMap<String, Value>,
}

/// A key set cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeySetError {
    /// The document is not JSON, or has no `keys` array.
    #[error("the key set is not a JSON object with the array `keys`: {source}")]
    Unparsable {
        /// The reason.
        source: serde_json::Error,
    },
    /// Entries of `keys` are not objects.
    #[error("entries {indexes:?} of `keys` are not JSON objects")]
    InvalidKeys {
        /// The indexes, from 0.
        indexes: Vec<usize>,
    },
    /// The document cannot be written as JSON.
    #[error("cannot write the key set as JSON: {source}")]
    Unwritable {
        /// The reason.
        source: serde_json::Error,
    },
    /// Two different keys have the same id.
    #[error("two different keys have the key id `{key_id}`")]
    Conflict {
        /// The common id.
        key_id: KeyId,
    },
    /// A key that must remain is not in the set.
    #[error("the key set does not list the keys {}", list(.key_ids))]
    MissingKeys {
        /// The ids of the missing keys.
        key_ids: Vec<KeyId>,
    },
}

impl ErrorHint for KeySetError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Unparsable { .. } | Self::InvalidKeys { .. } => {
                "check that the file or URL is the issuer's `openid/v1/jwks`"
            }
            Self::Unwritable { .. } => "report a bug",
            Self::Conflict { .. } => {
                "remove the key that the API server does not sign with from the published key set"
            }
            Self::MissingKeys { .. } => "publish these keys before you prune other keys",
        }))
    }
}

impl PublishedKeySet {
    /// The key set with one signing key.
    pub fn of_key(key: &SigningPublicKey) -> Self {
        Self { keys: vec![PublishedKey::of_key(key)] }
    }

    /// Reads a key set. Members and key types that lanyard does not know are kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the document is not a JSON object with an array of objects `keys`.
    pub fn parse(document: &[u8]) -> Result<Self, KeySetError> {
        let RawKeySet { keys } = serde_json::from_slice(document)
            .map_err(|source| KeySetError::Unparsable { source })?;
        let mut parsed = Vec::with_capacity(keys.len());
        let mut indexes = Vec::new();
        for (index, key) in keys.into_iter().enumerate() {
            match key {
                Value::Object(members) => parsed.push(PublishedKey::from_members(members)),
                _ => indexes.push(index),
            }
        }
        if indexes.is_empty() {
            Ok(Self { keys: parsed })
        } else {
            Err(KeySetError::InvalidKeys { indexes })
        }
    }

    /// The keys, in order.
    pub fn keys(&self) -> &[PublishedKey] {
        &self.keys
    }

    /// The ids of the keys, in order. Keys without id are left out.
    pub fn key_ids(&self) -> Vec<KeyId> {
        self.keys.iter().filter_map(PublishedKey::key_id).collect()
    }

    /// The keys of this set, then the keys of `added` that this set does not have. Each key is
    /// listed once.
    ///
    /// # Errors
    ///
    /// Returns an error if different keys have the same id: a token would name both.
    pub fn merge(&self, added: &Self) -> Result<Self, KeySetError> {
        let mut keys: Vec<PublishedKey> = Vec::new();
        for key in self.keys.iter().chain(&added.keys) {
            let listed = keys.iter().find(|listed| match &key.key_id {
                Some(_) => listed.key_id == key.key_id,
                None => *listed == key,
            });
            match (listed, key.key_id()) {
                (None, _) => keys.push(key.clone()),
                (Some(listed), Some(key_id)) if !listed.has_same_material(key) => {
                    return Err(KeySetError::Conflict { key_id });
                }
                (Some(_), _) => {}
            }
        }
        Ok(Self { keys })
    }

    /// Only the keys with the ids `retained`, in the order of this set. Keys without id are removed.
    ///
    /// # Errors
    ///
    /// Returns an error if a key of `retained` is not in this set. So a key set without the signing key,
    /// which `retained` must name, is never published.
    pub fn prune(&self, retained: &[KeyId]) -> Result<Self, KeySetError> {
        let published = self.key_ids();
        let missing: Vec<_> =
            retained.iter().filter(|key_id| !published.contains(key_id)).cloned().collect();
        if !missing.is_empty() {
            return Err(KeySetError::MissingKeys { key_ids: missing });
        }
        let is_retained =
            |key: &&PublishedKey| key.key_id().is_some_and(|id| retained.contains(&id));
        Ok(Self { keys: self.keys.iter().filter(is_retained).cloned().collect() })
    }

    /// The document as ccoctl writes it: indented by 4 spaces, without a line feed at its end.
    ///
    /// # Errors
    ///
    /// Returns an error if a kept unknown member cannot be written as JSON.
    pub fn to_document(&self) -> Result<String, KeySetError> {
        #[derive(Serialize)]
        struct Document<'a> {
            keys: &'a [PublishedKey],
        }
        to_indented_json(&Document { keys: &self.keys })
            .map_err(|source| KeySetError::Unwritable { source })
    }
}

impl PublishedKey {
    fn of_key(key: &SigningPublicKey) -> Self {
        Self {
            usage: Some(SIGNATURE.to_owned()),
            key_type: Some(RSA.to_owned()),
            key_id: Some(key.key_id().as_str().to_owned()),
            algorithm: Some(RS256.to_owned()),
            modulus: Some(URL_SAFE_NO_PAD.encode(key.modulus())),
            exponent: Some(URL_SAFE_NO_PAD.encode(key.exponent())),
            other_members: BTreeMap::new(),
        }
    }

    fn from_members(members: serde_json::Map<String, Value>) -> Self {
        let mut members: BTreeMap<_, _> = members.into_iter().collect();
        // A known member of another type than string stays among the unknown members.
        let mut text = |name: &str| match members.remove(name) {
            Some(Value::String(text)) => Some(text),
            Some(other) => {
                members.insert(name.to_owned(), other);
                None
            }
            None => None,
        };
        Self {
            usage: text("use"),
            key_type: text("kty"),
            key_id: text("kid"),
            algorithm: text("alg"),
            modulus: text("n"),
            exponent: text("e"),
            other_members: members,
        }
    }

    /// The id of the key, if it has one.
    pub fn key_id(&self) -> Option<KeyId> {
        self.key_id.as_deref().map(KeyId::from)
    }

    /// The id that follows from the key itself; `None` if it is not an RSA key.
    pub(crate) fn derived_key_id(&self) -> Option<KeyId> {
        let number = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_deref()?).ok();
        let key = PublicKeyComponents { n: number(&self.modulus)?, e: number(&self.exponent)? };
        let der: PublicKeyX509Der<'static> = key.as_der().ok()?;
        Some(KeyId::of_public_key_der(der.as_ref()))
    }

    /// The first member whose value excludes RS256 signatures, with the value and the expected
    /// value. `use` and `alg` are optional (RFC 7517, section 4).
    pub(crate) fn unusable_member(&self) -> Option<(&'static str, Option<String>, &'static str)> {
        let members = [
            ("kty", &self.key_type, RSA, true),
            ("use", &self.usage, SIGNATURE, false),
            ("alg", &self.algorithm, RS256, false),
        ];
        members.into_iter().find_map(|(name, found, expected, required)| {
            let absent = found.is_none() && !self.other_members.contains_key(name);
            let usable = found.as_deref() == Some(expected) || (absent && !required);
            (!usable).then(|| (name, found.clone(), expected))
        })
    }

    fn has_same_material(&self, other: &Self) -> bool {
        (&self.key_type, &self.modulus, &self.exponent, &self.other_members)
            == (&other.key_type, &other.modulus, &other.exponent, &other.other_members)
    }
}

/// Writes JSON indented by 4 spaces, as ccoctl does.
pub(crate) fn to_indented_json(document: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    document.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

#[derive(Deserialize)]
struct RawKeySet {
    keys: Vec<Value>,
}

fn list(key_ids: &[KeyId]) -> String {
    let quoted: Vec<_> = key_ids.iter().map(|key_id| format!("`{key_id}`")).collect();
    quoted.join(", ")
}

/// The only signature algorithm of issuers that ccoctl creates.
pub(crate) const RS256: &str = "RS256";
const RSA: &str = "RSA";
const SIGNATURE: &str = "sig";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signing_key::tests::test_keys;

    #[test]
    fn document_has_the_members_order_and_indent_of_ccoctl() {
        let key = test_keys()[0].public_key();
        let expected = format!(
            "{{\n    \"keys\": [\n        {{\n            \"use\": \"sig\",\n            \"kty\": \"RSA\",\n            \
             \"kid\": \"{}\",\n            \"alg\": \"RS256\",\n            \"n\": \"{}\",\n            \
             \"e\": \"AQAB\"\n        }}\n    ]\n}}",
            key.key_id(),
            URL_SAFE_NO_PAD.encode(key.modulus()),
        );
        assert_eq!(PublishedKeySet::of_key(key).to_document().unwrap(), expected);
    }

    #[test]
    fn key_id_follows_from_the_published_numbers() {
        let key = test_keys()[0].public_key();
        let set = PublishedKeySet::of_key(key);
        assert_eq!(set.keys()[0].derived_key_id(), Some(key.key_id()));
        assert_eq!(set.key_ids(), [key.key_id()]);
    }

    #[test]
    fn unknown_members_and_key_types_are_kept() {
        let text = r#"{"x": 1, "keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "n": 7}]}"#;
        let set = PublishedKeySet::parse(text.as_bytes()).unwrap();
        let written: Value = serde_json::from_str(&set.to_document().unwrap()).unwrap();
        assert_eq!(
            written,
            serde_json::json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "n": 7}]})
        );
    }

    #[test]
    fn documents_that_are_no_key_sets_are_errors() {
        let error = |text: &str| PublishedKeySet::parse(text.as_bytes()).unwrap_err();
        for text in ["", "[]", "{}", r#"{"keys": {}}"#] {
            assert!(matches!(error(text), KeySetError::Unparsable { .. }), "{text}");
        }
        assert_eq!(
            error(r#"{"keys": [1, {}, null]}"#).to_string(),
            "entries [0, 2] of `keys` are not JSON objects"
        );
    }

    #[test]
    fn pruning_keeps_the_named_keys_and_fails_if_one_is_absent() {
        let [old, new] = test_keys();
        let (old, new) = (old.public_key(), new.public_key());
        let both = PublishedKeySet::of_key(old).merge(&PublishedKeySet::of_key(new)).unwrap();
        assert_eq!(both.prune(&[new.key_id()]).unwrap(), PublishedKeySet::of_key(new));
        let error = PublishedKeySet::of_key(old).prune(&[new.key_id()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the key set does not list the keys `{}`", new.key_id())
        );
    }

    #[test]
    fn different_keys_with_one_id_are_not_merged() {
        let set = |modulus: &str| {
            let text = format!(r#"{{"keys": [{{"kty": "RSA", "kid": "a", "n": "{modulus}"}}]}}"#);
            PublishedKeySet::parse(text.as_bytes()).unwrap()
        };
        let error = set("AQ").merge(&set("Ag")).unwrap_err();
        assert_eq!(error.to_string(), "two different keys have the key id `a`");
    }

    /// Key sets whose keys are equal if their ids are equal.
    fn key_sets() -> impl Strategy<Value = PublishedKeySet> {
        let key = prop_oneof![
            (0..6_u8).prop_map(|id| format!(r#"{{"kty":"RSA","kid":"{id}","n":"{id}"}}"#)),
            (0..3_u8).prop_map(|id| format!(r#"{{"kty":"RSA","n":"{id}"}}"#)),
        ];
        prop::collection::vec(key, 0..6).prop_map(|keys| {
            let text = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
            PublishedKeySet::parse(text.as_bytes()).unwrap()
        })
    }

    proptest! {
        #[test]
        fn merging_is_idempotent_and_keeps_the_order(old in key_sets(), new in key_sets()) {
            let merged = old.merge(&new).unwrap();
            prop_assert_eq!(&merged.merge(&new).unwrap(), &merged);
            prop_assert_eq!(&merged.merge(&old).unwrap(), &merged);
            prop_assert_eq!(&merged.merge(&merged).unwrap(), &merged);
            let deduplicated = old.merge(&old).unwrap();
            prop_assert!(merged.keys().starts_with(deduplicated.keys()));
            let added: Vec<_> =
                new.merge(&new).unwrap().keys().iter().filter(|key| !old.keys().contains(key)).cloned().collect();
            prop_assert_eq!(&merged.keys()[deduplicated.keys().len()..], &added[..]);
        }

        #[test]
        fn written_key_sets_are_read_back(set in key_sets()) {
            let document = set.to_document().unwrap();
            prop_assert_eq!(PublishedKeySet::parse(document.as_bytes()).unwrap(), set);
        }

        #[test]
        fn reading_never_panics(document: Vec<u8>) {
            let _ignored = PublishedKeySet::parse(&document);
        }
    }
}
