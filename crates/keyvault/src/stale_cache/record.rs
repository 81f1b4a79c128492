//! The plain text of an entry: the object's metadata as JSON, followed by its value.

use std::collections::BTreeMap;

use jiff::Timestamp;
use lanyard_api::VaultObjectVersion;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::public_key::{EcCurve, PublicJwk};
use crate::secret_bytes::SharedSecretBytes;
use crate::source::{
    FetchedCertificate, FetchedKey, FetchedSecret, FetchedVaultObject, ListedVersion,
    ObjectAttributes,
};

/// The plain text of a cache entry, decoded.
#[derive(Debug)]
pub(crate) enum EntryRecord {
    /// An object with its value.
    Object(FetchedVaultObject),
    /// The versions of an object.
    Versions(Vec<ListedVersion>),
}

/// The plain text of a cache entry, borrowed: it is encoded and then sealed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EntryRecordRef<'a> {
    /// An object with its value.
    Object(&'a FetchedVaultObject),
    /// The versions of an object.
    Versions(&'a [ListedVersion]),
}

impl EntryRecordRef<'_> {
    /// Encodes the record in a buffer with `more` bytes of spare capacity. `None` if it cannot be encoded.
    pub(super) fn encode(self, more: usize) -> Option<Zeroizing<Vec<u8>>> {
        let (head, value) = match self {
            Self::Versions(versions) => (
                RecordHeader::Versions {
                    versions: versions.iter().map(ListedVersionRecord::of).collect(),
                },
                &[][..],
            ),
            Self::Object(FetchedVaultObject::Secret(secret)) => {
                let head = RecordHeader::Secret {
                    version: secret.version.to_string(),
                    attributes: AttributesRecord::of(&secret.attributes),
                    content_type: secret.content_type.clone(),
                    of_certificate: secret.is_certificate_secret,
                };
                (head, secret.value.expose())
            }
            Self::Object(FetchedVaultObject::Key(key)) => {
                let (version, attributes) =
                    (key.version.to_string(), AttributesRecord::of(&key.attributes));
                (
                    RecordHeader::Key { version, attributes, key: PublicJwkRecord::of(&key.key) },
                    &[][..],
                )
            }
            Self::Object(FetchedVaultObject::Certificate(certificate)) => {
                let version = certificate.version.to_string();
                let attributes = AttributesRecord::of(&certificate.attributes);
                (RecordHeader::Certificate { version, attributes }, &*certificate.der)
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

impl EntryRecord {
    /// Parses the output of [`EntryRecordRef::encode`].
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (head, value) = rest.split_at_checked(length)?;
        Some(match serde_json::from_slice(head).ok()? {
            RecordHeader::Versions { versions } => {
                let versions = versions.into_iter().map(ListedVersionRecord::into_listed_version);
                Self::Versions(versions.collect::<Option<_>>()?)
            }
            RecordHeader::Secret { version, attributes, content_type, of_certificate } => {
                Self::Object(FetchedVaultObject::Secret(FetchedSecret {
                    version: version.parse().ok()?,
                    attributes: attributes.into_attributes(),
                    content_type,
                    is_certificate_secret: of_certificate,
                    value: SharedSecretBytes::from(value.to_vec()),
                }))
            }
            RecordHeader::Key { version, attributes, key } => {
                Self::Object(FetchedVaultObject::Key(FetchedKey {
                    version: version.parse().ok()?,
                    attributes: attributes.into_attributes(),
                    key: key.into_jwk(),
                }))
            }
            RecordHeader::Certificate { version, attributes } => {
                Self::Object(FetchedVaultObject::Certificate(FetchedCertificate {
                    version: version.parse().ok()?,
                    attributes: attributes.into_attributes(),
                    der: value.to_vec(),
                }))
            }
        })
    }
}

/// The metadata of a record, without its value.
#[derive(Serialize, Deserialize)]
enum RecordHeader {
    Secret {
        version: String,
        attributes: AttributesRecord,
        content_type: Option<String>,
        of_certificate: bool,
    },
    Key {
        version: String,
        attributes: AttributesRecord,
        key: PublicJwkRecord,
    },
    Certificate {
        version: String,
        attributes: AttributesRecord,
    },
    Versions {
        versions: Vec<ListedVersionRecord>,
    },
}

#[derive(Serialize, Deserialize)]
struct ListedVersionRecord {
    version: String,
    attributes: AttributesRecord,
}

impl ListedVersionRecord {
    fn of(listed: &ListedVersion) -> Self {
        let attributes = AttributesRecord::of(&listed.attributes);
        Self { version: listed.version.to_string(), attributes }
    }

    fn into_listed_version(self) -> Option<ListedVersion> {
        let version: VaultObjectVersion = self.version.parse().ok()?;
        Some(ListedVersion { version, attributes: self.attributes.into_attributes() })
    }
}

#[derive(Serialize, Deserialize)]
struct AttributesRecord {
    enabled: Option<bool>,
    created: Option<Timestamp>,
    updated: Option<Timestamp>,
    not_before: Option<Timestamp>,
    expires: Option<Timestamp>,
    tags: BTreeMap<String, String>,
}

impl AttributesRecord {
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
enum PublicJwkRecord {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { x: Vec<u8>, y: Vec<u8> },
    P384 { x: Vec<u8>, y: Vec<u8> },
    P521 { x: Vec<u8>, y: Vec<u8> },
    Unsupported { key_type: String, curve: Option<String> },
}

impl PublicJwkRecord {
    fn of(key: &PublicJwk) -> Self {
        match key.clone() {
            PublicJwk::Rsa { modulus, exponent } => Self::Rsa { modulus, exponent },
            PublicJwk::Ec { curve: EcCurve::P256, x, y } => Self::P256 { x, y },
            PublicJwk::Ec { curve: EcCurve::P384, x, y } => Self::P384 { x, y },
            PublicJwk::Ec { curve: EcCurve::P521, x, y } => Self::P521 { x, y },
            PublicJwk::Unsupported { key_type, curve } => Self::Unsupported { key_type, curve },
        }
    }

    fn into_jwk(self) -> PublicJwk {
        match self {
            Self::Rsa { modulus, exponent } => PublicJwk::Rsa { modulus, exponent },
            Self::P256 { x, y } => PublicJwk::Ec { curve: EcCurve::P256, x, y },
            Self::P384 { x, y } => PublicJwk::Ec { curve: EcCurve::P384, x, y },
            Self::P521 { x, y } => PublicJwk::Ec { curve: EcCurve::P521, x, y },
            Self::Unsupported { key_type, curve } => PublicJwk::Unsupported { key_type, curve },
        }
    }
}
