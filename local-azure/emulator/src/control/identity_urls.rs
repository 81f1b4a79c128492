//! Issues identity URLs: the headers that Azure Resource Manager adds to a request for a resource provider.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::identity_url::issue_identity_url;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{ArmResourceId, EntraTenantId};
use serde::Deserialize;
use serde_json::json;

use super::{control_error, parse_body};

/// The body of `POST identity-urls`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct IssueIdentityUrlRequest {
    /// The id of the resource for which ARM calls the resource provider. It need not exist.
    resource_id: ArmResourceId,
    /// The region; by default that of the stored resource, or else of the default node.
    location: Option<String>,
    /// Whether to create the system-assigned identity of the resource, if it has none.
    #[serde(default)]
    system_assigned: bool,
}

/// `POST identity-urls`: the headers of a PUT that Azure Resource Manager forwards to a resource provider.
pub(super) fn issue_identity_url_headers(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let body: IssueIdentityUrlRequest = parse_body(call)?;
    let tenant = subscription_tenant(call, &body.resource_id)?;
    let location = require_location(call, &body)?;
    let now = call.now;
    let (azure, ids) = call.azure_and_ids();
    let existing = azure.directory.managed_identity(&body.resource_id).cloned();
    let own = existing.or_else(|| {
        body.system_assigned.then(|| {
            let resource = &body.resource_id;
            azure.directory.create_managed_identity(resource, tenant.clone(), ids, now)
        })
    });
    let resource = (body.resource_id, tenant.clone(), location);
    let url = issue_identity_url(&mut azure.identity_urls, resource, ids, now);
    let mut headers = json!({
        "x-ms-identity-url": url.url(call.clouds.public()),
        "x-ms-home-tenant-id": tenant,
    });
    if let Some(own) = own {
        headers["x-ms-identity-principal-id"] = json!(own.object_id);
    }
    Ok(ServiceReply::json(StatusCode::CREATED, &json!({ "headers": headers })))
}

/// Returns the tenant of the resource's subscription.
pub(super) fn subscription_tenant(
    call: &OperationContext<'_>,
    resource: &ArmResourceId,
) -> Result<EntraTenantId, ServiceReply> {
    let subscription = call.azure().resources.subscription(resource.subscription());
    subscription.map(|known| known.tenant.clone()).ok_or_else(|| {
        let message = "The local Azure has no subscription with the id in `resourceId`.";
        control_error(StatusCode::NOT_FOUND, "SubscriptionNotFound", message)
    })
}

/// Returns the region: the requested one, or that of the stored resource or the default node.
fn require_location(
    call: &OperationContext<'_>,
    body: &IssueIdentityUrlRequest,
) -> Result<String, ServiceReply> {
    let stored = body.resource_id.as_str().parse::<AccessScope>().ok();
    let stored = stored.and_then(|id| call.azure().resources.resource(&id));
    let stored = stored.and_then(|resource| resource.body.get("location")?.as_str());
    let default = || stored.unwrap_or(&call.azure().imds.default_node.machine.location).to_owned();
    let location = body.location.clone().unwrap_or_else(default);
    let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if location.is_empty() || !location.chars().all(is_label) {
        let message = "`location` is the name of a region, such as `eastus`.";
        return Err(control_error(StatusCode::BAD_REQUEST, "BodyInvalid", message));
    }
    Ok(location)
}
