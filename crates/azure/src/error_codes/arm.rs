//! The error codes of Azure Resource Manager itself.

use lanyard_clock::RetryClass::{
    Busy, Denied, Invalid, PreconditionFailed, Propagating, Transient,
};
use lanyard_clock::{ErrorCodeGroup, ErrorCodeTable};

use super::http::HTTP;
use super::{Row, THROTTLED, providers};

/// The error codes of Azure Resource Manager and of the resource providers.
pub static ARM: ErrorCodeTable = ErrorCodeTable {
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
        Denied,
        "No role of the identity permits the action at the scope.",
        "assign a role with the named action at the named scope, then wait up to 10 minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["AuthorizationFailed"],
        Denied,
        "The identity has a role with the action, but a condition of the role assignment is not met.",
        "change the condition of the role assignment, or assign a role without one",
    )
    .with_message_part("abac condition"),
    Row::new(
        &["LinkedAuthorizationFailed"],
        Denied,
        "The identity may change the resource, but not use a resource to which it refers.",
        "assign a role with the action in the message at the linked scope, then wait up to 10 minutes",
    )
    .of_missing_permission(),
    Row::new(
        &["LinkedAuthorizationFailed"],
        Invalid,
        "The linked resource is in a subscription of another tenant.",
        "refer to a resource of this tenant: no role permits the link",
    )
    .with_message_part("linked subscription"),
    Row::new(
        &["DenyAssignmentAuthorizationFailed"],
        Denied,
        "A deny assignment forbids the action, whatever roles the identity has.",
        "use a scope without the deny assignment, which a managed application or a deployment stack owns",
    ),
    Row::new(
        &["AuthenticationFailed", "InvalidAuthenticationToken", "InvalidAuthenticationTokenAudience", "Unauthorized"],
        Denied,
        "Azure Resource Manager does not accept the token.",
        "compare the token's audience and cloud with those of the subscription, and sign in again",
    ),
    Row::new(
        &["InvalidAuthenticationTokenTenant"],
        Denied,
        "The token was issued by another tenant than that of the subscription.",
        "compare the token's tenant with the subscription's",
    ),
    Row::new(
        &["ExpiredAuthenticationToken"],
        Denied,
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
        Invalid,
        "Another role definition has the id.",
        "choose another id for the role",
    ),
    Row::new(
        &["RoleDefinitionHasAssignments"],
        Denied,
        "The role is still assigned.",
        "delete the role assignments of the role first",
    ),
    Row::new(
        &["RoleDefinitionLimitExceeded"],
        Denied,
        "The tenant has as many custom roles as Azure permits.",
        "delete custom roles that are not used",
    ),
    Row::new(
        &["RoleAssignmentLimitExceeded"],
        Denied,
        "The subscription has as many role assignments as Azure permits.",
        "delete role assignments that are not used: `lanyard sweep azure` finds those of deleted principals",
    ),
    Row::new(
        &["RoleAssignmentExists"],
        Denied,
        "The principal already has the role at the scope, under another name of the assignment.",
        "use the existing role assignment, or delete it first",
    ),
    Row::new(
        &["RoleAssignmentUpdateNotPermitted"],
        Denied,
        "A role assignment of the same name has another role, principal or scope, which cannot change.",
        "delete the existing role assignment first, or choose another name",
    ),
    Row::new(
        &["RoleAssignmentNotFound"],
        Invalid,
        "There is no such role assignment.",
        "check the name and the scope of the role assignment",
    ),
    Row::new(
        &["UnmatchedPrincipalType"],
        Invalid,
        "The principal has another type than the request says.",
        "correct `principalType`, or omit it",
    ),
    Row::new(
        &["PrincipalTypeNotSupported", "InvalidPrincipalId"],
        Invalid,
        "The principal cannot have roles.",
        "use the object id of a user, a group, a service principal or a managed identity",
    ),
    Row::new(
        &["CannotDeleteLastRbacAdminAssignment"],
        Denied,
        "The role assignment is the last one that permits to assign roles.",
        "assign `Owner` or `User Access Administrator` to another principal first",
    ),
    Row::new(
        &[
            "InvalidActionOrNotAction", "InvalidDataActionOrNotDataAction", "InvalidCondition",
            "InvalidRoleAssignmentId", "InvalidRoleDefinition", "InvalidRoleDefinitionId",
            "UnsupportedApiVersionForRoleDefinitionHasDataActions",
        ],
        Invalid,
        "The role definition or role assignment is invalid.",
        "correct the value in the message: an id, an action, a condition or a scope",
    ),
];

const REQUEST_ROWS: &[Row] = &[
    Row::new(
        &["RequestDisallowedByPolicy", "PolicyViolation"],
        Denied,
        "A policy of the subscription or of a management group denies the resource.",
        "change the resource as the policy in the message requires, or request an exemption from the policy: no role \
         permits it",
    ),
    Row::new(
        &["RequestDisallowedByAzure"],
        Denied,
        "Azure itself denies the resource, for example in the region.",
        "choose another region, or ask Azure support: no role permits it",
    ),
    Row::new(
        &["ScopeLocked"],
        Denied,
        "A management lock protects the resource or a scope above it.",
        "remove the lock in the message, if the change is wanted: no role permits it",
    ),
    Row::new(
        &["ReadOnlyDisabledSubscription"],
        Denied,
        "The subscription is disabled.",
        "enable the subscription, or use another one",
    ),
    Row::new(
        &["SubscriptionNotFound", "InvalidSubscriptionId"],
        Invalid,
        "The tenant of the token has no such subscription. Azure checks this before any permission.",
        "check the subscription id, and that the token's tenant is the subscription's",
    ),
    Row::new(
        &["MissingSubscriptionRegistration", "SubscriptionNotRegistered"],
        Denied,
        "The resource provider is not registered in the subscription.",
        "register the resource provider with `az provider register --namespace`",
    ),
    Row::new(
        &["ResourceGroupNotFound", "ResourceNotFound", "NotFound", "LockNotFound"],
        Invalid,
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
        Invalid,
        "The URL has no API version.",
        "add ?api-version=... to the URL",
    ),
    Row::new(
        &["InvalidApiVersionParameter", "NoRegisteredProviderFound"],
        Invalid,
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
        Invalid,
        "The id or name of the resource is invalid.",
        "correct the name, the type or the id in the message",
    ),
    Row::new(
        &["LocationRequired"],
        Invalid,
        "The resource has no region.",
        "name the region of the resource",
    ),
    Row::new(
        &["LocationNotAvailableForResourceGroup", "LocationNotAvailableForResourceType"],
        Invalid,
        "The region does not exist, or does not offer the resource type.",
        "choose a region that the message names",
    ),
    Row::new(
        &["InvalidResourceGroupLocation", "InvalidResourceLocation"],
        Invalid,
        "The resource exists in another region.",
        "use the region of the existing resource, or choose another name",
    ),
    Row::new(
        &["TooManyTags", "InvalidTagName", "InvalidTagNameCharacters", "InvalidTagValueLength"],
        Invalid,
        "The tags of the resource are invalid.",
        "correct the tags: at most 50, with names of at most 512 and values of at most 256 characters",
    ),
    Row::new(
        &["InvalidLockLevel"],
        Invalid,
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
        Invalid,
        "Azure does not accept a value of the request, which the message names.",
        "correct the value in the message",
    ),
    Row::new(
        &["NotImplemented"],
        Invalid,
        "The resource provider does not have the operation.",
        "use another operation or API version",
    ),
    Row::new(
        &["PropertyChangeNotAllowed"],
        Invalid,
        "The property in the message cannot change after the resource was created.",
        "restore the earlier value, or delete the resource and create it again",
    ),
    Row::new(
        &["Conflict"],
        Denied,
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
        Invalid,
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
