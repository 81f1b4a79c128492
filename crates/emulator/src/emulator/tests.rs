use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::*;
use crate::services::imds::Imds;
use crate::testing::{self, APP, LOGIN, SECRET, TENANT};

async fn started(world: World) -> Emulator {
    let probe = testing::Probe::new(world);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    Emulator::over(probe.engine, listener, address, false).unwrap()
}

fn proxied(emulator: &Emulator) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    reqwest::Client::builder()
        .proxy(reqwest::Proxy::all(emulator.proxy_url()).unwrap())
        .tls_certs_only([authority])
        .build()
        .unwrap()
}

fn direct() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn token(client: &reqwest::Client) -> reqwest::Response {
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

async fn json_of(response: reqwest::Response) -> Value {
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

#[tokio::test]
async fn a_token_comes_through_the_proxy_under_the_public_name() {
    let emulator = started(testing::world()).await;
    let response = token(&proxied(&emulator)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.headers()["x-ms-client-request-id"], "mine");
    assert!(response.headers().contains_key("x-ms-request-id"));
    assert_eq!(response.headers()["date"], "Sat, 21 Nov 2026 12:00:00 GMT");
    assert_eq!(response.headers()["content-type"], "application/json; charset=utf-8");
    let entry = &emulator.ledger()[0];
    assert_eq!(entry.operation, Some("Token_Post"));
    assert_eq!(entry.caller, Some(APP.parse().unwrap()));
    assert!(entry.tls);
    emulator.shutdown().await;
}

#[tokio::test]
async fn the_first_http_version_works_inside_the_tunnel_too() {
    let emulator = started(testing::world()).await;
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
async fn the_token_proxy_of_a_cluster_is_found_by_its_server_name_whatever_the_host_says() {
    let emulator = started(testing::world()).await;
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    let name = crate::binding::server_name_of("cluster");
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
    let entry = &emulator.ledger()[0];
    assert_eq!((entry.operation, entry.host.as_str()), (Some("Token_Post"), name.as_str()));
}

#[tokio::test]
async fn what_is_not_azure_is_refused_and_recorded() {
    let emulator = started(testing::world()).await;
    let client = proxied(&emulator);
    assert!(client.get("https://example.com/").send().await.is_err());
    let plain = client.get("http://example.com/x?token=abc").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::FORBIDDEN);
    let clear = client.get(format!("http://{LOGIN}/common")).send().await.unwrap();
    assert_eq!(clear.status(), StatusCode::FORBIDDEN);
    let entries = emulator.ledger();
    let seen: Vec<_> =
        entries.iter().map(|e| (e.method.as_str(), e.host.as_str(), e.status)).collect();
    assert_eq!(
        seen,
        [("CONNECT", "example.com", 403), ("GET", "example.com", 403), ("GET", LOGIN, 403)]
    );
    assert!(entries.iter().all(|entry| entry.refusal.is_some() && entry.service.is_none()));
}

#[tokio::test]
async fn imds_answers_on_the_port_and_by_absolute_form() {
    let emulator = started(testing::world()).await;
    let path =
        "metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://vault.azure.net";
    for (client, base) in [
        (direct(), emulator.proxy_url()),
        (proxied(&emulator), "http://169.254.169.254".to_owned()),
    ] {
        let url = format!("{base}/{path}");
        let response = client.get(&url).header("Metadata", "true").send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{url}");
        assert_eq!(json_of(response).await["token_type"], "Bearer");
        assert_eq!(client.get(&url).send().await.unwrap().status(), StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn the_port_answers_to_loopback_names_only() {
    let emulator = started(testing::world()).await;
    let url = format!("{}/lanyard/v1/operations", emulator.proxy_url());
    let ask = |host: &str| {
        direct().get(&url).header("x-lanyard-control", "1").header("host", host).send()
    };
    assert_eq!(ask("localhost:1").await.unwrap().status(), StatusCode::OK);
    assert_eq!(ask("evil.example").await.unwrap().status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn unknown_operations_and_services_answer_501_and_are_the_backlog() {
    let emulator = started(testing::world()).await;
    let client = proxied(&emulator);
    for url in [
        "https://graph.microsoft.com/v1.0/me".to_owned(),
        "https://acct.blob.core.windows.net/c/b".to_owned(),
        format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/devicecode"),
    ] {
        let response = client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_IMPLEMENTED, "{url}");
    }
    let entries = emulator.ledger();
    assert_eq!(entries.iter().filter(|entry| entry.missing).count(), 3);
    let near = client
        .get(format!("https://{LOGIN}/{TENANT}/oauth2/v2.0/devicecode"))
        .send()
        .await
        .unwrap();
    let text = json_of(near).await["error_description"].as_str().unwrap().to_owned();
    assert!(text.contains("Token_Post"), "{text}");
}

#[tokio::test]
async fn faults_strike_in_order_and_are_recorded() {
    let emulator = started(testing::world()).await;
    let url = format!("{}/lanyard/v1/faults", emulator.proxy_url());
    let add = |rule: Value| {
        direct().post(&url).header("x-lanyard-control", "1").body(rule.to_string()).send()
    };
    let rule = json!({
        "name": "busy", "service": "entra", "times": 1, "after": 1,
        "effect": { "type": "throttle", "retry_after": 60 },
    });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    let client = proxied(&emulator);
    assert_eq!(token(&client).await.status(), StatusCode::OK);
    let throttled = token(&client).await;
    assert_eq!(throttled.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(throttled.headers()["retry-after"], "60");
    assert_eq!(throttled.text().await.unwrap(), "Too Many Requests");
    assert_eq!(token(&client).await.status(), StatusCode::OK);

    let rule = json!({ "name": "code", "times": 1, "effect": { "type": "token-error", "code": 7_000_214 } });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    assert_eq!(json_of(token(&client).await).await["error_codes"], json!([7_000_214]));
    let rule = json!({ "name": "cut", "times": 1, "effect": { "type": "reset" } });
    assert_eq!(add(rule).await.unwrap().status(), StatusCode::CREATED);
    let cut = client.get(format!("https://{LOGIN}/common/discovery/keys")).send().await;
    assert!(cut.is_err());
    let unknown = json!({ "name": "x", "effect": { "type": "explode" } });
    assert_eq!(add(unknown).await.unwrap().status(), StatusCode::BAD_REQUEST);
    let struck: Vec<_> = emulator.ledger().into_iter().filter_map(|entry| entry.fault).collect();
    assert_eq!(struck, ["busy", "code", "cut"]);
}

#[tokio::test]
async fn a_late_reply_waits_for_the_clock_of_the_world() {
    let probe = testing::Probe::new(testing::world());
    let clock = probe.clock.clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let emulator = Emulator::over(probe.engine, listener, address, false).unwrap();
    let rule = json!({ "name": "slow", "effect": { "type": "latency", "milliseconds": 30_000 } });
    emulator.engine.state().world.faults.insert(serde_json::from_value(rule).unwrap());
    let client = proxied(&emulator);
    let asked = tokio::spawn(async move { token(&client).await.status() });
    while clock.sleepers() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!asked.is_finished());
    clock.advance(Duration::from_secs(30));
    assert_eq!(asked.await.unwrap(), StatusCode::OK);
}

#[tokio::test]
async fn the_control_api_wants_its_header_and_shows_no_secret() {
    let emulator = started(testing::world()).await;
    let ask = |path: &str, header: bool| {
        let request = direct().get(format!("{}/lanyard/v1/{path}", emulator.proxy_url()));
        if header { request.header("x-lanyard-control", "1") } else { request }.send()
    };
    token(&proxied(&emulator)).await;
    for path in ["ledger", "world", "operations", "faults"] {
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
    let since = json_of(ask("ledger?since=2", true).await.unwrap()).await;
    assert_eq!(since["value"][0]["sequence"], 3);
}

#[tokio::test]
async fn the_app_service_protocol_wants_its_header() {
    let emulator = started(testing::world()).await;
    let url = format!(
        "{}/msi/token?api-version=2019-08-01&resource=https://vault.azure.net",
        emulator.proxy_url()
    );
    let ask = |header: &'static str| direct().get(&url).header("X-IDENTITY-HEADER", header).send();
    assert_eq!(ask("wrong").await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask("s3cret-header").await.unwrap().status(), StatusCode::OK);
    let world = World { imds: Imds::default(), ..testing::world() };
    let without = started(world).await;
    let url = url.replace(&emulator.proxy_url(), &without.proxy_url());
    let reply = direct().get(url).header("X-IDENTITY-HEADER", "").send().await.unwrap();
    assert_eq!(reply.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn an_address_that_others_reach_is_refused_unless_it_is_allowed() {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let refused = Emulator::builder().listen(any).start().await;
    assert!(matches!(refused, Err(StartError::Remote { .. })));
    let hint = refused.err().and_then(|error| error.hint());
    assert!(hint.is_some());
    let allowed = Emulator::builder().listen(any).allow_remote(true).start().await.unwrap();
    assert!(allowed.proxy_url().starts_with("http://127.0.0.1:"));
    allowed.shutdown().await;
}

#[tokio::test]
async fn a_world_and_its_authority_survive_a_restart_and_belong_to_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let start = || Emulator::builder().state_dir(directory.path()).start();
    let first = start().await.unwrap();
    let pem = first.ca_pem().to_owned();
    let url = format!("{}/lanyard/v1/faults", first.proxy_url());
    let rule = json!({ "name": "kept", "effect": { "type": "reset" } }).to_string();
    let added =
        direct().post(&url).header("x-lanyard-control", "1").body(rule).send().await.unwrap();
    assert_eq!(added.status(), StatusCode::CREATED);
    assert!(matches!(start().await, Err(StartError::Store(StoreError::Locked { .. }))));
    // No shutdown: the reply alone promises that the change is on the disk.
    let state = std::fs::read_to_string(directory.path().join("state.json")).unwrap();
    assert!(state.contains("kept"));
    first.shutdown().await;
    let second = start().await.unwrap();
    assert_eq!(second.ca_pem(), pem);
    assert_eq!(second.engine.state().world.faults.rules()[0].name, "kept");
}

#[tokio::test]
async fn a_given_authority_takes_the_place_of_the_saved_one_and_is_saved() {
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
async fn a_saved_world_is_not_taken_for_that_of_another_plan() {
    let directory = tempfile::tempdir().unwrap();
    let mut plan = seed::tests::plan();
    plan.identities.truncate(1);
    let start = |seed: fn(Builder, WorldPlan) -> Builder, plan: &WorldPlan| {
        seed(Emulator::builder().state_dir(directory.path()), plan.clone()).start()
    };
    start(Builder::seed, &plan).await.unwrap().shutdown().await;
    start(Builder::seed, &plan).await.unwrap().shutdown().await;

    let other = WorldPlan { location: "westeurope".to_owned(), ..plan.clone() };
    let refused = start(Builder::seed, &other).await.unwrap_err();
    assert!(
        matches!(&refused, StartError::OtherWorld { directory: at } if at == directory.path()),
        "{refused}"
    );
    assert!(refused.is_invalid_plan() && refused.hint().is_some());
    let kept = start(Builder::seed_if_new, &other).await.unwrap();
    assert_eq!(kept.engine.state().world.roster.holders[0].location, "eastus");
    kept.shutdown().await;

    plan.drills.push(Drill { fault: crate::Fault::Expired, component: Component::Kms });
    let contradictory = Emulator::builder().seed(plan).start().await.unwrap_err();
    assert!(contradictory.is_invalid_plan(), "{contradictory}");
}

#[tokio::test]
async fn the_header_of_the_app_service_protocol_is_told_without_guests_too() {
    let emulator = Emulator::builder().start().await.unwrap();
    let url = format!("{}/lanyard/v1/identity-header", emulator.proxy_url());
    let guarded = direct().get(&url).send().await.unwrap();
    assert_eq!(guarded.status(), StatusCode::FORBIDDEN);
    let reply = direct().get(&url).header("x-lanyard-control", "1").send().await.unwrap();
    let body = json_of(reply).await;
    let expected = emulator.engine.state().world.imds.identity_header.clone().unwrap();
    assert_eq!(body["identityHeader"], expected.expose());
}

#[tokio::test]
async fn many_emulators_live_in_one_process_and_stop_when_dropped() {
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
async fn tokens_live_as_long_as_the_world_says() {
    let emulator = started(testing::world()).await;
    let client = proxied(&emulator);
    let url = format!("{}/lanyard/v1/tokens", emulator.proxy_url());
    let policy = json!({ "applicationSeconds": 10_000, "managedIdentitySeconds": 60 });
    let set = direct().put(url).header("x-lanyard-control", "1").body(policy.to_string());
    assert_eq!(set.send().await.unwrap().status(), StatusCode::OK);
    let long = json_of(token(&client).await).await;
    assert_eq!((&long["expires_in"], &long["refresh_in"]), (&json!(10_000), &json!(5_000)));
}

#[test]
fn what_is_printed_for_debugging_holds_no_secret() {
    let probe = testing::Probe::new(testing::world());
    let reply = probe.token(&[("client_id", APP), ("client_secret", SECRET)]);
    let printed = format!("{reply:?} {:?}", probe.engine);
    assert_eq!(reply.status, StatusCode::OK);
    for secret in [SECRET, "s3cret-header", "eyJ", "access_token", "PRIVATE KEY"] {
        assert!(!printed.contains(secret), "{secret}");
    }
}

/// Everything that any crate of the process logs on this thread, at every level.
#[derive(Clone, Default)]
struct Everything(Arc<parking_lot::Mutex<String>>);

impl tracing::field::Visit for Everything {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write as _;
        writeln!(self.0.lock(), "{}={value:?}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Everything {
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
fn no_log_of_any_level_holds_a_secret() {
    let logged = Everything::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tracing::subscriber::with_default(logged.clone(), || {
        runtime.block_on(async {
            let emulator = started(testing::world()).await;
            let body = json_of(token(&proxied(&emulator)).await).await;
            assert_eq!(body["token_type"], "Bearer");
            tracing::info!("the end");
            emulator.shutdown().await;
        });
    });
    let logged = logged.0.lock();
    assert!(logged.contains("the end"), "the subscriber hears something");
    for secret in [SECRET, "eyJ", "PRIVATE KEY", "client_secret"] {
        assert!(!logged.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn tls_on_the_port_itself_speaks_for_the_name_that_is_asked_for() {
    let emulator = started(testing::world()).await;
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
