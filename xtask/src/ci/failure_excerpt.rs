//! The lines of a failed stage's output that say what failed. `ci` repeats them after its summary, because the
//! output itself is followed by that of all later stages.

/// Limits the output of one stage. The end of a longer excerpt counts, since it lists the failed tests.
const MAX_LINES: usize = 80;

/// The failures that test programs of the stage reported, or the last lines if none did.
pub(super) fn failure_excerpt(output: &str) -> Vec<&str> {
    let mut lines = reported_failures(output);
    if lines.is_empty() {
        lines = output.trim_end().lines().collect();
    }
    lines.split_off(lines.len().saturating_sub(MAX_LINES))
}

/// The lines from `failures:` to `test result: FAILED`, of each test program that failed.
fn reported_failures(output: &str) -> Vec<&str> {
    let (mut failures, mut is_failure) = (Vec::new(), false);
    for line in output.lines() {
        is_failure |= line == "failures:";
        if is_failure {
            failures.push(line);
        }
        is_failure &= !line.starts_with("test result:");
    }
    failures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_every_test_program_are_repeated() {
        let failed = |name: &str| {
            format!(
                "failures:\n\n---- {name} stdout ----\nfailures:\n    {name}\n\n\
                 test result: FAILED. 1 passed; 1 failed;"
            )
        };
        let passed = "running 1 test\ntest two ... ok\n\ntest result: ok. 1 passed; 0 failed;";
        let output =
            format!("test one ... FAILED\n{}\n{passed}\n{}\nend", failed("one"), failed("three"));
        let expected = format!("{}\n{}", failed("one"), failed("three"));
        assert_eq!(failure_excerpt(&output).join("\n"), expected);
    }

    #[test]
    fn last_lines_are_repeated_without_reported_failures() {
        assert_eq!(
            failure_excerpt("Checking a\nerror: unused\n\n"),
            ["Checking a", "error: unused"]
        );
        let long = (0..MAX_LINES + 5).map(|it| it.to_string()).collect::<Vec<_>>().join("\n");
        let lines = failure_excerpt(&long);
        assert_eq!((lines.len(), lines[0]), (MAX_LINES, "5"));
    }
}
