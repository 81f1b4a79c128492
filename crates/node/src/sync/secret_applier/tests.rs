use std::convert::Infallible;
use std::sync::Arc;

use http_body_util::BodyExt;
use kube::client::Body;
use lanyard_clock::ManualClock;
use lanyard_kubernetes::KubernetesApi;
use serde_json::Value;

use super::*;

fn desired(change: impl FnOnce(&mut DesiredSecret)) -> DesiredSecret {
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let mut desired = DesiredSecret {
        name: "s".to_owned(),
        labels: map("l", "1"),
        annotations: map("a", "1"),
        secret_type: "Opaque".to_owned(),
        data: BTreeMap::from([("k".to_owned(), SharedSecretBytes::from(b"planted".to_vec()))]),
    };
    change(&mut desired);
    desired
}

#[test]
fn values_are_written_as_base64_and_never_printed() {
    let desired = desired(|_| ());
    let values = SecretValues(&desired.data);
    assert_eq!(serde_json::to_string(&values).unwrap(), r#"{"k":"cGxhbnRlZA=="}"#);
    assert_eq!(format!("{values:?}"), r#"{"k"}"#);
}

#[test]
fn fingerprint_covers_every_part_of_a_secret() {
    let owner = OwnerReference { uid: "u".to_owned(), ..OwnerReference::default() };
    let changes: [fn(&mut DesiredSecret); 5] = [
        |it| it.secret_type = "x".to_owned(),
        |it| drop(it.labels.insert("l".to_owned(), "2".to_owned())),
        |it| drop(it.annotations.insert("b".to_owned(), String::new())),
        |it| drop(it.data.insert("k".to_owned(), SharedSecretBytes::from(b"other".to_vec()))),
        |it| drop(it.data.insert("l".to_owned(), SharedSecretBytes::default())),
    ];
    let mut prints = vec![
        secret_fingerprint(&desired(|_| ()), &[]),
        secret_fingerprint(&desired(|_| ()), std::slice::from_ref(&owner)),
    ];
    prints.extend(changes.into_iter().map(|change| secret_fingerprint(&desired(change), &[])));
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
}

/// A fake API server with one Secret.
#[derive(Default)]
struct FakeSecretServer {
    uid: u32,
    version: u32,
    data: String,
    content_since: String,
    patches: Vec<Value>,
    /// A concurrent change right before the first write of this node, or before its first owner patch.
    concurrent_change: Option<fn(&mut Self)>,
    change_before_owners: bool,
    is_absent: bool,
}

impl FakeSecretServer {
    fn secret_json(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "s",
                "uid": self.uid.to_string(),
                "resourceVersion": self.version.to_string(),
                "annotations": {CONTENT_SINCE: self.content_since},
                "managedFields": [{
                    "manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": {
                        "f:data": {"f:k": {}},
                        "f:metadata": {"f:annotations": {format!("f:{CONTENT_SINCE}"): {}}},
                    },
                }],
            },
            "type": "Opaque",
            "data": {"k": self.data},
        })
    }

    fn respond(&mut self, method: &http::Method, body: &[u8]) -> (u16, Value) {
        if method == http::Method::GET && self.is_absent {
            let details = json!({"kind": "secrets", "name": "s"});
            let status = json!({
                "kind": "Status", "code": 404, "reason": "NotFound", "details": details,
            });
            return (404, status);
        }
        if method == http::Method::GET {
            return (200, self.secret_json());
        }
        let patch: Value = serde_json::from_slice(body).unwrap();
        if (patch["metadata"]["ownerReferences"].is_array() || !self.change_before_owners)
            && let Some(meanwhile) = self.concurrent_change.take()
        {
            meanwhile(self);
        }
        let is_of = |field: &str, now: u32| {
            patch["metadata"][field].as_str().is_none_or(|based_on| based_on == now.to_string())
        };
        let is_conflict =
            !self.is_absent && (!is_of("uid", self.uid) || !is_of("resourceVersion", self.version));
        self.patches.push(patch);
        if is_conflict {
            return (409, json!({"kind": "Status", "code": 409, "reason": "Conflict"}));
        }
        (200, self.secret_json())
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn api_for(server: &Arc<Mutex<FakeSecretServer>>) -> NodeKubernetesApi {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let (status, answer) = server.lock().respond(&method, &body);
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            let answer = http::Response::builder().status(status).body(body).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    let client = kube::Client::new(service, "default");
    let clock = Arc::new(ManualClock::starting_at(at(1_000)));
    NodeKubernetesApi::new(KubernetesApi::from_client(client, clock))
}

/// Applies a Secret whose content was written at second 100.
async fn apply_content_of_second_100(
    server: &Arc<Mutex<FakeSecretServer>>,
    owners: &[OwnerReference],
) -> SecretApplyOutcome {
    let secrets = SecretApplier::new(api_for(server));
    let age = ContentAge::from_write_time(at(100));
    let source = SecretSyncSource { namespace: "n", class: "c", age: &age };
    secrets.apply_unless_newer(source, &desired(|_| ()), owners).await.unwrap()
}

#[tokio::test]
async fn concurrent_write_of_another_node_is_not_overwritten() {
    let server = FakeSecretServer {
        data: "b2xk".to_owned(),
        content_since: at(50).to_string(),
        concurrent_change: Some(|server| {
            server.version += 1;
            (server.data, server.content_since) = ("bmV3ZXN0".to_owned(), at(200).to_string());
        }),
        ..FakeSecretServer::default()
    };
    let server = Arc::new(Mutex::new(server));
    assert_eq!(
        apply_content_of_second_100(&server, &[]).await,
        SecretApplyOutcome::SkippedOlder { content_since: at(200) }
    );
    let patches = std::mem::take(&mut server.lock().patches);
    let [patch] = patches.as_slice() else { panic!("{patches:?}") };
    assert_eq!(patch["metadata"]["resourceVersion"], "0");
    assert_eq!(patch["metadata"]["uid"], "0");
}

#[tokio::test]
async fn concurrent_create_of_another_node_is_not_overwritten() {
    let server = FakeSecretServer {
        version: 7,
        data: "bmV3ZXN0".to_owned(),
        content_since: at(200).to_string(),
        is_absent: true,
        concurrent_change: Some(|server| server.is_absent = false),
        ..FakeSecretServer::default()
    };
    let server = Arc::new(Mutex::new(server));
    assert_eq!(
        apply_content_of_second_100(&server, &[]).await,
        SecretApplyOutcome::SkippedOlder { content_since: at(200) }
    );
    assert_eq!(server.lock().patches.len(), 1);
}

#[tokio::test]
async fn secret_recreated_before_the_owner_patch_is_applied_again() {
    let server = FakeSecretServer {
        content_since: at(50).to_string(),
        concurrent_change: Some(|server| server.uid += 1),
        change_before_owners: true,
        ..FakeSecretServer::default()
    };
    let server = Arc::new(Mutex::new(server));
    let owner = OwnerReference { uid: "owner".to_owned(), ..OwnerReference::default() };
    assert_eq!(apply_content_of_second_100(&server, &[owner]).await, SecretApplyOutcome::InSync);
    let patches = std::mem::take(&mut server.lock().patches);
    let written = |patch: &Value| {
        let metadata = &patch["metadata"];
        (metadata["uid"].as_str().unwrap().to_owned(), metadata["ownerReferences"].is_array())
    };
    let written: Vec<_> = patches.iter().map(written).collect();
    let (first, second) = ("0".to_owned(), "1".to_owned());
    let expected = [(first.clone(), false), (first, true), (second.clone(), false), (second, true)];
    assert_eq!(written, expected);
}

#[tokio::test]
async fn a_value_that_changes_before_the_secret_has_its_owners_is_applied_again() {
    let server = FakeSecretServer {
        content_since: at(50).to_string(),
        concurrent_change: Some(|server| {
            server.version += 1;
            server.data = "d3Jvbmc=".to_owned();
        }),
        change_before_owners: true,
        ..FakeSecretServer::default()
    };
    let server = Arc::new(Mutex::new(server));
    let owner = OwnerReference { uid: "owner".to_owned(), ..OwnerReference::default() };
    assert_eq!(apply_content_of_second_100(&server, &[owner]).await, SecretApplyOutcome::InSync);
    let patches = std::mem::take(&mut server.lock().patches);
    let written: Vec<_> = patches
        .iter()
        .map(|patch| (patch["metadata"]["resourceVersion"].as_str(), patch["data"].is_object()))
        .collect();
    let first = Some("0");
    let second = Some("1");
    assert_eq!(written, [(first, true), (first, false), (second, true), (second, false)]);
}
