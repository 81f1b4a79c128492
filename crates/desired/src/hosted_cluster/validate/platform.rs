//! The platform of a HostedCluster, and whether lanyard manages it.

use std::borrow::Cow;
use std::fmt;

use lanyard_api::HostedCluster;

use crate::problem::ValidationProblems;

/// The platform of a HostedCluster. lanyard manages only managed Azure.
///
/// As in HyperShift, only the object's platform and the type of its identities decide. A missing or
/// misspelled value counts as managed Azure, so that the error is reported; the API server rejects
/// such an object anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostedClusterPlatform {
    /// Managed Azure (ARO HCP): a vault holds the credentials of managed identities. The only
    /// supported platform.
    ManagedAzure,
    /// Self-managed Azure: its components exchange service account tokens.
    SelfManagedAzure,
    /// Another platform, with its `spec.platform.type`.
    Other(String),
}

impl HostedClusterPlatform {
    /// Returns the platform of a HostedCluster, valid or not.
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

    /// Returns the platform for this `spec.platform.type`; `None` for Azure in any spelling,
    /// because the type alone does not decide there.
    pub fn of_other_platform(name: &str) -> Option<Self> {
        let is_azure = name.is_empty() || name.eq_ignore_ascii_case(AZURE_PLATFORM_TYPE);
        (!is_azure).then(|| Self::Other(name.to_owned()))
    }

    /// Returns the field that determines the platform.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Other(_) => "spec.platform.type",
            Self::ManagedAzure | Self::SelfManagedAzure => {
                "spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType"
            }
        }
    }

    /// Returns whether lanyard manages clusters on this platform. For any other cluster it creates
    /// no objects and writes no status.
    pub fn is_managed_azure(&self) -> bool {
        *self == Self::ManagedAzure
    }

    /// Returns the suggested fix for an unsupported platform.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ManagedAzure => None,
            Self::SelfManagedAzure => {
                Some("use a cluster of managed Azure, whose type is `ManagedIdentities`")
            }
            Self::Other(_) => Some("use a HostedCluster whose platform is `Azure`"),
        }
    }
}

impl fmt::Display for HostedClusterPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManagedAzure => formatter.write_str("a cluster of managed Azure"),
            Self::SelfManagedAzure => formatter.write_str(
                "a cluster of self-managed Azure (WorkloadIdentities): its components exchange service account tokens, and no vault holds credentials",
            ),
            Self::Other(platform) => {
                write!(formatter, "a cluster on {platform}, and lanyard supports only Azure")
            }
        }
    }
}

/// The reason why a HostedCluster is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostedClusterValidationError {
    /// The platform is not supported. This is no error of the HostedCluster: lanyard ignores it,
    /// whatever else is wrong with it.
    #[error("this is {0}")]
    UnsupportedPlatform(HostedClusterPlatform),
    /// The HostedCluster is invalid: all problems, lints included.
    #[error("the HostedCluster cannot be used: {0}")]
    Invalid(ValidationProblems),
}

impl HostedClusterValidationError {
    /// Returns the next step of the reader, usually to repair the cause; `None` if the error message already says
    /// everything. Problems of an invalid cluster have their own hints.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::UnsupportedPlatform(kind) => kind.hint().map(Cow::Borrowed),
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
        // Other errors of the object do not matter.
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
        let messages: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            messages,
            [
                "spec.platform.type: Unsupported value: \"azure\": supported values: \"AWS\", \"Azure\", \"IBMCloud\", \"KubeVirt\", \"Agent\", \"PowerVS\", \"None\""
            ]
        );
        let hint = problems.iter().next().unwrap().hint.clone();
        assert_eq!(hint.as_deref(), Some("the case matters: write `Azure`"));
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
