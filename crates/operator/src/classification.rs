//! Decides whether the operator handles a HostedCluster. Pure.

use jiff::Timestamp;
use lanyard_api::{HostedCluster, HostedControlPlane};
use lanyard_desired::hosted_cluster::key_rotation::{
    DataEncryption, data_encryption, lint_key_rotation, lint_private_rotation,
};
use lanyard_desired::{
    HostedClusterPlatform, HostedClusterValidationError, ProblemSeverity, ValidatedHostedCluster,
    ValidatedWithLints, ValidationProblem, ValidationProblems, report_misspelled_fields,
    report_misspelled_missing_fields, validate,
};
use serde_json::Value;

use crate::cluster_ids::{MissingIds, PlaceholderSource};
use crate::cluster_key::ClusterKey;
use crate::encryption_key::keeps_key_record;
use crate::finalizer;
use crate::namespace_owner::NamespaceOwner;
use crate::observe::ObservedCluster;
use crate::settings::{OperatorRole, OperatorSettings};

/// The value of `MANAGED_SERVICE` on a management cluster of managed Azure.
pub const MANAGED_SERVICE: &str = "ARO-HCP";

/// How the operator handles a HostedCluster.
#[derive(Debug, Clone)]
pub(crate) enum ClusterClassification {
    /// A cluster of another kind without objects of the operator: the operator writes nothing.
    OtherKind(HostedClusterPlatform),
    /// A managed Azure cluster that is invalid: the operator reports it and leaves all objects unchanged.
    Invalid(ValidationProblems),
    /// A managed Azure cluster that is valid as soon as the operator has generated its ids.
    LacksIds {
        missing: MissingIds,
        /// As [`ValidCluster::problems`].
        problems: ValidationProblems,
    },
    /// A valid managed Azure cluster.
    Valid(Box<ValidCluster>),
}

/// A valid managed Azure HostedCluster.
#[derive(Debug, Clone)]
pub(crate) struct ValidCluster {
    pub(crate) wire: HostedCluster,
    pub(crate) cluster: ValidatedHostedCluster,
    /// Findings that do not block the reconciliation: the errors because of which single objects cannot be
    /// rendered, and the lints.
    pub(crate) problems: ValidationProblems,
    /// The state of the data encryption, if this operator keeps the key record.
    pub(crate) data_encryption: Option<DataEncryption>,
    pub(crate) pause: ClusterPause,
}

/// Whether the cluster is paused: `spec.pausedUntil`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterPause {
    /// Not paused, or the pause is over.
    None,
    /// Paused until the field changes.
    Indefinite,
    /// Paused until this time.
    Until(Timestamp),
}

/// Classifies a HostedCluster.
pub(crate) fn classify_cluster(
    observed: &ObservedCluster,
    settings: &OperatorSettings,
) -> ClusterClassification {
    let mut wire = match observed.cluster.parse() {
        Ok(wire) => wire,
        Err(unreadable) => {
            let other = unreadable.platform_type.as_deref();
            return match other.and_then(HostedClusterPlatform::of_other_platform) {
                Some(kind) => classify_other_kind(observed, kind),
                None => invalid_cluster(
                    &unreadable.field,
                    &unreadable.problem,
                    "check the type of the field in the HostedCluster API",
                ),
            };
        }
    };
    // Only the operator with `--role all` generates ids: in the other role, another operator does.
    let pause = parse_pause(&wire, observed.now);
    let generates_ids = settings.role == OperatorRole::All
        && pause == ClusterPause::None
        && !observed.cluster.is_deleting;
    let missing_ids = MissingIds::of(&wire).filter(|_| generates_ids);
    // A generated id can never be changed: a misspelled one must not be replaced by it.
    let misspelled_ids = missing_ids
        .map(|missing| report_misspelled_missing_fields(&wire, &missing.fields()))
        .unwrap_or_default();
    if let Some(missing) = missing_ids {
        missing.fill(&mut wire, observed.key.name(), &mut PlaceholderSource);
    }
    let ValidatedWithLints { hosted_cluster: cluster, object_errors, lints } = match validate(&wire)
    {
        Ok(validated) => validated,
        Err(HostedClusterValidationError::UnsupportedPlatform(kind)) => {
            return classify_other_kind(observed, kind);
        }
        Err(HostedClusterValidationError::Invalid(problems)) => {
            // The ids are filled in, so their misspelled fields are reported only once.
            let problems = report_misspelled_fields(&wire, problems);
            let problems = misspelled_ids.into_iter().chain(problems).collect();
            return ClusterClassification::Invalid(problems);
        }
        Err(error) => {
            return invalid_cluster("", &error.to_string(), "check the version of this program");
        }
    };
    if let Some(service) = &settings.managed_service
        && service != MANAGED_SERVICE
    {
        let message = format!(
            "the cluster uses managed identities, but the operator's management cluster is \
             `{service}`"
        );
        let hint = "set `MANAGED_SERVICE=ARO-HCP` for the operator, or move the HostedCluster to \
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
    let is_misspelled = misspelled_ids.has_errors();
    let problems = misspelled_ids
        .into_iter()
        .chain(object_errors)
        .chain(report_misspelled_fields(&wire, lints))
        .chain(lint_key_rotation(&wire))
        .chain(lint_private_router(observed, &cluster, &wire))
        .chain(lint_api_server(settings, &cluster))
        .chain(lint_finalizer(observed, settings.role));
    let problems = problems.collect();
    if is_misspelled {
        return ClusterClassification::Invalid(problems);
    }
    if let Some(missing) = missing_ids {
        return ClusterClassification::LacksIds { missing, problems };
    }
    let data_encryption =
        keeps_key_record(settings, &cluster).then(|| data_encryption(&cluster, &wire)).flatten();
    let valid = ValidCluster { wire, cluster, problems, data_encryption, pause };
    ClusterClassification::Valid(Box::new(valid))
}

/// Skips a cluster of another kind, unless the operator created objects for it. Then its platform was
/// changed, more often than not by mistake, and a deletion would remove everything it has.
fn classify_other_kind(
    observed: &ObservedCluster,
    kind: HostedClusterPlatform,
) -> ClusterClassification {
    if !finalizer::has_finalizer(observed) && observed.owner.uid().is_none() {
        return ClusterClassification::OtherKind(kind);
    }
    let message = format!("this is {kind}, but it was a managed Azure cluster; its objects stay");
    let hint = "restore the field, or delete the HostedCluster and create a new one";
    invalid_cluster(kind.field(), &message, hint)
}

/// Reports a rotation between vaults of which the private router knows only one.
fn lint_private_router(
    observed: &ObservedCluster,
    cluster: &ValidatedHostedCluster,
    wire: &HostedCluster,
) -> Option<ValidationProblem> {
    observed.private_router?;
    lint_private_rotation(cluster, wire)
}

/// Reports a template of the API server with which values might not be encrypted.
fn lint_api_server(
    settings: &OperatorSettings,
    cluster: &ValidatedHostedCluster,
) -> Option<ValidationProblem> {
    settings.templates.lint_encryption_flags().filter(|_| keeps_key_record(settings, cluster))
}

/// Reports the operator's finalizer in role `identity-only`, in which the operator does not remove it.
fn lint_finalizer(observed: &ObservedCluster, role: OperatorRole) -> Option<ValidationProblem> {
    let is_left = role == OperatorRole::IdentityOnly && finalizer::has_finalizer(observed);
    is_left.then(|| ValidationProblem {
        field: "metadata.finalizers".to_owned(),
        severity: ProblemSeverity::Lint,
        message: format!(
            "`{}` is set, and the operator with `--role identity-only` does not remove it: a \
             deletion blocks",
            finalizer::FINALIZER
        ),
        hint: Some(
            "run the operator with `--role all` to delete the objects it created, or, if another \
             operator owns all of them now, remove the finalizer"
                .to_owned(),
        ),
    })
}

/// Two clusters map to the same namespace, such as `a-b/c` and `a/b-c`.
fn namespace_taken(observed: &ObservedCluster, other: &ClusterKey) -> ClusterClassification {
    let message = format!(
        "the namespace `{}` belongs to the control plane of HostedCluster {other}, which was there \
         first",
        observed.namespace
    );
    invalid_cluster("metadata.name", &message, "give the HostedCluster another name or namespace")
}

/// The namespace exists for another purpose: the operator neither writes to it nor deletes it.
fn namespace_not_marked(observed: &ObservedCluster) -> ClusterClassification {
    let (namespace, key) = (&observed.namespace, &observed.key);
    let message = format!(
        "the control plane needs the namespace `{namespace}`, which exists without the marks of \
         this cluster: the operator does not write to it"
    );
    let hint = format!(
        "give the HostedCluster another name, or hand the namespace over with the label \
         `{}=true` and the annotation `{}={key}`; the operator does not delete it with the cluster",
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

/// Parses an RFC 3339 time or a boolean as Go does; any other text is no pause, as in HyperShift.
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

    /// The example cluster with a value at a JSON pointer.
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
            let mut with_finalizer = never.clone();
            with_finalizer.cluster.finalizers = vec![FINALIZER.to_owned()];
            let with_owner =
                ObservedCluster { owner: ControlPlaneOwner::Known("u".to_owned()), ..never };
            for once_ours in [with_finalizer, with_owner] {
                let classification = classify_cluster(&once_ours, &OperatorSettings::default());
                let ClusterClassification::Invalid(problems) = classification else {
                    panic!("{classification:?}")
                };
                let problem = problems.iter().next().unwrap();
                assert_eq!(
                    (problem.field.as_str(), problem.severity),
                    (field, ProblemSeverity::Error)
                );
                assert!(problem.message.contains("its objects stay"), "{}", problem.message);
            }
        }
    }

    #[test]
    fn identity_only_role_reports_remaining_finalizer() {
        let mut with_finalizer = observed_example_with(TYPE, json!("Azure"));
        with_finalizer.cluster.finalizers = vec![FINALIZER.to_owned()];
        for (role, is_reported) in [(OperatorRole::All, false), (OperatorRole::IdentityOnly, true)]
        {
            let classification = classify_cluster(
                &with_finalizer,
                &OperatorSettings { role, ..OperatorSettings::default() },
            );
            let ClusterClassification::Valid(valid) = classification else {
                panic!("{classification:?}")
            };
            let has_lint = valid.problems.iter().any(|it| it.field == "metadata.finalizers");
            assert_eq!(has_lint, is_reported, "{role:?}");
        }
    }

    #[test]
    fn misspelled_field_is_a_lint() {
        let expected = "spec.controlPlaneRelase: unknown field, which has no effect";
        let field = |issuer: &'static str| {
            ObservedCluster::from_example(|wire| {
                wire["spec"]["controlPlaneRelase"] = json!({"image": "example.com/release:1"});
                wire["spec"]["issuerURL"] = json!(issuer);
            })
        };
        let is_lint = |it: &ValidationProblem| {
            it.severity == ProblemSeverity::Lint && it.to_string() == expected
        };
        let valid = field("https://issuer.example.com");
        let classification = classify_cluster(&valid, &OperatorSettings::default());
        let ClusterClassification::Valid(valid) = classification else {
            panic!("{classification:?}")
        };
        assert!(valid.problems.iter().any(is_lint), "{:?}", valid.problems);
        // The lint is no reason for the rejection.
        let invalid = field("x");
        let classification = classify_cluster(&invalid, &OperatorSettings::default());
        let ClusterClassification::Invalid(problems) = classification else {
            panic!("{classification:?}")
        };
        assert!(problems.iter().any(is_lint), "{problems:?}");
        assert!(!problems.to_string().contains(expected), "{problems}");
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

    #[test]
    fn ids_are_generated_only_for_valid_clusters_that_the_operator_handles() {
        let without_ids = |change: fn(&mut Value)| {
            ObservedCluster::from_example(|wire| {
                let spec = wire["spec"].as_object_mut().unwrap();
                spec.remove("infraID");
                spec.remove("clusterID");
                change(wire);
            })
        };
        let classify = |observed: &ObservedCluster, role| {
            classify_cluster(observed, &OperatorSettings { role, ..OperatorSettings::default() })
        };
        let all = |observed| classify(observed, OperatorRole::All);
        let plain = without_ids(|_| {});
        let ClusterClassification::LacksIds { missing, problems } = all(&plain) else {
            panic!("not generated")
        };
        assert_eq!(missing.fields(), ["spec.infraID", "spec.clusterID"]);
        assert!(problems.is_empty(), "{problems}");
        let misspelled_field =
            without_ids(|wire| wire["spec"]["controlPlaneRelase"] = json!({"image": "x"}));
        let ClusterClassification::LacksIds { problems, .. } = all(&misspelled_field) else {
            panic!("not generated")
        };
        assert!(problems.iter().any(|it| it.field == "spec.controlPlaneRelase"), "{problems}");
        let identity_only = classify(&plain, OperatorRole::IdentityOnly);
        assert!(matches!(identity_only, ClusterClassification::Invalid(_)), "{identity_only:?}");
        let paused = without_ids(|wire| wire["spec"]["pausedUntil"] = json!("true"));
        assert!(matches!(all(&paused), ClusterClassification::Invalid(_)));
        let invalid = without_ids(|wire| wire["spec"]["issuerURL"] = json!("x"));
        let ClusterClassification::Invalid(problems) = all(&invalid) else { panic!("valid") };
        assert!(problems.iter().all(|it| it.field == "spec.issuerURL"), "{problems}");
        let mut deleting = without_ids(|_| {});
        deleting.cluster.is_deleting = true;
        assert!(matches!(all(&deleting), ClusterClassification::Invalid(_)));
    }

    #[test]
    fn no_id_is_generated_if_a_missing_one_is_misspelled() {
        let cases = [("infraID", "infraId", "mine"), ("clusterID", "clusterId", "mine")];
        for (id, misspelled, value) in cases {
            for issuer in ["https://issuer.example.com", "x"] {
                let observed = ObservedCluster::from_example(|wire| {
                    let spec = wire["spec"].as_object_mut().unwrap();
                    spec.remove("infraID");
                    spec.remove("clusterID");
                    spec.insert(misspelled.to_owned(), json!(value));
                    spec.insert("issuerURL".to_owned(), json!(issuer));
                });
                let classification = classify_cluster(&observed, &OperatorSettings::default());
                let ClusterClassification::Invalid(problems) = classification else {
                    panic!("{classification:?}")
                };
                let field = format!("spec.{misspelled}");
                let found: Vec<_> = problems.iter().filter(|it| it.field == field).collect();
                assert_eq!(found.len(), 1, "{problems:?}");
                assert_eq!(found[0].severity, ProblemSeverity::Error);
                let hint = format!("write `{id}` instead of `{misspelled}`");
                assert_eq!(found[0].hint.as_ref(), Some(&hint));
            }
        }
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
