//! The node on which processes are killed, and the observable state of its volume.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::SystemClock;
use libtest_mimic::Failed;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tempfile::TempDir;

use super::fake_provider::{FakeVersionProvider, files_of_version};
use super::plugin_process::{CrashTestPlugin, CrashTrigger, ProcessClock, WAIT_TIMEOUT};

/// How a volume is first mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VolumeStaging {
    Detached,
    InPlace,
}

/// A node with its kubelet directory and its provider. Dropping it unmounts everything below it.
#[derive(Debug)]
pub(crate) struct CrashTestNode {
    dir: TempDir,
    target: PathBuf,
    staging: VolumeStaging,
    source: FakeVersionProvider,
}

/// Open files of a volume, which stay readable after their names are removed.
#[derive(Debug)]
pub(crate) struct OpenVolumeFiles(Vec<File>);

/// A container that bind-mounted the volume at its start.
#[derive(Debug)]
pub(crate) struct CrashTestContainer(PathBuf);

impl CrashTestNode {
    pub(crate) fn new(staging: VolumeStaging) -> Result<Self, Failed> {
        let dir = tempfile::tempdir()?;
        let target = dir.path().join("kubelet/pods/uid/volumes/kubernetes.io~csi/v/mount");
        // The kubelet creates the parent directories before the call, but not the target.
        fs::create_dir_all(target.parent().ok_or("no parent")?)?;
        fs::create_dir(dir.path().join("providers"))?;
        fs::write(dir.path().join("classes.yaml"), CLASSES)?;
        let source = FakeVersionProvider::default();
        source.serve(&dir.path().join("providers/crash.sock"))?;
        Ok(Self { dir, target, staging, source })
    }

    /// Starts a node plugin process, which kills itself at `crash` if it is set, and waits until it serves.
    pub(crate) async fn start_plugin(
        &self,
        crash: Option<CrashTrigger>,
    ) -> Result<CrashTestPlugin, Failed> {
        let mut plugin = self.launch_plugin(crash, ProcessClock::SystemTime)?;
        plugin.wait_until_serving().await?;
        Ok(plugin)
    }

    /// Starts a process without waiting: a process that kills itself on its own may never serve.
    pub(crate) fn launch_plugin(
        &self,
        crash: Option<CrashTrigger>,
        start: ProcessClock,
    ) -> Result<CrashTestPlugin, Failed> {
        CrashTestPlugin::launch(self.dir.path(), &self.target, (self.staging, start), crash)
    }

    /// Mounts like the Secrets Store CSI driver: a tmpfs without options, filled by the kubelet's atomic
    /// writer.
    pub(crate) fn mount_as_upstream(&self, version: &str) -> Result<(), Failed> {
        let generation = "..2026_11_20_10_00_00.3285412978";
        fs::create_dir_all(&self.target)?;
        mount("tmpfs", &self.target, "tmpfs", MountFlags::empty(), None::<&CStr>)?;
        for (path, text) in files_of_version(version) {
            let file = self.target.join(generation).join(path);
            fs::create_dir_all(file.parent().ok_or("no parent")?)?;
            fs::write(file, text)?;
            let top = path.split('/').next().unwrap_or(path);
            if !self.target.join(top).is_symlink() {
                symlink(Path::new("..data").join(top), self.target.join(top))?;
            }
        }
        Ok(symlink(generation, self.target.join("..data"))?)
    }

    /// Checks that the mount has lanyard's options.
    pub(crate) fn check_mount_options(&self) -> Result<(), Failed> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let target = self.target.to_string_lossy();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&*target));
        let line = line.ok_or("nothing is mounted")?;
        let missing = ["nosuid", "nodev", "noexec", "size="].map(|it| (it, line.contains(it)));
        match missing.iter().find(|(_, is_there)| !is_there) {
            Some((option, _)) => Err(format!("{option} is not in {line}").into()),
            None => Ok(()),
        }
    }

    /// Opens the visible files.
    pub(crate) fn open_files(&self) -> Result<OpenVolumeFiles, Failed> {
        let paths =
            files_of_version(&self.visible_version()?.ok_or("nothing to open")?).into_keys();
        let open = |path: &str| File::open(self.target.join(path));
        Ok(OpenVolumeFiles(paths.map(open).collect::<Result<_, _>>()?))
    }

    /// Sets the version that the provider returns.
    pub(crate) fn provide_version(&self, version: &str) {
        self.source.set_version(Some(version));
    }

    /// Makes the provider return an error.
    pub(crate) fn refuse_content(&self) {
        self.source.set_version(None);
    }

    /// The version that a reader sees; `None` without a mount or without content. Returns an error for any
    /// other state.
    pub(crate) fn visible_version(&self) -> Result<Option<String>, Failed> {
        read_version(&self.target)
    }

    pub(crate) fn check_version(&self, version: &str) -> Result<(), Failed> {
        let layers = self.mount_points().iter().filter(|point| **point == self.target).count();
        if layers != 1 {
            return Err(format!("{layers} mounts are stacked on the target").into());
        }
        match self.visible_version()? {
            Some(observed) if observed == version => Ok(()),
            observed => Err(format!("a reader sees {observed:?}, not {version}").into()),
        }
    }

    pub(crate) fn check_removed(&self) -> Result<(), Failed> {
        let mounts = self.mount_points();
        if !mounts.is_empty() {
            return Err(format!("mounts are left: {mounts:?}").into());
        }
        if self.target.exists() { Err("the target is left".into()) } else { Ok(()) }
    }

    /// Simulates a reboot: keeps the directories and removes all mounts.
    pub(crate) fn reboot(&self) -> Result<(), Failed> {
        for point in self.mount_points() {
            unmount(&point, UnmountFlags::DETACH)?;
        }
        if self.target.is_dir() { Ok(()) } else { Err("the directory is gone".into()) }
    }

    /// Starts a container on the volume.
    pub(crate) fn start_container(&self) -> Result<CrashTestContainer, Failed> {
        let container = self.dir.path().join("container");
        fs::create_dir(&container)?;
        mount_bind(&self.target, &container)?;
        Ok(CrashTestContainer(container))
    }

    fn mount_points(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mut points: Vec<_> =
            points.filter(|point| point.starts_with(self.dir.path())).collect();
        points.reverse();
        points
    }
}

impl Drop for CrashTestNode {
    fn drop(&mut self) {
        for point in self.mount_points() {
            let _gone = unmount(&point, UnmountFlags::DETACH);
        }
    }
}

impl OpenVolumeFiles {
    /// The number of emptied files. Returns an error if a file was deleted, because file watchers would miss
    /// later changes.
    pub(crate) fn count_emptied(&self) -> Result<usize, Failed> {
        let mut emptied = 0;
        for file in &self.0 {
            let metadata = file.metadata()?;
            if metadata.nlink() == 0 {
                return Err("a file is gone".into());
            }
            emptied += usize::from(metadata.len() == 0);
        }
        Ok(emptied)
    }

    /// Waits until all files are emptied.
    pub(crate) async fn wait_until_emptied(&self) -> Result<(), Failed> {
        let clock = SystemClock::shared();
        let start = clock.monotonic();
        while self.count_emptied()? < self.0.len() {
            if clock.monotonic().saturating_sub(start) > WAIT_TIMEOUT {
                return Err(format!("only {} files were emptied", self.count_emptied()?).into());
            }
            clock.sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

impl CrashTestContainer {
    pub(crate) fn check_version(&self, version: Option<&str>) -> Result<(), Failed> {
        let observed = read_version(&self.0)?;
        if observed.as_deref() == version {
            return Ok(());
        }
        Err(format!("the container sees {observed:?}, not {version:?}").into())
    }
}

impl Drop for CrashTestContainer {
    fn drop(&mut self) {
        let _gone = unmount(&self.0, UnmountFlags::DETACH);
        let _gone = fs::remove_dir(&self.0);
    }
}

/// The version in `dir`. Returns an error if the files are not exactly those of one version.
fn read_version(dir: &Path) -> Result<Option<String>, Failed> {
    let mut found = BTreeMap::new();
    if dir.exists() {
        collect_files(dir, "", &mut found)?;
    }
    let Some(cert) = found.get("cert") else {
        let names: Vec<_> = found.keys().collect();
        return if names.is_empty() { Ok(None) } else { Err(format!("half: {names:?}").into()) };
    };
    let version = cert.trim_start_matches("cert ").to_owned();
    let whole = files_of_version(&version).into_iter().map(|(path, text)| (path.to_owned(), text));
    if found == whole.collect() {
        return Ok(Some(version));
    }
    Err(format!("half of {version}: {:?}", found.keys().collect::<Vec<_>>()).into())
}

fn collect_files(
    dir: &Path,
    above: &str,
    found: &mut BTreeMap<String, String>,
) -> Result<(), Failed> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if above.is_empty() && name.starts_with("..") {
            continue;
        }
        let path = format!("{above}{name}");
        // A reader finds a dangling link absent.
        match fs::metadata(entry.path()) {
            Ok(metadata) if metadata.is_dir() => {
                collect_files(&entry.path(), &format!("{path}/"), found)?;
            }
            Ok(_) => {
                found.insert(path, fs::read_to_string(entry.path())?);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

const CLASSES: &str = "\
apiVersion: secrets-store.csi.x-k8s.io/v1
kind: SecretProviderClass
metadata:
  namespace: ns
  name: class
spec:
  provider: crash
  parameters:
    content: of one version
";
