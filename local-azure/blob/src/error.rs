//! Error responses of the Blob service.
//!
//! The body is `<Error><Code/><Message/></Error>`; clients branch on the code, which is also the header
//! `x-ms-error-code`. Reference: "Status and error codes" and "Blob service error codes".

use http::StatusCode;
use lanyard_emulator_core::emulated_service::{EngineError, management_error_reply};
use lanyard_emulator_state::request::{ServiceReply, ServiceRequest};
use lanyard_emulator_state::storage::lease::LeaseError;
use lanyard_emulator_state::storage::names::ContainerNameError;

use super::xml_writer::XmlWriter;

/// An error code with its status and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlobErrorCode {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    message: &'static str,
}

macro_rules! error_codes {
    ($($name:ident = $status:ident, $code:literal, $message:literal;)*) => {
        impl BlobErrorCode {
            $(pub(super) const $name: Self =
                Self { status: StatusCode::$status, code: $code, message: $message };)*
        }
    };
}

error_codes! {
    ACCOUNT_NOT_FOUND = NOT_FOUND, "ResourceNotFound", "The emulator has no storage account with this host name.";
    APPEND_POSITION_CONDITION_NOT_MET = PRECONDITION_FAILED, "AppendPositionConditionNotMet", "The append position condition specified was not met.";
    AUTHENTICATION_FAILED = FORBIDDEN, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.";
    AUTHORIZATION_FAILURE = FORBIDDEN, "AuthorizationFailure", "This request is not authorized to perform this operation.";
    IP_MISMATCH = FORBIDDEN, "AuthorizationSourceIPMismatch", "This request is not authorized to perform this operation using this source IP.";
    PERMISSION_MISMATCH = FORBIDDEN, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.";
    PROTOCOL_MISMATCH = FORBIDDEN, "AuthorizationProtocolMismatch", "This request is not authorized to perform this operation using this protocol.";
    RESOURCE_TYPE_MISMATCH = FORBIDDEN, "AuthorizationResourceTypeMismatch", "This request is not authorized to perform this operation using this resource type.";
    SERVICE_MISMATCH = FORBIDDEN, "AuthorizationServiceMismatch", "This request is not authorized to perform this operation using this service.";
    BLOB_ALREADY_EXISTS = CONFLICT, "BlobAlreadyExists", "The specified blob already exists.";
    BLOB_NOT_FOUND = NOT_FOUND, "BlobNotFound", "The specified blob does not exist.";
    BLOCK_COUNT_EXCEEDS_LIMIT = CONFLICT, "BlockCountExceedsLimit", "The committed block count cannot exceed the maximum limit of 50,000 blocks.";
    BLOCK_LIST_TOO_LONG = BAD_REQUEST, "BlockListTooLong", "The block list may not contain more than 50,000 blocks.";
    CANNOT_VERIFY_COPY_SOURCE = NOT_FOUND, "CannotVerifyCopySource", "The copy source does not exist, or it is not readable.";
    CONDITION_NOT_MET = PRECONDITION_FAILED, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.";
    CONTAINER_ALREADY_EXISTS = CONFLICT, "ContainerAlreadyExists", "The specified container already exists.";
    CONTAINER_NOT_FOUND = NOT_FOUND, "ContainerNotFound", "The specified container does not exist.";
    CRC64_MISMATCH = BAD_REQUEST, "Crc64Mismatch", "The CRC64 value specified in the request did not match with the CRC64 value calculated by the server.";
    DUPLICATE_TAG_NAMES = BAD_REQUEST, "DuplicateTagNames", "The tags specified contain duplicate names.";
    EMPTY_TAG_NAME = BAD_REQUEST, "EmptyTagName", "The name of one of the tag key-value pairs is empty.";
    FEATURE_NOT_SUPPORTED = NOT_IMPLEMENTED, "FeatureNotSupportedByEmulator", "The emulator does not implement this feature of the Blob service.";
    INVALID_AUTHENTICATION_INFO = UNAUTHORIZED, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.";
    INVALID_AUTHENTICATION_FORMAT = BAD_REQUEST, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format. Check the value of Authorization header.";
    INVALID_BLOB_OR_BLOCK = BAD_REQUEST, "InvalidBlobOrBlock", "The specified blob or block content is invalid.";
    INVALID_BLOB_TYPE = CONFLICT, "InvalidBlobType", "The blob type is invalid for this operation.";
    INVALID_BLOCK_LIST = BAD_REQUEST, "InvalidBlockList", "The specified block list is invalid.";
    INVALID_HEADER_VALUE = BAD_REQUEST, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.";
    INVALID_MD5 = BAD_REQUEST, "InvalidMd5", "The MD5 value specified in the request is invalid. MD5 value must be 128 bits and base64-encoded.";
    INVALID_METADATA = BAD_REQUEST, "InvalidMetadata", "The specified metadata is invalid. It includes characters that are not permitted.";
    INVALID_QUERY_PARAMETER = BAD_REQUEST, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.";
    INVALID_RANGE = RANGE_NOT_SATISFIABLE, "InvalidRange", "The range specified is invalid for the current size of the resource.";
    INVALID_RESOURCE_NAME = BAD_REQUEST, "InvalidResourceName", "The specified resource name contains invalid characters.";
    INVALID_TAGS = BAD_REQUEST, "InvalidTags", "The tags specified are invalid. They contain characters that are not permitted.";
    INVALID_URI = BAD_REQUEST, "InvalidUri", "The requested URI does not represent any resource on the server.";
    INVALID_XML_DOCUMENT = BAD_REQUEST, "InvalidXmlDocument", "XML specified is not syntactically valid.";
    KEY_AUTHENTICATION_NOT_PERMITTED = FORBIDDEN, "KeyBasedAuthenticationNotPermitted", "Key based authentication is not permitted on this storage account.";
    LEASE_ALREADY_PRESENT = CONFLICT, "LeaseAlreadyPresent", "There is already a lease present.";
    LEASE_ID_MISMATCH_WITH_BLOB = PRECONDITION_FAILED, "LeaseIdMismatchWithBlobOperation", "The lease ID specified did not match the lease ID for the blob.";
    LEASE_ID_MISMATCH_WITH_CONTAINER = PRECONDITION_FAILED, "LeaseIdMismatchWithContainerOperation", "The lease ID specified did not match the lease ID for the container.";
    LEASE_ID_MISMATCH_WITH_LEASE = CONFLICT, "LeaseIdMismatchWithLeaseOperation", "The lease ID specified did not match the lease ID for the blob or container.";
    LEASE_ID_MISSING_ON_BLOB = PRECONDITION_FAILED, "LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified in the request.";
    LEASE_ID_MISSING_ON_CONTAINER = PRECONDITION_FAILED, "LeaseIdMissing", "There is currently a lease on the container and no lease ID was specified in the request.";
    LEASE_IS_BREAKING_ACQUIRE = CONFLICT, "LeaseIsBreakingAndCannotBeAcquired", "The lease ID matched, but the lease is currently in breaking state and cannot be acquired until it is broken.";
    LEASE_IS_BREAKING_CHANGE = CONFLICT, "LeaseIsBreakingAndCannotBeChanged", "The lease ID matched, but the lease is currently in breaking state and cannot be changed.";
    LEASE_IS_BROKEN_RENEW = CONFLICT, "LeaseIsBrokenAndCannotBeRenewed", "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.";
    LEASE_LOST_ON_BLOB = PRECONDITION_FAILED, "LeaseLost", "A lease ID was specified, but the lease for the blob has expired.";
    LEASE_LOST_ON_CONTAINER = PRECONDITION_FAILED, "LeaseLost", "A lease ID was specified, but the lease for the container has expired.";
    LEASE_NOT_PRESENT_WITH_BLOB = PRECONDITION_FAILED, "LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob.";
    LEASE_NOT_PRESENT_WITH_CONTAINER = PRECONDITION_FAILED, "LeaseNotPresentWithContainerOperation", "There is currently no lease on the container.";
    LEASE_NOT_PRESENT_WITH_LEASE = CONFLICT, "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the blob or container.";
    MAX_BLOB_SIZE_CONDITION_NOT_MET = PRECONDITION_FAILED, "MaxBlobSizeConditionNotMet", "The max blob size condition specified was not met.";
    MD5_MISMATCH = BAD_REQUEST, "Md5Mismatch", "The MD5 value specified in the request did not match with the MD5 value calculated by the server.";
    METADATA_TOO_LARGE = BAD_REQUEST, "MetadataTooLarge", "The size of the specified metadata exceeds the maximum size permitted.";
    MISSING_REQUIRED_HEADER = BAD_REQUEST, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.";
    MULTIPLE_CONDITIONS = BAD_REQUEST, "MultipleConditionHeadersNotSupported", "Multiple condition headers are not supported.";
    NO_AUTHENTICATION_INFORMATION = UNAUTHORIZED, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.";
    NO_PENDING_COPY = CONFLICT, "NoPendingCopyOperation", "There is currently no pending copy operation.";
    NOT_MODIFIED = NOT_MODIFIED, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.";
    OPERATION_NOT_IMPLEMENTED = NOT_IMPLEMENTED, "NotImplementedByEmulator", "The emulator does not implement this operation.";
    OUT_OF_RANGE_INPUT = BAD_REQUEST, "OutOfRangeInput", "One of the request inputs is out of range.";
    OUT_OF_RANGE_QUERY_PARAMETER = BAD_REQUEST, "OutOfRangeQueryParameterValue", "One of the query parameters specified in the request URI is outside the permissible range.";
    PUBLIC_ACCESS_NOT_PERMITTED = CONFLICT, "PublicAccessNotPermitted", "Public access is not permitted on this storage account.";
    REQUEST_BODY_TOO_LARGE = PAYLOAD_TOO_LARGE, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.";
    RESOURCE_NOT_FOUND = NOT_FOUND, "ResourceNotFound", "The specified resource does not exist.";
    SERVER_BUSY = SERVICE_UNAVAILABLE, "ServerBusy", "The server is busy.";
    TAGS_TOO_LARGE = BAD_REQUEST, "TagsTooLarge", "The tags specified exceed the maximum permissible limit.";
    UNSATISFIABLE_CONDITION = BAD_REQUEST, "UnsatisfiableCondition", "The request includes an unsatisfiable condition for this operation.";
}

impl BlobErrorCode {
    /// The reply with this code.
    pub(super) fn to_reply(self) -> ServiceReply {
        self.reply_with_details(&[])
    }

    /// The reply with one further element, such as `AuthenticationErrorDetail`.
    pub(super) fn with_detail(self, element: &str, detail: impl AsRef<str>) -> ServiceReply {
        self.reply_with_details(&[(element, detail.as_ref())])
    }

    /// The reply to a header that is not valid.
    pub(super) fn invalid_header(name: &str) -> ServiceReply {
        Self::INVALID_HEADER_VALUE.with_detail("HeaderName", name)
    }

    /// The reply to a query parameter that is not valid.
    pub(super) fn invalid_query_parameter(name: &str) -> ServiceReply {
        Self::INVALID_QUERY_PARAMETER.with_detail("QueryParameterName", name)
    }

    /// The reply to a request for a feature that the emulator does not implement.
    pub(super) fn feature_not_supported(feature: &str) -> ServiceReply {
        Self::FEATURE_NOT_SUPPORTED
            .with_detail("Feature", feature)
            .with_rejection_reason(format!("feature not implemented: {feature}"))
    }

    fn reply_with_details(self, details: &[(&str, &str)]) -> ServiceReply {
        let mut xml = XmlWriter::document();
        xml.open("Error");
        xml.element("Code", self.code);
        xml.element("Message", self.message);
        for (name, text) in details {
            xml.element(name, text);
        }
        xml.close("Error");
        let reply = ServiceReply::empty(self.status)
            .with_header("x-ms-error-code", self.code)
            .with_rejection_reason(self.code);
        if self.status == StatusCode::NOT_MODIFIED { reply } else { xml.into_reply(reply) }
    }
}

/// An error of the engine as the Blob service writes it.
pub(super) fn blob_engine_error(error: EngineError<'_>) -> ServiceReply {
    match error {
        EngineError::NotImplemented { request, .. } => operation_not_implemented_reply(request),
        EngineError::BodyTooLarge { most } => {
            BlobErrorCode::REQUEST_BODY_TOO_LARGE.with_detail("MaxLimit", most.to_string())
        }
        EngineError::Injected { status, code, message } => {
            injected_error_reply(status, code.unwrap_or_else(|| code_of_status(status)), message)
        }
        EngineError::Throttled { .. } => BlobErrorCode::SERVER_BUSY.to_reply(),
        EngineError::TokenService { .. } => management_error_reply(error),
    }
}

/// The code of an injected error that names none.
fn code_of_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => "AuthorizationFailure",
        404 => "ResourceNotFound",
        409 => "ConflictingOperation",
        412 => "ConditionNotMet",
        400..=499 => "InvalidInput",
        503 => "ServerBusy",
        _ => "InternalError",
    }
}

/// The reply to an operation that the emulator does not implement. Method and query name it.
fn operation_not_implemented_reply(request: &ServiceRequest) -> ServiceReply {
    let mut operation = request.method.to_string();
    for name in ["restype", "comp"] {
        if let Some(value) = request.query(name) {
            operation.extend([" ", name, "=", value]);
        }
    }
    BlobErrorCode::OPERATION_NOT_IMPLEMENTED
        .with_detail("Operation", operation)
        .with_rejection_reason("operation not implemented")
}

/// A reply with any status and code, for injected faults.
pub(crate) fn injected_error_reply(status: StatusCode, code: &str, message: &str) -> ServiceReply {
    let mut xml = XmlWriter::document();
    xml.open("Error");
    xml.element("Code", code);
    xml.element("Message", message);
    xml.close("Error");
    xml.into_reply(ServiceReply::empty(status).with_header("x-ms-error-code", code))
}

impl From<BlobErrorCode> for ServiceReply {
    fn from(error: BlobErrorCode) -> Self {
        error.to_reply()
    }
}

impl From<LeaseError> for BlobErrorCode {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::AlreadyPresent => Self::LEASE_ALREADY_PRESENT,
            LeaseError::BreakingOnAcquire => Self::LEASE_IS_BREAKING_ACQUIRE,
            LeaseError::BreakingOnChange => Self::LEASE_IS_BREAKING_CHANGE,
            LeaseError::BrokenOnRenew => Self::LEASE_IS_BROKEN_RENEW,
            LeaseError::NotPresent => Self::LEASE_NOT_PRESENT_WITH_LEASE,
            LeaseError::IdMismatch => Self::LEASE_ID_MISMATCH_WITH_LEASE,
            LeaseError::IdMissingOnBlob => Self::LEASE_ID_MISSING_ON_BLOB,
            LeaseError::IdMissingOnContainer => Self::LEASE_ID_MISSING_ON_CONTAINER,
            LeaseError::LostOnBlob => Self::LEASE_LOST_ON_BLOB,
            LeaseError::LostOnContainer => Self::LEASE_LOST_ON_CONTAINER,
            LeaseError::IdMismatchOnBlob => Self::LEASE_ID_MISMATCH_WITH_BLOB,
            LeaseError::IdMismatchOnContainer => Self::LEASE_ID_MISMATCH_WITH_CONTAINER,
            LeaseError::NotPresentOnBlob => Self::LEASE_NOT_PRESENT_WITH_BLOB,
            LeaseError::NotPresentOnContainer => Self::LEASE_NOT_PRESENT_WITH_CONTAINER,
        }
    }
}

impl From<ContainerNameError> for BlobErrorCode {
    fn from(error: ContainerNameError) -> Self {
        match error {
            ContainerNameError::Length => Self::OUT_OF_RANGE_INPUT,
            ContainerNameError::Characters => Self::INVALID_RESOURCE_NAME,
        }
    }
}
