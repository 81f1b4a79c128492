//! Error responses of the token service.
//!
//! The reference is the catalogue of AADSTS codes in the Entra documentation. Its texts are explicitly
//! unstable; clients branch on `error` and on the number.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;

use crate::operation_context::IdGenerator;
use crate::request::ServiceReply;

/// An error code of the token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AadstsCode {
    /// The number after `AADSTS`.
    pub(crate) number: u32,
    /// The status of the reply.
    pub(crate) status: u16,
    /// The OAuth 2.0 error (RFC 6749, 5.2).
    pub(crate) error: &'static str,
}

const fn aadsts_code(number: u32, status: u16, error: &'static str) -> AadstsCode {
    AadstsCode { number, status, error }
}

pub(crate) const MALFORMED_ASSERTION: AadstsCode = aadsts_code(50_027, 400, "invalid_request");
pub(crate) const INSTANCE_UNKNOWN: AadstsCode = aadsts_code(50_049, 400, "invalid_instance");
pub(crate) const NO_TENANT_NAMED: AadstsCode = aadsts_code(50_059, 400, "invalid_request");
pub(crate) const GRANT_UNSUPPORTED: AadstsCode = aadsts_code(70_003, 400, "unsupported_grant_type");
pub(crate) const SCOPE_INVALID: AadstsCode = aadsts_code(70_011, 400, "invalid_scope");
pub(crate) const NO_FEDERATED_CREDENTIAL: AadstsCode = aadsts_code(70_021, 400, "invalid_request");
pub(crate) const TENANT_UNKNOWN: AadstsCode = aadsts_code(90_002, 400, "invalid_request");
pub(crate) const ISSUER_UNREACHABLE: AadstsCode = aadsts_code(90_061, 400, "invalid_request");
pub(crate) const RESOURCE_UNKNOWN: AadstsCode = aadsts_code(500_011, 400, "invalid_resource");
pub(crate) const APPLICATION_UNKNOWN: AadstsCode = aadsts_code(700_016, 400, "unauthorized_client");
pub(crate) const ASSERTION_NOT_OF_CLIENT: AadstsCode = aadsts_code(700_021, 401, "invalid_client");
pub(crate) const ASSERTION_AUDIENCE: AadstsCode = aadsts_code(700_023, 401, "invalid_client");
pub(crate) const ASSERTION_LIFETIME: AadstsCode = aadsts_code(700_024, 401, "invalid_client");
pub(crate) const ASSERTION_KEY: AadstsCode = aadsts_code(700_027, 401, "invalid_client");
pub(crate) const NO_FEDERATED_ISSUER: AadstsCode = aadsts_code(700_211, 401, "invalid_client");
pub(crate) const NO_FEDERATED_AUDIENCE: AadstsCode = aadsts_code(700_212, 401, "invalid_client");
pub(crate) const NO_FEDERATED_SUBJECT: AadstsCode = aadsts_code(700_213, 401, "invalid_client");
pub(crate) const ENTRA_ISSUED: AadstsCode = aadsts_code(700_222, 401, "invalid_client");
pub(crate) const PARAMETER_MISSING: AadstsCode = aadsts_code(900_144, 400, "invalid_request");
pub(crate) const CERTIFICATE_VALIDITY: AadstsCode = aadsts_code(1_000_502, 401, "invalid_client");
pub(crate) const SCOPE_NOT_DEFAULT: AadstsCode = aadsts_code(1_002_012, 400, "invalid_scope");
pub(crate) const FEDERATED_SUBJECT_CASE: AadstsCode = aadsts_code(7_002_138, 401, "invalid_client");
pub(crate) const APPLICATION_DISABLED: AadstsCode =
    aadsts_code(7_000_112, 400, "unauthorized_client");
pub(crate) const SECRET_WRONG: AadstsCode = aadsts_code(7_000_215, 401, "invalid_client");
pub(crate) const CREDENTIAL_MISSING: AadstsCode = aadsts_code(7_000_216, 401, "invalid_client");
pub(crate) const SECRET_EXPIRED: AadstsCode = aadsts_code(7_000_222, 401, "invalid_client");
pub(crate) const INTERNAL: AadstsCode = aadsts_code(90_033, 503, "temporarily_unavailable");

/// Codes that only injected faults produce: the emulator has none of their causes.
const INJECTED_CODES: [AadstsCode; 4] = [
    aadsts_code(50_076, 400, "invalid_grant"),
    aadsts_code(50_196, 400, "invalid_grant"),
    aadsts_code(53_003, 400, "invalid_grant"),
    aadsts_code(7_000_214, 401, "invalid_client"),
];

const KNOWN_CODES: [AadstsCode; 27] = [
    MALFORMED_ASSERTION,
    INSTANCE_UNKNOWN,
    NO_TENANT_NAMED,
    GRANT_UNSUPPORTED,
    SCOPE_INVALID,
    NO_FEDERATED_CREDENTIAL,
    TENANT_UNKNOWN,
    ISSUER_UNREACHABLE,
    RESOURCE_UNKNOWN,
    APPLICATION_UNKNOWN,
    ASSERTION_NOT_OF_CLIENT,
    ASSERTION_AUDIENCE,
    ASSERTION_LIFETIME,
    ASSERTION_KEY,
    NO_FEDERATED_ISSUER,
    NO_FEDERATED_AUDIENCE,
    NO_FEDERATED_SUBJECT,
    ENTRA_ISSUED,
    PARAMETER_MISSING,
    CERTIFICATE_VALIDITY,
    SCOPE_NOT_DEFAULT,
    FEDERATED_SUBJECT_CASE,
    APPLICATION_DISABLED,
    SECRET_WRONG,
    CREDENTIAL_MISSING,
    SECRET_EXPIRED,
    INTERNAL,
];

/// An error of the token service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenServiceError {
    pub(crate) code: AadstsCode,
    /// The error description. It may contain ids, never credentials.
    pub(crate) description: String,
}

impl AadstsCode {
    /// An error with this code.
    pub(crate) fn with_description(self, text: impl Into<String>) -> TokenServiceError {
        TokenServiceError { code: self, description: text.into() }
    }

    /// The code with this number; an unknown one counts as an error of the client.
    pub(crate) fn from_number(number: u32) -> Self {
        KNOWN_CODES
            .into_iter()
            .chain(INJECTED_CODES)
            .find(|known| known.number == number)
            .unwrap_or(aadsts_code(number, 400, "invalid_request"))
    }
}

impl TokenServiceError {
    /// Converts the error to a reply, with the seven fields that clients read.
    pub(crate) fn to_reply(
        &self,
        now: Timestamp,
        correlation: Option<&str>,
        ids: &mut IdGenerator,
    ) -> ServiceReply {
        let AadstsCode { number, status, error } = self.code;
        let trace = ids.next_uuid().to_string();
        let correlation = match correlation {
            Some(sent) if sent.len() <= 128 => sent.to_owned(),
            _ => ids.next_uuid().to_string(),
        };
        let stamp = now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let description = format!(
            "AADSTS{number}: {} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {stamp}",
            self.description
        );
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        ServiceReply::json(
            status,
            &json!({
                "error": error,
                "error_description": description,
                "error_codes": [number],
                "timestamp": stamp,
                "trace_id": trace,
                "correlation_id": correlation,
                "error_uri": format!("https://login.microsoftonline.com/error?code={number}"),
            }),
        )
        .with_rejection_reason(format!("AADSTS{number}"))
    }
}
