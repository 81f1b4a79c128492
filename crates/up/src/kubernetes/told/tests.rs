use lanyard_api::HostedCluster;
use lanyard_desired::validate;
use serde_json::{Value, json};

use super::*;

const EXAMPLE: &str = include_str!("../../../../../examples/hostedcluster.yaml");

/// What stands on the server about the disk component, from nothing to everything.
#[derive(Debug, Default)]
struct Server {
    class: Option<SecretProviderClass>,
    pods: Vec<Arc<Pod>>,
    volumes: Vec<Arc<SecretProviderClassPodStatus>>,
    events: Vec<Arc<Event>>,
    identity: Option<IdentityStatus>,
    refusals: Vec<(&'static str, String)>,
    unseen: Vec<ApiError>,
}

impl Server {
    fn account(&self) -> Account {
        self.told(|told| told.account())
    }

    fn told<T>(&self, read: impl FnOnce(Told<'_>) -> T) -> T {
        let wire = HostedCluster::parse_yaml(EXAMPLE).unwrap();
        let cluster = validate(&wire).unwrap().hosted_cluster;
        read(Told {
            cluster: &cluster,
            component: Component::Disk,
            server: "https://127.0.0.1:1",
            class: self.class.as_ref(),
            pods: &self.pods,
            volumes: &self.volumes,
            events: &self.events,
            refusals: &self.refusals,
            unseen: &self.unseen,
            identity: self.identity.as_ref(),
        })
    }

    fn with_class(mut self) -> Self {
        let wire = HostedCluster::parse_yaml(EXAMPLE).unwrap();
        let cluster = validate(&wire).unwrap().hosted_cluster;
        let names = lanyard_desired::Names::default();
        let name = Component::Disk.facts().secret_provider_class;
        let classes = lanyard_desired::desired(&cluster, &names).secret_provider_classes;
        self.class = classes.into_iter().find(|class| class.metadata.name.as_deref() == Some(name));
        self
    }

    fn with_pod(mut self, ready: bool, canary: Option<Value>) -> Self {
        let consumer = &Component::Disk.consumers()[0];
        let mut pod = json!({
            "metadata": {
                "name": "disk-1",
                "uid": "u",
                "annotations": {},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "Deployment", "name": consumer.deployment,
                    "uid": "d", "controller": true,
                }],
            },
            "spec": {
                "containers": [{
                    "name": consumer.container,
                    "volumeMounts": [{"name": consumer.volume, "mountPath": consumer.mount_path}],
                }],
                "volumes": [{
                    "name": consumer.volume,
                    "csi": {
                        "driver": super::super::node_plugin::DRIVER,
                        "volumeAttributes":
                            {"secretProviderClass": Component::Disk.facts().secret_provider_class},
                    },
                }],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        });
        if let Some(canary) = canary {
            pod["metadata"]["annotations"]["lanyard.dev/canary-facts"] = json!(canary.to_string());
        }
        self.pods = vec![Arc::new(serde_json::from_value(pod).unwrap())];
        self
    }

    fn with_volume(mut self, facts: Value) -> Self {
        let status = json!({
            "metadata": {
                "annotations": {"lanyard.dev/volume-facts": facts.to_string()},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "disk-1", "uid": "u"}],
            },
            "status": {
                "podName": "disk-1",
                "secretProviderClassName": Component::Disk.facts().secret_provider_class,
                "mounted": true,
                "objects": [{"id": "secret/harbour-disk", "version": "v1"}],
            },
        });
        self.volumes = vec![Arc::new(serde_json::from_value(status).unwrap())];
        self
    }

    fn with_event(mut self, reason: &str, message: &str) -> Self {
        let event = json!({
            "metadata": {},
            "involvedObject": {"uid": "u"},
            "type": "Warning",
            "reason": reason,
            "message": message,
        });
        self.events = vec![Arc::new(serde_json::from_value(event).unwrap())];
        self
    }

    fn with_verdict(mut self, verdict: Value) -> Self {
        self.identity = Some(serde_json::from_value(verdict).unwrap());
        self
    }
}

fn verdict(ready: &str) -> Value {
    json!({"component": "disk", "secretProviderClass": "c", "ready": ready, "reason": "AsExpected"})
}

fn canary() -> Value {
    json!({
        "component": "disk",
        "lastGoodHop": "granted",
        "credential": {"clientId": "c", "thumbprint": "t", "notAfter": "2027-01-01T00:00:00Z"},
    })
}

fn last(account: &Account) -> Option<Hop> {
    account.good.last().map(|(hop, _)| *hop)
}

#[test]
fn a_component_comes_as_far_as_somebody_tells() {
    let with_file = || Server::default().with_class().with_volume(json!({"lastGoodHop": "file"}));
    let part_way = json!({"component": "disk", "lastGoodHop": "credential"});
    let cases = [
        (Server::default(), None),
        (Server::default().with_verdict(verdict("Unknown")), Some(Hop::HostedCluster)),
        (Server::default().with_class(), Some(Hop::SecretProviderClass)),
        (Server::default().with_class().with_pod(false, None), Some(Hop::Volume)),
        (with_file().with_pod(true, None), Some(Hop::File)),
        (with_file().with_pod(true, Some(part_way)), Some(Hop::Credential)),
        (with_file().with_pod(true, Some(canary())), Some(Hop::Granted)),
        // A canary that tells before its node does proves nothing yet.
        (Server::default().with_class().with_pod(true, Some(canary())), Some(Hop::Volume)),
    ];
    for (server, expected) in cases {
        let account = server.account();
        assert_eq!(last(&account), expected, "{server:#?}");
        assert!(!account.is_settled && account.failure.is_none(), "{account:#?}");
        let walked = expected.map_or(0, |hop| Hop::ALL.iter().filter(|it| **it <= hop).count());
        assert_eq!(account.good.len(), walked, "no hop is left out");
    }
}

#[test]
fn nothing_is_settled_before_the_operator_says_so() {
    let server = Server::default().with_class().with_volume(json!({"lastGoodHop": "file"}));
    let server = server.with_pod(true, Some(canary()));
    assert!(!server.account().is_settled);
    assert_eq!(server.told(|told| told.proven_thumbprint()).as_deref(), Some("t"));
    let server = server.with_verdict(verdict("True"));
    assert!(server.account().is_settled);
}

#[test]
fn the_verdict_of_the_operator_is_the_blame() {
    let mut verdict = verdict("False");
    verdict["reason"] = json!("AADSTS700016");
    verdict["failedHop"] = json!("entra-token");
    verdict["lastGoodHop"] = json!("credential");
    verdict["message"] = json!("pod `disk-1`: no such application; next: check the client id");
    let server = Server::default().with_class().with_volume(json!({"lastGoodHop": "file"}));
    let server = server.with_pod(true, Some(canary())).with_verdict(verdict);
    let account = server.account();
    let (hop, failure) = account.failure.clone().unwrap();
    assert_eq!((hop, failure.hint.as_str()), (Hop::EntraToken, "check the client id"));
    assert_eq!(failure.detail, "AADSTS700016: pod `disk-1`: no such application");
    assert_eq!(last(&account), Some(Hop::Credential), "what follows the blame is not good");
    assert!(account.is_settled);
}

#[test]
fn a_pod_that_cannot_start_is_blamed_on_the_hop_of_its_event() {
    let server = Server::default().with_class().with_pod(false, None);
    let server = server.with_event("VaultForbidden", "the vault forbids it; hint: assign a role");
    let account = server.account();
    let (hop, failure) = account.failure.clone().unwrap();
    assert_eq!((hop, failure.hint.as_str()), (Hop::VaultRead, "assign a role"));
    assert_eq!(failure.detail, "pod disk-1 does not start: the vault forbids it");
    assert_eq!(last(&account), Some(Hop::ImdsToken), "the node came as far as the vault");
}

#[test]
fn an_event_about_another_volume_of_the_pod_is_blamed_after_the_own_file() {
    let server = Server::default().with_class().with_volume(json!({"lastGoodHop": "file"}));
    let server = server.with_pod(false, None).with_event("ObjectNotFound", "no such object");
    let (hop, failure) = server.account().failure.unwrap();
    assert_eq!(hop, Hop::Credential);
    assert_eq!(failure.hint, OutcomeCode::ObjectNotFound.hint());
}

#[test]
fn what_may_heal_or_is_over_is_no_failure_and_is_told_when_time_is_up() {
    let event = "the vault throttles";
    let waiting = Server::default().with_class().with_pod(false, None);
    let waiting = waiting.with_event("VaultThrottled", event);
    let account = waiting.account();
    assert_eq!(account.failure, None);
    let (hop, failure) = waiting.told(|told| told.overdue(&account, 90));
    assert_eq!(hop, Hop::ImdsToken);
    assert!(failure.detail.contains("90 s") && failure.detail.contains(event), "{failure:?}");
    let ready = Server::default().with_class().with_pod(true, None);
    assert_eq!(ready.with_event("ObjectNotFound", "over").account().failure, None);
}

#[test]
fn a_pod_that_the_server_refuses_is_told_with_its_reason_when_time_is_up() {
    let denied = "admission webhook denied the request";
    let refusals = vec![("azure-disk-csi-driver-controller", denied.to_owned())];
    let server = Server { refusals, ..Server::default().with_class() };
    let account = server.account();
    let (hop, failure) = server.told(|told| told.overdue(&account, 90));
    assert_eq!(hop, Hop::Volume);
    let told = format!("; no pod of Deployment azure-disk-csi-driver-controller: {denied}");
    assert!(failure.detail.ends_with(&told), "{failure:?}");
    assert!(failure.hint.contains("admission policies"), "{failure:?}");
}

#[test]
fn what_may_not_be_followed_is_told_when_time_is_up() {
    let action = || "watch pods in namespace clusters-harbour".to_owned();
    let refused = ApiError::Refused {
        action: action(),
        status: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
        retry_after: None,
    };
    let gone = ApiError::NotServed { action: action(), message: "no".to_owned() };
    let refusals = vec![("azure-disk-csi-driver-controller", "quota".to_owned())];
    for (error, hint) in [(refused, "list and watch"), (gone, "CRDs")] {
        let told = error.to_string();
        let (unseen, refusals) = (vec![error], refusals.clone());
        let server = Server { refusals, unseen, ..Server::default().with_class() };
        let (_, failure) = server.told(|told| told.overdue(&server.account(), 90));
        assert!(failure.detail.ends_with(&told), "{failure:?}");
        assert!(failure.hint.contains(hint), "what is not seen comes first: {failure:?}");
    }
}
