//! Removes a cluster in whatever state it is.
//!
//! The components are not involved: their state is discarded, and any of them may hang. The order prevents
//! that a running part recreates a removed one: first the kubelet, then containers, then the other processes,
//! then mounts, then files.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use lanyard_clock::Clock;

use super::{is_cluster_directory, lock_cluster};
use crate::component::ClusterComponent;
use crate::error::ClusterError;
use crate::layout::ClusterLayout;
use crate::leftovers::Leftovers;
use crate::mounts;
use crate::processes::{self, RecordedProcess, kill_all, marked_processes};

/// Removes the cluster and its directory. Returns whether there was a cluster.
pub(super) async fn down(layout: &ClusterLayout, clock: &dyn Clock) -> Result<bool, ClusterError> {
    let exists = layout.root().is_dir();
    if !exists && marked_processes(layout).is_empty() {
        return Ok(false);
    }
    let held = if exists {
        if !is_cluster_directory(layout) {
            return Err(ClusterError::NotAClusterDirectory(layout.root().to_path_buf()));
        }
        Some(lock_cluster(layout)?)
    } else {
        None
    };
    remove_all_but_lock(layout, clock).await?;
    remove_directory(layout)?;
    drop(held);
    Ok(true)
}

/// Removes everything but the directory and its lock.
pub(super) async fn remove_all_but_lock(
    layout: &ClusterLayout,
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    let mut leftovers = Leftovers::default();
    kill_recorded_processes(layout, &[ClusterComponent::Kubelet], clock).await?;
    leftovers.scan(layout);
    // The containerd shims still run and collect the dead processes of the containers.
    leftovers.kill_containers(clock).await?;
    kill_recorded_processes(layout, &ClusterComponent::ALL, clock).await?;
    kill_marked_processes(layout, clock).await?;
    // No component manages a container any more that was starting just now.
    leftovers.scan(layout);
    leftovers.kill_containers(clock).await?;

    let mut remains = describe_paths("is still mounted", mounts::unmount_below(layout.root())?);
    let groups = leftovers.remove_control_groups(clock).await?;
    remains.extend(describe_paths("is a control group in use", groups));
    remains.extend(describe_paths("could not be removed", leftovers.remove_stray_files()));
    if !remains.is_empty() {
        // Removing files now could delete files of others through a mount that remains.
        return Err(ClusterError::LeftoversRemain(remains));
    }
    remove_content(layout)
}

fn describe_paths(what: &str, paths: Vec<PathBuf>) -> Vec<String> {
    paths.into_iter().map(|path| format!("{} {what}", path.display())).collect()
}

async fn kill_recorded_processes(
    layout: &ClusterLayout,
    components: &[ClusterComponent],
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    let running: Vec<(String, RecordedProcess)> = components
        .iter()
        .filter_map(|it| Some((it.name().to_owned(), processes::recorded_process(layout, *it)?)))
        .collect();
    kill_all(&running, clock).await
}

/// Kills the processes with the cluster's environment variable until none is left: a process may start others
/// in the meantime.
async fn kill_marked_processes(
    layout: &ClusterLayout,
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    for _ in 0..KILL_ATTEMPTS {
        let found = marked_processes(layout);
        if found.is_empty() {
            return Ok(());
        }
        kill_all(&found, clock).await?;
    }
    Ok(())
}

const KILL_ATTEMPTS: usize = 5;

/// Removes the content of the directory except the lock.
fn remove_content(layout: &ClusterLayout) -> Result<(), ClusterError> {
    let entries = match fs::read_dir(layout.root()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ClusterError::file("list", layout.root())(source)),
    };
    for entry in entries {
        let path = entry.map_err(ClusterError::file("list", layout.root()))?.path();
        if path == layout.lock_file() {
            continue;
        }
        let removed = if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(ClusterError::file("remove", &path))?;
    }
    Ok(())
}

fn remove_directory(layout: &ClusterLayout) -> Result<(), ClusterError> {
    let missing_is_fine = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    missing_is_fine(fs::remove_file(layout.lock_file()))
        .and_then(|()| missing_is_fine(fs::remove_dir(layout.root())))
        .map_err(ClusterError::file("remove", layout.root()))
}
