//! The report of `lanyard up`: one row per component, one cell per hop.

use std::time::Duration;

use lanyard_clock::ErrorHint as _;
use lanyard_vocabulary::{Component, Hop, HopOutcome, format_error_chain};
use serde::Serialize;

use crate::control_api::AzureControlError;

/// The report of a scenario run. Its JSON form is the output of `lanyard up --output json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScenarioReport {
    /// One entry per component of the HostedCluster, in the order of the HostedCluster API.
    pub components: Vec<ComponentReport>,
    /// One entry per rotated component; empty without a rotation.
    pub rotation: Vec<RotationReport>,
    /// Whether every hop of every component succeeded and every rotated key is in use.
    pub ok: bool,
}

/// The hops of one component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComponentReport {
    /// The component, named after its field in the HostedCluster API.
    pub name: Component,
    /// All hops, in the order in which they run.
    pub hops: Vec<HopReport>,
}

/// One hop of one component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HopReport {
    /// The hop.
    pub name: Hop,
    /// Whether the hop ran and succeeded.
    pub ok: bool,
    /// The duration in milliseconds; 0 if the hop was not reached.
    pub millis: f64,
    /// The result of the hop, or the failed operation and its error.
    pub detail: String,
    /// The next step for the user if the hop failed.
    pub hint: Option<String>,
    /// The outcome of the hop, which distinguishes failed hops from hops that were not reached.
    #[serde(skip)]
    pub outcome: HopOutcome,
}

/// The rotation of one component's certificate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RotationReport {
    /// The component.
    pub name: Component,
    /// Milliseconds from the replacement of the file to the first token obtained with the new key; `None` if
    /// no token was obtained with the new key.
    pub millis: Option<f64>,
    /// The reason why the new key is not in use; `None` if it is.
    pub failure: Option<StepFailure>,
}

/// Why a hop or a rotation of a [`ScenarioRun`] failed, and the next step for the user.
///
/// [`ScenarioRun`]: crate::ScenarioRun
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFailure {
    /// The failed operation and its error.
    pub detail: String,
    /// The next step for the user.
    pub hint: String,
}

impl StepFailure {
    /// Creates a failure from texts.
    pub fn new(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { detail: detail.into(), hint: hint.into() }
    }

    /// Creates a failure from an error and its causes, without repeated texts.
    pub fn of(error: &dyn std::error::Error, hint: impl Into<String>) -> Self {
        Self { detail: format_error_chain(error), hint: hint.into() }
    }
}

impl From<&AzureControlError> for StepFailure {
    fn from(error: &AzureControlError) -> Self {
        Self::of(error, error.hint().unwrap_or_default())
    }
}

impl ScenarioReport {
    /// Combines the reports and computes `ok`.
    pub fn new(components: Vec<ComponentReport>, rotation: Vec<RotationReport>) -> Self {
        let ok = components.iter().all(ComponentReport::all_hops_ok)
            && rotation.iter().all(|rotated| rotated.failure.is_none());
        Self { components, rotation, ok }
    }
}

impl RotationReport {
    pub(crate) const fn failed(name: Component, failure: StepFailure) -> Self {
        Self { name, millis: None, failure: Some(failure) }
    }

    /// The rotation of all components failed because the control API could not be reached.
    pub(crate) fn all_failed(
        components: impl IntoIterator<Item = Component>,
        error: &AzureControlError,
    ) -> Vec<Self> {
        let failed = |component| Self::failed(component, error.into());
        components.into_iter().map(failed).collect()
    }
}

impl ComponentReport {
    /// Whether every hop succeeded.
    pub fn all_hops_ok(&self) -> bool {
        self.hops.iter().all(|hop| hop.ok)
    }

    /// The failed hop, if there is one.
    pub fn failed_hop(&self) -> Option<&HopReport> {
        self.hops.iter().find(|hop| hop.outcome == HopOutcome::Failed)
    }
}

impl HopReport {
    pub(crate) fn passed(name: Hop, took: Duration, detail: String) -> Self {
        let outcome = HopOutcome::Succeeded;
        Self { name, ok: true, millis: millis(took), detail, hint: None, outcome }
    }

    pub(crate) fn failed(name: Hop, took: Duration, failure: StepFailure) -> Self {
        let StepFailure { detail, hint } = failure;
        let outcome = HopOutcome::Failed;
        Self { name, ok: false, millis: millis(took), detail, hint: Some(hint), outcome }
    }

    pub(crate) fn not_reached(name: Hop) -> Self {
        let outcome = HopOutcome::NotReached;
        let detail = outcome.name().to_owned();
        Self { name, ok: false, millis: 0.0, detail, hint: None, outcome }
    }
}

/// Converts a duration to milliseconds, rounded to three decimals.
pub(crate) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_api_error_fails_rotation_of_every_component() {
        let error =
            AzureControlError::Refused { path: "rotate", status: 500, body: "no key".to_owned() };
        let reports = RotationReport::all_failed([Component::Disk, Component::Kms], &error);
        let failure = StepFailure::new(error.to_string(), error.hint().unwrap());
        let expected = [Component::Disk, Component::Kms]
            .map(|component| RotationReport::failed(component, failure.clone()));
        assert_eq!(reports, expected);
        assert!(!ScenarioReport::new(Vec::new(), reports).ok);
    }

    #[test]
    fn report_json_has_exactly_the_documented_keys() {
        let hop = HopReport::passed(Hop::File, Duration::from_micros(1_500), "there".to_owned());
        let failed = HopReport::failed(
            Hop::Credential,
            Duration::ZERO,
            StepFailure::new("broken", "fix it"),
        );
        let component = ComponentReport { name: Component::Disk, hops: vec![hop, failed] };
        let rotated = RotationReport { name: Component::Disk, millis: Some(12.5), failure: None };
        let not_rotated = RotationReport::failed(Component::Kms, StepFailure::new("no", "repair"));
        let report = ScenarioReport::new(vec![component], vec![rotated, not_rotated]);
        let expected = serde_json::json!({
            "components": [{
                "name": "disk",
                "hops": [
                    {"name": "file", "ok": true, "millis": 1.5, "detail": "there", "hint": null},
                    {"name": "credential", "ok": false, "millis": 0.0, "detail": "broken", "hint": "fix it"},
                ],
            }],
            "rotation": [
                {"name": "disk", "millis": 12.5, "failure": null},
                {"name": "kms", "millis": null, "failure": {"detail": "no", "hint": "repair"}},
            ],
            "ok": false,
        });
        assert_eq!(serde_json::to_value(report).unwrap(), expected);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct OuterReportError(#[source] InnerReportError);

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct InnerReportError;

    #[test]
    fn failure_detail_includes_error_causes() {
        assert_eq!(
            StepFailure::of(&OuterReportError(InnerReportError), "hint").detail,
            "outer: inner"
        );
    }
}
