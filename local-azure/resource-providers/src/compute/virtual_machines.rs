//! Virtual machines: their configuration and a power state.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_reply};
use lanyard_emulator_arm::error::{ArmServiceError, bad_request};
use lanyard_emulator_arm::request_scopes::{parse_request_scope, path_scope};
use lanyard_emulator_arm::resource_change::ResourceWrite;
use lanyard_emulator_arm::resource_identity::complete_identity;
use lanyard_emulator_arm::resource_reads::{
    find_resource, get_resource, list_child_collection, list_in_subscription,
};
use lanyard_emulator_arm::resource_rendering::render_resource;
use lanyard_emulator_arm::resource_type::{NameEdge, NamingRule, ResourceType, resource_name};
use lanyard_emulator_arm::resource_writes::{delete_resource, patch_resource, put_resource};
use lanyard_emulator_arm::{full, rg, sub};
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Value, json};

use super::{DISK, VIRTUAL_MACHINE};

/// The field of the stored body with the power state, which replies omit.
const POWER_STATE: &str = "powerState";

pub(super) const VIRTUAL_MACHINE_TYPE: ResourceType = ResourceType {
    prepare: prepare_machine,
    render: Some(render_machine),
    ..ResourceType::regional(
        VIRTUAL_MACHINE,
        NamingRule { last: NameEdge::Alphanumeric, ..NamingRule::word(64) },
        "2015-05-01-preview",
    )
};

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!(
        "VirtualMachines_ListAll",
        GET,
        sub!("Microsoft.Compute/virtualMachines"),
        list_in_subscription
    ),
    full!(
        "VirtualMachines_List",
        GET,
        rg!("Microsoft.Compute/virtualMachines"),
        list_child_collection
    ),
    full!(
        "VirtualMachines_CreateOrUpdate",
        PUT,
        rg!("Microsoft.Compute/virtualMachines/{name}"),
        put_resource
    ),
    full!(
        "VirtualMachines_Update",
        PATCH,
        rg!("Microsoft.Compute/virtualMachines/{name}"),
        patch_resource
    ),
    full!(
        "VirtualMachines_Delete",
        DELETE,
        rg!("Microsoft.Compute/virtualMachines/{name}"),
        delete_resource
    ),
    full!("VirtualMachines_Get", GET, rg!("Microsoft.Compute/virtualMachines/{name}"), get_machine),
    full!(
        "VirtualMachines_InstanceView",
        GET,
        rg!("Microsoft.Compute/virtualMachines/{name}/instanceView"),
        get_instance_view
    ),
    full!(
        "VirtualMachines_Start",
        POST,
        rg!("Microsoft.Compute/virtualMachines/{name}/start"),
        |call| set_power_state(call, "start", "running")
    ),
    full!(
        "VirtualMachines_Restart",
        POST,
        rg!("Microsoft.Compute/virtualMachines/{name}/restart"),
        |call| set_power_state(call, "restart", "running")
    ),
    full!(
        "VirtualMachines_PowerOff",
        POST,
        rg!("Microsoft.Compute/virtualMachines/{name}/powerOff"),
        |call| set_power_state(call, "powerOff", "stopped")
    ),
    full!(
        "VirtualMachines_Deallocate",
        POST,
        rg!("Microsoft.Compute/virtualMachines/{name}/deallocate"),
        |call| set_power_state(call, "deallocate", "deallocated")
    ),
];

fn prepare_machine(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    complete_identity(write)?;
    let size = write.properties.get("hardwareProfile").and_then(|it| it["vmSize"].as_str());
    if size.is_none_or(str::is_empty) {
        return Err(missing_parameter("hardwareProfile.vmSize"));
    }
    require_interfaces(write)?;
    complete_operating_system(write);
    complete_storage(write)?;
    let id = write.call.ids.next_uuid();
    write.service_property("vmId", || json!(id));
    let now = write.call.now.to_string();
    write.service_property("timeCreated", || json!(now));
    write.properties.remove("instanceView");
    let power = write.existing.as_ref().and_then(|machine| machine.body.get(POWER_STATE)).cloned();
    write.body.insert(POWER_STATE.to_owned(), power.unwrap_or_else(|| json!("running")));
    Ok(())
}

fn missing_parameter(name: &str) -> ServiceReply {
    let message = format!("Required parameter '{name}' is missing (null).");
    bad_request("InvalidParameter", message)
}

/// Checks that the network interfaces exist, that no other virtual machine uses them, and that the
/// caller may join them.
fn require_interfaces(write: &ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let profile = write.properties.get("networkProfile");
    let interfaces = profile.and_then(|profile| profile["networkInterfaces"].as_array());
    let Some(interfaces) = interfaces.filter(|interfaces| !interfaces.is_empty()) else {
        return Err(missing_parameter("networkProfile.networkInterfaces"));
    };
    for interface in interfaces {
        let Some(id) = interface["id"].as_str() else {
            return Err(missing_parameter("networkProfile.networkInterfaces.id"));
        };
        let id = parse_request_scope(id)?;
        if write.resources().resource(&id).is_none() {
            return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
        }
        let other = write.resources().referrers_within(&id).find(|referrer| {
            let resource = write.resources().resource(referrer);
            **referrer != *write.id
                && resource.is_some_and(|it| it.kind.eq_ignore_ascii_case(VIRTUAL_MACHINE))
        });
        if let Some(other) = other {
            return Err(bad_request(
                "NicInUse",
                format!("Network Interface {id} is used by existing VM {other}."),
            ));
        }
        let action = "Microsoft.Network/networkInterfaces/join/action";
        lanyard_emulator_arm::access::authorize_link(
            write.call,
            write.caller,
            action,
            write.id,
            &id,
        )?;
    }
    Ok(())
}

/// Removes the password and the custom data, which Azure does not return, and sets defaults.
fn complete_operating_system(write: &mut ResourceWrite<'_, '_>) {
    let name = resource_name(write.id);
    if let Some(Value::Object(profile)) = write.properties.get_mut("osProfile") {
        profile.remove("adminPassword");
        profile.remove("customData");
        profile.entry("computerName").or_insert(json!(name));
        profile.entry("secrets").or_insert(json!([]));
        profile.entry("allowExtensionOperations").or_insert(json!(true));
    }
}

/// Creates the operating system disk, and checks that the data disks and the image exist.
fn complete_storage(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let mut storage = write.properties.remove("storageProfile").unwrap_or_else(|| json!({}));
    let image = storage["imageReference"]["id"].as_str().map(ToOwned::to_owned);
    if let Some(image) = image {
        let image = parse_request_scope(&image)?;
        if write.resources().resource(&image).is_none() {
            return Err(ArmServiceError::ResourceNotFound(&image).to_reply());
        }
    }
    let before = write.existing.as_ref().and_then(|machine| machine.property("storageProfile"));
    let os_disk = before.map(|storage| storage["osDisk"]["managedDisk"].clone());
    if !storage["osDisk"].is_object() {
        storage["osDisk"] = json!({ "createOption": "FromImage" });
    }
    if storage["osDisk"]["managedDisk"].get("id").is_none() {
        storage["osDisk"]["managedDisk"] = match os_disk.filter(|disk| disk["id"].is_string()) {
            Some(disk) => disk,
            None => create_os_disk(write, &storage["osDisk"])?,
        };
    }
    for disk in storage["dataDisks"].as_array().into_iter().flatten() {
        let Some(id) = disk["managedDisk"]["id"].as_str() else { continue };
        let id = parse_request_scope(id)?;
        if write.resources().resource(&id).is_none() {
            return Err(ArmServiceError::ResourceNotFound(&id).to_reply());
        }
    }
    write.properties.insert("storageProfile".to_owned(), storage);
    Ok(())
}

fn create_os_disk(
    write: &mut ResourceWrite<'_, '_>,
    os_disk: &Value,
) -> Result<Value, ServiceReply> {
    let unique = write.call.ids.next_hex32();
    let name = os_disk["name"].as_str().map_or_else(
        || format!("{}_OsDisk_1_{unique}", resource_name(write.id)),
        ToOwned::to_owned,
    );
    let group = write.id.as_str().split("/providers/").next().unwrap_or_default();
    let id: AccessScope = parse_request_scope(&format!("{group}/providers/{DISK}/{name}"))?;
    let sku = os_disk["managedDisk"]["storageAccountType"].as_str().unwrap_or("Premium_LRS");
    let body = json!({
        "location": write.body.get("location"),
        "sku": { "name": sku, "tier": sku.split('_').next() },
        "properties": {
            "creationData": { "createOption": "FromImage" },
            "diskSizeGB": os_disk["diskSizeGB"].as_u64().unwrap_or(30),
            "osType": os_disk["osType"].as_str().unwrap_or("Linux"),
            "provisioningState": "Succeeded",
        },
    });
    let disk = ArmResource::new(id.clone(), DISK, body, write.call.now);
    write.others.push(disk);
    Ok(json!({ "id": id.as_str(), "storageAccountType": sku }))
}

fn render_machine(_: &ArmResourceStore, machine: &ArmResource) -> Value {
    let mut wire = machine.to_json();
    if let Value::Object(fields) = &mut wire {
        fields.remove(POWER_STATE);
    }
    wire
}

/// `GET` of a virtual machine, with the instance view on request.
fn get_machine(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let expands =
        call.request.query("$expand").is_some_and(|it| it.eq_ignore_ascii_case("instanceView"));
    let reply = get_resource(call)?;
    if !expands {
        return Ok(reply);
    }
    let id = path_scope(call)?;
    let mut wire = render_resource(call, &id);
    wire["properties"]["instanceView"] = instance_view(find_resource(call, &id)?);
    Ok(json_reply(call, StatusCode::OK, &wire))
}

fn get_instance_view(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let id = machine_id(call)?;
    authorize_call(call, &format!("{VIRTUAL_MACHINE}/instanceView/read"), &id)?;
    let view = instance_view(find_resource(call, &id)?);
    Ok(json_reply(call, StatusCode::OK, &view))
}

fn instance_view(machine: &ArmResource) -> Value {
    let power = machine.body.get(POWER_STATE).and_then(Value::as_str).unwrap_or("running");
    json!({
        "statuses": [
            {
                "code": "ProvisioningState/succeeded",
                "level": "Info",
                "displayStatus": "Provisioning succeeded",
                "time": machine.changed.to_string(),
            },
            {
                "code": format!("PowerState/{power}"),
                "level": "Info",
                "displayStatus": format!("VM {power}"),
            },
        ],
    })
}

/// Returns the id of the virtual machine in the path of an action.
fn machine_id(call: &OperationContext<'_>) -> Result<AccessScope, ServiceReply> {
    let path = path_scope(call)?;
    let (machine, _) = path.as_str().rsplit_once('/').unwrap_or_default();
    parse_request_scope(machine)
}

fn set_power_state(
    call: &mut OperationContext<'_>,
    action: &str,
    state: &str,
) -> Result<ServiceReply, ServiceReply> {
    let id = machine_id(call)?;
    authorize_call(call, &format!("{VIRTUAL_MACHINE}/{action}/action"), &id)?;
    find_resource(call, &id)?;
    if let Some(machine) = call.azure_mut().resources.resource_mut(&id) {
        machine.body.insert(POWER_STATE.to_owned(), json!(state));
    }
    // The Azure CLI reads the status of a completed restart.
    let (name, now) = (call.ids.next_uuid(), call.now.to_string());
    let status = json!({ "name": name, "status": "Succeeded", "startTime": now, "endTime": now });
    Ok(json_reply(call, StatusCode::OK, &status))
}
