//! The regions of Azure.
//!
//! Source: the physical regions that `az account list-locations` returned for each cloud in October 2026,
//! without access-restricted ones.

use lanyard_vocabulary::Cloud;

use super::error::bad_request;
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// A region: the name in resources, and the name for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) name: &'static str,
    pub(super) display_name: &'static str,
}

const fn region(name: &'static str, display_name: &'static str) -> Region {
    Region { name, display_name }
}

const PUBLIC: &[Region] = &[
    region("australiacentral", "Australia Central"),
    region("australiaeast", "Australia East"),
    region("australiasoutheast", "Australia Southeast"),
    region("austriaeast", "Austria East"),
    region("belgiumcentral", "Belgium Central"),
    region("brazilsouth", "Brazil South"),
    region("canadacentral", "Canada Central"),
    region("canadaeast", "Canada East"),
    region("centralindia", "Central India"),
    region("centralus", "Central US"),
    region("chilecentral", "Chile Central"),
    region("denmarkeast", "Denmark East"),
    region("eastasia", "East Asia"),
    region("eastus", "East US"),
    region("eastus2", "East US 2"),
    region("francecentral", "France Central"),
    region("germanywestcentral", "Germany West Central"),
    region("indonesiacentral", "Indonesia Central"),
    region("israelcentral", "Israel Central"),
    region("italynorth", "Italy North"),
    region("japaneast", "Japan East"),
    region("japanwest", "Japan West"),
    region("koreacentral", "Korea Central"),
    region("koreasouth", "Korea South"),
    region("malaysiawest", "Malaysia West"),
    region("mexicocentral", "Mexico Central"),
    region("newzealandnorth", "New Zealand North"),
    region("northcentralus", "North Central US"),
    region("northeurope", "North Europe"),
    region("norwayeast", "Norway East"),
    region("polandcentral", "Poland Central"),
    region("qatarcentral", "Qatar Central"),
    region("southafricanorth", "South Africa North"),
    region("southcentralus", "South Central US"),
    region("southeastasia", "Southeast Asia"),
    region("southindia", "South India"),
    region("spaincentral", "Spain Central"),
    region("swedencentral", "Sweden Central"),
    region("switzerlandnorth", "Switzerland North"),
    region("uaenorth", "UAE North"),
    region("uksouth", "UK South"),
    region("ukwest", "UK West"),
    region("westcentralus", "West Central US"),
    region("westeurope", "West Europe"),
    region("westindia", "West India"),
    region("westus", "West US"),
    region("westus2", "West US 2"),
    region("westus3", "West US 3"),
];

const US_GOVERNMENT: &[Region] = &[
    region("usgovarizona", "USGov Arizona"),
    region("usgovtexas", "USGov Texas"),
    region("usgovvirginia", "USGov Virginia"),
];

const CHINA: &[Region] = &[
    region("chinaeast", "China East"),
    region("chinaeast2", "China East 2"),
    region("chinaeast3", "China East 3"),
    region("chinanorth", "China North"),
    region("chinanorth2", "China North 2"),
    region("chinanorth3", "China North 3"),
];

/// The regions of a cloud; those of the public cloud for clouds without a published list.
pub(super) const fn regions_of_cloud(cloud: Cloud) -> &'static [Region] {
    match cloud {
        Cloud::UsGovernment => US_GOVERNMENT,
        Cloud::China => CHINA,
        _ => PUBLIC,
    }
}

/// The name of a region from its name or display name: `West Europe` is `westeurope`.
pub(super) fn normalize_region(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()).collect()
}

/// Rejects a region that the cloud does not have.
pub(super) fn require_region(
    call: &OperationContext<'_>,
    resource_type: &str,
    region: &str,
) -> Result<(), ServiceReply> {
    let regions = regions_of_cloud(call.endpoint.cloud);
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
