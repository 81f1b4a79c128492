//! The resources of tokens, their delegated permissions, and how the two endpoint versions name them.

use lanyard_emulator_core::token::AccessTokenVersion;
use lanyard_emulator_state::azure_clouds::{AudienceService, EmulatedCloud};
use lanyard_emulator_state::directory::{
    Application, DirectoryReplica, ServicePrincipal, graph_principal_id,
};
use lanyard_vocabulary::EntraTenantId;
use serde_json::Value;
use uuid::{Uuid, uuid};

use super::error::{
    PARAMETER_MISSING, PERMISSION_UNKNOWN, RESOURCE_UNKNOWN, SCOPE_INVALID, SCOPE_NOT_DEFAULT,
    TokenServiceError,
};

/// The permission that stands for all permissions without further consent.
const DEFAULT_PERMISSION: &str = ".default";
/// The permission of every Azure service except Microsoft Graph.
const USER_IMPERSONATION: &str = "user_impersonation";
/// Azure Kubernetes Service AAD Server: API servers with Entra integration.
const AKS_SERVER: Uuid = uuid!("6dae42f8-4368-4678-94ff-3960e28e3630");

/// A resource that tokens can be issued for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenResource {
    /// The name of the resource as the client wrote it, including slashes.
    pub(crate) identifier: String,
    /// The `aud` of its tokens.
    pub(crate) audience: String,
    /// The format of its tokens.
    pub(crate) version: AccessTokenVersion,
    /// The object id of its service principal, which app role assignments name.
    principal_id: Option<Uuid>,
    kind: TokenResourceKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TokenResourceKind {
    /// Microsoft Graph, whose permissions the client application determines.
    Graph,
    /// Another service of Azure.
    AzureService,
    /// An application of the tenant.
    Application {
        /// The names of its enabled delegated permissions (`api.oauth2PermissionScopes`).
        permissions: Vec<String>,
        /// Whether tokens contain the groups of the user (`groupMembershipClaims`).
        has_group_claims: bool,
    },
}

impl TokenResource {
    /// Whether tokens of users contain the ids of their groups.
    pub(crate) const fn has_group_claims(&self) -> bool {
        matches!(self.kind, TokenResourceKind::Application { has_group_claims: true, .. })
    }

    /// The app roles of a service principal for the resource: `roles` of its tokens.
    pub(crate) fn app_roles(
        &self,
        directory: DirectoryReplica<'_>,
        principal: &ServicePrincipal,
    ) -> Vec<String> {
        let roles = self.principal_id.map(|id| directory.complete().app_role_values(principal, id));
        roles.unwrap_or_default()
    }

    fn azure_service(identifier: &str, tenant: &EntraTenantId, kind: TokenResourceKind) -> Self {
        Self {
            identifier: identifier.to_owned(),
            audience: identifier.to_owned(),
            version: AccessTokenVersion::V1,
            principal_id: (kind == TokenResourceKind::Graph).then(|| graph_principal_id(tenant)),
            kind,
        }
    }

    fn application(
        identifier: &str,
        application: &Application,
        principal: &ServicePrincipal,
    ) -> Self {
        let api = application.properties.get("api");
        let is_v2 = api.is_some_and(|api| api["requestedAccessTokenVersion"] == 2);
        let (version, audience) = if is_v2 {
            (AccessTokenVersion::V2, application.client_id.to_string())
        } else {
            (AccessTokenVersion::V1, identifier.to_owned())
        };
        let scopes = api.and_then(|api| api["oauth2PermissionScopes"].as_array());
        let enabled = scopes.into_iter().flatten().filter(|scope| scope["isEnabled"] != false);
        let permissions =
            enabled.filter_map(|scope| scope["value"].as_str()).map(ToOwned::to_owned).collect();
        let claims = application.properties.get("groupMembershipClaims").and_then(Value::as_str);
        let has_group_claims = claims.is_some_and(|claims| !["", "None"].contains(&claims));
        let kind = TokenResourceKind::Application { permissions, has_group_claims };
        let principal_id = Some(principal.object_id);
        Self { identifier: identifier.to_owned(), audience, version, principal_id, kind }
    }
}

/// Finds the resource with an identifier: a service of Azure, or an application of the tenant by its client id
/// or one of its `identifierUris`.
pub(crate) fn find_token_resource(
    directory: DirectoryReplica<'_>,
    cloud: &EmulatedCloud,
    tenant: &EntraTenantId,
    identifier: &str,
) -> Option<TokenResource> {
    if let Some(kind) = azure_service_kind(cloud, identifier) {
        return Some(TokenResource::azure_service(identifier, tenant, kind));
    }
    let by_client_id =
        identifier.parse().ok().map(|client| directory.application_by_client_id(client));
    let has_uri = |application: &&Application| {
        let uris = application.properties.get("identifierUris").and_then(Value::as_array);
        uris.into_iter().flatten().any(|uri| uri == identifier)
            || identifier.strip_prefix("api://") == Some(&application.client_id.to_string())
    };
    let application = by_client_id.unwrap_or_else(|| directory.applications().find(has_uri))?;
    let principal = directory.service_principal_by_client_id(application.client_id)?;
    (principal.tenant == *tenant && principal.enabled)
        .then(|| TokenResource::application(identifier, application, principal))
}

/// Finds the Azure service with an identifier, with or without one trailing slash.
fn azure_service_kind(cloud: &EmulatedCloud, identifier: &str) -> Option<TokenResourceKind> {
    if identifier.parse() == Ok(AKS_SERVER) {
        return Some(TokenResourceKind::AzureService);
    }
    Some(match cloud.service_of_audience(identifier)? {
        AudienceService::Graph => TokenResourceKind::Graph,
        AudienceService::Other => TokenResourceKind::AzureService,
    })
}

/// A requested permission: the identifier of a resource and the name.
struct RequestedPermission<'a> {
    /// `None` for a bare name such as `User.Read`, which belongs to Microsoft Graph.
    identifier: Option<&'a str>,
    name: &'a str,
}

/// The parts of a `scope` (version 2.0), without their resource.
#[derive(Default)]
struct ScopeParts<'a> {
    permissions: Vec<RequestedPermission<'a>>,
    openid: Vec<&'a str>,
    offline_access: bool,
}

impl<'a> ScopeParts<'a> {
    fn parse(scope: &'a str) -> Self {
        let mut parts = Self::default();
        for one in scope.split_whitespace() {
            match one {
                "openid" | "profile" | "email" => parts.openid.push(one),
                "offline_access" => parts.offline_access = true,
                // `https://management.core.windows.net//.default` names the resource with its slash.
                _ => parts.permissions.push(match one.rsplit_once('/') {
                    Some((identifier, name)) => {
                        RequestedPermission { identifier: Some(identifier), name }
                    }
                    None => RequestedPermission { identifier: None, name: one },
                }),
            }
        }
        parts
    }

    /// The one resource of all permissions; `None` if there are only scopes of OIDC.
    fn resource_identifier(&self, graph: &'a str) -> Result<Option<&'a str>, TokenServiceError> {
        let mut identifiers = self.permissions.iter().map(|one| one.identifier.unwrap_or(graph));
        let first = identifiers.next();
        if identifiers.any(|other| Some(other) != first) {
            return Err(SCOPE_INVALID.with_description(
                "The provided value for the input parameter 'scope' is not valid: it must name \
                 exactly one resource.",
            ));
        }
        Ok(first)
    }
}

/// Finds a resource, or returns the error for an unknown one.
pub(super) fn require_token_resource(
    directory: DirectoryReplica<'_>,
    cloud: &EmulatedCloud,
    tenant: &EntraTenantId,
    identifier: &str,
) -> Result<TokenResource, TokenServiceError> {
    find_token_resource(directory, cloud, tenant, identifier).ok_or_else(|| {
        RESOURCE_UNKNOWN.with_description(format!(
            "The resource principal named {identifier} was not found in the tenant named {tenant}. \
             This can happen if the application has not been installed by the administrator of \
             the tenant, or if the resource belongs to another cloud."
        ))
    })
}

/// Parses the identifier of the resource in the `scope` of an application: exactly one, with `/.default`.
pub(super) fn parse_application_scope(scope: &str) -> Result<&str, TokenServiceError> {
    let parts = ScopeParts::parse(scope);
    let [permission] = parts.permissions.as_slice() else {
        return Err(SCOPE_INVALID.with_description(
            "The provided value for the input parameter 'scope' is not valid: it must name \
             exactly one resource.",
        ));
    };
    match (permission.identifier, permission.name) {
        (Some(identifier), DEFAULT_PERMISSION) => Ok(identifier),
        _ => Err(SCOPE_NOT_DEFAULT.with_description(format!(
            "The provided value for scope {scope} is not valid. Client credential flows must have \
             a scope value with /.default suffixed to the resource identifier (application ID URI)."
        ))),
    }
}

/// What the client of a user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DelegatedScopes {
    pub(super) resource: TokenResource,
    /// The granted permissions: `scp` of the access token.
    pub(super) permissions: Vec<String>,
    /// `scope` of the reply: permissions with the identifier of their resource, as requested.
    pub(super) reply_scope: String,
    /// Whether an ID token is requested.
    pub(super) openid: bool,
    /// Whether a refresh token is requested.
    pub(super) offline_access: bool,
}

/// Parses the `scope` of a user's client (version 2.0).
///
/// `graph_permissions` are the permissions of Microsoft Graph that the client has without consent.
pub(super) fn parse_delegated_scope(
    directory: DirectoryReplica<'_>,
    cloud: &EmulatedCloud,
    tenant: &EntraTenantId,
    scope: &str,
    graph_permissions: &str,
) -> Result<DelegatedScopes, TokenServiceError> {
    let parts = ScopeParts::parse(scope);
    let graph = cloud.graph_url();
    let identifier = parts.resource_identifier(&graph)?.unwrap_or(&graph);
    let resource = require_token_resource(directory, cloud, tenant, identifier)?;
    let names: Vec<_> = parts.permissions.iter().map(|permission| permission.name).collect();
    let is_default = names.contains(&DEFAULT_PERMISSION);
    if is_default && names.len() > 1 {
        return Err(SCOPE_INVALID.with_description(
            "The provided value for the input parameter 'scope' is not valid: .default scope \
             can't be combined with resource-specific scopes.",
        ));
    }
    let mut permissions = if is_default {
        resource.default_permissions(graph_permissions)
    } else {
        resource.require_permissions(&names)?
    };
    let is_bare = parts.permissions.iter().all(|permission| permission.identifier.is_none());
    let qualified =
        |name: &str| if is_bare { name.to_owned() } else { format!("{identifier}/{name}") };
    let openid = || parts.openid.iter().map(|name| (*name).to_owned());
    let mut replied: Vec<_> = openid().collect();
    replied.extend(permissions.iter().map(|name| qualified(name)));
    if is_default {
        replied.push(qualified(DEFAULT_PERMISSION));
    }
    if resource.kind == TokenResourceKind::Graph {
        permissions.extend(openid());
    }
    Ok(DelegatedScopes {
        resource,
        permissions,
        reply_scope: replied.join(" "),
        openid: parts.openid.contains(&"openid"),
        offline_access: parts.offline_access,
    })
}

/// The `resource` of a user's client (version 1.0), which requests all permissions and every token.
pub(super) fn delegated_scopes_of_resource(
    resource: TokenResource,
    graph_permissions: &str,
) -> DelegatedScopes {
    let permissions = resource.default_permissions(graph_permissions);
    let reply_scope = permissions.join(" ");
    DelegatedScopes { resource, permissions, reply_scope, openid: true, offline_access: true }
}

impl TokenResource {
    /// The permissions that `.default` stands for.
    fn default_permissions(&self, graph_permissions: &str) -> Vec<String> {
        match &self.kind {
            TokenResourceKind::Graph => {
                graph_permissions.split_whitespace().map(ToOwned::to_owned).collect()
            }
            TokenResourceKind::AzureService => vec![USER_IMPERSONATION.to_owned()],
            TokenResourceKind::Application { permissions, .. } => permissions.clone(),
        }
    }

    /// The named permissions, all of which must exist. Microsoft Graph has any permission.
    fn require_permissions(&self, names: &[&str]) -> Result<Vec<String>, TokenServiceError> {
        let is_known = |name: &str| match &self.kind {
            TokenResourceKind::Graph => true,
            TokenResourceKind::AzureService => name == USER_IMPERSONATION,
            TokenResourceKind::Application { permissions, .. } => {
                permissions.iter().any(|known| known == name)
            }
        };
        match names.iter().find(|name| !is_known(name)) {
            None => Ok(names.iter().map(|name| (*name).to_owned()).collect()),
            Some(unknown) => Err(PERMISSION_UNKNOWN.with_description(format!(
                "The application asked for scope '{unknown}' that doesn't exist on the resource \
                 '{}'. Contact the app vendor.",
                self.identifier
            ))),
        }
    }
}

/// The error for a missing parameter.
pub(crate) fn missing_parameter_error(parameter: &str) -> TokenServiceError {
    PARAMETER_MISSING.with_description(format!(
        "The request body must contain the following parameter: '{parameter}'."
    ))
}

#[cfg(test)]
mod tests;
