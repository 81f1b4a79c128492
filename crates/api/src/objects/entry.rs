//! Reading the parameter `objects`.
//!
//! Whoever may make a class chooses this text, and every node that mounts it reads it: so there
//! are limits before there is any work, and the work grows with the text and no faster.

use std::collections::HashMap;

use lanyard_vocabulary::{ObjectEncoding, SecretName};

use super::{FileName, ObjectEntry, ObjectFormat, ObjectKind, ObjectVersion, excerpt, problem};
use crate::parameters::ParameterProblem;
use crate::source_text::{Node, parse_node};

/// Reads the entries, with every problem of every entry added to `problems`.
pub(crate) fn parse_objects(text: &str, problems: &mut Vec<ParameterProblem>) -> Vec<ObjectEntry> {
    let items = match array(text) {
        Ok(items) => items,
        Err(problem) => {
            problems.push(problem);
            return Vec::new();
        }
    };
    let first = problems.len();
    let mut entries: Vec<(usize, ObjectEntry)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match fields(item) {
            Ok(fields) => {
                let mut reader = EntryReader { index, fields, problems };
                if let Some(entry) = reader.entry() {
                    entries.push((index, entry));
                }
            }
            Err(reason) => problems.push(problem(index, "", reason)),
        }
    }
    if let Err(problem) = within("files to write", files_of(&entries), MOST_FILES) {
        problems.push(problem);
    } else {
        refuse_collisions(&entries, problems);
    }
    let more = problems.len().saturating_sub(first + MOST_PROBLEMS);
    if more > 0 {
        problems.truncate(first + MOST_PROBLEMS);
        problems.push(ParameterProblem::MoreObjects { more });
    }
    entries.into_iter().map(|(_, entry)| entry).collect()
}

/// The list under `array`.
fn array(text: &str) -> Result<Vec<Node>, ParameterProblem> {
    if text.is_empty() {
        return Err(ParameterProblem::Missing { key: "objects", similar: None });
    }
    within("bytes", text.len(), LONGEST_TEXT)?;
    let refuse = |reason: String| ParameterProblem::Objects { reason: excerpt(reason) };
    let node = parse_node(text).map_err(|error| refuse(format!("it is not YAML: {error}")))?;
    let Node::Mapping(entries) = node else {
        return Err(refuse(format!(
            "it is {} and not a mapping with the key `array`",
            node.kind()
        )));
    };
    let array = entries.into_iter().find_map(|(key, value)| (key == "array").then_some(value));
    match array {
        Some(Node::Sequence(items)) if !items.is_empty() => {
            within("entries", items.len(), MOST_ENTRIES)?;
            Ok(items)
        }
        Some(Node::Sequence(_)) => Err(refuse("the list `array` is empty".to_owned())),
        Some(node) if node.is_null() => Err(refuse("the list `array` is empty".to_owned())),
        Some(node) => Err(refuse(format!("`array` is {} and not a list", node.kind()))),
        None => Err(refuse("it has no key `array`".to_owned())),
    }
}

/// The fields of an entry, which is a text with YAML in it.
fn fields(item: &Node) -> Result<Vec<(String, Node)>, String> {
    let Node::Scalar { text, .. } = item else {
        return Err(format!("it is {} and not a text; write `- |` before the fields", item.kind()));
    };
    match parse_node(text).map_err(|error| format!("it is not YAML: {error}"))? {
        Node::Mapping(fields) => Ok(fields),
        node => Err(format!("it holds {} and not a mapping", node.kind())),
    }
}

fn within(what: &'static str, found: usize, most: usize) -> Result<(), ParameterProblem> {
    if found <= most {
        return Ok(());
    }
    Err(ParameterProblem::TooManyObjects { what, found, most })
}

fn files_of(entries: &[(usize, ObjectEntry)]) -> usize {
    let files = |entry: &ObjectEntry| usize::try_from(entry.history).unwrap_or(usize::MAX).max(1);
    entries.iter().map(|(_, entry)| files(entry)).fold(0, usize::saturating_add)
}

/// Two entries cannot write the same path, nor one a file where the other needs a directory.
fn refuse_collisions(entries: &[(usize, ObjectEntry)], problems: &mut Vec<ParameterProblem>) {
    let mut taken = Taken::default();
    for (index, entry) in entries {
        if let Some(other) = taken.take(*index, entry) {
            let reason = format!("its file `{}` collides with objects[{other}]", entry.file_name());
            problems.push(problem(*index, "objectAlias", reason));
        }
    }
}

/// The place of the entry that writes a file first, and of the one that needs a directory first.
#[derive(Default)]
struct Taken {
    files: HashMap<String, usize>,
    directories: HashMap<String, usize>,
}

impl Taken {
    /// Takes the paths of an entry; gives the first entry whose paths are in their way.
    fn take(&mut self, index: usize, entry: &ObjectEntry) -> Option<usize> {
        let name = entry.file_name();
        let files = entry.paths();
        let mut directories: Vec<&str> =
            name.match_indices('/').map(|(end, _)| &name[..end]).collect();
        if entry.history > 1 {
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

struct EntryReader<'a> {
    index: usize,
    fields: Vec<(String, Node)>,
    problems: &'a mut Vec<ParameterProblem>,
}

impl EntryReader<'_> {
    fn entry(&mut self) -> Option<ObjectEntry> {
        let known = self.problems.len();
        let name = self.name();
        let kind = self.kind();
        let format = self.format();
        let encoding = self.encoding();
        let entry = (
            self.read("objectAlias", |text| text.parse::<FileName>().map_err(|e| e.to_string())),
            self.read("objectVersion", |text| {
                text.parse::<ObjectVersion>().map_err(|e| e.to_string())
            }),
            self.read("objectVersionHistory", parse_history),
            self.read("filePermission", parse_permission),
        );
        self.refuse_for_other_kinds(kind, format, encoding);
        if self.problems.len() > known {
            return None;
        }
        let (alias, version, history, file_permission) = entry;
        Some(ObjectEntry {
            name: name?,
            kind: kind?,
            alias,
            version,
            history: history.unwrap_or(1),
            format,
            encoding,
            file_permission,
        })
    }

    /// The name is required, so a null can only be a secret that is called `null`.
    fn name(&mut self) -> Option<SecretName> {
        let text = match self.field("objectName") {
            Some(Node::Scalar { text, .. }) => text.trim().to_owned(),
            _ => self.text("objectName").unwrap_or_default(),
        };
        self.parsed("objectName", text.parse::<SecretName>().map_err(|error| error.to_string()))
    }

    fn kind(&mut self) -> Option<ObjectKind> {
        let text = self.text("objectType").unwrap_or_default();
        let kind = ObjectKind::ALL.into_iter().find(|kind| kind.name() == text);
        let reason = || format!("`{text}` is not one of `secret`, `key`, `cert`");
        self.parsed("objectType", kind.ok_or_else(reason))
    }

    fn format(&mut self) -> Option<ObjectFormat> {
        self.read("objectFormat", |text| {
            ObjectFormat::ALL
                .into_iter()
                .find(|format| format.name().eq_ignore_ascii_case(text))
                .ok_or_else(|| format!("`{text}` is not one of `pem`, `pfx`"))
        })
    }

    fn encoding(&mut self) -> Option<ObjectEncoding> {
        self.read("objectEncoding", |text| {
            ObjectEncoding::parse_any_case(text)
                .ok_or_else(|| format!("`{text}` is not one of `utf-8`, `hex`, `base64`"))
        })
    }

    fn refuse_for_other_kinds(
        &mut self,
        kind: Option<ObjectKind>,
        format: Option<ObjectFormat>,
        encoding: Option<ObjectEncoding>,
    ) {
        let Some(kind) = kind.filter(|kind| *kind != ObjectKind::Secret) else { return };
        let reason = format!("it is for objects of type `secret`, and this is a `{kind}`");
        if format == Some(ObjectFormat::Pfx) {
            self.problems.push(problem(self.index, "objectFormat", reason.clone()));
        }
        if encoding.is_some() {
            self.problems.push(problem(self.index, "objectEncoding", reason));
        }
    }

    fn read<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(field)?;
        self.parsed(field, parse(&text))
    }

    /// The trimmed text of a field; nothing when it is absent, null or blank.
    fn text(&mut self, field: &'static str) -> Option<String> {
        let node = self.field(field).filter(|node| !node.is_null())?;
        if let Node::Scalar { text, .. } = node {
            return Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        let reason = format!("it is {} and not a text", node.kind());
        self.problems.push(problem(self.index, field, reason));
        None
    }

    fn field(&self, field: &str) -> Option<&Node> {
        self.fields.iter().find_map(|(key, value)| (key == field).then_some(value))
    }

    fn parsed<T>(&mut self, field: &'static str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.problems.push(problem(self.index, field, reason))).ok()
    }
}

/// The longest text, in bytes: five hundred entries with every field are half of it.
const LONGEST_TEXT: usize = 256 * 1024;

/// The most entries.
const MOST_ENTRIES: usize = 500;

/// The most files that all entries write together, versions of a history included. A volume keeps
/// an inode for each per generation, for as long as it lives.
pub const MOST_FILES: usize = 4096;

/// How many problems are told one by one: they go into events and into answers to the kubelet.
const MOST_PROBLEMS: usize = 20;

/// The most versions of one object that one class may ask for.
const LONGEST_HISTORY: i32 = 1000;

fn parse_history(text: &str) -> Result<u32, String> {
    let count: i32 = text.parse().map_err(|error| format!("`{text}`: {error}"))?;
    if count > LONGEST_HISTORY {
        return Err(format!("`{text}` is more than {LONGEST_HISTORY} versions"));
    }
    Ok(u32::try_from(count).map_or(1, |count| count.max(1)))
}

/// Octal text. Upstream turns a text that is none into mode 0 and says nothing.
fn parse_permission(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 && !text.starts_with('+') => Ok(mode),
        _ => Err(format!("`{text}` is not an octal file mode between 0 and 0777")),
    }
}
