//! The names of the settings, for the help of the command line.

/// A field of the settings document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingField {
    /// The path of the field, such as `resourceManager.pageSize`.
    pub path: &'static str,
    /// What the field sets.
    pub summary: &'static str,
}

const fn field(path: &'static str, summary: &'static str) -> SettingField {
    SettingField { path, summary }
}

/// Every field of the settings document, in its order.
pub const fn setting_fields() -> &'static [SettingField] {
    FIELDS
}

const FIELDS: &[SettingField] = &[
    field("resourceManager.pageSize", "greatest number of items in a page of a list"),
    field(
        "resourceManager.unregisteredNamespaces",
        "namespaces that the subscriptions are not registered to use",
    ),
    field("resourceManager.kubeconfig", "kubeconfig in the credentials of managed clusters"),
    field("resourceManager.longRunning", "operations that complete after their reply"),
    field("resourceManager.quotas", "limits of the resources in a region, such as `cores`"),
    field(
        "roleAssignmentLimits.inSubscription",
        "greatest number of role assignments of a subscription",
    ),
    field(
        "roleAssignmentLimits.atManagementGroup",
        "greatest number of role assignments at a management group",
    ),
    field(
        "propagation.roleAssignments.controlPlaneSeconds",
        "delay of role assignments in Azure Resource Manager",
    ),
    field(
        "propagation.roleAssignments.dataPlaneSeconds",
        "delay of role assignments in vaults and storage accounts",
    ),
    field("propagation.directory.graphSeconds", "delay of new objects in Microsoft Graph"),
    field(
        "propagation.directory.graphDeletionSeconds",
        "delay until lists of Microsoft Graph omit a deleted object",
    ),
    field(
        "propagation.directory.resourceManagerSeconds",
        "delay of new principals in Azure Resource Manager",
    ),
    field(
        "propagation.directory.tokenServiceSeconds",
        "delay of new principals and applications in the token service",
    ),
    field(
        "propagation.directory.federatedCredentialSeconds",
        "delay of new federated credentials in the token service",
    ),
    field(
        "propagation.resources.deletionSeconds",
        "delay until lists across resource types omit a deleted resource",
    ),
    field("tokens.applicationSeconds", "lifetime of the tokens of applications and users"),
    field("tokens.managedIdentitySeconds", "lifetime of the tokens of managed identities"),
    field("tokens.refreshTokenSeconds", "lifetime of refresh tokens"),
    field(
        "tokens.issuerKeyCacheSeconds",
        "how long Entra uses the keys of a federated token's issuer",
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::settings::EmulatorSettings;

    fn collect_paths(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
        let Some(fields) = value.as_object() else {
            paths.insert(path.to_owned());
            return;
        };
        for (name, field) in fields {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            collect_paths(field, &path, paths);
        }
    }

    #[test]
    fn fields_are_those_of_the_settings_document() {
        let mut paths = BTreeSet::new();
        let document = serde_json::to_value(EmulatorSettings::default()).unwrap();
        collect_paths(&document, "", &mut paths);
        let listed = FIELDS.iter().map(|field| field.path.to_owned()).collect();
        assert_eq!(paths, listed);
    }
}
