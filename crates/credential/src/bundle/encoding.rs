//! A lenient base64 decoder that records deviations from RFC 4648.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use super::BundleWarning;

/// Decoded bytes and the deviations of the text from RFC 4648 section 4.
pub(crate) struct DecodedBase64 {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) warnings: Vec<BundleWarning>,
}

/// The text is not base64: it contains an invalid character or has an impossible length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InvalidBase64 {
    /// The position of the character, counted from 0.
    pub(crate) position: usize,
}

/// Decodes either alphabet, with or without padding, with or without white space.
pub(crate) fn decode(text: &[u8]) -> Result<DecodedBase64, InvalidBase64> {
    let text = text.trim_ascii();
    let mut clean = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut broken_lines = false;
    let mut url_alphabet = false;
    for (position, byte) in text.iter().copied().enumerate() {
        match byte {
            b'-' | b'_' => {
                url_alphabet = true;
                clean.push(if byte == b'-' { b'+' } else { b'/' });
            }
            _ if byte.is_ascii_whitespace() => broken_lines = true,
            _ if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') => {
                clean.push(byte);
            }
            _ => return Err(InvalidBase64 { position }),
        }
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(clean.len() / 4 * 3 + 3));
    if ENGINE.decode_vec(clean.as_slice(), &mut bytes).is_err() {
        let padding = clean.iter().position(|byte| *byte == b'=').unwrap_or(clean.len());
        return Err(InvalidBase64 { position: padding });
    }
    let mut warnings = Vec::new();
    if broken_lines {
        warnings.push(BundleWarning::Base64LineBreaks);
    }
    if clean.len() % 4 != 0 {
        warnings.push(BundleWarning::Base64Unpadded);
    }
    if url_alphabet {
        warnings.push(BundleWarning::Base64UrlAlphabet);
    }
    Ok(DecodedBase64 { bytes, warnings })
}

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_writing_base64_gives_the_same_bytes() {
        use BundleWarning::{Base64LineBreaks, Base64Unpadded, Base64UrlAlphabet};
        let cases: [(&str, &[BundleWarning]); 7] = [
            ("+/+/AQ==", &[]),
            (" +/+/AQ==\n", &[]),
            ("+/+/\r\nAQ==", &[Base64LineBreaks]),
            ("+/+/AQ", &[Base64Unpadded]),
            ("-_-_AQ==", &[Base64UrlAlphabet]),
            ("-_-_AQ", &[Base64Unpadded, Base64UrlAlphabet]),
            ("-_\n-_AQ", &[Base64LineBreaks, Base64Unpadded, Base64UrlAlphabet]),
        ];
        for (text, warnings) in cases {
            let decoded = decode(text.as_bytes()).ok().unwrap();
            assert_eq!(decoded.bytes.as_slice(), b"\xfb\xff\xbf\x01", "{text:?}");
            assert_eq!(decoded.warnings, warnings, "{text:?}");
        }
    }

    #[test]
    fn the_first_wrong_character_is_located() {
        let cases = [("AAAA!AAA", 4), ("A", 1), ("AA=A", 2), ("AAAA=", 4)];
        for (text, position) in cases {
            let error = decode(text.as_bytes()).err();
            assert_eq!(error, Some(InvalidBase64 { position }), "{text:?}");
        }
    }
}
