//! Requests to Microsoft Graph v1.0: applications, service principals and look-ups by id.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::http::{Method, Url};
use lanyard_vocabulary::EntraClientId;
use lanyard_vocabulary::cloud::CloudEndpoints;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::authenticated_client::{
    AuthenticatedClient, AzureCallError, AzureResponse, ClientRequest, NO_CODE,
};
use crate::graph_types::{
    GraphApplication, GraphApplicationBody, GraphDirectoryObject, GraphKeyCredential,
    GraphServicePrincipal, GraphUser,
};
use crate::service_url::{append_query, odata_literal, own_url};
use crate::transport::AzureTransport;

/// A client of Microsoft Graph in one cloud, for one identity. Clones may be used at the same time.
#[derive(Debug, Clone)]
pub struct GraphClient {
    endpoint: String,
    client: AuthenticatedClient,
}

/// The properties of an application. Graph returns `keyCredentials` with their keys only if the request
/// selects them.
const APPLICATION_PROPERTIES: &str = "id,appId,displayName,uniqueName,tags,keyCredentials";
const PRINCIPAL_PROPERTIES: &str = "id,appId,displayName,servicePrincipalType";
/// The largest number of ids in one look-up. Reference: "directoryObject: getByIds".
const MAX_IDS: usize = 1_000;
const MAX_PAGES: usize = 1_000;

impl GraphClient {
    /// Creates a client for `credential` in the cloud with these endpoints.
    pub fn new(
        endpoints: &CloudEndpoints,
        credential: Arc<dyn TokenCredential>,
        transport: &AzureTransport,
    ) -> Self {
        let endpoint = endpoints.graph_url();
        let scope = format!("{endpoint}/.default");
        Self { client: AuthenticatedClient::new(scope, credential, transport), endpoint }
    }

    /// The application with an object id; `None` if there is none.
    pub async fn application(&self, id: Uuid) -> Result<Option<GraphApplication>, AzureCallError> {
        let request = GraphRequest::get(["applications".to_owned(), id.to_string()]);
        self.find(request.select(APPLICATION_PROPERTIES)).await
    }

    /// The application with a client id; `None` if there is none in the tenant.
    pub async fn application_by_app_id(
        &self,
        app_id: EntraClientId,
    ) -> Result<Option<GraphApplication>, AzureCallError> {
        let request = GraphRequest::get([application_key("appId", &app_id.to_string())]);
        self.find(request.select(APPLICATION_PROPERTIES)).await
    }

    /// The application with a unique name; `None` if there is none.
    pub async fn application_by_unique_name(
        &self,
        unique_name: &str,
    ) -> Result<Option<GraphApplication>, AzureCallError> {
        let request = GraphRequest::get([application_key("uniqueName", unique_name)]);
        self.find(request.select(APPLICATION_PROPERTIES)).await
    }

    /// The applications with exactly this display name, which need not be unique.
    pub async fn applications_by_display_name(
        &self,
        display_name: &str,
    ) -> Result<Vec<GraphApplication>, AzureCallError> {
        let filter = format!("displayName eq {}", odata_literal(display_name));
        let request = GraphRequest::get(["applications".to_owned()]).query("$filter", filter);
        self.list(request.select(APPLICATION_PROPERTIES)).await
    }

    /// Creates an application without a unique name.
    pub async fn create_application(
        &self,
        body: &GraphApplicationBody,
    ) -> Result<GraphApplication, AzureCallError> {
        let path = ["applications".to_owned()];
        let request = GraphRequest::new(Method::Post, path).body(json!(body));
        let target = request.target();
        parse_body(&target, self.send(&request).await?)
    }

    /// Creates the application with this unique name, or changes it if it exists.
    pub async fn upsert_application(
        &self,
        unique_name: &str,
        body: &GraphApplicationBody,
    ) -> Result<GraphApplication, AzureCallError> {
        let path = [application_key("uniqueName", unique_name)];
        self.upsert(path, json!(body), APPLICATION_PROPERTIES).await
    }

    /// Replaces all certificates of an application (object id).
    pub async fn replace_key_credentials(
        &self,
        application: Uuid,
        credentials: &[GraphKeyCredential],
    ) -> Result<(), AzureCallError> {
        let path = ["applications".to_owned(), application.to_string()];
        let request = GraphRequest::new(Method::Patch, path);
        self.send(&request.body(json!({ "keyCredentials": credentials }))).await.map(drop)
    }

    /// Deletes an application (object id); one that does not exist is deleted already. Graph keeps it for 30
    /// days, and its unique name with it.
    pub async fn delete_application(&self, application: Uuid) -> Result<(), AzureCallError> {
        self.delete(["applications".to_owned(), application.to_string()]).await
    }

    /// The deleted applications of the tenant, which Graph keeps for 30 days.
    pub async fn deleted_applications(&self) -> Result<Vec<GraphApplication>, AzureCallError> {
        self.list(GraphRequest::get(deleted_item("microsoft.graph.application".to_owned()))).await
    }

    /// Deletes a deleted application or service principal (object id) permanently. Right after the deletion, Graph may
    /// answer 404: it does not know the deleted object everywhere yet.
    pub async fn purge_deleted_object(&self, object: Uuid) -> Result<(), AzureCallError> {
        let path = deleted_item(object.to_string());
        self.send(&GraphRequest::new(Method::Delete, path)).await.map(drop)
    }

    /// The service principal of a client id; `None` if the tenant has none.
    pub async fn service_principal_by_app_id(
        &self,
        app_id: EntraClientId,
    ) -> Result<Option<GraphServicePrincipal>, AzureCallError> {
        let request = GraphRequest::get([principal_key(app_id)]);
        self.find(request.select(PRINCIPAL_PROPERTIES)).await
    }

    /// The object id of the service principal of a client id, which role assignments name.
    pub async fn service_principal_object_id(
        &self,
        app_id: EntraClientId,
    ) -> Result<Option<Uuid>, AzureCallError> {
        let found = self.service_principal_by_app_id(app_id).await?;
        Ok(found.map(|principal| principal.id))
    }

    /// Creates the service principal of an application, or reads it if it exists. Right after the creation of
    /// the application, Graph may answer 400 or 403: it does not know the application everywhere yet.
    pub async fn upsert_service_principal(
        &self,
        app_id: EntraClientId,
    ) -> Result<GraphServicePrincipal, AzureCallError> {
        self.upsert([principal_key(app_id)], json!({}), PRINCIPAL_PROPERTIES).await
    }

    /// The objects with these object ids. Objects that do not exist are absent from the result. `types` limits
    /// the result, for example to `servicePrincipal`; an empty list stands for all types.
    pub async fn directory_objects(
        &self,
        ids: &[Uuid],
        types: &[&str],
    ) -> Result<Vec<GraphDirectoryObject>, AzureCallError> {
        let mut objects = Vec::new();
        for ids in ids.chunks(MAX_IDS) {
            let mut body = json!({ "ids": ids });
            if !types.is_empty() {
                body["types"] = json!(types);
            }
            let path = ["directoryObjects".to_owned(), "getByIds".to_owned()];
            let request = GraphRequest::new(Method::Post, path).body(body);
            objects.extend(self.list(request).await?);
        }
        Ok(objects)
    }

    /// The signed-in user. Fails for an identity that is not a user.
    pub async fn me(&self) -> Result<GraphUser, AzureCallError> {
        let request =
            GraphRequest::get(["me".to_owned()]).select("id,displayName,userPrincipalName");
        let target = request.target();
        parse_body(&target, self.send(&request).await?)
    }

    /// Sends a PATCH that creates a missing object, and reads the object if the reply does not contain it.
    async fn upsert<T: DeserializeOwned>(
        &self,
        path: [String; 1],
        body: Value,
        properties: &'static str,
    ) -> Result<T, AzureCallError> {
        let read = GraphRequest::get(path.clone()).select(properties);
        let request = GraphRequest::new(Method::Patch, path).body(body);
        let target = request.target();
        let request = GraphRequest { prefer: Some("create-if-missing"), ..request };
        let response = self.send(&request).await?;
        if response.body.is_object() {
            return parse_body(&target, response);
        }
        parse_body(&target, self.send(&read).await?)
    }

    async fn delete<const N: usize>(&self, path: [String; N]) -> Result<(), AzureCallError> {
        match self.send(&GraphRequest::new(Method::Delete, path)).await {
            Ok(_) => Ok(()),
            Err(error) if is_missing_object(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn find<T: DeserializeOwned>(
        &self,
        request: GraphRequest,
    ) -> Result<Option<T>, AzureCallError> {
        match self.send(&request).await {
            Ok(response) => parse_body(&request.target(), response).map(Some),
            Err(error) if is_missing_object(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads all pages of a list.
    async fn list<T: DeserializeOwned>(
        &self,
        request: GraphRequest,
    ) -> Result<Vec<T>, AzureCallError> {
        let target = request.target();
        let mut items = Vec::new();
        let mut response = self.send(&request).await?;
        for _ in 0..MAX_PAGES {
            let status = response.status;
            let page = response.body.get_mut("value").map(Value::take).unwrap_or_default();
            let next = response.body.get("@odata.nextLink").and_then(Value::as_str);
            let next = next.map(str::to_owned);
            items.extend(parse_value::<Vec<T>>(&target, status, page)?);
            let Some(next) = next else { return Ok(items) };
            let url = own_url(&self.endpoint, &next)
                .map_err(|host| AzureCallError::ForeignUrl { target: target.clone(), host })?;
            response =
                self.client.send_request(client_request(&url, &GraphRequest::get([]))).await?;
        }
        Err(AzureCallError::TooManyPages { target, limit: MAX_PAGES })
    }

    async fn send(&self, request: &GraphRequest) -> Result<AzureResponse, AzureCallError> {
        let invalid = || AzureCallError::InvalidTarget { target: request.target() };
        let mut url: Url = match format!("{}/v1.0", self.endpoint).parse() {
            Ok(url) => url,
            Err(_) => return Err(invalid()),
        };
        match url.path_segments_mut() {
            Ok(mut segments) => segments.extend(&request.path),
            Err(()) => return Err(invalid()),
        };
        append_query(&mut url, request.query.iter().map(|(name, value)| (*name, value.as_str())));
        self.client.send_request(client_request(&url, request)).await
    }
}

/// A request: everything but the cloud and the identity.
#[derive(Debug)]
struct GraphRequest {
    method: Method,
    /// The segments of the path after the version, not encoded.
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    prefer: Option<&'static str>,
}

impl GraphRequest {
    fn new<const N: usize>(method: Method, path: [String; N]) -> Self {
        Self { method, path: path.into(), query: Vec::new(), body: None, prefer: None }
    }

    fn get<const N: usize>(path: [String; N]) -> Self {
        Self::new(Method::Get, path)
    }

    fn query(mut self, name: &'static str, value: String) -> Self {
        self.query.push((name, value));
        self
    }

    fn select(self, properties: &str) -> Self {
        self.query("$select", properties.to_owned())
    }

    fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// The method and the path, for messages.
    fn target(&self) -> String {
        format!("{} /{}", self.method, self.path.join("/"))
    }
}

fn client_request<'a>(url: &'a Url, request: &'a GraphRequest) -> ClientRequest<'a> {
    let (method, body) = (request.method, request.body.as_ref());
    let headers = request.prefer.map(|prefer| ("prefer", prefer.to_owned()));
    let headers = headers.into_iter().collect();
    ClientRequest { method, url, body, headers, names_correlation_id: true }
}

/// `applications(name='value')`.
fn application_key(name: &str, value: &str) -> String {
    format!("applications({name}={})", odata_literal(value))
}

/// `servicePrincipals(appId='…')`.
fn principal_key(app_id: EntraClientId) -> String {
    format!("servicePrincipals(appId={})", odata_literal(&app_id.to_string()))
}

/// The path of a deleted object, or of the deleted objects of a type.
fn deleted_item(id_or_type: String) -> [String; 3] {
    ["directory".to_owned(), "deletedItems".to_owned(), id_or_type]
}

/// Whether Graph answered that the object does not exist. A reply without a code may come from a gateway.
fn is_missing_object(error: &AzureCallError) -> bool {
    matches!(error, AzureCallError::NotFound { code, .. } if code != NO_CODE)
}

fn parse_body<T: DeserializeOwned>(
    target: &str,
    response: AzureResponse,
) -> Result<T, AzureCallError> {
    parse_value(target, response.status, response.body)
}

fn parse_value<T: DeserializeOwned>(
    target: &str,
    status: u16,
    value: Value,
) -> Result<T, AzureCallError> {
    match serde_json::from_value(value) {
        Ok(parsed) => Ok(parsed),
        Err(_) => Err(AzureCallError::Malformed { target: target.to_owned(), status }),
    }
}

#[cfg(test)]
mod tests;
