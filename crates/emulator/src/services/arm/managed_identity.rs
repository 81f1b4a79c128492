//! User-assigned identities and their federated credentials. Reference: Microsoft.ManagedIdentity,
//! 2024-11-30. An identity has a principal in the directory from the moment it exists.

use http::{Method, StatusCode};
use lanyard_vocabulary::{ArmResourceId, ClientId};
use serde_json::{Value, json};

use super::gate::{body, empty, enter, group_scope, list, path_scope, reply, require_group, scope};
use super::reading;
use super::refusal::{Refusal, bad_request, conflict};
use super::resources::{Resource, Stored};
use super::{Reads, reads_back};
use crate::authorization::AccessScope;
use crate::call::Call;
use crate::directory::{FederatedCredential, Principal, PrincipalKind};
use crate::operations::{Handler, Operation, Support};
use crate::request::Reply;

pub(super) const OPERATIONS: &[Operation] = &[
    reads_back(
        "UserAssignedIdentities_ListBySubscription",
        Reads::Subscription,
        sub!("Microsoft.ManagedIdentity/userAssignedIdentities"),
    ),
    reads_back(
        "UserAssignedIdentities_ListByResourceGroup",
        Reads::Below,
        rg!("Microsoft.ManagedIdentity/userAssignedIdentities"),
    ),
    identity("UserAssignedIdentities_Get", Method::GET, reading::read),
    identity("UserAssignedIdentities_CreateOrUpdate", Method::PUT, create),
    identity("UserAssignedIdentities_Update", Method::PATCH, update),
    identity("UserAssignedIdentities_Delete", Method::DELETE, delete),
    Operation {
        id: "FederatedIdentityCredentials_List",
        method: Method::GET,
        path: rg!(
            "Microsoft.ManagedIdentity/userAssignedIdentities/{name}/federatedIdentityCredentials"
        ),
        support: Support::Full,
        handler: list_federated,
    },
    federated("FederatedIdentityCredentials_Get", Method::GET, read_federated),
    federated("FederatedIdentityCredentials_CreateOrUpdate", Method::PUT, create_federated),
    federated("FederatedIdentityCredentials_Delete", Method::DELETE, delete_federated),
];

const IDENTITY: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";
const FEDERATED: &str =
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials";

/// The most federated credentials that an identity may have.
const MOST_FEDERATED: usize = 20;

const fn identity(id: &'static str, method: Method, handler: Handler) -> Operation {
    let path = rg!("Microsoft.ManagedIdentity/userAssignedIdentities/{name}");
    Operation { id, method, path, support: Support::Full, handler }
}

const fn federated(id: &'static str, method: Method, handler: Handler) -> Operation {
    let path = rg!(
        "Microsoft.ManagedIdentity/userAssignedIdentities/{name}/federatedIdentityCredentials/{child}"
    );
    Operation { id, method, path, support: Support::Full, handler }
}

fn create(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{IDENTITY}/write"), &id)?;
    require_group(call)?;
    let given = body(call)?;
    let location = given.get("location").and_then(Value::as_str).map(str::to_owned);
    let Some(location) = location.filter(|location| !location.is_empty()) else {
        return Err(bad_request("LocationRequired", "The body has no `location`."));
    };
    let principal = match principal_of(call, &id)? {
        Some(principal) => (principal.tenant.clone(), principal.object_id, principal.client_id),
        None => add_principal(call, &id)?,
    };
    let (tenant, object_id, client_id) = principal;
    let stored = json!({
        "location": location,
        "tags": given.get("tags").cloned().unwrap_or_else(|| json!({})),
        "properties": { "tenantId": tenant, "principalId": object_id, "clientId": client_id },
    });
    let now = call.now;
    let stored = call.world_mut().resources.store(Resource::new(id.clone(), IDENTITY, stored, now));
    let status = if stored == Stored::Created { StatusCode::CREATED } else { StatusCode::OK };
    let wire = reading::find(call, &id)?.wire();
    Ok(reply(call, status, &wire))
}

fn update(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{IDENTITY}/write"), &id)?;
    reading::find(call, &id)?;
    let given = body(call)?;
    let now = call.now;
    if let Some(held) = call.world_mut().resources.resource_mut(&id) {
        if let Some(tags) = given.get("tags") {
            held.body.insert("tags".to_owned(), tags.clone());
        }
        held.changed = now;
    }
    let wire = reading::find(call, &id)?.wire();
    Ok(reply(call, StatusCode::OK, &wire))
}

fn delete(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let id = path_scope(call)?;
    enter(call, &format!("{IDENTITY}/delete"), &id)?;
    let now = call.now;
    let removed = call.world_mut().resources.remove(&id);
    super::forget(call.world_mut(), &removed, now);
    let status = if removed.is_empty() { StatusCode::NO_CONTENT } else { StatusCode::OK };
    Ok(empty(call, status))
}

fn list_federated(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let identity = identity_scope(call)?;
    enter(call, &format!("{FEDERATED}/read"), &identity)?;
    let principal = require_identity(call, &identity)?;
    let credentials = &principal.federated_credentials;
    let items = credentials.iter().map(|credential| wire(&identity, credential)).collect();
    list(call, items)
}

fn read_federated(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    enter(call, &format!("{FEDERATED}/read"), &id)?;
    let name = call.parameter("child");
    let principal = require_identity(call, &identity)?;
    match principal.federated_credentials.iter().find(|held| held.name.eq_ignore_ascii_case(name)) {
        Some(held) => Ok(reply(call, StatusCode::OK, &wire(&identity, held))),
        None => Err(Refusal::NoResource(&id).reply()),
    }
}

fn create_federated(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    enter(call, &format!("{FEDERATED}/write"), &id)?;
    require_identity(call, &identity)?;
    let credential = parse_federated(call.parameter("child"), &body(call)?)?;
    let resource = resource_id(&identity)?;
    let Some(principal) = call.world_mut().directory.by_resource_mut(&resource) else {
        return Err(Refusal::NoResource(&identity).reply());
    };
    let status = put_federated(principal, credential.clone())?;
    Ok(reply(call, status, &wire(&identity, &credential)))
}

fn delete_federated(call: &mut Call<'_>) -> Result<Reply, Reply> {
    let (identity, id) = (identity_scope(call)?, path_scope(call)?);
    enter(call, &format!("{FEDERATED}/delete"), &id)?;
    require_identity(call, &identity)?;
    let name = call.parameter("child").to_owned();
    let resource = resource_id(&identity)?;
    let Some(principal) = call.world_mut().directory.by_resource_mut(&resource) else {
        return Err(Refusal::NoResource(&identity).reply());
    };
    let before = principal.federated_credentials.len();
    principal.federated_credentials.retain(|held| !held.name.eq_ignore_ascii_case(&name));
    let removed = principal.federated_credentials.len() < before;
    let status = if removed { StatusCode::OK } else { StatusCode::NO_CONTENT };
    Ok(empty(call, status))
}

/// Adds or replaces a credential: at most 20, issuer and subject unique within the identity.
fn put_federated(
    principal: &mut Principal,
    credential: FederatedCredential,
) -> Result<StatusCode, Reply> {
    let held = &mut principal.federated_credentials;
    let place = held.iter().position(|held| held.name.eq_ignore_ascii_case(&credential.name));
    let twin = held
        .iter()
        .position(|held| held.issuer == credential.issuer && held.subject == credential.subject);
    if let Some(twin) = twin.filter(|twin| Some(*twin) != place) {
        let name = held.get(twin).map(|held| held.name.as_str()).unwrap_or_default();
        return Err(conflict(
            "Conflict",
            format!("The credential '{name}' has the same issuer and subject."),
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

fn parse_federated(name: &str, body: &Value) -> Result<FederatedCredential, Reply> {
    let refuse = |message: &str| Err(bad_request("InvalidFederatedIdentityCredential", message));
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !(3..=120).contains(&name.len())
        || !name.chars().all(word)
        || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
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
        Some([Value::String(audience)]) if !audience.is_empty() => Ok(FederatedCredential {
            name: name.to_owned(),
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            audiences: vec![audience.clone()],
        }),
        _ => refuse("`properties.audiences` has to hold exactly one audience."),
    }
}

fn wire(identity: &AccessScope, credential: &FederatedCredential) -> Value {
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

/// The identity that the path goes through.
fn identity_scope(call: &Call<'_>) -> Result<AccessScope, Reply> {
    let group = group_scope(call)?;
    scope(&format!("{group}/providers/{IDENTITY}/{}", call.parameter("name")))
}

fn principal_of<'c>(call: &'c Call<'_>, id: &AccessScope) -> Result<Option<&'c Principal>, Reply> {
    Ok(call.world().directory.by_resource(&resource_id(id)?))
}

fn require_identity<'c>(call: &'c Call<'_>, id: &AccessScope) -> Result<&'c Principal, Reply> {
    reading::find(call, id)?;
    principal_of(call, id)?.ok_or_else(|| Refusal::NoResource(id).reply())
}

fn resource_id(id: &AccessScope) -> Result<ArmResourceId, Reply> {
    id.as_str().parse().map_err(|error: lanyard_vocabulary::ParseArmResourceIdError| {
        bad_request("InvalidResourceId", error.to_string())
    })
}

type PrincipalIds = (lanyard_vocabulary::TenantId, uuid::Uuid, ClientId);

/// Makes the service principal of a new identity, in the tenant of the subscription.
fn add_principal(call: &mut Call<'_>, id: &AccessScope) -> Result<PrincipalIds, Reply> {
    let subscription = call.parameter("subscription").to_owned();
    let Some(tenant) = call.world().resources.subscription(&subscription).map(|s| s.tenant.clone())
    else {
        return Err(Refusal::NoSubscription(&subscription).reply());
    };
    let (object_id, client_id) = (call.ids.uuid(), ClientId::from(call.ids.uuid()));
    let resource_id = resource_id(id)?;
    let principal = Principal {
        object_id,
        client_id,
        tenant: tenant.clone(),
        display_name: resource_id.name().to_owned(),
        enabled: true,
        kind: PrincipalKind::ManagedIdentity { resource_id },
        secrets: Vec::new(),
        certificates: Vec::new(),
        subject_name_issuer: None,
        federated_credentials: Vec::new(),
    };
    call.world_mut().directory.principals.push(principal);
    Ok((tenant, object_id, client_id))
}
