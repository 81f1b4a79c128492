//! The documents of a token issuer in a blob container: upload, and proof that clients without credentials can read them.

use std::borrow::Cow;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::{ClientOptions, RequestContent, StatusCode, Url};
use azure_storage_blob::models::BlobClientUploadOptions;
use azure_storage_blob::{BlobClient, BlobClientOptions};
use lanyard_azure::PropagationWait;
use lanyard_azure::error_codes::{BLOB, sdk_error_hint};
use lanyard_clock::ErrorHint;
use lanyard_federation::{
    DiscoveryError, IssuerDiscovery, IssuerUrl, KeySetError, PublicationProblem, PublishedKeySet,
    SigningPublicKey, verify_publication,
};

/// The container of an issuer's documents.
#[derive(Debug, Clone)]
pub struct IssuerContainerClient {
    /// The issuer, whose URL is that of the container.
    pub issuer: IssuerUrl,
    /// The credential that uploads.
    pub credential: Arc<dyn TokenCredential>,
    /// The HTTP client and its policies.
    pub client_options: ClientOptions,
    /// How long rejected requests are repeated.
    pub propagation: PropagationWait,
}

/// What the publication changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicationOutcome {
    /// Whether the discovery document was uploaded.
    pub discovery_uploaded: bool,
    /// Whether the key set was uploaded.
    pub key_set_uploaded: bool,
}

/// The documents of an issuer could not be published, or Entra ID would reject the tokens of the issuer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssuerDocumentsError {
    /// The URL of a blob is invalid.
    #[error("`{url}` is not the URL of a blob")]
    Url {
        /// The URL.
        url: String,
        /// The error of the parser.
        #[source]
        source: url::ParseError,
    },
    /// Azure rejected a request.
    #[error("{operation} `{url}` failed")]
    Blob {
        /// What was tried.
        operation: &'static str,
        /// The URL of the blob.
        url: String,
        /// The error of the request.
        #[source]
        source: Box<azure_core::Error>,
    },
    /// The published key set cannot be read or extended.
    #[error("the published key set cannot be extended")]
    KeySet(#[from] KeySetError),
    /// The discovery document cannot be written.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// Entra ID would reject the tokens of the issuer.
    #[error("the published documents are not usable: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unusable(Vec<PublicationProblem>),
}

impl ErrorHint for IssuerDocumentsError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Url { .. } => "choose another name for the storage account or the container",
            Self::Blob { source, .. } => {
                let grant = "assign Storage Blob Data Contributor at the storage account to the signed-in identity, and wait 10 minutes";
                return sdk_error_hint(&BLOB, source, grant)
                    .or(Some("run the command again".into()));
            }
            Self::KeySet(error) => return error.hint(),
            Self::Discovery(error) => return error.hint(),
            Self::Unusable(problems) => {
                return problems
                    .first()
                    .map_or(Some("run the command again".into()), PublicationProblem::hint);
            }
        }))
    }
}

fn status_of(error: &azure_core::Error) -> Option<StatusCode> {
    match error.kind() {
        ErrorKind::HttpResponse { status, .. } => Some(*status),
        _ => None,
    }
}

impl IssuerContainerClient {
    /// Uploads the documents that differ, and then reads both without a credential, as Entra ID does. Keys that
    /// are published already stay published.
    ///
    /// # Errors
    ///
    /// [`IssuerDocumentsError`] if Azure rejects a request for longer than the timeout, or Entra ID would reject
    /// the tokens of the issuer.
    pub async fn publish(
        &self,
        key: &SigningPublicKey,
    ) -> Result<PublicationOutcome, IssuerDocumentsError> {
        let discovery = IssuerDiscovery::of_issuer(&self.issuer).to_document()?;
        let discovery_url = self.issuer.discovery_url();
        let published = self.download(&discovery_url, Access::SignedIn).await?;
        let discovery_uploaded = published.as_deref() != Some(discovery.as_bytes());
        if discovery_uploaded {
            self.upload(&discovery_url, &discovery).await?;
        }
        let key_set_url = self.issuer.key_set_url();
        let published = self.download(&key_set_url, Access::SignedIn).await?;
        let key_set = PublishedKeySet::of_key(key);
        let key_set = match &published {
            Some(document) => PublishedKeySet::parse(document)?.merge(&key_set)?,
            None => key_set,
        };
        let key_set = key_set.to_document()?;
        let key_set_uploaded = published.as_deref() != Some(key_set.as_bytes());
        if key_set_uploaded {
            self.upload(&key_set_url, &key_set).await?;
        }
        self.verify(key).await?;
        Ok(PublicationOutcome { discovery_uploaded, key_set_uploaded })
    }

    async fn verify(&self, key: &SigningPublicKey) -> Result<(), IssuerDocumentsError> {
        let discovery = self.download(&self.issuer.discovery_url(), Access::Anonymous).await?;
        let key_set = self.download(&self.issuer.key_set_url(), Access::Anonymous).await?;
        let (discovery, key_set) = (discovery.unwrap_or_default(), key_set.unwrap_or_default());
        let problems = verify_publication(&self.issuer, &key.key_id(), &discovery, &key_set);
        if problems.is_empty() { Ok(()) } else { Err(IssuerDocumentsError::Unusable(problems)) }
    }

    fn blob(&self, url: &str, access: Access) -> Result<BlobClient, IssuerDocumentsError> {
        let parsed = Url::parse(url)
            .map_err(|source| IssuerDocumentsError::Url { url: url.to_owned(), source })?;
        let credential = match access {
            Access::SignedIn => Some(Arc::clone(&self.credential)),
            Access::Anonymous => None,
        };
        let client_options = self.client_options.clone();
        let options = BlobClientOptions { client_options, ..BlobClientOptions::default() };
        BlobClient::new(parsed, credential, Some(options))
            .map_err(|source| blob_error("opening", url, source))
    }

    /// The content of a blob; `None` if it does not exist.
    async fn download(
        &self,
        url: &str,
        access: Access,
    ) -> Result<Option<Vec<u8>>, IssuerDocumentsError> {
        let blob = self.blob(url, access)?;
        let read = || async {
            let response = blob.download(None).await?;
            Ok(response.body.collect().await?.to_vec())
        };
        match self.repeat(read).await {
            Ok(content) => Ok(Some(content)),
            Err(error) if status_of(&error) == Some(StatusCode::NotFound) => Ok(None),
            Err(error) => Err(blob_error("reading", url, error)),
        }
    }

    async fn upload(&self, url: &str, document: &str) -> Result<(), IssuerDocumentsError> {
        let blob = self.blob(url, Access::SignedIn)?;
        let write = || async {
            let content = RequestContent::from(document.as_bytes().to_vec());
            let options = BlobClientUploadOptions {
                blob_content_type: Some("application/json".to_owned()),
                ..BlobClientUploadOptions::default()
            };
            blob.upload(content, Some(options)).await
        };
        self.repeat(write).await.map(drop).map_err(|error| blob_error("uploading", url, error))
    }

    /// Repeats a request while Azure answers 403, which it does until a new role takes effect.
    async fn repeat<T, F: Future<Output = azure_core::Result<T>>>(
        &self,
        request: impl Fn() -> F,
    ) -> azure_core::Result<T> {
        self.propagation
            .repeat(request, |error| status_of(error) == Some(StatusCode::Forbidden))
            .await
    }
}

/// Whose token a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    SignedIn,
    Anonymous,
}

fn blob_error(
    operation: &'static str,
    url: &str,
    source: azure_core::Error,
) -> IssuerDocumentsError {
    IssuerDocumentsError::Blob { operation, url: url.to_owned(), source: Box::new(source) }
}
