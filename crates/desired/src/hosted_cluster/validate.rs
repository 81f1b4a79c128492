//! Validation of a HostedCluster: converts the API object to a [`ValidatedHostedCluster`] and
//! reports all problems at once.
//!
//! As in the API server, unknown fields are ignored and defaults are applied before validation.
//! Violations of HyperShift's schema are errors with the schema's messages ([`validate_schema`]).
//! Additional rules are lints, except for values that lanyard cannot use at all. An unusable value
//! that only some objects need does not reject the cluster ([`ValidatedWithLints::object_errors`]).
//!
//! Source: the schema of `HostedCluster` in `hypershift.openshift.io/v1beta1`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lanyard_api::crd_definitions::DEFAULT_ISSUER_URL;
use lanyard_api::hosted_cluster::{AzurePlatform, HostedClusterSpec};
use lanyard_api::{HostedCluster, ReadHostedClusterError};
use lanyard_vocabulary::InfraId;

use super::{
    ClusterTenant, CredentialVault, LoadBalancerHealthProbe, ValidatedHostedCluster, VaultTenant,
    control_plane_namespace,
};
use crate::problem::ValidationProblems;

mod authentication;
mod checker;
mod encryption;
mod identity;
mod misspelled_fields;
mod placement;
mod platform;
mod schema;
#[cfg(test)]
mod tests;
mod update;

pub use misspelled_fields::{report_misspelled_fields, report_misspelled_missing_fields};
pub use platform::{HostedClusterPlatform, HostedClusterValidationError};
pub use schema::validate_schema;
pub use update::validate_update;

use checker::FieldChecker;

const AZURE: &str = "spec.platform.azure";
const AUTHENTICATION: &str = "spec.platform.azure.azureAuthenticationConfig";

/// Returns the path of a field below `spec.platform.azure`.
fn azure_field(field: &str) -> String {
    format!("{AZURE}.{field}")
}

/// A valid hosted cluster, with its lints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatedWithLints {
    /// The validated cluster.
    pub hosted_cluster: ValidatedHostedCluster,
    /// The errors of values that only some objects need: exactly the objects of
    /// [`unrendered_objects`](crate::objects::unrendered_objects) cannot be rendered.
    pub object_errors: ValidationProblems,
    /// The lints; contains no errors.
    pub lints: ValidationProblems,
}

/// Checks a HostedCluster of managed Azure.
///
/// # Errors
/// Fails for a cluster on an unsupported platform, without further checks. Otherwise, if there is
/// at least one error, returns every problem, lints included.
pub fn validate(wire: &HostedCluster) -> Result<ValidatedWithLints, HostedClusterValidationError> {
    let kind = HostedClusterPlatform::of(wire);
    if kind.is_managed_azure() {
        validate_managed_cluster(wire).map_err(HostedClusterValidationError::Invalid)
    } else {
        Err(HostedClusterValidationError::UnsupportedPlatform(kind))
    }
}

fn validate_managed_cluster(
    wire: &HostedCluster,
) -> Result<ValidatedWithLints, ValidationProblems> {
    let mut checker = FieldChecker { problems: validate_schema(wire) };
    let mut partial = FieldChecker::default();
    let spec = wire.spec.clone().unwrap_or_default();
    let metadata = check_metadata(&mut checker, wire);
    let infra_id = check_infra_id(&mut checker, &spec);
    let issuer_url = check_issuer_url(&mut checker, &spec);
    let Some(azure) = check_azure_platform(&mut checker, &spec) else {
        return Err(checker.problems);
    };
    let annotations = health_probe_annotations(wire);
    let placement = placement::check_placement(&mut checker, &mut partial, &azure, &annotations);
    let authentication = authentication::check_authentication(&mut checker, &azure, &spec);
    let encryption = encryption::check_encryption(&mut checker, &spec);
    let (encryption, kms) = encryption.unzip();
    let authentication = authentication.map(|mut authentication| {
        authentication.identities.extend(kms);
        identity::check_shared_secrets(&mut checker, &authentication.identities);
        identity::lint_shared_client_ids(&mut checker, &authentication.identities);
        authentication
    });
    let is_rejected = checker.problems.has_errors();
    let (false, Some((namespace, name)), Some(infra_id), Some(azure), Some(authentication)) =
        (is_rejected, metadata, infra_id, placement, authentication)
    else {
        return Err(checker.problems.into_iter().chain(partial.problems).collect());
    };
    let base_domain = spec.dns.and_then(|dns| dns.base_domain).filter(|domain| !domain.is_empty());
    let hosted_cluster = ValidatedHostedCluster {
        namespace,
        name,
        infra_id,
        base_domain,
        issuer_url,
        azure,
        vault: authentication.vault,
        identities: authentication.identities,
        data_plane: authentication.data_plane,
        encryption,
    };
    Ok(ValidatedWithLints {
        hosted_cluster,
        object_errors: partial.problems,
        lints: checker.problems,
    })
}

/// A HostedCluster that was parsed and validated.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedHostedCluster {
    /// The HostedCluster as it was read, unknown fields included.
    pub wire: HostedCluster,
    /// The validated cluster.
    pub hosted_cluster: ValidatedHostedCluster,
    /// The errors because of which single objects cannot be rendered, as
    /// [`ValidatedWithLints::object_errors`].
    pub object_errors: ValidationProblems,
    /// The lints; contains no errors.
    pub lints: ValidationProblems,
}

/// The reason why a text contains no valid HostedCluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseHostedClusterError {
    /// The text cannot be parsed.
    #[error(transparent)]
    ReadFailed(#[from] ReadHostedClusterError),
    /// The HostedCluster is on an unsupported platform.
    #[error("this is {0}")]
    UnsupportedPlatform(HostedClusterPlatform),
    /// The HostedCluster is invalid.
    #[error("the HostedCluster cannot be used: {0}")]
    Invalid(ValidationProblems),
}

impl ParseHostedClusterError {
    /// Returns the next step of the reader, usually to repair the cause; `None` if the error message already says
    /// everything. Problems of an invalid cluster have their own hints.
    pub fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::ReadFailed(error) => error.hint(),
            Self::UnsupportedPlatform(kind) => kind.hint().map(Cow::Borrowed),
            Self::Invalid(_) => None,
        }
    }
}

/// Parses a HostedCluster of managed Azure from YAML or JSON and validates it. Unquoted values that
/// the API server would reject because they are no strings are read as strings and linted.
///
/// # Errors
/// Fails if the text cannot be parsed and if the cluster is invalid.
pub fn parse_hosted_cluster(text: &str) -> Result<ParsedHostedCluster, ParseHostedClusterError> {
    let wire = HostedCluster::parse_yaml(text)?;
    let mut unquoted = ValidationProblems::default();
    for found in HostedCluster::unquoted_scalars(text)? {
        unquoted.lint(
            found.field,
            format!(
                "`{}` is not quoted, and the API server does not read it as a string",
                found.text
            ),
            format!("write \"{}\"", found.text),
        );
    }
    match validate(&wire) {
        Ok(validated) => {
            let ValidatedWithLints { hosted_cluster, object_errors, lints } = validated;
            let lints = unquoted.into_iter().chain(lints).collect();
            let lints = report_misspelled_fields(&wire, lints);
            Ok(ParsedHostedCluster { wire, hosted_cluster, object_errors, lints })
        }
        Err(HostedClusterValidationError::UnsupportedPlatform(kind)) => {
            Err(ParseHostedClusterError::UnsupportedPlatform(kind))
        }
        Err(HostedClusterValidationError::Invalid(problems)) => {
            let problems = unquoted.into_iter().chain(problems).collect();
            Err(ParseHostedClusterError::Invalid(report_misspelled_fields(&wire, problems)))
        }
    }
}

fn check_metadata(checker: &mut FieldChecker, wire: &HostedCluster) -> Option<(String, String)> {
    let metadata = wire.metadata.clone().unwrap_or_default();
    let name = checker.check_required("metadata.name", metadata.name);
    let namespace = checker.check_required("metadata.namespace", metadata.namespace);
    if let Some(name) = &name {
        checker.check_dns_subdomain("metadata.name", name);
    }
    if let Some(namespace) = &namespace {
        checker.check_dns_label("metadata.namespace", namespace);
    }
    let (namespace, name) = (namespace?, name?);
    let control_plane = control_plane_namespace(&namespace, &name);
    if control_plane.len() > 63 {
        checker.problems.error_with_hint(
            "metadata.name",
            format!("the namespace of the control plane would be `{control_plane}`, longer than 63 bytes"),
            "choose a shorter name or a shorter namespace",
        );
    }
    Some((namespace, name))
}

/// The operator generates a missing infra id before it validates the cluster; no name can be built
/// without it.
fn check_infra_id(checker: &mut FieldChecker, spec: &HostedClusterSpec) -> Option<InfraId> {
    let field = "spec.infraID";
    let Some(text) = spec.infra_id.as_deref() else {
        checker.problems.error_with_hint(
            field,
            "Required value",
            "set the infra id, from which the names of cloud resources are built, such as `<name>-<5 characters>`",
        );
        return None;
    };
    if text.len() > LONGEST_AZURE_NAME {
        checker.problems.lint(
            field,
            format!(
                "the load balancer is named after the infra id, which has {} characters; Azure allows {LONGEST_AZURE_NAME}",
                text.len()
            ),
            "create the cluster with a shorter infra id",
        );
    }
    checker.check_parsed(field, text)
}

/// The longest name of a load balancer (Microsoft Learn, "Naming rules and restrictions for Azure
/// resources").
const LONGEST_AZURE_NAME: usize = 80;

/// Defaults are applied before validation, so the rule that a signing key needs an issuer can never
/// fail. The intended rule is a lint.
fn check_issuer_url(checker: &mut FieldChecker, spec: &HostedClusterSpec) -> String {
    let field = "spec.issuerURL";
    let issuer = spec.issuer_url.clone().unwrap_or_else(|| DEFAULT_ISSUER_URL.to_owned());
    if spec.service_account_signing_key.is_some() && spec.issuer_url.is_none() {
        checker.problems.lint(
            field,
            format!("serviceAccountSigningKey is set and the issuer is the default, `{issuer}`"),
            "set the URL at which the public keys are published",
        );
    } else if !checker.has_error(field) && !is_https(&issuer) {
        checker.problems.lint(
            field,
            format!(
                "`{issuer}` is not an https URL; the API accepts it, but clients cannot trust it"
            ),
            "set the URL at which the public keys are published",
        );
    }
    issuer
}

fn is_https(text: &str) -> bool {
    url::Url::parse(text).is_ok_and(|url| url.scheme() == "https")
}

/// Checks `spec.platform` of a cluster on Azure.
fn check_azure_platform(
    checker: &mut FieldChecker,
    spec: &HostedClusterSpec,
) -> Option<AzurePlatform> {
    let platform = spec.platform.as_ref()?;
    checker.check_required(AZURE, platform.azure.clone())
}

fn health_probe_annotations(wire: &HostedCluster) -> BTreeMap<&'static str, String> {
    let annotations = wire.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let keys = [
        HostedCluster::HEALTH_PROBE_MODE_ANNOTATION,
        HostedCluster::HEALTH_PROBE_PATH_ANNOTATION,
        HostedCluster::HEALTH_PROBE_PORT_ANNOTATION,
    ];
    let value = |key| annotations?.get(key).cloned();
    keys.into_iter().filter_map(|key| Some((key, value(key)?))).collect()
}
