mod storms;

use async_trait::async_trait;
use azure_core::http::Method;
use lanyard_clock::Clock as _;
use parking_lot::Mutex;
use serde_json::json;

use lanyard_vocabulary::Cloud;

use super::*;
use crate::probe::encryption::KeyUrl;
use crate::probe::network::NetworkPlace;
use crate::scripted::{Answer, Azure, Bench, MARKER, run};
use crate::{FactsTeller, TellError};

/// Keeps what it is told.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<CanaryFacts>>>);

#[async_trait]
impl FactsTeller for Kept {
    async fn fetch_facts(&self) -> Result<Option<CanaryFacts>, TellError> {
        Ok(self.0.lock().last().cloned())
    }

    async fn apply_facts(&self, facts: &CanaryFacts) -> Result<(), TellError> {
        self.0.lock().push(facts.clone());
        Ok(())
    }
}

impl Kept {
    fn last(&self) -> CanaryFacts {
        self.0.lock().last().cloned().unwrap_or_default()
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The codes that were told, one after another; `good` where nothing was wrong.
    fn codes(&self) -> Vec<String> {
        let facts = self.0.lock();
        let code = |it: &CanaryFacts| it.failure.as_ref().map_or("good", |it| &it.code).to_owned();
        facts.iter().map(code).collect()
    }
}

/// A canary that runs until the test ends.
struct Running {
    bench: Bench,
    kept: Kept,
    task: JoinSet<()>,
}

impl Running {
    fn start(bench: Bench, settings: CanarySettings) -> Self {
        let mut running = Self { bench, kept: Kept::default(), task: JoinSet::new() };
        running.start_anew(settings);
        running
    }

    /// The process ends, and another one starts in the same pod.
    fn start_anew(&mut self, settings: CanarySettings) {
        self.task = JoinSet::new();
        let bench = &self.bench;
        let teller = Arc::new(self.kept.clone());
        let telling = Telling::new(teller, bench.shared_clock(), bench.metrics.clone());
        self.task.spawn(bench.canary(settings).telling(telling).run());
    }

    /// One whose first round is over and good.
    async fn proven(change: impl FnOnce(&mut CanarySettings)) -> Self {
        let bench = Bench::new();
        bench.write(0);
        let mut settings = bench.settings();
        change(&mut settings);
        let wanted = if settings.call.is_some() { "granted" } else { "entra-token" };
        let running = Self::start(bench, settings);
        let told = running.kept.clone();
        running.bench.until(|| told.last().last_good_hop.as_deref() == Some(wanted)).await;
        running
    }

    async fn pass(&self, minutes: u64) {
        self.bench.pass(Duration::from_mins(minutes)).await;
    }

    fn calls(&self) -> usize {
        self.bench.azure.seen(Azure::ARM).len()
    }

    fn tokens(&self) -> usize {
        self.bench.azure.seen(Azure::ENTRA).len()
    }
}

#[test]
fn a_proven_identity_is_told_once_and_proven_on() {
    run(async {
        let running = Running::proven(|_| ()).await;
        let facts = running.kept.last();
        assert_eq!((facts.component.as_str(), facts.failure), ("disk", None));
        let credential = facts.credential.unwrap();
        assert_eq!(credential.client_id, "22222222-2222-4222-8222-222222222222");
        assert_eq!(credential.thumbprint.len(), 43, "base64url of SHA-256");
        assert_eq!(credential.renew_after, Some("2027-02-15T00:00:00Z".parse().unwrap()));
        running.pass(61).await;
        assert_eq!(running.kept.count(), 1, "while all stays as it is nothing is written");
        assert!((55..=70).contains(&running.calls()), "{} calls in an hour", running.calls());
        // One every ten minutes, though each lives for an hour.
        assert!((6..=8).contains(&running.tokens()), "{} tokens in an hour", running.tokens());
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
fn a_rotation_is_tried_at_once_and_leaves_no_moment_without_a_token() {
    run(async {
        let running = Running::proven(|settings| settings.interval = Duration::from_hours(1)).await;
        let (before, calls) = (running.kept.last().credential.unwrap(), running.calls());
        running.bench.write(5);
        let told = running.kept.clone();
        running.bench.until(|| told.last().credential.is_some_and(|it| it != before)).await;
        let metric = |line| running.bench.metric(line);
        running.bench.until(|| running.calls() > calls).await;
        assert_eq!(metric("lanyard_canary_rotations_total"), Some(1.0));
        assert_eq!(metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(metric("lanyard_canary_lapses_total"), Some(0.0));
        assert_eq!(running.kept.codes(), ["good", "good"]);
        assert!(running.bench.clock.monotonic() < Duration::from_mins(2), "it waits for no round");
    });
}

#[test]
fn a_revoked_identity_is_told_with_entras_code_and_so_is_its_return() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::entra("unauthorized_client", 700_016));
        running.pass(12).await;
        let facts = running.kept.last();
        let failure = facts.failure.unwrap();
        assert_eq!((failure.hop.as_str(), failure.code.as_str()), ("entra-token", "AADSTS700016"));
        assert!(failure.message.contains("AADSTS700016") && !failure.hint.is_empty());
        assert_eq!(facts.last_good_hop.as_deref(), Some("credential"));
        // The token that is held serves on: what is lost is the next one.
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        running.pass(60).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.bench.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert_eq!(running.kept.codes(), ["good", "AADSTS700016"]);
        running.bench.azure.heals(Azure::ENTRA);
        running.pass(3).await;
        assert_eq!(running.kept.codes(), ["good", "AADSTS700016", "good"]);
        assert_eq!(running.kept.last().last_good_hop.as_deref(), Some("granted"));
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn an_entra_that_fails_is_asked_once_in_a_round() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.pass(11).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::Broken);
        let before = running.tokens();
        running.pass(30).await;
        let tokens = running.tokens() - before;
        assert!((15..=34).contains(&tokens), "{tokens} requests in half an hour");
    });
}

#[test]
fn a_rotation_counts_once_however_long_entra_is_away() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::Broken);
        let told = running.kept.clone();
        let before = told.last().credential;
        running.bench.write(5);
        running.bench.until(|| told.last().credential != before).await;
        running.pass(10).await;
        assert_eq!(running.bench.metric("lanyard_canary_rotations_total"), Some(1.0));
        running.bench.azure.heals(Azure::ENTRA);
        running.pass(5).await;
        assert_eq!(running.bench.metric("lanyard_canary_rotations_total"), Some(1.0));
    });
}

#[test]
fn a_call_that_is_refused_is_told_at_once_and_one_for_nothing_there_is_granted() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ARM, Answer::refusal(404, "ResourceNotFound"));
        running.pass(5).await;
        assert_eq!(running.kept.codes(), ["good"]);
        running.bench.azure.answers(Azure::ARM, Answer::refusal(403, "AuthorizationFailed"));
        running.pass(2).await;
        let failure = running.kept.last().failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("granted", "AuthorizationFailed")
        );
        assert_eq!(running.kept.last().last_good_hop.as_deref(), Some("entra-token"));
    });
}

#[test]
fn a_token_that_is_not_taken_is_replaced_in_the_next_round() {
    run(async {
        let running = Running::proven(|_| ()).await;
        let before = running.tokens();
        running.bench.azure.answers(Azure::ARM, Answer::refusal(401, "InvalidAuthenticationToken"));
        running.pass(3).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        assert_eq!(running.bench.metric("lanyard_canary_lapses_total"), Some(1.0));
        assert!(running.tokens() > before);
        running.bench.azure.heals(Azure::ARM);
        running.pass(3).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        assert_eq!(running.kept.codes(), ["good", "InvalidAuthenticationToken", "good"]);
    });
}

#[test]
fn a_broken_file_is_told_while_the_one_before_serves_on() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.write_content(&json!({"client_id": MARKER}).to_string());
        let told = running.kept.clone();
        running.bench.until(|| told.count() == 2).await;
        let failure = running.kept.last().failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialInvalid")
        );
        assert!(!failure.message.contains(MARKER), "{}", failure.message);
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
        running.bench.write(7);
        running.bench.until(|| told.count() == 3).await;
        assert_eq!(running.kept.codes(), ["good", "CredentialInvalid", "good"]);
    });
}

#[test]
fn a_file_that_is_not_there_is_waited_for_without_an_end() {
    run(async {
        let bench = Bench::new();
        let settings = bench.settings();
        let running = Running::start(bench, settings);
        let told = running.kept.clone();
        running.bench.until(|| told.count() == 1).await;
        running.pass(30).await;
        let facts = running.kept.last();
        let failure = facts.failure.unwrap();
        assert_eq!(
            (failure.hop.as_str(), failure.code.as_str()),
            ("credential", "CredentialFileUnreadable")
        );
        assert_eq!((running.kept.count(), facts.last_good_hop), (1, None));
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(0.0));
        running.bench.write(0);
        running.bench.until(|| told.last().last_good_hop.as_deref() == Some("granted")).await;
        assert_eq!(running.bench.metric("lanyard_canary_authenticated"), Some(1.0));
    });
}

#[test]
fn a_service_that_says_nothing_holds_no_round_for_ever() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ARM, Answer::Silence);
        running.pass(3).await;
        assert_eq!(running.kept.codes(), ["good"]);
        running.pass(10).await;
        assert_eq!(running.kept.codes(), ["good", "TimedOut"]);
        running.bench.azure.answers(Azure::ARM, Answer::Broken);
        running.pass(10).await;
        assert_eq!(running.kept.codes(), ["good", "TimedOut"], "trouble on the way is one story");
    });
}

fn network() -> ProbeSettings {
    let group = "/subscriptions/s/resourceGroups/g";
    let network = format!("{group}/providers/Microsoft.Network");
    ProbeSettings::Network(NetworkPlace {
        vnet: format!("{network}/virtualNetworks/v").parse().unwrap(),
        security_group: format!("{network}/networkSecurityGroups/n").parse().unwrap(),
        resource_group: group.parse().unwrap(),
    })
}

#[test]
fn the_network_is_probed_rarely_and_throttling_says_nothing_about_it() {
    run(async {
        let running = Running::proven(|settings| {
            settings.call = None;
            settings.probes = vec![network()];
        })
        .await;
        running.pass(30).await;
        let probes = running.kept.last().probes;
        assert_eq!((probes.len(), probes[0].good, probes[0].name.as_str()), (1, true, "network"));
        let looks = running.calls();
        assert!((6..=15).contains(&looks), "{looks} requests in half an hour");
        // Somebody moved the security group away: the next probe finds it.
        let group = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network";
        let place = format!("{}{group}/networkSecurityGroups/n", Azure::ARM);
        running.bench.azure.answers(&place, Answer::ok(json!({"location": "East US"})));
        running.pass(12).await;
        let probe = running.kept.last().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (false, "LocationMismatch"));
        running.bench.azure.heals(&place);
        running.pass(12).await;
        assert!(running.kept.last().probes[0].good);
        let told = running.kept.count();
        let before = running.calls();
        running.bench.azure.answers(Azure::ARM, Answer::throttled(None));
        running.pass(25).await;
        assert_eq!(running.kept.count(), told, "what was known stays known");
        assert!(running.calls() - before <= 6, "{} requests", running.calls() - before);
        running.pass(30).await;
        let probe = running.kept.last().probes.remove(0);
        assert_eq!((probe.good, probe.reason.as_str()), (true, "TooManyRequests"));
        assert!(probe.message.contains("cannot be asked since"), "{}", probe.message);
        assert!(probe.message.contains("are in westeurope"), "{}", probe.message);
        running.bench.azure.heals(Azure::ARM);
        running.pass(6).await;
        let healed = running.kept.last().probes.remove(0);
        assert_eq!((healed.reason.as_str(), healed.since), ("AsExpected", probe.since));
    });
}

#[test]
fn the_key_is_probed_with_four_bytes_and_with_the_credential_that_may() {
    run(async {
        let endpoints = Cloud::Public.endpoints().unwrap();
        let url = "https://kv.vault.azure.net/keys/etcd/abc";
        let running = Running::proven(|settings| {
            let credential_file = match &settings.place {
                CredentialPlace::File(path) => Some(path.clone()),
                _ => None,
            };
            let key = KeyUrl::parse(url, endpoints).unwrap();
            settings.probes = vec![ProbeSettings::Encryption { key, credential_file }];
        })
        .await;
        running.pass(1).await;
        // The scripted vault gives no ciphertext yet.
        let probe = running.kept.last().probes.remove(0);
        assert_eq!(
            (probe.name.as_str(), probe.good, probe.reason.as_str()),
            ("encryption", false, "AzureError")
        );
        assert!(!probe.hint.is_empty(), "it says what to do next");
        let seen = running.bench.azure.seen(Azure::VAULT).remove(0);
        assert_eq!((seen.method, seen.path.as_str()), (Method::Post, "/keys/etcd/abc/encrypt"));
        let sent: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        assert_eq!(sent, json!({"alg": "RSA-OAEP-256", "value": "dGV4dA"}));
        running.bench.azure.answers(Azure::VAULT, Answer::ok(json!({"kid": url, "value": "c2Ft"})));
        running.pass(12).await;
        assert!(running.kept.last().probes[0].good);
        let looks = running.bench.azure.seen(Azure::VAULT).len();
        running.bench.azure.answers(Azure::VAULT, Answer::refusal(403, "ForbiddenByRbac"));
        running.pass(60).await;
        let looks = running.bench.azure.seen(Azure::VAULT).len() - looks;
        assert!((5..=6).contains(&looks), "{looks} tries in an hour of refusals");
        assert_eq!(running.kept.last().probes[0].reason, "AzureError");
    });
}

#[test]
fn nothing_secret_is_on_the_page_or_in_the_facts() {
    run(async {
        let running = Running::proven(|_| ()).await;
        running.bench.azure.answers(Azure::ENTRA, Answer::entra("invalid_client", 700_027));
        running.bench.azure.answers(
            Azure::ARM,
            Answer::Reply(502, Vec::new(), json!(format!("Authorization: Bearer eyJ{MARKER}.e.f"))),
        );
        running.pass(20).await;
        assert_eq!(running.kept.last().failure.unwrap().code, "AADSTS700027");
        let facts = serde_json::to_string(&*running.kept.0.lock()).unwrap();
        for text in [running.bench.page(), facts] {
            for marker in [MARKER, "eyJ", "PRIVATE KEY", "LS0t"] {
                assert!(!text.contains(marker), "{marker} in {text}");
            }
        }
    });
}
