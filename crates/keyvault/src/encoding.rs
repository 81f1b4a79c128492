//! Decodes values and detects wrong encodings.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_vocabulary::ObjectEncoding;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use crate::pem;
use crate::secret_bytes::SharedSecretBytes;

/// A value is not in the encoding that its entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the value is not {encoding}")]
pub struct DecodeValueError {
    /// The encoding that the entry names.
    pub encoding: ObjectEncoding,
    /// The encoding that the value seems to have.
    pub suspected: Option<ObjectEncoding>,
}

/// Decodes a value.
///
/// As in upstream, `utf-8` is the value itself; `base64` is standard base64 with padding, and line breaks are
/// ignored; `hex` accepts both cases and no other characters.
pub fn decode(
    value: &[u8],
    encoding: ObjectEncoding,
) -> Result<SharedSecretBytes, DecodeValueError> {
    try_decode(value, encoding).ok_or_else(|| {
        let seems = if is_json_or_pem(value) {
            Some(ObjectEncoding::Utf8)
        } else {
            suspected_encoding(value)
        };
        DecodeValueError { encoding, suspected: seems.filter(|seems| *seems != encoding) }
    })
}

/// Detects the encoding of a content that was mounted as plain text. Returns `None` if the content itself is
/// JSON or PEM, or decodes to neither.
///
/// This distinguishes a value that was stored as base64 but declared as `utf-8` from a malformed document.
pub fn suspected_encoding(content: &[u8]) -> Option<ObjectEncoding> {
    if is_json_or_pem(content) {
        return None;
    }
    let content = content.trim_ascii();
    // Hexadecimal digits are base64 characters, too, so the smaller alphabet is tried first.
    [ObjectEncoding::Hex, ObjectEncoding::Base64].into_iter().find(|encoding| {
        try_decode(content, *encoding).is_some_and(|bytes| is_json_or_pem(bytes.expose()))
    })
}

fn try_decode(value: &[u8], encoding: ObjectEncoding) -> Option<SharedSecretBytes> {
    let bytes = match encoding {
        ObjectEncoding::Utf8 => value.to_vec(),
        ObjectEncoding::Base64 => STANDARD.decode(&*without_line_breaks(value)).ok()?,
        ObjectEncoding::Hex => hex::decode(value).ok()?,
    };
    Some(bytes.into())
}

/// Whether the content is a JSON object or array, or PEM: the formats that components mount.
fn is_json_or_pem(content: &[u8]) -> bool {
    let json = content.trim_ascii_start().first().is_some_and(|first| b"{[".contains(first))
        && serde_json::from_slice::<IgnoredAny>(content).is_ok();
    json || pem::looks_like_pem(content)
}

fn without_line_breaks(value: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(value.len()));
    text.extend(value.iter().filter(|byte| !b"\r\n".contains(byte)));
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const JSON: &[u8] = br#"{"client_id":"x"}"#;
    const PEM: &[u8] = b"-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    #[test]
    fn values_are_decoded_as_by_the_upstream_provider() {
        type DecodeCase = (&'static [u8], ObjectEncoding, Option<&'static [u8]>);
        let cases: [DecodeCase; 11] = [
            (b" as is\n", ObjectEncoding::Utf8, Some(b" as is\n")),
            (b"aGk=", ObjectEncoding::Base64, Some(b"hi")),
            (b"aG\r\nk=\n", ObjectEncoding::Base64, Some(b"hi")),
            (b"aGk", ObjectEncoding::Base64, None),
            (b"aGk= ", ObjectEncoding::Base64, None),
            (b"__8=", ObjectEncoding::Base64, None),
            (b"6869", ObjectEncoding::Hex, Some(b"hi")),
            (b"6A6b", ObjectEncoding::Hex, Some(b"jk")),
            (b"6869\n", ObjectEncoding::Hex, None),
            (b"686", ObjectEncoding::Hex, None),
            (b"", ObjectEncoding::Hex, Some(b"")),
        ];
        for (value, encoding, expected) in cases {
            let decoded = decode(value, encoding).ok();
            assert_eq!(
                decoded.as_ref().map(SharedSecretBytes::expose),
                expected,
                "{value:?} {encoding}"
            );
        }
    }

    #[test]
    fn encoded_document_is_suspected_but_plain_document_is_not() {
        for document in [JSON, PEM] {
            let hexed = hex::encode(document);
            let based = STANDARD.encode(document);
            assert_eq!(suspected_encoding(document), None);
            assert_eq!(suspected_encoding(hexed.as_bytes()), Some(ObjectEncoding::Hex));
            assert_eq!(
                suspected_encoding(hexed.to_uppercase().as_bytes()),
                Some(ObjectEncoding::Hex)
            );
            assert_eq!(suspected_encoding(based.as_bytes()), Some(ObjectEncoding::Base64));
            assert_eq!(
                suspected_encoding(format!("{based}\n").as_bytes()),
                Some(ObjectEncoding::Base64)
            );
        }
        for innocent in ["", "hunter2", "deadbeef", "aGk=", "123456", "{broken"] {
            assert_eq!(suspected_encoding(innocent.as_bytes()), None, "{innocent}");
        }
    }

    #[test]
    fn wrong_encoding_error_names_the_suspected_encoding() {
        let seems = |value: &[u8], encoding| decode(value, encoding).unwrap_err().suspected;
        assert_eq!(seems(JSON, ObjectEncoding::Base64), Some(ObjectEncoding::Utf8));
        let hexed = format!("{}\n", hex::encode(JSON));
        assert_eq!(seems(hexed.as_bytes(), ObjectEncoding::Base64), Some(ObjectEncoding::Hex));
        let based = STANDARD.encode(JSON);
        assert_eq!(seems(based.as_bytes(), ObjectEncoding::Hex), Some(ObjectEncoding::Base64));
        assert_eq!(seems(b"?", ObjectEncoding::Hex), None);
    }

    proptest! {
        #[test]
        fn decoding_never_panics_and_errors_do_not_quote_the_value(value in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = suspected_encoding(&value);
            for encoding in ObjectEncoding::ALL {
                if let Err(error) = decode(&value, encoding) {
                    prop_assert!(error.to_string().len() < 30);
                }
            }
        }

        #[test]
        fn encoded_bytes_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for (encoding, text) in [
                (ObjectEncoding::Hex, hex::encode(&bytes)),
                (ObjectEncoding::Base64, STANDARD.encode(&bytes)),
            ] {
                let decoded = decode(text.as_bytes(), encoding).unwrap();
                prop_assert_eq!(decoded.expose(), bytes.as_slice());
            }
        }
    }
}
