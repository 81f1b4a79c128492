//! What stands on the API server about the hosted cluster, as watches tell it; and what it refused
//! to take from the stand-in.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Resource;
use kube::api::ApiResource;
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{HostedClusterIdentities, SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_kubernetes::{ApiError, KubernetesApi, Watch};
use lanyard_vocabulary::Component;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::store::Store;

/// What stands on the API server. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Board {
    classes: Store<SecretProviderClass>,
    deployments: Store<Deployment>,
    pods: Store<Pod>,
    volumes: Store<SecretProviderClassPodStatus>,
    events: Store<Event>,
    identities: Store<HostedClusterIdentities>,
    /// Why the pod of a Deployment was not made last.
    refusals: Arc<Mutex<BTreeMap<String, String>>>,
    changes: watch::Receiver<u64>,
}

/// The places that are watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rooms<'a> {
    /// The namespace of the HostedCluster.
    pub(super) cluster: &'a str,
    /// The namespace of its control plane.
    pub(super) control_plane: &'a str,
}

impl Board {
    /// Begins to watch; the watches end with `tasks`.
    pub(super) fn watch(api: &KubernetesApi, rooms: Rooms<'_>, tasks: &mut JoinSet<()>) -> Self {
        let (changed, changes) = watch::channel(0);
        let room = rooms.control_plane;
        let mut follow = Follow { api, tasks, changed };
        Self {
            classes: follow.begin(room),
            deployments: follow.begin(room),
            pods: follow.begin(room),
            volumes: follow.begin(room),
            events: follow.begin(room),
            identities: follow.begin(rooms.cluster),
            refusals: Arc::default(),
            changes,
        }
    }

    /// Tells when something changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    pub(super) fn class(&self, name: &str) -> Option<Arc<SecretProviderClass>> {
        self.classes.named(name)
    }

    pub(super) fn deployments(&self) -> Vec<Arc<Deployment>> {
        self.deployments.all()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.all()
    }

    pub(super) fn volumes(&self) -> Vec<Arc<SecretProviderClassPodStatus>> {
        self.volumes.all()
    }

    pub(super) fn events(&self) -> Vec<Arc<Event>> {
        self.events.all()
    }

    /// Keeps why the pod of a Deployment is not made.
    pub(super) fn refuse(&self, deployment: &str, problem: String) {
        self.refusals.lock().insert(deployment.to_owned(), problem);
    }

    /// Forgets that.
    pub(super) fn accept(&self, deployment: &str) {
        self.refusals.lock().remove(deployment);
    }

    /// Why the pod of a Deployment was not made last.
    pub(super) fn refusal(&self, deployment: &str) -> Option<String> {
        self.refusals.lock().get(deployment).cloned()
    }

    /// What the API does not let be followed, and so is not seen here.
    pub(super) fn unseen(&self) -> Vec<ApiError> {
        let refused = [
            self.classes.refused(),
            self.deployments.refused(),
            self.pods.refused(),
            self.volumes.refused(),
            self.events.refused(),
            self.identities.refused(),
        ];
        refused.into_iter().flatten().collect()
    }

    /// What the operator says of the identity of a component.
    pub(super) fn identity(&self, cluster: &str, component: Component) -> Option<IdentityStatus> {
        let told = self.identities.named(cluster)?;
        let identities = &told.status.as_ref()?.identities;
        identities.iter().find(|it| it.component == component.name()).cloned()
    }
}

struct Follow<'a> {
    api: &'a KubernetesApi,
    tasks: &'a mut JoinSet<()>,
    changed: watch::Sender<u64>,
}

impl Follow<'_> {
    fn begin<K>(&mut self, namespace: &str) -> Store<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let (resource, namespace) = (ApiResource::erase::<K>(&()), Some(namespace.to_owned()));
        let watch = Watch { resource, namespace, labels: None, fields: None };
        let store = Store::default();
        let (api, kept, changed) = (self.api.clone(), store.clone(), self.changed.clone());
        self.tasks.spawn(async move {
            let take = |seen| {
                kept.see(seen);
                changed.send_modify(|count| *count = count.wrapping_add(1));
            };
            watch.follow(&api, take).await;
        });
        store
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use kube::client::Body;
    use lanyard_clock::{Clock as _, ManualClock};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn what_may_not_be_followed_is_asked_for_ever_more_seldom_and_named() {
        let asked = Arc::new(Mutex::new((Vec::new(), 403_u16)));
        let server = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let uri = request.uri().to_string();
            let mut asked = server.lock();
            let is_of_pods = uri.contains("/pods?");
            if is_of_pods {
                asked.0.push(uri.clone());
            }
            let status = if is_of_pods { asked.1 } else { 200 };
            let refusal = json!({"kind": "Status", "apiVersion": "v1", "code": status,
                "reason": "Forbidden", "message": "no right to pods"});
            let pod = json!({"metadata": {"name": "disk-1", "namespace": "clusters-harbour"}});
            let items = if is_of_pods { vec![pod] } else { Vec::new() };
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items,
                "metadata": {"resourceVersion": "7"}});
            let body = if status == 200 { list } else { refusal };
            let is_watch = uri.contains("watch=") && status == 200;
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(status).body(body).unwrap())
            }
        });
        let clock = ManualClock::starting_at(jiff::Timestamp::UNIX_EPOCH);
        let client = kube::Client::new(service, "default");
        let api = KubernetesApi::of_client(client, Arc::new(clock.clone()));
        let mut tasks = JoinSet::new();
        let rooms = Rooms { cluster: "clusters", control_plane: "clusters-harbour" };
        let board = Board::watch(&api, rooms, &mut tasks);
        let pass = async |minutes: u64| {
            let end = clock.monotonic() + Duration::from_mins(minutes);
            while clock.monotonic() < end {
                for _ in 0..200 {
                    tokio::task::yield_now().await;
                }
                let left = end.saturating_sub(clock.monotonic());
                clock.advance(clock.next_due().unwrap_or(left).min(left));
            }
        };
        pass(10).await;
        let [ApiError::Refused { action, status: 403, .. }] = &board.unseen()[..] else {
            panic!("{:?}", board.unseen())
        };
        assert_eq!(action, "list pods in namespace clusters-harbour");
        let tries = asked.lock().0.len();
        assert!((10..=30).contains(&tries), "{tries} tries in ten minutes");
        let room = "/api/v1/namespaces/clusters-harbour/pods?";
        assert!(asked.lock().0.iter().all(|uri| uri.contains(room)));

        asked.lock().1 = 200;
        pass(2).await;
        assert_eq!((board.unseen().len(), board.pods().len()), (0, 1));
    }
}
