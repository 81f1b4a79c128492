//! Warnings that operators should see although the process is ready.

use std::fmt;
use std::sync::Arc;

/// Warnings on the readiness page that do not affect readiness. The sources are called for each
/// request, so the page is always current.
#[derive(Clone, Default)]
pub struct ReadinessWarnings(Vec<(&'static str, Arc<WarningSource>)>);

type WarningSource = dyn Fn() -> Option<String> + Send + Sync;

impl ReadinessWarnings {
    /// Adds a source, which returns a message while there is something to warn about.
    #[must_use]
    pub fn with_source(
        mut self,
        name: &'static str,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.0.push((name, Arc::new(source)));
        self
    }

    /// The current warnings, one line each.
    pub fn lines(&self) -> Vec<String> {
        let warnings = self.0.iter().filter_map(|(name, source)| source().map(|it| (name, it)));
        warnings
            .map(|(name, text)| format!("{name}: {}", text.replace(['\r', '\n'], " ")))
            .collect()
    }
}

impl fmt::Debug for ReadinessWarnings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
