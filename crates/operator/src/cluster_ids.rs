//! The ids of a HostedCluster that the operator generates, as HyperShift's operator does.

use kube::api::{Patch, PatchParams};
use lanyard_api::HostedCluster;
use lanyard_api::hosted_cluster::HostedClusterSpec;
use lanyard_clock::ErrorHint as _;
use lanyard_desired::{ObjectWriter, ProblemSeverity, ValidationProblem};
use lanyard_kubernetes::ApiError;
use lanyard_vocabulary::{InfraId, random_uuid};
use serde_json::{Map, Value, json};

use crate::apply::write_fenced;
use crate::context::ReconcileContext;
use crate::error::FencedWriteError;
use crate::lease::FencingToken;
use crate::metrics::WriteVerb;
use crate::observe::ObservedCluster;
use crate::watched_kinds::WatchedKind;

/// The ids that a HostedCluster lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingIds {
    infra_id: bool,
    cluster_id: bool,
}

/// A source of random numbers.
pub(crate) trait RandomSource {
    /// A number below `count`.
    fn below(&mut self, count: usize) -> usize;
    fn bits(&mut self) -> u128;
}

impl RandomSource for fastrand::Rng {
    fn below(&mut self, count: usize) -> usize {
        self.usize(..count)
    }

    fn bits(&mut self) -> u128 {
        self.u128(..)
    }
}

impl MissingIds {
    /// The ids that the HostedCluster lacks; `None` if it has both.
    pub(crate) fn of(wire: &HostedCluster) -> Option<Self> {
        let spec = wire.spec.as_ref()?;
        let is_missing = |id: &Option<String>| id.as_deref().is_none_or(str::is_empty);
        let (infra_id, cluster_id) = (is_missing(&spec.infra_id), is_missing(&spec.cluster_id));
        (infra_id || cluster_id).then_some(Self { infra_id, cluster_id })
    }

    /// Adds generated ids to the HostedCluster.
    pub(crate) fn fill(self, wire: &mut HostedCluster, name: &str, random: &mut impl RandomSource) {
        let Some(spec) = &mut wire.spec else { return };
        if self.infra_id {
            let infra_id = InfraId::generate(name, |count| random.below(count));
            spec.infra_id = Some(infra_id.into());
        }
        if self.cluster_id {
            spec.cluster_id = Some(random_uuid(random.bits()));
        }
    }

    /// The fields, for messages.
    pub(crate) fn fields(self) -> Vec<&'static str> {
        let fields = [(self.infra_id, "spec.infraID"), (self.cluster_id, "spec.clusterID")];
        fields.into_iter().filter_map(|(is_missing, field)| is_missing.then_some(field)).collect()
    }

    /// The problem of each field, because the operator could not write the ids.
    pub(crate) fn write_failures(
        self,
        error: &ApiError,
    ) -> impl Iterator<Item = ValidationProblem> {
        self.fields().into_iter().map(move |field| ValidationProblem {
            field: field.to_owned(),
            severity: ProblemSeverity::Error,
            message: format!("the field is empty, and the operator cannot generate it: {error}"),
            hint: Some(format!("set `{field}` yourself, or: {}", error.hint().unwrap_or_default())),
        })
    }
}

/// Writes generated ids to the HostedCluster. The watch triggers the next reconciliation, which continues
/// with them.
///
/// The write is a merge patch of the observed version: an apply with the operator's manager would remove the
/// ids with the next apply of the finalizer, and another client may set them at the same time.
pub(crate) async fn write_missing_ids(
    context: &ReconcileContext,
    observed: &ObservedCluster,
    missing: MissingIds,
    fencing_token: &FencingToken,
) -> Result<(), FencedWriteError> {
    let key = &observed.key;
    let mut generated =
        HostedCluster { spec: Some(HostedClusterSpec::default()), ..HostedCluster::default() };
    missing.fill(&mut generated, key.name(), &mut fastrand::Rng::new());
    let spec = generated.spec.unwrap_or_default();
    let ids = [("infraID", spec.infra_id), ("clusterID", spec.cluster_id)];
    let spec: Map<_, _> = ids
        .into_iter()
        .filter_map(|(field, id)| Some((field.to_owned(), Value::String(id?))))
        .collect();
    let cluster = &observed.cluster;
    let patch = json!({
        "metadata": {"uid": cluster.uid, "resourceVersion": cluster.content_version},
        "spec": spec,
    });
    let parameters = PatchParams {
        field_manager: Some(ObjectWriter::HostedCluster.field_manager().to_owned()),
        ..PatchParams::default()
    };
    let subject = WatchedKind::HostedClusters.watched_resource(context.settings.role);
    let clusters = subject.api(context.api.client(), Some(key.namespace()));
    let patch = Patch::Merge(&patch);
    let write = || clusters.patch(key.name(), &parameters, &patch);
    let action = format!("set {} of HostedCluster {key}", missing.fields().join(" and "));
    let kind_and_verb = (HostedCluster::KIND, WriteVerb::Apply);
    write_fenced(&context.api, fencing_token, &context.metrics, kind_and_verb, &action, write)
        .await
        .map(drop)
}

/// A [`RandomSource`] that always returns zero. It fills in placeholder ids to validate a HostedCluster
/// before the real ones are generated.
pub(crate) struct PlaceholderSource;

impl RandomSource for PlaceholderSource {
    fn below(&mut self, _count: usize) -> usize {
        0
    }

    fn bits(&mut self) -> u128 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_missing_ids_are_generated() {
        let wire = |spec: Value| -> HostedCluster {
            serde_json::from_value(json!({ "spec": spec })).unwrap()
        };
        let (infra_id, cluster_id) = ("harbour-bbbbb", "00000000-0000-4000-8000-000000000000");
        let cases = [
            (json!({}), infra_id, cluster_id),
            (json!({"infraID": "", "clusterID": ""}), infra_id, cluster_id),
            (json!({"infraID": "mine"}), "mine", cluster_id),
            (json!({"clusterID": "mine"}), infra_id, "mine"),
        ];
        for (spec, expected_infra_id, expected_cluster_id) in cases {
            let mut wire = wire(spec.clone());
            MissingIds::of(&wire).unwrap().fill(&mut wire, "harbour", &mut PlaceholderSource);
            assert_eq!(MissingIds::of(&wire), None, "{spec}");
            let filled = wire.spec.unwrap();
            assert_eq!(filled.infra_id.as_deref(), Some(expected_infra_id), "{spec}");
            assert_eq!(filled.cluster_id.as_deref(), Some(expected_cluster_id), "{spec}");
        }
        assert_eq!(MissingIds::of(&wire(json!({"infraID": "a", "clusterID": "b"}))), None);
    }
}
