//! Whether the network that a hosted cluster names is there, in one region.

use lanyard_azure::{ArmClient, AzureResponse};
use lanyard_vocabulary::ArmResourceId;

use super::ProbeAttempt;
use crate::proof_error::{ProofError, ProofErrorKind};

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkProbeTarget {
    /// The virtual network.
    pub vnet: ArmResourceId,
    /// Its security group.
    pub security_group: ArmResourceId,
    /// The resource group of the cluster.
    pub resource_group: ArmResourceId,
}

const NETWORK_VERSION: &str = "2023-11-01";
const GROUPS_VERSION: &str = "2021-04-01";

/// The reason where the three are in different regions.
const DIFFERENT_REGIONS: &str = "LocationMismatch";
/// The reason where one does not say where it is.
const NO_LOCATION: &str = "LocationUnknown";

impl NetworkProbeTarget {
    /// Looks. The three are asked for one after another: a canary has time, and a limit to share.
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
    let mut places = Vec::new();
    for (title, id, location) in found {
        let Some(location) = location else {
            let message = format!("the {title} {id} does not say in which region it is");
            let hint = "check that no proxy or gateway answers in Azure's place";
            let trouble = ProofError::new(ProofErrorKind::Definitive, NO_LOCATION, message, hint);
            return ProbeAttempt { outcome: Err(trouble), retry_delay: None };
        };
        places.push((title, location));
    }
    let regions: Vec<_> = places.iter().map(|(_, location)| normalized(location)).collect();
    if regions.windows(2).all(|pair| pair[0] == pair[1]) {
        let region = regions.first().map(String::as_str).unwrap_or_default();
        return ProbeAttempt::good(format!(
            "virtual network, security group and resource group are in {region}"
        ));
    }
    let told: Vec<_> =
        places.iter().map(|(title, location)| format!("the {title} is in {location}")).collect();
    let hint = "name a virtual network, a security group and a resource group of one region";
    let trouble =
        ProofError::new(ProofErrorKind::Definitive, DIFFERENT_REGIONS, told.join(", "), hint);
    ProbeAttempt { outcome: Err(trouble), retry_delay: None }
}

/// A region as Azure compares them: `West Europe` is `westeurope`.
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
        let place = probe_target();
        let found: Vec<_> = place
            .resources()
            .into_iter()
            .zip(locations)
            .map(|((title, id, _), location)| (title, id, location.map(str::to_owned)))
            .collect();
        compare_locations(&found).outcome.map_err(|trouble| (trouble.code, trouble.message))
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
