//! Secret bytes that are wiped on drop and never printed.

use std::sync::Arc;

use zeroize::{Zeroize as _, Zeroizing};

/// Secret bytes: wiped when the last clone is dropped, compared in constant time, never printed. Clones share
/// one buffer.
///
/// ```
/// let secret = lanyard_keyvault::SharedSecretBytes::from(b"hunter2".to_vec());
/// assert_eq!(format!("{secret:?}"), "SecretBytes([redacted])");
/// ```
#[derive(Clone, Default)]
pub struct SharedSecretBytes(Arc<WipedBuffer>);

/// A buffer that is wiped on drop.
#[derive(Default)]
struct WipedBuffer(Zeroizing<Vec<u8>>);

impl WipedBuffer {
    fn new(bytes: Vec<u8>) -> Self {
        #[cfg(any(test, feature = "test-util"))]
        live::count_allocated(bytes.len());
        Self(Zeroizing::new(bytes))
    }
}

#[cfg(any(test, feature = "test-util"))]
impl Drop for WipedBuffer {
    fn drop(&mut self) {
        live::count_dropped(self.0.len());
    }
}

/// Counts the secret bytes in memory, each buffer once, for tests of memory limits.
#[cfg(any(test, feature = "test-util"))]
pub(crate) mod live {
    use std::cell::Cell;

    thread_local! {
        /// Per thread, for concurrent tests. A buffer that another thread drops is miscounted.
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_allocated(bytes: usize) {
        BYTES.set(BYTES.get().saturating_add(bytes));
    }

    pub(super) fn count_dropped(bytes: usize) {
        // The thread may be shutting down.
        let _ended = BYTES.try_with(|live| live.set(live.get().saturating_sub(bytes)));
    }

    /// The number of secret bytes of this thread.
    pub fn thread_secret_bytes() -> usize {
        BYTES.get()
    }
}

impl SharedSecretBytes {
    /// The secret bytes. The caller must wipe its copies.
    pub fn expose(&self) -> &[u8] {
        &self.0.0
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.0.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
}

impl From<Vec<u8>> for SharedSecretBytes {
    /// Takes ownership of the buffer. A buffer with much spare capacity is copied to a smaller one and wiped,
    /// because the memory account counts the length.
    fn from(mut bytes: Vec<u8>) -> Self {
        if bytes.capacity() - bytes.len()
            > bytes.len() / SPARE_CAPACITY_DIVISOR + MIN_SPARE_CAPACITY
        {
            let exact = bytes.as_slice().to_vec();
            bytes.zeroize();
            bytes = exact;
        }
        Self(Arc::new(WipedBuffer::new(bytes)))
    }
}

impl From<Zeroizing<Vec<u8>>> for SharedSecretBytes {
    /// Like the conversion from a vector.
    fn from(mut bytes: Zeroizing<Vec<u8>>) -> Self {
        Self::from(std::mem::take(&mut *bytes))
    }
}

impl From<String> for SharedSecretBytes {
    /// Like the conversion from a vector.
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl PartialEq for SharedSecretBytes {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.expose(), other.expose()).is_ok()
    }
}

impl Eq for SharedSecretBytes {}

lanyard_vocabulary::debug_text!(SharedSecretBytes, "SecretBytes([redacted])");

/// The spare capacity may be at most this fraction of the length.
const SPARE_CAPACITY_DIVISOR: usize = 16;
/// The spare capacity that is always allowed, in bytes.
const MIN_SPARE_CAPACITY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_with_large_spare_capacity_is_reallocated() {
        for (length, capacity, retained) in
            [(100, 165, true), (100, 300, false), (25_000, 26_000, true)]
        {
            let mut bytes = vec![7; length];
            bytes.reserve_exact(capacity - length);
            let pointer = bytes.as_ptr();
            let secret = SharedSecretBytes::from(bytes);
            assert_eq!(secret.expose().as_ptr() == pointer, retained, "{length} {capacity}");
            assert_eq!(secret.expose(), vec![7; length]);
            assert_eq!(secret.clone().expose().as_ptr(), secret.expose().as_ptr());
        }
    }
}
