//! Faults of the transport, through real connections.

use lanyard_clock::ErrorHint as _;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// An emulator whose delays pass in real time.
async fn emulator_with_rule(rule: Value) -> Emulator {
    let clouds = AzureClouds::new(None, 443);
    let authority = Arc::new(LocalAuthority::generate(&clouds).unwrap());
    let azure = testing::azure_with_test_principals();
    let engine = EmulatorEngine::new(
        SystemClock::shared(),
        authority,
        clouds,
        services(),
        State::new(azure, IdGenerator::Random),
        None,
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let emulator = Emulator::serve_on_listener(engine, listener, address, false).unwrap();
    let rule = FaultRule::from_json(rule).unwrap();
    emulator.engine.state().azure.faults.insert(rule);
    emulator
}

fn http_1_1_client(emulator: &Emulator) -> reqwest::Client {
    let authority = reqwest::Certificate::from_pem(emulator.ca_pem().as_bytes()).unwrap();
    reqwest::Client::builder()
        .proxy(reqwest::Proxy::all(emulator.proxy_url()).unwrap())
        .tls_certs_only([authority])
        .http1_only()
        .build()
        .unwrap()
}

fn faults_in_log(emulator: &Emulator) -> Vec<String> {
    emulator.request_log().into_iter().filter_map(|entry| entry.fault).collect()
}

fn keys_url() -> String {
    format!("https://{LOGIN}/{TENANT}/discovery/keys")
}

#[tokio::test]
async fn truncated_body_has_its_full_length_announced_and_ends_early() {
    let rule = json!({ "name": "cut", "times": 2, "effect": { "type": "truncate", "bytes": 10 } });
    let emulator = emulator_with_rule(rule).await;
    for client in [proxied_client(&emulator), http_1_1_client(&emulator)] {
        let response = client.get(keys_url()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.content_length().unwrap() > 10);
        response.bytes().await.unwrap_err();
    }
    assert_eq!(faults_in_log(&emulator), ["cut", "cut"]);
}

#[tokio::test]
async fn connection_is_reset_before_or_after_the_headers() {
    let before = json!({ "name": "r", "times": 1, "effect": { "type": "reset", "hold": 1 } });
    let emulator = emulator_with_rule(before).await;
    let client = http_1_1_client(&emulator);
    let waiting = client.get(keys_url()).send();
    waiting.await.unwrap_err();
    let after =
        json!({ "name": "r", "times": 1, "effect": { "type": "reset", "when": "after-headers" } });
    emulator.engine.state().azure.faults.insert(FaultRule::from_json(after).unwrap());
    let response = client.get(keys_url()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.unwrap_err();
    assert_eq!(client.get(keys_url()).send().await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn slow_body_arrives_complete() {
    let rule =
        json!({ "name": "s", "times": 1, "effect": { "type": "slow-body", "milliseconds": 80 } });
    let emulator = emulator_with_rule(rule).await;
    let client = proxied_client(&emulator);
    let slow = client.get(keys_url()).send().await.unwrap().bytes().await.unwrap();
    let regular = client.get(keys_url()).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(slow, regular);
}

#[tokio::test]
async fn certificate_faults_end_the_handshake_and_are_logged() {
    let emulator = start_emulator(testing::azure_with_test_principals()).await;
    let client = proxied_client(&emulator);
    assert_eq!(client.get(keys_url()).send().await.unwrap().status(), StatusCode::OK);
    let problems = [
        ("expired", "Expired"),
        ("unknown-authority", "UnknownIssuer"),
        ("missing-intermediate", "UnknownIssuer"),
        ("wrong-host", "NotValidForName"),
        ("alert", "AccessDenied"),
    ];
    for (problem, cause) in problems {
        let rule = json!({
            "name": problem, "host": LOGIN, "times": 1,
            "effect": { "type": "certificate", "problem": problem },
        });
        let rule = FaultRule::from_json(rule).unwrap();
        emulator.engine.state().azure.faults.insert(rule);
        // A new client, because the open connection of the other one stays usable.
        let error = proxied_client(&emulator).get(keys_url()).send().await.unwrap_err();
        assert!(format!("{error:?}").contains(cause), "{problem}: {error:?}");
        let status = proxied_client(&emulator).get(keys_url()).send().await.unwrap().status();
        assert_eq!(status, StatusCode::OK, "{problem}");
    }
    assert_eq!(faults_in_log(&emulator), problems.map(|(problem, _)| problem));
    let log = emulator.request_log();
    let entry = log.iter().find(|entry| entry.fault.is_some()).unwrap();
    assert_eq!((entry.method.as_str(), entry.host.as_str(), entry.status), ("TLS", LOGIN, 0));
}

#[tokio::test]
async fn half_closed_tunnel_sends_nothing_and_reads_on() {
    let rule = json!({
        "name": "half", "host": LOGIN, "times": 2, "effect": { "type": "half-closed-tunnel" },
    });
    let emulator = emulator_with_rule(rule).await;
    let url = emulator.proxy_url();
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("CONNECT {LOGIN}:443 HTTP/1.1\r\nhost: {LOGIN}:443\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\n"), "{reply}");
    // A closed connection would answer the first bytes with RST, and reject the next ones.
    for _ in 0..100 {
        stream.write_all(&[0; 1_024]).await.unwrap();
    }
    drop(stream);

    let error = proxied_client(&emulator).get(keys_url()).send().await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    let status = proxied_client(&emulator).get(keys_url()).send().await.unwrap().status();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(faults_in_log(&emulator), ["half", "half"]);
    let log = emulator.request_log();
    let entry = log.iter().find(|entry| entry.fault.is_some()).unwrap();
    assert_eq!((entry.method.as_str(), entry.status, entry.tls), ("CONNECT", 0, false));
    emulator.shutdown().await;
}

#[tokio::test]
async fn jitter_delays_a_reply_by_a_reproducible_time() {
    let probe = testing::EngineFixture::new(testing::azure_with_test_principals());
    let clock = probe.clock.clone();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let emulator = Emulator::serve_on_listener(probe.engine, listener, address, false).unwrap();
    let effect = json!({ "type": "latency", "milliseconds": 1_000, "jitter": 4_000 });
    let mut delays = Vec::new();
    for seed in [1, 1, 2] {
        let rule = json!({ "name": "slow", "seed": seed, "effect": effect });
        let rule = FaultRule::from_json(rule).unwrap();
        emulator.engine.state().azure.faults.insert(rule);
        let client = proxied_client(&emulator);
        let asked =
            tokio::spawn(async move { client.get(keys_url()).send().await.unwrap().status() });
        while clock.sleeper_count() == 0 {
            tokio::task::yield_now().await;
        }
        let delay = clock.time_until_next_deadline().unwrap();
        clock.advance(delay);
        assert_eq!(asked.await.unwrap(), StatusCode::OK);
        delays.push(delay);
    }
    assert!(delays.iter().all(|delay| *delay >= Duration::from_secs(1)), "{delays:?}");
    assert!(delays.iter().all(|delay| *delay < Duration::from_secs(5)), "{delays:?}");
    assert_eq!(delays[0], delays[1]);
    assert_ne!(delays[0], delays[2]);
}

#[tokio::test]
async fn settings_fault_rules_and_drill_of_the_builder_apply_from_the_start() {
    let change =
        SettingsChange::from_json(json!({ "resourceManager": { "pageSize": 5 } })).unwrap();
    let rule = json!({ "name": "own", "seconds": 60, "effect": { "type": "reset" } });
    let emulator = Emulator::builder()
        .settings(change)
        .fault_rule(FaultRule::from_json(rule).unwrap())
        .fault_drill(FaultDrill::named("kv-throttled-at-boot").unwrap())
        .start()
        .await
        .unwrap();
    let state = emulator.engine.state();
    assert_eq!(state.azure.resources.settings.page_size.map(usize::from), Some(5));
    let rules: Vec<_> = state.azure.faults.rules().iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(rules, ["own", "kv-throttled-at-boot"]);
    assert!(state.azure.faults.rules().iter().all(|rule| rule.until.is_some()));
}

#[tokio::test]
async fn restart_continues_the_running_drill() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name: &'static str| {
        let fault_drill = FaultDrill::named(name).unwrap();
        Emulator::builder().state_dir(directory.path()).fault_drill(fault_drill).start()
    };
    let first = start("kv-throttled-at-boot").await.unwrap();
    let started = |emulator: &Emulator| {
        let state = emulator.engine.state();
        state.azure.running_drill.as_ref().map(|running| running.started)
    };
    let time = started(&first);
    first.shutdown().await;
    let second = start("kv-throttled-at-boot").await.unwrap();
    assert_eq!(started(&second), time);
    second.shutdown().await;
    let error = start("entra-brownout").await.unwrap_err();
    assert!(error.hint().unwrap().contains("lanyard azure drill stop"), "{error}");
}
