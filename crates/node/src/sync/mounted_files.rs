//! Reads the files of a mounted volume.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use lanyard_keyvault::SharedSecretBytes;
use lanyard_provider::PollInterval;
use lanyard_volume::{FilePath, MARKER_PATH, MAX_MARKER_BYTES};
use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use super::write_decision::ContentAge;
use crate::marker::VolumeMarker;

/// The files of a volume, all of one generation.
#[derive(Debug)]
pub(super) struct MountedFiles {
    /// The requested files that exist.
    pub(super) files: BTreeMap<FilePath, SharedSecretBytes>,
    /// The age of their content.
    pub(super) age: ContentAge,
}

/// The location of the volume to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct MountedVolumeLocation<'a> {
    /// The kubelet's root directory.
    pub(super) kubelet_directory: &'a Path,
    /// The path of the volume, relative to that directory.
    pub(super) volume_path: &'a Path,
    /// The name of the driver that owns the volume.
    pub(super) driver: &'a str,
    /// The poll interval of volumes whose class sets none.
    pub(super) default_interval: PollInterval,
}

/// The files of a volume could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountedFilesError {
    /// A system call failed.
    #[error("could not read {}", path.display())]
    ReadFailed {
        /// The path that was read.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The directory exists but is not on a tmpfs: not a volume of this driver.
    #[error("{} is not mounted", path.display())]
    NotMounted {
        /// The directory.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{} is not a regular file", path.display())]
    NotRegularFile { path: PathBuf },
    /// The file is larger than a Secret.
    #[error("{} is larger than a Secret may be", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The volume was published again or unpublished during the read, so the files may be truncated.
    #[error("{} changed during the read", path.display())]
    ChangedDuringRead {
        /// The volume.
        path: PathBuf,
    },
}

/// Reads files of a volume. Missing files are left out.
///
/// Planted symlinks cannot redirect the read: below the kubelet's directory only `..data` is followed, and
/// only to a directory within the volume. All files belong to one generation, which was still the current
/// one after the last of them was read.
pub(super) fn load_mounted_files(
    source: MountedVolumeLocation<'_>,
    names: &[FilePath],
) -> Result<MountedFiles, MountedFilesError> {
    OpenGeneration::open(source)?.load(source, names)
}

/// The current generation of a volume, opened for reading.
struct OpenGeneration {
    /// The path of the volume.
    target: PathBuf,
    /// The directory of the volume.
    root: OwnedFd,
    /// The directory of the generation.
    directory: OwnedFd,
    /// The name of the generation: the target of `..data`.
    name: CString,
    /// When the generation became the current one.
    shown_since: Timestamp,
}

impl OpenGeneration {
    fn open(source: MountedVolumeLocation<'_>) -> Result<Self, MountedFilesError> {
        let MountedVolumeLocation { kubelet_directory: kubelet, volume_path: volume, .. } = source;
        let target = kubelet.join(volume);
        let base = fs::open(kubelet, DIRECTORY, Mode::empty()).map_err(read_failed(kubelet))?;
        let root = fs::openat2(&base, volume, DIRECTORY, Mode::empty(), RESOLVE_NO_LINKS)
            .map_err(read_failed(&target))?;
        let system = fs::fstatfs(&root).map_err(read_failed(&target))?;
        if system.f_type != TMPFS_MAGIC {
            return Err(MountedFilesError::NotMounted { path: target });
        }
        let data = target.join(DATA_LINK);
        let link =
            fs::statat(&root, DATA_LINK, AtFlags::SYMLINK_NOFOLLOW).map_err(read_failed(&data))?;
        let name = fs::readlinkat(&root, DATA_LINK, Vec::new()).map_err(read_failed(&data))?;
        let directory =
            fs::openat2(&root, DATA_LINK, DIRECTORY, Mode::empty(), RESOLVE_WITHIN_VOLUME)
                .map_err(read_failed(&data))?;
        let nanoseconds = i32::try_from(link.st_mtime_nsec).unwrap_or(0);
        let shown_since =
            Timestamp::new(link.st_mtime, nanoseconds).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Self { target, root, directory, name, shown_since })
    }

    fn load(
        self,
        source: MountedVolumeLocation<'_>,
        names: &[FilePath],
    ) -> Result<MountedFiles, MountedFilesError> {
        let mut files = BTreeMap::new();
        for name in names {
            if let Some(content) = load_file(&self.directory, name, &self.target)? {
                files.insert(name.clone(), content);
            }
        }
        let marker = load_marker(&self.root, source.driver);
        self.expect_current()?;
        // Only a marker of the generation that was read describes these files.
        let marker = marker.filter(|it| it.generation.as_bytes() == self.name.as_bytes());
        let age = marker.map_or_else(
            || ContentAge::from_write_time(self.shown_since),
            |marker| content_age(&marker, source.default_interval),
        );
        Ok(MountedFiles { files, age })
    }

    /// Fails unless `..data` still names this generation. The driver truncates the files of a generation
    /// only after `..data` names another one or is gone, so files that were read before are whole.
    fn expect_current(&self) -> Result<(), MountedFilesError> {
        match fs::readlinkat(&self.root, DATA_LINK, Vec::new()) {
            Ok(name) if name == self.name => Ok(()),
            Ok(_) | Err(Errno::NOENT) => {
                Err(MountedFilesError::ChangedDuringRead { path: self.target.clone() })
            }
            Err(errno) => Err(read_failed(&self.target.join(DATA_LINK))(errno)),
        }
    }
}

fn read_failed(path: &Path) -> impl FnOnce(Errno) -> MountedFilesError {
    let path = path.to_owned();
    move |errno| MountedFilesError::ReadFailed { path, source: errno.into() }
}

/// Returns the age of the content that a marker describes.
fn content_age(marker: &VolumeMarker, interval: PollInterval) -> ContentAge {
    // During an outage, the content is as old as its last read from the source, however new the volume is.
    let since = marker
        .stale_since
        .map_or(marker.content_changed, |since| since.min(marker.content_changed));
    // After a failed poll, the source may hold other content than the volume.
    let is_good = marker.last_error.is_none() && marker.stale_since.is_none();
    let check = marker.poll_record.as_ref().filter(|_| is_good);
    let lag = check.and_then(|check| check.interval).unwrap_or(interval).duration();
    ContentAge {
        fetched_at: since,
        confirmed_at: check.map(|check| check.checked),
        max_read_age: lag,
    }
}

/// Reads the marker of a volume of this driver; `None` if another driver wrote the volume.
fn load_marker(root: &OwnedFd, driver: &str) -> Option<VolumeMarker> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = fs::openat2(root, MARKER_PATH, flags, Mode::empty(), RESOLVE_NO_LINKS).ok()?;
    let mut text = Vec::new();
    File::from(opened).take(MAX_MARKER_BYTES).read_to_end(&mut text).ok()?;
    VolumeMarker::parse(&text, driver).ok()
}

fn load_file(
    generation: &OwnedFd,
    name: &FilePath,
    target: &Path,
) -> Result<Option<SharedSecretBytes>, MountedFilesError> {
    let path = || target.join(name.as_str());
    let failed = |source| MountedFilesError::ReadFailed { path: path(), source };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened =
        fs::openat2(generation.as_fd(), name.as_str(), flags, Mode::empty(), RESOLVE_NO_LINKS);
    let mut file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(failed(errno.into())),
    };
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(MountedFilesError::NotRegularFile { path: path() });
    }
    let too_large = || MountedFilesError::TooLarge { path: path() };
    let length = usize::try_from(metadata.len()).map_err(|_large| too_large())?;
    if length > MAX_SECRET_BYTES {
        return Err(too_large());
    }
    // A generation is immutable, so the length at open is the whole length.
    let mut content = Zeroizing::new(vec![0; length]);
    file.read_exact(&mut content).map_err(failed)?;
    Ok(Some(SharedSecretBytes::from(std::mem::take(&mut *content))))
}

const DATA_LINK: &str = "..data";
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Follows no symlink at all.
const RESOLVE_NO_LINKS: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Follows symlinks that stay within the volume.
const RESOLVE_WITHIN_VOLUME: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);
/// `TMPFS_MAGIC` (statfs(2)).
const TMPFS_MAGIC: fs::FsWord = 0x0102_1994;
/// The API's limit for all values of one Secret together.
pub(super) const MAX_SECRET_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use lanyard_clock::ManualClock;
    use lanyard_vocabulary::OutcomeCode;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::marker::VolumeLastError;
    use lanyard_volume::AtomicVolume;
    use lanyard_volume::FileEntry;

    const DRIVER: &str = "secrets-store.csi.k8s.io";
    const VOLUME: &str = "pods/u/volumes/kubernetes.io~csi/v/mount";

    fn names(names: &[&str]) -> Vec<FilePath> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    /// A kubelet directory on a tmpfs, with one volume.
    fn kubelet_with_volume() -> (TempDir, AtomicVolume, ManualClock) {
        let kubelet = tempfile::tempdir_in("/dev/shm").unwrap();
        let target = kubelet.path().join(VOLUME);
        std::fs::create_dir_all(&target).unwrap();
        let clock = ManualClock::starting_at(Timestamp::UNIX_EPOCH);
        let volume = AtomicVolume::open(&target, std::sync::Arc::new(clock.clone())).unwrap();
        (kubelet, volume, clock)
    }

    fn publish(volume: &mut AtomicVolume, files: &[(&str, &[u8])]) {
        let entries: Vec<_> = files
            .iter()
            .map(|(path, content)| FileEntry::new(path.parse().unwrap(), content, 0o600))
            .collect();
        volume.publish(&entries).unwrap();
    }

    fn volume_location(kubelet: &TempDir) -> MountedVolumeLocation<'_> {
        MountedVolumeLocation {
            kubelet_directory: kubelet.path(),
            volume_path: Path::new(VOLUME),
            driver: DRIVER,
            default_interval: PollInterval::DEFAULT,
        }
    }

    fn load(kubelet: &TempDir, wanted: &[&str]) -> Result<MountedFiles, MountedFilesError> {
        load_mounted_files(volume_location(kubelet), &names(wanted))
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The marker of a volume whose content dates from second 100 and was polled at second 500.
    fn marker(generation: &str, change: impl FnOnce(&mut VolumeMarker)) -> Vec<u8> {
        let text = json!({
            "format": 1,
            "driver": DRIVER,
            "generation": generation,
            "volumeId": "csi-1",
            "pod": {"namespace": "n", "name": "p", "uid": "u", "serviceAccount": ""},
            "secretProviderClass": "c",
            "changed": at(100),
            "check": {"checked": at(500), "interval": "60s"},
        });
        let mut marker = VolumeMarker::parse(text.to_string().as_bytes(), DRIVER).unwrap();
        change(&mut marker);
        marker.to_json(DRIVER).unwrap()
    }

    #[test]
    fn content_age_starts_at_the_read_not_at_the_mount() {
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("token", b"t")]);
        let target = kubelet.path().join(VOLUME);
        let written = load(&kubelet, &[]).unwrap().age;
        assert!(written.fetched_at > at(1_000), "{written:?}");
        let generation = std::fs::read_link(target.join("..data")).unwrap();
        let generation = generation.to_str().unwrap();
        let age = |marker: Vec<u8>| {
            let path = target.join(MARKER_PATH);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, marker).unwrap();
            load(&kubelet, &[]).unwrap().age
        };
        let lag = std::time::Duration::from_mins(1);
        let healthy =
            ContentAge { fetched_at: at(100), confirmed_at: Some(at(500)), max_read_age: lag };
        assert_eq!(age(marker(generation, |_| ())), healthy);
        let stale = age(marker(generation, |it| it.stale_since = Some(at(50))));
        assert_eq!((stale.fetched_at, stale.confirmed_at), (at(50), None));
        let last_error = VolumeLastError::new(OutcomeCode::CredentialOlder, at(500), "");
        let retained = age(marker(generation, |it| it.last_error = Some(last_error)));
        assert_eq!((retained.fetched_at, retained.confirmed_at), (at(100), None));
        assert_eq!(age(marker("..2026_11_21_12_00_00.7", |_| ())), written);
        assert_eq!(age(b"{}".to_vec()), written);
    }

    #[test]
    fn current_generation_is_read() {
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("token", b"old"), ("tls/key", b"k")]);
        let first = load(&kubelet, &["token", "tls/key", "absent", "token/below"]).unwrap();
        let text = |files: &MountedFiles, name: &str| {
            let file = files.files.get(&name.parse::<FilePath>().unwrap());
            file.map(|content| String::from_utf8_lossy(content.expose()).into_owned())
        };
        assert_eq!(text(&first, "token").as_deref(), Some("old"));
        assert_eq!(text(&first, "tls/key").as_deref(), Some("k"));
        assert_eq!(first.files.len(), 2);
        publish(&mut volume, &[("token", b"new")]);
        let second = load(&kubelet, &["token"]).unwrap();
        assert_eq!(text(&second, "token").as_deref(), Some("new"));
        assert!(second.age.fetched_at >= first.age.fetched_at);
    }

    #[test]
    fn files_of_a_volume_that_changes_during_the_read_are_not_used() {
        let names = names(&["token"]);
        // Published again: the old generation may be truncated soon.
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("token", b"old")]);
        let opened = OpenGeneration::open(volume_location(&kubelet)).unwrap();
        publish(&mut volume, &[("token", b"new")]);
        let error = opened.load(volume_location(&kubelet), &names).unwrap_err();
        assert!(matches!(error, MountedFilesError::ChangedDuringRead { .. }), "{error}");
        // Unpublished: `..data` goes first, then each file is truncated and removed.
        let opened = OpenGeneration::open(volume_location(&kubelet)).unwrap();
        let target = kubelet.path().join(VOLUME);
        let token = std::fs::canonicalize(target.join("..data/token")).unwrap();
        std::fs::remove_file(target.join("..data")).unwrap();
        std::fs::write(token, b"").unwrap();
        let error = opened.load(volume_location(&kubelet), &names).unwrap_err();
        assert!(matches!(error, MountedFilesError::ChangedDuringRead { .. }), "{error}");
        // Removed completely.
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("token", b"t")]);
        let opened = OpenGeneration::open(volume_location(&kubelet)).unwrap();
        volume.remove_content().unwrap();
        let error = opened.load(volume_location(&kubelet), &names).unwrap_err();
        assert!(matches!(error, MountedFilesError::ChangedDuringRead { .. }), "{error}");
    }

    #[test]
    fn planted_symlinks_are_not_followed() {
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("token", b"t")]);
        let target = kubelet.path().join(VOLUME);
        let generation = std::fs::canonicalize(target.join("..data")).unwrap();
        symlink("/etc/passwd", generation.join("planted")).unwrap();
        std::fs::create_dir(generation.join("directory")).unwrap();
        assert!(matches!(load(&kubelet, &["planted"]), Err(MountedFilesError::ReadFailed { .. })));
        assert!(matches!(
            load(&kubelet, &["directory"]),
            Err(MountedFilesError::NotRegularFile { .. })
        ));
        std::fs::remove_file(target.join("..data")).unwrap();
        symlink("/etc", target.join("..data")).unwrap();
        assert!(matches!(load(&kubelet, &["passwd"]), Err(MountedFilesError::ReadFailed { .. })));
        std::fs::rename(&target, kubelet.path().join("moved")).unwrap();
        symlink(kubelet.path().join("moved"), &target).unwrap();
        assert!(matches!(load(&kubelet, &["token"]), Err(MountedFilesError::ReadFailed { .. })));
    }

    #[test]
    fn directory_without_tmpfs_is_rejected() {
        let kubelet = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        std::fs::create_dir_all(kubelet.path().join(VOLUME)).unwrap();
        let error = load_mounted_files(volume_location(&kubelet), &[]).unwrap_err();
        assert!(matches!(error, MountedFilesError::NotMounted { .. }), "{error}");
    }

    #[test]
    fn file_larger_than_a_secret_is_rejected_unread() {
        let (kubelet, mut volume, _clock) = kubelet_with_volume();
        publish(&mut volume, &[("large", &vec![0; MAX_SECRET_BYTES + 1])]);
        assert!(matches!(load(&kubelet, &["large"]), Err(MountedFilesError::TooLarge { .. })));
    }
}
