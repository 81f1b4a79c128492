//! Reads one version of a file.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use zeroize::Zeroizing;

use crate::loader::{CredentialFileContent, LoadError};

/// Reads the file if it is a regular file of at most `limit` bytes.
pub(super) fn read(path: &Path, limit: u64) -> Result<CredentialFileContent, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_path_buf(), source };
    // Check the file type before opening: opening a pipe would block until it has a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(LoadError::NotAFile { path: path.to_path_buf() });
    }
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    match read_up_to(&mut file, length, limit).map_err(failed)? {
        Some(bytes) => Ok(CredentialFileContent::new(bytes)),
        None => Err(LoadError::TooLarge { path: path.to_path_buf(), limit }),
    }
}

/// Reads all bytes, or returns `None` if there are more than `limit`.
///
/// The buffer is grown explicitly: a vector that reallocates leaves unwiped copies behind.
fn read_up_to(
    source: &mut impl io::Read,
    expected: u64,
    limit: u64,
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX - 1);
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    let mut buffer = Zeroizing::new(vec![0; expected.min(limit) + 1]);
    let mut filled = 0;
    loop {
        if filled > limit {
            return Ok(None);
        }
        if filled == buffer.len() {
            let mut larger = Zeroizing::new(vec![0; (buffer.len() * 2).min(limit + 1)]);
            larger[..filled].copy_from_slice(&buffer);
            buffer = larger;
        }
        match source.by_ref().read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer.truncate(filled);
    Ok(Some(buffer))
}

#[cfg(test)]
mod tests {
    use lanyard_clock::ErrorHint as _;

    use super::*;

    #[test]
    fn a_file_is_read_whole_even_if_it_grows_meanwhile() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        for expected in [0, 10, 4_999, 5_000, 9_000] {
            let read = read_up_to(&mut bytes.as_slice(), expected, 1 << 20).unwrap().unwrap();
            assert_eq!(read.as_slice(), bytes, "{expected}");
        }
    }

    #[test]
    fn a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
        let bytes = vec![1; 100];
        assert_eq!(read_up_to(&mut bytes.as_slice(), 100, 100).unwrap().unwrap().len(), 100);
        assert!(read_up_to(&mut bytes.as_slice(), 100, 99).unwrap().is_none());
        assert!(read_up_to(&mut bytes.as_slice(), 0, 99).unwrap().is_none());
    }

    #[test]
    fn non_regular_files_are_rejected_without_opening() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read(folder.path(), 10), Err(LoadError::NotAFile { .. })));
        let absent = folder.path().join("absent");
        let error = read(&absent, 10).unwrap_err();
        assert!(
            matches!(&error, LoadError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
        );
        assert!(error.hint().unwrap().contains("mounted"), "{:?}", error.hint());
    }
}
