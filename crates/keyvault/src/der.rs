//! A DER encoder (ITU-T X.690), limited to public keys.

/// The value `NULL`.
pub(crate) const NULL: &[u8] = &[0x05, 0x00];

pub(crate) fn sequence(content: &[u8]) -> Vec<u8> {
    tag_length_value(0x30, content)
}

/// A positive integer, from big-endian bytes without leading zeros.
pub(crate) fn integer(digits: &[u8]) -> Vec<u8> {
    match digits.first() {
        // A set highest bit would make the integer negative.
        Some(first) if first & 0x80 != 0 => tag_length_value(0x02, &[&[0], digits].concat()),
        _ => tag_length_value(0x02, digits),
    }
}

/// A bit string of whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    tag_length_value(0x03, &[&[0], bytes].concat())
}

fn tag_length_value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let zeros = length.iter().take_while(|byte| **byte == 0).count();
    let mut der = vec![tag];
    match &length[zeros..] {
        [] => der.push(0),
        [short] if *short < 0x80 => der.push(*short),
        long => {
            // A length has at most eight bytes.
            der.push(0x80 | u8::try_from(long.len()).unwrap_or(8));
            der.extend(long);
        }
    }
    der.extend(content);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_integers_use_the_shortest_form() {
        assert_eq!(integer(&[0x7f]), [0x02, 1, 0x7f]);
        assert_eq!(integer(&[0x80]), [0x02, 2, 0, 0x80]);
        assert_eq!(sequence(&[]), [0x30, 0]);
        assert_eq!(sequence(&[9; 127])[..2], [0x30, 127]);
        assert_eq!(sequence(&[9; 128])[..3], [0x30, 0x81, 128]);
        assert_eq!(sequence(&[9; 256])[..4], [0x30, 0x82, 1, 0]);
    }
}
