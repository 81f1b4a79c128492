//! The cost of a cluster, and isolation: failing clusters among a thousand healthy ones.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use lanyard_clock::Clock as _;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::OperatorRole;
use serde_json::{Value, json};

use crate::canaries::{self, TOO_MANY_REQUESTS};
use crate::fixture::{
    HOSTED_CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, OperatorFixture, SECOND,
    SECRET_PROVIDER_CLASSES, change_vault_externally, class_vault, cluster_name, concerns_cluster,
    control_plane_namespace, hosted_cluster, is_fully_applied, is_status_reported, is_write_for,
};
use crate::management_api::{FakeManagementApi, InjectedResponse};
use crate::request_path::RequestVerb;

const CLUSTER_COUNT: usize = 1_000;
const ODD_CLUSTER: usize = 500;

#[tokio::test]
async fn new_cluster_objects_are_written_once() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0));
    });
    fixture
        .advance_until("the cluster has all objects", 30 * SECOND, || {
            is_fully_applied(&fixture.server, 0)
        })
        .await;
    fixture.advance(MINUTE).await;
    let written = fixture.server.describe_requests(is_write_for(0));
    let once: BTreeSet<_> = written.iter().collect();
    assert!(once.len() == written.len() && once.len() > 30, "{written:#?}");
    let listed = fixture.server.describe_requests(|request| {
        request.verb == RequestVerb::List && concerns_cluster(request, 0)
    });
    assert!(listed.is_empty(), "nothing can be in a new namespace: {listed:#?}");
}

#[tokio::test]
async fn failing_status_write_does_not_delay_999_clusters() {
    let fixture = OperatorFixture::start(OperatorRole::IdentityOnly, |server| {
        (0..CLUSTER_COUNT)
            .for_each(|number| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
    });
    fixture.server.inject(|request| {
        (request.verb.is_write() && concerns_cluster(request, ODD_CLUSTER))
            .then(|| InjectedResponse::error_status(500, "InternalError"))
    });
    let others = || {
        (0..CLUSTER_COUNT)
            .filter(|it| *it != ODD_CLUSTER)
            .all(|it| is_status_reported(&fixture.server, it))
    };
    fixture.advance_until("the status of the others is reported", SECOND, others).await;
    fixture.server.clear_requests();
    fixture.advance(10 * MINUTE).await;
    let tries = fixture.server.count_requests(is_write_for(ODD_CLUSTER));
    assert!(tries <= 130, "{tries} tries in ten minutes");
    assert_eq!(
        fixture.server.count_requests(|it| it.verb.is_write()),
        tries,
        "writes only for the failing cluster"
    );
    fixture.server.clear_injection();
    fixture
        .advance_until("the failing status is reported", 11 * SECOND, || {
            is_status_reported(&fixture.server, ODD_CLUSTER)
        })
        .await;
}

/// Templates without deployments. Deployments are most of the objects, and for these tests an object like
/// any other; without them a thousand clusters are created in seconds.
async fn templates_without_deployments() -> WorkloadTemplates {
    let fixture = OperatorFixture::start_converged(1).await;
    let names = fixture.server.objects("deployments", &control_plane_namespace(0)).into_iter();
    let names: Vec<_> = names.map(|it| it["metadata"]["name"].clone()).collect();
    WorkloadTemplates::parse(&json!({"without": names}).to_string()).unwrap()
}

/// Gives clusters another secret, and returns the time until their SecretProviderClasses name it.
async fn time_to_apply_secret(
    fixture: &OperatorFixture,
    numbers: Range<usize>,
    secret: &str,
) -> Duration {
    for number in numbers.clone() {
        fixture.server.change_externally(
            (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)),
            |it| {
                *it.pointer_mut(DISK_SECRET).unwrap() = json!(secret);
            },
        );
    }
    let class = |number| {
        fixture
            .server
            .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number), CLASS)
            .unwrap()
    };
    let are_so = || numbers.clone().all(|number| class(number).to_string().contains(secret));
    fixture.advance_until("the classes name another secret", 5 * SECOND, are_so).await
}

#[tokio::test]
async fn three_failing_clusters_do_not_delay_a_thousand() {
    const REFUSED: usize = 700;
    let mut odd = hosted_cluster(ODD_CLUSTER);
    odd["spec"]["dns"]["publicZoneID"] = json!(7);
    let fixture = OperatorFixture::start_with_templates(
        OperatorRole::All,
        templates_without_deployments().await,
        |server| {
            (0..CLUSTER_COUNT)
                .filter(|it| *it != ODD_CLUSTER)
                .for_each(|it| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(it)));
            server.put_externally(HOSTED_CLUSTERS, odd);
        },
    );
    let is_made = |number| {
        fixture.server.object_count(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number)) == 9
            && is_status_reported(&fixture.server, number)
    };
    let others = || (0..CLUSTER_COUNT).filter(|number| *number != ODD_CLUSTER).all(is_made);
    fixture.advance_until("all other clusters have all objects", 5 * SECOND, others).await;
    let report = fixture
        .server
        .object(IDENTITIES, NAMESPACE, &cluster_name(ODD_CLUSTER))
        .unwrap()
        .to_string();
    assert!(report.contains("InvalidHostedCluster") && report.contains("publicZoneID"), "{report}");
    assert_eq!(
        fixture.server.object_count(SECRET_PROVIDER_CLASSES, &control_plane_namespace(ODD_CLUSTER)),
        0,
        "an invalid cluster gets no objects"
    );
    let usual = time_to_apply_secret(&fixture, 100..150, "calm").await;

    // Another client keeps changing an object of one cluster, and all writes for another cluster fail.
    fixture.server.inject(|request| {
        (request.verb.is_write() && concerns_cluster(request, REFUSED))
            .then(|| InjectedResponse::error_status(409, "Conflict"))
    });
    let good = [0, REFUSED].map(|number| class_vault(&fixture.server, number, CLASS));
    change_vault_externally(&fixture.server, REFUSED, CLASS, "elsewhere");
    fixture.server.clear_requests();
    for round in 0..150 {
        change_vault_externally(&fixture.server, 0, CLASS, &format!("elsewhere-{round}"));
        fixture.advance(SECOND / 5).await;
    }
    let (conflicting, refused) = (is_write_for(0), is_write_for(REFUSED));
    assert!(
        (5..=20).contains(&fixture.server.count_requests(&conflicting)),
        "{}",
        fixture.server.count_requests(&conflicting)
    );
    assert!(
        (2..=12).contains(&fixture.server.count_requests(&refused)),
        "{}",
        fixture.server.count_requests(&refused)
    );
    let of_others = fixture
        .server
        .describe_requests(|it| it.verb.is_write() && !conflicting(it) && !refused(it));
    assert!(of_others.is_empty(), "no writes for other clusters: {of_others:?}");
    // Meanwhile a spec change of other clusters takes the usual time.
    assert_eq!(time_to_apply_secret(&fixture, 150..200, "during-conflict").await, usual);

    fixture.server.clear_injection();
    let are_back =
        || [0, REFUSED].map(|number| class_vault(&fixture.server, number, CLASS)) == good;
    fixture.advance_until("both clusters are in sync", 2 * MINUTE, are_back).await;
    fixture.server.change_externally(
        (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(ODD_CLUSTER)),
        |odd| {
            odd["spec"]["dns"]["publicZoneID"] = json!("zone");
        },
    );
    fixture
        .advance_until("the third cluster has all objects", 5 * SECOND, || is_made(ODD_CLUSTER))
        .await;
}

/// The `ready` status and the reason of each identity.
fn identity_readiness(report: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let identities = report["status"]["identities"].as_array().cloned().unwrap_or_default();
    identities.iter().map(|it| (text(&it["ready"]), text(&it["reason"]))).collect()
}

fn reported_identities(server: &FakeManagementApi, number: usize) -> Value {
    server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap_or_default()
}

/// The number of identities of a cluster that are ready for a reason.
fn ready_count(server: &FakeManagementApi, number: usize, reason: &str) -> usize {
    identity_readiness(&reported_identities(server, number))
        .iter()
        .filter(|it| it.0 == "True" && it.1 == reason)
        .count()
}

/// Changes clusters, and returns the time until the reported status has their generation.
async fn time_to_observe_generation(
    fixture: &OperatorFixture,
    numbers: Range<usize>,
    domain: &str,
) -> Duration {
    for number in numbers.clone() {
        fixture.server.change_externally(
            (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)),
            |it| {
                it["spec"]["dns"]["baseDomain"] = json!(domain);
            },
        );
    }
    let is_observed = |number| {
        let cluster =
            fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)).unwrap();
        reported_identities(&fixture.server, number)["status"]["observedGeneration"]
            == cluster["metadata"]["generation"]
    };
    let are_observed = || numbers.clone().all(is_observed);
    fixture.advance_until("the status has the current generation", 5 * SECOND, are_observed).await
}

/// The number of writes for clusters: events, and writes of the reported status.
fn write_counts(fixture: &OperatorFixture, numbers: &Range<usize>) -> (usize, usize) {
    let count = |collection: &str| {
        fixture.server.count_requests(|it| {
            let is_about = |number| is_write_for(number)(it);
            it.path.collection == collection && numbers.clone().any(is_about)
        })
    };
    (count("events"), count(IDENTITIES))
}

#[tokio::test]
async fn arm_throttling_keeps_identities_ready_and_delays_no_cluster() {
    const ONE: Range<usize> = ODD_CLUSTER..ODD_CLUSTER + 1;
    const MANY: Range<usize> = 600..700;
    let fixture = OperatorFixture::start(OperatorRole::IdentityOnly, |server| {
        for number in 0..CLUSTER_COUNT {
            server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number));
            canaries::put_classes_and_canaries(server, number);
        }
    });
    let server = &fixture.server;
    let all = |numbers: Range<usize>, arm: &str| {
        numbers.into_iter().all(|number| {
            let of_arm = ready_count(server, number, arm);
            if arm == AS_EXPECTED {
                of_arm == 9
            } else {
                of_arm == 8 && ready_count(server, number, AS_EXPECTED) == 1
            }
        })
    };
    fixture
        .advance_until("all identities work", 5 * SECOND, || all(0..CLUSTER_COUNT, AS_EXPECTED))
        .await;
    fixture.advance(10 * SECOND).await;
    server.delay_writes(SECOND / 50);
    let usual = time_to_observe_generation(&fixture, 100..150, "calm.example.com").await;
    assert!(usual > SECOND / 50 * 5, "four workers take {usual:?} for fifty writes");
    let calm = server.version();
    server.clear_requests();

    // In one cluster one canary after the other is throttled, in a hundred others all at the same time.
    let set_throttled = |number, component, throttled: bool| {
        let since = throttled.then(|| fixture.clock.now());
        canaries::set_throttled(server, number, component, since);
    };
    let one_after_another = async |throttled| {
        for component in canaries::arm_components() {
            set_throttled(ODD_CLUSTER, component, throttled);
            fixture.advance(7 * SECOND).await;
        }
    };
    let all_at_once = |throttled| {
        for number in MANY {
            canaries::arm_components()
                .for_each(|component| set_throttled(number, component, throttled));
        }
    };
    for (is_throttled, arm, hour) in [(true, TOO_MANY_REQUESTS, 57), (false, AS_EXPECTED, 12)] {
        server.clear_requests();
        one_after_another(is_throttled).await;
        let during =
            time_to_observe_generation(&fixture, 150..200, &format!("{arm}.example.com")).await;
        all_at_once(is_throttled);
        fixture
            .advance_until("all throttled identities are reported", MINUTE, || all(MANY, arm))
            .await;
        fixture.advance(MINUTE).await;
        assert!(all(ONE, arm));
        // One event per canary. The status is written once per change: for canaries that report at the same
        // time, that is once.
        assert_eq!(write_counts(&fixture, &ONE), (8, 8), "events and status writes");
        assert_eq!(write_counts(&fixture, &MANY), (8 * MANY.len(), MANY.len()));
        server.clear_requests();
        let half = hour * MINUTE / 2;
        fixture.advance(half).await;
        let amid =
            time_to_observe_generation(&fixture, 200..250, &format!("{arm}.example.com")).await;
        assert_eq!((during, amid), (usual, usual), "other clusters are not delayed");
        fixture.advance(half).await;
        let idle = server.count_requests(|it| it.verb.is_write());
        assert_eq!(idle, 50, "only the changed clusters are written");
    }
    let changes = server.object_changes(IDENTITIES, calm);
    let is_ready =
        |report: &Value| identity_readiness(report).iter().filter(|it| it.0 == "True").count() == 9;
    assert!(
        changes.len() > 200 && changes.iter().all(is_ready),
        "no identity ever stops being ready"
    );
}

/// The types and statuses of the conditions of a HostedCluster.
fn condition_statuses(server: &FakeManagementApi, number: usize) -> Vec<(String, String)> {
    let cluster = server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|it| (text(&it["type"]), text(&it["status"]))).collect()
}

#[tokio::test]
async fn arm_throttling_changes_no_object_and_no_condition() {
    let fixture = OperatorFixture::start_converged(2).await;
    let server = &fixture.server;
    (0..2).for_each(|number| canaries::put_canary_pods(server, number));
    let is_well = |number| ready_count(server, number, AS_EXPECTED) == 9;
    fixture.advance_until("all identities work", MINUTE, || (0..2).all(is_well)).await;
    fixture.advance(MINUTE).await;
    let calm = [0, 1].map(|number| condition_statuses(server, number));
    assert!(calm[0].contains(&("ValidAzureNetwork".to_owned(), "True".to_owned())), "{calm:?}");
    server.clear_requests();
    let set_throttled = |throttled: Option<_>| {
        canaries::arm_components()
            .for_each(|component| canaries::set_throttled(server, 0, component, throttled));
    };
    set_throttled(Some(fixture.clock.now()));
    let is_reported = || ready_count(server, 0, TOO_MANY_REQUESTS) == 8;
    fixture.advance_until("the throttling is reported", MINUTE, is_reported).await;
    for _ in 0..60 {
        fixture.advance(MINUTE).await;
        assert_eq!([0, 1].map(|number| condition_statuses(server, number)), calm);
    }
    set_throttled(None);
    fixture.advance_until("the throttling ends", MINUTE, || is_well(0)).await;
    fixture.advance(MINUTE).await;
    // Conditions and status are written when the throttling starts and when it ends.
    let is_report = |it: &crate::api_state::ReceivedRequest| {
        ["events", IDENTITIES, HOSTED_CLUSTERS].contains(&&*it.path.collection)
    };
    let other = server.describe_requests(|it| it.verb.is_write() && !is_report(it));
    assert!(other.is_empty(), "{other:?}");
    let written = server.count_requests(|it| it.verb.is_write() && it.path.collection != "events");
    assert!((2..=4).contains(&written), "{written} writes");
    assert_eq!(server.count_requests(is_write_for(1)), 0);
}

const AS_EXPECTED: &str = "AsExpected";
const CLASS: &str = "managed-azure-disk-csi";
const DISK_SECRET: &str = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                           controlPlane/disk/credentialsSecretName";
