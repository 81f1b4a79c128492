use der::asn1::{Any, OctetString};
use der::{Encode, EncodeValue, Tagged};
use lanyard_clock::ErrorHint as _;
use pkcs5::pbes2;
use pkcs12::cms::cert::x509::spki::AlgorithmIdentifierOwned;
use pkcs12::cms::content_info::CmsVersion;
use pkcs12::cms::enveloped_data::EncryptedContentInfo;
use pkcs12::pbe_params::Pkcs12PbeParams;
use pkcs12::pfx::Version;
use pkcs12::{DigestInfo, PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC};

use super::read_limits::{MAX_ARCHIVE_BYTES, MAX_ELEMENTS, MAX_ITERATIONS};
use super::*;

fn any(value: &(impl EncodeValue + Tagged)) -> Any {
    Any::encode_from(value).unwrap()
}

fn octet_string(bytes: impl Into<Box<[u8]>>) -> OctetString {
    OctetString::new(bytes).unwrap()
}

fn archive(parts: &[ContentInfo], mac_iterations: Option<i32>) -> Vec<u8> {
    let content = any(&octet_string(parts.to_vec().to_der().unwrap()));
    let algorithm = AlgorithmIdentifierOwned { oid: SHA_256, parameters: None };
    let mac_data = mac_iterations.map(|iterations| MacData {
        mac: DigestInfo { algorithm, digest: octet_string([0; 32]) },
        mac_salt: octet_string([0; 8]),
        iterations,
    });
    let auth_safe = ContentInfo { content_type: DATA, content };
    Pfx { version: Version::V3, auth_safe, mac_data }.to_der().unwrap()
}

fn plain_part(bags: &[SafeBag]) -> ContentInfo {
    let content = any(&octet_string(bags.to_vec().to_der().unwrap()));
    ContentInfo { content_type: DATA, content }
}

fn encrypted_part(encryption: AlgorithmIdentifierOwned, bytes: Vec<u8>) -> ContentInfo {
    let content = any(&EncryptedData {
        version: CmsVersion::V0,
        enc_content_info: EncryptedContentInfo {
            content_type: DATA,
            content_enc_alg: encryption,
            encrypted_content: Some(octet_string(bytes)),
        },
        unprotected_attrs: None,
    });
    ContentInfo { content_type: ENCRYPTED_DATA, content }
}

fn encrypted_key(encryption: AlgorithmIdentifierOwned) -> SafeBag {
    let value = EncryptedPrivateKeyInfo {
        encryption_algorithm: encryption,
        encrypted_data: octet_string([0; 16]),
    };
    SafeBag {
        bag_id: PKCS_12_PKCS8_KEY_BAG_OID,
        bag_value: value.to_der().unwrap(),
        bag_attributes: None,
    }
}

fn pbkdf2_parameters(iterations: u32) -> pbes2::Parameters {
    pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(iterations, &[0; 8], [0; 16]).unwrap()
}

fn algorithm(parameters: &pbes2::Parameters) -> AlgorithmIdentifierOwned {
    AlgorithmIdentifierOwned { oid: encryption::PBES2, parameters: Some(any(parameters)) }
}

fn pbkdf2(iterations: u32) -> AlgorithmIdentifierOwned {
    algorithm(&pbkdf2_parameters(iterations))
}

fn scrypt() -> AlgorithmIdentifierOwned {
    let cost = pkcs5::scrypt::Params::new(20, 8, 1).unwrap();
    algorithm(&pbes2::Parameters::generate_scrypt_aes256cbc(cost, &[0; 8], [0; 16]).unwrap())
}

fn triple_des(iterations: i32) -> AlgorithmIdentifierOwned {
    let parameters = Pkcs12PbeParams { salt: octet_string([0; 8]), iterations };
    let oid = PKCS_12_PBE_WITH_SHAAND3_KEY_TRIPLE_DES_CBC;
    AlgorithmIdentifierOwned { oid, parameters: Some(any(&parameters)) }
}

/// A part with these bags, which really is encrypted, with the empty password.
fn encrypted_bags(bags: &[SafeBag]) -> ContentInfo {
    let parameters = pbkdf2_parameters(1);
    let bytes = parameters.encrypt("", &bags.to_vec().to_der().unwrap()).unwrap();
    encrypted_part(algorithm(&parameters), bytes)
}

fn open_error(archive: &[u8]) -> Pkcs12Error {
    let error = Pkcs12Archive::open(archive, None).unwrap_err();
    assert!(error.hint().is_some());
    error
}

/// The cost of scrypt here is 1 GiB of memory. The archive has 163 bytes.
#[test]
fn scrypt_is_rejected_in_every_place() {
    let part = encrypted_part(scrypt(), vec![0; 16]);
    assert_eq!(archive(std::slice::from_ref(&part), None).len(), 163);
    for part in
        [part, plain_part(&[encrypted_key(scrypt())]), encrypted_bags(&[encrypted_key(scrypt())])]
    {
        assert_eq!(open_error(&archive(&[part], None)), Pkcs12Error::Scrypt);
    }
}

#[test]
fn iterations_of_all_key_derivations_count_together() {
    let max = i32::try_from(MAX_ITERATIONS).unwrap();
    let half = MAX_ITERATIONS / 2;
    let part = |encryption| encrypted_part(encryption, vec![0; 16]);
    let too_many = [
        archive(&[], Some(max + 1)),
        archive(&[], Some(i32::MAX)),
        archive(&[part(triple_des(max + 1))], None),
        archive(&[part(pbkdf2(MAX_ITERATIONS + 1))], None),
        archive(&[part(pbkdf2(half)), part(pbkdf2(half)), part(pbkdf2(1))], None),
        archive(&[part(pbkdf2(half)), part(pbkdf2(half))], Some(1)),
        archive(&[plain_part(&[encrypted_key(pbkdf2(MAX_ITERATIONS + 1))])], None),
        // The derivations within an encrypted part count, too.
        archive(&[encrypted_bags(&[encrypted_key(triple_des(max))])], None),
    ];
    for archive in too_many {
        assert_eq!(open_error(&archive), Pkcs12Error::TooManyIterations { limit: MAX_ITERATIONS });
    }
    for archive in [archive(&[], Some(-1)), archive(&[part(triple_des(-1))], None)] {
        assert_eq!(open_error(&archive), Pkcs12Error::Malformed);
    }
}

/// The defaults of Bouncy Castle: 102,400 iterations for the MAC, and 51,200 each for a key and for certificates. The
/// password is wrong, as the limits are checked first.
#[test]
fn iterations_of_bouncy_castle_are_accepted() {
    let part = encrypted_part(pbkdf2(51_200), vec![0; 16]);
    let archive = archive(&[part.clone(), part], Some(102_400));
    assert_eq!(open_error(&archive), Pkcs12Error::PasswordNeeded);
}

#[test]
fn number_of_parts_and_bags_is_limited() {
    let bag = || SafeBag {
        bag_id: X509_CERTIFICATE,
        bag_value: any(&octet_string([])).to_der().unwrap(),
        bag_attributes: None,
    };
    let bags = |count: usize| std::iter::repeat_with(bag).take(count).collect::<Vec<_>>();
    // The part counts as well.
    let most = archive(&[plain_part(&bags(MAX_ELEMENTS - 1))], None);
    assert!(Pkcs12Archive::open(&most, None).unwrap().keys.is_empty());
    let rejected = [
        archive(&[plain_part(&bags(MAX_ELEMENTS))], None),
        archive(&[encrypted_bags(&bags(MAX_ELEMENTS))], None),
        archive(&vec![plain_part(&[]); MAX_ELEMENTS + 1], None),
    ];
    for archive in rejected {
        assert_eq!(open_error(&archive), Pkcs12Error::TooManyBags { limit: MAX_ELEMENTS });
    }
}

#[test]
fn size_of_an_archive_is_limited() {
    let bytes = MAX_ARCHIVE_BYTES + 1;
    assert_eq!(
        open_error(&vec![0x30; bytes]),
        Pkcs12Error::TooLarge { bytes, limit: MAX_ARCHIVE_BYTES }
    );
    assert_eq!(open_error(&vec![0x30; bytes - 1]), Pkcs12Error::Malformed);
}

#[test]
fn debug_output_of_an_archive_has_no_key() {
    let archive = Pkcs12Archive::open(crate::fixture::PFX_PLAIN, None).unwrap();
    assert_eq!(format!("{archive:?}"), "Pkcs12Archive(1 keys ***, 3 certificates)");
}
