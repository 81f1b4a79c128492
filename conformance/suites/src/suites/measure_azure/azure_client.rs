//! The client of the benchmark: the owner of the emulated subscription, with tokens and prepared requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::{Value, json};
use url::form_urlencoded;

use super::https_connection::{FullResponse, HttpVersion, HttpsTarget, PreparedRequest};
use super::load_generator::require_success;
use super::server_process::LanyardServer;
use crate::local_azure::ControlApi;

const ARM_HOST: &str = "management.azure.com";
const LOGIN_HOST: &str = "login.microsoftonline.com";

/// The credentials of a client that owns the subscription, from the seed of the local Azure.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnerCredentials {
    tenant: String,
    /// A vault with a secret that the client may read.
    pub(super) vault_host: String,
    pub(super) secret_name: String,
    secret: OwnerSecret,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerSecret {
    client_id: String,
    client_secret: String,
}

impl std::fmt::Debug for OwnerSecret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("OwnerSecret").finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
}

#[derive(Deserialize)]
struct SubscriptionList {
    value: Vec<SubscriptionItem>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubscriptionItem {
    subscription_id: String,
}

/// An access token, as the value of the `Authorization` header.
#[derive(Debug, Clone)]
pub(super) struct BearerHeader(HeaderValue);

/// The owner of the subscription with a token for ARM.
#[derive(Debug)]
pub(super) struct SubscriptionOwner {
    pub(super) arm: HttpsTarget,
    pub(super) arm_token: BearerHeader,
    /// The object id, to which roles are assigned.
    pub(super) object_id: String,
    pub(super) tenant: String,
    /// The resource id of the subscription.
    pub(super) subscription: String,
    credentials: OwnerCredentials,
}

impl OwnerCredentials {
    /// Reads the credentials from the control API.
    pub(super) async fn fetch(server: &LanyardServer) -> Result<Self, Failed> {
        Ok(ControlApi::new(&server.control_url)?.get("test-clients").await?)
    }

    /// Requests a token for a resource such as `https://vault.azure.net`.
    pub(super) async fn token(
        &self,
        server: &LanyardServer,
        resource: &str,
    ) -> Result<BearerHeader, Failed> {
        BearerHeader::new(&self.access_token(server, resource).await?)
    }

    async fn access_token(&self, server: &LanyardServer, resource: &str) -> Result<String, Failed> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", &self.secret.client_id)
            .append_pair("client_secret", &self.secret.client_secret)
            .append_pair("scope", &format!("{resource}/.default"))
            .finish();
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        let request = PreparedRequest {
            method: Method::POST,
            path: format!("/{}/oauth2/v2.0/token", self.tenant).parse()?,
            headers: HeaderMap::from_iter([(CONTENT_TYPE, form_type)]),
            body: Bytes::from(form),
        };
        let response = server.target(LOGIN_HOST)?.send(&request).await?;
        require_success(&request, &response)?;
        let response: TokenResponse = serde_json::from_slice(&response.body)?;
        Ok(response.access_token)
    }
}

impl BearerHeader {
    fn new(token: &str) -> Result<Self, Failed> {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// A request with this token and without a body.
    pub(super) fn request(&self, method: Method, path: &str) -> Result<PreparedRequest, Failed> {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, self.0.clone())]);
        Ok(PreparedRequest { method, path: path.parse()?, headers, body: Bytes::new() })
    }

    /// A request with this token and a JSON body.
    pub(super) fn json_request(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<PreparedRequest, Failed> {
        let mut request = self.request(method, path)?;
        request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.body = Bytes::from(body.to_string());
        Ok(request)
    }
}

impl SubscriptionOwner {
    /// Signs in.
    pub(super) async fn sign_in(server: &LanyardServer) -> Result<Self, Failed> {
        let credentials = OwnerCredentials::fetch(server).await?;
        let token = credentials.access_token(server, "https://management.azure.com").await?;
        let object_id = object_id_of_token(&token)?;
        let arm_token = BearerHeader::new(&token)?;
        let arm = server.target(ARM_HOST)?;
        let request = arm_token.request(Method::GET, "/subscriptions?api-version=2022-12-01")?;
        let response = arm.send(&request).await?;
        require_success(&request, &response)?;
        let list: SubscriptionList = serde_json::from_slice(&response.body)?;
        let id = list.value.into_iter().next().ok_or("the owner sees no subscription")?;
        let subscription = format!("/subscriptions/{}", id.subscription_id);
        let tenant = credentials.tenant.clone();
        Ok(Self { arm, arm_token, object_id, tenant, subscription, credentials })
    }

    /// A token for the vaults.
    pub(super) async fn vault_token(&self, server: &LanyardServer) -> Result<BearerHeader, Failed> {
        self.credentials.token(server, "https://vault.azure.net").await
    }

    /// Creates or replaces an ARM resource.
    pub(super) async fn put_resource(
        &self,
        id: &str,
        api_version: &str,
        body: &Value,
    ) -> Result<(), Failed> {
        let path = format!("{id}?api-version={api_version}");
        self.send(&self.arm_token.json_request(Method::PUT, &path, body)?).await?;
        Ok(())
    }

    /// Assigns a role to this owner at a scope.
    pub(super) async fn assign_own_role(&self, scope: &str, role: &str) -> Result<(), Failed> {
        let name = uuid::Uuid::new_v4();
        let id = format!("{scope}/providers/Microsoft.Authorization/roleAssignments/{name}");
        let body = role_assignment_body(&self.subscription, role, &self.object_id);
        self.put_resource(&id, "2022-04-01", &body).await
    }

    /// Sends a request to ARM.
    pub(super) async fn send(&self, request: &PreparedRequest) -> Result<FullResponse, Failed> {
        let response = self.arm.connect(HttpVersion::Http1).await?.send(request).await?;
        require_success(request, &response)?;
        Ok(response)
    }
}

/// The body of a role assignment.
pub(super) fn role_assignment_body(subscription: &str, role: &str, principal: &str) -> Value {
    let definition =
        format!("{subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}");
    json!({
        "properties": {
            "roleDefinitionId": definition,
            "principalId": principal,
            "principalType": "ServicePrincipal",
        },
    })
}

/// The `oid` claim of a token.
fn object_id_of_token(token: &str) -> Result<String, Failed> {
    let claims = token.split('.').nth(1).ok_or("the access token has no claims")?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    Ok(claims["oid"].as_str().ok_or("the access token has no `oid`")?.to_owned())
}
