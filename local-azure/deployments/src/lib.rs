//! Template deployments (`Microsoft.Resources/deployments`) to resource groups and subscriptions.
//!
//! `template` parses a template, `deployment_plan` validates it and orders its resources, and
//! `deployment_run` writes them. A deployment completes before the reply to its `PUT`; clients read
//! the result at the URL in the reply. Reference: Microsoft.Resources, Deployments, 2025-04-01.

mod composite_format;
mod deployment_plan;
mod deployment_request;
mod deployment_run;
mod deployment_scope;
mod evaluation;
mod expression;
mod planned_properties;
mod planned_resource;
mod resource_ids;
mod resource_index;
mod template;
mod template_error;
mod template_functions;
mod template_parameters;
mod template_resource;
mod template_value;
mod what_if;

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::StatusCode;
use lanyard_emulator_arm::access::{
    authorize_call, empty_reply, is_authorized, json_reply, list_reply, require_group,
};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::locations::{normalize_region, require_region};
use lanyard_emulator_arm::odata_filter::ODataFilter;
use lanyard_emulator_arm::request_scopes::{group_scope, subscription_scope};
use lanyard_emulator_arm::{full, rg, sub};
use lanyard_emulator_core::emulated_service::EmulatedService;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_service::AzureService;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::deployment_store::{DEPLOYMENT_TYPE, StoredDeployment};
use lanyard_emulator_state::resources::resource_store::{ArmResource, RESOURCE_GROUP_TYPE};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use self::deployment_plan::DeploymentPlan;
use self::deployment_request::{DeploymentRequest, template_error_reply};
use self::deployment_run::run_plan;
use self::deployment_scope::{DeploymentGroup, DeploymentScope};
use self::planned_properties::planned_properties;
use self::template::DeploymentTemplate;
use self::what_if::predict_changes;

/// The operations of template deployments, which precede those of the resource providers.
pub const SERVICE: EmulatedService = EmulatedService::new(
    AzureService::Arm,
    &[GROUP_OPERATIONS, SUBSCRIPTION_OPERATIONS, OPERATIONS_WITHOUT_PROVIDER],
);

/// An operation that validates templates.
macro_rules! template_operation {
    ($id:expr, $method:ident, $path:expr, $handler:path) => {
        ServiceOperation { support: TEMPLATE_SUPPORT, ..full!($id, $method, $path, $handler) }
    };
}

/// The operations of deployments to a scope. `$path` is the macro `rg` or `sub`.
macro_rules! deployment_operations {
    ($path:ident, $suffix:literal) => {
        &[
            full!(
                concat!("Deployments_List", $suffix),
                GET,
                $path!("Microsoft.Resources/deployments"),
                list_deployments
            ),
            template_operation!(
                concat!("Deployments_CreateOrUpdate", $suffix),
                PUT,
                $path!("Microsoft.Resources/deployments/{name}"),
                put_deployment
            ),
            full!(
                concat!("Deployments_CheckExistence", $suffix),
                HEAD,
                $path!("Microsoft.Resources/deployments/{name}"),
                check_deployment_exists
            ),
            full!(
                concat!("Deployments_Get", $suffix),
                GET,
                $path!("Microsoft.Resources/deployments/{name}"),
                get_deployment
            ),
            full!(
                concat!("Deployments_Delete", $suffix),
                DELETE,
                $path!("Microsoft.Resources/deployments/{name}"),
                delete_deployment
            ),
            template_operation!(
                concat!("Deployments_Validate", $suffix),
                POST,
                $path!("Microsoft.Resources/deployments/{name}/validate"),
                validate_deployment
            ),
            template_operation!(
                concat!("Deployments_WhatIf", $suffix),
                POST,
                $path!("Microsoft.Resources/deployments/{name}/whatIf"),
                predict_deployment
            ),
            full!(
                concat!("Deployments_Cancel", $suffix),
                POST,
                $path!("Microsoft.Resources/deployments/{name}/cancel"),
                cancel_deployment
            ),
            full!(
                concat!("Deployments_ExportTemplate", $suffix),
                POST,
                $path!("Microsoft.Resources/deployments/{name}/exportTemplate"),
                export_template
            ),
            full!(
                concat!("DeploymentOperations_List", $suffix),
                GET,
                $path!("Microsoft.Resources/deployments/{name}/operations"),
                list_operations
            ),
            full!(
                concat!("DeploymentOperations_Get", $suffix),
                GET,
                $path!("Microsoft.Resources/deployments/{name}/operations/{operation}"),
                get_operation
            ),
            full!(
                concat!("Deployments_GetStatus", $suffix),
                GET,
                $path!("Microsoft.Resources/deployments/{name}/operationStatuses/{status}"),
                get_status
            ),
        ]
    };
}

const TEMPLATE_SUPPORT: OperationSupport = OperationSupport::Partial(
    "templates of language version 1.0 without loops and nested deployments, with ten functions; \
     mode Incremental",
);

/// The operations of deployments to resource groups.
const GROUP_OPERATIONS: &[ServiceOperation] = deployment_operations!(rg, "");

/// The operations of deployments to subscriptions.
const SUBSCRIPTION_OPERATIONS: &[ServiceOperation] =
    deployment_operations!(sub, "AtSubscriptionScope");

/// Paths without the resource provider, which SDKs use for deployments to a resource group.
const OPERATIONS_WITHOUT_PROVIDER: &[ServiceOperation] = &[
    full!(
        "DeploymentOperations_ListWithoutProvider",
        GET,
        "/subscriptions/{subscription}/resourceGroups/{group}/deployments/{name}/operations",
        list_operations
    ),
    full!(
        "DeploymentOperations_GetWithoutProvider",
        GET,
        "/subscriptions/{subscription}/resourceGroups/{group}/deployments/{name}/operations/{operation}",
        get_operation
    ),
];

/// The scope and the id of the deployment in the path.
struct RequestedDeployment {
    scope: AccessScope,
    id: AccessScope,
}

impl RequestedDeployment {
    fn from_path(call: &OperationContext<'_>) -> Result<Self, ServiceReply> {
        let scope = requested_scope(call)?;
        let name = call.path_parameter("name");
        let id = scope.child(&format!("providers/{DEPLOYMENT_TYPE}/{name}"));
        Ok(Self { scope, id })
    }
}

/// Returns the resource group or subscription in the path.
fn requested_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    if call.path_parameter("group").is_empty() {
        return subscription_scope(call);
    }
    group_scope(call)
}

/// Checks the permission for `action` on the deployment in the path, and its resource group.
fn authorize_deployment(
    call: &mut OperationContext<'_>,
    action: &str,
) -> Result<(Arc<AuthenticatedCaller>, RequestedDeployment), ServiceReply> {
    let requested = RequestedDeployment::from_path(call)?;
    let caller = authorize_call(call, &format!("{DEPLOYMENT_TYPE}/{action}"), &requested.id)?;
    if !call.path_parameter("group").is_empty() {
        require_group(call)?;
    }
    Ok((caller, requested))
}

/// Returns the stored deployment in the path, if the caller has the permission for `action` on it.
fn authorized_deployment<'c>(
    call: &'c mut OperationContext<'_>,
    action: &str,
) -> Result<&'c StoredDeployment, ServiceReply> {
    let (_, requested) = authorize_deployment(call, action)?;
    let found = call.azure().resources.deployments.deployment(&requested.id);
    found.ok_or_else(|| {
        let name = requested.id.as_str().rsplit('/').next().unwrap_or_default();
        let message = format!("Deployment '{name}' could not be found.");
        ArmServiceError::Other(StatusCode::NOT_FOUND, "DeploymentNotFound", message).to_reply()
    })
}

fn put_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (caller, requested) = authorize_deployment(call, "write")?;
    let request = validate_request(call, &requested)?;
    let mut plan = validated_plan(call, &caller, &request)?;
    let is_new = call.azure().resources.deployments.deployment(&requested.id).is_none();
    let properties = deployment_properties(call, &request, &plan);
    let outcome = run_plan(call, &mut plan, &requested.id);
    let status_id = call.ids.next_uuid();
    let deployment = StoredDeployment {
        id: requested.id,
        scope: requested.scope,
        location: request.location,
        tags: request.tags,
        template: request.template,
        properties,
        timestamp: call.now,
        outcome,
        status_id,
    };
    let wire = deployment.accepted_json();
    let status_url = format!(
        "{}{}/operationStatuses/{status_id}?api-version={}",
        call.request.origin(),
        call.request.path,
        call.api_version().unwrap_or_default()
    );
    call.azure_mut().resources.deployments.insert(deployment);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json_reply(call, status, &wire).with_header("azure-asyncoperation", status_url))
}

fn validate_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (caller, requested) = authorize_deployment(call, "validate/action")?;
    let request = validate_request(call, &requested)?;
    let plan = validated_plan(call, &caller, &request)?;
    let mut properties = deployment_properties(call, &request, &plan);
    let deployed = plan.resources().iter().filter(|resource| resource.is_deployed);
    let resources: Vec<_> = deployed.map(|resource| json!({ "id": resource.id })).collect();
    properties.insert("provisioningState".to_owned(), json!("Succeeded"));
    properties.insert("validatedResources".to_owned(), json!(resources));
    let wire = json!({
        "id": requested.id,
        "name": call.path_parameter("name"),
        "type": DEPLOYMENT_TYPE,
        "properties": properties,
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `POST …/whatIf`: the changes that the deployment would make.
fn predict_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (caller, requested) = authorize_deployment(call, "whatIf/action")?;
    let request = validate_request(call, &requested)?;
    let mut plan = validated_plan(call, &caller, &request)?;
    let changes = predict_changes(call, &mut plan, &requested.scope, request.what_if_format);
    let wire = json!({
        "status": "Succeeded",
        "properties": { "correlationId": call.ids.next_uuid(), "changes": changes },
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Checks the name, the body and the region of a deployment.
fn validate_request(
    call: &OperationContext<'_>,
    requested: &RequestedDeployment,
) -> Result<DeploymentRequest, ServiceReply> {
    require_valid_name(call.path_parameter("name"))?;
    let mut request = DeploymentRequest::parse(call)?;
    lanyard_emulator_arm::tags::require_valid_tags(request.tags.as_ref())?;
    if !call.path_parameter("group").is_empty() {
        request.location = None;
        return Ok(request);
    }
    let location = request.location.as_deref().map(normalize_region).unwrap_or_default();
    if location.is_empty() {
        let message = "The location property is required for this definition.";
        return Err(bad_request("LocationRequired", message));
    }
    require_region(call, DEPLOYMENT_TYPE, &location)?;
    let existing = call.azure().resources.deployments.deployment(&requested.id);
    if let Some(current) = existing.and_then(|existing| existing.location.as_ref())
        && *current != location
    {
        let name = call.path_parameter("name");
        return Err(conflict(
            "InvalidDeploymentLocation",
            format!(
                "Invalid deployment location '{location}'. The deployment '{name}' already exists in \
                 location '{current}'."
            ),
        ));
    }
    request.location = Some(location);
    Ok(request)
}

/// Checks the name of a deployment. Reference: Deployments - Create Or Update, URI parameters.
fn require_valid_name(name: &str) -> Result<(), ServiceReply> {
    const MAX_CHARS: usize = 64;
    let is_valid = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '(' | ')');
    if name.chars().count() <= MAX_CHARS && name.chars().all(is_valid) {
        return Ok(());
    }
    Err(bad_request(
        "InvalidDeploymentName",
        format!(
            "The deployment name '{name}' is invalid. It has 1 to {MAX_CHARS} letters, digits, `-`, `_`, \
             `.`, `(` and `)`."
        ),
    ))
}

/// Validates the template, and checks that the caller may write its resources.
fn validated_plan(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    request: &DeploymentRequest,
) -> Result<DeploymentPlan, ServiceReply> {
    let scope = template_scope(call)?;
    let plan = DeploymentTemplate::parse(&request.template)
        .and_then(|template| DeploymentPlan::new(&template, &request.parameters, scope))
        .map_err(|error| template_error_reply(&error))?;
    if request.checks_permissions {
        require_permissions(call, caller, &plan)?;
    }
    Ok(plan)
}

/// Returns what template functions need to know about the scope in the path.
fn template_scope(call: &OperationContext<'_>) -> Result<DeploymentScope, ServiceReply> {
    let id = call.path_parameter("subscription");
    let resources = &call.azure().resources;
    let Some(subscription) = resources.subscription(id) else {
        return Err(ArmServiceError::SubscriptionNotFound(id).to_reply());
    };
    let group = if call.path_parameter("group").is_empty() {
        None
    } else {
        resources.resource(&group_scope(call)?)
    };
    Ok(DeploymentScope {
        subscription_id: subscription.id.to_string(),
        tenant_id: subscription.tenant.to_string(),
        subscription_name: subscription.name.clone(),
        group: group.map(|group| DeploymentGroup {
            name: group.name().to_owned(),
            resource: ArmResource::to_json(group),
        }),
    })
}

/// Rejects a deployment with a resource that the caller may not write.
fn require_permissions(
    call: &OperationContext<'_>,
    caller: &AuthenticatedCaller,
    plan: &DeploymentPlan,
) -> Result<(), ServiceReply> {
    let denied = plan.resources().iter().filter(|resource| resource.is_deployed).filter_map(|it| {
        let action = if it.resource_type.eq_ignore_ascii_case(RESOURCE_GROUP_TYPE) {
            "Microsoft.Resources/subscriptions/resourceGroups/write".to_owned()
        } else {
            format!("{}/write", it.resource_type)
        };
        (!is_authorized(call, caller, &action, &it.id)).then(|| {
            format!(
                "Authorization failed for template resource '{}' of type '{}'. The client '{}' with object id '{}' does not have permission to perform action '{action}' at scope '{}'.",
                it.name, it.resource_type, caller.app_id, caller.object_id, it.id
            )
        })
    });
    let denied: Vec<_> = denied.collect();
    let message = match denied.as_slice() {
        [] => return Ok(()),
        [one] => format!("The template deployment failed with error: '{one}'."),
        several => format!("Deployment failed with multiple errors: '{}'", several.join(":")),
    };
    Err(bad_request("InvalidTemplateDeployment", message))
}

/// Returns the properties of a deployment in replies that are known before it runs.
fn deployment_properties(
    call: &mut OperationContext<'_>,
    request: &DeploymentRequest,
    plan: &DeploymentPlan,
) -> Map<String, Value> {
    let mut properties = planned_properties(plan);
    let sent = call.request.header("x-ms-correlation-request-id");
    let correlation = sent.and_then(|id| Uuid::try_parse(id).ok());
    let correlation = correlation.unwrap_or_else(|| call.ids.next_uuid());
    properties.insert("templateHash".to_owned(), json!(template_hash(&request.template)));
    properties.insert("timestamp".to_owned(), json!(call.now.to_string()));
    properties.insert("correlationId".to_owned(), json!(correlation));
    properties
}

/// Returns a number that identifies a template, in decimal: equal templates have equal hashes.
fn template_hash(template: &Value) -> String {
    let hash = digest(&SHA256, template.to_string().as_bytes());
    let first = hash.as_ref().first_chunk().copied().unwrap_or_default();
    u64::from_be_bytes(first).to_string()
}

fn get_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let wire = authorized_deployment(call, "read")?.to_json();
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn check_deployment_exists(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (_, requested) = authorize_deployment(call, "read")?;
    let exists = call.azure().resources.deployments.deployment(&requested.id).is_some();
    let status = if exists { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND };
    Ok(empty_reply(call, status))
}

fn list_deployments(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = requested_scope(call)?;
    authorize_call(call, &format!("{DEPLOYMENT_TYPE}/read"), &scope)?;
    if !call.path_parameter("group").is_empty() {
        require_group(call)?;
    }
    let filter = ODataFilter::from_request(call, &["provisioningState"])?;
    let state = filter.equals_value("provisioningState");
    let items = call
        .azure()
        .resources
        .deployments
        .of_scope(&scope)
        .into_iter()
        .filter(|it| state.is_none_or(|state| it.outcome.state().eq_ignore_ascii_case(state)))
        .map(StoredDeployment::to_json)
        .collect();
    list_reply(call, items)
}

/// `DELETE`: removes the deployment from the history, but none of its resources.
fn delete_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (_, requested) = authorize_deployment(call, "delete")?;
    call.azure_mut().resources.deployments.remove(&requested.id);
    Ok(empty_reply(call, StatusCode::NO_CONTENT))
}

/// `POST …/cancel`: fails, because a deployment completes before a client can cancel it.
fn cancel_deployment(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let deployment = authorized_deployment(call, "cancel/action")?;
    let (name, state) = (deployment.name(), deployment.outcome.state());
    Err(conflict(
        "DeploymentCannotBeCancelled",
        format!(
            "The deployment '{name}' cannot be cancelled: its provisioning state is '{state}'."
        ),
    ))
}

fn export_template(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let deployment = authorized_deployment(call, "exportTemplate/action")?;
    let wire = json!({ "template": deployment.template });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn list_operations(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let deployment = authorized_deployment(call, "operations/read")?;
    let operations = deployment.outcome.operations.iter();
    let items = operations.map(|operation| deployment.operation_json(operation)).collect();
    list_reply(call, items)
}

fn get_operation(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = call.path_parameter("operation");
    let deployment = authorized_deployment(call, "operations/read")?;
    let found = deployment.outcome.operations.iter().find(|it| it.id.eq_ignore_ascii_case(id));
    let wire = found.map(|operation| deployment.operation_json(operation));
    let wire = wire.ok_or_else(|| {
        let message = format!("The deployment operation '{id}' could not be found.");
        let code = "DeploymentOperationNotFound";
        ArmServiceError::Other(StatusCode::NOT_FOUND, code, message).to_reply()
    })?;
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// `GET …/operationStatuses/{id}`: the result of the deployment.
fn get_status(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = call.path_parameter("status");
    let deployment = authorized_deployment(call, "operationStatuses/read")?;
    if !deployment.status_id.to_string().eq_ignore_ascii_case(id) {
        let message = format!("The deployment operation status '{id}' could not be found.");
        let code = "DeploymentOperationStatusNotFound";
        return Err(ArmServiceError::Other(StatusCode::NOT_FOUND, code, message).to_reply());
    }
    let mut wire = json!({ "status": deployment.outcome.state() });
    if let Some(error) = &deployment.outcome.error {
        wire["error"] = error.clone();
    }
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Validates the deployment of a template to a resource group, for fuzzing. Returns the number of
/// its resources, or `None` if the template is not valid.
#[cfg(feature = "fuzzing")]
pub fn plan_template(document: &Value) -> Option<usize> {
    let scope = DeploymentScope {
        subscription_id: "11111111-1111-1111-1111-111111111111".to_owned(),
        tenant_id: "22222222-2222-2222-2222-222222222222".to_owned(),
        subscription_name: "fuzzing".to_owned(),
        group: Some(DeploymentGroup {
            name: "group".to_owned(),
            resource: json!({ "name": "group", "location": "westeurope" }),
        }),
    };
    let template = DeploymentTemplate::parse(document).ok()?;
    let plan = DeploymentPlan::new(&template, &Map::new(), scope);
    Some(plan.ok()?.resources().len())
}

#[cfg(test)]
mod tests;
