//! Error responses of the token service.
//!
//! The reference is the catalogue of AADSTS codes in the Entra documentation. Its texts are explicitly
//! unstable; clients branch on `error` and on the number.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_state::id_generator::IdGenerator;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

/// An error code of the token service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AadstsCode {
    /// The number after `AADSTS`.
    pub number: u32,
    /// The status of the reply.
    pub(crate) status: u16,
    /// The OAuth 2.0 error (RFC 6749, 5.2).
    pub(crate) error: &'static str,
    /// `suberror`, by which clients decide whether to sign the user in again.
    pub(crate) suberror: Option<&'static str>,
}

const fn aadsts_code(number: u32, status: u16, error: &'static str) -> AadstsCode {
    AadstsCode { number, status, error, suberror: None }
}

/// An `invalid_grant` with a `suberror`.
const fn grant_error(number: u32, suberror: &'static str) -> AadstsCode {
    AadstsCode { number, status: 400, error: "invalid_grant", suberror: Some(suberror) }
}

// Requests and tenants.
pub(crate) const REPLY_ADDRESS: AadstsCode = aadsts_code(50_011, 400, "invalid_request");
pub(crate) const MALFORMED_ASSERTION: AadstsCode = aadsts_code(50_027, 400, "invalid_request");
pub(crate) const INSTANCE_UNKNOWN: AadstsCode = aadsts_code(50_049, 400, "invalid_instance");
pub(crate) const NO_TENANT_NAMED: AadstsCode = aadsts_code(50_059, 400, "invalid_request");
pub(crate) const NOT_MULTITENANT: AadstsCode = aadsts_code(50_194, 400, "invalid_request");
pub(crate) const GRANT_UNSUPPORTED: AadstsCode = aadsts_code(70_003, 400, "unsupported_grant_type");
pub(crate) const RESPONSE_MODE_UNSUPPORTED: AadstsCode =
    aadsts_code(70_007, 400, "invalid_request");
pub(crate) const SCOPE_INVALID: AadstsCode = aadsts_code(70_011, 400, "invalid_scope");
pub(crate) const TENANT_UNKNOWN: AadstsCode = aadsts_code(90_002, 400, "invalid_request");
pub(crate) const INTERNAL: AadstsCode = aadsts_code(90_033, 503, "temporarily_unavailable");
pub(crate) const RESOURCE_UNKNOWN: AadstsCode = aadsts_code(500_011, 400, "invalid_resource");
pub(crate) const PERMISSION_UNKNOWN: AadstsCode = aadsts_code(650_053, 400, "invalid_client");
pub(crate) const RESPONSE_TYPE_UNSUPPORTED: AadstsCode =
    aadsts_code(700_054, 400, "unsupported_response_type");
pub(crate) const PARAMETER_MISSING: AadstsCode = aadsts_code(900_144, 400, "invalid_request");
pub(crate) const SCOPE_NOT_DEFAULT: AadstsCode = aadsts_code(1_002_012, 400, "invalid_scope");
pub(crate) const GRANT_NOT_AT_COMMON: AadstsCode = aadsts_code(9_001_023, 400, "invalid_request");

// Clients and their credentials.
pub(crate) const NO_FEDERATED_CREDENTIAL: AadstsCode = aadsts_code(70_021, 400, "invalid_request");
pub(crate) const FEDERATED_LIFETIME: AadstsCode = aadsts_code(70_023, 400, "invalid_request");
pub(crate) const ISSUER_UNREACHABLE: AadstsCode = aadsts_code(90_061, 400, "invalid_request");
pub(crate) const APPLICATION_UNKNOWN: AadstsCode = aadsts_code(700_016, 400, "unauthorized_client");
pub(crate) const ASSERTION_NOT_OF_CLIENT: AadstsCode = aadsts_code(700_021, 401, "invalid_client");
pub(crate) const ASSERTION_AUDIENCE: AadstsCode = aadsts_code(700_023, 401, "invalid_client");
pub(crate) const ASSERTION_LIFETIME: AadstsCode = aadsts_code(700_024, 401, "invalid_client");
pub(crate) const PUBLIC_CLIENT: AadstsCode = aadsts_code(700_025, 401, "invalid_client");
pub(crate) const ASSERTION_KEY: AadstsCode = aadsts_code(700_027, 401, "invalid_client");
pub(crate) const NO_FEDERATED_ISSUER: AadstsCode = aadsts_code(700_211, 401, "invalid_client");
pub(crate) const NO_FEDERATED_AUDIENCE: AadstsCode = aadsts_code(700_212, 401, "invalid_client");
pub(crate) const NO_FEDERATED_SUBJECT: AadstsCode = aadsts_code(700_213, 401, "invalid_client");
pub(crate) const ENTRA_ISSUED: AadstsCode = aadsts_code(700_222, 401, "invalid_client");
pub(crate) const CERTIFICATE_VALIDITY: AadstsCode = aadsts_code(1_000_502, 401, "invalid_client");
pub(crate) const APPLICATION_DISABLED: AadstsCode =
    aadsts_code(7_000_112, 400, "unauthorized_client");
pub(crate) const FEDERATED_SUBJECT_CASE: AadstsCode = aadsts_code(7_002_138, 401, "invalid_client");
pub(crate) const SECRET_WRONG: AadstsCode = aadsts_code(7_000_215, 401, "invalid_client");
pub(crate) const CREDENTIAL_MISSING: AadstsCode = aadsts_code(7_000_216, 401, "invalid_client");
pub(crate) const CONFIDENTIAL_CLIENT: AadstsCode = aadsts_code(7_000_218, 401, "invalid_client");
pub(crate) const SECRET_EXPIRED: AadstsCode = aadsts_code(7_000_222, 401, "invalid_client");
pub(crate) const SERVICE_PRINCIPAL_MISSING: AadstsCode =
    aadsts_code(7_000_229, 401, "invalid_client");

// Users and what was granted to their clients.
pub(crate) const USER_NOT_IN_TENANT: AadstsCode = aadsts_code(50_020, 400, "invalid_grant");
pub(crate) const USER_UNKNOWN: AadstsCode = aadsts_code(50_034, 400, "invalid_grant");
/// [`USER_UNKNOWN`] for a refresh token: the user was deleted.
pub(crate) const USER_DELETED: AadstsCode = grant_error(50_034, "bad_token");
pub(crate) const USER_DISABLED: AadstsCode = aadsts_code(50_057, 400, "invalid_grant");
pub(crate) const LOGIN_REQUIRED: AadstsCode = aadsts_code(50_058, 400, "login_required");
pub(crate) const PASSWORD_WRONG: AadstsCode = aadsts_code(50_126, 400, "invalid_grant");
pub(crate) const GRANT_REVOKED: AadstsCode = grant_error(50_173, "bad_token");
pub(crate) const CODE_REDEEMED: AadstsCode = aadsts_code(54_005, 400, "invalid_grant");
pub(crate) const SIGN_IN_CANCELLED: AadstsCode = aadsts_code(65_004, 400, "access_denied");
pub(crate) const DEVICE_CODE_DECLINED: AadstsCode =
    aadsts_code(65_004, 400, "authorization_declined");
pub(crate) const GRANT_INVALID: AadstsCode = aadsts_code(70_000, 400, "invalid_grant");
pub(crate) const CODE_EXPIRED: AadstsCode = aadsts_code(70_008, 400, "invalid_grant");
pub(crate) const AUTHORIZATION_PENDING: AadstsCode =
    aadsts_code(70_016, 400, "authorization_pending");
pub(crate) const DEVICE_CODE_UNKNOWN: AadstsCode =
    aadsts_code(70_018, 400, "bad_verification_code");
pub(crate) const DEVICE_CODE_EXPIRED: AadstsCode = aadsts_code(70_019, 400, "expired_token");
pub(crate) const REDIRECT_URI_DIFFERS: AadstsCode = aadsts_code(500_112, 401, "invalid_client");
pub(crate) const CODE_VERIFIER: AadstsCode = aadsts_code(501_481, 400, "invalid_grant");
pub(crate) const REFRESH_TOKEN_EXPIRED: AadstsCode = grant_error(700_082, "bad_token");
pub(crate) const GRANT_MALFORMED: AadstsCode = aadsts_code(9_002_313, 400, "invalid_grant");

/// Codes that only injected faults produce: the emulator has none of their causes.
const INJECTED_CODES: [AadstsCode; 8] = [
    grant_error(50_055, "user_password_expired"),
    grant_error(50_076, "basic_action"),
    grant_error(50_079, "basic_action"),
    aadsts_code(50_196, 400, "invalid_grant"),
    grant_error(53_003, "message_only"),
    grant_error(65_001, "consent_required"),
    grant_error(70_043, "bad_token"),
    aadsts_code(7_000_214, 401, "invalid_client"),
];

/// The id of the policy in `claims`; the emulator has no policies.
const POLICY_ID: &str = "5ca3a6cd-1f3a-4c0b-8d3c-3f7d4d4fb6b0";

/// The codes that demand a conditional access policy: `claims` of their replies names it.
const POLICY_CODES: [u32; 3] = [50_076, 50_079, 53_003];

const KNOWN_CODES: [AadstsCode; 54] = [
    REPLY_ADDRESS,
    MALFORMED_ASSERTION,
    INSTANCE_UNKNOWN,
    NO_TENANT_NAMED,
    NOT_MULTITENANT,
    GRANT_UNSUPPORTED,
    RESPONSE_MODE_UNSUPPORTED,
    SCOPE_INVALID,
    TENANT_UNKNOWN,
    INTERNAL,
    RESOURCE_UNKNOWN,
    PERMISSION_UNKNOWN,
    RESPONSE_TYPE_UNSUPPORTED,
    PARAMETER_MISSING,
    SCOPE_NOT_DEFAULT,
    GRANT_NOT_AT_COMMON,
    NO_FEDERATED_CREDENTIAL,
    FEDERATED_LIFETIME,
    ISSUER_UNREACHABLE,
    APPLICATION_UNKNOWN,
    ASSERTION_NOT_OF_CLIENT,
    ASSERTION_AUDIENCE,
    ASSERTION_LIFETIME,
    PUBLIC_CLIENT,
    ASSERTION_KEY,
    NO_FEDERATED_ISSUER,
    NO_FEDERATED_AUDIENCE,
    NO_FEDERATED_SUBJECT,
    ENTRA_ISSUED,
    CERTIFICATE_VALIDITY,
    APPLICATION_DISABLED,
    FEDERATED_SUBJECT_CASE,
    SECRET_WRONG,
    CREDENTIAL_MISSING,
    CONFIDENTIAL_CLIENT,
    SECRET_EXPIRED,
    SERVICE_PRINCIPAL_MISSING,
    USER_NOT_IN_TENANT,
    USER_UNKNOWN,
    USER_DISABLED,
    LOGIN_REQUIRED,
    PASSWORD_WRONG,
    GRANT_REVOKED,
    CODE_REDEEMED,
    SIGN_IN_CANCELLED,
    GRANT_INVALID,
    CODE_EXPIRED,
    AUTHORIZATION_PENDING,
    DEVICE_CODE_UNKNOWN,
    DEVICE_CODE_EXPIRED,
    REDIRECT_URI_DIFFERS,
    CODE_VERIFIER,
    REFRESH_TOKEN_EXPIRED,
    GRANT_MALFORMED,
];

/// An error of the token service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenServiceError {
    pub code: AadstsCode,
    /// The error description. It may contain ids, never credentials.
    pub description: String,
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
        let AadstsCode { number, status, error, suberror } = self.code;
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
        let mut body = json!({
            "error": error,
            "error_description": description,
            "error_codes": [number],
            "timestamp": stamp,
            "trace_id": trace,
            "correlation_id": correlation,
            "error_uri": format!("https://login.microsoftonline.com/error?code={number}"),
        });
        if let Some(suberror) = suberror {
            body["suberror"] = json!(suberror);
        }
        if POLICY_CODES.contains(&number) {
            let policy = json!({ "essential": true, "values": [POLICY_ID] });
            body["claims"] = json!({ "access_token": { "capolids": policy } }).to_string().into();
        }
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        ServiceReply::json(status, &body).with_rejection_reason(format!("AADSTS{number}"))
    }
}
