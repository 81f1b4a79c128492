//! The regions of Azure.
//!
//! Source: the physical regions that `az account list-locations` returned for each cloud in October 2026,
//! without access-restricted ones.

use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_vocabulary::Cloud;

use super::error::bad_request;

/// An Azure region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The name in resources, such as `westeurope`.
    pub name: &'static str,
    /// The name that clients show, such as `West Europe`.
    pub display_name: &'static str,
    /// The part of the world, such as `Europe`.
    pub(crate) geography_group: &'static str,
}

const fn region(
    name: &'static str,
    display_name: &'static str,
    geography_group: &'static str,
) -> Region {
    Region { name, display_name, geography_group }
}

const PUBLIC: &[Region] = &[
    region("australiacentral", "Australia Central", "Asia Pacific"),
    region("australiaeast", "Australia East", "Asia Pacific"),
    region("australiasoutheast", "Australia Southeast", "Asia Pacific"),
    region("austriaeast", "Austria East", "Europe"),
    region("belgiumcentral", "Belgium Central", "Europe"),
    region("brazilsouth", "Brazil South", "South America"),
    region("canadacentral", "Canada Central", "Canada"),
    region("canadaeast", "Canada East", "Canada"),
    region("centralindia", "Central India", "Asia Pacific"),
    region("centralus", "Central US", "US"),
    region("chilecentral", "Chile Central", "South America"),
    region("denmarkeast", "Denmark East", "Europe"),
    region("eastasia", "East Asia", "Asia Pacific"),
    region("eastus", "East US", "US"),
    region("eastus2", "East US 2", "US"),
    region("francecentral", "France Central", "Europe"),
    region("germanywestcentral", "Germany West Central", "Europe"),
    region("indonesiacentral", "Indonesia Central", "Asia Pacific"),
    region("israelcentral", "Israel Central", "Middle East"),
    region("italynorth", "Italy North", "Europe"),
    region("japaneast", "Japan East", "Asia Pacific"),
    region("japanwest", "Japan West", "Asia Pacific"),
    region("koreacentral", "Korea Central", "Asia Pacific"),
    region("koreasouth", "Korea South", "Asia Pacific"),
    region("malaysiawest", "Malaysia West", "Asia Pacific"),
    region("mexicocentral", "Mexico Central", "Mexico"),
    region("newzealandnorth", "New Zealand North", "Asia Pacific"),
    region("northcentralus", "North Central US", "US"),
    region("northeurope", "North Europe", "Europe"),
    region("norwayeast", "Norway East", "Europe"),
    region("polandcentral", "Poland Central", "Europe"),
    region("qatarcentral", "Qatar Central", "Middle East"),
    region("southafricanorth", "South Africa North", "Africa"),
    region("southcentralus", "South Central US", "US"),
    region("southeastasia", "Southeast Asia", "Asia Pacific"),
    region("southindia", "South India", "Asia Pacific"),
    region("spaincentral", "Spain Central", "Europe"),
    region("swedencentral", "Sweden Central", "Europe"),
    region("switzerlandnorth", "Switzerland North", "Europe"),
    region("uaenorth", "UAE North", "Middle East"),
    region("uksouth", "UK South", "Europe"),
    region("ukwest", "UK West", "Europe"),
    region("westcentralus", "West Central US", "US"),
    region("westeurope", "West Europe", "Europe"),
    region("westindia", "West India", "Asia Pacific"),
    region("westus", "West US", "US"),
    region("westus2", "West US 2", "US"),
    region("westus3", "West US 3", "US"),
];

const US_GOVERNMENT: &[Region] = &[
    region("usgovarizona", "USGov Arizona", "US"),
    region("usgovtexas", "USGov Texas", "US"),
    region("usgovvirginia", "USGov Virginia", "US"),
];

const CHINA: &[Region] = &[
    region("chinaeast", "China East", "China"),
    region("chinaeast2", "China East 2", "China"),
    region("chinaeast3", "China East 3", "China"),
    region("chinanorth", "China North", "China"),
    region("chinanorth2", "China North 2", "China"),
    region("chinanorth3", "China North 3", "China"),
];

/// Returns the regions of a cloud, or those of the public cloud if the cloud has no published list.
pub const fn regions_of_cloud(cloud: Cloud) -> &'static [Region] {
    match cloud {
        Cloud::UsGovernment => US_GOVERNMENT,
        Cloud::China => CHINA,
        _ => PUBLIC,
    }
}

/// Converts the name or the display name of a region to its name: `West Europe` to `westeurope`.
pub fn normalize_region(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect()
}

/// Rejects a region that the cloud does not have.
pub fn require_region(
    call: &OperationContext<'_>,
    resource_type: &str,
    region: &str,
) -> Result<(), ServiceReply> {
    let regions = regions_of_cloud(call.endpoint.cloud.name);
    if regions.iter().any(|known| known.name == region) {
        return Ok(());
    }
    let names: Vec<_> = regions.iter().map(|known| known.name).collect();
    Err(bad_request(
        "LocationNotAvailableForResourceType",
        format!(
            "The provided location '{region}' is not available for resource type '{resource_type}'. \
             List of available regions for the resource type is '{}'.",
            names.join(",")
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_display_names_without_spaces_and_unique() {
        for regions in [PUBLIC, US_GOVERNMENT, CHINA] {
            let names: Vec<_> = regions.iter().map(|known| known.name).collect();
            assert!(names.is_sorted());
            for known in regions {
                assert_eq!(normalize_region(known.display_name), known.name);
            }
        }
    }
}
