//! The directories of a run: its volumes, one per pod that reads a credential, and its private files.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lanyard_clock::SharedClock;
use lanyard_vocabulary::{Component, Consumer};
use lanyard_volume::{AtomicVolume, MountOperation, PublishError, TmpfsMount, TmpfsMountError};
use parking_lot::Mutex;

use crate::chosen_directory::{
    ChosenDirectory, create_directories, is_safe_owned_directory, remove_empty_directories,
    resolve_with_missing_ancestor,
};
use crate::locked_directory::{AbandonedDirectory, LockedDirectory, find_abandoned, find_locked};
use crate::run_directory_error::{CloseRunError, RunDirectoryError};

/// The directories of a run.
///
/// Every run has a private directory in the system's temporary directory. The private directory contains the
/// volumes, unless the user chose another directory for them; it then contains a link to that directory.
/// After a kill, [`RunDirectory::remove_abandoned`] of the next run finds the private directory, whose lock
/// is free, and removes it together with the volumes and their mounts. A run removes volumes from a chosen
/// directory only while no other run holds the lock of that directory.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    volumes: PathBuf,
    clock: SharedClock,
    /// The paths of all opened volumes.
    volume_paths: Mutex<Vec<PathBuf>>,
    chosen: Option<ChosenDirectory>,
    private: Option<LockedDirectory>,
}

/// An open volume, and whether it is a tmpfs.
#[derive(Debug)]
pub(crate) struct OpenVolume {
    pub(crate) volume: AtomicVolume,
    pub(crate) is_tmpfs: bool,
}

impl RunDirectory {
    /// Creates the directories of a run in `place`, the system's temporary directory.
    ///
    /// # Errors
    ///
    /// [`RunDirectoryError::InUse`] if the chosen directory contains the volumes of a running process, and
    /// [`RunDirectoryError::LeftoverVolumes`] if it contains volumes of a killed run that cannot be removed.
    pub(crate) fn create(
        place: &Path,
        chosen: Option<&Path>,
        clock: SharedClock,
    ) -> Result<Self, RunDirectoryError> {
        let private = LockedDirectory::create_in(place, RUN_DIRECTORY_PREFIX)?;
        let chosen = chosen.map(|chosen| create_chosen_directory(&private, chosen)).transpose()?;
        let volumes = match &chosen {
            Some(chosen) => {
                if chosen.has_leftover_volumes() {
                    remove_leftover_volumes(chosen, &clock).map_err(|source| {
                        let directory = chosen.path().to_owned();
                        RunDirectoryError::LeftoverVolumes { directory, source }
                    })?;
                }
                chosen.path().to_owned()
            }
            None => private.path().to_owned(),
        };
        Ok(Self { volumes, clock, volume_paths: Mutex::default(), chosen, private: Some(private) })
    }

    /// Removes the directories that killed runs of this user left in `place`, and their volumes in chosen
    /// directories. A run that cannot be removed is logged and kept.
    pub(crate) fn remove_abandoned(place: &Path, clock: &SharedClock) {
        let runs = find_abandoned(place, RUN_DIRECTORY_PREFIX).unwrap_or_else(|error| {
            tracing::warn!(%error, place = %place.display(), "could not look for killed runs");
            Vec::new()
        });
        for run in runs {
            let path = run.path().to_owned();
            match remove_abandoned_run(run, clock) {
                Ok(()) => tracing::info!(directory = %path.display(), "removed a killed run"),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, directory = %path.display(), "a killed run is left");
                }
            }
        }
    }

    /// The parent directory of all volumes.
    pub(crate) fn volumes_directory(&self) -> &Path {
        &self.volumes
    }

    /// A directory that only this user can enter. The run removes it at its end.
    pub(crate) fn private_directory(&self) -> &Path {
        self.private.as_ref().map_or(&self.volumes, LockedDirectory::path)
    }

    /// Opens the volume of one consumer: a tmpfs, or a plain directory if the process may not mount.
    pub(crate) fn open_volume(&self, consumer: &Consumer) -> Result<OpenVolume, PublishError> {
        let path = volume_path(&self.volumes, consumer);
        let refused = |source| TmpfsMountError::SystemCall {
            operation: MountOperation::Mount,
            dir: path.clone(),
            source,
        };
        for directory in [path.parent().unwrap_or(&path), &path] {
            create_directories(directory).map_err(refused)?;
            if !is_safe_owned_directory(directory).map_err(refused)? {
                return Err(refused(io::Error::other(NOT_OWNED)).into());
            }
        }
        self.volume_paths.lock().push(path.clone());
        let clock = SharedClock::clone(&self.clock);
        match TmpfsMount::mount_or_adopt(&path, INITIAL_VOLUME_SIZE) {
            Ok(mount) => {
                Ok(OpenVolume { volume: AtomicVolume::open_mounted(mount, clock)?, is_tmpfs: true })
            }
            Err(TmpfsMountError::SystemCall { source, .. })
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
                ) =>
            {
                Ok(OpenVolume { volume: AtomicVolume::open(&path, clock)?, is_tmpfs: false })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Unmounts and removes everything that the run created.
    pub(crate) fn close(mut self) -> Result<(), CloseRunError> {
        self.unmount_and_remove()
    }

    fn unmount_and_remove(&mut self) -> Result<(), CloseRunError> {
        let opened = std::mem::take(&mut *self.volume_paths.lock());
        if let Err(error) = remove_volumes(&self.volumes, &opened, &self.clock) {
            // The next run removes the remaining files. Without `close` the lock file stays.
            drop(self.chosen.take());
            self.private.take().map(LockedDirectory::abandon).transpose()?;
            return Err(error);
        }
        self.chosen.take().map_or(Ok(()), ChosenDirectory::close)?;
        let Some(private) = self.private.take() else { return Ok(()) };
        if let Err(error) = check_unmounted(private.path()) {
            private.abandon()?;
            return Err(error);
        }
        Ok(private.close()?)
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        if let Err(error) = self.unmount_and_remove() {
            let error: &dyn std::error::Error = &error;
            tracing::error!(error, "could not remove a volume");
        }
    }
}

/// Finds the private directories of the running `lanyard up` of this user in `place`, the system's temporary
/// directory. The lock of a directory shows that its process runs.
///
/// # Errors
///
/// The error of reading `place`.
pub fn find_run_directories(place: &Path) -> io::Result<Vec<PathBuf>> {
    find_locked(place, RUN_DIRECTORY_PREFIX)
}

/// Creates the directory that the user chose, and links to it in the private directory. The links are created
/// first: if the run is killed in between, the next run finds the directory through them.
fn create_chosen_directory(
    private: &LockedDirectory,
    chosen: &Path,
) -> Result<ChosenDirectory, RunDirectoryError> {
    let (path, missing) = resolve_with_missing_ancestor(chosen)?;
    symlink(&path, private.path().join(CHOSEN_LINK))?;
    if let Some(missing) = &missing {
        symlink(missing, private.path().join(CREATED_LINK))?;
    }
    ChosenDirectory::create(&path, missing.as_deref())
}

/// Removes the directories of a run whose process ended without removing them.
fn remove_abandoned_run(run: AbandonedDirectory, clock: &SharedClock) -> Result<(), CloseRunError> {
    if let Ok(path) = fs::read_link(run.path().join(CHOSEN_LINK)) {
        let created = fs::read_link(run.path().join(CREATED_LINK)).ok();
        remove_run_from_chosen_directory(path, created, clock)?;
    }
    let mut errors = VolumeRemovalErrors::default();
    let mounts = TmpfsMount::find_below(run.path()).map_err(CloseRunError::Mounts)?;
    for mount in mounts {
        let path = mount.dir().to_owned();
        errors.record(&path, mount.unmount().map_err(PublishError::from));
    }
    errors.into_result()?;
    check_unmounted(run.path())?;
    Ok(run.remove()?)
}

/// Returns an error if another file system is mounted in the directory: removing the directory would delete
/// the files of that file system.
fn check_unmounted(directory: &Path) -> Result<(), CloseRunError> {
    let mount = TmpfsMount::find_any_mount_below(directory).map_err(CloseRunError::Mounts)?;
    mount.map_or(Ok(()), |mount| Err(CloseRunError::Mounted { mount }))
}

/// Removes the volumes of a killed run from its chosen directory. Keeps them if another run uses the
/// directory now, because that run has already removed the leftover volumes.
fn remove_run_from_chosen_directory(
    path: PathBuf,
    created: Option<PathBuf>,
    clock: &SharedClock,
) -> Result<(), CloseRunError> {
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The run may have created some of the parent directories.
            if let Some(created) = created {
                remove_empty_directories(
                    path.ancestors().take_while(|above| above.starts_with(&created)),
                );
            }
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let created = created.map(|created| created.canonicalize()).transpose()?;
    let chosen = match ChosenDirectory::lock(path, created) {
        Ok(chosen) => chosen,
        Err(RunDirectoryError::InUse { directory }) => {
            let directory = directory.display();
            tracing::info!(%directory, "another run uses the directory of a killed run");
            return Ok(());
        }
        Err(error) => return Err(CloseRunError::ChosenDirectory(Box::new(error))),
    };
    remove_leftover_volumes(&chosen, clock)?;
    Ok(chosen.close()?)
}

/// Removes all volumes that a killed run left in a chosen directory.
fn remove_leftover_volumes(
    chosen: &ChosenDirectory,
    clock: &SharedClock,
) -> Result<(), CloseRunError> {
    let consumers = Component::ALL.into_iter().flat_map(Component::consumers);
    let paths = consumers.map(|consumer| volume_path(chosen.path(), consumer));
    // Runs never publish below a symbolic link or below a directory of another user.
    let is_of_run = |path: &PathBuf| {
        path.parent().is_some_and(|parent| is_safe_owned_directory(parent).unwrap_or(false))
            && path.symlink_metadata().is_ok()
    };
    let paths: Vec<_> = paths.filter(is_of_run).collect();
    remove_volumes(chosen.path(), &paths, clock)
}

/// Removes the volumes at `paths`, and their parent directories below `above` that become empty.
fn remove_volumes(
    above: &Path,
    paths: &[PathBuf],
    clock: &SharedClock,
) -> Result<(), CloseRunError> {
    let mut errors = VolumeRemovalErrors::default();
    for path in paths {
        errors.record(path, remove_volume(path, clock));
        remove_empty_directories(path.ancestors().take_while(|directory| *directory != above));
    }
    errors.into_result()
}

/// Removes a volume: its files, its mount if there is one, and its directory if that is then empty. Files
/// that do not belong to a volume stay.
fn remove_volume(path: &Path, clock: &SharedClock) -> Result<(), PublishError> {
    if !path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(());
    }
    let clock = SharedClock::clone(clock);
    match TmpfsMount::find(path)? {
        None => AtomicVolume::open(path, clock)?.unpublish(),
        Some(mount) => {
            let emptied =
                AtomicVolume::open_mounted(mount, clock).and_then(AtomicVolume::unpublish);
            // Unmounting discards the files, even if removing them one by one failed.
            emptied.or_else(|_| Ok(TmpfsMount::find(path)?.map_or(Ok(()), TmpfsMount::unmount)?))
        }
    }
}

fn volume_path(volumes: &Path, consumer: &Consumer) -> PathBuf {
    volumes.join(consumer.deployment).join(consumer.volume)
}

/// Collects the volumes that could not be removed, so that one failure does not stop the other removals.
#[derive(Debug, Default)]
struct VolumeRemovalErrors {
    volumes: Vec<PathBuf>,
    first: Option<PublishError>,
}

impl VolumeRemovalErrors {
    fn record(&mut self, path: &Path, removed: Result<(), PublishError>) {
        if let Err(error) = removed {
            self.volumes.push(path.to_owned());
            self.first.get_or_insert(error);
        }
    }

    fn into_result(self) -> Result<(), CloseRunError> {
        let Self { volumes, first } = self;
        first.map_or(Ok(()), |first| Err(CloseRunError::Volumes { volumes, first }))
    }
}

/// Sufficient for a credential. The volume grows automatically.
const INITIAL_VOLUME_SIZE: u64 = 256 * 1024;
const NOT_OWNED: &str = "it is a link or belongs to another user, or all users can write to it";
/// The name prefix of the private directories of runs, in the system's temporary directory.
const RUN_DIRECTORY_PREFIX: &str = "lanyard-up-";
/// The name of the link in the private directory to the chosen directory.
const CHOSEN_LINK: &str = "chosen";
/// The name of the link to the topmost directory that the run created for the chosen directory.
const CREATED_LINK: &str = "created";

#[cfg(test)]
mod tests;
