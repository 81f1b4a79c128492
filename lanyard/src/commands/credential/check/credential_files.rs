//! The files of a credential check: one file, the files of a directory, or standard input.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use lanyard_credential::CredentialFileOptions;
use rustix::fs::MemfdFlags;

use crate::exit::CommandError;

/// The files to check.
pub(super) struct CredentialFiles {
    pub(super) files: Vec<CredentialFile>,
    /// Whether they are those of a directory.
    pub(super) is_directory: bool,
}

/// A file to check.
pub(super) struct CredentialFile {
    name: PathBuf,
    path: PathBuf,
    /// The content of standard input in memory, at `path`.
    _memory: Option<File>,
}

impl CredentialFiles {
    /// The files of an argument: `-` is standard input. The files of a directory are sorted; those whose names
    /// begin with a dot belong to the mount.
    pub(super) fn find(argument: &Path) -> Result<Self, CommandError> {
        if !argument.is_dir() {
            return Ok(Self { files: vec![CredentialFile::open(argument)?], is_directory: false });
        }
        let mut paths = credential_paths(argument).map_err(|error| read_error(argument, &error))?;
        paths.sort();
        if paths.is_empty() {
            return Err(CommandError::invalid_input(format!("{} has no file", argument.display()))
                .with_hint("give the directory of the mount, or a file in it"));
        }
        Ok(Self { files: paths.into_iter().map(CredentialFile::at).collect(), is_directory: true })
    }
}

impl CredentialFile {
    /// The file of an argument: `-` is standard input.
    pub(super) fn open(argument: &Path) -> Result<Self, CommandError> {
        if argument == Path::new("-") {
            return Self::of_standard_input().map_err(|error| read_error(argument, &error));
        }
        Ok(Self::at(argument.to_owned()))
    }

    fn at(path: PathBuf) -> Self {
        Self { name: path.clone(), path, _memory: None }
    }

    /// Keeps the content in memory: it contains a private key.
    fn of_standard_input() -> io::Result<Self> {
        let content = read_limited(io::stdin().lock())?;
        let mut memory = File::from(rustix::fs::memfd_create("credential", MemfdFlags::CLOEXEC)?);
        memory.write_all(&content)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
        Ok(Self { name: PathBuf::from("-"), path, _memory: Some(memory) })
    }

    /// The name for the report.
    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// The path at which the file can be opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        read_limited(File::open(&self.path)?)
    }
}

/// Reads as many bytes as a component accepts in its credential file. More bytes are an error.
fn read_limited(source: impl Read) -> io::Result<Vec<u8>> {
    let limit = CredentialFileOptions::default().size_limit;
    let mut content = Vec::new();
    source.take(limit + 1).read_to_end(&mut content)?;
    if u64::try_from(content.len()).is_ok_and(|length| length > limit) {
        let message = format!("it has more than {limit} bytes; a credential has some kilobytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(content)
}

/// The files in a directory whose names do not begin with a dot, and links whose target is missing.
fn credential_paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // A file whose metadata cannot be read is reported as unreadable.
        let is_other = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        if !is_hidden && !is_other {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The error of reading a file, a directory or standard input.
pub(super) fn read_error(name: &Path, error: &io::Error) -> CommandError {
    let (name, hint) = if name == Path::new("-") {
        ("standard input".to_owned(), "write the content of the file to standard input")
    } else {
        (name.display().to_string(), READ_HINT)
    };
    CommandError::invalid_input(format!("{name} cannot be read")).with_cause(error).with_hint(hint)
}

/// What to do about a file that cannot be read.
pub(super) const READ_HINT: &str =
    "give the path of the mounted file, such as /mnt/certs/<secret name>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_standard_input() {
        let error = io::Error::other("broken");
        let text = read_error(Path::new("-"), &error).to_string();
        assert!(text.starts_with("error: standard input cannot be read: broken"), "{text}");
        let text = read_error(Path::new("/mnt/x"), &error).to_string();
        assert!(text.starts_with("error: /mnt/x cannot be read: broken"), "{text}");
    }
}
