//! The properties of a vault: their rules, defaults and wire format.

use http::{Method, StatusCode};
use lanyard_emulator_arm::access::{authorize_link, is_authorized};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request};
use lanyard_emulator_arm::request_scopes::parse_request_scope;
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::network_rules::{
    Ipv4Range, ParseIpv4RangeError, VaultNetworkRules,
};
use lanyard_emulator_state::vaults::vault::VaultSettings;
use lanyard_vocabulary::EntraTenantId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::access_policies::parse_access_policies;
use super::invalid_vault_reply;

/// The retention of deleted objects in days, if the client does not set it.
const DEFAULT_RETENTION_DAYS: u16 = 90;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct VaultPropertiesBody {
    tenant_id: Option<String>,
    sku: Option<VaultSku>,
    access_policies: Option<Value>,
    enabled_for_deployment: Option<bool>,
    enabled_for_disk_encryption: Option<bool>,
    enabled_for_template_deployment: Option<bool>,
    enable_soft_delete: Option<bool>,
    soft_delete_retention_in_days: Option<i64>,
    enable_rbac_authorization: Option<bool>,
    enable_purge_protection: Option<bool>,
    network_acls: Option<NetworkAcls>,
    public_network_access: Option<String>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(default)]
struct VaultSku {
    family: String,
    name: String,
}

/// `networkAcls` as in requests and replies.
#[derive(Deserialize, Serialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct NetworkAcls {
    bypass: Option<String>,
    default_action: Option<String>,
    ip_rules: Vec<IpRule>,
    virtual_network_rules: Vec<VirtualNetworkRule>,
}

#[derive(Deserialize, Serialize)]
struct IpRule {
    value: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct VirtualNetworkRule {
    id: String,
    #[serde(default, skip_serializing)]
    ignore_missing_vnet_service_endpoint: bool,
}

/// Validates the properties of a write, replaces them with the complete ones, and returns the settings of the
/// data plane.
pub(super) fn complete_properties(
    write: &mut ResourceWrite<'_, '_>,
    host: &str,
) -> Result<VaultSettings, ServiceReply> {
    let given = Value::Object(std::mem::take(&mut write.properties));
    let body: VaultPropertiesBody = serde_json::from_value(given)
        .map_err(|error| invalid_vault_reply(format!("The properties are not valid: {error}.")))?;
    let previous = write.call.azure().vaults.vault_of_resource(write.id);
    let previous = previous.map(|vault| vault.settings.clone());
    let sku = require_sku(body.sku)?;
    let tenant = require_tenant(write, body.tenant_id)?;
    let rbac = permission_model(write, body.enable_rbac_authorization, previous.as_ref())?;
    let given_policies = body.access_policies.filter(|policies| !policies.is_null());
    if given_policies.is_none() && !rbac && write.call.request.method == Method::PUT {
        return Err(invalid_vault_reply("The parameter accessPolicies is not specified."));
    }
    let policies = given_policies.unwrap_or_else(|| json!([]));
    let access_policies = parse_access_policies(&policies, &tenant)?;
    if body.enable_soft_delete == Some(false) {
        return Err(invalid_vault_reply(
            "The property \"enableSoftDelete\" cannot be set to false. Soft delete is enabled for every \
             vault, and cannot be disabled.",
        ));
    }
    let retention_days = retention_days(body.soft_delete_retention_in_days, previous.as_ref())?;
    let was_protected = previous.as_ref().is_some_and(|previous| previous.purge_protection);
    if body.enable_purge_protection == Some(false) {
        return Err(invalid_vault_reply(
            "The property \"enablePurgeProtection\" cannot be set to false. Enabling the purge \
             protection for a vault is an irreversible action.",
        ));
    }
    let purge_protection = was_protected || body.enable_purge_protection == Some(true);
    let public_access = parse_public_access(body.public_network_access)?;
    let network = parse_network(write, body.network_acls.as_ref(), public_access)?;
    let mut properties = json!({
        "sku": sku,
        "tenantId": tenant,
        "accessPolicies": access_policies,
        "enabledForDeployment": body.enabled_for_deployment.unwrap_or(false),
        "enableSoftDelete": true,
        "softDeleteRetentionInDays": retention_days,
        "enableRbacAuthorization": rbac,
        "vaultUri": format!("https://{host}/"),
        "publicNetworkAccess": public_access,
    });
    let optional = [
        ("enabledForDiskEncryption", body.enabled_for_disk_encryption.map(Value::Bool)),
        ("enabledForTemplateDeployment", body.enabled_for_template_deployment.map(Value::Bool)),
        ("enablePurgeProtection", purge_protection.then_some(Value::Bool(true))),
        ("networkAcls", body.network_acls.map(|acls| network_json(acls, &network))),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            properties[name] = value;
        }
    }
    if let Value::Object(properties) = properties {
        write.properties = properties;
    }
    Ok(VaultSettings { tenant, rbac, access_policies, retention_days, purge_protection, network })
}

fn require_sku(sku: Option<VaultSku>) -> Result<VaultSku, ServiceReply> {
    let sku = sku.unwrap_or_default();
    if sku.name.is_empty() {
        return Err(invalid_vault_reply("The parameter sku is not specified."));
    }
    let name = ["standard", "premium"].into_iter().find(|it| it.eq_ignore_ascii_case(&sku.name));
    match name {
        Some(name) if sku.family.eq_ignore_ascii_case("A") => {
            Ok(VaultSku { family: "A".to_owned(), name: name.to_owned() })
        }
        _ => Err(invalid_vault_reply("An invalid value was provided for 'sku'.")),
    }
}

/// Returns the tenant of the vault, which must exist.
fn require_tenant(
    write: &ResourceWrite<'_, '_>,
    given: Option<String>,
) -> Result<EntraTenantId, ServiceReply> {
    let given = given.unwrap_or_default();
    if given.is_empty() {
        return Err(invalid_vault_reply("The parameter tenantId is not specified."));
    }
    let tenants = &write.call.azure().directory.tenants;
    tenants
        .iter()
        .find(|tenant| tenant.has_id(&given))
        .map(|tenant| tenant.id.clone())
        .ok_or_else(|| invalid_vault_reply("An invalid value was provided for 'tenantId'."))
}

/// Whether Azure RBAC authorizes the data plane, instead of access policies. The default of a new
/// vault is true from api-version 2026-02-01 on, and false before.
///
/// A change needs the permission to assign roles, because it can give access to the content.
fn permission_model(
    write: &ResourceWrite<'_, '_>,
    given: Option<bool>,
    previous: Option<&VaultSettings>,
) -> Result<bool, ServiceReply> {
    let Some(previous) = previous else {
        let default = write.call.api_version().is_ok_and(|version| version >= "2026");
        return Ok(given.unwrap_or(default));
    };
    let rbac = given.unwrap_or(previous.rbac);
    let assign = "Microsoft.Authorization/roleAssignments/write";
    if rbac != previous.rbac && !is_authorized(write.call, write.caller, assign, write.id) {
        let (caller, id) = (write.caller.object_id, write.id);
        let message = format!(
            "Caller is not allowed to change permission model. For more information on how to change the \
             permissions model follow this link: https://go.microsoft.com/fwlink/?linkid=2155160. \
             Details: oid={caller}; action={assign}; resource={id}; decision=NotAllowed;"
        );
        return Err(ArmServiceError::Other(
            StatusCode::FORBIDDEN,
            "InsufficientPermissions",
            message,
        )
        .to_reply());
    }
    Ok(rbac)
}

/// Returns the retention in days, which cannot change after the creation.
fn retention_days(
    given: Option<i64>,
    previous: Option<&VaultSettings>,
) -> Result<u16, ServiceReply> {
    let previous = previous.map(|previous| previous.retention_days);
    let Some(given) = given else { return Ok(previous.unwrap_or(DEFAULT_RETENTION_DAYS)) };
    let days =
        u16::try_from(given).ok().filter(|days| (7..=90).contains(days)).ok_or_else(|| {
            invalid_vault_reply(
                "The property \"softDeleteRetentionInDays\" must be an integer between 7 and 90.",
            )
        })?;
    if previous.is_some_and(|previous| previous != days) {
        return Err(invalid_vault_reply(
            "The property \"softDeleteRetentionInDays\" has been set already and it can't be modified.",
        ));
    }
    Ok(days)
}

fn parse_public_access(given: Option<String>) -> Result<&'static str, ServiceReply> {
    let given = given.unwrap_or_else(|| "Enabled".to_owned());
    ["Enabled", "Disabled", "SecuredByPerimeter"]
        .into_iter()
        .find(|known| known.eq_ignore_ascii_case(&given))
        .ok_or_else(|| {
            invalid_vault_reply("An invalid value was provided for 'publicNetworkAccess'.")
        })
}

fn parse_network(
    write: &ResourceWrite<'_, '_>,
    acls: Option<&NetworkAcls>,
    public_access: &str,
) -> Result<VaultNetworkRules, ServiceReply> {
    let has_public_access = public_access == "Enabled";
    let Some(acls) = acls else {
        return Ok(VaultNetworkRules { has_public_access, ..VaultNetworkRules::default() });
    };
    let invalid =
        |name: &str| invalid_vault_reply(format!("An invalid value was provided for '{name}'."));
    let is_one_of = |value: Option<&str>, known: [&str; 2]| {
        value.is_none_or(|value| known.iter().any(|known| known.eq_ignore_ascii_case(value)))
    };
    if !is_one_of(acls.bypass.as_deref(), ["AzureServices", "None"]) {
        return Err(invalid("networkAcls.bypass"));
    }
    let action = acls.default_action.as_deref();
    if !is_one_of(action, ["Allow", "Deny"]) {
        return Err(invalid("networkAcls.defaultAction"));
    }
    let ip_rules = acls
        .ip_rules
        .iter()
        .map(|rule| rule.value.parse())
        .collect::<Result<Vec<Ipv4Range>, ParseIpv4RangeError>>()
        .map_err(|error| {
            invalid_vault_reply(format!(
                "An invalid value was provided for 'networkAcls.ipRules': {error}."
            ))
        })?;
    for rule in &acls.virtual_network_rules {
        require_service_endpoint(write, rule)?;
    }
    let denies_by_default = action.is_some_and(|action| action.eq_ignore_ascii_case("Deny"));
    Ok(VaultNetworkRules { has_public_access, denies_by_default, ip_rules })
}

/// Rejects a subnet that the caller may not join, or that has no service endpoint for vaults.
fn require_service_endpoint(
    write: &ResourceWrite<'_, '_>,
    rule: &VirtualNetworkRule,
) -> Result<(), ServiceReply> {
    let subnet = parse_request_scope(&rule.id)?;
    let join = "Microsoft.Network/virtualNetworks/subnets/joinViaServiceEndpoint/action";
    authorize_link(write.call, write.caller, join, write.id, &subnet)?;
    let has_endpoint = write
        .resources()
        .resource(&subnet)
        .and_then(|subnet| subnet.property("serviceEndpoints")?.as_array())
        .into_iter()
        .flatten()
        .any(|endpoint| endpoint["service"] == "Microsoft.KeyVault");
    if has_endpoint || rule.ignore_missing_vnet_service_endpoint {
        return Ok(());
    }
    Err(bad_request(
        "SubnetsHaveNoServiceEndpointsConfigured",
        format!(
            "Subnets {subnet} have no service endpoints configured. Add 'Microsoft.KeyVault' to subnet's \
             ServiceEndpoints collection before trying to ACL Microsoft.KeyVault resources to these \
             subnets."
        ),
    ))
}

fn network_json(acls: NetworkAcls, rules: &VaultNetworkRules) -> Value {
    let canonical = |value: Option<String>, known: [&'static str; 2]| {
        let value = value.unwrap_or_default();
        let [default, other] = known;
        if other.eq_ignore_ascii_case(&value) { other } else { default }
    };
    let mut wire = Map::new();
    wire.insert("bypass".to_owned(), json!(canonical(acls.bypass, ["AzureServices", "None"])));
    let action = canonical(acls.default_action, ["Allow", "Deny"]);
    wire.insert("defaultAction".to_owned(), json!(action));
    let ip_rules: Vec<_> = rules.ip_rules.iter().map(|range| json!({ "value": range })).collect();
    wire.insert("ipRules".to_owned(), json!(ip_rules));
    let networks: Vec<_> = acls
        .virtual_network_rules
        .iter()
        .map(|rule| json!({ "id": rule.id.to_ascii_lowercase() }))
        .collect();
    wire.insert("virtualNetworkRules".to_owned(), json!(networks));
    Value::Object(wire)
}
