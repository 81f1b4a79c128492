//! What a driver asks for, parsed.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use lanyard_api::SecretProviderClass;
use lanyard_grpc::provider::MountRequest;
use lanyard_keyvault::{PodCredentials, ReadMemory, VolumePod};

use crate::provider::tokens::{InvalidJsonError, parse_json, parse_secrets, parse_tokens};
use crate::provider::{ProviderObjectVersion, ProviderRequest, Urgency};
use crate::volume_attribute::{
    CLASS, POD_NAME, POD_NAMESPACE, POD_UID, SERVICE_ACCOUNT, TOKENS, is_user_attribute,
};

/// What `secrets-store-sync-controller` sends instead of a target. A driver's is a directory of the
/// kubelet.
const CONTROLLER_TARGET: &str = "/mnt/secrets-store";

/// A mount that a driver asks for.
#[derive(Debug)]
pub(crate) struct ParsedMountRequest {
    /// The class, put together from the attributes.
    pub(crate) class: SecretProviderClass,
    /// Whose volume it is, by the word of the driver.
    pub(crate) pod: VolumePod,
    attributes: BTreeMap<String, String>,
    proofs: PodCredentials,
    target: String,
    mounted: Vec<ProviderObjectVersion>,
    /// The mode of files that name none.
    pub(crate) permission: u32,
}

/// A request is not one that can be served. Nothing in it is repeated: it holds tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidMountRequest {
    /// The attributes are no JSON object of texts.
    #[error("the attributes cannot be read: {0}")]
    Attributes(InvalidJsonError),
    /// The secrets are no JSON object of texts.
    #[error("the secrets cannot be read: {0}")]
    Secrets(InvalidJsonError),
    /// The permission is no number, or not a mode.
    #[error("the permission is not a JSON number from 0 to 511")]
    Permission,
    /// A mandatory attribute is missing.
    #[error("the attribute `{0}` is missing")]
    MissingAttribute(&'static str),
    /// The tokens are not what a kubelet writes.
    #[error("the attribute `{TOKENS}` cannot be read: {0}")]
    Tokens(InvalidJsonError),
}

impl ParsedMountRequest {
    /// Reads a request. The first problem, in the order in which the upstream provider looks:
    /// people compare messages.
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
        // The controller names no class, so what looks like a name is a parameter of its author.
        let is_controller = request.target_path == CONTROLLER_TARGET;
        let class_name = attributes.get(CLASS).filter(|_| !is_controller).cloned();
        Ok(Self {
            class: class_from_attributes(&namespace, class_name, &attributes),
            pod: VolumePod { namespace, name, uid, service_account },
            attributes,
            proofs: PodCredentials { tokens, secrets },
            target: std::mem::take(&mut request.target_path),
            mounted: current
                .map(|object| ProviderObjectVersion { id: object.id, version: object.version })
                .collect(),
            permission,
        })
    }

    /// What tells this volume with this class from others.
    pub(crate) fn volume_digest(&self) -> Option<[u8; 32]> {
        let parts = (&self.target, &self.pod.uid, &self.pod.namespace, &self.class);
        let text = serde_json::to_vec(&parts).ok()?;
        digest(&SHA256, &text).as_ref().try_into().ok()
    }

    /// What waits for the answer. A driver that says what is mounted (v1.5) is rotating. One that
    /// never does (v1.6) is starting a pod, unless the volume was filled before.
    pub(crate) fn urgency(&self, was_filled: bool) -> Urgency {
        let is_mounted = was_filled || !self.mounted.is_empty();
        if is_mounted { Urgency::Rotation } else { Urgency::Mount }
    }

    /// The same for a provider.
    pub(crate) fn provider_request<'a>(
        &'a self,
        urgency: Urgency,
        memory: &'a dyn ReadMemory,
    ) -> ProviderRequest<'a> {
        ProviderRequest {
            class: &self.class,
            pod: &self.pod,
            attributes: &self.attributes,
            proofs: &self.proofs,
            target: &self.target,
            urgency,
            mounted: &self.mounted,
            memory,
        }
    }
}

/// The class behind the attributes: everything that is not the kubelet's is a parameter.
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
