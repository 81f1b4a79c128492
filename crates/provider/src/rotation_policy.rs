//! The rotation annotations of a SecretProviderClass.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_api::SecretProviderClass;
use lanyard_clock::ErrorHint;
use serde::{Deserialize, Serialize};

use crate::interval::{IntervalBounds, ParseIntervalError, PollInterval};

/// The rotation settings in the annotations of a SecretProviderClass. An invalid annotation is
/// ignored and reported in [`RotationPolicy::problems`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotationPolicy {
    /// The value of the annotation [`RotationPolicy::INTERVAL`].
    pub interval: Option<PollInterval>,
    /// The value of the annotation [`RotationPolicy::REFRESH`].
    pub refresh: Option<RefreshRequest>,
    /// The value of the annotation [`RotationPolicy::ACCEPT_OLDER`].
    pub accept_older: BTreeSet<OlderVersion>,
    /// The invalid annotations.
    pub problems: Vec<AnnotationProblem>,
}

impl RotationPolicy {
    /// The annotation with the poll interval of the volumes. The default is the node's interval.
    pub const INTERVAL: &str = "lanyard.dev/rotation-poll-interval";

    /// The annotation whose new value makes all volumes of the SecretProviderClass due immediately.
    pub const REFRESH: &str = "lanyard.dev/refresh";

    /// The annotation with credentials that are accepted although they are older than the mounted
    /// ones: a comma-separated list of `<object id>@<version>`. Each is accepted once per volume.
    pub const ACCEPT_OLDER: &str = "lanyard.dev/accept-older";

    /// Parses the annotations of a SecretProviderClass. `bounds` limit the poll interval.
    pub fn parse(class: &SecretProviderClass, bounds: IntervalBounds) -> Self {
        let annotation = |key| class.metadata.annotations.as_ref().and_then(|it| it.get(key));
        let mut problems = Vec::new();
        let interval = annotation(Self::INTERVAL).and_then(|text| {
            PollInterval::parse_within(text, bounds)
                .map_err(|error| problems.push(AnnotationProblem::Interval(error)))
                .ok()
        });
        let accept_older = annotation(Self::ACCEPT_OLDER)
            .into_iter()
            .flat_map(|text| text.split(','))
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
            .filter_map(|entry| {
                entry.parse().map_err(|error| problems.push(AnnotationProblem::Older(error))).ok()
            })
            .collect();
        let refresh = annotation(Self::REFRESH).and_then(|text| RefreshRequest::of(text));
        Self { interval, refresh, accept_older, problems }
    }
}

/// The start of the SHA-256 digest of the refresh annotation's value, as the marker records it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RefreshRequest(String);

impl RefreshRequest {
    /// Returns the digest of an annotation value; `None` if the value is empty.
    pub fn of(value: &str) -> Option<Self> {
        use fmt::Write;

        if value.is_empty() {
            return None;
        }
        let digest = digest(&SHA256, value.as_bytes());
        let hex = digest.as_ref().iter().take(16).fold(String::new(), |mut hex, byte| {
            // Writing into a string never fails.
            let _written = write!(hex, "{byte:02x}");
            hex
        });
        Some(Self(hex))
    }

    /// The digest in lower-case hexadecimal digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A version of an object that may be older than the mounted one: `<object id>@<version>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OlderVersion {
    /// The object id, as in the pod status.
    pub id: String,
    /// The version of the object.
    pub version: String,
}

impl FromStr for OlderVersion {
    type Err = ParseOlderVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.rsplit_once('@')
            .filter(|(id, version)| !id.is_empty() && !version.is_empty())
            .map(|(id, version)| Self { id: id.to_owned(), version: version.to_owned() })
            .ok_or_else(|| ParseOlderVersionError { text: text.to_owned() })
    }
}

impl TryFrom<String> for OlderVersion {
    type Error = ParseOlderVersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<OlderVersion> for String {
    fn from(older: OlderVersion) -> Self {
        older.to_string()
    }
}

impl fmt::Display for OlderVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.id, self.version)
    }
}

/// The error for text that is not `<object id>@<version>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not of the form `<object id>@<version>`")]
pub struct ParseOlderVersionError {
    /// The rejected text.
    pub text: String,
}

/// An annotation of a SecretProviderClass is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationProblem {
    /// The interval is invalid; the node's interval applies.
    #[error("annotation `{}` is ignored", RotationPolicy::INTERVAL)]
    Interval(#[source] ParseIntervalError),
    /// An older version is invalid; it is not accepted.
    #[error("an entry of annotation `{}` is ignored", RotationPolicy::ACCEPT_OLDER)]
    Older(#[source] ParseOlderVersionError),
}

impl ErrorHint for AnnotationProblem {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Interval(error) => return error.hint(),
            Self::Older(_) => {
                "write the object and the version as in the pod status, for example \
                 `secret/cpo@3f2a…`"
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_with_annotations(annotations: &[(&str, &str)]) -> SecretProviderClass {
        let mut class = SecretProviderClass::default();
        class.metadata.annotations =
            Some(annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
        class
    }

    fn parse_annotations(annotations: &[(&str, &str)]) -> RotationPolicy {
        RotationPolicy::parse(&class_with_annotations(annotations), IntervalBounds::CLASS)
    }

    #[test]
    fn class_without_annotations_has_the_default_policy() {
        let nothing = RotationPolicy::default();
        assert_eq!(
            RotationPolicy::parse(&SecretProviderClass::default(), IntervalBounds::CLASS),
            nothing
        );
        assert_eq!(parse_annotations(&[(RotationPolicy::REFRESH, ""), ("other", "1")]), nothing);
    }

    #[test]
    fn every_annotation_is_parsed() {
        let policy = parse_annotations(&[
            (RotationPolicy::INTERVAL, "5m"),
            (RotationPolicy::REFRESH, "2026-11-21"),
            (RotationPolicy::ACCEPT_OLDER, "secret/a@1, secret/b/0@2,"),
        ]);
        assert_eq!(policy.interval, Some("5m".parse().unwrap()));
        assert_eq!(policy.refresh, RefreshRequest::of("2026-11-21"));
        assert_ne!(policy.refresh, RefreshRequest::of("2026-11-22"));
        let older: Vec<_> = policy.accept_older.iter().map(ToString::to_string).collect();
        assert_eq!(older, ["secret/a@1", "secret/b/0@2"]);
        assert_eq!(policy.problems, []);
    }

    #[test]
    fn invalid_annotation_is_reported_and_the_others_are_parsed() {
        let policy = parse_annotations(&[
            (RotationPolicy::INTERVAL, "5"),
            (RotationPolicy::ACCEPT_OLDER, "secret/a,@1,secret/b@,secret/c@3"),
        ]);
        assert_eq!(policy.interval, None);
        assert_eq!(policy.accept_older.len(), 1);
        assert_eq!(policy.problems.len(), 4);
        assert!(policy.problems.iter().all(|problem| problem.hint().is_some()));
        let text = policy.problems[0].to_string();
        assert!(text.contains(RotationPolicy::INTERVAL), "{text}");
    }
}
