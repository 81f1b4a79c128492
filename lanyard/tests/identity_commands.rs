//! Runs the commands for service principals as processes against a served local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "identity_commands/applications.rs"]
mod applications;
#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use azure_core::credentials::TokenCredential as _;
use azure_core::http::Transport;
use infra_workspace::{InfraWorkspace, KillPosition};
use lanyard_clock::SystemClock;
use lanyard_credential::identity::Authority;
use lanyard_credential::{ClientCertificateCredential, TokenTransport, TokenTransportOptions};
use serde_json::Value;

const ENVIRONMENT: [&str; 4] = ["--prefix", "dev", "--vault", "dev-credentials"];
const VAULT: &str = "https://dev-credentials.vault.azure.net";
const FILES: [&str; 6] = [
    "--managed-identities-file",
    "cp.json",
    "--data-plane-identities-file",
    "dp.json",
    "--oidc-issuer-url",
    "https://account.blob.core.windows.net/container",
];
/// The flag of the KMS identity.
const KMS: &str = "--enable-kms";

/// A workspace with a vault and the identities of an environment.
fn workspace_with_identities() -> InfraWorkspace {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    workspace.succeed_json(&arguments(&["create", "identities", "azure"], &FILES));
    workspace
}

/// The ids of the resources and role assignments but the group of the worker nodes' identities, which is shared.
fn ids_without_shared_group(workspace: &InfraWorkspace) -> BTreeSet<String> {
    let mut ids = workspace.resource_ids();
    ids.retain(|id| !id.ends_with("/resourcegroups/os4-common"));
    ids
}

fn arguments(command: &[&str], more: &[&str]) -> Vec<String> {
    let all = command.iter().chain(&ENVIRONMENT).chain(more);
    all.map(|text| (*text).to_owned()).collect()
}

fn changes(document: &Value) -> Vec<usize> {
    let rows = document["servicePrincipals"].as_array().unwrap().iter();
    rows.map(|row| row["changes"].as_array().unwrap().len()).collect()
}

/// The components of an environment, as pods with the secret of their credential.
struct Components<'a> {
    workspace: &'a InfraWorkspace,
    tokens: TokenTransport,
}

impl<'a> Components<'a> {
    fn new(workspace: &'a InfraWorkspace) -> Self {
        let mut options = TokenTransportOptions::default();
        options.client.transport = Some(Transport::new(Arc::new(workspace.client().clone())));
        Self { workspace, tokens: TokenTransport::new(options) }
    }

    async fn read_vault(&self, path: &str) -> Value {
        let url = format!("{VAULT}/{path}?api-version=7.4");
        let scope = "https://vault.azure.net/.default";
        self.workspace.azure_request(scope, reqwest::Method::GET, &url, None).await
    }

    /// The credential document that the vault has now.
    async fn document(&self, secret: &str) -> Value {
        let secret = self.read_vault(&format!("secrets/{secret}")).await;
        serde_json::from_str(secret["value"].as_str().unwrap()).unwrap()
    }

    /// Requests a token with a credential document.
    async fn request_token(&self, document: &Value) -> azure_core::Result<()> {
        let text = |key: &str| document[key].as_str().unwrap().to_owned();
        let authority: Authority = text("authentication_endpoint").parse().unwrap();
        let (tenant, client) = (text("tenant_id"), text("client_id"));
        let secret = azure_core::base64::decode(text("client_secret")).unwrap();
        let credential = ClientCertificateCredential::new(
            &tenant.parse().unwrap(),
            client.parse().unwrap(),
            &authority,
            &secret,
            None,
            &self.tokens,
        );
        let scope = "https://management.azure.com/.default";
        credential.unwrap().get_token(&[scope], None).await.map(drop)
    }

    /// The number of certificates that the application of a client id accepts.
    async fn accepted_certificates(&self, client_id: &str) -> usize {
        let graph = "https://graph.microsoft.com";
        let url = format!("{graph}/v1.0/applications(appId='{client_id}')?$select=keyCredentials");
        let scope = format!("{graph}/.default");
        let found = self.workspace.azure_request(&scope, reqwest::Method::GET, &url, None).await;
        found["keyCredentials"].as_array().unwrap().len()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn created_identities_work_and_a_second_run_writes_nothing() {
    let workspace = workspace_with_identities();
    let second_run = workspace.succeed_json(&arguments(&["create", "identities", "azure"], &FILES));
    assert_eq!(changes(&second_run), [0; 8], "{second_run}");
    let control_plane: Value = serde_json::from_str(&workspace.read_file("cp.json")).unwrap();
    let components = Components::new(&workspace);
    block_on(async {
        for (component, identity) in control_plane.as_object().unwrap() {
            let Some(secret) = identity["credentialsSecretName"].as_str() else { continue };
            let document = components.document(secret).await;
            assert_eq!(document["client_id"], identity["clientID"], "{component}");
            components.request_token(&document).await.unwrap();
            let stored = components.read_vault(&format!("secrets/{secret}")).await;
            assert!(stored["attributes"]["exp"].is_u64() && stored["attributes"]["nbf"].is_u64());
            assert_eq!(stored["tags"]["renew_after"], document["renew_after"]);
        }
    });
    let data_plane: Value = serde_json::from_str(&workspace.read_file("dp.json")).unwrap();
    assert_eq!(data_plane.as_object().unwrap().len(), 3);
}

#[test]
fn destroyed_identities_leave_nothing_and_are_created_again() {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    let before = ids_without_shared_group(&workspace);
    let create = arguments(&["create", "identities", "azure"], &[&FILES[4..], &[KMS]].concat());
    // The second run also purges the applications that the first one deleted.
    for (purge, removals) in [(&[][..], 2), (&["--purge"], 4)] {
        let created = workspace.succeed_json(&create);
        assert!(changes(&created).iter().all(|count| *count >= 4), "{created}");
        let destroy = arguments(&["destroy", "identities", "azure"], purge);
        let destroyed = workspace.succeed_json(&destroy);
        assert_eq!(changes(&destroyed), [removals; 9], "{destroyed}");
        assert_eq!(ids_without_shared_group(&workspace), before);
        assert_eq!(changes(&workspace.succeed_json(&destroy)), [0; 9]);
    }
}

#[test]
fn kms_identity_has_its_role_at_its_key_and_follows_the_other_identities() {
    let workspace = workspace_with_identities();
    let before = workspace.resource_ids();
    let create = arguments(&["create", "identities", "azure"], &[&FILES[..], &[KMS]].concat());
    let created = workspace.succeed_json(&create);
    let mut counts = changes(&created);
    assert!(counts.pop().is_some_and(|count| count >= 4), "{created}");
    assert_eq!(counts, [0; 8], "{created}");
    let key = created["kms"]["encryptionKeyId"].as_str().unwrap().to_owned();
    let (name, version) = key.rsplit_once('/').unwrap();
    assert_eq!(name, format!("{VAULT}/keys/etcd-encryption-dev"));
    let azure = &created["kms"]["secretEncryption"]["kms"]["azure"];
    assert_eq!(azure["activeKey"]["keyVersion"], version);
    assert_eq!(azure["kms"]["credentialsSecretName"], "kms-dev-json");
    let mut assigned = workspace.resource_ids();
    assigned.retain(|id| !before.contains(id));
    let assigned: Vec<_> = assigned.into_iter().collect();
    assert_eq!(assigned.len(), 1, "{assigned:?}");
    assert!(
        assigned[0].contains("/vaults/dev-credentials/keys/etcd-encryption-dev/"),
        "{assigned:?}"
    );
    // The file of the control plane has no place for the ninth identity.
    let control_plane: Value = serde_json::from_str(&workspace.read_file("cp.json")).unwrap();
    assert!(control_plane["kms"].is_null() && control_plane["disk"].is_object());

    let second_run = workspace.succeed_json(&create);
    assert_eq!(changes(&second_run), [0; 9], "{second_run}");
    assert_eq!(second_run["kms"]["encryptionKeyId"], key);
    let named = [&FILES[..], &[KMS, "--encryption-key-id", &key]].concat();
    let named = workspace.succeed_json(&arguments(&["create", "identities", "azure"], &named));
    assert_eq!(named["kms"]["secretEncryption"], created["kms"]["secretEncryption"]);
    // Clusters may still use the first key.
    let other = format!("{VAULT}/keys/other");
    let other = [&FILES[..], &[KMS, "--encryption-key-id", &other]].concat();
    workspace.succeed_json(&arguments(&["create", "identities", "azure"], &other));
    let roles = workspace.resource_ids();
    assert!(roles.contains(&assigned[0]), "{roles:?}");
    assert!(roles.iter().any(|id| id.contains("/keys/other/")), "{roles:?}");
    // Without the flag, the identity and its role stay.
    workspace.succeed_json(&arguments(&["create", "identities", "azure"], &FILES));
    assert!(workspace.resource_ids().contains(&assigned[0]));

    let rotate = arguments(&["rotate", "identity", "azure"], &["--component", "kms", "--no-wait"]);
    let rotated = workspace.succeed_json(&rotate);
    assert_eq!(changes(&rotated).len(), 1, "{rotated}");
    let refresh = arguments(&["refresh", "identities", "azure"], &["--overlap", "0s"]);
    let refreshed = workspace.succeed_json(&refresh);
    assert_eq!(changes(&refreshed), [0, 0, 0, 0, 0, 0, 0, 0, 1], "{refreshed}");
    let components = Components::new(&workspace);
    block_on(async {
        let document = components.document("kms-dev-json").await;
        components.request_token(&document).await.unwrap();
    });
}

#[test]
fn environment_without_the_kms_identity_is_refreshed() {
    let workspace = workspace_with_identities();
    let refreshed = workspace.succeed_json(&arguments(&["refresh", "identities", "azure"], &[]));
    assert_eq!(changes(&refreshed), [0; 8], "{refreshed}");
}

#[test]
fn nothing_is_written_if_the_identities_of_the_nodes_cannot_be_created() {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    workspace.resource_request(
        reqwest::Method::PUT,
        "/resourceGroups/os4-common/providers/Microsoft.Authorization/locks/frozen?api-version=2016-09-01",
        Some(serde_json::json!({ "properties": { "level": "ReadOnly" } })),
    );
    let position = workspace.request_count();
    let (code, error) = workspace.run(&arguments(&["create", "identities", "azure"], &FILES));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("locks/frozen"), "{error}");
    assert_eq!(workspace.writes_since(position), Vec::<String>::new());
}

#[test]
fn key_that_cannot_be_used_is_named_before_the_first_write() {
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    let position = workspace.request_count();
    for (key, expected) in [
        ("https://dev-credentials.vault.azure.net/secrets/k", "the path is not /keys/NAME/VERSION"),
        ("https://dev-credentials.managedhsm.azure.net/keys/k/1", "is a key of a managed HSM"),
        ("https://nowhere.vault.azure.net/keys/k", "the subscription has no vault `nowhere`"),
        ("https://dev-credentials.vault.azure.net/keys/k/1", "has no version `1`"),
    ] {
        let create =
            arguments(&["create", "identities", "azure"], &[KMS, "--encryption-key-id", key]);
        let (code, error) = workspace.run(&create);
        assert_ne!(code, Some(0), "{key}");
        assert!(error.contains(expected), "{key}: {error}");
    }
    assert_eq!(workspace.writes_since(position), Vec::<String>::new());
}

#[test]
fn no_token_fails_while_a_certificate_rotates() {
    let workspace = workspace_with_identities();
    let rotated = AtomicBool::new(false);
    let secret = "cpo-dev-json";
    let read_interval = Duration::from_millis(700);
    let (requests, versions) = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let components = Components::new(&workspace);
            block_on(async {
                let clock = SystemClock::shared();
                let (mut requests, mut versions) = (0, Vec::new());
                while !rotated.load(Ordering::SeqCst) {
                    // A component reads its file at an interval, and signs in with what it read last.
                    let document = components.document(secret).await;
                    let not_before = document["not_before"].clone();
                    if versions.last() != Some(&not_before) {
                        versions.push(not_before);
                    }
                    let read = clock.monotonic();
                    while clock.monotonic().saturating_sub(read) < read_interval {
                        components.request_token(&document).await.unwrap();
                        requests += 1;
                    }
                }
                (requests, versions.len())
            })
        });
        let component = ["--component", "controlPlaneOperator", "--overlap", "2s"];
        for _ in 0..2 {
            let rotate = arguments(&["rotate", "identity", "azure"], &component);
            workspace.succeed_json(&rotate);
        }
        rotated.store(true, Ordering::SeqCst);
        load.join().unwrap()
    });
    assert!(requests > 50 && versions >= 2, "{requests} requests, {versions} versions");
    let components = Components::new(&workspace);
    block_on(async {
        let document = components.document(secret).await;
        components.request_token(&document).await.unwrap();
        let client_id = document["client_id"].as_str().unwrap();
        assert_eq!(components.accepted_certificates(client_id).await, 1);
    });
}

#[test]
fn rotation_killed_at_every_request_leaves_a_credential_that_works() {
    let workspace = workspace_with_identities();
    let components = Components::new(&workspace);
    let rotate = ["--component", "disk", "--no-wait"];
    let rotate = arguments(&["rotate", "identity", "azure"], &rotate);
    let mut kills = 0;
    for service in ["graph", "key-vault"] {
        for position in [KillPosition::BeforeRequest, KillPosition::AfterRequest] {
            for request in 0.. {
                let killed = workspace.kill_at(&rotate, service, request, position);
                block_on(async {
                    let document = components.document("azure-disk-dev-json").await;
                    let proof = components.request_token(&document).await;
                    proof.unwrap_or_else(|error| {
                        panic!("{service} {request} {position:?}: {error}")
                    });
                });
                if !killed {
                    break;
                }
                kills += 1;
            }
        }
    }
    assert!(kills >= 20, "{kills}");
    workspace.succeed_json(&arguments(&["refresh", "identities", "azure"], &[]));
    workspace.succeed_json(&arguments(&["refresh", "identities", "azure"], &["--overlap", "0s"]));
    block_on(async {
        let document = components.document("azure-disk-dev-json").await;
        components.request_token(&document).await.unwrap();
        let client_id = document["client_id"].as_str().unwrap();
        assert_eq!(components.accepted_certificates(client_id).await, 1);
    });
}

#[test]
fn one_command_at_a_time_changes_the_identities_of_an_environment() {
    let workspace = workspace_with_identities();
    let rotate = ["--component", "disk", "--no-wait"];
    let rotate = arguments(&["rotate", "identity", "azure"], &rotate);
    workspace.while_held_at(&rotate, ("graph", 1), |_| {
        let position = workspace.request_count();
        let others = ["refresh", "create", "destroy"];
        let others = others.map(|command| arguments(&[command, "identities", "azure"], &[]));
        for command in others.iter().chain([&rotate]) {
            let (code, error) = workspace.run(command);
            assert_eq!(code, Some(3), "{command:?}: {error}");
            assert!(error.contains("another command uses the journal"), "{command:?}: {error}");
        }
        assert_eq!(workspace.writes_since(position), Vec::<String>::new());
    });
    workspace.succeed_json(&rotate);
}

/// `check azure` for the commands that write into a vault and remove what they wrote.
fn check_of_identities<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let check = ["check", "azure", "--command", "create identities azure"];
    let removal = ["--command", "destroy identities azure --purge"];
    [&check[..], &removal, more].concat()
}

#[test]
fn data_actions_of_the_check_are_sufficient() {
    const VAULT_PATH: &str =
        "/resourceGroups/os4-common/providers/Microsoft.KeyVault/vaults/dev-credentials";
    let workspace = InfraWorkspace::start();
    workspace.succeed_json(&["create", "keyvault", "azure", "--name", "dev-credentials"]);
    let assignment = |name: &str| {
        format!(
            "{VAULT_PATH}/providers/Microsoft.Authorization/roleAssignments/{name}?api-version=2022-04-01"
        )
    };
    // The administrator of the vault becomes an identity without data actions.
    let ids = workspace.resource_ids();
    let role = ids.iter().find(|id| id.contains("/vaults/dev-credentials/providers/")).unwrap();
    let role = assignment(role.rsplit('/').next().unwrap());
    workspace.resource_request(reqwest::Method::DELETE, &role, None);
    let report = workspace.succeed_json(&check_of_identities(&[]));
    let commands = report["commands"].as_array().unwrap().iter();
    let actions: BTreeSet<_> = commands
        .flat_map(|command| command["uncheckedDataActions"].as_array().unwrap())
        .map(|action| action.as_str().unwrap())
        .collect();
    let subscription = format!("/subscriptions/{}", workspace.variable("AZURE_SUBSCRIPTION_ID"));
    let vault = format!("{subscription}{VAULT_PATH}");
    let check = check_of_identities(&["--key-vault-id", &vault]);
    assert_eq!(workspace.run(&check).0, Some(1));

    let definition =
        format!("/providers/Microsoft.Authorization/roleDefinitions/{}", uuid::Uuid::from_u128(8));
    let body = serde_json::json!({ "properties": {
        "roleName": "Environment credentials",
        "type": "CustomRole",
        "assignableScopes": [subscription],
        "permissions": [{ "actions": [], "dataActions": actions }],
    } });
    let path = format!("{definition}?api-version=2022-04-01");
    workspace.resource_request(reqwest::Method::PUT, &path, Some(body));
    let body = serde_json::json!({ "properties": {
        "roleDefinitionId": format!("{subscription}{definition}"),
        "principalId": report["objectId"],
        "principalType": "ServicePrincipal",
    } });
    let role = assignment(&uuid::Uuid::from_u128(9).to_string());
    workspace.resource_request(reqwest::Method::PUT, &role, Some(body));
    workspace.succeed_json(&check);
    let timeout = ["--timeout", "10s"];
    let create = arguments(&["create", "identities", "azure"], &timeout);
    let destroy = arguments(&["destroy", "identities", "azure"], &timeout);
    workspace.succeed_json(&create);
    workspace.succeed_json(&destroy);
    // Deleted objects of the vault are restored.
    workspace.succeed_json(&create);
    let rotate = ["--component", "disk", "--no-wait", "--timeout", "10s"];
    workspace.succeed_json(&arguments(&["rotate", "identity", "azure"], &rotate));
    workspace.succeed_json(&arguments(&["refresh", "identities", "azure"], &timeout));
    let purge = ["--purge", "--timeout", "10s"];
    workspace.succeed_json(&arguments(&["destroy", "identities", "azure"], &purge));
}
