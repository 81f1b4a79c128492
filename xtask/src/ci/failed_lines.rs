//! The lines of a failed stage's output that say what failed. `ci` repeats them at its end, because the output of
//! later stages follows the output of the stage.

/// The maximum number of lines for each test program that failed, and for a stage without test programs.
const MAX_LINES: usize = 60;
/// The maximum number of lines after the last test program. They contain cargo's list of failed programs, also of
/// those that crashed.
const MAX_LAST_LINES: usize = 20;

/// The failures that each test program reported and the lines after the last one. Without reported failures, the
/// lines from the first error, or the last lines.
pub(super) fn failed_lines(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let Some(last_result) = lines.iter().rposition(|line| line.starts_with("test result:")) else {
        let error = lines.iter().position(|line| is_reported_error(line));
        return error.map_or_else(
            || last_lines(&lines, MAX_LINES),
            |error| first_lines(&lines[error..], MAX_LINES),
        );
    };
    let mut shown = reported_failures(&lines);
    shown.extend(last_lines(&lines[last_result + 1..], MAX_LAST_LINES));
    shown
}

/// Whether a program reported an error here. The error of a stage that only names the command that failed is none:
/// the lines before it say what is wrong.
fn is_reported_error(line: &str) -> bool {
    line.starts_with("error") && !line.starts_with("error: `")
}

/// For each test program that failed, the line with its name, and the lines from `failures:` to `test result:`.
fn reported_failures(lines: &[&str]) -> Vec<String> {
    let (mut shown, mut program, mut failures) = (Vec::new(), None, None);
    for (index, line) in lines.iter().enumerate() {
        let name = line.trim_start();
        if name.starts_with("Running ") || name.starts_with("Doc-tests ") {
            program = Some(name);
        } else if *line == "failures:" {
            failures = failures.or(Some(index));
        } else if line.starts_with("test result:")
            && let Some(first) = failures.take()
        {
            shown.extend(program.map(str::to_owned));
            // The last lines are the names of the failed tests.
            shown.extend(last_lines(&lines[first..=index], MAX_LINES));
        }
    }
    shown
}

fn first_lines(lines: &[&str], most: usize) -> Vec<String> {
    let (shown, omitted) = lines.split_at(lines.len().min(most));
    let note = (!omitted.is_empty()).then(|| omission(omitted.len()));
    shown.iter().map(|line| (*line).to_owned()).chain(note).collect()
}

fn last_lines(lines: &[&str], most: usize) -> Vec<String> {
    let (omitted, shown) = lines.split_at(lines.len().saturating_sub(most));
    let note = (!omitted.is_empty()).then(|| omission(omitted.len()));
    note.into_iter().chain(shown.iter().map(|line| (*line).to_owned())).collect()
}

fn omission(lines: usize) -> String {
    format!("(lines omitted: {lines})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a test program with a failed test that printed this many lines.
    fn failed_program(name: &str, printed: usize) -> String {
        let printed = vec!["printed"; printed].join("\n");
        format!(
            "     Running tests/{name}.rs\ntest {name} ... FAILED\nfailures:\n\n---- {name} stdout ----\n{printed}\n\n\
             failures:\n    {name}\n\ntest result: FAILED. 1 passed; 1 failed;\n"
        )
    }

    #[test]
    fn failures_of_every_test_program_are_repeated() {
        let passed = "     Running tests/two.rs\ntest two ... ok\n\ntest result: ok. 1 passed;\n";
        let crashed = "     Running tests/four.rs\nerror: test failed\n";
        let list = "error: 3 targets failed:\n    `--test four`\n";
        let (one, three) = (failed_program("one", 1), failed_program("three", MAX_LINES));
        let shown = failed_lines(&format!("{one}{passed}{crashed}{three}{list}"));
        let expected = [
            "Running tests/one.rs",
            "failures:",
            "",
            "---- one stdout ----",
            "printed",
            "",
            "failures:",
            "    one",
            "",
            "test result: FAILED. 1 passed; 1 failed;",
            "Running tests/three.rs",
            "(lines omitted: 8)",
        ];
        assert_eq!(shown[..expected.len()], expected);
        assert_eq!(
            shown[shown.len() - 5..],
            [
                "    three",
                "",
                "test result: FAILED. 1 passed; 1 failed;",
                "error: 3 targets failed:",
                "    `--test four`"
            ]
        );
    }

    #[test]
    fn output_of_a_build_is_repeated_from_its_first_error() {
        let shown = failed_lines("Checking a\nerror: unused\n --> a.rs\nerror: aborted\n\n");
        assert_eq!(shown, ["error: unused", " --> a.rs", "error: aborted"]);
        let long = format!("Checking a\nerror: unused\n{}", "line\n".repeat(MAX_LINES));
        let shown = failed_lines(&long);
        assert_eq!(shown[0], "error: unused");
        assert_eq!(shown[MAX_LINES..], ["(lines omitted: 1)"]);
    }

    #[test]
    fn last_lines_are_repeated_without_an_error() {
        let shown = failed_lines(&"line\n".repeat(MAX_LINES + 2));
        assert_eq!((shown.len(), shown[0].as_str()), (MAX_LINES + 1, "(lines omitted: 2)"));
        let difference = "Diff in a.rs:\n-fn  x()\n+fn x()\nerror: `cargo fmt` ended with 1\n";
        assert_eq!(failed_lines(difference).join("\n"), difference.trim_end());
    }
}
