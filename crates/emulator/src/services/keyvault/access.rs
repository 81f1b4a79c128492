//! Authentication and authorization of vault requests.

use lanyard_vocabulary::SecretName;

use super::error::VaultServiceError;
use super::object_kind::{KeyVaultObjectKind, VaultPermission};
use super::object_store::ObjectStoreError;
use super::vault::{EmulatedVault, VaultStore};
use crate::authorization::{AccessCheck, AccessScope, ActionPlane};
use crate::operation_context::{ApiVersionError, OperationContext};
use crate::request::ServiceReply;
use crate::token::{AuthenticatedCaller, BearerTokenError};

/// A vault with the store of its objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct VaultRef<'a> {
    pub(super) vault: &'a EmulatedVault,
    pub(super) vaults: &'a VaultStore,
}

/// Checks the permission `right` on the object in the path, or on the vault if there is none, and returns the
/// vault.
///
/// The order is that of the service: challenge, token, permission, request. So a caller without the
/// permission cannot find out whether an object exists.
pub(super) fn authorize_call<'c>(
    call: &'c mut OperationContext<'_>,
    right: VaultPermission,
) -> Result<VaultRef<'c>, ServiceReply> {
    let host = call.request.host.clone();
    let now = call.now;
    call.world.vaults.purge_expired(now);
    let caller = authenticate(call, &host)?;
    let name = call.path_parameter("name").to_owned();
    let vaults = &call.world().vaults;
    let Some(vault) = vaults.vault_at_host(&host) else {
        return Err(VaultServiceError::VaultNotFound { host: &host }.to_reply());
    };
    authorize(call, vault, &caller, right, &name)?;
    if let Err(problem) = call.api_version() {
        return Err(api_version_error_reply(&problem));
    }
    if !name.is_empty() && name.parse::<SecretName>().is_err() {
        let rule = "a name has 1 to 127 letters, digits and `-`";
        return Err(VaultServiceError::BadParameter(format!("`{name}`: {rule}")).to_reply());
    }
    Ok(VaultRef { vault, vaults })
}

/// The objects of all vaults, for changes, with the vault of a call that [`authorize_call`] permitted.
pub(super) fn authorized_vault_mut<'c>(
    call: &'c mut OperationContext<'_>,
) -> Result<(&'c mut VaultStore, EmulatedVault), ServiceReply> {
    let host = call.request.host.clone();
    let vaults = &mut call.azure_mut().vaults;
    match vaults.vault_at_host(&host).cloned() {
        Some(vault) => Ok((vaults, vault)),
        None => Err(VaultServiceError::VaultNotFound { host: &host }.to_reply()),
    }
}

/// The reply to an error of the object store.
pub(super) fn store_error_reply(
    problem: ObjectStoreError,
    kind: KeyVaultObjectKind,
    call: &OperationContext<'_>,
) -> ServiceReply {
    let (name, version) = (call.path_parameter("name"), call.path_parameter("version"));
    match problem {
        ObjectStoreError::NotFound => {
            let name =
                if version.is_empty() { name.to_owned() } else { format!("{name}/{version}") };
            VaultServiceError::NotFound { kind, name }.to_reply()
        }
        ObjectStoreError::NameTaken => {
            VaultServiceError::DeletedButRecoverable { kind, name }.to_reply()
        }
    }
}

fn authenticate(
    call: &mut OperationContext<'_>,
    host: &str,
) -> Result<AuthenticatedCaller, ServiceReply> {
    let Some(vault) = call.world().vaults.vault_at_host(host) else {
        return Err(VaultServiceError::VaultNotFound { host }.to_reply());
    };
    let tenant = vault.settings.tenant.clone();
    let (authority, resource) = challenge_authority_and_resource(call, host, tenant.as_str());
    let found = call.authenticate_bearer(&[&resource]);
    let message = match found {
        Ok(caller) if caller.tenant.as_str().eq_ignore_ascii_case(tenant.as_str()) => {
            return Ok(caller);
        }
        Ok(caller) => format!(
            "AKV10032: the token was issued by tenant `{}`, the vault belongs to tenant `{tenant}`",
            caller.tenant
        ),
        Err(BearerTokenError::Missing) => {
            return Err(VaultServiceError::Challenge { authority, resource }.to_reply());
        }
        Err(BearerTokenError::Audience { found }) => {
            format!("AKV10022: the audience of the token is `{found}`, not `{resource}`")
        }
        Err(BearerTokenError::Lifetime) => "AKV10000: the token is outside its lifetime".to_owned(),
        Err(BearerTokenError::NotIssuedHere) => {
            "AKV10000: the token was not signed by a tenant of this world".to_owned()
        }
        Err(BearerTokenError::Malformed) => "AKV10000: the bearer token is no token".to_owned(),
    };
    Err(VaultServiceError::InvalidToken { authority, resource, message }.to_reply())
}

/// Authority and resource of the challenge. Values must not contain blanks, because Go splits at them. The
/// first path segment of the authority is the tenant: clients read it there.
fn challenge_authority_and_resource(
    call: &OperationContext<'_>,
    host: &str,
    tenant: &str,
) -> (String, String) {
    let endpoints = call.endpoint.cloud.endpoints();
    let authority = endpoints.map_or("login.microsoftonline.com", |known| known.authority_host);
    let suffix = host.split_once('.').map_or(host, |(_, suffix)| suffix);
    (format!("https://{authority}/{tenant}"), format!("https://{suffix}"))
}

fn authorize(
    call: &OperationContext<'_>,
    vault: &EmulatedVault,
    caller: &AuthenticatedCaller,
    right: VaultPermission,
    name: &str,
) -> Result<(), ServiceReply> {
    if !vault.settings.rbac {
        return if is_permitted_by_policy(vault, caller, right) {
            Ok(())
        } else {
            let (kind, permission) = (right.kind, right.permission);
            Err(VaultServiceError::DeniedByPolicy { caller, kind, permission, vault }.to_reply())
        };
    }
    let scope = object_scope(vault, right.kind, name);
    let check = AccessCheck {
        principal_id: caller.object_id,
        plane: ActionPlane::Data,
        action: right.action,
        scope: &scope,
        role_assignment: None,
        now: call.now,
    };
    match check.decide(call.world()) {
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
pub(crate) fn object_scope(
    vault: &EmulatedVault,
    kind: KeyVaultObjectKind,
    name: &str,
) -> AccessScope {
    if name.is_empty() {
        vault.resource_id.clone()
    } else {
        vault.resource_id.child(&format!("{}/{name}", kind.collection()))
    }
}

fn is_permitted_by_policy(
    vault: &EmulatedVault,
    caller: &AuthenticatedCaller,
    right: VaultPermission,
) -> bool {
    vault.settings.access_policies.iter().filter(|policy| policy.object_id == caller.object_id).any(
        |policy| {
            let permissions = match right.kind {
                KeyVaultObjectKind::Secret => &policy.permissions.secrets,
                KeyVaultObjectKind::Key => &policy.permissions.keys,
                KeyVaultObjectKind::Certificate => &policy.permissions.certificates,
            };
            permissions.iter().any(|permission| {
                permission.eq_ignore_ascii_case(right.permission)
                    // `all` never included the permission to purge.
                    || (permission.eq_ignore_ascii_case("all") && right.permission != "purge")
            })
        },
    )
}

fn api_version_error_reply(problem: &ApiVersionError) -> ServiceReply {
    let message = match problem {
        ApiVersionError::Missing => "the query parameter `api-version` is missing".to_owned(),
        ApiVersionError::Malformed(text) => format!("`{text}` is no api-version"),
    };
    VaultServiceError::BadParameter(message).to_reply()
}
