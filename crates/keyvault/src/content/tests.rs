use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_api::VaultObjectKind;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey,
    PrivateKeyChain,
};
use proptest::prelude::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::*;
use crate::memory::max_decoding_bytes;
use crate::pem::{PRIVATE_KEY, parse_blocks};
use crate::public_key::PublicJwk;
use crate::source::{FetchedCertificate, FetchedKey, ObjectAttributes};

/// A leaf, an intermediate and a root in DER, and the leaf's key as PKCS#8.
struct CertificateChainFixture {
    leaf: Vec<u8>,
    intermediate: Vec<u8>,
    root: Vec<u8>,
    key: Vec<u8>,
}

static CHAIN: LazyLock<CertificateChainFixture> = LazyLock::new(|| certificate_chain(true));

/// Creates a chain whose certificates have subject and authority key identifiers, or none.
fn certificate_chain(with_key_ids: bool) -> CertificateChainFixture {
    let params = |name: &str, authority: bool| {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = with_key_ids;
        if authority && with_key_ids {
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
    CertificateChainFixture {
        leaf: leaf.der().to_vec(),
        intermediate: middle.der().to_vec(),
        root: root.der().to_vec(),
        key: leaf_key.serialize_der(),
    }
}

/// An archive with the leaf's key and these certificates, as the value of a secret.
fn encode_archive(certificates: &[&[u8]], old: bool) -> String {
    encode_archive_of(&CHAIN.key, certificates, old)
}

/// An archive whose chain lacks the intermediate, as the value of a secret.
pub(crate) fn archive_with_incomplete_chain() -> String {
    encode_archive(&[&CHAIN.root, &CHAIN.leaf], false)
}

/// An archive with a complete chain and its root once more, as the value of a secret.
pub(crate) fn archive_with_repeated_root() -> String {
    encode_archive(&[&CHAIN.root, &CHAIN.intermediate, &CHAIN.leaf, &CHAIN.root], false)
}

fn encode_archive_of(key: &[u8], certificates: &[&[u8]], old: bool) -> String {
    let certificates = certificates.iter().map(|der| Certificate::from_der(der).unwrap());
    let key = PrivateKey::from_der(key).unwrap();
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

fn vault_secret(
    value: &str,
    content_type: Option<&str>,
    of_certificate: bool,
) -> FetchedVaultObject {
    FetchedVaultObject::Secret(FetchedSecret {
        version: "v1".parse().unwrap(),
        attributes: ObjectAttributes::default(),
        content_type: content_type.map(str::to_owned),
        is_certificate_secret: of_certificate,
        value: value.to_owned().into(),
    })
}

fn certificate_vault_secret(value: &str, content_type: &str) -> FetchedVaultObject {
    vault_secret(value, Some(content_type), true)
}

fn secret_entry(
    encoding: Option<ObjectEncoding>,
    format: Option<VaultObjectFormat>,
) -> VaultObjectEntry {
    VaultObjectEntry { format, ..VaultObjectEntry::secret("name".parse().unwrap(), encoding) }
}

fn decoded_bytes(
    entry: &VaultObjectEntry,
    object: &FetchedVaultObject,
) -> Result<Vec<u8>, ContentError> {
    let content = decode_content(entry, object, CertificateFileOptions::default())?;
    Ok(content.bytes.expose().to_vec())
}

/// The labels and bytes of a PEM text.
fn pem_blocks(pem: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text = std::str::from_utf8(pem).unwrap();
    let part = |block: &crate::pem::PemBlock<'_>| {
        let body: String = block.text.lines().filter(|line| !line.starts_with('-')).collect();
        (block.label.to_owned(), STANDARD.decode(body).unwrap())
    };
    parse_blocks(text).iter().map(part).collect()
}

fn expected_blocks(key: Option<&[u8]>, certificates: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
    let key = key.map(|key| (PRIVATE_KEY.to_owned(), key.to_vec()));
    let certificates = certificates.iter().map(|der| (CERTIFICATE.to_owned(), der.to_vec()));
    key.into_iter().chain(certificates).collect()
}

const UTF8: Option<ObjectEncoding> = Some(ObjectEncoding::Utf8);
const HEX: Option<ObjectEncoding> = Some(ObjectEncoding::Hex);
const BASE64: Option<ObjectEncoding> = Some(ObjectEncoding::Base64);
const PFX: Option<VaultObjectFormat> = Some(VaultObjectFormat::Pfx);

#[test]
fn plain_secret_is_decoded_regardless_of_content_type() {
    for content_type in [None, Some("text/plain"), Some(PKCS12)] {
        for format in [None, PFX] {
            let read = |encoding, value| {
                decoded_bytes(
                    &secret_entry(encoding, format),
                    &vault_secret(value, content_type, false),
                )
                .unwrap()
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
    let error =
        decoded_bytes(&secret_entry(HEX, None), &vault_secret(json, None, false)).unwrap_err();
    assert_eq!(error.to_string(), "the value is not hex");
    let hint = error.hint().unwrap();
    assert_eq!(hint, "the value looks like utf-8: set objectEncoding to `utf-8`");
}

#[test]
fn pem_certificate_secret_is_unchanged() {
    let pem = "subject=x\n-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----";
    for content_type in [PEM_FILE, " Application/X-PEM-File "] {
        for format in [None, Some(VaultObjectFormat::Pem)] {
            let object = certificate_vault_secret(pem, content_type);
            assert_eq!(
                decoded_bytes(&secret_entry(None, format), &object).unwrap(),
                pem.as_bytes()
            );
        }
    }
    let error =
        decoded_bytes(&secret_entry(BASE64, None), &certificate_vault_secret(pem, PEM_FILE))
            .unwrap_err();
    assert!(error.hint().unwrap().contains("`utf-8`"));
}

#[test]
fn pfx_format_of_a_pem_certificate_is_rejected_with_any_encoding() {
    let pem = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    for content_type in [PEM_FILE, " Application/X-PEM-File "] {
        for encoding in [None, UTF8, BASE64, HEX] {
            let object = certificate_vault_secret(pem, content_type);
            let error = decoded_bytes(&secret_entry(encoding, PFX), &object).unwrap_err();
            let text = "`objectFormat: pfx` asks for PKCS#12, and the certificate's secret has the content \
                        type `application/x-pem-file`";
            assert_eq!(error.to_string(), text);
            assert!(error.hint().unwrap().contains("`application/x-pkcs12`"));
        }
    }
}

#[test]
fn archive_with_any_cipher_becomes_key_and_ordered_chain() {
    let chain = &*CHAIN;
    let vault_order: [&[u8]; 3] = [&chain.root, &chain.leaf, &chain.intermediate];
    for old in [false, true] {
        let object = certificate_vault_secret(&encode_archive(&vault_order, old), PKCS12);
        // The value is base64 in any case, so the encoding has no effect.
        for encoding in [None, UTF8, BASE64] {
            let pem = decoded_bytes(&secret_entry(encoding, None), &object).unwrap();
            let ordered: [&[u8]; 3] = [&chain.leaf, &chain.intermediate, &chain.root];
            assert_eq!(
                pem_blocks(&pem),
                expected_blocks(Some(&chain.key), &ordered),
                "{old} {encoding:?}"
            );
            let text = String::from_utf8(pem).unwrap();
            assert!(!text.contains("friendly") && text.ends_with("-----END CERTIFICATE-----\n"));
        }
        let options = CertificateFileOptions { construct_pem_chain: false, ..Default::default() };
        let content = decode_content(&secret_entry(None, None), &object, options).unwrap();
        assert_eq!(
            pem_blocks(content.bytes.expose()),
            expected_blocks(Some(&chain.key), &vault_order)
        );
    }
}

#[test]
fn chain_without_key_ids_is_ordered_by_names() {
    let chain = certificate_chain(false);
    let archive_order: [&[u8]; 3] = [&chain.root, &chain.intermediate, &chain.leaf];
    let value = encode_archive_of(&chain.key, &archive_order, false);
    let object = certificate_vault_secret(&value, PKCS12);
    let content =
        decode_content(&secret_entry(None, None), &object, CertificateFileOptions::default())
            .unwrap();
    let ordered: [&[u8]; 3] = [&chain.leaf, &chain.intermediate, &chain.root];
    assert_eq!(pem_blocks(content.bytes.expose()), expected_blocks(Some(&chain.key), &ordered));
    assert_eq!(content.unlinked, None);
}

#[test]
fn certificates_outside_the_chain_follow_in_their_order_and_are_reported() {
    type ChainCase<'a> = (&'a [&'a [u8]], &'a [&'a [u8]], usize, bool);
    let (chain, other) = (&*CHAIN, certificate_chain(true));
    let cases: [ChainCase<'_>; 3] = [
        (&[&chain.root, &chain.leaf], &[&chain.leaf, &chain.root], 1, false),
        // The leaf is the certificate of the key, although two certificates issued no other.
        (
            &[&other.leaf, &chain.intermediate, &chain.leaf],
            &[&chain.leaf, &chain.intermediate, &other.leaf],
            2,
            false,
        ),
        (
            &[&chain.root, &chain.leaf, &chain.root, &chain.intermediate],
            &[&chain.leaf, &chain.intermediate, &chain.root, &chain.root],
            3,
            true,
        ),
    ];
    for (archive_order, file_order, linked, ends_with_root) in cases {
        let count = archive_order.len();
        let unlinked = Some(UnlinkedCertificates { linked, count, ends_with_root });
        let object = certificate_vault_secret(&encode_archive(archive_order, false), PKCS12);
        let content =
            decode_content(&secret_entry(None, None), &object, CertificateFileOptions::default())
                .unwrap();
        let expected = expected_blocks(Some(&chain.key), file_order);
        assert_eq!(pem_blocks(content.bytes.expose()), expected);
        assert_eq!(content.unlinked, unlinked);
        // The archive itself is mounted, and the chain is in a file next to it.
        let options = CertificateFileOptions { write_separate_files: true, ..Default::default() };
        let content = decode_content(&secret_entry(None, PFX), &object, options).unwrap();
        let certificates = content.separate_files.unwrap().certificates;
        assert_eq!(pem_blocks(certificates.expose()), expected_blocks(None, file_order));
        assert_eq!(content.unlinked, unlinked);
    }
}

#[test]
fn pfx_format_keeps_the_archive_as_base64_or_bytes() {
    let value = encode_archive(&[&CHAIN.leaf], true);
    let object = certificate_vault_secret(&value, PKCS12);
    assert_eq!(decoded_bytes(&secret_entry(None, PFX), &object).unwrap(), value.as_bytes());
    let raw = STANDARD.decode(&value).unwrap();
    assert_eq!(decoded_bytes(&secret_entry(BASE64, PFX), &object).unwrap(), raw);
    // The archive is not opened.
    let object = certificate_vault_secret("bm90IGFuIGFyY2hpdmU=", PKCS12);
    assert!(decoded_bytes(&secret_entry(None, PFX), &object).is_ok());
}

#[test]
fn only_the_conversion_of_an_archive_reserves_memory_for_its_certificates() {
    let cases = [
        (PEM_FILE, None, false, 8),
        (PEM_FILE, None, true, 8),
        (PKCS12, None, false, 64),
        (PKCS12, PFX, false, 8),
        (PKCS12, PFX, true, 64),
    ];
    for (content_type, format, write_separate_files, factor) in cases {
        let (entry, object) =
            (secret_entry(None, format), certificate_vault_secret("value", content_type));
        let options = CertificateFileOptions { write_separate_files, ..Default::default() };
        let converts_archive = converts_archive(&entry, &object, options);
        let bytes = max_decoding_bytes(&entry, &object, converts_archive);
        assert_eq!(bytes, 5 * factor + 1024, "{content_type} {format:?} {write_separate_files}");
    }
}

#[test]
fn hex_encoding_of_an_archive_is_rejected() {
    let object = certificate_vault_secret(&encode_archive(&[&CHAIN.leaf], false), PKCS12);
    for format in [None, PFX] {
        let error = decoded_bytes(&secret_entry(HEX, format), &object).unwrap_err();
        assert!(matches!(error, ContentError::EncodingMismatch { .. }), "{error}");
    }
}

#[test]
fn an_unknown_or_missing_content_type_of_a_certificates_secret_is_an_error() {
    let error =
        decoded_bytes(&secret_entry(None, None), &certificate_vault_secret("x", "text/plain"))
            .unwrap_err();
    let text = "a certificate's secret has the unknown content type `text/plain`";
    assert_eq!(error.to_string(), text);
    let error =
        decoded_bytes(&secret_entry(None, None), &vault_secret("x", None, true)).unwrap_err();
    assert_eq!(error.to_string(), "a certificate's secret has no content type");
    assert!(error.hint().is_some());
}

#[test]
fn separate_certificate_and_key_files_are_written_when_enabled() {
    let chain = &*CHAIN;
    let object = certificate_vault_secret(
        &encode_archive(&[&chain.intermediate, &chain.leaf], false),
        PKCS12,
    );
    let options = CertificateFileOptions { write_separate_files: true, ..Default::default() };
    for format in [None, PFX] {
        let content = decode_content(&secret_entry(None, format), &object, options).unwrap();
        let separate_files = content.separate_files.unwrap();
        let ordered: [&[u8]; 2] = [&chain.leaf, &chain.intermediate];
        assert_eq!(
            pem_blocks(separate_files.certificates.expose()),
            expected_blocks(None, &ordered)
        );
        assert_eq!(
            pem_blocks(separate_files.other_blocks.expose()),
            expected_blocks(Some(&chain.key), &[])
        );
    }
    let plain = decode_content(&secret_entry(None, None), &vault_secret("x", None, false), options)
        .unwrap();
    assert!(plain.separate_files.is_none());
}

#[test]
fn broken_archive_and_password_protected_archive_are_distinguished() {
    let error = decoded_bytes(&secret_entry(None, None), &certificate_vault_secret("%%%", PKCS12))
        .unwrap_err();
    assert!(matches!(error, ContentError::UnreadablePfx(PfxError::NotBase64)));
    let error = decoded_bytes(&secret_entry(None, None), &certificate_vault_secret("AQID", PKCS12))
        .unwrap_err();
    assert!(matches!(error, ContentError::UnreadablePfx(PfxError::UnreadableArchive { .. })));
    assert!(error.hint().unwrap().starts_with("export the archive again"));
}

#[test]
fn key_and_certificate_become_one_pem_block() {
    let attributes = ObjectAttributes::default();
    let key = PublicJwk::Rsa { modulus: vec![0xc0; 256], exponent: vec![1, 0, 1] };
    let key = FetchedKey { version: "v1".parse().unwrap(), attributes: attributes.clone(), key };
    let mut asked = secret_entry(None, None);
    asked.kind = VaultObjectKind::Key;
    let pem = decoded_bytes(&asked, &FetchedVaultObject::Key(key)).unwrap();
    assert_eq!(pem_blocks(&pem)[0].0, "PUBLIC KEY");

    asked.kind = VaultObjectKind::Certificate;
    let certificate = |der: &[u8]| {
        let version = "v1".parse().unwrap();
        let attributes = attributes.clone();
        FetchedVaultObject::Certificate(FetchedCertificate {
            version,
            attributes,
            der: der.to_vec(),
        })
    };
    let pem = decoded_bytes(&asked, &certificate(&CHAIN.leaf)).unwrap();
    assert_eq!(pem_blocks(&pem), expected_blocks(None, &[&CHAIN.leaf]));
    assert!(matches!(decoded_bytes(&asked, &certificate(&[])), Err(ContentError::NoCertificate)));
}

/// All text that an error displays.
fn error_text(error: &ContentError) -> String {
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
    fn decoding_never_panics_and_errors_do_not_quote_the_value(
        value in "\\PC{0,40}|[0-9a-f]{0,40}|[A-Za-z0-9+/]{0,40}",
        encoding in prop::option::of(prop::sample::select(ObjectEncoding::ALL.to_vec())),
        is_pfx: bool,
        content_type in prop::option::of(prop::sample::select(vec![PEM_FILE, PKCS12])),
        of_certificate: bool,
    ) {
        let planted = format!("{value}PLANTED{value}");
        let object = vault_secret(&planted, content_type, of_certificate);
        let asked = secret_entry(encoding, is_pfx.then_some(VaultObjectFormat::Pfx));
        if let Err(error) = decoded_bytes(&asked, &object) {
            prop_assert!(!error_text(&error).contains("PLANTED"), "{}", error_text(&error));
        }
        let printed = format!("{object:?}");
        prop_assert!(!printed.contains("PLANTED"), "{}", printed);
    }

    #[test]
    fn a_damaged_archive_never_panics(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), old: bool) {
        static ARCHIVES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
            [false, true].map(|old| STANDARD.decode(encode_archive(&[&CHAIN.leaf], old)).unwrap())
        });
        let mut archive = ARCHIVES[usize::from(old)].clone();
        for (place, byte) in places {
            let place = place.index(archive.len());
            archive[place] = byte;
        }
        let value = STANDARD.encode(&archive);
        drop(decoded_bytes(&secret_entry(None, None), &certificate_vault_secret(&value, PKCS12)));
    }
}
