//! What stands on the API server about the hosted cluster, as watches tell it; and what it refused
//! to take from the stand-in.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::runtime::reflector::{self, Store, reflector};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use lanyard_api::hosted_cluster_identities::IdentityStatus;
use lanyard_api::{HostedClusterIdentities, SecretProviderClass, SecretProviderClassPodStatus};
use lanyard_clock::SharedClock;
use lanyard_kubernetes::KubernetesApi;
use lanyard_vocabulary::Component;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What stands on the API server. Clones share it.
#[derive(Clone)]
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
        let client = || api.client().clone();
        let room = rooms.control_plane;
        let mut follow = Follow { tasks, changed, clock: SharedClock::clone(api.clock()) };
        Self {
            classes: follow.begin(Api::namespaced(client(), room)),
            deployments: follow.begin(Api::namespaced(client(), room)),
            pods: follow.begin(Api::namespaced(client(), room)),
            volumes: follow.begin(Api::namespaced(client(), room)),
            events: follow.begin(Api::namespaced(client(), room)),
            identities: follow.begin(Api::namespaced(client(), rooms.cluster)),
            refusals: Arc::default(),
            changes,
        }
    }

    /// Tells when something changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    pub(super) fn class(&self, name: &str) -> Option<Arc<SecretProviderClass>> {
        self.classes.find(|class| class.metadata.name.as_deref() == Some(name))
    }

    pub(super) fn deployments(&self) -> Vec<Arc<Deployment>> {
        self.deployments.state()
    }

    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        self.pods.state()
    }

    pub(super) fn volumes(&self) -> Vec<Arc<SecretProviderClassPodStatus>> {
        self.volumes.state()
    }

    pub(super) fn events(&self) -> Vec<Arc<Event>> {
        self.events.state()
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

    /// What the operator says of the identity of a component.
    pub(super) fn identity(&self, cluster: &str, component: Component) -> Option<IdentityStatus> {
        let told = self.identities.find(|told| told.metadata.name.as_deref() == Some(cluster))?;
        let identities = &told.status.as_ref()?.identities;
        identities.iter().find(|it| it.component == component.name()).cloned()
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Board").finish_non_exhaustive()
    }
}

struct Follow<'a> {
    tasks: &'a mut JoinSet<()>,
    changed: watch::Sender<u64>,
    clock: SharedClock,
}

impl Follow<'_> {
    fn begin<K>(&mut self, api: Api<K>) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug,
        K: Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let (changed, clock) = (self.changed.clone(), SharedClock::clone(&self.clock));
        self.tasks.spawn(async move {
            let watched = reflector(writer, watcher(api, watcher::Config::default()));
            let mut watched = std::pin::pin!(watched);
            while let Some(seen) = watched.next().await {
                match seen {
                    Ok(_) => changed.send_modify(|count| *count = count.wrapping_add(1)),
                    Err(error) => {
                        tracing::debug!(kind = %K::kind(&()), %error, "a watch broke");
                        clock.sleep(PAUSE).await;
                    }
                }
            }
        });
        store
    }
}

/// How long after a watch broke it is begun anew.
const PAUSE: Duration = Duration::from_millis(500);
