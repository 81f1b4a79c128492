//! Storage accounts as ARM resources.

use http::StatusCode;
use http::header::LOCATION;
use jiff::Timestamp;
use lanyard_emulator_arm::access::{authorize_call, empty_reply};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request, conflict};
use lanyard_emulator_arm::request_scopes::{parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_removal::remove_resource;
use lanyard_emulator_arm::resource_type::resource_name;
use lanyard_emulator_arm::resource_writes::put_resource;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::ArmResource;
use lanyard_emulator_state::storage::account::{
    GenerateAccountKeyError, StorageAccount, StorageAccountSettings,
};
use lanyard_emulator_state::storage::names::{ParseStorageAccountNameError, StorageAccountName};
use serde_json::{Map, Value, json};

use super::ACCOUNT;

/// The zone in the host names of static websites, such as `account.z13.web.core.windows.net`.
const WEB_ZONE: &str = "z13";
const KINDS: [&str; 5] = ["StorageV2", "Storage", "BlobStorage", "BlockBlobStorage", "FileStorage"];
const SKUS: [&str; 12] = [
    "Standard_LRS",
    "Standard_ZRS",
    "Standard_GRS",
    "Standard_RAGRS",
    "Standard_GZRS",
    "Standard_RAGZRS",
    "Premium_LRS",
    "Premium_ZRS",
    "StandardV2_LRS",
    "StandardV2_ZRS",
    "StandardV2_GRS",
    "StandardV2_GZRS",
];

/// `PUT {account}`: 200 even for a new account, or 202 if the creation is long-running.
pub(super) fn put_account(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let reply = put_resource(call)?;
    let is_pending =
        reply.headers.contains_key("azure-asyncoperation") || reply.headers.contains_key(LOCATION);
    let status = if is_pending { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(ServiceReply { status, ..reply })
}

/// `DELETE {account}`: always synchronous.
pub(super) fn delete_account(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let id = path_scope(call)?;
    authorize_call(call, &format!("{ACCOUNT}/delete"), &id)?;
    if call.azure().resources.resource(&id).is_none() {
        return Ok(empty_reply(call, StatusCode::NO_CONTENT));
    }
    remove_resource(call, &id);
    Ok(empty_reply(call, StatusCode::OK))
}

/// Deletes the data plane of a removed account.
pub(super) fn release_account(
    azure: &mut AzureState,
    removed: &ArmResource,
    _: Timestamp,
) -> Vec<AccessScope> {
    if let Some(host) = blob_host_of_resource(removed) {
        azure.storage.remove_account(&host);
    }
    Vec::new()
}

/// Returns the host name in `primaryEndpoints.blob`.
fn blob_host_of_resource(resource: &ArmResource) -> Option<String> {
    let endpoint = resource.property("primaryEndpoints")?.get("blob")?.as_str()?;
    Some(endpoint.strip_prefix("https://")?.trim_end_matches('/').to_owned())
}

/// The host name of the Blob service of an account in the cloud of the request.
pub(super) fn blob_host(call: &OperationContext<'_>, name: &str) -> String {
    call.endpoint.cloud.blob_host(name)
}

/// Returns the id of the account in the path.
pub(super) fn account_scope(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let parameter = |name| call.path_parameter(name);
    parse_request_scope(&format!(
        "/subscriptions/{}/resourceGroups/{}/providers/{ACCOUNT}/{}",
        parameter("subscription"),
        parameter("group"),
        parameter("name")
    ))
}

/// Returns the data plane of the account in the path.
pub(super) fn find_account<'c>(
    call: &'c OperationContext<'_>,
) -> Result<&'c StorageAccount, ServiceReply> {
    lanyard_emulator_arm::access::require_group(call)?;
    let id = account_scope(call)?;
    call.azure()
        .storage
        .account(&blob_host(call, call.path_parameter("name")))
        .filter(|account| account.resource_id == id)
        .ok_or_else(|| ArmServiceError::ResourceNotFound(&id).to_reply())
}

/// Completes the resource, and creates or changes its data plane.
pub(super) fn prepare_account(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let name: StorageAccountName =
        resource_name(write.id).parse().map_err(|error: ParseStorageAccountNameError| {
            bad_request("AccountNameInvalid", error.to_string())
        })?;
    let host = blob_host(write.call, name.as_str());
    let known = write.call.azure().storage.account(&host);
    if known.is_some_and(|known| known.resource_id != *write.id) {
        let message = format!("The storage account named {name} is already taken.");
        return Err(conflict("StorageAccountAlreadyTaken", message));
    }
    let settings = parse_settings(&mut write.body, &write.properties)?;
    reject_unsupported_properties(&write.properties)?;
    let account = store_data_plane(write, name, host, settings)?;
    add_service_properties(write, &account);
    Ok(())
}

fn store_data_plane(
    write: &mut ResourceWrite<'_, '_>,
    name: StorageAccountName,
    host: String,
    settings: StorageAccountSettings,
) -> Result<StorageAccount, ServiceReply> {
    let subscription = write.call.path_parameter("subscription");
    let subscription = write.call.azure().resources.subscription(subscription);
    let tenant = subscription.map(|subscription| subscription.tenant.clone());
    let tenant = tenant.unwrap_or_else(|| write.caller.tenant.clone());
    let now = write.call.now;
    let (azure, ids) = write.call.azure_and_ids();
    let storage = &mut azure.storage;
    if let Some(account) = storage.account_mut(&host) {
        account.settings = settings;
        return Ok(account.clone());
    }
    let id = write.id.clone();
    let account = StorageAccount::new(name, host, id, tenant, settings, (ids, now))
        .map_err(key_error_reply)?;
    storage.insert_account(account.clone());
    Ok(account)
}

/// The reply to a failure of the random number generator.
pub(super) fn key_error_reply(error: GenerateAccountKeyError) -> ServiceReply {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    ArmServiceError::Other(status, "InternalServerError", format!("{error}.")).to_reply()
}

/// Parses the settings of the data plane. Writes `sku` and `kind` to `body` as Azure spells them.
fn parse_settings(
    body: &mut Map<String, Value>,
    properties: &Map<String, Value>,
) -> Result<StorageAccountSettings, ServiceReply> {
    let invalid = |name: &str, value: &str| {
        bad_request(
            "AccountPropertyIsInvalid",
            format!("Account property {name} is invalid for the request: '{value}'."),
        )
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let sku = text(body.get("sku").and_then(|sku| sku.get("name")));
    let kind = text(body.get("kind"));
    let known = |names: &[&str], value: &str| {
        names.iter().find(|name| name.eq_ignore_ascii_case(value)).map(|name| (*name).to_owned())
    };
    let sku = known(&SKUS, &sku).ok_or_else(|| invalid("sku.name", &sku))?;
    // Versions before 2016-01-01 had no kind.
    let kind = if kind.is_empty() { "Storage".to_owned() } else { kind };
    let kind = known(&KINDS, &kind).ok_or_else(|| invalid("kind", &kind))?;
    let tier = if sku.starts_with("Premium") { "Premium" } else { "Standard" };
    body.insert("sku".to_owned(), json!({ "name": sku, "tier": tier }));
    body.insert("kind".to_owned(), json!(kind));
    body.entry("tags").or_insert_with(|| json!({}));
    let flag = |name: &str, default: bool| match properties.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(invalid(name, &other.to_string())),
    };
    Ok(StorageAccountSettings {
        location: text(body.get("location")),
        kind,
        sku,
        allow_blob_public_access: flag("allowBlobPublicAccess", false)?,
        allow_shared_key_access: flag("allowSharedKeyAccess", true)?,
    })
}

/// Rejects properties that change the data plane in a way that the emulator does not implement.
fn reject_unsupported_properties(properties: &Map<String, Value>) -> Result<(), ServiceReply> {
    for name in ["isHnsEnabled", "isSftpEnabled", "isNfsV3Enabled", "isLocalUserEnabled"] {
        if properties.get(name) == Some(&Value::Bool(true)) {
            return Err(feature_not_supported(name));
        }
    }
    Ok(())
}

/// The reply to a request for a feature that the emulator does not implement.
pub(super) fn feature_not_supported(feature: &str) -> ServiceReply {
    let message = format!("The emulator does not implement `{feature}` of storage accounts.");
    ArmServiceError::Other(StatusCode::NOT_IMPLEMENTED, "FeatureNotSupportedByEmulator", message)
        .to_reply()
}

fn add_service_properties(write: &mut ResourceWrite<'_, '_>, account: &StorageAccount) {
    let StorageAccountSettings { location, allow_blob_public_access, .. } = &account.settings;
    // Account names have no dot, so the first match is the label of the service.
    let endpoint = |service: &str| {
        format!("https://{}/", account.host.replacen(".blob.", &format!(".{service}."), 1))
    };
    let endpoints = json!({
        "blob": endpoint("blob"),
        "dfs": endpoint("dfs"),
        "file": endpoint("file"),
        "queue": endpoint("queue"),
        "table": endpoint("table"),
        "web": endpoint(&format!("{WEB_ZONE}.web")),
    });
    let created = account.keys.iter().map(|key| key.created).min().unwrap_or(write.call.now);
    let set = |properties: &mut Map<String, Value>, name: &str, value: Value| {
        properties.insert(name.to_owned(), value);
    };
    let properties = &mut write.properties;
    set(properties, "primaryEndpoints", endpoints);
    set(properties, "primaryLocation", json!(location));
    set(properties, "statusOfPrimary", json!("available"));
    set(properties, "allowBlobPublicAccess", json!(allow_blob_public_access));
    let key_times = json!({
        "key1": account.keys[0].created.to_string(),
        "key2": account.keys[1].created.to_string(),
    });
    set(properties, "keyCreationTime", key_times);
    write.service_property("creationTime", || json!(created.to_string()));
    write.default_property("supportsHttpsTrafficOnly", json!(true));
    write.default_property("minimumTlsVersion", json!("TLS1_0"));
    write.default_property("accessTier", json!("Hot"));
    write.default_property("privateEndpointConnections", json!([]));
    let open = json!({
        "bypass": "AzureServices",
        "virtualNetworkRules": [],
        "ipRules": [],
        "defaultAction": "Allow",
    });
    write.default_property("networkAcls", open);
    let service = |name: &str| {
        (
            name.to_owned(),
            json!({ "keyType": "Account", "enabled": true, "lastEnabledTime": created.to_string() }),
        )
    };
    let services: Map<_, _> = ["file", "blob"].map(service).into_iter().collect();
    let encryption = json!({ "services": services, "keySource": "Microsoft.Storage" });
    write.default_property("encryption", encryption);
}
