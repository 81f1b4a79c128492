//! Entry point for fuzzing the parser of journals; not part of the public interface.

use crate::journal::{self, JournalCluster, JournalError, RecordedState, StackRule};

/// The state that the journal with this content describes.
///
/// # Errors
///
/// [`JournalError`] if the journal is invalid, or that of another cluster.
pub fn parse_state(
    content: &str,
    cluster: &JournalCluster,
    stack_rule: StackRule,
) -> Result<RecordedState, JournalError> {
    journal::parse_state(content, cluster, stack_rule)
}
