//! Formats the problems of an input file, one line per problem.

use lanyard_desired::{ValidationProblem, ValidationProblems};

/// Formats all problems, one per line.
pub(super) fn problem_lines(problems: &ValidationProblems) -> String {
    let lines: Vec<_> = problems.iter().map(problem_line).collect();
    lines.join("\n")
}

/// Formats a problem: its severity, its text and its hint.
pub(super) fn problem_line(problem: &ValidationProblem) -> String {
    let hint = problem.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}: {problem}{hint}", problem.severity)
}
