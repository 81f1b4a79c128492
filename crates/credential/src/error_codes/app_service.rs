//! The errors of the identity endpoint of App Service.

use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::{IDENTITY_NOT_FOUND, NO_MANAGED_IDENTITY_FOUND, Row, THROTTLED};
use lanyard_clock::RetryClass::{Denied, Transient};

/// The errors of the identity endpoint of App Service, Functions and Container Apps. Most have no code.
pub static APP_SERVICE: ErrorCodeTable = ErrorCodeTable {
    service: "the identity endpoint of App Service",
    groups: &[ErrorCodeGroup {
        source: "https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference",
        rows: ROWS,
    }],
};

const UNASSIGNED: &str = "assign the identity to the app, or correct the client id: the identity is not assigned to this app";

const ROWS: &[Row] = &[
    Row::without_code(
        Denied,
        "The requested identity is not assigned to the app, or the app has no identity.",
        UNASSIGNED,
    )
    .with_message_part(NO_MANAGED_IDENTITY_FOUND),
    Row::new(
        &["invalid_request"],
        Denied,
        "The requested identity is not assigned to the app, or the app has no identity.",
        UNASSIGNED,
    )
    .with_message_part(IDENTITY_NOT_FOUND),
    Row::new(
        &["invalid_request"],
        Denied,
        "Several user-assigned identities are assigned to the app, and the request names none.",
        "name one of the identities by its client id",
    )
    .with_message_part("multiple user assigned identities exist"),
    Row::without_code(
        Denied,
        "The endpoint does not accept the header `X-IDENTITY-HEADER`.",
        "read IDENTITY_HEADER again: its value changes when the app restarts",
    )
    .with_statuses(&[(401, 401), (403, 403)]),
    Row::without_code(
        Denied,
        "The endpoint does not know the API version of the request.",
        "check IDENTITY_ENDPOINT: the service there does not have the API version 2019-08-01",
    )
    .with_message_part("api-version"),
    Row::of_status(
        &[(429, 429)],
        THROTTLED,
        "The app sends more requests than the endpoint permits.",
        "find the processes of this app that request tokens without caching them",
    ),
    Row::of_status(
        &[(404, 404), (410, 410)],
        Transient,
        "The endpoint is being updated, or the app has no identity.",
        "try again in a minute, because the endpoint may be being updated; then check the identities of the app",
    ),
    Row::of_status(
        &[(408, 408), (500, 599)],
        Transient,
        "The endpoint has a transient error.",
        "wait: the request is repeated",
    ),
];
