use lanyard_api::SecretProviderClass;
use lanyard_azure::RequestRate;
use lanyard_clock::{Clock as _, RetryClass};
use lanyard_keyvault::testing::{
    FakeAzure, FakeAzureFailure, FakeAzureService, workload_credentials,
};
use lanyard_keyvault::{NodeVaultSettings, PodCredentials, StaleCache, VolumePod};
use lanyard_vocabulary::RecoveryMode;

use super::*;

const CLIENT: &str = "22222222-2222-2222-2222-222222222222";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const MANAGED: ParameterPairs<'_> =
    &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];
const WORKLOAD: ParameterPairs<'_> = &[("clientID", CLIENT)];

type ParameterPairs<'a> = &'a [(&'a str, &'a str)];

struct AzureProviderFixture {
    azure: FakeAzure,
    provider: AzureProvider,
    class: SecretProviderClass,
    pod: VolumePod,
}

impl AzureProviderFixture {
    /// A volume with the secret `a`, and the secret `b` under another name and mode.
    fn new(more: ParameterPairs<'_>) -> Self {
        let azure = FakeAzure::new();
        azure.add_secret_version("kv1", "a");
        azure.add_secret_version("kv1", "b");
        let rate = RequestRate { per_second: 1_000, burst: 1_000 };
        let (ways, clock) = (azure.node_transports(rate, None), azure.shared_clock());
        let stale = StaleCache::in_memory().unwrap();
        let vaults = NodeVaults::new(NodeVaultSettings::default(), ways, Some(stale), clock);
        let provider = AzureProvider::new(Arc::new(vaults), AzureProviderSettings::default());
        let mut class = SecretProviderClass::default();
        let objects = "array:\n\
            - |\n  objectName: a\n  objectType: secret\n\
            - |\n  objectName: b\n  objectType: secret\n  objectAlias: x/b\n  filePermission: 0400\n";
        let common = [("keyvaultName", "kv1"), ("tenantID", "contoso"), ("objects", objects)];
        let all = common.iter().chain(more);
        class.spec.parameters =
            Some(all.map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect());
        let pod = VolumePod {
            namespace: "ns".to_owned(),
            name: "pod".to_owned(),
            uid: "uid".to_owned(),
            service_account: "sa".to_owned(),
        };
        Self { azure, provider, class, pod }
    }

    fn annotate(&mut self, key: &str, text: &str) {
        let annotations = self.class.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), text.to_owned());
    }

    fn pod_credentials(&self) -> PodCredentials {
        let expires = self.azure.clock().now() + jiff::SignedDuration::from_hours(1);
        workload_credentials("system:serviceaccount:ns:sa", AUDIENCE, expires)
    }

    async fn fetch(&self, urgency: Urgency) -> Result<ProviderResponse, ProviderError> {
        self.fetch_with_proofs(urgency, &self.pod_credentials()).await
    }

    async fn fetch_with_proofs(
        &self,
        urgency: Urgency,
        pod_credentials: &PodCredentials,
    ) -> Result<ProviderResponse, ProviderError> {
        let request = ProviderRequest {
            class: &self.class,
            pod: &self.pod,
            attributes: &BTreeMap::new(),
            pod_credentials,
            target: "/var/lib/kubelet/pods/x",
            urgency,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        self.azure.run_advancing_clock(self.provider.fetch(&request)).await
    }
}

#[tokio::test]
async fn vault_objects_become_volume_files() {
    for more in [MANAGED, WORKLOAD] {
        let world = AzureProviderFixture::new(more);
        let response = world.fetch(Urgency::Mount).await.unwrap();
        let files: Vec<_> =
            response.files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        // The publisher chooses a mode that the entry omits, because it knows the pod's group.
        assert_eq!(files, [("a", None), ("x/b", Some(0o400))]);
        let object: Vec<_> = response.files.iter().map(|file| file.object.as_deref()).collect();
        assert_eq!(object, [Some("secret/a"), Some("secret/b")]);
        let versions: Vec<_> =
            response.versions.iter().map(|it| (it.id.as_str(), it.version.as_str())).collect();
        assert_eq!(versions, [("secret/a", "v1"), ("secret/b", "v1")]);
        assert!(response.stale.is_none());
        assert!(!response.timestamps["secret/a"].is_credential);
        assert!(response.timestamps["secret/a"].created.is_some());
    }
}

/// A credential in the form of the identities of a hosted control plane.
fn credential(not_before: &str) -> String {
    serde_json::json!({
        "client_id": CLIENT,
        "tenant_id": "contoso",
        "authentication_endpoint": "https://login.microsoftonline.com/",
        "client_secret": "cGxhbnRlZA==",
        "not_before": not_before,
        "not_after": "2027-02-19T12:00:00Z",
        "renew_after": "2027-01-05T12:00:00Z",
    })
    .to_string()
}

#[tokio::test]
async fn credential_times_come_from_its_document_others_from_the_vault() {
    let world = AzureProviderFixture::new(MANAGED);
    world.azure.add_secret_value("kv1", "a", credential("2026-11-21T11:00:00Z"));
    world.azure.set_tag("kv1", "a", "renew_after", "2026-12-01T00:00:00Z");
    world.azure.set_tag("kv1", "b", "renew_after", "2026-12-01T00:00:00Z");
    let response = world.fetch(Urgency::Mount).await.unwrap();
    let (credential, other) = (response.timestamps["secret/a"], response.timestamps["secret/b"]);
    assert!(credential.is_credential && !other.is_credential);
    assert_eq!(credential.not_before, "2026-11-21T11:00:00Z".parse().ok());
    assert_eq!(credential.not_after, "2027-02-19T12:00:00Z".parse().ok());
    assert_eq!(credential.renew_after, "2027-01-05T12:00:00Z".parse().ok());
    assert_eq!(other.renew_after, "2026-12-01T00:00:00Z".parse().ok());
    assert!(!format!("{response:?}").contains("cGxhbnRlZA"));
}

#[tokio::test]
async fn every_failure_has_outcome_code_message_and_hint() {
    let managed = |status| {
        let world = AzureProviderFixture::new(MANAGED);
        world.azure.deny(format!("managed identity {CLIENT}"), status);
        world
    };
    let with_failure = |part, failure| {
        let world = AzureProviderFixture::new(MANAGED);
        world.azure.set_failure(part, Some(failure));
        world
    };
    let cases = [
        (managed(401), OutcomeCode::VaultForbidden),
        (managed(403), OutcomeCode::VaultForbidden),
        (managed(404), OutcomeCode::ObjectNotFound),
        (managed(429), OutcomeCode::VaultThrottled),
        (managed(500), OutcomeCode::VaultUnavailable),
        (
            with_failure(FakeAzureService::Vaults, FakeAzureFailure::Unreachable),
            OutcomeCode::VaultUnavailable,
        ),
        (
            with_failure(FakeAzureService::Tokens, FakeAzureFailure::Status(400)),
            OutcomeCode::IdentityNotAssigned,
        ),
        (
            with_failure(FakeAzureService::Tokens, FakeAzureFailure::Status(500)),
            OutcomeCode::TokenUnavailable,
        ),
        (
            with_failure(FakeAzureService::Tokens, FakeAzureFailure::Unreachable),
            OutcomeCode::TokenUnavailable,
        ),
        (AzureProviderFixture::new(&[]), OutcomeCode::CredentialsNotFound),
        (
            AzureProviderFixture::new(&[("usePodIdentity", "true")]),
            OutcomeCode::SecretProviderClassInvalid,
        ),
        (
            AzureProviderFixture::new(&[("cloudName", "AzureStackCloud")]),
            OutcomeCode::SecretProviderClassInvalid,
        ),
    ];
    for (world, code) in cases {
        let error = world.fetch(Urgency::Mount).await.unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(!error.hint.is_empty() && !error.message.is_empty());
        let can_recover = !matches!(error.retry, RetryClass::Invalid | RetryClass::Denied);
        assert_eq!(can_recover, code.recovery_mode() == RecoveryMode::ByItself, "{code}");
    }
    let world = AzureProviderFixture::new(WORKLOAD);
    let error =
        world.fetch_with_proofs(Urgency::Mount, &PodCredentials::default()).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::TokenNotFound);
    assert_eq!(error.message, "service account tokens not found");
    assert!(error.hint.contains(AUDIENCE), "{}", error.hint);
    world.azure.set_failure(FakeAzureService::Tokens, Some(FakeAzureFailure::Status(401)));
    let error = world.fetch(Urgency::Mount).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::IdentityRefused);
    assert!(error.message.starts_with("could not read secret `a`: there is no token"), "{error}");
}

#[tokio::test]
async fn all_parameter_problems_are_reported_together() {
    let mut world =
        AzureProviderFixture::new(&[("useVMManagedIdentity", "perhaps"), ("cloudName", "Moon")]);
    world.class.spec.parameters.as_mut().unwrap().remove("keyvaultName");
    let error = world.fetch(Urgency::Mount).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::SecretProviderClassInvalid);
    for key in ["useVMManagedIdentity", "cloudName", "keyvaultName"] {
        assert!(error.message.contains(key), "{error}");
    }
}

#[tokio::test]
async fn an_outage_is_bridged_where_the_class_opts_in() {
    let mut world = AzureProviderFixture::new(WORKLOAD);
    world.annotate("lanyard.dev/serve-stale", "4h");
    world.fetch(Urgency::Mount).await.unwrap();
    world.azure.advance_clock(Duration::from_hours(3)).await;
    world.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    let began = world.azure.clock().now();
    let response = world.fetch(Urgency::Mount).await.unwrap();
    let stale = response.stale.unwrap();
    assert!(stale.since >= began);
    assert_eq!(stale.fetch_error.code, OutcomeCode::VaultUnavailable);
    assert!(stale.fetch_error.message.starts_with("could not read secret `"), "{stale:?}");
    assert_eq!(response.files.len(), 2);
    // Mounted content is as new as the sealed cache, or newer.
    for urgency in [Urgency::Rotation, Urgency::ForceRefresh] {
        let error = world.fetch(urgency).await.unwrap_err();
        assert_eq!(error.code, OutcomeCode::VaultUnavailable, "{urgency:?}");
    }
    world.class.metadata.annotations = None;
    let error = world.fetch(Urgency::Mount).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::VaultUnavailable);
    world.annotate("lanyard.dev/serve-stale", "always");
    let error = world.fetch(Urgency::Mount).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::SecretProviderClassInvalid);
}

#[tokio::test]
async fn rotation_updates_the_stale_cache_for_later_mounts() {
    let mut world = AzureProviderFixture::new(WORKLOAD);
    world.annotate("lanyard.dev/serve-stale", "4h");
    world.fetch(Urgency::Mount).await.unwrap();
    world.azure.advance_clock(Duration::from_mins(10)).await;
    for name in ["a", "b"] {
        world.azure.add_secret_value("kv1", name, format!("newer {name}"));
    }
    world.fetch(Urgency::Rotation).await.unwrap();
    world.azure.set_failure(FakeAzureService::Vaults, Some(FakeAzureFailure::Unreachable));
    world.azure.advance_clock(Duration::from_mins(10)).await;
    let response = world.fetch(Urgency::Mount).await.unwrap();
    assert!(response.stale.is_some());
    for file in &response.files {
        assert!(file.content.expose().starts_with(b"newer "), "{:?}", file.path);
    }
}

#[tokio::test]
async fn a_class_with_its_own_interval_shares_reads_within_it() {
    let mut world = AzureProviderFixture::new(MANAGED);
    world.annotate(RotationPolicy::INTERVAL, "10m");
    world.fetch(Urgency::Mount).await.unwrap();
    world.azure.advance_clock(Duration::from_secs(100)).await;
    world.fetch(Urgency::Rotation).await.unwrap();
    assert_eq!(world.azure.reads(), 2, "two objects, once");
    world.fetch(Urgency::ForceRefresh).await.unwrap();
    assert_eq!(world.azure.reads(), 4);
}
