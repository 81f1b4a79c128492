//! Error responses of Azure Resource Manager.
//!
//! The envelope is `{"error":{"code","message"}}`; clients branch on the code. Reference: "Troubleshoot
//! common Azure deployment errors" and the codes that the resource providers document.

use http::StatusCode;
use lanyard_emulator_core::token::AuthenticatedCaller;
use lanyard_emulator_state::authorization::{AccessScope, NearestMiss};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::ArmResourceId;
use serde_json::json;

/// An error reply of Azure Resource Manager, with the values for its message.
#[derive(Debug)]
pub enum ArmServiceError<'a> {
    /// The token is missing or invalid.
    InvalidToken {
        /// `AuthenticationFailed`, `InvalidAuthenticationToken…`, `ExpiredAuthenticationToken`.
        code: &'static str,
        /// The URL of the token service, with the tenant.
        authority: String,
        /// The problem of the token.
        message: String,
    },
    /// No role assignment grants the action.
    Unauthorized {
        /// The name of the caller.
        client: String,
        caller: &'a AuthenticatedCaller,
        action: &'a str,
        /// The scope for which the action was evaluated.
        scope: &'a AccessScope,
        /// Why the action is not granted.
        miss: NearestMiss<'a>,
    },
    /// The caller has the permission, but not for the resources that the request links.
    LinkedUnauthorized {
        /// The name of the caller.
        client: String,
        caller: &'a AuthenticatedCaller,
        action: &'a str,
        scope: &'a AccessScope,
        /// The linked resources without permission.
        missing: Vec<&'a LinkedAction<'a>>,
    },
    /// The request links a resource of a subscription that the tenant cannot access.
    LinkedSubscription {
        caller: &'a AuthenticatedCaller,
        /// The action that the link needs.
        action: &'a str,
        scope: &'a AccessScope,
        /// The id of the subscription.
        id: &'a str,
    },
    /// The query has no `api-version`.
    ApiVersionMissing,
    /// The value of `api-version` is not a version.
    ApiVersionInvalid(&'a str),
    /// The subscription does not exist.
    SubscriptionNotFound(&'a str),
    /// The resource group does not exist.
    ResourceGroupNotFound(&'a str),
    /// The resource does not exist.
    ResourceNotFound(&'a AccessScope),
    /// Another error with its status and code.
    Other(StatusCode, &'static str, String),
}

/// A resource that the body of a request links, and the action that the link needs there.
#[derive(Debug)]
pub struct LinkedAction<'a> {
    /// The action, such as `Microsoft.Network/virtualNetworks/subnets/join/action`.
    pub(super) action: &'a str,
    /// The linked resource.
    pub(super) scope: &'a AccessScope,
}

impl ArmServiceError<'_> {
    /// Converts the error to a reply; the request log records the code.
    pub fn to_reply(&self) -> ServiceReply {
        let (status, code) = self.status_and_code();
        let mut error = json!({ "error": { "code": code, "message": self.message() } });
        if let Self::ResourceNotFound(id) = self
            && MissingResource::classify(id) == MissingResource::RecordSet
        {
            // The DNS providers return the error without an envelope.
            error = error["error"].take();
        }
        if let Self::Unauthorized { miss, .. } = self {
            let info = json!({ "reason": miss.to_string() });
            error["error"]["additionalInfo"] = json!([{ "type": "AccessDecision", "info": info }]);
        }
        let reply = ServiceReply::json(status, &error)
            .with_header("x-ms-failure-cause", "gateway")
            .with_rejection_reason(code);
        match self {
            Self::InvalidToken { authority, message, .. } => {
                // The message quotes the token, and a double quote would end the header value.
                let message = message.replace('"', "'");
                reply.with_header(
                    "www-authenticate",
                    format!(
                        "Bearer authorization_uri=\"{authority}\", error=\"invalid_token\", error_description=\"{message}\""
                    ),
                )
            }
            Self::Unauthorized { action, scope, .. } => {
                reply.with_rejection_reason(format!("{code}: {action} at {scope}"))
            }
            _ => reply,
        }
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::InvalidToken { code, .. } => (StatusCode::UNAUTHORIZED, code),
            Self::Unauthorized { .. } => (StatusCode::FORBIDDEN, "AuthorizationFailed"),
            Self::LinkedUnauthorized { .. } | Self::LinkedSubscription { .. } => {
                (StatusCode::FORBIDDEN, "LinkedAuthorizationFailed")
            }
            Self::ApiVersionMissing => (StatusCode::BAD_REQUEST, "MissingApiVersionParameter"),
            Self::ApiVersionInvalid(_) => (StatusCode::BAD_REQUEST, "InvalidApiVersionParameter"),
            Self::SubscriptionNotFound(_) => (StatusCode::NOT_FOUND, "SubscriptionNotFound"),
            Self::ResourceGroupNotFound(_) => (StatusCode::NOT_FOUND, "ResourceGroupNotFound"),
            Self::ResourceNotFound(id) => {
                (StatusCode::NOT_FOUND, MissingResource::classify(id).error_code())
            }
            Self::Other(status, code, _) => (*status, code),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::InvalidToken { message, .. } | Self::Other(_, _, message) => message.clone(),
            Self::Unauthorized { client, caller, action, scope, miss } => {
                unauthorized_message(client, caller, action, scope, miss)
            }
            Self::LinkedUnauthorized { client, caller, action, scope, missing } => {
                let join = |text: &dyn Fn(&LinkedAction<'_>) -> String| {
                    missing.iter().map(|link| text(link)).collect::<Vec<_>>().join(",")
                };
                format!(
                    "The client '{client}' with object id '{}' has permission to perform action '{action}' on scope '{scope}'; however, it does not have permission to perform action(s) '{}' on the linked scope(s) '{}' (respectively) or the linked scope(s) are invalid.",
                    caller.object_id,
                    join(&|link| link.action.to_owned()),
                    join(&|link| link.scope.to_string()),
                )
            }
            Self::LinkedSubscription { caller, action, scope, id } => format!(
                "The client has permission to perform action '{action}' on scope '{scope}', however the current tenant '{}' is not authorized to access linked subscription '{id}'.",
                caller.tenant
            ),
            Self::ApiVersionMissing => {
                "The query parameter `api-version` is required on every request.".to_owned()
            }
            Self::ApiVersionInvalid(text) => format!("`{text}` is no api-version."),
            Self::SubscriptionNotFound(id) => {
                format!("The subscription '{id}' could not be found.")
            }
            Self::ResourceGroupNotFound(name) => {
                format!("Resource group '{name}' could not be found.")
            }
            Self::ResourceNotFound(id) => resource_not_found_message(id),
        }
    }
}

/// The kinds of missing resources for which resource providers return errors of their own. Azure Resource Manager
/// itself finds out that a top-level resource is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingResource {
    BlobContainer,
    /// A record set of a DNS zone.
    RecordSet,
    /// A child resource of a network resource, such as a subnet.
    NetworkChild,
    Other,
}

impl MissingResource {
    fn classify(id: &AccessScope) -> Self {
        let id: Result<ArmResourceId, _> = id.as_str().parse();
        let Ok(Some(kind)) = id.map(|id| id.resource_type()) else { return Self::Other };
        let kind = kind.to_ascii_lowercase();
        let parts: Vec<_> = kind.split('/').collect();
        match parts.as_slice() {
            ["microsoft.network", "dnszones" | "privatednszones", "virtualnetworklinks"] => {
                Self::Other
            }
            ["microsoft.network", "dnszones" | "privatednszones", _] => Self::RecordSet,
            ["microsoft.network", _, _, ..] => Self::NetworkChild,
            ["microsoft.storage", .., "containers"] => Self::BlobContainer,
            _ => Self::Other,
        }
    }

    const fn error_code(self) -> &'static str {
        match self {
            Self::BlobContainer => "ContainerNotFound",
            Self::RecordSet | Self::NetworkChild => "NotFound",
            Self::Other => "ResourceNotFound",
        }
    }
}

/// Returns Azure's message for a missing resource: type, name and resource group.
fn resource_not_found_message(id: &AccessScope) -> String {
    let segments: Vec<_> = id.as_str().trim_start_matches('/').split('/').collect();
    match (MissingResource::classify(id), segments.as_slice()) {
        (MissingResource::RecordSet, [_, subscription, _, group, .., name]) => format!(
            "The resource record '{name}' does not exist in resource group '{group}' of subscription \
             '{subscription}'."
        ),
        (MissingResource::NetworkChild, _) => format!("Resource {id} not found."),
        (_, [_, _, _, group, _, namespace, rest @ ..]) => format!(
            "The Resource '{namespace}/{}' under resource group '{group}' was not found. For more \
             details please go to https://aka.ms/ARMResourceNotFoundFix",
            rest.join("/")
        ),
        _ => format!("The resource '{id}' was not found."),
    }
}

/// Returns Azure's message for a denied request.
fn unauthorized_message(
    client: &str,
    caller: &AuthenticatedCaller,
    action: &str,
    scope: &AccessScope,
    miss: &NearestMiss<'_>,
) -> String {
    let client = format!("The client '{client}' with object id '{}'", caller.object_id);
    let refresh = "If access was recently granted, please refresh your credentials.";
    match miss {
        NearestMiss::ConditionNotMet(_) => format!(
            "{client} does not have authorization or an ABAC condition not fulfilled to perform action '{action}' over scope '{scope}' or the scope is invalid. {refresh}"
        ),
        _ => format!(
            "{client} does not have authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. {refresh}"
        ),
    }
}

/// Returns the reply to a malformed request: 400.
pub fn bad_request(code: &'static str, message: impl Into<String>) -> ServiceReply {
    ArmServiceError::Other(StatusCode::BAD_REQUEST, code, message.into()).to_reply()
}

/// Returns the reply to a request that conflicts with the stored state: 409.
pub fn conflict(code: &'static str, message: impl Into<String>) -> ServiceReply {
    ArmServiceError::Other(StatusCode::CONFLICT, code, message.into()).to_reply()
}
