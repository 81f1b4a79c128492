mod throttling;

use async_trait::async_trait;
use azure_core::http::Method;
use lanyard_clock::Clock as _;
use parking_lot::Mutex;
use serde_json::json;

use lanyard_vocabulary::Cloud;

use super::*;
use crate::fake_azure::{CanaryFixture, FakeAzureResponse, FakeAzureServices, MARKER, run_test};
use crate::probe::encryption::KeyUrl;
use crate::probe::network::NetworkProbeTarget;
use crate::{FactsSink, PublishFactsError};

/// Keeps what it is told.
#[derive(Debug, Clone, Default)]
struct FakeFactsSink(Arc<Mutex<Vec<CanaryStatusReport>>>);

#[async_trait]
impl FactsSink for FakeFactsSink {
    async fn fetch_facts(&self) -> Result<Option<CanaryStatusReport>, PublishFactsError> {
        Ok(self.0.lock().last().cloned())
    }

    async fn apply_facts(&self, facts: &CanaryStatusReport) -> Result<(), PublishFactsError> {
        self.0.lock().push(facts.clone());
        Ok(())
    }
}

impl FakeFactsSink {
    fn last_facts(&self) -> CanaryStatusReport {
        self.0.lock().last().cloned().unwrap_or_default()
    }

    fn write_count(&self) -> usize {
        self.0.lock().len()
    }

    /// The codes that were told, one after another; `good` where nothing was wrong.
    fn failure_codes(&self) -> Vec<String> {
        let facts = self.0.lock();
        let code =
            |it: &CanaryStatusReport| it.failure.as_ref().map_or("good", |it| &it.code).to_owned();
        facts.iter().map(code).collect()
    }
}

/// A canary that runs until the test ends.
struct CanaryRunFixture {
    bench: CanaryFixture,
    sink: FakeFactsSink,
    task: JoinSet<()>,
}

impl CanaryRunFixture {
    fn start(bench: CanaryFixture, settings: CanarySettings) -> Self {
        let mut running = Self { bench, sink: FakeFactsSink::default(), task: JoinSet::new() };
        running.restart(settings);
        running
    }

    /// The process ends, and another one starts in the same pod.
    fn restart(&mut self, settings: CanarySettings) {
        self.task = JoinSet::new();
        let bench = &self.bench;
        let teller = Arc::new(self.sink.clone());
        let telling = FactsPublisher::new(teller, bench.shared_clock(), bench.metrics.clone());
        self.task.spawn(bench.canary(settings).with_publisher(telling).run());
    }

    /// One whose first round is over and good.
    async fn start_proven(change: impl FnOnce(&mut CanarySettings)) -> Self {
        let bench = CanaryFixture::new();
        bench.write_credential(0);
        let mut settings = bench.settings();
        change(&mut settings);
        let wanted = if settings.call.is_some() { "granted" } else { "entra-token" };
        let running = Self::start(bench, settings);
        let told = running.sink.clone();
        running
            .bench
            .advance_until(|| told.last_facts().last_good_hop.as_deref() == Some(wanted))
            .await;
        running
    }

    async fn advance_minutes(&self, minutes: u64) {
        self.bench.advance(Duration::from_mins(minutes)).await;
    }

    fn arm_call_count(&self) -> usize {
        self.bench.azure.requests_to(FakeAzureServices::ARM).len()
    }

    fn token_request_count(&self) -> usize {
        self.bench.azure.requests_to(FakeAzureServices::ENTRA).len()
    }
}

#[test]
fn proven_identity_is_published_once_and_proof_continues() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        let facts = running.sink.last_facts();
        assert_eq!((facts.component.as_str(), facts.failure), ("disk", None));
        let credential = facts.credential.unwrap();
        assert_eq!(credential.client_id, "22222222-2222-4222-8222-222222222222");
        assert_eq!(credential.thumbprint.len(), 43, "base64url of SHA-256");
        assert_eq!(credential.renew_after, Some("2027-02-15T00:00:00Z".parse().unwrap()));
        running.advance_minutes(61).await;
        assert_eq!(running.sink.write_count(), 1, "while all stays as it is nothing is written");
        assert!(
            (55..=70).contains(&running.arm_call_count()),
            "{} calls in an hour",
            running.arm_call_count()
        );
        // One every ten minutes, though each lives for an hour.
        assert!(
            (6..=8).contains(&running.token_request_count()),
            "{} tokens in an hour",
            running.token_request_count()
        );
        let metric = |line| running.bench.metric(line);
        assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        assert_eq!(metric(r#"lanyard_canary_calls_total{result="unauthenticated"}"#), Some(0.0));
        assert_eq!(metric(r#"lanyard_canary_hop_good{hop="granted"}"#), Some(1.0));
        let last = metric("lanyard_canary_last_success_timestamp_seconds").unwrap();
        let now = running.bench.clock.now().as_duration().as_secs_f64();
        assert!(now - last < 70.0, "{}", now - last);
    });
}

#[test]
fn rotation_is_proven_immediately_without_token_lapse() {
    run_test(async {
        let running =
            CanaryRunFixture::start_proven(|settings| settings.interval = Duration::from_hours(1))
                .await;
        let (before, calls) =
            (running.sink.last_facts().credential.unwrap(), running.arm_call_count());
        running.bench.write_credential(5);
        let told = running.sink.clone();
        running
            .bench
            .advance_until(|| told.last_facts().credential.is_some_and(|it| it != before))
            .await;
        let metric = |line| running.bench.metric(line);
        running.bench.advance_until(|| running.arm_call_count() > calls).await;
        assert_eq!(metric("lanyard_canary_rotations_total"), Some(1.0));
        assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        assert_eq!(running.sink.failure_codes(), ["good", "good"]);
        assert!(running.bench.clock.monotonic() < Duration::from_mins(2), "it waits for no round");
    });
}

#[test]
fn revoked_identity_is_reported_with_entra_code() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.azure.set_response(
            FakeAzureServices::ENTRA,
            FakeAzureResponse::entra_error("unauthorized_client", 700_016),
        );
        running.advance_minutes(12).await;
        let facts = running.sink.last_facts();
        let failure = facts.failure.unwrap();
        assert_eq!((failure.hop.as_str(), failure.code.as_str()), ("entra-token", "AADSTS700016"));
        assert!(failure.message.contains("AADSTS700016") && !failure.hint.is_empty());
        assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
        // The token that is held serves on: what is lost is the next one.
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        running.advance_minutes(60).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.bench.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert_eq!(running.sink.failure_codes(), ["good", "AADSTS700016"]);
        running.bench.azure.clear_response(FakeAzureServices::ENTRA);
        running.advance_minutes(3).await;
        assert_eq!(running.sink.failure_codes(), ["good", "AADSTS700016", "good"]);
        assert_eq!(running.sink.last_facts().last_good_hop.as_deref(), Some("granted"));
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn failing_entra_is_asked_once_per_round() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.advance_minutes(11).await;
        running.bench.azure.set_response(FakeAzureServices::ENTRA, FakeAzureResponse::Broken);
        let before = running.token_request_count();
        running.advance_minutes(30).await;
        let tokens = running.token_request_count() - before;
        assert!((15..=34).contains(&tokens), "{tokens} requests in half an hour");
    });
}

#[test]
fn rotation_counts_once_during_entra_outage() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.azure.set_response(FakeAzureServices::ENTRA, FakeAzureResponse::Broken);
        let told = running.sink.clone();
        let before = told.last_facts().credential;
        running.bench.write_credential(5);
        running.bench.advance_until(|| told.last_facts().credential != before).await;
        running.advance_minutes(10).await;
        assert_eq!(running.bench.metric("lanyard_canary_rotations_total"), Some(1.0));
        running.bench.azure.clear_response(FakeAzureServices::ENTRA);
        running.advance_minutes(5).await;
        assert_eq!(running.bench.metric("lanyard_canary_rotations_total"), Some(1.0));
    });
}

#[test]
fn forbidden_call_is_reported_and_not_found_is_granted() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::failure(404, "ResourceNotFound"),
        );
        running.advance_minutes(5).await;
        assert_eq!(running.sink.failure_codes(), ["good"]);
        running.bench.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::failure(403, "AuthorizationFailed"),
        );
        running.advance_minutes(2).await;
        let failure = running.sink.last_facts().failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("granted", "AuthorizationFailed")
        );
        assert_eq!(running.sink.last_facts().last_good_hop.as_deref(), Some("entra-token"));
    });
}

#[test]
fn rejected_token_is_replaced_in_next_round() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        let before = running.token_request_count();
        running.bench.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::failure(401, "InvalidAuthenticationToken"),
        );
        running.advance_minutes(3).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.bench.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert!(running.token_request_count() > before);
        running.bench.azure.clear_response(FakeAzureServices::ARM);
        running.advance_minutes(3).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(running.sink.failure_codes(), ["good", "InvalidAuthenticationToken", "good"]);
    });
}

#[test]
fn broken_file_is_reported_while_previous_credential_works() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.write_file(&json!({"client_id": MARKER}).to_string());
        let told = running.sink.clone();
        running.bench.advance_until(|| told.write_count() == 2).await;
        let failure = running.sink.last_facts().failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialInvalid")
        );
        assert!(!failure.message.contains(MARKER), "{}", failure.message);
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        running.bench.write_credential(7);
        running.bench.advance_until(|| told.write_count() == 3).await;
        assert_eq!(running.sink.failure_codes(), ["good", "CredentialInvalid", "good"]);
    });
}

#[test]
fn missing_credential_file_is_waited_for() {
    run_test(async {
        let bench = CanaryFixture::new();
        let settings = bench.settings();
        let running = CanaryRunFixture::start(bench, settings);
        let told = running.sink.clone();
        running.bench.advance_until(|| told.write_count() == 1).await;
        running.advance_minutes(30).await;
        let facts = running.sink.last_facts();
        let failure = facts.failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialFileUnreadable")
        );
        assert_eq!((running.sink.write_count(), facts.last_good_hop), (1, None));
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        running.bench.write_credential(0);
        running
            .bench
            .advance_until(|| told.last_facts().last_good_hop.as_deref() == Some("granted"))
            .await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn silent_service_does_not_block_the_round() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.azure.set_response(FakeAzureServices::ARM, FakeAzureResponse::NoResponse);
        running.advance_minutes(3).await;
        assert_eq!(running.sink.failure_codes(), ["good"]);
        running.advance_minutes(10).await;
        assert_eq!(running.sink.failure_codes(), ["good", "TimedOut"]);
        running.bench.azure.set_response(FakeAzureServices::ARM, FakeAzureResponse::Broken);
        running.advance_minutes(10).await;
        assert_eq!(
            running.sink.failure_codes(),
            ["good", "TimedOut"],
            "trouble on the way is one story"
        );
    });
}

fn network_probe() -> ProbeSettings {
    let group = "/subscriptions/s/resourceGroups/g";
    let network = format!("{group}/providers/Microsoft.Network");
    ProbeSettings::Network(NetworkProbeTarget {
        vnet: format!("{network}/virtualNetworks/v").parse().unwrap(),
        security_group: format!("{network}/networkSecurityGroups/n").parse().unwrap(),
        resource_group: group.parse().unwrap(),
    })
}

#[test]
fn throttling_does_not_change_network_probe_result() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|settings| {
            settings.call = None;
            settings.probes = vec![network_probe()];
        })
        .await;
        running.advance_minutes(30).await;
        let probes = running.sink.last_facts().probes;
        assert_eq!((probes.len(), probes[0].good, probes[0].name.as_str()), (1, true, "network"));
        let looks = running.arm_call_count();
        assert!((6..=15).contains(&looks), "{looks} requests in half an hour");
        // Somebody moved the security group away: the next probe finds it.
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let place = format!("{}{group}/networkSecurityGroups/n", FakeAzureServices::ARM);
        running
            .bench
            .azure
            .set_response(&place, FakeAzureResponse::ok(json!({"location": "East US"})));
        running.advance_minutes(12).await;
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (false, "LocationMismatch"));
        running.bench.azure.clear_response(&place);
        running.advance_minutes(12).await;
        assert!(running.sink.last_facts().probes[0].good);
        let told = running.sink.write_count();
        let before = running.arm_call_count();
        running
            .bench
            .azure
            .set_response(FakeAzureServices::ARM, FakeAzureResponse::throttled(None));
        running.advance_minutes(25).await;
        assert_eq!(running.sink.write_count(), told, "what was known stays known");
        assert!(
            running.arm_call_count() - before <= 6,
            "{} requests",
            running.arm_call_count() - before
        );
        running.advance_minutes(30).await;
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (true, "TooManyRequests"));
        assert!(probe.message.contains("cannot be asked since"), "{}", probe.message);
        assert!(probe.message.contains("are in westeurope"), "{}", probe.message);
        running.bench.azure.clear_response(FakeAzureServices::ARM);
        running.advance_minutes(6).await;
        let healed = running.sink.last_facts().probes.remove(0);
        assert_eq!((healed.reason.as_str(), healed.since), ("AsExpected", probe.since));
    });
}

#[test]
fn key_probe_encrypts_four_bytes_with_its_credential() {
    run_test(async {
        let endpoints = Cloud::Public.endpoints().unwrap();
        let url = "https://kv.vault.azure.net/keys/etcd/abc";
        let running = CanaryRunFixture::start_proven(|settings| {
            let credential_file = match &settings.credential_location {
                CredentialFileLocation::File(path) => Some(path.clone()),
                _ => None,
            };
            let key = KeyUrl::parse(url, endpoints).unwrap();
            settings.probes = vec![ProbeSettings::Encryption { key, credential_file }];
        })
        .await;
        running.advance_minutes(1).await;
        // The scripted vault gives no ciphertext yet.
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!(
            (probe.name.as_str(), probe.good, probe.reason.as_str()),
            ("encryption", false, "AzureError")
        );
        assert!(!probe.hint.is_empty(), "it says what to do next");
        let seen = running.bench.azure.requests_to(FakeAzureServices::VAULT).remove(0);
        assert_eq!((seen.method, seen.path.as_str()), (Method::Post, "/keys/etcd/abc/encrypt"));
        let sent: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        assert_eq!(sent, json!({"alg": "RSA-OAEP-256", "value": "dGV4dA"}));
        running.bench.azure.set_response(
            FakeAzureServices::VAULT,
            FakeAzureResponse::ok(json!({"kid": url, "value": "c2Ft"})),
        );
        running.advance_minutes(12).await;
        assert!(running.sink.last_facts().probes[0].good);
        let looks = running.bench.azure.requests_to(FakeAzureServices::VAULT).len();
        running.bench.azure.set_response(
            FakeAzureServices::VAULT,
            FakeAzureResponse::failure(403, "ForbiddenByRbac"),
        );
        running.advance_minutes(60).await;
        let looks = running.bench.azure.requests_to(FakeAzureServices::VAULT).len() - looks;
        assert!((5..=6).contains(&looks), "{looks} tries in an hour of refusals");
        assert_eq!(running.sink.last_facts().probes[0].reason, "AzureError");
    });
}

#[test]
fn metrics_and_facts_contain_no_secret() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.bench.azure.set_response(
            FakeAzureServices::ENTRA,
            FakeAzureResponse::entra_error("invalid_client", 700_027),
        );
        running.bench.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::Reply(
                502,
                Vec::new(),
                json!(format!("Authorization: Bearer eyJ{MARKER}.e.f")),
            ),
        );
        running.advance_minutes(20).await;
        assert_eq!(running.sink.last_facts().failure.unwrap().code, "AADSTS700027");
        let facts = serde_json::to_string(&*running.sink.0.lock()).unwrap();
        for text in [running.bench.render_metrics(), facts] {
            for marker in [MARKER, "eyJ", "PRIVATE KEY", "LS0t"] {
                assert!(!text.contains(marker), "{marker} in {text}");
            }
        }
    });
}
