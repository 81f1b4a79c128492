//! Resource providers and their registration in a subscription.
//!
//! Every resource provider is registered from the start. A client can unregister one; writes of its
//! types then fail as in a new subscription. Reference: "Azure resource providers and types".

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

use super::access::{authorize_call, json_reply, list_reply};
use super::error::{ArmServiceError, conflict};
use super::locations::regions_of_cloud;
use super::namespaces::{NAMESPACES, find_namespace};
use super::request_scopes::subscription_scope;
use super::resource_type::RegionRule;
use super::resource_types::{find_resource_type, implemented_types};

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!("Providers_List", GET, "/subscriptions/{subscription}/providers", list_providers),
    full!(
        "Providers_Get",
        GET,
        "/subscriptions/{subscription}/providers/{namespace}",
        get_provider
    ),
    full!(
        "Providers_Register",
        POST,
        "/subscriptions/{subscription}/providers/{namespace}/register",
        |call| set_registration(call, "register")
    ),
    full!(
        "Providers_Unregister",
        POST,
        "/subscriptions/{subscription}/providers/{namespace}/unregister",
        |call| set_registration(call, "unregister")
    ),
];

/// Returns the namespace as Azure spells it, or an error reply if Azure has no such namespace.
pub(super) fn require_namespace(name: &str) -> Result<&'static str, ServiceReply> {
    find_namespace(name).map(|(known, _)| known).ok_or_else(|| {
        ArmServiceError::Other(
            StatusCode::NOT_FOUND,
            "InvalidResourceNamespace",
            format!("The resource namespace '{name}' is invalid."),
        )
        .to_reply()
    })
}

/// Rejects a write of a resource whose resource provider is not registered in the subscription.
pub fn require_registered(
    call: &OperationContext<'_>,
    namespace: &str,
) -> Result<(), ServiceReply> {
    if is_registered(call, namespace) {
        return Ok(());
    }
    Err(conflict(
        "MissingSubscriptionRegistration",
        format!(
            "The subscription is not registered to use namespace '{namespace}'. See \
             https://aka.ms/rps-not-found for how to register subscriptions."
        ),
    ))
}

fn is_registered(call: &OperationContext<'_>, namespace: &str) -> bool {
    let unregistered = &call.azure().resources.settings.unregistered_namespaces;
    !unregistered.contains(&namespace.to_ascii_lowercase())
}

fn list_providers(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Resources/subscriptions/providers/read", &whole)?;
    let items = NAMESPACES.iter().map(|(name, version)| provider_json(call, name, version));
    let items = items.collect();
    list_reply(call, items)
}

fn get_provider(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    authorize_call(call, "Microsoft.Resources/subscriptions/providers/read", &whole)?;
    provider_reply(call)
}

fn set_registration(
    call: &mut OperationContext<'_>,
    action: &str,
) -> Result<ServiceReply, ServiceReply> {
    let (whole, named) = (subscription_scope(call)?, call.path_parameter("namespace"));
    authorize_call(call, &format!("{named}/{action}/action"), &whole)?;
    let namespace = require_namespace(named)?.to_ascii_lowercase();
    let unregistered = &mut call.azure_mut().resources.settings.unregistered_namespaces;
    if action == "register" {
        unregistered.remove(&namespace);
    } else {
        unregistered.insert(namespace);
    }
    provider_reply(call)
}

fn provider_reply(call: &OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let namespace = require_namespace(call.path_parameter("namespace"))?;
    let (namespace, version) = find_namespace(namespace).unwrap_or((namespace, ""));
    Ok(json_reply(call, StatusCode::OK, &provider_json(call, namespace, version)))
}

fn provider_json(call: &OperationContext<'_>, namespace: &str, newest: &str) -> Value {
    let regions: Vec<_> = regions_of_cloud(call.endpoint.cloud.name)
        .iter()
        .map(|region| region.display_name)
        .collect();
    let types: Vec<_> = implemented_types(call.services)
        .get(namespace)
        .into_iter()
        .flatten()
        .map(|name| {
            let known = find_resource_type(call.services, &format!("{namespace}/{name}"));
            let oldest = known.map(|known| known.oldest_api_version);
            let versions: Vec<_> =
                std::iter::once(newest).chain(oldest.filter(|oldest| *oldest != newest)).collect();
            let locations = match known.map(|known| known.region) {
                Some(RegionRule::Global) => vec!["global"],
                Some(RegionRule::None) => Vec::new(),
                Some(RegionRule::Regional) | None => regions.clone(),
            };
            json!({
                "resourceType": name,
                "locations": locations,
                "apiVersions": versions,
                "defaultApiVersion": newest,
                "capabilities": "SupportsTags, SupportsLocation",
            })
        })
        .collect();
    let state = if is_registered(call, namespace) { "Registered" } else { "NotRegistered" };
    json!({
        "id": format!("/subscriptions/{}/providers/{namespace}", call.path_parameter("subscription")),
        "namespace": namespace,
        "registrationState": state,
        "registrationPolicy": "RegistrationRequired",
        "resourceTypes": types,
    })
}
