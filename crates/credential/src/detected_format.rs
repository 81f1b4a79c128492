//! Detects the format of bytes that are not in the expected format.
//!
//! Credential files pass through many tools (vault, driver, encoding options, copy and paste), and each can
//! add its own encoding. [`DetectedFormat`] names the encoding for error messages and never contains content.

use std::fmt;

use serde::Serialize;
use zeroize::Zeroizing;

use crate::bundle::encoding;

/// The likely format of some bytes, detected from their beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DetectedFormat {
    /// Empty, or only white space.
    Empty,
    /// A JSON object.
    JsonObject,
    /// A truncated JSON object.
    JsonCutShort,
    /// A JSON value that is not an object, for example an array or a string.
    JsonOther,
    /// UTF-8 with a leading byte order mark.
    ByteOrderMark,
    /// UTF-16, as some Windows tools write it.
    Utf16,
    /// PEM (RFC 7468).
    Pem,
    /// PKCS#12, also called PFX.
    Pkcs12,
    /// Other DER, for example a single certificate.
    Der,
    /// Base64 of the given format.
    Base64(DetectedInnerFormat),
    /// Hexadecimal digits of the given format.
    Hex(DetectedInnerFormat),
    /// An HTML page, typically from a proxy or a sign-in page.
    Html,
    /// Other text.
    Text,
    /// Other bytes.
    Binary,
}

/// The format of the content of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DetectedInnerFormat {
    /// A JSON object.
    Json,
    /// PEM (RFC 7468).
    Pem,
    /// PKCS#12, also called PFX.
    Pkcs12,
    /// Another layer of base64.
    Base64,
    /// An unknown format.
    Unknown,
}

impl DetectedFormat {
    /// Detects the format of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        if bytes.starts_with(b"\xEF\xBB\xBF") {
            return Self::ByteOrderMark;
        }
        if bytes.starts_with(b"\xFF\xFE") || bytes.starts_with(b"\xFE\xFF") {
            return Self::Utf16;
        }
        let text = bytes.trim_ascii();
        if text.is_empty() {
            return Self::Empty;
        }
        if let Some(kind) = detect_plain(text) {
            return kind;
        }
        if is_hex(text) {
            return Self::Hex(detect_inner(&hex_prefix(text)));
        }
        if let Some(prefix) = base64_prefix(text) {
            return Self::Base64(detect_inner(&prefix));
        }
        let printable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        match std::str::from_utf8(text) {
            Ok(_) if text.iter().all(|byte| printable(byte) || !byte.is_ascii()) => Self::Text,
            _ => Self::Binary,
        }
    }
}

/// Detects formats that need no decoding.
fn detect_plain(text: &[u8]) -> Option<DetectedFormat> {
    if text.starts_with(b"{") {
        return Some(DetectedFormat::JsonObject);
    }
    if text.starts_with(b"[") || text.starts_with(b"\"") {
        return Some(DetectedFormat::JsonOther);
    }
    if contains(text, b"-----BEGIN ") {
        return Some(DetectedFormat::Pem);
    }
    if is_pkcs12(text) {
        return Some(DetectedFormat::Pkcs12);
    }
    if der_header(text).is_some_and(|(header, length)| length > 16 && header + length <= text.len())
    {
        return Some(DetectedFormat::Der);
    }
    if text.starts_with(b"<") {
        return Some(DetectedFormat::Html);
    }
    None
}

fn detect_inner(bytes: &[u8]) -> DetectedInnerFormat {
    match detect_plain(bytes.trim_ascii_start()) {
        Some(DetectedFormat::JsonObject) => DetectedInnerFormat::Json,
        Some(DetectedFormat::Pem) => DetectedInnerFormat::Pem,
        Some(DetectedFormat::Pkcs12) => DetectedInnerFormat::Pkcs12,
        _ if bytes.len() >= MIN_ENCODED_LENGTH && base64_prefix(bytes).is_some() => {
            DetectedInnerFormat::Base64
        }
        _ => DetectedInnerFormat::Unknown,
    }
}

/// Whether bytes start like a PKCS#12 file: a sequence whose first member is the integer 3 (RFC 7292, section
/// 4).
pub(crate) fn is_pkcs12(bytes: &[u8]) -> bool {
    der_header(bytes).is_some_and(|(header, _)| bytes[header..].starts_with(&[0x02, 0x01, 0x03]))
}

/// Header length and content length of a DER sequence.
fn der_header(bytes: &[u8]) -> Option<(usize, usize)> {
    let [0x30, first, rest @ ..] = bytes else { return None };
    if *first < 0x80 {
        return Some((2, usize::from(*first)));
    }
    let count = usize::from(*first & 0x7F);
    if count > 4 || rest.len() < count {
        return None;
    }
    let length = rest[..count].iter().fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
    Some((2 + count, length))
}

/// Whether `haystack` contains `needle`.
pub(crate) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

fn is_hex(text: &[u8]) -> bool {
    text.len() >= MIN_ENCODED_LENGTH
        && text.iter().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace())
}

fn hex_prefix(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let digits: Zeroizing<Vec<u8>> = Zeroizing::new(
        text.iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .take(DECODED_PREFIX_LENGTH * 2)
            .copied()
            .collect(),
    );
    let value = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pair = |pair: &[u8]| Some((value(pair[0])? << 4) | value(pair[1])?);
    Zeroizing::new(digits.chunks_exact(2).filter_map(pair).collect())
}

/// The decoded beginning of `text`, if all of it is in the base64 alphabet.
fn base64_prefix(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let alphabet = |byte: &u8| {
        byte.is_ascii_alphanumeric()
            || byte.is_ascii_whitespace()
            || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
    };
    // Base64 may be broken into lines, but not into words.
    let words = text.split(|byte| *byte == b' ').count();
    if text.len() < MIN_ENCODED_LENGTH || words > 1 + text.len() / 32 || !text.iter().all(alphabet)
    {
        return None;
    }
    encoding::decode(&text[..text.len().min(DECODED_PREFIX_LENGTH / 3 * 4)])
        .ok()
        .map(|decoded| decoded.bytes)
}

/// The number of decoded bytes that the detection inspects.
const DECODED_PREFIX_LENGTH: usize = 96;
/// Shorter texts are classified as text, not as an encoding.
const MIN_ENCODED_LENGTH: usize = 16;

impl fmt::Display for DetectedFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = match self {
            Self::Empty => "nothing",
            Self::JsonObject => "a JSON object",
            Self::JsonCutShort => "a JSON object that was cut short",
            Self::JsonOther => "JSON, but not an object",
            Self::ByteOrderMark => "text with a byte order mark in front",
            Self::Utf16 => "UTF-16 text",
            Self::Pem => "PEM",
            Self::Pkcs12 => "PKCS#12",
            Self::Der => "DER",
            Self::Html => "an HTML page",
            Self::Text => "plain text",
            Self::Binary => "binary data",
            Self::Base64(inner) => return write!(formatter, "base64 of {inner}"),
            Self::Hex(inner) => return write!(formatter, "hexadecimal digits of {inner}"),
        };
        formatter.write_str(plain)
    }
}

impl fmt::Display for DetectedInnerFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Json => "a JSON object",
            Self::Pem => "PEM",
            Self::Pkcs12 => "PKCS#12",
            Self::Base64 => "base64",
            Self::Unknown => "something unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::fixture;

    #[test]
    fn each_format_is_detected() {
        let json = br#"{"client_id": "00000000-0000-0000-0000-000000000000"}"#;
        let pem = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n";
        let pfx = [0x30, 0x82, 0x09, 0x57, 0x02, 0x01, 0x03, 0x30, 0x82, 0x09, 0x0d, 0x06, 0x09];
        let base64 = |bytes: &[u8]| STANDARD.encode(bytes).into_bytes();
        let hex = |bytes: &[u8]| fixture::to_hex(bytes).into_bytes();
        let cases: Vec<(Vec<u8>, DetectedFormat)> = vec![
            (b" \n".to_vec(), DetectedFormat::Empty),
            (json.to_vec(), DetectedFormat::JsonObject),
            (b"[1]".to_vec(), DetectedFormat::JsonOther),
            (b"\"quoted\"".to_vec(), DetectedFormat::JsonOther),
            (b"\xEF\xBB\xBF{}".to_vec(), DetectedFormat::ByteOrderMark),
            (b"\xFF\xFE{\0}\0".to_vec(), DetectedFormat::Utf16),
            (pem.to_vec(), DetectedFormat::Pem),
            (pfx.to_vec(), DetectedFormat::Pkcs12),
            (base64(json), DetectedFormat::Base64(DetectedInnerFormat::Json)),
            (base64(pem), DetectedFormat::Base64(DetectedInnerFormat::Pem)),
            (base64(&pfx), DetectedFormat::Base64(DetectedInnerFormat::Pkcs12)),
            (base64(&base64(json)), DetectedFormat::Base64(DetectedInnerFormat::Base64)),
            (hex(json), DetectedFormat::Hex(DetectedInnerFormat::Json)),
            (b"<!doctype html><title>Sign in</title>".to_vec(), DetectedFormat::Html),
            (b"client_id: 1\nclient_secret: two".to_vec(), DetectedFormat::Text),
            (b"\x00\x01\x02\x03".to_vec(), DetectedFormat::Binary),
        ];
        for (bytes, expected) in cases {
            assert_eq!(DetectedFormat::of(&bytes), expected, "{}", String::from_utf8_lossy(&bytes));
        }
    }
}
