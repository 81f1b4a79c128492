//! One volume: publish, scrub, unpublish.

mod layout;

use std::ffi::OsStr;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use zeroize::Zeroizing;

use crate::compare_generation::{PayloadComparison, compare_generation};
use crate::directory::{
    DirectoryEntryKind, FileAttributes, OpenDirectory, VolumeDiskError, remove_if_empty,
};
use crate::error::PublishError;
use crate::fail_point::FailPoint;
use crate::file_path::FilePath;
use crate::generation::{SCRUB_GRACE, VolumeGeneration, VolumeGenerations};
use crate::memory_usage::{
    GrowthRequest, MemoryBudget, MemoryPurpose, TmpfsUsage, max_generation_size, max_marker_size,
};
use crate::mount::TmpfsMount;
use crate::mount_table::MountTable;
use crate::payload::{FileEntry, Payload};
use crate::volume_links::{DATA_LINK, DATA_LINK_TMP, LinkChanges};
use crate::volume_step::VolumeStep;
use layout::{
    VolumeLayout, byte_count, create_links, replace_and_remove_links, sync_tree, visit_files,
    write_file,
};

/// A directory whose files change all at once.
///
/// It uses the layout of the kubelet's atomic writer: each generation of files has its own
/// directory, `..data` is a link to the current one, and readers open links through `..data`. One
/// rename swaps the generation, so a reader sees either the old generation or the new one,
/// complete.
///
/// Retired generations stay as long as the volume. File watches that follow a link (as Go consumers
/// do) watch an inode of the generation that was current, and only events on that inode reveal a
/// swap. So after each swap, the volume writes to every file of every retired generation without
/// changing it. After [`SCRUB_GRACE`], [`AtomicVolume::scrub`] truncates these files; their watches
/// still fire.
///
/// A volume has one writer at a time. All calls block; on tmpfs, for microseconds.
#[derive(Debug)]
pub struct AtomicVolume {
    directory: OpenDirectory,
    mount: Option<TmpfsMount>,
    clock: SharedClock,
    /// Whether a swap may have happened whose watches were not triggered yet: always after a
    /// restart.
    watchers_unnotified: bool,
}

impl AtomicVolume {
    /// Opens a volume in an existing directory and adopts the content that an earlier process left.
    pub fn open(dir: &Path, clock: SharedClock) -> Result<Self, PublishError> {
        Self::open_with_fail_point(dir, clock, FailPoint::default())
    }

    /// Opens the volume on a tmpfs. The volume grows the tmpfs as needed, keeps it from the first
    /// publish on, and unmounts it in [`AtomicVolume::unpublish`].
    pub fn open_mounted(mount: TmpfsMount, clock: SharedClock) -> Result<Self, PublishError> {
        let mut volume = Self::open(mount.dir(), clock)?;
        volume.mount = Some(mount);
        Ok(volume)
    }

    /// Opens a volume whose changes pass a fail point.
    pub fn open_with_fail_point(
        dir: &Path,
        clock: SharedClock,
        fail_point: FailPoint,
    ) -> Result<Self, PublishError> {
        Ok(Self::in_directory(OpenDirectory::open(dir, fail_point)?, clock))
    }

    /// Opens the volume in an open directory, which need not be mounted yet.
    pub fn in_directory(directory: OpenDirectory, clock: SharedClock) -> Self {
        Self { directory, mount: None, clock, watchers_unnotified: true }
    }

    /// Sets the mount of the volume, which grows with the volume from now on.
    pub fn set_mount(&mut self, mount: TmpfsMount) {
        self.mount = Some(mount);
    }

    /// The directory of the volume.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// The usage of the volume's file system. On a tmpfs the call does not block.
    pub fn usage(&self) -> Result<TmpfsUsage, PublishError> {
        Ok(self.directory.usage()?)
    }

    /// The generation that readers see; `None` before the first complete publish.
    pub fn current_generation(&self) -> Result<Option<VolumeGeneration>, PublishError> {
        Ok(VolumeLayout::of(&self.directory)?.generations.current)
    }

    /// Whether readers see the generation of this name.
    pub fn shows_generation(&self, generation: &str) -> Result<bool, PublishError> {
        let is_linked = self
            .directory
            .read_link(DATA_LINK.as_ref())?
            .is_some_and(|target| target == generation);
        Ok(is_linked && self.directory.find_child(generation.as_ref())?.is_some())
    }

    /// Reads the file that readers see under `path`; `None` if there is none.
    pub fn load_file(
        &self,
        path: &FilePath,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, VolumeDiskError> {
        let Some(generation) = VolumeLayout::of(&self.directory)?.generations.current else {
            return Ok(None);
        };
        let Some(mut folder) = self.directory.find_child(generation.as_str().as_ref())? else {
            return Ok(None);
        };
        let (above, name) = path.as_str().rsplit_once('/').unwrap_or(("", path.as_str()));
        for part in above.split('/').filter(|part| !part.is_empty()) {
            let Some(child) = folder.find_child(part.as_ref())? else { return Ok(None) };
            folder = child;
        }
        Ok(folder.load_file(name.as_ref(), u64::MAX)?.map(Zeroizing::new))
    }

    /// Whether all files of the current generation have their links; `None` if there is no current
    /// generation.
    pub fn has_all_links(&self) -> Result<Option<bool>, PublishError> {
        let VolumeLayout { entries, generations } = VolumeLayout::of(&self.directory)?;
        let Some(current) = generations.current else { return Ok(None) };
        let root = self.directory.open_child(current.as_str().as_ref())?;
        let names = root.list()?;
        let tops: Vec<_> = names.iter().filter_map(|(name, _)| name.to_str()).collect();
        let changes = LinkChanges::desired(&entries, &tops);
        Ok(Some(changes.create.is_empty() && changes.replace.is_empty()))
    }

    /// Whether the volume has no entries except those that a crash can leave before the first
    /// publish is complete.
    pub fn has_no_content(&self) -> Result<bool, PublishError> {
        let VolumeLayout { entries, generations } = VolumeLayout::of(&self.directory)?;
        let own_links = LinkChanges::desired(&entries, &[]).remove;
        let is_leftover = |name: &OsStr| {
            own_links.iter().any(|link| link == name)
                || name == MARKER_DIR
                || generations.abandoned.iter().any(|generation| name == generation.as_str())
        };
        Ok(generations.current.is_none() && entries.keys().all(|name| is_leftover(name)))
    }

    /// Reads the marker; `None` if there is none.
    pub fn load_marker(&self) -> Result<Option<Vec<u8>>, PublishError> {
        let Some(marker_dir) = self.directory.find_child(MARKER_DIR.as_ref())? else {
            return Ok(None);
        };
        Ok(marker_dir.load_file(MARKER.as_ref(), MAX_MARKER_BYTES)?)
    }

    /// Replaces the marker atomically. Pods cannot read it. A marker above the size limit is still
    /// written for inspection, but a later process ignores it, and a warning is logged.
    pub fn write_marker(&self, marker: &[u8]) -> Result<(), PublishError> {
        if byte_count(marker) > MAX_MARKER_BYTES {
            let (dir, bytes) = (self.dir().display(), marker.len());
            tracing::warn!(%dir, bytes, "the volume marker is too large; after a restart the plugin does not know the content");
        }
        self.directory.reach_step(VolumeStep::WriteMarker);
        let marker_dir = if let Some(marker_dir) = self.directory.find_child(MARKER_DIR.as_ref())? {
            marker_dir
        } else {
            self.directory.remove(MARKER_DIR.as_ref())?;
            self.directory.create_child(MARKER_DIR.as_ref())?
        };
        marker_dir.remove(MARKER_TMP.as_ref())?;
        let gid = rustix::process::getegid().as_raw();
        let attributes = FileAttributes { mode: 0o600, gid };
        marker_dir.create_file(MARKER_TMP.as_ref(), marker, attributes)?;
        self.directory.reach_step(VolumeStep::ReplaceMarker);
        marker_dir.rename(MARKER_TMP.as_ref(), MARKER.as_ref())?;
        Ok(marker_dir.sync()?)
    }

    /// Sets the mode and group of the volume's directory if they differ.
    pub fn apply_root_attributes(&self, mode: u32, group: Option<u32>) -> Result<(), PublishError> {
        let gid = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        Ok(self.directory.ensure_attributes(FileAttributes { mode, gid })?)
    }

    /// Replaces the content of the volume with `files`.
    ///
    /// Files with equal content are not rewritten, but their modes and groups are corrected in
    /// place. The call first completes work that a crash left unfinished.
    ///
    /// The content of a retired generation stays on disk for readers that have it open. The caller
    /// must call [`AtomicVolume::scrub`] [`SCRUB_GRACE`] and a second later, and then at each
    /// [`ScrubOutcome::next_scrub`] until that is `None`. A caller that opens a volume of an
    /// earlier process must call it at once.
    ///
    /// # Errors
    ///
    /// The call can fail although readers already see `files`, because some watches could not be
    /// triggered. The next publish triggers all watches again, whatever its content.
    pub fn publish(&mut self, files: &[FileEntry<'_>]) -> Result<PublishOutcome, PublishError> {
        self.publish_with_budget(files, None)
    }

    /// Like [`AtomicVolume::publish`], within a memory budget. Equal content needs no memory.
    pub fn publish_with_budget(
        &mut self,
        files: &[FileEntry<'_>],
        budget: Option<&dyn MemoryBudget>,
    ) -> Result<PublishOutcome, PublishError> {
        let payload = Payload::parse(files).map_err(|problems| PublishError::InvalidPayload {
            dir: self.dir().to_owned(),
            problems,
        })?;
        let mut layout = VolumeLayout::of(&self.directory)?;
        for generation in std::mem::take(&mut layout.generations.abandoned) {
            self.directory.remove(generation.as_str().as_ref())?;
        }
        let group = rustix::process::getegid().as_raw();
        let comparison = match &layout.generations.current {
            Some(current) => compare_generation(&self.directory, current, &payload, group)?,
            None => PayloadComparison::Differs,
        };
        let links = LinkChanges::desired(&layout.entries, &payload.top_level_names());
        let published = match (comparison, layout.generations.current.take()) {
            (PayloadComparison::Equal { corrections }, Some(generation)) => {
                let corrected = !corrections.is_empty();
                for correction in corrections {
                    correction.apply()?;
                }
                create_links(&self.directory, &links)?;
                let changed =
                    if corrected { VolumeChange::Attributes } else { VolumeChange::Nothing };
                PublishOutcome {
                    change: changed,
                    generation,
                    retired_generations: layout.generations.retired.len(),
                    bytes_written: 0,
                }
            }
            (_, current) => {
                layout.generations.current = current;
                if let Some(budget) = budget {
                    self.claim_memory(&layout, &payload, budget)?;
                }
                self.write_and_swap(&mut layout, &payload, &links, group)?
            }
        };
        self.directory.reach_step(VolumeStep::UpdateLinks);
        replace_and_remove_links(&self.directory, &links)?;
        if let Some(mount) = &mut self.mount {
            mount.persist();
        }
        if self.watchers_unnotified {
            if !layout.generations.retired.is_empty() {
                self.directory.reach_step(VolumeStep::NotifyWatchers);
            }
            // A file that cannot be written to must not keep other watches from firing.
            let retired = layout.generations.retired.iter();
            let notified = retired
                .map(|generation| self.notify_watchers(generation))
                .fold(Ok(()), Result::and);
            self.watchers_unnotified = notified.is_err();
            notified?;
        }
        Ok(published)
    }

    /// Claims the memory of the next generation.
    fn claim_memory(
        &self,
        layout: &VolumeLayout,
        payload: &Payload<'_>,
        budget: &dyn MemoryBudget,
    ) -> Result<(), PublishError> {
        let TmpfsUsage { used, inode_bytes, page_size } = self.directory.usage()?;
        let files = payload.files().map(|entry| (&entry.path, byte_count(entry.content)));
        let is_first = layout.generations.current.is_none();
        let purpose = if is_first { MemoryPurpose::Mount } else { MemoryPurpose::Rotation };
        let now = self.clock.now();
        let is_settled = layout.generations.scrub_times().all(|(_, due)| due <= now);
        let used_after_scrub = if is_settled { used } else { inode_bytes };
        let needed = max_generation_size(files, page_size);
        let growth = GrowthRequest { used, used_after_scrub, needed, read_bytes: 0, purpose };
        let to_error =
            |source| PublishError::MemoryLimitExceeded { dir: self.dir().to_owned(), source };
        budget.claim(growth).map_err(to_error)
    }

    /// Writes the next generation and makes it the current one.
    fn write_and_swap(
        &mut self,
        layout: &mut VolumeLayout,
        payload: &Payload<'_>,
        links: &LinkChanges,
        group: u32,
    ) -> Result<PublishOutcome, PublishError> {
        let bytes = payload.files().map(|entry| byte_count(entry.content)).sum();
        if let Some(mount) = &self.mount {
            self.directory.reach_step(VolumeStep::GrowMount);
            let lengths = payload.files().map(|entry| byte_count(entry.content));
            mount.ensure_capacity(lengths.chain([max_marker_size(payload.files().count())]))?;
        }
        let generation = layout.generations.next_generation(self.clock.now());
        if let Err(error) = self.write_generation(&generation, payload, group) {
            // The next publish would remove it too, but a full disk needs the space now.
            if let Err(left) = self.directory.remove(generation.as_str().as_ref()) {
                tracing::debug!(error = %left, "could not remove an unfinished generation; the next publish removes it");
            }
            return Err(error.into());
        }
        self.directory.reach_step(VolumeStep::MakeLinks);
        create_links(&self.directory, links)?;
        self.directory.reach_step(VolumeStep::PrepareSwap);
        self.directory.remove(DATA_LINK_TMP.as_ref())?;
        self.directory.create_symlink(DATA_LINK_TMP.as_ref(), generation.as_str().as_ref())?;
        self.directory.reach_step(VolumeStep::Swap);
        self.directory.rename(DATA_LINK_TMP.as_ref(), DATA_LINK.as_ref())?;
        self.watchers_unnotified = true;
        self.directory.reach_step(VolumeStep::FlushSwap);
        layout.generations.retired.extend(layout.generations.current.take());
        self.directory.sync()?;
        let retired = layout.generations.retired.len();
        Ok(PublishOutcome {
            change: VolumeChange::Content,
            generation,
            retired_generations: retired,
            bytes_written: bytes,
        })
    }

    fn write_generation(
        &self,
        generation: &VolumeGeneration,
        payload: &Payload<'_>,
        group: u32,
    ) -> Result<(), VolumeDiskError> {
        self.directory.reach_step(VolumeStep::MakeGeneration);
        let root = self.directory.create_child(generation.as_str().as_ref())?;
        for entry in payload.files() {
            self.directory.reach_step(VolumeStep::WriteFiles);
            write_file(&root, entry, group)?;
        }
        self.directory.reach_step(VolumeStep::FlushGeneration);
        sync_tree(&root)?;
        self.directory.sync()
    }

    /// Triggers the file watches on a retired generation.
    fn notify_watchers(&self, generation: &VolumeGeneration) -> Result<(), VolumeDiskError> {
        visit_files(&self.directory, generation, &mut |folder, name| folder.touch_file(name))
    }

    /// Truncates the files of the generations that retired at least [`SCRUB_GRACE`] ago.
    ///
    /// Generations that a mount shows are skipped: a container with a `subPath` sees that file and
    /// never a later one.
    ///
    /// # Errors
    ///
    /// If a file cannot be truncated, the call still tries all others and then returns the first
    /// error. Retry after a pause: truncated files are not touched again.
    pub fn scrub(&mut self) -> Result<ScrubOutcome, PublishError> {
        let now = self.clock.now();
        let layout = VolumeLayout::of(&self.directory)?;
        let shown = MountTable::load()?.mounted_generations(&self.directory.device()?);
        let mut scrubbed = ScrubOutcome::default();
        let mut outcome = Ok(());
        for (generation, due) in layout.generations.scrub_times() {
            let is_shown = shown.contains(generation);
            scrubbed.mounted_generations += usize::from(is_shown);
            if is_shown || due > now {
                let later = now.saturating_add(SCRUB_GRACE).unwrap_or(Timestamp::MAX);
                let next = if due > now { due } else { later };
                scrubbed.next_scrub =
                    Some(scrubbed.next_scrub.map_or(next, |earliest| earliest.min(next)));
                continue;
            }
            let visited = visit_files(&self.directory, generation, &mut |folder, name| {
                let bytes = folder.len(name)?;
                if bytes > 0 {
                    self.directory.reach_step(VolumeStep::EmptyRetired);
                    folder.truncate_file(name)?;
                    scrubbed.truncated_files += 1;
                    scrubbed.truncated_bytes = scrubbed.truncated_bytes.saturating_add(bytes);
                }
                Ok(())
            });
            outcome = outcome.and(visited);
        }
        outcome?;
        Ok(scrubbed)
    }

    /// Removes the volume: links, generations and mount, and the directory itself unless it
    /// contains other files. The call can be repeated after any failure.
    pub fn unpublish(mut self) -> Result<(), PublishError> {
        self.remove_content()?;
        let mount = self.mount.take();
        let (dir, fail_point) = (self.dir().to_owned(), self.directory.fail_point());
        drop(self);
        if let Some(mount) = mount {
            fail_point.reach_step(VolumeStep::Unmount);
            mount.unmount()?;
        }
        fail_point.reach_step(VolumeStep::RemoveTarget);
        Ok(remove_if_empty(&dir)?)
    }

    /// Truncates and removes the content of the volume, but neither its mount nor its directory.
    pub fn remove_content(&self) -> Result<(), PublishError> {
        Ok(remove_volume_content(&self.directory)?)
    }
}

/// Truncates and removes the entries that belong to the layout. `..data` goes first: before that
/// the volume is complete, after it there is no volume, wherever a crash falls.
fn remove_volume_content(directory: &OpenDirectory) -> Result<(), VolumeDiskError> {
    let layout = VolumeLayout::of(directory)?;
    directory.reach_step(VolumeStep::RemoveData);
    if matches!(layout.entries.get(OsStr::new(DATA_LINK)), Some(DirectoryEntryKind::Symlink(_))) {
        directory.remove(DATA_LINK.as_ref())?;
    }
    for name in LinkChanges::desired(&layout.entries, &[]).remove {
        directory.reach_step(VolumeStep::RemoveLinks);
        directory.remove(&name)?;
    }
    directory.reach_step(VolumeStep::RemoveMarker);
    if matches!(layout.entries.get(OsStr::new(MARKER_DIR)), Some(DirectoryEntryKind::Directory)) {
        directory.remove(MARKER_DIR.as_ref())?;
    }
    let VolumeGenerations { current, retired, abandoned } = layout.generations;
    for generation in retired.into_iter().chain(abandoned).chain(current) {
        directory.reach_step(VolumeStep::RemoveGenerations);
        directory.remove(generation.as_str().as_ref())?;
    }
    Ok(())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishOutcome {
    /// What the publish changed.
    pub change: VolumeChange,
    /// The generation that readers see.
    pub generation: VolumeGeneration,
    /// The number of retired generations that the volume keeps for watches.
    pub retired_generations: usize,
    /// The number of content bytes written.
    pub bytes_written: u64,
}

/// What a publish changed in a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeChange {
    /// Nothing: content, modes and groups were correct.
    Nothing,
    /// Modes or groups, in place.
    Attributes,
    /// The content: there is a new generation.
    Content,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubOutcome {
    /// The number of truncated files.
    pub truncated_files: usize,
    /// Their size before, in bytes.
    pub truncated_bytes: u64,
    /// The number of retired generations that a mount still shows.
    pub mounted_generations: usize,
    /// When to scrub again; `None` if no retired generation has content.
    pub next_scrub: Option<Timestamp>,
}

/// The directory of the marker. Readers of the layout skip such names. It is a directory because
/// the marker is written at every poll: watches on the volume's directory get no events from a
/// subdirectory.
const MARKER_DIR: &str = "..lanyard";
/// The name of the marker in its directory.
const MARKER: &str = "marker";
/// The path of the marker in the volume.
pub const MARKER_PATH: &str = "..lanyard/marker";
/// The temporary name of the next [`MARKER`].
const MARKER_TMP: &str = "marker_tmp";
/// The largest marker that is read, in bytes, so that a planted file cannot exhaust the plugin's
/// memory.
pub const MAX_MARKER_BYTES: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
