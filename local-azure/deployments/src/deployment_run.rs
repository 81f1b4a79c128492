//! The execution of a deployment plan.
//!
//! Every resource is written as if the client had sent its `PUT` request: with the client's token, and through
//! the operation of the resource type. A failed resource does not stop the resources that do not depend on it.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::resources::deployment_store::{
    DeploymentOperation, DeploymentOperationKind, DeploymentOutcome, TargetResource,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::deployment_plan::DeploymentPlan;
use super::planned_resource::PlannedResource;
use super::resource_index::{ResourceReadError, ResourceReader};
use super::template_error::TemplateError;
use crate::planned_properties::target_resource;

/// The maximum number of polls of an operation that a write started.
const MAX_POLLS: usize = 1_000;

/// The characters that are encoded in a path: all except the unreserved ones and the slash (RFC 3986, 2.3).
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Writes the resources of a plan, stage by stage, and evaluates the outputs.
pub(super) fn run_plan(
    call: &mut OperationContext<'_>,
    plan: &mut DeploymentPlan,
    deployment: &AccessScope,
) -> DeploymentOutcome {
    let mut run = DeploymentRun::new(call);
    let mut failed = BTreeSet::new();
    for stage in plan.stages() {
        let mut bodies = Vec::new();
        for place in stage {
            let Some(resource) = plan.resources().get(place).cloned() else { continue };
            if resource.dependencies.iter().any(|dependency| failed.contains(dependency)) {
                failed.insert(place);
                continue;
            }
            bodies.push((place, resource, plan.evaluate_body(place, &mut run)));
        }
        for (place, resource, body) in bodies {
            if !run.write_resource(&resource, body) {
                failed.insert(place);
            }
        }
    }
    if run.errors.is_empty() {
        run.evaluate_outputs(plan);
    } else {
        run.outcome.error = Some(json!({
            "code": "DeploymentFailed",
            "target": deployment,
            "message": "At least one resource deployment operation failed. Please list deployment operations for details. Please see https://aka.ms/arm-deployment-operations for usage details.",
            "details": run.errors,
        }));
    }
    run.outcome
}

/// The state of a running deployment.
pub(super) struct DeploymentRun<'r, 'c> {
    call: &'r mut OperationContext<'c>,
    outcome: DeploymentOutcome,
    /// The error objects of the failed resources.
    errors: Vec<Value>,
}

impl ResourceReader for DeploymentRun<'_, '_> {
    fn read_resource(
        &mut self,
        id: &AccessScope,
        api_version: &str,
    ) -> Result<Value, ResourceReadError> {
        let reply = self.send_to_resource(Method::GET, id, api_version, Bytes::new());
        if reply.status.is_success() {
            return Ok(reply_json(&reply));
        }
        let error = error_object(&reply);
        let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        Err(ResourceReadError { code: text("code"), message: text("message") })
    }
}

impl<'r, 'c> DeploymentRun<'r, 'c> {
    /// Creates a run without results.
    pub(super) fn new(call: &'r mut OperationContext<'c>) -> Self {
        Self { call, outcome: DeploymentOutcome::default(), errors: Vec::new() }
    }

    /// Writes a resource, and records the deployment operation. Returns whether the write
    /// succeeded.
    fn write_resource(
        &mut self,
        resource: &PlannedResource,
        body: Result<Value, TemplateError>,
    ) -> bool {
        let result = match body {
            // Azure evaluates the body of a resource even if its condition is false.
            Ok(_) if !resource.is_deployed => return true,
            Ok(body) => self.put_and_wait(resource, &body),
            Err(error) => Err((StatusCode::BAD_REQUEST, error.to_json())),
        };
        let target = Some(target_resource(resource));
        match result {
            Ok(status) => {
                self.record(DeploymentOperationKind::Create, status, None, target);
                self.outcome.deployed_resources.push(resource.id.clone());
                true
            }
            Err((status, mut error)) => {
                if error.get("target").is_none_or(Value::is_null) {
                    error["target"] = json!(resource.id);
                }
                self.errors.push(error.clone());
                self.record(DeploymentOperationKind::Create, status, Some(error), target);
                false
            }
        }
    }

    fn evaluate_outputs(&mut self, plan: &mut DeploymentPlan) {
        match plan.evaluate_outputs(self) {
            Ok(outputs) => {
                self.outcome.outputs = outputs;
                let kind = DeploymentOperationKind::EvaluateOutput;
                self.record(kind, StatusCode::OK, None, None);
            }
            Err(errors) => {
                let error = errors.to_json();
                let kind = DeploymentOperationKind::EvaluateOutput;
                self.record(kind, StatusCode::BAD_REQUEST, Some(error.clone()), None);
                self.outcome.error = Some(error);
            }
        }
    }

    fn record(
        &mut self,
        kind: DeploymentOperationKind,
        status: StatusCode,
        error: Option<Value>,
        target: Option<TargetResource>,
    ) {
        let id = self.call.ids.next_hex32().to_uppercase();
        let operation = DeploymentOperation {
            id: id.get(..16).unwrap_or(&id).to_owned(),
            tracking_id: self.call.ids.next_uuid(),
            kind,
            status_code: status.canonical_reason().unwrap_or_default().replace(' ', ""),
            error,
            target,
        };
        self.outcome.operations.push(operation);
    }

    /// Sends the `PUT` request of a resource, and polls its long-running operation. The error is
    /// the status of the reply and an error object.
    fn put_and_wait(
        &mut self,
        resource: &PlannedResource,
        body: &Value,
    ) -> Result<StatusCode, (StatusCode, Value)> {
        let body = Bytes::from(body.to_string());
        let reply = self.send_to_resource(Method::PUT, &resource.id, &resource.api_version, body);
        if !reply.status.is_success() {
            return Err((reply.status, error_object(&reply)));
        }
        let status = reply.status;
        let (state, error) = self.wait_for_completion(resource, reply);
        if state == "Succeeded" {
            return Ok(status);
        }
        let message = format!(
            "The resource write operation failed to complete successfully, because it reached terminal provisioning state '{state}'."
        );
        let details: Vec<_> = error.into_iter().collect();
        let code = "ResourceDeploymentFailure";
        let error = json!({ "code": code, "message": message, "details": details });
        Err((StatusCode::CONFLICT, error))
    }

    /// Polls until a write ends. Returns the provisioning state and the error object. Reference:
    /// "Track asynchronous Azure operations".
    fn wait_for_completion(
        &mut self,
        resource: &PlannedResource,
        reply: ServiceReply,
    ) -> (String, Option<Value>) {
        let url = |name| reply.header(name).map(str::to_owned);
        let status_url = url("azure-asyncoperation");
        let result_url = url("location").filter(|_| reply.status == StatusCode::ACCEPTED);
        let mut latest = reply;
        for _ in 0..MAX_POLLS {
            let body = reply_json(&latest);
            let state = match (&status_url, &result_url) {
                (Some(_), _) => body["status"].as_str().unwrap_or("InProgress"),
                (None, Some(_)) if latest.status == StatusCode::ACCEPTED => "InProgress",
                (None, Some(_)) if latest.status.is_success() => "Succeeded",
                (None, Some(_)) => "Failed",
                (None, None) => {
                    body["properties"]["provisioningState"].as_str().unwrap_or("Succeeded")
                }
            };
            if matches!(state, "Succeeded" | "Failed" | "Canceled") {
                let error = Some(&body["error"]).filter(|error| error.is_object());
                return (state.to_owned(), error.cloned());
            }
            latest = if let Some(url) = status_url.as_ref().or(result_url.as_ref()) {
                self.get_url(url)
            } else {
                let version = &resource.api_version;
                self.send_to_resource(Method::GET, &resource.id, version, Bytes::new())
            };
        }
        ("Failed".to_owned(), None)
    }

    fn get_url(&mut self, url: &str) -> ServiceReply {
        match url::Url::parse(url) {
            Ok(url) => {
                let query = url.query_pairs().into_owned().collect();
                self.send(Method::GET, url.path().to_owned(), query, Bytes::new())
            }
            Err(error) => ServiceReply::text(StatusCode::BAD_GATEWAY, error.to_string()),
        }
    }

    fn send_to_resource(
        &mut self,
        method: Method,
        id: &AccessScope,
        api_version: &str,
        body: Bytes,
    ) -> ServiceReply {
        let path = utf8_percent_encode(id.as_str(), PATH).to_string();
        let query = vec![("api-version".to_owned(), api_version.to_owned())];
        self.send(method, path, query, body)
    }

    /// Sends a request to the emulator with the token of the client.
    fn send(
        &mut self,
        method: Method,
        path: String,
        query: Vec<(String, String)>,
        body: Bytes,
    ) -> ServiceReply {
        let sent = self.call.request;
        let authorization = sent.headers.get(AUTHORIZATION).cloned();
        let headers: HeaderMap =
            authorization.into_iter().map(|value| (AUTHORIZATION, value)).collect();
        let request = ServiceRequest { method, path, query, headers, body, ..sent.clone() };
        self.call.run_arm_request(&request).unwrap_or_else(|| {
            let message = format!(
                "lanyard's local Azure does not implement `{} {}`.",
                request.method, request.path
            );
            let error = json!({ "code": "NotImplementedByEmulator", "message": message });
            ServiceReply::json(StatusCode::NOT_IMPLEMENTED, &json!({ "error": error }))
        })
    }
}

/// Parses the body of a reply; `null` if it is not JSON.
fn reply_json(reply: &ServiceReply) -> Value {
    serde_json::from_slice(&reply.body).unwrap_or_default()
}

/// Returns the error object in the body of a reply.
fn error_object(reply: &ServiceReply) -> Value {
    let mut body = reply_json(reply);
    match body.get_mut("error").map(Value::take) {
        Some(error) if error.is_object() => error,
        _ => {
            let reason = reply.status.canonical_reason().unwrap_or_default();
            let message =
                format!("The resource provider replied with the status {}.", reply.status);
            json!({ "code": reason.replace(' ', ""), "message": message })
        }
    }
}
