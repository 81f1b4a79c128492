//! The width of the terminal.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use crate::settings::ProcessEnvironment;

/// The line width of standard output, see [`line_width`].
pub(crate) fn stdout_width() -> Option<usize> {
    line_width(&io::stdout())
}

/// The line width of standard error, see [`line_width`].
pub(crate) fn stderr_width() -> Option<usize> {
    line_width(&io::stderr())
}

/// The number of columns for text on this stream: `COLUMNS`, or else the width of the terminal. `None` for
/// other streams, such as pipes and files, whose lines are not limited.
fn line_width(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let chosen = ProcessEnvironment::read_variable("COLUMNS");
    let chosen = chosen.and_then(|columns| columns.to_str()?.parse().ok());
    chosen.filter(|columns| *columns > 0).or_else(|| terminal_columns(stream))
}

fn terminal_columns(stream: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !stream.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Continues lines that are longer than `line_width` on the next line, with an indent. Words stay whole.
pub(crate) fn fit_lines(text: &str, line_width: Option<usize>) -> String {
    let Some(width) = line_width else { return text.to_owned() };
    let lines: Vec<_> = text.split('\n').map(|line| fit_line(line, width)).collect();
    lines.join("\n")
}

fn fit_line(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let words = line.trim_start_matches(' ');
    let indent = line.len() - words.len();
    let mut fitted = " ".repeat(indent);
    let mut column = indent;
    for (index, word) in words.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > width {
            fitted.truncate(fitted.trim_end().len());
            fitted.push('\n');
            fitted.push_str(&" ".repeat(indent + CONTINUATION_INDENT));
            column = indent + CONTINUATION_INDENT;
        } else if index > 0 {
            fitted.push(' ');
            column += 1;
        }
        fitted.push_str(word);
        column += length;
    }
    fitted
}

/// How far a continued line is indented.
const CONTINUATION_INDENT: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_continues_with_an_indent() {
        let text = "short\n  hint: assign a role with this action";
        assert_eq!(fit_lines(text, None), text);
        assert_eq!(fit_lines(text, Some(40)), text);
        assert_eq!(
            fit_lines(text, Some(20)),
            "short\n  hint: assign a\n    role with this\n    action"
        );
    }

    #[test]
    fn words_and_the_space_between_them_stay_whole() {
        let text = "client      11111111-1111-1111-1111-111111111111";
        assert_eq!(fit_lines(text, Some(48)), text);
        assert_eq!(fit_lines(text, Some(20)), "client\n  11111111-1111-1111-1111-111111111111");
        assert_eq!(fit_lines("a b", Some(0)), "a\n  b");
    }
}
