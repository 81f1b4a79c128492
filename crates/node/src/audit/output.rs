//! The outputs of the audit trail: a file that may be renamed, or standard output.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::audit::chain::HashChain;
use crate::audit::{AuditError, AuditSink};

/// The number of bytes at the end of a file in which the last line is searched. A line has some hundred
/// bytes.
const TAIL_BYTES: u64 = 64 << 10;

/// Writes lines.
pub(super) trait LineOutput: fmt::Debug + Send {
    /// Writes a whole line, or returns an error.
    fn write_line(&mut self, line: &str) -> io::Result<()>;
}

/// Opens the output, and returns the position of its chain.
pub(super) fn open_output(
    sink: &AuditSink,
) -> Result<(Box<dyn LineOutput>, HashChain), AuditError> {
    match sink {
        AuditSink::Stdout => Ok((Box::new(StdoutOutput), HashChain::default())),
        AuditSink::File(path) => {
            let (file, chain) = AuditFileOutput::open(path)
                .map_err(|source| AuditError::Open { path: path.clone(), source })?;
            Ok((Box::new(file), chain))
        }
    }
}

/// Standard output.
#[derive(Debug)]
struct StdoutOutput;

impl LineOutput for StdoutOutput {
    fn write_line(&mut self, line: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        stdout.flush()
    }
}

/// A file in append mode. Log rotation may rename or truncate it: after a rename, a new file with the old
/// name is opened.
#[derive(Debug)]
pub(super) struct AuditFileOutput {
    path: PathBuf,
    file: File,
    file_id: (u64, u64),
    /// Whether the file ends within a line, because a process was killed or the disk was full.
    ends_mid_line: bool,
}

impl AuditFileOutput {
    /// Opens the file, creates it if needed, and finds the position of its chain.
    pub(super) fn open(path: &Path) -> io::Result<(Self, HashChain)> {
        let file = open_append(path)?;
        let (last, torn) = last_line(path)?;
        let chain = match last {
            None => HashChain::default(),
            Some(line) => HashChain::resume_after(&line).unwrap_or_else(|| {
                tracing::warn!(
                    path = %path.display(),
                    "the last line of the audit trail is invalid; starting a new chain"
                );
                HashChain::default()
            }),
        };
        let identity = file_id_of(&file.metadata()?);
        Ok((Self { path: path.to_owned(), file, file_id: identity, ends_mid_line: torn }, chain))
    }

    /// Reopens the path if the file was renamed.
    fn reopen_if_renamed(&mut self) -> io::Result<()> {
        let there = match std::fs::metadata(&self.path) {
            Ok(metadata) => Some(file_id_of(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if there != Some(self.file_id) {
            self.file = open_append(&self.path)?;
            self.file_id = file_id_of(&self.file.metadata()?);
            self.ends_mid_line = last_line(&self.path)?.1;
        }
        Ok(())
    }
}

impl LineOutput for AuditFileOutput {
    fn write_line(&mut self, line: &str) -> io::Result<()> {
        self.reopen_if_renamed()?;
        if self.ends_mid_line {
            self.file.write_all(b"\n")?;
        }
        self.ends_mid_line = true;
        self.file.write_all(line.as_bytes())?;
        self.ends_mid_line = false;
        Ok(())
    }
}

fn open_append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn file_id_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Returns the last whole line of a file, and whether a partial line follows.
fn last_line(path: &Path) -> io::Result<(Option<String>, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    let torn = tail.last().is_some_and(|byte| *byte != b'\n');
    let text = String::from_utf8_lossy(&tail);
    let whole = text.rsplit_once('\n').map(|(whole, _)| whole);
    let last = whole.and_then(|whole| whole.lines().rfind(|line| !line.is_empty()));
    Ok((last.map(str::to_owned), torn))
}
