//! Mount requests of other drivers, parsed.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_api::SecretProviderClass;
use lanyard_grpc::provider::MountRequest;
use lanyard_keyvault::{PodCredentials, ReadMemory, VolumePod};
use lanyard_provider::{ProviderObjectVersion, ProviderRequest, Urgency};

use crate::provider::tokens::{InvalidJsonError, parse_json, parse_secrets, parse_tokens};
use crate::volume_attribute::{
    CLASS, POD_NAME, POD_NAMESPACE, POD_UID, SERVICE_ACCOUNT, TOKENS, is_user_attribute,
};

/// The target path that `secrets-store-sync-controller` sends. A driver sends a directory of the kubelet.
const CONTROLLER_TARGET: &str = "/mnt/secrets-store";

/// A parsed mount request of a driver.
#[derive(Debug)]
pub(crate) struct ParsedMountRequest {
    /// The class, built from the attributes.
    pub(crate) class: SecretProviderClass,
    /// The pod of the volume, as the driver states it.
    pub(crate) pod: VolumePod,
    attributes: BTreeMap<String, String>,
    pod_credentials: PodCredentials,
    target: String,
    mounted: Vec<ProviderObjectVersion>,
    /// The default mode of files.
    pub(crate) permission: u32,
}

/// The mount request is invalid. The error does not quote the request, which contains tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidMountRequest {
    /// The attributes are not a JSON object of strings.
    #[error("the attributes cannot be read: {0}")]
    Attributes(InvalidJsonError),
    /// The secrets are not a JSON object of strings.
    #[error("the secrets cannot be read: {0}")]
    Secrets(InvalidJsonError),
    /// The permission is not a number or not a mode.
    #[error("the permission is not a JSON number from 0 to 511")]
    Permission,
    /// A mandatory attribute is missing.
    #[error("the attribute `{0}` is missing")]
    MissingAttribute(&'static str),
    /// The tokens do not have the kubelet's format.
    #[error("the attribute `{TOKENS}` cannot be read: {0}")]
    Tokens(InvalidJsonError),
}

impl ParsedMountRequest {
    /// Parses a request. Returns the first problem, in the order in which the upstream provider checks, so
    /// that users see comparable messages.
    pub(crate) fn parse(mut request: MountRequest) -> Result<Self, InvalidMountRequest> {
        let mut attributes: BTreeMap<String, String> =
            parse_json(&request.attributes).map_err(InvalidMountRequest::Attributes)?;
        let secrets = parse_secrets(&request.secrets).map_err(InvalidMountRequest::Secrets)?;
        let permission: u32 = parse_json(&request.permission)
            .map_err(|InvalidJsonError { .. }| InvalidMountRequest::Permission)?;
        if permission > 0o777 {
            return Err(InvalidMountRequest::Permission);
        }
        let text = |key| attributes.get(key).map(|text: &String| text.trim().to_owned());
        let required = |key| {
            text(key)
                .filter(|text| !text.is_empty())
                .ok_or(InvalidMountRequest::MissingAttribute(key))
        };
        let name = required(POD_NAME)?;
        let namespace = required(POD_NAMESPACE)?;
        let uid = text(POD_UID).unwrap_or_default();
        let service_account = text(SERVICE_ACCOUNT).unwrap_or_default();
        let tokens = attributes.remove(TOKENS).map(zeroize::Zeroizing::new);
        let tokens = tokens.as_ref().map_or("", |text| text.as_str());
        let tokens = parse_tokens(tokens).map_err(InvalidMountRequest::Tokens)?;
        let current = std::mem::take(&mut request.current_object_version).into_iter();
        // The controller names no class; the attribute is a parameter that its author chose.
        let is_controller = request.target_path == CONTROLLER_TARGET;
        let class_name = attributes.get(CLASS).filter(|_| !is_controller).cloned();
        Ok(Self {
            class: class_from_attributes(&namespace, class_name, &attributes),
            pod: VolumePod { namespace, name, uid, service_account },
            attributes,
            pod_credentials: PodCredentials { tokens, secrets },
            target: std::mem::take(&mut request.target_path),
            mounted: current
                .map(|object| ProviderObjectVersion { id: object.id, version: object.version })
                .collect(),
            permission,
        })
    }

    /// Returns a digest that identifies this volume with this class.
    pub(crate) fn volume_digest(&self) -> Option<[u8; 32]> {
        let parts = (&self.target, &self.pod.uid, &self.pod.namespace, &self.class);
        let text = serde_json::to_vec(&parts).ok()?;
        digest(&SHA256, &text).as_ref().try_into().ok()
    }

    /// Returns the urgency of the request. A driver that sends the current versions (v1.5) is rotating. A
    /// driver that never sends them (v1.6) is starting a pod, unless the volume was served before.
    pub(crate) fn urgency(&self, was_filled: bool) -> Urgency {
        let is_mounted = was_filled || !self.mounted.is_empty();
        if is_mounted { Urgency::Rotation } else { Urgency::Mount }
    }

    /// Converts this request for a [`Provider`](lanyard_provider::Provider).
    pub(crate) fn provider_request<'a>(
        &'a self,
        urgency: Urgency,
        memory: &'a dyn ReadMemory,
    ) -> ProviderRequest<'a> {
        ProviderRequest {
            class: &self.class,
            pod: &self.pod,
            attributes: &self.attributes,
            pod_credentials: &self.pod_credentials,
            target: &self.target,
            urgency,
            mounted: &self.mounted,
            memory,
        }
    }
}

/// Builds the class from the attributes: every attribute that is not the kubelet's is a parameter.
fn class_from_attributes(
    namespace: &str,
    name: Option<String>,
    attributes: &BTreeMap<String, String>,
) -> SecretProviderClass {
    let mut class = SecretProviderClass::default();
    class.metadata.namespace = Some(namespace.to_owned());
    class.metadata.name = name;
    class.spec.provider = Some(SecretProviderClass::AZURE_PROVIDER.to_owned());
    let parameters = attributes.iter().filter(|(key, _)| is_user_attribute(key));
    class.spec.parameters =
        Some(parameters.map(|(key, text)| (key.clone(), text.clone())).collect());
    class
}
