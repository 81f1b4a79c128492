//! The Kubernetes versions of managed clusters.
//!
//! Source: `az aks get-versions`, October 2026, without preview versions.

use http::StatusCode;
use lanyard_emulator_arm::access::{authorize_call, json_reply};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_arm::request_scopes::subscription_scope;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::json;

/// A Kubernetes version: major, minor and patch, such as `1.34.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KubernetesVersion(&'static str);

impl KubernetesVersion {
    /// The complete version, such as `1.34.3`.
    pub(super) const fn patch(self) -> &'static str {
        self.0
    }

    /// Major and minor version, such as `1.34`.
    pub(super) fn minor(self) -> String {
        self.0.rsplit_once('.').map_or(self.0, |(minor, _)| minor).to_owned()
    }
}

/// The versions, oldest first: the last one of a minor version is its newest patch.
const VERSIONS: &[KubernetesVersion] = &[
    KubernetesVersion("1.33.6"),
    KubernetesVersion("1.33.7"),
    KubernetesVersion("1.34.2"),
    KubernetesVersion("1.34.3"),
    KubernetesVersion("1.35.1"),
    KubernetesVersion("1.36.0"),
];

const DEFAULT_MINOR: &str = "1.34";

/// Finds a complete version, the newest patch of a minor version, or the default (`None`).
pub(super) fn resolve_version(requested: Option<&str>) -> Result<KubernetesVersion, ServiceReply> {
    let requested = requested.unwrap_or(DEFAULT_MINOR);
    let found = VERSIONS
        .iter()
        .rev()
        .find(|version| version.patch() == requested || version.minor() == requested);
    found.copied().ok_or_else(|| {
        let known: Vec<_> = VERSIONS.iter().map(|version| version.patch()).collect();
        bad_request(
            "K8sVersionNotSupported",
            format!(
                "Managed cluster version {requested} is not supported in this region. Supported \
                 versions are {}.",
                known.join(", ")
            ),
        )
    })
}

/// `GET …/locations/{location}/kubernetesVersions`.
pub(super) fn list_versions(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let whole = subscription_scope(call)?;
    let action = "Microsoft.ContainerService/locations/kubernetesversions/read";
    authorize_call(call, action, &whole)?;
    let mut minors: Vec<_> = VERSIONS.iter().map(|version| version.minor()).collect();
    minors.dedup();
    let values: Vec<_> = minors
        .iter()
        .map(|minor| {
            let patches: serde_json::Map<_, _> = VERSIONS
                .iter()
                .filter(|version| version.minor() == *minor)
                .map(|version| (version.patch().to_owned(), json!({ "upgrades": [] })))
                .collect();
            json!({
                "version": minor,
                "isDefault": minor == DEFAULT_MINOR,
                "capabilities": { "supportPlan": ["KubernetesOfficial"] },
                "patchVersions": patches,
            })
        })
        .collect();
    Ok(json_reply(call, StatusCode::OK, &json!({ "values": values })))
}
