//! Resource providers and their registration in a subscription.
//!
//! Every provider is registered from the start; a client can unregister it, and writes of its types then fail
//! as in a new subscription. Reference: "Azure resource providers and types".

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::access::{authorize_call, json_reply, list_reply, subscription_scope};
use super::error::{ArmServiceError, conflict};
use super::locations::regions_of_cloud;
use super::resource_type::{RegionRule, find_resource_type};
use crate::operation_context::OperationContext;
use crate::operations::ServiceOperation;
use crate::request::ServiceReply;

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
        register_provider
    ),
    full!(
        "Providers_Unregister",
        POST,
        "/subscriptions/{subscription}/providers/{namespace}/unregister",
        unregister_provider
    ),
];

/// The namespaces of the public cloud whose types the emulator knows or stores as given, with the newest
/// stable api-version of their main type in November 2026.
const NAMESPACES: &[(&str, &str)] = &[
    ("Microsoft.ApiManagement", "2024-05-01"),
    ("Microsoft.App", "2025-01-01"),
    ("Microsoft.Authorization", "2022-04-01"),
    ("Microsoft.Automation", "2023-11-01"),
    ("Microsoft.Cache", "2024-11-01"),
    ("Microsoft.CognitiveServices", "2025-06-01"),
    ("Microsoft.Compute", "2024-11-01"),
    ("Microsoft.ContainerInstance", "2024-11-01-preview"),
    ("Microsoft.ContainerRegistry", "2025-04-01"),
    ("Microsoft.ContainerService", "2025-10-01"),
    ("Microsoft.DBforPostgreSQL", "2024-08-01"),
    ("Microsoft.Dashboard", "2024-10-01"),
    ("Microsoft.DocumentDB", "2025-04-15"),
    ("Microsoft.EventGrid", "2025-02-15"),
    ("Microsoft.EventHub", "2024-01-01"),
    ("Microsoft.Insights", "2023-12-01"),
    ("Microsoft.KeyVault", "2024-11-01"),
    ("Microsoft.Kubernetes", "2024-01-01"),
    ("Microsoft.KubernetesConfiguration", "2024-11-01"),
    ("Microsoft.ManagedIdentity", "2024-11-30"),
    ("Microsoft.Management", "2021-04-01"),
    ("Microsoft.Monitor", "2023-04-03"),
    ("Microsoft.Network", "2024-07-01"),
    ("Microsoft.OperationalInsights", "2025-02-01"),
    ("Microsoft.PolicyInsights", "2024-10-01"),
    ("Microsoft.RedHatOpenShift", "2024-08-12-preview"),
    ("Microsoft.Resources", "2024-11-01"),
    ("Microsoft.Security", "2024-01-01"),
    ("Microsoft.ServiceBus", "2024-01-01"),
    ("Microsoft.Sql", "2023-08-01"),
    ("Microsoft.Storage", "2025-01-01"),
    ("Microsoft.Web", "2024-11-01"),
];

/// The namespace as Azure spells it, and its newest api-version.
fn find_namespace(name: &str) -> Option<(&'static str, &'static str)> {
    NAMESPACES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// The namespaces that a new subscription is registered to use.
const ALWAYS_REGISTERED: [&str; 2] = ["Microsoft.Authorization", "Microsoft.Resources"];

/// The namespaces in lower case, as settings store them. `*` stands for every namespace that a new
/// subscription is not registered to use. Returns an unknown namespace as the error.
pub(crate) fn resolve_namespaces(names: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
    let mut resolved = BTreeSet::new();
    for name in names {
        if name == "*" {
            let every = NAMESPACES.iter().map(|(known, _)| *known);
            let missing = every.filter(|known| !ALWAYS_REGISTERED.contains(known));
            resolved.extend(missing.map(str::to_ascii_lowercase));
        } else {
            let (known, _) = find_namespace(name).ok_or_else(|| name.clone())?;
            resolved.insert(known.to_ascii_lowercase());
        }
    }
    Ok(resolved)
}

/// Rejects a namespace that Azure does not have.
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

/// The types of each namespace for which the emulator has operations.
pub(super) fn implemented_types() -> &'static BTreeMap<&'static str, BTreeSet<String>> {
    static TYPES: LazyLock<BTreeMap<&'static str, BTreeSet<String>>> = LazyLock::new(|| {
        let mut types: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
        for row in super::OPERATIONS.iter().copied().flatten() {
            let Some((_, provider)) = row.path.rsplit_once("/providers/") else { continue };
            let mut segments = provider.split('/');
            let Some((namespace, _)) = segments.next().and_then(find_namespace) else { continue };
            // The names of instances are placeholders between the names of types.
            let names: Vec<_> = segments.filter(|part| !part.starts_with('{')).collect();
            // An action on an instance is no type.
            let is_action = row.method == Method::POST && provider.contains("}/");
            if !names.is_empty() && !is_action {
                types.entry(namespace).or_default().insert(names.join("/"));
            }
        }
        types
    });
    &TYPES
}

/// Rejects a write of a type whose provider is not registered in the subscription.
pub(super) fn require_registered(
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

fn register_provider(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    set_registration(call, "register")
}

fn unregister_provider(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    set_registration(call, "unregister")
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
    let types: Vec<_> = implemented_types()
        .get(namespace)
        .into_iter()
        .flatten()
        .map(|name| {
            let known = find_resource_type(&format!("{namespace}/{name}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_with_operations_belongs_to_a_listed_namespace() {
        assert!(NAMESPACES.is_sorted());
        let types = implemented_types();
        assert!(types["Microsoft.Network"].contains("virtualNetworks/subnets"));
        assert!(types["Microsoft.KeyVault"].contains("vaults"));
        for row in super::super::OPERATIONS.iter().copied().flatten() {
            let Some((_, provider)) = row.path.rsplit_once("/providers/") else { continue };
            let namespace = provider.split('/').next().unwrap_or_default();
            let open = namespace.starts_with('{');
            assert!(open || find_namespace(namespace).is_some(), "{}", row.id);
        }
    }
}
