//! One volume: publish, scrub, unpublish.

mod layout;

use std::ffi::OsStr;
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::SharedClock;
use lanyard_keyvault::SecretBytes;

use crate::budget::{Allowance, Growth, Purpose, Usage, needed_for, note_room};
use crate::compare::{Comparison, compare};
use crate::directory::{Attributes, Directory, DiskError, Occupant, remove_if_empty};
use crate::error::PublishError;
use crate::fuse::Fuse;
use crate::generation::{Generation, Generations, SCRUB_GRACE};
use crate::links::{DATA, LinkChanges, NEXT_DATA};
use crate::mount::Mount;
use crate::mount_table::MountTable;
use crate::path::FilePath;
use crate::payload::{FileEntry, Payload};
use crate::step::Step;
use layout::{Survey, bytes_of, create_links, each_file, settle_links, sync_tree, write_file};

/// A directory whose files change all at once.
///
/// The layout is that of the kubelet's atomic writer: each generation of files lies in a
/// directory of its own, `..data` is a link to the current one, and what readers open are links
/// through `..data`. A swap is one rename, so a reader sees one whole generation or the other.
///
/// Retired generations stay as long as the volume. Watchers that follow a link (as Go consumers
/// do) watch an inode of the generation that they found, and hear of a swap only through that
/// inode; so after each swap every file of every retired generation is written to, without a
/// change. After a grace their content is truncated ([`Volume::scrub`]); they still wake watchers.
///
/// A volume has one writer at a time. All calls block; on tmpfs, for microseconds.
#[derive(Debug)]
pub struct Volume {
    directory: Directory,
    mount: Option<Mount>,
    clock: SharedClock,
    /// Whether a swap may have happened whose watchers were not told: always after a restart.
    watchers_waiting: bool,
}

impl Volume {
    /// Opens a volume in a directory that exists; whatever an earlier process left is taken over.
    pub fn open(dir: &Path, clock: SharedClock) -> Result<Self, PublishError> {
        Self::with_fuse(dir, clock, Fuse::default())
    }

    /// Opens the volume on a tmpfs, which grows with it, is kept from the first publish on and
    /// unmounted by [`Volume::unpublish`].
    pub fn open_mounted(mount: Mount, clock: SharedClock) -> Result<Self, PublishError> {
        let mut volume = Self::open(mount.dir(), clock)?;
        volume.mount = Some(mount);
        Ok(volume)
    }

    pub(crate) fn with_fuse(
        dir: &Path,
        clock: SharedClock,
        fuse: Fuse,
    ) -> Result<Self, PublishError> {
        Ok(Self::on(Directory::open(dir, fuse)?, clock))
    }

    /// The volume in an open directory, which may be mounted nowhere yet.
    pub(crate) fn on(directory: Directory, clock: SharedClock) -> Self {
        Self { directory, mount: None, clock, watchers_waiting: true }
    }

    /// Names the mount that the volume lies on, which grows with it from now on.
    pub(crate) fn lies_on(&mut self, mount: Mount) {
        self.mount = Some(mount);
    }

    /// Where the volume is.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// What the file system of the volume holds. It does not block where that is a tmpfs.
    pub(crate) fn usage(&self) -> Result<Usage, PublishError> {
        Ok(self.directory.usage()?)
    }

    /// The generation that readers see; nothing while the volume has never been published whole.
    pub fn current(&self) -> Result<Option<Generation>, PublishError> {
        Ok(Survey::of(&self.directory)?.generations.current)
    }

    /// Whether readers see the generation of this name.
    pub(crate) fn shows(&self, generation: &str) -> Result<bool, PublishError> {
        let is_linked =
            self.directory.read_link(DATA.as_ref())?.is_some_and(|target| target == generation);
        Ok(is_linked && self.directory.find_child(generation.as_ref())?.is_some())
    }

    /// What readers find under `path` now.
    pub(crate) fn load_file(&self, path: &FilePath) -> Result<Option<SecretBytes>, DiskError> {
        let Some(generation) = Survey::of(&self.directory)?.generations.current else {
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
        Ok(folder.load_file(name.as_ref(), u64::MAX)?.map(SecretBytes::from))
    }

    /// Whether every name in the generation that readers see leads into it. Nothing, where there
    /// is no such generation.
    pub(crate) fn is_linked(&self) -> Result<Option<bool>, PublishError> {
        let Survey { occupants, generations } = Survey::of(&self.directory)?;
        let Some(current) = generations.current else { return Ok(None) };
        let root = self.directory.open_child(current.as_str().as_ref())?;
        let names = root.list()?;
        let tops: Vec<_> = names.iter().filter_map(|(name, _)| name.to_str()).collect();
        let changes = LinkChanges::desired(&occupants, &tops);
        Ok(Some(changes.create.is_empty() && changes.replace.is_empty()))
    }

    /// Whether nothing is in the volume but what a crash leaves before the first publish is whole.
    pub(crate) fn is_blank(&self) -> Result<bool, PublishError> {
        let Survey { occupants, generations } = Survey::of(&self.directory)?;
        let ours = LinkChanges::desired(&occupants, &[]).discard;
        let blank = |name: &OsStr| {
            ours.iter().any(|link| link == name)
                || name == NOTES
                || generations.abandoned.iter().any(|generation| name == generation.as_str())
        };
        Ok(generations.current.is_none() && occupants.keys().all(|name| blank(name)))
    }

    /// What the publisher noted beside the files, if it did.
    pub(crate) fn load_marker(&self) -> Result<Option<Vec<u8>>, PublishError> {
        let Some(notes) = self.directory.find_child(NOTES.as_ref())? else { return Ok(None) };
        Ok(notes.load_file(MARKER.as_ref(), LONGEST_MARKER)?)
    }

    /// Replaces the note beside the files in one step. Pods cannot read it. One that is too long
    /// to be read again is written all the same, for people, and said to be of no use.
    pub(crate) fn write_marker(&self, note: &[u8]) -> Result<(), PublishError> {
        if bytes_of(note) > LONGEST_MARKER {
            let (dir, bytes) = (self.dir().display(), note.len());
            tracing::warn!(%dir, bytes, "the note is too long: a restart forgets what is mounted");
        }
        self.directory.reach(Step::WriteMarker);
        let notes = if let Some(notes) = self.directory.find_child(NOTES.as_ref())? {
            notes
        } else {
            self.directory.remove(NOTES.as_ref())?;
            self.directory.create_child(NOTES.as_ref())?
        };
        notes.remove(NEXT_MARKER.as_ref())?;
        let gid = rustix::process::getegid().as_raw();
        let attributes = Attributes { mode: 0o600, gid };
        notes.create_file(NEXT_MARKER.as_ref(), note, attributes)?;
        self.directory.reach(Step::ReplaceMarker);
        notes.rename(NEXT_MARKER.as_ref(), MARKER.as_ref())?;
        Ok(notes.sync()?)
    }

    /// Gives the directory of the volume these permission bits and this group, if it has others.
    pub(crate) fn settle_root(&self, mode: u32, group: Option<u32>) -> Result<(), PublishError> {
        let gid = group.unwrap_or_else(|| rustix::process::getegid().as_raw());
        Ok(self.directory.settle_attributes(Attributes { mode, gid })?)
    }

    /// Makes `files` the whole content of the volume.
    ///
    /// Equal content is not written again, though modes and groups are still corrected in place.
    /// Whatever a crash left undone is done first.
    ///
    /// A publish that retires a generation leaves the old content on disk, for readers that are
    /// in the middle of it, and nothing here takes it away by itself: the caller calls
    /// [`Volume::scrub`] [`SCRUB_GRACE`] and a second later, then whenever [`Scrubbed::next`]
    /// says, until it says nothing. Who opens a volume of an earlier process calls it at once.
    ///
    /// # Errors
    ///
    /// Where readers already see `files` but some watchers could not be told, all others were,
    /// and the next publish tells them again, whatever it publishes.
    pub fn publish(&mut self, files: &[FileEntry<'_>]) -> Result<Published, PublishError> {
        self.publish_within(files, None)
    }

    /// The same within what somebody allows the volume to hold. Equal content takes nothing.
    pub(crate) fn publish_within(
        &mut self,
        files: &[FileEntry<'_>],
        allowance: Option<&dyn Allowance>,
    ) -> Result<Published, PublishError> {
        let payload = Payload::parse(files)
            .map_err(|problems| PublishError::Payload { dir: self.dir().to_owned(), problems })?;
        let mut survey = Survey::of(&self.directory)?;
        for generation in std::mem::take(&mut survey.generations.abandoned) {
            self.directory.remove(generation.as_str().as_ref())?;
        }
        let group = rustix::process::getegid().as_raw();
        let comparison = match &survey.generations.current {
            Some(current) => compare(&self.directory, current, &payload, group)?,
            None => Comparison::Differs,
        };
        let links = LinkChanges::desired(&survey.occupants, &payload.tops());
        let published = match (comparison, survey.generations.current.take()) {
            (Comparison::Equal { corrections }, Some(generation)) => {
                let corrected = !corrections.is_empty();
                for correction in corrections {
                    correction.apply()?;
                }
                create_links(&self.directory, &links)?;
                let changed = if corrected { Changed::Attributes } else { Changed::Nothing };
                Published {
                    changed,
                    generation,
                    retired: survey.generations.retired.len(),
                    bytes: 0,
                }
            }
            (_, current) => {
                survey.generations.current = current;
                if let Some(allowance) = allowance {
                    self.claim(&survey, &payload, allowance)?;
                }
                self.swap(&mut survey, &payload, &links, group)?
            }
        };
        self.directory.reach(Step::SettleLinks);
        settle_links(&self.directory, &links)?;
        if let Some(mount) = &mut self.mount {
            mount.keep();
        }
        if self.watchers_waiting {
            if !survey.generations.retired.is_empty() {
                self.directory.reach(Step::TellWatchers);
            }
            // One file that cannot be written to leaves nobody else uninformed.
            let retired = survey.generations.retired.iter();
            let poked = retired.map(|generation| self.poke(generation)).fold(Ok(()), Result::and);
            self.watchers_waiting = poked.is_err();
            poked?;
        }
        Ok(published)
    }

    /// Asks for the memory of the next generation.
    fn claim(
        &self,
        survey: &Survey,
        payload: &Payload<'_>,
        allowance: &dyn Allowance,
    ) -> Result<(), PublishError> {
        let Usage { held, names, page } = self.directory.usage()?;
        let files = payload.files().map(|entry| (&entry.path, bytes_of(entry.content)));
        let is_first = survey.generations.current.is_none();
        let purpose = if is_first { Purpose::Mount } else { Purpose::Rotation };
        let now = self.clock.now();
        let is_settled = survey.generations.scrub_times().all(|(_, due)| due <= now);
        let lasting = if is_settled { held } else { names };
        let needed = needed_for(files, page);
        let growth = Growth { held, lasting, needed, reading: 0, purpose };
        let refused = |source| PublishError::NoRoom { dir: self.dir().to_owned(), source };
        allowance.claim(growth).map_err(refused)
    }

    /// Writes the next generation and makes it the current one.
    fn swap(
        &mut self,
        survey: &mut Survey,
        payload: &Payload<'_>,
        links: &LinkChanges,
        group: u32,
    ) -> Result<Published, PublishError> {
        let bytes = payload.files().map(|entry| bytes_of(entry.content)).sum();
        if let Some(mount) = &self.mount {
            self.directory.reach(Step::Grow);
            let lengths = payload.files().map(|entry| bytes_of(entry.content));
            mount.reserve(lengths.chain([note_room(payload.files().count())]))?;
        }
        let generation = survey.generations.next(self.clock.now());
        if let Err(error) = self.write(&generation, payload, group) {
            // The next publish would remove it too; a full disk needs the room now.
            if let Err(left) = self.directory.remove(generation.as_str().as_ref()) {
                tracing::debug!(error = %left, "an unfinished generation was left for later");
            }
            return Err(error.into());
        }
        self.directory.reach(Step::MakeLinks);
        create_links(&self.directory, links)?;
        self.directory.reach(Step::PrepareSwap);
        self.directory.remove(NEXT_DATA.as_ref())?;
        self.directory.link(NEXT_DATA.as_ref(), generation.as_str().as_ref())?;
        self.directory.reach(Step::Swap);
        self.directory.rename(NEXT_DATA.as_ref(), DATA.as_ref())?;
        self.watchers_waiting = true;
        self.directory.reach(Step::FlushSwap);
        survey.generations.retired.extend(survey.generations.current.take());
        self.directory.sync()?;
        let retired = survey.generations.retired.len();
        Ok(Published { changed: Changed::Content, generation, retired, bytes })
    }

    fn write(
        &self,
        generation: &Generation,
        payload: &Payload<'_>,
        group: u32,
    ) -> Result<(), DiskError> {
        self.directory.reach(Step::MakeGeneration);
        let root = self.directory.create_child(generation.as_str().as_ref())?;
        for entry in payload.files() {
            self.directory.reach(Step::WriteFiles);
            write_file(&root, entry, group)?;
        }
        self.directory.reach(Step::FlushGeneration);
        sync_tree(&root)?;
        self.directory.sync()
    }

    /// Tells whoever watches a file of a retired generation that there is something to read.
    fn poke(&self, generation: &Generation) -> Result<(), DiskError> {
        each_file(&self.directory, generation, &mut |folder, name| folder.poke_file(name))
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
    pub fn scrub(&mut self) -> Result<Scrubbed, PublishError> {
        let now = self.clock.now();
        let survey = Survey::of(&self.directory)?;
        let shown = MountTable::load()?.shown_generations(&self.directory.device()?);
        let mut scrubbed = Scrubbed::default();
        let mut outcome = Ok(());
        for (generation, due) in survey.generations.scrub_times() {
            let is_shown = shown.contains(generation);
            scrubbed.shown += usize::from(is_shown);
            if is_shown || due > now {
                let later = now.saturating_add(SCRUB_GRACE).unwrap_or(Timestamp::MAX);
                let again = if due > now { due } else { later };
                scrubbed.next = Some(scrubbed.next.map_or(again, |next| next.min(again)));
                continue;
            }
            let visited = each_file(&self.directory, generation, &mut |folder, name| {
                let bytes = folder.len(name)?;
                if bytes > 0 {
                    self.directory.reach(Step::EmptyRetired);
                    folder.truncate_file(name)?;
                    scrubbed.files += 1;
                    scrubbed.bytes = scrubbed.bytes.saturating_add(bytes);
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
        self.empty()?;
        let mount = self.mount.take();
        let (dir, fuse) = (self.dir().to_owned(), self.directory.fuse());
        drop(self);
        if let Some(mount) = mount {
            fuse.reach(Step::Unmount);
            mount.unmount()?;
        }
        fuse.reach(Step::RemoveTarget);
        Ok(remove_if_empty(&dir)?)
    }

    /// Removes everything of the volume but its mount and its directory; content is emptied first.
    pub(crate) fn empty(&self) -> Result<(), PublishError> {
        Ok(clear(&self.directory)?)
    }
}

/// Removes what is ours by the layout; content is emptied first. `..data` goes before anything
/// else: from then on there is no volume, wherever a crash falls, and until then it is whole.
fn clear(directory: &Directory) -> Result<(), DiskError> {
    let survey = Survey::of(directory)?;
    directory.reach(Step::RemoveData);
    if matches!(survey.occupants.get(OsStr::new(DATA)), Some(Occupant::Link(_))) {
        directory.remove(DATA.as_ref())?;
    }
    for name in LinkChanges::desired(&survey.occupants, &[]).discard {
        directory.reach(Step::RemoveLinks);
        directory.remove(&name)?;
    }
    directory.reach(Step::RemoveMarker);
    if matches!(survey.occupants.get(OsStr::new(NOTES)), Some(Occupant::Directory)) {
        directory.remove(NOTES.as_ref())?;
    }
    let Generations { current, retired, abandoned } = survey.generations;
    for generation in retired.into_iter().chain(abandoned).chain(current) {
        directory.reach(Step::RemoveGenerations);
        directory.remove(generation.as_str().as_ref())?;
    }
    Ok(())
}

/// What a publish did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// What of the volume is different now.
    pub changed: Changed,
    /// The generation that readers see.
    pub generation: Generation,
    /// How many retired generations the volume keeps for watchers.
    pub retired: usize,
    /// How many bytes of content were written.
    pub bytes: u64,
}

/// What of a volume a publish changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// Nothing: content, modes and groups were right.
    Nothing,
    /// Modes or groups, in place.
    Attributes,
    /// The content: there is a new generation.
    Content,
}

/// What a scrub did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// How many files were truncated.
    pub files: usize,
    /// How many bytes they held.
    pub bytes: u64,
    /// How many retired generations a mount still shows a part of.
    pub shown: usize,
    /// When to scrub again, if a retired generation still has content.
    pub next: Option<Timestamp>,
}

/// Where the publisher keeps its note beside the files; readers of the layout skip such names. It
/// is a directory of its own because the note is written at every look: whoever watches the
/// directory of the volume hears nothing of what happens in one below.
const NOTES: &str = "..lanyard";
/// The note.
const MARKER: &str = "marker";
/// The note, as seen from the directory of the volume.
pub(crate) const MARKER_PATH: &str = "..lanyard/marker";
/// The name under which the next [`MARKER`] is made.
const NEXT_MARKER: &str = "marker_tmp";
/// No note is longer, in bytes: nothing planted in its place fills our memory.
pub(crate) const LONGEST_MARKER: u64 = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
