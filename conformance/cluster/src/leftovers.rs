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
use crate::layout::Layout;
use crate::mounts;
use crate::processes::{Process, kill_all, name_of};

/// What belongs to the cluster outside its directory. It is found through what is inside, so
/// look before that is removed.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// The ids of containers, those of pods' sandboxes among them.
    containers: BTreeSet<String>,
    /// Sockets, links and records in shared directories.
    strays: BTreeSet<PathBuf>,
}

impl Leftovers {
    /// Looks, and adds to what was seen before.
    pub(crate) fn observe(&mut self, layout: &Layout) {
        let tasks = directories(&tasks(layout));
        let names = tasks.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        self.containers.extend(names);
        self.strays.extend(shim_sockets(&tasks));
        self.strays.extend(network_results(layout));
        self.strays.extend(log_links(layout));
    }

    /// The control groups of the containers, in every hierarchy that has them.
    fn control_groups(&self) -> Result<Vec<PathBuf>, ClusterError> {
        let hierarchies = hierarchies()?;
        Ok(hierarchies
            .iter()
            .flat_map(|hierarchy| {
                self.containers.iter().map(|id| hierarchy.join(NAMESPACE).join(id))
            })
            .filter(|group| group.is_dir())
            .collect())
    }

    /// Kills every process in the containers.
    pub(crate) async fn kill_containers(&self, clock: &dyn Clock) -> Result<(), ClusterError> {
        // A container can fork while it is being killed.
        for _ in 0..ROUNDS {
            let mut ids = BTreeSet::new();
            for group in self.control_groups()? {
                collect_processes(&group, &mut ids);
            }
            let processes: Vec<(String, Process)> = ids
                .into_iter()
                .filter_map(|pid| {
                    Some((format!("container process {}", name_of(pid)), Process::observe(pid)?))
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
        for _ in 0..GROUP_ROUNDS {
            let groups = self.control_groups()?;
            if groups.is_empty() {
                break;
            }
            for group in &groups {
                remove_group(group);
            }
            clock.sleep(GROUP_PACE).await;
        }
        // The parent is every containerd's; it goes when no other has a container.
        for hierarchy in hierarchies()? {
            fs::remove_dir(hierarchy.join(NAMESPACE)).unwrap_or_default();
        }
        self.control_groups()
    }

    /// Removes strays and the shared directories that are empty without them; returns what
    /// stays.
    pub(crate) fn remove_strays(&self) -> Vec<PathBuf> {
        for stray in &self.strays {
            fs::remove_file(stray).unwrap_or_default();
        }
        remove_dead_socket(Path::new(DEVICE_SOCKET));
        for directory in SHARED {
            // Refused while another cluster has something in it.
            fs::remove_dir(directory).unwrap_or_default();
        }
        self.strays.iter().filter(|stray| stray.symlink_metadata().is_ok()).cloned().collect()
    }
}

const ROUNDS: usize = 5;
const GROUP_ROUNDS: usize = 300;
const GROUP_PACE: Duration = Duration::from_millis(20);

/// The namespace that kubelets use in containerd. Without groups for pods, containerd makes one
/// for each container below its name.
const NAMESPACE: &str = "k8s.io";

/// Where control groups are mounted.
fn hierarchies() -> Result<Vec<PathBuf>, ClusterError> {
    let is_hierarchy = |mount: &mounts::Mount| mount.filesystem.starts_with("cgroup");
    Ok(mounts::load()?.into_iter().filter(is_hierarchy).map(|mount| mount.point).collect())
}

/// containerd has a directory for each running container.
fn tasks(layout: &Layout) -> PathBuf {
    layout.containerd_state().join("io.containerd.runtime.v2.task").join(NAMESPACE)
}

fn collect_processes(group: &Path, ids: &mut BTreeSet<i32>) {
    // A group may go away while we look.
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    ids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for below in directories(group) {
        collect_processes(&below, ids);
    }
}

fn remove_group(group: &Path) {
    for below in directories(group) {
        remove_group(&below);
    }
    // The files in a group are not ours to remove; what stays is seen by the caller.
    fs::remove_dir(group).unwrap_or_default();
}

fn directories(directory: &Path) -> Vec<PathBuf> {
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
fn network_results(layout: &Layout) -> Vec<PathBuf> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Remembered {
        container_id: String,
    }
    let sandboxes: BTreeSet<String> = [layout.containerd_state(), layout.containerd_root()]
        .iter()
        .flat_map(|place| directories(&place.join("io.containerd.grpc.v1.cri").join("sandboxes")))
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .collect();
    files(Path::new("/var/lib/cni/results"))
        .into_iter()
        .filter(|path| {
            fs::read(path)
                .ok()
                .and_then(|text| serde_json::from_slice::<Remembered>(&text).ok())
                .is_some_and(|remembered| sandboxes.contains(&remembered.container_id))
        })
        .collect()
}

/// The kubelet links the log of every container from one directory.
fn log_links(layout: &Layout) -> Vec<PathBuf> {
    files(Path::new("/var/log/containers"))
        .into_iter()
        .filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(layout.root())))
        .collect()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Directories that components make for their strays. They go when nothing is in them.
const SHARED: [&str; 8] = [
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
const DEVICE_SOCKET: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

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
    fn what_a_container_left_is_found_by_its_directory() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let layout = Layout::new(root.path().to_path_buf());
        for (id, address) in [
            ("one", Some("unix:///run/containerd/s/1234\n")),
            // Not where shims put their sockets: nobody may make us remove another file.
            ("two", Some("unix:///etc/passwd")),
            ("three", None),
        ] {
            let task = tasks(&layout).join(id);
            fs::create_dir_all(&task).expect("writable");
            if let Some(address) = address {
                fs::write(task.join("address"), address).expect("writable");
            }
        }
        let mut leftovers = Leftovers::default();
        leftovers.observe(&layout);
        assert!(leftovers.containers.iter().eq(["one", "three", "two"]));
        assert!(leftovers.strays.iter().eq([Path::new("/run/containerd/s/1234")]));
    }

    #[test]
    fn what_was_seen_once_is_not_forgotten() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let layout = Layout::new(root.path().to_path_buf());
        let task = tasks(&layout).join("one");
        fs::create_dir_all(&task).expect("writable");
        let mut leftovers = Leftovers::default();
        leftovers.observe(&layout);
        fs::remove_dir_all(task).expect("it was there");
        leftovers.observe(&layout);
        assert!(leftovers.containers.contains("one"));
    }

    #[test]
    fn a_socket_goes_only_when_nobody_listens() {
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
