//! Parses boolean flags as Go programs do.

use std::str::FromStr;

/// A boolean flag with the syntax of Go's `strconv.ParseBool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) struct GoBool(pub(in crate::commands) bool);

impl FromStr for GoBool {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Self(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Self(false)),
            _ => Err("give true or false".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_parsed_like_go_parse_bool() {
        for (text, expected) in [("t", Some(true)), ("False", Some(false)), ("yes", None)] {
            assert_eq!(text.parse::<GoBool>().ok().map(|it| it.0), expected, "{text}");
        }
    }
}
