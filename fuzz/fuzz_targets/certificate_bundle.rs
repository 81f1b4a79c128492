//! Fuzzes the certificate bundle parsers, PEM and PKCS#12: the input is the text of `client_secret`, or the
//! bytes within its base64.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_credential::ErrorHint as _;
use lanyard_credential::bundle::CertificateBundle;
use lanyard_credential::secret::SecretText;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_bundle(&SecretText::from(text));
    }
    check_bundle(&SecretText::from(STANDARD.encode(bytes)));
});

fn check_bundle(client_secret: &SecretText) {
    match CertificateBundle::parse(client_secret) {
        Ok(bundle) => {
            assert!(!bundle.chain().is_empty(), "a bundle has a leaf");
            let printed = format!("{bundle:?}");
            assert!(!printed.contains("PRIVATE KEY"), "the key was printed");
        }
        Err(error) => {
            let printed = format!("{error} {error:?} {:?}", error.hint());
            assert!(printed.len() < 4096, "an error repeats its input");
        }
    }
}
