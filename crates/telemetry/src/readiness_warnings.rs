//! What people should know of a process that does its work all the same.

use std::fmt;
use std::sync::Arc;

/// What is amiss without keeping the process from its work. Who has it is asked when the page is
/// read, so that it is never out of date.
#[derive(Clone, Default)]
pub struct ReadinessWarnings(Vec<(&'static str, Arc<WarningSource>)>);

type WarningSource = dyn Fn() -> Option<String> + Send + Sync;

impl ReadinessWarnings {
    /// Asks this, too: it says what is amiss while something is.
    #[must_use]
    pub fn with_source(
        mut self,
        name: &'static str,
        look: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.0.push((name, Arc::new(look)));
        self
    }

    /// What is amiss now: a line for each.
    pub fn lines(&self) -> Vec<String> {
        let told = self.0.iter().filter_map(|(name, look)| look().map(|text| (name, text)));
        told.map(|(name, text)| format!("{name}: {}", text.replace(['\r', '\n'], " "))).collect()
    }
}

impl fmt::Debug for ReadinessWarnings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}
