//! File events of the folder that contains a credential file.
//!
//! The watch is on the folder and not on the file: a Kubernetes volume replaces its content by renaming a
//! symbolic link in the folder, after which a watch on the file would observe an unused inode. Events only
//! make a read happen earlier; polling finds changes without events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::file_snapshot::{FolderIdentity, folder_of};

/// A watch on a folder that may be deleted and recreated.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    folder: PathBuf,
    watcher: Option<RecommendedWatcher>,
    watched: Option<FolderIdentity>,
    signal: Arc<WatchSignal>,
}

/// State that the watcher's thread and the follower share.
#[derive(Debug)]
struct WatchSignal {
    file_name: std::ffi::OsString,
    folder: PathBuf,
    changed: Arc<Notify>,
    alive: Arc<AtomicBool>,
}

impl FolderWatch {
    /// Creates an unarmed watch on the folder of `path`. It notifies `changed` of each event and sets `alive`
    /// while events can be expected.
    pub(crate) fn new(path: &Path, changed: Arc<Notify>, alive: Arc<AtomicBool>) -> Self {
        let folder = folder_of(path);
        let file_name = path.file_name().unwrap_or_default().to_owned();
        let signal = Arc::new(WatchSignal { file_name, folder: folder.clone(), changed, alive });
        Self { folder, watcher: None, watched: None, signal }
    }

    /// Arms the watch if it is not armed on the current folder.
    ///
    /// A failure is not an error: the system may have no watches left, and polling continues.
    pub(crate) fn ensure_watched(&mut self, folder: Option<FolderIdentity>) {
        let alive = self.signal.alive.load(Ordering::Relaxed);
        if alive && folder.is_some() && folder == self.watched {
            return;
        }
        self.watched = None;
        self.signal.alive.store(false, Ordering::Relaxed);
        if folder.is_none() {
            return;
        }
        if self.watcher.is_none() {
            self.watcher = create_watcher(Arc::clone(&self.signal));
        }
        let Some(watcher) = &mut self.watcher else { return };
        if let Err(error) = watcher.unwatch(&self.folder) {
            tracing::trace!(%error, "no watch to remove");
        }
        match watcher.watch(&self.folder, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.watched = folder;
                self.signal.alive.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "cannot watch the folder, polling");
            }
        }
    }
}

fn create_watcher(signal: Arc<WatchSignal>) -> Option<RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| signal.handle_event(event);
    match notify::recommended_watcher(handler) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::debug!(%error, "no file events, polling");
            None
        }
    }
}

impl WatchSignal {
    fn handle_event(&self, event: notify::Result<notify::Event>) {
        match event {
            Ok(event) => {
                if event.kind.is_remove() && event.paths.contains(&self.folder) {
                    self.alive.store(false, Ordering::Relaxed);
                }
                if is_relevant(&event, &self.folder, &self.file_name) {
                    self.changed.notify_one();
                }
            }
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "the file events failed");
                self.alive.store(false, Ordering::Relaxed);
                self.changed.notify_one();
            }
        }
    }
}

/// Whether an event may indicate new content of the file.
///
/// Access events are not relevant: the follower's own reads would wake it forever. All other events of the
/// file, of the links of an atomic writer (`..data`) and of the folder itself are relevant, and so is an
/// overflow, which may hide any event.
fn is_relevant(event: &notify::Event, folder: &Path, file_name: &std::ffi::OsStr) -> bool {
    if event.need_rescan() {
        return true;
    }
    match event.kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    event.paths.is_empty()
        || event.paths.iter().any(|path| {
            path == folder
                || path.file_name().is_some_and(|name| {
                    name == file_name || name.as_encoded_bytes().starts_with(b"..")
                })
        })
}

#[cfg(test)]
mod tests {
    use notify::Event;
    use notify::event::{
        CreateKind, DataChange, Flag, MetadataKind, ModifyKind, RemoveKind, RenameMode,
    };

    use super::*;

    fn is_relevant_event(kind: EventKind, path: &str) -> bool {
        let event = Event::new(kind).add_path(PathBuf::from(path));
        is_relevant(&event, Path::new("/mnt/certs"), "identity.json".as_ref())
    }

    #[test]
    fn events_that_change_the_file_are_relevant() {
        let file = "/mnt/certs/identity.json";
        let close_write = EventKind::Access(AccessKind::Close(AccessMode::Write));
        let moved = EventKind::Modify(ModifyKind::Name(RenameMode::To));
        let cases = [
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), file),
            (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), file),
            (EventKind::Create(CreateKind::File), file),
            (EventKind::Remove(RemoveKind::File), file),
            (moved, file),
            (close_write, file),
            (moved, "/mnt/certs/..data"),
            (EventKind::Create(CreateKind::Folder), "/mnt/certs/..2026_01_01_00_00_00.1"),
            (EventKind::Remove(RemoveKind::Folder), "/mnt/certs"),
            (EventKind::Modify(ModifyKind::Metadata(MetadataKind::Any)), "/mnt/certs"),
        ];
        for (kind, path) in cases {
            assert!(is_relevant_event(kind, path), "{kind:?} {path}");
        }
    }

    #[test]
    fn reads_and_other_files_are_ignored() {
        let file = "/mnt/certs/identity.json";
        let cases = [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), file),
            (EventKind::Access(AccessKind::Read), file),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), file),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "/mnt/certs"),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), "/mnt/certs/other.json"),
        ];
        for (kind, path) in cases {
            assert!(!is_relevant_event(kind, path), "{kind:?} {path}");
        }
    }

    #[test]
    fn queue_overflow_is_always_relevant() {
        let event = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(is_relevant(&event, Path::new("/mnt/certs"), "identity.json".as_ref()));
    }
}
