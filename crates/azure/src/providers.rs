//! Resource providers: their registration in a subscription, and the API versions of their types.

use lanyard_vocabulary::{ArmResourceId, SubscriptionId};
use serde::{Deserialize, Serialize};

use crate::arm_request::ArmRequest;

/// A resource provider in a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderRegistration {
    /// The namespace, for example `Microsoft.Network`.
    pub namespace: String,
    /// `Registered`, `Registering`, `NotRegistered` or `Unregistered`.
    pub registration_state: String,
    /// The types.
    #[serde(default)]
    pub resource_types: Vec<ProviderResourceType>,
}

/// A type of a resource provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProviderResourceType {
    /// The type without the namespace, for example `virtualNetworks/subnets`.
    pub resource_type: String,
    /// The API versions.
    #[serde(default)]
    pub api_versions: Vec<String>,
}

impl ProviderRegistration {
    /// The API version of these requests.
    pub const API_VERSION: &'static str = "2021-04-01";

    /// The request that reads the provider of a namespace.
    pub fn get(subscription: &SubscriptionId, namespace: &str) -> ArmRequest {
        ArmRequest::get(Self::path(subscription, namespace), Self::API_VERSION)
    }

    /// The request that registers the provider of a namespace. The registration continues after the reply; its
    /// state is in [`ProviderRegistration::registration_state`].
    pub fn register(subscription: &SubscriptionId, namespace: &str) -> ArmRequest {
        let path = format!("{}/register", Self::path(subscription, namespace));
        ArmRequest::post(path, Self::API_VERSION, None)
    }

    fn path(subscription: &SubscriptionId, namespace: &str) -> String {
        let scope = ArmResourceId::subscription_scope(subscription);
        format!("{scope}/providers/{namespace}")
    }

    /// Whether the subscription may create resources of the provider.
    pub fn is_registered(&self) -> bool {
        self.registration_state.eq_ignore_ascii_case("Registered")
    }

    /// The newest API version of a type without a suffix such as `-preview`; without such versions, the newest
    /// one. `resource_type` has no namespace.
    pub fn newest_api_version(&self, resource_type: &str) -> Option<&str> {
        let known = self.resource_types.iter();
        let found =
            known.into_iter().find(|it| it.resource_type.eq_ignore_ascii_case(resource_type))?;
        // A version without a suffix is a date of ten characters.
        let versions = found.api_versions.iter().map(String::as_str);
        versions.max_by_key(|version| (version.len() == "2021-04-01".len(), *version))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn provider(versions: &[&str]) -> ProviderRegistration {
        serde_json::from_value(json!({
            "id": "/subscriptions/s/providers/Microsoft.Network",
            "namespace": "Microsoft.Network",
            "registrationState": "registered",
            "resourceTypes": [{ "resourceType": "virtualNetworks", "apiVersions": versions }],
        }))
        .unwrap()
    }

    #[test]
    fn newest_version_is_a_stable_one_if_there_is_one() {
        for (versions, expected) in [
            (&["2023-11-01", "2025-01-01-preview", "2024-07-01"][..], Some("2024-07-01")),
            (&["2024-01-01-preview", "2025-01-01-preview"], Some("2025-01-01-preview")),
            (&[], None),
        ] {
            assert_eq!(provider(versions).newest_api_version("VirtualNetworks"), expected);
        }
        assert_eq!(provider(&["2023-11-01"]).newest_api_version("loadBalancers"), None);
        assert!(provider(&[]).is_registered());
    }

    #[test]
    fn requests_name_the_namespace() {
        let subscription = "s".parse().unwrap();
        let request = ProviderRegistration::register(&subscription, "Microsoft.Network");
        assert_eq!(request.path, "/subscriptions/s/providers/Microsoft.Network/register");
        let request = ProviderRegistration::get(&subscription, "Microsoft.Network");
        assert_eq!(request.path, "/subscriptions/s/providers/Microsoft.Network");
    }
}
