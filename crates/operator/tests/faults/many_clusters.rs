//! What one cluster costs, and one of a thousand that cannot be worked with.

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
    let stage = OperatorFixture::start(OperatorRole::All, |server| {
        server.put_externally(HOSTED_CLUSTERS, hosted_cluster(0))
    });
    stage
        .advance_until("it has everything", 30 * SECOND, || is_fully_applied(&stage.server, 0))
        .await;
    stage.advance(MINUTE).await;
    let written = stage.server.describe_requests(is_write_for(0));
    let once: BTreeSet<_> = written.iter().collect();
    assert!(once.len() == written.len() && once.len() > 30, "{written:#?}");
    let listed = stage
        .server
        .describe_requests(|asked| asked.verb == RequestVerb::List && concerns_cluster(asked, 0));
    assert!(listed.is_empty(), "nothing can be in a new namespace: {listed:#?}");
}

#[tokio::test]
async fn failing_status_write_does_not_delay_999_clusters() {
    let stage = OperatorFixture::start(OperatorRole::IdentityOnly, |server| {
        (0..CLUSTER_COUNT)
            .for_each(|number| server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number)));
    });
    stage.server.inject(|asked| {
        (asked.verb.is_write() && concerns_cluster(asked, ODD_CLUSTER))
            .then(|| InjectedResponse::error_status(500, "InternalError"))
    });
    let others = || {
        (0..CLUSTER_COUNT)
            .filter(|it| *it != ODD_CLUSTER)
            .all(|it| is_status_reported(&stage.server, it))
    };
    stage.advance_until("the others are told of", SECOND, others).await;
    stage.server.clear_requests();
    stage.advance(10 * MINUTE).await;
    let tries = stage.server.count_requests(is_write_for(ODD_CLUSTER));
    assert!(tries <= 130, "{tries} tries in ten minutes");
    assert_eq!(stage.server.count_requests(|it| it.verb.is_write()), tries, "of it alone");
    stage.server.clear_injection();
    stage
        .advance_until("it is told of", 11 * SECOND, || {
            is_status_reported(&stage.server, ODD_CLUSTER)
        })
        .await;
}

/// Without deployments, which are most of what there is to write and nothing else than other objects
/// here: a thousand clusters are made in seconds so.
async fn templates_without_deployments() -> WorkloadTemplates {
    let stage = OperatorFixture::start_converged(1).await;
    let names = stage.server.objects("deployments", &control_plane_namespace(0)).into_iter();
    let names: Vec<_> = names.map(|it| it["metadata"]["name"].clone()).collect();
    WorkloadTemplates::parse(&json!({"without": names}).to_string()).unwrap()
}

/// Gives clusters another secret, and says how long it takes until their classes say so.
async fn time_to_apply_secret(
    stage: &OperatorFixture,
    numbers: Range<usize>,
    secret: &str,
) -> Duration {
    for number in numbers.clone() {
        stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)), |it| {
            *it.pointer_mut(DISK_SECRET).unwrap() = json!(secret);
        });
    }
    let class = |number| {
        stage
            .server
            .object(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number), CLASS)
            .unwrap()
    };
    let are_so = || numbers.clone().all(|number| class(number).to_string().contains(secret));
    stage.advance_until("the classes name another secret", 5 * SECOND, are_so).await
}

#[tokio::test]
async fn three_failing_clusters_do_not_delay_a_thousand() {
    const REFUSED: usize = 700;
    let mut odd = hosted_cluster(ODD_CLUSTER);
    odd["spec"]["dns"]["publicZoneID"] = json!(7);
    let stage = OperatorFixture::start_with_templates(
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
        stage.server.object_count(SECRET_PROVIDER_CLASSES, &control_plane_namespace(number)) == 9
            && is_status_reported(&stage.server, number)
    };
    let others = || (0..CLUSTER_COUNT).filter(|number| *number != ODD_CLUSTER).all(is_made);
    stage.advance_until("all others have everything", 5 * SECOND, others).await;
    let told =
        stage.server.object(IDENTITIES, NAMESPACE, &cluster_name(ODD_CLUSTER)).unwrap().to_string();
    assert!(told.contains("InvalidHostedCluster") && told.contains("publicZoneID"), "{told}");
    assert_eq!(
        stage.server.object_count(SECRET_PROVIDER_CLASSES, &control_plane_namespace(ODD_CLUSTER)),
        0,
        "nothing is made of a guess"
    );
    let usual = time_to_apply_secret(&stage, 100..150, "calm").await;

    // One is fought over, and nothing can be written about another one.
    stage.server.inject(|asked| {
        (asked.verb.is_write() && concerns_cluster(asked, REFUSED))
            .then(|| InjectedResponse::error_status(409, "Conflict"))
    });
    let good = [0, REFUSED].map(|number| class_vault(&stage.server, number, CLASS));
    change_vault_externally(&stage.server, REFUSED, CLASS, "elsewhere");
    stage.server.clear_requests();
    for round in 0..150 {
        change_vault_externally(&stage.server, 0, CLASS, &format!("elsewhere-{round}"));
        stage.advance(SECOND / 5).await;
    }
    let (fought, refused) = (is_write_for(0), is_write_for(REFUSED));
    assert!(
        (5..=20).contains(&stage.server.count_requests(&fought)),
        "{}",
        stage.server.count_requests(&fought)
    );
    assert!(
        (2..=12).contains(&stage.server.count_requests(&refused)),
        "{}",
        stage.server.count_requests(&refused)
    );
    let of_others =
        stage.server.describe_requests(|it| it.verb.is_write() && !fought(it) && !refused(it));
    assert!(of_others.is_empty(), "nothing is written about others: {of_others:?}");
    // In the middle of it others take wishes as they did before.
    assert_eq!(time_to_apply_secret(&stage, 150..200, "stormy").await, usual);

    stage.server.clear_injection();
    let are_back = || [0, REFUSED].map(|number| class_vault(&stage.server, number, CLASS)) == good;
    stage.advance_until("both are as they should be", 2 * MINUTE, are_back).await;
    stage.server.change_externally(
        (HOSTED_CLUSTERS, NAMESPACE, &cluster_name(ODD_CLUSTER)),
        |odd| {
            odd["spec"]["dns"]["publicZoneID"] = json!("zone");
        },
    );
    stage.advance_until("the third has everything", 5 * SECOND, || is_made(ODD_CLUSTER)).await;
}

/// What is told of each identity of a cluster: whether it is ready, and why.
fn identity_readiness(told: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let identities = told["status"]["identities"].as_array().cloned().unwrap_or_default();
    identities.iter().map(|it| (text(&it["ready"]), text(&it["reason"]))).collect()
}

fn reported_identities(server: &FakeManagementApi, number: usize) -> Value {
    server.object(IDENTITIES, NAMESPACE, &cluster_name(number)).unwrap_or_default()
}

/// How many identities of a cluster are ready for a reason.
fn ready_count(server: &FakeManagementApi, number: usize, reason: &str) -> usize {
    identity_readiness(&reported_identities(server, number))
        .iter()
        .filter(|it| it.0 == "True" && it.1 == reason)
        .count()
}

/// Changes clusters, and says how long it takes until what is told is of what they are now.
async fn time_to_observe_generation(
    stage: &OperatorFixture,
    numbers: Range<usize>,
    domain: &str,
) -> Duration {
    for number in numbers.clone() {
        stage.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)), |it| {
            it["spec"]["dns"]["baseDomain"] = json!(domain);
        });
    }
    let is_told = |number| {
        let cluster =
            stage.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)).unwrap();
        reported_identities(&stage.server, number)["status"]["observedGeneration"]
            == cluster["metadata"]["generation"]
    };
    let are_told = || numbers.clone().all(is_told);
    stage.advance_until("it is told of what they are now", 5 * SECOND, are_told).await
}

/// How often something was written about clusters: events, and what is told of their identities.
fn write_counts(stage: &OperatorFixture, numbers: &Range<usize>) -> (usize, usize) {
    let count = |collection: &str| {
        stage.server.count_requests(|it| {
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
    let stage = OperatorFixture::start(OperatorRole::IdentityOnly, |server| {
        for number in 0..CLUSTER_COUNT {
            server.put_externally(HOSTED_CLUSTERS, hosted_cluster(number));
            canaries::put_classes_and_canaries(server, number);
        }
    });
    let server = &stage.server;
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
    stage
        .advance_until("all identities work", 5 * SECOND, || all(0..CLUSTER_COUNT, AS_EXPECTED))
        .await;
    stage.advance(10 * SECOND).await;
    server.delay_writes(SECOND / 50);
    let usual = time_to_observe_generation(&stage, 100..150, "calm.example.com").await;
    assert!(usual > SECOND / 50 * 5, "four workers take {usual:?} for fifty writes");
    let calm = server.version();
    server.clear_requests();

    // In one cluster a canary after the other is throttled, in a hundred others all at one time.
    let tell = |number, component, throttled: bool| {
        let since = throttled.then(|| stage.clock.now());
        canaries::set_throttled(server, number, component, since);
    };
    let one_after_another = async |throttled| {
        for component in canaries::arm_components() {
            tell(ODD_CLUSTER, component, throttled);
            stage.advance(7 * SECOND).await;
        }
    };
    let all_at_once = |throttled| {
        for number in MANY {
            canaries::arm_components().for_each(|component| tell(number, component, throttled));
        }
    };
    for (is_throttled, arm, hour) in [(true, TOO_MANY_REQUESTS, 57), (false, AS_EXPECTED, 12)] {
        server.clear_requests();
        one_after_another(is_throttled).await;
        let during =
            time_to_observe_generation(&stage, 150..200, &format!("{arm}.example.com")).await;
        all_at_once(is_throttled);
        stage.advance_until("all of them are told of", MINUTE, || all(MANY, arm)).await;
        stage.advance(MINUTE).await;
        assert!(all(ONE, arm));
        // An event of each canary; what is told of the cluster as often as that is news, which is once
        // where they tell it at one time.
        assert_eq!(write_counts(&stage, &ONE), (8, 8), "events, and what is told");
        assert_eq!(write_counts(&stage, &MANY), (8 * MANY.len(), MANY.len()));
        server.clear_requests();
        let half = hour * MINUTE / 2;
        stage.advance(half).await;
        let amid =
            time_to_observe_generation(&stage, 200..250, &format!("{arm}.example.com")).await;
        assert_eq!((during, amid), (usual, usual), "others wait for nothing");
        stage.advance(half).await;
        let idle = server.count_requests(|it| it.verb.is_write());
        assert_eq!(idle, 50, "nothing is written but these wishes: time makes nothing due");
    }
    let changes = server.object_changes(IDENTITIES, calm);
    let is_ready =
        |told: &Value| identity_readiness(told).iter().filter(|it| it.0 == "True").count() == 9;
    assert!(
        changes.len() > 200 && changes.iter().all(is_ready),
        "no identity ever stops being ready"
    );
}

/// What the conditions of a HostedCluster come to.
fn condition_statuses(server: &FakeManagementApi, number: usize) -> Vec<(String, String)> {
    let cluster = server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(number)).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|it| (text(&it["type"]), text(&it["status"]))).collect()
}

#[tokio::test]
async fn arm_throttling_changes_no_object_and_no_condition() {
    let stage = OperatorFixture::start_converged(2).await;
    let server = &stage.server;
    (0..2).for_each(|number| canaries::put_canary_pods(server, number));
    let is_well = |number| ready_count(server, number, AS_EXPECTED) == 9;
    stage.advance_until("all identities work", MINUTE, || (0..2).all(is_well)).await;
    stage.advance(MINUTE).await;
    let calm = [0, 1].map(|number| condition_statuses(server, number));
    assert!(calm[0].contains(&("ValidAzureNetwork".to_owned(), "True".to_owned())), "{calm:?}");
    server.clear_requests();
    let tell = |throttled: Option<_>| {
        canaries::arm_components()
            .for_each(|component| canaries::set_throttled(server, 0, component, throttled));
    };
    tell(Some(stage.clock.now()));
    let is_told = || ready_count(server, 0, TOO_MANY_REQUESTS) == 8;
    stage.advance_until("it is told of", MINUTE, is_told).await;
    for _ in 0..60 {
        stage.advance(MINUTE).await;
        assert_eq!([0, 1].map(|number| condition_statuses(server, number)), calm);
    }
    tell(None);
    stage.advance_until("it is over", MINUTE, || is_well(0)).await;
    stage.advance(MINUTE).await;
    // Its conditions as well as what is told of its identities, when it begins and when it ends.
    let is_told_of = |it: &crate::api_state::ReceivedRequest| {
        ["events", IDENTITIES, HOSTED_CLUSTERS].contains(&&*it.path.collection)
    };
    let other = server.describe_requests(|it| it.verb.is_write() && !is_told_of(it));
    assert!(other.is_empty(), "{other:?}");
    let written = server.count_requests(|it| it.verb.is_write() && it.path.collection != "events");
    assert!((2..=4).contains(&written), "{written} writes");
    assert_eq!(server.count_requests(is_write_for(1)), 0);
}

const AS_EXPECTED: &str = "AsExpected";
const CLASS: &str = "managed-azure-disk-csi";
const DISK_SECRET: &str = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                           controlPlane/disk/credentialsSecretName";
