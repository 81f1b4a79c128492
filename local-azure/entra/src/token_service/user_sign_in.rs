//! Users who sign in: which user, in which tenant, and whether the password is right.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use lanyard_emulator_state::directory::{DirectoryReplica, Tenant, User};
use uuid::Uuid;

use super::client::UserClient;
use super::error::{
    PASSWORD_WRONG, TENANT_UNKNOWN, TokenServiceError, USER_DISABLED, USER_NOT_IN_TENANT,
    USER_UNKNOWN,
};
use super::tenant_in_path::TenantInPath;

/// Finds the user with a principal name in the tenant of the path; an alias stands for any tenant.
fn find_user<'a>(
    directory: DirectoryReplica<'a>,
    path: TenantInPath<'_>,
    principal_name: &str,
) -> Result<&'a User, TokenServiceError> {
    let user = directory.user_by_name(principal_name);
    let in_path = |user: &&User| path.named().is_none_or(|tenant| tenant.id == user.tenant);
    user.filter(in_path).ok_or_else(|| {
        let tenant = path.named().map_or("any", |tenant| tenant.id.as_str());
        USER_UNKNOWN.with_description(format!(
            "The user account does not exist in the {tenant} directory. To sign into this \
             application, the account must be added to the directory."
        ))
    })
}

/// Finds an enabled user by name and password.
pub(super) fn sign_in_with_password<'a>(
    directory: DirectoryReplica<'a>,
    path: TenantInPath<'_>,
    principal_name: &str,
    password: &str,
) -> Result<&'a User, TokenServiceError> {
    let user = find_user(directory, path, principal_name)?;
    let known = user.password.expose();
    if verify_slices_are_equal(known.as_bytes(), password.as_bytes()).is_err() {
        return Err(PASSWORD_WRONG.with_description(
            "Error validating credentials due to invalid username or password.",
        ));
    }
    require_enabled(user)?;
    Ok(user)
}

/// Finds an enabled user by object id or principal name, without a password.
pub fn select_user<'a>(
    directory: DirectoryReplica<'a>,
    named: &str,
) -> Result<&'a User, TokenServiceError> {
    let by_id = named.parse::<Uuid>().ok().and_then(|id| directory.user(id));
    let user = by_id.or_else(|| directory.user_by_name(named)).ok_or_else(|| {
        USER_UNKNOWN.with_description(format!(
            "The user account '{named}' does not exist in any directory."
        ))
    })?;
    require_enabled(user)?;
    Ok(user)
}

pub(super) fn require_enabled(user: &User) -> Result<(), TokenServiceError> {
    if user.enabled {
        return Ok(());
    }
    Err(USER_DISABLED.with_description("The user account is disabled."))
}

/// The tenant that issues the tokens of a user: the user must be a member of the tenant in the path and of the
/// client's tenant.
pub(super) fn token_tenant<'a>(
    directory: DirectoryReplica<'a>,
    path: TenantInPath<'_>,
    client: &UserClient,
    user: &User,
) -> Result<&'a Tenant, TokenServiceError> {
    for required in [path.named(), client.tenant()].into_iter().flatten() {
        if required.id != user.tenant {
            return Err(USER_NOT_IN_TENANT.with_description(format!(
                "User account '{}' from identity provider 'https://sts.windows.net/{}/' does not \
                 exist in tenant '{}' and cannot access the application '{}' in that tenant. The \
                 account needs to be added as an external user in the tenant first.",
                user.principal_name,
                user.tenant,
                required.id,
                client.display_name()
            )));
        }
    }
    let missing =
        || TENANT_UNKNOWN.with_description(format!("Tenant '{}' not found.", user.tenant));
    directory.tenant(user.tenant.as_str()).ok_or_else(missing)
}
