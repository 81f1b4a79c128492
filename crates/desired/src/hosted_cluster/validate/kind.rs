//! Whose a HostedCluster is.

use std::fmt;

use lanyard_api::HostedCluster;

use crate::problem::Problems;

/// What kind of cluster a HostedCluster describes: ours, or one to leave alone.
///
/// The object alone decides, as the reference does by HostedCluster: its platform and the kind of
/// its identities. Whatever is missing or misspelled counts as ours, because somebody has to be
/// told; the API server refuses it anyway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostedClusterKind {
    /// Managed Azure (ARO HCP): credentials of managed identities in a vault. The only kind that
    /// anything is made for.
    ManagedAzure,
    /// Self-managed Azure: its components exchange service account tokens.
    SelfManagedAzure,
    /// A cluster on another platform, by its `spec.platform.type`.
    OtherPlatform(String),
}

impl HostedClusterKind {
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
        let is_azure = name.is_empty() || name.eq_ignore_ascii_case(AZURE);
        (!is_azure).then(|| Self::OtherPlatform(name.to_owned()))
    }

    /// The field that says the kind.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::OtherPlatform(_) => "spec.platform.type",
            Self::ManagedAzure | Self::SelfManagedAzure => {
                "spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType"
            }
        }
    }

    /// Whether identities are brought to clusters of this kind. For every other cluster nothing is
    /// made, and nothing is written about it.
    pub fn is_ours(&self) -> bool {
        *self == Self::ManagedAzure
    }

    /// What to do for a cluster of this kind to become usable.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::ManagedAzure => None,
            Self::SelfManagedAzure => {
                Some("give a cluster of managed Azure, whose type is `ManagedIdentities`")
            }
            Self::OtherPlatform(_) => Some("give a HostedCluster whose platform is `Azure`"),
        }
    }
}

impl fmt::Display for HostedClusterKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ManagedAzure => formatter.write_str("a cluster of managed Azure"),
            Self::SelfManagedAzure => formatter.write_str(
                "a cluster of self-managed Azure (WorkloadIdentities): its components exchange service account tokens, and there are no credentials in a vault to bring",
            ),
            Self::OtherPlatform(platform) => {
                write!(formatter, "a cluster on {platform}, and identities are brought to Azure only")
            }
        }
    }
}

/// Why a HostedCluster cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// It is of another kind. That is no fault of it: it is to be left alone, whatever else is
    /// wrong with it.
    #[error("this is {0}")]
    OtherKind(HostedClusterKind),
    /// It breaks rules: every problem, lints among them.
    #[error("the HostedCluster cannot be used: {0}")]
    Invalid(Problems),
}

impl ValidateError {
    /// What to do about it; every problem of an invalid cluster has its own.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::OtherKind(kind) => kind.hint(),
            Self::Invalid(_) => None,
        }
    }
}

/// `spec.platform.type` of a cluster on Azure.
pub(super) const AZURE: &str = "Azure";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{self, changed};
    use crate::hosted_cluster::validate::validate;

    #[test]
    fn a_cluster_of_another_kind_is_no_problem_but_an_answer_of_its_own() {
        let platform = ("/spec/platform/type".to_owned(), json!("AWS"));
        let workload = (
            format!("{}/azureAuthenticationConfig/azureAuthenticationConfigType", fixture::AZURE),
            json!("WorkloadIdentities"),
        );
        // What else is wrong with it does not matter.
        let broken = ("/spec/infraID".to_owned(), json!("-"));
        let cases = [
            (platform, HostedClusterKind::OtherPlatform("AWS".to_owned())),
            (workload, HostedClusterKind::SelfManagedAzure),
        ];
        for (change, kind) in cases {
            let wire = changed(&[change, broken.clone()]);
            assert_eq!(HostedClusterKind::of(&wire), kind);
            assert!(!kind.is_ours());
            assert!(kind.hint().is_some());
            assert_eq!(validate(&wire), Err(ValidateError::OtherKind(kind)));
        }
    }

    #[test]
    fn what_is_missing_or_misspelled_is_ours_to_tell() {
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
            let wire = changed(std::slice::from_ref(&change));
            assert!(HostedClusterKind::of(&wire).is_ours(), "{change:?}");
            assert!(matches!(validate(&wire), Err(ValidateError::Invalid(_))), "{change:?}");
        }
        assert!(HostedClusterKind::of(&HostedCluster::default()).is_ours());
    }

    #[test]
    fn a_misspelled_platform_is_named_with_the_right_word() {
        let wire = changed(&[("/spec/platform/type".to_owned(), json!("azure"))]);
        let Err(ValidateError::Invalid(problems)) = validate(&wire) else { panic!("it is usable") };
        let told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["spec.platform.type: `azure` is not a platform; `Azure` is"]);
    }

    #[test]
    fn the_answer_says_what_it_is() {
        let text = ValidateError::OtherKind(HostedClusterKind::SelfManagedAzure).to_string();
        assert!(text.starts_with("this is a cluster of self-managed Azure (WorkloadIdentities)"));
        let other = HostedClusterKind::OtherPlatform("AWS".to_owned());
        assert!(ValidateError::OtherKind(other).to_string().contains("a cluster on AWS"));
    }
}
