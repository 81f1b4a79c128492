//! Several emulators in one process: isolated from each other, reproducible by their seeds, and restored from
//! snapshots.

#![cfg(test)]

#[path = "support/seed_plan.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::ManualClock;
use lanyard_emulator::{Emulator, EmulatorBuilder, StateSnapshot};
use serde_json::{Value, json};

use support::seed_plan;

const COUNT: usize = 10;
const START: &str = "2027-01-01T00:00:00Z";

/// A plan with the test clients and few identities, so that ten emulators start fast.
fn builder(seed: &str) -> EmulatorBuilder {
    let mut plan = seed_plan();
    plan.identities.truncate(1);
    plan.test_clients = true;
    Emulator::builder().id_seed(seed).seed(plan)
}

/// A client of the Azure names and of the control API of one emulator.
struct TestClient {
    http: reqwest::Client,
    control: String,
    token: String,
}

impl TestClient {
    async fn sign_in(emulator: &Emulator) -> Self {
        let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
        // The control API is reached directly.
        let proxy = reqwest::Proxy::https(emulator.proxy_url()).unwrap();
        let http =
            reqwest::Client::builder().proxy(proxy).tls_certs_only([authority]).build().unwrap();
        let credentials = emulator.test_credentials().unwrap();
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", &credentials.client_id.to_string()),
            ("client_secret", credentials.client_secret()),
            ("scope", "https://management.azure.com/.default"),
        ];
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let tenant = &credentials.tenant;
        let url = format!("https://login.microsoftonline.com/{tenant}/oauth2/v2.0/token");
        let reply = http.post(url).body(form).send().await.unwrap();
        let reply: Value = serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap();
        let token = reply["access_token"].as_str().unwrap().to_owned();
        Self { http, control: format!("{}/lanyard/v1", emulator.proxy_url()), token }
    }

    /// The status of a request to a resource group.
    async fn resource_group(&self, method: reqwest::Method, name: &str) -> u16 {
        let url = format!(
            "https://management.azure.com/subscriptions/sub/resourceGroups/{name}?api-version=2021-04-01"
        );
        let request = self.http.request(method, url).bearer_auth(&self.token);
        let body = json!({ "location": "westeurope" }).to_string();
        request.body(body).send().await.unwrap().status().as_u16()
    }

    async fn control(&self, path: &str) -> Value {
        let request = self.http.get(format!("{}/{path}", self.control));
        let reply = request.header("x-lanyard-control", "1").send().await.unwrap();
        serde_json::from_slice(&reply.bytes().await.unwrap()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_emulators_run_in_one_process() {
    let mut emulators = Vec::new();
    for number in 0..COUNT {
        let clock = ManualClock::starting_at(START.parse().unwrap());
        clock.advance(Duration::from_hours(u64::try_from(number).unwrap()));
        let emulator = builder(&number.to_string()).clock(Arc::new(clock)).start().await.unwrap();
        emulators.push((emulator, format!("2027-01-01T{number:02}:00:00Z")));
    }
    let mut clients = Vec::new();
    for (emulator, _) in &emulators {
        clients.push(TestClient::sign_in(emulator).await);
    }
    for (number, client) in clients.iter().enumerate() {
        let name = format!("group-{number}");
        assert_eq!(client.resource_group(reqwest::Method::PUT, &name).await, 201);
    }
    for (number, client) in clients.iter().enumerate() {
        for other in 0..COUNT {
            let status =
                client.resource_group(reqwest::Method::GET, &format!("group-{other}")).await;
            assert_eq!(status, if other == number { 200 } else { 404 }, "{number} {other}");
        }
        assert_eq!(client.control("clock").await["now"], emulators[number].1);
        // A token of another emulator has another signing key.
        let foreign = TestClient {
            http: client.http.clone(),
            control: client.control.clone(),
            token: clients[(number + 1) % COUNT].token.clone(),
        };
        assert_eq!(foreign.resource_group(reqwest::Method::GET, "group-0").await, 401);
    }
    let mut ports: Vec<_> = emulators.iter().map(|(it, _)| it.address().port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), COUNT);
    for (emulator, _) in emulators {
        let address = emulator.address();
        emulator.shutdown().await;
        assert!(std::net::TcpStream::connect(address).is_err(), "{address}");
    }
}

#[tokio::test]
async fn same_seed_and_time_give_the_same_state() {
    let start = async |seed: &str| {
        let builder = builder(seed).stop_clock_at(START.parse().unwrap());
        let emulator = builder.start().await.unwrap();
        let client = TestClient::sign_in(&emulator).await;
        assert_eq!(client.resource_group(reqwest::Method::PUT, "group").await, 201);
        let mut state = parsed(&emulator.snapshot());
        // The salts of PKCS#12 files are random.
        state["azure"]["vaults"]["secrets"].take();
        (client.control("export").await, state)
    };
    let (first, same, other) = (start("a").await, start("a").await, start("b").await);
    assert_eq!(first.0, same.0);
    assert_eq!(first.1, same.1);
    assert_ne!(first.0["servicePrincipals"], other.0["servicePrincipals"]);
    for pointer in ["/azure/directory/tenants/0/signing_keys", "/azure/vaults/keys"] {
        let keys =
            |state: &Value| state.pointer(pointer).unwrap_or_else(|| panic!("{pointer}")).clone();
        assert_ne!(keys(&first.1), keys(&other.1));
    }
}

fn parsed(snapshot: &StateSnapshot) -> Value {
    serde_json::from_slice(&snapshot.to_json().unwrap()).unwrap()
}

#[tokio::test]
async fn snapshot_restores_a_running_emulator_and_starts_another_one() {
    let directory = tempfile::tempdir().unwrap();
    let emulator = builder("snapshot").state_dir(directory.path()).start().await.unwrap();
    let client = TestClient::sign_in(&emulator).await;
    assert_eq!(client.resource_group(reqwest::Method::PUT, "before").await, 201);
    let snapshot = emulator.snapshot();
    assert_eq!(client.resource_group(reqwest::Method::PUT, "after").await, 201);
    emulator.restore(snapshot.clone()).await.unwrap();
    assert_eq!(client.resource_group(reqwest::Method::GET, "before").await, 200);
    assert_eq!(client.resource_group(reqwest::Method::GET, "after").await, 404);
    emulator.shutdown().await;

    let restarted = Emulator::builder().state_dir(directory.path()).start().await.unwrap();
    let copy = Emulator::builder().snapshot(snapshot).start().await.unwrap();
    for emulator in [&restarted, &copy] {
        let client = TestClient::sign_in(emulator).await;
        assert_eq!(client.resource_group(reqwest::Method::GET, "before").await, 200);
        assert_eq!(client.resource_group(reqwest::Method::GET, "after").await, 404);
    }
    let client = TestClient::sign_in(&copy).await;
    assert_eq!(client.resource_group(reqwest::Method::DELETE, "before").await / 100, 2);
    let client = TestClient::sign_in(&restarted).await;
    assert_eq!(client.resource_group(reqwest::Method::GET, "before").await, 200);
    copy.shutdown().await;
    restarted.shutdown().await;
}
