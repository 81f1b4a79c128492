//! The error codes of vaults.

use lanyard_clock::RetryClass::{Busy, Denied, Invalid, PreconditionFailed, Transient};
use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::http::HTTP;
use super::{Row, THROTTLED};

/// The error codes of the data plane of Azure Key Vault. A reply's code is that of the inner error, if it has one.
pub static KEY_VAULT: ErrorCodeTable = ErrorCodeTable {
    service: "Azure Key Vault",
    groups: &[
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/azure/key-vault/general/rest-error-codes",
            rows: ACCESS_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/rest/api/keyvault/",
            rows: OBJECT_ROWS,
        },
        HTTP,
    ],
};

const ACCESS_ROWS: &[Row] = &[
    Row::new(
        &["ForbiddenByRbac"],
        Denied,
        "No role of the identity permits the action.",
        "assign `Key Vault Secrets User` to the identity at the secret or the vault (for another action in the message: \
         `Key Vault Certificate User` reads certificates and public keys, `Key Vault Crypto User` encrypts and \
         decrypts, `Key Vault Administrator` changes and deletes); an assignment takes up to 10 minutes to work",
    )
    .of_missing_permission(),
    Row::new(
        &["AccessDenied", "ForbiddenByPolicy"],
        Denied,
        "No access policy of the vault permits the action.",
        "add the permission in the message to the identity's access policy in the vault",
    )
    .of_missing_permission(),
    Row::new(
        &["ForbiddenByPolicy"],
        Denied,
        "Purge protection is enabled for the vault.",
        "wait until the retention period has passed, or recover the deleted object: it cannot be purged",
    )
    .with_message_part("purge protection"),
    Row::new(
        &["ForbiddenByFirewall"],
        Denied,
        "The firewall of the vault does not permit the address of the client.",
        "allow the address in the message in the vault's network rules, or use a private endpoint: this is not about \
         roles",
    ),
    Row::new(
        &["ForbiddenByConnection"],
        Denied,
        "The vault accepts only private endpoints.",
        "use a private endpoint of the vault, or allow public access: this is not about roles",
    ),
    Row::new(
        &["ForbiddenByNsp"],
        Denied,
        "The network security perimeter of the vault does not permit the request.",
        "add an access rule to the network security perimeter: this is not about roles",
    ),
    Row::new(
        &["Forbidden"],
        Denied,
        "The vault denies the request, and its message says why.",
        "grant the identity the operation in the message, and check the vault's network rules",
    ),
    Row::new(
        &["Unauthorized"],
        Denied,
        "The vault does not accept the token.",
        "compare the tenant of the identity with the tenant of the vault, and the cloud with the vault's suffix",
    ),
    Row::new(
        &["Unauthorized"],
        Denied,
        "The token was issued by another tenant than that of the vault.",
        "use an identity of the vault's tenant, which the message names",
    )
    .with_message_part("akv10032"),
    Row::new(
        &["Unauthorized"],
        Denied,
        "The token is for another audience than vaults of this cloud.",
        "compare the cloud of the configuration with the vault's suffix",
    )
    .with_message_part("akv10022"),
    Row::new(
        &["Throttled", "TooManyRequests"],
        THROTTLED,
        "The vault throttles its clients.",
        "wait; every client of the vault shares its limit, so read less often or spread the objects over vaults",
    ),
];

const OBJECT_ROWS: &[Row] = &[
    Row::new(
        &["SecretNotFound", "CertificateNotFound", "NotFound"],
        Invalid,
        "The vault has no such object or version. The identity may read the vault.",
        "check name, type and version of the object (objectName, objectType and objectVersion of a \
         SecretProviderClass); a deleted object has to be recovered",
    ),
    Row::new(
        &["KeyNotFound"],
        Invalid,
        "The vault has no such key or version. The identity may read the vault.",
        "check name and version of the key (--key-name and --key-version of the KMS plugin, objectName and \
         objectVersion of a SecretProviderClass); a deleted key has to be recovered",
    ),
    Row::new(
        &["VaultNotFound"],
        Invalid,
        "No vault has the host name.",
        "create the vault, or check its name and the cloud",
    ),
    Row::new(
        &["SecretDisabled", "KeyDisabled", "CertificateDisabled"],
        Invalid,
        "The version of the object is disabled.",
        "enable this version in the vault, or use another one (objectVersion of a SecretProviderClass): this is not \
         about permissions",
    ),
    Row::new(
        &["KeyExpired", "KeyNotYetValid"],
        Denied,
        "The version of the key is outside its validity, so it does not encrypt, wrap or sign.",
        "change the dates of this version in the vault, or use another one: this is not about permissions",
    ),
    Row::new(
        &["KeyOperationForbidden"],
        Denied,
        "The key does not permit the operation: it is not one of the key's `key_ops`.",
        "add the operation in the message to the key's `key_ops`, or use another key: this is not about roles or \
         versions",
    ),
    Row::new(
        &["ObjectIsDeletedButRecoverable"],
        Denied,
        "A deleted object has the name.",
        "recover the deleted object, or purge it",
    ),
    Row::new(
        &["ObjectIsBeingDeleted", "ObjectIsBeingRecovered"],
        Busy,
        "The object is being deleted or recovered.",
        "wait for a minute; then try again",
    ),
    Row::new(
        &["ObjectIsManaged"],
        Invalid,
        "The object belongs to a certificate.",
        "change the certificate of the same name instead",
    ),
    Row::new(
        &["Conflict"],
        Denied,
        "The request conflicts with the state of the object.",
        "compare the state of the object with the message, which names the conflict",
    ),
    Row::new(
        &[
            "CertificateIssuerNotFound",
            "CertificatePolicyNotFound",
            "ContactsNotFound",
            "PendingCertificateNotFound",
        ],
        Invalid,
        "The vault has no such issuer, policy, contacts or pending certificate.",
        "create what is missing in the vault, or correct its name",
    ),
    Row::new(
        &["BadParameter", "BadRequest"],
        Invalid,
        "The vault does not accept a value of the request, which the message names.",
        "correct the value in the message; an encryption key must be an RSA key with the operations `encrypt` and \
         `decrypt`",
    ),
    Row::new(
        &["InternalServerError", "ServiceUnavailable", "BadGateway", "GatewayTimeout"],
        Transient,
        "The vault or a gateway in front of it failed.",
        "wait, and check the status of Key Vault in the region",
    ),
    Row::new(
        &["PreconditionFailed"],
        PreconditionFailed,
        "The object has changed since it was read.",
        "run the command again: it reads the object first",
    ),
];
