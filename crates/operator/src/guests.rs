//! What belongs to a hosted cluster and is ended by other operators.

use kube::api::{DynamicObject, ListParams};
use lanyard_desired::deletion::{Guest, GuestKind, Guests, Unlisted};
use lanyard_kubernetes::{ApiError, Patience};
use serde_json::Value;

use crate::context::Context;
use crate::observe::Observed;
use crate::subject::Subject;

/// The kinds, as HyperShift uses them.
const GUESTS: [(GuestKind, &str, &str); 3] = [
    (GuestKind::NodePool, "hypershift.openshift.io/v1beta1", "nodepools"),
    (GuestKind::Cluster, "cluster.x-k8s.io/v1beta1", "clusters"),
    (GuestKind::AzureMachine, "infrastructure.cluster.x-k8s.io/v1beta1", "azuremachines"),
];

/// What other operators still have to end. It is asked for only at the end of a cluster, so nobody
/// watches it; a kind that is not served has no objects. One that the API refuses to list is told
/// with the rest.
pub(crate) async fn fetch_guests(
    context: &Context,
    observed: &Observed,
) -> Result<Guests, ApiError> {
    let mut guests = Guests::default();
    for (kind, api_version, plural) in GUESTS {
        let namespace = match kind {
            GuestKind::NodePool => observed.key.namespace(),
            GuestKind::Cluster | GuestKind::AzureMachine => &observed.namespace,
        };
        let subject = Subject::of(api_version, kind.name(), plural);
        let objects = subject.objects(context.api.client(), Some(namespace));
        let parameters = ListParams::default();
        let list = || objects.list(&parameters);
        let action = format!("list {plural} of {namespace}");
        let found = match context.api.call(Patience::USUAL, action, list).await {
            Ok(found) => found.items,
            Err(ApiError::NotServed { .. }) => continue,
            Err(error) if is_of_kind(&error) => {
                let unlisted = Unlisted { kind, error: error.to_string(), hint: error.hint() };
                guests.unlisted.push(unlisted);
                continue;
            }
            Err(error) => return Err(error),
        };
        let ours =
            found.into_iter().filter(|it| kind != GuestKind::NodePool || is_pool(it, observed));
        guests
            .there
            .extend(ours.map(|it| Guest { kind, name: it.metadata.name.unwrap_or_default() }));
    }
    Ok(guests)
}

/// Whether an error is about the kind: a right that is missing, a webhook that is away. Where the API is
/// not reached, or asks for patience, nothing could be told either.
const fn is_of_kind(error: &ApiError) -> bool {
    matches!(error, ApiError::Refused { retry_after: None, .. })
}

fn is_pool(pool: &DynamicObject, observed: &Observed) -> bool {
    let cluster = pool.data.pointer("/spec/clusterName").and_then(Value::as_str);
    cluster == Some(observed.key.name())
}
