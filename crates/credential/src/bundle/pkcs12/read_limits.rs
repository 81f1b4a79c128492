//! Limits of the time and memory that an archive may cost.

use super::super::error::Pkcs12Error;

/// The largest archive, in bytes. Key Vault secrets have at most 25 KB.
pub(super) const MAX_ARCHIVE_BYTES: usize = 64 * 1024;
/// The most parts and bags of an archive together.
pub(super) const MAX_ELEMENTS: usize = 128;
/// The most iterations of all key derivations of an archive together. `openssl` and Windows use about 6,000, Java's
/// `keytool` 30,000, and Bouncy Castle 204,800 for a key and its certificates. In a release build, the
/// limit takes less than 0.2 s.
pub(super) const MAX_ITERATIONS: u32 = 250_000;

/// What is left of the limits of one archive.
#[derive(Debug)]
pub(super) struct ReadLimits {
    elements: usize,
    iterations: u32,
}

impl ReadLimits {
    /// The limits for an archive of this size.
    pub(super) fn for_archive(bytes: usize) -> Result<Self, Pkcs12Error> {
        if bytes > MAX_ARCHIVE_BYTES {
            return Err(Pkcs12Error::TooLarge { bytes, limit: MAX_ARCHIVE_BYTES });
        }
        Ok(Self { elements: MAX_ELEMENTS, iterations: MAX_ITERATIONS })
    }

    /// Counts parts or bags.
    pub(super) fn count_elements(&mut self, count: usize) -> Result<(), Pkcs12Error> {
        let left = self.elements.checked_sub(count);
        self.elements = left.ok_or(Pkcs12Error::TooManyBags { limit: MAX_ELEMENTS })?;
        Ok(())
    }

    /// Counts the iterations of a key derivation, before it starts.
    pub(super) fn count_iterations(
        &mut self,
        iterations: impl TryInto<u32>,
    ) -> Result<(), Pkcs12Error> {
        let iterations = iterations.try_into().map_err(|_range| Pkcs12Error::Malformed)?;
        let left = self.iterations.checked_sub(iterations);
        self.iterations = left.ok_or(Pkcs12Error::TooManyIterations { limit: MAX_ITERATIONS })?;
        Ok(())
    }
}
