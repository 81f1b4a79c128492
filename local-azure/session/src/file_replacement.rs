//! Atomic replacement of a file's content.

use std::io::{self, Write as _};
use std::path::Path;

/// Replaces a file atomically: readers see the old or the new content. An existing symbolic link is not
/// followed.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let named = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = named.unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}
