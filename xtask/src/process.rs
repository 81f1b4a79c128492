//! Runs other programs, and counts the test results that they report.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::task_error::TaskError;

/// The numbers of passed, failed and ignored checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PassFailCounts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl PassFailCounts {
    /// One passed check.
    pub(crate) const ONE_PASSED: Self = Self { passed: 1, failed: 0, ignored: 0 };
    /// One failed check.
    pub(crate) const ONE_FAILED: Self = Self { passed: 0, failed: 1, ignored: 0 };

    /// Whether at least one check ran, and all checks passed.
    pub(crate) const fn all_passed(self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    /// Parses the `Display` form of [`PassFailCounts`].
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut tally = Self::default();
        for part in line.trim().split(", ") {
            let (count, word) = part.split_once(' ')?;
            let field = match word {
                "passed" => &mut tally.passed,
                "failed" => &mut tally.failed,
                "ignored" => &mut tally.ignored,
                _ => return None,
            };
            *field = count.parse().ok()?;
        }
        Some(tally)
    }

    /// Parses the closing line of a test program: `test result: ok. 3 passed; 0 failed; …`.
    pub(crate) fn parse_closing_line(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result:")?;
        let count = |word: &str| {
            let (before, _) = counts.split_once(word)?;
            before.split_whitespace().next_back()?.parse().ok()
        };
        let ignored = count(" ignored").unwrap_or_default();
        Some(Self { passed: count(" passed")?, failed: count(" failed")?, ignored })
    }
}

/// `3 passed, 0 failed`, with the number of ignored checks if it is not 0.
impl fmt::Display for PassFailCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} passed, {} failed", self.passed, self.failed)?;
        match self.ignored {
            0 => Ok(()),
            ignored => write!(formatter, ", {ignored} ignored"),
        }
    }
}

impl AddAssign for PassFailCounts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// Measures the duration of a stage.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "a stopwatch for people: no decision depends on it, and xtask links no crate of the product"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Prints a line and flushes standard output.
pub(crate) fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    // A closed pipe (`| head`) does not stop the task.
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap_or_default();
}

/// Sends the standard output of this process and of its child processes to standard error. Returns the former
/// standard output.
pub(crate) fn redirect_stdout() -> Result<File, TaskError> {
    let redirect = || {
        let stdout = rustix::io::dup(io::stdout())?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Ok(File::from(stdout))
    };
    redirect().map_err(|source| TaskError::File {
        action: "redirect",
        path: "/dev/stdout".into(),
        source,
    })
}

/// Prints an error with its causes and its hint.
pub(crate) fn print_error(error: &TaskError) {
    writeln!(io::stderr().lock(), "{}", error_text(error)).unwrap_or_default();
}

/// The text of an error with its causes and its hint.
pub(crate) fn error_text(error: &TaskError) -> String {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str("\n  because: ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str("\n\nhint: ");
        text.push_str(hint);
    }
    text
}

/// Runs a command that inherits the standard streams; fails if the command fails.
pub(crate) fn run(command: &mut Command) -> Result<(), TaskError> {
    let status = command.status().map_err(|source| start_error(command, source))?;
    if status.success() { Ok(()) } else { Err(command_failed(command, &status.to_string())) }
}

/// Runs a command, forwards its standard output and adds up its closing lines. Fails if the command counts no
/// passed check.
pub(crate) fn run_counted(command: &mut Command) -> Result<PassFailCounts, TaskError> {
    let tally = run_filtered(command)?;
    if tally.all_passed() {
        return Ok(tally);
    }
    Err(command_failed(command, &format!("no passed check ({tally})")))
}

/// Like [`run_counted`], for commands with a filter, which may count no check.
pub(crate) fn run_filtered(command: &mut Command) -> Result<PassFailCounts, TaskError> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|source| start_error(command, source))?;
    let tally = child.stdout.take().map_or_else(PassFailCounts::default, |out| {
        count_closing_lines(BufReader::new(out), print_line)
    });
    let status = child.wait().map_err(|source| start_error(command, source))?;
    if status.success() && tally.failed == 0 {
        return Ok(tally);
    }
    Err(command_failed(command, &format!("{status} ({tally})")))
}

/// Forwards every line and adds up the counts of closing lines.
///
/// Tests may print arbitrary bytes, so invalid UTF-8 is replaced. If reading stopped early, the broken pipe
/// would fail all following test programs.
fn count_closing_lines(mut output: impl BufRead, mut pass_on: impl FnMut(&str)) -> PassFailCounts {
    let mut tally = PassFailCounts::default();
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line));
        if let Some(counts) = PassFailCounts::parse_closing_line(&text) {
            tally += counts;
        }
        pass_on(&text);
        line.clear();
    }
    tally
}

/// Runs a command and returns its standard output; it inherits standard error.
pub(crate) fn capture_stdout(command: &mut Command) -> Result<Vec<u8>, TaskError> {
    command.stderr(Stdio::inherit());
    let output = run_to_output(command)?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(command_failed(command, &output.status.to_string()))
    }
}

/// Runs a command and returns its output, regardless of its exit status.
pub(crate) fn run_to_output(command: &mut Command) -> Result<Output, TaskError> {
    command.output().map_err(|source| start_error(command, source))
}

/// The command line as typed in a shell, without the environment.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

fn start_error(command: &Command, source: io::Error) -> TaskError {
    TaskError::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

/// The error of a command that ran and failed.
pub(crate) fn command_failed(command: &Command, outcome: &str) -> TaskError {
    TaskError::Failed { command: command_line(command), outcome: outcome.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_test_programs_are_counted() {
        let cases = [
            ("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured", Some((12, 0, 1))),
            (
                "test result: FAILED. 3 passed; 2 failed; 0 ignored; finished in 0.1s",
                Some((3, 2, 0)),
            ),
            ("running 12 tests", None),
            ("test result: ok. many passed; 0 failed", None),
            ("the log says test result: ok. 1 passed; 0 failed", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|(passed, failed, ignored)| PassFailCounts {
                passed,
                failed,
                ignored,
            });
            assert_eq!(PassFailCounts::parse_closing_line(line), expected, "{line}");
        }
    }

    #[test]
    fn counts_are_summed_and_lines_are_forwarded() {
        let output = "running 2 tests\ntest result: ok. 2 passed; 0 failed;\n\
                      test result: FAILED. 3 passed; 1 failed;\n";
        let mut lines = Vec::new();
        let tally = count_closing_lines(output.as_bytes(), |line| lines.push(line.to_owned()));
        assert_eq!(tally, PassFailCounts { passed: 5, failed: 1, ignored: 0 });
        assert_eq!(lines.join("\n") + "\n", output);
    }

    #[test]
    fn counts_round_trip_through_text() {
        for tally in [
            PassFailCounts::ONE_PASSED,
            PassFailCounts::ONE_FAILED,
            PassFailCounts { passed: 12, failed: 0, ignored: 2 },
        ] {
            assert_eq!(PassFailCounts::parse(&tally.to_string()), Some(tally), "{tally}");
        }
        for other in ["", "passed", "many passed, 0 failed", "3 passed; 0 failed", "3 seen"] {
            assert_eq!(PassFailCounts::parse(other), None, "{other}");
        }
    }

    #[test]
    fn invalid_utf8_does_not_stop_counting() {
        let output = b"\xff\xfe\ntest result: ok. 2 passed; 0 failed;";
        let mut lines = 0;
        let tally = count_closing_lines(output.as_slice(), |_| lines += 1);
        assert_eq!((tally.passed, lines), (2, 2));
    }

    #[test]
    fn failed_program_without_counts_fails() {
        assert!(matches!(run_counted(&mut Command::new("false")), Err(TaskError::Failed { .. })));
    }

    #[test]
    fn program_without_counts_fails() {
        let line = "test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured; 9 filtered out";
        let ignored = PassFailCounts::parse_closing_line(line).expect("it is a closing line");
        assert_eq!(ignored.to_string(), "0 passed, 0 failed, 3 ignored");
        for nothing in [PassFailCounts::default(), ignored, PassFailCounts::ONE_FAILED] {
            assert!(!nothing.all_passed(), "{nothing}");
        }
        assert!(PassFailCounts { ignored: 3, ..PassFailCounts::ONE_PASSED }.all_passed());
        // The program prints nothing that this test, or a program that counts its output, could count.
        assert!(matches!(run_counted(&mut Command::new("true")), Err(TaskError::Failed { .. })));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(&mut Command::new("no-such-program-here")).expect_err("it does not exist");
        assert_eq!(error.to_string(), "could not start `no-such-program-here`");
        assert!(error.hint().is_some());
    }
}
