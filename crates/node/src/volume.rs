//! One volume: publish, scrub, unpublish.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use jiff::Timestamp;
use lanyard_clock::SharedClock;

use crate::compare::{Comparison, compare};
use crate::directory::{Attributes, Directory, DiskError, Occupant, remove_if_empty};
use crate::error::PublishError;
use crate::fuse::Fuse;
use crate::generation::{Generation, Generations, SCRUB_GRACE};
use crate::links::{DATA, LinkChanges, NEXT_DATA, NEXT_LINK, target_of};
use crate::mount::Mount;
use crate::mount_table::{load_mount_table, shown_generations};
use crate::payload::{FileEntry, Payload};

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
        let directory = Directory::open(dir, fuse)?;
        Ok(Self { directory, mount: None, clock, watchers_waiting: true })
    }

    /// Where the volume is.
    pub fn dir(&self) -> &Path {
        self.directory.path()
    }

    /// The generation that readers see; nothing while the volume has never been published whole.
    pub fn current(&self) -> Result<Option<Generation>, PublishError> {
        Ok(Survey::of(&self.directory)?.generations.current)
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
                self.swap(&mut survey, &payload, &links, group)?
            }
        };
        settle_links(&self.directory, &links)?;
        if let Some(mount) = &mut self.mount {
            mount.keep();
        }
        if self.watchers_waiting {
            // One file that cannot be written to leaves nobody else uninformed.
            let retired = survey.generations.retired.iter();
            let poked = retired.map(|generation| self.poke(generation)).fold(Ok(()), Result::and);
            self.watchers_waiting = poked.is_err();
            poked?;
        }
        Ok(published)
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
            mount.reserve(payload.files().map(|entry| bytes_of(entry.content)))?;
        }
        let generation = survey.generations.next(self.clock.now());
        if let Err(error) = self.write(&generation, payload, group) {
            // The next publish would remove it too; a full disk needs the room now.
            if let Err(left) = self.directory.remove(generation.as_str().as_ref()) {
                tracing::debug!(error = %left, "an unfinished generation was left for later");
            }
            return Err(error.into());
        }
        create_links(&self.directory, links)?;
        self.directory.remove(NEXT_DATA.as_ref())?;
        self.directory.link(NEXT_DATA.as_ref(), generation.as_str().as_ref())?;
        self.directory.rename(NEXT_DATA.as_ref(), DATA.as_ref())?;
        self.watchers_waiting = true;
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
        let root = self.directory.create_child(generation.as_str().as_ref())?;
        for entry in payload.files() {
            write_file(&root, entry, group)?;
        }
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
        let shown = shown_generations(&load_mount_table()?, &self.directory.device()?);
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
    pub fn unpublish(self) -> Result<(), PublishError> {
        let Self { directory, mount, .. } = self;
        let survey = Survey::of(&directory)?;
        for name in LinkChanges::desired(&survey.occupants, &[]).discard {
            directory.remove(&name)?;
        }
        if matches!(survey.occupants.get(OsStr::new(DATA)), Some(Occupant::Link(_))) {
            directory.remove(DATA.as_ref())?;
        }
        let Generations { current, retired, abandoned } = survey.generations;
        for generation in retired.into_iter().chain(abandoned).chain(current) {
            directory.remove(generation.as_str().as_ref())?;
        }
        let dir = directory.path().to_owned();
        drop(directory);
        if let Some(mount) = mount {
            mount.unmount()?;
        }
        remove_if_empty(&dir).map_err(PublishError::from)
    }
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

/// A volume as it stands on disk.
#[derive(Debug)]
struct Survey {
    occupants: BTreeMap<OsString, Occupant>,
    generations: Generations,
}

impl Survey {
    fn of(directory: &Directory) -> Result<Self, DiskError> {
        let occupants: BTreeMap<_, _> = directory.list()?.into_iter().collect();
        let generations: Vec<Generation> = occupants
            .iter()
            .filter(|(_, occupant)| **occupant == Occupant::Directory)
            .filter_map(|(name, _)| name.to_str()?.parse().ok())
            .collect();
        let current = match occupants.get(OsStr::new(DATA)) {
            Some(Occupant::Link(target)) => {
                generations.iter().find(|generation| *target == generation.as_str()).cloned()
            }
            _ => None,
        };
        Ok(Self { occupants, generations: Generations::tell_apart(generations, current) })
    }
}

fn write_file(root: &Directory, entry: &FileEntry<'_>, group: u32) -> Result<(), DiskError> {
    let attributes = Attributes { mode: entry.mode, gid: entry.gid.unwrap_or(group) };
    match entry.path.as_str().rsplit_once('/') {
        None => root.create_file(entry.path.as_str().as_ref(), entry.content, attributes),
        Some((above, name)) => {
            let mut folder = find_or_create(root, above.split('/').next().unwrap_or(above))?;
            for part in above.split('/').skip(1) {
                folder = find_or_create(&folder, part)?;
            }
            folder.create_file(name.as_ref(), entry.content, attributes)
        }
    }
}

fn find_or_create(folder: &Directory, name: &str) -> Result<Directory, DiskError> {
    match folder.find_child(name.as_ref())? {
        Some(child) => Ok(child),
        None => folder.create_child(name.as_ref()),
    }
}

fn sync_tree(folder: &Directory) -> Result<(), DiskError> {
    for (name, occupant) in folder.list()? {
        if occupant == Occupant::Directory {
            sync_tree(&folder.open_child(&name)?)?;
        }
    }
    folder.sync()
}

fn create_links(directory: &Directory, links: &LinkChanges) -> Result<(), DiskError> {
    links.create.iter().try_for_each(|name| directory.link(name, &target_of(name)))
}

fn settle_links(directory: &Directory, links: &LinkChanges) -> Result<(), DiskError> {
    for name in &links.discard {
        directory.release(name)?;
    }
    for (name, is_directory) in &links.replace {
        directory.release(NEXT_LINK.as_ref())?;
        directory.link(NEXT_LINK.as_ref(), &target_of(name))?;
        if *is_directory {
            directory.exchange(NEXT_LINK.as_ref(), name)?;
            // What another writer left may be open: its readers were promised no grace, and get
            // the whole of what they opened.
            directory.release(NEXT_LINK.as_ref())?;
        } else {
            directory.rename(NEXT_LINK.as_ref(), name)?;
        }
    }
    Ok(())
}

type Visit<'a> = dyn FnMut(&Directory, &OsStr) -> Result<(), DiskError> + 'a;

/// Visits every file of a generation, whatever becomes of the others; the first failure is told.
fn each_file(
    directory: &Directory,
    generation: &Generation,
    visit: &mut Visit<'_>,
) -> Result<(), DiskError> {
    match directory.find_child(generation.as_str().as_ref())? {
        Some(root) => each_file_below(&root, visit),
        None => Ok(()),
    }
}

fn each_file_below(folder: &Directory, visit: &mut Visit<'_>) -> Result<(), DiskError> {
    let mut outcome = Ok(());
    for (name, occupant) in folder.list()? {
        let visited = match occupant {
            Occupant::File => visit(folder, &name),
            Occupant::Directory => {
                folder.open_child(&name).and_then(|child| each_file_below(&child, visit))
            }
            Occupant::Link(_) => Ok(()),
        };
        outcome = outcome.and(visited);
    }
    outcome
}

fn bytes_of(content: &[u8]) -> u64 {
    u64::try_from(content.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
