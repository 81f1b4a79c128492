//! Converts fetched objects to files, without I/O.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use lanyard_api::{VaultObjectFormat, VaultObjectVersion};
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::ObjectEncoding;

use crate::chain::UnlinkedCertificates;
use crate::content::{
    CertificateFileOptions, ContentError, FileContent, converts_archive, decode_content,
};
use crate::fetch::{FetchedEntryObject, ObjectReference};
use crate::memory::max_decoding_bytes;
use crate::secret_bytes::SharedSecretBytes;
use crate::source::ObjectAttributes;

/// How fetched objects become files of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeFileOptions {
    /// The permission bits of files whose entry sets none.
    pub default_mode: u32,
    /// How the secret of a vault certificate (its chain and private key) is written.
    pub certificates: CertificateFileOptions,
}

impl Default for VolumeFileOptions {
    /// The upstream defaults: mode 0644, ordered chains, no separate files.
    fn default() -> Self {
        Self { default_mode: 0o644, certificates: CertificateFileOptions::default() }
    }
}

/// A file to mount.
#[derive(Debug)]
pub struct MountedFile {
    /// The path in the volume.
    pub path: String,
    /// The bytes.
    pub content: SharedSecretBytes,
    /// The permission bits.
    pub mode: u32,
    /// Whether the entry sets the mode, so that defaults do not apply.
    pub is_mode_explicit: bool,
    /// The id of the source object.
    pub object: ObjectId,
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// The attributes of the version in the vault.
    pub attributes: ObjectAttributes,
}

/// The id of an object in the pod status: `<type>/<name>`, with `/<index>` in a version history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(String);

impl ObjectId {
    fn of(fetched: &FetchedEntryObject) -> Self {
        let (kind, name) = (fetched.entry.kind, &fetched.entry.name);
        Self(match fetched.history_index {
            Some(place) => format!("{kind}/{name}/{place}"),
            None => format!("{kind}/{name}"),
        })
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

lanyard_vocabulary::display_text!(ObjectId, 0);

/// An object that cannot be converted to its file.
#[derive(Debug, thiserror::Error)]
#[error("could not make the file `{path}` from {object}")]
pub struct DecodeError {
    pub object: ObjectReference,
    /// The path of the file.
    pub path: String,
    /// The reason.
    #[source]
    pub source: Box<ContentError>,
}

impl ErrorHint for DecodeError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        self.source.hint()
    }
}

/// The files of a volume, with warnings.
#[derive(Debug)]
pub struct DecodedFiles {
    /// The files, in the order of the entries.
    pub files: Vec<MountedFile>,
    /// Warnings about the objects.
    pub warnings: Vec<DecodeWarning>,
}

/// A warning about an object that does not prevent the mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeWarning {
    /// An issuer in the chain of the leaf is missing, and some certificates do not belong to the chain.
    #[error(
        "only {linked} of the {count} certificates of {object} form the chain of its leaf; the others \
         follow in the order of the vault. Import the certificate again with every issuer of its chain"
    )]
    IncompleteChain {
        object: ObjectReference,
        /// The number of certificates in the chain.
        linked: usize,
        /// The total number of certificates.
        count: usize,
    },
    /// Some certificates do not belong to the chain of the leaf, which ends with a root.
    #[error(
        "only {linked} of the {count} certificates of {object} form the chain of its leaf, up to a root; the \
         others do not belong to it and follow in the order of the vault. Import the certificate again \
         without them"
    )]
    UnrelatedCertificates {
        object: ObjectReference,
        /// The number of certificates in the chain.
        linked: usize,
        /// The total number of certificates.
        count: usize,
    },
}

impl DecodeWarning {
    fn from_unlinked(object: ObjectReference, unlinked: UnlinkedCertificates) -> Self {
        let UnlinkedCertificates { linked, count, ends_with_root } = unlinked;
        if ends_with_root {
            Self::UnrelatedCertificates { object, linked, count }
        } else {
            Self::IncompleteChain { object, linked, count }
        }
    }
}

/// Converts fetched objects to the files of a volume.
///
/// # Errors
///
/// Returns the error of the first object, in the order of the entries, that cannot be converted.
pub fn decode_files(
    objects: &[FetchedEntryObject],
    options: VolumeFileOptions,
) -> Result<DecodedFiles, DecodeError> {
    let mut decoder = VolumeDecoder::new(options);
    for fetched in objects {
        decoder.decode_object(fetched)?;
    }
    Ok(decoder.finish())
}

/// Converts objects to files one by one. Entries with the same object and form share its bytes.
#[derive(Debug)]
pub(crate) struct VolumeDecoder {
    options: VolumeFileOptions,
    contents: HashMap<DecodedContentKey, FileContent>,
    decoded: DecodedFiles,
}

/// The key of decoded content: the object's address, and the form of the file.
type DecodedContentKey = (usize, Option<ObjectEncoding>, Option<VaultObjectFormat>);

impl VolumeDecoder {
    pub(crate) fn new(options: VolumeFileOptions) -> Self {
        let decoded = DecodedFiles { files: Vec::new(), warnings: Vec::new() };
        Self { options, contents: HashMap::new(), decoded }
    }

    /// The maximum memory for decoding this object, in bytes; zero if an earlier entry's content is shared.
    pub(crate) fn required_memory(&self, fetched: &FetchedEntryObject) -> u64 {
        if self.contents.contains_key(&content_key(fetched)) {
            return 0;
        }
        let (entry, object) = (&fetched.entry, &fetched.object);
        let converts_archive = converts_archive(entry, object, self.options.certificates);
        max_decoding_bytes(entry, object, converts_archive)
    }

    /// Adds the files of an object. Returns the memory that its content takes in addition to the object, in
    /// bytes.
    pub(crate) fn decode_object(
        &mut self,
        fetched: &FetchedEntryObject,
    ) -> Result<u64, DecodeError> {
        let path = file_path(fetched);
        let form = content_key(fetched);
        let (content, taken) = if let Some(content) = self.contents.get(&form) {
            (content.clone(), 0)
        } else {
            let content =
                decode_content(&fetched.entry, &fetched.object, self.options.certificates)
                    .map_err(|error| DecodeError {
                        object: fetched.reference(),
                        path: path.clone(),
                        source: Box::new(error),
                    })?;
            let taken = content.additional_memory(&fetched.object);
            self.contents.insert(form, content.clone());
            (content, taken)
        };
        if let Some(unlinked) = content.unlinked {
            let warning = DecodeWarning::from_unlinked(fetched.reference(), unlinked);
            self.decoded.warnings.push(warning);
        }
        self.push_files(fetched, path, content);
        Ok(taken)
    }

    fn push_files(&mut self, fetched: &FetchedEntryObject, path: String, content: FileContent) {
        let file = |path: String, content: SharedSecretBytes| MountedFile {
            path,
            content,
            mode: fetched.entry.file_permission.unwrap_or(self.options.default_mode),
            is_mode_explicit: fetched.entry.file_permission.is_some(),
            object: ObjectId::of(fetched),
            version: fetched.object.version().clone(),
            attributes: fetched.object.attributes().clone(),
        };
        if let Some(separate_files) = content.separate_files {
            self.decoded.files.push(file(format!("{path}.crt"), separate_files.certificates));
            self.decoded.files.push(file(format!("{path}.key"), separate_files.other_blocks));
        }
        self.decoded.files.push(file(path, content.bytes));
    }

    pub(crate) fn finish(self) -> DecodedFiles {
        self.decoded
    }
}

fn content_key(fetched: &FetchedEntryObject) -> DecodedContentKey {
    let object = Arc::as_ptr(&fetched.object).addr();
    (object, fetched.entry.encoding, fetched.entry.format)
}

fn file_path(fetched: &FetchedEntryObject) -> String {
    let name = fetched.entry.file_name();
    fetched.history_index.map_or_else(|| name.to_owned(), |place| format!("{name}/{place}"))
}
