//! Whose a HostedCluster is.

use std::fmt;

use lanyard_api::HostedCluster;

use crate::problem::ValidationProblems;

/// What kind of cluster a HostedCluster describes: ours, or one to leave alone.
///
/// The object alone decides, as the reference does by HostedCluster: its platform and the kind of
/// its identities. Whatever is missing or misspelled counts as ours, because somebody has to be
/// told; the API server refuses it anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostedClusterPlatform {
    /// Managed Azure (ARO HCP): credentials of managed identities in a vault. The only kind that
    /// anything is made for.
    ManagedAzure,
    /// Self-managed Azure: its components exchange service account tokens.
    SelfManagedAzure,
    /// A cluster on another platform, by its `spec.platform.type`.
    Other(String),
}

impl HostedClusterPlatform {
    /// The kind of a HostedCluster, valid or not.
    pub fn of(wire: &HostedCluster) -> Self {
        let platform = wire.spec.as_ref().and_then(|spec| spec.platform.as_ref());
        let named = platform.and_then(|platform| platform.platform_type.as_deref());
        if let Some(other) = named.and_then(Self::of_other_platform) {
            return other;
        }
        let azure = platform.and_then(|platform| platform.azure.as_ref());
        let config = azure.and_then(|azure| azure.authentication.as_ref());
        match config.and_then(|config| config.authentication_type.as_deref()) {
            Some("WorkloadIdentities") => Self::SelfManagedAzure,
            _ => Self::ManagedAzure,
        }
    }

    /// The kind of a cluster with this `spec.platform.type`, where that alone decides: nothing for
    /// Azure, however it is spelled.
    pub fn of_other_platform(name: &str) -> Option<Self> {
        let is_azure = name.is_empty() || name.eq_ignore_ascii_case(AZURE_PLATFORM_TYPE);
        (!is_azure).then(|| Self::Other(name.to_owned()))
    }

    /// The field that says the kind.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Other(_) => "spec.platform.type",
            Self::ManagedAzure | Self::SelfManagedAzure => {
                "spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType"
            }
        }
    }

    /// Whether identities are brought to clusters of this kind. For every other cluster nothing is
    /// made, and nothing is written about it.
    pub fn is_managed_azure(&self) -> bool {
        *self == Self::ManagedAzure
    }

    /// What to do for a cluster of this kind to become usable.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ManagedAzure => None,
            Self::SelfManagedAzure => {
                Some("give a cluster of managed Azure, whose type is `ManagedIdentities`")
            }
            Self::Other(_) => Some("give a HostedCluster whose platform is `Azure`"),
        }
    }
}

impl fmt::Display for HostedClusterPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManagedAzure => formatter.write_str("a cluster of managed Azure"),
            Self::SelfManagedAzure => formatter.write_str(
                "a cluster of self-managed Azure (WorkloadIdentities): its components exchange service account tokens, and there are no credentials in a vault to bring",
            ),
            Self::Other(platform) => {
                write!(formatter, "a cluster on {platform}, and identities are brought to Azure only")
            }
        }
    }
}

/// Why a HostedCluster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostedClusterValidationError {
    /// It is of another kind. That is no fault of it: it is to be left alone, whatever else is
    /// wrong with it.
    #[error("this is {0}")]
    UnsupportedPlatform(HostedClusterPlatform),
    /// It breaks rules: every problem, lints among them.
    #[error("the HostedCluster cannot be used: {0}")]
    Invalid(ValidationProblems),
}

impl HostedClusterValidationError {
    /// What to do about it; every problem of an invalid cluster has its own.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::UnsupportedPlatform(kind) => kind.hint(),
            Self::Invalid(_) => None,
        }
    }
}

/// `spec.platform.type` of a cluster on Azure.
pub(super) const AZURE_PLATFORM_TYPE: &str = "Azure";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, example_with_changes};
    use crate::hosted_cluster::validate::validate;

    #[test]
    fn other_platform_is_reported_without_problems() {
        let platform = ("/spec/platform/type".to_owned(), json!("AWS"));
        let workload = (
            format!("{}/azureAuthenticationConfig/azureAuthenticationConfigType", fixture::AZURE),
            json!("WorkloadIdentities"),
        );
        // What else is wrong with it does not matter.
        let broken = ("/spec/infraID".to_owned(), json!("-"));
        let cases = [
            (platform, HostedClusterPlatform::Other("AWS".to_owned())),
            (workload, HostedClusterPlatform::SelfManagedAzure),
        ];
        for (change, kind) in cases {
            let wire = example_with_changes(&[change, broken.clone()]);
            assert_eq!(HostedClusterPlatform::of(&wire), kind);
            assert!(!kind.is_managed_azure());
            assert!(kind.hint().is_some());
            assert_eq!(
                validate(&wire),
                Err(HostedClusterValidationError::UnsupportedPlatform(kind))
            );
        }
    }

    #[test]
    fn missing_or_misspelled_platform_counts_as_managed_azure() {
        let kind =
            format!("{}/azureAuthenticationConfig/azureAuthenticationConfigType", fixture::AZURE);
        let cases = [
            ("/spec/platform".to_owned(), json!(null)),
            (fixture::AZURE.to_owned(), json!(null)),
            (kind, json!("ServicePrincipal")),
            ("/spec/platform/type".to_owned(), json!("")),
            ("/spec/platform/type".to_owned(), json!("azure")),
            ("/spec/platform/type".to_owned(), json!("AZURE")),
        ];
        for change in cases {
            let wire = example_with_changes(std::slice::from_ref(&change));
            assert!(HostedClusterPlatform::of(&wire).is_managed_azure(), "{change:?}");
            assert!(
                matches!(validate(&wire), Err(HostedClusterValidationError::Invalid(_))),
                "{change:?}"
            );
        }
        assert!(HostedClusterPlatform::of(&HostedCluster::default()).is_managed_azure());
    }

    #[test]
    fn misspelled_platform_error_suggests_the_spelling() {
        let wire = example_with_changes(&[("/spec/platform/type".to_owned(), json!("azure"))]);
        let Err(HostedClusterValidationError::Invalid(problems)) = validate(&wire) else {
            panic!("it is usable")
        };
        let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["spec.platform.type: `azure` is not a platform; `Azure` is"]);
    }

    #[test]
    fn unsupported_platform_error_names_the_platform() {
        let text = HostedClusterValidationError::UnsupportedPlatform(
            HostedClusterPlatform::SelfManagedAzure,
        )
        .to_string();
        assert!(text.starts_with("this is a cluster of self-managed Azure (WorkloadIdentities)"));
        let other = HostedClusterPlatform::Other("AWS".to_owned());
        assert!(
            HostedClusterValidationError::UnsupportedPlatform(other)
                .to_string()
                .contains("a cluster on AWS")
        );
    }
}
