//! The network probe: checks that the network of a hosted cluster exists in one region.

use lanyard_azure::{ArmClient, AzureResponse};
use lanyard_vocabulary::ArmResourceId;

use super::ProbeAttempt;
use crate::proof_error::{ProofError, ProofErrorKind};

/// The resources that the network probe checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkProbeTarget {
    /// The virtual network.
    pub vnet: ArmResourceId,
    pub security_group: ArmResourceId,
    /// The resource group of the cluster.
    pub resource_group: ArmResourceId,
}

const NETWORK_VERSION: &str = "2023-11-01";
const GROUPS_VERSION: &str = "2021-04-01";

/// The reason if the three resources are in different regions.
const DIFFERENT_REGIONS: &str = "LocationMismatch";
/// The reason if Azure returned a resource without a location.
const NO_LOCATION: &str = "LocationUnknown";

impl NetworkProbeTarget {
    /// Runs the probe. It requests the three resources one after another to save the shared rate
    /// limit.
    pub(crate) async fn probe_locations(&self, arm: &ArmClient) -> ProbeAttempt {
        let mut found = Vec::new();
        for (title, id, version) in self.resources() {
            match arm.fetch(id.as_str(), version).await {
                Ok(reply) => found.push((title, id, location(&reply))),
                Err(error) => return ProbeAttempt::from_call_error(&error),
            }
        }
        compare_locations(&found)
    }

    fn resources(&self) -> [(&'static str, &ArmResourceId, &'static str); 3] {
        [
            ("virtual network", &self.vnet, NETWORK_VERSION),
            ("security group", &self.security_group, NETWORK_VERSION),
            ("resource group", &self.resource_group, GROUPS_VERSION),
        ]
    }
}

fn location(reply: &AzureResponse) -> Option<String> {
    reply.body.get("location")?.as_str().map(str::to_owned)
}

type FoundLocation<'a> = (&'static str, &'a ArmResourceId, Option<String>);

fn compare_locations(found: &[FoundLocation<'_>]) -> ProbeAttempt {
    let mut regions_by_title = Vec::new();
    for (title, id, location) in found {
        let Some(location) = location else {
            let message = format!("the {title} {id} has no `location`");
            let hint = "check that no proxy or gateway answers in Azure's place";
            let error = ProofError::new(ProofErrorKind::Definitive, NO_LOCATION, message, hint);
            return ProbeAttempt { outcome: Err(error), retry_delay: None };
        };
        regions_by_title.push((title, location));
    }
    let regions: Vec<_> =
        regions_by_title.iter().map(|(_, location)| normalized(location)).collect();
    if regions.windows(2).all(|pair| pair[0] == pair[1]) {
        let region = regions.first().map(String::as_str).unwrap_or_default();
        return ProbeAttempt::good(format!(
            "virtual network, security group and resource group are in {region}"
        ));
    }
    let sentences: Vec<_> = regions_by_title
        .iter()
        .map(|(title, location)| format!("the {title} is in {location}"))
        .collect();
    let message = sentences.join(", ");
    let hint = "use a virtual network, a security group and a resource group of one region";
    let error = ProofError::new(ProofErrorKind::Definitive, DIFFERENT_REGIONS, message, hint);
    ProbeAttempt { outcome: Err(error), retry_delay: None }
}

/// Normalizes a region name as Azure compares it: `West Europe` is `westeurope`.
fn normalized(location: &str) -> String {
    location.chars().filter(|it| !it.is_whitespace()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_target() -> NetworkProbeTarget {
        let group = "/subscriptions/s/resourceGroups/g";
        let network = format!("{group}/providers/Microsoft.Network");
        NetworkProbeTarget {
            vnet: format!("{network}/virtualNetworks/v").parse().unwrap(),
            security_group: format!("{network}/networkSecurityGroups/n").parse().unwrap(),
            resource_group: group.parse().unwrap(),
        }
    }

    fn compare_example_locations(locations: [Option<&str>; 3]) -> Result<String, (String, String)> {
        let target = probe_target();
        let found: Vec<_> = target
            .resources()
            .into_iter()
            .zip(locations)
            .map(|((title, id, _), location)| (title, id, location.map(str::to_owned)))
            .collect();
        compare_locations(&found).outcome.map_err(|error| (error.code, error.message))
    }

    #[test]
    fn regions_are_compared_as_azure_does() {
        for same in [
            [Some("westeurope"), Some("westeurope"), Some("westeurope")],
            [Some("West Europe"), Some("westeurope"), Some("WESTEUROPE")],
        ] {
            assert!(compare_example_locations(same).unwrap().ends_with("are in westeurope"));
        }
        let (reason, message) =
            compare_example_locations([Some("westeurope"), Some("westeurope"), Some("eastus")])
                .unwrap_err();
        assert_eq!(reason, "LocationMismatch");
        assert!(message.ends_with("the resource group is in eastus"), "{message}");
        let (reason, message) =
            compare_example_locations([Some("eastus"), None, Some("eastus")]).unwrap_err();
        assert_eq!(reason, "LocationUnknown");
        assert!(message.starts_with("the security group /subscriptions/s/"), "{message}");
    }
}
