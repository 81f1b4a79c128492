//! New certificates: how soon the canaries prove with each, as they say on the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_vocabulary::Component;

use super::watched::Watched;
use crate::control::Control;
use crate::report::{Failure, RotationReport, millis};

/// How long the word of a canary may take before the rotation counts as failed. A canary writes no
/// oftener than every five seconds, and the node plugin looks every second.
const PATIENCE: Duration = Duration::from_mins(1);

/// A certificate that was issued, and the one before it.
struct Issued {
    before: String,
    at: Duration,
}

/// Issues a new certificate for every component that is proven, all at once, and waits for the
/// canaries' word.
pub(super) async fn rotate_all(
    watched: &Watched<'_>,
    control: &Control,
    components: &[Component],
) -> Vec<RotationReport> {
    let mut reports = BTreeMap::new();
    let mut issued = BTreeMap::new();
    for component in components.iter().copied() {
        let Some(before) = watched.thumbprint(component) else {
            let detail = "no canary proves the identity";
            let failure = Failure::new(detail, "mend the hop that failed first");
            reports.insert(component, RotationReport::failed(component, failure));
            continue;
        };
        let at = watched.clock().monotonic();
        match control.rotate(component).await {
            Ok(()) => drop(issued.insert(component, Issued { before, at })),
            Err(error) => {
                reports.insert(component, RotationReport::failed(component, (&error).into()));
            }
        }
    }
    let mut changes = watched.changes();
    let began = watched.clock().monotonic();
    while !issued.is_empty() {
        issued.retain(|component, issued| {
            let now = watched.thumbprint(*component);
            let is_new = now.is_some_and(|thumbprint| thumbprint != issued.before);
            if is_new {
                let took = watched.clock().monotonic().saturating_sub(issued.at);
                let millis = Some(millis(took));
                let report = RotationReport { name: *component, millis, failure: None };
                reports.insert(*component, report);
            }
            !is_new
        });
        let spent = watched.clock().monotonic().saturating_sub(began);
        let Some(rest) = PATIENCE.checked_sub(spent).filter(|rest| !rest.is_zero()) else { break };
        tokio::select! {
            _ = changes.changed() => {}
            () = watched.clock().sleep(rest) => {}
        }
    }
    for component in issued.into_keys() {
        let detail =
            format!("no word of the canary about the new certificate in {} s", PATIENCE.as_secs());
        let failure = Failure::new(detail, "see --log lanyard_node=debug,lanyard_canary=debug");
        reports.insert(component, RotationReport::failed(component, failure));
    }
    components.iter().filter_map(|component| reports.remove(component)).collect()
}
