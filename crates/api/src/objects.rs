//! The parameter `objects` of a Key Vault class: which objects become which files.
//!
//! The text is a YAML mapping with the key `array`, a list of strings, each of which is a YAML
//! mapping again. Every scalar is text, whatever it looks like; texts are trimmed; fields that
//! are not known are ignored, as the upstream provider does.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use lanyard_vocabulary::{ObjectEncoding, ParseIdentifierError, SecretName};

use crate::parameters::ParameterProblem;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::MAX_FILES;
pub(crate) use entry::parse_objects;

/// One entry of `objects`: an object of the vault and the file that it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultObjectEntry {
    /// `objectName`: the name of the object in the vault.
    pub name: SecretName,
    /// `objectType`.
    pub kind: VaultObjectKind,
    /// `objectAlias`: the file to write instead of one named after the object.
    pub alias: Option<MountFileName>,
    /// `objectVersion`; nothing means the current version, at every read.
    pub version: Option<VaultObjectVersion>,
    /// `objectVersionHistory`: how many versions become files `<file>/<index>`, newest first.
    /// One (never less) means a single version in the file itself.
    pub history_length: u32,
    /// `objectFormat`; nothing means PEM. PFX is for secrets only.
    pub format: Option<VaultObjectFormat>,
    /// `objectEncoding`, applied after the conversion of the format; nothing means UTF-8. For
    /// secrets only.
    pub encoding: Option<ObjectEncoding>,
    /// `filePermission`, at most `0o777`; nothing means the permission of the mount request.
    pub file_permission: Option<u32>,
}

impl VaultObjectEntry {
    /// The current version of a secret, in a file of the same name.
    pub const fn secret(name: SecretName, encoding: Option<ObjectEncoding>) -> Self {
        Self {
            name,
            kind: VaultObjectKind::Secret,
            alias: None,
            version: None,
            history_length: 1,
            format: None,
            encoding,
            file_permission: None,
        }
    }

    /// The path of the file in the mount (of the directory, where a history is asked for).
    pub fn file_name(&self) -> &str {
        self.alias.as_ref().map_or_else(|| self.name.as_str(), MountFileName::as_str)
    }

    /// Every path that the entry writes: one, or one for each version of the history.
    pub fn paths(&self) -> Vec<String> {
        if self.history_length <= 1 {
            return vec![self.file_name().to_owned()];
        }
        (0..self.history_length).map(|index| format!("{}/{index}", self.file_name())).collect()
    }
}

/// The kind of an object in a vault. The names are lower case, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VaultObjectKind {
    /// `secret`.
    Secret,
    /// `key`: its public part becomes a file.
    Key,
    /// `cert`: the certificate without its private key.
    Certificate,
}

impl VaultObjectKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Secret, Self::Key, Self::Certificate];

    /// The name in `objectType`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Certificate => "cert",
        }
    }
}

impl fmt::Display for VaultObjectKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The format of the file of a secret that belongs to a certificate. Names are read in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VaultObjectFormat {
    /// `pem`: a PKCS#12 value is converted.
    Pem,
    /// `pfx`: a PKCS#12 value stays what it is.
    Pfx,
}

impl VaultObjectFormat {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Pem, Self::Pfx];

    /// The name in `objectFormat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pem => "pem",
            Self::Pfx => "pfx",
        }
    }
}

/// The path of a file in a mount: relative, of segments divided by `/`, without `..` anywhere.
///
/// `a..b` is refused too, as upstream does; a class that it refuses must not begin to work here
/// and break when it is used there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountFileName(String);

impl MountFileName {
    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MountFileName {
    type Err = ParseIdentifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let segments = |text: &str| text.split('/').all(|part| !part.is_empty() && part != ".");
        if segments(text) && !text.contains("..") && !text.chars().any(char::is_control) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseIdentifierError {
            kind: "a file name",
            rule: "a relative path of non-empty segments, without `..` and control characters",
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for MountFileName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// A version of an object, or `latest` as the start of a history.
///
/// Azure's versions are 32 hexadecimal digits. Any text of letters, digits and `-` is taken, so
/// that a version stays one segment of a URL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VaultObjectVersion(String);

impl VaultObjectVersion {
    /// The version as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VaultObjectVersion {
    type Err = ParseIdentifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if (1..=127).contains(&text.len()) && text.chars().all(valid) {
            return Ok(Self(text.to_owned()));
        }
        Err(ParseIdentifierError {
            kind: "an object version",
            rule: "1 to 127 letters, digits and `-`",
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for VaultObjectVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// Writes the parameter `objects`.
///
/// A secret with an encoding and nothing else is written byte for byte as HyperShift's operators
/// write it, with the name unquoted: the reader takes every scalar as text.
pub(crate) fn render_objects(entries: &[VaultObjectEntry]) -> String {
    let mut text = String::from("\narray:\n");
    for entry in entries {
        text.push_str("  - |\n");
        for (field, value) in entry_fields(entry) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    {field}: {value}");
        }
    }
    text
}

fn entry_fields(entry: &VaultObjectEntry) -> Vec<(&'static str, String)> {
    let mut fields = vec![("objectName", render_secret_name(&entry.name))];
    let mut push = |field, value: Option<String>| fields.extend(value.map(|value| (field, value)));
    push("objectEncoding", entry.encoding.map(|encoding| encoding.name().to_owned()));
    push("objectType", Some(entry.kind.name().to_owned()));
    push("objectAlias", entry.alias.as_ref().map(|alias| single_quoted(alias.as_str())));
    push("objectVersion", entry.version.as_ref().map(|version| single_quoted(version.as_str())));
    push(
        "objectVersionHistory",
        (entry.history_length > 1).then(|| entry.history_length.to_string()),
    );
    push("objectFormat", entry.format.map(|format| format.name().to_owned()));
    push("filePermission", entry.file_permission.map(|mode| format!("\"{mode:04o}\"")));
    fields
}

/// A name is written bare, as the reference writes it, except for the one name that is no scalar:
/// a lone `-` begins a list, and the reference's own rendering of it cannot be read.
fn render_secret_name(name: &SecretName) -> String {
    if name.as_str() == "-" { single_quoted("-") } else { name.to_string() }
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A problem of one object entry, with its place in the list.
pub(crate) fn entry_problem(
    index: usize,
    field: &'static str,
    reason: impl Into<String>,
) -> ParameterProblem {
    ParameterProblem::InvalidObject { index, field, reason: truncate_reason(reason.into()) }
}

/// A reason quotes what the class says, and that may be long.
fn truncate_reason(mut reason: String) -> String {
    if reason.len() > MAX_REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        reason.push('…');
    }
    reason
}

/// In bytes.
const MAX_REASON_BYTES: usize = 512;
