//! The errors of a journal in a blob container.

use std::borrow::Cow;

use azure_core::error::ErrorKind;
use azure_core::http::StatusCode;
use lanyard_azure::error_codes::{BLOB, sdk_error_hint};
use lanyard_clock::ErrorHint;

use super::MAX_JOURNAL_BYTES;

/// The largest number of blocks of an append blob.
pub(super) const MAX_BLOCKS: usize = 50_000;

/// A journal in a container cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalContainerError {
    /// Another command holds the lease.
    #[error("another command holds the lease of `{blob}`: {holder}")]
    Held {
        /// The URL of the blob.
        blob: String,
        /// What the other command says about itself.
        holder: String,
    },
    /// The container does not exist.
    #[error("the container of `{blob}` does not exist")]
    NoContainer {
        /// The URL of the blob.
        blob: String,
    },
    /// The blob cannot be extended.
    #[error("`{blob}` is not an append blob that ends with a complete line")]
    NotAppendBlob {
        /// The URL of the blob.
        blob: String,
    },
    /// The blob has almost as many blocks as Azure permits.
    #[error("`{blob}` has {blocks} blocks, and Azure permits {MAX_BLOCKS}")]
    TooManyBlocks {
        /// The URL of the blob.
        blob: String,
        /// The number of its blocks.
        blocks: usize,
    },
    /// The blob is longer than a journal.
    #[error("`{blob}` has more than {MAX_JOURNAL_BYTES} bytes")]
    TooLarge {
        /// The URL of the blob.
        blob: String,
    },
    /// The command does not have the lease any more.
    #[error("the lease of `{blob}` is lost: {reason}")]
    LeaseLost {
        /// The URL of the blob.
        blob: String,
        /// Why.
        reason: String,
    },
    /// Something else wrote to the blob.
    #[error("`{blob}` does not end where this command wrote last, at byte {expected}")]
    Changed {
        /// The URL of the blob.
        blob: String,
        /// The length after the last write.
        expected: usize,
    },
    /// Azure rejected a request.
    #[error("{operation} `{blob}` failed")]
    Request {
        /// What was tried.
        operation: &'static str,
        /// The URL of the blob.
        blob: String,
        /// The error of the request.
        #[source]
        source: Box<azure_core::Error>,
    },
}

impl ErrorHint for JournalContainerError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Held { .. } => {
                "wait until it has ended, or longer with --lock-timeout; the lease of a killed command ends after 60 s"
            }
            Self::NoContainer { .. } => {
                "create it with `az storage container create --auth-mode login`, or correct --state"
            }
            Self::NotAppendBlob { .. } => {
                "restore the blob from a backup as an append blob; if it is not a journal, choose another prefix with --state"
            }
            Self::TooManyBlocks { .. } => {
                "stop all other commands, and rewrite the blob: `az storage blob download`, then `az storage blob upload --type append --overwrite` with the same file"
            }
            Self::TooLarge { .. } => {
                "keep a copy of the blob, move it away, and run `lanyard import azure`; if it is not a journal, choose another prefix with --state"
            }
            Self::LeaseLost { .. } => {
                "run the command again; it continues as soon as no other command holds the lease"
            }
            Self::Changed { .. } => "run the command again; nothing but lanyard may write the blob",
            Self::Request { source, .. } => {
                let grant = "assign Storage Blob Data Contributor at the container to the signed-in identity, and wait 10 minutes";
                let unreachable =
                    "check the URL in --state and the network; then run the command again";
                return sdk_error_hint(&BLOB, source, grant).or(Some(unreachable.into()));
            }
        }))
    }
}

/// The HTTP status of an error reply.
pub(super) fn status_of(error: &azure_core::Error) -> Option<StatusCode> {
    match error.kind() {
        ErrorKind::HttpResponse { status, .. } => Some(*status),
        _ => None,
    }
}
