use serde_json::json;

use super::super::tests::{deployment, marks};
use super::*;

/// A pod as the API server has it.
fn pod(deployment: &Deployment, change: impl FnOnce(&mut Pod)) -> Arc<Pod> {
    let template = wanted(&marks(), deployment).unwrap();
    let name = format!("{}-{template}", deployment.name_any());
    let mut pod = desired_pod(&marks(), deployment, name, template);
    change(&mut pod);
    Arc::new(pod)
}

fn changed() -> Deployment {
    deployment(|it| it["spec"]["template"]["metadata"]["labels"]["x"] = json!("y"))
}

fn going(pod: &mut Pod) {
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
    pod.metadata.deletion_timestamp = Some(now);
}

#[test]
fn a_pod_is_of_its_deployment_and_of_this_run_and_on_our_node() {
    let deployment = deployment(|_| ());
    let Some(Step::Make(pod)) = step(&marks(), &deployment, &[]) else { panic!("no pod is made") };
    assert!(is_of(&pod, &deployment) && marks().serves(&pod, [&deployment]));
    assert_eq!(pod.labels()["app"], "disk");
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node"));
}

#[test]
fn only_paused_deployments_that_stay_and_want_pods_are_ours() {
    let goes = "2026-11-01T08:00:00Z";
    let wanted = |deployment: Deployment| wanted(&marks(), &deployment);
    assert!(wanted(deployment(|_| ())).is_some());
    assert!(wanted(deployment(|it| it["spec"]["paused"] = json!(false))).is_none());
    assert!(wanted(deployment(|it| it["spec"]["replicas"] = json!(0))).is_none());
    assert!(wanted(deployment(|it| it["metadata"]["deletionTimestamp"] = json!(goes))).is_none());
    assert!(wanted(deployment(|it| it["metadata"]["labels"] = json!({}))).is_none());
}

#[test]
fn a_pod_is_named_after_its_deployment_and_its_template() {
    let (one, other) = (deployment(|_| ()), changed());
    let name = |deployment: &Deployment| pod(deployment, |_| ()).name_any();
    assert!(name(&one).starts_with("disk-"));
    assert_eq!(name(&one), name(&deployment(|_| ())), "a second try has the same name");
    assert_ne!(name(&one), name(&other));
}

#[test]
fn old_pods_go_before_the_present_one_is_made() {
    let (before, after) = (deployment(|_| ()), changed());
    let old = pod(&before, |_| ());
    let step = |pods: &[Arc<Pod>]| step(&marks(), &after, pods);
    assert_eq!(step(&[Arc::clone(&old)]), Some(Step::Delete(vec![Arc::clone(&old)])));
    assert_eq!(step(&[pod(&before, going)]), None, "it is waited for");
    assert!(matches!(step(&[]), Some(Step::Make(_))));
    let present = pod(&after, |_| ());
    assert_eq!(step(&[Arc::clone(&present)]), None);
    assert_eq!(step(&[present, Arc::clone(&old)]), Some(Step::Delete(vec![old])));
    assert_eq!(step(&[pod(&after, going)]), None, "its name is free when it is gone");
}

#[test]
fn a_pod_that_others_made_is_neither_taken_for_ours_nor_deleted() {
    let deployment = deployment(|_| ());
    let foreign = |pod: &mut Pod| drop(pod.metadata.labels.take());
    let taken = pod(&deployment, foreign);
    let name = taken.name_any();
    assert_eq!(step(&marks(), &deployment, &[taken]), Some(Step::Taken(name)));
    let old = pod(&changed(), foreign);
    assert!(matches!(step(&marks(), &deployment, &[old]), Some(Step::Make(_))));
    // One of an earlier Deployment of this name goes as an orphan.
    let earlier = pod(&deployment, |pod| {
        for owner in pod.metadata.owner_references.iter_mut().flatten() {
            "earlier".clone_into(&mut owner.uid);
        }
    });
    assert_eq!(step(&marks(), &deployment, &[earlier]), None);
}

#[test]
fn a_pod_of_this_run_whose_deployment_is_gone_is_an_orphan() {
    let deployment = Arc::new(deployment(|_| ()));
    let goes = |pod: &Pod, deployments: &[Arc<Deployment>]| is_orphan(&marks(), pod, deployments);
    let ours = pod(&deployment, |_| ());
    assert!(goes(&ours, &[]) && !goes(&ours, &[Arc::clone(&deployment)]));
    assert!(!goes(&pod(&deployment, going), &[]), "it goes already");
    let foreign = pod(&deployment, |pod| drop(pod.metadata.labels.take()));
    assert!(!goes(&foreign, &[]), "what others made is never deleted");
}

#[test]
fn only_a_pod_that_is_there_already_is_as_good_as_made() {
    let refused = |status, reason: &str| ApiError::Refused {
        action: "make pod x".to_owned(),
        status,
        reason: reason.to_owned(),
        message: String::new(),
        retry_after: None,
    };
    assert!(is_there_already(&refused(409, "AlreadyExists")));
    // A quota that somebody else writes at this moment.
    assert!(!is_there_already(&refused(409, "Conflict")));
    assert!(!is_there_already(&refused(403, "Forbidden")));
}
