//! New certificates: from the vault into the volumes, and how soon each new key is in use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lanyard_credential::KeyHealth;
use lanyard_node::Urgency;
use lanyard_vocabulary::Component;

use crate::control::Control;
use crate::hops::{self, Arrived};
use crate::readers::{ReaderLoop, Readers};
use crate::report::{Failure, RotationReport, millis};
use crate::roadbed::Roadbed;

/// How long a new key may take before the rotation counts as failed. The promise is one second.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the credential's health is looked at: the resolution of the measurement.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Rotates one component after the other, under reader threads that never pause.
pub(crate) async fn rotate_all(
    bed: &Roadbed,
    control: &Control,
    arrived: &mut BTreeMap<Component, Arrived>,
) -> (Vec<RotationReport>, Readers) {
    let files: Vec<PathBuf> = arrived
        .iter()
        .filter_map(|(component, arrived)| hops::credential_path(bed, *component, &arrived.volumes))
        .collect();
    let readers = ReaderLoop::start(&files);
    let mut reports = Vec::new();
    for (component, arrived) in arrived {
        reports.push(match rotate_one(bed, control, *component, arrived).await {
            Ok(took) => {
                RotationReport { name: *component, millis: Some(millis(took)), failure: None }
            }
            Err(failure) => RotationReport::failed(*component, failure),
        });
    }
    (reports, readers.finish())
}

/// The time from the swap of the file to the first token that the new key obtained.
async fn rotate_one(
    bed: &Roadbed,
    control: &Control,
    component: Component,
    arrived: &mut Arrived,
) -> Result<Duration, Failure> {
    let Some(credential) = arrived.credential.clone() else {
        let detail = "the component has no credential to rotate";
        return Err(Failure::new(detail, "mend the hop that failed first"));
    };
    let before = credential.generation().number();
    control.rotate(component).await.map_err(|error| Failure::from(&error))?;
    // Taken before the publish, so that the swap itself is in the figure.
    let swapped = refresh(bed, component, arrived).await?;
    loop {
        match credential.health().key {
            KeyHealth::Accepted { generation } if generation > before => {
                return Ok(bed.azure.clock.monotonic().saturating_sub(swapped));
            }
            KeyHealth::Refused { generation, error } if generation > before => {
                let hint = error.hint.unwrap_or_else(|| "see Entra's answer".to_owned());
                return Err(Failure::new(
                    format!("Entra refuses the new key: {}", error.text),
                    hint,
                ));
            }
            _ => {}
        }
        if bed.azure.clock.monotonic().saturating_sub(swapped) > PATIENCE {
            let detail = format!("no token with the new key after {}s", PATIENCE.as_secs());
            return Err(Failure::new(detail, "see --log lanyard_credential=debug"));
        }
        bed.azure.clock.sleep(LOOK_EVERY).await;
    }
}

/// Asks the provider anew and publishes what it returns; returns when the publish began.
pub(crate) async fn refresh(
    bed: &Roadbed,
    component: Component,
    arrived: &mut Arrived,
) -> Result<Duration, Failure> {
    let filled = hops::fill(bed, component, &arrived.class, Urgency::Refresh).await;
    let filling = hops::decode(filled)?.value;
    let began = bed.azure.clock.monotonic();
    for open in &mut arrived.volumes {
        hops::publish(open, &filling)?;
        open.volume.scrub().map_err(|error| {
            Failure::of(&error, error.hint().unwrap_or("run again with --log debug"))
        })?;
    }
    Ok(began)
}
