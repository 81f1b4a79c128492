//! The messages of the provider protocol: what is asked, and what an answer may say.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_grpc::provider::{MountRequest, MountResponse};
use lanyard_keyvault::SharedSecretBytes;

use crate::file_path::FilePath;
use crate::provider::attributes::provider_attributes;
use crate::provider::tokens::{secrets_to_json, tokens_to_json};
use crate::provider::{ProviderFile, ProviderObjectVersion, ProviderRequest, ProviderResponse};
use crate::volume_attribute::TOKENS;

/// The mode that files get whose provider does not say one: 0644, in decimal.
const PERMISSION: &str = "420";
/// The most that a version or an id may have: they travel on into the pod status.
const LONGEST_ID: usize = 1024;
/// From this size on, an answer is too large to become a Kubernetes Secret.
pub(super) const LARGE_RESPONSE_BYTES: usize = 1 << 20;

/// What another provider is asked. No current versions are sent, as driver v1.6.0 does not: the
/// answer has to be whole whatever is mounted.
pub(super) fn mount_request(request: &ProviderRequest<'_>) -> MountRequest {
    let mut told = provider_attributes(request.class, request.pod, request.attributes);
    if let Some(tokens) = tokens_to_json(&request.proofs.tokens) {
        told.insert(TOKENS.to_owned(), tokens);
    }
    let attributes = serde_json::to_string(&told).unwrap_or_default();
    // The tokens lie in this map as in the message, which wipes itself.
    if let Some(mut tokens) = told.remove(TOKENS) {
        zeroize::Zeroize::zeroize(&mut tokens);
    }
    MountRequest {
        attributes,
        secrets: secrets_to_json(&request.proofs.secrets),
        target_path: request.target.to_owned(),
        permission: PERMISSION.to_owned(),
        current_object_version: Vec::new(),
    }
}

/// One thing that is wrong with an answer. The texts are a provider's and are shown quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProviderResponseProblem {
    /// It says that it failed.
    #[error("it reports the error code {code:?}")]
    ReportedError {
        /// Its code.
        code: String,
    },
    /// It names no version of anything.
    #[error("it names no object version, so that a change could never be noticed")]
    NoObjectVersion,
    /// It has no file.
    #[error("it has no file")]
    NoFiles,
    /// The path of a file is not one.
    #[error("files[{index}]: {reason}")]
    InvalidPath {
        /// Its place in the answer.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// The path of a file is another's, or lies below another's.
    #[error("files[{index}]: {path:?} collides with another file")]
    PathCollision {
        /// Its place in the answer.
        index: usize,
        /// The path.
        path: String,
    },
    /// The mode of a file is not one.
    #[error("files[{index}]: mode {mode} is not one of 0 to 511")]
    InvalidMode {
        /// Its place in the answer.
        index: usize,
        /// The mode.
        mode: i32,
    },
    /// The id or the version of an object cannot be written anywhere.
    #[error(
        "object_version[{index}]: id and version are at most {LONGEST_ID} bytes without control characters, and an id is not empty"
    )]
    InvalidVersion {
        /// Its place in the answer.
        index: usize,
    },
}

/// The size of what an answer would put into the volume.
pub(super) fn content_size(answer: &MountResponse) -> usize {
    answer.files.iter().map(|file| file.contents.len()).sum()
}

/// Reads an answer, every problem at once.
///
/// An answer with versions and without files is refused. Upstream takes it as that of a provider
/// which wrote the files itself, as providers did before driver v0.0.21; here it would mean an
/// empty volume.
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
        return Ok(ProviderResponse { files, versions, timestamps: BTreeMap::new(), stale: None });
    }
    Err(problems)
}

/// The versions, sorted by id. Of an id that comes twice the last one holds, as upstream.
fn parse_versions(
    answer: &MountResponse,
    problems: &mut Vec<ProviderResponseProblem>,
) -> Vec<ProviderObjectVersion> {
    if answer.object_version.is_empty() {
        problems.push(ProviderResponseProblem::NoObjectVersion);
    }
    let mut versions = BTreeMap::new();
    let plain = |text: &str| text.len() <= LONGEST_ID && !text.chars().any(char::is_control);
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
                // Zero is what an absent field reads as, and a file that nobody can read is of no
                // use: the publisher chooses.
                mode: mode.filter(|mode| *mode != 0),
                content: SharedSecretBytes::from(std::mem::take(&mut file.contents)),
                object: None,
            }),
            Err(error) => {
                let path: String = error.path.chars().take(100).collect();
                let reason = format!("path {path:?} is refused: {}", error.problem);
                problems.push(ProviderResponseProblem::InvalidPath { index, reason });
            }
        }
    }
    check_collisions(&files, problems);
    files
}

/// No two files have one path, and none lies below another.
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
