//! What is known, kept in step by the watches.

mod clusters;
mod objects;
mod typed;
mod usability;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use lanyard_api::hosted_cluster_identities::IdentitiesStatus;
use lanyard_api::{HostedClusterIdentities, SecretProviderClassPodStatus};
use lanyard_desired::status::{ObservedPod, ObservedVolume};
use lanyard_desired::workload::PRIVATE_ROUTER;
use lanyard_desired::{ObjectKey, OwnedKind};
use lanyard_kubernetes::{ApiError, Seen};
use parking_lot::Mutex;

use crate::claim::Marks;
use crate::key::ClusterKey;
use crate::kinds::WatchedKind;
use crate::lease::Tenures;
use crate::observe::namespace_key;
use crate::queue::Wake;
pub(crate) use clusters::Cluster;
use objects::is_older;
pub(crate) use objects::{Objects, Unsettled, Wished, wished};
use typed::{Mismatch, typed};
pub(crate) use usability::Kind;
use usability::is_given_up;

/// Everything that is known.
#[derive(Debug)]
pub(crate) struct Stores {
    inner: Mutex<Inner>,
    /// The types of our conditions.
    conditions: &'static [&'static str],
}

/// Whose objects are compared here with what is desired.
#[derive(Debug, Default)]
pub(crate) enum Compared {
    /// Nobody's.
    #[default]
    Nobodys,
    /// Those of the clusters that are led.
    Led(Tenures),
}

#[derive(Debug, Default)]
struct Inner {
    compared: Compared,
    clusters: BTreeMap<ClusterKey, Cluster>,
    /// The clusters whose control planes would be in a namespace: one, or it is a problem.
    tenants: HashMap<String, BTreeSet<ClusterKey>>,
    rooms: HashMap<String, Room>,
    identities: HashMap<ClusterKey, Told>,
    kinds: HashMap<WatchedKind, Kind>,
}

/// A namespace with what may belong to a control plane.
#[derive(Debug, Default)]
struct Room {
    objects: Objects,
    pods: BTreeMap<String, ObservedPod>,
    volumes: BTreeMap<String, ObservedVolume>,
    /// The address of the router to private vaults.
    private_router: Option<IpAddr>,
}

/// How the identities of a cluster are, as it was told.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) uid: String,
    pub(crate) version: String,
    /// The uid of the HostedCluster that it was told of.
    pub(crate) owner: Option<String>,
    pub(crate) status: Option<IdentitiesStatus>,
}

/// What a kind that is being listed told so far.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    /// The objects that are there.
    told: Option<HashSet<(String, String)>>,
    /// Since when no list came to its end, on the monotonic clock.
    failing_since: Option<Duration>,
}

/// Who has to be looked at because of what was seen.
pub(crate) type News = Vec<(ClusterKey, Wake)>;

impl Stores {
    pub(crate) fn new(conditions: &'static [&'static str], compared: Compared) -> Self {
        Self { inner: Mutex::new(Inner { compared, ..Inner::default() }), conditions }
    }

    /// Forgets the content of what nobody here compares any more.
    pub(crate) fn trim(&self) {
        self.inner.lock().trim();
    }

    /// Takes in what a watch tells at `now`, on the monotonic clock.
    pub(crate) fn see(
        &self,
        kind: WatchedKind,
        seen: Seen,
        telling: &mut Telling,
        now: Duration,
    ) -> News {
        let mut inner = self.inner.lock();
        match seen {
            Seen::There(object) => {
                if let Some(told) = &mut telling.told {
                    told.insert(place_of(&object));
                }
                inner.there(kind, *object, self.conditions)
            }
            Seen::Gone(object) => inner.gone(kind, &place_of(&object)),
            Seen::Anew => {
                telling.told = Some(HashSet::new());
                News::new()
            }
            Seen::Complete => {
                telling.failing_since = None;
                let told = telling.told.take().unwrap_or_default();
                let mut news = inner.sweep(kind, &told);
                // What waited for the kind can go on.
                if !matches!(inner.kinds.insert(kind, Kind::Listed), Some(Kind::Listed)) {
                    let everybody = inner.clusters.keys();
                    news.extend(everybody.map(|key| (key.clone(), Wake::Wish)));
                    inner.trim();
                }
                news
            }
            Seen::Broken(error, refusals) => {
                // Where nothing can be listed it is no matter of this kind.
                let since = telling.failing_since.unwrap_or(now);
                telling.failing_since = inner.is_reached().then_some(since);
                let failing_for = telling.failing_since.map(|since| now.saturating_sub(since));
                inner.broken(kind, error, failing_for.unwrap_or_default(), refusals)
            }
        }
    }

    /// Takes in an object as the answer to a write told it.
    pub(crate) fn written(&self, object: DynamicObject) {
        let (api_version, kind) = object
            .types
            .as_ref()
            .map_or(("", ""), |types| (types.api_version.as_str(), types.kind.as_str()));
        if let Some(kind) = OwnedKind::parse(api_version, kind) {
            self.inner.lock().there(WatchedKind::Owned(kind), object, self.conditions);
        }
    }

    /// Takes in an object as it was read.
    pub(crate) fn read(&self, key: &ObjectKey, object: DynamicObject) {
        let mut inner = self.inner.lock();
        let room = room_of(key);
        let keeps = inner.compares(&room);
        inner.rooms.entry(room).or_default().objects.read(key.clone(), object, keeps);
    }

    /// An object was found to be gone.
    pub(crate) fn missing(&self, key: &ObjectKey) {
        let namespace = key.namespace.clone().unwrap_or_default();
        self.inner.lock().gone(WatchedKind::Owned(key.kind), &(namespace, key.name.clone()));
    }

    /// Takes in how the identities are as the answer to a write told it.
    pub(crate) fn told(&self, key: &ClusterKey, identities: HostedClusterIdentities) {
        self.inner.lock().identities.insert(key.clone(), Told::of(identities));
    }

    /// Takes in our conditions as the answer to a write told them.
    pub(crate) fn conditions_written(&self, key: &ClusterKey, object: DynamicObject) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.written(object, self.conditions);
        }
    }

    /// Takes in what the answer told when this finalizer was added.
    pub(crate) fn held(&self, key: &ClusterKey, object: DynamicObject, finalizer: &str) {
        if let Some(cluster) = self.inner.lock().clusters.get_mut(key) {
            cluster.held(object, finalizer, self.conditions);
        }
    }

    /// The HostedCluster.
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<Cluster> {
        self.inner.lock().clusters.get(key).cloned()
    }

    /// Every HostedCluster.
    pub(crate) fn clusters(&self) -> Vec<ClusterKey> {
        self.inner.lock().clusters.keys().cloned().collect()
    }

    /// The cluster that was there first of those whose control planes would be in a namespace.
    pub(crate) fn first_tenant(&self, namespace: &str) -> Option<ClusterKey> {
        let inner = self.inner.lock();
        let age = |key: &&ClusterKey| {
            let created = inner.clusters.get(*key).and_then(|cluster| cluster.created);
            (created.unwrap_or(Timestamp::MAX), (*key).clone())
        };
        inner.tenants.get(namespace)?.iter().min_by_key(age).cloned()
    }

    /// The uid of an object.
    pub(crate) fn uid(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.rooms.get(namespace)?.objects.uid(key).map(str::to_owned)
    }

    /// What a namespace says about whose it is, where it is known.
    pub(crate) fn marks(&self, namespace: &str) -> Option<Marks> {
        let inner = self.inner.lock();
        inner.rooms.get(namespace)?.objects.marks(&namespace_key(namespace)).cloned()
    }

    /// Who else wrote an object last, as far as that is known.
    pub(crate) fn rival(&self, namespace: &str, key: &ObjectKey) -> Option<String> {
        let inner = self.inner.lock();
        inner.rooms.get(namespace)?.objects.rival(key).map(str::to_owned)
    }

    /// What has to be compared with what is desired.
    pub(crate) fn unsettled(&self, namespace: &str, wished: &Wished) -> Unsettled {
        let inner = self.inner.lock();
        inner.rooms.get(namespace).map(|room| room.objects.unsettled(wished)).unwrap_or_default()
    }

    /// Objects in these versions were found to be as they should be.
    pub(crate) fn settle(&self, namespace: &str, found: &[(ObjectKey, String)], wished: &Wished) {
        let mut inner = self.inner.lock();
        let Some(room) = inner.rooms.get_mut(namespace) else { return };
        for (key, version) in found {
            if let Some(digest) = wished.get(key) {
                room.objects.settle(key, version, *digest);
            }
        }
    }

    /// The names of the objects of a kind.
    pub(crate) fn names(&self, namespace: &str, kind: OwnedKind) -> BTreeSet<String> {
        let inner = self.inner.lock();
        let room = inner.rooms.get(namespace);
        let keys = room.into_iter().flat_map(|room| room.objects.keys());
        keys.filter(|key| key.kind == kind).map(|key| key.name.clone()).collect()
    }

    /// What pods and nodes tell in a namespace.
    pub(crate) fn facts(&self, namespace: &str) -> (Vec<ObservedPod>, Vec<ObservedVolume>) {
        let inner = self.inner.lock();
        inner.rooms.get(namespace).map_or_else(Default::default, |room| {
            (room.pods.values().cloned().collect(), room.volumes.values().cloned().collect())
        })
    }

    /// The address of the router to private vaults in a namespace, where there is one.
    pub(crate) fn private_router(&self, namespace: &str) -> Option<IpAddr> {
        self.inner.lock().rooms.get(namespace)?.private_router
    }

    /// How the identities of a cluster are, as it was told last.
    pub(crate) fn identities(&self, key: &ClusterKey) -> Option<Told> {
        self.inner.lock().identities.get(key).cloned()
    }

    /// Whether a kind can be relied on.
    pub(crate) fn kind(&self, kind: WatchedKind) -> Kind {
        self.inner.lock().kinds.get(&kind).cloned().unwrap_or_default()
    }

    /// How many objects' content is kept, in bytes.
    pub(crate) fn content_bytes(&self) -> usize {
        self.inner.lock().rooms.values().map(|room| room.objects.bytes()).sum()
    }
}

impl Inner {
    fn there(&mut self, kind: WatchedKind, object: DynamicObject, conditions: &[&str]) -> News {
        let (namespace, name) = place_of(&object);
        match kind {
            WatchedKind::HostedClusters => {
                let key = ClusterKey::of(&namespace, &name);
                let cluster = Cluster::of(object, conditions);
                if self.clusters.get(&key).is_some_and(|known| cluster.is_behind(known)) {
                    return News::new();
                }
                let wake = cluster.news(self.clusters.get(&key));
                self.clusters.insert(key.clone(), cluster);
                let room = control_plane_namespace(&key);
                self.tenants.entry(room).or_default().insert(key.clone());
                wake.map(|wake| (key, wake)).into_iter().collect()
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(&namespace, &name);
                let Some(identities) = parse::<HostedClusterIdentities>(&object) else {
                    return News::new();
                };
                let told = Told::of(identities);
                if self.identities.get(&key).is_some_and(|known| told.is_behind(known)) {
                    return News::new();
                }
                let before = self.identities.insert(key.clone(), told.clone());
                let is_news =
                    before.is_none_or(|it| it.status != told.status || it.uid != told.uid);
                is_news.then_some((key, Wake::Surroundings)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, &namespace, name);
                let room = room_of(&key);
                let keeps = self.compares(&room);
                let objects = &mut self.rooms.entry(room.clone()).or_default().objects;
                let is_news = objects.see(key, object, keeps);
                self.about(&room, is_news)
            }
            WatchedKind::Pods => {
                let Some(pod) = parse::<Pod>(&object) else { return News::new() };
                let pod = ObservedPod::of(&pod);
                if pod.classes.is_empty() {
                    // A control plane has many pods of which no identity is told.
                    return self.gone(WatchedKind::Pods, &(namespace, name));
                }
                let pods = &mut self.rooms.entry(namespace.clone()).or_default().pods;
                let is_news = pods.get(&name) != Some(&pod);
                pods.insert(name, pod);
                self.about(&namespace, is_news)
            }
            WatchedKind::PodStatuses => {
                let status = parse::<SecretProviderClassPodStatus>(&object);
                let volume = status.as_ref().and_then(ObservedVolume::of);
                let volumes = &mut self.rooms.entry(namespace.clone()).or_default().volumes;
                let is_news = volumes.get(&name) != volume.as_ref();
                match volume {
                    Some(volume) => volumes.insert(name, volume),
                    None => volumes.remove(&name),
                };
                self.about(&namespace, is_news)
            }
            WatchedKind::PrivateRouters => self.route(&namespace, router_address(&name, &object)),
        }
    }

    /// Where the router to private vaults is now.
    fn route(&mut self, namespace: &str, address: Option<IpAddr>) -> News {
        let is_news = match address {
            Some(_) => {
                let room = self.rooms.entry(namespace.to_owned()).or_default();
                std::mem::replace(&mut room.private_router, address) != address
            }
            None => self.change(namespace, |room| room.private_router.take().is_some()),
        };
        self.about(namespace, is_news)
    }

    fn gone(&mut self, kind: WatchedKind, (namespace, name): &(String, String)) -> News {
        match kind {
            WatchedKind::HostedClusters => {
                let key = ClusterKey::of(namespace, name);
                let room = control_plane_namespace(&key);
                if let Some(tenants) = self.tenants.get_mut(&room) {
                    tenants.remove(&key);
                }
                let was_there = self.clusters.remove(&key).is_some();
                self.trim_room(&room);
                // Who waited for the namespace can have it.
                let mut news = self.about(&room, was_there);
                news.extend(was_there.then_some((key, Wake::Wish)));
                news
            }
            WatchedKind::Identities => {
                let key = ClusterKey::of(namespace, name);
                let was_there = self.identities.remove(&key).is_some();
                was_there.then_some((key, Wake::Surroundings)).into_iter().collect()
            }
            WatchedKind::Owned(kind) => {
                let key = object_key(kind, namespace, name.clone());
                let room = room_of(&key);
                let was_there = self.change(&room, |it| it.objects.forget(&key));
                self.about(&room, was_there)
            }
            WatchedKind::Pods => {
                let was_there = self.change(namespace, |it| it.pods.remove(name).is_some());
                self.about(namespace, was_there)
            }
            WatchedKind::PodStatuses => {
                let was_there = self.change(namespace, |it| it.volumes.remove(name).is_some());
                self.about(namespace, was_there)
            }
            WatchedKind::PrivateRouters => self.route(namespace, None),
        }
    }

    /// Forgets what a whole list did not tell.
    fn sweep(&mut self, kind: WatchedKind, told: &HashSet<(String, String)>) -> News {
        let places: Vec<(String, String)> = match kind {
            WatchedKind::HostedClusters => self.clusters.keys().map(place_of_key).collect(),
            WatchedKind::Identities => self.identities.keys().map(place_of_key).collect(),
            WatchedKind::Owned(kind) => {
                let keys = self.rooms.values().flat_map(|room| room.objects.keys());
                let of_kind = keys.filter(|key| key.kind == kind);
                of_kind
                    .map(|it| (it.namespace.clone().unwrap_or_default(), it.name.clone()))
                    .collect()
            }
            WatchedKind::Pods => self.places(|room| room.pods.keys().cloned().collect()),
            WatchedKind::PodStatuses => self.places(|room| room.volumes.keys().cloned().collect()),
            WatchedKind::PrivateRouters => self.places(|room| {
                let known = room.private_router.map(|_| PRIVATE_ROUTER.to_owned());
                known.into_iter().collect()
            }),
        };
        let gone = places.into_iter().filter(|place| !told.contains(place));
        gone.collect::<Vec<_>>().iter().flat_map(|place| self.gone(kind, place)).collect()
    }

    /// Whether what everything begins with was listed.
    fn is_reached(&self) -> bool {
        let mut kinds = self.kinds.iter();
        kinds
            .any(|(kind, state)| kind.is_needed() && matches!(state, Kind::Listed | Kind::Stale(_)))
    }

    /// What was known stays. A kind that was never listed may be given up until it is.
    fn broken(
        &mut self,
        kind: WatchedKind,
        error: ApiError,
        failing_for: Duration,
        refusals: u32,
    ) -> News {
        let known = self.kinds.get(&kind);
        let is_listed = matches!(known, Some(Kind::Listed | Kind::Stale(_)));
        let is_known = matches!(known, Some(Kind::Unusable(_) | Kind::Stale(_)));
        // A server that begins may refuse for a moment what it serves.
        let is_lost = refusals >= WORTH_TELLING;
        let is_new = is_given_up(kind, &error, failing_for) && !is_known;
        if !is_lost && (is_listed || !is_new) {
            return News::new();
        }
        let state = if is_listed { Kind::Stale(error) } else { Kind::Unusable(error) };
        self.kinds.insert(kind, state);
        if is_known {
            return News::new();
        }
        self.clusters.keys().map(|key| (key.clone(), Wake::Wish)).collect()
    }

    /// Whether somebody here compares the objects of a control plane. As long as nobody knows whose
    /// a namespace is, somebody may.
    fn compares(&self, room: &str) -> bool {
        let Compared::Led(tenures) = &self.compared else { return false };
        let clusters = self.kinds.get(&WatchedKind::HostedClusters);
        let is_listed = matches!(clusters, Some(Kind::Listed | Kind::Stale(_)));
        let tenants = self.tenants.get(room);
        !is_listed || tenants.into_iter().flatten().any(|key| tenures.may_lead(key))
    }

    fn trim(&mut self) {
        let rooms: Vec<_> = self.rooms.keys().cloned().collect();
        for room in rooms {
            self.trim_room(&room);
        }
    }

    fn trim_room(&mut self, room: &str) {
        if !self.compares(room)
            && let Some(room) = self.rooms.get_mut(room)
        {
            room.objects.forget_content();
        }
    }

    fn change(&mut self, room: &str, change: impl FnOnce(&mut Room) -> bool) -> bool {
        let Some(found) = self.rooms.get_mut(room) else { return false };
        let changed = change(found);
        let is_empty = found.objects.keys().next().is_none()
            && found.pods.is_empty()
            && found.volumes.is_empty()
            && found.private_router.is_none();
        if is_empty {
            self.rooms.remove(room);
        }
        changed
    }

    fn about(&self, room: &str, is_news: bool) -> News {
        let tenants = self.tenants.get(room).filter(|_| is_news);
        tenants.into_iter().flatten().map(|key| (key.clone(), Wake::Surroundings)).collect()
    }

    fn places(&self, names: impl Fn(&Room) -> Vec<String>) -> Vec<(String, String)> {
        let of_room = |(namespace, room): (&String, &Room)| {
            let names = names(room);
            let namespace = namespace.clone();
            names.into_iter().map(move |name| (namespace.clone(), name)).collect::<Vec<_>>()
        };
        self.rooms.iter().flat_map(of_room).collect()
    }
}

impl Told {
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
    fn is_behind(&self, known: &Self) -> bool {
        self.uid == known.uid && is_older(&self.version, &known.version)
    }
}

/// How often in a row a kind that was listed is refused before it is one that cannot be used: with
/// the pauses in between that takes twenty seconds and more.
const WORTH_TELLING: u32 = 8;

/// The namespace of the control plane of a cluster.
pub(crate) fn control_plane_namespace(key: &ClusterKey) -> String {
    lanyard_desired::hosted_cluster::control_plane_namespace(key.namespace(), key.name())
}

/// The namespace whose control plane an object belongs to.
fn room_of(key: &ObjectKey) -> String {
    key.namespace.clone().unwrap_or_else(|| key.name.clone())
}

fn object_key(kind: OwnedKind, namespace: &str, name: String) -> ObjectKey {
    let namespace = kind.facts().namespaced.then(|| namespace.to_owned());
    ObjectKey { kind, namespace, name }
}

/// The address of a Service that is the router to private vaults; a headless one has none.
fn router_address(name: &str, service: &DynamicObject) -> Option<IpAddr> {
    let address = service.data.pointer("/spec/clusterIP")?.as_str()?;
    address.parse().ok().filter(|_| name == PRIVATE_ROUTER)
}

fn place_of(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

fn place_of_key(key: &ClusterKey) -> (String, String) {
    (key.namespace().to_owned(), key.name().to_owned())
}

fn parse<T: serde::de::DeserializeOwned>(object: &DynamicObject) -> Option<T> {
    typed(serde_json::to_value(object).unwrap_or_default())
        .inspect_err(|Mismatch { field, problem }| {
            let (namespace, name) = place_of(object);
            tracing::warn!(namespace, name, field, "an object cannot be read: {problem}");
        })
        .ok()
}

#[cfg(test)]
mod tests;
