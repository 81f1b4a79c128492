//! From fetched objects to files, without reading anything.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use lanyard_api::{ObjectFormat, ObjectVersion};
use lanyard_vocabulary::ObjectEncoding;

use crate::content::{CertificateOptions, Content, ContentError, content_of};
use crate::fetch::{FetchedObject, ObjectReference};
use crate::memory::decoding_room;
use crate::secret_bytes::SecretBytes;
use crate::source::ObjectAttributes;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    /// The permission bits of files whose entry names none.
    pub default_mode: u32,
    /// How certificates' secrets are written.
    pub certificates: CertificateOptions,
}

impl Default for FileOptions {
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
    pub content: SecretBytes,
    /// The permission bits.
    pub mode: u32,
    /// Whether the entry names them, so that nothing else may choose.
    pub names_mode: bool,
    /// The object that it was made from.
    pub object: ObjectId,
    /// The version of the object.
    pub version: ObjectVersion,
    /// What the vault tells about the version.
    pub attributes: ObjectAttributes,
}

/// The id of an object in the status of a pod: `<type>/<name>`, and `/<place>` in a history.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(String);

impl ObjectId {
    fn of(fetched: &FetchedObject) -> Self {
        let (kind, name) = (fetched.entry.kind, &fetched.entry.name);
        Self(match fetched.place {
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
    objects: &[FetchedObject],
    options: FileOptions,
) -> Result<DecodedFiles, DecodeError> {
    let mut decoder = Decoder::new(options);
    for fetched in objects {
        decoder.decode(fetched)?;
    }
    Ok(decoder.finish())
}

/// Makes files, one object after the other. Entries that want the same object in the same form share
/// its bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    options: FileOptions,
    contents: HashMap<Form, Content>,
    decoded: DecodedFiles,
}

/// What tells one decoded content from another: the object, by its address, and how it is written.
type Form = (usize, Option<ObjectEncoding>, Option<ObjectFormat>);

impl Decoder {
    pub(crate) fn new(options: FileOptions) -> Self {
        let decoded = DecodedFiles { files: Vec::new(), warnings: Vec::new() };
        Self { options, contents: HashMap::new(), decoded }
    }

    /// How many bytes decoding this object takes at most; nothing where an earlier entry's are
    /// shared.
    pub(crate) fn room(&self, fetched: &FetchedObject) -> u64 {
        if self.contents.contains_key(&form_of(fetched)) {
            return 0;
        }
        decoding_room(&fetched.entry, &fetched.object)
    }

    /// Makes the files of an object. Returns how many bytes its content takes beside the object.
    pub(crate) fn decode(&mut self, fetched: &FetchedObject) -> Result<u64, DecodeError> {
        let path = path_of(fetched);
        let form = form_of(fetched);
        let (content, taken) = if let Some(content) = self.contents.get(&form) {
            (content.clone(), 0)
        } else {
            let content = content_of(&fetched.entry, &fetched.object, self.options.certificates)
                .map_err(|error| DecodeError {
                    object: fetched.reference(),
                    path: path.clone(),
                    source: Box::new(error),
                })?;
            let taken = content.taken_beside(&fetched.object);
            self.contents.insert(form, content.clone());
            (content, taken)
        };
        if let Some((linked, count)) = content.incomplete_chain {
            let object = fetched.reference();
            self.decoded.warnings.push(DecodeWarning::IncompleteChain { object, linked, count });
        }
        self.push(fetched, path, content);
        Ok(taken)
    }

    fn push(&mut self, fetched: &FetchedObject, path: String, content: Content) {
        let file = |path: String, content: SecretBytes| MountedFile {
            path,
            content,
            mode: fetched.entry.file_permission.unwrap_or(self.options.default_mode),
            names_mode: fetched.entry.file_permission.is_some(),
            object: ObjectId::of(fetched),
            version: fetched.object.version().clone(),
            attributes: fetched.object.attributes().clone(),
        };
        if let Some(separated) = content.separated {
            self.decoded.files.push(file(format!("{path}.crt"), separated.certificates));
            self.decoded.files.push(file(format!("{path}.key"), separated.others));
        }
        self.decoded.files.push(file(path, content.bytes));
    }

    pub(crate) fn finish(self) -> DecodedFiles {
        self.decoded
    }
}

fn form_of(fetched: &FetchedObject) -> Form {
    let object = Arc::as_ptr(&fetched.object).addr();
    (object, fetched.entry.encoding, fetched.entry.format)
}

fn path_of(fetched: &FetchedObject) -> String {
    let name = fetched.entry.file_name();
    fetched.place.map_or_else(|| name.to_owned(), |place| format!("{name}/{place}"))
}
