//! The error codes of the Blob service.

use lanyard_clock::RetryClass::{Busy, Denied, Invalid, PreconditionFailed, Transient};
use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::Row;
use super::http::HTTP;

/// The error codes of the Blob service of storage accounts.
pub static BLOB: ErrorCodeTable = ErrorCodeTable {
    service: "the Blob service",
    groups: &[
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes",
            rows: COMMON_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes",
            rows: BLOB_ROWS,
        },
        HTTP,
    ],
};

const COMMON_ROWS: &[Row] = &[
    Row::new(
        &["AuthorizationPermissionMismatch"],
        Denied,
        "No role of the identity permits the operation on blobs.",
        "assign `Storage Blob Data Contributor` at the container or the storage account to the identity, and wait 10 \
         minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["InsufficientAccountPermissions"],
        Denied,
        "No role of the identity permits the operation on the storage account.",
        "assign a role with the operation at the storage account to the identity, and wait 10 minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["AuthorizationFailure"],
        Denied,
        "The network rules of the storage account do not permit the request.",
        "allow the client's address in the network rules of the storage account, or use a private endpoint: this is not \
         about roles",
    ),
    Row::new(
        &["KeyBasedAuthenticationNotPermitted"],
        Denied,
        "The storage account does not permit account keys.",
        "sign in with an identity, or allow account keys in the storage account: no role permits them",
    ),
    Row::new(
        &["AuthenticationFailed", "InvalidAuthenticationInfo", "NoAuthenticationInformation"],
        Denied,
        "The service does not accept the token, the signature or the account key.",
        "compare the tenant and the cloud of the identity with those of the storage account, and check this host's clock",
    ),
    Row::new(
        &["AuthorizationSourceIPMismatch"],
        Denied,
        "The shared access signature does not permit the address of the client.",
        "use the signature from an address that it permits, or create another one",
    ),
    Row::new(
        &["AuthorizationProtocolMismatch"],
        Invalid,
        "The shared access signature permits only HTTPS.",
        "use https in the URL",
    ),
    Row::new(
        &["AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch"],
        Denied,
        "The shared access signature is for another service or resource type.",
        "create a shared access signature for the Blob service and the resource",
    ),
    Row::new(
        &["ResourceNotFound", "AccountIsDisabled", "AccountNotFound"],
        Denied,
        "There is no such storage account or object, or the account is disabled.",
        "check the URL and the state of the storage account",
    ),
    Row::new(
        &[
            "InvalidHeaderValue", "InvalidInput", "InvalidMd5", "InvalidMetadata", "InvalidQueryParameterValue", "InvalidRange",
            "InvalidResourceName", "InvalidUri", "InvalidXmlDocument", "MetadataTooLarge", "MissingRequiredHeader",
            "MultipleConditionHeadersNotSupported", "OutOfRangeInput", "OutOfRangeQueryParameterValue",
            "UnsatisfiableCondition", "EmptyTagName", "DuplicateTagNames", "InvalidTags", "TagsTooLarge",
        ],
        Invalid,
        "The service does not accept a value of the request.",
        "correct the name of the container or blob; if they are right, report a defect of lanyard",
    ),
    Row::new(
        &["Md5Mismatch", "Crc64Mismatch"],
        Transient,
        "The service received other bytes than the client sent.",
        "run the command again, and check that no proxy changes the body of requests",
    ),
    Row::new(
        &["RequestBodyTooLarge"],
        Invalid,
        "The request is too large.",
        "write the blob in smaller blocks",
    ),
    Row::new(
        &["ConditionNotMet"],
        PreconditionFailed,
        "The blob has changed since it was read.",
        "run the command again: it reads the blob first",
    ),
    Row::new(
        &["ServerBusy", "InternalError", "OperationTimedOut"],
        Transient,
        "The service failed or throttles the storage account.",
        "wait, and check the status of storage in the region",
    ),
];

const BLOB_ROWS: &[Row] = &[
    Row::new(
        &["ContainerNotFound"],
        Denied,
        "The storage account has no such container.",
        "create the container with `az storage container create --auth-mode login`, or correct its name in the URL",
    ),
    Row::new(
        &["BlobNotFound", "CannotVerifyCopySource"],
        Invalid,
        "The container has no such blob, or it is not readable.",
        "check the name of the blob in the URL",
    ),
    Row::new(
        &["WebContentNotFound", "WebsiteDisabled"],
        Denied,
        "The storage account has no static website, or no such page.",
        "enable the static website of the storage account, or upload the page",
    ),
    Row::new(
        &["PublicAccessNotPermitted"],
        Denied,
        "The storage account does not permit public access.",
        "allow public access in the storage account; a policy of the subscription may forbid it",
    ),
    Row::new(
        &["BlobAlreadyExists", "ContainerAlreadyExists"],
        Denied,
        "A blob or container has the name.",
        "choose another name, or delete the existing blob or container",
    ),
    Row::new(
        &["ContainerBeingDeleted"],
        Busy,
        "The container is being deleted.",
        "wait until the container is deleted; then run the command again",
    ),
    Row::new(
        &["LeaseAlreadyPresent", "LeaseIsBreakingAndCannotBeAcquired"],
        Busy,
        "Another client holds the lease.",
        "wait until the other command has ended; the lease of a killed command ends after 60 s",
    ),
    Row::new(
        &["LeaseIdMissing"],
        Denied,
        "Another client holds the lease, and the request names none.",
        "stop the other client, or wait until it has ended: nothing but lanyard may write the blob",
    ),
    Row::new(
        &[
            "LeaseIdMismatchWithBlobOperation",
            "LeaseIdMismatchWithContainerOperation",
            "LeaseIdMismatchWithLeaseOperation",
            "LeaseIsBreakingAndCannotBeChanged",
            "LeaseIsBrokenAndCannotBeRenewed",
            "LeaseLost",
            "LeaseNotPresentWithBlobOperation",
            "LeaseNotPresentWithContainerOperation",
            "LeaseNotPresentWithLeaseOperation",
        ],
        Invalid,
        "The client does not hold the lease any more.",
        "run the command again; it continues as soon as no other command holds the lease",
    ),
    Row::new(
        &["AppendPositionConditionNotMet", "MaxBlobSizeConditionNotMet"],
        PreconditionFailed,
        "Another client has written to the append blob.",
        "run the command again; nothing but lanyard may write the blob",
    ),
    Row::new(
        &["BlockCountExceedsLimit", "BlockListTooLong"],
        Denied,
        "The blob has 50,000 blocks, and Azure permits no more.",
        "stop all other commands, and rewrite the blob: `az storage blob download`, then `az storage blob upload --type \
         append --overwrite` with the same file",
    ),
    Row::new(
        &["InvalidBlobType", "InvalidBlobOrBlock", "InvalidBlockList"],
        Denied,
        "The blob has another type than the request needs, or its blocks are invalid.",
        "restore the blob as an append blob (`az storage blob upload --type append`), or name another one; do not \
         delete a journal, because `destroy` removes only what it records",
    ),
    Row::new(
        &["ConflictingOperation", "NoPendingCopyOperation", "PendingCopyOperation"],
        Denied,
        "The request conflicts with the state of the blob.",
        "wait until other operations on the blob have ended; then run the command again",
    ),
];
