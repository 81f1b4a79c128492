//! Ends the writes of an earlier run that was killed, before the live resources are read.

use lanyard_azure::{AzureCallError, OperationError};
use lanyard_clock::SharedClock;
use serde_json::Value;
use tracing::{info, warn};

use crate::api_versions::api_version_of;
use crate::apply::RunContext;
use crate::journal::{RecordedResource, WritePhase};
use crate::resource::ResourceKey;
use crate::resource_write::{ResourceError, wait_for_operation};

/// The pause between two reads of a resource that another operation changes.
const POLL_PAUSE: std::time::Duration = std::time::Duration::from_secs(2);

/// Waits until no write of an earlier run is in progress in Azure.
///
/// The result of the writes does not matter here: the plan is made from the live resources.
///
/// # Errors
///
/// [`ResourceError`] if Azure cannot be reached, or an operation does not end in time.
pub async fn wait_for_interrupted_writes(context: RunContext<'_>) -> Result<(), ResourceError> {
    for (key, record) in context.journal.state().resources() {
        match &record.phase {
            WritePhase::Complete => {}
            WritePhase::Accepted(operation) => {
                info!(%key, "waiting for the operation of an earlier run");
                match wait_for_operation(context, operation.clone()).await {
                    Ok(_) => {}
                    Err(error @ OperationError::TimedOut { .. }) => return Err(error.into()),
                    // Azure forgets operations after some time. The plan shows what is missing.
                    Err(error) => warn!(%key, %error, "the operation of an earlier run failed"),
                }
                wait_until_settled(context, key, record).await?;
            }
            WritePhase::Sent => wait_until_settled(context, key, record).await?,
        }
    }
    Ok(())
}

/// Waits while Azure creates, changes or deletes the resource.
async fn wait_until_settled(
    context: RunContext<'_>,
    key: &ResourceKey,
    record: &RecordedResource,
) -> Result<(), ResourceError> {
    let clock: &SharedClock = context.clock;
    let began = clock.monotonic();
    loop {
        let version = api_version_of(&record.id);
        let found = match context.arm.fetch_optional(record.id.as_str(), version).await {
            Ok(found) => found,
            // A role assignment below a group that is being deleted, for example.
            Err(AzureCallError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        if !found.is_some_and(|response| is_changing(&response.body)) {
            return Ok(());
        }
        let waited = clock.monotonic().saturating_sub(began);
        if waited > context.options.retry_timeout {
            return Err(ResourceError::StillChanging { id: record.id.clone(), waited });
        }
        info!(%key, "waiting until Azure has finished the write of an earlier run");
        clock.sleep(POLL_PAUSE).await;
    }
}

/// Whether the provisioning state is not a final one.
fn is_changing(body: &Value) -> bool {
    let state = body.pointer("/properties/provisioningState").and_then(Value::as_str);
    let is_final = |state: &str| {
        ["Succeeded", "Failed", "Canceled"].iter().any(|it| it.eq_ignore_ascii_case(state))
    };
    state.is_some_and(|state| !is_final(state))
}
