//! The parameter `objects` of a SecretProviderClass for Key Vault: which vault objects become which
//! files.
//!
//! The value is a YAML mapping with the key `array`: a list of strings, each of which is itself a
//! YAML mapping. As in the upstream provider, every scalar is a string, values are trimmed, and
//! unknown fields are ignored.

use std::fmt::Write as _;
use std::str::FromStr;

use lanyard_vocabulary::{ObjectEncoding, ParseIdentifierError, SecretName};

use crate::parameter_problem::ParameterProblem;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::MAX_FILES;
pub(crate) use entry::parse_objects;

/// One entry of `objects`: a vault object and the file in which its content is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultObjectEntry {
    /// `objectName`: the name of the object in the vault.
    pub name: SecretName,
    /// `objectType`.
    pub kind: VaultObjectKind,
    /// `objectAlias`: the file name; defaults to the name of the object.
    pub alias: Option<MountFileName>,
    /// `objectVersion`; `None` means the current version at every read.
    pub version: Option<VaultObjectVersion>,
    /// `objectVersionHistory`: the number of versions to write as `<file>/<index>`, newest first.
    /// One (the minimum) writes a single version to the file itself.
    pub history_length: u32,
    /// `objectFormat`; `None` means PEM. PFX is allowed for secrets only.
    pub format: Option<VaultObjectFormat>,
    /// `objectEncoding`, applied after the format conversion; `None` means UTF-8. Allowed for
    /// secrets only.
    pub encoding: Option<ObjectEncoding>,
    /// `filePermission`, at most `0o777`; `None` means the permission from the mount request.
    pub file_permission: Option<u32>,
}

impl VaultObjectEntry {
    /// Creates an entry for the current version of a secret, written to a file of the same name.
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

    /// Returns the path of the file in the mount; with a version history, the path of the
    /// directory.
    pub fn file_name(&self) -> &str {
        self.alias.as_ref().map_or_else(|| self.name.as_str(), MountFileName::as_str)
    }

    /// Returns every path that the entry writes: one, or one for each version of the history.
    pub fn paths(&self) -> Vec<String> {
        if self.history_length <= 1 {
            return vec![self.file_name().to_owned()];
        }
        (0..self.history_length).map(|index| format!("{}/{index}", self.file_name())).collect()
    }
}

/// The type of an object in a vault. Names are case-sensitive and lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VaultObjectKind {
    /// `secret`.
    Secret,
    /// `key`: the file contains the public key.
    Key,
    /// `cert`: the file contains the certificate without its private key.
    Certificate,
}

impl VaultObjectKind {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Secret, Self::Key, Self::Certificate];

    /// Returns the value for `objectType`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Certificate => "cert",
        }
    }
}

lanyard_vocabulary::display_text!(VaultObjectKind, name());

/// The file format for the secret of a certificate. Names are case-insensitive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VaultObjectFormat {
    /// `pem`: PKCS#12 values are converted to PEM.
    Pem,
    /// `pfx`: PKCS#12 values are written unchanged.
    Pfx,
}

impl VaultObjectFormat {
    /// All formats.
    pub const ALL: [Self; 2] = [Self::Pem, Self::Pfx];

    /// Returns the value for `objectFormat`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pem => "pem",
            Self::Pfx => "pfx",
        }
    }
}

/// A relative file path in a mount: segments separated by `/`, without `..` anywhere.
///
/// `a..b` is rejected, too, as in the upstream provider: a class that works with lanyard must also
/// work with the upstream provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountFileName(String);

impl MountFileName {
    /// Returns the path.
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

lanyard_vocabulary::display_text!(MountFileName, 0);

/// A version of a vault object, or `latest` as the start of a version history.
///
/// Azure's versions have 32 hexadecimal digits. Any string of letters, digits and `-` is accepted:
/// such a version is always a single URL segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VaultObjectVersion(String);

impl VaultObjectVersion {
    /// Returns the version.
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

lanyard_vocabulary::display_text!(VaultObjectVersion, 0);

/// Renders the parameter `objects`.
///
/// An entry that has only a secret name and an encoding is rendered byte for byte as HyperShift's
/// operators do, with the name unquoted: the provider reads every scalar as a string.
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

/// Renders the name unquoted, as HyperShift does, except for a lone `-`. Unquoted, that name would
/// begin a YAML list, and HyperShift's own rendering of it cannot be parsed.
fn render_secret_name(name: &SecretName) -> String {
    if name.as_str() == "-" { single_quoted("-") } else { name.to_string() }
}

fn single_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Creates a problem of one object entry, with the entry's index.
pub(crate) fn entry_problem(
    index: usize,
    field: &'static str,
    reason: impl Into<String>,
) -> ParameterProblem {
    ParameterProblem::InvalidObject { index, field, reason: truncate_reason(reason.into()) }
}

/// Reasons quote values of the class, which may be long.
fn truncate_reason(mut reason: String) -> String {
    if reason.len() > MAX_REASON_BYTES {
        reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
        reason.push('…');
    }
    reason
}

const MAX_REASON_BYTES: usize = 512;
