//! Somebody else who writes the same all the time.

use std::time::Duration;

use lanyard_operator::Role;
use serde_json::{Value, json};

use crate::path::Verb;
use crate::server::Instead;
use crate::stage::{
    CLASSES, CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, SECOND, Stage, cluster, is_about, is_made,
    is_told, is_write_about, meddle, name, room, vault,
};
use crate::state::Asked;

const CLASS: &str = "managed-azure-disk-csi";
const OTHERS: usize = 24;

/// The drift that is told of a cluster.
fn drift(stage: &Stage, number: usize) -> String {
    let told = stage.server.object(IDENTITIES, NAMESPACE, &name(number)).unwrap();
    told["status"]["drift"].to_string()
}

/// How often each kind of news was told about a cluster.
fn events(stage: &Stage, number: usize, reason: &str) -> usize {
    let events = stage.server.objects("events", NAMESPACE);
    let is_so = |event: &&Value| {
        event["reason"] == reason && event["involvedObject"]["name"] == name(number)
    };
    events.iter().filter(is_so).count()
}

fn is_write_of_class(asked: &Asked) -> bool {
    asked.verb.is_write() && asked.path.name == CLASS && asked.path.namespace == room(0)
}

/// Adds clusters, and says how long it takes until they have everything.
async fn adds(stage: &Stage, from: usize) -> Duration {
    let numbers = from..from + OTHERS;
    numbers.clone().for_each(|number| stage.server.put(CLUSTERS, cluster(number)));
    let made = || numbers.clone().all(|number| is_made(&stage.server, number));
    stage.until("the others are made", 10 * SECOND, made).await
}

#[tokio::test]
async fn who_changes_an_object_as_often_as_it_is_set_back_is_named_and_set_back_ever_more_seldom() {
    let stage = Stage::settled(2).await;
    let good = vault(&stage.server, 0, CLASS);
    let usual = adds(&stage, 10).await;
    stage.server.forget();
    // Five times a second for five minutes.
    let storm = async |rounds: u32| {
        for round in 0..rounds {
            meddle(&stage.server, 0, CLASS, &format!("elsewhere-{round}"));
            stage.pass(SECOND / 5).await;
        }
    };
    storm(300).await;
    let written = stage.server.count(is_write_of_class);
    assert!((5..=12).contains(&written), "{written} writes in the first minute");
    let told = drift(&stage, 0);
    assert!(told.contains("written again and again by meddler"), "{told}");
    assert!(told.contains(CLASS) && told.contains("keyvaultName"), "{told}");
    // The others do not wait, and neither does what else there is of the cluster.
    assert_eq!(adds(&stage, 100).await, usual);
    stage.server.change(("configmaps", &room(0), "azure-cloud-config"), |map| {
        map["data"] = json!({});
    });
    let map = || stage.server.object("configmaps", &room(0), "azure-cloud-config").unwrap();
    stage.until("the map is set back", SECOND, || map()["data"] != json!({})).await;
    stage.server.forget();
    storm(300 * 4).await;
    let written = stage.server.count(is_write_of_class);
    assert!(written <= 5, "{written} writes in the four minutes after it");
    let all = stage.server.count(is_write_about(0));
    assert!(all <= written, "{all} writes about the cluster, {written} of the class");
    assert_eq!(events(&stage, 0, "ObjectChanged"), 1, "it is told once");

    stage.server.forget();
    let passed =
        stage.until("it is set back", 2 * MINUTE, || vault(&stage.server, 0, CLASS) == good).await;
    assert!(passed <= 2 * MINUTE);
    stage.pass(11 * MINUTE).await;
    assert_eq!(drift(&stage, 0), "null", "it is over");
    assert_eq!(stage.server.count(is_write_of_class), 1);
    assert_eq!(vault(&stage.server, 0, CLASS), good);
}

#[tokio::test]
async fn a_class_that_was_taken_away_is_told_to_be_there_as_soon_as_it_is() {
    let stage = Stage::settled(1).await;
    let told = || {
        let told = stage.server.object(IDENTITIES, NAMESPACE, &name(0)).unwrap();
        let identities = told["status"]["identities"].as_array().cloned().unwrap();
        identities.iter().map(|it| it["reason"].clone()).collect::<Vec<_>>()
    };
    let before = told();
    stage.server.take(CLASSES, &room(0), CLASS);
    stage.pass(SECOND).await;
    assert!(stage.server.object(CLASSES, &room(0), CLASS).is_some());
    assert_eq!(told(), before);
}

#[tokio::test]
async fn an_object_that_is_taken_away_again_and_again_is_made_ever_more_seldom() {
    let stage = Stage::settled(1).await;
    for _ in 0..600 {
        stage.server.take(CLASSES, &room(0), CLASS);
        stage.pass(SECOND).await;
    }
    let written = stage.server.count(is_write_of_class);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    assert!(drift(&stage, 0).contains("taken away again and again"), "{}", drift(&stage, 0));
    let is_there = || stage.server.object(CLASSES, &room(0), CLASS).is_some();
    stage.until("it is there", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn a_control_plane_that_is_taken_away_again_and_again_is_told_of_and_asks_for_little() {
    let stage = Stage::settled(1).await;
    for _ in 0..600 {
        stage.server.take("hostedcontrolplanes", &room(0), &name(0));
        stage.pass(SECOND).await;
    }
    let made = |it: &Asked| it.verb.is_write() && it.path.collection == "hostedcontrolplanes";
    let written = stage.server.count(made);
    assert!((5..=16).contains(&written), "{written} writes in ten minutes");
    let asked = stage.server.count(|_| true);
    assert!(asked < 2_000, "{asked} requests in ten minutes");
    assert!(drift(&stage, 0).contains("taken away again and again"), "{}", drift(&stage, 0));
    let is_there = || stage.server.object("hostedcontrolplanes", &room(0), &name(0)).is_some();
    stage.until("it is there", 2 * MINUTE, is_there).await;
}

#[tokio::test]
async fn who_takes_away_our_conditions_and_writes_the_status_all_the_time_stops_nothing() {
    let stage = Stage::settled(2).await;
    let usual = adds(&stage, 10).await;
    stage.server.forget();
    let own = || {
        let cluster = stage.server.object(CLUSTERS, NAMESPACE, &name(0)).unwrap();
        let conditions = cluster["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().filter(|it| it["type"] != "Available").count()
    };
    let all = own();
    assert!(all >= 5, "{all} conditions are ours");
    let storm = async |rounds: u32| {
        for round in 0..rounds {
            stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |cluster| {
                let available = json!({"type": "Available", "status": "True", "reason": "A",
                    "message": format!("{round}"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
                cluster["status"]["conditions"] = json!([available]);
            });
            stage.pass(SECOND / 2).await;
        }
    };
    storm(120).await;
    assert_eq!(adds(&stage, 100).await, usual);
    storm(1_080).await;
    let written = stage.server.count(is_write_about(0));
    assert!(written <= 36, "{written} writes in ten minutes");
    assert!(drift(&stage, 0).contains("status.conditions"), "{}", drift(&stage, 0));
    stage.until("our conditions are back", 2 * MINUTE, || own() == all).await;
}

#[tokio::test]
async fn who_writes_what_we_tell_all_the_time_is_told_of_in_either_role() {
    for role in [Role::All, Role::IdentityOnly] {
        let stage =
            Stage::start(role, |server| (0..2).for_each(|it| server.put(CLUSTERS, cluster(it))));
        let told = || (0..2).all(|number| is_told(&stage.server, number));
        stage.until("they are told of", 30 * SECOND, told).await;
        stage.pass(MINUTE).await;
        stage.server.forget();
        for _ in 0..600 {
            stage.server.change((IDENTITIES, NAMESPACE, &name(0)), |it| {
                it["status"]["identities"] = json!([]);
            });
            stage.pass(SECOND / 2).await;
        }
        let written = stage.server.count(is_write_about(0));
        assert!((5..=24).contains(&written), "{written} writes in five minutes");
        assert_eq!(stage.server.count(is_write_about(1)), 0);
        stage.until("it is told again", 2 * MINUTE, told).await;
        let drift = drift(&stage, 0);
        assert!(drift.contains("HostedClusterIdentities"), "{drift}");
        assert!(drift.contains("written again and again"), "{drift}");
    }
}

#[tokio::test]
async fn a_cluster_whose_every_write_conflicts_backs_off_alone_and_converges_when_it_ends() {
    const FILE: &str = "managed-azure-file-csi";
    let stage = Stage::settled(1).await;
    let good = vault(&stage.server, 0, FILE);
    let usual = adds(&stage, 10).await;
    stage.server.forget();
    stage.server.rule(|asked| {
        let held = asked.verb == Verb::Patch && is_write_of_class(asked);
        held.then(|| Instead::held_by("meddler", ".spec.parameters"))
    });
    // A wish comes, and somebody changes what is there all the time.
    stage.server.change((CLUSTERS, NAMESPACE, &name(0)), |cluster| {
        let encoding = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                        controlPlane/disk/credentialsSecretName";
        *cluster.pointer_mut(encoding).unwrap() = json!("another-disk");
    });
    for round in 0..600 {
        meddle(&stage.server, 0, FILE, &format!("elsewhere-{round}"));
        stage.pass(SECOND / 5).await;
        if round == 100 {
            assert_eq!(adds(&stage, 100).await, usual);
        }
    }
    let tries = stage.server.count(is_write_of_class);
    // Five seconds after each other, however often something around them changes.
    assert!((1..=25).contains(&tries), "{tries} tries in two minutes");
    let told = drift(&stage, 0);
    assert!(told.contains("held by meddler") && told.contains(CLASS), "{told}");
    // What waits because it was contested does not wait for what goes on to conflict.
    stage.until("it is set back", 2 * MINUTE, || vault(&stage.server, 0, FILE) == good).await;
    stage.server.behave();
    let is_so = || {
        let class = stage.server.object(CLASSES, &room(0), CLASS).unwrap_or_default();
        class.to_string().contains("another-disk")
    };
    stage.until("the wish is there", 10 * MINUTE, is_so).await;
}

#[tokio::test]
async fn versions_that_changed_meanwhile_are_tried_again_and_do_no_harm() {
    let stage = Stage::settled(1).await;
    let usual = adds(&stage, 10).await;
    stage.server.forget();
    stage.server.rule(|asked| {
        (asked.verb.is_write() && is_about(asked, 0)).then(|| Instead::refused(409, "Conflict"))
    });
    meddle(&stage.server, 0, CLASS, "elsewhere");
    stage.pass(MINUTE).await;
    assert_eq!(adds(&stage, 100).await, usual);
    stage.pass(MINUTE).await;
    let tries = stage.server.count(is_write_of_class);
    // After 1, 2, 4, 8, 10, 10 … seconds, of which chance takes up to a half.
    assert!((8..=28).contains(&tries), "{tries} tries in two minutes");
    stage.server.behave();
    let good = || vault(&stage.server, 0, CLASS) != json!("elsewhere");
    stage.until("it is set back", 11 * SECOND, good).await;
}
