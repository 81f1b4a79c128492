//! The URLs in the replies of a custom cloud: each has its host and its port.

use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::settings::{EmulatorSettings, SettingsChange};
use serde_json::{Value, json};

use super::*;
use crate::testing::seeded_state::{nine_identity_plan, seeded_nine_identities};
use crate::testing::{reply_json, token_claims};

const LOGIN: &str = "https://login.azure.test:7750";
const ARM: &str = "https://management.azure.test:7750";
const GRAPH: &str = "https://graph.azure.test:7750";
const GROUP: &str = "/subscriptions/sub/resourceGroups/custom";

/// A seeded state, and the requests of an owner of the subscription to a custom cloud.
struct CustomCloudFixture {
    probe: EngineFixture,
    tenant: String,
    client: String,
    secret: String,
}

impl CustomCloudFixture {
    fn new() -> Self {
        let clouds = AzureClouds::new(Some(&"azure.test".parse().unwrap()), 7750);
        let (azure, _) = seeded_nine_identities();
        let clients = azure.registry.test_clients.clone().unwrap();
        Self {
            tenant: clients.tenant.to_string(),
            client: clients.secret_client.to_string(),
            secret: clients.secret.expose().to_owned(),
            probe: EngineFixture::with_clouds(clouds, azure),
        }
    }

    fn token(&self, scope: &str) -> String {
        let form = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &self.client)
            .append_pair("client_secret", &self.secret)
            .append_pair("scope", scope)
            .finish();
        let url = format!("{LOGIN}/{}/oauth2/v2.0/token", self.tenant);
        let reply = self.probe.send_request(Ingress::Tunnel, &Method::POST, &url, &[], &form);
        assert_eq!(reply.status, StatusCode::OK, "{scope}: {}", reply_json(&reply));
        reply_json(&reply)["access_token"].as_str().unwrap().to_owned()
    }

    /// Sends a request with a token for the resource of `scope`.
    fn send(&self, scope: &str, method: &str, url: &str, body: &Value) -> ServiceReply {
        let bearer = format!("Bearer {}", self.token(scope));
        let headers = [("authorization", bearer.as_str()), ("x-ms-version", "2024-11-04")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.probe.send_request(Ingress::Tunnel, &method.parse().unwrap(), url, &headers, &body)
    }

    fn arm(&self, method: &str, path: &str, version: &str, body: &Value) -> ServiceReply {
        let separator = if path.contains('?') { '&' } else { '?' };
        let url = format!("{ARM}{path}{separator}api-version={version}");
        let reply = self.send(&format!("{ARM}/.default"), method, &url, body);
        assert!(reply.status.is_success(), "{method} {path}: {}", reply_json(&reply));
        reply
    }

    fn create_group(&self) {
        self.arm("PUT", GROUP, "2022-09-01", &json!({ "location": "westeurope" }));
    }

    /// Creates a vault, and returns its `vaultUri`.
    fn create_vault(&self) -> String {
        let vault = format!("{GROUP}/providers/Microsoft.KeyVault/vaults/custom-kv");
        let body = json!({ "location": "westeurope", "properties": {
            "tenantId": self.tenant,
            "sku": { "family": "A", "name": "standard" },
            "enableRbacAuthorization": true,
        } });
        let created = reply_json(&self.arm("PUT", &vault, "2023-07-01", &body));
        self.grant(&vault, "00482a5a-887f-4fb3-b363-3b7fe8e74483");
        created["properties"]["vaultUri"].as_str().unwrap().to_owned()
    }

    /// Assigns a role to the owner.
    fn grant(&self, scope: &str, role: &str) {
        let object_id = {
            let state = self.probe.engine.state();
            let client = self.client.parse().unwrap();
            state.azure.directory.service_principal_by_client_id(client).unwrap().object_id
        };
        let definition =
            format!("/subscriptions/sub/providers/Microsoft.Authorization/roleDefinitions/{role}");
        let path = format!("{scope}/providers/Microsoft.Authorization/roleAssignments/{role}");
        let body = json!({ "properties": {
            "roleDefinitionId": definition,
            "principalId": object_id,
            "principalType": "ServicePrincipal",
        } });
        self.arm("PUT", &path, "2022-04-01", &body);
    }
}

#[test]
fn metadata_of_the_custom_cloud_has_its_hosts_with_the_port() {
    let fixture = CustomCloudFixture::new();
    let get = |version: &str| {
        let url = format!("{ARM}/metadata/endpoints?api-version={version}");
        reply_json(&fixture.probe.get(Ingress::Tunnel, &url, &[]))
    };
    let document = get("2022-09-01");
    assert_eq!(get("2019-05-01"), json!([document]));
    assert_eq!(document["name"], "AzureStackCloud");
    assert_eq!(document["resourceManager"], format!("{ARM}/"));
    assert_eq!(document["microsoftGraphResourceId"], format!("{GRAPH}/"));
    assert_eq!(document["graphAudience"], format!("{GRAPH}/"));
    let authentication = &document["authentication"];
    assert_eq!(authentication["loginEndpoint"], format!("{LOGIN}/"));
    assert_eq!(authentication["audiences"], json!([format!("{ARM}/")]));
    let suffixes = &document["suffixes"];
    assert_eq!(suffixes["keyVaultDns"], "vault.azure.test:7750");
    assert_eq!(suffixes["mhsmDns"], "managedhsm.azure.test:7750");
    assert_eq!(suffixes["storage"], "core.azure.test:7750");
    assert_eq!(suffixes["acrLoginServer"], Value::Null);
}

#[test]
fn discovery_of_the_custom_cloud_names_its_own_token_service() {
    let fixture = CustomCloudFixture::new();
    let get = |url: &str| reply_json(&fixture.probe.get(Ingress::Tunnel, url, &[]));
    let base = format!("{LOGIN}/{}", fixture.tenant);
    let document = get(&format!("{base}/v2.0/.well-known/openid-configuration"));
    assert_eq!(document["issuer"], format!("{base}/v2.0"));
    assert_eq!(document["token_endpoint"], format!("{base}/oauth2/v2.0/token"));
    assert_eq!(document["jwks_uri"], format!("{base}/discovery/v2.0/keys"));
    assert_eq!(document["device_authorization_endpoint"], format!("{base}/oauth2/v2.0/devicecode"));
    assert_eq!(document["msgraph_host"], "graph.azure.test:7750");
    let asked =
        format!("{LOGIN}/common/discovery/instance?api-version=1.1&authorization_endpoint=");
    let instance = get(&format!("{asked}{base}/oauth2/v2.0/authorize"));
    let document_url = format!("{base}/v2.0/.well-known/openid-configuration");
    assert_eq!(instance["tenant_discovery_endpoint"], document_url);
    let own = json!({
        "preferred_network": "login.azure.test:7750",
        "preferred_cache": "login.azure.test:7750",
        "aliases": ["login.azure.test:7750"],
    });
    assert!(instance["metadata"].as_array().unwrap().contains(&own), "{instance}");
    let other = get(&format!("{asked}https://login.azure.test:1/t/oauth2/v2.0/authorize"));
    assert_eq!(other["error"], "invalid_instance");
}

#[test]
fn token_of_the_custom_cloud_has_the_requested_audience_and_the_public_issuer() {
    let fixture = CustomCloudFixture::new();
    for resource in [ARM, "https://management.azure.test", "https://vault.azure.test:7750", GRAPH] {
        let claims = token_claims(&fixture.token(&format!("{resource}/.default")));
        assert_eq!(claims["aud"], resource);
        assert_eq!(claims["iss"], format!("https://sts.windows.net/{}/", fixture.tenant));
    }
}

#[test]
fn resources_of_the_custom_cloud_have_endpoints_with_the_port() {
    let fixture = CustomCloudFixture::new();
    fixture.create_group();
    assert_eq!(fixture.create_vault(), "https://custom-kv.vault.azure.test:7750/");
    let account = format!("{GROUP}/providers/Microsoft.Storage/storageAccounts/custom");
    let body = json!({
        "location": "westeurope",
        "kind": "StorageV2",
        "sku": { "name": "Standard_LRS" },
    });
    fixture.arm("PUT", &account, "2023-05-01", &body);
    let endpoints = reply_json(&fixture.arm("GET", &account, "2023-05-01", &Value::Null));
    let endpoints = &endpoints["properties"]["primaryEndpoints"];
    assert_eq!(endpoints["blob"], "https://custom.blob.core.azure.test:7750/");
    assert_eq!(endpoints["web"], "https://custom.z13.web.core.azure.test:7750/");
    // The state does not depend on the port.
    let state = fixture.probe.engine.state();
    assert!(state.azure.vaults.vault_at_host("custom-kv.vault.azure.test").is_some());
    assert!(state.azure.storage.account("custom.blob.core.azure.test").is_some());
}

#[test]
fn seeded_vault_keeps_its_public_name_in_the_custom_cloud() {
    let fixture = CustomCloudFixture::new();
    let seeded = nine_identity_plan().vault.name;
    let listed = "/subscriptions/sub/providers/Microsoft.KeyVault/vaults";
    let listed = reply_json(&fixture.arm("GET", listed, "2023-07-01", &Value::Null));
    let uris: Vec<_> = listed["value"].as_array().unwrap().iter().collect();
    let expected = format!("https://{seeded}.vault.azure.net/").to_lowercase();
    assert!(uris.iter().any(|vault| vault["properties"]["vaultUri"] == expected), "{listed}");
}

#[test]
fn links_of_azure_resource_manager_have_the_port() {
    let fixture = CustomCloudFixture::new();
    fixture.create_group();
    let path = "/subscriptions/sub/resourcegroups?%24top=1";
    let groups = reply_json(&fixture.arm("GET", path, "2022-09-01", &Value::Null));
    let next = groups["nextLink"].as_str().unwrap();
    assert!(next.starts_with(&format!("{ARM}/subscriptions/sub/resourcegroups?")), "{next}");
    let rule = json!({ "resourceType": "*", "polls": 1 });
    let change = json!({ "resourceManager": { "longRunning": [rule] } });
    let change = SettingsChange::from_json(change).unwrap();
    let settings = change.applied_to(&EmulatorSettings::default()).unwrap();
    settings.store(&mut fixture.probe.engine.state().azure);
    let network = format!("{GROUP}/providers/Microsoft.Network/virtualNetworks/net");
    let body = json!({
        "location": "westeurope",
        "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] } },
    });
    let reply = fixture.arm("PUT", &network, "2023-11-01", &body);
    let status = reply.header("azure-asyncoperation").unwrap();
    assert!(status.starts_with(&format!("{ARM}/subscriptions/sub/providers/")), "{status}");
}

#[test]
fn objects_and_challenge_of_a_vault_have_the_port() {
    let fixture = CustomCloudFixture::new();
    fixture.create_group();
    let vault = fixture.create_vault();
    let secrets = format!("{vault}secrets");
    let challenge = fixture.probe.get(Ingress::Tunnel, &format!("{secrets}?api-version=7.4"), &[]);
    let header = challenge.header("www-authenticate").unwrap();
    for part in [
        format!("authorization=\"{LOGIN}/{}\"", fixture.tenant),
        "resource=\"https://vault.azure.test:7750\"".to_owned(),
    ] {
        assert!(header.contains(&part), "{header}");
    }
    for scope in ["https://vault.azure.test:7750/.default", "https://vault.azure.test/.default"] {
        for name in ["one", "two"] {
            let url = format!("{secrets}/{name}?api-version=7.4");
            let reply = fixture.send(scope, "PUT", &url, &json!({ "value": "v" }));
            assert_eq!(reply.status, StatusCode::OK, "{scope}: {}", reply_json(&reply));
            let id = reply_json(&reply)["id"].as_str().unwrap().to_owned();
            assert!(id.starts_with(&format!("{secrets}/{name}/")), "{id}");
        }
        let url = format!("{secrets}?api-version=7.4&maxresults=1");
        let page = reply_json(&fixture.send(scope, "GET", &url, &Value::Null));
        let next = page["nextLink"].as_str().unwrap();
        assert!(next.starts_with(&format!("{secrets}?")), "{next}");
        assert_eq!(page["value"][0]["id"], format!("{secrets}/one"));
    }
    let url = format!("{secrets}/one?api-version=7.4");
    let refused =
        fixture.send("https://vault.azure.test:7750//.default", "GET", &url, &Value::Null);
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
}

#[test]
fn links_of_microsoft_graph_have_the_port() {
    let fixture = CustomCloudFixture::new();
    for scope in [format!("{GRAPH}/.default"), "https://graph.azure.test//.default".to_owned()] {
        let url = format!("{GRAPH}/v1.0/servicePrincipals?$top=1");
        let page = reply_json(&fixture.send(&scope, "GET", &url, &Value::Null));
        let next = page["@odata.nextLink"].as_str().unwrap();
        assert!(next.starts_with(&format!("{GRAPH}/v1.0/servicePrincipals?")), "{next}");
        let context = page["@odata.context"].as_str().unwrap();
        assert!(context.starts_with(&format!("{GRAPH}/v1.0/$metadata")), "{context}");
    }
}

#[test]
fn blob_service_of_the_custom_cloud_names_its_own_endpoints() {
    let fixture = CustomCloudFixture::new();
    fixture.create_group();
    let account = format!("{GROUP}/providers/Microsoft.Storage/storageAccounts/custom");
    let body = json!({
        "location": "westeurope",
        "kind": "StorageV2",
        "sku": { "name": "Standard_LRS" },
    });
    fixture.arm("PUT", &account, "2023-05-01", &body);
    fixture.grant(&account, "ba92f5b4-2d11-453d-a403-e96b0029c9fe");
    let blob = "https://custom.blob.core.azure.test:7750";
    for scope in [format!("{blob}/.default"), "https://storage.azure.com/.default".to_owned()] {
        let reply = fixture.send(&scope, "GET", &format!("{blob}/?comp=list"), &Value::Null);
        let text = String::from_utf8_lossy(&reply.body);
        assert!(text.contains(&format!("ServiceEndpoint=\"{blob}/\"")), "{text}");
    }
    let version = [("x-ms-version", "2024-11-04")];
    let reply = fixture.probe.get(Ingress::Tunnel, &format!("{blob}/?comp=list"), &version);
    let header = reply.header("www-authenticate").unwrap();
    let expected = format!("authorization_uri={LOGIN}/{}/oauth2/authorize", fixture.tenant);
    assert!(header.contains(&expected), "{header}");
}

#[test]
fn plain_http_to_a_custom_host_is_rejected() {
    let fixture = CustomCloudFixture::new();
    let reply = fixture.probe.get(Ingress::ForeignHostName, "http://management.azure.test/", &[]);
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(String::from_utf8_lossy(&reply.body).contains("https only"));
}
