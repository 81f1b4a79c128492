//! User-assigned managed identities, whose creation also creates a service principal, and their
//! federated identity credentials. Reference: Microsoft.ManagedIdentity, 2024-11-30.

use http::{Method, StatusCode};
use lanyard_emulator_arm::access::{
    authorize_call, empty_reply, json_body, json_reply, list_reply,
};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::{group_scope, parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType};
use lanyard_emulator_arm::{resource_operations, resource_reads, rg};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationHandler, OperationSupport, ServiceOperation};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::directory::{FederatedCredential, ServicePrincipal};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::{ArmResourceId, EntraClientId};
use serde_json::{Value, json};

/// The types that clients can write.
pub(super) const TYPES: &[ResourceType] = &[ResourceType {
    prepare: prepare_identity,
    has_provisioning_state: false,
    long_running: false,
    ..ResourceType::regional(
        IDENTITY,
        NamingRule {
            length: (3, 128),
            punctuation: "-_",
            last: NameEdge::Any,
            ..NamingRule::word(128)
        },
        "2015-08-31-preview",
    )
}];

pub(super) const IDENTITIES: &[ServiceOperation] = resource_operations!(
    "UserAssignedIdentities",
    "Microsoft.ManagedIdentity/userAssignedIdentities"
);

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    ServiceOperation {
        id: "FederatedIdentityCredentials_List",
        method: Method::GET,
        path: rg!(
            "Microsoft.ManagedIdentity/userAssignedIdentities/{name}/federatedIdentityCredentials"
        ),
        support: OperationSupport::Full,
        handler: list_federated,
    },
    federated_credential_operation("FederatedIdentityCredentials_Get", Method::GET, read_federated),
    federated_credential_operation(
        "FederatedIdentityCredentials_CreateOrUpdate",
        Method::PUT,
        create_federated,
    ),
    federated_credential_operation(
        "FederatedIdentityCredentials_Delete",
        Method::DELETE,
        delete_federated,
    ),
];

const IDENTITY: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";
const FEDERATED: &str =
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials";

/// The maximum number of federated identity credentials of an identity.
const MOST_FEDERATED: usize = 20;

const fn federated_credential_operation(
    id: &'static str,
    method: Method,
    handler: OperationHandler,
) -> ServiceOperation {
    let path = rg!(
        "Microsoft.ManagedIdentity/userAssignedIdentities/{name}/federatedIdentityCredentials/{child}"
    );
    ServiceOperation { id, method, path, support: OperationSupport::Full, handler }
}

/// Creates the service principal of a new identity. A client can set only `isolationScope`.
fn prepare_identity(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let principal = match principal_of_identity(write.call, write.id)? {
        Some(principal) => (principal.tenant.clone(), principal.object_id, principal.client_id),
        None => add_principal(write.call, write.id)?,
    };
    let (tenant, object_id, client_id) = principal;
    let isolation = write.properties.remove("isolationScope");
    write.properties.clear();
    write.properties.insert("tenantId".to_owned(), json!(tenant));
    write.properties.insert("principalId".to_owned(), json!(object_id));
    write.properties.insert("clientId".to_owned(), json!(client_id));
    if let Some(isolation) = isolation {
        write.properties.insert("isolationScope".to_owned(), isolation);
    }
    write.body.entry("tags").or_insert_with(|| json!({}));
    Ok(())
}

fn list_federated(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let identity = identity_scope(call)?;
    authorize_call(call, &format!("{FEDERATED}/read"), &identity)?;
    let principal = require_identity(call, &identity)?;
    let credentials = &principal.federated_credentials;
    let items = credentials
        .iter()
        .map(|credential| federated_credential_json(&identity, credential))
        .collect();
    list_reply(call, items)
}

fn read_federated(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    authorize_call(call, &format!("{FEDERATED}/read"), &id)?;
    let name = call.path_parameter("child");
    let principal = require_identity(call, &identity)?;
    match principal.federated_credentials.iter().find(|held| held.name.eq_ignore_ascii_case(name)) {
        Some(held) => {
            Ok(json_reply(call, StatusCode::OK, &federated_credential_json(&identity, held)))
        }
        None => Err(ArmServiceError::ResourceNotFound(&id).to_reply()),
    }
}

fn create_federated(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    authorize_call(call, &format!("{FEDERATED}/write"), &id)?;
    require_identity(call, &identity)?;
    require_single_write(call, &identity)?;
    let credential = parse_federated(call.path_parameter("child"), &json_body(call)?)?;
    let resource = resource_id(&identity)?;
    let Some(principal) = call.azure_mut().directory.managed_identity_mut(&resource) else {
        return Err(ArmServiceError::ResourceNotFound(&identity).to_reply());
    };
    let holder = principal.object_id;
    let status = upsert_federated(principal, credential.clone())?;
    let now = call.now;
    call.azure_mut().directory.record_federated_credential(holder, &credential.name, now);
    Ok(json_reply(call, status, &federated_credential_json(&identity, &credential)))
}

fn delete_federated(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    authorize_call(call, &format!("{FEDERATED}/delete"), &id)?;
    require_identity(call, &identity)?;
    require_single_write(call, &identity)?;
    let name = call.path_parameter("child");
    let resource = resource_id(&identity)?;
    let Some(principal) = call.azure_mut().directory.managed_identity_mut(&resource) else {
        return Err(ArmServiceError::ResourceNotFound(&identity).to_reply());
    };
    let before = principal.federated_credentials.len();
    principal.federated_credentials.retain(|held| !held.name.eq_ignore_ascii_case(name));
    let removed = principal.federated_credentials.len() < before;
    let status = if removed { StatusCode::OK } else { StatusCode::NO_CONTENT };
    Ok(empty_reply(call, status))
}

/// Rejects a write that begins before another write to the federated credentials of the identity has ended.
fn require_single_write(
    call: &mut OperationContext<'_>,
    identity: &AccessScope,
) -> Result<(), ServiceReply> {
    if call.begin_exclusive_write(&identity.as_str().to_ascii_lowercase()) {
        return Ok(());
    }
    Err(conflict(
        "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity",
        "Too many Federated Identity Credentials are written concurrently for the managed identity \
         '{identity}'. Concurrent Federated Identity Credentials writes under the same managed identity \
         are not supported."
            .replace("{identity}", identity.as_str()),
    ))
}

/// Adds or replaces a federated identity credential: at most 20 per identity, each with a unique
/// issuer and subject.
fn upsert_federated(
    principal: &mut ServicePrincipal,
    credential: FederatedCredential,
) -> Result<StatusCode, ServiceReply> {
    let held = &mut principal.federated_credentials;
    let place = held.iter().position(|held| held.name.eq_ignore_ascii_case(&credential.name));
    let twin = held
        .iter()
        .position(|held| held.issuer == credential.issuer && held.subject == credential.subject);
    if let Some(twin) = twin.filter(|twin| Some(*twin) != place) {
        let name = held.get(twin).map(|held| held.name.as_str()).unwrap_or_default();
        return Err(conflict(
            "Conflict",
            format!(
                "Issuer and subject combination already exists for this Managed Identity: the \
                 credential '{name}' has them."
            ),
        ));
    }
    if let Some(slot) = place.and_then(|place| held.get_mut(place)) {
        *slot = credential;
        return Ok(StatusCode::OK);
    }
    if held.len() >= MOST_FEDERATED {
        return Err(bad_request(
            "FederatedIdentityCredentialsLimitExceeded",
            format!("An identity has at most {MOST_FEDERATED} federated credentials."),
        ));
    }
    held.push(credential);
    Ok(StatusCode::CREATED)
}

fn parse_federated(name: &str, body: &Value) -> Result<FederatedCredential, ServiceReply> {
    let refuse = |message: &str| Err(bad_request("InvalidFederatedIdentityCredential", message));
    if !FederatedCredential::is_valid_name(name) {
        return refuse(
            "A name has 3 to 120 letters, digits, `-` and `_`, a letter or digit first.",
        );
    }
    let properties = body.get("properties").unwrap_or(&Value::Null);
    let text = |field: &str| properties.get(field).and_then(Value::as_str).unwrap_or_default();
    let (issuer, subject) = (text("issuer"), text("subject"));
    if !issuer.starts_with("https://") {
        return refuse("`properties.issuer` is not an https URL.");
    }
    if subject.is_empty() {
        return refuse("`properties.subject` is missing.");
    }
    let audiences = properties.get("audiences").and_then(Value::as_array);
    match audiences.map(Vec::as_slice) {
        Some([Value::String(audience)]) if !audience.is_empty() => {
            let credential = FederatedCredential::new(name, issuer, subject, audience);
            match credential.too_long_property() {
                None => Ok(credential),
                Some(property) => refuse(&format!(
                    "`properties.{property}` has more than {} characters.",
                    FederatedCredential::MAX_TEXT
                )),
            }
        }
        _ => refuse("`properties.audiences` has to hold exactly one audience."),
    }
}

fn federated_credential_json(identity: &AccessScope, credential: &FederatedCredential) -> Value {
    json!({
        "id": format!("{identity}/federatedIdentityCredentials/{}", credential.name),
        "name": credential.name,
        "type": FEDERATED,
        "properties": {
            "issuer": credential.issuer,
            "subject": credential.subject,
            "audiences": credential.audiences,
        },
    })
}

/// Returns the id of the identity in the path.
fn identity_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let group = group_scope(call)?;
    parse_request_scope(&format!("{group}/providers/{IDENTITY}/{}", call.path_parameter("name")))
}

fn principal_of_identity<'c>(
    call: &'c OperationContext<'_>,
    id: &AccessScope,
) -> Result<Option<&'c ServicePrincipal>, ServiceReply> {
    Ok(call.azure().directory.managed_identity(&resource_id(id)?))
}

fn require_identity<'c>(
    call: &'c OperationContext<'_>,
    id: &AccessScope,
) -> Result<&'c ServicePrincipal, ServiceReply> {
    resource_reads::find_resource(call, id)?;
    principal_of_identity(call, id)?.ok_or_else(|| ArmServiceError::ResourceNotFound(id).to_reply())
}

fn resource_id(id: &AccessScope) -> Result<ArmResourceId, ServiceReply> {
    id.as_str().parse().map_err(|error: lanyard_vocabulary::ParseArmResourceIdError| {
        bad_request("InvalidResourceId", error.to_string())
    })
}

type PrincipalIds = (lanyard_vocabulary::EntraTenantId, uuid::Uuid, EntraClientId);

/// Creates the service principal of a new identity, in the tenant of the subscription.
fn add_principal(
    call: &mut OperationContext<'_>,
    id: &AccessScope,
) -> Result<PrincipalIds, ServiceReply> {
    let subscription = call.path_parameter("subscription");
    let Some(tenant) = call.azure().resources.subscription(subscription).map(|s| s.tenant.clone())
    else {
        return Err(ArmServiceError::SubscriptionNotFound(subscription).to_reply());
    };
    let (resource_id, now) = (resource_id(id)?, call.now);
    let (azure, ids) = call.azure_and_ids();
    let principal = azure.directory.create_managed_identity(&resource_id, tenant, ids, now);
    Ok((principal.tenant, principal.object_id, principal.client_id))
}
