//! What one cluster costs, and one of a thousand that cannot be worked with.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use lanyard_clock::Clock as _;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::Role;
use serde_json::{Value, json};

use crate::canaries::{self, TOO_MANY_REQUESTS};
use crate::path::Verb;
use crate::server::{Instead, Server};
use crate::stage::{
    CLASSES, CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, SECOND, Stage, cluster, is_about, is_made,
    is_told, is_write_about, meddle, name, room, vault,
};

const ALL: usize = 1_000;
const ODD: usize = 500;

#[tokio::test]
async fn a_new_cluster_has_everything_written_once() {
    let stage = Stage::start(Role::All, |server| server.put(CLUSTERS, cluster(0)));
    stage.until("it has everything", 30 * SECOND, || is_made(&stage.server, 0)).await;
    stage.pass(MINUTE).await;
    let written = stage.server.told(is_write_about(0));
    let once: BTreeSet<_> = written.iter().collect();
    assert!(once.len() == written.len() && once.len() > 30, "{written:#?}");
    let listed = stage.server.told(|asked| asked.verb == Verb::List && is_about(asked, 0));
    assert!(listed.is_empty(), "nothing can be in a new namespace: {listed:#?}");
}

#[tokio::test]
async fn one_of_which_nothing_can_be_told_keeps_999_others_waiting_for_nothing() {
    let stage = Stage::start(Role::IdentityOnly, |server| {
        (0..ALL).for_each(|number| server.put(CLUSTERS, cluster(number)));
    });
    stage.server.rule(|asked| {
        (asked.verb.is_write() && is_about(asked, ODD))
            .then(|| Instead::refused(500, "InternalError"))
    });
    let others = || (0..ALL).filter(|it| *it != ODD).all(|it| is_told(&stage.server, it));
    stage.until("the others are told of", SECOND, others).await;
    stage.server.forget();
    stage.pass(10 * MINUTE).await;
    let tries = stage.server.count(is_write_about(ODD));
    assert!(tries <= 130, "{tries} tries in ten minutes");
    assert_eq!(stage.server.count(|it| it.verb.is_write()), tries, "of it alone");
    stage.server.behave();
    stage.until("it is told of", 11 * SECOND, || is_told(&stage.server, ODD)).await;
}

/// Without deployments, which are most of what there is to write and nothing else than other objects
/// here: a thousand clusters are made in seconds so.
async fn without_deployments() -> WorkloadTemplates {
    let stage = Stage::settled(1).await;
    let names = stage.server.objects("deployments", &room(0)).into_iter();
    let names: Vec<_> = names.map(|it| it["metadata"]["name"].clone()).collect();
    WorkloadTemplates::parse(&json!({"without": names}).to_string()).unwrap()
}

/// Gives clusters another secret, and says how long it takes until their classes say so.
async fn takes_wishes(stage: &Stage, numbers: Range<usize>, secret: &str) -> Duration {
    for number in numbers.clone() {
        stage.server.change((CLUSTERS, NAMESPACE, &name(number)), |it| {
            *it.pointer_mut(DISK_SECRET).unwrap() = json!(secret);
        });
    }
    let class = |number| stage.server.object(CLASSES, &room(number), CLASS).unwrap();
    let are_so = || numbers.clone().all(|number| class(number).to_string().contains(secret));
    stage.until("the classes name another secret", 5 * SECOND, are_so).await
}

#[tokio::test]
async fn of_a_thousand_that_have_everything_three_in_trouble_keep_nobody_waiting() {
    const REFUSED: usize = 700;
    let mut odd = cluster(ODD);
    odd["spec"]["dns"]["publicZoneID"] = json!(7);
    let stage = Stage::start_with(Role::All, without_deployments().await, |server| {
        (0..ALL).filter(|it| *it != ODD).for_each(|it| server.put(CLUSTERS, cluster(it)));
        server.put(CLUSTERS, odd);
    });
    let is_made = |number| {
        stage.server.count_of(CLASSES, &room(number)) == 9 && is_told(&stage.server, number)
    };
    let others = || (0..ALL).filter(|number| *number != ODD).all(is_made);
    stage.until("all others have everything", 5 * SECOND, others).await;
    let told = stage.server.object(IDENTITIES, NAMESPACE, &name(ODD)).unwrap().to_string();
    assert!(told.contains("InvalidHostedCluster") && told.contains("publicZoneID"), "{told}");
    assert_eq!(stage.server.count_of(CLASSES, &room(ODD)), 0, "nothing is made of a guess");
    let usual = takes_wishes(&stage, 100..150, "calm").await;

    // One is fought over, and nothing can be written about another one.
    stage.server.rule(|asked| {
        (asked.verb.is_write() && is_about(asked, REFUSED))
            .then(|| Instead::refused(409, "Conflict"))
    });
    let good = [0, REFUSED].map(|number| vault(&stage.server, number, CLASS));
    meddle(&stage.server, REFUSED, CLASS, "elsewhere");
    stage.server.forget();
    for round in 0..150 {
        meddle(&stage.server, 0, CLASS, &format!("elsewhere-{round}"));
        stage.pass(SECOND / 5).await;
    }
    let (fought, refused) = (is_write_about(0), is_write_about(REFUSED));
    assert!((5..=20).contains(&stage.server.count(&fought)), "{}", stage.server.count(&fought));
    assert!((2..=12).contains(&stage.server.count(&refused)), "{}", stage.server.count(&refused));
    let of_others = stage.server.told(|it| it.verb.is_write() && !fought(it) && !refused(it));
    assert!(of_others.is_empty(), "nothing is written about others: {of_others:?}");
    // In the middle of it others take wishes as they did before.
    assert_eq!(takes_wishes(&stage, 150..200, "stormy").await, usual);

    stage.server.behave();
    let are_back = || [0, REFUSED].map(|number| vault(&stage.server, number, CLASS)) == good;
    stage.until("both are as they should be", 2 * MINUTE, are_back).await;
    stage.server.change((CLUSTERS, NAMESPACE, &name(ODD)), |odd| {
        odd["spec"]["dns"]["publicZoneID"] = json!("zone");
    });
    stage.until("the third has everything", 5 * SECOND, || is_made(ODD)).await;
}

/// What is told of each identity of a cluster: whether it is ready, and why.
fn verdicts(told: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let identities = told["status"]["identities"].as_array().cloned().unwrap_or_default();
    identities.iter().map(|it| (text(&it["ready"]), text(&it["reason"]))).collect()
}

fn told(server: &Server, number: usize) -> Value {
    server.object(IDENTITIES, NAMESPACE, &name(number)).unwrap_or_default()
}

/// How many identities of a cluster are ready for a reason.
fn ready(server: &Server, number: usize, reason: &str) -> usize {
    verdicts(&told(server, number)).iter().filter(|it| it.0 == "True" && it.1 == reason).count()
}

/// Changes clusters, and says how long it takes until what is told is of what they are now.
async fn notices_wishes(stage: &Stage, numbers: Range<usize>, domain: &str) -> Duration {
    for number in numbers.clone() {
        stage.server.change((CLUSTERS, NAMESPACE, &name(number)), |it| {
            it["spec"]["dns"]["baseDomain"] = json!(domain);
        });
    }
    let is_told = |number| {
        let cluster = stage.server.object(CLUSTERS, NAMESPACE, &name(number)).unwrap();
        told(&stage.server, number)["status"]["observedGeneration"]
            == cluster["metadata"]["generation"]
    };
    let are_told = || numbers.clone().all(is_told);
    stage.until("it is told of what they are now", 5 * SECOND, are_told).await
}

/// How often something was written about clusters: events, and what is told of their identities.
fn written(stage: &Stage, numbers: &Range<usize>) -> (usize, usize) {
    let count = |collection: &str| {
        stage.server.count(|it| {
            let is_about = |number| is_write_about(number)(it);
            it.path.collection == collection && numbers.clone().any(is_about)
        })
    };
    (count("events"), count(IDENTITIES))
}

#[tokio::test]
async fn an_hour_in_which_arm_throttles_canaries_takes_nothing_back_and_keeps_nobody_waiting() {
    const ONE: Range<usize> = ODD..ODD + 1;
    const MANY: Range<usize> = 600..700;
    let stage = Stage::start(Role::IdentityOnly, |server| {
        for number in 0..ALL {
            server.put(CLUSTERS, cluster(number));
            canaries::release(server, number);
        }
    });
    let server = &stage.server;
    let all = |numbers: Range<usize>, arm: &str| {
        numbers.into_iter().all(|number| {
            let of_arm = ready(server, number, arm);
            if arm == WELL { of_arm == 9 } else { of_arm == 8 && ready(server, number, WELL) == 1 }
        })
    };
    stage.until("all identities work", 5 * SECOND, || all(0..ALL, WELL)).await;
    stage.pass(10 * SECOND).await;
    server.slow_down(SECOND / 50);
    let usual = notices_wishes(&stage, 100..150, "calm.example.com").await;
    assert!(usual > SECOND / 50 * 5, "four workers take {usual:?} for fifty writes");
    let calm = server.version();
    server.forget();

    // In one cluster a canary after the other is throttled, in a hundred others all at one time.
    let tell = |number, component, throttled: bool| {
        let since = throttled.then(|| stage.clock.now());
        canaries::tell(server, number, component, since);
    };
    let one_after_another = async |throttled| {
        for component in canaries::of_arm() {
            tell(ODD, component, throttled);
            stage.pass(7 * SECOND).await;
        }
    };
    let all_at_once = |throttled| {
        for number in MANY {
            canaries::of_arm().for_each(|component| tell(number, component, throttled));
        }
    };
    for (is_throttled, arm, hour) in [(true, TOO_MANY_REQUESTS, 57), (false, WELL, 12)] {
        server.forget();
        one_after_another(is_throttled).await;
        let during = notices_wishes(&stage, 150..200, &format!("{arm}.example.com")).await;
        all_at_once(is_throttled);
        stage.until("all of them are told of", MINUTE, || all(MANY, arm)).await;
        stage.pass(MINUTE).await;
        assert!(all(ONE, arm));
        // An event of each canary; what is told of the cluster as often as that is news, which is once
        // where they tell it at one time.
        assert_eq!(written(&stage, &ONE), (8, 8), "events, and what is told");
        assert_eq!(written(&stage, &MANY), (8 * MANY.len(), MANY.len()));
        server.forget();
        let half = hour * MINUTE / 2;
        stage.pass(half).await;
        let amid = notices_wishes(&stage, 200..250, &format!("{arm}.example.com")).await;
        assert_eq!((during, amid), (usual, usual), "others wait for nothing");
        stage.pass(half).await;
        let idle = server.count(|it| it.verb.is_write());
        assert_eq!(idle, 50, "nothing is written but these wishes: time makes nothing due");
    }
    let changes = server.changes(IDENTITIES, calm);
    let is_ready = |told: &Value| verdicts(told).iter().filter(|it| it.0 == "True").count() == 9;
    assert!(
        changes.len() > 200 && changes.iter().all(is_ready),
        "no identity ever stops being ready"
    );
}

/// What the conditions of a HostedCluster come to.
fn conditions(server: &Server, number: usize) -> Vec<(String, String)> {
    let cluster = server.object(CLUSTERS, NAMESPACE, &name(number)).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    conditions.iter().map(|it| (text(&it["type"]), text(&it["status"]))).collect()
}

#[tokio::test]
async fn an_hour_in_which_arm_throttles_changes_no_object_of_a_cluster_and_no_condition() {
    let stage = Stage::settled(2).await;
    let server = &stage.server;
    (0..2).for_each(|number| canaries::run(server, number));
    let is_well = |number| ready(server, number, WELL) == 9;
    stage.until("all identities work", MINUTE, || (0..2).all(is_well)).await;
    stage.pass(MINUTE).await;
    let calm = [0, 1].map(|number| conditions(server, number));
    assert!(calm[0].contains(&("ValidAzureNetwork".to_owned(), "True".to_owned())), "{calm:?}");
    server.forget();
    let tell = |throttled: Option<_>| {
        canaries::of_arm().for_each(|component| canaries::tell(server, 0, component, throttled));
    };
    tell(Some(stage.clock.now()));
    let is_told = || ready(server, 0, TOO_MANY_REQUESTS) == 8;
    stage.until("it is told of", MINUTE, is_told).await;
    for _ in 0..60 {
        stage.pass(MINUTE).await;
        assert_eq!([0, 1].map(|number| conditions(server, number)), calm);
    }
    tell(None);
    stage.until("it is over", MINUTE, || is_well(0)).await;
    stage.pass(MINUTE).await;
    // Its conditions as well as what is told of its identities, when it begins and when it ends.
    let is_told_of =
        |it: &crate::state::Asked| ["events", IDENTITIES, CLUSTERS].contains(&&*it.path.collection);
    let other = server.told(|it| it.verb.is_write() && !is_told_of(it));
    assert!(other.is_empty(), "{other:?}");
    let written = server.count(|it| it.verb.is_write() && it.path.collection != "events");
    assert!((2..=4).contains(&written), "{written} writes");
    assert_eq!(server.count(is_write_about(1)), 0);
}

const WELL: &str = "AsExpected";
const CLASS: &str = "managed-azure-disk-csi";
const DISK_SECRET: &str = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                           controlPlane/disk/credentialsSecretName";
