//! HostedClusters with values that the operator cannot use.

use lanyard_operator::OperatorRole;
use lanyard_vocabulary::Component;
use serde_json::{Value, json};

use crate::api_state::ReceivedRequest;
use crate::fixture::{
    HOSTED_CLUSTERS, MINUTE, NAMESPACE, OperatorFixture, SECOND, SECRET_PROVIDER_CLASSES,
    cluster_name, control_plane_namespace, hosted_cluster, is_fully_applied,
};
use crate::management_api::InjectedResponse;

const PROBE_MODE: &str = "hypershift.openshift.io/azure-load-balancer-health-probe-mode";

fn change_cluster(fixture: &OperatorFixture, change: impl FnOnce(&mut Value)) {
    fixture.server.change_externally((HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)), change);
}

fn object(fixture: &OperatorFixture, collection: &str, name: &str) -> Option<Value> {
    fixture.server.object(collection, &control_plane_namespace(0), name)
}

/// Reason and message of a condition of the HostedCluster.
fn condition(fixture: &OperatorFixture, kind: &str) -> (String, String) {
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    let conditions = cluster["status"]["conditions"].as_array().unwrap().clone();
    let found = conditions.into_iter().find(|it| it["type"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap().to_owned();
    (text("reason"), text("message"))
}

#[tokio::test]
async fn invalid_annotation_changes_only_the_objects_that_need_it() {
    let fixture = OperatorFixture::start_converged(1).await;
    let frozen = [
        ("configmaps", "azure-cloud-config"),
        ("secrets", "azure-cloud-config"),
        ("deployments", "azure-cloud-controller-manager"),
    ];
    let before = frozen.map(|(collection, name)| object(&fixture, collection, name).unwrap());
    change_cluster(&fixture, |cluster| {
        cluster["metadata"]["annotations"][PROBE_MODE] = json!("Shared");
        let field = "/spec/platform/azure/azureAuthenticationConfig/managedIdentities/controlPlane";
        let identities = cluster.pointer_mut(field).unwrap();
        for component in [Component::Disk, Component::CloudProvider] {
            identities[component.name()]["credentialsSecretName"] =
                json!(format!("new-{component}"));
        }
    });
    let names_secret = |class: &str, secret: &str| {
        let class = object(&fixture, SECRET_PROVIDER_CLASSES, class).unwrap();
        class["spec"]["parameters"]["objects"].as_str().unwrap().contains(secret)
    };
    let is_delivered = || {
        names_secret("managed-azure-disk-csi", "objectName: new-disk")
            && names_secret("managed-azure-cloud-provider", "objectName: new-cloudProvider")
    };
    fixture.advance_until("the classes are applied", 30 * SECOND, is_delivered).await;
    fixture.advance(30 * SECOND).await;
    let after = frozen.map(|(collection, name)| object(&fixture, collection, name).unwrap());
    assert_eq!(after, before, "objects that cannot be rendered stay as they are");
    let (reason, message) = condition(&fixture, "AdvisedConfiguration");
    assert_eq!(reason, "ObjectsNotRendered");
    assert!(
        message.contains(&format!("invalid value for annotation {PROBE_MODE}: Shared")),
        "{message}"
    );
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(!is_good && plan.contains("invalid: metadata.annotations"), "{plan}");
    let deployment =
        format!("Deployment {}/azure-cloud-controller-manager", control_plane_namespace(0));
    assert!(plan.contains(&format!("leave {deployment} as it is")), "{plan}");

    // The corrected annotation releases the objects.
    change_cluster(&fixture, |cluster| {
        cluster["metadata"]["annotations"][PROBE_MODE] = json!("servicenodeport");
    });
    let is_released = || {
        object(&fixture, "deployments", "azure-cloud-controller-manager").as_ref()
            != Some(&before[2])
    };
    fixture.advance_until("the deployment is applied", 30 * SECOND, is_released).await;
    // The pull secret does not exist.
    assert_eq!(condition(&fixture, "AdvisedConfiguration").0, "Linted");
}

#[tokio::test]
async fn new_cluster_with_unusable_network_gets_all_other_objects() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        cluster["spec"]["platform"]["azure"]["securityGroupID"] = json!("default");
        server.put_externally(HOSTED_CLUSTERS, cluster);
    });
    let has_classes =
        || fixture.server.object_count(SECRET_PROVIDER_CLASSES, &control_plane_namespace(0)) == 9;
    fixture.advance_until("all classes exist", 30 * SECOND, has_classes).await;
    fixture.advance(30 * SECOND).await;
    assert_eq!(object(&fixture, "secrets", "azure-cloud-config"), None);
    assert_eq!(object(&fixture, "deployments", "azure-cloud-controller-manager"), None);
    assert!(object(&fixture, "deployments", "azure-disk-csi-driver-controller").is_some());
    assert!(object(&fixture, "azureclusters", &cluster_name(0)).is_some());
    assert_eq!(condition(&fixture, "ValidAzureNetwork").0, "InsufficientClusterCapabilities");
}

#[tokio::test]
async fn misspelled_field_is_reported() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        cluster["spec"]["controlPlaneRelase"] = json!({"image": "example.com/release:1"});
        server.put_externally(HOSTED_CLUSTERS, cluster);
    });
    let is_applied = || is_fully_applied(&fixture.server, 0);
    fixture.advance_until("the objects exist", 30 * SECOND, is_applied).await;
    fixture.advance(10 * SECOND).await;
    let (reason, message) = condition(&fixture, "AdvisedConfiguration");
    assert_eq!(reason, "Linted");
    let lint = "spec.controlPlaneRelase: unknown field, which has no effect; next: write \
                `controlPlaneRelease` instead of `controlPlaneRelase`";
    assert!(message.contains(lint), "{message}");
}

#[tokio::test]
async fn rejected_write_of_generated_ids_is_reported() {
    let is_id_write = |request: &ReceivedRequest| {
        request.verb.is_write()
            && request.path.collection == HOSTED_CLUSTERS
            && request.path.subresource.is_none()
    };
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        cluster["spec"].as_object_mut().unwrap().remove("infraID");
        cluster["spec"]["controlPlaneRelase"] = json!({"image": "example.com/release:1"});
        server.put_externally(HOSTED_CLUSTERS, cluster);
        server.inject(move |request| {
            is_id_write(request).then(|| InjectedResponse::error_status(403, "Forbidden"))
        });
    });
    fixture.advance(10 * SECOND).await;
    let (reason, message) = condition(&fixture, "ValidAzureIdentities");
    assert_eq!(reason, "InvalidHostedCluster");
    for part in [
        "spec.infraID",
        "cannot generate it: could not set spec.infraID",
        "HTTP 403",
        "; next: set `spec.infraID` yourself, or: ",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!message.contains("clusterID") && !message.contains("Relase"), "{message}");
    let (reason, message) = condition(&fixture, "AdvisedConfiguration");
    assert_eq!(reason, "Linted");
    assert!(message.contains("spec.controlPlaneRelase: unknown field"), "{message}");
    assert!(fixture.server.count_requests(is_id_write) <= 2, "the write is not repeated at once");

    fixture.server.clear_injection();
    let is_applied = || is_fully_applied(&fixture.server, 0);
    fixture.advance_until("the objects exist", 10 * MINUTE, is_applied).await;
    assert_ne!(condition(&fixture, "ValidAzureIdentities").0, "InvalidHostedCluster");
}

#[tokio::test]
async fn misspelled_id_is_reported_and_not_generated() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        let spec = cluster["spec"].as_object_mut().unwrap();
        let infra_id = spec.remove("infraID").unwrap();
        spec.insert("infraId".to_owned(), infra_id);
        server.put_externally(HOSTED_CLUSTERS, cluster);
    });
    fixture.advance(10 * SECOND).await;
    let (reason, message) = condition(&fixture, "ValidAzureIdentities");
    assert_eq!(reason, "InvalidHostedCluster");
    assert!(message.contains("; next: write `infraID` instead of `infraId`"), "{message}");
    let cluster = fixture.server.object(HOSTED_CLUSTERS, NAMESPACE, &cluster_name(0)).unwrap();
    assert!(cluster["spec"]["infraID"].is_null(), "{}", cluster["spec"]);
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(!is_good && plan.contains("\n  invalid: spec.infraId: "), "{plan}");
    assert!(!plan.contains("generate first"), "{plan}");
}

#[tokio::test]
async fn errors_of_invalid_cluster_have_hints_and_its_lints_are_separate() {
    let fixture = OperatorFixture::start(OperatorRole::All, |server| {
        let mut cluster = hosted_cluster(0);
        let platform = cluster["spec"]["platform"].as_object_mut().unwrap();
        let azure = platform.remove("azure").unwrap();
        platform.insert("Azure".to_owned(), azure);
        cluster["spec"]["controlPlaneRelase"] = json!({"image": "example.com/release:1"});
        server.put_externally(HOSTED_CLUSTERS, cluster);
    });
    fixture.advance(10 * SECOND).await;
    let error = "spec.platform.azure: Required value; next: write `azure` instead of `Azure`";
    let lint = "spec.controlPlaneRelase: unknown field, which has no effect; next: write \
                `controlPlaneRelease` instead of `controlPlaneRelase`";
    let (reason, message) = condition(&fixture, "ValidAzureIdentities");
    assert_eq!(reason, "InvalidHostedCluster");
    assert!(message.contains(error) && !message.contains(lint), "{message}");
    let (reason, message) = condition(&fixture, "AdvisedConfiguration");
    assert_eq!(reason, "Linted");
    assert!(message.contains(lint) && !message.contains(error), "{message}");
    let (plan, is_good) = fixture.plan_all().await.remove(0);
    assert!(!is_good && plan.contains(&format!("\n  invalid: {error}\n")), "{plan}");
    assert!(plan.contains(&format!("\n  lint: {lint}\n")), "{plan}");
}

/// HyperShift's schema rejects this change, but the CRD of an older release may accept it.
#[tokio::test]
async fn cluster_with_changed_platform_keeps_its_objects() {
    let fixture = OperatorFixture::start_converged(1).await;
    for platform in ["azure", "AWS"] {
        change_cluster(&fixture, |cluster| cluster["spec"]["platform"]["type"] = json!(platform));
        fixture.advance(MINUTE).await;
        let (reason, message) = condition(&fixture, "ValidAzureIdentities");
        assert_eq!(reason, "InvalidHostedCluster");
        assert!(message.contains("spec.platform.type") && message.contains(platform), "{message}");
    }
    let written = fixture.server.describe_requests(|request| {
        request.verb.is_write() && request.path.namespace == control_plane_namespace(0)
    });
    assert!(written.is_empty(), "no object of the cluster is changed: {written:#?}");
}
