//! What to do about a HostedCluster at all. Pure.

use jiff::Timestamp;
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::hosted_cluster::key_rotation::lint_key_rotation;
use lanyard_desired::{
    HostedClusterPlatform, HostedClusterValidationError, ProblemSeverity, ValidatedHostedCluster,
    ValidatedWithLints, ValidationProblem, ValidationProblems, validate,
};
use serde_json::Value;

use crate::cluster_key::ClusterKey;
use crate::finalizer;
use crate::namespace_owner::NamespaceOwner;
use crate::observe::ObservedCluster;
use crate::settings::{OperatorRole, OperatorSettings};

/// The value of `MANAGED_SERVICE` on a management cluster of managed Azure.
pub const MANAGED_SERVICE: &str = "ARO-HCP";

/// What a HostedCluster is to us.
#[derive(Debug, Clone)]
pub(crate) enum ClusterClassification {
    /// A cluster of another kind for which nothing was made: nothing is written about it.
    OtherKind(HostedClusterPlatform),
    /// Ours, and it cannot be used: it is told so, and everything stays as it is.
    Invalid(ValidationProblems),
    /// Ours.
    Valid(Box<ValidCluster>),
}

/// A HostedCluster that can be used.
#[derive(Debug, Clone)]
pub(crate) struct ValidCluster {
    pub(crate) wire: HostedCluster,
    pub(crate) cluster: ValidatedHostedCluster,
    /// What somebody should look at.
    pub(crate) lints: ValidationProblems,
    pub(crate) pause: ClusterPause,
}

/// Whether somebody paused the cluster: `spec.pausedUntil`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterPause {
    /// No, or not any more.
    None,
    /// Until somebody takes it away.
    Indefinite,
    /// Until then.
    Until(Timestamp),
}

/// Decides.
pub(crate) fn classify_cluster(
    observed: &ObservedCluster,
    settings: &OperatorSettings,
) -> ClusterClassification {
    let wire = match observed.cluster.parse() {
        Ok(wire) => wire,
        Err(unreadable) => {
            let other = unreadable.platform_type.as_deref();
            return match other.and_then(HostedClusterPlatform::of_other_platform) {
                Some(kind) => classify_other_kind(observed, kind),
                None => invalid_cluster(
                    &unreadable.field,
                    &unreadable.problem,
                    "see the field types of the API",
                ),
            };
        }
    };
    let ValidatedWithLints { hosted_cluster: cluster, lints } = match validate(&wire) {
        Ok(validated) => validated,
        Err(HostedClusterValidationError::UnsupportedPlatform(kind)) => {
            return classify_other_kind(observed, kind);
        }
        Err(HostedClusterValidationError::Invalid(problems)) => {
            return ClusterClassification::Invalid(problems);
        }
        Err(error) => {
            return invalid_cluster("", &error.to_string(), "see the version of this program");
        }
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
        return invalid_cluster(HostedClusterPlatform::ManagedAzure.field(), &message, hint);
    }
    if let Some(other) = observed.oldest_cluster.as_ref().filter(|tenant| **tenant != observed.key)
    {
        return namespace_taken(observed, other);
    }
    if observed.namespace_owner == NamespaceOwner::Foreign {
        return namespace_not_marked(observed);
    }
    let lints = lints
        .into_iter()
        .chain(lint_key_rotation(&wire))
        .chain(lint_finalizer(observed, settings.role));
    let lints = lints.collect();
    let pause = parse_pause(&wire, observed.now);
    ClusterClassification::Valid(Box::new(ValidCluster { wire, cluster, lints, pause }))
}

/// A cluster of another kind is left alone, unless something was made for it: then somebody changed
/// what it is, by mistake more often than not, and all that it has would go.
fn classify_other_kind(
    observed: &ObservedCluster,
    kind: HostedClusterPlatform,
) -> ClusterClassification {
    if !finalizer::has_finalizer(observed) && observed.owner.uid().is_none() {
        return ClusterClassification::OtherKind(kind);
    }
    let message =
        format!("this is {kind}; it was a cluster of managed Azure, and what was made stays");
    let hint = "set the field back, or delete the HostedCluster and make another one";
    invalid_cluster(kind.field(), &message, hint)
}

/// Our finalizer where nobody takes it away: this operator writes only its own status.
fn lint_finalizer(observed: &ObservedCluster, role: OperatorRole) -> Option<ValidationProblem> {
    let is_left = role == OperatorRole::IdentityOnly && finalizer::has_finalizer(observed);
    is_left.then(|| ValidationProblem {
        field: "metadata.finalizers".to_owned(),
        severity: ProblemSeverity::Lint,
        message: format!(
            "`{}` is held, and with `--role identity-only` nobody takes it away: a deletion does not end",
            finalizer::FINALIZER
        ),
        hint: Some(
            "run the operator with `--role all` to take away what it made, or, where all of it \
             belongs to another operator now, take the finalizer away"
                .to_owned(),
        ),
    })
}

/// Two clusters come to one namespace, such as `a-b/c` and `a/b-c`.
fn namespace_taken(observed: &ObservedCluster, other: &ClusterKey) -> ClusterClassification {
    let message = format!(
        "the namespace `{}` is that of the control plane of HostedCluster {other}, which was there \
         first",
        observed.namespace
    );
    invalid_cluster("metadata.name", &message, "give the HostedCluster another name or namespace")
}

/// Somebody made the namespace for something else: it is neither written nor deleted.
fn namespace_not_marked(observed: &ObservedCluster) -> ClusterClassification {
    let (namespace, key) = (&observed.namespace, &observed.key);
    let message = format!(
        "the control plane would be in namespace `{namespace}`, which is there and not marked as that \
         of this cluster: nothing is written to it; next: give the HostedCluster another name, or \
         hand the namespace over"
    );
    let hint = format!(
        "hand the namespace over with the label \
         `{}=true` and the annotation `{}={key}`; it stays when the cluster goes",
        HostedControlPlane::CONTROL_PLANE_LABEL,
        HostedCluster::CLUSTER_ANNOTATION
    );
    invalid_cluster("metadata.name", &message, &hint)
}

fn invalid_cluster(field: &str, message: &str, hint: &str) -> ClusterClassification {
    let problem = ValidationProblem {
        field: field.to_owned(),
        severity: ProblemSeverity::Error,
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
    };
    ClusterClassification::Invalid(ValidationProblems::from_iter([problem]))
}

/// A time of RFC 3339, or a boolean as Go reads it; anything else is no pause, as in the reference.
fn parse_pause(wire: &HostedCluster, now: Timestamp) -> ClusterPause {
    let spec = wire.spec.as_ref().and_then(|spec| spec.unknown.get("pausedUntil"));
    let Some(text) = spec.and_then(Value::as_str) else { return ClusterPause::None };
    match text.parse::<Timestamp>() {
        Ok(until) if until > now => ClusterPause::Until(until),
        Err(_) if GO_TRUE_VALUES.contains(&text) => ClusterPause::Indefinite,
        Ok(_) | Err(_) => ClusterPause::None,
    }
}

const GO_TRUE_VALUES: [&str; 6] = ["1", "t", "T", "TRUE", "true", "True"];

#[cfg(test)]
mod tests {

    use lanyard_desired::objects::ControlPlaneOwner;
    use serde_json::json;

    use super::*;
    use crate::finalizer::FINALIZER;

    const TYPE: &str = "/spec/platform/type";
    const AUTHENTICATION: &str =
        "/spec/platform/azure/azureAuthenticationConfig/azureAuthenticationConfigType";

    /// The example with a value at a pointer.
    fn observed_example_with(pointer: &str, value: Value) -> ObservedCluster {
        ObservedCluster::from_example(|wire| *wire.pointer_mut(pointer).unwrap() = value)
    }

    #[test]
    fn cluster_with_created_objects_is_invalid_after_kind_change() {
        let changes = [
            (TYPE, "AWS", "spec.platform.type"),
            (AUTHENTICATION, "WorkloadIdentities", HostedClusterPlatform::SelfManagedAzure.field()),
        ];
        for (pointer, value, field) in changes {
            let never = observed_example_with(pointer, json!(value));
            assert!(
                matches!(
                    classify_cluster(&never, &OperatorSettings::default()),
                    ClusterClassification::OtherKind(_)
                ),
                "{value}"
            );
            let mut held = never.clone();
            held.cluster.finalizers = vec![FINALIZER.to_owned()];
            let made = ObservedCluster { owner: ControlPlaneOwner::Known("u".to_owned()), ..never };
            for once_ours in [held, made] {
                let judgement = classify_cluster(&once_ours, &OperatorSettings::default());
                let ClusterClassification::Invalid(problems) = judgement else {
                    panic!("{judgement:?}")
                };
                let problem = problems.iter().next().unwrap();
                assert_eq!(
                    (problem.field.as_str(), problem.severity),
                    (field, ProblemSeverity::Error)
                );
                assert!(problem.message.contains("what was made stays"), "{}", problem.message);
            }
        }
    }

    #[test]
    fn identity_only_role_reports_remaining_finalizer() {
        let mut held = observed_example_with(TYPE, json!("Azure"));
        held.cluster.finalizers = vec![FINALIZER.to_owned()];
        for (role, is_told) in [(OperatorRole::All, false), (OperatorRole::IdentityOnly, true)] {
            let judgement =
                classify_cluster(&held, &OperatorSettings { role, ..OperatorSettings::default() });
            let ClusterClassification::Valid(usable) = judgement else { panic!("{judgement:?}") };
            let told = usable.lints.iter().any(|it| it.field == "metadata.finalizers");
            assert_eq!(told, is_told, "{role:?}");
        }
    }

    #[test]
    fn misspelled_or_unreadable_platform_is_invalid() {
        let misspelled = observed_example_with(TYPE, json!("azure"));
        assert!(matches!(
            classify_cluster(&misspelled, &OperatorSettings::default()),
            ClusterClassification::Invalid(_)
        ));
        let mut unreadable = observed_example_with("/spec/platform/azure", json!("text"));
        assert!(matches!(
            classify_cluster(&unreadable, &OperatorSettings::default()),
            ClusterClassification::Invalid(_)
        ));
        unreadable =
            observed_example_with("/spec/platform", json!({"type": "AWS", "azure": "text"}));
        assert!(matches!(
            classify_cluster(&unreadable, &OperatorSettings::default()),
            ClusterClassification::OtherKind(_)
        ));
        unreadable.cluster.finalizers = vec![FINALIZER.to_owned()];
        assert!(matches!(
            classify_cluster(&unreadable, &OperatorSettings::default()),
            ClusterClassification::Invalid(_)
        ));
    }

    fn parse_timestamp(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn paused_until_accepts_time_or_go_boolean() {
        let now = parse_timestamp("2026-01-02T00:00:00Z");
        let cases = [
            (json!("true"), ClusterPause::Indefinite),
            (json!("1"), ClusterPause::Indefinite),
            (json!("false"), ClusterPause::None),
            (json!("yes"), ClusterPause::None),
            (json!(true), ClusterPause::None),
            (json!("2026-01-01T00:00:00Z"), ClusterPause::None),
            (json!("2026-01-02T01:00:00+01:00"), ClusterPause::None),
            (
                json!("2026-01-03T00:00:00+01:00"),
                ClusterPause::Until(parse_timestamp("2026-01-02T23:00:00Z")),
            ),
        ];
        for (value, expected) in cases {
            let wire = json!({"spec": {"pausedUntil": value}});
            let wire: HostedCluster = serde_json::from_value(wire).unwrap();
            assert_eq!(parse_pause(&wire, now), expected, "{value}");
        }
        assert_eq!(parse_pause(&HostedCluster::default(), now), ClusterPause::None);
    }
}
