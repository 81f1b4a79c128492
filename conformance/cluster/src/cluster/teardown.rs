//! Taking a cluster away, from whatever state it is in.
//!
//! Nothing is asked of the components: their state is thrown away, and any of them may hang. The
//! order is that in which nobody can undo what was done: first those that start things, then
//! what they started, then what is mounted, then files.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use lanyard_clock::Clock;

use super::{is_ours, lock};
use crate::component::Component;
use crate::error::ClusterError;
use crate::layout::Layout;
use crate::leftovers::Leftovers;
use crate::mounts;
use crate::processes::{self, Process, kill_all, marked};

/// Takes everything away; returns whether there was anything.
pub(super) async fn down(layout: &Layout, clock: &dyn Clock) -> Result<bool, ClusterError> {
    let exists = layout.root().is_dir();
    if !exists && marked(layout).is_empty() {
        return Ok(false);
    }
    let held = if exists {
        if !is_ours(layout) {
            return Err(ClusterError::ForeignDirectory(layout.root().to_path_buf()));
        }
        Some(lock(layout)?)
    } else {
        None
    };
    clear(layout, clock).await?;
    remove_directory(layout)?;
    drop(held);
    Ok(true)
}

/// Takes away everything but the directory and its lock.
pub(super) async fn clear(layout: &Layout, clock: &dyn Clock) -> Result<(), ClusterError> {
    let mut leftovers = Leftovers::default();
    kill_recorded(layout, &[Component::Kubelet], clock).await?;
    leftovers.observe(layout);
    // The shims still live, and collect the containers' dead processes.
    leftovers.kill_containers(clock).await?;
    kill_recorded(layout, &Component::ALL, clock).await?;
    kill_marked(layout, clock).await?;
    // A container that was being started belongs to nobody now.
    leftovers.observe(layout);
    leftovers.kill_containers(clock).await?;

    let mut remains = named("is still mounted", mounts::unmount_below(layout.root())?);
    let groups = leftovers.remove_control_groups(clock).await?;
    remains.extend(named("is a control group that is in use", groups));
    remains.extend(named("could not be removed", leftovers.remove_strays()));
    if !remains.is_empty() {
        // Removing files now could remove somebody else's, through a mount.
        return Err(ClusterError::Remains(remains));
    }
    remove_content(layout)
}

fn named(what: &str, paths: Vec<PathBuf>) -> Vec<String> {
    paths.into_iter().map(|path| format!("{} {what}", path.display())).collect()
}

async fn kill_recorded(
    layout: &Layout,
    components: &[Component],
    clock: &dyn Clock,
) -> Result<(), ClusterError> {
    let running: Vec<(String, Process)> = components
        .iter()
        .filter_map(|it| Some((it.name().to_owned(), processes::running(layout, *it)?)))
        .collect();
    kill_all(&running, clock).await
}

/// Kills what carries the mark, until nothing does: it may start more while we look.
async fn kill_marked(layout: &Layout, clock: &dyn Clock) -> Result<(), ClusterError> {
    for _ in 0..ROUNDS {
        let found = marked(layout);
        if found.is_empty() {
            return Ok(());
        }
        kill_all(&found, clock).await?;
    }
    Ok(())
}

const ROUNDS: usize = 5;

/// Removes what is in the directory, and keeps the lock.
fn remove_content(layout: &Layout) -> Result<(), ClusterError> {
    let entries = match fs::read_dir(layout.root()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(ClusterError::file("list", layout.root())(source)),
    };
    for entry in entries {
        let path = entry.map_err(ClusterError::file("list", layout.root()))?.path();
        if path == layout.lock() {
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

fn remove_directory(layout: &Layout) -> Result<(), ClusterError> {
    let missing_is_fine = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    missing_is_fine(fs::remove_file(layout.lock()))
        .and_then(|()| missing_is_fine(fs::remove_dir(layout.root())))
        .map_err(ClusterError::file("remove", layout.root()))
}
