//! What a subscription uses of its limits in a region, and the sizes of virtual machines.

use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde::{Deserialize, Serialize};

/// The use of one limited kind of resource in a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// The number in use.
    pub current_value: u64,
    /// The limit.
    pub limit: u64,
    /// The name of the limit.
    pub name: ResourceUsageName,
}

/// The name of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsageName {
    /// The name, such as `PublicIPAddresses` or `standardDSv4Family`.
    pub value: String,
    /// The name for people.
    #[serde(default)]
    pub localized_value: String,
}

/// A resource provider that reports the use of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageProvider {
    /// Virtual networks, public IP addresses and load balancers.
    Network,
    /// vCPUs, in all families of virtual machines and in each one.
    Compute,
}

impl UsageProvider {
    /// The namespace.
    pub const fn namespace(self) -> &'static str {
        match self {
            Self::Network => "Microsoft.Network",
            Self::Compute => "Microsoft.Compute",
        }
    }

    /// The API version of the list.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Network => "2023-11-01",
            Self::Compute => "2024-03-01",
        }
    }

    /// The path of the list for a region.
    pub fn list_path(self, subscription: &SubscriptionId, region: &str) -> String {
        let scope = ArmResourceId::subscription_scope(subscription);
        format!("{scope}/providers/{}/locations/{region}/usages", self.namespace())
    }
}

/// A size of virtual machines in a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineSku {
    /// `virtualMachines`; the list also contains other types.
    pub resource_type: String,
    /// The name, such as `Standard_D4s_v4`.
    #[serde(default)]
    pub name: String,
    /// The name of the limit of vCPUs, such as `standardDSv4Family`.
    #[serde(default)]
    pub family: String,
    /// Properties such as `vCPUs`.
    #[serde(default)]
    pub capabilities: Vec<SkuCapability>,
    /// Why the subscription cannot use the size in the region or in a zone.
    #[serde(default)]
    pub restrictions: Vec<SkuRestriction>,
}

/// A property of a [`MachineSku`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkuCapability {
    /// The name, such as `vCPUs`.
    pub name: String,
    /// The value.
    pub value: String,
}

/// Where the subscription cannot use a [`MachineSku`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkuRestriction {
    /// `Location` for the whole region, or `Zone`.
    #[serde(rename = "type")]
    pub kind: String,
}

impl MachineSku {
    /// The API version of the list.
    pub const API_VERSION: &'static str = "2021-07-01";

    /// The path of the list, for the filter `location eq '…'`.
    pub fn list_path(subscription: &SubscriptionId) -> String {
        let scope = ArmResourceId::subscription_scope(subscription);
        format!("{scope}/providers/Microsoft.Compute/skus")
    }

    /// The number of vCPUs.
    pub fn vcpus(&self) -> Option<u64> {
        let found = self.capabilities.iter().find(|it| it.name == "vCPUs");
        found?.value.parse().ok()
    }

    /// Whether the subscription can use the size in the region.
    pub fn is_available(&self) -> bool {
        !self.restrictions.iter().any(|it| it.kind == "Location")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_and_size_can_be_read() {
        let usage: ResourceUsage = serde_json::from_value(json!({
            "currentValue": 12,
            "limit": 350,
            "name": { "value": "cores", "localizedValue": "Total Regional vCPUs" },
            "unit": "Count",
        }))
        .unwrap();
        assert_eq!((usage.current_value, usage.limit, &*usage.name.value), (12, 350, "cores"));
        let sku = |restrictions| -> MachineSku {
            serde_json::from_value(json!({
                "resourceType": "virtualMachines",
                "name": "Standard_D4s_v4",
                "family": "standardDSv4Family",
                "locations": ["eastus"],
                "capabilities": [
                    { "name": "MemoryGB", "value": "16" },
                    { "name": "vCPUs", "value": "4" },
                ],
                "restrictions": restrictions,
            }))
            .unwrap()
        };
        assert_eq!((sku(json!([])).vcpus(), sku(json!([])).is_available()), (Some(4), true));
        let zone = json!([{ "type": "Zone", "reasonCode": "NotAvailableForSubscription" }]);
        assert!(sku(zone).is_available());
        let region = json!([{ "type": "Location", "reasonCode": "NotAvailableForSubscription" }]);
        assert!(!sku(region).is_available());
    }

    #[test]
    fn lists_have_these_paths() {
        let subscription = "s".parse().unwrap();
        assert_eq!(
            UsageProvider::Network.list_path(&subscription, "eastus"),
            "/subscriptions/s/providers/Microsoft.Network/locations/eastus/usages"
        );
        let skus = "/subscriptions/s/providers/Microsoft.Compute/skus";
        assert_eq!(MachineSku::list_path(&subscription), skus);
    }
}
