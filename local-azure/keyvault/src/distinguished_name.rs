//! Distinguished names as text (RFC 4514): `CN=app.example.org, O=Example`.

use rcgen::string::PrintableString;
use rcgen::{DistinguishedName, DnType, DnValue};
use x509_parser::x509::X509Name;

/// The attribute types that have a name, with their object identifiers.
const ATTRIBUTES: &[(&str, &[u64])] = &[
    ("CN", &[2, 5, 4, 3]),
    ("OU", &[2, 5, 4, 11]),
    ("O", &[2, 5, 4, 10]),
    ("L", &[2, 5, 4, 7]),
    ("S", &[2, 5, 4, 8]),
    ("ST", &[2, 5, 4, 8]),
    ("C", &[2, 5, 4, 6]),
    ("STREET", &[2, 5, 4, 9]),
    ("T", &[2, 5, 4, 12]),
    ("G", &[2, 5, 4, 42]),
    ("SN", &[2, 5, 4, 4]),
    ("SERIALNUMBER", &[2, 5, 4, 5]),
    ("E", &[1, 2, 840, 113_549, 1, 9, 1]),
    ("DC", &[0, 9, 2342, 19_200_300, 100, 1, 25]),
    ("UID", &[0, 9, 2342, 19_200_300, 100, 1, 1]),
];

/// Parses the text of a distinguished name. Certificates contain the parts in reverse order. The
/// error is a message for the client.
pub(super) fn parse_name(text: &str) -> Result<DistinguishedName, String> {
    let mut parts = Vec::new();
    for part in split_parts(text)? {
        let (kind, value) = part
            .split_once('=')
            .ok_or_else(|| format!("the part `{}` of the subject has no `=`", part.trim()))?;
        let kind = kind.trim();
        let oid = attribute_oid(kind)
            .ok_or_else(|| format!("the subject has the unknown attribute `{kind}`"))?;
        let value = unquote(value.trim());
        if value.is_empty() {
            return Err(format!("the attribute `{kind}` of the subject is empty"));
        }
        parts.push((kind.to_owned(), DnType::from_oid(&oid), value));
    }
    let mut name = DistinguishedName::new();
    for (kind, attribute, value) in parts.into_iter().rev() {
        if name.get(&attribute).is_some() {
            return Err(format!(
                "the subject has the attribute `{kind}` twice, which the emulator does not implement"
            ));
        }
        // RFC 5280, A.1: country names are printable strings.
        let is_printable = matches!(attribute, DnType::CountryName);
        let value = match PrintableString::try_from(value.as_str()) {
            Ok(printable) if is_printable => DnValue::PrintableString(printable),
            _ => DnValue::Utf8String(value),
        };
        name.push(attribute, value);
    }
    Ok(name)
}

/// Formats the name in a certificate as text, with the parts in reverse order.
pub(super) fn format_name(name: &X509Name<'_>) -> String {
    let parts = name.iter_attributes().map(|attribute| {
        let oid: Vec<_> = attribute.attr_type().iter().into_iter().flatten().collect();
        let known = ATTRIBUTES.iter().find(|(_, known)| *known == oid.as_slice());
        let kind = known.map_or_else(
            || format!("OID.{}", attribute.attr_type().to_id_string()),
            |(kind, _)| (*kind).to_owned(),
        );
        let value = attribute.as_str().unwrap_or_default();
        let is_plain = !value.contains([',', ';', '+', '"', '=', '\n'])
            && !value.starts_with(' ')
            && !value.ends_with(' ');
        if is_plain {
            format!("{kind}={value}")
        } else {
            format!("{kind}=\"{}\"", value.replace('"', "\"\""))
        }
    });
    let mut parts: Vec<_> = parts.collect();
    parts.reverse();
    parts.join(", ")
}

fn attribute_oid(kind: &str) -> Option<Vec<u64>> {
    let known = ATTRIBUTES.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind));
    if let Some((_, oid)) = known {
        return Some(oid.to_vec());
    }
    if kind.eq_ignore_ascii_case("EMAILADDRESS") {
        return attribute_oid("E");
    }
    let dotted = kind.get(..4).filter(|prefix| prefix.eq_ignore_ascii_case("OID."));
    parse_oid(dotted.map_or(kind, |prefix| &kind[prefix.len()..]))
}

/// Parses an object identifier such as `1.3.6.1.5.5.7.3.1`; `None` if the text is not valid.
pub(super) fn parse_oid(text: &str) -> Option<Vec<u64>> {
    let parts: Vec<u64> = text.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let (first, second) = (*parts.first()?, *parts.get(1)?);
    // X.660: the second number below the first two arcs is less than 40. X.690: the encoding adds 80 to the
    // second number below the third arc, and the encoder has 64 bits.
    (first < 2 && second < 40 || first == 2 && second < u64::MAX - 80).then_some(parts)
}

/// Splits at `,`, `;` and line breaks outside of quotes; a backslash escapes the next character.
fn split_parts(text: &str) -> Result<Vec<String>, String> {
    let (mut parts, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                part.push('\\');
                part.extend(characters.next());
            }
            '"' => {
                quoted = !quoted;
                part.push('"');
            }
            ',' | ';' | '\n' if !quoted => parts.push(std::mem::take(&mut part)),
            '+' if !quoted => {
                return Err("a part of the subject with several attributes (`+`) is not \
                            implemented by the emulator"
                    .to_owned());
            }
            other => part.push(other),
        }
    }
    if quoted {
        return Err("the subject has a quote that does not end".to_owned());
    }
    parts.push(part);
    Ok(parts.into_iter().filter(|part| !part.trim().is_empty()).collect())
}

/// Removes the quotes and the escapes of a value.
fn unquote(text: &str) -> String {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let text = inner.map_or_else(|| text.to_owned(), |text| text.replace("\"\"", "\""));
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        value.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_in_reverse_order() {
        let cases: [(&str, &[(DnType, &str)]); 4] = [
            ("cn=MyCert", &[(DnType::CommonName, "MyCert")]),
            (
                "CN=a.example.org, O=\"Example, Inc.\"; C=DE",
                &[
                    (DnType::CountryName, "DE"),
                    (DnType::OrganizationName, "Example, Inc."),
                    (DnType::CommonName, "a.example.org"),
                ],
            ),
            ("CN=a\\,b,", &[(DnType::CommonName, "a,b")]),
            ("OID.2.5.4.3=x", &[(DnType::CommonName, "x")]),
        ];
        for (text, expected) in cases {
            let name = parse_name(text).unwrap();
            let parts: Vec<_> = name
                .iter()
                .map(|(kind, value)| match value {
                    DnValue::Utf8String(text) => (kind.clone(), text.as_str()),
                    DnValue::PrintableString(text) => (kind.clone(), text.as_str()),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(parts, expected, "{text}");
        }
    }

    #[test]
    fn malformed_names_are_rejected() {
        for text in ["MyCert", "CN=", "XX=1", "CN=\"a", "CN=a+OU=b", "OU=a,OU=b"] {
            assert!(parse_name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn largest_object_identifier_is_encoded() {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = parse_name(&format!("OID.2.{}=x", u64::MAX - 81)).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        assert!(params.serialize_request(&key).is_ok());
    }

    #[test]
    fn object_identifiers_have_valid_arcs() {
        assert_eq!(parse_oid("1.3.6.1"), Some(vec![1, 3, 6, 1]));
        let largest = u64::MAX - 81;
        assert_eq!(parse_oid(&format!("2.{largest}")), Some(vec![2, largest]));
        let too_large = format!("2.{}", largest + 1);
        for text in ["", "1", "3.1", "1.40", "1.x", "1..2", "-1.2", &too_large] {
            assert_eq!(parse_oid(text), None, "{text}");
        }
    }
}
