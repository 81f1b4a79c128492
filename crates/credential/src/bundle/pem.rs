//! A PEM parser (RFC 7468), limited to the needs of bundles.
//!
//! General PEM parsers skip sections that they cannot read. This one reports why a section is invalid:
//! truncated, lost line breaks, encrypted key.

use std::borrow::Cow;

use lanyard_clock::ErrorHint;
use zeroize::Zeroizing;

use super::encoding;
use crate::detected_format::contains;

/// A labelled PEM section.
pub(crate) struct PemSection<'a> {
    pub(crate) label: &'a [u8],
    /// The section has the `Proc-Type: 4,ENCRYPTED` header of RFC 1421.
    pub(crate) encrypted: bool,
    pub(crate) der: Zeroizing<Vec<u8>>,
}

/// Errors of parsing PEM. Sections are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// Text follows the opening line on the same line.
    #[error("the line breaks of PEM section {section} are lost")]
    LineBreaksLost {
        /// The number of the section.
        section: usize,
    },
    /// The text ends inside a section.
    #[error("PEM section {section} has no end line")]
    CutShort {
        /// The number of the section.
        section: usize,
    },
    /// The label of the closing line differs from the opening line.
    #[error("the end line of PEM section {section} belongs to another section")]
    WrongEnd {
        /// The number of the section.
        section: usize,
    },
    /// The body is not base64.
    #[error("the body of PEM section {section} is not base64")]
    NotBase64 {
        /// The number of the section.
        section: usize,
    },
}

impl ErrorHint for PemError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::LineBreaksLost { .. } => {
                "encode the PEM file to base64 as it is; a variable or a template joined its lines"
            }
            Self::CutShort { .. } | Self::WrongEnd { .. } | Self::NotBase64 { .. } => {
                "export certificate and key again; the PEM text was cut or changed"
            }
        }))
    }
}

/// Parses every section of `text`. Text between sections is ignored and need not be UTF-8.
pub(crate) fn parse_sections(text: &[u8]) -> Result<Vec<PemSection<'_>>, PemError> {
    let mut sections = Vec::new();
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    while let Some(line) = lines.next() {
        let Some(opening) = line.strip_prefix(b"-----BEGIN ") else { continue };
        let section = sections.len() + 1;
        let Some(label) = opening.strip_suffix(DASHES).filter(|label| !contains(label, DASHES))
        else {
            return Err(PemError::LineBreaksLost { section });
        };
        sections.push(parse_section(label, section, text.len(), &mut lines)?);
    }
    Ok(sections)
}

fn parse_section<'a>(
    label: &'a [u8],
    section: usize,
    capacity: usize,
    lines: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<PemSection<'a>, PemError> {
    // Allocate the full capacity once: a buffer that grows leaves unwiped copies behind.
    let mut body = Zeroizing::new(Vec::with_capacity(capacity));
    let mut encrypted = false;
    for line in lines {
        if let Some(closing) = line.strip_prefix(b"-----END ") {
            if closing.strip_suffix(DASHES) != Some(label) {
                return Err(PemError::WrongEnd { section });
            }
            let decoded = encoding::decode(&body);
            let Ok(decoded) = decoded else { return Err(PemError::NotBase64 { section }) };
            return Ok(PemSection { label, encrypted, der: decoded.bytes });
        }
        if line.starts_with(b"-----BEGIN ") {
            return Err(PemError::CutShort { section });
        }
        if line.contains(&b':') {
            encrypted |= line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED");
        } else {
            body.extend_from_slice(line);
        }
    }
    Err(PemError::CutShort { section })
}

const DASHES: &[u8] = b"-----";

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_error(text: &str) -> PemError {
        parse_sections(text.as_bytes()).err().unwrap()
    }

    #[test]
    fn sections_are_read_in_order_and_text_between_them_is_passed_over() {
        let text = b"Bag Attributes\r\n    friendlyName: \xE9\r\n-----BEGIN A B-----\r\nAQ\r\nID\r\n-----END A B-----\r\nsubject=CN\r\n\
                    -----BEGIN C-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nBA==\n-----END C-----";
        let sections = parse_sections(text).ok().unwrap();
        let observed: Vec<_> =
            sections.iter().map(|s| (s.label, s.encrypted, s.der.as_slice())).collect();
        assert_eq!(observed, [(&b"A B"[..], false, &[1, 2, 3][..]), (&b"C"[..], true, &[4][..])]);
    }

    #[test]
    fn malformed_pem_is_rejected_with_a_specific_error() {
        let section = 1;
        let cases = [
            ("-----BEGIN A----- AQID -----END A-----", PemError::LineBreaksLost { section }),
            ("-----BEGIN A-----\nAQID\n", PemError::CutShort { section }),
            ("-----BEGIN A-----\nAQ\n-----BEGIN B-----\n", PemError::CutShort { section }),
            ("-----BEGIN A-----\nAQID\n-----END B-----", PemError::WrongEnd { section }),
            ("-----BEGIN A-----\nA*ID\n-----END A-----", PemError::NotBase64 { section }),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_error(text), expected, "{text:?}");
        }
    }
}
