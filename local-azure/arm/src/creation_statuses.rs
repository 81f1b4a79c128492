//! The status of the reply to the creation of a resource whose type has no operations of its own.
//!
//! Most types answer 201 to a PUT that creates a resource and 200 to one that replaces it. Clients reject a
//! status that the API of the type does not define, so the types that define 200 alone are listed here.
//!
//! Source: the resource types of the namespaces in [`super::namespaces`] whose PUT in the Azure CLI 2.91.0 (the
//! generated commands of `azure-cli`, MIT) accepts 200 and not 201. For types that the Azure CLI does not
//! write with a generated command, 201 is an assumption.

use http::StatusCode;

/// The types that answer 200 to the creation of a resource, ordered by name.
const TYPES_WITH_OK: &[&str] = &[
    "Microsoft.Compute/availabilitySets",
    "Microsoft.Compute/diskAccesses",
    "Microsoft.Compute/diskEncryptionSets",
    "Microsoft.Compute/snapshots",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines",
    "Microsoft.EventHub/namespaces/applicationGroups",
    "Microsoft.EventHub/namespaces/authorizationRules",
    "Microsoft.EventHub/namespaces/eventhubs",
    "Microsoft.EventHub/namespaces/eventhubs/authorizationRules",
    "Microsoft.EventHub/namespaces/eventhubs/consumerGroups",
    "Microsoft.EventHub/namespaces/eventhubs/fabricShortcuts",
    "Microsoft.EventHub/namespaces/schemaGroups",
    "Microsoft.Insights/diagnosticSettings",
    "Microsoft.Insights/logProfiles",
    "Microsoft.Insights/metricAlerts",
    "Microsoft.Insights/privateLinkScopes/privateEndpointConnections",
    "Microsoft.Network/privateLinkServices/privateEndpointConnections",
    "Microsoft.OperationalInsights/clusters",
    "Microsoft.OperationalInsights/queryPacks/queries",
    "Microsoft.OperationalInsights/workspaces/linkedStorageAccounts",
    "Microsoft.OperationalInsights/workspaces/savedSearches",
    "Microsoft.OperationalInsights/workspaces/tables",
    "Microsoft.Security/settings",
    "Microsoft.ServiceBus/namespaces/authorizationRules",
    "Microsoft.ServiceBus/namespaces/queues",
    "Microsoft.ServiceBus/namespaces/queues/authorizationRules",
    "Microsoft.ServiceBus/namespaces/topics",
    "Microsoft.ServiceBus/namespaces/topics/authorizationRules",
    "Microsoft.ServiceBus/namespaces/topics/subscriptions",
    "Microsoft.ServiceBus/namespaces/topics/subscriptions/rules",
    "Microsoft.Sql/managedInstances/dtc",
    "Microsoft.Sql/managedInstances/serverConfigurationOptions",
    "Microsoft.Web/serverfarms",
];

/// Returns the status of the reply to the creation of a resource. Ignores the case of the type.
pub(super) fn creation_status(resource_type: &str) -> StatusCode {
    if TYPES_WITH_OK.iter().any(|known| known.eq_ignore_ascii_case(resource_type)) {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::find_namespace;

    #[test]
    fn types_are_sorted_and_have_known_namespaces() {
        assert!(TYPES_WITH_OK.is_sorted());
        for known in TYPES_WITH_OK {
            let (namespace, _) = known.split_once('/').unwrap();
            assert_eq!(find_namespace(namespace).map(|(name, _)| name), Some(namespace), "{known}");
        }
    }

    #[test]
    fn creation_status_ignores_case_and_is_201_for_unlisted_types() {
        for (resource_type, status) in [
            ("Microsoft.Insights/diagnosticSettings", StatusCode::OK),
            ("microsoft.insights/DIAGNOSTICSETTINGS", StatusCode::OK),
            ("Microsoft.ServiceBus/namespaces/topics/subscriptions/rules", StatusCode::OK),
            ("Microsoft.ServiceBus/namespaces", StatusCode::CREATED),
            ("Microsoft.Cache/redis", StatusCode::CREATED),
        ] {
            assert_eq!(creation_status(resource_type), status, "{resource_type}");
        }
    }
}
