//! Reads the client ids of a cluster's identities from the files that the user named.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use lanyard_changes::PreflightFinding;
use lanyard_clock::ErrorHint;

use crate::identity_files::{
    ControlPlaneIdentities, DataPlaneIdentities, IdentityFileError, LintNote, WorkloadIdentities,
};
use crate::infra_output::ClusterIdentities;

/// Where the client ids of a cluster's identities come from.
#[derive(Debug, Clone)]
pub enum IdentitySource {
    /// The stack `iam` of the same configuration creates them.
    Created,
    /// The workload identities file.
    WorkloadFile(PathBuf),
    /// The files of an ARO HCP cluster.
    ManagedFiles {
        /// The identities of the control plane, and perhaps those of the worker nodes.
        control_plane: Option<PathBuf>,
        /// The identities of the worker nodes.
        data_plane: Option<PathBuf>,
    },
}

/// An identity file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentitySourceError {
    /// The file cannot be read.
    #[error("{} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The content of the file is invalid.
    #[error("{}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Which fields, and why.
        source: IdentityFileError,
    },
    /// Only the file of the worker nodes is named.
    #[error("`infra.managedIdentitiesFile` is missing")]
    NoControlPlane,
}

impl ErrorHint for IdentitySourceError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let is_missing = matches!(self, Self::NoControlPlane);
        is_missing.then(|| "name the control plane identities file as well".into())
    }

    fn is_invalid_input(&self) -> bool {
        true
    }
}

/// The client ids of the identity files; `None` if the identities are created in the same run. Adds what is unusual in
/// the files to `findings`.
///
/// # Errors
///
/// [`IdentitySourceError`] of the first file that cannot be used.
pub fn read_identities(
    source: &IdentitySource,
    findings: &mut Vec<PreflightFinding>,
) -> Result<Option<ClusterIdentities>, IdentitySourceError> {
    Ok(match source {
        IdentitySource::Created => None,
        IdentitySource::WorkloadFile(path) => {
            let identities = read_identity_file(path, findings, WorkloadIdentities::parse)?;
            Some(ClusterIdentities::Workload(identities))
        }
        IdentitySource::ManagedFiles { control_plane: None, .. } => {
            return Err(IdentitySourceError::NoControlPlane);
        }
        IdentitySource::ManagedFiles { control_plane: Some(path), data_plane } => {
            let (control_plane, wrapped) = read_identity_file(path, findings, |text| {
                let (control_plane, data_plane, notes) = ControlPlaneIdentities::parse(text)?;
                Ok(((control_plane, data_plane), notes))
            })?;
            let data_plane = match data_plane {
                None => wrapped,
                Some(path) => Some(read_identity_file(path, findings, DataPlaneIdentities::parse)?),
            };
            Some(ClusterIdentities::Managed { control_plane, data_plane })
        }
    })
}

/// Reads one file, and adds what is unusual in it to `findings`.
///
/// # Errors
///
/// [`IdentitySourceError`] if the file cannot be read, or `parse` rejects it.
pub fn read_identity_file<T>(
    path: &Path,
    findings: &mut Vec<PreflightFinding>,
    parse: impl Fn(&str) -> Result<(T, Vec<LintNote>), IdentityFileError>,
) -> Result<T, IdentitySourceError> {
    let named = || path.to_owned();
    let text = std::fs::read_to_string(path)
        .map_err(|source| IdentitySourceError::Unreadable { path: named(), source })?;
    let (parsed, notes) =
        parse(&text).map_err(|source| IdentitySourceError::Invalid { path: named(), source })?;
    findings.extend(notes.iter().map(|note| {
        let message = format!("{}: {note}", path.display());
        PreflightFinding::warning("identity files", message, "correct the file")
    }));
    Ok(parsed)
}
