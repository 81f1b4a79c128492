//! Bytes that are wiped and never printed.

use std::fmt;

use zeroize::Zeroizing;

/// Secret bytes: wiped when dropped, compared in constant time, never printed.
///
/// ```
/// let secret = lanyard_keyvault::SecretBytes::from(b"hunter2".to_vec());
/// assert_eq!(format!("{secret:?}"), "SecretBytes([redacted])");
/// ```
#[derive(Default)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// The bytes. Whoever copies them has to wipe the copy.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for SecretBytes {
    /// Takes the buffer over; nothing is copied.
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl From<String> for SecretBytes {
    /// Takes the buffer over; nothing is copied.
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.expose(), other.expose()).is_ok()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretBytes([redacted])")
    }
}
