//! What is known, kept in step by the watches.

mod clusters;
mod kind_state;
mod objects;
mod parse;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use lanyard_api::hosted_cluster_identities::HostedClusterIdentitiesStatus;
use lanyard_api::{HostedClusterIdentities, SecretProviderClassPodStatus};
use lanyard_desired::status::{ObservedPod, ObservedVolume};
use lanyard_desired::workload::PRIVATE_ROUTER_SERVICE;
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::{ApiError, WatchUpdate};
use parking_lot::Mutex;

use crate::cluster_key::ClusterKey;
use crate::lease::LeaseTerms;
use crate::namespace_owner::OwnershipMarks;
use crate::observe::namespace_key;
use crate::queue::ReconcileTrigger;
use crate::watched_kinds::WatchedKind;
pub(crate) use clusters::CachedCluster;
pub(crate) use kind_state::KindState;
use kind_state::is_unusable;
use objects::is_older_version;
pub(crate) use objects::{DesiredDigests, ObjectCache, ObjectsToCompare, desired_digests};
use parse::{TypeMismatch, parse_typed};

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct WatchStores {
    inner: Mutex<WatchStoresInner>,
    /// The types of our conditions.
    conditions: &'static [&'static str],
}

/// Whose objects are compared here with what is desired.
#[derive(Debug, Default)]
pub(crate) enum ComparisonScope {
    /// Nobody's.
    #[default]
    Nothing,
    /// Those of the clusters that are led.
    LedClusters(LeaseTerms),
}

#[derive(Debug, Default)]
struct WatchStoresInner {
    comparison_scope: ComparisonScope,
    clusters: BTreeMap<ClusterKey, CachedCluster>,
    /// The clusters whose control planes would be in a namespace: one, or it is a problem.
    clusters_by_namespace: HashMap<String, BTreeSet<ClusterKey>>,
    namespaces: HashMap<String, NamespaceCache>,
    identities: HashMap<ClusterKey, IdentitiesReport>,
    kind_states: HashMap<WatchedKind, KindState>,
}

/// A namespace with what may belong to a control plane.
#[derive(Debug, Default)]
struct NamespaceCache {
    objects: ObjectCache,
    pods: BTreeMap<String, ObservedPod>,
    volumes: BTreeMap<String, ObservedVolume>,
    /// The address of the router to private vaults.
    private_router: Option<IpAddr>,
}

/// How the identities of a cluster are, as it was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IdentitiesReport {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// The uid of the HostedCluster that it was told of.
    pub(crate) owner: Option<String>,
    pub(crate) status: Option<HostedClusterIdentitiesStatus>,
}

/// What a kind that is being listed told so far.
#[derive(Debug, Default)]
pub(crate) struct ListProgress {
    /// The objects that are there.
    listed_objects: Option<HashSet<(String, String)>>,
    /// Since when no list came to its end, on the monotonic clock.
    failing_since: Option<Duration>,
}

/// Who has to be looked at because of what was seen.
pub(crate) type DirtyKeys = Vec<(ClusterKey, ReconcileTrigger)>;

impl WatchStores {
    pub(crate) fn new(conditions: &'static [&'static str], compared: ComparisonScope) -> Self {
        Self {
            inner: Mutex::new(WatchStoresInner {
                comparison_scope: compared,
                ..WatchStoresInner::default()
            }),
            conditions,
        }
    }

    /// Forgets the content of what nobody here compares any more.
    pub(crate) fn drop_unneeded_content(&self) {
        self.inner.lock().drop_all_unneeded_content();
    }

    /// Takes in what a watch tells at `now`, on the monotonic clock.
    pub(crate) fn apply_watch_update(
        &self,
        kind: WatchedKind,
        seen: WatchUpdate,
        telling: &mut ListProgress,
        now: Duration,
    ) -> DirtyKeys {
        let mut inner = self.inner.lock();
        match seen {
            WatchUpdate::Applied(object) => {
                if let Some(told) = &mut telling.listed_objects {
                    told.insert(namespaced_name(&object));
                }
                inner.upsert(kind, *object, self.conditions)
            }
            WatchUpdate::Deleted(object) => inner.remove(kind, &namespaced_name(&object)),
            WatchUpdate::ListStarted => {
                telling.listed_objects = Some(HashSet::new());
                DirtyKeys::new()
            }
            WatchUpdate::ListCompleted => {
                telling.failing_since = None;
                let told = telling.listed_objects.take().unwrap_or_default();
                let mut news = inner.remove_unlisted(kind, &told);
                // What waited for the kind can go on.
                if !matches!(
                    inner.kind_states.insert(kind, KindState::Listed),
                    Some(KindState::Listed)
                ) {
                    let everybody = inner.clusters.keys();
                    news.extend(everybody.map(|key| (key.clone(), ReconcileTrigger::SpecChanged)));
                    inner.drop_all_unneeded_content();
                }
                news
            }
            WatchUpdate::Failed(error, refusals) => {
                // Where nothing can be listed it is no matter of this kind.
                let since = telling.failing_since.unwrap_or(now);
                telling.failing_since = inner.is_api_reachable().then_some(since);
                let failing_for = telling.failing_since.map(|since| now.saturating_sub(since));
                inner.record_watch_failure(kind, error, failing_for.unwrap_or_default(), refusals)
            }
        }
    }

    /// Takes in an object as the answer to a write told it.
    pub(crate) fn store_written(&self, object: DynamicObject) {
        let (api_version, kind) = object
            .types
            .as_ref()
            .map_or(("", ""), |types| (types.api_version.as_str(), types.kind.as_str()));
        if let Some(kind) = OwnedKind::parse(api_version, kind) {
            self.inner.lock().upsert(WatchedKind::Owned(kind), object, self.conditions);
        }
    }

    /// Takes in an object as it was read.
    pub(crate) fn store_fetched(&self, key: &ObjectKey, object: DynamicObject) {
        let mut inner = self.inner.lock();
        let room = cache_namespace(key);
        let keeps = inner.is_compared(&room);
        inner.namespaces.entry(room).or_default().objects.store_fetched(key.clone(), object, keeps);
    }

    /// An object was found to be gone.
    pub(crate) fn mark_absent(&self, key: &ObjectKey) {
        let namespace = key.namespace.clone().unwrap_or_default();
        self.inner.lock().remove(WatchedKind::Owned(key.kind), &(namespace, key.name.clone()));
    }

    /// Takes in how the identities are as the answer to a write told it.
    pub(crate) fn store_identities(&self, key: &ClusterKey, identities: HostedClusterIdentities) {
        self.inner.lock().identities.insert(key.clone(), IdentitiesReport::of(identities));
    }

    /// Takes in our conditions as the answer to a write told them.
    pub(crate) fn store_conditions(&self, key: &ClusterKey, object: DynamicObject) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.merge_written_status(object, self.conditions);
        }
    }

    /// Takes in what the answer told when this finalizer was added.
    pub(crate) fn store_finalizer(&self, key: &ClusterKey, object: DynamicObject, finalizer: &str) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.merge_finalizer(object, finalizer, self.conditions);
        }
    }

    /// The HostedCluster.
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<CachedCluster> {
        self.inner.lock().clusters.get(key).cloned()
    }

    /// Every HostedCluster.
    pub(crate) fn clusters(&self) -> Vec<ClusterKey> {
        self.inner.lock().clusters.keys().cloned().collect()
    }

    /// The cluster that was there first of those whose control planes would be in a namespace.
    pub(crate) fn oldest_cluster_in(&self, namespace: &str) -> Option<ClusterKey> {
        let inner = self.inner.lock();
        let age = |key: &&ClusterKey| {
            let created = inner.clusters.get(*key).and_then(|cluster| cluster.created_at);
            (created.unwrap_or(Timestamp::MAX), (*key).clone())
        };
        inner.clusters_by_namespace.get(namespace)?.iter().min_by_key(age).cloned()
    }

    /// The uid of an object.
    pub(crate) fn uid(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.uid(key).map(str::to_owned)
    }

    /// What a namespace says about whose it is, where it is known.
    pub(crate) fn ownership_marks(&self, namespace: &str) -> Option<OwnershipMarks> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.ownership_marks(&namespace_key(namespace)).cloned()
    }

    /// Who else wrote an object last, as far as that is known.
    pub(crate) fn other_writer(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.other_writer(key).map(str::to_owned)
    }

    /// What has to be compared with what is desired.
    pub(crate) fn objects_to_compare(
        &self,
        namespace: &str,
        wished: &DesiredDigests,
    ) -> ObjectsToCompare {
        let inner = self.inner.lock();
        inner
            .namespaces
            .get(namespace)
            .map(|room| room.objects.objects_to_compare(wished))
            .unwrap_or_default()
    }

    /// Objects in these versions were found to be as they should be.
    pub(crate) fn mark_in_sync(
        &self,
        namespace: &str,
        found: &[(ObjectKey, String)],
        wished: &DesiredDigests,
    ) {
        let mut inner = self.inner.lock();
        let Some(room) = inner.namespaces.get_mut(namespace) else { return };
        for (key, version) in found {
            if let Some(digest) = wished.get(key) {
                room.objects.mark_in_sync(key, version, *digest);
            }
        }
    }

    /// The names of the objects of a kind.
    pub(crate) fn object_names(&self, namespace: &str, kind: OwnedKind) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let room = inner.namespaces.get(namespace);
        let keys = room.into_iter().flat_map(|room| room.objects.keys());
        keys.filter(|key| key.kind == kind).map(|key| key.name.clone()).collect()
    }

    /// What pods and nodes tell in a namespace.
    pub(crate) fn pods_and_volumes(
        &self,
        namespace: &str,
    ) -> (Vec<ObservedPod>, Vec<ObservedVolume>) {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace).map_or_else(Default::default, |room| {
            (room.pods.values().cloned().collect(), room.volumes.values().cloned().collect())
        })
    }

    /// The address of the router to private vaults in a namespace, where there is one.
    pub(crate) fn private_router(&self, namespace: &str) -> Option<IpAddr> {
        self.inner.lock().namespaces.get(namespace)?.private_router
    }

    /// How the identities of a cluster are, as it was told last.
    pub(crate) fn identities(&self, key: &ClusterKey) -> Option<IdentitiesReport> {
        self.inner.lock().identities.get(key).cloned()
    }

    /// Whether a kind can be relied on.
    pub(crate) fn kind_state(&self, kind: WatchedKind) -> KindState {
        self.inner.lock().kind_states.get(&kind).cloned().unwrap_or_default()
    }

    /// How many objects' content is kept, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        self.inner.lock().namespaces.values().map(|room| room.objects.content_bytes()).sum()
    }
}

impl WatchStoresInner {
    fn upsert(
        &mut self,
        kind: WatchedKind,
        object: DynamicObject,
        conditions: &[&str],
    ) -> DirtyKeys {
        let (namespace, name) = namespaced_name(&object);
        match kind {
            WatchedKind::HostedClusters => {
                let key = ClusterKey::of(&namespace, &name);
                let cluster = CachedCluster::of(object, conditions);
                if self.clusters.get(&key).is_some_and(|known| cluster.is_older_than(known)) {
                    return DirtyKeys::new();
                }
                let wake = cluster.reconcile_trigger(self.clusters.get(&key));
                self.clusters.insert(key.clone(), cluster);
                let room = control_plane_namespace(&key);
                self.clusters_by_namespace.entry(room).or_default().insert(key.clone());
                wake.map(|wake| (key, wake)).into_iter().collect()
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(&namespace, &name);
                let Some(identities) = parse_object::<HostedClusterIdentities>(&object) else {
                    return DirtyKeys::new();
                };
                let told = IdentitiesReport::of(identities);
                if self.identities.get(&key).is_some_and(|known| told.is_older_than(known)) {
                    return DirtyKeys::new();
                }
                let before = self.identities.insert(key.clone(), told.clone());
                let is_news =
                    before.is_none_or(|it| it.status != told.status || it.uid != told.uid);
                is_news.then_some((key, ReconcileTrigger::RelatedChanged)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, &namespace, name);
                let room = cache_namespace(&key);
                let keeps = self.is_compared(&room);
                let objects = &mut self.namespaces.entry(room.clone()).or_default().objects;
                let is_news = objects.observe(key, object, keeps);
                self.dirty_keys(&room, is_news)
            }
            WatchedKind::Pods => {
                let Some(pod) = parse_object::<Pod>(&object) else { return DirtyKeys::new() };
                let pod = ObservedPod::from_pod(&pod);
                if pod.class_names.is_empty() {
                    // A control plane has many pods of which no identity is told.
                    return self.remove(WatchedKind::Pods, &(namespace, name));
                }
                let pods = &mut self.namespaces.entry(namespace.clone()).or_default().pods;
                let is_news = pods.get(&name) != Some(&pod);
                pods.insert(name, pod);
                self.dirty_keys(&namespace, is_news)
            }
            WatchedKind::PodStatuses => {
                let status = parse_object::<SecretProviderClassPodStatus>(&object);
                let volume = status.as_ref().and_then(ObservedVolume::from_pod_status);
                let volumes = &mut self.namespaces.entry(namespace.clone()).or_default().volumes;
                let is_news = volumes.get(&name) != volume.as_ref();
                match volume {
                    Some(volume) => volumes.insert(name, volume),
                    None => volumes.remove(&name),
                };
                self.dirty_keys(&namespace, is_news)
            }
            WatchedKind::PrivateRouters => {
                self.set_private_router(&namespace, router_address(&name, &object))
            }
        }
    }

    /// Where the router to private vaults is now.
    fn set_private_router(&mut self, namespace: &str, address: Option<IpAddr>) -> DirtyKeys {
        let is_news = match address {
            Some(_) => {
                let room = self.namespaces.entry(namespace.to_owned()).or_default();
                std::mem::replace(&mut room.private_router, address) != address
            }
            None => self.update_namespace(namespace, |room| room.private_router.take().is_some()),
        };
        self.dirty_keys(namespace, is_news)
    }

    fn remove(&mut self, kind: WatchedKind, (namespace, name): &(String, String)) -> DirtyKeys {
        match kind {
            WatchedKind::HostedClusters => {
                let key = ClusterKey::of(namespace, name);
                let room = control_plane_namespace(&key);
                if let Some(tenants) = self.clusters_by_namespace.get_mut(&room) {
                    tenants.remove(&key);
                }
                let was_there = self.clusters.remove(&key).is_some();
                self.drop_namespace_content(&room);
                // Who waited for the namespace can have it.
                let mut news = self.dirty_keys(&room, was_there);
                news.extend(was_there.then_some((key, ReconcileTrigger::SpecChanged)));
                news
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(namespace, name);
                let was_there = self.identities.remove(&key).is_some();
                was_there.then_some((key, ReconcileTrigger::RelatedChanged)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, namespace, name.clone());
                let room = cache_namespace(&key);
                let was_there = self.update_namespace(&room, |it| it.objects.forget(&key));
                self.dirty_keys(&room, was_there)
            }
            WatchedKind::Pods => {
                let was_there =
                    self.update_namespace(namespace, |it| it.pods.remove(name).is_some());
                self.dirty_keys(namespace, was_there)
            }
            WatchedKind::PodStatuses => {
                let was_there =
                    self.update_namespace(namespace, |it| it.volumes.remove(name).is_some());
                self.dirty_keys(namespace, was_there)
            }
            WatchedKind::PrivateRouters => self.set_private_router(namespace, None),
        }
    }

    /// Forgets what a whole list did not tell.
    fn remove_unlisted(
        &mut self,
        kind: WatchedKind,
        told: &HashSet<(String, String)>,
    ) -> DirtyKeys {
        let places: Vec<(String, String)> = match kind {
            WatchedKind::HostedClusters => {
                self.clusters.keys().map(cluster_namespaced_name).collect()
            }
            WatchedKind::Identities => {
                self.identities.keys().map(cluster_namespaced_name).collect()
            }
            WatchedKind::Owned(kind) => {
                let keys = self.namespaces.values().flat_map(|room| room.objects.keys());
                let of_kind = keys.filter(|key| key.kind == kind);
                of_kind
                    .map(|it| (it.namespace.clone().unwrap_or_default(), it.name.clone()))
                    .collect()
            }
            WatchedKind::Pods => self.cached_names(|room| room.pods.keys().cloned().collect()),
            WatchedKind::PodStatuses => {
                self.cached_names(|room| room.volumes.keys().cloned().collect())
            }
            WatchedKind::PrivateRouters => self.cached_names(|room| {
                let known = room.private_router.map(|_| PRIVATE_ROUTER_SERVICE.to_owned());
                known.into_iter().collect()
            }),
        };
        let gone = places.into_iter().filter(|place| !told.contains(place));
        gone.collect::<Vec<_>>().iter().flat_map(|place| self.remove(kind, place)).collect()
    }

    /// Whether what everything begins with was listed.
    fn is_api_reachable(&self) -> bool {
        let mut kinds = self.kind_states.iter();
        kinds.any(|(kind, state)| {
            kind.is_required() && matches!(state, KindState::Listed | KindState::Stale(_))
        })
    }

    /// What was known stays. A kind that was never listed may be given up until it is.
    fn record_watch_failure(
        &mut self,
        kind: WatchedKind,
        error: ApiError,
        failing_for: Duration,
        refusals: u32,
    ) -> DirtyKeys {
        let known = self.kind_states.get(&kind);
        let is_listed = matches!(known, Some(KindState::Listed | KindState::Stale(_)));
        let is_known = matches!(known, Some(KindState::Unusable(_) | KindState::Stale(_)));
        // A server that begins may refuse for a moment what it serves.
        let is_lost = refusals >= REFUSALS_UNTIL_UNUSABLE;
        let is_new = is_unusable(kind, &error, failing_for) && !is_known;
        if !is_lost && (is_listed || !is_new) {
            return DirtyKeys::new();
        }
        let state = if is_listed { KindState::Stale(error) } else { KindState::Unusable(error) };
        self.kind_states.insert(kind, state);
        if is_known {
            return DirtyKeys::new();
        }
        self.clusters.keys().map(|key| (key.clone(), ReconcileTrigger::SpecChanged)).collect()
    }

    /// Whether somebody here compares the objects of a control plane. As long as nobody knows whose
    /// a namespace is, somebody may.
    fn is_compared(&self, room: &str) -> bool {
        let ComparisonScope::LedClusters(tenures) = &self.comparison_scope else { return false };
        let clusters = self.kind_states.get(&WatchedKind::HostedClusters);
        let is_listed = matches!(clusters, Some(KindState::Listed | KindState::Stale(_)));
        let tenants = self.clusters_by_namespace.get(room);
        !is_listed || tenants.into_iter().flatten().any(|key| tenures.may_lead(key))
    }

    fn drop_all_unneeded_content(&mut self) {
        let rooms: Vec<_> = self.namespaces.keys().cloned().collect();
        for room in rooms {
            self.drop_namespace_content(&room);
        }
    }

    fn drop_namespace_content(&mut self, room: &str) {
        if !self.is_compared(room)
            && let Some(room) = self.namespaces.get_mut(room)
        {
            room.objects.forget_content();
        }
    }

    fn update_namespace(
        &mut self,
        room: &str,
        change: impl FnOnce(&mut NamespaceCache) -> bool,
    ) -> bool {
        let Some(found) = self.namespaces.get_mut(room) else { return false };
        let changed = change(found);
        let is_empty = found.objects.keys().next().is_none()
            && found.pods.is_empty()
            && found.volumes.is_empty()
            && found.private_router.is_none();
        if is_empty {
            self.namespaces.remove(room);
        }
        changed
    }

    fn dirty_keys(&self, room: &str, is_news: bool) -> DirtyKeys {
        let tenants = self.clusters_by_namespace.get(room).filter(|_| is_news);
        tenants
            .into_iter()
            .flatten()
            .map(|key| (key.clone(), ReconcileTrigger::RelatedChanged))
            .collect()
    }

    fn cached_names(
        &self,
        names: impl Fn(&NamespaceCache) -> Vec<String>,
    ) -> Vec<(String, String)> {
        let of_room = |(namespace, room): (&String, &NamespaceCache)| {
            let names = names(room);
            let namespace = namespace.clone();
            names.into_iter().map(move |name| (namespace.clone(), name)).collect::<Vec<_>>()
        };
        self.namespaces.iter().flat_map(of_room).collect()
    }
}

impl IdentitiesReport {
    pub(crate) fn of(identities: HostedClusterIdentities) -> Self {
        let metadata = identities.metadata;
        let owner = metadata.owner_references.unwrap_or_default().into_iter().next();
        Self {
            uid: metadata.uid.unwrap_or_default(),
            version: metadata.resource_version.unwrap_or_default(),
            owner: owner.map(|owner| owner.uid),
            status: identities.status,
        }
    }

    /// Whether an answer to a write told more of this object already: the watch comes after it, and
    /// with the versions in between. Who took them for news would tell all of it again.
    fn is_older_than(&self, known: &Self) -> bool {
        self.uid == known.uid && is_older_version(&self.version, &known.version)
    }
}

/// How often in a row a kind that was listed is refused before it is one that cannot be used: with
/// the pauses in between that takes twenty seconds and more.
const REFUSALS_UNTIL_UNUSABLE: u32 = 8;

/// The namespace of the control plane of a cluster.
pub(crate) fn control_plane_namespace(key: &ClusterKey) -> String {
    lanyard_desired::hosted_cluster::control_plane_namespace(key.namespace(), key.name())
}

/// The namespace whose control plane an object belongs to.
fn cache_namespace(key: &ObjectKey) -> String {
    key.namespace.clone().unwrap_or_else(|| key.name.clone())
}

fn object_key(kind: OwnedKind, namespace: &str, name: String) -> ObjectKey {
    let namespace = kind.info().namespaced.then(|| namespace.to_owned());
    ObjectKey { kind, namespace, name }
}

/// The address of a Service that is the router to private vaults; a headless one has none.
fn router_address(name: &str, service: &DynamicObject) -> Option<IpAddr> {
    let address = service.data.pointer("/spec/clusterIP")?.as_str()?;
    address.parse().ok().filter(|_| name == PRIVATE_ROUTER_SERVICE)
}

fn namespaced_name(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn cluster_namespaced_name(key: &ClusterKey) -> (String, String) {
    (key.namespace().to_owned(), key.name().to_owned())
}

fn parse_object<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    parse_typed(serde_json::to_value(object).unwrap_or_default())
        .inspect_err(|TypeMismatch { field, problem }| {
            let (namespace, name) = namespaced_name(object);
            tracing::warn!(namespace, name, field, "an object cannot be read: {problem}");
        })
        .ok()
}

#[cfg(test)]
mod tests;
