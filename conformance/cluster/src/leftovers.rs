//! Leftovers of a node outside its directory: control groups, and files in places that every kubelet and
//! containerd of the machine shares.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::Clock;
use serde::Deserialize;

use crate::error::ClusterError;
use crate::layout::ClusterLayout;
use crate::mounts;
use crate::processes::{RecordedProcess, kill_all, process_name};

/// Resources of the cluster outside its directory. They are found through files in the directory, so the scan
/// must run before those are removed.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Ids of containers, including pod sandboxes.
    containers: BTreeSet<String>,
    /// Sockets, links and records in shared directories.
    stray_files: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// Scans for leftovers and adds them to those of earlier scans.
    pub(crate) fn scan(&mut self, layout: &ClusterLayout) {
        let tasks = list_subdirectories(&containerd_task_directory(layout));
        let names = tasks.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        self.containers.extend(names);
        self.stray_files.extend(shim_sockets(&tasks));
        self.stray_files.extend(cni_result_files(layout));
        self.stray_files.extend(log_links(layout));
    }

    /// The control groups of the containers in every mounted hierarchy.
    fn control_groups(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let hierarchies = cgroup_hierarchies()?;
        Ok(hierarchies
            .iter()
            .flat_map(|hierarchy| {
                self.containers.iter().map(|id| hierarchy.join(CONTAINERD_NAMESPACE).join(id))
            })
            .filter(|group| group.is_dir())
            .collect())
    }

    /// Kills every process in the containers.
    pub(crate) async fn kill_containers(&self, clock: &dyn Clock) -> Result<(), ClusterError> {
        // A container can fork while it is being killed.
        for _ in 0..KILL_ATTEMPTS {
            let mut ids = BTreeSet::new();
            for group in self.control_groups()? {
                collect_cgroup_processes(&group, &mut ids);
            }
            let processes: Vec<(String, RecordedProcess)> = ids
                .into_iter()
                .filter_map(|pid| {
                    Some((
                        format!("container process {}", process_name(pid)),
                        RecordedProcess::observe(pid)?,
                    ))
                })
                .collect();
            if processes.is_empty() {
                return Ok(());
            }
            kill_all(&processes, clock).await?;
        }
        Ok(())
    }

    /// Removes the control groups of the containers, and returns those that remain.
    pub(crate) async fn remove_control_groups(
        &self,
        clock: &dyn Clock,
    ) -> Result<Vec<PathBuf>, ClusterError> {
        // A group stays busy until the last of its dead processes is collected.
        for _ in 0..CGROUP_REMOVAL_ATTEMPTS {
            let groups = self.control_groups()?;
            if groups.is_empty() {
                break;
            }
            for group in &groups {
                remove_cgroup(group);
            }
            clock.sleep(CGROUP_POLL_INTERVAL).await;
        }
        // All containerds of the machine share the parent. It can be removed once no containerd has a
        // container.
        for hierarchy in cgroup_hierarchies()? {
            fs::remove_dir(hierarchy.join(CONTAINERD_NAMESPACE)).unwrap_or_default();
        }
        self.control_groups()
    }

    /// Removes stray files and the shared directories that are then empty. Returns the files that remain.
    pub(crate) fn remove_stray_files(&self) -> Vec<PathBuf> {
        for stray in &self.stray_files {
            fs::remove_file(stray).unwrap_or_default();
        }
        remove_dead_socket(Path::new(DEVICE_PLUGIN_SOCKET));
        for directory in SHARED_DIRECTORIES {
            // The call fails while another cluster uses the directory.
            fs::remove_dir(directory).unwrap_or_default();
        }
        self.stray_files.iter().filter(|stray| stray.symlink_metadata().is_ok()).cloned().collect()
    }
}

const KILL_ATTEMPTS: usize = 5;
const CGROUP_REMOVAL_ATTEMPTS: usize = 300;
const CGROUP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The namespace that kubelets use in containerd. Without cgroups for pods, containerd creates one cgroup for
/// each container below this name.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// The mount points of the cgroup hierarchies.
fn cgroup_hierarchies() -> Result<Vec<PathBuf>, ClusterError> {
    let is_hierarchy = |mount: &mounts::MountInfoEntry| mount.filesystem.starts_with("cgroup");
    Ok(mounts::load_mounts()?
        .into_iter()
        .filter(is_hierarchy)
        .map(|mount| mount.mount_point)
        .collect())
}

/// The directory in which containerd keeps one directory for each running container.
fn containerd_task_directory(layout: &ClusterLayout) -> PathBuf {
    layout
        .containerd_state_directory()
        .join("io.containerd.runtime.v2.task")
        .join(CONTAINERD_NAMESPACE)
}

fn collect_cgroup_processes(group: &Path, ids: &mut BTreeSet<i32>) {
    // The group may disappear during the scan.
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    ids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for below in list_subdirectories(group) {
        collect_cgroup_processes(&below, ids);
    }
}

fn remove_cgroup(group: &Path) {
    for below in list_subdirectories(group) {
        remove_cgroup(&below);
    }
    // The kernel owns the files of a group. The caller reports groups that remain.
    fs::remove_dir(group).unwrap_or_default();
}

fn list_subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
}

/// The sockets of the shims. Each shim writes the address of its socket to a file.
fn shim_sockets(tasks: &[PathBuf]) -> Vec<PathBuf> {
    tasks
        .iter()
        .filter_map(|task| fs::read_to_string(task.join("address")).ok())
        .filter_map(|address| address.trim().strip_prefix("unix://").map(PathBuf::from))
        .filter(|socket| socket.starts_with(RUNTIME_DIRECTORY))
        .collect()
}

const RUNTIME_DIRECTORY: &str = "/run/containerd";

/// The CNI library caches one result for each pod sandbox.
fn cni_result_files(layout: &ClusterLayout) -> Vec<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CniCacheEntry {
        container_id: String,
    }
    let sandboxes: BTreeSet<String> =
        [layout.containerd_state_directory(), layout.containerd_root_directory()]
            .iter()
            .flat_map(|place| {
                list_subdirectories(&place.join("io.containerd.grpc.v1.cri").join("sandboxes"))
            })
            .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
            .collect();
    list_files(Path::new("/var/lib/cni/results"))
        .into_iter()
        .filter(|path| {
            fs::read(path)
                .ok()
                .and_then(|text| serde_json::from_slice::<CniCacheEntry>(&text).ok())
                .is_some_and(|remembered| sandboxes.contains(&remembered.container_id))
        })
        .collect()
}

/// The kubelet links the log of every container from one shared directory.
fn log_links(layout: &ClusterLayout) -> Vec<PathBuf> {
    list_files(Path::new("/var/log/containers"))
        .into_iter()
        .filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(layout.root())))
        .collect()
}

fn list_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Directories that components create for stray files. They are removed when they are empty.
const SHARED_DIRECTORIES: [&str; 8] = [
    "/run/containerd/s",
    "/run/containerd",
    "/var/lib/cni/results",
    "/var/lib/cni/cache",
    "/var/lib/cni",
    "/var/log/containers",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet",
];

/// The kubelet's socket for device plugins has a fixed path, whatever the kubelet's directory. The kubelet
/// that started last owns it.
const DEVICE_PLUGIN_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// Removes a socket without a listener.
fn remove_dead_socket(path: &Path) {
    let answer = UnixStream::connect(path);
    if answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        fs::remove_file(path).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_leftovers_are_found_by_task_directory() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let layout = ClusterLayout::new(root.path().to_path_buf());
        for (id, address) in [
            ("one", Some("unix:///run/containerd/s/1234\n")),
            // Outside the directory of shim sockets: a task must not be able to make the scan remove another
            // file.
            ("two", Some("unix:///etc/passwd")),
            ("three", None),
        ] {
            let task = containerd_task_directory(&layout).join(id);
            fs::create_dir_all(&task).expect("writable");
            if let Some(address) = address {
                fs::write(task.join("address"), address).expect("writable");
            }
        }
        let mut leftovers = Leftovers::default();
        leftovers.scan(&layout);
        assert!(leftovers.containers.iter().eq(["one", "three", "two"]));
        assert!(leftovers.stray_files.iter().eq([Path::new("/run/containerd/s/1234")]));
    }

    #[test]
    fn later_scans_keep_earlier_leftovers() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let layout = ClusterLayout::new(root.path().to_path_buf());
        let task = containerd_task_directory(&layout).join("one");
        fs::create_dir_all(&task).expect("writable");
        let mut leftovers = Leftovers::default();
        leftovers.scan(&layout);
        fs::remove_dir_all(task).expect("it was there");
        leftovers.scan(&layout);
        assert!(leftovers.containers.contains("one"));
    }

    #[test]
    fn socket_is_removed_only_without_listener() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let path = root.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("it is free");
        remove_dead_socket(&path);
        assert!(path.exists());
        drop(listener);
        remove_dead_socket(&path);
        assert!(!path.exists());
    }
}
