//! The key that signs service account tokens.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rsa::{KeyPair, KeySize, PublicKey};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lanyard_clock::ErrorHint;
use rustls_pki_types::pem::SectionKind;
use x509_parser::asn1_rs::{FromDer, Integer, OctetString, Sequence};
use x509_parser::public_key::PublicKey as ParsedPublicKey;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};
use zeroize::Zeroizing;

use crate::key_id::KeyId;
use crate::pem::{self, KeyBlock};

/// The RSA key pair that signs service account tokens. `Debug` prints only the key id, the type
/// cannot be cloned, and its memory is wiped on drop.
pub struct SigningKey {
    /// `RSAPrivateKey` (RFC 8017).
    pkcs1_der: Zeroizing<Vec<u8>>,
    public_key: SigningPublicKey,
}

/// The public part of a [`SigningKey`].
#[derive(Clone, PartialEq, Eq)]
pub struct SigningPublicKey {
    /// `SubjectPublicKeyInfo` (RFC 5280), also called PKIX.
    pkix_der: Vec<u8>,
    modulus: Vec<u8>,
    exponent: Vec<u8>,
}

/// The size of a generated key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SigningKeySize {
    /// 4096 bits, the size that ccoctl generates.
    #[default]
    Rsa4096,
    /// 2048 bits, for tests: generation is much faster.
    Rsa2048,
}

/// A signing key cannot be generated or read. No message contains key material.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SigningKeyError {
    /// The random generator or the self-test of the cryptographic library failed.
    #[error("cannot generate an RSA key pair")]
    Generate {
        /// The error of the cryptographic library, which gives no reason.
        source: Unspecified,
    },
    /// The cryptographic library could not encode a valid key.
    #[error("cannot encode the RSA key")]
    Encode {
        /// The error of the cryptographic library, which gives no reason.
        source: Unspecified,
    },
    /// The text has a broken PEM block.
    #[error("the key file is not valid PEM")]
    InvalidPem,
    /// The private key is protected by a password.
    #[error("the private key is encrypted")]
    Encrypted,
    /// The text has no block with a private key.
    #[error("the file has no private key (`RSA PRIVATE KEY` or `PRIVATE KEY`)")]
    NoPrivateKey,
    /// The text has no block with a public key.
    #[error("the file has no public key (`PUBLIC KEY`)")]
    NoPublicKey,
    /// The key is of another type than RSA.
    #[error("the key is of type {algorithm}, but service account issuers need RSA (RS256)")]
    NotRsa {
        /// The name of the algorithm, or its object identifier.
        algorithm: String,
    },
    /// The DER of a key is malformed.
    #[error("the key is not valid DER of type {expected}")]
    MalformedDer {
        /// The expected ASN.1 type.
        expected: &'static str,
    },
    /// The cryptographic library rejected the key, for example because it is too small.
    #[error("the RSA key is rejected: {source}")]
    Rejected {
        /// The reason.
        source: KeyRejected,
    },
}

impl ErrorHint for SigningKeyError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Generate { .. } | Self::Encode { .. } => {
                "run the command again; if it fails again, report a bug"
            }
            Self::Encrypted => "decrypt the key with `openssl rsa -in FILE -traditional`",
            Self::NoPublicKey => {
                "pass `serviceaccount-signer.public`, or derive it with `openssl rsa -in PRIVATE -pubout`"
            }
            Self::InvalidPem
            | Self::NoPrivateKey
            | Self::NotRsa { .. }
            | Self::MalformedDer { .. }
            | Self::Rejected { .. } => "create an RSA key pair with `lanyard create oidc azure`",
        }))
    }
}

impl SigningKey {
    /// Generates a key pair.
    ///
    /// # Errors
    ///
    /// Returns an error if the cryptographic library fails.
    pub fn generate(size: SigningKeySize) -> Result<Self, SigningKeyError> {
        let size = match size {
            SigningKeySize::Rsa4096 => KeySize::Rsa4096,
            SigningKeySize::Rsa2048 => KeySize::Rsa2048,
        };
        let pair =
            KeyPair::generate(size).map_err(|source| SigningKeyError::Generate { source })?;
        Self::from_key_pair(&pair)
    }

    /// Parses a PEM file. Accepts PKCS#1 (`RSA PRIVATE KEY`) and PKCS#8 (`PRIVATE KEY`); ignores
    /// other blocks and text between blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no unencrypted RSA key that the cryptographic library accepts.
    pub fn parse_pem(text: &str) -> Result<Self, SigningKeyError> {
        const KINDS: [SectionKind; 3] =
            [SectionKind::RsaPrivateKey, SectionKind::PrivateKey, SectionKind::EcPrivateKey];
        if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
            return Err(SigningKeyError::Encrypted);
        }
        let block = pem::first_block(text, &KINDS).or(Err(SigningKeyError::InvalidPem))?;
        let KeyBlock { kind, der } = block.ok_or(SigningKeyError::NoPrivateKey)?;
        let pair = match kind {
            SectionKind::RsaPrivateKey => KeyPair::from_der(&der),
            SectionKind::PrivateKey => {
                let (algorithm, _) = split_pkcs8(&der)?;
                require_rsa(&algorithm)?;
                KeyPair::from_pkcs8(&der)
            }
            _ => return Err(SigningKeyError::NotRsa { algorithm: EC.to_owned() }),
        };
        Self::from_key_pair(&pair.map_err(|source| SigningKeyError::Rejected { source })?)
    }

    fn from_key_pair(pair: &KeyPair) -> Result<Self, SigningKeyError> {
        let encode = |source| SigningKeyError::Encode { source };
        let pkcs8: Pkcs8V1Der<'static> = pair.as_der().map_err(encode)?;
        let (_, pkcs1_der) = split_pkcs8(pkcs8.as_ref())?;
        let public: PublicKeyX509Der<'static> = pair.public_key().as_der().map_err(encode)?;
        Ok(Self { pkcs1_der, public_key: SigningPublicKey::from_canonical_der(public.as_ref())? })
    }

    /// The public key.
    pub const fn public_key(&self) -> &SigningPublicKey {
        &self.public_key
    }

    /// The private key as a PKCS#1 PEM file, as ccoctl writes it.
    pub fn to_pem(&self) -> Zeroizing<String> {
        pem::encode_block("RSA PRIVATE KEY", &self.pkcs1_der)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({})", self.public_key.key_id())
    }
}

impl SigningPublicKey {
    /// Parses a PEM file with a PKIX public key (`PUBLIC KEY`).
    ///
    /// # Errors
    ///
    /// Returns an error if there is no RSA key that the cryptographic library accepts.
    pub fn parse_pem(text: &str) -> Result<Self, SigningKeyError> {
        let block = pem::first_block(text, &[SectionKind::PublicKey])
            .or(Err(SigningKeyError::InvalidPem))?;
        let KeyBlock { der, .. } = block.ok_or(SigningKeyError::NoPublicKey)?;
        let (_, info) = SubjectPublicKeyInfo::from_der(&der).or(Err(MALFORMED_PKIX))?;
        require_rsa(&algorithm_name(&info.algorithm))?;
        let key =
            PublicKey::from_der(&der).map_err(|source| SigningKeyError::Rejected { source })?;
        let canonical: PublicKeyX509Der<'static> =
            key.as_der().map_err(|source| SigningKeyError::Encode { source })?;
        Self::from_canonical_der(canonical.as_ref())
    }

    /// Reads a key from the DER that the cryptographic library encoded.
    fn from_canonical_der(der: &[u8]) -> Result<Self, SigningKeyError> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).or(Err(MALFORMED_PKIX))?;
        let Ok(ParsedPublicKey::RSA(rsa)) = info.parsed() else { return Err(MALFORMED_PKIX) };
        Ok(Self {
            pkix_der: der.to_vec(),
            modulus: without_leading_zeros(rsa.modulus).to_vec(),
            exponent: without_leading_zeros(rsa.exponent).to_vec(),
        })
    }

    /// The id of the key.
    pub fn key_id(&self) -> KeyId {
        KeyId::of_public_key_der(&self.pkix_der)
    }

    /// The modulus, big endian without leading zeros.
    pub(crate) fn modulus(&self) -> &[u8] {
        &self.modulus
    }

    /// The public exponent, big endian without leading zeros.
    pub(crate) fn exponent(&self) -> &[u8] {
        &self.exponent
    }

    /// The public key as OpenSSH writes it (RFC 4253, section 6.6): one line without a comment.
    pub fn to_openssh(&self) -> String {
        const NAME: &str = "ssh-rsa";
        let mut blob = Vec::new();
        let mut append = |prefix: &[u8], bytes: &[u8]| {
            let length = u32::try_from(prefix.len() + bytes.len()).unwrap_or_default();
            blob.extend_from_slice(&length.to_be_bytes());
            blob.extend_from_slice(prefix);
            blob.extend_from_slice(bytes);
        };
        append(&[], NAME.as_bytes());
        for number in [&self.exponent, &self.modulus] {
            // A set highest bit would mean a negative number.
            let is_negative = number.first().is_some_and(|byte| byte & 0x80 != 0);
            append(if is_negative { &[0] } else { &[] }, number);
        }
        format!("{NAME} {}\n", STANDARD.encode(blob))
    }

    /// The public key as a PKIX PEM file, as ccoctl writes it.
    pub(crate) fn to_pem(&self) -> String {
        std::mem::take(&mut *pem::encode_block("PUBLIC KEY", &self.pkix_der))
    }
}

impl fmt::Debug for SigningPublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningPublicKey({})", self.key_id())
    }
}

/// Splits PKCS#8 (RFC 5208: version, algorithm, key as an octet string) into the name of its
/// algorithm and the inner key, which is PKCS#1 for RSA.
fn split_pkcs8(der: &[u8]) -> Result<(String, Zeroizing<Vec<u8>>), SigningKeyError> {
    const MALFORMED: SigningKeyError = SigningKeyError::MalformedDer { expected: "PrivateKeyInfo" };
    let (_, info) = Sequence::from_der(der).or(Err(MALFORMED))?;
    let (rest, _version) = Integer::from_der(&info.content).or(Err(MALFORMED))?;
    let (rest, algorithm) = AlgorithmIdentifier::from_der(rest).or(Err(MALFORMED))?;
    let (_, key) = OctetString::from_der(rest).or(Err(MALFORMED))?;
    Ok((algorithm_name(&algorithm), Zeroizing::new(key.as_ref().to_vec())))
}

fn algorithm_name(algorithm: &AlgorithmIdentifier<'_>) -> String {
    let identifier = algorithm.algorithm.to_id_string();
    match identifier.as_str() {
        "1.2.840.113549.1.1.1" => RSA.to_owned(),
        "1.2.840.10045.2.1" => EC.to_owned(),
        "1.3.101.112" => "Ed25519".to_owned(),
        _ => identifier,
    }
}

fn require_rsa(algorithm: &str) -> Result<(), SigningKeyError> {
    match algorithm {
        RSA => Ok(()),
        other => Err(SigningKeyError::NotRsa { algorithm: other.to_owned() }),
    }
}

fn without_leading_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    &number[zeros..]
}

const RSA: &str = "RSA";
const EC: &str = "EC";
const MALFORMED_PKIX: SigningKeyError =
    SigningKeyError::MalformedDer { expected: "SubjectPublicKeyInfo" };

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;
    use std::sync::OnceLock;

    use proptest::prelude::*;

    use super::*;

    /// Two keys that the tests of this crate share, because generation is slow.
    pub(crate) fn test_keys() -> &'static [SigningKey; 2] {
        static KEYS: OnceLock<[SigningKey; 2]> = OnceLock::new();
        KEYS.get_or_init(|| {
            [(); 2].map(|()| SigningKey::generate(SigningKeySize::Rsa2048).unwrap())
        })
    }

    fn fixture(name: &str) -> String {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../credential/tests/fixtures");
        std::fs::read_to_string(fixtures.join(name)).unwrap()
    }

    #[test]
    fn public_key_is_written_as_by_openssh() {
        let key = SigningKey::parse_pem(&fixture("leaf.pkcs1.key")).unwrap();
        // ssh-keygen -y -f leaf.pkcs1.key
        assert_eq!(
            key.public_key().to_openssh(),
            "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCjgIdC804tBTl5X6EYS3W0M1sW0FMKhEQxBp6MwpmiPPpzbM21zhvO0YSSwSVeaJllGIWLjm7vSEI16Yhsb+ZDo9CBXaq/reug8ENAwM41SyxmsH0l9Z79zd5q0+eGS0gjD03RChoahQlkLXEV+JkBV0nR54NkXcZTCwbLrbTfs/RY2lqaPeJz4p1MSjyBmDvpZaAmYbMLRGhXNMsSZBRwLUO//FszjKsDnh/fM1SyJy68lEhE5HyBA4hvpRZvDkSDfxSKKN5TK3L2oLxLrlscNtLAM4pmdaietAOD+U7fGzGXdCEVBotJu1reDgvRhl/T3tKKpUfKtdwK4jMyfKXN\n"
        );
    }

    #[test]
    fn keys_of_openssl_are_read_in_both_forms_and_written_as_pkcs1() {
        let pkcs1 = fixture("leaf.pkcs1.key");
        for name in ["leaf.pkcs1.key", "leaf.pkcs8.key"] {
            let key = SigningKey::parse_pem(&fixture(name)).unwrap();
            assert_eq!(*key.to_pem(), pkcs1, "{name}");
            // openssl rsa -in leaf.pkcs1.key -pubout -outform der | openssl sha256 -binary | base64
            assert_eq!(
                key.public_key().key_id().as_str(),
                "uH3NkI7OHnXBW23_V0b8iO7soG3DGzhPj4KXKlKfsDQ"
            );
        }
    }

    #[test]
    fn keys_of_other_types_and_encrypted_keys_are_rejected() {
        let error = |name: &str| SigningKey::parse_pem(&fixture(name)).unwrap_err().to_string();
        for (name, algorithm) in
            [("ec.pkcs8.key", "EC"), ("ec.sec1.key", "EC"), ("ed25519.pkcs8.key", "Ed25519")]
        {
            let expected = format!(
                "the key is of type {algorithm}, but service account issuers need RSA (RS256)"
            );
            assert_eq!(error(name), expected, "{name}");
        }
        for name in ["leaf.encrypted.key", "leaf.proc-type.key"] {
            assert_eq!(error(name), "the private key is encrypted", "{name}");
        }
        assert!(error("leaf.pem").starts_with("the file has no private key"));
    }

    #[test]
    fn public_key_of_an_ec_key_is_rejected() {
        // The public key of the private key 1 on P-256.
        let text = "-----BEGIN PUBLIC KEY-----\n\
            MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEaxfR8uEsQkf4vOblY6RA8ncDfYEt\n\
            6zOg9KE5RdiYwpZP40Li/hp/m47n60p8D54WK84zV2sxXs7LtkBoN79R9Q==\n\
            -----END PUBLIC KEY-----\n";
        let error = SigningPublicKey::parse_pem(text).unwrap_err();
        assert!(
            matches!(&error, SigningKeyError::NotRsa { algorithm } if algorithm == "EC"),
            "{error}"
        );
        let private = test_keys()[0].to_pem();
        let error = SigningPublicKey::parse_pem(&private).unwrap_err();
        assert!(matches!(error, SigningKeyError::NoPublicKey), "{error}");
    }

    #[test]
    fn generated_keys_differ_and_have_the_form_of_ccoctl() {
        let [first, second] = test_keys();
        assert_ne!(first.public_key(), second.public_key());
        assert!(first.to_pem().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        assert!(first.public_key().to_pem().starts_with("-----BEGIN PUBLIC KEY-----\n"));
        assert_eq!(first.public_key().exponent(), [1, 0, 1]);
        assert_eq!(first.public_key().modulus().len(), 256);
        assert_eq!(first.public_key().key_id().as_str().len(), 43);
    }

    #[test]
    fn debug_prints_only_the_key_id() {
        let key = &test_keys()[0];
        let expected = format!("SigningKey({})", key.public_key().key_id());
        assert_eq!(format!("{key:?}"), expected);
        assert_eq!(format!("{key:#?}"), expected);
    }

    proptest! {
        #[test]
        fn key_files_survive_a_round_trip_with_other_text(
            index in 0..2_usize,
            crlf: bool,
            before in "[a-z :]{0,20}",
            after in "[a-z :]{0,20}",
        ) {
            let key = &test_keys()[index];
            let wrap = |file: &str| {
                let text = format!("{before}\n{file}{after}\n");
                if crlf { text.replace('\n', "\r\n") } else { text }
            };
            let read = SigningKey::parse_pem(&wrap(&key.to_pem())).unwrap();
            prop_assert_eq!(&*read.to_pem(), &*key.to_pem());
            prop_assert_eq!(read.public_key(), key.public_key());
            let read = SigningPublicKey::parse_pem(&wrap(&key.public_key().to_pem())).unwrap();
            prop_assert_eq!(&read, key.public_key());
        }

        #[test]
        fn truncated_key_files_are_errors(length in 0..1600_usize) {
            let text = test_keys()[0].to_pem();
            prop_assume!(length < text.trim_end().len());
            prop_assert!(SigningKey::parse_pem(&text[..length]).is_err());
        }
    }
}
