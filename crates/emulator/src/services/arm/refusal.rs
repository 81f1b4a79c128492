//! What Azure Resource Manager says when it does not do what was asked.
//!
//! The envelope is `{"error":{"code","message"}}`; clients branch on the code. Reference: "Troubleshoot
//! common Azure deployment errors" and the codes that the resource providers document.

use http::StatusCode;
use serde_json::json;

use crate::authorization::AccessScope;
use crate::request::Reply;
use crate::token::Caller;

/// A refusal of Azure Resource Manager.
#[derive(Debug)]
pub(super) enum Refusal<'a> {
    /// The token is missing or does not count here.
    Token {
        /// `AuthenticationFailed`, `InvalidAuthenticationToken…`, `ExpiredAuthenticationToken`.
        code: &'static str,
        /// Where tokens are obtained: authority and tenant.
        authority: String,
        /// What is wrong with it.
        message: String,
    },
    /// No role assignment grants the action.
    Unauthorized {
        /// Who asked.
        caller: &'a Caller,
        /// The action.
        action: &'a str,
        /// The scope at which it was evaluated.
        scope: &'a AccessScope,
        /// Why no assignment grants it.
        miss: String,
    },
    /// The query has no `api-version`.
    NoApiVersion,
    /// `api-version` is no version.
    BadApiVersion(&'a str),
    /// There is no such subscription.
    NoSubscription(&'a str),
    /// There is no such resource group.
    NoResourceGroup(&'a str),
    /// There is no such resource.
    NoResource(&'a AccessScope),
    /// Another refusal with its status and code.
    Other(StatusCode, &'static str, String),
}

impl Refusal<'_> {
    /// The refusal as a reply; the ledger keeps the code.
    pub(super) fn reply(&self) -> Reply {
        let (status, code) = self.codes();
        let error = json!({ "error": { "code": code, "message": self.message() } });
        let reply =
            Reply::json(status, &error).with_header("x-ms-failure-cause", "gateway").because(code);
        match self {
            Self::Token { authority, message, .. } => {
                // The message repeats what the token says, and a quote would end the value.
                let message = message.replace('"', "'");
                reply.with_header(
                    "www-authenticate",
                    format!(
                        "Bearer authorization_uri=\"{authority}\", error=\"invalid_token\", error_description=\"{message}\""
                    ),
                )
            }
            Self::Unauthorized { action, scope, .. } => {
                reply.because(format!("{code}: {action} at {scope}"))
            }
            _ => reply,
        }
    }

    fn codes(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Token { code, .. } => (StatusCode::UNAUTHORIZED, code),
            Self::Unauthorized { .. } => (StatusCode::FORBIDDEN, "AuthorizationFailed"),
            Self::NoApiVersion => (StatusCode::BAD_REQUEST, "MissingApiVersionParameter"),
            Self::BadApiVersion(_) => (StatusCode::BAD_REQUEST, "InvalidApiVersionParameter"),
            Self::NoSubscription(_) => (StatusCode::NOT_FOUND, "SubscriptionNotFound"),
            Self::NoResourceGroup(_) => (StatusCode::NOT_FOUND, "ResourceGroupNotFound"),
            Self::NoResource(id) if is_container(id) => {
                (StatusCode::NOT_FOUND, "ContainerNotFound")
            }
            Self::NoResource(_) => (StatusCode::NOT_FOUND, "ResourceNotFound"),
            Self::Other(status, code, _) => (*status, code),
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Token { message, .. } | Self::Other(_, _, message) => message.clone(),
            Self::Unauthorized { caller, action, scope, miss } => format!(
                "The client '{}' with object id '{}' does not have authorization to perform action '{action}' over scope '{scope}': {miss}. Role assignments take some minutes to take effect after they were changed.",
                caller.app_id, caller.object_id
            ),
            Self::NoApiVersion => {
                "The query parameter `api-version` is required on every request.".to_owned()
            }
            Self::BadApiVersion(text) => format!("`{text}` is no api-version."),
            Self::NoSubscription(id) => format!("The subscription '{id}' could not be found."),
            Self::NoResourceGroup(name) => {
                format!("The resource group '{name}' could not be found.")
            }
            Self::NoResource(id) => format!("The resource '{id}' was not found."),
        }
    }
}

/// Whether an id is of a blob container, whose absence has a code of its own.
fn is_container(id: &AccessScope) -> bool {
    id.as_str().rsplit('/').nth(1).is_some_and(|kind| kind.eq_ignore_ascii_case("containers"))
}

/// A request that is not well-formed: 400.
pub(super) fn bad_request(code: &'static str, message: impl Into<String>) -> Reply {
    Refusal::Other(StatusCode::BAD_REQUEST, code, message.into()).reply()
}

/// A request that contradicts what is there: 409.
pub(super) fn conflict(code: &'static str, message: impl Into<String>) -> Reply {
    Refusal::Other(StatusCode::CONFLICT, code, message.into()).reply()
}
