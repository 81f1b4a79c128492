//! Parses the kubelet's requests. All problems are reported together, and no received value is echoed.

use std::collections::BTreeMap;
use std::mem::take;
use std::path::{Path, PathBuf};

use lanyard_grpc::csi::volume_capability::{AccessType, MountVolume};
use lanyard_grpc::csi::{NodePublishVolumeRequest, VolumeCapability};
use lanyard_keyvault::{PodCredentials, PublishSecrets, ServiceAccountTokens, VolumePod};

use super::PublishRequest;
use super::error::{InvalidPublishRequest, PublishRequestProblem};
use super::target::target_problem;
use super::tokens::parse_tokens;
use crate::volume_attribute::{CLASS, POD_NAME, POD_NAMESPACE, POD_UID, SERVICE_ACCOUNT, TOKENS};

/// Parses publish and unpublish requests and validates them.
#[derive(Debug, Clone)]
pub struct VolumeRequestParser {
    kubelet_dir: PathBuf,
    #[cfg(feature = "sanity")]
    writable: bool,
}

impl VolumeRequestParser {
    /// Creates the parser of a node. Every target path must be below `kubelet_dir`.
    pub fn new(kubelet_dir: impl Into<PathBuf>) -> Self {
        Self {
            kubelet_dir: kubelet_dir.into(),
            #[cfg(feature = "sanity")]
            writable: false,
        }
    }

    /// If `writable`, accepts writable volumes: csi-sanity publishes no others.
    #[cfg(feature = "sanity")]
    pub(crate) fn with_writable(self, writable: bool) -> Self {
        Self { writable, ..self }
    }

    #[cfg(feature = "sanity")]
    const fn allows_writable(&self) -> bool {
        self.writable
    }

    #[cfg(not(feature = "sanity"))]
    #[expect(clippy::unused_self, reason = "only a build for csi-sanity has another answer")]
    const fn allows_writable(&self) -> bool {
        false
    }

    /// Parses a publish request.
    ///
    /// # Errors
    ///
    /// Returns every problem of the request. Each names its field; none contains a value that may be secret.
    pub fn parse_publish(
        &self,
        mut request: NodePublishVolumeRequest,
    ) -> Result<PublishRequest, InvalidPublishRequest> {
        let mut problems = Vec::new();
        let group = parse_mount_group(request.volume_capability.take(), &mut problems);
        let volume_id = checked_volume_id(take(&mut request.volume_id), &mut problems);
        if !request.readonly && !self.allows_writable() {
            problems.push(PublishRequestProblem::NotReadOnly);
        }
        let mut attributes = take(&mut request.volume_context);
        let tokens = take_tokens(&mut request.secrets, &mut attributes, &mut problems);
        let named = pod_and_class(&attributes, &mut problems);
        let uid = named.as_ref().map(|(pod, _)| pod.uid.as_str());
        let target = self.checked_target(take(&mut request.target_path), uid, &mut problems);
        let secrets = take(&mut request.secrets)
            .into_iter()
            .map(|(key, value)| (key, std::sync::Arc::new(value.into())))
            .collect();
        match named {
            Some((pod, class_name)) if problems.is_empty() => Ok(PublishRequest {
                volume_id,
                target,
                pod,
                class_name,
                attributes,
                pod_credentials: PodCredentials { tokens, secrets: PublishSecrets(secrets) },
                group,
            }),
            _ => Err(InvalidPublishRequest { problems }),
        }
    }

    /// Parses an unpublish request into its volume id and target path.
    ///
    /// # Errors
    ///
    /// Returns every problem of the request.
    pub fn parse_unpublish(
        &self,
        volume: String,
        target: String,
    ) -> Result<(String, PathBuf), InvalidPublishRequest> {
        let mut problems = Vec::new();
        let volume = checked_volume_id(volume, &mut problems);
        let target = self.checked_target(target, None, &mut problems);
        if problems.is_empty() {
            Ok((volume, target))
        } else {
            Err(InvalidPublishRequest { problems })
        }
    }

    fn checked_target(
        &self,
        target: String,
        uid: Option<&str>,
        problems: &mut Vec<PublishRequestProblem>,
    ) -> PathBuf {
        problems.extend(target_problem(Path::new(&target), &self.kubelet_dir, uid));
        PathBuf::from(target)
    }
}

/// Returns the pod's `fsGroup` from the volume capability.
fn parse_mount_group(
    capability: Option<VolumeCapability>,
    problems: &mut Vec<PublishRequestProblem>,
) -> Option<u32> {
    let Some(capability) = capability else {
        problems.push(PublishRequestProblem::MissingField { field: "volume_capability" });
        return None;
    };
    match capability.access_type {
        Some(AccessType::Block(_)) => {
            problems.push(PublishRequestProblem::BlockDevice);
            None
        }
        Some(AccessType::Mount(MountVolume { volume_mount_group, .. })) => {
            parse_group(&volume_mount_group, problems)
        }
        None => None,
    }
}

/// Parses a group id in the kubelet's format, decimal digits. The largest value means "no group" to the
/// system (chown(2)) and is rejected.
fn parse_group(text: &str, problems: &mut Vec<PublishRequestProblem>) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse().ok().filter(|group| digits && *group != u32::MAX);
    if parsed.is_none() {
        problems.push(PublishRequestProblem::InvalidGroup {
            text: text.escape_debug().take(MAX_SHOWN_CHARS).collect(),
        });
    }
    parsed
}

fn checked_volume_id(id: String, problems: &mut Vec<PublishRequestProblem>) -> String {
    if id.is_empty() {
        problems.push(PublishRequestProblem::MissingField { field: "volume_id" });
    } else if id.len() > MAX_VOLUME_ID || !id.chars().all(is_id_character) {
        problems.push(PublishRequestProblem::InvalidVolumeId);
    }
    id
}

/// Volume ids are written to logs and markers: no control characters, blanks or path separators.
const fn is_id_character(it: char) -> bool {
    it.is_ascii_graphic() && it != '/' && it != '\\'
}

/// Removes the tokens from both maps and returns them, preferring the secrets. The remaining entries are the
/// pod's own secrets and attributes.
fn take_tokens(
    secrets: &mut BTreeMap<String, String>,
    attributes: &mut BTreeMap<String, String>,
    problems: &mut Vec<PublishRequestProblem>,
) -> ServiceAccountTokens {
    let mut from_context = attributes.remove(TOKENS);
    let mut from_secrets = secrets.remove(TOKENS);
    let (text, field) = match (&mut from_secrets, &mut from_context) {
        (Some(text), _) => (text, "secrets"),
        (None, Some(text)) => (text, "volume_context"),
        (None, None) => return ServiceAccountTokens::default(),
    };
    let parsed = parse_tokens(text);
    for text in [from_secrets, from_context].iter_mut().flatten() {
        zeroize::Zeroize::zeroize(text);
    }
    parsed.unwrap_or_else(|problem| {
        problems.push(PublishRequestProblem::InvalidTokens { field, problem });
        ServiceAccountTokens::default()
    })
}

/// Returns the pod and the class name if every attribute that identifies them is present.
fn pod_and_class(
    attributes: &BTreeMap<String, String>,
    problems: &mut Vec<PublishRequestProblem>,
) -> Option<(VolumePod, String)> {
    if attributes.is_empty() {
        problems.push(PublishRequestProblem::MissingField { field: "volume_context" });
        return None;
    }
    let mut wanted = |key: &'static str| {
        let value = attributes.get(key).filter(|value| !value.is_empty());
        match value {
            None => problems.push(PublishRequestProblem::MissingAttribute { key }),
            Some(value) if !is_object_name(value) => {
                problems.push(PublishRequestProblem::InvalidObjectName { key });
            }
            Some(_) => {}
        }
        value.cloned()
    };
    let class = wanted(CLASS);
    let (name, namespace, uid) = (wanted(POD_NAME), wanted(POD_NAMESPACE), wanted(POD_UID));
    let service_account = attributes.get(SERVICE_ACCOUNT).cloned().unwrap_or_default();
    if !service_account.is_empty() && !is_object_name(&service_account) {
        problems.push(PublishRequestProblem::InvalidObjectName { key: SERVICE_ACCOUNT });
    }
    let (namespace, name, uid) = (namespace?, name?, uid?);
    Some((VolumePod { namespace, name, uid, service_account }, class?))
}

/// Returns whether a text is a valid object name of the Kubernetes API (RFC 1123 subdomain), and so safe in
/// an API path and a file name.
fn is_object_name(text: &str) -> bool {
    let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    text.len() <= MAX_OBJECT_NAME
        && text.bytes().all(|it| inner(it) || it == b'-' || it == b'.')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().next_back().is_some_and(inner)
}

/// The default size limit of a string field in a CSI message, in bytes (CSI v1, "size limits").
const MAX_VOLUME_ID: usize = 128;
const MAX_OBJECT_NAME: usize = 253;
const MAX_SHOWN_CHARS: usize = 32;
