mod interleavings;

use std::sync::Arc;

use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> DynamicObject {
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}});
    serde_json::from_value(object).unwrap()
}

fn hosted_cluster_update(name: &str) -> WatchUpdate {
    let api_version = lanyard_api::HostedCluster::API_VERSION;
    let kind = lanyard_api::HostedCluster::KIND;
    WatchUpdate::Applied(Box::new(object(api_version, kind, "clusters", name)))
}

fn config_map_update(cluster: &str) -> WatchUpdate {
    WatchUpdate::Applied(Box::new(object("v1", "ConfigMap", &format!("clusters-{cluster}"), "m")))
}

const HOSTED_CLUSTERS: WatchedKind = WatchedKind::HostedClusters;
const CONFIG_MAPS: WatchedKind = WatchedKind::Owned(OwnedKind::ConfigMap);

fn list_kind(
    stores: &WatchStores,
    kind: WatchedKind,
    objects: impl IntoIterator<Item = WatchUpdate>,
) -> DirtyKeys {
    let mut list_progress = ListProgress::default();
    let all =
        [WatchUpdate::ListStarted].into_iter().chain(objects).chain([WatchUpdate::ListCompleted]);
    all.flat_map(|found| stores.apply_watch_update(kind, found, &mut list_progress, Duration::ZERO))
        .collect()
}

/// Two names, of which the first is in shard 0 of two, the second in shard 1.
fn cluster_names_by_shard() -> [String; 2] {
    [0, 1].map(|shard| {
        let names = (0..).map(|number| format!("c{number}"));
        let mut of_shard = names.filter(|name| ClusterKey::of("clusters", name).shard(2) == shard);
        of_shard.next().unwrap()
    })
}

#[test]
fn content_of_clusters_led_elsewhere_is_dropped() {
    let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
    let shared: SharedClock = Arc::new(clock.clone());
    let lease_terms = LeaseTerms::without_shards(2, shared);
    let stores = WatchStores::new(&[], ComparisonScope::LedClusters(lease_terms.clone()));
    let [one, other] = cluster_names_by_shard();
    // Before the first election, and before the clusters are listed, all content may be needed.
    list_kind(
        &stores,
        CONFIG_MAPS,
        [config_map_update(&one), config_map_update(&other), config_map_update("unowned")],
    );
    let all = stores.content_bytes();
    list_kind(
        &stores,
        HOSTED_CLUSTERS,
        [hosted_cluster_update(&one), hosted_cluster_update(&other)],
    );
    let (of_clusters, each) = (stores.content_bytes(), all / 3);
    assert!(of_clusters > each && of_clusters < all, "objects without a cluster keep no content");
    lease_terms.lead_until(0, clock.monotonic() + Duration::from_secs(15));
    lease_terms.mark_election_complete();
    stores.drop_unneeded_content();
    let of_one = stores.content_bytes();
    assert!(of_one > 0 && of_one < of_clusters);
    // The same applies to later updates; the uid is still cached.
    list_kind(&stores, CONFIG_MAPS, [config_map_update(&one), config_map_update(&other)]);
    assert_eq!(stores.content_bytes(), of_one);
    let namespace = format!("clusters-{other}");
    let key = object_key(OwnedKind::ConfigMap, &namespace, "m".to_owned());
    assert_eq!(stores.uid(&namespace, &key).as_deref(), Some("m"));
    assert_eq!(
        stores.objects_to_compare(&namespace, &DesiredDigests::new()).without_content,
        [key]
    );
    // Nothing is compared for a deleted cluster.
    list_kind(&stores, HOSTED_CLUSTERS, [hosted_cluster_update(&other)]);
    assert_eq!(stores.content_bytes(), 0);
}

#[test]
fn no_content_is_kept_without_comparison() {
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    let class = "SecretProviderClass";
    let class = object("secrets-store.csi.x-k8s.io/v1", class, "clusters-harbour", "disk");
    let kind = WatchedKind::Owned(OwnedKind::SecretProviderClass);
    list_kind(&stores, kind, [WatchUpdate::Applied(Box::new(class))]);
    assert_eq!(stores.content_bytes(), 0);
    let names = stores.object_names("clusters-harbour", OwnedKind::SecretProviderClass);
    assert_eq!(names, BTreeSet::from(["disk".to_owned()]));
}

#[test]
fn private_router_is_named_service_with_cluster_ip() {
    const ROUTERS: WatchedKind = WatchedKind::PrivateRouters;
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    list_kind(&stores, HOSTED_CLUSTERS, [hosted_cluster_update("harbour")]);
    let mut list_progress = ListProgress::default();
    let mut apply_service = |name: &str, address: &str| {
        let mut service = object("v1", "Service", "clusters-harbour", name);
        service.data = json!({"spec": {"clusterIP": address}});
        stores
            .apply_watch_update(
                ROUTERS,
                WatchUpdate::Applied(Box::new(service)),
                &mut list_progress,
                Duration::ZERO,
            )
            .len()
    };
    let known = || stores.private_router("clusters-harbour").map(|address| address.to_string());

    assert_eq!((apply_service("private-router", "None"), known()), (0, None));
    assert_eq!((apply_service("another-router", "172.30.0.7"), known()), (0, None));
    assert_eq!(apply_service("private-router", "172.30.0.100"), 1, "the cluster is enqueued");
    assert_eq!(known().as_deref(), Some("172.30.0.100"));
    assert_eq!(
        apply_service("private-router", "172.30.0.100"),
        0,
        "an unchanged address triggers nothing"
    );
    assert_eq!(apply_service("private-router", "fd00::1"), 1);
    assert_eq!(known().as_deref(), Some("fd00::1"));

    // A list without the Service has the same effect as its deletion.
    list_kind(&stores, ROUTERS, []);
    assert_eq!(known(), None);
}

/// A HostedCluster or its HostedClusterIdentities with this version, and with a condition of this
/// status.
fn object_with_condition(
    api_version: &str,
    kind: &str,
    version: &str,
    status: &str,
) -> DynamicObject {
    let mut object = object(api_version, kind, "clusters", "harbour");
    object.metadata.resource_version = Some(version.to_owned());
    object.data = json!({"status": {"conditions": [{
        "type": "Ours", "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    object
}

#[test]
fn older_watch_update_after_write_wakes_nothing() {
    let stores = WatchStores::new(&["Ours"], ComparisonScope::Nothing);
    let mut list_progress = ListProgress::default();
    let mut apply_update = |kind, object: &DynamicObject| {
        let found = WatchUpdate::Applied(Box::new(object.clone()));
        stores.apply_watch_update(kind, found, &mut list_progress, Duration::ZERO).len()
    };
    let key = ClusterKey::of("clusters", "harbour");
    let of_cluster = |version: &str, status: &str| {
        use lanyard_api::HostedCluster;
        object_with_condition(HostedCluster::API_VERSION, HostedCluster::KIND, version, status)
    };
    assert_eq!(apply_update(HOSTED_CLUSTERS, &of_cluster("9", "False")), 1);
    stores.store_conditions(&key, of_cluster("11", "True"));
    assert_eq!(apply_update(HOSTED_CLUSTERS, &of_cluster("10", "False")), 0);
    assert_eq!(stores.cluster(&key).unwrap().conditions[0].status, "True");
    assert_eq!(apply_update(HOSTED_CLUSTERS, &of_cluster("11", "True")), 0);
    assert_eq!(apply_update(HOSTED_CLUSTERS, &of_cluster("12", "False")), 1);

    let of_identities = |version: &str, status: &str| {
        let (api_version, kind) =
            (HostedClusterIdentities::API_VERSION, HostedClusterIdentities::KIND);
        object_with_condition(api_version, kind, version, status)
    };
    let parsed_identities =
        |version: &str, status: &str| parse_object(&of_identities(version, status)).unwrap();
    let known =
        || stores.identities_report(&key).unwrap().status.unwrap().conditions[0].status.clone();
    stores.store_identities(&key, parsed_identities("11", "True"));
    assert_eq!(apply_update(WatchedKind::Identities, &of_identities("10", "False")), 0);
    assert_eq!(known(), "True");
    assert_eq!(apply_update(WatchedKind::Identities, &of_identities("12", "False")), 1);
    assert_eq!(known(), "False");
    // A recreated object may have any version.
    let mut other = of_identities("3", "True");
    other.metadata.uid = Some("other".to_owned());
    assert_eq!(apply_update(WatchedKind::Identities, &other), 1);
}

#[test]
fn listed_objects_are_compared_without_fetching() {
    let clock: SharedClock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
    let stores = WatchStores::new(&[], ComparisonScope::LedClusters(LeaseTerms::permanent(clock)));
    list_kind(&stores, CONFIG_MAPS, [config_map_update("harbour")]);
    let to_compare = stores.objects_to_compare("clusters-harbour", &DesiredDigests::new());
    assert_eq!(to_compare.without_content, []);
    assert_eq!(to_compare.observed.len(), 1);
}

fn forbidden_error() -> ApiError {
    ApiError::Refused {
        action: "watch configmaps".to_owned(),
        status: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        retry_after: None,
    }
}

#[test]
fn listed_kind_becomes_stale_after_repeated_refusals() {
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    let mut list_progress = ListProgress::default();
    list_kind(&stores, HOSTED_CLUSTERS, [hosted_cluster_update("harbour")]);
    list_kind(&stores, CONFIG_MAPS, [config_map_update("harbour")]);
    let mut fail_watch = |refusals| {
        stores
            .apply_watch_update(
                CONFIG_MAPS,
                WatchUpdate::Failed(forbidden_error(), refusals),
                &mut list_progress,
                Duration::ZERO,
            )
            .len()
    };
    assert_eq!([0, 1, 7].map(&mut fail_watch), [0; 3]);
    assert!(
        matches!(stores.kind_state(CONFIG_MAPS), KindState::Listed),
        "a few refusals change nothing"
    );
    assert_eq!((fail_watch(8), fail_watch(9)), (1, 0), "the cluster is enqueued once");
    assert!(matches!(stores.kind_state(CONFIG_MAPS), KindState::Stale(_)));
    assert_eq!(stores.object_names("clusters-harbour", OwnedKind::ConfigMap).len(), 1);
    assert_eq!(
        list_kind(&stores, CONFIG_MAPS, [config_map_update("harbour")]).len(),
        1,
        "the cluster is enqueued again"
    );
    assert!(matches!(stores.kind_state(CONFIG_MAPS), KindState::Listed));
}

#[test]
fn unlisted_kind_is_unusable_after_first_refusal() {
    let stores = WatchStores::new(&[], ComparisonScope::Nothing);
    let mut list_progress = ListProgress::default();
    list_kind(&stores, HOSTED_CLUSTERS, [hosted_cluster_update("harbour")]);
    let unreached = ApiError::Unreached { action: "watch".to_owned(), problem: "reset".to_owned() };
    assert_eq!(
        stores
            .apply_watch_update(
                CONFIG_MAPS,
                WatchUpdate::Failed(unreached, 0),
                &mut list_progress,
                Duration::ZERO
            )
            .len(),
        0
    );
    assert!(
        matches!(stores.kind_state(CONFIG_MAPS), KindState::Unlisted),
        "a connection error is not a refusal"
    );
    assert_eq!(
        stores
            .apply_watch_update(
                CONFIG_MAPS,
                WatchUpdate::Failed(forbidden_error(), 1),
                &mut list_progress,
                Duration::ZERO
            )
            .len(),
        1
    );
    assert!(matches!(stores.kind_state(CONFIG_MAPS), KindState::Unusable(_)));
    // A starting server's errors do not replace the first error.
    let state_error = |stores: &WatchStores| match stores.kind_state(CONFIG_MAPS) {
        KindState::Unusable(error) => error.to_string(),
        _ => String::new(),
    };
    let before = state_error(&stores);
    let other = || ApiError::NotServed { action: "watch".to_owned(), message: "no".to_owned() };
    stores.apply_watch_update(
        CONFIG_MAPS,
        WatchUpdate::Failed(other(), 1),
        &mut list_progress,
        Duration::ZERO,
    );
    assert_eq!(state_error(&stores), before);
    stores.apply_watch_update(
        CONFIG_MAPS,
        WatchUpdate::Failed(other(), 8),
        &mut list_progress,
        Duration::ZERO,
    );
    assert_ne!(state_error(&stores), before);
}
