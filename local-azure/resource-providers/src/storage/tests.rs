use http::Method;
use lanyard_emulator::testing::seeded_state::{issue_access_token_for, seeded_nine_identities};
use lanyard_emulator::testing::{EngineFixture, reply_json};
use lanyard_emulator_core::ingress::Ingress;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::EntraClientId;
use serde_json::{Value, json};

const GROUP: &str = "/subscriptions/sub/resourceGroups/platform";
const ACCOUNT: &str = "/subscriptions/sub/resourceGroups/platform/providers/Microsoft.Storage/storageAccounts/issuer1";

/// A seeded state, and its owner.
struct StorageFixture {
    engine: EngineFixture,
    owner: EntraClientId,
}

impl StorageFixture {
    fn new() -> Self {
        let (azure, _) = seeded_nine_identities();
        let owner = azure.registry.test_clients.clone().unwrap().secret_client;
        Self { engine: EngineFixture::new(azure), owner }
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let audience = "https://management.azure.com/";
        let token = issue_access_token_for(&self.engine, self.owner, audience);
        let bearer = format!("Bearer {token}");
        let url = format!("https://management.azure.com{path}?api-version=2023-01-01");
        let headers = [("authorization", bearer.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let method: Method = method.parse().unwrap();
        let reply = self.engine.send_request(Ingress::Tunnel, &method, &url, &headers, &body);
        let is_json = !reply.body.is_empty();
        let wire = if is_json { reply_json(&reply) } else { Value::Null };
        (reply.status.as_u16(), wire)
    }

    fn create_account(&self, properties: &Value) -> (u16, Value) {
        let body = json!({
            "location": "eastus",
            "kind": "StorageV2",
            "sku": { "name": "Standard_LRS" },
            "properties": properties,
        });
        self.send("PUT", ACCOUNT, &body)
    }

    fn get_blob(&self, url: &str) -> ServiceReply {
        self.engine.get(Ingress::Tunnel, url, &[])
    }
}

fn error_code(wire: &Value) -> &str {
    wire["error"]["code"].as_str().unwrap_or_default()
}

#[test]
fn account_name_may_contain_the_name_of_a_service() {
    let fixture = StorageFixture::new();
    let body =
        json!({ "location": "eastus", "kind": "StorageV2", "sku": { "name": "Standard_LRS" } });
    let (status, account) = fixture.send("PUT", &ACCOUNT.replace("issuer1", "myblobs"), &body);
    assert_eq!(status, 200, "{account}");
    let endpoints = &account["properties"]["primaryEndpoints"];
    assert_eq!(endpoints["dfs"], "https://myblobs.dfs.core.windows.net/");
    assert_eq!(endpoints["web"], "https://myblobs.z13.web.core.windows.net/");
}

#[test]
fn account_has_endpoints_and_keys_of_its_data_plane() {
    let fixture = StorageFixture::new();
    let (status, account) = fixture.create_account(&json!({ "allowBlobPublicAccess": true }));
    assert_eq!(status, 200, "{account}");
    let properties = &account["properties"];
    assert_eq!(properties["provisioningState"], "Succeeded");
    assert_eq!(properties["primaryEndpoints"]["blob"], "https://issuer1.blob.core.windows.net/");
    assert_eq!(properties["primaryEndpoints"]["web"], "https://issuer1.z13.web.core.windows.net/");
    assert_eq!(account["sku"], json!({ "name": "Standard_LRS", "tier": "Standard" }));
    let (_, keys) = fixture.send("POST", &format!("{ACCOUNT}/listKeys"), &Value::Null);
    let names: Vec<_> =
        keys["keys"].as_array().unwrap().iter().map(|key| &key["keyName"]).collect();
    assert_eq!(names, ["key1", "key2"]);
    let body = json!({ "keyName": "key2" });
    let (_, rotated) = fixture.send("POST", &format!("{ACCOUNT}/regenerateKey"), &body);
    assert_eq!(rotated["keys"][0]["value"], keys["keys"][0]["value"]);
    assert_ne!(rotated["keys"][1]["value"], keys["keys"][1]["value"]);
    // Writing the account again keeps its keys.
    assert_eq!(fixture.create_account(&json!({})).0, 200);
    let (_, keys_after_write) = fixture.send("POST", &format!("{ACCOUNT}/listKeys"), &Value::Null);
    assert_eq!(keys_after_write["keys"], rotated["keys"]);
}

#[test]
fn account_names_are_valid_and_unique_in_the_cloud() {
    let fixture = StorageFixture::new();
    let check = |name: &str| {
        let path = "/subscriptions/sub/providers/Microsoft.Storage/checkNameAvailability";
        let body = json!({ "name": name, "type": "Microsoft.Storage/storageAccounts" });
        fixture.send("POST", path, &body).1
    };
    assert_eq!(check("issuer1")["nameAvailable"], true);
    assert_eq!(check("Issuer1")["reason"], "AccountNameInvalid");
    assert_eq!(fixture.create_account(&json!({})).0, 200);
    assert_eq!(check("issuer1")["reason"], "AlreadyExists");
    let body =
        json!({ "location": "eastus", "kind": "StorageV2", "sku": { "name": "Standard_LRS" } });
    let other = ACCOUNT.replace("platform", "demo-abcde");
    let (status, wire) = fixture.send("PUT", &other, &body);
    assert_eq!((status, error_code(&wire)), (409, "StorageAccountAlreadyTaken"));
    let invalid = ACCOUNT.replace("issuer1", "issuer-1");
    let (status, wire) = fixture.send("PUT", &invalid, &body);
    assert_eq!((status, error_code(&wire)), (400, "AccountNameInvalid"));
}

#[test]
fn invalid_and_unsupported_accounts_are_rejected() {
    let fixture = StorageFixture::new();
    let sku = json!({ "name": "Standard_LRS" });
    for (body, status, code) in [
        (json!({ "location": "eastus", "kind": "StorageV2" }), 400, "AccountPropertyIsInvalid"),
        (
            json!({ "location": "eastus", "kind": "Other", "sku": sku }),
            400,
            "AccountPropertyIsInvalid",
        ),
        (json!({ "kind": "StorageV2", "sku": sku }), 400, "LocationRequired"),
        (
            json!({ "location": "eastus", "kind": "StorageV2", "sku": sku, "properties": { "isHnsEnabled": true } }),
            501,
            "FeatureNotSupportedByEmulator",
        ),
    ] {
        let (found, wire) = fixture.send("PUT", ACCOUNT, &body);
        assert_eq!((found, error_code(&wire)), (status, code), "{body}");
    }
    assert_eq!(fixture.send("GET", ACCOUNT, &Value::Null).0, 404);
}

#[test]
fn containers_are_those_of_the_data_plane() {
    let fixture = StorageFixture::new();
    assert_eq!(fixture.create_account(&json!({ "allowBlobPublicAccess": true })).0, 200);
    let containers = format!("{ACCOUNT}/blobServices/default/containers");
    let container = format!("{containers}/oidc");
    let (status, wire) = fixture.send("GET", &container, &Value::Null);
    assert_eq!((status, error_code(&wire)), (404, "ContainerNotFound"));
    let body = json!({ "properties": { "publicAccess": "Container" } });
    assert_eq!(fixture.send("PUT", &container, &body).0, 201);
    assert_eq!(fixture.send("PUT", &container, &body).0, 200);
    let (_, wire) = fixture.send("GET", &container, &Value::Null);
    assert_eq!(wire["properties"]["publicAccess"], "Container");
    assert_eq!(wire["properties"]["leaseState"], "Available");
    let list = "https://issuer1.blob.core.windows.net/oidc?restype=container&comp=list";
    assert_eq!(fixture.get_blob(list).status.as_u16(), 200);
    let private = json!({ "properties": { "publicAccess": "None" } });
    assert_eq!(fixture.send("PATCH", &container, &private).0, 200);
    assert_eq!(fixture.get_blob(list).status.as_u16(), 404);
    let (_, wire) = fixture.send("GET", &containers, &Value::Null);
    assert_eq!(wire["value"].as_array().unwrap().len(), 1);
    assert_eq!(fixture.send("DELETE", &container, &Value::Null).0, 200);
    assert_eq!(fixture.send("DELETE", &container, &Value::Null).0, 204);
}

#[test]
fn account_without_public_access_rejects_public_containers() {
    let fixture = StorageFixture::new();
    assert_eq!(fixture.create_account(&json!({})).0, 200);
    let container = format!("{ACCOUNT}/blobServices/default/containers/oidc");
    let body = json!({ "properties": { "publicAccess": "Blob" } });
    let (status, wire) = fixture.send("PUT", &container, &body);
    assert_eq!((status, error_code(&wire)), (409, "PublicAccessNotPermitted"));
    let allow = json!({ "properties": { "allowBlobPublicAccess": true } });
    assert_eq!(fixture.send("PATCH", ACCOUNT, &allow).0, 200);
    assert_eq!(fixture.send("PUT", &container, &body).0, 201);
}

#[test]
fn deleted_account_loses_its_content_and_frees_its_name() {
    let fixture = StorageFixture::new();
    for delete in [ACCOUNT, GROUP] {
        let group = json!({ "location": "eastus" });
        assert!(fixture.send("PUT", GROUP, &group).0 < 300);
        assert_eq!(fixture.create_account(&json!({ "allowBlobPublicAccess": true })).0, 200);
        let container = format!("{ACCOUNT}/blobServices/default/containers/oidc");
        let body = json!({ "properties": { "publicAccess": "Container" } });
        assert_eq!(fixture.send("PUT", &container, &body).0, 201);
        assert!(fixture.send("DELETE", delete, &Value::Null).0 < 300);
        let host = "issuer1.blob.core.windows.net";
        let state = fixture.engine.engine.state();
        assert!(state.azure.storage.account(host).is_none(), "{delete}");
        assert_eq!(state.azure.storage.containers(host, "").count(), 0, "{delete}");
    }
}

#[test]
fn seeded_account_has_a_data_plane() {
    let fixture = StorageFixture::new();
    let account = "/subscriptions/sub/resourceGroups/demo-abcde/providers/Microsoft.Storage/storageAccounts/registrydemoabcde";
    let (status, _) = fixture.send("POST", &format!("{account}/listKeys"), &Value::Null);
    assert_eq!(status, 200);
    let container = format!("{account}/blobServices/default/containers/image-registry");
    let (_, wire) = fixture.send("GET", &container, &Value::Null);
    assert_eq!(wire["properties"]["publicAccess"], "None");
    let reply =
        fixture.get_blob("https://registrydemoabcde.blob.core.windows.net/image-registry/x");
    assert_eq!(reply.status.as_u16(), 409);
}
