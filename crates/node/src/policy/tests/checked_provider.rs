//! Tests of [`PolicyCheckedProvider`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use lanyard_api::SecretProviderClass;
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_keyvault::{PodCredentials, VolumePod};
use lanyard_provider::{
    Provider, ProviderError, ProviderObjectVersion, ProviderRequest, ProviderResponse, Urgency,
};
use lanyard_vocabulary::OutcomeCode;

use super::*;
use crate::audit::{AuditSink, AuditTrail, verify_chain};

/// Returns every object in version `v1`, and counts its requests.
#[derive(Debug, Default)]
struct FakePolicyVaults {
    requests: AtomicUsize,
    fail: bool,
}

#[async_trait]
impl Provider for FakePolicyVaults {
    async fn fetch(
        &self,
        request: &ProviderRequest<'_>,
    ) -> Result<ProviderResponse, ProviderError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.fail {
            return Err(ProviderError::new(OutcomeCode::VaultForbidden, "403 from the vault"));
        }
        let parameters = request.class.parse_parameters().unwrap();
        let versions = parameters.objects.iter().map(|entry| ProviderObjectVersion {
            id: format!("{}/{}", entry.kind, entry.name),
            version: "v1".to_owned(),
        });
        let versions = versions.collect();
        Ok(ProviderResponse {
            files: Vec::new(),
            versions,
            timestamps: BTreeMap::new(),
            warnings: Vec::new(),
            stale: None,
        })
    }
}

struct PolicyFixture {
    vaults: Arc<FakePolicyVaults>,
    provider: PolicyCheckedProvider,
    audit: AuditTrail,
    directory: tempfile::TempDir,
}

impl PolicyFixture {
    fn new(mode: PolicyMode, vaults: FakePolicyVaults) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).unwrap();
        let policy = Arc::new(ReloadablePolicy::load(&policy).unwrap());
        let sink = AuditSink::File(directory.path().join("audit.jsonl"));
        let audit = AuditTrail::open(&sink, clock()).unwrap();
        let vaults = Arc::new(vaults);
        let inner: Arc<dyn Provider> = Arc::<FakePolicyVaults>::clone(&vaults);
        let provider = PolicyCheckedProvider::new(inner, policy, mode, audit.clone());
        Self { vaults, provider, audit, directory }
    }

    async fn fetch(
        &self,
        namespace: &str,
        identity: &[(&str, &str)],
    ) -> Result<ProviderResponse, ProviderError> {
        let mut parameters = BTreeMap::from([
            ("keyvaultName".to_owned(), "hcp-1".to_owned()),
            ("tenantId".to_owned(), "tenant".to_owned()),
            (
                "objects".to_owned(),
                "array:\n  - |\n    objectName: disk\n    objectType: secret\n  - |\n    \
                 objectName: top\n    objectType: key\n"
                    .to_owned(),
            ),
        ]);
        parameters
            .extend(identity.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())));
        let mut class = SecretProviderClass::default();
        class.metadata.name = Some("disk".to_owned());
        class.spec.parameters = Some(parameters);
        let pod = VolumePod {
            namespace: namespace.to_owned(),
            name: "pod".to_owned(),
            uid: "uid".to_owned(),
            service_account: "account".to_owned(),
        };
        let request = ProviderRequest {
            class: &class,
            pod: &pod,
            attributes: &BTreeMap::new(),
            pod_credentials: &PodCredentials::default(),
            target: "/target",
            urgency: Urgency::Mount,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        self.provider.fetch(&request).await
    }

    fn request_count(&self) -> usize {
        self.vaults.requests.load(Ordering::Relaxed)
    }

    /// The events of the audit trail after its first line, as `event object verdict`.
    fn audit_lines(&self) -> Vec<String> {
        self.audit.flush();
        let text = std::fs::read_to_string(self.directory.path().join("audit.jsonl")).unwrap();
        verify_chain(text.lines()).unwrap();
        let values = text.lines().skip(1).map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            let text = |field: &str| value[field].as_str().unwrap_or("-").to_owned();
            [text("event"), text("object"), text("version"), text("verdict")].join(" ")
        });
        values.collect()
    }
}

fn clock() -> SharedClock {
    Arc::new(ManualClock::starting_at("2026-11-21T12:00:00Z".parse().unwrap()))
}

const MANAGED: &[(&str, &str)] = &[("useVMManagedIdentity", "true")];
const WORKLOAD: &[(&str, &str)] = &[("clientID", "11111111-2222-3333-4444-555555555555")];

#[tokio::test]
async fn enforce_denies_before_the_provider_is_called_and_names_the_objects() {
    let node = PolicyFixture::new(PolicyMode::Enforce, FakePolicyVaults::default());
    let error = node.fetch("default", MANAGED).await.unwrap_err();
    assert_eq!(error.code, OutcomeCode::PolicyDenied);
    for part in ["`default`", "`secret/disk`, `key/top`", "`hcp-1`", "`system-assigned`"] {
        assert!(error.message.contains(part), "{part}: {}", error.message);
    }
    assert_eq!(node.request_count(), 0);
    assert_eq!(
        node.audit_lines(),
        ["denied secret/disk - unmatched", "denied key/top - unmatched"]
    );
}

#[tokio::test]
async fn one_object_that_no_rule_allows_denies_the_volume() {
    let node = PolicyFixture::new(PolicyMode::Enforce, FakePolicyVaults::default());
    let identity = [
        ("useVMManagedIdentity", "true"),
        ("userAssignedIdentityID", "11111111-2222-3333-4444-555555555555"),
    ];
    let error = node.fetch("ocm-1", &identity).await.unwrap_err();
    assert!(error.message.contains("`key/top`") && !error.message.contains("secret/disk"));
    assert_eq!((node.request_count(), node.audit_lines().len()), (0, 1));
}

#[tokio::test]
async fn audit_reads_and_records_once_for_each_pod_and_version() {
    let node = PolicyFixture::new(PolicyMode::Audit, FakePolicyVaults::default());
    for _ in 0..3 {
        node.fetch("default", MANAGED).await.unwrap();
    }
    assert_eq!(node.request_count(), 3);
    assert_eq!(node.audit_lines(), ["read secret/disk v1 unmatched", "read key/top v1 unmatched"]);
}

#[tokio::test]
async fn pod_identities_are_not_checked_by_the_policy() {
    let node = PolicyFixture::new(PolicyMode::Enforce, FakePolicyVaults::default());
    node.fetch("default", WORKLOAD).await.unwrap();
    node.fetch("default", &[]).await.unwrap();
    assert_eq!(node.audit_lines().len(), 4);
    assert!(node.audit_lines().iter().all(|line| line.ends_with(" azure")));
}

#[tokio::test]
async fn vault_errors_are_recorded_with_their_outcome() {
    let node = PolicyFixture::new(
        PolicyMode::Audit,
        FakePolicyVaults { fail: true, ..FakePolicyVaults::default() },
    );
    node.fetch("default", MANAGED).await.unwrap_err();
    assert_eq!(
        node.audit_lines(),
        ["refused secret/disk - unmatched", "refused key/top - unmatched"]
    );
    let text = std::fs::read_to_string(node.directory.path().join("audit.jsonl")).unwrap();
    assert!(text.contains("\"outcome\":\"VaultForbidden\""), "{text}");
}

#[tokio::test]
async fn suggested_policy_allows_exactly_the_audited_reads() {
    let node = PolicyFixture::new(PolicyMode::Audit, FakePolicyVaults::default());
    node.fetch("default", MANAGED).await.unwrap();
    node.fetch("other", WORKLOAD).await.unwrap();
    node.audit.flush();
    let text = std::fs::read_to_string(node.directory.path().join("audit.jsonl")).unwrap();
    let mut observed = ObservedReads::default();
    observed.add_lines(text.lines().chain(["no record", "{\"event\":\"of-tomorrow\"}"]));
    let suggestion = observed.suggest();
    assert_eq!((suggestion.accesses, suggestion.unreadable.len()), (2, 1));
    let system = SharedIdentity::SystemAssigned;
    let judged = |namespace, what| {
        suggestion.policy.evaluate(&access(namespace, "disk", system, what)).is_allowed()
    };
    assert!(judged("default", "hcp-1/secret/disk") && judged("default", "hcp-1/key/top"));
    assert!(!judged("default", "hcp-1/secret/top") && !judged("other", "hcp-1/secret/disk"));
}
