//! A development environment in the engine of the local Azure: a vault, a container for journals, and the service
//! principal of one component.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use azure_core::http::HttpClient;
use lanyard_azure::{
    ArmClient, AzureTransport, AzureTransportSettings, CallerIdentity, GraphApplicationBody,
    GraphClient, PropagationWait, RetryPolicy,
};
use lanyard_changes::{
    AzureAccess, ContainerAccess, JournalAccess, JournalCluster, JournalHolder, JournalLock,
    JournalTarget,
};
use lanyard_clock::{ManualClock, SharedClock};
use lanyard_credential::bundle::CertificateBundle;
use lanyard_credential::document::CredentialDocument;
use lanyard_credential::{TokenTransport, TokenTransportOptions};
use lanyard_emulator::testing::arm_fixture::ArmFixture;
use lanyard_emulator::testing::{AzureState, EngineFixture, Ingress};
use lanyard_infra::{ClusterIdentifiers, stacks};
use lanyard_service_principals::{
    CreatedServicePrincipal, CredentialVault, ServicePrincipalClient, ServicePrincipalError,
    ServicePrincipalNames, TokenProof,
};
use lanyard_vocabulary::{Component, cloud};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::engine_client::{ARM_AUDIENCE, EngineCredential};
use crate::virtual_sleep::sleep_with;

const GRAPH: &str = "https://graph.microsoft.com";
const VAULT: &str = "https://platform-kv.vault.azure.net";
const ACCOUNT: &str =
    "/subscriptions/sub/resourceGroups/state/providers/Microsoft.Storage/storageAccounts/devstate";
const JOURNAL: &str = "https://devstate.blob.core.windows.net/journals/identities-dev";
const TENANT: &str = "11111111-1111-4111-8111-111111111111";
/// Key Vault Administrator and Storage Blob Data Contributor.
const ROLES: [&str; 2] =
    ["00482a5a-887f-4fb3-b363-3b7fe8e74483", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"];

/// What the application and the vault have at one moment. A certificate is the end of its signature.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Moment {
    /// The certificate in the secret.
    pub(crate) used: Option<String>,
    /// The newest certificate of the vault.
    pub(crate) newest: Option<String>,
    /// The certificates that the application accepts.
    pub(crate) accepted: Vec<String>,
}

impl Moment {
    /// Whether a component with the secret can sign in.
    pub(crate) fn is_good(&self) -> bool {
        self.used.as_ref().is_some_and(|used| self.accepted.contains(used))
    }
}

/// The environment.
pub(crate) struct Environment {
    pub(crate) engine: Arc<EngineFixture>,
    owner: Arc<EngineCredential>,
    pub(crate) names: ServicePrincipalNames,
    pub(crate) cluster: JournalCluster,
    /// The certificates of the versions of the secret.
    certificates: Mutex<BTreeMap<String, String>>,
}

impl Environment {
    pub(crate) fn new() -> Self {
        let ArmFixture { probe, owner, .. } = ArmFixture::new();
        sleep_with(&probe.clock);
        let engine = Arc::new(probe);
        let identifiers =
            ClusterIdentifiers::new("dev".parse().unwrap(), "identities".parse().unwrap()).unwrap();
        let prefix = "dev".parse().unwrap();
        let names = ServicePrincipalNames::new(Component::ControlPlaneOperator, &prefix).unwrap();
        let environment = Self {
            owner: EngineCredential::new(&engine, owner),
            cluster: identifiers.journal_cluster(&"sub".parse().unwrap()),
            names,
            certificates: Mutex::default(),
            engine,
        };
        environment.create_container_and_roles();
        environment
    }

    fn create_container_and_roles(&self) {
        let put = |path: &str, version: &str, body: Value| {
            let url = format!("https://management.azure.com{path}?api-version={version}");
            let status = self.send("PUT", ARM_AUDIENCE, &url, &body).0;
            assert!(matches!(status, 200..=202), "{path}: {status}");
            self.engine.clock.advance(Duration::from_mins(1));
        };
        put(
            "/subscriptions/sub/resourceGroups/state",
            "2021-04-01",
            json!({ "location": "eastus" }),
        );
        let account = json!({
            "location": "eastus", "kind": "StorageV2", "sku": { "name": "Standard_LRS" }
        });
        put(ACCOUNT, "2024-01-01", account);
        let container = format!("{ACCOUNT}/blobServices/default/containers/journals");
        put(&container, "2024-01-01", json!({}));
        let caller = CallerIdentity::of_token(&self.owner.token(ARM_AUDIENCE)).unwrap();
        let definitions = "/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions";
        for (number, role) in (1..).zip(ROLES) {
            let name = uuid::Uuid::from_u128(number);
            let path = format!(
                "/subscriptions/sub/providers/Microsoft.Authorization/roleAssignments/{name}"
            );
            let body = json!({ "properties": {
                "roleDefinitionId": format!("{definitions}/{role}"),
                "principalId": caller.object_id, "principalType": "ServicePrincipal",
            } });
            put(&path, "2022-04-01", body);
        }
    }

    pub(crate) fn state(&self) -> AzureState {
        self.engine.engine.state().azure.clone()
    }

    pub(crate) fn set_state(&self, state: &AzureState) {
        self.engine.engine.state().azure = state.clone();
    }

    pub(crate) fn clock(&self) -> ManualClock {
        self.engine.clock.clone()
    }

    fn transport(&self, http: Arc<dyn HttpClient>) -> AzureTransport {
        let second = Duration::from_secs(1);
        let settings = AzureTransportSettings {
            retry: RetryPolicy { retries: 0, base: second, cap: second },
            ..AzureTransportSettings::default()
        };
        AzureTransport::from_http_client(http, &settings, Arc::new(self.clock()))
    }

    /// A client of the service principals, as each command has one.
    pub(crate) fn client(&self, http: Arc<dyn HttpClient>) -> ServicePrincipalClient {
        let transport = self.transport(http);
        let clock: SharedClock = Arc::new(self.clock());
        let wait = |timeout| PropagationWait { clock: SharedClock::clone(&clock), timeout };
        let directory = wait(Duration::from_mins(3));
        let credential: Arc<dyn TokenCredential> = Arc::<EngineCredential>::clone(&self.owner);
        let options = transport.client_options();
        let vault = CredentialVault::new(VAULT, &credential, &options, wait(directory.timeout));
        let mut tokens = TokenTransportOptions::default();
        tokens.clock = SharedClock::clone(&clock);
        tokens.client.transport = Some(transport.without_rate_limit());
        ServicePrincipalClient {
            graph: GraphClient::new(&cloud::PUBLIC, credential, &transport),
            vault: vault.unwrap(),
            proof: TokenProof {
                scope: format!("{ARM_AUDIENCE}.default"),
                transport: TokenTransport::new(tokens),
                propagation: directory.clone(),
            },
            prefix: "dev".parse().unwrap(),
            tenant: TENANT.parse().unwrap(),
            authority: cloud::PUBLIC.authority_url().parse().unwrap(),
            clock,
            propagation: directory,
        }
    }

    /// Access to Azure for the engine of changes.
    pub(crate) fn access(&self, http: Arc<dyn HttpClient>) -> AzureAccess {
        let transport = self.transport(http);
        let credential: Arc<dyn TokenCredential> = Arc::<EngineCredential>::clone(&self.owner);
        let arm = ArmClient::new(&cloud::PUBLIC, Arc::clone(&credential), &transport);
        AzureAccess::new(arm, GraphClient::new(&cloud::PUBLIC, credential, &transport))
    }

    /// Creates the application, as the engine of changes does, and its credential.
    pub(crate) async fn create(
        &self,
        client: &ServicePrincipalClient,
    ) -> Result<CreatedServicePrincipal, ServicePrincipalError> {
        let name = self.names.name.as_str();
        let body = GraphApplicationBody::new(name);
        let app_id = client.graph.upsert_application(name, &body).await.unwrap().app_id;
        client.graph.upsert_service_principal(app_id).await.unwrap();
        client.create(&self.names, &|_| ()).await
    }

    /// Locks the journal of the environment, as each command does.
    pub(crate) async fn lock(
        &self,
        holder: &str,
        http: Arc<dyn HttpClient>,
    ) -> Result<JournalLock, lanyard_changes::StackError> {
        let access = JournalAccess {
            container: ContainerAccess {
                credential: Arc::<EngineCredential>::clone(&self.owner),
                client_options: self.transport(http).client_options(),
            },
            holder: JournalHolder::new(holder),
            clock: Arc::new(self.clock()),
            stack_rule: stacks::can_contain,
            lock_timeout: None,
        };
        let (location, cluster) = (JOURNAL.parse().unwrap(), self.cluster.clone());
        JournalTarget { location, cluster, access, on_event: |_| () }.lock().await
    }

    fn send(&self, method: &str, audience: &str, url: &str, body: &Value) -> (u16, Value) {
        let bearer = format!("Bearer {}", self.owner.token(audience));
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let method = method.parse().unwrap();
        let reply = self.engine.send_request(Ingress::Tunnel, &method, url, &headers, &text);
        (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap_or_default())
    }

    fn get(&self, audience: &str, url: &str) -> Value {
        self.send("GET", audience, url, &Value::Null).1
    }

    /// What a component, the vault and the application have now.
    pub(crate) fn moment(&self) -> Moment {
        let read = |path: String| {
            self.get("https://vault.azure.net", &format!("{VAULT}/{path}?api-version=7.4"))
        };
        let (name, secret) = (&self.names.name, &self.names.secret);
        let keys = self.application()["keyCredentials"].take();
        let keys = keys.as_array().into_iter().flatten();
        let certificate = read(format!("certificates/{name}"));
        Moment {
            used: self.certificate_of(&read(format!("secrets/{secret}"))),
            newest: certificate["cer"].as_str().map(end_of),
            accepted: keys.map(|it| end_of(it["key"].as_str().unwrap())).collect(),
        }
    }

    fn application(&self) -> Value {
        let name = &self.names.name;
        let url =
            format!("{GRAPH}/v1.0/applications(uniqueName='{name}')?$select=id,keyCredentials");
        self.get(GRAPH, &url)
    }

    /// Removes all certificates of the application, as `az ad app credential reset` does.
    pub(crate) fn remove_certificates(&self) {
        let url =
            format!("{GRAPH}/v1.0/applications/{}", self.application()["id"].as_str().unwrap());
        let (status, _) = self.send("PATCH", GRAPH, &url, &json!({ "keyCredentials": [] }));
        assert_eq!(status, 204);
    }

    fn certificate_of(&self, secret: &Value) -> Option<String> {
        let version = secret["id"].as_str()?.to_owned();
        let parse = || {
            let document = secret["value"].as_str().unwrap().as_bytes();
            let document = CredentialDocument::parse(document).unwrap();
            let bundle = CertificateBundle::parse(document.client_secret()).unwrap();
            end_of(&azure_core::base64::encode(bundle.leaf().der()))
        };
        Some(self.certificates.lock().entry(version).or_insert_with(parse).clone())
    }
}

/// The end of a certificate as base64, which is enough to distinguish certificates.
fn end_of(certificate: &str) -> String {
    certificate[certificate.len() - 12..].to_owned()
}
