//! What a node leaves outside its directory: control groups, and files in places that every
//! kubelet and containerd of the machine shares.

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

/// What belongs to the cluster outside its directory. It is found through what is inside, so
/// look before that is removed.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// The ids of containers, those of pods' sandboxes among them.
    containers: BTreeSet<String>,
    /// Sockets, links and records in shared directories.
    stray_files: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// Looks, and adds to what was seen before.
    pub(crate) fn scan(&mut self, layout: &ClusterLayout) {
        let tasks = list_subdirectories(&containerd_task_directory(layout));
        let names = tasks.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        self.containers.extend(names);
        self.stray_files.extend(shim_sockets(&tasks));
        self.stray_files.extend(cni_result_files(layout));
        self.stray_files.extend(log_links(layout));
    }

    /// The control groups of the containers, in every hierarchy that has them.
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

    /// Removes the control groups of the containers, and returns those that stay.
    pub(crate) async fn remove_control_groups(
        &self,
        clock: &dyn Clock,
    ) -> Result<Vec<PathBuf>, ClusterError> {
        // A group is busy until the last of its dead processes was collected.
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
        // The parent is every containerd's; it goes when no other has a container.
        for hierarchy in cgroup_hierarchies()? {
            fs::remove_dir(hierarchy.join(CONTAINERD_NAMESPACE)).unwrap_or_default();
        }
        self.control_groups()
    }

    /// Removes strays and the shared directories that are empty without them; returns what
    /// stays.
    pub(crate) fn remove_stray_files(&self) -> Vec<PathBuf> {
        for stray in &self.stray_files {
            fs::remove_file(stray).unwrap_or_default();
        }
        remove_dead_socket(Path::new(DEVICE_PLUGIN_SOCKET));
        for directory in SHARED_DIRECTORIES {
            // Refused while another cluster has something in it.
            fs::remove_dir(directory).unwrap_or_default();
        }
        self.stray_files.iter().filter(|stray| stray.symlink_metadata().is_ok()).cloned().collect()
    }
}

const KILL_ATTEMPTS: usize = 5;
const CGROUP_REMOVAL_ATTEMPTS: usize = 300;
const CGROUP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The namespace that kubelets use in containerd. Without groups for pods, containerd makes one
/// for each container below its name.
const CONTAINERD_NAMESPACE: &str = "k8s.io";

/// Where control groups are mounted.
fn cgroup_hierarchies() -> Result<Vec<PathBuf>, ClusterError> {
    let is_hierarchy = |mount: &mounts::MountInfoEntry| mount.filesystem.starts_with("cgroup");
    Ok(mounts::load_mounts()?
        .into_iter()
        .filter(is_hierarchy)
        .map(|mount| mount.mount_point)
        .collect())
}

/// containerd has a directory for each running container.
fn containerd_task_directory(layout: &ClusterLayout) -> PathBuf {
    layout
        .containerd_state_directory()
        .join("io.containerd.runtime.v2.task")
        .join(CONTAINERD_NAMESPACE)
}

fn collect_cgroup_processes(group: &Path, ids: &mut BTreeSet<i32>) {
    // A group may go away while we look.
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
    // The files in a group are not ours to remove; what stays is seen by the caller.
    fs::remove_dir(group).unwrap_or_default();
}

fn list_subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| it.path()).collect()
}

/// Each shim says in a file where its socket is.
fn shim_sockets(tasks: &[PathBuf]) -> Vec<PathBuf> {
    tasks
        .iter()
        .filter_map(|task| fs::read_to_string(task.join("address")).ok())
        .filter_map(|address| address.trim().strip_prefix("unix://").map(PathBuf::from))
        .filter(|socket| socket.starts_with(RUNTIME_DIRECTORY))
        .collect()
}

const RUNTIME_DIRECTORY: &str = "/run/containerd";

/// The network plugins' library remembers a result for each pod sandbox.
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

/// The kubelet links the log of every container from one directory.
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

/// Directories that components make for their strays. They go when nothing is in them.
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

/// The kubelet's socket for device plugins has one place, whatever its directory; the last
/// kubelet that started owns it.
const DEVICE_PLUGIN_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// Removes a socket that nobody listens on any more.
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
            // Not where shims put their sockets: nobody may make us remove another file.
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
