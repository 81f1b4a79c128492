//! A YAML tree whose scalars keep their source text.
//!
//! The Key Vault provider reads every scalar of an object entry as a string: an unquoted `0644` is
//! the string `0644` and not a number, and an unquoted `true` is an ordinary name. A typed YAML
//! deserializer discards that source text.

use std::collections::HashSet;

use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

/// A node of a YAML document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlNode {
    /// A scalar and its text; `is_plain` if it is neither quoted nor a block scalar.
    Scalar { text: String, is_plain: bool },
    /// A list.
    Sequence(Vec<Self>),
    /// A mapping in source order; its keys are unique.
    Mapping(Vec<(String, Self)>),
}

/// The text is not valid YAML, or uses YAML that is not supported here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub(crate) struct YamlSourceError {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The column, from 1.
    pub(crate) column: usize,
    pub(crate) reason: String,
}

impl YamlNode {
    /// Returns the kind of the node with an article, for messages.
    pub(crate) fn kind_with_article(&self) -> &'static str {
        match self {
            Self::Scalar { .. } => "a scalar",
            Self::Sequence(_) => "a list",
            Self::Mapping(_) => "a mapping",
        }
    }

    /// Whether the node is one of YAML's spellings of null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar { text, is_plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// Parses the first document of `text`. An empty text is a null.
pub(crate) fn parse_yaml_node(text: &str) -> Result<YamlNode, YamlSourceError> {
    let mut reader = YamlNodeReader { parser: Parser::new_from_str(text), line: 1, column: 1 };
    match reader.next_node_event()? {
        Some(event) => reader.read_node(event),
        None => Ok(YamlNode::Scalar { text: String::new(), is_plain: true }),
    }
}

/// Returns the path of the node that begins at a line and column (both from 1), such as
/// `spec.list[0].name`.
pub(crate) fn field_path_at(text: &str, line: u64, column: u64) -> Option<String> {
    let mut frames: Vec<CollectionFrame> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let is_node = matches!(
            event,
            Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::MappingStart(..)
                | Event::Alias(_)
        );
        if let (Event::Scalar(key, ..), Some(CollectionFrame::Mapping(waiting @ None))) =
            (&event, frames.last_mut())
        {
            *waiting = Some(key.to_string());
            if is_at_position(&span.start, line, column) {
                return Some(join_field_path(&frames));
            }
            continue;
        }
        if is_node && is_at_position(&span.start, line, column) {
            return Some(join_field_path(&frames));
        }
        match event {
            Event::SequenceStart(..) => frames.push(CollectionFrame::Sequence(0)),
            Event::MappingStart(..) => frames.push(CollectionFrame::Mapping(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                frames.pop();
                finish_value(&mut frames);
            }
            Event::Scalar(..) | Event::Alias(_) => finish_value(&mut frames),
            _ => {}
        }
    }
    None
}

/// The position of the parser in a collection.
enum CollectionFrame {
    /// The key whose value is being parsed.
    Mapping(Option<String>),
    /// The index of the item that is being parsed.
    Sequence(usize),
}

/// Advances the innermost collection past a value.
fn finish_value(frames: &mut [CollectionFrame]) {
    match frames.last_mut() {
        Some(CollectionFrame::Mapping(key)) => *key = None,
        Some(CollectionFrame::Sequence(index)) => *index += 1,
        None => {}
    }
}

fn is_at_position(place: &Marker, line: u64, column: u64) -> bool {
    u64::try_from(place.line()) == Ok(line) && u64::try_from(place.col() + 1) == Ok(column)
}

fn join_field_path(frames: &[CollectionFrame]) -> String {
    let mut path = String::new();
    for frame in frames {
        match frame {
            CollectionFrame::Mapping(Some(key)) if path.is_empty() => path.push_str(key),
            CollectionFrame::Mapping(Some(key)) => path.extend([".", key]),
            CollectionFrame::Mapping(None) => {}
            CollectionFrame::Sequence(index) => path.extend(["[", &index.to_string(), "]"]),
        }
    }
    path
}

/// Returns whether YAML parsers read an unquoted scalar as a string, and not as a null, a boolean,
/// a number or a date. The rules are those of YAML 1.1, which Kubernetes tools use.
///
/// ```
/// use lanyard_api::is_unquoted_yaml_string;
///
/// assert!(is_unquoted_yaml_string("harbour-disk"));
/// assert!(["0644", "yes", "1e5"].iter().all(|text| !is_unquoted_yaml_string(text)));
/// ```
pub fn is_unquoted_yaml_string(scalar: &str) -> bool {
    const WORDS: [&str; 10] = ["~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let digits: String = scalar.chars().filter(|c| *c != '_').collect();
    let has_digit = digits.contains(|c: char| c.is_ascii_digit());
    let number = has_digit && digits.parse::<f64>().is_ok();
    let unsigned = digits.trim_start_matches(['+', '-']);
    let prefixed = unsigned.get(..2).is_some_and(|p| matches!(p, "0x" | "0X" | "0o" | "0b"));
    let whole =
        prefixed && unsigned.len() > 2 && unsigned[2..].chars().all(|c| c.is_ascii_hexdigit());
    let date = scalar.len() == 10
        && scalar.chars().enumerate().all(|(place, c)| match place {
            4 | 7 => c == '-',
            _ => c.is_ascii_digit(),
        });
    let other = scalar.is_empty() || scalar == "-" || number || whole || date;
    !other && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(scalar))
}

struct YamlNodeReader<'text> {
    parser: Parser<'text, serde_saphyr::granit_parser::StrInput<'text>>,
    line: usize,
    column: usize,
}

impl<'text> YamlNodeReader<'text> {
    /// Returns the next event that is part of a node.
    fn next_node_event(&mut self) -> Result<Option<Event<'text>>, YamlSourceError> {
        for event in self.parser.by_ref() {
            let (event, span) = event.map_err(|error| scan_error(&error))?;
            (self.line, self.column) = (span.start.line(), span.start.col() + 1);
            match event {
                Event::DocumentEnd | Event::StreamEnd => return Ok(None),
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd
                | Event::Alias(_) => return Ok(Some(event)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The parser limits the nesting depth to 255 levels, which bounds the recursion.
    fn read_node(&mut self, event: Event<'text>) -> Result<YamlNode, YamlSourceError> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                Ok(YamlNode::Scalar { text: text.into_owned(), is_plain: plain })
            }
            Event::SequenceStart(..) => self.read_sequence(),
            Event::MappingStart(..) => self.read_mapping(),
            _ => Err(self.error_at_position("an alias cannot be used here".to_owned())),
        }
    }

    fn read_sequence(&mut self) -> Result<YamlNode, YamlSourceError> {
        let mut items = Vec::new();
        loop {
            match self.next_node_event()? {
                None | Some(Event::SequenceEnd) => return Ok(YamlNode::Sequence(items)),
                Some(event) => items.push(self.read_node(event)?),
            }
        }
    }

    fn read_mapping(&mut self) -> Result<YamlNode, YamlSourceError> {
        let mut entries: Vec<(String, YamlNode)> = Vec::new();
        let mut known = HashSet::new();
        loop {
            let key = match self.next_node_event()? {
                None | Some(Event::MappingEnd) => return Ok(YamlNode::Mapping(entries)),
                Some(Event::Scalar(key, ..)) => key.into_owned(),
                Some(_) => return Err(self.error_at_position("a key is not a scalar".to_owned())),
            };
            if !known.insert(key.clone()) {
                return Err(self.error_at_position(format!("duplicate key `{key}`")));
            }
            let Some(event) = self.next_node_event()? else {
                return Ok(YamlNode::Mapping(entries));
            };
            let value = self.read_node(event)?;
            entries.push((key, value));
        }
    }

    fn error_at_position(&self, reason: String) -> YamlSourceError {
        YamlSourceError { line: self.line, column: self.column, reason }
    }
}

fn scan_error(error: &ScanError) -> YamlSourceError {
    let place = error.marker();
    YamlSourceError { line: place.line(), column: place.col() + 1, reason: error.info() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain_scalar(text: &str) -> YamlNode {
        YamlNode::Scalar { text: text.to_owned(), is_plain: true }
    }

    #[test]
    fn a_scalar_keeps_its_source_text_whatever_it_looks_like() {
        for text in ["0644", "true", "null", "1e5", "0x1f", "~", "2026-11-21", "1_000", ".5"] {
            let node = parse_yaml_node(&format!("key: {text}")).unwrap();
            assert_eq!(
                node,
                YamlNode::Mapping(vec![("key".to_owned(), plain_scalar(text))]),
                "{text}"
            );
        }
    }

    #[test]
    fn a_place_has_the_path_of_its_node() {
        let text = "a:\n  b: [x, {c: y}]\n  d:\n    - e: z\nf: w\n";
        let cases = [
            (2, 3, Some("a")),
            (2, 6, Some("a.b")),
            (2, 10, Some("a.b[1]")),
            (3, 3, Some("a.d")),
            (2, 14, Some("a.b[1].c")),
            (4, 10, Some("a.d[0].e")),
            (5, 4, Some("f")),
            (9, 9, None),
        ];
        for (line, column, path) in cases {
            assert_eq!(field_path_at(text, line, column).as_deref(), path, "{line}:{column}");
        }
    }

    #[test]
    fn quoted_null_is_not_null() {
        assert!(parse_yaml_node("").unwrap().is_null());
        assert!(parse_yaml_node("~").unwrap().is_null());
        assert!(!parse_yaml_node("'null'").unwrap().is_null());
        assert!(!parse_yaml_node("!!str null").unwrap().is_null());
    }

    #[test]
    fn scalars_with_another_yaml_type_need_quotes() {
        let others = [
            "",
            "~",
            "null",
            "Null",
            "true",
            "No",
            "on",
            "Y",
            "0644",
            "-1",
            "+1",
            "1e5",
            "1_000",
            "0x1F",
            "0o17",
            "0b1",
            ".5",
            "1.",
            "-",
            "2026-11-21",
        ];
        for scalar in others {
            assert!(!is_unquoted_yaml_string(scalar), "{scalar:?}");
        }
        let texts =
            ["disk", "1-disk", "0xyz", "nullable", "nan", "e5", "a-1", "1-2-3", "0x", "--", "É"];
        for scalar in texts {
            assert!(is_unquoted_yaml_string(scalar), "{scalar:?}");
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        let error = parse_yaml_node("a: 1\nb: 2\na: 3\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3, column 1: duplicate key `a`");
        let error = parse_yaml_node("a: &x 1\nb: *x").unwrap_err();
        assert_eq!(error.to_string(), "line 2, column 4: an alias cannot be used here");
        assert_eq!(parse_yaml_node("a: 1\nb: [1\n").unwrap_err().line, 2);
    }
}
