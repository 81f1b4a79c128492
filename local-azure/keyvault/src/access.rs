//! Authentication and authorization of vault requests.

use std::sync::Arc;

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::{AuthenticatedCaller, BearerTokenError};
use lanyard_emulator_state::authorization::{AccessCheck, AccessScope, ActionPlane};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::private_endpoint_connections::has_private_endpoint;
use lanyard_emulator_state::vaults::object_kind::{KeyVaultObjectKind, VaultPermission};
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use lanyard_vocabulary::SecretName;

use super::api_version::VaultApiVersion;
use super::error::VaultServiceError;
use super::object_errors::invalid_name_reply;
use super::renewals::renew_due_objects;
use super::vault_view::{RequestedVault, VaultMut, VaultRef};

/// Checks the permission `right` on the object in the path, or on the vault if there is none, and returns the
/// vault.
///
/// The order is that of the service: challenge, token, firewall, permission, request. So a caller without the
/// permission cannot find out whether an object exists.
pub(super) fn authorize_call<'c>(
    call: &'c mut OperationContext<'_>,
    right: VaultPermission,
) -> Result<VaultRef<'c>, ServiceReply> {
    let name = call.path_parameter("name");
    let scope = (!name.is_empty()).then(|| format!("{}/{name}", right.kind.collection()));
    let reference = authorize_call_at(call, right, scope.as_deref())?;
    if !name.is_empty() && name.parse::<SecretName>().is_err() {
        return Err(invalid_name_reply(name));
    }
    Ok(reference)
}

/// Like [`authorize_call`], for a path such as `secrets/{name}`; `None` is the vault itself.
pub(super) fn authorize_call_at<'c>(
    call: &'c mut OperationContext<'_>,
    right: VaultPermission,
    below_vault: Option<&str>,
) -> Result<VaultRef<'c>, ServiceReply> {
    let request = call.request;
    let host = &*request.host;
    let now = call.now;
    call.azure.vaults.purge_expired(now);
    let caller = authenticate(call, host)?;
    let Some(vault) = call.azure().vaults.vault_at_host(host) else {
        return Err(VaultServiceError::VaultNotFound { host }.to_reply());
    };
    if let Some(client) = request.client_ip
        && let Err(rejection) = vault.settings.network.check(client)
        // The emulator does not know the networks of clients: if there is a private endpoint, they use it.
        && !has_private_endpoint(call.azure(), &vault.resource_id)
    {
        return Err(
            VaultServiceError::RejectedByFirewall { caller: &caller, rejection, vault }.to_reply()
        );
    }
    authorize(call, vault, &caller, right, below_vault)?;
    let api = VaultApiVersion::from_request(call)?;
    let name = Some(call.path_parameter("name")).filter(|name| !name.is_empty());
    renew_due_objects(call, host, name)?;
    let vaults = &call.azure().vaults;
    match vaults.vault_at_host(host) {
        Some(vault) => Ok(VaultRef { vault, vaults, api, cloud: &call.endpoint.cloud }),
        None => Err(VaultServiceError::VaultNotFound { host }.to_reply()),
    }
}

/// Returns the vault of a call that [`authorize_call`] permitted, with write access to the objects
/// of all vaults.
pub(super) fn authorized_vault_mut<'c>(
    call: &'c mut OperationContext<'_>,
) -> Result<VaultMut<'c>, ServiceReply> {
    let host = &*call.request.host;
    let api = VaultApiVersion::from_request(call)?;
    let cloud = Arc::clone(&call.endpoint.cloud);
    let vaults = &mut call.azure_mut().vaults;
    match vaults.vault_at_host(host).cloned() {
        Some(vault) => Ok(VaultMut { vaults, requested: RequestedVault { vault, api, cloud } }),
        None => Err(VaultServiceError::VaultNotFound { host }.to_reply()),
    }
}

/// Verifies the token of a request for the vault at `host`.
pub(super) fn authenticate(
    call: &mut OperationContext<'_>,
    host: &str,
) -> Result<Arc<AuthenticatedCaller>, ServiceReply> {
    let Some(vault) = call.azure().vaults.vault_at_host(host) else {
        return Err(VaultServiceError::VaultNotFound { host }.to_reply());
    };
    let tenant = vault.settings.tenant.clone();
    let [resource, without_port] = call.endpoint.cloud.vault_audiences(host);
    let message = match call.authenticate_bearer(&[&resource, &without_port]) {
        Ok(caller) if caller.tenant.as_str().eq_ignore_ascii_case(tenant.as_str()) => {
            return Ok(caller);
        }
        Ok(caller) => format!(
            "AKV10032: the token was issued by tenant `{}`, the vault belongs to tenant `{tenant}`",
            caller.tenant
        ),
        Err(BearerTokenError::Missing) => {
            let authority = challenge_authority(call, tenant.as_str());
            return Err(VaultServiceError::Challenge { authority, resource }.to_reply());
        }
        Err(BearerTokenError::Audience { found }) => {
            format!("AKV10022: the audience of the token is `{found}`, not `{resource}`")
        }
        Err(BearerTokenError::Lifetime) => "AKV10000: the token is outside its lifetime".to_owned(),
        Err(BearerTokenError::NotIssuedHere) => {
            "AKV10000: the token was not signed by a tenant of this local Azure".to_owned()
        }
        Err(problem @ BearerTokenError::Malformed) => format!("AKV10000: {problem}"),
    };
    let authority = challenge_authority(call, tenant.as_str());
    Err(VaultServiceError::InvalidToken { authority, resource, message }.to_reply())
}

/// Returns the authority URL for the challenge. Clients read the tenant from its first path
/// segment. It must not contain blanks, because Go clients split the header at them.
fn challenge_authority(call: &OperationContext<'_>, tenant: &str) -> String {
    format!("{}/{tenant}", call.endpoint.cloud.authority_url())
}

fn authorize(
    call: &OperationContext<'_>,
    vault: &EmulatedVault,
    caller: &AuthenticatedCaller,
    right: VaultPermission,
    below_vault: Option<&str>,
) -> Result<(), ServiceReply> {
    if !vault.settings.rbac {
        return if is_permitted_by_policy(call.azure(), vault, caller, right) {
            Ok(())
        } else {
            let (kind, permission) = (right.kind, right.permission);
            Err(VaultServiceError::DeniedByPolicy { caller, kind, permission, vault }.to_reply())
        };
    }
    let scope = match below_vault {
        Some(path) => vault.resource_id.child(path),
        None => vault.resource_id.clone(),
    };
    let check = AccessCheck {
        principal_id: caller.object_id,
        plane: ActionPlane::Data,
        action: right.action,
        scope: &scope,
        role_assignment: None,
        now: call.now,
    };
    match check.decide(call.azure()) {
        Ok(_) => Ok(()),
        Err(miss) => Err(VaultServiceError::DeniedByRole {
            caller,
            action: right.action,
            scope: scope.as_str(),
            vault,
            nearest_miss: miss.to_string(),
        }
        .to_reply()),
    }
}

/// The scope of an object, or of the vault if `name` is empty.
pub fn object_scope(vault: &EmulatedVault, kind: KeyVaultObjectKind, name: &str) -> AccessScope {
    if name.is_empty() {
        vault.resource_id.clone()
    } else {
        vault.resource_id.child(&format!("{}/{name}", kind.collection()))
    }
}

fn is_permitted_by_policy(
    azure: &AzureState,
    vault: &EmulatedVault,
    caller: &AuthenticatedCaller,
    right: VaultPermission,
) -> bool {
    let ids = azure.directory.principal_and_group_ids(caller.object_id);
    let policies = vault.settings.access_policies.iter();
    let of_caller = policies.filter(|policy| {
        ids.contains(&policy.object_id)
            && policy.application_id.is_none_or(|id| id == caller.app_id.uuid())
    });
    let mut granted = of_caller.flat_map(|policy| match right.kind {
        KeyVaultObjectKind::Secret => &policy.permissions.secrets,
        KeyVaultObjectKind::Key => &policy.permissions.keys,
        KeyVaultObjectKind::Certificate => &policy.permissions.certificates,
    });
    granted.any(|permission| {
        permission.eq_ignore_ascii_case(right.permission)
            // The access policy permission `all` does not include `purge`.
            || (permission.eq_ignore_ascii_case("all") && right.permission != "purge")
            || (permission.eq_ignore_ascii_case("manageissuers")
                && right.permission.ends_with("issuers"))
    })
}

#[cfg(test)]
mod tests;
