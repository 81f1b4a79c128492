//! The geographies of Azure's regions.
//!
//! Source: "List of Azure regions", column geography, October 2026.

/// The geographies with more than one region, with the names of their regions.
const GEOGRAPHIES: &[(&str, &[&str])] = &[
    ("asiapacific", &["eastasia", "southeastasia"]),
    (
        "australia",
        &["australiacentral", "australiacentral2", "australiaeast", "australiasoutheast"],
    ),
    ("brazil", &["brazilsouth", "brazilsoutheast"]),
    ("canada", &["canadacentral", "canadaeast"]),
    (
        "china",
        &["chinaeast", "chinaeast2", "chinaeast3", "chinanorth", "chinanorth2", "chinanorth3"],
    ),
    ("europe", &["northeurope", "westeurope"]),
    ("france", &["francecentral", "francesouth"]),
    ("germany", &["germanynorth", "germanywestcentral"]),
    ("india", &["centralindia", "southindia", "westindia", "jioindiacentral", "jioindiawest"]),
    ("japan", &["japaneast", "japanwest"]),
    ("korea", &["koreacentral", "koreasouth"]),
    ("norway", &["norwayeast", "norwaywest"]),
    ("southafrica", &["southafricanorth", "southafricawest"]),
    ("sweden", &["swedencentral", "swedensouth"]),
    ("switzerland", &["switzerlandnorth", "switzerlandwest"]),
    ("uae", &["uaecentral", "uaenorth"]),
    ("unitedkingdom", &["uksouth", "ukwest"]),
    (
        "unitedstates",
        &[
            "centralus",
            "eastus",
            "eastus2",
            "northcentralus",
            "southcentralus",
            "westcentralus",
            "westus",
            "westus2",
            "westus3",
        ],
    ),
    ("usgovernment", &["usgovarizona", "usgovtexas", "usgovvirginia"]),
];

/// The geography of a region; the region itself if it is the only one of its geography.
pub(super) fn geography_of_region(region: &str) -> String {
    let name: String = region.chars().filter(|c| !c.is_whitespace()).collect();
    let name = name.to_ascii_lowercase();
    let known = GEOGRAPHIES.iter().find(|(_, regions)| regions.contains(&name.as_str()));
    known.map_or(name, |(geography, _)| (*geography).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_of_one_geography_share_its_name() {
        assert_eq!(geography_of_region("West Europe"), geography_of_region("northeurope"));
        assert_ne!(geography_of_region("westeurope"), geography_of_region("uksouth"));
        assert_eq!(geography_of_region("Italy North"), "italynorth");
    }
}
