//! A journal in a blob container: an append blob that one command at a time writes under a lease.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::{AsyncResponseBody, ClientOptions, Etag, RequestContent, StatusCode};
use azure_storage_blob::models::{
    AppendBlobClientAppendBlockOptions, AppendBlobClientCreateOptions,
    BlobClientAcquireLeaseOptions, BlobClientGetPropertiesResultHeaders as _,
    BlobClientSetMetadataOptions, BlobType,
};
use azure_storage_blob::{BlobClient, BlobClientOptions};
use futures::TryStreamExt as _;
use lanyard_azure::ReplyTooLarge;
use lanyard_clock::SharedClock;
use uuid::Uuid;

use super::MAX_JOURNAL_BYTES;
use super::container_error::{JournalContainerError, MAX_BLOCKS, status_of};
use super::container_url::JournalContainerUrl;
use super::lease::{BlobLease, LEASE_SECONDS, LeaseStatus};

/// How lanyard signs in to a container.
#[derive(Debug, Clone)]
pub struct ContainerAccess {
    /// The credential.
    pub credential: Arc<dyn TokenCredential>,
    /// The HTTP client and its policies.
    pub client_options: ClientOptions,
}

/// The command that holds the lease, for the commands that wait for it.
#[derive(Debug, Clone)]
pub struct JournalHolder(String);

/// The number of blocks that a command needs at most.
const BLOCKS_OF_A_COMMAND: usize = 1_000;
/// The codes of Azure if another client holds the lease.
const HELD_CODES: [&str; 2] = ["LeaseAlreadyPresent", "LeaseIsBreakingAndCannotBeAcquired"];
/// The name of the metadata with the holder.
const HOLDER: &str = "lanyard_holder";

/// Whether the error reply has this code.
fn has_code(error: &azure_core::Error, wanted: &str) -> bool {
    matches!(error.kind(), ErrorKind::HttpResponse { error_code: Some(code), .. } if code == wanted)
}

impl JournalHolder {
    /// Describes a command. Metadata of a blob has only ASCII characters, so others are replaced.
    pub fn new(text: &str) -> Self {
        let replace = |c: char| if c == ' ' || c.is_ascii_graphic() { c } else { '?' };
        Self(text.chars().take(500).map(replace).collect())
    }
}

/// The blob `journal.jsonl` of a container, under a lease.
#[derive(Debug)]
pub(crate) struct JournalContainer {
    blob: JournalBlob,
    lease: BlobLease,
    /// The length of the blob.
    length: usize,
}

/// The client of the blob.
#[derive(Clone)]
struct JournalBlob(Arc<BlobClient>);

impl fmt::Debug for JournalBlob {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("JournalBlob").field(&self.url()).finish()
    }
}

impl JournalContainer {
    /// Acquires the lease, and reads the blob, which is created if it does not exist.
    pub(super) async fn open(
        url: &JournalContainerUrl,
        access: &ContainerAccess,
        holder: &JournalHolder,
        clock: &SharedClock,
    ) -> Result<(Self, String), JournalContainerError> {
        let blob = JournalBlob::new(url, access)?;
        let id = Uuid::new_v4().to_string();
        let acquired = blob.acquire(&id, clock).await?;
        let lease = BlobLease::keep(Arc::clone(&blob.0), id, acquired, clock);
        let mut container = Self { blob, lease, length: 0 };
        match container.prepare(holder).await {
            Ok(content) => Ok((container, content)),
            Err(error) => {
                // The first error is the one to report; the lease ends by itself.
                drop(container.release().await);
                Err(error)
            }
        }
    }

    /// The content of the blob; `None` if there is none.
    pub(super) async fn read(
        url: &JournalContainerUrl,
        access: &ContainerAccess,
    ) -> Result<Option<String>, JournalContainerError> {
        Ok(JournalBlob::new(url, access)?.download().await?.map(|found| found.content))
    }

    async fn prepare(&mut self, holder: &JournalHolder) -> Result<String, JournalContainerError> {
        let found = self.blob.download().await?.unwrap_or_default();
        found.check_extensible(&self.blob.url())?;
        let metadata = HashMap::from([(HOLDER.to_owned(), holder.0.clone())]);
        let lease_id = Some(self.lease.id().to_owned());
        let options =
            BlobClientSetMetadataOptions { lease_id, ..BlobClientSetMetadataOptions::default() };
        let written = self.blob.0.set_metadata(&metadata, Some(options)).await;
        written.map_err(|source| self.blob.error("writing the metadata of", source))?;
        self.length = found.content.len();
        Ok(found.content)
    }

    pub(super) fn lease_status(&self) -> LeaseStatus {
        self.lease.status().clone()
    }

    /// Appends one line, which is durable when the call returns.
    ///
    /// The append names the position at which it must write. If its reply is lost, the blob shows whether Azure
    /// wrote the line, so that it is never written twice.
    pub(super) async fn append(&mut self, line: &str) -> Result<(), JournalContainerError> {
        self.lease.status().check()?;
        let block = format!("{line}\n");
        let Err(source) = self.append_block(&block).await else {
            self.length += block.len();
            return Ok(());
        };
        if has_code(&source, "BlockCountExceedsLimit") {
            let (blob, blocks) = (self.blob.url(), MAX_BLOCKS);
            return Err(JournalContainerError::TooManyBlocks { blob, blocks });
        }
        // Without the content, the error of the append is the one to report.
        let Ok(found) = self.blob.download().await else {
            return Err(self.blob.error("appending to", source));
        };
        let found = found.unwrap_or_default().content;
        match found.get(self.length..) {
            Some(written) if written == block => {
                self.length += block.len();
                Ok(())
            }
            Some("") => Err(match status_of(&source) {
                Some(StatusCode::PreconditionFailed) => {
                    let reason = lanyard_vocabulary::format_error_chain(&source);
                    self.lease.status().lost_error(&format!("Azure rejected an append: {reason}"))
                }
                _ => self.blob.error("appending to", source),
            }),
            _ => {
                let blob = self.blob.url();
                Err(JournalContainerError::Changed { blob, expected: self.length })
            }
        }
    }

    async fn append_block(&self, block: &str) -> azure_core::Result<()> {
        let options = AppendBlobClientAppendBlockOptions {
            append_position: i64::try_from(self.length).ok(),
            lease_id: Some(self.lease.id().to_owned()),
            ..AppendBlobClientAppendBlockOptions::default()
        };
        let body = RequestContent::from(block.as_bytes().to_vec());
        let client = self.blob.0.append_blob_client();
        let length = u64::try_from(block.len()).unwrap_or(u64::MAX);
        client.append_block(body, length, Some(options)).await.map(drop)
    }

    /// Ends the lease.
    pub(super) async fn release(self) -> Result<(), JournalContainerError> {
        let released = self.blob.0.release_lease(self.lease.id().to_owned(), None).await;
        released.map(drop).map_err(|source| self.blob.error("releasing the lease of", source))
    }
}

/// The content of the blob.
#[derive(Debug, Default)]
struct DownloadedBlob {
    content: String,
    /// The number of blocks of an append blob; `None` for other blobs.
    blocks: Option<usize>,
}

impl DownloadedBlob {
    /// Checks that a command can append its entries.
    fn check_extensible(&self, blob: &str) -> Result<(), JournalContainerError> {
        let blob = blob.to_owned();
        match self.blocks {
            Some(blocks) if blocks + BLOCKS_OF_A_COMMAND > MAX_BLOCKS => {
                Err(JournalContainerError::TooManyBlocks { blob, blocks })
            }
            Some(_) if self.content.is_empty() || self.content.ends_with('\n') => Ok(()),
            _ => Err(JournalContainerError::NotAppendBlob { blob }),
        }
    }
}

impl JournalBlob {
    fn new(
        url: &JournalContainerUrl,
        access: &ContainerAccess,
    ) -> Result<Self, JournalContainerError> {
        let url = url.blob();
        let client_options = access.client_options.clone();
        let options = BlobClientOptions { client_options, ..BlobClientOptions::default() };
        let client =
            BlobClient::new(url.clone(), Some(Arc::clone(&access.credential)), Some(options));
        match client {
            Ok(client) => Ok(Self(Arc::new(client))),
            Err(source) => Err(JournalContainerError::Request {
                operation: "opening",
                blob: url.to_string(),
                source: Box::new(source),
            }),
        }
    }

    fn url(&self) -> String {
        self.0.url().to_string()
    }

    fn error(&self, operation: &'static str, source: azure_core::Error) -> JournalContainerError {
        let blob = self.url();
        if has_code(&source, "ContainerNotFound") {
            return JournalContainerError::NoContainer { blob };
        }
        if ReplyTooLarge::of(&source).is_some() {
            return JournalContainerError::TooLarge { blob };
        }
        JournalContainerError::Request { operation, blob, source: Box::new(source) }
    }

    /// Acquires the lease, and returns the time before the request. A blob that does not exist is created.
    async fn acquire(
        &self,
        id: &str,
        clock: &SharedClock,
    ) -> Result<std::time::Duration, JournalContainerError> {
        let mut creates = true;
        loop {
            let acquired = clock.monotonic();
            // With a proposed id, a repeated request acquires the same lease.
            let proposed_lease_id = Some(id.to_owned());
            let options = BlobClientAcquireLeaseOptions {
                proposed_lease_id,
                ..BlobClientAcquireLeaseOptions::default()
            };
            match self.0.acquire_lease(LEASE_SECONDS, Some(options)).await {
                Ok(_) => return Ok(acquired),
                Err(error) if creates && has_code(&error, "BlobNotFound") => {
                    self.create().await?;
                    creates = false;
                }
                Err(error) if HELD_CODES.iter().any(|code| has_code(&error, code)) => {
                    let (blob, holder) = (self.url(), self.holder().await);
                    return Err(JournalContainerError::Held { blob, holder });
                }
                Err(error) => return Err(self.error("acquiring the lease of", error)),
            }
        }
    }

    /// Creates an empty blob, unless it exists.
    async fn create(&self) -> Result<(), JournalContainerError> {
        let options = AppendBlobClientCreateOptions {
            blob_content_type: Some("application/x-ndjson".to_owned()),
            if_none_match: Some(Etag::from("*")),
            ..AppendBlobClientCreateOptions::default()
        };
        match self.0.append_blob_client().create(Some(options)).await {
            Ok(_) => Ok(()),
            // Another command was faster, or the reply to an earlier attempt was lost.
            Err(error) if status_of(&error) == Some(StatusCode::Conflict) => Ok(()),
            Err(error) => Err(self.error("creating", error)),
        }
    }

    /// What the command with the lease says about itself.
    async fn holder(&self) -> String {
        let found = match self.0.get_properties(None).await {
            Ok(properties) => properties.metadata().ok().and_then(|mut it| it.remove(HOLDER)),
            Err(_) => None,
        };
        found.unwrap_or_else(|| "the holder is unknown".to_owned())
    }

    /// The content of the blob; `None` if it does not exist.
    async fn download(&self) -> Result<Option<DownloadedBlob>, JournalContainerError> {
        let read = async {
            let response = self.0.download(None).await?;
            let properties = response.properties;
            let content = collect_body(response.body).await?;
            let is_append_blob = properties.blob_type == Some(BlobType::AppendBlob);
            let blocks = properties.blob_committed_block_count.unwrap_or_default();
            azure_core::Result::Ok(DownloadedBlob {
                content: String::from_utf8_lossy(&content).into_owned(),
                blocks: is_append_blob.then(|| usize::try_from(blocks).unwrap_or_default()),
            })
        };
        match read.await {
            Ok(found) => Ok(Some(found)),
            Err(error) if has_code(&error, "BlobNotFound") => Ok(None),
            Err(error) => Err(self.error("reading", error)),
        }
    }
}

/// Reads a body with at most [`MAX_JOURNAL_BYTES`] bytes.
async fn collect_body(mut body: AsyncResponseBody) -> azure_core::Result<Vec<u8>> {
    let mut content = Vec::new();
    while let Some(piece) = body.try_next().await? {
        if content.len() + piece.len() > MAX_JOURNAL_BYTES {
            let error = ReplyTooLarge { limit: MAX_JOURNAL_BYTES };
            return Err(azure_core::Error::new(ErrorKind::Other, error));
        }
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use lanyard_clock::ErrorHint as _;

    use super::*;

    #[test]
    fn blob_that_cannot_take_the_entries_of_a_command_is_rejected() {
        let check = |content: &str, blocks| {
            let found = DownloadedBlob { content: content.to_owned(), blocks };
            let checked = found.check_extensible("https://a.example.com/con/journal.jsonl");
            checked.map_err(|error| (error.to_string(), error.hint().unwrap()))
        };
        assert_eq!(check("", Some(0)), Ok(()));
        assert_eq!(check("{}\n", Some(49_000)), Ok(()));
        let (error, hint) = check("{}\n", Some(49_001)).unwrap_err();
        assert!(error.contains("has 49001 blocks, and Azure permits 50000"), "{error}");
        assert!(hint.contains("--type append --overwrite"), "{hint}");
        for (content, blocks) in [("{}\n", None), ("{}", Some(1))] {
            let (error, _) = check(content, blocks).unwrap_err();
            assert!(error.contains("is not an append blob"), "{error}");
        }
    }

    #[test]
    fn holder_fits_into_the_metadata_of_a_blob() {
        let holder = JournalHolder::new(&format!("`lanyard` on h\u{f6}st\r\n{}", "x".repeat(900)));
        assert!(holder.0.starts_with("`lanyard` on h?st??xx"), "{}", holder.0);
        assert_eq!(holder.0.len(), 500);
    }
}
