//! The objects of the caller's tenant: the object in the path of a request, with the check that the caller may
//! change it, and the objects of a type.

use std::borrow::Cow;

use lanyard_emulator_state::directory::{
    Application, Group, ServicePrincipal, User, first_party_by_client_id, first_party_by_object_id,
};
use lanyard_vocabulary::EntraClientId;
use uuid::Uuid;

use super::access::GraphCall;
use super::error::GraphError;
use super::path::{ObjectKey, PathCollection, parse_object_id};
use super::rights::GraphRight;

/// The application in the path, by object id, `appId` or `uniqueName`.
pub(super) fn path_application<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<&'c Application, GraphError> {
    let directory = call.directory();
    let segment = call.path_parameter("id");
    let key = ObjectKey::parse(segment);
    let found = match &key {
        ObjectKey::ObjectId(id) => directory.application(*id),
        ObjectKey::Alternate(..) => {
            let by_client = key.alternate("appId").and_then(|id| id.parse().ok());
            let by_client = by_client.and_then(|client| directory.application_by_client_id(client));
            by_client.or_else(|| {
                let name = key.alternate("uniqueName")?;
                tenant_applications(call).find(|application| {
                    application.properties.get("uniqueName").is_some_and(|known| known == name)
                })
            })
        }
        ObjectKey::Text(_) => return Err(GraphError::invalid_object_id(segment)),
    };
    found
        .filter(|application| call.is_own_tenant(&application.tenant))
        .filter(|application| call.is_addressable(application.object_id))
        .ok_or_else(|| GraphError::not_found(segment))
}

/// The application in the path, if the caller may change it.
pub(super) fn path_application_for_write<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<&'c Application, GraphError> {
    call.caller
        .require_any(&[GraphRight::WriteApplications, GraphRight::WriteOwnedApplications])?;
    let application = path_application(call)?;
    let is_owner = application.owners.contains(&call.caller.object_id);
    let is_allowed = is_owner || call.caller.has(GraphRight::WriteApplications);
    if is_allowed { Ok(application) } else { Err(GraphError::denied()) }
}

/// The applications of the tenant.
pub(super) fn tenant_applications<'c>(
    call: &'c GraphCall<'_, '_>,
) -> impl Iterator<Item = &'c Application> {
    let applications = call.directory().applications().values();
    applications.filter(|application| call.is_own_tenant(&application.tenant))
}

/// The group in the path, by object id or `uniqueName`.
pub(super) fn path_group<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c Group, GraphError> {
    let segment = call.path_parameter("id");
    let key = ObjectKey::parse(segment);
    let found = match &key {
        ObjectKey::ObjectId(id) => call.directory().group(*id),
        ObjectKey::Alternate(..) => key.alternate("uniqueName").and_then(|name| {
            tenant_groups(call)
                .find(|group| group.properties.get("uniqueName").is_some_and(|known| known == name))
        }),
        ObjectKey::Text(_) => return Err(GraphError::invalid_object_id(segment)),
    };
    found
        .filter(|group| call.is_own_tenant(&group.tenant))
        .filter(|group| call.is_addressable(group.object_id))
        .ok_or_else(|| GraphError::not_found(segment))
}

/// The group in the path, if the caller has a right or owns the group.
pub(super) fn path_group_for<'c>(
    call: &'c GraphCall<'_, '_>,
    right: GraphRight,
) -> Result<&'c Group, GraphError> {
    call.caller.require_any(&[right, GraphRight::WriteOwnedGroups])?;
    let group = path_group(call)?;
    let is_owner = group.owners.contains(&call.caller.object_id);
    if is_owner || call.caller.has(right) { Ok(group) } else { Err(GraphError::denied()) }
}

/// The groups of the tenant.
pub(super) fn tenant_groups<'c>(call: &'c GraphCall<'_, '_>) -> impl Iterator<Item = &'c Group> {
    call.directory().groups().values().filter(|group| call.is_own_tenant(&group.tenant))
}

/// The service principal in the path, by object id or `appId`; those of Microsoft's applications included.
pub(super) fn path_principal<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<Cow<'c, ServicePrincipal>, GraphError> {
    let segment = call.path_parameter("id");
    let key = ObjectKey::parse(segment);
    let found = match &key {
        ObjectKey::ObjectId(id) => principal_by_object_id(call, *id),
        ObjectKey::Alternate(..) => key
            .alternate("appId")
            .and_then(|id| id.parse().ok())
            .and_then(|client| principal_by_client_id(call, client)),
        ObjectKey::Text(_) => return Err(GraphError::invalid_object_id(segment)),
    };
    found
        .filter(|principal| call.is_own_tenant(&principal.tenant))
        .filter(|principal| call.is_addressable(principal.object_id))
        .ok_or_else(|| GraphError::not_found(segment))
}

/// Like [`path_principal`], without Microsoft's service principals, which are not stored.
pub(super) fn path_stored_principal<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<&'c ServicePrincipal, GraphError> {
    match path_principal(call)? {
        Cow::Borrowed(principal) => Ok(principal),
        Cow::Owned(known) => Err(GraphError::not_implemented(format!(
            "The emulator does not change '{}', a service principal of Microsoft's own application.",
            known.display_name
        ))),
    }
}

/// The service principal in the path, if the caller may change it. The service principals of managed
/// identities change with their Azure resources only.
pub(super) fn path_principal_for_write<'c>(
    call: &'c GraphCall<'_, '_>,
) -> Result<&'c ServicePrincipal, GraphError> {
    call.caller
        .require_any(&[GraphRight::WriteApplications, GraphRight::WriteOwnedApplications])?;
    let principal = path_stored_principal(call)?;
    let owner = call.caller.object_id;
    let owns = principal.owners.contains(&owner)
        || call
            .directory()
            .application_by_client_id(principal.client_id)
            .is_some_and(|application| application.owners.contains(&owner));
    if principal.is_managed_identity() || !(owns || call.caller.has(GraphRight::WriteApplications))
    {
        return Err(GraphError::denied());
    }
    Ok(principal)
}

/// The service principal with an object id; those of Microsoft's applications included.
pub(super) fn principal_by_object_id<'c>(
    call: &'c GraphCall<'_, '_>,
    id: Uuid,
) -> Option<Cow<'c, ServicePrincipal>> {
    let stored = call.directory().service_principal(id).map(Cow::Borrowed);
    stored.or_else(|| {
        let known = first_party_by_object_id(&call.caller.tenant, id)?;
        Some(Cow::Owned(known.service_principal(&call.caller.tenant)))
    })
}

/// The service principal of an application in the caller's tenant.
pub(super) fn principal_by_client_id<'c>(
    call: &'c GraphCall<'_, '_>,
    client: EntraClientId,
) -> Option<Cow<'c, ServicePrincipal>> {
    let stored = call.directory().service_principal_by_client_id(client);
    let own = stored.filter(|principal| call.is_own_tenant(&principal.tenant));
    own.map(Cow::Borrowed).or_else(|| {
        let known = first_party_by_client_id(client)?;
        Some(Cow::Owned(known.service_principal(&call.caller.tenant)))
    })
}

/// The user in the path, by object id or principal name; the signed-in user for `/me`.
pub(super) fn path_user<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c User, GraphError> {
    if call.collection() == Some(PathCollection::Me) {
        return signed_in_user(call);
    }
    let segment = call.path_parameter("id");
    let directory = call.directory();
    let found = match ObjectKey::parse(segment) {
        ObjectKey::ObjectId(id) => directory.user(id),
        ObjectKey::Alternate(..) | ObjectKey::Text(_) => directory.user_by_name(segment),
    };
    found
        .filter(|user| call.is_own_tenant(&user.tenant))
        .filter(|user| call.is_addressable(user.object_id))
        .ok_or_else(|| GraphError::not_found(segment))
}

fn signed_in_user<'c>(call: &'c GraphCall<'_, '_>) -> Result<&'c User, GraphError> {
    if !call.caller.is_user {
        return Err(GraphError::malformed(
            "/me request is only valid with delegated authentication flow.",
        ));
    }
    let id = call.caller.object_id;
    call.directory().user(id).ok_or_else(|| GraphError::not_found(id))
}

/// The object id of the user, group, service principal or other object in the path, which has the type of the
/// collection in the path.
pub(super) fn path_member_id(call: &GraphCall<'_, '_>) -> Result<Uuid, GraphError> {
    match call.collection() {
        Some(PathCollection::Me | PathCollection::Users) => Ok(path_user(call)?.object_id),
        Some(PathCollection::Groups) => Ok(path_group(call)?.object_id),
        Some(PathCollection::ServicePrincipals) => Ok(path_principal(call)?.object_id),
        Some(PathCollection::Applications | PathCollection::DirectoryObjects) | None => {
            let segment = call.path_parameter("id");
            let id =
                parse_object_id(segment).ok_or_else(|| GraphError::invalid_object_id(segment))?;
            let found = call.directory().object(id);
            found
                .filter(|object| call.is_own_tenant(object.tenant()) && call.is_addressable(id))
                .map(|object| object.object_id())
                .ok_or_else(|| GraphError::not_found(segment))
        }
    }
}
