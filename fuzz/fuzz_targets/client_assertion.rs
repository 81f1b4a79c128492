//! Fuzzes the local Azure's parser of client assertions, before their validation: the input is a text, or
//! header, claims and signature on separate lines, so that mutations reach the JSON within.
#![no_main]

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use lanyard_emulator::fuzzing::read_client_assertion;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read_client_assertion(text);
    }
    let mut parts = bytes.splitn(3, |byte| *byte == b'\n');
    let assembled: Vec<String> =
        std::iter::repeat_with(|| URL_SAFE_NO_PAD.encode(parts.next().unwrap_or_default()))
            .take(3)
            .collect();
    read_client_assertion(&assembled.join("."));
});
