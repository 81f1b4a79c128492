use std::sync::Arc;

use lanyard_clock::{Clock as _, ManualClock, SharedClock};
use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> DynamicObject {
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
        "name": name, "namespace": namespace, "uid": name, "resourceVersion": "1"}});
    serde_json::from_value(object).unwrap()
}

fn cluster(name: &str) -> Seen {
    let api_version = lanyard_api::HostedCluster::API_VERSION;
    let kind = lanyard_api::HostedCluster::KIND;
    Seen::There(Box::new(object(api_version, kind, "clusters", name)))
}

fn map(cluster: &str) -> Seen {
    Seen::There(Box::new(object("v1", "ConfigMap", &format!("clusters-{cluster}"), "m")))
}

const CLUSTERS: WatchedKind = WatchedKind::HostedClusters;
const MAPS: WatchedKind = WatchedKind::Owned(OwnedKind::ConfigMap);

fn list(stores: &Stores, kind: WatchedKind, objects: impl IntoIterator<Item = Seen>) -> News {
    let mut telling = Telling::default();
    let all = [Seen::Anew].into_iter().chain(objects).chain([Seen::Complete]);
    all.flat_map(|seen| stores.see(kind, seen, &mut telling, Duration::ZERO)).collect()
}

/// Two names whose shards of two are the first and the second.
fn names() -> [String; 2] {
    [0, 1].map(|shard| {
        let names = (0..).map(|number| format!("c{number}"));
        let mut of_shard = names.filter(|name| ClusterKey::of("clusters", name).shard(2) == shard);
        of_shard.next().unwrap()
    })
}

#[test]
fn the_content_of_what_another_replica_leads_is_not_kept() {
    let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
    let shared: SharedClock = Arc::new(clock.clone());
    let tenures = Tenures::none(2, shared);
    let stores = Stores::new(&[], Compared::Led(tenures.clone()));
    let [one, other] = names();
    // Before anybody leads, and before anybody knows whose a namespace is, all of it may be needed.
    list(&stores, MAPS, [map(&one), map(&other), map("nobodys")]);
    let all = stores.content_bytes();
    list(&stores, CLUSTERS, [cluster(&one), cluster(&other)]);
    let (of_clusters, each) = (stores.content_bytes(), all / 3);
    assert!(of_clusters > each && of_clusters < all, "what is of no cluster is of no use");
    tenures.extend(0, clock.monotonic() + Duration::from_secs(15));
    tenures.decided();
    stores.trim();
    let of_one = stores.content_bytes();
    assert!(of_one > 0 && of_one < of_clusters);
    // Nor is what comes later; the uid is known all the same.
    list(&stores, MAPS, [map(&one), map(&other)]);
    assert_eq!(stores.content_bytes(), of_one);
    let room = format!("clusters-{other}");
    let key = object_key(OwnedKind::ConfigMap, &room, "m".to_owned());
    assert_eq!(stores.uid(&room, &key).as_deref(), Some("m"));
    assert_eq!(stores.unsettled(&room, &Wished::new()).unknown, [key]);
    // A cluster that is gone leaves nothing to be compared.
    list(&stores, CLUSTERS, [cluster(&other)]);
    assert_eq!(stores.content_bytes(), 0);
}

#[test]
fn who_compares_nothing_keeps_no_content() {
    let stores = Stores::new(&[], Compared::Nobodys);
    let class = "SecretProviderClass";
    let class = object("secrets-store.csi.x-k8s.io/v1", class, "clusters-harbour", "disk");
    let kind = WatchedKind::Owned(OwnedKind::SecretProviderClass);
    list(&stores, kind, [Seen::There(Box::new(class))]);
    assert_eq!(stores.content_bytes(), 0);
    let names = stores.names("clusters-harbour", OwnedKind::SecretProviderClass);
    assert_eq!(names, BTreeSet::from(["disk".to_owned()]));
}

#[test]
fn the_router_to_private_vaults_is_the_service_of_its_name_while_it_has_an_address() {
    const ROUTERS: WatchedKind = WatchedKind::PrivateRouters;
    let stores = Stores::new(&[], Compared::Nobodys);
    list(&stores, CLUSTERS, [cluster("harbour")]);
    let mut telling = Telling::default();
    let mut see = |name: &str, address: &str| {
        let mut service = object("v1", "Service", "clusters-harbour", name);
        service.data = json!({"spec": {"clusterIP": address}});
        stores.see(ROUTERS, Seen::There(Box::new(service)), &mut telling, Duration::ZERO).len()
    };
    let known = || stores.private_router("clusters-harbour").map(|address| address.to_string());

    assert_eq!((see("private-router", "None"), known()), (0, None));
    assert_eq!((see("another-router", "172.30.0.7"), known()), (0, None));
    assert_eq!(see("private-router", "172.30.0.100"), 1, "the cluster is looked at");
    assert_eq!(known().as_deref(), Some("172.30.0.100"));
    assert_eq!(see("private-router", "172.30.0.100"), 0, "it is no news");
    assert_eq!(see("private-router", "fd00::1"), 1);
    assert_eq!(known().as_deref(), Some("fd00::1"));

    // A list that does not name it any more takes it away as its deletion does.
    list(&stores, ROUTERS, []);
    assert_eq!(known(), None);
}

/// What a watch tells of a HostedCluster or of its identities that has this version and a condition of
/// this status.
fn versioned(api_version: &str, kind: &str, version: &str, status: &str) -> DynamicObject {
    let mut object = object(api_version, kind, "clusters", "harbour");
    object.metadata.resource_version = Some(version.to_owned());
    object.data = json!({"status": {"conditions": [{
        "type": "Ours", "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    object
}

#[test]
fn what_a_watch_tells_after_the_answer_to_a_later_write_is_no_news() {
    let stores = Stores::new(&["Ours"], Compared::Nobodys);
    let mut telling = Telling::default();
    let mut see = |kind, object: &DynamicObject| {
        let seen = Seen::There(Box::new(object.clone()));
        stores.see(kind, seen, &mut telling, Duration::ZERO).len()
    };
    let key = ClusterKey::of("clusters", "harbour");
    let of_cluster = |version: &str, status: &str| {
        use lanyard_api::HostedCluster;
        versioned(HostedCluster::API_VERSION, HostedCluster::KIND, version, status)
    };
    assert_eq!(see(CLUSTERS, &of_cluster("9", "False")), 1);
    stores.conditions_written(&key, of_cluster("11", "True"));
    assert_eq!(see(CLUSTERS, &of_cluster("10", "False")), 0);
    assert_eq!(stores.cluster(&key).unwrap().conditions[0].status, "True");
    assert_eq!(see(CLUSTERS, &of_cluster("11", "True")), 0);
    assert_eq!(see(CLUSTERS, &of_cluster("12", "False")), 1);

    let of_identities = |version: &str, status: &str| {
        let (api_version, kind) =
            (HostedClusterIdentities::API_VERSION, HostedClusterIdentities::KIND);
        versioned(api_version, kind, version, status)
    };
    let told = |version: &str, status: &str| parse(&of_identities(version, status)).unwrap();
    let known = || stores.identities(&key).unwrap().status.unwrap().conditions[0].status.clone();
    stores.told(&key, told("11", "True"));
    assert_eq!(see(WatchedKind::Identities, &of_identities("10", "False")), 0);
    assert_eq!(known(), "True");
    assert_eq!(see(WatchedKind::Identities, &of_identities("12", "False")), 1);
    assert_eq!(known(), "False");
    // One that was made anew begins with any version.
    let mut other = of_identities("3", "True");
    other.metadata.uid = Some("other".to_owned());
    assert_eq!(see(WatchedKind::Identities, &other), 1);
}

#[test]
fn what_a_list_told_is_compared_without_being_read_again() {
    let clock: SharedClock = Arc::new(ManualClock::starting_at(Timestamp::UNIX_EPOCH));
    let stores = Stores::new(&[], Compared::Led(Tenures::for_ever(clock)));
    list(&stores, MAPS, [map("harbour")]);
    let unsettled = stores.unsettled("clusters-harbour", &Wished::new());
    assert_eq!(unsettled.unknown, []);
    assert_eq!(unsettled.observed.len(), 1);
}

fn refused() -> ApiError {
    ApiError::Refused {
        action: "watch configmaps".to_owned(),
        status: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        retry_after: None,
    }
}

#[test]
fn a_kind_that_is_refused_for_good_after_it_was_listed_is_stale_until_it_is_listed_again() {
    let stores = Stores::new(&[], Compared::Nobodys);
    let mut telling = Telling::default();
    list(&stores, CLUSTERS, [cluster("harbour")]);
    list(&stores, MAPS, [map("harbour")]);
    let mut broken = |refusals| {
        stores.see(MAPS, Seen::Broken(refused(), refusals), &mut telling, Duration::ZERO).len()
    };
    assert_eq!([0, 1, 7].map(&mut broken), [0; 3]);
    assert!(matches!(stores.kind(MAPS), Kind::Listed), "a moment is nothing");
    assert_eq!((broken(8), broken(9)), (1, 0), "the cluster is told once");
    assert!(matches!(stores.kind(MAPS), Kind::Stale(_)));
    assert_eq!(stores.names("clusters-harbour", OwnedKind::ConfigMap).len(), 1);
    assert_eq!(list(&stores, MAPS, [map("harbour")]).len(), 1, "and that it is good again");
    assert!(matches!(stores.kind(MAPS), Kind::Listed));
}

#[test]
fn a_kind_that_was_never_listed_is_unusable_at_its_first_refusal() {
    let stores = Stores::new(&[], Compared::Nobodys);
    let mut telling = Telling::default();
    list(&stores, CLUSTERS, [cluster("harbour")]);
    let away = ApiError::Unreached { action: "watch".to_owned(), problem: "reset".to_owned() };
    assert_eq!(stores.see(MAPS, Seen::Broken(away, 0), &mut telling, Duration::ZERO).len(), 0);
    assert!(matches!(stores.kind(MAPS), Kind::Unlisted), "an API that is away refuses nothing");
    assert_eq!(stores.see(MAPS, Seen::Broken(refused(), 1), &mut telling, Duration::ZERO).len(), 1);
    assert!(matches!(stores.kind(MAPS), Kind::Unusable(_)));
    // What a server that begins says instead is not told for what it was before.
    let told = |stores: &Stores| match stores.kind(MAPS) {
        Kind::Unusable(error) => error.to_string(),
        _ => String::new(),
    };
    let before = told(&stores);
    let other = || ApiError::NotServed { action: "watch".to_owned(), message: "no".to_owned() };
    stores.see(MAPS, Seen::Broken(other(), 1), &mut telling, Duration::ZERO);
    assert_eq!(told(&stores), before);
    stores.see(MAPS, Seen::Broken(other(), 8), &mut telling, Duration::ZERO);
    assert_ne!(told(&stores), before);
}
