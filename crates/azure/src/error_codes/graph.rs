//! The error codes of Microsoft Graph.

use lanyard_clock::RetryClass::{Denied, Invalid, PreconditionFailed, Transient};
use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::http::HTTP;
use super::{Row, THROTTLED};

/// The error codes of Microsoft Graph.
pub static GRAPH: ErrorCodeTable = ErrorCodeTable {
    service: "Microsoft Graph",
    groups: &[
        ErrorCodeGroup { source: "https://learn.microsoft.com/graph/errors", rows: ROWS },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/graph/resolve-auth-errors",
            rows: ACCESS_ROWS,
        },
        HTTP,
    ],
};

const ACCESS_ROWS: &[Row] = &[
    Row::new(
        &["Authorization_RequestDenied", "Forbidden", "accessDenied"],
        Denied,
        "The identity lacks a permission in Microsoft Graph, or does not own the object.",
        "grant the signed-in identity the Graph permission that the operation needs, with the consent of an \
         administrator, and sign in again",
    )
    .of_missing_permission(),
    Row::new(
        &["Authorization_IdentityNotFound"],
        Denied,
        "The tenant does not know the identity of the token.",
        "check the tenant: the identity of the token must exist in it; a new one takes some minutes to work",
    ),
    Row::new(
        &["InvalidAuthenticationToken", "Authentication_MissingOrMalformed", "Unauthorized"],
        Denied,
        "Microsoft Graph does not accept the token.",
        "compare the tenant and the cloud of the identity with those of the command, and sign in again",
    ),
    Row::new(
        &["Authentication_ExpiredToken"],
        Denied,
        "The token has expired.",
        "sign in again, and check this host's clock",
    ),
];

const ROWS: &[Row] = &[
    Row::new(
        &["Request_ResourceNotFound", "ResourceNotFound", "itemNotFound", "NotFound"],
        Invalid,
        "The directory has no such object, or does not know a new one everywhere yet.",
        "check the id in the message and the tenant; an object that was just created takes some minutes to appear",
    ),
    Row::new(
        &["Request_BadRequest", "BadRequest"],
        Invalid,
        "The directory does not accept a value of the request, which the message names.",
        "correct the value in the message",
    ),
    Row::new(
        &["Request_UnsupportedQuery"],
        Invalid,
        "The directory does not support the query.",
        "report a defect of lanyard with the message",
    ),
    Row::new(
        &["Request_MultipleObjectsWithSameKeyValue", "ObjectConflict"],
        Denied,
        "Another object has the value, which must be unique.",
        "choose another value for the property in the message, or delete the other object, also from the deleted items",
    ),
    Row::new(
        &["Directory_QuotaExceeded"],
        Denied,
        "The identity or the tenant has as many objects as its quota permits.",
        "delete applications that are not used, also from the deleted items, or use an identity with a directory role",
    ),
    Row::new(
        &["HostNameNotOnVerifiedDomain"],
        Denied,
        "The identifier URI has a domain that the tenant has not verified.",
        "use an identifier URI of the form api://<client id>, or verify the domain",
    ),
    Row::new(
        &["CannotDeleteOrUpdateEnabledEntitlement"],
        Denied,
        "An enabled app role or permission cannot be deleted.",
        "disable the app role or permission first",
    ),
    Row::new(
        &["InvalidFederatedIdentityCredentialValue"],
        Invalid,
        "A value of the federated credential is invalid.",
        "correct issuer, subject or audience of the federated credential",
    ),
    Row::new(
        &[
            "InvalidValue",
            "InvalidPassword",
            "InvalidUpdate",
            "KeyNotUpdatable",
            "NoBackingApplicationObject",
        ],
        Invalid,
        "A property has a value that the directory does not accept.",
        "correct the property in the message",
    ),
    Row::new(
        &["PreconditionFailed"],
        PreconditionFailed,
        "The object has changed since it was read.",
        "run the command again: it reads the object first",
    ),
    Row::new(
        &["Conflict"],
        Denied,
        "The request conflicts with the state of the object.",
        "compare the state of the object with the message, which names the conflict",
    ),
    Row::new(
        &["TooManyRequests"],
        THROTTLED,
        "Microsoft Graph throttles the application or the tenant.",
        "wait; other callers share the limit of this identity and of the tenant",
    ),
    Row::new(
        &["InternalServerError", "ServiceUnavailable", "BadGateway", "GatewayTimeout"],
        Transient,
        "Microsoft Graph or a gateway in front of it failed.",
        "wait, and check the status of Microsoft Graph",
    ),
];
