use std::collections::BTreeSet;
use std::thread::ThreadId;

use async_trait::async_trait;
use jiff::ToSpan as _;
use lanyard_azure::RequestRate;
use lanyard_clock::Clock as _;
use lanyard_vocabulary::Hop;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;
use crate::testing::{
    FakeAzure, FakeAzureFailure, FakeAzureService, service_principal_credentials,
    workload_credentials,
};
use crate::{MemoryExhausted, RequestPriority, UnlimitedMemory, VaultReadError};

const TENANT: &str = "11111111-1111-1111-1111-111111111111";
const CLIENT: &str = "22222222-2222-2222-2222-222222222222";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const MOUNT: Freshness = Freshness::with_max_age(RequestPriority::High, Duration::from_secs(10));
const ROTATION: Freshness = Freshness::with_max_age(RequestPriority::Low, Duration::from_secs(102));
const REFRESH: Freshness = Freshness::with_max_age(RequestPriority::Normal, Duration::ZERO);
const HOUR: Duration = Duration::from_hours(1);
const RATE: RequestRate = RequestRate { per_second: 1_000, burst: 1_000 };

type ClassParameterPairs<'a> = &'a [(&'a str, &'a str)];

const MANAGED: ClassParameterPairs<'_> =
    &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];
const WORKLOAD: ClassParameterPairs<'_> = &[("clientID", CLIENT)];

fn parameters(objects: &[&str], more: ClassParameterPairs<'_>) -> ProviderParameters {
    let entry = |name: &&str| format!("  - |\n    objectName: {name}\n    objectType: secret\n");
    let objects = format!("array:\n{}", objects.iter().map(entry).collect::<String>());
    let common = [("keyvaultName", "kv1"), ("tenantID", TENANT), ("objects", objects.as_str())];
    let all = common.iter().chain(more);
    let all = all.map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    ProviderParameters::parse(&all).unwrap()
}

fn pod(namespace: &str, account: &str) -> VolumePod {
    VolumePod {
        namespace: namespace.to_owned(),
        name: "pod".to_owned(),
        uid: "uid".to_owned(),
        service_account: account.to_owned(),
    }
}

struct NodeVaultsFixture {
    azure: FakeAzure,
    vaults: Arc<NodeVaults>,
}

impl NodeVaultsFixture {
    fn new() -> Self {
        Self::restarted_node(FakeAzure::new())
    }

    /// A freshly started node with an empty cache in memory.
    fn restarted_node(azure: FakeAzure) -> Self {
        let stale = StaleCache::in_memory().unwrap();
        let settings = NodeVaultSettings::default();
        let transports = azure.node_transports(RATE, None);
        let vaults = NodeVaults::new(settings, transports, Some(stale), azure.shared_clock());
        Self { azure, vaults: Arc::new(vaults) }
    }

    async fn fetch(
        &self,
        order: &VolumeReadRequest<'_>,
    ) -> Result<VolumeReadResult, NodeVaultError> {
        self.azure.run_advancing_clock(self.vaults.fetch(order)).await
    }

    /// Reads the file `a` for a pod with these credentials.
    async fn read_file(
        &self,
        more: ClassParameterPairs<'_>,
        pod: &VolumePod,
        proofs: &PodCredentials,
        required_freshness: Freshness,
    ) -> Result<String, NodeVaultError> {
        let parameters = parameters(&["a"], more);
        let serve_stale = None;
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod,
            credentials: proofs,
            freshness: required_freshness,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        Ok(only_file_text(&self.fetch(&order).await?))
    }

    async fn read_managed(&self, required_freshness: Freshness) -> Result<String, NodeVaultError> {
        self.read_file(MANAGED, &pod("ns", "sa"), &PodCredentials::default(), required_freshness)
            .await
    }

    /// Like [`Self::read_file`], for a class that opts in to the sealed cache.
    async fn read_stale(
        &self,
        pod: &VolumePod,
        proofs: &PodCredentials,
        max_age: Duration,
    ) -> Result<VolumeReadResult, NodeVaultError> {
        let parameters = parameters(&["a"], WORKLOAD);
        let (required_freshness, serve_stale) = (MOUNT, Some(max_age));
        self.fetch(&VolumeReadRequest {
            parameters: &parameters,
            pod,
            credentials: proofs,
            freshness: required_freshness,
            serve_stale,
            memory: &UnlimitedMemory,
        })
        .await
    }

    /// Like [`Self::read_stale`], with the given freshness.
    async fn read_with_stale_allowed(
        &self,
        pod: &VolumePod,
        proofs: &PodCredentials,
        required_freshness: Freshness,
    ) -> Result<VolumeReadResult, NodeVaultError> {
        let parameters = parameters(&["a"], WORKLOAD);
        let serve_stale = Some(HOUR);
        self.fetch(&VolumeReadRequest {
            parameters: &parameters,
            pod,
            credentials: proofs,
            freshness: required_freshness,
            serve_stale,
            memory: &UnlimitedMemory,
        })
        .await
    }

    fn workload_pod(&self, namespace: &str, account: &str) -> (VolumePod, PodCredentials) {
        let expires = self.azure.clock().now() + 1.hour();
        let subject = format!("system:serviceaccount:{namespace}:{account}");
        (pod(namespace, account), workload_credentials(&subject, AUDIENCE, expires))
    }
}

fn only_file_text(reading: &VolumeReadResult) -> String {
    String::from_utf8(reading.files[0].content.expose().to_vec()).unwrap()
}

fn vault_error(error: &NodeVaultError) -> &VaultReadError {
    let NodeVaultError::Fetch(FetchError::Read(error)) = error else { panic!("{error}") };
    error.vault_error().unwrap()
}

#[tokio::test]
async fn certificates_outside_the_chain_are_a_warning_of_the_read() {
    use crate::content::tests::{archive_with_incomplete_chain, archive_with_repeated_root};
    let cases = [
        (
            archive_with_incomplete_chain(),
            "only 1 of the 2 certificates of secret `a`",
            "every issuer",
        ),
        (
            archive_with_repeated_root(),
            "only 3 of the 4 certificates of secret `a`",
            "without them",
        ),
    ];
    for (archive, start, advice) in cases {
        let node = NodeVaultsFixture::new();
        node.azure.add_certificate_secret("kv1", "a", archive);
        let parameters = parameters(&["a"], MANAGED);
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod: &pod("ns", "sa"),
            credentials: &PodCredentials::default(),
            freshness: MOUNT,
            serve_stale: None,
            memory: &UnlimitedMemory,
        };
        let read = node.fetch(&order).await.unwrap();
        assert!(only_file_text(&read).starts_with("-----BEGIN PRIVATE KEY-----\n"));
        let warnings: Vec<_> = read.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].starts_with(start) && warnings[0].contains(advice), "{warnings:?}");
    }
}

/// A memory account that records the threads on which holds of its reservations end.
#[derive(Debug, Default)]
struct HoldRecorder(Arc<Mutex<Vec<ThreadId>>>);

/// A hold of a [`HoldRecorder`].
struct RecordedHold(Arc<Mutex<Vec<ThreadId>>>);

impl Drop for RecordedHold {
    fn drop(&mut self) {
        self.0.lock().push(std::thread::current().id());
    }
}

#[async_trait]
impl ReadMemory for HoldRecorder {
    async fn reserve_read_memory(&self, _: u64) -> Result<(), MemoryExhausted> {
        Ok(())
    }

    fn finish_read(&self, _: u64, _: u64) {}

    fn hold_reservations(&self) -> Box<dyn Send> {
        Box::new(RecordedHold(Arc::clone(&self.0)))
    }

    fn max_read_reservation(&self) -> u64 {
        u64::MAX
    }

    fn mounted_size(&self, length: u64) -> u64 {
        length
    }

    fn check_volume_fits(&self, _: u64) -> Result<(), MemoryExhausted> {
        Ok(())
    }
}

#[tokio::test]
async fn archives_are_decoded_on_another_thread_than_that_of_the_runtime() {
    let archive = crate::content::tests::archive_with_repeated_root();
    let node = NodeVaultsFixture::new();
    node.azure.add_certificate_secret("kv1", "a", archive);
    let parameters = parameters(&["a"], MANAGED);
    let memory = HoldRecorder::default();
    let order = VolumeReadRequest {
        parameters: &parameters,
        pod: &pod("ns", "sa"),
        credentials: &PodCredentials::default(),
        freshness: MOUNT,
        serve_stale: None,
        memory: &memory,
    };
    node.fetch(&order).await.unwrap();
    // The hold of the reservation ends on the thread that decoded the archive.
    let threads = memory.0.lock().clone();
    assert_eq!(threads.len(), 1);
    assert_ne!(threads[0], std::thread::current().id());
}

#[tokio::test]
async fn pods_starting_together_share_one_read_per_object_and_one_token() {
    let node = NodeVaultsFixture::new();
    let names = ["a", "b", "c"];
    for name in names {
        node.azure.add_secret_version("kv1", name);
    }
    let mounts = (0..100).map(|number| {
        let vaults = Arc::clone(&node.vaults);
        async move {
            let parameters = parameters(&names, MANAGED);
            let pod = pod(&format!("ns{number}"), "sa");
            let proofs = PodCredentials::default();
            let (required_freshness, serve_stale) = (MOUNT, None);
            let order = VolumeReadRequest {
                parameters: &parameters,
                pod: &pod,
                credentials: &proofs,
                freshness: required_freshness,
                serve_stale,
                memory: &UnlimitedMemory,
            };
            vaults.fetch(&order).await.unwrap().files.len()
        }
    });
    let files = node.azure.run_advancing_clock(futures::future::join_all(mounts)).await;
    assert!(files.iter().all(|files| *files == 3));
    assert_eq!(node.azure.reads(), 3);
    assert_eq!(node.azure.token_requests(), [format!("managed identity {CLIENT}")]);
}

#[tokio::test]
async fn a_read_uses_the_token_that_authenticate_fetched() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let parameters = parameters(&["a"], MANAGED);
    let (pod, proofs) = (pod("ns", "sa"), PodCredentials::default());
    let work = node.vaults.authenticate(&parameters, &pod, &proofs);
    let expires = node.azure.run_advancing_clock(work).await.unwrap();
    assert!(expires > node.azure.clock().now());
    assert_eq!((node.azure.token_requests().len(), node.azure.reads()), (1, 0));
    node.read_managed(MOUNT).await.unwrap();
    assert_eq!((node.azure.token_requests().len(), node.azure.reads()), (1, 1));
}

#[tokio::test]
async fn authenticate_returns_the_token_services_error() {
    let node = NodeVaultsFixture::new();
    node.azure.set_failure(FakeAzureService::Tokens, Some(FakeAzureFailure::Status(400)));
    let parameters = parameters(&["a"], MANAGED);
    let (pod, proofs) = (pod("ns", "sa"), PodCredentials::default());
    let error =
        node.azure.run_advancing_clock(node.vaults.authenticate(&parameters, &pod, &proofs)).await;
    let error = error.unwrap_err();
    assert!(matches!(&error, NodeVaultError::Token(VaultReadError::Token { .. })), "{error}");
    assert!(error.hint().is_some());
}

#[tokio::test]
async fn volumes_of_a_node_share_one_read_per_object_and_interval() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    // A hundred volumes, spread over the interval of two minutes, for ten intervals.
    for _ in 0..1_000 {
        node.read_managed(ROTATION).await.unwrap();
        node.azure.advance_clock(Duration::from_millis(1_200)).await;
    }
    // The shared value is cached for 102 s of 120 s.
    assert!((10..=12).contains(&node.azure.reads()), "{}", node.azure.reads());
}

#[tokio::test]
async fn refresh_reads_even_when_cached() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    assert!(node.read_managed(MOUNT).await.unwrap().contains("version 1"));
    node.azure.add_secret_version("kv1", "a");
    assert!(node.read_managed(MOUNT).await.unwrap().contains("version 1"));
    assert!(node.read_managed(REFRESH).await.unwrap().contains("version 2"));
    assert!(node.read_managed(ROTATION).await.unwrap().contains("version 2"));
}

#[tokio::test]
async fn secret_near_renewal_is_reread_sooner() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let renewal = node.azure.clock().now() + 4.minutes();
    node.azure.set_tag("kv1", "a", "renew_after", renewal.to_string());
    let required_freshness =
        Freshness { max_age_near_renewal: Duration::from_secs(25), ..ROTATION };
    node.read_managed(required_freshness).await.unwrap();
    node.azure.advance_clock(Duration::from_secs(28)).await;
    node.read_managed(required_freshness).await.unwrap();
    assert_eq!(node.azure.reads(), 2, "an eighth of what is left has passed");
    node.read_managed(ROTATION).await.unwrap();
    assert_eq!(node.azure.reads(), 2);
}

#[tokio::test]
async fn renewed_pod_token_keeps_the_access_token_and_is_used_next() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    for hour in 0..30 {
        let (pod, proofs) = node.workload_pod("ns", "sa");
        node.read_file(WORKLOAD, &pod, &proofs, MOUNT).await.unwrap();
        assert_eq!(node.azure.reads(), hour + 1);
        node.azure.advance_clock(Duration::from_mins(59)).await;
    }
    // Access tokens are valid for a day and are renewed halfway.
    assert_eq!(node.azure.token_requests().len(), 3);
}

#[tokio::test]
async fn every_identity_mode_reads_as_its_own_identity() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, token) = node.workload_pod("ns", "sa");
    let now = node.azure.clock().now();
    let binding = workload_credentials(
        "system:serviceaccount:ns:sa",
        "api://AKSIdentityBinding",
        now + 1.hour(),
    );
    let secret = service_principal_credentials(CLIENT, "planted");
    let cases: [(ClassParameterPairs<'_>, &PodCredentials, String); 5] = [
        (MANAGED, &token, format!("managed identity {CLIENT}")),
        (&[("useVMManagedIdentity", "true")], &token, "managed identity system".to_owned()),
        (WORKLOAD, &token, format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa")),
        (
            &[("clientID", CLIENT), ("useAzureTokenProxy", "true")],
            &binding,
            format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa"),
        ),
        (&[], &secret, format!("{CLIENT} of {TENANT} as who knows planted")),
    ];
    for (more, proofs, identity) in cases {
        let value = node.read_file(more, &pod, proofs, MOUNT).await.unwrap();
        assert_eq!(value, format!("kv1.vault.azure.net/secrets/a version 1 for {identity}"));
    }
    assert_eq!(node.azure.reads(), 5, "readers do not share values");
}

#[tokio::test]
async fn custom_user_agent_suffix_is_sent_to_the_vault() {
    let azure = FakeAzure::new();
    azure.add_secret_version("kv1", "a");
    let transports = NodeTransports {
        user_agent: Some("aks/7".parse().unwrap()),
        ..azure.node_transports(RATE, None)
    };
    let settings = NodeVaultSettings::default();
    let vaults = Arc::new(NodeVaults::new(settings, transports, None, azure.shared_clock()));
    NodeVaultsFixture { azure: azure.clone(), vaults }.read_managed(MOUNT).await.unwrap();
    let agent = azure.calls()[0].user_agent.clone();
    assert!(agent.ends_with(" aks/7") && agent.starts_with("azsdk-rust"), "{agent}");
}

#[tokio::test]
async fn outage_is_bridged_only_for_readers_that_read_before() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.advance_clock(Duration::from_mins(5)).await;
    for failure in [
        FakeAzureFailure::Status(503),
        FakeAzureFailure::Unreachable,
        FakeAzureFailure::Status(429),
    ] {
        node.azure.set_failure(FakeAzureService::Vaults, Some(failure));
        let began = node.azure.clock().now();
        let (_, newer) = node.workload_pod("ns", "sa");
        let reading = node.read_stale(&pod, &newer, HOUR).await.unwrap();
        assert!(only_file_text(&reading).ends_with("as system:serviceaccount:ns:sa"));
        let VaultOutage { since, error } = reading.outage.unwrap();
        assert!(since >= began && since <= node.azure.clock().now(), "{since}");
        assert!(error.vault_error().is_some_and(VaultReadError::is_outage), "it says why: {error}");
        // The start of the outage does not change with further failures.
        node.azure.advance_clock(Duration::from_mins(1)).await;
        let repeated = node.read_stale(&pod, &newer, HOUR).await.unwrap();
        assert_eq!(repeated.outage.map(|outage| outage.since), Some(since));
        for (namespace, account) in [("ns", "other"), ("other", "sa")] {
            let (pod, proofs) = node.workload_pod(namespace, account);
            let error = node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
            assert!(vault_error(&error).is_outage(), "{error}");
        }
        // The class does not opt in.
        node.read_file(WORKLOAD, &pod, &newer, MOUNT).await.unwrap_err();
        node.azure.set_failure(FakeAzureService::Vaults, None);
        node.azure.advance_clock(Duration::from_mins(1)).await;
        assert!(node.read_stale(&pod, &newer, HOUR).await.unwrap().outage.is_none());
        node.azure.advance_clock(Duration::from_mins(1)).await;
    }
}

#[tokio::test]
async fn token_service_outage_is_bridged() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR * 48).await.unwrap();
    node.azure.set_failure(FakeAzureService::Tokens, Some(FakeAzureFailure::Unreachable));
    node.azure.advance_clock(HOUR * 25).await;
    let (_, newer) = node.workload_pod("ns", "sa");
    let reading = node.read_stale(&pod, &newer, HOUR * 48).await.unwrap();
    let error = reading.outage.unwrap().error;
    assert!(matches!(error.vault_error(), Some(VaultReadError::Token { .. })), "{error}");
}

#[tokio::test]
async fn denied_read_is_not_bridged_and_invalidates_the_sealed_entry() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    let identity = format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.deny(&identity, 403);
    node.azure.advance_clock(Duration::from_mins(1)).await;
    let error = node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    assert!(matches!(vault_error(&error), VaultReadError::Forbidden(_)), "{error}");
    // The vault fails after it denied the read.
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Status(503)));
    node.azure.advance_clock(Duration::from_mins(1)).await;
    node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
}

#[tokio::test]
async fn denied_object_is_not_resealed_from_an_older_cached_value() {
    for required_freshness in [MOUNT, ROTATION] {
        let node = NodeVaultsFixture::new();
        node.azure.add_secret_version("kv1", "a");
        let (pod, proofs) = node.workload_pod("ns", "sa");
        let identity = format!("{CLIENT} of {TENANT} as system:serviceaccount:ns:sa");
        node.read_stale(&pod, &proofs, HOUR).await.unwrap();
        node.azure.advance_clock(Duration::from_secs(5)).await;
        node.azure.deny(&identity, 403);
        let error = node.read_with_stale_allowed(&pod, &proofs, REFRESH).await.unwrap_err();
        assert!(matches!(vault_error(&error), VaultReadError::Forbidden(_)), "{error}");
        // A read from five seconds before is fresh enough for both.
        node.azure.advance_clock(Duration::from_secs(1)).await;
        node.read_with_stale_allowed(&pod, &proofs, required_freshness).await.unwrap_err();
        node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
        node.azure.advance_clock(Duration::from_mins(2)).await;
        node.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    }
}

#[tokio::test]
async fn sealed_entry_older_than_the_class_allows_is_not_served() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    node.azure.advance_clock(Duration::from_mins(50)).await;
    let (_, newer) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &newer, HOUR).await.unwrap();
    node.azure.advance_clock(Duration::from_mins(11)).await;
    let error = node.read_stale(&pod, &newer, HOUR).await.unwrap_err();
    assert!(vault_error(&error).is_outage());
}

#[tokio::test]
async fn pod_with_expired_token_gets_nothing_from_the_sealed_cache() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR * 9).await.unwrap();
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    node.azure.advance_clock(HOUR * 2).await;
    for proofs in [&proofs, &PodCredentials::default()] {
        let error = node.read_stale(&pod, proofs, HOUR * 9).await.unwrap_err();
        assert!(matches!(error, NodeVaultError::Identity(_)), "{error}");
    }
}

#[tokio::test]
async fn node_started_during_an_outage_serves_nothing() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_version("kv1", "a");
    let (pod, proofs) = node.workload_pod("ns", "sa");
    node.read_stale(&pod, &proofs, HOUR).await.unwrap();
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    let restarted = NodeVaultsFixture::restarted_node(node.azure.clone());
    restarted.read_stale(&pod, &proofs, HOUR).await.unwrap_err();
    let error = restarted.read_managed(MOUNT).await.unwrap_err();
    let NodeVaultError::Fetch(error) = error else { panic!("{error}") };
    assert_eq!(error.hop(), Hop::VaultRead);
}

#[tokio::test]
async fn debug_output_and_errors_contain_no_secret() {
    let node = NodeVaultsFixture::new();
    node.azure.add_secret_value("kv1", "a", "planted-value");
    let now = node.azure.clock().now();
    let pod = pod("ns", "sa");
    let token = workload_credentials("planted-subject", AUDIENCE, now + 1.hour());
    let jwt = token.tokens.0[AUDIENCE].token.expose().to_vec();
    let jwt = String::from_utf8(jwt).unwrap();
    let secret = service_principal_credentials(CLIENT, "planted-secret");
    let parameters_of = |more| parameters(&["a"], more);
    let mut output = Vec::new();
    for (more, proofs) in [(WORKLOAD, &token), (&[][..], &secret)] {
        let parameters = parameters_of(more);
        let (required_freshness, serve_stale) = (MOUNT, Some(HOUR));
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod: &pod,
            credentials: proofs,
            freshness: required_freshness,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        let reading = node.fetch(&order).await.unwrap();
        output.push(format!("{order:?} {reading:?} {:?}", node.vaults));
    }
    node.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Status(401)));
    let error = node.read_file(&[], &pod, &secret, REFRESH).await.unwrap_err();
    output.push(format!("{error} {error:?} {:?}", error.hint()));
    let output = output.join(" ");
    assert!(!output.contains("planted") && !output.contains(&jwt), "{output}");
}

/// A reader in the property test.
#[derive(Debug, Clone)]
enum ReaderCase {
    Node { client: bool },
    Workload { namespace: u8, account: u8, tenant: bool },
    Principal { secret: u8 },
}

fn any_reader() -> impl Strategy<Value = ReaderCase> {
    prop_oneof![
        any::<bool>().prop_map(|client| ReaderCase::Node { client }),
        (0..2_u8, 0..2_u8, any::<bool>()).prop_map(|(namespace, account, tenant)| {
            ReaderCase::Workload { namespace, account, tenant }
        }),
        (0..2_u8).prop_map(|secret| ReaderCase::Principal { secret }),
    ]
}

fn any_freshness() -> impl Strategy<Value = Freshness> {
    prop_oneof![Just(MOUNT), Just(ROTATION), Just(REFRESH)]
}

const OTHER_TENANT: &str = "99999999-9999-9999-9999-999999999999";

impl ReaderCase {
    /// Reads as this reader, and returns the identity that Azure must have authenticated.
    async fn read_advancing_clock(
        &self,
        node: &NodeVaultsFixture,
        required_freshness: Freshness,
    ) -> (Result<VolumeReadResult, NodeVaultError>, String) {
        node.azure.run_advancing_clock(self.read_without_clock(node, required_freshness)).await
    }

    /// Like [`Self::read_advancing_clock`], while another task advances the clock.
    async fn read_without_clock(
        &self,
        node: &NodeVaultsFixture,
        required_freshness: Freshness,
    ) -> (Result<VolumeReadResult, NodeVaultError>, String) {
        let (more, pod, proofs, identity): (Vec<(&str, &str)>, _, _, _) = match self {
            Self::Node { client: true } => {
                let identity = format!("managed identity {CLIENT}");
                (MANAGED.to_vec(), pod("ns", "sa"), PodCredentials::default(), identity)
            }
            Self::Node { client: false } => {
                let more = vec![("useVMManagedIdentity", "true")];
                let identity = "managed identity system".to_owned();
                (more, pod("ns", "sa"), PodCredentials::default(), identity)
            }
            Self::Workload { namespace, account, tenant } => {
                let (pod, proofs) =
                    node.workload_pod(&format!("n{namespace}"), &format!("s{account}"));
                let tenant = if *tenant { TENANT } else { OTHER_TENANT };
                let identity = format!(
                    "{CLIENT} of {tenant} as system:serviceaccount:n{namespace}:s{account}"
                );
                (vec![("clientID", CLIENT), ("tenantID", tenant)], pod, proofs, identity)
            }
            Self::Principal { secret } => {
                let secret = format!("secret{secret}");
                let identity = format!("{CLIENT} of {TENANT} as who knows {secret}");
                (
                    Vec::new(),
                    pod("ns", "sa"),
                    service_principal_credentials(CLIENT, &secret),
                    identity,
                )
            }
        };
        let parameters = parameters(&["a"], &more);
        let serve_stale = Some(HOUR);
        let (pod, proofs) = (&pod, &proofs);
        let order = VolumeReadRequest {
            parameters: &parameters,
            pod,
            credentials: proofs,
            freshness: required_freshness,
            serve_stale,
            memory: &UnlimitedMemory,
        };
        (node.vaults.fetch(&order).await, identity)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn reader_never_gets_a_value_read_by_another(
        // A failure is cached for five seconds.
        steps in prop::collection::vec((any_reader(), any_freshness(), 6..30_u64, prop::bool::weighted(0.3)), 1..24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let node = NodeVaultsFixture::new();
            node.azure.add_secret_version("kv1", "a");
            let mut could_read = BTreeSet::new();
            for (who, required_freshness, pause, outage) in steps {
                node.azure.set_failure(FakeAzureService::Vaults, outage.then_some(FakeAzureFailure::Status(500)));
                node.azure.advance_clock(Duration::from_secs(pause)).await;
                let (outcome, identity) = who.read_advancing_clock(&node, required_freshness).await;
                if let Ok(reading) = outcome {
                    let text = only_file_text(&reading);
                    let suffix = format!(" for {identity}");
                    prop_assert!(text.ends_with(&suffix), "{text} was given to {identity}");
                    if outage {
                        prop_assert!(could_read.contains(&identity), "{identity} never read");
                    } else {
                        could_read.insert(identity);
                    }
                } else {
                    prop_assert!(outage, "{outcome:?}");
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn denied_reader_is_never_served_again(
        steps in prop::collection::vec(
            (
                prop::collection::vec((any_reader(), any_freshness()), 1..5),
                6..30_u64,
                prop::bool::weighted(0.3),
                prop::option::weighted(0.3, 0..2_u8),
            ),
            1..16,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let node = NodeVaultsFixture::new();
            node.azure.add_secret_version("kv1", "a");
            let mut refused = BTreeSet::new();
            for (readers, pause, outage, denied) in steps {
                if let Some(account) = denied {
                    let subject = format!("system:serviceaccount:n0:s{account}");
                    node.azure.deny(format!("{CLIENT} of {TENANT} as {subject}"), 403);
                }
                node.azure.set_failure(FakeAzureService::Vaults, outage.then_some(FakeAzureFailure::Status(500)));
                node.azure.advance_clock(Duration::from_secs(pause)).await;
                // All at once.
                let asking = readers.iter().map(|(who, required_freshness)| who.read_without_clock(&node, *required_freshness));
                let outcomes = node.azure.run_advancing_clock(futures::future::join_all(asking)).await;
                for (outcome, identity) in &outcomes {
                    if let Ok(reading) = outcome {
                        let text = only_file_text(reading);
                        let suffix = format!(" for {identity}");
                        prop_assert!(text.ends_with(&suffix), "{text} was given to {identity}");
                        prop_assert!(!refused.contains(identity), "{identity} was refused before");
                    }
                }
                for (outcome, identity) in outcomes {
                    if outcome.is_err_and(|error| vault_error(&error).is_denied()) {
                        refused.insert(identity);
                    }
                }
            }
            Ok(())
        })?;
    }
}
