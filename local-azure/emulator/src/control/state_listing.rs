//! Lists the state: ids and names, without secrets.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::{
    AccessCheck, AccessScope, ActionPlane, ParseAccessScopeError,
};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{
    EntraDirectory, ServicePrincipal, ServicePrincipalKind, Tenant,
};
use lanyard_emulator_state::identity_registry::ComponentIdentity;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::storage::account::StorageAccount;
use lanyard_emulator_state::vaults::object_store::{VersionContent, VersionedObjectStore};
use lanyard_emulator_state::vaults::vault::{EmulatedVault, VaultStore};
use serde_json::{Value, json};

use super::control_error;

/// `GET state`.
pub(super) fn list_azure_state(call: &OperationContext<'_>) -> ServiceReply {
    let azure = call.azure();
    let everywhere = AccessScope::root();
    let resources: Vec<_> =
        azure.resources.within(&everywhere).map(|resource| resource.id.as_str()).collect();
    let directory = &azure.directory;
    let principals: Vec<_> = directory
        .service_principals()
        .values()
        .map(|principal| principal_json(directory, principal))
        .collect();
    ServiceReply::json(
        StatusCode::OK,
        &json!({
            "tenants": azure.directory.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
            "components": azure.registry.holders.iter().map(component_json).collect::<Vec<_>>(),
            "principals": principals,
            "issuers": azure.directory.issuers.keys().collect::<Vec<_>>(),
            "vaults": azure.vaults.iter().map(|vault| vault_json(&azure.vaults, vault)).collect::<Vec<_>>(),
            "storageAccounts": azure.storage.accounts().map(|account| storage_account_json(azure, account)).collect::<Vec<_>>(),
            "resources": resources,
            "imds": {
                "assigned": azure.imds.default_node.assigned,
                "location": azure.imds.default_node.machine.location,
                "nodes": azure.imds.nodes.keys().collect::<Vec<_>>(),
            },
            "tokens": azure.tokens,
        }),
    )
}

/// `GET explain?principal=ID&scope=SCOPE&action=A` (or `dataAction=A`): the role assignment that
/// grants the action, or the nearest miss. The principal is a client id or an object id.
pub(super) fn explain_access(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let invalid = |message: &str| control_error(StatusCode::BAD_REQUEST, "QueryInvalid", message);
    let asked = |name: &str| call.request.query(name).filter(|text| !text.is_empty());
    let (plane, action) = match (asked("action"), asked("dataAction")) {
        (Some(action), None) => (ActionPlane::Control, action),
        (None, Some(action)) => (ActionPlane::Data, action),
        _ => return Err(invalid("Name `action` or `dataAction`, one of them.")),
    };
    let scope = asked("scope").ok_or_else(|| invalid("Name the `scope`."))?;
    let scope: AccessScope =
        scope.parse().map_err(|error: ParseAccessScopeError| invalid(&error.to_string()))?;
    let named = asked("principal").ok_or_else(|| invalid("Name the `principal`."))?;
    let directory = &call.azure().directory;
    let by_client =
        named.parse().ok().and_then(|client| directory.service_principal_by_client_id(client));
    let principal_id = match by_client {
        Some(principal) => principal.object_id,
        None => named.parse().map_err(|_no_id: uuid::Error| {
            invalid("`principal` is the client id or the object id of a principal.")
        })?,
    };
    let role_assignment = None;
    let now = call.now;
    let check = AccessCheck { principal_id, plane, action, scope: &scope, role_assignment, now };
    Ok(ServiceReply::json(StatusCode::OK, &check.explain(call.azure())))
}

fn storage_account_json(azure: &AzureState, account: &StorageAccount) -> Value {
    let containers = azure.storage.containers(&account.host, "");
    json!({
        "host": account.host,
        "resource": account.resource_id,
        "containers": containers.map(|(key, _)| &key.name).collect::<Vec<_>>(),
    })
}

pub(super) fn tenant_json(tenant: &Tenant) -> Value {
    json!({ "id": tenant.id, "domains": tenant.domains })
}

fn component_json(holder: &ComponentIdentity) -> Value {
    json!({
        "component": holder.component.name(),
        "clientId": holder.client_id,
        "objectId": holder.object_id,
        "tenant": holder.tenant,
        "resourceId": holder.resource_id,
        "vaultHost": holder.vault_host,
        "secretName": holder.secret_name,
        "encoding": holder.encoding,
        "notBefore": holder.not_before,
        "faults": holder.faults,
    })
}

pub(super) fn principal_json(directory: &EntraDirectory, principal: &ServicePrincipal) -> Value {
    let kind = match &principal.kind {
        ServicePrincipalKind::Application => "application",
        ServicePrincipalKind::ManagedIdentity { .. } => "managed-identity",
    };
    json!({
        "clientId": principal.client_id,
        "objectId": principal.object_id,
        "tenant": principal.tenant,
        "displayName": principal.display_name,
        "enabled": principal.enabled,
        "kind": kind,
        "resourceId": principal.resource_id(),
        "secrets": directory.passwords_of(principal).count(),
        "certificates": directory.keys_of(principal).count(),
        "subjectNameIssuer": principal.subject_name_issuer,
        "federatedCredentials": directory.federated_credentials_of(principal).collect::<Vec<_>>(),
    })
}

fn vault_json(vaults: &VaultStore, vault: &EmulatedVault) -> Value {
    json!({
        "host": vault.host,
        "tenant": vault.settings.tenant,
        "secrets": object_names(&vaults.secrets, &vault.host),
        "keys": object_names(&vaults.keys, &vault.host),
        "certificates": object_names(&vaults.certificates, &vault.host),
    })
}

fn object_names<'a, T: VersionContent>(
    store: &'a VersionedObjectStore<T>,
    host: &str,
) -> Vec<&'a str> {
    store.objects_after(host, None).map(|object| object.name.as_str()).collect()
}
