//! The first requests of clients: endpoints, tenants, subscriptions, locations.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::azure_clouds::EmulatedCloud;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::Subscription;
use lanyard_vocabulary::Cloud;
use serde_json::{Value, json};

use super::access::{authenticate, authorize_call, has_assignment_around, json_reply, list_reply};
use super::error::bad_request;
use super::locations::{Region, regions_of_cloud};
use super::request_scopes::{parse_request_scope, path_scope, subscription_scope};

/// `GET /metadata/endpoints`: one object from 2022-09-01 on, an array before. No token is needed.
pub(super) fn get_metadata_endpoints(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let Ok(version) = call.api_version() else {
        return Err(bad_request("MissingApiVersionParameter", "`api-version` is required."));
    };
    let as_array = version < "2022";
    let document = endpoints_json(&call.endpoint.cloud);
    let body = if as_array { json!([document]) } else { document };
    Ok(json_reply(call, StatusCode::OK, &body))
}

fn endpoints_json(cloud: &EmulatedCloud) -> Value {
    let name = match cloud.name {
        Cloud::Public => "AzureCloud",
        Cloud::UsGovernment => "AzureUSGovernment",
        other => other.name(),
    };
    let [arm, audience] = [cloud.arm_url(), cloud.arm_audience()].map(|url| format!("{url}/"));
    let mut audiences = vec![audience];
    if audiences[0] != arm {
        audiences.push(arm.clone());
    }
    let directory_graph = format!("{}/", cloud.directory_graph_url());
    let mut document = json!({
        "name": name,
        "resourceManager": arm,
        "portal": "https://portal.azure.com",
        "graph": directory_graph,
        "graphAudience": directory_graph,
        "microsoftGraphResourceId": format!("{}/", cloud.graph_url()),
        "gallery": "https://gallery.azure.com/",
        "batch": "https://batch.core.windows.net/",
        "media": "https://rest.media.azure.net",
        "activeDirectoryDataLake": "https://datalake.azure.net/",
        "sqlManagement": "https://management.core.windows.net:8443/",
        "vmImageAliasDoc": "https://raw.githubusercontent.com/Azure/azure-rest-api-specs/main/arm-compute/quickstart-templates/aliases.json",
        "authentication": {
            "loginEndpoint": format!("{}/", cloud.authority_url()),
            "audiences": audiences,
            "tenant": "common",
            "identityProvider": "AAD",
        },
        "suffixes": {
            "keyVaultDns": cloud.vault_authority_suffix(),
            "mhsmDns": cloud.managed_hsm_authority_suffix(),
            "storage": cloud.storage_authority_suffix(),
            "sqlServerHostname": "database.windows.net",
        },
    });
    if let Some(suffix) = cloud.registry_suffix() {
        document["suffixes"]["acrLoginServer"] = json!(suffix);
    }
    document
}

/// `GET /tenants`: the tenants in which the caller has an identity.
pub(super) fn list_tenants(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let tenant = json!({
        "id": format!("/tenants/{}", caller.tenant),
        "tenantId": caller.tenant,
        "tenantCategory": "Home",
        "displayName": "lanyard",
    });
    list_reply(call, vec![tenant])
}

/// `GET /subscriptions`: the subscriptions in which the caller has a role assignment on any scope.
pub(super) fn list_subscriptions(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let caller = authenticate(call)?;
    let mut items = Vec::new();
    for subscription in call.azure().resources.subscriptions.iter() {
        let whole = parse_request_scope(&format!("/subscriptions/{}", subscription.id))?;
        let is_visible = has_assignment_around(call, &caller, &whole);
        if is_visible && subscription.tenant == caller.tenant {
            items.push(subscription_json(subscription));
        }
    }
    list_reply(call, items)
}

/// `GET /subscriptions/{id}`.
pub(super) fn get_subscription(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let whole = path_scope(call)?;
    authorize_call(call, "Microsoft.Resources/subscriptions/read", &whole)?;
    let found = call
        .azure()
        .resources
        .subscription(call.path_parameter("subscription"))
        .map(subscription_json);
    Ok(json_reply(call, StatusCode::OK, &found.unwrap_or_default()))
}

/// `GET /subscriptions/{id}/locations`.
pub(super) fn list_locations(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Resources/subscriptions/locations/read", &whole)?;
    let regions = regions_of_cloud(call.endpoint.cloud.name);
    let items = regions.iter().map(|Region { name, display_name, geography_group }| {
        json!({
            "id": format!("{whole}/locations/{name}"),
            "name": name,
            "type": "Region",
            "displayName": display_name,
            "regionalDisplayName": format!("({geography_group}) {display_name}"),
            "metadata": {
                "regionType": "Physical",
                "regionCategory": "Recommended",
                "geographyGroup": geography_group,
            },
        })
    });
    list_reply(call, items.collect())
}

fn subscription_json(subscription: &Subscription) -> Value {
    json!({
        "id": format!("/subscriptions/{}", subscription.id),
        "subscriptionId": subscription.id,
        "tenantId": subscription.tenant,
        "displayName": subscription.name,
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
        "subscriptionPolicies": { "spendingLimit": "Off" },
    })
}
