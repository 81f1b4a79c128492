//! Authentication of Graph requests, and the rights of their callers.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::token::{AuthenticatedCaller, BearerTokenError};
use lanyard_emulator_state::directory::{
    DirectoryReader, EntraDirectory, MICROSOFT_GRAPH, RestorableObject,
};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::EntraTenantId;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::error::{ErrorContext, GraphError};
use super::path::PathCollection;
use super::rights::GraphRight;

/// The path parameter with the API version, the first segment of the path.
const VERSION: &str = "version";

/// An authenticated request to Microsoft Graph.
#[derive(Debug)]
pub(super) struct GraphCall<'c, 'o> {
    pub(super) context: &'c mut OperationContext<'o>,
    pub(super) caller: GraphCaller,
}

/// The caller of a request, with its rights.
#[derive(Debug, Clone)]
pub(super) struct GraphCaller {
    /// The object id of the user or the service principal.
    pub(super) object_id: Uuid,
    pub(super) tenant: EntraTenantId,
    /// Whether the caller is a signed-in user, not an application or a managed identity.
    pub(super) is_user: bool,
    rights: BTreeSet<GraphRight>,
}

/// The handler of a Graph operation.
pub(super) type GraphHandler = fn(&mut GraphCall<'_, '_>) -> Result<ServiceReply, GraphError>;

/// Authenticates a request, runs its handler, and adds the headers of Microsoft Graph.
pub(super) fn respond(
    context: &mut OperationContext<'_>,
    handler: GraphHandler,
) -> Result<ServiceReply, ServiceReply> {
    let request_id = context.ids.next_uuid().to_string();
    let client_request_id =
        context.request.header("client-request-id").filter(|id| id.len() <= 128);
    let result = authenticate(context)
        .and_then(|caller| handler(&mut GraphCall { context: &mut *context, caller }));
    let with_ids = |reply: ServiceReply| {
        let reply =
            reply.with_header("request-id", &request_id).with_header("cache-control", "no-cache");
        match client_request_id {
            Some(id) => reply.with_header("client-request-id", id),
            None => reply,
        }
    };
    match result {
        Ok(reply) => Ok(with_ids(reply)),
        Err(error) => Err(with_ids(error.to_reply(ErrorContext {
            now: context.now,
            request_id: &request_id,
            client_request_id,
        }))),
    }
}

fn authenticate(context: &mut OperationContext<'_>) -> Result<GraphCaller, GraphError> {
    let version = context.path_parameter(VERSION);
    if !version.eq_ignore_ascii_case("v1.0") && !version.eq_ignore_ascii_case("beta") {
        return Err(GraphError::malformed(format!("Invalid version: {version}.")));
    }
    let mut audiences = context.endpoint.cloud.graph_audiences();
    audiences.push(MICROSOFT_GRAPH.to_string());
    let caller = context.authenticate_bearer(&audiences).map_err(|error| token_error(&error))?;
    identify_caller(&context.azure().directory, &caller)
}

/// Finds the principal of a verified token.
fn identify_caller(
    directory: &EntraDirectory,
    caller: &AuthenticatedCaller,
) -> Result<GraphCaller, GraphError> {
    let AuthenticatedCaller { object_id, tenant, permissions, user, .. } = caller;
    let (object_id, is_user) = (*object_id, user.is_some());
    let rights = if is_user {
        let user = directory.user(object_id);
        user.map(|user| GraphRight::of_user(directory, user.object_id, permissions))
    } else {
        directory.service_principal(object_id).map(|principal| {
            GraphRight::of_service_principal(directory, principal.object_id, permissions)
        })
    };
    match rights {
        Some(rights) => Ok(GraphCaller { object_id, tenant: tenant.clone(), is_user, rights }),
        None => Err(GraphError::new(
            StatusCode::UNAUTHORIZED,
            "Authorization_IdentityNotFound",
            "The identity of the calling application could not be established.",
        )),
    }
}

fn token_error(error: &BearerTokenError) -> GraphError {
    let message = match error {
        BearerTokenError::Missing => "Access token is empty.",
        BearerTokenError::Malformed => "IDX14100: JWT is not well formed.",
        BearerTokenError::NotIssuedHere => "Signing key is invalid.",
        BearerTokenError::Audience { .. } => "Access token validation failure. Invalid audience.",
        BearerTokenError::Lifetime => "Lifetime validation failed, the token is expired.",
    };
    GraphError::new(StatusCode::UNAUTHORIZED, "InvalidAuthenticationToken", message)
}

impl GraphCaller {
    /// Whether the caller has a right.
    pub(super) fn has(&self, right: GraphRight) -> bool {
        self.rights.contains(&right)
    }

    /// Rejects a caller without any of `rights`.
    pub(super) fn require_any(&self, rights: &[GraphRight]) -> Result<(), GraphError> {
        if rights.iter().any(|right| self.has(*right)) { Ok(()) } else { Err(GraphError::denied()) }
    }

    /// Rejects a caller without a right.
    pub(super) fn require(&self, right: GraphRight) -> Result<(), GraphError> {
        self.require_any(&[right])
    }
}

impl<'o> GraphCall<'_, 'o> {
    /// The directory, for reading.
    pub(super) fn directory(&self) -> &EntraDirectory {
        &self.context.azure().directory
    }

    /// The directory, for changes.
    pub(super) fn directory_mut(&mut self) -> &mut EntraDirectory {
        &mut self.context.azure_mut().directory
    }

    /// Whether Microsoft Graph knows an object: a new one is unknown until it is replicated.
    pub(super) fn is_known(&self, id: Uuid) -> bool {
        self.directory().is_known_to(DirectoryReader::Graph, id, self.context.now)
    }

    /// The objects of the caller's tenant that were deleted, and that lists still contain.
    pub(super) fn listed_deleted_objects(&self) -> impl Iterator<Item = &RestorableObject> {
        let deleted = self.directory().listed_deleted_objects(self.context.now);
        deleted.filter(|object| self.is_own_tenant(object.as_directory_object().tenant()))
    }

    /// Whether the request may use an object by its id: reads need an object that Microsoft Graph knows, and
    /// changes reach the replica that created the object.
    pub(super) fn is_addressable(&self, id: Uuid) -> bool {
        self.context.request.method != Method::GET || self.is_known(id)
    }

    /// Whether a tenant is the caller's.
    pub(super) fn is_own_tenant(&self, tenant: &EntraTenantId) -> bool {
        tenant.as_str().eq_ignore_ascii_case(self.caller.tenant.as_str())
    }

    /// Like [`OperationContext::path_parameter`].
    pub(super) fn path_parameter(&self, name: &str) -> &'o str {
        self.context.path_parameter(name)
    }

    /// The collection at the start of the path.
    pub(super) fn collection(&self) -> Option<PathCollection> {
        PathCollection::of_path(self.context.request.segments())
    }

    /// The root of all URLs of this request's host and version.
    pub(super) fn root_url(&self) -> String {
        let version = self.path_parameter(VERSION).to_ascii_lowercase();
        format!("{}/{version}", self.context.request.origin())
    }

    /// The body as a JSON object.
    pub(super) fn body(&self) -> Result<Map<String, Value>, GraphError> {
        self.context.request.parse_json_body().map_err(|error| {
            GraphError::malformed(format!(
                "Unable to read JSON request payload. Please ensure Content-Type header is set and \
                 payload is of valid JSON format. Line {}, column {}.",
                error.line(),
                error.column()
            ))
        })
    }

    /// Whether a header contains a directive, such as `eventual`.
    pub(super) fn has_header_value(&self, name: &str, value: &str) -> bool {
        let header = self.context.request.header(name).unwrap_or_default();
        header.split([',', ';']).any(|part| part.trim().eq_ignore_ascii_case(value))
    }

    /// An id in the form of app role assignments and grants: 43 characters of base64url.
    pub(super) fn next_opaque_id(&mut self) -> String {
        use base64::Engine;
        let (one, other) = (self.context.ids.next_uuid(), self.context.ids.next_uuid());
        let bytes = [one.into_bytes(), other.into_bytes()].concat();
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
    }
}
