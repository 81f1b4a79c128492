//! Writes the files that other commands read.

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};

/// Writes a file that only the user may read.
pub(in crate::commands) fn write_output_file(path: &Path, text: &str) -> Result<(), CommandError> {
    write_file(path, text, Permissions::from_mode(0o600))
}

/// Writes a file. An existing file is replaced at once, so that a reader never sees a part of it.
pub(in crate::commands) fn write_file(
    path: &Path,
    text: &str,
    permissions: Permissions,
) -> Result<(), CommandError> {
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let written =
        NamedTempFile::new_in(directory.unwrap_or(Path::new("."))).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.as_file().set_permissions(permissions)?;
            file.as_file().sync_all()?;
            file.persist(path).map_err(|error| error.error)
        });
    written
        .map(drop)
        .or_unavailable(format_args!("{} cannot be written", path.display()))
        .hint("name a file in a directory that this user may write to")
}
