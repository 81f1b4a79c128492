mod custom_cloud;
mod faults;

use lanyard_clock::ErrorHint as _;
use std::time::Duration;

use http::StatusCode;
use lanyard_emulator_state::imds_node::ImdsState;
use serde_json::{Value, json};

use super::*;
use crate::FaultPlan;
use crate::testing;
use crate::testing::{APP, LOGIN, SECRET, TENANT};

async fn start_emulator(azure: AzureState) -> Emulator {
    let probe = testing::EngineFixture::new(azure);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    Emulator::serve_on_listener(probe.engine, listener, address, false).unwrap()
}

fn proxied_client(emulator: &Emulator) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    reqwest::Client::builder()
        .proxy(reqwest::Proxy::all(emulator.proxy_url()).unwrap())
        .tls_certs_only([authority])
        .build()
        .unwrap()
}

fn direct_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn request_token(client: &reqwest::Client) -> reqwest::Response {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "client_credentials")
        .append_pair("client_id", APP)
        .append_pair("client_secret", SECRET)
        .append_pair("scope", "https://vault.azure.net/.default")
        .finish();
    client
        .post(format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/token"))
        .header("x-ms-client-request-id", "mine")
        .body(form)
        .send()
        .await
        .unwrap()
}

async fn response_json(response: reqwest::Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn token_is_issued_through_the_proxy_under_the_public_name() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let response = request_token(&proxied_client(&emulator)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.headers()["x-ms-client-request-id"], "mine");
    assert!(response.headers().contains_key("x-ms-request-id"));
    assert_eq!(response.headers()["date"], "Sat, 21 Nov 2026 12:00:00 GMT");
    assert_eq!(response.headers()["content-type"], "application/json; charset=utf-8");
    let entry = &emulator.request_log()[0];
    assert_eq!(entry.operation, Some("Token_Post"));
    assert_eq!(entry.caller, Some(APP.parse().unwrap()));
    assert!(entry.tls);
    emulator.shutdown().await;
}

#[tokio::test]
async fn http_1_1_works_inside_the_tunnel() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder()
        .proxy(reqwest::Proxy::all(emulator.proxy_url()).unwrap())
        .tls_certs_only([authority])
        .http1_only()
        .build()
        .unwrap();
    let response =
        client.head(format!("https://{LOGIN}/{TENANT}/discovery/keys")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.version(), http::Version::HTTP_11);
    let length: u64 = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
    assert!(length > 100, "{length}");
}

#[tokio::test]
async fn token_proxy_is_selected_by_tls_server_name_not_host_header() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    let name = lanyard_emulator_state::identity_binding::proxy_server_name("cluster");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .http1_only()
        .resolve(&name, emulator.address())
        .build()
        .unwrap();
    let url = format!("https://{name}:{}/{TENANT}/oauth2/v2.0/token", emulator.address().port());
    let response = client.post(url).header("host", LOGIN).body("").send().await.unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    let entry = &emulator.request_log()[0];
    assert_eq!((entry.operation, entry.host.as_str()), (Some("Token_Post"), name.as_str()));
}

#[tokio::test]
async fn non_azure_hosts_are_rejected_and_logged() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let client = proxied_client(&emulator);
    assert!(client.get("https://example.com/").send().await.is_err());
    let plain = client.get("http://example.com/x?token=abc").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::FORBIDDEN);
    let clear = client.get(format!("http://{LOGIN}/common")).send().await.unwrap();
    assert_eq!(clear.status(), StatusCode::FORBIDDEN);
    let entries = emulator.request_log();
    let observed: Vec<_> =
        entries.iter().map(|e| (e.method.as_str(), e.host.as_str(), e.status)).collect();
    assert_eq!(
        observed,
        [("CONNECT", "example.com", 403), ("GET", "example.com", 403), ("GET", LOGIN, 403)]
    );
    assert!(entries.iter().all(|entry| entry.rejection.is_some() && entry.service.is_none()));
}

#[tokio::test]
async fn imds_is_reachable_on_the_port_and_through_the_proxy() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let path =
        "metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://vault.azure.net";
    for (client, base) in [
        (direct_client(), emulator.proxy_url()),
        (proxied_client(&emulator), "http://169.254.169.254".to_owned()),
    ] {
        let url = format!("{base}/{path}");
        let response = client.get(&url).header("Metadata", "true").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{url}");
        assert_eq!(response_json(response).await["token_type"], "Bearer");
        assert_eq!(client.get(&url).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn port_accepts_loopback_names_only() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let url = format!("{}/lanyard/v1/operations", emulator.proxy_url());
    let ask = |host: &str| {
        direct_client().get(&url).header("x-lanyard-control", "1").header("host", host).send()
    };
    assert_eq!(ask("localhost:1").await.unwrap().status(), StatusCode::OK);
    assert_eq!(ask("evil.example").await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn control_api_and_page_need_a_loopback_name_even_if_remote_clients_are_allowed() {
    let probe = testing::EngineFixture::new(testing::azure_with_test_principals());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let emulator = Emulator::serve_on_listener(probe.engine, listener, address, true).unwrap();
    let ask = async |host: &str, path: &str| {
        let url = format!("{}{path}", emulator.proxy_url());
        let request = direct_client().get(&url).header("x-lanyard-control", "1");
        request.header("host", host).send().await.unwrap().status().as_u16()
    };
    for path in ["/", "/lanyard/page.js", "/lanyard/v1/state", "/lanyard/v1/test-clients"] {
        let served = if path.ends_with("test-clients") { 404 } else { 200 };
        for host in ["localhost", "127.0.0.1:7750", "[::1]:7750", "LOCALHOST."] {
            assert_eq!(ask(host, path).await, served, "{host} {path}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example"]
        {
            assert_eq!(ask(host, path).await, 403, "{host} {path}");
        }
    }
    assert_eq!(ask("local-azure.test", "/lanyard/v1/ca.pem").await, 200);
    emulator.shutdown().await;
}

#[tokio::test]
async fn unknown_operations_return_501_and_are_logged_as_missing() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let client = proxied_client(&emulator);
    for url in [
        "https://acct.table.core.windows.net/t".to_owned(),
        "https://acct.queue.core.windows.net/q".to_owned(),
        format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/revoke"),
    ] {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED, "{url}");
    }
    let entries = emulator.request_log();
    assert_eq!(entries.iter().filter(|entry| entry.missing).count(), 3);
    let near =
        client.get(format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/revoke")).send().await.unwrap();
    let text = response_json(near).await["error_description"].as_str().unwrap().to_owned();
    assert!(text.contains("(GET /{tenant}/"), "{text}");
}

#[tokio::test]
async fn fault_rules_apply_in_order_and_are_logged() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let url = format!("{}/lanyard/v1/faults", emulator.proxy_url());
    let add = |rule: Value| {
        direct_client().post(&url).header("x-lanyard-control", "1").body(rule.to_string()).send()
    };
    let rule = json!({
        "name": "busy", "service": "entra", "times": 1, "after": 1,
        "effect": { "type": "throttle", "retry_after": 60 },
    });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    let client = proxied_client(&emulator);
    assert_eq!(request_token(&client).await.status(), StatusCode::OK);
    let throttled = request_token(&client).await;
    assert_eq!(throttled.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(throttled.headers()["retry-after"], "60");
    assert_eq!(throttled.text().await.unwrap(), "Too Many Requests");
    assert_eq!(request_token(&client).await.status(), StatusCode::OK);

    let rule = json!({
        "name": "code", "service": "entra", "times": 1,
        "effect": { "type": "token-error", "code": 7_000_214 },
    });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(
        response_json(request_token(&client).await).await["error_codes"],
        json!([7_000_214])
    );
    let rule = json!({ "name": "cut", "times": 1, "effect": { "type": "reset" } });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    let cut = client.get(format!("https://{LOGIN}/common/discovery/keys")).send().await;
    assert!(cut.is_err());
    let unknown = json!({ "name": "x", "effect": { "type": "explode" } });
    assert_eq!(add(unknown).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let struck: Vec<_> =
        emulator.request_log().into_iter().filter_map(|entry| entry.fault).collect();
    assert_eq!(struck, ["busy", "code", "cut"]);
}

#[tokio::test]
async fn delayed_reply_waits_for_the_emulator_clock() {
    let probe = testing::EngineFixture::new(testing::azure_with_test_principals());
    let clock = probe.clock.clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let emulator = Emulator::serve_on_listener(probe.engine, listener, address, false).unwrap();
    let rule = json!({ "name": "slow", "effect": { "type": "latency", "milliseconds": 30_000 } });
    emulator.engine.state().azure.faults.insert(serde_json::from_value(rule).unwrap());
    let client = proxied_client(&emulator);
    let asked = tokio::spawn(async move { request_token(&client).await.status() });
    while clock.sleeper_count() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!asked.is_finished());
    clock.advance(Duration::from_secs(30));
    assert_eq!(asked.await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn control_api_requires_its_header_and_shows_no_secret() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let ask = |path: &str, header: bool| {
        let request = direct_client().get(format!("{}/lanyard/v1/{path}", emulator.proxy_url()));
        if header { request.header("x-lanyard-control", "1") } else { request }.send()
    };
    request_token(&proxied_client(&emulator)).await;
    for path in ["request-log", "state", "operations", "faults"] {
        assert_eq!(ask(path, false).await.unwrap().status(), StatusCode::FORBIDDEN, "{path}");
        let response = ask(path, true).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let text = response.text().await.unwrap();
        for secret in [SECRET, "s3cret-header", "eyJ", "PRIVATE"] {
            assert!(!text.contains(secret), "{path}: {secret}");
        }
    }
    let pem = ask("ca.pem", false).await.unwrap().text().await.unwrap();
    assert_eq!(pem, emulator.ca_pem());
    let since = response_json(ask("request-log?since=2", true).await.unwrap()).await;
    assert_eq!(since["value"][0]["sequence"], 3);
}

#[tokio::test]
async fn app_service_protocol_requires_its_header() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let url = format!(
        "{}/msi/token?api-version=2019-08-01&resource=https://vault.azure.net",
        emulator.proxy_url()
    );
    let ask =
        |header: &'static str| direct_client().get(&url).header("X-IDENTITY-HEADER", header).send();
    assert_eq!(ask("wrong").await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask("s3cret-header").await.unwrap().status(), StatusCode::OK);
    let azure =
        AzureState { imds: ImdsState::default().into(), ..testing::azure_with_test_principals() };
    let without = start_emulator(azure).await;
    let url = url.replace(&emulator.proxy_url(), &without.proxy_url());
    let reply = direct_client().get(url).header("X-IDENTITY-HEADER", "").send().await.unwrap();
    assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn non_loopback_address_is_rejected_unless_allowed() {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let refused = Emulator::builder().listen(any).start().await;
    assert!(matches!(refused, Err(StartError::AddressReachableRemotely { .. })));
    let hint = refused.err().and_then(|error| error.hint());
    assert!(hint.is_some());
    let allowed = Emulator::builder().listen(any).allow_remote(true).start().await.unwrap();
    assert!(allowed.proxy_url().starts_with("http://127.0.0.1:"));
    allowed.shutdown().await;
}

#[tokio::test]
async fn state_and_authority_survive_restart_and_are_locked_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Emulator::builder().state_dir(directory.path()).start();
    let first = start().await.unwrap();
    let pem = first.ca_pem().to_owned();
    let url = format!("{}/lanyard/v1/faults", first.proxy_url());
    let rule = json!({ "name": "kept", "effect": { "type": "reset" } }).to_string();
    let added = direct_client()
        .post(&url)
        .header("x-lanyard-control", "1")
        .body(rule)
        .send()
        .await
        .unwrap();
    assert_eq!(added.status(), StatusCode::CREATED);
    assert!(matches!(start().await, Err(StartError::Store(StateStoreError::Locked { .. }))));
    // Without a shutdown: the reply itself guarantees that the change is on disk.
    let copy = tempfile::tempdir().unwrap();
    let database = directory.path().join("state.redb");
    std::fs::copy(database, copy.path().join("state.redb")).unwrap();
    let saved = StateStore::open(copy.path()).unwrap().load().unwrap().unwrap();
    assert_eq!(saved.azure.faults.rules()[0].name, "kept");
    first.shutdown().await;
    let second = start().await.unwrap();
    assert_eq!(second.ca_pem(), pem);
    assert_eq!(second.engine.state().azure.faults.rules()[0].name, "kept");
}

#[tokio::test]
async fn restart_writes_only_changed_settings() {
    let directory = tempfile::tempdir().unwrap();
    let restart = async |page_size: u32| {
        let change = json!({ "resourceManager": { "pageSize": page_size } });
        let change = SettingsChange::from_json(change).unwrap();
        let builder = Emulator::builder().state_dir(directory.path()).settings(change);
        builder.start().await.unwrap().shutdown().await;
        std::fs::read(directory.path().join("state.redb")).unwrap()
    };
    let first = restart(2).await;
    assert_eq!(restart(2).await, first);
    assert_ne!(restart(3).await, first);
}

#[tokio::test]
async fn provided_authority_replaces_the_saved_one() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Emulator::builder().state_dir(directory.path());
    builder().start().await.unwrap().shutdown().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    let given = builder().certificate_authority(pem.clone(), key.serialize_pem());
    let emulator = given.start().await.unwrap();
    assert_eq!(emulator.ca_pem(), pem);
    emulator.shutdown().await;
    let restarted = builder().start().await.unwrap();
    assert_eq!(restarted.ca_pem(), pem);
    restarted.shutdown().await;
    let refused = builder().certificate_authority(pem, "no key".to_owned()).start().await;
    assert!(refused.unwrap_err().is_invalid_authority());
}

#[tokio::test]
async fn saved_state_of_another_seed_plan_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = testing::seeded_state::nine_identity_plan();
    plan.identities.truncate(1);
    let start = |seed: fn(EmulatorBuilder, SeedPlan) -> EmulatorBuilder, plan: &SeedPlan| {
        seed(Emulator::builder().state_dir(directory.path()), plan.clone()).start()
    };
    start(EmulatorBuilder::seed, &plan).await.unwrap().shutdown().await;
    start(EmulatorBuilder::seed, &plan).await.unwrap().shutdown().await;

    let other = SeedPlan { location: "westeurope".to_owned(), ..plan.clone() };
    let refused = start(EmulatorBuilder::seed, &other).await.unwrap_err();
    assert!(
        matches!(&refused, StartError::SeedPlanMismatch { directory: at } if at == directory.path()),
        "{refused}"
    );
    assert!(refused.is_invalid_plan() && refused.hint().is_some());
    let retained = start(EmulatorBuilder::seed_if_new, &other).await.unwrap();
    assert_eq!(retained.engine.state().azure.registry.holders[0].location, "eastus");
    retained.shutdown().await;

    plan.drills.push(FaultPlan {
        fault: lanyard_emulator_state::identity_fault::IdentityFault::Expired,
        component: Component::Kms,
    });
    let contradictory = Emulator::builder().seed(plan).start().await.unwrap_err();
    assert!(contradictory.is_invalid_plan(), "{contradictory}");
}

#[tokio::test]
async fn identity_header_is_returned_without_test_clients() {
    let emulator = Emulator::builder().start().await.unwrap();
    let url = format!("{}/lanyard/v1/identity-header", emulator.proxy_url());
    let guarded = direct_client().get(&url).send().await.unwrap();
    assert_eq!(guarded.status(), StatusCode::FORBIDDEN);
    let reply = direct_client().get(&url).header("x-lanyard-control", "1").send().await.unwrap();
    let body = response_json(reply).await;
    let expected = emulator.engine.state().azure.imds.identity_header.clone().unwrap();
    assert_eq!(body["identityHeader"], expected.expose());
}

#[tokio::test]
async fn several_emulators_run_in_one_process_and_stop_on_drop() {
    let mut emulators = Vec::new();
    for _ in 0..10 {
        emulators.push(Emulator::builder().start().await.unwrap());
    }
    let addresses: Vec<_> = emulators.iter().map(Emulator::address).collect();
    drop(emulators);
    for address in addresses {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn token_lifetime_follows_the_token_policy() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let client = proxied_client(&emulator);
    let url = format!("{}/lanyard/v1/tokens", emulator.proxy_url());
    let policy = json!({ "applicationSeconds": 10_000, "managedIdentitySeconds": 60 });
    let set = direct_client().put(url).header("x-lanyard-control", "1").body(policy.to_string());
    assert_eq!(set.send().await.unwrap().status(), StatusCode::OK);
    let long = response_json(request_token(&client).await).await;
    assert_eq!((&long["expires_in"], &long["refresh_in"]), (&json!(10_000), &json!(5_000)));
}

#[test]
fn debug_output_contains_no_secret() {
    let probe = testing::EngineFixture::new(testing::azure_with_test_principals());
    let reply = probe.request_token(&[("client_id", APP), ("client_secret", SECRET)]);
    let printed = format!("{reply:?} {:?}", probe.engine);
    assert_eq!(reply.status, StatusCode::OK);
    for secret in [SECRET, "s3cret-header", "eyJ", "access_token", "PRIVATE KEY"] {
        assert!(!printed.contains(secret), "{secret}");
    }
}

/// Captures all logs of the process on this thread, at every level.
#[derive(Clone, Default)]
struct EmulatorLogCapture(Arc<parking_lot::Mutex<String>>);

impl tracing::field::Visit for EmulatorLogCapture {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        writeln!(self.0.lock(), "{}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for EmulatorLogCapture {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn no_log_level_contains_a_secret() {
    let logged = EmulatorLogCapture::default();
    // With a single dispatcher, a test on a thread without a subscriber could disable new callsites for all.
    let _second_dispatcher = tracing::Dispatch::new(EmulatorLogCapture::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(logged.clone(), || {
        runtime.block_on(async {
            let emulator = start_emulator(testing::azure_with_test_principals()).await;
            let body = response_json(request_token(&proxied_client(&emulator)).await).await;
            assert_eq!(body["token_type"], "Bearer");
            tracing::info!("the end");
            emulator.shutdown().await;
        });
    });
    let logged = logged.0.lock();
    assert!(logged.contains("the end"), "the subscriber records events");
    for secret in [SECRET, "eyJ", "PRIVATE KEY", "client_secret"] {
        assert!(!logged.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn direct_tls_on_the_port_uses_the_requested_server_name() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let address = emulator.address();
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([authority])
        .resolve(LOGIN, address)
        .resolve("example.com", address)
        .build()
        .unwrap();
    let ask = |host: &str| {
        client.get(format!("https://{host}:{}/common/discovery/keys", address.port())).send()
    };
    assert_eq!(ask(LOGIN).await.unwrap().status(), StatusCode::OK);
    assert!(ask("example.com").await.is_err());
}
