//! The serve-stale annotation of a SecretProviderClass.

use std::time::Duration;

use lanyard_api::SecretProviderClass;
use lanyard_vocabulary::OutcomeCode;

use crate::interval::{ParseIntervalError, PollInterval};
use crate::provider::ProviderError;

/// The maximum age of a cached response during a vault outage, from the serve-stale annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServeStaleLimit(Duration);

impl ServeStaleLimit {
    /// The name of the annotation. Its value is a Go duration of up to a week.
    pub(super) const ANNOTATION: &str = "lanyard.dev/serve-stale";

    /// Parses the annotation; `None` without it. An invalid value is an error, so that the author
    /// of the SecretProviderClass learns before an outage that the cache would not be used.
    pub(super) fn parse(class: &SecretProviderClass) -> Result<Option<Self>, ProviderError> {
        let annotations = class.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|all| all.get(Self::ANNOTATION)) else {
            return Ok(None);
        };
        // The same bounds as the node's poll interval: one second to one week.
        let age: PollInterval = text.parse().map_err(|error: ParseIntervalError| {
            let message = format!("annotation `{}`: {error}", Self::ANNOTATION);
            ProviderError::new(OutcomeCode::SecretProviderClassInvalid, message)
                .with_hint("set the maximum age as a duration of up to a week, such as `4h`")
        })?;
        Ok(Some(Self(age.duration())))
    }

    /// Returns the maximum age.
    pub(super) const fn max_age(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ServeStaleLimit>, ProviderError> {
        let mut class = SecretProviderClass::default();
        let annotation = (ServeStaleLimit::ANNOTATION.to_owned(), text.to_owned());
        class.metadata.annotations = Some([annotation].into());
        ServeStaleLimit::parse(&class)
    }

    #[test]
    fn serve_stale_annotation_accepts_only_durations() {
        assert_eq!(ServeStaleLimit::parse(&SecretProviderClass::default()).unwrap(), None);
        assert_eq!(parse("4h").unwrap(), Some(ServeStaleLimit(Duration::from_hours(4))));
        for bad in ["", "yes", "true", "-1h", "4", "10000h"] {
            let refused = parse(bad).unwrap_err();
            assert_eq!(refused.code, OutcomeCode::SecretProviderClassInvalid, "{bad}");
            assert!(refused.message.contains(ServeStaleLimit::ANNOTATION), "{refused}");
        }
    }
}
