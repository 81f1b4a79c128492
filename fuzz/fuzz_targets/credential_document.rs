//! The credential document: any bytes are read or refused, and nothing that is printed about
//! them holds the secret.
#![no_main]

use lanyard_credential::document::CredentialDocument;
use libfuzzer_sys::fuzz_target;

/// Stands in the seeds as `client_secret`, and is rare enough to be looked for.
const SECRET_MARKER: &str = "c2VjcmV0LW1hcmtlcg";

fuzz_target!(|bytes: &[u8]| {
    let printed = match CredentialDocument::parse(bytes) {
        Ok(document) => format!("{document:?}"),
        Err(error) => format!("{error} {error:?}"),
    };
    assert!(!printed.contains(SECRET_MARKER), "the secret was printed");
});
