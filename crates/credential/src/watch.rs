//! File events of the folder in which a credential file lies.
//!
//! The folder is watched and not the file: a Kubernetes volume replaces its content by renaming a
//! link in the folder, after which a watch on the file hangs on to an inode that nobody writes any
//! more. Events only ever hasten a read; what was missed is found by polling.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

use crate::probe::FolderId;

/// A watch on a folder that may vanish and come back.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    folder: PathBuf,
    watcher: Option<RecommendedWatcher>,
    armed: Option<FolderId>,
    signal: Arc<Signal>,
}

/// What the watcher's thread and the follower share.
#[derive(Debug)]
struct Signal {
    file_name: std::ffi::OsString,
    folder: PathBuf,
    changed: Arc<Notify>,
    alive: Arc<AtomicBool>,
}

impl FolderWatch {
    /// A watch on the folder of `path` that is not armed yet; `changed` is told of each event, and
    /// `alive` shows whether events can be expected.
    pub(crate) fn new(path: &Path, changed: Arc<Notify>, alive: Arc<AtomicBool>) -> Self {
        let folder = folder_of(path);
        let file_name = path.file_name().unwrap_or_default().to_owned();
        let signal = Arc::new(Signal { file_name, folder: folder.clone(), changed, alive });
        Self { folder, watcher: None, armed: None, signal }
    }

    /// Arms the watch if it is not armed on the folder that is there now.
    ///
    /// Failing is no error: the system may have no watches left, and polling goes on.
    pub(crate) fn arm(&mut self, folder: Option<FolderId>) {
        let alive = self.signal.alive.load(Ordering::Relaxed);
        if alive && folder.is_some() && folder == self.armed {
            return;
        }
        self.armed = None;
        self.signal.alive.store(false, Ordering::Relaxed);
        if folder.is_none() {
            return;
        }
        if self.watcher.is_none() {
            self.watcher = watcher(Arc::clone(&self.signal));
        }
        let Some(watcher) = &mut self.watcher else { return };
        if let Err(error) = watcher.unwatch(&self.folder) {
            tracing::trace!(%error, "no watch to remove");
        }
        match watcher.watch(&self.folder, RecursiveMode::NonRecursive) {
            Ok(()) => {
                self.armed = folder;
                self.signal.alive.store(true, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::debug!(folder = %self.folder.display(), %error, "cannot watch the folder, polling");
            }
        }
    }
}

fn watcher(signal: Arc<Signal>) -> Option<RecommendedWatcher> {
    let handler = move |event: notify::Result<notify::Event>| signal.on(event);
    match notify::recommended_watcher(handler) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::debug!(%error, "no file events, polling");
            None
        }
    }
}

impl Signal {
    fn on(&self, event: notify::Result<notify::Event>) {
        match event {
            Ok(event) => {
                if event.kind.is_remove() && event.paths.contains(&self.folder) {
                    self.alive.store(false, Ordering::Relaxed);
                }
                if concerns(&event, &self.folder, &self.file_name) {
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

/// The folder of a file, as it can be opened.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Whether an event may mean that the file has other content.
///
/// Reading is no change; our own reads would otherwise wake us for ever. Everything else that
/// touches the file, the links of an atomic writer (`..data`) or the folder itself is one, and so
/// is an overflow, after which anything may have happened.
fn concerns(event: &notify::Event, folder: &Path, file_name: &std::ffi::OsStr) -> bool {
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

    fn concerned(kind: EventKind, path: &str) -> bool {
        let event = Event::new(kind).add_path(PathBuf::from(path));
        concerns(&event, Path::new("/mnt/certs"), "identity.json".as_ref())
    }

    #[test]
    fn every_way_of_changing_the_file_is_noticed() {
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
            assert!(concerned(kind, path), "{kind:?} {path}");
        }
    }

    #[test]
    fn reading_and_the_neighbours_are_passed_over() {
        let file = "/mnt/certs/identity.json";
        let cases = [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), file),
            (EventKind::Access(AccessKind::Read), file),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), file),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), "/mnt/certs"),
            (EventKind::Modify(ModifyKind::Data(DataChange::Any)), "/mnt/certs/other.json"),
        ];
        for (kind, path) in cases {
            assert!(!concerned(kind, path), "{kind:?} {path}");
        }
    }

    #[test]
    fn an_overflow_concerns_everybody() {
        let event = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        assert!(concerns(&event, Path::new("/mnt/certs"), "identity.json".as_ref()));
    }
}
