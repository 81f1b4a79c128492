//! Runs the commands of a documentation page and compares their output with the page.

use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::file_error::FileError;

/// A command of a page, with the output that the page shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TutorialStep {
    /// The shell command.
    pub(crate) command: String,
    /// The expected lines of output. `…` in a line stands for any text.
    pub(crate) output: Vec<String>,
}

/// A command of the page failed, or its output differs from the page.
#[derive(Debug, Error)]
pub(crate) enum TutorialError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the page has no commands below a heading `{0}`")]
    NoSection(String),
    #[error("`{command}` could not be started")]
    Start {
        command: String,
        #[source]
        source: std::io::Error,
    },
    #[error("`{command}` failed: {message}")]
    Failed { command: String, message: String },
    #[error("`{command}` did not print the line `{line}` of the page; it printed: {printed}")]
    Output { command: String, line: String, printed: String },
}

/// The Markdown text of a page.
#[derive(Debug)]
pub(crate) struct Tutorial {
    text: String,
}

/// The environment in which commands run, and its differences from the one that the page describes.
#[derive(Debug)]
pub(crate) struct TutorialEnvironment {
    /// The working directory of the commands.
    pub(crate) directory: PathBuf,
    /// Additional environment variables of every command.
    pub(crate) environment: Vec<(String, String)>,
    /// Environment variables that are removed from every command.
    pub(crate) removed_variables: &'static [&'static str],
    /// Values files that are appended to the `helm install` of each chart.
    pub(crate) chart_values: Vec<(&'static str, PathBuf)>,
    /// Texts in commands, each with its replacement.
    pub(crate) replacements: Vec<(&'static str, String)>,
}

impl Tutorial {
    /// Reads a page.
    pub(crate) fn read(path: &Path) -> Result<Self, TutorialError> {
        let text = std::fs::read_to_string(path).map_err(FileError::of("read", path))?;
        Ok(Self { text })
    }

    /// The commands in the blocks with [`SUITE_FENCE`] below a heading, up to the next heading.
    pub(crate) fn section_steps(&self, heading: &str) -> Result<Vec<TutorialStep>, TutorialError> {
        let mut is_here = false;
        let mut is_console = false;
        let mut lines = Vec::new();
        for line in self.text.lines() {
            if is_console {
                is_console = !line.starts_with("```");
                if is_console && is_here {
                    lines.push(line);
                }
            } else if line.starts_with('#') {
                is_here = line.trim_start_matches('#').trim() == heading;
            } else {
                is_console = line == SUITE_FENCE;
            }
        }
        let steps = parse_steps(&lines);
        if steps.is_empty() { Err(TutorialError::NoSection(heading.to_owned())) } else { Ok(steps) }
    }
}

/// The first line of a block whose commands the suite runs. The tests of the book ignore it.
const SUITE_FENCE: &str = "```console,ignore,suite";

/// A command begins with `$ ` and continues after a line that ends with a backslash.
fn parse_steps(lines: &[&str]) -> Vec<TutorialStep> {
    let mut steps: Vec<TutorialStep> = Vec::new();
    let mut goes_on = false;
    for line in lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(TutorialStep { command: command.to_owned(), output: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            if goes_on {
                step.command.push('\n');
                step.command.push_str(line);
            } else {
                step.output.push((*line).to_owned());
                continue;
            }
        }
        goes_on = line.ends_with('\\');
    }
    steps
}

impl TutorialEnvironment {
    /// Runs a command and returns its output, which must contain the lines of the page.
    pub(crate) fn run_step(&self, step: &TutorialStep) -> Result<String, TutorialError> {
        let text = self.adapt_command(&step.command);
        let mut command = Command::new("sh");
        command.arg("-c").arg(&text).current_dir(&self.directory);
        for name in self.removed_variables {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let output = command
            .output()
            .map_err(|source| TutorialError::Start { command: text.clone(), source })?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let message = format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            return Err(TutorialError::Failed { command: text, message });
        }
        match step.output.iter().find(|line| !printed.lines().any(|it| matches_line(it, line))) {
            None => Ok(printed),
            Some(line) => Err(TutorialError::Output { command: text, line: line.clone(), printed }),
        }
    }

    /// Adapts a command of the page to the test cluster: appends the values file of the suite to the
    /// `helm install` of a chart, and replaces fixed texts such as the address of the local Azure.
    fn adapt_command(&self, command: &str) -> String {
        let mut text = command.to_owned();
        if text.starts_with("helm install") {
            for (chart, values) in &self.chart_values {
                if text.contains(&format!("charts/{chart} ")) {
                    text = format!("{text} --values {}", values.display());
                }
            }
        }
        for (from, to) in &self.replacements {
            text = text.replace(from, to);
        }
        text
    }
}

/// Whether a printed line matches a line of the page, in which `…` stands for any text. A run of blanks
/// counts as one.
fn matches_line(printed: &str, line: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (printed, line) = (plain(printed), plain(line));
    let mut parts = line.split('…');
    let Some(mut rest) = parts.next().and_then(|first| printed.strip_prefix(first)) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
        is_open = part.is_empty();
    }
    is_open || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n## One\n\n```console,ignore,suite\n$ echo a \\\n    b\na b\n$ true\n```\n\n```yaml\n$ no\n```\n\n## Two\n";

    #[test]
    fn section_steps_returns_console_commands_and_output() {
        let page = Tutorial { text: PAGE.to_owned() };
        let first =
            TutorialStep { command: "echo a \\\n    b".to_owned(), output: vec!["a b".to_owned()] };
        let second = TutorialStep { command: "true".to_owned(), output: Vec::new() };
        assert_eq!(page.section_steps("One").expect("it is there"), [first, second]);
        assert!(matches!(page.section_steps("Two"), Err(TutorialError::NoSection(_))));
    }

    #[test]
    fn only_an_ellipsis_matches_any_text() {
        for (printed, line) in
            [("a  b c", "a b c"), ("NAME  12s", "NAME …"), ("x is 7 y", "x … y"), ("", "")]
        {
            assert!(matches_line(printed, line), "{printed}: {line}");
        }
        for (printed, line) in [("a b c", "a b"), ("ab", "b"), ("x 7 z", "x … y")] {
            assert!(!matches_line(printed, line), "{printed}: {line}");
        }
    }

    #[test]
    fn run_step_adds_values_and_checks_output() {
        let surroundings = TutorialEnvironment {
            directory: PathBuf::from("."),
            environment: vec![("NAME".to_owned(), "value".to_owned())],
            removed_variables: &[],
            chart_values: vec![("chart", PathBuf::from("more.yaml"))],
            replacements: vec![("127.0.0.1:7750", "127.0.0.1:1".to_owned())],
        };
        let adapted = surroundings.adapt_command("helm install it charts/chart --wait");
        assert_eq!(adapted, "helm install it charts/chart --wait --values more.yaml");
        let step = |command: &str, line: &str| TutorialStep {
            command: command.to_owned(),
            output: vec![line.to_owned()],
        };
        let good = surroundings.run_step(&step("echo $NAME 127.0.0.1:7750", "value …:1"));
        assert_eq!(good.expect("it is printed"), "value 127.0.0.1:1\n");
        let other = surroundings.run_step(&step("echo other", "value"));
        assert!(matches!(other, Err(TutorialError::Output { .. })));
        let failed = surroundings.run_step(&step("echo why >&2; exit 3", ""));
        assert!(failed.expect_err("it fails").to_string().contains("why"));
    }
}
