//! The files of a credential check: one file, the files of a directory, or standard input.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

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
        if argument == Path::new("-") {
            let file = CredentialFile::of_standard_input()
                .map_err(|error| read_error(argument, &error))?;
            return Ok(Self { files: vec![file], is_directory: false });
        }
        if !argument.is_dir() {
            let file = CredentialFile::at(argument.to_owned());
            return Ok(Self { files: vec![file], is_directory: false });
        }
        let entries = std::fs::read_dir(argument).map_err(|error| read_error(argument, &error))?;
        let is_hidden = |path: &Path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut paths: Vec<_> = paths.filter(|path| path.is_file() && !is_hidden(path)).collect();
        paths.sort();
        if paths.is_empty() {
            return Err(CommandError::invalid_input(format!("{} has no file", argument.display()))
                .with_hint("give the directory of the mount, or a file in it"));
        }
        Ok(Self { files: paths.into_iter().map(CredentialFile::at).collect(), is_directory: true })
    }
}

impl CredentialFile {
    fn at(path: PathBuf) -> Self {
        Self { name: path.clone(), path, _memory: None }
    }

    /// Keeps the content in memory: it contains a private key.
    fn of_standard_input() -> io::Result<Self> {
        let mut content = Vec::new();
        io::stdin().read_to_end(&mut content)?;
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

    pub(super) fn read(&self) -> Result<Vec<u8>, CommandError> {
        std::fs::read(&self.path).map_err(|error| read_error(&self.name, &error))
    }
}

fn read_error(name: &Path, error: &io::Error) -> CommandError {
    CommandError::invalid_input(format!("{} cannot be read", name.display()))
        .with_cause(error)
        .with_hint("give the path of the file in the mount, such as /mnt/certs/<secret name>")
}
