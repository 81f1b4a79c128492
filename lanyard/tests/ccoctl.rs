//! Runs the commands of ccoctl as processes against a served local Azure.

#![cfg(all(feature = "cli", feature = "emulator"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

#[path = "azure/azure_serve_process.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod azure_serve_process;
#[path = "infra_commands/infra_workspace.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod infra_workspace;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use infra_workspace::InfraWorkspace;
use reqwest::Method;
use serde_json::{Value, json};

const ISSUER: &str = "https://harbourcc.blob.core.windows.net/harbourcc";
const INGRESS: &str = "harbourcc-openshift-ingress-operator-cloud-credentials";
const DISK: &str = "harbourcc-openshift-cluster-csi-drivers-azure-disk-credentials";
const REQUESTS: &str = include_str!("ccoctl/requests.yaml");
const IDENTITIES: &str =
    "/resourceGroups/harbourcc-oidc/providers/Microsoft.ManagedIdentity/userAssignedIdentities";
const ROLE_DEFINITIONS: &str = "/providers/Microsoft.Authorization/roleDefinitions";
const ROLE_API: &str = "api-version=2022-04-01";

/// A workspace with CredentialsRequests.
fn start() -> InfraWorkspace {
    let workspace = InfraWorkspace::start();
    let requests = workspace.files().join("requests");
    std::fs::create_dir(&requests).unwrap();
    let (first, rest) = REQUESTS.split_once("---\n").unwrap();
    std::fs::write(requests.join("ingress.yaml"), first).unwrap();
    std::fs::write(requests.join("others.yaml"), rest).unwrap();
    std::fs::write(requests.join("README.md"), "not a CredentialsRequest").unwrap();
    workspace
}

/// The arguments of a command with the flags that name the owner.
fn arguments(workspace: &InfraWorkspace, arguments: &[&str]) -> Vec<String> {
    let subscription = workspace.variable("AZURE_SUBSCRIPTION_ID");
    let owner =
        ["--name", "harbourcc", "--region", "eastus", "--subscription-id", subscription.as_str()];
    let all = ["ccoctl", "azure"].iter().chain(arguments).chain(&owner);
    all.map(|text| (*text).to_owned()).collect()
}

fn create_all(workspace: &InfraWorkspace, further: &[&str]) -> Vec<String> {
    let tenant = workspace.variable("AZURE_TENANT_ID");
    let flags = [
        "create-all",
        "--tenant-id",
        &tenant,
        "--credentials-requests-dir",
        "requests",
        "--dnszone-resource-group-name",
        "lanyard-dns",
        "--output-dir",
        "out",
        "--user-tags",
        "team=platform,cost=7",
    ];
    arguments(workspace, &[&flags[..], further].concat())
}

/// The files of a directory with their modes and contents.
fn files(directory: &Path) -> BTreeMap<String, (u32, String)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(next) = waiting.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
                continue;
            }
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            let name = path.strip_prefix(directory).unwrap().display().to_string();
            found.insert(name, (mode, std::fs::read_to_string(&path).unwrap()));
        }
    }
    found
}

fn identity(workspace: &InfraWorkspace, name: &str) -> Value {
    let path = format!("{IDENTITIES}/{name}?api-version=2024-11-30");
    workspace.resource_request(Method::GET, &path, None)
}

fn custom_roles(workspace: &InfraWorkspace) -> Vec<Value> {
    let path = format!("{ROLE_DEFINITIONS}?{ROLE_API}&$filter=type%20eq%20'CustomRole'");
    let listed = workspace.resource_request(Method::GET, &path, None);
    listed["value"].as_array().unwrap().clone()
}

/// The number of the newest entry of the request log.
fn log_position(workspace: &InfraWorkspace) -> u64 {
    let log = workspace.control(Method::GET, "request-log", None);
    let entries = log["value"].as_array().unwrap();
    entries.last().map_or(0, |entry| entry["sequence"].as_u64().unwrap())
}

/// The requests to Azure after an entry of the log that change something, without those for tokens.
fn writes_since(workspace: &InfraWorkspace, position: u64) -> Vec<String> {
    let log = workspace.control(Method::GET, &format!("request-log?since={position}"), None);
    let entries = log["value"].as_array().unwrap().iter();
    let writes = entries.filter(|it| {
        it["method"] != "GET" && it["service"] != "entra" && it["service"] != "control"
    });
    writes.map(|it| format!("{} {}", it["method"], it["path"])).collect()
}

fn expected_secret(
    workspace: &InfraWorkspace,
    identity: Option<&Value>,
    (namespace, name): (&str, &str),
    token_file: &str,
) -> String {
    let id = |field: &str| {
        let value = identity.and_then(|it| it["properties"][field].as_str());
        value.unwrap_or_default().to_owned()
    };
    let (client, tenant) = (id("clientId"), id("tenantId"));
    let subscription = workspace.variable("AZURE_SUBSCRIPTION_ID");
    let mut lines = vec![
        "apiVersion: v1".to_owned(),
        "stringData:".to_owned(),
        format!("  azure_client_id: {client}"),
        format!("  azure_tenant_id: {tenant}"),
        "  azure_region: eastus".to_owned(),
        format!("  azure_subscription_id: {subscription}"),
        format!("  azure_federated_token_file: {token_file}"),
        "kind: Secret".to_owned(),
        "metadata:".to_owned(),
        format!("  name: {name}"),
        format!("  namespace: {namespace}"),
        "type: Opaque".to_owned(),
    ];
    if identity.is_none() {
        lines.push("FILL IN azure_client_id AND azure_tenant_id, THEN DELETE THIS LINE".to_owned());
    }
    lines.join("\n")
}

fn expected_secrets(
    workspace: &InfraWorkspace,
    ids: Option<[&Value; 2]>,
) -> Vec<(&'static str, String)> {
    let [ingress, disk] = ids.map_or([None, None], |ids| ids.map(Some));
    vec![
        (
            "manifests/openshift-ingress-operator-cloud-credentials-credentials.yaml",
            expected_secret(
                workspace,
                ingress,
                ("openshift-ingress-operator", "cloud-credentials"),
                "/var/run/secrets/openshift/serviceaccount/token",
            ),
        ),
        (
            "manifests/openshift-cluster-csi-drivers-azure-disk-credentials-credentials.yaml",
            expected_secret(
                workspace,
                disk,
                ("openshift-cluster-csi-drivers", "azure-disk-credentials"),
                "/var/run/secrets/disk/token",
            ),
        ),
    ]
}

/// The documents and manifests of the issuer; the key set contains the key of `jwks`.
fn expected_issuer_files(
    workspace: &InfraWorkspace,
    jwks: &str,
) -> Vec<(&'static str, u32, String)> {
    let key = &serde_json::from_str::<Value>(jwks).unwrap()["keys"][0];
    let (id, modulus) = (key["kid"].as_str().unwrap(), key["n"].as_str().unwrap());
    let tenant = workspace.variable("AZURE_TENANT_ID");
    vec![
        (
            "openid-configuration",
            0o644,
            format!(
                "{{\n    \"issuer\": \"{ISSUER}\",\n    \"jwks_uri\": \"{ISSUER}/openid/v1/jwks\",\n    \
                 \"response_types_supported\": [\n        \"id_token\"\n    ],\n    \
                 \"subject_types_supported\": [\n        \"public\"\n    ],\n    \
                 \"id_token_signing_alg_values_supported\": [\n        \"RS256\"\n    ]\n}}"
            ),
        ),
        (
            "jwks",
            0o644,
            format!(
                "{{\n    \"keys\": [\n        {{\n            \"use\": \"sig\",\n            \"kty\": \"RSA\",\n            \
                 \"kid\": \"{id}\",\n            \"alg\": \"RS256\",\n            \"n\": \"{modulus}\",\n            \
                 \"e\": \"AQAB\"\n        }}\n    ]\n}}"
            ),
        ),
        (
            "manifests/cluster-authentication-02-config.yaml",
            0o600,
            format!(
                "apiVersion: config.openshift.io/v1\nkind: Authentication\nmetadata:\n  name: cluster\nspec:\n  \
                 serviceAccountIssuer: {ISSUER}"
            ),
        ),
        (
            "manifests/azure-ad-pod-identity-webhook-config.yaml",
            0o600,
            format!(
                "apiVersion: v1\nstringData:\n  azure_tenant_id: {tenant}\nkind: Secret\nmetadata:\n  \
                 name: azure-credentials\n  namespace: openshift-cloud-credential-operator\ntype: Opaque"
            ),
        ),
    ]
}

/// All files of `create-all`. Those with the key are as written, because the key is random.
fn expected_files(
    workspace: &InfraWorkspace,
    written: &BTreeMap<String, (u32, String)>,
    ids: [&Value; 2],
) -> BTreeMap<String, (u32, String)> {
    let mut expected: BTreeMap<String, (u32, String)> = BTreeMap::new();
    for (name, mode, text) in expected_issuer_files(workspace, &written["jwks"].1) {
        expected.insert(name.to_owned(), (mode, text));
    }
    for (name, text) in expected_secrets(workspace, Some(ids)) {
        expected.insert(name.to_owned(), (0o600, text));
    }
    for (name, mode, label) in [
        ("serviceaccount-signer.private", 0o600, "RSA PRIVATE KEY"),
        ("serviceaccount-signer.public", 0o644, "PUBLIC KEY"),
        ("tls/bound-service-account-signing-key.key", 0o600, "RSA PRIVATE KEY"),
    ] {
        let (found_mode, text) = &written[name];
        assert_eq!(*found_mode, mode, "{name}");
        assert!(text.starts_with(&format!("-----BEGIN {label}-----\n")), "{name}");
        expected.insert(name.to_owned(), (mode, text.clone()));
    }
    expected
}

/// Checks the tags, the federated credentials and the custom role.
fn assert_resources(workspace: &InfraWorkspace, ingress: &Value) {
    let tags = json!({
        "openshift.io_cloud-credential-operator_harbourcc": "owned",
        "team": "platform", "cost": "7",
    });
    for (name, value) in tags.as_object().unwrap() {
        assert_eq!(ingress["tags"][name], *value, "{ingress}");
    }
    let credentials = workspace.resource_request(
        Method::GET,
        &format!("{IDENTITIES}/{DISK}/federatedIdentityCredentials?api-version=2024-11-30"),
        None,
    );
    let mut found: Vec<_> = credentials["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["name"].as_str().unwrap(), it["properties"].clone()))
        .collect();
    found.sort_unstable_by_key(|(name, _)| *name);
    let credential = |name: &str| {
        json!({
            "issuer": ISSUER,
            "subject": format!("system:serviceaccount:openshift-cluster-csi-drivers:{name}"),
            "audiences": ["openshift"],
        })
    };
    let names = ["azure-disk-csi-driver-controller-sa", "azure-disk-csi-driver-operator"];
    assert_eq!(found, names.map(|name| (name, credential(name))));
    let roles = custom_roles(workspace);
    assert_eq!(roles.len(), 1, "{roles:?}");
    let role = &roles[0]["properties"];
    assert_eq!(role["roleName"], DISK);
    assert_eq!(role["description"], "Custom role for OpenShift. Owned by: harbourcc");
    assert_eq!(role["permissions"][0]["actions"].as_array().unwrap().len(), 2, "{role}");
}

#[test]
fn created_identities_have_the_files_of_ccoctl_and_delete_removes_them() {
    let workspace = start();
    let before = workspace.resource_ids();
    let summary = workspace.succeed_json(&create_all(&workspace, &[]));
    assert_eq!(summary["issuer"]["succeeded"], true, "{summary}");
    assert_eq!(summary["identities"]["succeeded"], true, "{summary}");

    let written = files(&workspace.files().join("out"));
    let (ingress, disk) = (identity(&workspace, INGRESS), identity(&workspace, DISK));
    assert_eq!(written, expected_files(&workspace, &written, [&ingress, &disk]));
    assert_eq!(
        written["serviceaccount-signer.private"].1,
        written["tls/bound-service-account-signing-key.key"].1
    );
    for (path, file) in
        [(".well-known/openid-configuration", "openid-configuration"), ("openid/v1/jwks", "jwks")]
    {
        assert_eq!(workspace.read_anonymously(&format!("{ISSUER}/{path}")), written[file].1);
    }

    assert_resources(&workspace, &ingress);

    let position = log_position(&workspace);
    let summary = workspace.succeed_json(&create_all(&workspace, &[]));
    assert_eq!(writes_since(&workspace, position), Vec::<String>::new(), "{summary}");
    assert_eq!(files(&workspace.files().join("out")), written);

    let complete = workspace.resource_ids();
    let delete = arguments(&workspace, &["delete", "--delete-oidc-resource-group"]);
    let plan = workspace.succeed_json(&[&delete[..], &["--dry-run".to_owned()]].concat());
    assert!(plan["resources"].as_array().unwrap().len() > 5, "{plan}");
    assert_eq!(workspace.resource_ids(), complete);
    // The resources are found by tag and description, so the journal is not needed.
    workspace.forget_journal();
    workspace.succeed_json(&delete);
    let mut expected = before;
    let installation = complete.iter().find(|id| id.ends_with("/resourcegroups/harbourcc"));
    expected.insert(installation.unwrap().clone());
    assert_eq!(workspace.resource_ids(), expected);
    assert_eq!(custom_roles(&workspace), Vec::<Value>::new());
}

#[test]
fn delete_without_the_group_removes_the_storage_account_and_the_identities() {
    let workspace = start();
    workspace.succeed_json(&create_all(&workspace, &[]));
    workspace.succeed_json(&arguments(&workspace, &["delete"]));
    let left: Vec<_> = workspace
        .resource_ids()
        .into_iter()
        .filter(|id| id.contains("harbourcc"))
        .map(|id| id.rsplit('/').next().unwrap().to_owned())
        .collect();
    assert_eq!(left, ["harbourcc", "harbourcc-oidc"]);
    let summary = workspace.succeed_json(&create_all(&workspace, &[]));
    assert_eq!(summary["identities"]["succeeded"], true, "{summary}");
}

#[test]
fn identities_of_the_same_name_in_another_group_stay() {
    let workspace = start();
    workspace.succeed_json(&create_all(&workspace, &[]));
    let delete = ["delete", "--oidc-resource-group-name", "elsewhere"];
    let before = workspace.resource_ids();
    let (code, error) = workspace.run(&arguments(&workspace, &delete));
    assert_eq!(code, Some(0), "{error}");
    let is_identity = |id: &&String| id.contains("/userassignedidentities/");
    let identities =
        |ids: &std::collections::BTreeSet<String>| ids.iter().filter(is_identity).count();
    assert_eq!(identities(&workspace.resource_ids()), identities(&before));
}

#[test]
fn group_without_the_tag_is_not_removed() {
    let workspace = start();
    let group = "/resourceGroups/harbourcc-oidc?api-version=2021-04-01";
    let body = Some(json!({ "location": "eastus" }));
    workspace.resource_request(Method::PUT, group, body);
    let delete = arguments(&workspace, &["delete", "--delete-oidc-resource-group"]);
    let (code, error) = workspace.run(&delete);
    assert_eq!(code, Some(3), "{error}");
    assert!(error.contains("openshift.io_cloud-credential-operator_harbourcc"), "{error}");
}

#[test]
fn dry_run_writes_the_files_and_sends_no_request() {
    let workspace = start();
    let out = workspace.files().join("out");
    let (code, error) =
        workspace.run(&["ccoctl", "azure", "create-key-pair", "--output-dir", "out"]);
    assert_eq!(code, Some(0), "{error}");
    let key_files = files(&out);
    assert_eq!(key_files.len(), 3);
    let tenant = workspace.variable("AZURE_TENANT_ID");
    let position = log_position(&workspace);
    let issuer =
        ["create-oidc-issuer", "--tenant-id", &tenant, "--output-dir", "out", "--dry-run=true"];
    let (code, error) = workspace.run(&arguments(&workspace, &issuer));
    assert_eq!(code, Some(0), "{error}");
    let identities = [
        "create-managed-identities",
        "--issuer-url",
        ISSUER,
        "--credentials-requests-dir",
        "requests",
        "--output-dir",
        "out",
        "--dry-run",
    ];
    let (code, error) = workspace.run(&arguments(&workspace, &identities));
    assert_eq!(code, Some(0), "{error}");
    let log = workspace.control(Method::GET, &format!("request-log?since={position}"), None);
    assert_eq!(log["value"], json!([]));
    let written = files(&out);
    let mut expected = key_files;
    for (name, mode, text) in expected_issuer_files(&workspace, &written["jwks"].1) {
        expected.insert(name.to_owned(), (mode, text));
    }
    for (name, text) in expected_secrets(&workspace, None) {
        expected.insert(name.to_owned(), (0o600, text));
    }
    assert_eq!(written, expected);
}

#[test]
fn other_role_assignments_of_an_identity_are_removed_unless_they_are_preserved() {
    let workspace = start();
    workspace.succeed_json(&create_all(&workspace, &[]));
    let subscription = workspace.variable("AZURE_SUBSCRIPTION_ID");
    let name = "aaaaaaaa-0000-0000-0000-000000000001";
    let reader = "acdd72a7-3385-48ef-bd42-f606fba81ae7";
    let path = format!("/providers/Microsoft.Authorization/roleAssignments/{name}?{ROLE_API}");
    let body = json!({ "properties": {
        "principalId": workspace.identity_object_id("harbourcc-oidc", INGRESS),
        "principalType": "ServicePrincipal",
        "roleDefinitionId": format!("/subscriptions/{subscription}{ROLE_DEFINITIONS}/{reader}"),
    } });
    workspace.resource_request(Method::PUT, &path, Some(body));
    let has_other = || workspace.resource_ids().iter().any(|id| id.ends_with(name));
    workspace.succeed_json(&create_all(&workspace, &["--preserve-existing-roles"]));
    assert!(has_other());
    let summary = workspace.succeed_json(&create_all(&workspace, &[]));
    assert_eq!(summary["removedRoleAssignments"].as_array().unwrap().len(), 1, "{summary}");
    assert!(!has_other());
}

#[test]
fn identities_of_requests_that_are_not_in_the_directory_stay() {
    let workspace = start();
    workspace.succeed_json(&create_all(&workspace, &["--enable-tech-preview"]));
    let complete = workspace.resource_ids();
    std::fs::remove_file(workspace.files().join("requests/others.yaml")).unwrap();
    workspace.succeed_json(&create_all(&workspace, &[]));
    assert_eq!(workspace.resource_ids(), complete);
}

#[test]
fn invalid_input_is_reported_with_its_flag() {
    let workspace = start();
    let (code, error) = workspace
        .run(&create_all(&workspace, &["--installation-resource-group-name", "Harbourcc-OIDC"]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--installation-resource-group-name"), "{error}");
    let (code, error) = workspace.run(&create_all(&workspace, &["--storage-account-name", "a-b"]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("--storage-account-name"), "{error}");
    let group = "/resourceGroups/harbourcc?api-version=2021-04-01";
    workspace.resource_request(Method::PUT, group, Some(json!({ "location": "westeurope" })));
    let before = log_position(&workspace);
    let create = [
        "create-managed-identities",
        "--issuer-url",
        ISSUER,
        "--credentials-requests-dir",
        "requests",
        "--output-dir",
        "out",
    ];
    let (code, error) = workspace.run(&arguments(&workspace, &create));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("is in `westeurope`, not in `eastus`"), "{error}");
    assert_eq!(writes_since(&workspace, before), Vec::<String>::new());
}

#[test]
fn missing_network_group_is_reported_before_the_issuer_is_created() {
    let workspace = start();
    let before = workspace.resource_ids();
    let position = log_position(&workspace);
    let create = create_all(&workspace, &["--network-resource-group-name", "absent"]);
    let (code, error) = workspace.run(&create);
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("network-group: `/subscriptions/"), "{error}");
    assert!(error.contains("/resourceGroups/absent` does not exist"), "{error}");
    assert_eq!(writes_since(&workspace, position), Vec::<String>::new());
    assert_eq!(workspace.resource_ids(), before);
    // Neither the key pair nor a file is written.
    assert!(!workspace.files().join("out").exists());
}

#[test]
fn program_named_ccoctl_has_the_commands_of_ccoctl() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ccoctl");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_lanyard"), &program).unwrap();
    let out = directory.path().join("out");
    let run = || {
        let mut command = Command::new(&program);
        command.args(["azure", "create-key-pair", "--output-dir"]).arg(&out);
        assert!(command.output().unwrap().status.success());
        files(&out)
    };
    let first = run();
    std::fs::remove_file(out.join("serviceaccount-signer.public")).unwrap();
    assert_eq!(run(), first);
    let help = Command::new(&program).args(["azure", "create-all", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(help.contains("Usage: ccoctl azure create-all"), "{help}");
}
