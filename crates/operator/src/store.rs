//! The stores: caches of the watched objects.

mod clusters;
mod identities_report;
mod keys;
mod kind_state;
mod objects;
mod parse;
mod render_facts;
mod responses;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
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
use identities_report::CachedReport;
pub(crate) use identities_report::IdentitiesReport;
pub(crate) use keys::control_plane_namespace;
use keys::{cache_namespace, cluster_namespaced_name, namespaced_name, object_key};
pub(crate) use kind_state::KindState;
use kind_state::is_unusable;
pub(crate) use objects::{DesiredDigests, ObjectCache, ObjectsToCompare, desired_digests};
use parse::{TypeMismatch, parse_typed};
pub(crate) use render_facts::RenderFacts;

/// The caches of all watched kinds.
#[derive(Debug)]
pub(crate) struct WatchStores {
    inner: Mutex<WatchStoresInner>,
    /// The types of the operator's own conditions.
    conditions: &'static [&'static str],
}

/// The clusters whose cached objects this process compares with the desired objects.
#[derive(Debug, Default)]
pub(crate) enum ComparisonScope {
    /// None.
    #[default]
    Nothing,
    /// The clusters that this process leads.
    LedClusters(LeaseTerms),
}

#[derive(Debug, Default)]
struct WatchStoresInner {
    comparison_scope: ComparisonScope,
    clusters: BTreeMap<ClusterKey, CachedCluster>,
    /// The clusters by control-plane namespace; more than one per namespace is a problem.
    clusters_by_namespace: HashMap<String, BTreeSet<ClusterKey>>,
    namespaces: HashMap<String, NamespaceCache>,
    identities: HashMap<ClusterKey, CachedReport>,
    kind_states: HashMap<WatchedKind, KindState>,
    /// The latest resource version that each watch delivered. A watch delivers the changes of its kind in
    /// order, so it has delivered everything up to this version.
    watched_versions: HashMap<WatchedKind, u64>,
}

/// The cached objects of one namespace that may belong to a control plane.
#[derive(Debug, Default)]
struct NamespaceCache {
    objects: ObjectCache,
    pods: BTreeMap<String, ObservedPod>,
    volumes: BTreeMap<String, ObservedVolume>,
    /// The address of the private router, through which components reach private vaults.
    private_router: Option<IpAddr>,
}

/// The progress of a list in progress.
#[derive(Debug, Default)]
pub(crate) struct ListProgress {
    /// The listed objects so far; `None` without a list in progress.
    listed_objects: Option<HashSet<(String, String)>>,
    /// Since when no list completed, on the monotonic clock.
    failing_since: Option<Duration>,
}

/// The clusters to reconcile, each with its trigger.
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

    /// Drops the content of objects that this process no longer compares.
    pub(crate) fn drop_unneeded_content(&self) {
        self.inner.lock().drop_all_unneeded_content();
    }

    /// Applies a watch update that arrived at `now`, on the monotonic clock.
    pub(crate) fn apply_watch_update(
        &self,
        kind: WatchedKind,
        update: WatchUpdate,
        list_progress: &mut ListProgress,
        now: Duration,
    ) -> DirtyKeys {
        let mut inner = self.inner.lock();
        inner.record_watched_version(kind, &update);
        match update {
            WatchUpdate::Applied(object) => {
                if let Some(listed) = &mut list_progress.listed_objects {
                    listed.insert(namespaced_name(&object));
                }
                inner.upsert(kind, *object, self.conditions)
            }
            WatchUpdate::Deleted(object) => inner.remove(kind, &namespaced_name(&object)),
            WatchUpdate::ListStarted => {
                list_progress.listed_objects = Some(HashSet::new());
                DirtyKeys::new()
            }
            WatchUpdate::ListCompleted => {
                list_progress.failing_since = None;
                let listed = list_progress.listed_objects.take().unwrap_or_default();
                let mut dirty_keys = inner.remove_unlisted(kind, &listed);
                // Clusters that waited for the kind can continue.
                if !matches!(
                    inner.kind_states.insert(kind, KindState::Listed),
                    Some(KindState::Listed)
                ) {
                    let all_clusters = inner.clusters.keys();
                    dirty_keys.extend(
                        all_clusters.map(|key| (key.clone(), ReconcileTrigger::SpecChanged)),
                    );
                    inner.drop_all_unneeded_content();
                }
                dirty_keys
            }
            WatchUpdate::Failed(error, refusals) => {
                // If no kind can be listed, the failure does not concern this kind.
                let since = list_progress.failing_since.unwrap_or(now);
                list_progress.failing_since = inner.is_api_reachable().then_some(since);
                let failing_for =
                    list_progress.failing_since.map(|since| now.saturating_sub(since));
                inner.record_watch_failure(kind, error, failing_for.unwrap_or_default(), refusals)
            }
        }
    }

    /// The cached HostedCluster.
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<CachedCluster> {
        self.inner.lock().clusters.get(key).cloned()
    }

    /// The keys of all cached HostedClusters.
    pub(crate) fn clusters(&self) -> Vec<ClusterKey> {
        self.inner.lock().clusters.keys().cloned().collect()
    }

    /// The oldest of the clusters whose control planes have this namespace.
    pub(crate) fn oldest_cluster_in(&self, namespace: &str) -> Option<ClusterKey> {
        let inner = self.inner.lock();
        let age = |key: &&ClusterKey| {
            let created = inner.clusters.get(*key).and_then(|cluster| cluster.created_at);
            (created.unwrap_or(Timestamp::MAX), (*key).clone())
        };
        inner.clusters_by_namespace.get(namespace)?.iter().min_by_key(age).cloned()
    }

    /// The uid of a cached object in a namespace.
    pub(crate) fn uid(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.uid(key).map(str::to_owned)
    }

    /// The labels and annotations of a namespace that name its HostedCluster and tell whether the operator
    /// created it; `None` if the namespace is not cached.
    pub(crate) fn ownership_marks(&self, namespace: &str) -> Option<OwnershipMarks> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.ownership_marks(&namespace_key(namespace)).cloned()
    }

    /// The field manager that wrote an object last and is not the operator's, if known.
    pub(crate) fn other_writer(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace)?.objects.other_writer(key).map(str::to_owned)
    }

    /// The cached objects of a namespace to compare with the desired objects.
    pub(crate) fn objects_to_compare(
        &self,
        namespace: &str,
        desired: &DesiredDigests,
    ) -> ObjectsToCompare {
        let inner = self.inner.lock();
        inner
            .namespaces
            .get(namespace)
            .map(|cache| cache.objects.objects_to_compare(desired))
            .unwrap_or_default()
    }

    /// Records that these versions of objects match the desired objects.
    pub(crate) fn mark_in_sync(
        &self,
        namespace: &str,
        found: &[(ObjectKey, String)],
        desired: &DesiredDigests,
    ) {
        let mut inner = self.inner.lock();
        let Some(cache) = inner.namespaces.get_mut(namespace) else { return };
        for (key, version) in found {
            if let Some(digest) = desired.get(key) {
                cache.objects.mark_in_sync(key, version, *digest);
            }
        }
    }

    /// The names of the cached objects of a kind in a namespace.
    pub(crate) fn object_names(&self, namespace: &str, kind: OwnedKind) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let cache = inner.namespaces.get(namespace);
        let keys = cache.into_iter().flat_map(|cache| cache.objects.keys());
        keys.filter(|key| key.kind == kind).map(|key| key.name.clone()).collect()
    }

    /// The observed pods and volumes in a namespace.
    pub(crate) fn pods_and_volumes(
        &self,
        namespace: &str,
    ) -> (Vec<ObservedPod>, Vec<ObservedVolume>) {
        let inner = self.inner.lock();
        inner.namespaces.get(namespace).map_or_else(Default::default, |cache| {
            (cache.pods.values().cloned().collect(), cache.volumes.values().cloned().collect())
        })
    }

    /// The address of the private router in a namespace.
    pub(crate) fn private_router(&self, namespace: &str) -> Option<IpAddr> {
        self.inner.lock().namespaces.get(namespace)?.private_router
    }

    /// The facts of an object that the desired objects depend on.
    pub(crate) fn render_facts(&self, namespace: &str, key: &ObjectKey) -> RenderFacts {
        let inner = self.inner.lock();
        let cache = inner.namespaces.get(namespace);
        cache.and_then(|cache| cache.objects.render_facts(key)).cloned().unwrap_or_default()
    }

    /// The cached HostedClusterIdentities of a cluster: the identity status that the operator wrote last.
    /// `None` if there is none.
    pub(crate) fn identities_report(&self, key: &ClusterKey) -> Option<IdentitiesReport> {
        let cached = self.inner.lock().identities.get(key).cloned();
        // Parsed without the lock.
        cached.map(|cached| cached.parse())
    }

    /// The state of a watched kind.
    pub(crate) fn kind_state(&self, kind: WatchedKind) -> KindState {
        self.inner.lock().kind_states.get(&kind).cloned().unwrap_or_default()
    }

    /// The size of the cached object content, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        self.inner.lock().namespaces.values().map(|cache| cache.objects.content_bytes()).sum()
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
                let trigger = cluster.reconcile_trigger(self.clusters.get(&key));
                self.clusters.insert(key.clone(), cluster);
                let namespace = control_plane_namespace(&key);
                self.clusters_by_namespace.entry(namespace).or_default().insert(key.clone());
                trigger.map(|trigger| (key, trigger)).into_iter().collect()
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(&namespace, &name);
                let Some(identities) = parse_object::<HostedClusterIdentities>(&object) else {
                    return DirtyKeys::new();
                };
                let report = CachedReport::of(IdentitiesReport::of(identities));
                let known = self.identities.get(&key);
                if known.is_some_and(|known| report.is_older_than(known)) {
                    return DirtyKeys::new();
                }
                let has_changed = known.is_none_or(|known| !report.has_same_status(known));
                self.identities.insert(key.clone(), report);
                has_changed.then_some((key, ReconcileTrigger::RelatedChanged)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, &namespace, name);
                let namespace = cache_namespace(&key);
                let keeps_content = self.is_compared(&namespace);
                let objects = &mut self.namespaces.entry(namespace.clone()).or_default().objects;
                let has_changed = objects.observe(key, object, keeps_content);
                self.dirty_keys(&namespace, has_changed)
            }
            WatchedKind::Pods => {
                let Some(pod) = parse_object::<Pod>(&object) else { return DirtyKeys::new() };
                let pod = ObservedPod::from_pod(&pod);
                if pod.class_names.is_empty() {
                    // Most pods of a control plane use no identity.
                    return self.remove(WatchedKind::Pods, &(namespace, name));
                }
                let pods = &mut self.namespaces.entry(namespace.clone()).or_default().pods;
                let has_changed = pods.get(&name) != Some(&pod);
                pods.insert(name, pod);
                self.dirty_keys(&namespace, has_changed)
            }
            WatchedKind::PodStatuses => {
                let status = parse_object::<SecretProviderClassPodStatus>(&object);
                let volume = status.as_ref().and_then(ObservedVolume::from_pod_status);
                let volumes = &mut self.namespaces.entry(namespace.clone()).or_default().volumes;
                let has_changed = volumes.get(&name) != volume.as_ref();
                match volume {
                    Some(volume) => volumes.insert(name, volume),
                    None => volumes.remove(&name),
                };
                self.dirty_keys(&namespace, has_changed)
            }
            WatchedKind::PrivateRouters => {
                self.set_private_router(&namespace, router_address(&name, &object))
            }
        }
    }

    /// Updates the address of the private router.
    fn set_private_router(&mut self, namespace: &str, address: Option<IpAddr>) -> DirtyKeys {
        let has_changed = match address {
            Some(_) => {
                let cache = self.namespaces.entry(namespace.to_owned()).or_default();
                std::mem::replace(&mut cache.private_router, address) != address
            }
            None => self.update_namespace(namespace, |cache| cache.private_router.take().is_some()),
        };
        self.dirty_keys(namespace, has_changed)
    }

    fn remove(&mut self, kind: WatchedKind, (namespace, name): &(String, String)) -> DirtyKeys {
        match kind {
            WatchedKind::HostedClusters => {
                let key = ClusterKey::of(namespace, name);
                let namespace = control_plane_namespace(&key);
                if let Some(clusters) = self.clusters_by_namespace.get_mut(&namespace) {
                    clusters.remove(&key);
                }
                let was_there = self.clusters.remove(&key).is_some();
                self.drop_namespace_content(&namespace);
                // Another cluster may have waited for the namespace.
                let mut dirty_keys = self.dirty_keys(&namespace, was_there);
                dirty_keys.extend(was_there.then_some((key, ReconcileTrigger::SpecChanged)));
                dirty_keys
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(namespace, name);
                let was_there = self.identities.remove(&key).is_some();
                was_there.then_some((key, ReconcileTrigger::RelatedChanged)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, namespace, name.clone());
                let namespace = cache_namespace(&key);
                let was_there = self.update_namespace(&namespace, |it| it.objects.forget(&key));
                self.dirty_keys(&namespace, was_there)
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

    /// Removes the objects that a complete list did not contain.
    fn remove_unlisted(
        &mut self,
        kind: WatchedKind,
        listed: &HashSet<(String, String)>,
    ) -> DirtyKeys {
        let places: Vec<(String, String)> = match kind {
            WatchedKind::HostedClusters => {
                self.clusters.keys().map(cluster_namespaced_name).collect()
            }
            WatchedKind::Identities => {
                self.identities.keys().map(cluster_namespaced_name).collect()
            }
            WatchedKind::Owned(kind) => {
                let keys = self.namespaces.values().flat_map(|cache| cache.objects.keys());
                let of_kind = keys.filter(|key| key.kind == kind);
                of_kind
                    .map(|it| (it.namespace.clone().unwrap_or_default(), it.name.clone()))
                    .collect()
            }
            WatchedKind::Pods => self.cached_names(|cache| cache.pods.keys().cloned().collect()),
            WatchedKind::PodStatuses => {
                self.cached_names(|cache| cache.volumes.keys().cloned().collect())
            }
            WatchedKind::PrivateRouters => self.cached_names(|cache| {
                let known = cache.private_router.map(|_| PRIVATE_ROUTER_SERVICE.to_owned());
                known.into_iter().collect()
            }),
        };
        let gone = places.into_iter().filter(|place| !listed.contains(place));
        gone.collect::<Vec<_>>().iter().flat_map(|place| self.remove(kind, place)).collect()
    }

    /// Whether a required kind was listed, so the API server is reachable.
    fn is_api_reachable(&self) -> bool {
        let mut kinds = self.kind_states.iter();
        kinds.any(|(kind, state)| {
            kind.is_required() && matches!(state, KindState::Listed | KindState::Stale(_))
        })
    }

    /// Records a failure and keeps the cached objects. A kind that was never listed may become unusable.
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
        // A starting API server may briefly refuse kinds that it serves.
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

    /// Whether this process compares the objects of a control plane. Until the HostedClusters are listed,
    /// the answer is yes for every namespace.
    fn is_compared(&self, namespace: &str) -> bool {
        let ComparisonScope::LedClusters(lease_terms) = &self.comparison_scope else {
            return false;
        };
        let clusters = self.kind_states.get(&WatchedKind::HostedClusters);
        let is_listed = matches!(clusters, Some(KindState::Listed | KindState::Stale(_)));
        let clusters = self.clusters_by_namespace.get(namespace);
        !is_listed || clusters.into_iter().flatten().any(|key| lease_terms.may_lead(key))
    }

    fn drop_all_unneeded_content(&mut self) {
        let namespaces: Vec<_> = self.namespaces.keys().cloned().collect();
        for namespace in namespaces {
            self.drop_namespace_content(&namespace);
        }
    }

    fn drop_namespace_content(&mut self, namespace: &str) {
        if !self.is_compared(namespace)
            && let Some(cache) = self.namespaces.get_mut(namespace)
        {
            cache.objects.forget_content();
        }
    }

    fn update_namespace(
        &mut self,
        namespace: &str,
        change: impl FnOnce(&mut NamespaceCache) -> bool,
    ) -> bool {
        let Some(found) = self.namespaces.get_mut(namespace) else { return false };
        let changed = change(found);
        let is_empty = found.objects.keys().next().is_none()
            && found.pods.is_empty()
            && found.volumes.is_empty()
            && found.private_router.is_none();
        if is_empty {
            self.namespaces.remove(namespace);
        }
        changed
    }

    fn dirty_keys(&self, namespace: &str, has_changed: bool) -> DirtyKeys {
        let clusters = self.clusters_by_namespace.get(namespace).filter(|_| has_changed);
        clusters
            .into_iter()
            .flatten()
            .map(|key| (key.clone(), ReconcileTrigger::RelatedChanged))
            .collect()
    }

    fn cached_names(
        &self,
        names: impl Fn(&NamespaceCache) -> Vec<String>,
    ) -> Vec<(String, String)> {
        let of_namespace = |(namespace, cache): (&String, &NamespaceCache)| {
            let names = names(cache);
            let namespace = namespace.clone();
            names.into_iter().map(move |name| (namespace.clone(), name)).collect::<Vec<_>>()
        };
        self.namespaces.iter().flat_map(of_namespace).collect()
    }
}

/// The number of consecutive refusals after which a listed kind becomes stale. With the back-off in
/// between that takes at least twenty seconds.
const REFUSALS_UNTIL_UNUSABLE: u32 = 8;

/// The address of the Service of the private router; a headless Service has none.
fn router_address(name: &str, service: &DynamicObject) -> Option<IpAddr> {
    let address = service.data.pointer("/spec/clusterIP")?.as_str()?;
    address.parse().ok().filter(|_| name == PRIVATE_ROUTER_SERVICE)
}

fn parse_object<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    parse_typed(serde_json::to_value(object).unwrap_or_default())
        .inspect_err(|TypeMismatch { field, problem }| {
            let (namespace, name) = namespaced_name(object);
            tracing::warn!(namespace, name, field, "could not parse an object: {problem}");
        })
        .ok()
}

#[cfg(test)]
mod tests;
