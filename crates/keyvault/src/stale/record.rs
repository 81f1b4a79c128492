//! The bytes of an entry: what is told about an object as JSON, and its value behind it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_api::ObjectVersion;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::fetch::VaultObject;
use crate::public_key::{Curve, PublicJwk};
use crate::secret_bytes::SecretBytes;
use crate::source::{ListedVersion, ObjectAttributes, VaultCertificate, VaultKey, VaultSecret};

/// What an entry holds.
#[derive(Debug)]
pub(crate) enum Record {
    /// An object.
    Object(VaultObject),
    /// The versions of one.
    Versions(Vec<ListedVersion>),
}

/// What an entry is to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RecordRef<'a> {
    /// An object.
    Object(&'a VaultObject),
    /// The versions of one.
    Versions(&'a [ListedVersion]),
}

impl RecordRef<'_> {
    /// The bytes, in a buffer that has room for `more`.
    pub(super) fn encode(self, more: usize) -> Option<Zeroizing<Vec<u8>>> {
        let (head, value) = match self {
            Self::Versions(versions) => {
                (Head::Versions { versions: versions.iter().map(Listed::of).collect() }, &[][..])
            }
            Self::Object(VaultObject::Secret(secret)) => {
                let head = Head::Secret {
                    version: secret.version.to_string(),
                    attributes: Attributes::of(&secret.attributes),
                    content_type: secret.content_type.clone(),
                    of_certificate: secret.of_certificate,
                };
                (head, secret.value.expose())
            }
            Self::Object(VaultObject::Key(key)) => {
                let (version, attributes) =
                    (key.version.to_string(), Attributes::of(&key.attributes));
                (Head::Key { version, attributes, key: Jwk::of(&key.key) }, &[][..])
            }
            Self::Object(VaultObject::Certificate(certificate)) => {
                let version = certificate.version.to_string();
                let attributes = Attributes::of(&certificate.attributes);
                (Head::Certificate { version, attributes }, &*certificate.der)
            }
        };
        let head = serde_json::to_vec(&head).ok()?;
        let length = u32::try_from(head.len()).ok()?.to_be_bytes();
        let room = length.len() + head.len() + value.len() + more;
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(value);
        Some(bytes)
    }
}

impl Record {
    /// Reads what [`RecordRef::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (head, value) = rest.split_at_checked(length)?;
        Some(match serde_json::from_slice(head).ok()? {
            Head::Versions { versions } => {
                let versions = versions.into_iter().map(Listed::into_listed);
                Self::Versions(versions.collect::<Option<_>>()?)
            }
            Head::Secret { version, attributes, content_type, of_certificate } => {
                Self::Object(VaultObject::Secret(VaultSecret {
                    version: version.parse().ok()?,
                    attributes: attributes.into_attributes(),
                    content_type,
                    of_certificate,
                    value: SecretBytes::from(value.to_vec()),
                }))
            }
            Head::Key { version, attributes, key } => Self::Object(VaultObject::Key(VaultKey {
                version: version.parse().ok()?,
                attributes: attributes.into_attributes(),
                key: key.into_jwk(),
            })),
            Head::Certificate { version, attributes } => {
                Self::Object(VaultObject::Certificate(VaultCertificate {
                    version: version.parse().ok()?,
                    attributes: attributes.into_attributes(),
                    der: value.to_vec(),
                }))
            }
        })
    }
}

/// Everything about a record but the value.
#[derive(Serialize, Deserialize)]
enum Head {
    Secret {
        version: String,
        attributes: Attributes,
        content_type: Option<String>,
        of_certificate: bool,
    },
    Key {
        version: String,
        attributes: Attributes,
        key: Jwk,
    },
    Certificate {
        version: String,
        attributes: Attributes,
    },
    Versions {
        versions: Vec<Listed>,
    },
}

#[derive(Serialize, Deserialize)]
struct Listed {
    version: String,
    attributes: Attributes,
}

impl Listed {
    fn of(listed: &ListedVersion) -> Self {
        let attributes = Attributes::of(&listed.attributes);
        Self { version: listed.version.to_string(), attributes }
    }

    fn into_listed(self) -> Option<ListedVersion> {
        let version: ObjectVersion = self.version.parse().ok()?;
        Some(ListedVersion { version, attributes: self.attributes.into_attributes() })
    }
}

#[derive(Serialize, Deserialize)]
struct Attributes {
    enabled: Option<bool>,
    created: Option<Timestamp>,
    updated: Option<Timestamp>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
    tags: BTreeMap<String, String>,
}

impl Attributes {
    fn of(attributes: &ObjectAttributes) -> Self {
        let ObjectAttributes { enabled, created, updated, not_before, expires, tags } =
            attributes.clone();
        Self { enabled, created, updated, not_before, expires, tags }
    }

    fn into_attributes(self) -> ObjectAttributes {
        let Self { enabled, created, updated, not_before, expires, tags } = self;
        ObjectAttributes { enabled, created, updated, not_before, expires, tags }
    }
}

#[derive(Serialize, Deserialize)]
enum Jwk {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { x: Vec<u8>, y: Vec<u8> },
    P384 { x: Vec<u8>, y: Vec<u8> },
    P521 { x: Vec<u8>, y: Vec<u8> },
    Unsupported { key_type: String, curve: Option<String> },
}

impl Jwk {
    fn of(key: &PublicJwk) -> Self {
        match key.clone() {
            PublicJwk::Rsa { modulus, exponent } => Self::Rsa { modulus, exponent },
            PublicJwk::Ec { curve: Curve::P256, x, y } => Self::P256 { x, y },
            PublicJwk::Ec { curve: Curve::P384, x, y } => Self::P384 { x, y },
            PublicJwk::Ec { curve: Curve::P521, x, y } => Self::P521 { x, y },
            PublicJwk::Unsupported { key_type, curve } => Self::Unsupported { key_type, curve },
        }
    }

    fn into_jwk(self) -> PublicJwk {
        match self {
            Self::Rsa { modulus, exponent } => PublicJwk::Rsa { modulus, exponent },
            Self::P256 { x, y } => PublicJwk::Ec { curve: Curve::P256, x, y },
            Self::P384 { x, y } => PublicJwk::Ec { curve: Curve::P384, x, y },
            Self::P521 { x, y } => PublicJwk::Ec { curve: Curve::P521, x, y },
            Self::Unsupported { key_type, curve } => PublicJwk::Unsupported { key_type, curve },
        }
    }
}
