//! From fetched objects to files, without reading anything.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use lanyard_api::{VaultObjectFormat, VaultObjectVersion};
use lanyard_vocabulary::ObjectEncoding;

use crate::content::{CertificateOptions, ContentError, FileContent, decode_content};
use crate::fetch::{FetchedEntryObject, ObjectReference};
use crate::memory::max_decoding_bytes;
use crate::secret_bytes::SharedSecretBytes;
use crate::source::ObjectAttributes;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeFileOptions {
    /// The permission bits of files whose entry names none.
    pub default_mode: u32,
    /// How certificates' secrets are written.
    pub certificates: CertificateOptions,
}

impl Default for VolumeFileOptions {
    /// As upstream: mode 0644, chains ordered, nothing written beside.
    fn default() -> Self {
        Self { default_mode: 0o644, certificates: CertificateOptions::default() }
    }
}

/// A file to be mounted.
#[derive(Debug)]
pub struct MountedFile {
    /// Where in the volume.
    pub path: String,
    /// The bytes.
    pub content: SharedSecretBytes,
    /// The permission bits.
    pub mode: u32,
    /// Whether the entry names them, so that nothing else may choose.
    pub is_mode_explicit: bool,
    /// The object that it was made from.
    pub object: ObjectId,
    /// The version of the object.
    pub version: VaultObjectVersion,
    /// What the vault tells about the version.
    pub attributes: ObjectAttributes,
}

/// The id of an object in the status of a pod: `<type>/<name>`, and `/<place>` in a history.
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

impl fmt::Display for ObjectId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

/// An object was read but cannot become its file.
#[derive(Debug, thiserror::Error)]
#[error("could not make the file `{path}` from {object}")]
pub struct DecodeError {
    /// The object.
    pub object: ObjectReference,
    /// The file.
    pub path: String,
    /// Why not.
    #[source]
    pub source: Box<ContentError>,
}

impl DecodeError {
    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        self.source.hint()
    }
}

/// The files of a volume, and what is odd about them.
#[derive(Debug)]
pub struct DecodedFiles {
    /// The files, in the order of the entries.
    pub files: Vec<MountedFile>,
    /// What somebody should know.
    pub warnings: Vec<DecodeWarning>,
}

/// Something about an object that does not keep it from being mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeWarning {
    /// Certificates were left in the vault's order.
    #[error(
        "only {linked} of the {count} certificates of {object} form a chain; all stay in the \
         order of the vault"
    )]
    IncompleteChain {
        /// The object.
        object: ObjectReference,
        /// How many certificates are linked to the leaf.
        linked: usize,
        /// How many there are.
        count: usize,
    },
}

/// Makes the files of a volume from what was read.
///
/// # Errors
/// The first object, in the order of the entries, that cannot become its file.
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

/// Makes files, one object after the other. Entries that want the same object in the same form share
/// its bytes.
#[derive(Debug)]
pub(crate) struct VolumeDecoder {
    options: VolumeFileOptions,
    contents: HashMap<DecodedContentKey, FileContent>,
    decoded: DecodedFiles,
}

/// What tells one decoded content from another: the object, by its address, and how it is written.
type DecodedContentKey = (usize, Option<ObjectEncoding>, Option<VaultObjectFormat>);

impl VolumeDecoder {
    pub(crate) fn new(options: VolumeFileOptions) -> Self {
        let decoded = DecodedFiles { files: Vec::new(), warnings: Vec::new() };
        Self { options, contents: HashMap::new(), decoded }
    }

    /// How many bytes decoding this object takes at most; nothing where an earlier entry's are
    /// shared.
    pub(crate) fn required_memory(&self, fetched: &FetchedEntryObject) -> u64 {
        if self.contents.contains_key(&content_key(fetched)) {
            return 0;
        }
        max_decoding_bytes(&fetched.entry, &fetched.object)
    }

    /// Makes the files of an object. Returns how many bytes its content takes beside the object.
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
        if let Some((linked, count)) = content.incomplete_chain {
            let object = fetched.reference();
            self.decoded.warnings.push(DecodeWarning::IncompleteChain { object, linked, count });
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
        if let Some(separated) = content.split_pem {
            self.decoded.files.push(file(format!("{path}.crt"), separated.certificates));
            self.decoded.files.push(file(format!("{path}.key"), separated.other_blocks));
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
