//! Rotates certificates: publishes new certificates from the vault, and measures when each new key is in use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use azure_core::credentials::TokenCredential as _;
use lanyard_clock::ErrorHint as _;
use lanyard_credential::KeyHealth;
use lanyard_provider::Urgency;
use lanyard_vocabulary::{Component, Hop};

use crate::control_api::AzureControlClient;
use crate::hops::{self, MountedComponent};
use crate::reader_threads::{ReaderCounts, ReaderThreads};
use crate::report::{ComponentReport, HopReport, RotationReport, StepFailure, millis};
use crate::run_context::RunContext;

/// The time after which a rotation without a token for the new key counts as failed. The documented goal is
/// one second.
const NEW_KEY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the health of the credential is polled. This is the resolution of the measurement.
const HEALTH_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Rotates the components one after the other, while reader threads read without a pause. `before` are the reports of
/// the components' hops.
pub(crate) async fn rotate_all_components(
    context: &RunContext,
    control: &AzureControlClient,
    mounted: &mut BTreeMap<Component, MountedComponent>,
    before: &[ComponentReport],
) -> (Vec<RotationReport>, ReaderCounts) {
    let files: Vec<PathBuf> = mounted
        .iter()
        .filter_map(|(component, mounted)| {
            hops::credential_path(context, *component, &mounted.volumes)
        })
        .collect();
    let readers = ReaderThreads::start(&files);
    let mut reports = Vec::new();
    for (component, mounted) in mounted {
        let report = before.iter().find(|report| report.name == *component);
        let failed_hop = report.and_then(ComponentReport::failed_hop);
        let lacks_token = failed_hop.is_some_and(|hop| hop.name == Hop::EntraToken);
        let rotated = rotate_component(context, control, *component, mounted, lacks_token).await;
        reports.push(match rotated.map_err(|failure| explain_failure(failure, failed_hop)) {
            Ok(took) => {
                RotationReport { name: *component, millis: Some(millis(took)), failure: None }
            }
            Err(failure) => RotationReport::failed(*component, failure),
        });
    }
    (reports, readers.finish())
}

/// A hop that failed before the rotation is why the new key is not in use.
fn explain_failure(failure: StepFailure, failed_hop: Option<&HopReport>) -> StepFailure {
    let Some(hop) = failed_hop else { return failure };
    let StepFailure { detail, hint } = failure;
    StepFailure::new(format!("it did not repair the hop `{}`: {detail}", hop.name), hint)
}

/// Measures the time from the replacement of the file to the first token obtained with the new key. A credential renews
/// the tokens that it had before; if it lacks one, this function requests one with the new key.
async fn rotate_component(
    context: &RunContext,
    control: &AzureControlClient,
    component: Component,
    mounted: &mut MountedComponent,
    lacks_token: bool,
) -> Result<Duration, StepFailure> {
    let Some(credential) = mounted.credential.clone() else {
        let detail = "the component has no credential to rotate";
        return Err(StepFailure::new(detail, "fix the hop that failed first"));
    };
    let before = credential.generation().number();
    control.rotate_certificate(component).await.map_err(|error| StepFailure::from(&error))?;
    // The publish begins at this time, so the measurement includes the replacement of the files.
    let publish_began = refresh_volumes(context, component, mounted).await?;
    let mut scope = lacks_token.then(|| hops::token_scope(context, component));
    loop {
        if let Some(scope) = scope.take_if(|_| credential.generation().number() > before) {
            let token = credential.get_token(&[&scope], None).await;
            token.map_err(|error| StepFailure::of(&error, hops::token_hint(&error)))?;
        }
        match credential.health().key {
            KeyHealth::Accepted { generation } if generation > before => {
                return Ok(context.azure.clock.monotonic().saturating_sub(publish_began));
            }
            KeyHealth::Refused { generation, error } if generation > before => {
                let hint = error.hint.unwrap_or_else(|| "see Entra's response".to_owned());
                return Err(StepFailure::new(
                    format!("Entra refuses the new key: {}", error.text),
                    hint,
                ));
            }
            _ => {}
        }
        if context.azure.clock.monotonic().saturating_sub(publish_began) > NEW_KEY_TIMEOUT {
            let detail = format!("no token with the new key after {}s", NEW_KEY_TIMEOUT.as_secs());
            return Err(StepFailure::new(detail, "see --log lanyard_credential=debug"));
        }
        context.azure.clock.sleep(HEALTH_POLL_INTERVAL).await;
    }
}

/// Fetches from the provider with a forced refresh and publishes the result. Returns the time at which the
/// publish began.
pub(crate) async fn refresh_volumes(
    context: &RunContext,
    component: Component,
    mounted: &mut MountedComponent,
) -> Result<Duration, StepFailure> {
    let fetched =
        hops::fetch_from_provider(context, component, &mounted.class, Urgency::ForceRefresh).await;
    let response = hops::check_decoded_files(fetched)?.value;
    let began = context.azure.clock.monotonic();
    for open in &mut mounted.volumes {
        hops::publish_volume(open, &response)?;
        open.volume.scrub().map_err(|error| {
            StepFailure::of(&error, error.hint().unwrap_or("run again with --log debug".into()))
        })?;
    }
    Ok(began)
}
