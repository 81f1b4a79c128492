//! The value of the flag `--endpoint`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// An endpoint `unix://PATH` in the syntax of the upstream driver, which adds a missing leading slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CsiEndpoint(PathBuf);

impl CsiEndpoint {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for CsiEndpoint {
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

impl fmt::Display for CsiEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unix://{}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_like_the_upstream_driver() {
        let cases = [
            ("unix:///csi/csi.sock", Some("/csi/csi.sock")),
            ("unix://tmp/csi.sock", Some("/tmp/csi.sock")),
            ("UNIX:///csi.sock", Some("/csi.sock")),
            ("tcp://127.0.0.1:1", None),
            ("/csi/csi.sock", None),
            ("unix://", None),
        ];
        for (text, expected) in cases {
            let parsed = text.parse::<CsiEndpoint>().ok();
            assert_eq!(parsed.as_ref().map(CsiEndpoint::path), expected.map(Path::new), "{text}");
        }
    }
}
