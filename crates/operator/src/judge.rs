//! What to do about a HostedCluster at all. Pure.

use jiff::Timestamp;
use lanyard_api::HostedCluster;
use lanyard_desired::{
    HostedClusterKind, Problem, Problems, Severity, ValidateError, ValidatedHostedCluster, validate,
};
use serde_json::Value;

use crate::key::ClusterKey;
use crate::observe::Observed;
use crate::settings::OperatorSettings;

/// The value of `MANAGED_SERVICE` on a management cluster of managed Azure.
pub const MANAGED_SERVICE: &str = "ARO-HCP";

/// What a HostedCluster is to us.
#[derive(Debug, Clone)]
pub(crate) enum Judgement {
    /// A cluster of another kind: nothing is made for it or written about it.
    NotOurs(HostedClusterKind),
    /// Ours, and it cannot be used: it is told so, and everything stays as it is.
    Unusable(Problems),
    /// Ours.
    Usable(Box<Usable>),
}

/// A HostedCluster that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Usable {
    pub(crate) wire: HostedCluster,
    pub(crate) cluster: ValidatedHostedCluster,
    pub(crate) pause: Pause,
}

/// Whether somebody paused the cluster: `spec.pausedUntil`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// No, or not any more.
    None,
    /// Until somebody takes it away.
    Open,
    /// Until then.
    Until(Timestamp),
}

/// Decides.
pub(crate) fn judge(observed: &Observed, settings: &OperatorSettings) -> Judgement {
    let wire = match observed.cluster.read() {
        Ok(wire) => wire,
        Err(unreadable) => {
            let platform = unreadable.platform.filter(|platform| platform != "Azure");
            return match platform {
                Some(other) => Judgement::NotOurs(HostedClusterKind::OtherPlatform(other)),
                None => unusable("", &unreadable.problem, "see the field types of the API"),
            };
        }
    };
    let cluster = match validate(&wire) {
        Ok(validated) => validated.hosted_cluster,
        Err(ValidateError::OtherKind(kind)) => return Judgement::NotOurs(kind),
        Err(ValidateError::Invalid(problems)) => return Judgement::Unusable(problems),
        Err(error) => return unusable("", &error.to_string(), "see the version of this program"),
    };
    if let Some(service) = &settings.managed_service
        && service != MANAGED_SERVICE
    {
        let message = format!(
            "the cluster has managed identities, and the operator is told that its management \
             cluster is `{service}`"
        );
        let hint = "set MANAGED_SERVICE=ARO-HCP where the operator runs, or give the cluster to \
                    another management cluster";
        return unusable(AUTHENTICATION_TYPE, &message, hint);
    }
    if let Some(other) = observed.tenant.as_ref().filter(|tenant| **tenant != observed.key) {
        return taken(observed, other);
    }
    let pause = pause(&wire, observed.now);
    Judgement::Usable(Box::new(Usable { wire, cluster, pause }))
}

/// Two clusters come to one namespace, such as `a-b/c` and `a/b-c`.
fn taken(observed: &Observed, other: &ClusterKey) -> Judgement {
    let message = format!(
        "the namespace `{}` is that of the control plane of HostedCluster {other}, which was there \
         first",
        observed.namespace
    );
    unusable("metadata.name", &message, "give the HostedCluster another name or namespace")
}

fn unusable(field: &str, message: &str, hint: &str) -> Judgement {
    let problem = Problem {
        field: field.to_owned(),
        severity: Severity::Error,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
    };
    Judgement::Unusable(Problems::from_iter([problem]))
}

/// A time of RFC 3339, or a boolean as Go reads it; anything else is no pause, as in the reference.
fn pause(wire: &HostedCluster, now: Timestamp) -> Pause {
    let spec = wire.spec.as_ref().and_then(|spec| spec.unknown.get("pausedUntil"));
    let Some(text) = spec.and_then(Value::as_str) else { return Pause::None };
    match text.parse::<Timestamp>() {
        Ok(until) if until > now => Pause::Until(until),
        Err(_) if GO_TRUE.contains(&text) => Pause::Open,
        Ok(_) | Err(_) => Pause::None,
    }
}

const GO_TRUE: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];
const AUTHENTICATION_TYPE: &str =
    "spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_pause_is_a_time_or_a_boolean_of_go() {
        let now = at("2026-01-02T00:00:00Z");
        let cases = [
            (json!("true"), Pause::Open),
            (json!("1"), Pause::Open),
            (json!("false"), Pause::None),
            (json!("yes"), Pause::None),
            (json!(true), Pause::None),
            (json!("2026-01-01T00:00:00Z"), Pause::None),
            (json!("2026-01-02T01:00:00+01:00"), Pause::None),
            (json!("2026-01-03T00:00:00+01:00"), Pause::Until(at("2026-01-02T23:00:00Z"))),
        ];
        for (value, expected) in cases {
            let wire = json!({"spec": {"pausedUntil": value}});
            let wire: HostedCluster = serde_json::from_value(wire).unwrap();
            assert_eq!(pause(&wire, now), expected, "{value}");
        }
        assert_eq!(pause(&HostedCluster::default(), now), Pause::None);
    }
}
