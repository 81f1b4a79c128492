//! Ends the writes of an earlier run that was killed, before the live resources are read.

use std::time::Duration;

use tracing::{info, warn};

use crate::effect::EffectAccess;
use crate::effect_error::EffectErrorCause;
use crate::recorded_resource::{RecordedResource, WritePhase};
use crate::resource_error::ResourceError;
use crate::resource_key::ResourceKey;
use crate::run_context::RunContext;

/// The pause between two reads of a resource that another operation changes.
const POLL_PAUSE: Duration = Duration::from_secs(2);

/// Waits until no service works on a write of an earlier run.
///
/// The result of the writes does not matter here: the plan is made from the live resources.
///
/// # Errors
///
/// [`ResourceError`] if a service cannot be reached, or an operation does not end in time.
pub async fn wait_for_interrupted_writes<A: EffectAccess>(
    context: RunContext<'_, A>,
) -> Result<(), ResourceError> {
    let RunContext { access, journal, clock, options, .. } = context;
    for (key, record) in journal.state().resources() {
        match &record.phase {
            WritePhase::Complete => continue,
            WritePhase::Sent => {}
            WritePhase::Accepted(write) => {
                info!(%key, "waiting for the operation of an earlier run");
                match access.wait(write, clock, options.wait_limits()).await {
                    Err(error) if error.cause == EffectErrorCause::StillRunning => {
                        return Err(error.into());
                    }
                    // Azure forgets operations after some time. The plan shows what is missing.
                    Err(error) => warn!(%key, %error, "the operation of an earlier run failed"),
                    Ok(_) => {}
                }
            }
        }
        wait_until_settled(context, key, record).await?;
    }
    Ok(())
}

/// Waits while the service creates, changes or deletes the resource.
async fn wait_until_settled<A: EffectAccess>(
    context: RunContext<'_, A>,
    key: &ResourceKey,
    record: &RecordedResource,
) -> Result<(), ResourceError> {
    let RunContext { access, clock, options, .. } = context;
    let began = clock.monotonic();
    loop {
        let found = match access.read(&record.id).await {
            Ok(found) => found,
            // A role assignment below a group that is being deleted, for example.
            Err(error) if error.cause == EffectErrorCause::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        if !found.is_some_and(|found| A::is_changing(&found.body)) {
            return Ok(());
        }
        let waited = clock.monotonic().saturating_sub(began);
        if waited > options.retry_timeout {
            return Err(ResourceError::StillChanging { id: record.id.clone(), waited });
        }
        info!(%key, "waiting until the service has finished the write of an earlier run");
        clock.sleep(POLL_PAUSE).await;
    }
}
