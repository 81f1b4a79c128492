//! Lists the state: ids and names, without secrets.

use http::StatusCode;
use serde_json::{Value, json};

use super::control_error;
use crate::authorization::{AccessRequest, AccessScope, ActionPlane, ParseAccessScopeError};
use crate::directory::{Principal, PrincipalKind, Tenant};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;
use crate::seed::ComponentIdentity;
use crate::services::keyvault::{EmulatedVault, VersionedObjectStore};

/// `GET world`.
pub(super) fn list_azure_state(call: &OperationContext<'_>) -> ServiceReply {
    let azure = call.world();
    let everywhere = AccessScope::root();
    let resources: Vec<_> =
        azure.resources.within(&everywhere).map(|resource| resource.id.as_str()).collect();
    ServiceReply::json(
        StatusCode::OK,
        &json!({
            "tenants": azure.directory.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
            "components": azure.registry.holders.iter().map(component_json).collect::<Vec<_>>(),
            "principals": azure.directory.principals.iter().map(principal_json).collect::<Vec<_>>(),
            "issuers": azure.directory.issuers.keys().collect::<Vec<_>>(),
            "vaults": azure.vaults.iter().map(vault_json).collect::<Vec<_>>(),
            "resources": resources,
            "imds": {
                "assigned": azure.imds.assigned,
                "location": azure.imds.machine.location,
            },
            "tokens": azure.tokens,
        }),
    )
}

/// `GET explain?principal=ID&scope=SCOPE&action=A` (or `dataAction=A`): the assignment that grants the
/// action, or the nearest miss. The principal is identified by its client id or its object id.
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
    let directory = &call.world().directory;
    let by_client = named.parse().ok().and_then(|client| directory.by_client_id(client));
    let principal_id = match by_client {
        Some(principal) => principal.object_id,
        None => named.parse().map_err(|_no_id: uuid::Error| {
            invalid("`principal` is the client id or the object id of a principal.")
        })?,
    };
    let request = AccessRequest { principal_id, plane, action, scope: &scope };
    Ok(ServiceReply::json(StatusCode::OK, &call.world().authorization.explain_decision(request)))
}

fn tenant_json(tenant: &Tenant) -> Value {
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

fn principal_json(principal: &Principal) -> Value {
    let kind = match &principal.kind {
        PrincipalKind::Application { .. } => "application",
        PrincipalKind::ManagedIdentity { .. } => "managed-identity",
    };
    json!({
        "clientId": principal.client_id,
        "objectId": principal.object_id,
        "tenant": principal.tenant,
        "displayName": principal.display_name,
        "enabled": principal.enabled,
        "kind": kind,
        "resourceId": principal.resource_id(),
        "secrets": principal.secrets.len(),
        "certificates": principal.certificates.len(),
        "subjectNameIssuer": principal.subject_name_issuer,
        "federatedCredentials": principal.federated_credentials,
    })
}

fn vault_json(vault: &EmulatedVault) -> Value {
    json!({
        "host": vault.host,
        "tenant": vault.settings.tenant,
        "secrets": object_names(&vault.secrets),
        "keys": object_names(&vault.keys),
        "certificates": object_names(&vault.certificates),
    })
}

fn object_names<T>(store: &VersionedObjectStore<T>) -> Vec<&str> {
    store.objects_after(None, false).map(|object| object.name.as_str()).collect()
}
