//! Values of flags as Go programs read them: the flags are theirs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lanyard_node::rotation::parse_go_duration;

/// A boolean of Go's `strconv.ParseBool`.
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

/// A duration of Go's `time.ParseDuration`: `90s`, `2m`, `1h30m`, `1.5h`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) struct GoDuration(pub(in crate::commands) Duration);

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_go_duration(text)
            .map(Self)
            .ok_or_else(|| "give a duration such as 90s or 1h30m".into())
    }
}

/// `unix://PATH`, as the driver's `--endpoint` is written: a path without its slash gets one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands) struct Endpoint(PathBuf);

impl Endpoint {
    pub(in crate::commands) fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, path) = text.split_once("://").ok_or("give unix://PATH")?;
        if scheme.eq_ignore_ascii_case("tcp") {
            return Err("the kubelet's socket is private: give unix://PATH".to_owned());
        }
        if !scheme.eq_ignore_ascii_case("unix") || path.trim_matches('/').is_empty() {
            return Err("give unix://PATH".to_owned());
        }
        Ok(Self(Path::new("/").join(path.trim_start_matches('/'))))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        let cases = [
            ("0", Some(0)),
            ("2m", Some(120_000)),
            ("2m0s", Some(120_000)),
            ("1h30m", Some(5_400_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("", None),
            ("2", None),
            ("m", None),
            ("2 m", None),
            ("2d", None),
            ("-2m", None),
            ("1.2.3s", None),
            ("999999999999999999h", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<GoDuration>().ok().map(|it| it.0.as_millis());
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn endpoints_are_those_of_the_driver() {
        let cases = [
            ("unix:///csi/csi.sock", Some("/csi/csi.sock")),
            ("unix://tmp/csi.sock", Some("/tmp/csi.sock")),
            ("UNIX:///csi.sock", Some("/csi.sock")),
            ("tcp://127.0.0.1:1", None),
            ("/csi/csi.sock", None),
            ("unix://", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<Endpoint>().ok();
            assert_eq!(parsed.as_ref().map(Endpoint::path), expected.map(Path::new), "{text}");
        }
    }

    #[test]
    fn booleans_are_those_of_go() {
        for (text, expected) in [("t", Some(true)), ("False", Some(false)), ("yes", None)] {
            assert_eq!(text.parse::<GoBool>().ok().map(|it| it.0), expected, "{text}");
        }
    }
}
