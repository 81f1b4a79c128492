mod custom_cloud;

use http::{Method, StatusCode};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::azure_clouds::AzureClouds;
use proptest::prelude::*;

use super::*;
use crate::testing::{EngineFixture, azure_with_test_principals};

/// A host of each service, and one of each further cloud.
const HOSTS: [&str; 14] = [
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
    let known: Vec<&str> =
        operations_of_service(service).iter().copied().flatten().map(|row| row.path).collect();
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
    "LogoutV1_Get",
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
