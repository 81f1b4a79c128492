//! Fuzzes the credential document parser: any input is parsed or refused, and the printed result never
//! contains the secret.
#![no_main]

use lanyard_credential::document::CredentialDocument;
use libfuzzer_sys::fuzz_target;

/// The `client_secret` of the seeds, which is rare enough to be found in the output.
const SECRET_MARKER: &str = "c2VjcmV0LW1hcmtlcg";

fuzz_target!(|bytes: &[u8]| {
    let printed = match CredentialDocument::parse(bytes) {
        Ok(document) => format!("{document:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!printed.contains(SECRET_MARKER), "the secret was printed");
});
