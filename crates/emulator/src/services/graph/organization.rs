//! The organization and its domains: read-only data of the tenant.

use http::StatusCode;
use serde_json::{Value, json};

use super::access::GraphCall;
use super::entity::json_reply;
use super::error::GraphError;
use super::rights::GraphRight;
use crate::directory::Tenant;
use crate::request::ServiceReply;

type GraphResult = Result<ServiceReply, GraphError>;

pub(super) fn list_organizations(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let organization = organization_json(path_tenant(call)?);
    Ok(collection_reply(call, "organization", &[organization]))
}

pub(super) fn get_organization(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let (tenant, id) = (path_tenant(call)?, call.path_parameter("id"));
    if !tenant.id.as_str().eq_ignore_ascii_case(id) {
        return Err(GraphError::not_found(id));
    }
    Ok(object_reply(call, "organization", organization_json(tenant)))
}

pub(super) fn list_domains(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let domains = domains_json(path_tenant(call)?);
    Ok(collection_reply(call, "domains", &domains))
}

pub(super) fn get_domain(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let id = call.path_parameter("id");
    let domains = domains_json(path_tenant(call)?).into_iter();
    let mut found = domains.filter(|domain| {
        domain.get("id").and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case(id))
    });
    let domain = found.next().ok_or_else(|| GraphError::not_found(id))?;
    Ok(object_reply(call, "domains", domain))
}

fn path_tenant<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c Tenant, GraphError> {
    let id = &call.caller.tenant;
    call.directory().tenant(id.as_str()).ok_or_else(|| GraphError::not_found(id))
}

fn collection_reply(call: &GraphCall<'_, '_>, collection: &str, items: &[Value]) -> ServiceReply {
    let context = format!("{}/$metadata#{collection}", call.root_url());
    json_reply(StatusCode::OK, &json!({ "@odata.context": context, "value": items }))
}

fn object_reply(call: &GraphCall<'_, '_>, collection: &str, mut object: Value) -> ServiceReply {
    object["@odata.context"] = json!(format!("{}/$metadata#{collection}/$entity", call.root_url()));
    json_reply(StatusCode::OK, &object)
}

fn domain_names(tenant: &Tenant) -> Vec<String> {
    if tenant.domains.is_empty() { vec![tenant.initial_domain()] } else { tenant.domains.clone() }
}

fn organization_json(tenant: &Tenant) -> Value {
    let initial = tenant.initial_domain();
    let domains: Vec<_> = domain_names(tenant)
        .into_iter()
        .map(|name| {
            let is_initial = name == initial;
            json!({
                "capabilities": "Email, OfficeCommunicationsOnline",
                "isDefault": is_initial,
                "isInitial": is_initial,
                "name": name,
                "type": "Managed",
            })
        })
        .collect();
    json!({
        "id": tenant.id,
        "deletedDateTime": null,
        "assignedPlans": [],
        "businessPhones": [],
        "city": null,
        "country": null,
        "countryLetterCode": "US",
        "displayName": initial.split('.').next(),
        "onPremisesSyncEnabled": null,
        "technicalNotificationMails": [],
        "tenantType": "AAD",
        "verifiedDomains": domains,
    })
}

fn domains_json(tenant: &Tenant) -> Vec<Value> {
    let initial = tenant.initial_domain();
    let domain = |name: String| {
        let is_initial = name == initial;
        json!({
            "id": name,
            "authenticationType": "Managed",
            "isAdminManaged": true,
            "isDefault": is_initial,
            "isInitial": is_initial,
            "isRoot": true,
            "isVerified": true,
            "supportedServices": ["Email", "OfficeCommunicationsOnline"],
        })
    };
    domain_names(tenant).into_iter().map(domain).collect()
}
