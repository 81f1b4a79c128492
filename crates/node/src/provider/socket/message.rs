//! The messages of the provider protocol: building requests and parsing responses.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_grpc::provider::{MountRequest, MountResponse};
use lanyard_keyvault::SharedSecretBytes;
use lanyard_provider::{ProviderFile, ProviderObjectVersion, ProviderRequest, ProviderResponse};
use lanyard_volume::FilePath;

use crate::provider::attributes::provider_attributes;
use crate::provider::tokens::{secrets_to_json, tokens_to_json};
use crate::volume_attribute::TOKENS;

/// The default mode of files in a request: 0644, in decimal.
const PERMISSION: &str = "420";
/// The maximum length of a version or an id, because both are written to the pod status.
const MAX_ID_BYTES: usize = 1024;
/// Responses of this size or larger do not fit into a Kubernetes Secret.
pub(super) const LARGE_RESPONSE_BYTES: usize = 1 << 20;

/// Builds the request for an external provider. It contains no current versions, like that of driver v1.6.0:
/// the response must be complete regardless of the mounted content.
pub(super) fn mount_request(request: &ProviderRequest<'_>) -> MountRequest {
    let mut fields = provider_attributes(request.class, request.pod, request.attributes);
    if let Some(tokens) = tokens_to_json(&request.pod_credentials.tokens) {
        fields.insert(TOKENS.to_owned(), tokens);
    }
    let attributes = serde_json::to_string(&fields).unwrap_or_default();
    // This map holds a second copy of the tokens; the message zeroizes its own copy.
    if let Some(mut tokens) = fields.remove(TOKENS) {
        zeroize::Zeroize::zeroize(&mut tokens);
    }
    MountRequest {
        attributes,
        secrets: secrets_to_json(&request.pod_credentials.secrets),
        target_path: request.target.to_owned(),
        permission: PERMISSION.to_owned(),
        current_object_version: Vec::new(),
    }
}

/// One problem of a response. The provider's texts are shown quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderResponseProblem {
    /// The provider reports an error.
    #[error("it reports the error code {code:?}")]
    ReportedError {
        /// The error code.
        code: String,
    },
    /// The response has no object version.
    #[error("it names no object version, which is needed to detect changes")]
    NoObjectVersion,
    /// The response has no file.
    #[error("it has no file")]
    NoFiles,
    /// The path of a file is invalid.
    #[error("files[{index}]: {reason}")]
    InvalidPath {
        /// The index in the response.
        index: usize,
        /// The problem of the path.
        reason: String,
    },
    /// Two files have the same path, or one path lies below the other.
    #[error("files[{index}]: {path:?} collides with another file")]
    PathCollision {
        /// The index in the response.
        index: usize,
        path: String,
    },
    /// The mode of a file is out of range.
    #[error("files[{index}]: mode {mode} is not one of 0 to 511")]
    InvalidMode {
        /// The index in the response.
        index: usize,
        mode: i32,
    },
    /// The id or the version of an object is too long or has control characters.
    #[error(
        "object_version[{index}]: id and version are at most {MAX_ID_BYTES} bytes without control characters, and an id is not empty"
    )]
    InvalidVersion {
        /// The index in the response.
        index: usize,
    },
}

/// Returns the size of the files of a response, in bytes.
pub(super) fn content_size(answer: &MountResponse) -> usize {
    answer.files.iter().map(|file| file.contents.len()).sum()
}

/// Parses a response and returns every problem.
///
/// A response with versions and without files is an error. Upstream assumes that the provider wrote the files
/// itself, as providers did before driver v0.0.21; here it would result in an empty volume.
pub(crate) fn parse_response(
    mut answer: MountResponse,
) -> Result<ProviderResponse, Vec<ProviderResponseProblem>> {
    if let Some(error) = answer.error.take().filter(|error| !error.code.is_empty()) {
        let code = error.code.chars().filter(|c| !c.is_control()).take(63).collect();
        return Err(vec![ProviderResponseProblem::ReportedError { code }]);
    }
    let mut problems = Vec::new();
    let versions = parse_versions(&answer, &mut problems);
    let files = parse_files(&mut answer, &mut problems);
    if problems.is_empty() {
        return Ok(ProviderResponse {
            files,
            versions,
            timestamps: BTreeMap::new(),
            warnings: Vec::new(),
            stale: None,
        });
    }
    Err(problems)
}

/// Parses the versions and sorts them by id. The last of duplicate ids wins, as upstream.
fn parse_versions(
    answer: &MountResponse,
    problems: &mut Vec<ProviderResponseProblem>,
) -> Vec<ProviderObjectVersion> {
    if answer.object_version.is_empty() {
        problems.push(ProviderResponseProblem::NoObjectVersion);
    }
    let mut versions = BTreeMap::new();
    let plain = |text: &str| text.len() <= MAX_ID_BYTES && !text.chars().any(char::is_control);
    for (index, object) in answer.object_version.iter().enumerate() {
        if object.id.is_empty() || !plain(&object.id) || !plain(&object.version) {
            problems.push(ProviderResponseProblem::InvalidVersion { index });
        }
        versions.insert(object.id.clone(), object.version.clone());
    }
    versions.into_iter().map(|(id, version)| ProviderObjectVersion { id, version }).collect()
}

fn parse_files(
    answer: &mut MountResponse,
    problems: &mut Vec<ProviderResponseProblem>,
) -> Vec<ProviderFile> {
    if answer.files.is_empty() {
        problems.push(ProviderResponseProblem::NoFiles);
    }
    let mut files: Vec<ProviderFile> = Vec::new();
    for (index, file) in answer.files.iter_mut().enumerate() {
        let mode = u32::try_from(file.mode).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            problems.push(ProviderResponseProblem::InvalidMode { index, mode: file.mode });
        }
        match file.path.parse::<FilePath>() {
            Ok(path) => files.push(ProviderFile {
                path,
                // An absent field decodes as zero, and an unreadable file is useless: the publisher chooses
                // the mode.
                mode: mode.filter(|mode| *mode != 0),
                content: SharedSecretBytes::from(std::mem::take(&mut file.contents)),
                object: None,
            }),
            Err(error) => {
                let path: String = error.path.chars().take(100).collect();
                let reason = format!("invalid path {path:?}: {}", error.problem);
                problems.push(ProviderResponseProblem::InvalidPath { index, reason });
            }
        }
    }
    check_collisions(&files, problems);
    files
}

/// Reports files with the same path, and files below another file.
fn check_collisions(files: &[ProviderFile], problems: &mut Vec<ProviderResponseProblem>) {
    let mut paths = BTreeSet::new();
    let twice: Vec<_> = files.iter().map(|file| !paths.insert(file.path.as_str())).collect();
    for (index, (file, twice)) in files.iter().zip(twice).enumerate() {
        if twice || file.path.ancestors().any(|above| paths.contains(above)) {
            let path = file.path.as_str().chars().take(100).collect();
            problems.push(ProviderResponseProblem::PathCollision { index, path });
        }
    }
}
