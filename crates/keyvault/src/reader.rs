//! Determines the reader of a vault, which is the unit of sharing: a pure decision.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use jiff::Timestamp;
use lanyard_api::{IdentityMode, ProviderParameters};
use lanyard_clock::{ErrorHint, RetryClass};
use lanyard_credential::identity as entra;
use lanyard_credential::identity::ParseIdError;
use lanyard_vocabulary::EntraClientId;

use crate::cloud::VaultCloud;
use crate::pod::{PodCredentials, ServiceAccountToken, VolumePod};
use crate::secret_bytes::SharedSecretBytes;

/// The identity that reads a vault. Azure treats two equal readers alike, so they may share tokens and
/// values; unequal readers may not. Pods that share a workload identity have the same namespace and service
/// account, and a service principal is identified by its secret, too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct VaultReader {
    pub(crate) cloud: VaultCloud,
    pub(crate) tenant: entra::TenantId,
    pub(crate) identity: ReaderIdentity,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ReaderIdentity {
    /// A managed identity of the node.
    ManagedIdentity { client_id: Option<EntraClientId> },
    /// The pod's own identity, authenticated with its service account token.
    WorkloadIdentity {
        client_id: EntraClientId,
        subject: WorkloadSubject,
        through: TokenExchangeEndpoint,
    },
    /// An application whose secret comes with the volume.
    ServicePrincipal { client_id: entra::ClientId, secret: SecretDigest },
}

/// The service that exchanges a service account token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TokenExchangeEndpoint {
    /// The cloud's authority.
    Authority,
    /// The token proxy of the cluster.
    TokenProxy,
}

impl TokenExchangeEndpoint {
    /// The required audience of the service account token.
    pub(crate) const fn audience(self) -> &'static str {
        match self {
            Self::Authority => "api://AzureADTokenExchange",
            Self::TokenProxy => "api://AKSIdentityBinding",
        }
    }
}

/// The subject of a service account token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum WorkloadSubject {
    /// The service account from the kubelet's volume context.
    ServiceAccount { namespace: String, name: String },
    /// The kubelet did not pass the service account, so only an equal token is the same subject. The token's
    /// own claims are not used, because only Entra verifies the signature.
    Token(SecretDigest),
}

/// The SHA-256 digest of a secret, for comparisons. Not printed, because a weak secret could be guessed from
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SecretDigest([u8; 32]);

impl SecretDigest {
    fn of(secret: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, secret).as_ref());
        Self(bytes)
    }
}

lanyard_vocabulary::debug_text!(SecretDigest, "SecretDigest([redacted])");

impl VaultReader {
    /// All fields that distinguish readers, in a form that is stable across releases.
    pub(crate) fn cache_key_fields(&self) -> Vec<Vec<u8>> {
        let mut fields = vec![
            self.cloud.authority.to_string().into_bytes(),
            self.cloud.vault_suffix.clone().into_bytes(),
            self.tenant.as_str().as_bytes().to_vec(),
        ];
        let text = |text: &str| text.as_bytes().to_vec();
        match &self.identity {
            ReaderIdentity::ManagedIdentity { client_id } => {
                fields.push(text("managed-identity"));
                fields.extend(client_id.map(|id| text(&id.to_string())));
            }
            ReaderIdentity::WorkloadIdentity { client_id, subject, through } => {
                fields.push(text(through.audience()));
                fields.push(text(&client_id.to_string()));
                match subject {
                    WorkloadSubject::ServiceAccount { namespace, name } => {
                        fields.extend([text("account"), text(namespace), text(name)]);
                    }
                    WorkloadSubject::Token(digest) => {
                        fields.extend([text("token"), digest.0.to_vec()]);
                    }
                }
            }
            ReaderIdentity::ServicePrincipal { client_id, secret } => {
                fields.push(text("service-principal"));
                fields.extend([text(client_id.as_str()), secret.0.to_vec()]);
            }
        }
        fields
    }
}

/// A reader with its credential.
#[derive(Debug)]
pub(crate) struct VerifiedReader<'a> {
    pub(crate) reader: VaultReader,
    pub(crate) credential: ReaderCredential<'a>,
}

#[derive(Debug)]
pub(crate) enum ReaderCredential<'a> {
    /// The node's own managed identity.
    NodeIdentity,
    Token(&'a ServiceAccountToken),
    Secret(&'a SharedSecretBytes),
}

/// The identity that reads the vault for a pod cannot be used: a credential is missing or invalid, or the
/// SecretProviderClass is. Messages are those of the upstream provider where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReaderIdentityError {
    /// The kubelet passed no tokens.
    #[error("service account tokens not found")]
    NoTokens,
    /// No token has the required audience.
    #[error("token for audience {audience} not found")]
    NoTokenForAudience {
        /// The required audience.
        audience: &'static str,
    },
    /// The token for the audience has expired.
    #[error("token for audience {audience} expired at {expired}")]
    TokenExpired {
        /// The required audience.
        audience: &'static str,
        /// The expiry of the token.
        expired: Timestamp,
    },
    /// The volume has no `nodePublishSecretRef` secrets.
    #[error("nodePublishSecretRef secret is not set")]
    NoPublishSecrets,
    /// The `nodePublishSecretRef` Secret lacks a key.
    #[error("could not find {key}")]
    SecretKeyMissing {
        /// The missing key.
        key: &'static str,
    },
    /// A value of the `nodePublishSecretRef` Secret is malformed.
    #[error("{key} of nodePublishSecretRef is malformed ({problem})")]
    MalformedSecret {
        /// The key of the value.
        key: &'static str,
        /// The problem; never quotes the value.
        problem: ParseIdError,
    },
    /// The client secret is not UTF-8 text.
    #[error("clientsecret of nodePublishSecretRef is not text")]
    SecretNotText,
    /// The tenant id of the SecretProviderClass is malformed.
    #[error("the tenant is malformed ({problem})")]
    MalformedTenant {
        /// The parse error.
        problem: ParseIdError,
    },
    /// The SecretProviderClass requests AAD pod identity, which was retired.
    #[error("usePodIdentity: aad-pod-identity was retired, and this node does not speak to it")]
    PodIdentityRetired,
}

impl ReaderIdentityError {
    /// Whether the request may succeed if repeated.
    pub const fn retry(&self) -> RetryClass {
        match self {
            Self::TokenExpired { .. } => RetryClass::Transient,
            _ => RetryClass::Invalid,
        }
    }
}

impl ErrorHint for ReaderIdentityError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Owned(match self {
            Self::NoTokens | Self::NoTokenForAudience { .. } => {
                let audience = match self {
                    Self::NoTokenForAudience { audience } => audience,
                    _ => TokenExchangeEndpoint::Authority.audience(),
                };
                format!("set tokenRequests of the CSIDriver object to audience {audience}")
            }
            Self::TokenExpired { .. } => {
                "wait: the kubelet brings a new token when it publishes the volume again; set \
                 requiresRepublish of the CSIDriver object"
                    .to_owned()
            }
            Self::NoPublishSecrets
            | Self::SecretKeyMissing { .. }
            | Self::MalformedSecret { .. } => {
                "give the volume a nodePublishSecretRef with clientid and clientsecret, or the \
                 class an identity"
                    .to_owned()
            }
            Self::SecretNotText => "write the secret as Entra showed it".to_owned(),
            Self::MalformedTenant { problem } => return problem.hint(),
            Self::PodIdentityRetired => {
                "use workload identity: set clientID and remove usePodIdentity".to_owned()
            }
        }))
    }
}

/// Determines the reader of a volume.
///
/// # Errors
///
/// Returns a [`ReaderIdentityError`] if the pod lacks a credential that the class needs.
pub(crate) fn identify_reader<'a>(
    parameters: &ProviderParameters,
    cloud: VaultCloud,
    pod: &VolumePod,
    proofs: &'a PodCredentials,
    now: Timestamp,
) -> Result<VerifiedReader<'a>, ReaderIdentityError> {
    let tenant = parameters.tenant.as_str().parse();
    let tenant = tenant.map_err(|problem| ReaderIdentityError::MalformedTenant { problem })?;
    let (mode, proof) = match &parameters.identity {
        IdentityMode::ManagedIdentity { client_id } => (
            ReaderIdentity::ManagedIdentity { client_id: *client_id },
            ReaderCredential::NodeIdentity,
        ),
        IdentityMode::WorkloadIdentity { client_id } => {
            workload_reader(*client_id, TokenExchangeEndpoint::Authority, pod, proofs, now)?
        }
        IdentityMode::IdentityBinding { client_id } => {
            workload_reader(*client_id, TokenExchangeEndpoint::TokenProxy, pod, proofs, now)?
        }
        IdentityMode::ServicePrincipal => service_principal_reader(&proofs.secrets.0)?,
        IdentityMode::PodIdentity => return Err(ReaderIdentityError::PodIdentityRetired),
    };
    Ok(VerifiedReader { reader: VaultReader { cloud, tenant, identity: mode }, credential: proof })
}

fn workload_reader<'a>(
    client_id: EntraClientId,
    exchange_endpoint: TokenExchangeEndpoint,
    pod: &VolumePod,
    proofs: &'a PodCredentials,
    now: Timestamp,
) -> Result<(ReaderIdentity, ReaderCredential<'a>), ReaderIdentityError> {
    let (tokens, audience) = (&proofs.tokens.0, exchange_endpoint.audience());
    if tokens.is_empty() {
        return Err(ReaderIdentityError::NoTokens);
    }
    let token = tokens.get(audience).ok_or(ReaderIdentityError::NoTokenForAudience { audience })?;
    if token.expires <= now {
        return Err(ReaderIdentityError::TokenExpired { audience, expired: token.expires });
    }
    let subject = if pod.service_account.is_empty() || pod.namespace.is_empty() {
        WorkloadSubject::Token(SecretDigest::of(token.token.expose()))
    } else {
        let (namespace, name) = (pod.namespace.clone(), pod.service_account.clone());
        WorkloadSubject::ServiceAccount { namespace, name }
    };
    Ok((
        ReaderIdentity::WorkloadIdentity { client_id, subject, through: exchange_endpoint },
        ReaderCredential::Token(token),
    ))
}

fn service_principal_reader(
    secrets: &BTreeMap<String, Arc<SharedSecretBytes>>,
) -> Result<(ReaderIdentity, ReaderCredential<'_>), ReaderIdentityError> {
    if secrets.is_empty() {
        return Err(ReaderIdentityError::NoPublishSecrets);
    }
    let find = |key: &'static str| {
        let mut of_any_case = secrets.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
        let found = of_any_case.next().map(|(_, value)| &**value);
        found.filter(|value| !value.is_empty()).ok_or(ReaderIdentityError::SecretKeyMissing { key })
    };
    let (client_id, secret) = (find(CLIENT_ID)?, find(CLIENT_SECRET)?);
    // Invalid UTF-8 becomes an invalid character, and the problem's message is the same.
    let client_id = String::from_utf8_lossy(client_id.expose());
    let client_id = client_id
        .trim()
        .parse()
        .map_err(|problem| ReaderIdentityError::MalformedSecret { key: CLIENT_ID, problem })?;
    if str::from_utf8(secret.expose()).is_err() {
        return Err(ReaderIdentityError::SecretNotText);
    }
    let digest = SecretDigest::of(secret.expose());
    Ok((
        ReaderIdentity::ServicePrincipal { client_id, secret: digest },
        ReaderCredential::Secret(secret),
    ))
}

const CLIENT_ID: &str = "clientid";
const CLIENT_SECRET: &str = "clientsecret";

#[cfg(test)]
mod tests;
