//! The error codes of the Azure Instance Metadata Service.

use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::{IDENTITY_NOT_FOUND, Row, THROTTLED};
use lanyard_clock::RetryClass::{Denied, Transient};

/// The error codes of the token endpoint of the Azure Instance Metadata Service (IMDS).
pub static IMDS: ErrorCodeTable = ErrorCodeTable {
    service: "the Azure Instance Metadata Service",
    groups: &[ErrorCodeGroup {
        source: "https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token#error-handling",
        rows: ROWS,
    }],
};

const ROWS: &[Row] = &[
    Row::new(
        &["invalid_request"],
        Denied,
        "Several user-assigned identities are assigned to the host, and the request names none.",
        "name one of the identities by its client id, for example in `userAssignedIdentityID` of a \
         SecretProviderClass or of an azure.json",
    )
    .with_message_part("multiple user assigned identities exist"),
    Row::new(
        &["invalid_request"],
        Denied,
        "The requested identity is not assigned to the host, or the host has no identity.",
        "assign the identity to the virtual machine or scale set, or correct the client id: the identity is not \
         assigned to this host",
    )
    .with_message_part(IDENTITY_NOT_FOUND),
    Row::new(
        &["invalid_request"],
        Denied,
        "The request selects the identity in several ways.",
        "name the identity by its client id, its object id or its resource id, but not by several of them",
    )
    .with_message_part("only one of"),
    Row::new(
        &["invalid_request", "bad_request_102"],
        Denied,
        "The header `Metadata: true` is missing, because a proxy or gateway dropped it.",
        "reach the service without a proxy: check AZURE_POD_IDENTITY_AUTHORITY_HOST and the routes of this host",
    )
    .with_message_part("metadata header not specified"),
    Row::new(
        &["invalid_request"],
        Denied,
        "A proxy forwarded the request, which the service rejects.",
        "reach the service without a proxy: check AZURE_POD_IDENTITY_AUTHORITY_HOST and the routes of this host",
    )
    .with_message_part("x-forwarded-for"),
    Row::new(
        &["invalid_request"],
        Denied,
        "The service does not know the API version of the request.",
        "check AZURE_POD_IDENTITY_AUTHORITY_HOST: the service there does not have the token API of IMDS",
    )
    .with_message_part("version"),
    Row::new(
        &["invalid_request"],
        Denied,
        "The request names no resource.",
        "request a token for a scope of the form <audience>/.default",
    )
    .with_message_part("'resource'"),
    Row::new(
        &["invalid_resource", "invalid_scope"],
        Denied,
        "The tenant of the identity does not know the requested resource.",
        "request a token for the <audience>/.default of a service that exists in the cloud of this host",
    ),
    Row::new(
        &["unknown_source"],
        Denied,
        "The request does not come from the host of the service, or has a wrong path.",
        "check AZURE_POD_IDENTITY_AUTHORITY_HOST, and that the process runs on the virtual machine itself",
    ),
    Row::new(
        &["unauthorized_client"],
        Denied,
        "The host has no correctly configured managed identity.",
        "check that the identity is assigned to the virtual machine or scale set, and exists in its tenant",
    ),
    Row::new(
        &["access_denied"],
        Denied,
        "Entra ID denies the identity a token for the resource.",
        "check that the identity exists in the tenant of the host and is enabled",
    ),
    Row::new(
        &["unsupported_response_type"],
        Denied,
        "The service does not support the requested kind of token.",
        "check AZURE_POD_IDENTITY_AUTHORITY_HOST: the service there does not have the token API of IMDS",
    ),
    Row::new(
        &["not_found"],
        Transient,
        "The service is being updated, no identity is assigned to the host, or a replacement of the service does \
         not know the host.",
        "try again in a minute; then check the identities of this host and AZURE_POD_IDENTITY_AUTHORITY_HOST",
    ),
    Row::new(
        &["not_implemented"],
        Transient,
        "The replacement of the service does not have this operation.",
        "check AZURE_POD_IDENTITY_AUTHORITY_HOST: the service there does not have the token API of IMDS",
    ),
    Row::new(
        &["unknown", "server_error"],
        Transient,
        "The service cannot get a token from Entra ID.",
        "wait: the request is repeated; if the error stays, check that the host has a managed identity, and the \
         audience of the token; then contact Azure support",
    ),
    Row::new(
        &["too_many_requests"],
        THROTTLED,
        "The host sends more requests than the service permits.",
        "find the processes on this host that request tokens without caching them",
    ),
    Row::of_status(
        &[(429, 429)],
        THROTTLED,
        "The host sends more requests than the service permits.",
        "find the processes on this host that request tokens without caching them",
    ),
    Row::of_status(
        &[(404, 404), (410, 410)],
        Transient,
        "The service is being updated, or no identity is assigned to the host.",
        "try again in a minute, because the service may be being updated; then check the identities of this host",
    ),
    Row::of_status(
        &[(408, 408), (500, 599)],
        Transient,
        "The service has a transient error.",
        "wait: the request is repeated",
    ),
    Row::without_code(
        Denied,
        "A proxy answered instead of the service, because the service is unreachable. Docker Desktop has such \
         a proxy.",
        "use another credential: managed identity is not available here, because a proxy, such as that of Docker \
         Desktop, answers instead of the service",
    )
    .with_statuses(&[(403, 403)])
    .with_message_part("unreachable"),
    Row::without_code(
        Denied,
        "Another server answered, because errors of the service have a code.",
        "check AZURE_POD_IDENTITY_AUTHORITY_HOST, and that no proxy or gateway answers at the address of the service",
    ),
];
