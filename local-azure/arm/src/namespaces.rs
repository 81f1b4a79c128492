//! The namespaces of resource providers.

use std::collections::BTreeSet;

use lanyard_emulator_state::settings::{EmulatorSettings, SettingsError};

/// The namespaces of the public cloud whose types the emulator knows or stores as given, with the newest
/// stable api-version of their main type in November 2026.
pub(super) const NAMESPACES: &[(&str, &str)] = &[
    ("Microsoft.ApiManagement", "2024-05-01"),
    ("Microsoft.App", "2025-01-01"),
    ("Microsoft.Authorization", "2022-04-01"),
    ("Microsoft.Automation", "2023-11-01"),
    ("Microsoft.Cache", "2024-11-01"),
    ("Microsoft.CognitiveServices", "2025-06-01"),
    ("Microsoft.Compute", "2024-11-01"),
    ("Microsoft.ContainerInstance", "2024-11-01-preview"),
    ("Microsoft.ContainerRegistry", "2025-04-01"),
    ("Microsoft.ContainerService", "2025-10-01"),
    ("Microsoft.DBforPostgreSQL", "2024-08-01"),
    ("Microsoft.Dashboard", "2024-10-01"),
    ("Microsoft.DocumentDB", "2025-04-15"),
    ("Microsoft.EventGrid", "2025-02-15"),
    ("Microsoft.EventHub", "2024-01-01"),
    ("Microsoft.Insights", "2023-12-01"),
    ("Microsoft.KeyVault", "2024-11-01"),
    ("Microsoft.Kubernetes", "2024-01-01"),
    ("Microsoft.KubernetesConfiguration", "2024-11-01"),
    ("Microsoft.ManagedIdentity", "2024-11-30"),
    ("Microsoft.Management", "2021-04-01"),
    ("Microsoft.Monitor", "2023-04-03"),
    ("Microsoft.Network", "2024-07-01"),
    ("Microsoft.OperationalInsights", "2025-02-01"),
    ("Microsoft.PolicyInsights", "2024-10-01"),
    ("Microsoft.RedHatOpenShift", "2024-08-12-preview"),
    ("Microsoft.Resources", "2024-11-01"),
    ("Microsoft.Security", "2024-01-01"),
    ("Microsoft.ServiceBus", "2024-01-01"),
    ("Microsoft.Sql", "2023-08-01"),
    ("Microsoft.Storage", "2025-01-01"),
    ("Microsoft.Web", "2024-11-01"),
];

/// Returns the namespace as Azure spells it, and the newest api-version of its main type.
pub fn find_namespace(name: &str) -> Option<(&'static str, &'static str)> {
    NAMESPACES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// The namespaces that a new subscription is registered to use.
const ALWAYS_REGISTERED: [&str; 2] = ["Microsoft.Authorization", "Microsoft.Resources"];

/// Checks the namespaces in settings, and stores them in lower case. `*` stands for every namespace that a new
/// subscription is not registered to use.
///
/// # Errors
///
/// Returns an error that names an unknown namespace.
pub(super) fn check_namespaces(settings: &mut EmulatorSettings) -> Result<(), SettingsError> {
    let names = &mut settings.resource_manager.unregistered_namespaces;
    let mut resolved = BTreeSet::new();
    for name in names.iter() {
        if name == "*" {
            let every = NAMESPACES.iter().map(|(known, _)| *known);
            let missing = every.filter(|known| !ALWAYS_REGISTERED.contains(known));
            resolved.extend(missing.map(str::to_ascii_lowercase));
        } else {
            let (known, _) = find_namespace(name).ok_or(SettingsError::UnknownNamespace)?;
            resolved.insert(known.to_ascii_lowercase());
        }
    }
    *names = resolved;
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unregistered(names: &[&str]) -> BTreeSet<String> {
        let change = json!({ "resourceManager": { "unregisteredNamespaces": names } });
        let mut settings = EmulatorSettings::default().with_change(&change).unwrap();
        check_namespaces(&mut settings).unwrap();
        settings.resource_manager.unregistered_namespaces
    }

    #[test]
    fn namespaces_are_sorted() {
        assert!(NAMESPACES.is_sorted());
    }

    #[test]
    fn star_unregisters_every_namespace_that_a_new_subscription_lacks() {
        let namespaces = unregistered(&["*"]);
        assert!(namespaces.contains("microsoft.keyvault"));
        assert!(!namespaces.contains("microsoft.authorization"));
        let named = unregistered(&["Microsoft.Network"]);
        assert_eq!(named.into_iter().collect::<Vec<_>>(), ["microsoft.network"]);
    }
}
