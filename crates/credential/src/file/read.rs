//! Reads and parses one version of a file.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use crate::generation::{ContentHash, ParseCredentialOptions, ParsedCredential};
use crate::loader::{FileVersion, LoadError};

/// Reads and parses the versions of a file on blocking threads: opening an archive may take long, and a panic in
/// the parser must not end the task that follows the file.
#[derive(Debug, Clone)]
pub(super) struct VersionReader {
    pub(super) path: PathBuf,
    /// The maximum size of the file, in bytes.
    pub(super) size_limit: u64,
    pub(super) parsing: ParseCredentialOptions,
}

impl VersionReader {
    pub(super) async fn first_version(&self) -> Result<ParsedCredential, LoadError> {
        let parsed = self.run(|reader| reader.parse(&read(&reader.path, reader.size_limit)?));
        parsed.await.flatten()
    }

    /// Reads the version that the file contains now, and parses it unless its hash is `known`.
    pub(super) async fn next_version(&self, known: Vec<ContentHash>) -> FileVersion {
        let version = self.run(move |reader| {
            let bytes = match read(&reader.path, reader.size_limit) {
                Ok(bytes) => bytes,
                Err(error) => return FileVersion::Unreadable(error),
            };
            let hash = ContentHash::of(&bytes);
            if known.contains(&hash) {
                return FileVersion::Known(hash);
            }
            match reader.parse(&bytes) {
                Ok(credential) => FileVersion::Usable(Box::new(credential)),
                Err(error) => FileVersion::Unusable { hash, error },
            }
        });
        version.await.unwrap_or_else(FileVersion::Unreadable)
    }

    fn parse(&self, bytes: &[u8]) -> Result<ParsedCredential, LoadError> {
        let parsed = ParsedCredential::parse(bytes, &self.parsing);
        parsed.map_err(|source| LoadError::Content { path: self.path.clone(), source })
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Result<T, LoadError> {
        let (reader, path) = (self.clone(), self.path.clone());
        spawn_blocking(move || work(&reader)).await.or(Err(LoadError::Stopped { path }))
    }
}

/// Reads the file if it is a regular file of at most `limit` bytes.
fn read(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_path_buf(), source };
    // Check the file type before opening: opening a pipe would block until it has a writer.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(LoadError::NotAFile { path: path.to_path_buf() });
    }
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let bytes = read_up_to(&mut file, length, limit).map_err(failed)?;
    bytes.ok_or_else(|| LoadError::TooLarge { path: path.to_path_buf(), limit })
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

    #[tokio::test]
    async fn a_panic_of_the_parser_is_an_error() {
        let (path, parsing) = (PathBuf::from("identity.json"), ParseCredentialOptions::default());
        let reader = VersionReader { path, size_limit: 10, parsing };
        let stopped = reader.run(|_| panic!("planned by the test")).await;
        assert!(matches!(stopped, Result::<(), _>::Err(LoadError::Stopped { .. })));
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
