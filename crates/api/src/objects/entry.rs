//! Parsing of the parameter `objects`.
//!
//! Any user who may create a SecretProviderClass controls this value, and every node that mounts
//! the class parses it. Size limits therefore apply before parsing, and the work is linear in the
//! size of the value.

use std::collections::HashMap;

use lanyard_vocabulary::{ObjectEncoding, SecretName};

use super::{
    MountFileName, VaultObjectEntry, VaultObjectFormat, VaultObjectKind, VaultObjectVersion,
    entry_problem, truncate_reason,
};
use crate::parameter_problem::ParameterProblem;
use crate::yaml_source::{YamlNode, parse_yaml_node};

/// Parses the entries and adds every problem of every entry to `problems`.
pub(crate) fn parse_objects(
    text: &str,
    problems: &mut Vec<ParameterProblem>,
) -> Vec<VaultObjectEntry> {
    let items = match parse_array(text) {
        Ok(items) => items,
        Err(problem) => {
            problems.push(problem);
            return Vec::new();
        }
    };
    let first = problems.len();
    let mut entries: Vec<(usize, VaultObjectEntry)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match parse_entry_fields(item) {
            Ok(fields) => {
                let mut reader = ObjectEntryReader { index, fields, problems };
                if let Some(entry) = reader.read_entry() {
                    entries.push((index, entry));
                }
            }
            Err(reason) => problems.push(entry_problem(index, "", reason)),
        }
    }
    if let Err(problem) = check_limit("files to write", count_files(&entries), MAX_FILES) {
        problems.push(problem);
    } else {
        report_path_collisions(&entries, problems);
    }
    let more = problems.len().saturating_sub(first + MAX_REPORTED_PROBLEMS);
    if more > 0 {
        problems.truncate(first + MAX_REPORTED_PROBLEMS);
        problems.push(ParameterProblem::MoreObjectProblems { more });
    }
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// Returns the list under the key `array`.
fn parse_array(text: &str) -> Result<Vec<YamlNode>, ParameterProblem> {
    if text.is_empty() {
        return Err(ParameterProblem::Missing { key: "objects", similar: None });
    }
    check_limit("bytes", text.len(), MAX_PARAMETER_BYTES)?;
    let refuse =
        |reason: String| ParameterProblem::InvalidObjects { reason: truncate_reason(reason) };
    let node = parse_yaml_node(text).map_err(|error| refuse(format!("it is not YAML: {error}")))?;
    let YamlNode::Mapping(entries) = node else {
        return Err(refuse(format!(
            "it is {} and not a mapping with the key `array`",
            node.kind_with_article()
        )));
    };
    let array = entries.into_iter().find_map(|(key, value)| (key == "array").then_some(value));
    match array {
        Some(YamlNode::Sequence(items)) if !items.is_empty() => {
            check_limit("entries", items.len(), MAX_ENTRIES)?;
            Ok(items)
        }
        Some(YamlNode::Sequence(_)) => Err(refuse("the list `array` is empty".to_owned())),
        Some(node) if node.is_null() => Err(refuse("the list `array` is empty".to_owned())),
        Some(node) => {
            Err(refuse(format!("`array` is {} and not a list", node.kind_with_article())))
        }
        None => Err(refuse("it has no key `array`".to_owned())),
    }
}

/// Parses the fields of an entry, which is a string that contains YAML.
fn parse_entry_fields(item: &YamlNode) -> Result<Vec<(String, YamlNode)>, String> {
    let YamlNode::Scalar { text, .. } = item else {
        return Err(format!(
            "it is {} and not a string; write `- |` before the fields",
            item.kind_with_article()
        ));
    };
    match parse_yaml_node(text).map_err(|error| format!("it is not YAML: {error}"))? {
        YamlNode::Mapping(fields) => Ok(fields),
        node => Err(format!("it holds {} and not a mapping", node.kind_with_article())),
    }
}

fn check_limit(what: &'static str, found: usize, most: usize) -> Result<(), ParameterProblem> {
    if found <= most {
        return Ok(());
    }
    Err(ParameterProblem::TooManyObjects { what, found, most })
}

fn count_files(entries: &[(usize, VaultObjectEntry)]) -> usize {
    let files = |entry: &VaultObjectEntry| {
        usize::try_from(entry.history_length).unwrap_or(usize::MAX).max(1)
    };
    entries.iter().map(|(_, entry)| files(entry)).fold(0, usize::saturating_add)
}

/// Reports entries that write the same path, or a file where another entry needs a directory.
fn report_path_collisions(
    entries: &[(usize, VaultObjectEntry)],
    problems: &mut Vec<ParameterProblem>,
) {
    let mut taken = ClaimedPaths::default();
    for (index, entry) in entries {
        if let Some(other) = taken.claim(*index, entry) {
            let reason = format!("its file `{}` collides with objects[{other}]", entry.file_name());
            problems.push(entry_problem(*index, "objectAlias", reason));
        }
    }
}

/// The index of the first entry that writes each file, and of the first entry that needs each
/// directory.
#[derive(Default)]
struct ClaimedPaths {
    files: HashMap<String, usize>,
    directories: HashMap<String, usize>,
}

impl ClaimedPaths {
    /// Claims the paths of an entry. Returns the first entry with which they collide.
    fn claim(&mut self, index: usize, entry: &VaultObjectEntry) -> Option<usize> {
        let name = entry.file_name();
        let files = entry.paths();
        let mut directories: Vec<&str> =
            name.match_indices('/').map(|(end, _)| &name[..end]).collect();
        if entry.history_length > 1 {
            directories.push(name);
        }
        let in_files = directories.iter().copied().chain(files.iter().map(String::as_str));
        let in_files = in_files.filter_map(|path| self.files.get(path));
        let in_directories = files.iter().filter_map(|path| self.directories.get(path));
        let first = in_files.chain(in_directories).min().copied();
        for path in directories {
            self.directories.entry(path.to_owned()).or_insert(index);
        }
        for path in files {
            self.files.entry(path).or_insert(index);
        }
        first
    }
}

struct ObjectEntryReader<'a> {
    index: usize,
    fields: Vec<(String, YamlNode)>,
    problems: &'a mut Vec<ParameterProblem>,
}

impl ObjectEntryReader<'_> {
    fn read_entry(&mut self) -> Option<VaultObjectEntry> {
        let known = self.problems.len();
        let name = self.read_name();
        let kind = self.read_kind();
        let format = self.read_format();
        let encoding = self.read_encoding();
        let entry = (
            self.read_optional("objectAlias", |text| {
                text.parse::<MountFileName>().map_err(|e| e.to_string())
            }),
            self.read_optional("objectVersion", |text| {
                text.parse::<VaultObjectVersion>().map_err(|e| e.to_string())
            }),
            self.read_optional("objectVersionHistory", parse_history),
            self.read_optional("filePermission", parse_file_permission),
        );
        self.report_secret_only_fields(kind, format, encoding);
        if self.problems.len() > known {
            return None;
        }
        let (alias, version, history, file_permission) = entry;
        Some(VaultObjectEntry {
            name: name?,
            kind: kind?,
            alias,
            version,
            history_length: history.unwrap_or(1),
            format,
            encoding,
            file_permission,
        })
    }

    /// The name is required, so a YAML null is read as a secret with the name `null`.
    fn read_name(&mut self) -> Option<SecretName> {
        let text = match self.find_field("objectName") {
            Some(YamlNode::Scalar { text, .. }) => text.trim().to_owned(),
            _ => self.read_text("objectName").unwrap_or_default(),
        };
        self.record_problem(
            "objectName",
            text.parse::<SecretName>().map_err(|error| error.to_string()),
        )
    }

    fn read_kind(&mut self) -> Option<VaultObjectKind> {
        let text = self.read_text("objectType").unwrap_or_default();
        let kind = VaultObjectKind::ALL.into_iter().find(|kind| kind.name() == text);
        let reason = || format!("`{text}` is not one of `secret`, `key`, `cert`");
        self.record_problem("objectType", kind.ok_or_else(reason))
    }

    fn read_format(&mut self) -> Option<VaultObjectFormat> {
        self.read_optional("objectFormat", |text| {
            VaultObjectFormat::ALL
                .into_iter()
                .find(|format| format.name().eq_ignore_ascii_case(text))
                .ok_or_else(|| format!("`{text}` is not one of `pem`, `pfx`"))
        })
    }

    fn read_encoding(&mut self) -> Option<ObjectEncoding> {
        self.read_optional("objectEncoding", |text| {
            ObjectEncoding::parse_any_case(text)
                .ok_or_else(|| format!("`{text}` is not one of `utf-8`, `hex`, `base64`"))
        })
    }

    fn report_secret_only_fields(
        &mut self,
        kind: Option<VaultObjectKind>,
        format: Option<VaultObjectFormat>,
        encoding: Option<ObjectEncoding>,
    ) {
        let Some(kind) = kind.filter(|kind| *kind != VaultObjectKind::Secret) else { return };
        let reason = format!("it is for objects of type `secret`, and this is a `{kind}`");
        if format == Some(VaultObjectFormat::Pfx) {
            self.problems.push(entry_problem(self.index, "objectFormat", reason.clone()));
        }
        if encoding.is_some() {
            self.problems.push(entry_problem(self.index, "objectEncoding", reason));
        }
    }

    fn read_optional<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.read_text(field)?;
        self.record_problem(field, parse(&text))
    }

    /// Returns the trimmed value of a field; `None` if it is absent, null or blank.
    fn read_text(&mut self, field: &'static str) -> Option<String> {
        let node = self.find_field(field).filter(|node| !node.is_null())?;
        if let YamlNode::Scalar { text, .. } = node {
            return Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        let reason = format!("it is {} and not a string", node.kind_with_article());
        self.problems.push(entry_problem(self.index, field, reason));
        None
    }

    fn find_field(&self, field: &str) -> Option<&YamlNode> {
        self.fields.iter().find_map(|(key, value)| (key == field).then_some(value))
    }

    fn record_problem<T>(&mut self, field: &'static str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.problems.push(entry_problem(self.index, field, reason))).ok()
    }
}

/// The maximum size of the parameter, in bytes. Five hundred entries with every field need half of
/// it.
const MAX_PARAMETER_BYTES: usize = 256 * 1024;

/// The maximum number of entries.
const MAX_ENTRIES: usize = 500;

/// The maximum number of files that all entries write together, versions of a history included. A
/// volume needs one inode per file and generation for its whole lifetime.
pub const MAX_FILES: usize = 4096;

/// The maximum number of problems that are listed individually: problems appear in events and in
/// responses to the kubelet.
const MAX_REPORTED_PROBLEMS: usize = 20;

/// The maximum number of versions that a class may request of one object.
const MAX_HISTORY_LENGTH: i32 = 1000;

fn parse_history(text: &str) -> Result<u32, String> {
    let count: i32 = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
    if count > MAX_HISTORY_LENGTH {
        return Err(format!("`{text}` is more than {MAX_HISTORY_LENGTH} versions"));
    }
    Ok(u32::try_from(count).map_or(1, |count| count.max(1)))
}

/// Parses an octal mode. The upstream provider silently treats an invalid value as mode 0.
fn parse_file_permission(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && !text.starts_with('+') => Ok(mode),
        _ => Err(format!("`{text}` is not an octal file mode between 0 and 0777")),
    }
}
