//! Accepts flags with a single dash, as Go's `flag` package does.

use std::ffi::{OsStr, OsString};

/// The command whose flags may have a single dash.
const KMS_COMMAND: &str = "kms";

/// Returns the arguments of the process, with a second dash for single-dash flags of the KMS plugin:
/// `-key-name=x` becomes `--key-name=x`. Arguments of other commands and all arguments after `--` are
/// unchanged.
pub(crate) fn normalize_single_dash_flags(
    arguments: impl Iterator<Item = OsString>,
) -> Vec<OsString> {
    let mut all: Vec<_> = arguments.collect();
    let Some(command) = command_index(&all).filter(|at| all[*at] == KMS_COMMAND) else {
        return all;
    };
    for argument in all.iter_mut().skip(command + 1).take_while(|it| *it != "--") {
        if is_single_dash_flag(argument) {
            let mut long = OsString::from("-");
            long.push(&*argument);
            *argument = long;
        }
    }
    all
}

/// The index of the command, after the global flags and their values.
fn command_index(all: &[OsString]) -> Option<usize> {
    let is_flag = |it: &OsString| it.as_encoded_bytes().starts_with(b"-");
    let is_value = |at: usize| GLOBAL_FLAGS_WITH_VALUES.iter().any(|flag| all[at - 1] == *flag);
    (1..all.len()).find(|at| !is_flag(&all[*at]) && !is_value(*at))
}

/// The global flags whose value is the next argument.
const GLOBAL_FLAGS_WITH_VALUES: [&str; 2] = ["--log", "--log-format"];

/// Whether the argument is a single dash with a name of more than one letter. A flag value of this form would
/// be mistaken for a flag, so users must write it as `--flag=-value`; Go accepts it as a separate argument.
fn is_single_dash_flag(argument: &OsStr) -> bool {
    let bytes = argument.as_encoded_bytes();
    let name = bytes.split(|byte| *byte == b'=').next().unwrap_or_default();
    name.len() > 2 && name[0] == b'-' && name[1].is_ascii_alphabetic()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize_line(line: &str) -> String {
        let arguments = line.split(' ').map(OsString::from);
        let all = normalize_single_dash_flags(arguments);
        all.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_kms_flags_get_a_second_dash() {
        let cases = [
            ("lanyard kms -key-name=k -v=1 -h", "lanyard kms --key-name=k -v=1 -h"),
            ("lanyard kms -key-name k --v 1", "lanyard kms --key-name k --v 1"),
            ("lanyard --log=info kms -managed-hsm", "lanyard --log=info kms --managed-hsm"),
            ("lanyard --log kms kms -managed-hsm", "lanyard --log kms kms --managed-hsm"),
            ("lanyard node kms -managed-hsm", "lanyard node kms -managed-hsm"),
            ("lanyard kms -- -key-name", "lanyard kms -- -key-name"),
            ("lanyard kms -key-name=-x", "lanyard kms --key-name=-x"),
            ("lanyard node -key-name=k", "lanyard node -key-name=k"),
            ("lanyard", "lanyard"),
            ("lanyard -V", "lanyard -V"),
        ];
        for (given, expected) in cases {
            assert_eq!(normalize_line(given), expected);
        }
    }
}
