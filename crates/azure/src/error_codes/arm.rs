//! The error codes of Azure Resource Manager itself.

use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::http::HTTP;
use super::{Row, THROTTLED, providers};
use crate::error_class::ErrorClass::{
    self, Busy, Permanent, PreconditionFailed, Propagating, Transient,
};

/// The error codes of Azure Resource Manager and of the resource providers.
pub static ARM: ErrorCodeTable<ErrorClass> = ErrorCodeTable {
    service: "Azure Resource Manager",
    groups: &[
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors",
            rows: REQUEST_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/azure/role-based-access-control/troubleshooting",
            rows: AUTHORIZATION_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations",
            rows: OPERATION_ROWS,
        },
        ErrorCodeGroup {
            source: "https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling",
            rows: THROTTLING_ROWS,
        },
        providers::NETWORK,
        providers::COMPUTE,
        providers::CONTAINER_SERVICE,
        providers::STORAGE,
        providers::KEY_VAULT,
        providers::MANAGED_IDENTITY,
        providers::DEPLOYMENTS,
        HTTP,
    ],
};

const AUTHORIZATION_ROWS: &[Row] = &[
    Row::new(
        &["AuthorizationFailed", "Forbidden"],
        Permanent,
        "No role of the identity permits the action at the scope.",
        "assign a role with the named action at the named scope, then wait up to 10 minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["AuthorizationFailed"],
        Permanent,
        "The identity has a role with the action, but a condition of the role assignment is not met.",
        "change the condition of the role assignment, or assign a role without one",
    )
    .with_message_part("abac condition"),
    Row::new(
        &["LinkedAuthorizationFailed"],
        Permanent,
        "The identity may change the resource, but not use a resource to which it refers.",
        "assign a role with the action in the message at the linked scope, then wait up to 10 minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["LinkedAuthorizationFailed"],
        Permanent,
        "The linked resource is in a subscription of another tenant.",
        "refer to a resource of this tenant: no role permits the link",
    )
    .with_message_part("linked subscription"),
    Row::new(
        &["DenyAssignmentAuthorizationFailed"],
        Permanent,
        "A deny assignment forbids the action, whatever roles the identity has.",
        "use a scope without the deny assignment, which a managed application or a deployment stack owns",
    ),
    Row::new(
        &["AuthenticationFailed", "InvalidAuthenticationToken", "InvalidAuthenticationTokenAudience", "Unauthorized"],
        Permanent,
        "Azure Resource Manager does not accept the token.",
        "compare the token's audience and cloud with those of the subscription, and sign in again",
    ),
    Row::new(
        &["InvalidAuthenticationTokenTenant"],
        Permanent,
        "The token was issued by another tenant than that of the subscription.",
        "compare the token's tenant with the subscription's",
    ),
    Row::new(
        &["ExpiredAuthenticationToken"],
        Permanent,
        "The token has expired.",
        "sign in again, and check this host's clock",
    ),
    Row::new(
        &["PrincipalNotFound"],
        Propagating,
        "Azure does not know the principal, or not everywhere yet.",
        "check the object id (not the client id) and the tenant of the principal; a new one takes some minutes to work",
    ),
    Row::new(
        &["RoleDefinitionDoesNotExist"],
        Propagating,
        "Azure does not know the role definition, or not everywhere yet.",
        "check the id of the role and its assignable scopes; a new role takes some minutes to work",
    ),
    Row::new(
        &["RoleDefinitionWithSameNameExists"],
        Propagating,
        "Another custom role of the tenant has the name, or had it a moment ago.",
        "choose another name for the role, or delete the other one and wait for some minutes",
    ),
    Row::new(
        &["RoleDefinitionExists"],
        Permanent,
        "Another role definition has the id.",
        "choose another id for the role",
    ),
    Row::new(
        &["RoleDefinitionHasAssignments"],
        Permanent,
        "The role is still assigned.",
        "delete the role assignments of the role first",
    ),
    Row::new(
        &["RoleDefinitionLimitExceeded"],
        Permanent,
        "The tenant has as many custom roles as Azure permits.",
        "delete custom roles that are not used",
    ),
    Row::new(
        &["RoleAssignmentLimitExceeded"],
        Permanent,
        "The subscription has as many role assignments as Azure permits.",
        "delete role assignments that are not used: `lanyard sweep azure` finds those of deleted principals",
    ),
    Row::new(
        &["RoleAssignmentExists"],
        Permanent,
        "The principal already has the role at the scope, under another name of the assignment.",
        "use the existing role assignment, or delete it first",
    ),
    Row::new(
        &["RoleAssignmentUpdateNotPermitted"],
        Permanent,
        "A role assignment of the same name has another role, principal or scope, which cannot change.",
        "delete the existing role assignment first, or choose another name",
    ),
    Row::new(
        &["RoleAssignmentNotFound"],
        Permanent,
        "There is no such role assignment.",
        "check the name and the scope of the role assignment",
    ),
    Row::new(
        &["UnmatchedPrincipalType"],
        Permanent,
        "The principal has another type than the request says.",
        "correct `principalType`, or omit it",
    ),
    Row::new(
        &["PrincipalTypeNotSupported", "InvalidPrincipalId"],
        Permanent,
        "The principal cannot have roles.",
        "use the object id of a user, a group, a service principal or a managed identity",
    ),
    Row::new(
        &["CannotDeleteLastRbacAdminAssignment"],
        Permanent,
        "The role assignment is the last one that permits to assign roles.",
        "assign `Owner` or `User Access Administrator` to another principal first",
    ),
    Row::new(
        &[
            "InvalidActionOrNotAction", "InvalidDataActionOrNotDataAction", "InvalidCondition",
            "InvalidRoleAssignmentId", "InvalidRoleDefinition", "InvalidRoleDefinitionId",
            "UnsupportedApiVersionForRoleDefinitionHasDataActions",
        ],
        Permanent,
        "The role definition or role assignment is invalid.",
        "correct the value in the message: an id, an action, a condition or a scope",
    ),
];

const REQUEST_ROWS: &[Row] = &[
    Row::new(
        &["RequestDisallowedByPolicy", "PolicyViolation"],
        Permanent,
        "A policy of the subscription or of a management group denies the resource.",
        "change the resource as the policy in the message requires, or request an exemption from the policy: no role \
         permits it",
    ),
    Row::new(
        &["RequestDisallowedByAzure"],
        Permanent,
        "Azure itself denies the resource, for example in the region.",
        "choose another region, or ask Azure support: no role permits it",
    ),
    Row::new(
        &["ScopeLocked"],
        Permanent,
        "A management lock protects the resource or a scope above it.",
        "remove the lock in the message, if the change is wanted: no role permits it",
    ),
    Row::new(
        &["ReadOnlyDisabledSubscription"],
        Permanent,
        "The subscription is disabled.",
        "enable the subscription, or use another one",
    ),
    Row::new(
        &["SubscriptionNotFound", "InvalidSubscriptionId"],
        Permanent,
        "The tenant of the token has no such subscription. Azure checks this before any permission.",
        "check the subscription id, and that the token's tenant is the subscription's",
    ),
    Row::new(
        &["MissingSubscriptionRegistration", "SubscriptionNotRegistered"],
        Permanent,
        "The resource provider is not registered in the subscription.",
        "register the resource provider with `az provider register --namespace`",
    ),
    Row::new(
        &["ResourceGroupNotFound", "ResourceNotFound", "NotFound", "LockNotFound"],
        Permanent,
        "There is no such resource. The identity has the permission to read it.",
        "check the names in the id: the identity has the permission",
    ),
    Row::new(
        &["ParentResourceNotFound"],
        Propagating,
        "The resource that should contain the new one does not exist, or is not known everywhere yet.",
        "check the names in the id; a parent that was just created takes some minutes to appear",
    ),
    Row::new(
        &["MissingApiVersionParameter"],
        Permanent,
        "The URL has no API version.",
        "add ?api-version=... to the URL",
    ),
    Row::new(
        &["InvalidApiVersionParameter", "NoRegisteredProviderFound"],
        Permanent,
        "The resource type does not have the API version, in this region or at all.",
        "use an API version that the message names",
    ),
    Row::new(
        &[
            "InvalidResourceNamespace",
            "InvalidResourceType",
            "InvalidResourceId",
            "InvalidResourceName",
            "InvalidResourceGroup",
        ],
        Permanent,
        "The id or name of the resource is invalid.",
        "correct the name, the type or the id in the message",
    ),
    Row::new(
        &["LocationRequired"],
        Permanent,
        "The resource has no region.",
        "name the region of the resource",
    ),
    Row::new(
        &["LocationNotAvailableForResourceGroup", "LocationNotAvailableForResourceType"],
        Permanent,
        "The region does not exist, or does not offer the resource type.",
        "choose a region that the message names",
    ),
    Row::new(
        &["InvalidResourceGroupLocation", "InvalidResourceLocation"],
        Permanent,
        "The resource exists in another region.",
        "use the region of the existing resource, or choose another name",
    ),
    Row::new(
        &["TooManyTags", "InvalidTagName", "InvalidTagNameCharacters", "InvalidTagValueLength"],
        Permanent,
        "The tags of the resource are invalid.",
        "correct the tags: at most 50, with names of at most 512 and values of at most 256 characters",
    ),
    Row::new(
        &["InvalidLockLevel"],
        Permanent,
        "The level of the management lock is invalid.",
        "use the level `CanNotDelete` or `ReadOnly`",
    ),
    Row::new(
        &[
            "BadRequest",
            "InvalidRequestContent",
            "InvalidQueryParameter",
            "InvalidFilterInQueryString",
            "InvalidParameter",
            "InvalidRequestFormat",
            "InvalidTemplate",
        ],
        Permanent,
        "Azure does not accept a value of the request, which the message names.",
        "correct the value in the message",
    ),
    Row::new(
        &["NotImplemented"],
        Permanent,
        "The resource provider does not have the operation.",
        "use another operation or API version",
    ),
    Row::new(
        &["PropertyChangeNotAllowed"],
        Permanent,
        "The property in the message cannot change after the resource was created.",
        "restore the earlier value, or delete the resource and create it again",
    ),
    Row::new(
        &["Conflict"],
        Permanent,
        "The request conflicts with the state of the resource.",
        "compare the state of the resource with the message, which names the conflict",
    ),
];

const OPERATION_ROWS: &[Row] = &[
    Row::new(
        &[
            "AnotherOperationInProgress",
            "CanceledAndSupersededDueToAnotherOperation",
            "ConflictingConcurrentWriteNotAllowed",
            "OperationPreempted",
            "ReferencedResourceNotProvisioned",
            "RetryableError",
            "RetryableErrorDueToAnotherOperation",
            "StorageAccountOperationInProgress",
        ],
        Busy,
        "Another operation changes the resource, or one to which it refers.",
        "wait until the other operation has ended; then run the command again",
    ),
    Row::new(
        &["ResourceGroupBeingDeleted"],
        Busy,
        "The resource group is being deleted.",
        "wait until the resource group is deleted; then run the command again",
    ),
    Row::new(
        &["ConditionNotMet", "EtagMismatch", "PreconditionFailed"],
        PreconditionFailed,
        "The resource has changed since it was read.",
        "run the command again: it reads the resource first",
    ),
    Row::new(
        &[
            "BadGateway",
            "GatewayTimeout",
            "InternalExecutionError",
            "InternalServerError",
            "NetworkingInternalOperationError",
            "ServerTimeout",
            "ServiceUnavailable",
            "Timeout",
        ],
        Transient,
        "Azure or a gateway in front of it failed.",
        "wait, and check the status of Azure in the region",
    ),
    Row::new(
        &["OperationNotFound"],
        Permanent,
        "Azure does not know the long-running operation any more.",
        "run the command again: it reads the state of the resource",
    ),
];

const THROTTLING_ROWS: &[Row] = &[Row::new(
    &["ResourceRequestsThrottled", "SubscriptionRequestsThrottled", "TooManyRequests"],
    THROTTLED,
    "Azure throttles the identity, the subscription or the resource provider.",
    "wait; other callers share the limit of this identity",
)];
