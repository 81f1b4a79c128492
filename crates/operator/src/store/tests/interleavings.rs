//! Responses to the operator's writes arrive in any order, before and after the watch events of the changes.

use proptest::prelude::*;

use super::*;

/// A change of one object at the server, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerChange {
    /// A write of the operator, which also causes a response. It creates an object that does not exist.
    OperatorWrite,
    /// A write of another client.
    ForeignWrite,
    Deletion,
}

/// The cached kinds that responses update.
#[derive(Debug, Clone, Copy)]
enum CachedKind {
    HostedCluster,
    Identities,
    ConfigMap,
    /// The responses are those to reads.
    ReadConfigMap,
}

impl CachedKind {
    const fn watched_kind(self) -> WatchedKind {
        match self {
            Self::HostedCluster => HOSTED_CLUSTERS,
            Self::Identities => WatchedKind::Identities,
            Self::ConfigMap | Self::ReadConfigMap => CONFIG_MAPS,
        }
    }

    /// The object at a version; its content is the version.
    fn object_at(self, uid: u64, version: u64) -> DynamicObject {
        use lanyard_api::HostedCluster;
        let version = version.to_string();
        let mut object = match self {
            Self::HostedCluster => object_with_condition(
                HostedCluster::API_VERSION,
                HostedCluster::KIND,
                &version,
                &version,
            ),
            Self::Identities => object_with_condition(
                HostedClusterIdentities::API_VERSION,
                HostedClusterIdentities::KIND,
                &version,
                &version,
            ),
            Self::ConfigMap | Self::ReadConfigMap => {
                let mut map = object("v1", "ConfigMap", "clusters-harbour", "m");
                map.data = json!({"data": {"version": version}});
                map
            }
        };
        object.metadata.uid = Some(uid.to_string());
        object.metadata.resource_version = Some(version);
        object
    }

    fn store_response(self, stores: &WatchStores, response: DynamicObject) {
        let cluster = ClusterKey::of("clusters", "harbour");
        match self {
            Self::HostedCluster => stores.store_conditions(&cluster, response),
            Self::Identities => {
                stores.store_identities(&cluster, parse_object(&response).unwrap());
            }
            Self::ConfigMap => stores.store_written(response),
            Self::ReadConfigMap => {
                let name = response.metadata.name.clone().unwrap_or_default();
                let key = object_key(OwnedKind::ConfigMap, "clusters-harbour", name);
                stores.store_fetched(&key, response);
            }
        }
    }

    /// The cached content, as the version of which it is.
    fn cached_version(self, stores: &WatchStores) -> Option<u64> {
        let cluster = ClusterKey::of("clusters", "harbour");
        let version = match self {
            Self::HostedCluster => stores.cluster(&cluster)?.conditions.first()?.status.clone(),
            Self::Identities => {
                stores.identities_report(&cluster)?.status?.conditions.first()?.status.clone()
            }
            Self::ConfigMap | Self::ReadConfigMap => {
                let known = stores.objects_to_compare("clusters-harbour", &DesiredDigests::new());
                let (_, map) = known.observed.into_iter().next()?;
                map.value["data"]["version"].as_str()?.to_owned()
            }
        };
        version.parse().ok()
    }
}

/// What the server sends, each part in the order of the changes.
#[derive(Debug, Default)]
struct ServerMessages {
    events: Vec<WatchUpdate>,
    responses: Vec<(u64, DynamicObject)>,
    /// The version of the object after all changes; `None` if it does not exist.
    last_version: Option<u64>,
}

fn play_changes(kind: CachedKind, changes: &[ServerChange]) -> ServerMessages {
    let mut sent = ServerMessages::default();
    let mut uid = 0;
    for (version, change) in (1_u64..).zip(changes) {
        if *change == ServerChange::Deletion {
            if sent.last_version.take().is_some() {
                let last = kind.object_at(uid, version);
                sent.events.push(WatchUpdate::Deleted(Box::new(last)));
            }
            continue;
        }
        if sent.last_version.is_none() {
            uid = version;
        }
        sent.last_version = Some(version);
        let object = kind.object_at(uid, version);
        if *change == ServerChange::OperatorWrite {
            sent.responses.push((version, object.clone()));
        }
        sent.events.push(WatchUpdate::Applied(Box::new(object)));
    }
    sent
}

fn any_change() -> impl Strategy<Value = ServerChange> {
    prop_oneof![
        4 => Just(ServerChange::OperatorWrite),
        2 => Just(ServerChange::ForeignWrite),
        1 => Just(ServerChange::Deletion),
    ]
}

fn any_kind() -> impl Strategy<Value = CachedKind> {
    prop_oneof![
        Just(CachedKind::HostedCluster),
        Just(CachedKind::Identities),
        Just(CachedKind::ConfigMap),
        Just(CachedKind::ReadConfigMap),
    ]
}

proptest! {
    /// The cache ends with the last state, and no response replaces a newer one.
    #[test]
    fn responses_never_set_the_cache_back(
        kind in any_kind(),
        changes in prop::collection::vec(any_change(), 1..12),
        order in prop::collection::vec(0_usize..64, 24),
    ) {
        let clock: SharedClock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
        let scope = ComparisonScope::LedClusters(LeaseTerms::permanent(clock));
        let stores = WatchStores::new(&["Ours"], scope);
        let ServerMessages { events, mut responses, last_version } = play_changes(kind, &changes);
        let mut events = events.into_iter().peekable();
        let mut list_progress = ListProgress::default();
        let mut order = order.into_iter();
        while events.peek().is_some() || !responses.is_empty() {
            let choices = responses.len() + usize::from(events.peek().is_some());
            let choice = order.next().unwrap_or_default() % choices;
            if choice < responses.len() {
                let (version, response) = responses.remove(choice);
                let before = kind.cached_version(&stores);
                kind.store_response(&stores, response);
                let after = kind.cached_version(&stores);
                prop_assert!(after >= before, "{before:?} to {after:?} by {version}");
            } else if let Some(event) = events.next() {
                let watched = kind.watched_kind();
                stores.apply_watch_update(watched, event, &mut list_progress, Duration::ZERO);
            }
        }
        prop_assert_eq!(kind.cached_version(&stores), last_version);
    }
}

#[test]
fn response_after_the_deletion_does_not_bring_an_object_back() {
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    let mut list_progress = ListProgress::default();
    let kind = CachedKind::ConfigMap;
    let deletion = WatchUpdate::Deleted(Box::new(kind.object_at(1, 3)));
    stores.apply_watch_update(CONFIG_MAPS, deletion, &mut list_progress, Duration::ZERO);
    kind.store_response(&stores, kind.object_at(1, 2));
    let names =
        |stores: &WatchStores| stores.object_names("clusters-harbour", OwnedKind::ConfigMap);
    assert_eq!(names(&stores), BTreeSet::new());
    // A newer object is stored before the watch delivers it.
    kind.store_response(&stores, kind.object_at(4, 4));
    assert_eq!(names(&stores), BTreeSet::from(["m".to_owned()]));
}

#[test]
fn read_without_an_object_does_not_remove_a_newer_version() {
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    let kind = CachedKind::ConfigMap;
    let key = object_key(OwnedKind::ConfigMap, "clusters-harbour", "m".to_owned());
    kind.store_response(&stores, kind.object_at(4, 4));
    stores.mark_absent(&key, "3");
    stores.mark_deleted(&key, "1");
    assert_eq!(stores.version(&key).as_deref(), Some("4"));
    stores.mark_absent(&key, "4");
    assert_eq!(stores.version(&key), None);
}
