//! Makes text harmless that comes from Azure, a cluster or a file, where it reaches a terminal or a log.
//!
//! A name or a property can contain a command of the pipeline that runs lanyard: Azure Pipelines executes
//! `##vso[…]` and `##[…]` anywhere in a line, GitHub Actions `::…` at its beginning and `##[…]` anywhere. Controls of
//! a terminal could hide text, and bidirectional controls show it in another order (CVE-2021-42574).

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;

/// The text without commands of pipelines and without controls, except line breaks, tabs and colours.
///
/// A command gets a space (`# #vso[`, `: :`), and a control is shown as its code (`\u{202e}`).
pub(crate) fn neutralize(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_suspicious) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    let mut is_line_start = true;
    for (position, character) in text.char_indices() {
        let rest = &text[position..];
        match character {
            '#' if is_pipeline_command(rest) => harmless.push_str("# "),
            ':' if is_line_start && rest.starts_with("::") => harmless.push_str(": "),
            '\r' if rest.starts_with("\r\n") => harmless.push('\r'),
            control if is_control(control) && !is_colour(rest) => {
                write!(harmless, "{}", control.escape_unicode()).unwrap_or_default();
            }
            other => harmless.push(other),
        }
        is_line_start = character == '\n' || (is_line_start && character.is_whitespace());
    }
    Cow::Owned(harmless)
}

/// The JSON document without commands of pipelines and bidirectional controls. Its values stay the same, because
/// characters of strings are replaced by their escape sequences.
pub(crate) fn neutralize_json(document: &str) -> Cow<'_, str> {
    if !document.chars().any(is_suspicious) {
        return Cow::Borrowed(document);
    }
    let mut harmless = String::with_capacity(document.len() + 16);
    for (position, character) in document.char_indices() {
        let is_command = character == '#' && is_pipeline_command(&document[position..]);
        if is_command || is_control(character) {
            write!(harmless, "\\u{:04x}", u32::from(character)).unwrap_or_default();
        } else {
            harmless.push(character);
        }
    }
    Cow::Owned(harmless)
}

/// A writer of log lines without commands of pipelines and controls.
#[derive(Debug)]
pub(crate) struct HarmlessLines<W> {
    /// Receives the lines.
    pub(crate) inner: W,
    /// Whether each line is a JSON document.
    pub(crate) is_json: bool,
}

impl<W: io::Write> io::Write for HarmlessLines<W> {
    /// Writes complete events, as the subscriber does.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // The line break behind a document is none of its characters.
        let (document, end) = match text.strip_suffix('\n') {
            Some(document) => (document, "\n"),
            None => (&*text, ""),
        };
        let harmless = if self.is_json { neutralize_json(document) } else { neutralize(document) };
        self.inner.write_all(format!("{harmless}{end}").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn is_suspicious(character: char) -> bool {
    matches!(character, '#' | ':') || is_control(character)
}

/// Whether the text begins with `##[` or `##vso[`, in any case.
fn is_pipeline_command(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("##") else { return false };
    rest.starts_with('[') || rest.get(..4).is_some_and(|word| word.eq_ignore_ascii_case("vso["))
}

/// Whether the character controls a terminal or the direction of text.
fn is_control(character: char) -> bool {
    let is_bidirectional = matches!(
        character,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    is_bidirectional || (character.is_control() && !matches!(character, '\n' | '\t'))
}

/// Whether the text begins with a sequence that only sets colours (`ESC [ … m`). Lanyard prints them itself.
fn is_colour(text: &str) -> bool {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return false };
    let end = parameters.find(|it: char| !it.is_ascii_digit() && it != ';');
    let Some(end) = end.filter(|end| parameters[*end..].starts_with('m')) else { return false };
    // Others could hide text, such as `8` or the colour of the background.
    let is_harmless = |code: &str| {
        ["", "0", "1", "2", "22", "31", "32", "33", "34", "35", "36", "39"].contains(&code)
    };
    parameters[..end].split(';').all(is_harmless)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn text_cannot_command_a_pipeline_or_a_terminal() {
        for (text, expected) in [
            ("plain text: a::b #1 ## x\n", "plain text: a::b #1 ## x\n"),
            (
                "/probe##vso[task.setvariable variable=a]b",
                "/probe# #vso[task.setvariable variable=a]b",
            ),
            ("##VSO[x]\n  ##[command]y", "# #VSO[x]\n  # #[command]y"),
            ("a\n  ::set-output name=b::c", "a\n  : :set-output name=b::c"),
            ("###vso[x]", "## #vso[x]"),
            ("invoice\u{202e}fdp.exe", "invoice\\u{202e}fdp.exe"),
            ("\u{1b}[1;31mred\u{1b}[0m", "\u{1b}[1;31mred\u{1b}[0m"),
            ("\u{1b}[8mhidden", "\\u{1b}[8mhidden"),
            ("a\r\nb", "a\r\nb"),
            ("\u{1b}[2Jcleared\r\u{7}", "\\u{1b}[2Jcleared\\u{d}\\u{7}"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("é ##é", "é ##é"),
        ] {
            assert_eq!(neutralize(text), expected);
            assert_eq!(neutralize(expected), expected, "again");
        }
    }

    #[test]
    fn json_document_keeps_its_values() {
        let value = serde_json::json!({ "a##vso[b]": "##[x] \u{202e}y ##" });
        let document = serde_json::to_string_pretty(&value).unwrap();
        let harmless = neutralize_json(&document);
        assert!(!harmless.contains("##[") && !harmless.contains("##vso["), "{harmless}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&harmless).unwrap(), value);
    }

    #[test]
    fn log_lines_are_harmless() {
        for (is_json, line, expected) in [
            (false, "WARN probe ##vso[x]\n", "WARN probe # #vso[x]\n"),
            (true, "{\"probe\":\"##vso[x]\"}\n", "{\"probe\":\"\\u0023#vso[x]\"}\n"),
        ] {
            let mut lines = HarmlessLines { inner: Vec::new(), is_json };
            lines.write_all(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(lines.inner).unwrap(), expected);
        }
    }
}
