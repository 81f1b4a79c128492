//! What to do about a HostedCluster at all. Pure.

use jiff::Timestamp;
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::hosted_cluster::key_rotation::lint_rotation;
use lanyard_desired::{
    HostedClusterKind, Problem, Problems, Severity, ValidateError, Validated,
    ValidatedHostedCluster, validate,
};
use serde_json::Value;

use crate::claim::Claim;
use crate::finalizer;
use crate::key::ClusterKey;
use crate::observe::Observed;
use crate::settings::{OperatorSettings, Role};

/// The value of `MANAGED_SERVICE` on a management cluster of managed Azure.
pub const MANAGED_SERVICE: &str = "ARO-HCP";

/// What a HostedCluster is to us.
#[derive(Debug, Clone)]
pub(crate) enum Judgement {
    /// A cluster of another kind for which nothing was made: nothing is written about it.
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
    /// What somebody should look at.
    pub(crate) lints: Problems,
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
            let other = unreadable.platform.as_deref();
            return match other.and_then(HostedClusterKind::of_other_platform) {
                Some(kind) => other_kind(observed, kind),
                None => unusable(
                    &unreadable.field,
                    &unreadable.problem,
                    "see the field types of the API",
                ),
            };
        }
    };
    let Validated { hosted_cluster: cluster, lints } = match validate(&wire) {
        Ok(validated) => validated,
        Err(ValidateError::OtherKind(kind)) => return other_kind(observed, kind),
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
        return unusable(HostedClusterKind::ManagedAzure.field(), &message, hint);
    }
    if let Some(other) = observed.tenant.as_ref().filter(|tenant| **tenant != observed.key) {
        return taken(observed, other);
    }
    if observed.claim == Claim::Foreign {
        return foreign(observed);
    }
    let lints = lints
        .into_iter()
        .chain(lint_rotation(&wire))
        .chain(lint_finalizer(observed, settings.role));
    let lints = lints.collect();
    let pause = pause(&wire, observed.now);
    Judgement::Usable(Box::new(Usable { wire, cluster, lints, pause }))
}

/// A cluster of another kind is left alone, unless something was made for it: then somebody changed
/// what it is, by mistake more often than not, and all that it has would go.
fn other_kind(observed: &Observed, kind: HostedClusterKind) -> Judgement {
    if !finalizer::is_held(observed) && observed.owner.uid().is_none() {
        return Judgement::NotOurs(kind);
    }
    let message =
        format!("this is {kind}; it was a cluster of managed Azure, and what was made stays");
    let hint = "set the field back, or delete the HostedCluster and make another one";
    unusable(kind.field(), &message, hint)
}

/// Our finalizer where nobody takes it away: this operator writes only its own status.
fn lint_finalizer(observed: &Observed, role: Role) -> Option<Problem> {
    let is_left = role == Role::IdentityOnly && finalizer::is_held(observed);
    is_left.then(|| Problem {
        field: "metadata.finalizers".to_owned(),
        severity: Severity::Lint,
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
fn taken(observed: &Observed, other: &ClusterKey) -> Judgement {
    let message = format!(
        "the namespace `{}` is that of the control plane of HostedCluster {other}, which was there \
         first",
        observed.namespace
    );
    unusable("metadata.name", &message, "give the HostedCluster another name or namespace")
}

/// Somebody made the namespace for something else: it is neither written nor deleted.
fn foreign(observed: &Observed) -> Judgement {
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
    unusable("metadata.name", &message, &hint)
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

#[cfg(test)]
mod tests {

    use lanyard_desired::objects::Owner;
    use serde_json::json;

    use super::*;
    use crate::finalizer::FINALIZER;

    const TYPE: &str = "/spec/platform/type";
    const AUTHENTICATION: &str =
        "/spec/platform/azure/azureAuthenticationConfig/azureAuthenticationConfigType";

    /// The example with a value at a pointer.
    fn observed(pointer: &str, value: Value) -> Observed {
        Observed::of_example(|wire| *wire.pointer_mut(pointer).unwrap() = value)
    }

    #[test]
    fn a_cluster_for_which_something_was_made_stays_ours_whatever_it_says_it_is() {
        let changes = [
            (TYPE, "AWS", "spec.platform.type"),
            (AUTHENTICATION, "WorkloadIdentities", HostedClusterKind::SelfManagedAzure.field()),
        ];
        for (pointer, value, field) in changes {
            let never = observed(pointer, json!(value));
            assert!(
                matches!(judge(&never, &OperatorSettings::default()), Judgement::NotOurs(_)),
                "{value}"
            );
            let mut held = never.clone();
            held.cluster.finalizers = vec![FINALIZER.to_owned()];
            let made = Observed { owner: Owner::Known("u".to_owned()), ..never };
            for once_ours in [held, made] {
                let judgement = judge(&once_ours, &OperatorSettings::default());
                let Judgement::Unusable(problems) = judgement else { panic!("{judgement:?}") };
                let problem = problems.iter().next().unwrap();
                assert_eq!((problem.field.as_str(), problem.severity), (field, Severity::Error));
                assert!(problem.message.contains("what was made stays"), "{}", problem.message);
            }
        }
    }

    #[test]
    fn a_finalizer_that_nobody_takes_away_is_told() {
        let mut held = observed(TYPE, json!("Azure"));
        held.cluster.finalizers = vec![FINALIZER.to_owned()];
        for (role, is_told) in [(Role::All, false), (Role::IdentityOnly, true)] {
            let judgement = judge(&held, &OperatorSettings { role, ..OperatorSettings::default() });
            let Judgement::Usable(usable) = judgement else { panic!("{judgement:?}") };
            let told = usable.lints.iter().any(|it| it.field == "metadata.finalizers");
            assert_eq!(told, is_told, "{role:?}");
        }
    }

    #[test]
    fn a_platform_that_is_misspelled_or_whose_block_cannot_be_read_is_ours_to_tell() {
        let misspelled = observed(TYPE, json!("azure"));
        assert!(matches!(judge(&misspelled, &OperatorSettings::default()), Judgement::Unusable(_)));
        let mut unreadable = observed("/spec/platform/azure", json!("text"));
        assert!(matches!(judge(&unreadable, &OperatorSettings::default()), Judgement::Unusable(_)));
        unreadable = observed("/spec/platform", json!({"type": "AWS", "azure": "text"}));
        assert!(matches!(judge(&unreadable, &OperatorSettings::default()), Judgement::NotOurs(_)));
        unreadable.cluster.finalizers = vec![FINALIZER.to_owned()];
        assert!(matches!(judge(&unreadable, &OperatorSettings::default()), Judgement::Unusable(_)));
    }

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
