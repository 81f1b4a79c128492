//! The messages of the provider protocol: what is asked, and what an answer may say.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_grpc::provider::{MountRequest, MountResponse};
use lanyard_keyvault::SecretBytes;

use crate::path::FilePath;
use crate::provider::attributes::told_attributes;
use crate::provider::tokens::{secrets_text, tokens_text};
use crate::provider::{FillRequest, FilledFile, Filling, ObjectVersion};
use crate::volume_attribute::TOKENS;

/// The mode that files get whose provider does not say one: 0644, in decimal.
const PERMISSION: &str = "420";
/// The most that a version or an id may have: they travel on into the pod status.
const LONGEST_ID: usize = 1024;
/// From this size on, an answer is too large to become a Kubernetes Secret.
pub(super) const LARGE_ANSWER: usize = 1 << 20;

/// What another provider is asked. No current versions are sent, as driver v1.6.0 does not: the
/// answer has to be whole whatever is mounted.
pub(super) fn mount_request(request: &FillRequest<'_>) -> MountRequest {
    let mut told = told_attributes(request.class, request.pod, request.attributes);
    if let Some(tokens) = tokens_text(&request.proofs.tokens) {
        told.insert(TOKENS.to_owned(), tokens);
    }
    let attributes = serde_json::to_string(&told).unwrap_or_default();
    // The tokens lie in this map as in the message, which wipes itself.
    if let Some(mut tokens) = told.remove(TOKENS) {
        zeroize::Zeroize::zeroize(&mut tokens);
    }
    MountRequest {
        attributes,
        secrets: secrets_text(&request.proofs.secrets),
        target_path: request.target.to_owned(),
        permission: PERMISSION.to_owned(),
        current_object_version: Vec::new(),
    }
}

/// One thing that is wrong with an answer. The texts are a provider's and are shown quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerProblem {
    /// It says that it failed.
    #[error("it reports the error code {code:?}")]
    Failed {
        /// Its code.
        code: String,
    },
    /// It names no version of anything.
    #[error("it names no object version, so that a change could never be noticed")]
    NoVersion,
    /// It has no file.
    #[error("it has no file")]
    NoFile,
    /// The path of a file is not one.
    #[error("files[{index}]: {reason}")]
    Path {
        /// Its place in the answer.
        index: usize,
        /// What is wrong.
        reason: String,
    },
    /// The path of a file is another's, or lies below another's.
    #[error("files[{index}]: {path:?} collides with another file")]
    Collision {
        /// Its place in the answer.
        index: usize,
        /// The path.
        path: String,
    },
    /// The mode of a file is not one.
    #[error("files[{index}]: mode {mode} is not one of 0 to 511")]
    Mode {
        /// Its place in the answer.
        index: usize,
        /// The mode.
        mode: i32,
    },
    /// The id or the version of an object cannot be written anywhere.
    #[error(
        "object_version[{index}]: id and version are at most {LONGEST_ID} bytes without control characters, and an id is not empty"
    )]
    Version {
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
pub(crate) fn parse_answer(mut answer: MountResponse) -> Result<Filling, Vec<AnswerProblem>> {
    if let Some(error) = answer.error.take().filter(|error| !error.code.is_empty()) {
        let code = error.code.chars().filter(|c| !c.is_control()).take(63).collect();
        return Err(vec![AnswerProblem::Failed { code }]);
    }
    let mut problems = Vec::new();
    let versions = parse_versions(&answer, &mut problems);
    let files = parse_files(&mut answer, &mut problems);
    if problems.is_empty() {
        return Ok(Filling { files, versions, stamps: BTreeMap::new(), stale: None });
    }
    Err(problems)
}

/// The versions, sorted by id. Of an id that comes twice the last one holds, as upstream.
fn parse_versions(answer: &MountResponse, problems: &mut Vec<AnswerProblem>) -> Vec<ObjectVersion> {
    if answer.object_version.is_empty() {
        problems.push(AnswerProblem::NoVersion);
    }
    let mut versions = BTreeMap::new();
    let plain = |text: &str| text.len() <= LONGEST_ID && !text.chars().any(char::is_control);
    for (index, object) in answer.object_version.iter().enumerate() {
        if object.id.is_empty() || !plain(&object.id) || !plain(&object.version) {
            problems.push(AnswerProblem::Version { index });
        }
        versions.insert(object.id.clone(), object.version.clone());
    }
    versions.into_iter().map(|(id, version)| ObjectVersion { id, version }).collect()
}

fn parse_files(answer: &mut MountResponse, problems: &mut Vec<AnswerProblem>) -> Vec<FilledFile> {
    if answer.files.is_empty() {
        problems.push(AnswerProblem::NoFile);
    }
    let mut files: Vec<FilledFile> = Vec::new();
    for (index, file) in answer.files.iter_mut().enumerate() {
        let mode = u32::try_from(file.mode).ok().filter(|mode| *mode <= 0o777);
        if mode.is_none() {
            problems.push(AnswerProblem::Mode { index, mode: file.mode });
        }
        match file.path.parse::<FilePath>() {
            Ok(path) => files.push(FilledFile {
                path,
                // Zero is what an absent field reads as, and a file that nobody can read is of no
                // use: the publisher chooses.
                mode: mode.filter(|mode| *mode != 0),
                content: SecretBytes::from(std::mem::take(&mut file.contents)),
                object: None,
            }),
            Err(error) => {
                let path: String = error.path.chars().take(100).collect();
                let reason = format!("path {path:?} is refused: {}", error.problem);
                problems.push(AnswerProblem::Path { index, reason });
            }
        }
    }
    refuse_collisions(&files, problems);
    files
}

/// No two files have one path, and none lies below another.
fn refuse_collisions(files: &[FilledFile], problems: &mut Vec<AnswerProblem>) {
    let mut paths = BTreeSet::new();
    let twice: Vec<_> = files.iter().map(|file| !paths.insert(file.path.as_str())).collect();
    for (index, (file, twice)) in files.iter().zip(twice).enumerate() {
        if twice || file.path.ancestors().any(|above| paths.contains(above)) {
            let path = file.path.as_str().chars().take(100).collect();
            problems.push(AnswerProblem::Collision { index, path });
        }
    }
}
