use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_api::ObjectKind;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey,
    PrivateKeyChain,
};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::*;
use crate::chain::ChainError;
use crate::pem::{PRIVATE_KEY, blocks};
use crate::public_key::PublicJwk;
use crate::source::{ObjectAttributes, VaultCertificate, VaultKey};

/// A leaf, an intermediate and a root, DER, and the leaf's key as PKCS#8.
struct Chain {
    leaf: Vec<u8>,
    intermediate: Vec<u8>,
    root: Vec<u8>,
    key: Vec<u8>,
}

static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
    let params = |name: &str, authority: bool| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        if authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params
    };
    let root_key = KeyPair::generate().unwrap();
    let root = params("root", true).self_signed(&root_key).unwrap();
    let root_issuer = Issuer::new(params("root", true), root_key);
    let middle_key = KeyPair::generate().unwrap();
    let middle = params("middle", true).signed_by(&middle_key, &root_issuer).unwrap();
    let middle_issuer = Issuer::new(params("middle", true), middle_key);
    let leaf_key = KeyPair::generate().unwrap();
    let leaf = params("leaf", false).signed_by(&leaf_key, &middle_issuer).unwrap();
    Chain {
        leaf: leaf.der().to_vec(),
        intermediate: middle.der().to_vec(),
        root: root.der().to_vec(),
        key: leaf_key.serialize_der(),
    }
});

/// An archive with the leaf's key and these certificates, as the value of a secret.
fn pfx(certificates: &[&[u8]], old: bool) -> String {
    let certificates = certificates.iter().map(|der| Certificate::from_der(der).unwrap());
    let key = PrivateKey::from_der(&CHAIN.key).unwrap();
    let chain = PrivateKeyChain::new("id", key, certificates);
    let mut store = KeyStore::new();
    store.add_entry("friendly", KeyStoreEntry::PrivateKeyChain(chain));
    let writer = store.writer("").encryption_iterations(10).mac_iterations(10);
    let writer = if old {
        writer
            .encryption_algorithm(EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc)
            .mac_algorithm(MacAlgorithm::HmacSha1)
    } else {
        writer
    };
    STANDARD.encode(writer.write().unwrap())
}

fn secret(value: &str, content_type: Option<&str>, of_certificate: bool) -> VaultObject {
    VaultObject::Secret(VaultSecret {
        version: "v1".parse().unwrap(),
        attributes: ObjectAttributes::default(),
        content_type: content_type.map(str::to_owned),
        of_certificate,
        value: value.to_owned().into(),
    })
}

fn certificate_secret(value: &str, content_type: &str) -> VaultObject {
    secret(value, Some(content_type), true)
}

fn entry(encoding: Option<ObjectEncoding>, format: Option<ObjectFormat>) -> ObjectEntry {
    ObjectEntry { format, ..ObjectEntry::secret("name".parse().unwrap(), encoding) }
}

fn bytes(entry: &ObjectEntry, object: &VaultObject) -> Result<Vec<u8>, ContentError> {
    let content = content_of(entry, object, CertificateOptions::default())?;
    Ok(content.bytes.expose().to_vec())
}

/// The labels and the bytes of a PEM text.
fn parts(pem: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = std::str::from_utf8(pem).unwrap();
    let part = |block: &crate::pem::PemBlock<'_>| {
        let body: String = block.text.lines().filter(|line| !line.starts_with('-')).collect();
        (block.label.to_owned(), STANDARD.decode(body).unwrap())
    };
    blocks(text).iter().map(part).collect()
}

fn expected(key: Option<&[u8]>, certificates: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let key = key.map(|key| (PRIVATE_KEY.to_owned(), key.to_vec()));
    let certificates = certificates.iter().map(|der| (CERTIFICATE.to_owned(), der.to_vec()));
    key.into_iter().chain(certificates).collect()
}

const UTF8: Option<ObjectEncoding> = Some(ObjectEncoding::Utf8);
const HEX: Option<ObjectEncoding> = Some(ObjectEncoding::Hex);
const BASE64: Option<ObjectEncoding> = Some(ObjectEncoding::Base64);
const PFX: Option<ObjectFormat> = Some(ObjectFormat::Pfx);

#[test]
fn a_plain_secret_is_decoded_whatever_its_content_type_and_format_are() {
    for content_type in [None, Some("text/plain"), Some(PKCS12)] {
        for format in [None, PFX] {
            let read = |encoding, value| {
                bytes(&entry(encoding, format), &secret(value, content_type, false)).unwrap()
            };
            assert_eq!(read(None, "aGk="), b"aGk=");
            assert_eq!(read(UTF8, "aGk="), b"aGk=");
            assert_eq!(read(BASE64, "aGk="), b"hi");
            assert_eq!(read(HEX, "6869"), b"hi");
        }
    }
}

#[test]
fn a_wrong_encoding_is_an_error_whose_hint_names_the_right_one() {
    let json = r#"{"client_id":"planted"}"#;
    let error = bytes(&entry(HEX, None), &secret(json, None, false)).unwrap_err();
    assert_eq!(error.to_string(), "the value is not hex");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "the value looks like utf-8: set objectEncoding to `utf-8`");
}

#[test]
fn a_pem_secret_of_a_certificate_stays_as_it_is() {
    let pem = "subject=x\n-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----";
    for content_type in [PEM_FILE, " Application/X-PEM-File "] {
        for format in [None, PFX] {
            let object = certificate_secret(pem, content_type);
            assert_eq!(bytes(&entry(None, format), &object).unwrap(), pem.as_bytes());
        }
    }
    let error = bytes(&entry(BASE64, None), &certificate_secret(pem, PEM_FILE)).unwrap_err();
    assert!(error.hint().unwrap().contains("`utf-8`"));
}

#[test]
fn an_archive_of_old_or_new_ciphers_becomes_the_key_and_then_the_ordered_chain() {
    let chain = &*CHAIN;
    let vault_order: [&[u8]; 3] = [&chain.root, &chain.leaf, &chain.intermediate];
    for old in [false, true] {
        let object = certificate_secret(&pfx(&vault_order, old), PKCS12);
        // The value is base64 anyway: saying so changes nothing.
        for encoding in [None, UTF8, BASE64] {
            let pem = bytes(&entry(encoding, None), &object).unwrap();
            let ordered: [&[u8]; 3] = [&chain.leaf, &chain.intermediate, &chain.root];
            assert_eq!(parts(&pem), expected(Some(&chain.key), &ordered), "{old} {encoding:?}");
            let text = String::from_utf8(pem).unwrap();
            assert!(!text.contains("friendly") && text.ends_with("-----END CERTIFICATE-----\n"));
        }
        let options = CertificateOptions { construct_pem_chain: false, ..Default::default() };
        let content = content_of(&entry(None, None), &object, options).unwrap();
        assert_eq!(parts(content.bytes.expose()), expected(Some(&chain.key), &vault_order));
    }
}

#[test]
fn an_incomplete_chain_keeps_the_vaults_order_and_is_told() {
    let chain = &*CHAIN;
    let gap: [&[u8]; 2] = [&chain.root, &chain.leaf];
    let object = certificate_secret(&pfx(&gap, false), PKCS12);
    let content = content_of(&entry(None, None), &object, CertificateOptions::default()).unwrap();
    assert_eq!(parts(content.bytes.expose()), expected(Some(&chain.key), &gap));
    assert_eq!(content.incomplete_chain, Some((1, 2)));
}

#[test]
fn a_root_that_is_there_twice_is_no_circle() {
    let chain = &*CHAIN;
    let twice = crate::chain::order_chain([&chain.root[..], &chain.root]);
    assert_ne!(twice, Err(ChainError::NoLeaf { count: 2 }));
    let twice = crate::chain::order_chain([&chain.intermediate[..], &chain.root, &chain.root]);
    assert_eq!(twice, Ok(crate::chain::ChainOrder::Incomplete { linked: 2 }));
}

#[test]
fn an_archive_asked_for_as_such_is_its_base64_or_its_bytes() {
    let value = pfx(&[&CHAIN.leaf], true);
    let object = certificate_secret(&value, PKCS12);
    assert_eq!(bytes(&entry(None, PFX), &object).unwrap(), value.as_bytes());
    let raw = STANDARD.decode(&value).unwrap();
    assert_eq!(bytes(&entry(BASE64, PFX), &object).unwrap(), raw);
    // Nobody looks into it.
    let object = certificate_secret("bm90IGFuIGFyY2hpdmU=", PKCS12);
    assert!(bytes(&entry(None, PFX), &object).is_ok());
}

#[test]
fn an_archive_is_never_hex() {
    let object = certificate_secret(&pfx(&[&CHAIN.leaf], false), PKCS12);
    for format in [None, PFX] {
        let error = bytes(&entry(HEX, format), &object).unwrap_err();
        assert!(matches!(error, ContentError::EncodingOfCertificate { .. }), "{error}");
    }
}

#[test]
fn an_unknown_or_missing_content_type_of_a_certificates_secret_is_an_error() {
    let error = bytes(&entry(None, None), &certificate_secret("x", "text/plain")).unwrap_err();
    let text = "a certificate's secret has the unknown content type `text/plain`";
    assert_eq!(error.to_string(), text);
    let error = bytes(&entry(None, None), &secret("x", None, true)).unwrap_err();
    assert_eq!(error.to_string(), "a certificate's secret has no content type");
    assert!(error.hint().is_some());
}

#[test]
fn certificates_and_key_are_written_beside_if_asked_even_for_an_archive() {
    let chain = &*CHAIN;
    let object = certificate_secret(&pfx(&[&chain.intermediate, &chain.leaf], false), PKCS12);
    let options = CertificateOptions { separate: true, ..Default::default() };
    for format in [None, PFX] {
        let content = content_of(&entry(None, format), &object, options).unwrap();
        let separated = content.separated.unwrap();
        let ordered: [&[u8]; 2] = [&chain.leaf, &chain.intermediate];
        assert_eq!(parts(separated.certificates.expose()), expected(None, &ordered));
        assert_eq!(parts(separated.others.expose()), expected(Some(&chain.key), &[]));
    }
    let plain = content_of(&entry(None, None), &secret("x", None, false), options).unwrap();
    assert!(plain.separated.is_none());
}

#[test]
fn a_broken_archive_is_told_apart_from_one_with_a_password() {
    let error = bytes(&entry(None, None), &certificate_secret("%%%", PKCS12)).unwrap_err();
    assert!(matches!(error, ContentError::Pfx(PfxError::NotBase64)));
    let error = bytes(&entry(None, None), &certificate_secret("AQID", PKCS12)).unwrap_err();
    assert!(matches!(error, ContentError::Pfx(PfxError::Archive { .. })));
    assert!(error.hint().unwrap().contains("password"));
}

#[test]
fn keys_and_certificates_become_one_block() {
    let attributes = ObjectAttributes::default();
    let key = PublicJwk::Rsa { modulus: vec![0xc0; 256], exponent: vec![1, 0, 1] };
    let key = VaultKey { version: "v1".parse().unwrap(), attributes: attributes.clone(), key };
    let mut asked = entry(None, None);
    asked.kind = ObjectKind::Key;
    let pem = bytes(&asked, &VaultObject::Key(key)).unwrap();
    assert_eq!(parts(&pem)[0].0, "PUBLIC KEY");

    asked.kind = ObjectKind::Certificate;
    let certificate = |der: &[u8]| {
        let version = "v1".parse().unwrap();
        let attributes = attributes.clone();
        VaultObject::Certificate(VaultCertificate { version, attributes, der: der.to_vec() })
    };
    let pem = bytes(&asked, &certificate(&CHAIN.leaf)).unwrap();
    assert_eq!(parts(&pem), expected(None, &[&CHAIN.leaf]));
    assert!(matches!(bytes(&asked, &certificate(&[])), Err(ContentError::NoCertificate)));
}

/// Everything that a person could be shown of an error.
fn shown(error: &ContentError) -> String {
    let mut text = format!("{error:?} {:?}", error.hint());
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

proptest! {
    #[test]
    fn no_value_panics_or_shows_in_an_error(
        value in "\\PC{0,40}|[0-9a-f]{0,40}|[A-Za-z0-9+/]{0,40}",
        encoding in prop::option::of(prop::sample::select(ObjectEncoding::ALL.to_vec())),
        is_pfx: bool,
        content_type in prop::option::of(prop::sample::select(vec![PEM_FILE, PKCS12])),
        of_certificate: bool,
    ) {
        let planted = format!("{value}PLANTED{value}");
        let object = secret(&planted, content_type, of_certificate);
        let asked = entry(encoding, is_pfx.then_some(ObjectFormat::Pfx));
        if let Err(error) = bytes(&asked, &object) {
            prop_assert!(!shown(&error).contains("PLANTED"), "{}", shown(&error));
        }
        let printed = format!("{object:?}");
        prop_assert!(!printed.contains("PLANTED"), "{}", printed);
    }

    #[test]
    fn a_damaged_archive_never_panics(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), old: bool) {
        static ARCHIVES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
            [false, true].map(|old| STANDARD.decode(pfx(&[&CHAIN.leaf], old)).unwrap())
        });
        let mut archive = ARCHIVES[usize::from(old)].clone();
        for (place, byte) in places {
            let place = place.index(archive.len());
            archive[place] = byte;
        }
        let value = STANDARD.encode(&archive);
        drop(bytes(&entry(None, None), &certificate_secret(&value, PKCS12)));
    }
}
