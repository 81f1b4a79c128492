//! One volume: publish, scrub, unpublish.

mod layout;

use std::ffi::OsStr;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_keyvault::SharedSecretBytes;

use crate::compare_generation::{PayloadComparison, compare_generation};
use crate::directory::{
    DirectoryEntryKind, FileAttributes, OpenDirectory, VolumeDiskError, remove_if_empty,
};
use crate::error::PublishError;
use crate::fail_point::FailPoint;
use crate::file_path::FilePath;
use crate::generation::{SCRUB_GRACE, VolumeGeneration, VolumeGenerations};
use crate::memory_limit::{
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
/// The layout is that of the kubelet's atomic writer: each generation of files lies in a
/// directory of its own, `..data` is a link to the current one, and what readers open are links
/// through `..data`. A swap is one rename, so a reader sees one whole generation or the other.
///
/// Retired generations stay as long as the volume. Watchers that follow a link (as Go consumers
/// do) watch an inode of the generation that they found, and hear of a swap only through that
/// inode; so after each swap every file of every retired generation is written to, without a
/// change. After a grace their content is truncated ([`AtomicVolume::scrub`]); they still wake watchers.
///
/// A volume has one writer at a time. All calls block; on tmpfs, for microseconds.
#[derive(Debug)]
pub struct AtomicVolume {
    directory: OpenDirectory,
    mount: Option<TmpfsMount>,
    clock: SharedClock,
    /// Whether a swap may have happened whose watchers were not told: always after a restart.
    watchers_unnotified: bool,
}

impl AtomicVolume {
    /// Opens a volume in a directory that exists; whatever an earlier process left is taken over.
    pub fn open(dir: &Path, clock: SharedClock) -> Result<Self, PublishError> {
        Self::open_with_fail_point(dir, clock, FailPoint::default())
    }

    /// Opens the volume on a tmpfs, which grows with it, is kept from the first publish on and
    /// unmounted by [`AtomicVolume::unpublish`].
    pub fn open_mounted(mount: TmpfsMount, clock: SharedClock) -> Result<Self, PublishError> {
        let mut volume = Self::open(mount.dir(), clock)?;
        volume.mount = Some(mount);
        Ok(volume)
    }

    pub(crate) fn open_with_fail_point(
        dir: &Path,
        clock: SharedClock,
        fuse: FailPoint,
    ) -> Result<Self, PublishError> {
        Ok(Self::in_directory(OpenDirectory::open(dir, fuse)?, clock))
    }

    /// The volume in an open directory, which may be mounted nowhere yet.
    pub(crate) fn in_directory(directory: OpenDirectory, clock: SharedClock) -> Self {
        Self { directory, mount: None, clock, watchers_unnotified: true }
    }

    /// Names the mount that the volume lies on, which grows with it from now on.
    pub(crate) fn set_mount(&mut self, mount: TmpfsMount) {
        self.mount = Some(mount);
    }

    /// Where the volume is.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// What the file system of the volume holds. It does not block where that is a tmpfs.
    pub(crate) fn usage(&self) -> Result<TmpfsUsage, PublishError> {
        Ok(self.directory.usage()?)
    }

    /// The generation that readers see; nothing while the volume has never been published whole.
    pub fn current_generation(&self) -> Result<Option<VolumeGeneration>, PublishError> {
        Ok(VolumeLayout::of(&self.directory)?.generations.current)
    }

    /// Whether readers see the generation of this name.
    pub(crate) fn shows_generation(&self, generation: &str) -> Result<bool, PublishError> {
        let is_linked = self
            .directory
            .read_link(DATA_LINK.as_ref())?
            .is_some_and(|target| target == generation);
        Ok(is_linked && self.directory.find_child(generation.as_ref())?.is_some())
    }

    /// What readers find under `path` now.
    pub(crate) fn load_file(
        &self,
        path: &FilePath,
    ) -> Result<Option<SharedSecretBytes>, VolumeDiskError> {
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
        Ok(folder.load_file(name.as_ref(), u64::MAX)?.map(SharedSecretBytes::from))
    }

    /// Whether every name in the generation that readers see leads into it. Nothing, where there
    /// is no such generation.
    pub(crate) fn has_all_links(&self) -> Result<Option<bool>, PublishError> {
        let VolumeLayout { entries: occupants, generations } = VolumeLayout::of(&self.directory)?;
        let Some(current) = generations.current else { return Ok(None) };
        let root = self.directory.open_child(current.as_str().as_ref())?;
        let names = root.list()?;
        let tops: Vec<_> = names.iter().filter_map(|(name, _)| name.to_str()).collect();
        let changes = LinkChanges::desired(&occupants, &tops);
        Ok(Some(changes.create.is_empty() && changes.replace.is_empty()))
    }

    /// Whether nothing is in the volume but what a crash leaves before the first publish is whole.
    pub(crate) fn has_no_content(&self) -> Result<bool, PublishError> {
        let VolumeLayout { entries: occupants, generations } = VolumeLayout::of(&self.directory)?;
        let ours = LinkChanges::desired(&occupants, &[]).remove;
        let blank = |name: &OsStr| {
            ours.iter().any(|link| link == name)
                || name == MARKER_DIR
                || generations.abandoned.iter().any(|generation| name == generation.as_str())
        };
        Ok(generations.current.is_none() && occupants.keys().all(|name| blank(name)))
    }

    /// What the publisher noted beside the files, if it did.
    pub(crate) fn load_marker(&self) -> Result<Option<Vec<u8>>, PublishError> {
        let Some(notes) = self.directory.find_child(MARKER_DIR.as_ref())? else { return Ok(None) };
        Ok(notes.load_file(MARKER.as_ref(), MAX_MARKER_BYTES)?)
    }

    /// Replaces the note beside the files in one step. Pods cannot read it. One that is too long
    /// to be read again is written all the same, for people, and said to be of no use.
    pub(crate) fn write_marker(&self, note: &[u8]) -> Result<(), PublishError> {
        if byte_count(note) > MAX_MARKER_BYTES {
            let (dir, bytes) = (self.dir().display(), note.len());
            tracing::warn!(%dir, bytes, "the note is too long: a restart forgets what is mounted");
        }
        self.directory.reach_step(VolumeStep::WriteMarker);
        let notes = if let Some(notes) = self.directory.find_child(MARKER_DIR.as_ref())? {
            notes
        } else {
            self.directory.remove(MARKER_DIR.as_ref())?;
            self.directory.create_child(MARKER_DIR.as_ref())?
        };
        notes.remove(MARKER_TMP.as_ref())?;
        let gid = rustix::process::getegid().as_raw();
        let attributes = FileAttributes { mode: 0o600, gid };
        notes.create_file(MARKER_TMP.as_ref(), note, attributes)?;
        self.directory.reach_step(VolumeStep::ReplaceMarker);
        notes.rename(MARKER_TMP.as_ref(), MARKER.as_ref())?;
        Ok(notes.sync()?)
    }

    /// Gives the directory of the volume these permission bits and this group, if it has others.
    pub(crate) fn apply_root_attributes(
        &self,
        mode: u32,
        group: Option<u32>,
    ) -> Result<(), PublishError> {
        let gid = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        Ok(self.directory.ensure_attributes(FileAttributes { mode, gid })?)
    }

    /// Makes `files` the whole content of the volume.
    ///
    /// Equal content is not written again, though modes and groups are still corrected in place.
    /// Whatever a crash left undone is done first.
    ///
    /// A publish that retires a generation leaves the old content on disk, for readers that are
    /// in the middle of it, and nothing here takes it away by itself: the caller calls
    /// [`AtomicVolume::scrub`] [`SCRUB_GRACE`] and a second later, then whenever [`ScrubOutcome::next`]
    /// says, until it says nothing. Who opens a volume of an earlier process calls it at once.
    ///
    /// # Errors
    ///
    /// Where readers already see `files` but some watchers could not be told, all others were,
    /// and the next publish tells them again, whatever it publishes.
    pub fn publish(&mut self, files: &[FileEntry<'_>]) -> Result<PublishOutcome, PublishError> {
        self.publish_with_budget(files, None)
    }

    /// The same within what somebody allows the volume to hold. Equal content takes nothing.
    pub(crate) fn publish_with_budget(
        &mut self,
        files: &[FileEntry<'_>],
        allowance: Option<&dyn MemoryBudget>,
    ) -> Result<PublishOutcome, PublishError> {
        let payload = Payload::parse(files).map_err(|problems| PublishError::InvalidPayload {
            dir: self.dir().to_owned(),
            problems,
        })?;
        let mut survey = VolumeLayout::of(&self.directory)?;
        for generation in std::mem::take(&mut survey.generations.abandoned) {
            self.directory.remove(generation.as_str().as_ref())?;
        }
        let group = rustix::process::getegid().as_raw();
        let comparison = match &survey.generations.current {
            Some(current) => compare_generation(&self.directory, current, &payload, group)?,
            None => PayloadComparison::Differs,
        };
        let links = LinkChanges::desired(&survey.entries, &payload.top_level_names());
        let published = match (comparison, survey.generations.current.take()) {
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
                    retired_generations: survey.generations.retired.len(),
                    bytes_written: 0,
                }
            }
            (_, current) => {
                survey.generations.current = current;
                if let Some(allowance) = allowance {
                    self.claim_memory(&survey, &payload, allowance)?;
                }
                self.write_and_swap(&mut survey, &payload, &links, group)?
            }
        };
        self.directory.reach_step(VolumeStep::UpdateLinks);
        replace_and_remove_links(&self.directory, &links)?;
        if let Some(mount) = &mut self.mount {
            mount.persist();
        }
        if self.watchers_unnotified {
            if !survey.generations.retired.is_empty() {
                self.directory.reach_step(VolumeStep::NotifyWatchers);
            }
            // One file that cannot be written to leaves nobody else uninformed.
            let retired = survey.generations.retired.iter();
            let poked = retired
                .map(|generation| self.notify_watchers(generation))
                .fold(Ok(()), Result::and);
            self.watchers_unnotified = poked.is_err();
            poked?;
        }
        Ok(published)
    }

    /// Asks for the memory of the next generation.
    fn claim_memory(
        &self,
        survey: &VolumeLayout,
        payload: &Payload<'_>,
        allowance: &dyn MemoryBudget,
    ) -> Result<(), PublishError> {
        let TmpfsUsage { used: held, inode_bytes: names, page_size: page } =
            self.directory.usage()?;
        let files = payload.files().map(|entry| (&entry.path, byte_count(entry.content)));
        let is_first = survey.generations.current.is_none();
        let purpose = if is_first { MemoryPurpose::Mount } else { MemoryPurpose::Rotation };
        let now = self.clock.now();
        let is_settled = survey.generations.scrub_times().all(|(_, due)| due <= now);
        let lasting = if is_settled { held } else { names };
        let needed = max_generation_size(files, page);
        let growth =
            GrowthRequest { used: held, used_after_scrub: lasting, needed, read_bytes: 0, purpose };
        let refused =
            |source| PublishError::MemoryLimitExceeded { dir: self.dir().to_owned(), source };
        allowance.claim(growth).map_err(refused)
    }

    /// Writes the next generation and makes it the current one.
    fn write_and_swap(
        &mut self,
        survey: &mut VolumeLayout,
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
        let generation = survey.generations.next_generation(self.clock.now());
        if let Err(error) = self.write_generation(&generation, payload, group) {
            // The next publish would remove it too; a full disk needs the room now.
            if let Err(left) = self.directory.remove(generation.as_str().as_ref()) {
                tracing::debug!(error = %left, "an unfinished generation was left for later");
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
        survey.generations.retired.extend(survey.generations.current.take());
        self.directory.sync()?;
        let retired = survey.generations.retired.len();
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

    /// Tells whoever watches a file of a retired generation that there is something to read.
    fn notify_watchers(&self, generation: &VolumeGeneration) -> Result<(), VolumeDiskError> {
        visit_files(&self.directory, generation, &mut |folder, name| folder.touch_file(name))
    }

    /// Truncates the files of the generations that retired [`SCRUB_GRACE`] ago or earlier.
    ///
    /// A generation of which a mount shows a part is left alone: a container with a `subPath`
    /// sees that file, and never a later one.
    ///
    /// # Errors
    ///
    /// A file that cannot be truncated keeps no other from it; the first failure is told when all
    /// were tried. Try again after a pause: what was truncated is not touched again.
    pub fn scrub(&mut self) -> Result<ScrubOutcome, PublishError> {
        let now = self.clock.now();
        let survey = VolumeLayout::of(&self.directory)?;
        let shown = MountTable::load()?.mounted_generations(&self.directory.device()?);
        let mut scrubbed = ScrubOutcome::default();
        let mut outcome = Ok(());
        for (generation, due) in survey.generations.scrub_times() {
            let is_shown = shown.contains(generation);
            scrubbed.mounted_generations += usize::from(is_shown);
            if is_shown || due > now {
                let later = now.saturating_add(SCRUB_GRACE).unwrap_or(Timestamp::MAX);
                let again = if due > now { due } else { later };
                scrubbed.next_scrub =
                    Some(scrubbed.next_scrub.map_or(again, |next| next.min(again)));
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

    /// Takes the volume away: the links, every generation, the mount, and the directory itself
    /// unless somebody else keeps something in it. Can be repeated after any failure.
    pub fn unpublish(mut self) -> Result<(), PublishError> {
        self.remove_content()?;
        let mount = self.mount.take();
        let (dir, fuse) = (self.dir().to_owned(), self.directory.fail_point());
        drop(self);
        if let Some(mount) = mount {
            fuse.reach_step(VolumeStep::Unmount);
            mount.unmount()?;
        }
        fuse.reach_step(VolumeStep::RemoveTarget);
        Ok(remove_if_empty(&dir)?)
    }

    /// Removes everything of the volume but its mount and its directory; content is emptied first.
    pub(crate) fn remove_content(&self) -> Result<(), PublishError> {
        Ok(remove_volume_content(&self.directory)?)
    }
}

/// Removes what is ours by the layout; content is emptied first. `..data` goes before anything
/// else: from then on there is no volume, wherever a crash falls, and until then it is whole.
fn remove_volume_content(directory: &OpenDirectory) -> Result<(), VolumeDiskError> {
    let survey = VolumeLayout::of(directory)?;
    directory.reach_step(VolumeStep::RemoveData);
    if matches!(survey.entries.get(OsStr::new(DATA_LINK)), Some(DirectoryEntryKind::Symlink(_))) {
        directory.remove(DATA_LINK.as_ref())?;
    }
    for name in LinkChanges::desired(&survey.entries, &[]).remove {
        directory.reach_step(VolumeStep::RemoveLinks);
        directory.remove(&name)?;
    }
    directory.reach_step(VolumeStep::RemoveMarker);
    if matches!(survey.entries.get(OsStr::new(MARKER_DIR)), Some(DirectoryEntryKind::Directory)) {
        directory.remove(MARKER_DIR.as_ref())?;
    }
    let VolumeGenerations { current, retired, abandoned } = survey.generations;
    for generation in retired.into_iter().chain(abandoned).chain(current) {
        directory.reach_step(VolumeStep::RemoveGenerations);
        directory.remove(generation.as_str().as_ref())?;
    }
    Ok(())
}

/// What a publish did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishOutcome {
    /// What of the volume is different now.
    pub change: VolumeChange,
    /// The generation that readers see.
    pub generation: VolumeGeneration,
    /// How many retired generations the volume keeps for watchers.
    pub retired_generations: usize,
    /// How many bytes of content were written.
    pub bytes_written: u64,
}

/// What of a volume a publish changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeChange {
    /// Nothing: content, modes and groups were right.
    Nothing,
    /// Modes or groups, in place.
    Attributes,
    /// The content: there is a new generation.
    Content,
}

/// What a scrub did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubOutcome {
    /// How many files were truncated.
    pub truncated_files: usize,
    /// How many bytes they held.
    pub truncated_bytes: u64,
    /// How many retired generations a mount still shows a part of.
    pub mounted_generations: usize,
    /// When to scrub again, if a retired generation still has content.
    pub next_scrub: Option<Timestamp>,
}

/// Where the publisher keeps its note beside the files; readers of the layout skip such names. It
/// is a directory of its own because the note is written at every look: whoever watches the
/// directory of the volume hears nothing of what happens in one below.
const MARKER_DIR: &str = "..lanyard";
/// The note.
const MARKER: &str = "marker";
/// The note, as seen from the directory of the volume.
pub(crate) const MARKER_PATH: &str = "..lanyard/marker";
/// The name under which the next [`MARKER`] is made.
const MARKER_TMP: &str = "marker_tmp";
/// No note is longer, in bytes: nothing planted in its place fills our memory.
pub(crate) const MAX_MARKER_BYTES: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
