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

/// Records the published reports.
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

    /// The error codes of the published reports in order; `good` for a report without failure.
    fn failure_codes(&self) -> Vec<String> {
        let facts = self.0.lock();
        let code =
            |it: &CanaryStatusReport| it.failure.as_ref().map_or("good", |it| &it.code).to_owned();
        facts.iter().map(code).collect()
    }
}

/// A running canary.
struct CanaryRunFixture {
    fixture: CanaryFixture,
    sink: FakeFactsSink,
    task: JoinSet<()>,
}

impl CanaryRunFixture {
    fn start(fixture: CanaryFixture, settings: CanarySettings) -> Self {
        let mut running = Self { fixture, sink: FakeFactsSink::default(), task: JoinSet::new() };
        running.restart(settings);
        running
    }

    /// Replaces the canary, as a container restart in the same pod does.
    fn restart(&mut self, settings: CanarySettings) {
        self.task = JoinSet::new();
        let fixture = &self.fixture;
        let sink = Arc::new(self.sink.clone());
        let publisher = FactsPublisher::new(sink, fixture.shared_clock(), fixture.metrics.clone());
        self.task.spawn(fixture.canary(settings).with_publisher(publisher).run());
    }

    /// Starts a canary and waits until its first round succeeded.
    async fn start_proven(change: impl FnOnce(&mut CanarySettings)) -> Self {
        let fixture = CanaryFixture::new();
        fixture.write_credential(0);
        let mut settings = fixture.settings();
        change(&mut settings);
        let wanted = if settings.call.is_some() { "granted" } else { "entra-token" };
        let running = Self::start(fixture, settings);
        let sink = running.sink.clone();
        running
            .fixture
            .advance_until(|| sink.last_facts().last_good_hop.as_deref() == Some(wanted))
            .await;
        running
    }

    async fn advance_minutes(&self, minutes: u64) {
        self.fixture.advance(Duration::from_mins(minutes)).await;
    }

    fn arm_call_count(&self) -> usize {
        self.fixture.azure.requests_to(FakeAzureServices::ARM).len()
    }

    fn token_request_count(&self) -> usize {
        self.fixture.azure.requests_to(FakeAzureServices::ENTRA).len()
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
        assert_eq!(running.sink.write_count(), 1, "an unchanged report is not written again");
        assert!(
            (55..=70).contains(&running.arm_call_count()),
            "{} calls in an hour",
            running.arm_call_count()
        );
        // One token every ten minutes, although each is valid for an hour.
        assert!(
            (6..=8).contains(&running.token_request_count()),
            "{} tokens in an hour",
            running.token_request_count()
        );
        let metric = |line| running.fixture.metric(line);
        assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        assert_eq!(metric(r#"lanyard_canary_calls_total{result="unauthenticated"}"#), Some(0.0));
        assert_eq!(metric(r#"lanyard_canary_hop_good{hop="granted"}"#), Some(1.0));
        let last = metric("lanyard_canary_last_success_timestamp_seconds").unwrap();
        let now = running.fixture.clock.now().as_duration().as_secs_f64();
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
        running.fixture.write_credential(5);
        let sink = running.sink.clone();
        running
            .fixture
            .advance_until(|| sink.last_facts().credential.is_some_and(|it| it != before))
            .await;
        let metric = |line| running.fixture.metric(line);
        running.fixture.advance_until(|| running.arm_call_count() > calls).await;
        assert_eq!(metric("lanyard_canary_rotations_total"), Some(1.0));
        assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        assert_eq!(running.sink.failure_codes(), ["good", "good"]);
        assert!(
            running.fixture.clock.monotonic() < Duration::from_mins(2),
            "it does not wait for the next round"
        );
    });
}

#[test]
fn revoked_identity_is_reported_with_entra_code() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.fixture.azure.set_response(
            FakeAzureServices::ENTRA,
            FakeAzureResponse::entra_error("unauthorized_client", 700_016),
        );
        running.advance_minutes(12).await;
        let facts = running.sink.last_facts();
        let failure = facts.failure.unwrap();
        assert_eq!((failure.hop.as_str(), failure.code.as_str()), ("entra-token", "AADSTS700016"));
        assert!(failure.message.contains("AADSTS700016") && !failure.hint.is_empty());
        assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
        // The cached token keeps working until it expires.
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
        running.advance_minutes(60).await;
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.fixture.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert_eq!(running.sink.failure_codes(), ["good", "AADSTS700016"]);
        running.fixture.azure.clear_response(FakeAzureServices::ENTRA);
        running.advance_minutes(3).await;
        assert_eq!(running.sink.failure_codes(), ["good", "AADSTS700016", "good"]);
        assert_eq!(running.sink.last_facts().last_good_hop.as_deref(), Some("granted"));
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn failing_entra_is_asked_once_per_round() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.advance_minutes(11).await;
        running.fixture.azure.set_response(FakeAzureServices::ENTRA, FakeAzureResponse::Broken);
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
        running.fixture.azure.set_response(FakeAzureServices::ENTRA, FakeAzureResponse::Broken);
        let sink = running.sink.clone();
        let before = sink.last_facts().credential;
        running.fixture.write_credential(5);
        running.fixture.advance_until(|| sink.last_facts().credential != before).await;
        running.advance_minutes(10).await;
        assert_eq!(running.fixture.metric("lanyard_canary_rotations_total"), Some(1.0));
        running.fixture.azure.clear_response(FakeAzureServices::ENTRA);
        running.advance_minutes(5).await;
        assert_eq!(running.fixture.metric("lanyard_canary_rotations_total"), Some(1.0));
    });
}

#[test]
fn forbidden_call_is_reported_and_not_found_is_granted() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.fixture.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::failure(404, "ResourceNotFound"),
        );
        running.advance_minutes(5).await;
        assert_eq!(running.sink.failure_codes(), ["good"]);
        running.fixture.azure.set_response(
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
        running.fixture.azure.set_response(
            FakeAzureServices::ARM,
            FakeAzureResponse::failure(401, "InvalidAuthenticationToken"),
        );
        running.advance_minutes(3).await;
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.fixture.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert!(running.token_request_count() > before);
        running.fixture.azure.clear_response(FakeAzureServices::ARM);
        running.advance_minutes(3).await;
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(running.sink.failure_codes(), ["good", "InvalidAuthenticationToken", "good"]);
    });
}

#[test]
fn broken_file_is_reported_while_previous_credential_works() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.fixture.write_file(&json!({"client_id": MARKER}).to_string());
        let sink = running.sink.clone();
        running.fixture.advance_until(|| sink.write_count() == 2).await;
        let failure = running.sink.last_facts().failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialInvalid")
        );
        assert!(!failure.message.contains(MARKER), "{}", failure.message);
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
        running.fixture.write_credential(7);
        running.fixture.advance_until(|| sink.write_count() == 3).await;
        assert_eq!(running.sink.failure_codes(), ["good", "CredentialInvalid", "good"]);
    });
}

#[test]
fn missing_credential_file_is_waited_for() {
    run_test(async {
        let fixture = CanaryFixture::new();
        let settings = fixture.settings();
        let running = CanaryRunFixture::start(fixture, settings);
        let sink = running.sink.clone();
        running.fixture.advance_until(|| sink.write_count() == 1).await;
        running.advance_minutes(30).await;
        let facts = running.sink.last_facts();
        let failure = facts.failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialFileUnreadable")
        );
        assert_eq!((running.sink.write_count(), facts.last_good_hop), (1, None));
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(0.0));
        running.fixture.write_credential(0);
        running
            .fixture
            .advance_until(|| sink.last_facts().last_good_hop.as_deref() == Some("granted"))
            .await;
        assert_eq!(running.fixture.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn silent_service_does_not_block_the_round() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.fixture.azure.set_response(FakeAzureServices::ARM, FakeAzureResponse::NoResponse);
        running.advance_minutes(3).await;
        assert_eq!(running.sink.failure_codes(), ["good"]);
        running.advance_minutes(10).await;
        assert_eq!(running.sink.failure_codes(), ["good", "TimedOut"]);
        running.fixture.azure.set_response(FakeAzureServices::ARM, FakeAzureResponse::Broken);
        running.advance_minutes(10).await;
        assert_eq!(
            running.sink.failure_codes(),
            ["good", "TimedOut"],
            "consecutive transient errors are one failure"
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
        let requests = running.arm_call_count();
        assert!((6..=15).contains(&requests), "{requests} requests in half an hour");
        // The next probe detects that the security group moved to another region.
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let place = format!("{}{group}/networkSecurityGroups/n", FakeAzureServices::ARM);
        running
            .fixture
            .azure
            .set_response(&place, FakeAzureResponse::ok(json!({"location": "East US"})));
        running.advance_minutes(12).await;
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (false, "LocationMismatch"));
        running.fixture.azure.clear_response(&place);
        running.advance_minutes(12).await;
        assert!(running.sink.last_facts().probes[0].good);
        let writes = running.sink.write_count();
        let before = running.arm_call_count();
        running
            .fixture
            .azure
            .set_response(FakeAzureServices::ARM, FakeAzureResponse::throttled(None));
        running.advance_minutes(25).await;
        assert_eq!(running.sink.write_count(), writes, "the report does not change");
        assert!(
            running.arm_call_count() - before <= 6,
            "{} requests",
            running.arm_call_count() - before
        );
        running.advance_minutes(30).await;
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (true, "TooManyRequests"));
        assert!(probe.message.contains("not checked again since"), "{}", probe.message);
        assert!(probe.message.contains("are in westeurope"), "{}", probe.message);
        running.fixture.azure.clear_response(FakeAzureServices::ARM);
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
        // The fake vault returns no ciphertext yet.
        let probe = running.sink.last_facts().probes.remove(0);
        assert_eq!(
            (probe.name.as_str(), probe.good, probe.reason.as_str()),
            ("encryption", false, "AzureError")
        );
        assert!(!probe.hint.is_empty(), "the report has a hint");
        let request = running.fixture.azure.requests_to(FakeAzureServices::VAULT).remove(0);
        assert_eq!(
            (request.method, request.path.as_str()),
            (Method::Post, "/keys/etcd/abc/encrypt")
        );
        let sent: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(sent, json!({"alg": "RSA-OAEP-256", "value": "dGV4dA"}));
        running.fixture.azure.set_response(
            FakeAzureServices::VAULT,
            FakeAzureResponse::ok(json!({"kid": url, "value": "c2Ft"})),
        );
        running.advance_minutes(12).await;
        assert!(running.sink.last_facts().probes[0].good);
        let requests = running.fixture.azure.requests_to(FakeAzureServices::VAULT).len();
        running.fixture.azure.set_response(
            FakeAzureServices::VAULT,
            FakeAzureResponse::failure(403, "ForbiddenByRbac"),
        );
        running.advance_minutes(60).await;
        let requests = running.fixture.azure.requests_to(FakeAzureServices::VAULT).len() - requests;
        assert!((5..=6).contains(&requests), "{requests} attempts in an hour of errors");
        assert_eq!(running.sink.last_facts().probes[0].reason, "AzureError");
    });
}

#[test]
fn metrics_and_facts_contain_no_secret() {
    run_test(async {
        let running = CanaryRunFixture::start_proven(|_| ()).await;
        running.fixture.azure.set_response(
            FakeAzureServices::ENTRA,
            FakeAzureResponse::entra_error("invalid_client", 700_027),
        );
        running.fixture.azure.set_response(
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
        for text in [running.fixture.render_metrics(), facts] {
            for marker in [MARKER, "eyJ", "PRIVATE KEY", "LS0t"] {
                assert!(!text.contains(marker), "{marker} in {text}");
            }
        }
    });
}
