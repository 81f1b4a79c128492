use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p12_keystore::{
    Certificate, EncryptionAlgorithm, KeyStore, KeyStoreEntry, MacAlgorithm, PrivateKey,
    PrivateKeyChain,
};
use pkcs5::der::asn1::ObjectIdentifier;
use pkcs5::scrypt;
use pkcs12::PKCS_12_SECRET_BAG_OID;
use pkcs12::cms::content_info::CmsVersion;
use pkcs12::cms::enveloped_data::EncryptedContentInfo;
use pkcs12::pfx::Version;
use pkcs12::safe_bag::SafeBag;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;

use super::*;
use crate::vault_fixture::KeyVaultFixture;

/// The iterations of the encryption in a file of [`written_file`], as DER.
const WRITTEN_ITERATIONS: [u8; 5] = [2, 3, 1, 0, 1];
/// 8,388,607 iterations, as DER of the same length.
const MANY_ITERATIONS: [u8; 5] = [2, 3, 0x7f, 0xff, 0xff];

/// A file with a key and its certificate, whose encryption and code have 65,537 iterations.
fn written_file(encryption: EncryptionAlgorithm) -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let certificate = Certificate::from_der(certificate.der()).unwrap();
    let key = PrivateKey::from_der(&key.serialize_der()).unwrap();
    let mut store = KeyStore::new();
    let chain = PrivateKeyChain::new(vec![1], key, [certificate]);
    store.add_entry("key", KeyStoreEntry::PrivateKeyChain(chain));
    let writer = store.writer("secret").encryption_algorithm(encryption);
    let writer = writer.mac_algorithm(MacAlgorithm::HmacSha256).mac_iterations(65_537);
    writer.encryption_iterations(65_537).write().unwrap()
}

fn octets(bytes: &[u8]) -> Any {
    Any::encode_from(&OctetString::new(bytes).unwrap()).unwrap()
}

fn data(bytes: &[u8]) -> ContentInfo {
    ContentInfo { content_type: ObjectIdentifier::new_unwrap(DATA), content: octets(bytes) }
}

/// A file without a code.
fn file(safes: &Vec<ContentInfo>) -> Vec<u8> {
    let auth_safe = data(&safes.to_der().unwrap());
    Pfx { version: Version::V3, auth_safe, mac_data: None }.to_der().unwrap()
}

fn algorithm(parameters: &pbes2::Parameters) -> AlgorithmIdentifierOwned {
    let parameters = Some(Any::encode_from(parameters).unwrap());
    AlgorithmIdentifierOwned { oid: pbes2::PBES2_OID, parameters }
}

fn encrypted(plain: &[u8]) -> ContentInfo {
    let parameters =
        pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(1_000, &[1; 16], [2; 16]).unwrap();
    let content = parameters.encrypt("secret", plain).unwrap();
    let content = EncryptedData {
        version: CmsVersion::V0,
        enc_content_info: EncryptedContentInfo {
            content_type: ObjectIdentifier::new_unwrap(DATA),
            content_enc_alg: algorithm(&parameters),
            encrypted_content: Some(OctetString::new(content).unwrap()),
        },
        unprotected_attrs: None,
    };
    ContentInfo {
        content_type: ObjectIdentifier::new_unwrap(ENCRYPTED_DATA),
        content: Any::encode_from(&content).unwrap(),
    }
}

/// The DER of bags that each contain an encrypted key, without a valid ciphertext.
fn key_bags(kind: ObjectIdentifier, parameters: &pbes2::Parameters, count: usize) -> Vec<u8> {
    let key = EncryptedPrivateKeyInfo {
        encryption_algorithm: algorithm(parameters),
        encrypted_data: OctetString::new([0; 16]).unwrap(),
    };
    let bag_value = key.to_der().unwrap();
    let bag = SafeBag { bag_id: kind, bag_value, bag_attributes: None };
    vec![bag; count].to_der().unwrap()
}

fn pbkdf2(iterations: u32) -> pbes2::Parameters {
    pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(iterations, &[1; 16], [2; 16]).unwrap()
}

#[test]
fn each_derivation_of_a_written_file_counts() {
    for (encryption, derivations) in [
        (EncryptionAlgorithm::PbeWithHmacSha256AndAes256, 3),
        (EncryptionAlgorithm::PbeWithShaAnd3KeyTripleDesCbc, 3),
        (EncryptionAlgorithm::PbeWithShaAnd40BitRc4Cbc, 3),
    ] {
        let file = written_file(encryption);
        assert_eq!(check_pkcs12_limits(&file, "secret"), Ok(()), "{encryption:?}");
        assert_eq!(check_pkcs12_limits(&file, "wrong"), Err(Pkcs12LimitError::Unreadable));
        let places: Vec<_> =
            (0..file.len()).filter(|at| file[*at..].starts_with(&WRITTEN_ITERATIONS)).collect();
        assert_eq!(places.len(), derivations, "{encryption:?}");
        for place in places {
            let mut changed = file.clone();
            changed[place..place + MANY_ITERATIONS.len()].copy_from_slice(&MANY_ITERATIONS);
            let found = check_pkcs12_limits(&changed, "secret");
            assert_eq!(found, Err(Pkcs12LimitError::Iterations), "{encryption:?}");
        }
    }
}

#[test]
fn parameters_are_read_before_the_work_also_within_encrypted_content() {
    let scrypt = scrypt::Params::new(20, 8, 1).unwrap();
    let scrypt = pbes2::Parameters::generate_scrypt_aes256cbc(scrypt, &[1; 16], [2; 16]).unwrap();
    let shrouded = PKCS_12_PKCS8_KEY_BAG_OID;
    for (bags, expected) in [
        (key_bags(shrouded, &pbkdf2(10_000), 32), Ok(())),
        (key_bags(shrouded, &pbkdf2(10_000), 33), Err(Pkcs12LimitError::Bags)),
        (key_bags(shrouded, &pbkdf2(500_000), 2), Ok(())),
        (key_bags(shrouded, &pbkdf2(500_000), 4), Err(Pkcs12LimitError::Iterations)),
        (key_bags(shrouded, &scrypt, 1), Err(Pkcs12LimitError::Scrypt)),
        (key_bags(PKCS_12_SECRET_BAG_OID, &scrypt, 1), Err(Pkcs12LimitError::UnexpectedBag)),
        (b"other".to_vec(), Err(Pkcs12LimitError::Unreadable)),
    ] {
        for safe in [data(&bags), encrypted(&bags)] {
            assert_eq!(check_pkcs12_limits(&file(&vec![safe]), "secret"), expected);
        }
    }
    let two = key_bags(shrouded, &pbkdf2(1_000), 20);
    let split = file(&vec![data(&two), encrypted(&two)]);
    assert_eq!(check_pkcs12_limits(&split, "secret"), Err(Pkcs12LimitError::Bags));
}

#[test]
fn import_of_a_file_above_the_limits_is_rejected_before_it_is_decrypted() {
    let visit = KeyVaultFixture::as_administrator();
    let scrypt = scrypt::Params::new(10, 8, 1).unwrap();
    let scrypt = pbes2::Parameters::generate_scrypt_aes256cbc(scrypt, &[1; 16], [2; 16]).unwrap();
    let shrouded = PKCS_12_PKCS8_KEY_BAG_OID;
    for (bags, expected) in [
        (key_bags(shrouded, &scrypt, 1), "can not be read: its keys are derived with scrypt."),
        (
            key_bags(shrouded, &pbkdf2(1_500_001), 1),
            "can not be read: its key derivations have more than 1500000 iterations.",
        ),
        (
            key_bags(shrouded, &pbkdf2(1_000), 33),
            "can not be read: it has more than 32 keys and certificates.",
        ),
    ] {
        for safe in [data(&bags), encrypted(&bags)] {
            let body = json!({ "value": STANDARD.encode(file(&vec![safe])), "pwd": "secret" });
            let (status, reply) = visit.ask("POST", "/certificates/web/import", &body);
            let message = reply["error"]["message"].as_str().unwrap();
            assert!(status == 400 && message.contains(expected), "{status}: {message}");
        }
    }
}
