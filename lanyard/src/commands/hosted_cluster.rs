//! Reading the HostedCluster of a command: a file, standard input, or the built-in example.

use std::io::Read;
use std::path::Path;

use lanyard_api::HostedCluster;
use lanyard_desired::{Problem, Problems, ValidateError, ValidatedHostedCluster, validate};

use crate::exit::CommandError;
use crate::output;

/// The complete example with KMS, so that the program needs no checkout.
const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");

/// The HostedCluster in `file`, checked; `-` is standard input, and nothing is the example. What
/// somebody should look at goes to standard error.
#[cfg(feature = "emulator")]
pub(crate) fn load(file: Option<&Path>) -> Result<ValidatedHostedCluster, CommandError> {
    Ok(load_with_wire(file)?.1)
}

/// As it came and checked, for what keeps fields that nobody here knows.
pub(crate) fn load_with_wire(
    file: Option<&Path>,
) -> Result<(HostedCluster, ValidatedHostedCluster), CommandError> {
    let (name, text) = read(file)?;
    let wire = HostedCluster::parse_yaml(&text).map_err(|error| {
        let refused = CommandError::invalid(format!("{name} cannot be read")).because(&error);
        match error.hint() {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    })?;
    match validate(&wire) {
        Ok(validated) => {
            for lint in &validated.lints {
                output::note(&line(lint));
            }
            Ok((wire, validated.hosted_cluster))
        }
        Err(ValidateError::Invalid(problems)) => {
            Err(CommandError::invalid(listing(&name, &problems))
                .hint("correct every field above; `lint` lines do not stop the work"))
        }
        Err(error) => {
            let refused = CommandError::invalid(format!("{name} cannot be used")).because(&error);
            Err(match error.hint() {
                Some(hint) => refused.hint(hint),
                None => refused,
            })
        }
    }
}

fn read(file: Option<&Path>) -> Result<(String, String), CommandError> {
    let Some(path) = file else {
        return Ok(("the built-in example".to_owned(), EXAMPLE.to_owned()));
    };
    let (name, text) = if path == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text).map(|_| text);
        ("standard input".to_owned(), read)
    } else {
        (path.display().to_string(), std::fs::read_to_string(path))
    };
    let text = text.map_err(|error| {
        CommandError::invalid(format!("{name} cannot be read"))
            .because(&error)
            .hint("give a file with a HostedCluster, or leave -f out for the example")
    })?;
    Ok((name, text))
}

fn listing(name: &str, problems: &Problems) -> String {
    format!("{name} is not a HostedCluster that can be used\n\n{}", problem_lines(problems))
}

/// A line for every problem.
pub(crate) fn problem_lines(problems: &Problems) -> String {
    let lines: Vec<_> = problems.iter().map(line).collect();
    lines.join("\n")
}

/// A problem with its severity and what to do about it.
pub(crate) fn line(problem: &Problem) -> String {
    let hint = problem.hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{}: {problem}{hint}", problem.severity)
}
