//! The names of a component's service principal, certificate and secret.

use std::fmt;
use std::str::FromStr;

use lanyard_vocabulary::{Component, ParseIdentifierError, SecretName};

/// The prefix of an environment: the end of the names of its service principals. HyperShift's scripts also name
/// the vault of the environment with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentPrefix(String);

/// A text is not the prefix of an environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a prefix: give 1 to 100 letters, digits and `-`, with a letter or digit at both ends"
)]
pub struct InvalidPrefixError(pub String);

impl FromStr for EnvironmentPrefix {
    type Err = InvalidPrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = (1..=100).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !text.starts_with('-')
            && !text.ends_with('-');
        if is_valid { Ok(Self(text.to_owned())) } else { Err(InvalidPrefixError(text.to_owned())) }
    }
}

impl EnvironmentPrefix {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvironmentPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The names of one component's objects in an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePrincipalNames {
    /// The component.
    pub component: Component,
    /// The name of the application, of its service principal and of the certificate.
    pub name: SecretName,
    /// The name of the secret with the credential document.
    pub secret: SecretName,
}

/// The components of an environment, in the order of the control plane identities file; KMS, which only clusters
/// with secret encryption need, comes last.
pub fn service_principal_components(with_kms: bool) -> impl Iterator<Item = Component> {
    Component::ALL.into_iter().filter(move |component| with_kms || !is_optional(*component))
}

/// Whether an environment can lack the service principal of a component.
pub(crate) const fn is_optional(component: Component) -> bool {
    matches!(component, Component::Kms)
}

/// The begin of a component's names, as in HyperShift's script. The script creates none for KMS.
const fn short_name(component: Component) -> &'static str {
    match component {
        Component::CloudProvider => "cloud-provider",
        Component::NodePoolManagement => "nodepool-mgmt",
        Component::ControlPlaneOperator => "cpo",
        Component::ImageRegistry => "ciro",
        Component::Ingress => "ingress",
        Component::Network => "cncc",
        Component::Disk => "azure-disk",
        Component::File => "azure-file",
        Component::Kms => "kms",
    }
}

impl ServicePrincipalNames {
    /// The names of a component.
    ///
    /// # Errors
    ///
    /// A vault does not accept the names, which does not happen with a valid prefix.
    pub fn new(
        component: Component,
        prefix: &EnvironmentPrefix,
    ) -> Result<Self, ParseIdentifierError> {
        let name = format!("{}-{prefix}", short_name(component));
        let secret = format!("{name}-json").parse()?;
        Ok(Self { component, name: name.parse()?, secret })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_hypershifts_script() {
        let prefix = "dev".parse().unwrap();
        let names: Vec<_> = service_principal_components(true)
            .map(|component| ServicePrincipalNames::new(component, &prefix).unwrap())
            .map(|it| format!("{} {} {}", it.component, it.name, it.secret))
            .collect();
        assert_eq!(
            names,
            [
                "cloudProvider cloud-provider-dev cloud-provider-dev-json",
                "nodePoolManagement nodepool-mgmt-dev nodepool-mgmt-dev-json",
                "controlPlaneOperator cpo-dev cpo-dev-json",
                "imageRegistry ciro-dev ciro-dev-json",
                "ingress ingress-dev ingress-dev-json",
                "network cncc-dev cncc-dev-json",
                "disk azure-disk-dev azure-disk-dev-json",
                "file azure-file-dev azure-file-dev-json",
                "kms kms-dev kms-dev-json",
            ]
        );
        assert_eq!(service_principal_components(false).count(), 8);
    }

    proptest! {
        #[test]
        fn every_prefix_leads_to_names_that_a_vault_accepts(text in "[-A-Za-z0-9._]{0,110}") {
            if let Ok(prefix) = text.parse::<EnvironmentPrefix>() {
                for component in service_principal_components(true) {
                    prop_assert!(ServicePrincipalNames::new(component, &prefix).is_ok());
                }
            } else {
                prop_assert!(
                    text.is_empty() || text.len() > 100 || text.contains(['.', '_'])
                        || text.starts_with('-') || text.ends_with('-')
                );
            }
        }
    }
}
