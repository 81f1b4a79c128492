//! `POST $batch`: several requests in one.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::access::GraphCall;
use super::entity::json_reply;
use super::error::GraphError;
use super::path::odata_segments;
use crate::operations::AzureService;
use crate::request::{ServiceReply, ServiceRequest, normalize_path};

/// The largest number of requests in a batch.
const MAX_REQUESTS: usize = 20;

/// The body of a batch.
#[derive(Debug, Deserialize)]
struct BatchRequest {
    requests: Vec<BatchItem>,
}

/// A request of a batch.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchItem {
    id: String,
    method: String,
    /// The path and query after the version, such as `/users?$top=1`.
    url: String,
    #[serde(default)]
    headers: Map<String, Value>,
    #[serde(default)]
    body: Option<Value>,
    #[serde(default)]
    depends_on: Vec<String>,
}

/// Runs the requests in their order, if the whole batch is valid. A request whose dependency failed is not run:
/// 424.
pub(super) fn run_batch(call: &mut GraphCall<'_, '_>) -> Result<ServiceReply, GraphError> {
    let batch: BatchRequest = call.context.request.parse_json_body().map_err(|error| {
        GraphError::malformed(format!("Invalid batch payload format: {error}."))
    })?;
    check_batch(&batch)?;
    let requests = batch.requests.iter().map(|item| item_request(call, item));
    let requests = requests.collect::<Result<Vec<_>, _>>()?;
    let mut failed: Vec<String> = Vec::new();
    let mut responses = Vec::new();
    for (item, request) in batch.requests.iter().zip(&requests) {
        let reply = if item.depends_on.iter().any(|id| failed.contains(id)) {
            failed_dependency()
        } else {
            run_item(call, &item.id, request)
        };
        if !reply.status.is_success() {
            failed.push(item.id.clone());
        }
        responses.push(item_json(&item.id, &reply));
    }
    Ok(json_reply(StatusCode::OK, &json!({ "responses": responses })))
}

fn check_batch(batch: &BatchRequest) -> Result<(), GraphError> {
    if batch.requests.len() > MAX_REQUESTS {
        return Err(GraphError::malformed(format!(
            "Number of batch request steps exceeds the maximum value of {MAX_REQUESTS}."
        )));
    }
    for (at, item) in batch.requests.iter().enumerate() {
        let earlier = batch.requests.get(..at).unwrap_or_default();
        let is_earlier = |id: &str| earlier.iter().any(|other| other.id == id);
        if item.id.is_empty() || is_earlier(&item.id) {
            return Err(GraphError::malformed(format!(
                "Invalid batch payload format: the id '{}' is empty or not unique.",
                item.id
            )));
        }
        if let Some(missing) = item.depends_on.iter().find(|id| !is_earlier(id)) {
            return Err(GraphError::malformed(format!(
                "Invalid batch payload format: '{}' depends on '{missing}', which is not an earlier request.",
                item.id
            )));
        }
    }
    Ok(())
}

fn run_item(call: &mut GraphCall<'_, '_>, id: &str, request: &ServiceRequest) -> ServiceReply {
    call.context.run_request(AzureService::Graph, request).unwrap_or_else(|| {
        let error = GraphError::not_implemented(format!(
            "The emulator does not implement `{} {}` of `graph`.",
            request.method, request.path
        ));
        error.to_reply(call.error_context(id))
    })
}

/// The request of an item: with the authorization, host and version of the batch.
fn item_request(call: &GraphCall<'_, '_>, item: &BatchItem) -> Result<ServiceRequest, GraphError> {
    let invalid = |problem: &str| {
        GraphError::malformed(format!(
            "Invalid batch payload format: the request '{}' has {problem}.",
            item.id
        ))
    };
    let method: Method =
        item.method.to_uppercase().parse().ok().ok_or_else(|| invalid("no valid method"))?;
    let relative = item.url.trim_start_matches('/');
    let url = Url::parse(&format!("{}/{relative}", call.root_url()));
    let url = url.ok().ok_or_else(|| invalid("no valid URL"))?;
    let mut headers = HeaderMap::new();
    if let Some(authorization) = call.context.request.headers.get("authorization") {
        headers.insert("authorization", authorization.clone());
    }
    for (name, value) in &item.headers {
        let name = HeaderName::from_bytes(name.as_bytes());
        let value = HeaderValue::from_str(value.as_str().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.insert(name, value);
        }
    }
    let request = ServiceRequest {
        method,
        scheme: call.context.request.scheme,
        host: call.context.request.host.clone(),
        port: call.context.request.port,
        client_ip: call.context.request.client_ip,
        path: normalize_path(url.path()),
        query: url.query_pairs().into_owned().collect(),
        headers,
        body: item.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default(),
    };
    let segments = odata_segments(request.segments());
    if segments.last().is_some_and(|last| last.eq_ignore_ascii_case("$batch")) {
        return Err(GraphError::malformed(
            "Invalid batch payload format: a batch contains a batch.",
        ));
    }
    Ok(request)
}

fn failed_dependency() -> ServiceReply {
    let body = json!({ "error": { "code": "FailedDependency", "message": "Failed Dependency." } });
    json_reply(StatusCode::FAILED_DEPENDENCY, &body)
}

fn item_json(id: &str, reply: &ServiceReply) -> Value {
    let headers: Map<_, _> = reply
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.to_string(), json!(value.to_str().ok()?))))
        .collect();
    let text = || json!(String::from_utf8_lossy(&reply.body));
    let body = if reply.body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&reply.body).unwrap_or_else(|_| text())
    };
    json!({ "id": id, "status": reply.status.as_u16(), "headers": headers, "body": body })
}
