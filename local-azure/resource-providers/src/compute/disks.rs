//! Managed disks and images.

use http::StatusCode;
use lanyard_emulator_arm::error::{bad_request, conflict};
use lanyard_emulator_arm::resource_change::{ResourceDeletion, ResourceWrite};
use lanyard_emulator_arm::resource_type::{NamingRule, ResourceType, resource_name};
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::{Value, json};

use super::{DISK, VIRTUAL_MACHINE};

pub(super) const DISK_TYPE: ResourceType = ResourceType {
    prepare: prepare_disk,
    check_deletion: check_disk_deletion,
    render: Some(render_disk),
    creation_status: StatusCode::OK,
    ..ResourceType::regional(DISK, NamingRule::word(80), "2016-04-30-preview")
};

pub(super) const IMAGE_TYPE: ResourceType = ResourceType {
    prepare: prepare_image,
    ..ResourceType::regional("Microsoft.Compute/images", NamingRule::word(80), "2016-04-30-preview")
};

/// The greatest size of a disk in GiB.
const MOST_GIBIBYTES: u64 = 65_536;

fn prepare_disk(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let sku = write.body.entry("sku").or_insert_with(|| json!({ "name": "Standard_LRS" }));
    let tier = sku["name"].as_str().and_then(|name| name.split('_').next()).map(ToOwned::to_owned);
    sku["tier"] = json!(tier);
    let name = resource_name(write.id);
    let option =
        write.properties.get("creationData").and_then(|data| data["createOption"].as_str());
    if option.is_none() {
        let message =
            "Required parameter 'disk.properties.creationData.createOption' is missing (null).";
        return Err(bad_request("InvalidParameter", message));
    }
    let existing = write.existing.as_ref().and_then(|disk| disk.property("diskSizeGB")).cloned();
    let before = existing.as_ref().and_then(Value::as_u64);
    let size = write.properties.get("diskSizeGB").and_then(Value::as_u64).or(before);
    let is_empty = option.is_some_and(|option| option.eq_ignore_ascii_case("Empty"));
    let size = match size {
        Some(size) => size,
        None if is_empty => {
            let message = "Required parameter 'disk.properties.diskSizeGB' is missing (null).";
            return Err(bad_request("InvalidParameter", message));
        }
        None => 32,
    };
    if size == 0 || size > MOST_GIBIBYTES {
        return Err(bad_request(
            "InvalidParameter",
            format!("The value '{size}' of parameter 'diskSizeGB' is out of range."),
        ));
    }
    if before.is_some_and(|before| size < before) {
        return Err(conflict(
            "OperationNotAllowed",
            format!("Disk {name} cannot be resized to {size} GB: it cannot be made smaller."),
        ));
    }
    write.properties.insert("diskSizeGB".to_owned(), json!(size));
    write.properties.insert("diskSizeBytes".to_owned(), json!(size * 1024 * 1024 * 1024));
    let unique = write.call.ids.next_uuid();
    write.service_property("uniqueId", || json!(unique));
    let now = write.call.now.to_string();
    write.service_property("timeCreated", || json!(now));
    write.properties.remove("diskState");
    write.properties.remove("managedBy");
    write.default_property("networkAccessPolicy", json!("AllowAll"));
    write.default_property("publicNetworkAccess", json!("Enabled"));
    let encryption = json!({ "type": "EncryptionAtRestWithPlatformKey" });
    write.default_property("encryption", encryption);
    Ok(())
}

/// Returns the virtual machine that uses the disk.
fn machine_of<'a>(resources: &'a ArmResourceStore, disk: &AccessScope) -> Option<&'a ArmResource> {
    resources
        .referrers_within(disk)
        .filter_map(|referrer| resources.resource(referrer))
        .find(|resource| resource.kind.eq_ignore_ascii_case(VIRTUAL_MACHINE))
}

fn check_disk_deletion(deletion: &ResourceDeletion<'_>) -> Result<(), ServiceReply> {
    let id = &deletion.resource.id;
    match machine_of(deletion.resources, id) {
        Some(machine) if !deletion.scope.contains(&machine.id) => Err(conflict(
            "OperationNotAllowed",
            format!("Disk {} is attached to VM {}.", resource_name(id), machine.id),
        )),
        _ => Ok(()),
    }
}

/// Renders a disk with its state and the virtual machine that uses it.
fn render_disk(resources: &ArmResourceStore, disk: &ArmResource) -> Value {
    let mut wire = disk.to_json();
    let machine = machine_of(resources, &disk.id);
    let state = if machine.is_some() { "Attached" } else { "Unattached" };
    if wire["properties"].get("diskState").is_none() {
        wire["properties"]["diskState"] = json!(state);
    }
    if let Some(machine) = machine {
        wire["managedBy"] = json!(machine.id.as_str());
    }
    wire
}

fn prepare_image(write: &mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply> {
    let source = write.properties.get("sourceVirtualMachine").is_some_and(Value::is_object);
    let disk = write.properties.get("storageProfile").and_then(|it| it.get("osDisk")).cloned();
    if !source && disk.is_none() {
        let message =
            "Required parameter 'image.properties.storageProfile.osDisk' is missing (null).";
        return Err(bad_request("InvalidParameter", message));
    }
    for field in ["managedDisk", "snapshot"] {
        let id = disk.as_ref().and_then(|disk| disk[field]["id"].as_str());
        let Some(id) = id else { continue };
        let id = lanyard_emulator_arm::request_scopes::parse_request_scope(id)?;
        if write.resources().resource(&id).is_none() && field == "managedDisk" {
            return Err(
                lanyard_emulator_arm::error::ArmServiceError::ResourceNotFound(&id).to_reply()
            );
        }
    }
    write.default_property("hyperVGeneration", json!("V1"));
    Ok(())
}
