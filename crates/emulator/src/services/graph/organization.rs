//! The organization and its domains: read-only data of the tenant.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::access::GraphCall;
use super::entity::{json_reply, object_reply};
use super::error::{GraphError, GraphResult};
use super::rights::GraphRight;
use super::schema::properties;
use crate::directory::Tenant;
use crate::request::ServiceReply;

pub(super) fn list_organizations(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let organization = organization_json(path_tenant(call)?);
    Ok(collection_reply(call, "organization", &[organization]))
}

pub(super) fn get_organization(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadOrganization)?;
    let (tenant, id) = (path_tenant(call)?, call.path_parameter("id"));
    if !tenant.has_id(id) {
        return Err(GraphError::not_found(id));
    }
    Ok(object_reply(call, StatusCode::OK, "organization", organization_json(tenant)))
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
    Ok(object_reply(call, StatusCode::OK, "domains", domain))
}

fn path_tenant<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c Tenant, GraphError> {
    let id = &call.caller.tenant;
    call.directory().tenant(id.as_str()).ok_or_else(|| GraphError::not_found(id))
}

fn collection_reply(
    call: &GraphCall<'_, '_>,
    collection: &str,
    items: &[Map<String, Value>],
) -> ServiceReply {
    let context = format!("{}/$metadata#{collection}", call.root_url());
    json_reply(StatusCode::OK, &json!({ "@odata.context": context, "value": items }))
}

fn domain_names(tenant: &Tenant) -> Vec<String> {
    if tenant.domains.is_empty() { vec![tenant.initial_domain()] } else { tenant.domains.clone() }
}

fn organization_json(tenant: &Tenant) -> Map<String, Value> {
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
    properties([
        ("id", json!(tenant.id)),
        ("deletedDateTime", Value::Null),
        ("assignedPlans", json!([])),
        ("businessPhones", json!([])),
        ("city", Value::Null),
        ("country", Value::Null),
        ("countryLetterCode", json!("US")),
        ("displayName", json!(initial.split('.').next())),
        ("onPremisesSyncEnabled", Value::Null),
        ("technicalNotificationMails", json!([])),
        ("tenantType", json!("AAD")),
        ("verifiedDomains", json!(domains)),
    ])
}

fn domains_json(tenant: &Tenant) -> Vec<Map<String, Value>> {
    let initial = tenant.initial_domain();
    let domain = |name: String| {
        let is_initial = name == initial;
        properties([
            ("id", json!(name)),
            ("authenticationType", json!("Managed")),
            ("isAdminManaged", json!(true)),
            ("isDefault", json!(is_initial)),
            ("isInitial", json!(is_initial)),
            ("isRoot", json!(true)),
            ("isVerified", json!(true)),
            ("supportedServices", json!(["Email", "OfficeCommunicationsOnline"])),
        ])
    };
    domain_names(tenant).into_iter().map(domain).collect()
}
