//! Virtual machine sizes by family. Reference: Microsoft.Compute, resource SKUs, 2021-07-01, and
//! "Sizes for virtual machines in Azure".

use lanyard_emulator_arm::access::{authorize_call, list_reply};
use lanyard_emulator_arm::locations::{normalize_region, regions_of_cloud};
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_arm::sub;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::{OperationSupport, ServiceOperation};
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Value, json};

pub(crate) const OPERATIONS: &[ServiceOperation] = &[ServiceOperation {
    id: "ResourceSkus_List",
    method: http::Method::GET,
    path: sub!("Microsoft.Compute/skus"),
    support: OperationSupport::Partial("virtual machines of the series B, D, E and F only"),
    handler: list_skus,
}];

/// A family of virtual machine sizes. Azure limits the vCPUs of each family.
#[derive(Debug)]
pub(crate) struct MachineFamily {
    /// The name of the limit in the usages API, such as `standardDSv4Family`.
    pub(crate) name: &'static str,
    /// The series in display names, such as `DSv4`.
    series: &'static str,
    /// What precedes and follows the number of vCPUs in the name of a size.
    affixes: (&'static str, &'static str),
    vcpus: &'static [u64],
    /// GiB for each vCPU.
    memory: u64,
}

impl MachineFamily {
    /// The display name of the limit.
    pub(crate) fn display_name(&self) -> String {
        format!("Standard {} Family vCPUs", self.series)
    }

    fn size(&self, vcpus: u64) -> String {
        let (prefix, suffix) = self.affixes;
        format!("Standard_{prefix}{vcpus}{suffix}")
    }
}

const fn family(
    name: &'static str,
    series: &'static str,
    affixes: (&'static str, &'static str),
    vcpus: &'static [u64],
    memory: u64,
) -> MachineFamily {
    MachineFamily { name, series, affixes, vcpus, memory }
}

const TO_64: &[u64] = &[2, 4, 8, 16, 32, 48, 64];
const TO_96: &[u64] = &[2, 4, 8, 16, 32, 48, 64, 96];

pub(crate) const MACHINE_FAMILIES: &[MachineFamily] = &[
    family("standardBsv2Family", "Bsv2", ("B", "s_v2"), &[2, 4, 8, 16, 32], 4),
    family("standardDv3Family", "Dv3", ("D", "_v3"), TO_64, 4),
    family("standardDSv3Family", "DSv3", ("D", "s_v3"), TO_64, 4),
    family("standardDv4Family", "Dv4", ("D", "_v4"), TO_64, 4),
    family("standardDSv4Family", "DSv4", ("D", "s_v4"), TO_64, 4),
    family("standardDDSv4Family", "DDSv4", ("D", "ds_v4"), TO_64, 4),
    family("standardDASv4Family", "DASv4", ("D", "as_v4"), TO_96, 4),
    family("standardDv5Family", "Dv5", ("D", "_v5"), TO_96, 4),
    family("standardDSv5Family", "DSv5", ("D", "s_v5"), TO_96, 4),
    family("standardDDSv5Family", "DDSv5", ("D", "ds_v5"), TO_96, 4),
    family("standardDASv5Family", "DASv5", ("D", "as_v5"), TO_96, 4),
    family("standardDADSv5Family", "DADSv5", ("D", "ads_v5"), TO_96, 4),
    family("standardDPSv5Family", "DPSv5", ("D", "ps_v5"), TO_64, 4),
    family("standardDPDSv5Family", "DPDSv5", ("D", "pds_v5"), TO_64, 4),
    family("standardDsv6Family", "Dsv6", ("D", "s_v6"), TO_96, 4),
    family("standardDdsv6Family", "Ddsv6", ("D", "ds_v6"), TO_96, 4),
    family("standardESv3Family", "ESv3", ("E", "s_v3"), TO_64, 8),
    family("standardESv4Family", "ESv4", ("E", "s_v4"), TO_64, 8),
    family("standardESv5Family", "ESv5", ("E", "s_v5"), TO_96, 8),
    family("standardEDSv5Family", "EDSv5", ("E", "ds_v5"), TO_96, 8),
    family("standardEASv5Family", "EASv5", ("E", "as_v5"), TO_96, 8),
    family("standardFSv2Family", "FSv2", ("F", "s_v2"), &[2, 4, 8, 16, 32, 48, 64, 72], 2),
];

/// Finds a virtual machine size, ignoring case. Returns its family and its number of vCPUs.
pub(crate) fn find_machine_size(name: &str) -> Option<(&'static MachineFamily, u64)> {
    MACHINE_FAMILIES.iter().find_map(|family| {
        let mut sizes = family.vcpus.iter();
        let vcpus = sizes.find(|vcpus| family.size(**vcpus).eq_ignore_ascii_case(name))?;
        Some((family, *vcpus))
    })
}

/// `GET skus`: the sizes in all regions, or in the region of the filter `location eq '…'`.
fn list_skus(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    authorize_call(call, "Microsoft.Compute/skus/read", &subscription_scope(call)?)?;
    let filter = call.request.query("$filter").unwrap_or_default();
    let region = filter
        .strip_prefix("location eq '")
        .and_then(|rest| rest.strip_suffix('\''))
        .map(normalize_region);
    let regions = regions_of_cloud(call.endpoint.cloud.name).iter();
    let regions: Vec<_> = regions
        .map(|known| known.name)
        .filter(|name| region.as_ref().is_none_or(|region| region == name))
        .collect();
    let items = MACHINE_FAMILIES
        .iter()
        .flat_map(|family| family.vcpus.iter().map(move |vcpus| (family, *vcpus)))
        .flat_map(|size| regions.iter().map(move |region| sku_json(size, region)))
        .collect();
    list_reply(call, items)
}

fn sku_json((family, vcpus): (&MachineFamily, u64), region: &str) -> Value {
    let name = family.size(vcpus);
    json!({
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.trim_start_matches("Standard_"),
        "family": family.name,
        "locations": [region],
        "locationInfo": [{ "location": region, "zones": ["1", "2", "3"], "zoneDetails": [] }],
        "capabilities": [
            { "name": "vCPUs", "value": vcpus.to_string() },
            { "name": "MemoryGB", "value": (vcpus * family.memory).to_string() },
        ],
        "restrictions": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_belongs_to_the_family_of_its_series() {
        for (name, family, vcpus) in [
            ("Standard_D4s_v4", "standardDSv4Family", 4),
            ("standard_d16ps_v5", "standardDPSv5Family", 16),
            ("Standard_E8s_v3", "standardESv3Family", 8),
        ] {
            let (found, count) = find_machine_size(name).unwrap();
            assert_eq!((found.name, count), (family, vcpus));
        }
        assert!(find_machine_size("Standard_D5s_v4").is_none());
        let sizes = MACHINE_FAMILIES.iter().flat_map(|it| it.vcpus.iter().map(|n| it.size(*n)));
        let all: Vec<_> = sizes.collect();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
