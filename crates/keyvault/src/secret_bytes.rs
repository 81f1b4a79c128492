//! Bytes that are wiped and never printed.

use std::fmt;
use std::sync::Arc;

use zeroize::{Zeroize as _, Zeroizing};

/// Secret bytes: wiped when the last clone is dropped, compared in constant time, never printed.
/// Clones share one buffer.
///
/// ```
/// let secret = lanyard_keyvault::SecretBytes::from(b"hunter2".to_vec());
/// assert_eq!(format!("{secret:?}"), "SecretBytes([redacted])");
/// ```
#[derive(Clone, Default)]
pub struct SecretBytes(Arc<Buffer>);

/// A buffer that is wiped when it is dropped.
#[derive(Default)]
struct Buffer(Zeroizing<Vec<u8>>);

impl Buffer {
    fn new(bytes: Vec<u8>) -> Self {
        #[cfg(any(test, feature = "test-util"))]
        live::add(bytes.len());
        Self(Zeroizing::new(bytes))
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Drop for Buffer {
    fn drop(&mut self) {
        live::remove(self.0.len());
    }
}

/// How many secret bytes there are, each buffer once: what tests of memory limits compare.
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod live {
    use std::cell::Cell;

    thread_local! {
        /// Of this thread alone, for tests that run side by side. A buffer that is dropped by another
        /// thread than made it is not counted right.
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn add(bytes: usize) {
        BYTES.set(BYTES.get().saturating_add(bytes));
    }

    pub(super) fn remove(bytes: usize) {
        // The thread may be ending.
        let _ended = BYTES.try_with(|live| live.set(live.get().saturating_sub(bytes)));
    }

    /// How many secret bytes this thread has.
    pub fn bytes() -> usize {
        BYTES.get()
    }
}

impl SecretBytes {
    /// The bytes. Whoever copies them has to wipe the copy.
    pub fn expose(&self) -> &[u8] {
        &self.0.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

impl From<Vec<u8>> for SecretBytes {
    /// Takes the buffer over. One with much room to spare is copied into one without, and wiped: what
    /// is accounted for is the length.
    fn from(mut bytes: Vec<u8>) -> Self {
        if bytes.capacity() - bytes.len() > bytes.len() / SPARE + SMALLEST_SPARE {
            let exact = bytes.as_slice().to_vec();
            bytes.zeroize();
            bytes = exact;
        }
        Self(Arc::new(Buffer::new(bytes)))
    }
}

impl From<String> for SecretBytes {
    /// As from a vector.
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

/// The part of the length that a buffer may be longer.
const SPARE: usize = 16;
/// What a buffer may be longer in any case, in bytes.
const SMALLEST_SPARE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_with_much_room_to_spare_is_exchanged() {
        for (length, capacity, kept) in
            [(100, 165, true), (100, 300, false), (25_000, 26_000, true)]
        {
            let mut bytes = vec![7; length];
            bytes.reserve_exact(capacity - length);
            let pointer = bytes.as_ptr();
            let secret = SecretBytes::from(bytes);
            assert_eq!(secret.expose().as_ptr() == pointer, kept, "{length} {capacity}");
            assert_eq!(secret.expose(), vec![7; length]);
            assert_eq!(secret.clone().expose().as_ptr(), secret.expose().as_ptr());
        }
    }
}
