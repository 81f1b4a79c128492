//! The refusals of the token service.
//!
//! The reference is the catalogue of AADSTS codes in the Entra documentation. The texts there are
//! explicitly unstable; clients branch on `error` and on the number.

use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;

use crate::call::Ids;
use crate::request::Reply;

/// A code of the token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// The number after `AADSTS`.
    pub(crate) number: u32,
    /// The status of the reply.
    pub(crate) status: u16,
    /// The OAuth 2.0 error (RFC 6749, 5.2).
    pub(crate) error: &'static str,
}

const fn code(number: u32, status: u16, error: &'static str) -> Code {
    Code { number, status, error }
}

pub(crate) const MALFORMED_ASSERTION: Code = code(50_027, 400, "invalid_request");
pub(crate) const INSTANCE_UNKNOWN: Code = code(50_049, 400, "invalid_instance");
pub(crate) const NO_TENANT_NAMED: Code = code(50_059, 400, "invalid_request");
pub(crate) const GRANT_UNSUPPORTED: Code = code(70_003, 400, "unsupported_grant_type");
pub(crate) const SCOPE_INVALID: Code = code(70_011, 400, "invalid_scope");
pub(crate) const NO_FEDERATED_CREDENTIAL: Code = code(70_021, 400, "invalid_request");
pub(crate) const TENANT_UNKNOWN: Code = code(90_002, 400, "invalid_request");
pub(crate) const ISSUER_UNREACHABLE: Code = code(90_061, 400, "invalid_request");
pub(crate) const RESOURCE_UNKNOWN: Code = code(500_011, 400, "invalid_resource");
pub(crate) const APPLICATION_UNKNOWN: Code = code(700_016, 400, "unauthorized_client");
pub(crate) const ASSERTION_NOT_OF_CLIENT: Code = code(700_021, 401, "invalid_client");
pub(crate) const ASSERTION_AUDIENCE: Code = code(700_023, 401, "invalid_client");
pub(crate) const ASSERTION_LIFETIME: Code = code(700_024, 401, "invalid_client");
pub(crate) const ASSERTION_KEY: Code = code(700_027, 401, "invalid_client");
pub(crate) const NO_FEDERATED_ISSUER: Code = code(700_211, 401, "invalid_client");
pub(crate) const NO_FEDERATED_AUDIENCE: Code = code(700_212, 401, "invalid_client");
pub(crate) const NO_FEDERATED_SUBJECT: Code = code(700_213, 401, "invalid_client");
pub(crate) const ENTRA_ISSUED: Code = code(700_222, 401, "invalid_client");
pub(crate) const PARAMETER_MISSING: Code = code(900_144, 400, "invalid_request");
pub(crate) const CERTIFICATE_VALIDITY: Code = code(1_000_502, 401, "invalid_client");
pub(crate) const SCOPE_NOT_DEFAULT: Code = code(1_002_012, 400, "invalid_scope");
pub(crate) const FEDERATED_SUBJECT_CASE: Code = code(7_002_138, 401, "invalid_client");
pub(crate) const APPLICATION_DISABLED: Code = code(7_000_112, 400, "unauthorized_client");
pub(crate) const SECRET_WRONG: Code = code(7_000_215, 401, "invalid_client");
pub(crate) const CREDENTIAL_MISSING: Code = code(7_000_216, 401, "invalid_client");
pub(crate) const SECRET_EXPIRED: Code = code(7_000_222, 401, "invalid_client");
pub(crate) const INTERNAL: Code = code(90_033, 503, "temporarily_unavailable");

/// Codes that only faults produce: the world models none of their causes.
const INJECTED: [Code; 4] = [
    code(50_076, 400, "invalid_grant"),
    code(50_196, 400, "invalid_grant"),
    code(53_003, 400, "invalid_grant"),
    code(7_000_214, 401, "invalid_client"),
];

const KNOWN: [Code; 27] = [
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

/// A refusal of the token service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The code.
    pub(crate) code: Code,
    /// What is wrong, in the words of a person. It may repeat ids, never credentials.
    pub(crate) text: String,
}

impl Code {
    /// The refusal with this code.
    pub(crate) fn because(self, text: impl Into<String>) -> Refusal {
        Refusal { code: self, text: text.into() }
    }

    /// The code with this number; an unknown one counts as a refusal of the client.
    pub(crate) fn numbered(number: u32) -> Self {
        KNOWN.into_iter().chain(INJECTED).find(|known| known.number == number).unwrap_or(code(
            number,
            400,
            "invalid_request",
        ))
    }
}

impl Refusal {
    /// The reply, with the seven fields that clients read.
    pub(crate) fn reply(&self, now: Timestamp, correlation: Option<&str>, ids: &mut Ids) -> Reply {
        let Code { number, status, error } = self.code;
        let trace = ids.uuid().to_string();
        let correlation = match correlation {
            Some(sent) if sent.len() <= 128 => sent.to_owned(),
            _ => ids.uuid().to_string(),
        };
        let stamp = now.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let description = format!(
            "AADSTS{number}: {} Trace ID: {trace} Correlation ID: {correlation} Timestamp: {stamp}",
            self.text
        );
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        Reply::json(
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
        .because(format!("AADSTS{number}"))
    }
}
