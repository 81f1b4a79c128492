//! The way into a vault: who asks, and may they?

use lanyard_vocabulary::SecretName;

use super::kind::{ObjectKind, Right};
use super::refusal::Refusal;
use super::shelf::ShelfProblem;
use super::vault::Vault;
use crate::authorization::{AccessRequest, AccessScope, Plane};
use crate::call::{ApiVersionProblem, Call};
use crate::request::Reply;
use crate::token::{BearerProblem, Caller};

/// Lets a call in that has `right` on the object that its path names, or on the vault if it names
/// none, and hands out the vault.
///
/// The order is that of the service: challenge, token, right, request. So a caller without the
/// right learns nothing, not even whether the object is there.
pub(super) fn enter<'c>(call: &'c mut Call<'_>, right: Right) -> Result<&'c Vault, Reply> {
    let host = call.request.host.clone();
    let now = call.now;
    let Some(vault) = call.world.vaults.at_host_mut(&host) else {
        return Err(Refusal::NoVault { host: &host }.reply());
    };
    vault.sweep(now);
    let caller = authenticate(call, &host)?;
    let name = call.parameter("name").to_owned();
    let Some(vault) = call.world().vaults.at_host(&host) else {
        return Err(Refusal::NoVault { host: &host }.reply());
    };
    authorize(call, vault, &caller, right, &name)?;
    if let Err(problem) = call.api_version() {
        return Err(refuse_version(&problem));
    }
    if !name.is_empty() && name.parse::<SecretName>().is_err() {
        let rule = "a name has 1 to 127 letters, digits and `-`";
        return Err(Refusal::BadParameter(format!("`{name}`: {rule}")).reply());
    }
    Ok(vault)
}

/// The vault of a call that [`enter`] let in, to change.
pub(super) fn entered_mut<'c>(call: &'c mut Call<'_>) -> Result<&'c mut Vault, Reply> {
    let host = call.request.host.clone();
    call.world_mut()
        .vaults
        .at_host_mut(&host)
        .ok_or_else(|| Refusal::NoVault { host: &host }.reply())
}

/// The refusal for a problem of a shelf.
pub(super) fn refuse(problem: ShelfProblem, kind: ObjectKind, call: &Call<'_>) -> Reply {
    let (name, version) = (call.parameter("name"), call.parameter("version"));
    match problem {
        ShelfProblem::Missing => {
            let name =
                if version.is_empty() { name.to_owned() } else { format!("{name}/{version}") };
            Refusal::NotFound { kind, name }.reply()
        }
        ShelfProblem::Recoverable => Refusal::Recoverable { kind, name }.reply(),
    }
}

fn authenticate(call: &mut Call<'_>, host: &str) -> Result<Caller, Reply> {
    let Some(vault) = call.world().vaults.at_host(host) else {
        return Err(Refusal::NoVault { host }.reply());
    };
    let tenant = vault.settings.tenant.clone();
    let (authority, resource) = challenge(call, host, tenant.as_str());
    let found = call.bearer(&[&resource]);
    let message = match found {
        Ok(caller) if caller.tenant.as_str().eq_ignore_ascii_case(tenant.as_str()) => {
            return Ok(caller);
        }
        Ok(caller) => format!(
            "AKV10032: the token was issued by tenant `{}`, the vault belongs to tenant `{tenant}`",
            caller.tenant
        ),
        Err(BearerProblem::Missing) => {
            return Err(Refusal::Challenge { authority, resource }.reply());
        }
        Err(BearerProblem::Audience { found }) => {
            format!("AKV10022: the audience of the token is `{found}`, not `{resource}`")
        }
        Err(BearerProblem::Lifetime) => "AKV10000: the token is outside its lifetime".to_owned(),
        Err(BearerProblem::NotIssuedHere) => {
            "AKV10000: the token was not signed by a tenant of this world".to_owned()
        }
        Err(BearerProblem::Malformed) => "AKV10000: the bearer token is no token".to_owned(),
    };
    Err(Refusal::Token { authority, resource, message }.reply())
}

/// Authority and resource of the challenge. Values without blanks: Go splits at them. The first
/// path segment of the authority is the tenant: clients read it there.
fn challenge(call: &Call<'_>, host: &str, tenant: &str) -> (String, String) {
    let endpoints = call.site.cloud.endpoints();
    let authority = endpoints.map_or("login.microsoftonline.com", |known| known.authority_host);
    let suffix = host.split_once('.').map_or(host, |(_, suffix)| suffix);
    (format!("https://{authority}/{tenant}"), format!("https://{suffix}"))
}

fn authorize(
    call: &Call<'_>,
    vault: &Vault,
    caller: &Caller,
    right: Right,
    name: &str,
) -> Result<(), Reply> {
    if !vault.settings.rbac {
        return if permitted_by_policy(vault, caller, right) {
            Ok(())
        } else {
            let (kind, permission) = (right.kind, right.permission);
            Err(Refusal::ByPolicy { caller, kind, permission, vault }.reply())
        };
    }
    let scope = object_scope(vault, right.kind, name);
    let request = AccessRequest {
        principal_id: caller.object_id,
        plane: Plane::Data,
        action: right.action,
        scope: &scope,
    };
    match call.world().authorization.decide(request) {
        Ok(_) => Ok(()),
        Err(miss) => Err(Refusal::ByRole {
            caller,
            action: right.action,
            scope: scope.as_str(),
            vault,
            miss: miss.to_string(),
        }
        .reply()),
    }
}

/// The scope of an object, or of the vault if `name` is empty.
pub(crate) fn object_scope(vault: &Vault, kind: ObjectKind, name: &str) -> AccessScope {
    if name.is_empty() {
        vault.resource_id.clone()
    } else {
        vault.resource_id.child(&format!("{}/{name}", kind.collection()))
    }
}

fn permitted_by_policy(vault: &Vault, caller: &Caller, right: Right) -> bool {
    vault.settings.access_policies.iter().filter(|policy| policy.object_id == caller.object_id).any(
        |policy| {
            let permissions = match right.kind {
                ObjectKind::Secret => &policy.permissions.secrets,
                ObjectKind::Key => &policy.permissions.keys,
                ObjectKind::Certificate => &policy.permissions.certificates,
            };
            permissions.iter().any(|permission| {
                permission.eq_ignore_ascii_case(right.permission)
                    // `all` never included the right to purge.
                    || (permission.eq_ignore_ascii_case("all") && right.permission != "purge")
            })
        },
    )
}

fn refuse_version(problem: &ApiVersionProblem) -> Reply {
    let message = match problem {
        ApiVersionProblem::Missing => "the query parameter `api-version` is missing".to_owned(),
        ApiVersionProblem::Malformed(text) => format!("`{text}` is no api-version"),
    };
    Refusal::BadParameter(message).reply()
}
