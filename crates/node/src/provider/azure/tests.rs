use lanyard_api::SecretProviderClass;
use lanyard_azure::Rate;
use lanyard_clock::Clock as _;
use lanyard_keyvault::testing::{FakeAzure, Part, Trouble, workload_proofs};
use lanyard_keyvault::{NodeVaultSettings, Pod, Proofs, RetryClass, StaleCache};
use lanyard_vocabulary::Healing;

use super::*;

const CLIENT: &str = "22222222-2222-2222-2222-222222222222";
const AUDIENCE: &str = "api://AzureADTokenExchange";
const MANAGED: Pairs<'_> = &[("useVMManagedIdentity", "true"), ("userAssignedIdentityID", CLIENT)];
const WORKLOAD: Pairs<'_> = &[("clientID", CLIENT)];

type Pairs<'a> = &'a [(&'a str, &'a str)];

struct World {
    azure: FakeAzure,
    provider: AzureProvider,
    class: SecretProviderClass,
    pod: Pod,
}

impl World {
    /// One volume with the secrets `a` and, under another name and mode, `b`.
    fn new(more: Pairs<'_>) -> Self {
        let azure = FakeAzure::new();
        azure.put("kv1", "a");
        azure.put("kv1", "b");
        let rate = Rate { per_second: 1_000, burst: 1_000 };
        let (ways, clock) = (azure.ways(rate, None), azure.shared_clock());
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
        let pod = Pod {
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

    fn proofs(&self) -> Proofs {
        let expires = self.azure.clock().now() + jiff::SignedDuration::from_hours(1);
        workload_proofs("system:serviceaccount:ns:sa", AUDIENCE, expires)
    }

    async fn fill(&self, urgency: Urgency) -> Result<Filling, Refusal> {
        self.fill_with(urgency, &self.proofs()).await
    }

    async fn fill_with(&self, urgency: Urgency, proofs: &Proofs) -> Result<Filling, Refusal> {
        let request = FillRequest {
            class: &self.class,
            pod: &self.pod,
            attributes: &BTreeMap::new(),
            proofs,
            target: "/var/lib/kubelet/pods/x",
            urgency,
            mounted: &[],
            memory: &lanyard_keyvault::UnlimitedMemory,
        };
        self.azure.drive(self.provider.fill(&request)).await
    }
}

#[tokio::test]
async fn what_the_vault_holds_becomes_the_files_of_the_volume() {
    for more in [MANAGED, WORKLOAD] {
        let world = World::new(more);
        let filling = world.fill(Urgency::Mount).await.unwrap();
        let files: Vec<_> =
            filling.files.iter().map(|file| (file.path.as_str(), file.mode)).collect();
        // What the entry does not say is left to the publisher, which knows of the pod's group.
        assert_eq!(files, [("a", None), ("x/b", Some(0o400))]);
        let object: Vec<_> = filling.files.iter().map(|file| file.object.as_deref()).collect();
        assert_eq!(object, [Some("secret/a"), Some("secret/b")]);
        let versions: Vec<_> =
            filling.versions.iter().map(|it| (it.id.as_str(), it.version.as_str())).collect();
        assert_eq!(versions, [("secret/a", "v1"), ("secret/b", "v1")]);
        assert!(filling.stale.is_none());
        assert!(!filling.stamps["secret/a"].is_credential);
        assert!(filling.stamps["secret/a"].created.is_some());
    }
}

/// A credential as the identities of a hosted control plane have it.
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
async fn the_times_of_a_credential_come_from_itself_and_of_others_from_the_vault() {
    let world = World::new(MANAGED);
    world.azure.put_value("kv1", "a", credential("2026-11-21T11:00:00Z"));
    world.azure.tag("kv1", "a", "renew_after", "2026-12-01T00:00:00Z");
    world.azure.tag("kv1", "b", "renew_after", "2026-12-01T00:00:00Z");
    let filling = world.fill(Urgency::Mount).await.unwrap();
    let (credential, other) = (filling.stamps["secret/a"], filling.stamps["secret/b"]);
    assert!(credential.is_credential && !other.is_credential);
    assert_eq!(credential.not_before, "2026-11-21T11:00:00Z".parse().ok());
    assert_eq!(credential.not_after, "2027-02-19T12:00:00Z".parse().ok());
    assert_eq!(credential.renew_after, "2027-01-05T12:00:00Z".parse().ok());
    assert_eq!(other.renew_after, "2026-12-01T00:00:00Z".parse().ok());
    assert!(!format!("{filling:?}").contains("cGxhbnRlZA"));
}

#[tokio::test]
async fn every_failure_has_its_code_and_says_what_came_back_and_what_to_do() {
    let managed = |status| {
        let world = World::new(MANAGED);
        world.azure.deny(format!("managed identity {CLIENT}"), status);
        world
    };
    let troubled = |part, trouble| {
        let world = World::new(MANAGED);
        world.azure.trouble(part, Some(trouble));
        world
    };
    let cases = [
        (managed(401), OutcomeCode::VaultForbidden),
        (managed(403), OutcomeCode::VaultForbidden),
        (managed(404), OutcomeCode::ObjectNotFound),
        (managed(429), OutcomeCode::VaultThrottled),
        (managed(500), OutcomeCode::VaultUnavailable),
        (troubled(Part::Vaults, Trouble::Unreachable), OutcomeCode::VaultUnavailable),
        (troubled(Part::Tokens, Trouble::Status(400)), OutcomeCode::IdentityNotAssigned),
        (troubled(Part::Tokens, Trouble::Status(500)), OutcomeCode::TokenUnavailable),
        (troubled(Part::Tokens, Trouble::Unreachable), OutcomeCode::TokenUnavailable),
        (World::new(&[]), OutcomeCode::CredentialsNotFound),
        (World::new(&[("usePodIdentity", "true")]), OutcomeCode::SecretProviderClassInvalid),
        (World::new(&[("cloudName", "AzureStackCloud")]), OutcomeCode::SecretProviderClassInvalid),
    ];
    for (world, code) in cases {
        let refusal = world.fill(Urgency::Mount).await.unwrap_err();
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(!refusal.hint.is_empty() && !refusal.message.is_empty());
        let heals = !matches!(refusal.retry, RetryClass::Invalid | RetryClass::Denied);
        assert_eq!(heals, code.healing() == Healing::ByItself, "{code}");
    }
    let world = World::new(WORKLOAD);
    let refusal = world.fill_with(Urgency::Mount, &Proofs::default()).await.unwrap_err();
    assert_eq!(refusal.code, OutcomeCode::TokenNotFound);
    assert_eq!(refusal.message, "service account tokens not found");
    assert!(refusal.hint.contains(AUDIENCE), "{}", refusal.hint);
    world.azure.trouble(Part::Tokens, Some(Trouble::Status(401)));
    let refusal = world.fill(Urgency::Mount).await.unwrap_err();
    assert_eq!(refusal.code, OutcomeCode::IdentityRefused);
    assert!(
        refusal.message.starts_with("could not read secret `a`: there is no token"),
        "{refusal}"
    );
}

#[tokio::test]
async fn every_problem_of_a_class_is_told_at_once() {
    let mut world = World::new(&[("useVMManagedIdentity", "perhaps"), ("cloudName", "Moon")]);
    world.class.spec.parameters.as_mut().unwrap().remove("keyvaultName");
    let refusal = world.fill(Urgency::Mount).await.unwrap_err();
    assert_eq!(refusal.code, OutcomeCode::SecretProviderClassInvalid);
    for key in ["useVMManagedIdentity", "cloudName", "keyvaultName"] {
        assert!(refusal.message.contains(key), "{refusal}");
    }
}

#[tokio::test]
async fn an_outage_is_bridged_where_the_class_opts_in() {
    let mut world = World::new(WORKLOAD);
    world.annotate("lanyard.dev/serve-stale", "4h");
    world.fill(Urgency::Mount).await.unwrap();
    world.azure.pass(Duration::from_hours(3)).await;
    world.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
    let began = world.azure.clock().now();
    let filling = world.fill(Urgency::Mount).await.unwrap();
    let stale = filling.stale.unwrap();
    assert!(stale.since >= began);
    assert_eq!(stale.instead_of.code, OutcomeCode::VaultUnavailable);
    assert!(stale.instead_of.message.starts_with("could not read secret `"), "{stale:?}");
    assert_eq!(filling.files.len(), 2);
    // What is mounted is as good as what was sealed, or newer.
    for urgency in [Urgency::Rotation, Urgency::Refresh] {
        let refusal = world.fill(urgency).await.unwrap_err();
        assert_eq!(refusal.code, OutcomeCode::VaultUnavailable, "{urgency:?}");
    }
    world.class.metadata.annotations = None;
    let refusal = world.fill(Urgency::Mount).await.unwrap_err();
    assert_eq!(refusal.code, OutcomeCode::VaultUnavailable);
    world.annotate("lanyard.dev/serve-stale", "always");
    let refusal = world.fill(Urgency::Mount).await.unwrap_err();
    assert_eq!(refusal.code, OutcomeCode::SecretProviderClassInvalid);
}

#[tokio::test]
async fn what_a_rotation_reads_is_kept_for_the_pods_that_start_later() {
    let mut world = World::new(WORKLOAD);
    world.annotate("lanyard.dev/serve-stale", "4h");
    world.fill(Urgency::Mount).await.unwrap();
    world.azure.pass(Duration::from_mins(10)).await;
    for name in ["a", "b"] {
        world.azure.put_value("kv1", name, format!("newer {name}"));
    }
    world.fill(Urgency::Rotation).await.unwrap();
    world.azure.trouble(Part::Vaults, Some(Trouble::Unreachable));
    world.azure.pass(Duration::from_mins(10)).await;
    let filling = world.fill(Urgency::Mount).await.unwrap();
    assert!(filling.stale.is_some());
    for file in &filling.files {
        assert!(file.content.expose().starts_with(b"newer "), "{:?}", file.path);
    }
}

#[tokio::test]
async fn a_class_with_its_own_interval_shares_reads_within_it() {
    let mut world = World::new(MANAGED);
    world.annotate(ClassWishes::INTERVAL, "10m");
    world.fill(Urgency::Mount).await.unwrap();
    world.azure.pass(Duration::from_secs(100)).await;
    world.fill(Urgency::Rotation).await.unwrap();
    assert_eq!(world.azure.reads(), 2, "two objects, once");
    world.fill(Urgency::Refresh).await.unwrap();
    assert_eq!(world.azure.reads(), 4);
}
