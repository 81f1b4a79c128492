//! What others have put where this run made room: a namespace or a definition of ours goes only
//! without it.

use futures::StreamExt as _;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::{ApiGroup, ApiResource, Discovery, Scope, verbs};
use kube::{Api, ResourceExt};
use lanyard_kubernetes::{ApiError, KubernetesApi, Patience};

use super::ledger::{Names, RUN};

/// By what objects of this run are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) names: &'a Names,
    /// The uid of the HostedCluster, once one was made: what it owns goes after it.
    pub(super) cluster: Option<&'a str>,
    /// Whether the namespace of the control plane was made for it.
    pub(super) has_control_plane: bool,
}

impl Marks<'_> {
    fn are_on(self, object: &PartialObjectMeta<DynamicObject>) -> bool {
        let owners = object.metadata.owner_references.as_deref().unwrap_or_default();
        let namespace = object.metadata.namespace.as_ref();
        object.labels().get(RUN) == Some(&self.names.run)
            || owners.iter().any(|owner| Some(owner.uid.as_str()) == self.cluster)
            || (self.has_control_plane && namespace == Some(&self.names.control_plane))
    }
}

/// The objects of a kind that others have made, in any namespace.
pub(super) async fn of_kind(
    api: &KubernetesApi,
    kind: &ApiResource,
    marks: Marks<'_>,
) -> Result<Vec<String>, ApiError> {
    let objects = Api::all_with(api.client().clone(), kind);
    foreign(api, kind, &objects, marks).await
}

/// What others have put into the namespace of the HostedCluster, of whatever kind.
pub(super) async fn in_namespace(
    api: &KubernetesApi,
    marks: Marks<'_>,
) -> Result<Vec<String>, ApiError> {
    let discover = || Discovery::new(api.client().clone()).run_aggregated();
    let served = api.call(Patience::ONE_TRY, "ask which kinds there are", discover).await?;
    let kinds = served.groups().flat_map(ApiGroup::recommended_resources);
    let kinds: Vec<_> = kinds
        .filter(|(kind, can)| {
            let is_kept = can.supports_operation(verbs::LIST) && can.supports_operation("delete");
            is_kept && can.scope == Scope::Namespaced && kind.plural != "events"
        })
        .map(|(kind, _)| kind)
        .collect();
    let namespace = &marks.names.namespace;
    let lists = kinds.iter().map(async |kind| {
        let objects = Api::namespaced_with(api.client().clone(), namespace, kind);
        foreign(api, kind, &objects, marks).await
    });
    let mut found = Vec::new();
    let mut lists = futures::stream::iter(lists).buffered(AT_ONCE);
    while let Some(listed) = lists.next().await {
        found.extend(listed?);
    }
    Ok(found)
}

async fn foreign(
    api: &KubernetesApi,
    kind: &ApiResource,
    objects: &Api<DynamicObject>,
    marks: Marks<'_>,
) -> Result<Vec<String>, ApiError> {
    let some = ListParams::default().limit(PAGE);
    let list = || objects.list_metadata(&some);
    let found = match api.call(Patience::ONE_TRY, format!("list {}", kind.plural), list).await {
        Ok(found) => found,
        // It has gone, or cannot be asked for as a whole.
        Err(ApiError::NotServed { .. } | ApiError::Refused { status: 404 | 405, .. }) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let others = found.items.iter().filter(|object| !marks.are_on(object));
    let others = others.filter(|object| !is_in_every_namespace(&kind.plural, &object.name_any()));
    Ok(others.map(|object| format!("{}/{}", kind.plural, object.name_any())).collect())
}

/// What controllers of Kubernetes and OpenShift put into each namespace.
fn is_in_every_namespace(plural: &str, name: &str) -> bool {
    let known = [
        ("configmaps", "kube-root-ca.crt"),
        ("configmaps", "openshift-service-ca.crt"),
        ("serviceaccounts", "default"),
    ];
    known.contains(&(plural, name))
}

/// Some of them, for a person.
pub(super) fn told(others: &[String]) -> String {
    let (first, rest) = others.split_at(others.len().min(TOLD));
    let first = first.join(", ");
    if rest.is_empty() { first } else { format!("{first} and {} more", rest.len()) }
}

/// How many objects of a kind are looked at: of our own there are fewer.
const PAGE: u32 = 500;
/// How many kinds are listed at once.
const AT_ONCE: usize = 8;
/// How many are named.
const TOLD: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn names() -> Names {
        Names {
            run: "0a1b2c3d".to_owned(),
            namespace: "clusters".to_owned(),
            cluster: "harbour".to_owned(),
            control_plane: "clusters-harbour".to_owned(),
        }
    }

    #[test]
    fn an_object_is_of_this_run_by_its_label_its_owner_or_the_namespace_made_for_it() {
        let owner = |uid: &str| json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": uid}]);
        let cases: [(Value, bool); 7] = [
            (json!({"namespace": "clusters"}), false),
            (json!({"labels": {"lanyard.dev/run": "0a1b2c3d"}}), true),
            (json!({"labels": {"lanyard.dev/run": "ffffffff"}}), false),
            (json!({"labels": {"lanyard.dev/made-by": "up"}}), false),
            (json!({"namespace": "clusters", "ownerReferences": owner("uid-1")}), true),
            (json!({"namespace": "clusters", "ownerReferences": owner("uid-2")}), false),
            (json!({"namespace": "clusters-harbour"}), true),
        ];
        let names = names();
        let marks = Marks { names: &names, cluster: Some("uid-1"), has_control_plane: true };
        for (metadata, is_ours) in cases {
            let object = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            assert_eq!(marks.are_on(&object), is_ours, "{metadata}");
            let nothing = Marks { cluster: None, has_control_plane: false, ..marks };
            let is_labelled = metadata["labels"]["lanyard.dev/run"] == "0a1b2c3d";
            assert_eq!(nothing.are_on(&object), is_labelled, "{metadata}");
        }
    }

    #[test]
    fn what_every_namespace_has_is_nobodys() {
        assert!(is_in_every_namespace("configmaps", "kube-root-ca.crt"));
        assert!(is_in_every_namespace("serviceaccounts", "default"));
        assert!(!is_in_every_namespace("secrets", "default"));
        assert!(!is_in_every_namespace("configmaps", "mine"));
    }

    #[test]
    fn a_person_is_told_a_few_of_many() {
        let others: Vec<_> = (1..=5).map(|number| format!("secrets/{number}")).collect();
        assert_eq!(told(&others[..1]), "secrets/1");
        assert_eq!(told(&others), "secrets/1, secrets/2, secrets/3 and 2 more");
    }
}
