//! An Azure Key Vault, read with the official clients.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::Bytes;
use azure_core::credentials::TokenCredential;
use azure_core::http::{ClientOptions, Response, RetryOptions, Url};
use azure_core::time::OffsetDateTime;
use azure_security_keyvault_certificates::models::{
    Certificate, CertificateClientGetCertificateOptions,
};
use azure_security_keyvault_certificates::{CertificateClient, CertificateClientOptions};
use azure_security_keyvault_keys::models::{
    CurveName, JsonWebKey, Key, KeyClientGetKeyOptions, KeyType,
};
use azure_security_keyvault_keys::{KeyClient, KeyClientOptions};
use azure_security_keyvault_secrets::models::{Secret, SecretClientGetSecretOptions};
use azure_security_keyvault_secrets::{SecretClient, SecretClientOptions};
use futures::future::ready;
use futures::{Stream, TryStreamExt};
use jiff::Timestamp;
use lanyard_api::{VaultObjectKind, VaultObjectVersion};
use lanyard_vocabulary::cloud::CloudEndpoints;
use lanyard_vocabulary::{SecretName, VaultName};
use serde::de::DeserializeOwned;
use zeroize::Zeroize;

use crate::error::VaultReadError;
use crate::memory::MAX_LISTED_VERSIONS;
use crate::public_key::{EcCurve, PublicJwk};
use crate::secret_bytes::SharedSecretBytes;
use crate::source::{
    FetchedCertificate, FetchedKey, FetchedSecret, ListedVersion, ObjectAttributes, VaultSource,
};
use crate::vault::body_limit::ResponseBodyLimit;
use crate::vault::challenge::PredictedChallenge;
use crate::vault::error_reply::classify_client_error;
use crate::vault::uncached_credential::UncachedCredential;

mod body_limit;
mod challenge;
mod error_reply;
#[cfg(test)]
mod tests;
mod uncached_credential;

/// Converts the attributes of an object. Each client has its own type with the same fields.
macro_rules! attributes {
    ($attributes:expr, $tags:expr) => {{
        let attributes = $attributes.unwrap_or_default();
        ObjectAttributes {
            enabled: attributes.enabled,
            created: timestamp(attributes.created),
            updated: timestamp(attributes.updated),
            not_before: timestamp(attributes.not_before),
            expires: timestamp(attributes.expires),
            tags: tags($tags),
        }
    }};
}

/// An Azure Key Vault.
///
/// Keep one for each vault and identity: its clients share the connections of their transport and cache the
/// vault's challenge, which is predicted if the cloud is known. It neither retries nor caches tokens; the
/// transport and the credential do.
#[derive(Clone)]
pub struct KeyVault {
    url: Url,
    secrets: Arc<SecretClient>,
    keys: Arc<KeyClient>,
    certificates: Arc<CertificateClient>,
}

impl KeyVault {
    /// Creates a client of the vault at `url` with `credential` and the transport in `options`.
    pub fn new(
        url: &str,
        credential: Arc<dyn TokenCredential>,
        mut options: ClientOptions,
    ) -> Result<Self, VaultReadError> {
        options.retry = RetryOptions::none();
        if let Some(known) =
            Url::parse(url).ok().as_ref().and_then(PredictedChallenge::for_vault_url)
        {
            options.per_try_policies.push(Arc::new(known));
        }
        options.per_try_policies.push(Arc::new(ResponseBodyLimit));
        let credential: Arc<dyn TokenCredential> = Arc::new(UncachedCredential::new(credential));
        let secrets = SecretClientOptions { client_options: options.clone(), ..Default::default() };
        let secrets = SecretClient::new(url, Arc::clone(&credential), Some(secrets))
            .map_err(classify_client_error)?;
        let keys = KeyClientOptions { client_options: options.clone(), ..Default::default() };
        let keys = KeyClient::new(url, Arc::clone(&credential), Some(keys))
            .map_err(classify_client_error)?;
        let certificates =
            CertificateClientOptions { client_options: options, ..Default::default() };
        let certificates = CertificateClient::new(url, credential, Some(certificates))
            .map_err(classify_client_error)?;
        Ok(Self {
            url: secrets.endpoint().clone(),
            secrets: Arc::new(secrets),
            keys: Arc::new(keys),
            certificates: Arc::new(certificates),
        })
    }

    /// The URL of a vault in a cloud.
    pub fn url_in_cloud(name: &VaultName, endpoints: &CloudEndpoints) -> String {
        format!("https://{name}.{}/", endpoints.vault_suffix)
    }

    /// The URL of the vault.
    pub fn url(&self) -> &Url {
        &self.url
    }
}

impl fmt::Debug for KeyVault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyVault").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

#[async_trait]
impl VaultSource for KeyVault {
    async fn fetch_secret(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedSecret, VaultReadError> {
        let secret_version = version.map(ToString::to_string);
        let options = SecretClientGetSecretOptions { secret_version, ..Default::default() };
        let response = self
            .secrets
            .get_secret(name.as_str(), Some(options))
            .await
            .map_err(classify_client_error)?;
        let secret: Secret = read_model(response)?;
        let value = secret.value.map(SharedSecretBytes::from);
        Ok(FetchedSecret {
            value: value.ok_or(VaultReadError::Malformed { problem: "it has no value" })?,
            version: version_from_id(secret.id.as_deref())?,
            attributes: attributes!(secret.attributes, secret.tags),
            content_type: secret.content_type,
            is_certificate_secret: secret.kid.is_some(),
        })
    }

    async fn fetch_key(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedKey, VaultReadError> {
        let key_version = version.map(ToString::to_string);
        let options = KeyClientGetKeyOptions { key_version, ..Default::default() };
        let response =
            self.keys.get_key(name.as_str(), Some(options)).await.map_err(classify_client_error)?;
        let key: Key = read_model(response)?;
        let jwk = key.key.ok_or(VaultReadError::Malformed { problem: "it has no key" })?;
        Ok(FetchedKey {
            version: version_from_id(jwk.kid.as_deref())?,
            attributes: attributes!(key.attributes, key.tags),
            key: public_jwk(jwk),
        })
    }

    async fn fetch_certificate(
        &self,
        name: &SecretName,
        version: Option<&VaultObjectVersion>,
    ) -> Result<FetchedCertificate, VaultReadError> {
        let certificate_version = version.map(ToString::to_string);
        let options =
            CertificateClientGetCertificateOptions { certificate_version, ..Default::default() };
        let response = self
            .certificates
            .get_certificate(name.as_str(), Some(options))
            .await
            .map_err(classify_client_error)?;
        let certificate: Certificate = read_model(response)?;
        Ok(FetchedCertificate {
            version: version_from_id(certificate.id.as_deref())?,
            attributes: attributes!(certificate.attributes, certificate.tags),
            der: certificate.cer.unwrap_or_default(),
        })
    }

    async fn fetch_versions(
        &self,
        kind: VaultObjectKind,
        name: &SecretName,
    ) -> Result<Vec<ListedVersion>, VaultReadError> {
        let name = name.as_str();
        match kind {
            VaultObjectKind::Secret => {
                let pager = self.secrets.list_secret_properties_versions(name, None);
                collect_versions(pager, |item| (item.id, attributes!(item.attributes, NO_TAGS)))
                    .await
            }
            VaultObjectKind::Key => {
                let pager = self.keys.list_key_properties_versions(name, None);
                collect_versions(pager, |item| (item.kid, attributes!(item.attributes, NO_TAGS)))
                    .await
            }
            VaultObjectKind::Certificate => {
                let pager = self.certificates.list_certificate_properties_versions(name, None);
                collect_versions(pager, |item| (item.id, attributes!(item.attributes, NO_TAGS)))
                    .await
            }
        }
    }
}

/// Parses the body and wipes it. The parser's own error may quote the body, so it is dropped.
fn read_model<T: DeserializeOwned, F>(response: Response<T, F>) -> Result<T, VaultReadError> {
    let body = Bytes::from(response.into_body());
    let model = serde_json::from_slice(&body).map_err(|_quotes_values| VaultReadError::Malformed {
        problem: "it is not the JSON of an object",
    });
    // Not wiped if another owner shares the buffer.
    if let Ok(mut body) = body.try_into_mut() {
        body.as_mut().zeroize();
    }
    model
}

/// Collects the versions of all pages of a list; the newest ones if there are too many.
async fn collect_versions<T>(
    pager: azure_core::Result<impl Stream<Item = azure_core::Result<T>>>,
    id_and_attributes: impl Fn(T) -> (Option<String>, ObjectAttributes),
) -> Result<Vec<ListedVersion>, VaultReadError> {
    let items = pager.map_err(classify_client_error)?.map_err(classify_client_error);
    let listed = items.and_then(|item| {
        let (id, attributes) = id_and_attributes(item);
        let version = version_from_id(id.as_deref());
        ready(version.map(|version| ListedVersion { version, attributes }))
    });
    let collected = listed.try_fold(Vec::new(), |mut versions: Vec<ListedVersion>, version| {
        if versions.len() >= MAX_LISTED_VERSIONS {
            versions.sort_by_key(|listed| std::cmp::Reverse(listed.attributes.created));
            versions.truncate(MAX_LISTED_VERSIONS / 2);
        }
        versions.push(version);
        ready(Ok(versions))
    });
    let mut versions = collected.await?;
    versions.shrink_to_fit();
    Ok(versions)
}

/// The version in an id: `https://<vault>/<kind>/<name>/<version>`.
fn version_from_id(id: Option<&str>) -> Result<VaultObjectVersion, VaultReadError> {
    let malformed = VaultReadError::Malformed { problem: "its id names no version" };
    let Some(url) = id.and_then(|id| Url::parse(id).ok()) else { return Err(malformed) };
    let version = url.path_segments().and_then(|mut segments| segments.nth(2));
    version.and_then(|version| version.parse().ok()).ok_or(malformed)
}

fn public_jwk(jwk: JsonWebKey) -> PublicJwk {
    let curve = match &jwk.crv {
        Some(CurveName::P256) => Some(EcCurve::P256),
        Some(CurveName::P384) => Some(EcCurve::P384),
        Some(CurveName::P521) => Some(EcCurve::P521),
        _ => None,
    };
    match (jwk.kty, curve) {
        (Some(KeyType::Rsa | KeyType::RsaHsm), _) => PublicJwk::Rsa {
            modulus: jwk.n.unwrap_or_default(),
            exponent: jwk.e.unwrap_or_default(),
        },
        (Some(KeyType::Ec | KeyType::EcHsm), Some(curve)) => {
            PublicJwk::Ec { curve, x: jwk.x.unwrap_or_default(), y: jwk.y.unwrap_or_default() }
        }
        (key_type, _) => PublicJwk::Unsupported {
            key_type: key_type.map_or_else(|| "no name".to_owned(), |kind| kind.to_string()),
            curve: jwk.crv.map(|curve| curve.to_string()),
        },
    }
}

fn timestamp(time: Option<OffsetDateTime>) -> Option<Timestamp> {
    Timestamp::from_second(time?.unix_timestamp()).ok()
}

/// The tags that the project uses; a vault object has up to fifteen tags of a few hundred bytes each.
fn tags(tags: Option<HashMap<String, String>>) -> BTreeMap<String, String> {
    let is_read = |(name, text): &(String, String)| {
        KNOWN_TAGS.contains(&name.as_str()) && text.len() <= MAX_TAG_LENGTH
    };
    tags.into_iter().flatten().filter(is_read).collect()
}

const KNOWN_TAGS: [&str; 2] = ["renew_after", "cannot_renew_after"];
/// Longer than any timestamp.
const MAX_TAG_LENGTH: usize = 64;
/// Tags in lists are ignored: only creation time and state of a version are used.
const NO_TAGS: Option<HashMap<String, String>> = None;
