//! One cluster of a thousand that cannot be worked with.

use std::ops::Range;
use std::time::Duration;

use lanyard_desired::templates::WorkloadTemplates;
use lanyard_operator::Role;
use serde_json::json;

use crate::server::Instead;
use crate::stage::{
    CLASSES, CLUSTERS, IDENTITIES, MINUTE, NAMESPACE, SECOND, Stage, cluster, is_about, is_told,
    is_write_about, meddle, name, room, vault,
};

const ALL: usize = 1_000;
const ODD: usize = 500;

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

const CLASS: &str = "managed-azure-disk-csi";
const DISK_SECRET: &str = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/\
                           controlPlane/disk/credentialsSecretName";
