//! What the publisher does to the disk. All of it blocks.

use lanyard_api::objects::MOST_FILES;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::{OutcomeCode, causes};
use tonic::Code;

use super::contents::{Contents, Supply};
use super::decide::{Content, Plan, Seen, content_of, decide};
use super::failure::PublishFailure;
use super::mounted::Mounted;
use super::place::{MountId, Place, Standing};
use crate::audit::{AuditEvent, AuditTrail, ReadBy};
use crate::budget::{Allowance, Growth, Purpose, needed_for};
use crate::directory::Directory;
use crate::error::PublishError;
use crate::fuse::Fuse;
use crate::generation::Generation;
use crate::marker::Marker;
use crate::mount::{Mount, Shape, StagedMount};
use crate::order::MountOrder;
use crate::provider::Filling;
use crate::rotation::VolumeClock;
use crate::step::Step;
use crate::volume::{Changed, Published, Volume};

/// What the disk work needs to know.
#[derive(Debug, Clone)]
pub(super) struct Desk {
    pub(super) clock: SharedClock,
    pub(super) fuse: Fuse,
    pub(super) driver: String,
    /// How many bytes the files of one volume may have together.
    pub(super) content_limit: u64,
    /// Whether a volume is filled before it is mounted, where the kernel can.
    pub(super) staged: bool,
    /// Where it stands that an older credential was taken.
    pub(super) audit: AuditTrail,
}

/// What a look at a place came to.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) plan: Plan,
    pub(super) found: Option<Found>,
}

/// A mount that stands at a place already.
#[derive(Debug)]
pub(super) struct Found {
    id: MountId,
    volume: Volume,
    marker: Option<Marker>,
}

impl Found {
    /// The mounted volume; nothing is known about what it holds unless there is a marker.
    pub(super) fn into_mounted(
        self,
        desk: &Desk,
        place: Place,
        order: Option<MountOrder>,
    ) -> Option<Mounted> {
        let Self { id, mut volume, marker } = self;
        let mount = Mount::taken_over(place.path());
        // Another driver goes on with its own volumes until the kubelet orders them from us.
        if marker.is_none() && order.is_some() {
            desk.fuse.reach(Step::Harden);
            if let Err(error) = mount.harden() {
                let error = causes(&error);
                tracing::warn!(error, "a volume of another driver keeps its options");
            }
        }
        volume.lies_on(mount);
        let now = desk.clock.now();
        let shown = volume.current().ok().flatten();
        let shown = shown.map(|shown| shown.as_str().to_owned()).unwrap_or_default();
        let marker = match (marker, &order) {
            (Some(marker), _) if marker.generation == shown => marker,
            (Some(marker), _) => marker.uncertified(),
            (None, Some(order)) => Marker::blank(order, now),
            (None, None) => return None,
        };
        let is_other = order.as_ref().is_some_and(|order| !marker.describes(order));
        let record = marker.check.clone().filter(|_| !is_other);
        let mut mounted = Mounted::new(place, id, volume, marker, order);
        mounted.shown = shown;
        if record.is_some() {
            mounted.clock = VolumeClock::resumed(record, now);
        }
        Some(mounted)
    }
}

/// Looks at a place and takes away what hides a volume there.
pub(super) fn survey(desk: &Desk, place: &Place) -> Result<Survey, PublishFailure> {
    for _ in 0..MOST_LAYERS {
        let (seen, found) = look(desk, place)?;
        let plan = decide(seen);
        if plan != Plan::Uncover {
            return Ok(Survey { plan, found });
        }
        drop(found);
        tracing::warn!(target_path = %place.path().display(), ?seen, "a useless mount is removed");
        place.unmount_layer().map_err(|error| of_place(&error.into()))?;
    }
    let message = format!("more than {MOST_LAYERS} mounts lie on {}", place.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message))
}

/// Looks at a place and changes nothing.
pub(super) fn survey_only(desk: &Desk, place: &Place) -> Result<Survey, PublishFailure> {
    let (seen, found) = look(desk, place)?;
    Ok(Survey { plan: decide(seen), found })
}

fn look(desk: &Desk, place: &Place) -> Result<(Seen, Option<Found>), PublishFailure> {
    let standing = place.standing(&desk.fuse).map_err(|error| of_place(&error.into()))?;
    Ok(match standing {
        Standing::Absent | Standing::Directory => (Seen::Unmounted, None),
        Standing::Link => (Seen::Link, None),
        Standing::File => (Seen::File, None),
        Standing::Dead => (Seen::Dead, None),
        Standing::Mounted { in_memory: false, .. } => (Seen::Elsewhere, None),
        Standing::Mounted { root, id, layers, in_memory: true } => {
            let found = open(desk, root, id).map_err(|error| of_place(&error))?;
            let content = content_in(&found).map_err(|error| of_place(&error))?;
            (Seen::Memory { layers, content }, Some(found))
        }
    })
}

fn open(desk: &Desk, root: Directory, id: MountId) -> Result<Found, PublishError> {
    let volume = Volume::on(root, desk.clock());
    let note = volume.load_marker()?;
    let marker = note.and_then(|note| match Marker::parse(&note, &desk.driver) {
        Ok(marker) => Some(marker),
        Err(error) => {
            tracing::warn!(dir = %volume.dir().display(), error = causes(&error), "no marker");
            None
        }
    });
    Ok(Found { id, volume, marker })
}

fn content_in(found: &Found) -> Result<Content, PublishError> {
    let is_whole = found.volume.is_linked()? == Some(true);
    let current = found.volume.current()?.filter(|_| is_whole);
    let seen = current.as_ref().map(Generation::as_str);
    Ok(content_of(found.volume.is_blank()?, seen, found.marker.as_ref()))
}

/// Makes a volume, fills it and mounts it on its place once it is whole.
pub(super) fn mount(
    desk: &Desk,
    place: Place,
    order: MountOrder,
    supply: Supply,
    allowance: &dyn Allowance,
) -> Result<Mounted, PublishFailure> {
    let (filling, contents) = supply.unopposed();
    desk.check_size(&filling)?;
    claim(&place, &filling, allowance)?;
    desk.fuse.reach(Step::MakeTarget);
    let target = place.make().map_err(|error| of_place(&error.into()))?;
    refuse_mounted(&place)?;
    desk.fuse.reach(Step::MakeMount);
    let lengths = filling.files.iter().map(|file| length_of(file.content.len()));
    let shape = Shape::holding(lengths, order.group);
    let staged = if desk.staged {
        StagedMount::tmpfs(place.path(), shape).map_err(|error| of_mount(&error.into()))?
    } else {
        None
    };
    let Some(staged) = staged else {
        return mount_in_place(desk, place, order, (filling, contents), shape);
    };
    let root = staged.open().map_err(|error| of_mount(&error.into()))?;
    let root = Directory::of(root, place.path(), desk.fuse.clone());
    let mut volume = Volume::on(root, desk.clock());
    let noted = fill(desk, &mut volume, &order, (filling, contents))?;
    refuse_mounted(&place)?;
    desk.fuse.reach(Step::Attach);
    let mount = staged.attach(&target).map_err(|error| of_mount(&error.into()))?;
    volume.lies_on(mount);
    mounted(place, volume, noted, order)
}

/// What the files of a filling take of the node's memory at most.
pub(super) fn files_size(filling: &Filling) -> u64 {
    let page = length_of(rustix::param::page_size());
    let files = filling.files.iter().map(|file| (&file.path, length_of(file.content.len())));
    needed_for(files, page)
}

/// Asks for the memory of a volume of which nothing is there yet.
fn claim(
    place: &Place,
    filling: &Filling,
    allowance: &dyn Allowance,
) -> Result<(), PublishFailure> {
    let needed = files_size(filling);
    let purpose = Purpose::Mount;
    let growth = Growth { held: 0, lasting: 0, needed, reading: 0, purpose };
    allowance
        .claim(growth)
        .map_err(|source| of_file(&PublishError::NoRoom { dir: place.path().to_owned(), source }))
}

/// Mounts are never stacked: a container sees the one that was topmost when it started. The look
/// at the place is as old as the question to the source, and another driver may have mounted there.
fn refuse_mounted(place: &Place) -> Result<(), PublishFailure> {
    if place.mount_id().map_err(|error| of_place(&error.into()))?.is_none() {
        return Ok(());
    }
    let message = format!(
        "somebody mounted on {} while the source of the volume was asked",
        place.path().display()
    );
    Err(PublishFailure::new(OutcomeCode::FailedToMount, message)
        .with_hint("see that one CSI driver of this name runs on the node; the kubelet asks again")
        .not_final())
}

/// The same where a file system must have a place before anything can be written into it. The
/// volume is seen empty for a moment, and a crash in it leaves it so; the marker tells.
fn mount_in_place(
    desk: &Desk,
    place: Place,
    order: MountOrder,
    filling: (Filling, Contents),
    shape: Shape,
) -> Result<Mounted, PublishFailure> {
    let mount = Mount::tmpfs_of(place.path(), shape).map_err(|error| of_mount(&error.into()))?;
    let filled = Volume::with_fuse(place.path(), desk.clock(), desk.fuse.clone())
        .map_err(|error| of_mount(&error))
        .and_then(|mut volume| {
            let noted = fill(desk, &mut volume, &order, filling)?;
            Ok((volume, noted))
        });
    // Dropped before it is kept, the mount goes away again.
    let (mut volume, noted) = filled?;
    let mut mount = mount;
    mount.keep();
    volume.lies_on(mount);
    desk.fuse.reach(Step::Attach);
    mounted(place, volume, noted, order)
}

fn mounted(
    place: Place,
    volume: Volume,
    (marker, clock): (Marker, VolumeClock),
    order: MountOrder,
) -> Result<Mounted, PublishFailure> {
    let lost = |message: String| PublishFailure::new(OutcomeCode::FailedToMount, message);
    let id = place.mount_id().map_err(|error| of_place(&error.into()))?;
    let id = id.ok_or_else(|| lost(format!("{} is no mount", place.path().display())))?;
    let mut mounted = Mounted::new(place, id, volume, marker, Some(order));
    mounted.clock = clock;
    Ok(mounted)
}

/// What became of a mounted volume that was given its next content.
#[derive(Debug)]
pub(super) struct Refilled {
    pub(super) published: Published,
    /// Why older credentials were not taken.
    pub(super) refusal: Option<String>,
}

/// Gives a mounted volume its next content.
pub(super) fn refill(
    desk: &Desk,
    mounted: &mut Mounted,
    supply: Supply,
    allowance: &dyn Allowance,
) -> Result<Refilled, PublishFailure> {
    let (filling, contents) = supply.beside(mounted)?;
    desk.check_size(&filling)?;
    let order = mounted.order.clone();
    let shape = Shape::holding([], order.group);
    mounted.volume.settle_root(shape.mode(), order.group).map_err(|error| of_file(&error))?;
    let mut published = write(&mut mounted.volume, &order, filling, Some(allowance))
        .inspect_err(|_| mounted.look_again())?;
    if std::mem::take(&mut mounted.swapped) {
        published.changed = Changed::Content;
    }
    let refusal = contents.refusal.clone();
    // Readers see it from now on, whatever becomes of the note.
    for older in &contents.accepted {
        let by = ReadBy::new(&order.pod, &order.class_name);
        let (object, version) = (older.id.clone(), older.version.clone());
        desk.audit.record(AuditEvent::OlderAccepted { by, object, version });
    }
    published.generation.as_str().clone_into(&mut mounted.shown);
    contents.note(&order, &published, &mut mounted.marker, &mut mounted.clock);
    mounted.swapped = published.changed == Changed::Content;
    note(desk, &mounted.volume, &mounted.marker)?;
    mounted.swapped = false;
    Ok(Refilled { published, refusal })
}

fn fill(
    desk: &Desk,
    volume: &mut Volume,
    order: &MountOrder,
    (filling, contents): (Filling, Contents),
) -> Result<(Marker, VolumeClock), PublishFailure> {
    // Its room was claimed before the mount was made.
    let published = write(volume, order, filling, None)?;
    let mut marker = Marker::blank(order, desk.clock.now());
    let mut clock = VolumeClock::default();
    contents.note(order, &published, &mut marker, &mut clock);
    note(desk, volume, &marker)?;
    Ok((marker, clock))
}

fn write(
    volume: &mut Volume,
    order: &MountOrder,
    filling: Filling,
    allowance: Option<&dyn Allowance>,
) -> Result<Published, PublishFailure> {
    volume.publish_within(&filling.entries(order.group), allowance).map_err(|error| of_file(&error))
}

/// Notes beside the files what is known about them.
pub(super) fn note(desk: &Desk, volume: &Volume, marker: &Marker) -> Result<(), PublishFailure> {
    let text = marker
        .to_json(&desk.driver)
        .map_err(|error| PublishFailure::new(OutcomeCode::FileWriteError, causes(&error)))?;
    volume.write_marker(&text).map_err(|error| of_file(&error))
}

/// Takes away whatever of ours is at a place. What is not ours stays, and so does the directory
/// that holds it.
pub(super) fn withdraw(desk: &Desk, place: &Place) -> Result<(), PublishFailure> {
    for layer in 0..MOST_LAYERS {
        let standing = match place.standing(&desk.fuse) {
            Ok(standing) => standing,
            Err(error) => return Err(of_place(&error.into()).told_as(Code::Internal)),
        };
        match standing {
            Standing::Absent => return Ok(()),
            // The kubelet removes what is left of its directory itself; nobody follows a link.
            Standing::Link | Standing::File => {
                let target = place.path().display();
                tracing::warn!(%target, "no volume stands here; what does was left alone");
                return Ok(());
            }
            Standing::Directory => {
                return withdraw_from_disk(desk, place, layer > 0);
            }
            Standing::Dead | Standing::Mounted { in_memory: false, .. } => {
                desk.fuse.reach(Step::Unmount);
                place
                    .unmount_layer()
                    .map_err(|error| of_place(&error.into()).told_as(Code::Internal))?;
            }
            Standing::Mounted { root, in_memory: true, .. } => {
                // The memory goes with the mount; emptying is for those who hold it open.
                if let Err(error) = Volume::on(root, desk.clock()).empty() {
                    let (target, error) = (place.path().display(), causes(&error));
                    tracing::warn!(%target, error, "a volume is unmounted without being emptied");
                }
                desk.fuse.reach(Step::Unmount);
                place
                    .unmount_layer()
                    .map_err(|error| of_place(&error.into()).told_as(Code::Internal))?;
            }
        }
    }
    let message = format!("more than {MOST_LAYERS} mounts lie on {}", place.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message).told_as(Code::Internal))
}

/// Nothing is mounted (any more): what is ours in the directory goes, then the directory.
fn withdraw_from_disk(desk: &Desk, place: &Place, was_mounted: bool) -> Result<(), PublishFailure> {
    let empty = || -> Result<(), PublishError> {
        if !was_mounted && let Some(root) = place.open_directory(&desk.fuse)? {
            Volume::on(root, desk.clock()).empty()?;
        }
        desk.fuse.reach(Step::RemoveTarget);
        Ok(place.remove_if_empty()?)
    };
    empty().map_err(|error| of_place(&error).told_as(Code::Internal))
}

impl Desk {
    fn check_size(&self, filling: &Filling) -> Result<(), PublishFailure> {
        let lengths = filling.files.iter().map(|file| length_of(file.content.len()));
        let bytes = lengths.fold(0, u64::saturating_add);
        let (files, limit) = (filling.files.len(), self.content_limit);
        let message = if bytes > limit {
            format!(
                "the {files} files have {bytes} bytes together, and a volume takes {limit} at most"
            )
        } else if files > MOST_FILES {
            format!("there are {files} files, and a volume takes {MOST_FILES} at most")
        } else {
            return Ok(());
        };
        Err(PublishFailure::new(OutcomeCode::SecretProviderClassInvalid, message)
            .with_hint("ask for fewer objects in one SecretProviderClass"))
    }

    fn clock(&self) -> SharedClock {
        SharedClock::clone(&self.clock)
    }
}

fn of_place(error: &PublishError) -> PublishFailure {
    PublishFailure::of_volume(OutcomeCode::FailedToEnsureMountPoint, error)
}

fn of_mount(error: &PublishError) -> PublishFailure {
    PublishFailure::of_volume(OutcomeCode::FailedToMount, error)
}

fn of_file(error: &PublishError) -> PublishFailure {
    PublishFailure::of_volume(OutcomeCode::FileWriteError, error)
}

fn length_of(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Nobody stacks more mounts on one place in good faith.
const MOST_LAYERS: usize = 64;
