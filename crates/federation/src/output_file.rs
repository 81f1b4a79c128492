//! Files that a command writes below its output directory.

use std::fmt;

use zeroize::Zeroizing;

/// A file to write below an output directory. `Debug` prints no content, and the content is wiped
/// on drop, because some files contain a private key.
pub struct OutputFile {
    path: String,
    mode: u32,
    content: Zeroizing<String>,
}

impl OutputFile {
    /// A file that only its owner can read.
    pub(crate) fn owner_only(path: impl Into<String>, content: Zeroizing<String>) -> Self {
        Self { path: path.into(), mode: 0o600, content }
    }

    /// A file that all users can read.
    pub(crate) fn readable(path: impl Into<String>, content: String) -> Self {
        Self { path: path.into(), mode: 0o644, content: Zeroizing::new(content) }
    }

    /// The path relative to the output directory, with `/` between segments and without `..`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The permission bits of the file, such as `0o600`.
    pub const fn mode(&self) -> u32 {
        self.mode
    }

    /// The complete content. It can be a private key: write it, and never log it.
    pub fn content(&self) -> &str {
        &self.content
    }
}

impl fmt::Debug for OutputFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OutputFile({} {:o}, {} bytes)", self.path, self.mode, self.content.len())
    }
}
