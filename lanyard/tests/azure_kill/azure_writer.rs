//! A stock HTTP client that writes secrets, role assignments, resource groups and blobs, and reads them back.

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::azure_serve_process::AzureServeProcess;

const KEY_VAULT_SECRETS_OFFICER: &str = "Key Vault Secrets Officer";
const STORAGE_BLOB_DATA_OWNER: &str = "Storage Blob Data Owner";
/// The id of the role `Reader`.
const READER: &str = "acdd72a7-3385-48ef-bd42-f606fba81ae7";

/// A kind of object that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WrittenObject {
    Secret,
    RoleAssignment,
    ResourceGroup,
    Blob,
}

/// A write of one object, whose name and content follow from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AzureWrite {
    object: WrittenObject,
    number: u128,
}

impl AzureWrite {
    /// The n-th write of a task. Each task writes every kind of object in turn.
    pub(crate) fn numbered(round: usize, task: usize, number: usize) -> Self {
        use WrittenObject::{Blob, ResourceGroup, RoleAssignment, Secret};
        let object = [Secret, RoleAssignment, ResourceGroup, Blob][(task + number) % 4];
        let part = |value: usize| u128::try_from(value).unwrap();
        Self { object, number: (part(round) << 64) | (part(task) << 32) | part(number) }
    }

    /// The content of a secret or blob.
    fn content(self) -> String {
        format!("content {:x}", self.number)
    }
}

/// The seeded application with the roles that the writes need.
pub(crate) struct AzureWriter {
    client: reqwest::Client,
    arm_token: String,
    vault_token: String,
    storage_token: String,
    subscription: String,
    tenant: String,
    vault_host: String,
    blob_host: String,
}

impl AzureWriter {
    /// Signs in, and assigns the roles of the data planes.
    pub(crate) async fn sign_in(process: &AzureServeProcess) -> Self {
        let authority = std::fs::read(process.session_text("caFile")).unwrap();
        let authority = reqwest::Certificate::from_pem(&authority).unwrap();
        let proxy = reqwest::Proxy::https(process.session_text("proxy")).unwrap();
        let client =
            reqwest::Client::builder().proxy(proxy).tls_certs_only([authority]).build().unwrap();
        let control = process.session_text("control");
        let control_request = |method, path: &str| {
            client.request(method, format!("{control}/{path}")).header("x-lanyard-control", "1")
        };
        let test_clients = send_for_json(control_request(Method::GET, "test-clients")).await;
        let azure = send_for_json(control_request(Method::GET, "state")).await;
        let subscription = text(&test_clients, "/subscription");
        for role in [KEY_VAULT_SECRETS_OFFICER, STORAGE_BLOB_DATA_OWNER] {
            let assignment = json!({
                "principal": text(&test_clients, "/secret/clientId"),
                "role": role,
                "scope": format!("/subscriptions/{subscription}"),
            });
            let request = control_request(Method::POST, "role-assignments");
            let status = request.body(assignment.to_string()).send().await.unwrap().status();
            // The role assignment of an earlier process exists.
            assert!(status.is_success() || status == StatusCode::CONFLICT, "{status}");
        }
        let mut writer = Self {
            client,
            arm_token: String::new(),
            vault_token: String::new(),
            storage_token: String::new(),
            subscription,
            tenant: text(&test_clients, "/tenant"),
            vault_host: text(&test_clients, "/vaultHost"),
            blob_host: text(&azure, "/storageAccounts/0/host"),
        };
        writer.arm_token = writer.token(&test_clients, "https://management.azure.com").await;
        writer.vault_token = writer.token(&test_clients, "https://vault.azure.net").await;
        writer.storage_token = writer.token(&test_clients, "https://storage.azure.com").await;
        writer
    }

    async fn token(&self, test_clients: &Value, resource: &str) -> String {
        let form = [
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", text(test_clients, "/secret/clientId")),
            ("client_secret", text(test_clients, "/secret/clientSecret")),
            ("scope", format!("{resource}/.default")),
        ];
        let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let url = format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", self.tenant);
        text(&send_for_json(self.client.post(url).body(form)).await, "/access_token")
    }

    /// The request that reads or writes an object.
    fn request(&self, method: Method, write: AzureWrite) -> RequestBuilder {
        let AzureWrite { object, number } = write;
        let subscription =
            format!("https://management.azure.com/subscriptions/{}", self.subscription);
        let (url, token) = match object {
            WrittenObject::Secret => (
                format!("https://{}/secrets/s-{number:x}?api-version=7.6", self.vault_host),
                &self.vault_token,
            ),
            WrittenObject::RoleAssignment => (
                format!(
                    "{subscription}/providers/Microsoft.Authorization/roleAssignments/{}\
                     ?api-version=2022-04-01",
                    assignment_name(number)
                ),
                &self.arm_token,
            ),
            WrittenObject::ResourceGroup => (
                format!("{subscription}/resourceGroups/g-{number:x}?api-version=2021-04-01"),
                &self.arm_token,
            ),
            WrittenObject::Blob => (
                format!("https://{}/image-registry/b-{number:x}", self.blob_host),
                &self.storage_token,
            ),
        };
        self.client.request(method, url).bearer_auth(token).header("x-ms-version", "2024-11-04")
    }

    /// Writes an object. Returns an error if there was no answer.
    pub(crate) async fn write(&self, write: AzureWrite) -> reqwest::Result<StatusCode> {
        let request = self.request(Method::PUT, write);
        let request = match write.object {
            WrittenObject::Secret => json_body(request, &json!({ "value": write.content() })),
            WrittenObject::RoleAssignment => {
                let role = format!(
                    "/subscriptions/{}/providers/Microsoft.Authorization/roleDefinitions/{READER}",
                    self.subscription
                );
                let properties = json!({
                    "roleDefinitionId": role,
                    "principalId": Uuid::new_v5(&Uuid::NAMESPACE_OID, &write.number.to_be_bytes()),
                    "principalType": "ServicePrincipal",
                });
                json_body(request, &json!({ "properties": properties }))
            }
            WrittenObject::ResourceGroup => {
                json_body(request, &json!({ "location": "westeurope" }))
            }
            WrittenObject::Blob => {
                request.header("x-ms-blob-type", "BlockBlob").body(write.content())
            }
        };
        let response = request.send().await?;
        let status = response.status();
        // The answer is complete with its body.
        response.bytes().await?;
        Ok(status)
    }

    /// Whether an object is stored with its content.
    pub(crate) async fn is_stored(&self, write: AzureWrite) -> bool {
        let response = self.request(Method::GET, write).send().await.unwrap();
        let status = response.status();
        let body = response.text().await.unwrap();
        let has_content = match write.object {
            WrittenObject::Secret | WrittenObject::Blob => body.contains(&write.content()),
            WrittenObject::RoleAssignment => body.contains(READER),
            WrittenObject::ResourceGroup => body.contains("westeurope"),
        };
        status.is_success() && has_content
    }
}

fn assignment_name(number: u128) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_URL, &number.to_be_bytes())
}

fn json_body(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

async fn send_for_json(request: RequestBuilder) -> Value {
    let response = request.send().await.unwrap();
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

fn text(json: &Value, pointer: &str) -> String {
    json.pointer(pointer).and_then(Value::as_str).unwrap().to_owned()
}
