//! How commands print the problems of an input file: one line per problem.

use lanyard_desired::{Problem, Problems};

/// One line per problem.
pub(super) fn problem_lines(problems: &Problems) -> String {
    let lines: Vec<_> = problems.iter().map(line).collect();
    lines.join("\n")
}

/// The severity of a problem, its text and its hint.
pub(super) fn line(problem: &Problem) -> String {
    let hint = problem.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}: {problem}{hint}", problem.severity)
}
