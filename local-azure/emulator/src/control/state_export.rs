//! Exports the state as JSON: all objects with the properties that clients can read.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::{AccessScope, RoleAssignment};
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::directory::{Application, Group, PasswordCredential, User};
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use lanyard_emulator_state::storage::account::StorageAccount;
use lanyard_emulator_state::vaults::object_store::{StoredVaultObject, VersionContent};
use lanyard_emulator_state::vaults::vault::EmulatedVault;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::control_error;
use super::state_listing::{principal_json, tenant_json};

/// Whether an export contains the values of secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecretValues {
    Omitted,
    Included,
}

/// `GET export`: the state as JSON. `?secrets=true` adds the values of vault secrets and client secrets.
pub(super) fn export_state(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let secrets = match call.request.query("secrets") {
        None | Some("false") => SecretValues::Omitted,
        Some("true") => SecretValues::Included,
        Some(_) => {
            let message = "`secrets` is `true` or `false`.";
            return Err(control_error(StatusCode::BAD_REQUEST, "QueryInvalid", message));
        }
    };
    let azure = call.azure();
    let directory = &azure.directory;
    let everywhere = AccessScope::root();
    let at_root = azure.authorization.at(&everywhere);
    let assignments = at_root.chain(azure.authorization.below(&everywhere));
    let principals = directory.service_principals().values();
    let applications = directory.applications().values();
    let export = json!({
        "time": call.now,
        "tenants": directory.tenants.iter().map(tenant_json).collect::<Vec<_>>(),
        "subscriptions": azure.resources.subscriptions.iter().map(|subscription| json!({
            "id": subscription.id,
            "tenant": subscription.tenant,
            "name": subscription.name,
        })).collect::<Vec<_>>(),
        "resources": azure.resources.within(&everywhere).map(ArmResource::to_json).collect::<Vec<_>>(),
        "roleAssignments": assignments.map(|it| assignment_json(azure, it)).collect::<Vec<_>>(),
        "users": directory.users().values().map(user_json).collect::<Vec<_>>(),
        "groups": directory.groups().values().map(group_json).collect::<Vec<_>>(),
        "applications": applications.map(|it| application_json(it, secrets)).collect::<Vec<_>>(),
        "servicePrincipals": principals.map(|it| principal_json(directory, it)).collect::<Vec<_>>(),
        "vaults": azure.vaults.iter().map(|it| vault_json(azure, it, secrets)).collect::<Vec<_>>(),
        "storageAccounts": azure.storage.accounts().map(|it| account_json(azure, it)).collect::<Vec<_>>(),
    });
    Ok(ServiceReply::json(StatusCode::OK, &export).with_header("cache-control", "no-store"))
}

fn assignment_json(azure: &AzureState, assignment: &RoleAssignment) -> Value {
    json!({
        "name": assignment.name,
        "scope": assignment.scope.as_str(),
        "role": azure.authorization.role(assignment.role).map(|role| &role.name),
        "roleDefinitionId": assignment.role.0,
        "principalId": assignment.principal_id,
        "principalType": assignment.principal_type,
        "condition": assignment.condition,
    })
}

fn user_json(user: &User) -> Value {
    json!({
        "objectId": user.object_id,
        "tenant": user.tenant,
        "userPrincipalName": user.principal_name,
        "displayName": user.display_name,
        "enabled": user.enabled,
    })
}

fn group_json(group: &Group) -> Value {
    json!({
        "objectId": group.object_id,
        "tenant": group.tenant,
        "displayName": group.display_name,
        "members": group.members,
    })
}

fn application_json(application: &Application, secrets: SecretValues) -> Value {
    let key_ids: Vec<Uuid> = application.keys.iter().map(|key| key.key_id).collect();
    json!({
        "objectId": application.object_id,
        "clientId": application.client_id,
        "tenant": application.tenant,
        "displayName": application.display_name,
        "secrets": application.passwords.iter().map(|it| password_json(it, secrets)).collect::<Vec<_>>(),
        "certificates": key_ids,
        "federatedCredentials": application.federated_credentials,
    })
}

fn password_json(password: &PasswordCredential, secrets: SecretValues) -> Value {
    let mut json = json!({ "keyId": password.key_id, "expires": password.expires });
    if secrets == SecretValues::Included {
        json["text"] = json!(password.text);
    }
    json
}

fn vault_json(azure: &AzureState, vault: &EmulatedVault, secrets: SecretValues) -> Value {
    let stored = azure.vaults.secrets.objects_after(&vault.host, None);
    let listed = stored.map(|secret| {
        let mut json = object_json(secret);
        if let (SecretValues::Included, Some(version)) = (secrets, secret.latest()) {
            json.insert("value".to_owned(), json!(version.content.value));
        }
        json
    });
    let (keys, certificates) = (&azure.vaults.keys, &azure.vaults.certificates);
    json!({
        "host": vault.host,
        "resource": vault.resource_id.as_str(),
        "tenant": vault.settings.tenant,
        "secrets": listed.collect::<Vec<_>>(),
        "keys": keys.objects_after(&vault.host, None).map(object_json).collect::<Vec<_>>(),
        "certificates": certificates.objects_after(&vault.host, None).map(object_json).collect::<Vec<_>>(),
    })
}

fn object_json<T: VersionContent>(object: &StoredVaultObject<T>) -> Map<String, Value> {
    let attributes = object.latest().map(|version| version.attributes);
    let fields = [
        ("name", json!(object.name)),
        ("versions", json!(object.versions.len())),
        ("enabled", json!(attributes.map(|it| it.enabled))),
        ("expires", json!(attributes.and_then(|it| it.expires))),
    ];
    fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

fn account_json(azure: &AzureState, account: &StorageAccount) -> Value {
    let containers = azure.storage.containers(&account.host, "").map(|(key, _)| {
        let blobs = azure.storage.blobs(key, std::ops::Bound::Unbounded);
        json!({ "name": key.name, "blobs": blobs.map(|(blob, _)| &blob.name).collect::<Vec<_>>() })
    });
    json!({
        "host": account.host,
        "resource": account.resource_id.as_str(),
        "containers": containers.collect::<Vec<_>>(),
    })
}
