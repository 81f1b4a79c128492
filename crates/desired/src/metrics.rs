//! Metrics of the identity status: their definitions and samples.
//!
//! The labels are the hosted cluster, the component, and the type of a condition or a drift. The
//! cardinality is bounded by the number of identities, and no label contains free text.

use jiff::Timestamp;
use lanyard_api::hosted_cluster_identities::{HostedClusterIdentitiesStatus, IdentityStatus};
use lanyard_vocabulary::Hop;

use crate::drift::Drift;
use crate::forecast::{RenewalForecast, RenewalPolicy, RenewalState, forecast_identity_renewal};
use crate::report_text::parse_hop;
use crate::status::{CONDITION_FALSE, CONDITION_TRUE};

/// The definition of a gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdentityMetric {
    /// The name of the metric.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The label in addition to `namespace` and `hosted_cluster`.
    pub label: Option<&'static str>,
}

/// A sample of a gauge.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    pub metric: &'static IdentityMetric,
    /// The value of the label.
    pub label: Option<String>,
    pub value: f64,
}

const COMPONENT_LABEL: Option<&str> = Some("component");

/// Gauge: whether the identity works.
pub static READY: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_ready",
    help: "Whether the identity works: 1 yes, 0 no, -1 unknown",
    label: COMPONENT_LABEL,
};
/// Gauge: the last hop that succeeded.
pub static LAST_GOOD_HOP: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_last_good_hop",
    help: "The last hop that succeeded, by its position: 1 hostedcluster, 2 spc, \
           3 volume, 4 imds-token, 5 vault-read, 6 decode, 7 file, 8 credential, 9 entra-token, \
           10 granted, 11 refused; 0 none",
    label: COMPONENT_LABEL,
};
/// Gauge: the hop that failed.
pub static FAILED_HOP: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_failed_hop",
    help: "The hop that failed, by its position; 0 if none",
    label: COMPONENT_LABEL,
};
/// Gauge: the expiry of the credential.
pub static NOT_AFTER: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_not_after_seconds",
    help: "Expiry of the credential in use, as a Unix timestamp in seconds",
    label: COMPONENT_LABEL,
};
/// Gauge: the time from which a newer credential is expected.
pub static RENEW_AFTER: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_renew_after_seconds",
    help: "Time from which a newer credential is expected, as a Unix timestamp in seconds",
    label: COMPONENT_LABEL,
};
/// Gauge: the last time at which a write to the vault is in use before the expiry.
pub static LAST_WRITE: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_last_write_seconds",
    help: "Last time at which a write to the vault is in use before the expiry, as a Unix timestamp in seconds",
    label: COMPONENT_LABEL,
};
/// Gauge: the renewal state.
pub static FORECAST: IdentityMetric = IdentityMetric {
    name: "lanyard_identity_forecast",
    help: "Renewal state of the credential: 0 ok, 1 renewal due, 2 overdue, 3 too late, 4 expired; -1 unknown",
    label: COMPONENT_LABEL,
};
/// Gauge: the conditions.
pub static CONDITION: IdentityMetric = IdentityMetric {
    name: "lanyard_hosted_cluster_condition",
    help: "Conditions of the identities of the hosted cluster: 1 True, 0 False, -1 Unknown",
    label: Some("type"),
};
/// Gauge: the number of drift findings by kind.
pub static DRIFT: IdentityMetric = IdentityMetric {
    name: "lanyard_hosted_cluster_drift",
    help: "Number of objects that differ from the rendered state and of mounted credentials that are not in use",
    label: Some("kind"),
};

/// All metrics, in the order of the `/metrics` output.
pub static METRICS: [&IdentityMetric; 9] = [
    &READY,
    &LAST_GOOD_HOP,
    &FAILED_HOP,
    &NOT_AFTER,
    &RENEW_AFTER,
    &LAST_WRITE,
    &FORECAST,
    &CONDITION,
    &DRIFT,
];

/// Returns the samples of one hosted cluster at `now`. Unknown values have no sample, unless the
/// metric has a value for unknown.
pub fn identity_samples(
    status: &HostedClusterIdentitiesStatus,
    policy: &RenewalPolicy,
    now: Timestamp,
) -> Vec<MetricSample> {
    let identities = status.identities.iter();
    let identities = identities.flat_map(|identity| {
        let forecast = forecast_identity_renewal(identity, policy, now);
        metric_values(identity, &forecast).map(move |(metric, value)| {
            Some(MetricSample { metric, label: Some(identity.component.clone()), value: value? })
        })
    });
    let conditions = status.conditions.iter().map(|condition| MetricSample {
        metric: &CONDITION,
        label: Some(condition.type_.clone()),
        value: condition_value(&condition.status),
    });
    let drift = Drift::KINDS.into_iter().map(|kind| {
        let found = status.drift.iter().filter(|drift| drift.kind == kind).count();
        let value = u32::try_from(found).map_or(f64::INFINITY, f64::from);
        MetricSample { metric: &DRIFT, label: Some(kind.to_owned()), value }
    });
    identities.flatten().chain(conditions).chain(drift).collect()
}

fn metric_values(
    identity: &IdentityStatus,
    forecast: &RenewalForecast,
) -> [(&'static IdentityMetric, Option<f64>); 7] {
    [
        (&READY, Some(condition_value(&identity.ready))),
        (&LAST_GOOD_HOP, Some(hop_number(identity.last_good_hop.as_deref()))),
        (&FAILED_HOP, Some(hop_number(identity.failed_hop.as_deref()))),
        (&NOT_AFTER, identity.not_after.map(unix_seconds)),
        (&RENEW_AFTER, identity.renew_after.map(unix_seconds)),
        (&LAST_WRITE, forecast.last_write_at.map(unix_seconds)),
        (&FORECAST, Some(renewal_state_value(forecast.verdict))),
    ]
}

fn condition_value(word: &str) -> f64 {
    match word {
        CONDITION_TRUE => 1.0,
        CONDITION_FALSE => 0.0,
        _ => -1.0,
    }
}

fn hop_number(hop: Option<&str>) -> f64 {
    let hop = hop.and_then(parse_hop);
    let place = Hop::CERTIFICATE_PATH.into_iter().zip(1_u32..).find(|(it, _)| Some(*it) == hop);
    place.map_or(0.0, |(_, place)| f64::from(place))
}

fn renewal_state_value(verdict: RenewalState) -> f64 {
    let place = RenewalState::ALL.into_iter().zip(-1_i32..).find(|(it, _)| *it == verdict);
    place.map_or(-1.0, |(_, place)| f64::from(place))
}

/// Converts losslessly: whole seconds up to the year 9999 fit into 53 bits.
fn unix_seconds(time: Timestamp) -> f64 {
    time.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use lanyard_api::hosted_cluster_identities::DriftStatus;
    use lanyard_vocabulary::Component;

    use super::*;
    use crate::hosted_cluster::key_rotation::DATA_ENCRYPTION_UP_TO_DATE;
    use crate::status::{
        ADVISED_CONFIGURATION, CREDENTIALS_RENEWED, IDENTITIES_IN_STEP, VALID_AZURE_IDENTITIES,
        VALID_KMS_CONFIG, VALID_NETWORK,
    };

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn status_with_text(text: &str) -> HostedClusterIdentitiesStatus {
        let identity = |component: Component| IdentityStatus {
            component: component.name().to_owned(),
            ready: "False".to_owned(),
            reason: text.to_owned(),
            message: text.to_owned(),
            last_good_hop: Some("imds-token".to_owned()),
            failed_hop: Some("vault-read".to_owned()),
            not_after: Some(now() + std::time::Duration::from_hours(24)),
            ..IdentityStatus::default()
        };
        let condition = Condition {
            type_: "ValidAzureIdentities".to_owned(),
            status: "Unknown".to_owned(),
            reason: text.to_owned(),
            message: text.to_owned(),
            observed_generation: None,
            last_transition_time: Time(now()),
        };
        let drift = DriftStatus {
            kind: "StaleMount".to_owned(),
            subject: text.to_owned(),
            message: text.to_owned(),
            since: now(),
        };
        HostedClusterIdentitiesStatus {
            identities: Component::ALL.map(identity).to_vec(),
            conditions: vec![condition],
            drift: vec![drift],
            observed_generation: None,
        }
    }

    fn sample_value(samples: &[MetricSample], metric: &IdentityMetric, label: &str) -> Option<f64> {
        let mut found =
            samples.iter().filter(|it| it.metric == metric && it.label.as_deref() == Some(label));
        found.next().map(|sample| sample.value)
    }

    #[test]
    fn status_is_exported_as_samples() {
        let samples = identity_samples(&status_with_text("x"), &RenewalPolicy::default(), now());
        for (metric, label, expected) in [
            (&READY, "disk", Some(0.0)),
            (&LAST_GOOD_HOP, "disk", Some(4.0)),
            (&FAILED_HOP, "kms", Some(5.0)),
            (&NOT_AFTER, "disk", Some(1_780_358_400.0)),
            (&RENEW_AFTER, "disk", None),
            (&LAST_WRITE, "disk", Some(1_780_358_400.0 - 343.0)),
            (&FORECAST, "disk", Some(2.0)),
            (&CONDITION, "ValidAzureIdentities", Some(-1.0)),
            (&DRIFT, "StaleMount", Some(1.0)),
            (&DRIFT, "ObjectChanged", Some(0.0)),
        ] {
            assert_eq!(sample_value(&samples, metric, label), expected, "{} {label}", metric.name);
        }
    }

    #[test]
    fn labels_never_contain_free_text() {
        let labels = |text: &str| {
            let samples =
                identity_samples(&status_with_text(text), &RenewalPolicy::default(), now());
            samples.into_iter().map(|it| (it.metric.name, it.label)).collect::<BTreeSet<_>>()
        };
        assert_eq!(labels("x"), labels("y"));
        assert!(labels("x").len() <= 9 * 7 + 5 + 6);
    }

    #[test]
    fn documentation_names_every_metric_condition_drift_and_state() {
        let page = include_str!("../../../docs/reference/hosted-cluster-identities.md");
        let conditions = [
            VALID_AZURE_IDENTITIES,
            VALID_KMS_CONFIG,
            VALID_NETWORK,
            CREDENTIALS_RENEWED,
            IDENTITIES_IN_STEP,
            ADVISED_CONFIGURATION,
            DATA_ENCRYPTION_UP_TO_DATE,
        ];
        let metrics = METRICS.iter().map(|metric| metric.name);
        let alarms = RenewalState::ALL
            .into_iter()
            .filter(|it| it.requires_action())
            .map(RenewalState::reason);
        for name in metrics.chain(conditions).chain(Drift::KINDS).chain(alarms) {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn metrics_have_unique_prefixed_names_and_documented_values() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        assert!(names.iter().all(|name| name.starts_with("lanyard_")));
        for (place, hop) in (1..).zip(Hop::CERTIFICATE_PATH) {
            assert!(LAST_GOOD_HOP.help.contains(&format!("{place} {hop}")), "{hop}");
        }
    }
}
