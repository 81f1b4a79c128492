//! Rules for the properties of applications: identifier URIs, app roles and delegated permissions.

use std::collections::HashSet;

use http::StatusCode;
use lanyard_emulator_state::directory::{Application, EntraDirectory, Tenant};
use serde_json::{Map, Value};
use url::Url;

use super::access::GraphCall;
use super::application_entity::APPLICATION;
use super::error::GraphError;
use super::path::parse_object_id;

const IDENTIFIER_URIS: &str = "identifierUris";

/// Checks the identifier URIs that a change adds: unique in the tenant, and of a verified domain.
pub(super) fn check_identifier_uris(
    call: &GraphCall<'_, '_>,
    application: &Application,
    before: &Map<String, Value>,
) -> Result<(), GraphError> {
    if application.properties.get(IDENTIFIER_URIS) == before.get(IDENTIFIER_URIS) {
        return Ok(());
    }
    check_unique_uris(call, application)?;
    let was_set = |uri: &str| {
        let before = before.get(IDENTIFIER_URIS).and_then(Value::as_array);
        before.is_some_and(|uris| uris.iter().any(|known| known == uri))
    };
    let mut added = application.stored_texts(IDENTIFIER_URIS).filter(|uri| !was_set(uri));
    added.try_for_each(|uri| check_identifier_uri(call.directory(), application, uri))
}

/// Checks that no other application of the tenant has one of the identifier URIs, ignoring case.
pub(super) fn check_unique_uris(
    call: &GraphCall<'_, '_>,
    application: &Application,
) -> Result<(), GraphError> {
    let known: HashSet<_> = call
        .directory()
        .applications()
        .values()
        .filter(|other| other.object_id != application.object_id)
        .filter(|other| call.is_own_tenant(&other.tenant))
        .flat_map(|other| other.stored_texts(IDENTIFIER_URIS))
        .map(str::to_lowercase)
        .collect();
    if application.stored_texts(IDENTIFIER_URIS).any(|uri| known.contains(&uri.to_lowercase())) {
        return Err(GraphError::value_in_use(
            "Request_MultipleObjectsWithSameKeyValue",
            IDENTIFIER_URIS,
        ));
    }
    Ok(())
}

/// Checks that an `http` or `https` URI has a host in a verified domain; other schemes are free.
fn check_identifier_uri(
    directory: &EntraDirectory,
    application: &Application,
    uri: &str,
) -> Result<(), GraphError> {
    let Ok(parsed) = Url::parse(uri) else {
        return Err(GraphError::invalid_value(IDENTIFIER_URIS, APPLICATION));
    };
    if !matches!(parsed.scheme(), "http" | "https") {
        return Ok(());
    }
    let host = parsed.host_str().unwrap_or_default();
    let is_verified = |tenant: &Tenant| {
        let mut domain = Some(host);
        while let Some(name) = domain {
            if tenant.is_verified_domain(name) {
                return true;
            }
            domain = name.split_once('.').map(|(_, parent)| parent);
        }
        false
    };
    if directory.tenant(application.tenant.as_str()).is_some_and(is_verified) {
        return Ok(());
    }
    let message = format!(
        "Values of identifierUris property must use a verified domain of the organization or its subdomain: '{uri}'"
    );
    Err(GraphError::new(StatusCode::BAD_REQUEST, "HostNameNotOnVerifiedDomain", message)
        .with_detail("HostNameNotOnVerifiedDomain", IDENTIFIER_URIS))
}

/// Checks the app roles after a change.
pub(super) fn check_app_roles(
    application: &Application,
    before: &Map<String, Value>,
) -> Result<(), GraphError> {
    let roles = application.properties.get("appRoles");
    check_entitlements(roles, before.get("appRoles"), "appRoles")?;
    for role in roles.and_then(Value::as_array).into_iter().flatten() {
        let has_members =
            role.get("allowedMemberTypes").and_then(Value::as_array).is_some_and(|kinds| {
                !kinds.is_empty()
                    && kinds
                        .iter()
                        .all(|kind| matches!(kind.as_str(), Some("User" | "Application")))
            });
        if !has_members {
            return Err(GraphError::invalid_value("allowedMemberTypes", "AppRole"));
        }
    }
    Ok(())
}

/// Checks the delegated permissions that an application offers after a change.
pub(super) fn check_scopes(
    application: &Application,
    before: &Map<String, Value>,
) -> Result<(), GraphError> {
    let before = before.get("api").and_then(|api| api.get("oauth2PermissionScopes"));
    let scopes = application.nested_property("api", "oauth2PermissionScopes");
    check_entitlements(scopes, before, "oauth2PermissionScopes")
}

fn list_items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Checks that app roles or scopes have unique ids and values, and were disabled before their
/// removal.
fn check_entitlements(
    now: Option<&Value>,
    before: Option<&Value>,
    property: &str,
) -> Result<(), GraphError> {
    if now == before {
        return Ok(());
    }
    let (now, before) = (list_items(now), list_items(before));
    let (mut ids, mut values) = (HashSet::new(), HashSet::new());
    for entitlement in now {
        let id = entitlement.get("id").and_then(Value::as_str).and_then(parse_object_id);
        let id = id.ok_or_else(|| GraphError::invalid_value("id", property))?;
        if !ids.insert(id) {
            return Err(GraphError::bad_request(format!(
                "Request contains a property with duplicate values: '{id}' in '{property}'."
            )));
        }
        let value =
            entitlement.get("value").and_then(Value::as_str).filter(|text| !text.is_empty());
        if value.is_some_and(|value| !values.insert(value)) {
            return Err(GraphError::bad_request(format!(
                "Request contains a property with duplicate values: '{}' in '{property}'.",
                value.unwrap_or_default()
            )));
        }
    }
    let is_removed = |old: &&Value| !now.iter().any(|current| current.get("id") == old.get("id"));
    let is_enabled = |old: &Value| old.get("isEnabled") != Some(&Value::Bool(false));
    if before.iter().filter(is_removed).any(is_enabled) {
        return Err(GraphError::new(
            StatusCode::BAD_REQUEST,
            "CannotDeleteOrUpdateEnabledEntitlement",
            "Permission (scope or role) cannot be deleted or updated unless disabled first.",
        )
        .with_detail("CannotDeleteOrUpdateEnabledEntitlement", property));
    }
    Ok(())
}
