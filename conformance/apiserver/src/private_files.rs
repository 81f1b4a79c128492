//! Files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::{ControlPlaneError, file_error};

/// Readable and writable by the owner only.
const PRIVATE_FILE_MODE: u32 = 0o600;

pub(crate) fn write_private_file(path: &Path, text: &str) -> Result<(), ControlPlaneError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(file_error("write", path))
}

pub(crate) fn open_private_file_for_append(path: &Path) -> Result<File, ControlPlaneError> {
    let file = OpenOptions::new().append(true).create(true).mode(PRIVATE_FILE_MODE).open(path);
    file.map_err(file_error("write", path))
}
