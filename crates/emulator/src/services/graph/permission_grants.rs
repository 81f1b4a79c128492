//! Grants of delegated permissions (`oauth2PermissionGrants`).

use http::StatusCode;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::access::GraphCall;
use super::entity::{GraphEntity, created_reply, entity_reply, list_reply, no_content};
use super::error::{GraphError, GraphResult};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::path::parse_object_id;
use super::query::ListQuery;
use super::rights::GraphRight;
use super::schema::{GraphProperty, PropertyKind, properties};
use super::service_principals::path_principal;
use crate::directory::{DelegatedPermissionGrant, EntraDirectory, first_party_by_object_id};

const GRANT: &str = "OAuth2PermissionGrant";
const GRANTS: &str = "oauth2PermissionGrants";

const GRANT_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::create_only("clientId", PropertyKind::Text),
    GraphProperty::create_only("consentType", PropertyKind::Text),
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::create_only("principalId", PropertyKind::Text),
    GraphProperty::create_only("resourceId", PropertyKind::Text),
    GraphProperty::writable("scope", PropertyKind::Text),
];

impl DelegatedPermissionGrant {
    const fn consent_type(&self) -> &'static str {
        if self.principal_id.is_some() { "Principal" } else { "AllPrincipals" }
    }
}

impl GraphEntity for DelegatedPermissionGrant {
    const TARGET: FilterTarget = FilterTarget {
        resource: GRANT,
        type_name: "oAuth2PermissionGrant",
        properties: &[
            FilterableProperty::text("clientId"),
            FilterableProperty::text("consentType"),
            FilterableProperty::text("principalId"),
            FilterableProperty::text("resourceId"),
            FilterableProperty::text("scope"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = GRANT_PROPERTIES;

    fn id(&self) -> String {
        self.id.clone()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "clientId" => FilterValue::text(self.client_id.to_string()),
            "consentType" => FilterValue::text(self.consent_type()),
            "principalId" => self
                .principal_id
                .map_or(FilterValue::Null, |principal| FilterValue::text(principal.to_string())),
            "resourceId" => FilterValue::text(self.resource_id.to_string()),
            _ => FilterValue::text(&self.scope),
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        properties([
            ("clientId", json!(self.client_id)),
            ("consentType", json!(self.consent_type())),
            ("id", json!(self.id)),
            ("principalId", json!(self.principal_id)),
            ("resourceId", json!(self.resource_id)),
            ("scope", json!(self.scope)),
        ])
    }
}

pub(super) fn list_grants(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let query = ListQuery::parse::<DelegatedPermissionGrant>(call)?;
    let grants = call.directory().permission_grants().values();
    list_reply(call, GRANTS, &query, grants.filter(|grant| call.is_own_tenant(&grant.tenant)))
}

/// The grants whose client is the service principal in the path.
pub(super) fn list_grants_of_client(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    let client = path_principal(call)?.object_id;
    let query = ListQuery::parse::<DelegatedPermissionGrant>(call)?;
    let grants = call.directory().permission_grants().values();
    list_reply(call, GRANTS, &query, grants.filter(|grant| grant.client_id == client))
}

pub(super) fn get_grant(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::ReadApplications)?;
    entity_reply(call, StatusCode::OK, GRANTS, path_grant(call)?)
}

pub(super) fn create_grant(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::GrantDelegatedPermissions)?;
    let body = call.body()?;
    let grant = DelegatedPermissionGrant {
        id: call.next_opaque_id(),
        tenant: call.caller.tenant.clone(),
        client_id: existing_principal(call, &body, "clientId")?,
        principal_id: consenting_user(call, &body)?,
        resource_id: existing_principal(call, &body, "resourceId")?,
        scope: scope_text(&body)?.unwrap_or_default(),
    };
    let is_twin = |known: &DelegatedPermissionGrant| {
        (known.client_id, known.resource_id, known.principal_id)
            == (grant.client_id, grant.resource_id, grant.principal_id)
    };
    if call.directory().permission_grants().values().any(is_twin) {
        return Err(GraphError::new(
            StatusCode::CONFLICT,
            "Request_MultipleObjectsWithSameKeyValue",
            "Permission entry already exists.",
        ));
    }
    let reply = created_reply(call, GRANTS, &grant)?;
    call.directory_mut().insert_permission_grant(grant);
    Ok(reply)
}

pub(super) fn update_grant(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::GrantDelegatedPermissions)?;
    let mut grant = path_grant(call)?.clone();
    let body = call.body()?;
    if let Some(name) = body.keys().find(|name| *name != "scope" && !name.contains('@')) {
        return Err(GraphError::bad_request(format!(
            "Property '{name}' is read-only and cannot be set."
        )));
    }
    if let Some(scope) = scope_text(&body)? {
        grant.scope = scope;
    }
    call.directory_mut().insert_permission_grant(grant);
    Ok(no_content())
}

pub(super) fn delete_grant(call: &mut GraphCall<'_, '_>) -> GraphResult {
    call.caller.require(GraphRight::GrantDelegatedPermissions)?;
    let id = path_grant(call)?.id.clone();
    call.directory_mut().remove_permission_grant(&id);
    Ok(no_content())
}

fn path_grant<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c DelegatedPermissionGrant, GraphError> {
    let id = call.path_parameter("id");
    let found = call.directory().permission_grants().get(id);
    found.filter(|grant| call.is_own_tenant(&grant.tenant)).ok_or_else(|| GraphError::not_found(id))
}

fn existing_principal(
    call: &GraphCall<'_, '_>,
    body: &Map<String, Value>,
    property: &str,
) -> Result<Uuid, GraphError> {
    let text = body.get(property).and_then(Value::as_str);
    let text = text.ok_or_else(|| GraphError::value_required(property, GRANT))?;
    let id = parse_object_id(text).ok_or_else(|| GraphError::invalid_value(property, GRANT))?;
    let stored = call.directory().service_principal(id);
    let is_own = stored.is_some_and(|principal| call.is_own_tenant(&principal.tenant));
    if is_own || first_party_by_object_id(&call.caller.tenant, id).is_some() {
        Ok(id)
    } else {
        Err(GraphError::not_found(id))
    }
}

/// The user of a consent of the type `Principal`; `None` for `AllPrincipals`.
fn consenting_user(
    call: &GraphCall<'_, '_>,
    body: &Map<String, Value>,
) -> Result<Option<Uuid>, GraphError> {
    let user = body.get("principalId").and_then(Value::as_str);
    match (body.get("consentType").and_then(Value::as_str), user) {
        (Some("AllPrincipals"), None) => Ok(None),
        (Some("Principal"), Some(user)) => {
            let id = parse_object_id(user);
            let stored = id.and_then(|id| call.directory().user(id));
            match stored.filter(|user| call.is_own_tenant(&user.tenant)) {
                Some(user) => Ok(Some(user.object_id)),
                None => Err(GraphError::not_found(user)),
            }
        }
        (Some("AllPrincipals" | "Principal"), _) => {
            Err(GraphError::invalid_value("principalId", GRANT))
        }
        _ => Err(GraphError::invalid_value("consentType", GRANT)),
    }
}

fn scope_text(body: &Map<String, Value>) -> Result<Option<String>, GraphError> {
    match body.get("scope") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(scope)) => Ok(Some(scope.trim().to_owned())),
        Some(_) => Err(GraphError::invalid_value("scope", GRANT)),
    }
}
