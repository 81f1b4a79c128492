//! Loads the HostedCluster of a command from a file, standard input, or the built-in example.

use std::io::Read;
use std::path::Path;

use lanyard_api::HostedCluster;
use lanyard_desired::{
    ParseHostedClusterError, ValidatedHostedCluster, ValidationProblems, parse_hosted_cluster,
};

use super::problem_text::{problem_line, problem_lines};
use crate::exit::CommandError;
use crate::output;

/// A complete example with KMS. It is embedded, so that the program needs no checkout.
const EXAMPLE: &str = include_str!("../../../examples/hostedcluster.yaml");

/// Loads and validates the HostedCluster in `file`; `-` reads standard input, `None` returns the example.
/// Prints lints to standard error.
#[cfg(feature = "emulator")]
pub(crate) fn load(file: Option<&Path>) -> Result<ValidatedHostedCluster, CommandError> {
    Ok(load_with_wire(file)?.1)
}

/// Loads the HostedCluster in its original and its validated form. The original keeps unknown fields.
pub(crate) fn load_with_wire(
    file: Option<&Path>,
) -> Result<(HostedCluster, ValidatedHostedCluster), CommandError> {
    let (name, text) = read_input(file)?;
    match parse_hosted_cluster(&text) {
        Ok(parsed) => {
            for lint in &parsed.lints {
                output::print_stderr(&problem_line(lint));
            }
            Ok((parsed.wire, parsed.hosted_cluster))
        }
        Err(ParseHostedClusterError::Invalid(problems)) => {
            Err(CommandError::invalid_input(problem_message(&name, &problems))
                .with_hint("correct every field above; `lint` lines do not stop the work"))
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
    let text = text.map_err(|error| {
        CommandError::invalid_input(format!("{name} cannot be read"))
            .with_cause(&error)
            .with_hint("give a file with a HostedCluster, or leave -f out for the example")
    })?;
    Ok((name, text))
}

fn problem_message(name: &str, problems: &ValidationProblems) -> String {
    format!("{name} is not a HostedCluster that can be used\n\n{}", problem_lines(problems))
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
        let (wire, cluster) = load_with_wire(Some(file.path())).unwrap();
        assert_eq!((wire, cluster), (parsed.wire, parsed.hosted_cluster));
    }
}
