//! The objects of a hosted cluster that other operators delete: `NodePools` and Cluster API objects.

use kube::api::{DynamicObject, ListParams};
use lanyard_clock::ErrorHint as _;
use lanyard_desired::deletion::{Dependent, DependentKind, Dependents, UnlistedKind};
use lanyard_kubernetes::{ApiError, ApiRetryPolicy};
use serde_json::Value;

use crate::context::ReconcileContext;
use crate::observe::ObservedCluster;
use crate::watched_resource::WatchedResource;

/// The kinds with the API versions that HyperShift uses.
const DEPENDENT_KINDS: [(DependentKind, &str, &str); 3] = [
    (DependentKind::NodePool, "hypershift.openshift.io/v1beta1", "nodepools"),
    (DependentKind::Cluster, "cluster.x-k8s.io/v1beta1", "clusters"),
    (DependentKind::AzureMachine, "infrastructure.cluster.x-k8s.io/v1beta1", "azuremachines"),
];

/// Fetches the objects that other operators still have to delete. They matter only during a deletion, so
/// they are not watched. A kind that is not served has no objects; a kind that the API server refuses to
/// list is returned in `unlisted_kinds`.
pub(crate) async fn fetch_dependents(
    context: &ReconcileContext,
    observed: &ObservedCluster,
) -> Result<Dependents, ApiError> {
    let mut dependents = Dependents::default();
    for (kind, api_version, plural) in DEPENDENT_KINDS {
        let namespace = match kind {
            DependentKind::NodePool => observed.key.namespace(),
            DependentKind::Cluster | DependentKind::AzureMachine => &observed.namespace,
        };
        let subject = WatchedResource::of(api_version, kind.name(), plural);
        let objects = subject.api(context.api.client(), Some(namespace));
        let parameters = ListParams::default();
        let list = || objects.list(&parameters);
        let action = format!("list {plural} of {namespace}");
        let found = match context.api.call(ApiRetryPolicy::STANDARD, action, list).await {
            Ok(found) => found.items,
            Err(ApiError::NotServed { .. }) => continue,
            Err(error) if is_kind_error(&error) => {
                let hint = error.hint().unwrap_or_default();
                let unlisted = UnlistedKind { kind, error: error.to_string(), hint };
                dependents.unlisted_kinds.push(unlisted);
                continue;
            }
            Err(error) => return Err(error),
        };
        let ours = found
            .into_iter()
            .filter(|it| kind != DependentKind::NodePool || is_pool_of_cluster(it, observed));
        dependents
            .remaining
            .extend(ours.map(|it| Dependent { kind, name: it.metadata.name.unwrap_or_default() }));
    }
    Ok(dependents)
}

/// Whether the error concerns only this kind, such as a missing permission or an unavailable conversion
/// webhook. If the API server is unreachable or throttles, no status could be written either.
const fn is_kind_error(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { retry_after: None, .. })
}

fn is_pool_of_cluster(pool: &DynamicObject, observed: &ObservedCluster) -> bool {
    let cluster = pool.data.pointer("/spec/clusterName").and_then(Value::as_str);
    cluster == Some(observed.key.name())
}
