//! New certificates: from the vault into the volumes, and how soon each new key is in use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lanyard_credential::KeyHealth;
use lanyard_node::Urgency;
use lanyard_vocabulary::Component;

use crate::control_api::AzureControlClient;
use crate::hops::{self, MountedComponent};
use crate::reader_threads::{ReaderCounts, ReaderThreads};
use crate::report::{RotationReport, ScenarioFailure, millis};
use crate::run_context::RunContext;

/// How long a new key may take before the rotation counts as failed. The promise is one second.
const NEW_KEY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the credential's health is looked at: the resolution of the measurement.
const HEALTH_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Rotates one component after the other, under reader threads that never pause.
pub(crate) async fn rotate_all_components(
    bed: &RunContext,
    control: &AzureControlClient,
    arrived: &mut BTreeMap<Component, MountedComponent>,
) -> (Vec<RotationReport>, ReaderCounts) {
    let files: Vec<PathBuf> = arrived
        .iter()
        .filter_map(|(component, arrived)| hops::credential_path(bed, *component, &arrived.volumes))
        .collect();
    let readers = ReaderThreads::start(&files);
    let mut reports = Vec::new();
    for (component, arrived) in arrived {
        reports.push(match rotate_component(bed, control, *component, arrived).await {
            Ok(took) => {
                RotationReport { name: *component, millis: Some(millis(took)), failure: None }
            }
            Err(failure) => RotationReport::failed(*component, failure),
        });
    }
    (reports, readers.finish())
}

/// The time from the swap of the file to the first token that the new key obtained.
async fn rotate_component(
    bed: &RunContext,
    control: &AzureControlClient,
    component: Component,
    arrived: &mut MountedComponent,
) -> Result<Duration, ScenarioFailure> {
    let Some(credential) = arrived.credential.clone() else {
        let detail = "the component has no credential to rotate";
        return Err(ScenarioFailure::new(detail, "mend the hop that failed first"));
    };
    let before = credential.generation().number();
    control.rotate_certificate(component).await.map_err(|error| ScenarioFailure::from(&error))?;
    // Taken before the publish, so that the swap itself is in the figure.
    let swapped = refresh_volumes(bed, component, arrived).await?;
    loop {
        match credential.health().key {
            KeyHealth::Accepted { generation } if generation > before => {
                return Ok(bed.azure.clock.monotonic().saturating_sub(swapped));
            }
            KeyHealth::Refused { generation, error } if generation > before => {
                let hint = error.hint.unwrap_or_else(|| "see Entra's answer".to_owned());
                return Err(ScenarioFailure::new(
                    format!("Entra refuses the new key: {}", error.text),
                    hint,
                ));
            }
            _ => {}
        }
        if bed.azure.clock.monotonic().saturating_sub(swapped) > NEW_KEY_TIMEOUT {
            let detail = format!("no token with the new key after {}s", NEW_KEY_TIMEOUT.as_secs());
            return Err(ScenarioFailure::new(detail, "see --log lanyard_credential=debug"));
        }
        bed.azure.clock.sleep(HEALTH_POLL_INTERVAL).await;
    }
}

/// Asks the provider anew and publishes what it returns; returns when the publish began.
pub(crate) async fn refresh_volumes(
    bed: &RunContext,
    component: Component,
    arrived: &mut MountedComponent,
) -> Result<Duration, ScenarioFailure> {
    let filled =
        hops::fetch_from_provider(bed, component, &arrived.class, Urgency::ForceRefresh).await;
    let filling = hops::check_decoded_files(filled)?.value;
    let began = bed.azure.clock.monotonic();
    for open in &mut arrived.volumes {
        hops::publish_volume(open, &filling)?;
        open.volume.scrub().map_err(|error| {
            ScenarioFailure::of(&error, error.hint().unwrap_or("run again with --log debug"))
        })?;
    }
    Ok(began)
}
