use lanyard_clock::ErrorHint as _;

use super::*;
use crate::detected_format::DetectedInnerFormat;
use crate::fixture::{self, secret};

fn parse(files: &[&[u8]]) -> CertificateBundle {
    CertificateBundle::parse(&secret(files)).unwrap()
}

fn parse_error(files: &[&[u8]]) -> BundleError {
    CertificateBundle::parse(&secret(files)).unwrap_err()
}

fn subjects(bundle: &CertificateBundle) -> Vec<&str> {
    bundle.chain().iter().map(Certificate::subject).collect()
}

const LEAF: &str = "CN=throwaway.example";
const INTERMEDIATE: &str = "CN=Throwaway intermediate";
const ROOT: &str = "CN=Throwaway root";

#[test]
fn pem_is_read_with_either_form_of_rsa_key_before_or_after_the_certificate() {
    let orders: [&[&[u8]]; 4] = [
        &[fixture::LEAF_PKCS8, fixture::LEAF],
        &[fixture::LEAF, fixture::LEAF_PKCS8],
        &[fixture::LEAF_PKCS1, fixture::LEAF],
        &[fixture::LEAF, fixture::LEAF_PKCS1],
    ];
    for files in orders {
        let bundle = parse(files);
        assert_eq!(bundle.key_kind(), KeyKind::Rsa { bits: 2048 });
        assert_eq!(bundle.format(), BundleFormat::Pem);
        assert_eq!(subjects(&bundle), [LEAF]);
        assert_eq!(bundle.warnings(), []);
    }
}

#[test]
fn the_leaf_is_moved_to_the_front_and_the_others_keep_their_order() {
    let bundle = parse(&[fixture::LEAF_PKCS8, fixture::ROOT, fixture::INTERMEDIATE, fixture::LEAF]);
    assert_eq!(subjects(&bundle), [LEAF, ROOT, INTERMEDIATE]);
    assert_eq!(bundle.warnings(), [BundleWarning::LeafNotFirst]);

    let bundle = parse(&[fixture::LEAF_PKCS8, fixture::INTERMEDIATE, fixture::LEAF, fixture::ROOT]);
    assert_eq!(subjects(&bundle), [LEAF, INTERMEDIATE, ROOT]);
}

#[test]
fn text_around_the_sections_may_be_long_and_in_any_encoding() {
    let preamble =
        [&b"Bag Attributes\n    friendlyName: cl\xE9\n"[..], &b"x\n".repeat(4_000)].concat();
    let bundle = parse(&[&preamble, fixture::LEAF_PKCS8, &preamble, fixture::LEAF]);
    assert_eq!(subjects(&bundle), [LEAF]);
    assert_eq!(bundle.warnings(), []);
}

#[test]
fn first_of_two_certificates_for_one_key_is_the_leaf() {
    let bundle = parse(&[fixture::LEAF_PKCS8, fixture::LEAF_RENEWED, fixture::LEAF]);
    let renewed = parse(&[fixture::LEAF_PKCS8, fixture::LEAF_RENEWED]);
    assert_eq!(bundle.leaf(), renewed.leaf());
    assert_eq!(bundle.warnings(), [BundleWarning::SeveralLeaves]);
}

#[test]
fn a_repeated_certificate_is_kept_once() {
    let bundle = parse(&[fixture::LEAF_PKCS8, fixture::LEAF, fixture::LEAF, fixture::INTERMEDIATE]);
    assert_eq!(subjects(&bundle), [LEAF, INTERMEDIATE]);
    assert_eq!(bundle.warnings(), [BundleWarning::RepeatedCertificate]);
}

#[test]
fn keys_and_certificates_must_belong_together() {
    assert_eq!(
        parse_error(&[fixture::OTHER_PKCS8, fixture::LEAF, fixture::INTERMEDIATE]),
        BundleError::KeyMatchesNoCertificate { certificates: 2 }
    );
    assert_eq!(
        parse_error(&[fixture::LEAF_PKCS8, fixture::LEAF, fixture::OTHER_PKCS8, fixture::OTHER]),
        BundleError::SeveralPrivateKeys { count: 2 }
    );
    assert_eq!(parse_error(&[fixture::LEAF]), BundleError::NoPrivateKey);
    assert_eq!(parse_error(&[fixture::LEAF_PKCS8]), BundleError::NoCertificate);
}

#[test]
fn ec_keys_are_read_in_both_forms() {
    let parameters =
        b"-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    let forms: [&[&[u8]]; 3] = [
        &[fixture::EC_PKCS8, fixture::EC],
        &[fixture::EC_SEC1, fixture::EC],
        &[parameters, fixture::EC_SEC1, fixture::EC],
    ];
    for files in forms {
        let bundle = parse(files);
        assert_eq!(bundle.key_kind(), KeyKind::Ec { curve: Curve::P256 });
        assert_eq!(subjects(&bundle), ["CN=ec.example"]);
        assert_eq!(bundle.warnings(), []);
    }
}

#[test]
fn unsupported_private_keys_are_rejected_by_algorithm() {
    assert_eq!(
        parse_error(&[fixture::ED25519_PKCS8, fixture::ED25519]),
        BundleError::Key(KeyError::UnsupportedAlgorithm { algorithm: "Ed25519" })
    );
    assert_eq!(
        parse_error(&[fixture::SHORT_PKCS8, fixture::SHORT]),
        BundleError::Key(KeyError::RsaRefused { reason: "shorter than 2048 bits" })
    );
}

#[test]
fn malformed_keys_are_reported_by_their_pem_label() {
    let labelled = |label: &str| {
        format!("-----BEGIN {label}-----\nAQID\n-----END {label}-----\n").into_bytes()
    };
    let cases = [
        ("PRIVATE KEY", KeyError::Malformed { form: "PKCS#8" }),
        ("EC PRIVATE KEY", KeyError::Malformed { form: "SEC1" }),
        ("RSA PRIVATE KEY", KeyError::RsaRefused { reason: "not a valid rsa key" }),
    ];
    for (label, error) in cases {
        let rejection = parse_error(&[&labelled(label), fixture::LEAF]);
        assert_eq!(rejection, BundleError::Key(error), "{label}");
    }
}

#[test]
fn encrypted_key_is_reported_as_encrypted() {
    for key in [fixture::LEAF_ENCRYPTED, fixture::LEAF_PROC_TYPE] {
        let error = parse_error(&[key, fixture::LEAF]);
        assert_eq!(error, BundleError::EncryptedPrivateKey);
        assert!(error.hint().unwrap().contains("without a passphrase"), "{:?}", error.hint());
    }
}

#[cfg(feature = "pkcs12")]
#[test]
fn pkcs12_is_read_in_old_and_new_profiles() {
    let archives = [
        ("RC2-40, 3DES, SHA-1", fixture::PFX_OLD_RC2, false),
        ("3DES, SHA-1", fixture::PFX_OLD_3DES, false),
        ("AES-256, SHA-256", fixture::PFX_AES_SHA256, true),
        ("AES-256, SHA-1", fixture::PFX_AES_SHA1, true),
        ("no encryption, no MAC", fixture::PFX_PLAIN, false),
    ];
    let expected = parse(&[fixture::LEAF_PKCS8, fixture::LEAF]);
    for (profile, archive, modern) in archives {
        let bundle = CertificateBundle::parse(&secret(&[archive]))
            .unwrap_or_else(|error| panic!("{profile}: {error:?}"));
        assert_eq!(bundle.format(), BundleFormat::Pkcs12, "{profile}");
        assert_eq!(bundle.key_kind(), KeyKind::Rsa { bits: 2048 }, "{profile}");
        assert_eq!(bundle.leaf(), expected.leaf(), "{profile}");
        assert_eq!(subjects(&bundle), [LEAF, INTERMEDIATE, ROOT], "{profile}");
        let warned = bundle.warnings().contains(&BundleWarning::ModernPkcs12);
        assert_eq!(warned, modern, "{profile}");
    }
}

#[cfg(feature = "pkcs12")]
#[test]
fn password_protected_pkcs12_needs_the_password() {
    let archive = secret(&[fixture::PFX_PASSWORD]);
    let open = |password: Option<&str>| {
        let password = password.map(SecretText::from);
        CertificateBundle::parse_with_password(&archive, password.as_ref())
    };
    assert_eq!(open(None).unwrap_err(), BundleError::Pkcs12(Pkcs12Error::PasswordNeeded));
    assert_eq!(open(Some("wrong")).unwrap_err(), BundleError::Pkcs12(Pkcs12Error::WrongPassword));
    assert_eq!(subjects(&open(Some("throwaway")).unwrap()), [LEAF, INTERMEDIATE, ROOT]);
}

#[cfg(feature = "pkcs12")]
#[test]
fn a_damaged_archive_is_refused() {
    let whole = fixture::PFX_AES_SHA256;
    assert_eq!(
        parse_error(&[&whole[..whole.len() / 2]]),
        BundleError::Pkcs12(Pkcs12Error::Malformed)
    );
}

#[cfg(not(feature = "pkcs12"))]
#[test]
fn pkcs12_says_that_it_is_not_built_in() {
    assert_eq!(refuse(&[fixture::PFX_AES_SHA256]), BundleError::Pkcs12(Pkcs12Error::NotBuiltIn));
}

#[test]
fn base64_variants_are_accepted_with_warnings() {
    // Plain PEM contains neither of the two characters in which the alphabets differ.
    let text = fixture::client_secret(&[b">>>???\n", fixture::LEAF_PKCS8, fixture::LEAF]);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let url: String = text.replace('+', "-").replace('/', "_");
    assert!(text.ends_with('='), "the case without padding needs a padded text");
    assert_ne!(url, text, "the case of the url alphabet needs a character that differs");
    let cases: [(String, &[BundleWarning]); 4] = [
        (text.clone(), &[]),
        (lines.join("\n"), &[BundleWarning::Base64LineBreaks]),
        (text.trim_end_matches('=').to_owned(), &[BundleWarning::Base64Unpadded]),
        (url, &[BundleWarning::Base64UrlAlphabet]),
    ];
    for (text, warnings) in cases {
        let bundle = CertificateBundle::parse(&text.into()).unwrap();
        assert_eq!(subjects(&bundle), [LEAF]);
        assert_eq!(bundle.warnings(), warnings);
    }
}

#[test]
fn wrong_encodings_are_reported_by_format() {
    let pem = String::from_utf8([fixture::LEAF_PKCS8, fixture::LEAF].concat()).unwrap();
    let base64 = fixture::client_secret(&[pem.as_bytes()]);
    let twice = fixture::client_secret(&[base64.as_bytes()]);
    let refuse = |text: &str| CertificateBundle::parse(&text.into()).unwrap_err();

    let error = refuse(&pem);
    assert_eq!(error, BundleError::PemNotEncoded);
    assert!(error.hint().unwrap().contains("base64-encode"));

    let error = refuse(&twice);
    assert_eq!(
        error,
        BundleError::NotABundle { looks_like: DetectedFormat::Base64(DetectedInnerFormat::Pem) }
    );
    assert!(error.hint().unwrap().contains("twice"));

    assert_eq!(refuse(""), BundleError::Empty);
    let json = fixture::client_secret(&[b"{\"a\":1}"]);
    assert_eq!(refuse(&json), BundleError::NotABundle { looks_like: DetectedFormat::JsonObject });

    let joined = pem.replace('\n', " ");
    let error = refuse(&fixture::client_secret(&[joined.as_bytes()]));
    assert_eq!(error, BundleError::Pem(PemError::LineBreaksLost { section: 1 }));
}

#[test]
fn debug_shows_the_thumbprint_and_nothing_of_the_key() {
    let bundle = parse(&[fixture::LEAF_PKCS8, fixture::LEAF]);
    let shown = format!("{bundle:?}");
    assert_eq!(shown, format!("CertificateBundle(*** {})", bundle.leaf().sha256()));
    assert_eq!(format!("{:?}", bundle.key()), "PrivateKey(***)");
}
