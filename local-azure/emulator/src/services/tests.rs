mod custom_cloud;
mod directory_replication;
mod fault_replies;
mod reply_changes;
mod server;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use lanyard_emulator_arm::namespaces::find_namespace;
use lanyard_emulator_arm::resource_types::implemented_types;
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_core::operations::OperationLookup;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::{RequestScheme, ServiceRequest};
use lanyard_emulator_state::settings::EmulatorSettings;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::seeded_state::{issue_access_token_for, seeded_nine_identities};
use crate::testing::{EngineFixture, azure_with_test_principals};

/// A host of each service, and one of each further cloud.
const HOSTS: [&str; 15] = [
    "login.microsoftonline.com",
    "management.azure.com",
    "kv.vault.azure.net",
    "graph.microsoft.com",
    "account.blob.core.windows.net",
    "account.z6.web.core.windows.net",
    "account.dfs.core.windows.net",
    "account.queue.core.windows.net",
    "account.table.core.windows.net",
    "account.file.core.windows.net",
    "control-eastus.identity.azure.net",
    "eastus.oic.prod-aks.azure.com",
    "management.usgovcloudapi.net",
    "kv.vault.azure.cn",
    "login.microsoftonline.us",
];

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec![
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::POST,
        Method::PATCH,
        Method::DELETE,
    ])
}

/// Paths near those of the operations: the path of an operation with other words for its parameters, and
/// further segments.
fn path_at_host(host: &'static str) -> impl Strategy<Value = String> {
    let service = AzureClouds::new(None, 443).endpoint_of_host(host).unwrap().service;
    let known: Vec<&str> = services().routes(service).rows().map(|row| row.path).collect();
    let known = if known.is_empty() { vec!["/"] } else { known };
    let word = "[a-z]{1,8}";
    (prop::sample::select(known), prop::collection::vec(word, 4), prop::collection::vec(word, 0..3))
        .prop_map(|(template, values, further)| {
            let mut values = values.into_iter().cycle();
            let segments = template.split('/').skip(1).map(|segment| {
                if segment.starts_with('{') { values.next().unwrap() } else { segment.to_owned() }
            });
            segments.chain(further).fold(String::new(), |path, segment| path + "/" + &segment)
        })
}

fn request_at_any_host() -> impl Strategy<Value = (&'static str, Method, String)> {
    prop::sample::select(HOSTS.to_vec())
        .prop_flat_map(|host| (Just(host), method(), path_at_host(host)))
}

/// The operations that answer without credentials.
const PUBLIC_OPERATIONS: &[&str] = &[
    "DeviceAuth_Get",
    "DevicePage_Get",
    "Instance_Discover",
    "Keys_List",
    "KeysV1_List",
    "Logout_Get",
    "Metadata_Endpoints",
    "OpenIdConfiguration_Get",
    "OpenIdConfigurationV1_Get",
    "UserRealm_Get",
];

#[test]
fn the_hosts_cover_every_service_with_a_host() {
    let clouds = AzureClouds::new(None, 443);
    for service in AzureService::ALL {
        let has_host = !matches!(
            service,
            AzureService::Control | AzureService::AppService | AzureService::Imds
        );
        let is_covered = HOSTS.iter().any(|host| {
            clouds.endpoint_of_host(host).is_some_and(|endpoint| endpoint.service == service)
        });
        assert_eq!(is_covered, has_host, "{service:?}");
    }
}

proptest! {
    #[test]
    fn a_request_without_an_operation_returns_501_and_names_itself(
        (host, method, path) in request_at_any_host()
    ) {
        let fixture = EngineFixture::new(azure_with_test_principals());
        let reply =
            fixture.send_request(Ingress::Tunnel, &method, &format!("https://{host}{path}"), &[], "");
        let request_log = fixture.engine.request_log();
        let entry = request_log.entries_after(0).next().unwrap();
        prop_assert_eq!(entry.missing, entry.operation.is_none());
        if entry.missing {
            prop_assert_eq!(reply.status, StatusCode::NOT_IMPLEMENTED);
            prop_assert_eq!(entry.rejection.as_deref(), Some("operation not implemented"));
            let text = String::from_utf8_lossy(&reply.body);
            let path = fixture.engine.clouds.request_path(host, &path);
            let names_operation = text.contains(&format!("`{method} {path}`"))
                || text.contains(&format!("<Operation>{method}"));
            prop_assert!(names_operation, "{}", text);
        } else {
            // No test principal signs in, so nothing but public documents and pages may succeed.
            let is_public = entry.operation.is_some_and(|id| PUBLIC_OPERATIONS.contains(&id));
            prop_assert!(is_public || !reply.status.is_success(), "{method} {path}: {reply:?}");
        }
    }
}

fn request(method: Method, url: &str) -> ServiceRequest {
    let url = url::Url::parse(&format!("https://host.test{url}")).unwrap();
    ServiceRequest {
        method,
        scheme: RequestScheme::Https,
        host: "host.test".to_owned(),
        port: 443,
        client_ip: None,
        path: url.path().to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

#[test]
fn every_service_has_unique_ids_and_reachable_paths() {
    for service in AzureService::ALL {
        let rows: Vec<_> = services().routes(service).rows().collect();
        for (at, row) in rows.iter().enumerate() {
            let before = &rows[..at];
            assert!(before.iter().all(|other| other.id != row.id), "{service:?}: {}", row.id);
            assert!(
                !before.iter().any(|other| other.method == row.method && other.path == row.path),
                "{service:?}: {} is hidden",
                row.id
            );
            assert!(row.path.starts_with('/'), "{}", row.id);
        }
    }
}

#[test]
fn hint_for_an_unknown_operation_is_of_the_same_provider_and_never_another_write() {
    let nearest = |method: Method, path: &str| {
        let request = request(method, path);
        let segments: Vec<_> = request.segments().collect();
        match services().routes(AzureService::Arm).find(&request, &segments) {
            OperationLookup::Found(row, _) => panic!("{} exists", row.id),
            OperationLookup::NotFound(nearest) => nearest.map(|row| (row.method.clone(), row.path)),
        }
    };
    let vault = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/v";
    let (method, near) = nearest(Method::POST, &format!("{vault}/nothing")).unwrap();
    assert!(method == Method::GET || method == Method::POST, "{near}");
    assert!(near.contains("/Microsoft.KeyVault/vaults/"), "{near}");
    assert_eq!(nearest(Method::POST, "/subscriptions/s/providers/Contoso.Unknown/x/y/z"), None);
    for method in [Method::GET, Method::PATCH] {
        let path = "/subscriptions/s/providers/Microsoft.KeyVault/nothing/at/all/here";
        let found = nearest(method.clone(), path);
        assert!(found.is_none_or(|(near, _)| near == method || near == Method::GET));
    }
}

#[test]
fn every_type_with_operations_belongs_to_a_listed_namespace() {
    let types = implemented_types(services());
    assert!(types["Microsoft.Network"].contains("virtualNetworks/subnets"));
    assert!(types["Microsoft.KeyVault"].contains("vaults"));
    for row in services().routes(AzureService::Arm).rows() {
        let Some((_, provider)) = row.path.rsplit_once("/providers/") else { continue };
        let namespace = provider.split('/').next().unwrap_or_default();
        let open = namespace.starts_with('{');
        assert!(open || find_namespace(namespace).is_some(), "{}", row.id);
    }
}

#[test]
fn unknown_names_in_settings_are_rejected() {
    let check = |json: serde_json::Value| {
        let changed = EmulatorSettings::default().with_change(&json).unwrap();
        services().check_settings(changed).unwrap_err().to_string()
    };
    let quota = json!({ "resourceManager": { "quotas": [{ "name": "Cores", "limit": 1 }] } });
    assert!(check(quota).starts_with("`resourceManager.quotas`"));
    let namespace = json!({ "resourceManager": { "unregisteredNamespaces": ["X.Y"] } });
    assert!(check(namespace).starts_with("`resourceManager.unregisteredNamespaces`"));
}

#[test]
fn large_bodies_are_admitted_only_from_authenticated_callers() {
    let (azure, _) = seeded_nine_identities();
    let client = azure.registry.test_clients.as_ref().unwrap().secret_client;
    let probe = EngineFixture::new(azure);
    let control = "http://127.0.0.1/lanyard/v1";
    let admit = |ingress, method: &Method, url: &str, header: (&str, &str)| {
        probe.admit_large_body(ingress, method, url, &[header])
    };
    let group = "https://management.azure.com/subscriptions/sub/resourceGroups/g";
    for (method, url, audience) in [
        (Method::PUT, format!("{group}?api-version=2021-04-01"), "https://management.azure.com/"),
        (
            Method::PUT,
            "https://platform-kv.vault.azure.net/secrets/s".to_owned(),
            "https://vault.azure.net",
        ),
        (
            Method::POST,
            "https://graph.microsoft.com/v1.0/applications".to_owned(),
            "https://graph.microsoft.com",
        ),
    ] {
        let without_token = admit(Ingress::Tunnel, &method, &url, ("accept", "*/*"));
        assert_eq!(without_token, Err(401), "{url}");
        let bearer = format!("Bearer {}", issue_access_token_for(&probe, client, audience));
        let with_token = admit(Ingress::Tunnel, &method, &url, ("authorization", &bearer));
        assert_eq!(with_token, Ok(4 << 20), "{url}");
    }
    for (path, header, expected) in [
        ("snapshot", ("x-lanyard-control", "1"), Ok(1 << 30)),
        ("snapshot", ("x-lanyard-control", "0"), Err(403)),
        ("issuers", ("x-lanyard-control", "1"), Ok(4 << 20)),
        ("none", ("x-lanyard-control", "1"), Err(501)),
    ] {
        let url = format!("{control}/{path}");
        assert_eq!(admit(Ingress::Port, &Method::PUT, &url, header), expected, "{path}");
        let remote = admit(Ingress::RemotePort, &Method::PUT, &url, header);
        assert_eq!(remote, Err(403), "{path}");
    }
    let token = "https://login.microsoftonline.com/common/oauth2/v2.0/token";
    let post = probe.admit_large_body(Ingress::Tunnel, &Method::POST, token, &[]);
    assert_eq!(post, Ok(64 << 10), "a token request is never large");
    let entry = probe.engine.request_log().entries_after(0).next().cloned().unwrap();
    assert_eq!((entry.operation, entry.status), (Some("ResourceGroups_CreateOrUpdate"), 401));
}

#[test]
fn control_api_is_limited_to_this_machine_and_loopback_names() {
    let probe = EngineFixture::new(azure_with_test_principals());
    let header = [("x-lanyard-control", "1")];
    let ask = |ingress, path: &str| {
        let url = format!("http://10.0.0.1/{path}");
        probe.send_request(ingress, &Method::GET, &url, &header, "").status.as_u16()
    };
    let token = "metadata/identity/oauth2/token";
    let cases = [
        (Ingress::Port, "lanyard/v1/state", 200),
        (Ingress::RemotePort, "lanyard/v1/state", 403),
        (Ingress::RemotePort, "lanyard//v1/test-clients", 403),
        (Ingress::RemotePort, "%6canyard/v1/state", 404),
        (Ingress::RemotePort, "lanyard/v1/ca.pem", 200),
        (Ingress::RemotePort, token, 400),
        (Ingress::ForeignHostName, "lanyard/v1/ca.pem", 403),
        (Ingress::ForeignHostName, token, 403),
        (Ingress::Port, "", 200),
        (Ingress::RemotePort, "", 403),
        (Ingress::Port, "keys", 404),
        (Ingress::Port, "nodes/a/metadata/identity/oauth2/token", 400),
        (Ingress::Port, "nodes/a/lanyard/v1/state", 404),
        (Ingress::Port, "nodes/lanyard/v1/state", 404),
        (Ingress::MisdirectedTunnel, "", 421),
    ];
    for (ingress, path, expected) in cases {
        assert_eq!(ask(ingress, path), expected, "{ingress:?} {path}");
    }
    // Reads of the control API are not recorded.
    assert_eq!(probe.engine.request_log().entries_after(0).count(), cases.len() - 3);
}
