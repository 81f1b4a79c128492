//! Loads the HostedCluster of a command from a file, standard input, or the built-in example.

use std::io::Read;
use std::path::Path;

#[cfg(feature = "up")]
use lanyard_desired::ValidatedHostedCluster;
use lanyard_desired::{
    ParseHostedClusterError, ParsedHostedCluster, ValidationProblems, parse_hosted_cluster,
};

use super::problem_text::{problem_line, problem_lines};
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
use crate::output;

/// A complete example with KMS. It is embedded, so that the program needs no checkout.
const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");

/// Loads and validates the HostedCluster in `file`; `-` reads standard input, `None` returns the example.
/// Prints lints to standard error. Fails for a value that cannot be used, even if only single objects need it.
#[cfg(feature = "up")]
pub(crate) fn load(file: Option<&Path>) -> Result<ValidatedHostedCluster, CommandError> {
    let (name, text) = read_input(file)?;
    let parsed = parse(&name, &text)?;
    if parsed.object_errors.is_empty() {
        Ok(parsed.hosted_cluster)
    } else {
        Err(invalid_hosted_cluster(&name, &parsed.object_errors))
    }
}

/// Loads the HostedCluster with its original, which keeps unknown fields, and with the errors because of
/// which single objects cannot be rendered. Prints lints and these errors to standard error.
pub(crate) fn load_parsed(file: Option<&Path>) -> Result<ParsedHostedCluster, CommandError> {
    let (name, text) = read_input(file)?;
    let parsed = parse(&name, &text)?;
    for error in &parsed.object_errors {
        output::print_stderr(&problem_line(error));
    }
    Ok(parsed)
}

fn parse(name: &str, text: &str) -> Result<ParsedHostedCluster, CommandError> {
    match parse_hosted_cluster(text) {
        Ok(parsed) => {
            for lint in &parsed.lints {
                output::print_stderr(&problem_line(lint));
            }
            Ok(parsed)
        }
        Err(ParseHostedClusterError::Invalid(problems)) => {
            Err(invalid_hosted_cluster(name, &problems))
        }
        Err(error) => {
            let refused =
                CommandError::invalid_input(format!("{name} cannot be used")).with_cause(&error);
            Err(match error.hint() {
                Some(hint) => refused.with_hint(hint),
                None => refused,
            })
        }
    }
}

fn read_input(file: Option<&Path>) -> Result<(String, String), CommandError> {
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
    let text = text
        .or_invalid(format_args!("{name} cannot be read"))
        .hint("give a file with a HostedCluster, or leave -f out for the example")?;
    Ok((name, text))
}

fn invalid_hosted_cluster(name: &str, problems: &ValidationProblems) -> CommandError {
    let problems = problem_lines(problems);
    CommandError::invalid_input(format!(
        "{name} is not a HostedCluster that can be used\n\n{problems}"
    ))
    .with_hint("correct every field above; `lint` lines do not stop the work")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unquoted_text_is_reported_as_by_the_api_server() {
        let quoted =
            EXAMPLE.replace("keyVersion: 4f9d2c7b1e8a46f0b35d9c6e7a1f2084", "keyVersion: 7");
        assert_ne!(quoted, EXAMPLE);
        let parsed = parse_hosted_cluster(&quoted).unwrap();
        let lints: Vec<_> = parsed.lints.iter().map(problem_line).collect();
        assert!(lints.iter().any(|it| it.contains("`7` is not quoted")), "{lints:?}");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, quoted.as_bytes()).unwrap();
        assert_eq!(load_parsed(Some(file.path())).unwrap(), parsed);
    }

    #[cfg(feature = "up")]
    #[test]
    fn unusable_value_of_single_objects_is_an_error_of_the_local_azure_only() {
        let unusable = EXAMPLE.replace("health-probe-mode: shared", "health-probe-mode: Shared");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, unusable.as_bytes()).unwrap();
        assert!(load_parsed(Some(file.path())).unwrap().object_errors.has_errors());
        let error = load(Some(file.path())).unwrap_err().to_string();
        assert!(error.contains("invalid value for annotation"), "{error}");
    }
}
