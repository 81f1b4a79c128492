//! What the publisher does to the disk. All of it blocks.

use lanyard_api::objects::MAX_FILES;
use lanyard_clock::SharedClock;
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use tonic::Code;

use super::failure::PublishFailure;
use super::fetched_response::{ContentRecord, FetchedResponse};
use super::mount_target::{MountId, MountTarget, TargetState};
use super::mounted_volume::MountedVolume;
use super::publish_plan::{MountContent, MountProbe, PublishPlan, classify_content, plan_publish};
use crate::audit::{AuditEvent, AuditTrail, ReadRequester};
use crate::directory::OpenDirectory;
use crate::error::PublishError;
use crate::fail_point::FailPoint;
use crate::generation::VolumeGeneration;
use crate::marker::VolumeMarker;
use crate::memory_limit::{GrowthRequest, MemoryBudget, MemoryPurpose, max_generation_size};
use crate::mount::{DetachedMount, TmpfsMount, TmpfsOptions};
use crate::provider::ProviderResponse;
use crate::publish_request::PublishRequest;
use crate::rotation::PollHistory;
use crate::volume::{AtomicVolume, PublishOutcome, VolumeChange};
use crate::volume_step::VolumeStep;

/// What the disk work needs to know.
#[derive(Debug, Clone)]
pub(super) struct PublishContext {
    pub(super) shared_clock: SharedClock,
    pub(super) fail_point: FailPoint,
    pub(super) driver_name: String,
    /// How many bytes the files of one volume may have together.
    pub(super) content_limit: u64,
    /// Whether a volume is filled before it is mounted, where the kernel can.
    pub(super) staged_mounts: bool,
    /// Where it stands that an older credential was taken.
    pub(super) audit: AuditTrail,
}

/// What a look at a place came to.
#[derive(Debug)]
pub(super) struct TargetInspection {
    pub(super) plan: PublishPlan,
    pub(super) existing: Option<ExistingMount>,
}

/// A mount that stands at a place already.
#[derive(Debug)]
pub(super) struct ExistingMount {
    mount_id: MountId,
    volume: AtomicVolume,
    marker: Option<VolumeMarker>,
}

impl ExistingMount {
    /// The mounted volume; nothing is known about what it holds unless there is a marker.
    pub(super) fn into_mounted_volume(
        self,
        desk: &PublishContext,
        place: MountTarget,
        order: Option<PublishRequest>,
    ) -> Option<MountedVolume> {
        let Self { mount_id: id, mut volume, marker } = self;
        let mount = TmpfsMount::adopted(place.path());
        // Another driver goes on with its own volumes until the kubelet orders them from us.
        if marker.is_none() && order.is_some() {
            desk.fail_point.reach_step(VolumeStep::HardenMount);
            if let Err(error) = mount.harden() {
                let error = format_error_chain(&error);
                tracing::warn!(error, "a volume of another driver keeps its options");
            }
        }
        volume.set_mount(mount);
        let now = desk.shared_clock.now();
        let shown = volume.current_generation().ok().flatten();
        let shown = shown.map(|shown| shown.as_str().to_owned()).unwrap_or_default();
        let marker = match (marker, &order) {
            (Some(marker), _) if marker.generation == shown => marker,
            (Some(marker), _) => marker.into_uncertified(),
            (None, Some(order)) => VolumeMarker::uncertified_for(order, now),
            (None, None) => return None,
        };
        let is_other = order.as_ref().is_some_and(|order| !marker.matches_request(order));
        let record = marker.poll_record.clone().filter(|_| !is_other);
        let mut mounted = MountedVolume::new(place, id, volume, marker, order);
        mounted.visible_generation = shown;
        if record.is_some() {
            mounted.history = PollHistory::restored(record, now);
        }
        Some(mounted)
    }
}

/// Looks at a place and takes away what hides a volume there.
pub(super) fn inspect_target(
    desk: &PublishContext,
    place: &MountTarget,
) -> Result<TargetInspection, PublishFailure> {
    for _ in 0..MAX_MOUNT_LAYERS {
        let (seen, found) = probe_target(desk, place)?;
        let plan = plan_publish(seen);
        if plan != PublishPlan::RemoveTopLayer {
            return Ok(TargetInspection { plan, existing: found });
        }
        drop(found);
        tracing::warn!(target_path = %place.path().display(), ?seen, "a useless mount is removed");
        place.unmount_layer().map_err(|error| target_failure(&error.into()))?;
    }
    let message = format!("more than {MAX_MOUNT_LAYERS} mounts lie on {}", place.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message))
}

/// Looks at a place and changes nothing.
pub(super) fn inspect_target_read_only(
    desk: &PublishContext,
    place: &MountTarget,
) -> Result<TargetInspection, PublishFailure> {
    let (seen, found) = probe_target(desk, place)?;
    Ok(TargetInspection { plan: plan_publish(seen), existing: found })
}

fn probe_target(
    desk: &PublishContext,
    place: &MountTarget,
) -> Result<(MountProbe, Option<ExistingMount>), PublishFailure> {
    let standing = place.state(&desk.fail_point).map_err(|error| target_failure(&error.into()))?;
    Ok(match standing {
        TargetState::Absent | TargetState::Directory => (MountProbe::Unmounted, None),
        TargetState::Symlink => (MountProbe::Symlink, None),
        TargetState::File => (MountProbe::File, None),
        TargetState::DeadMount => (MountProbe::Unreadable, None),
        TargetState::Mounted { in_memory: false, .. } => (MountProbe::NotTmpfs, None),
        TargetState::Mounted { root, id, layers, in_memory: true } => {
            let found =
                open_existing_mount(desk, root, id).map_err(|error| target_failure(&error))?;
            let content = read_mount_content(&found).map_err(|error| target_failure(&error))?;
            (MountProbe::Tmpfs { layers, content }, Some(found))
        }
    })
}

fn open_existing_mount(
    desk: &PublishContext,
    root: OpenDirectory,
    id: MountId,
) -> Result<ExistingMount, PublishError> {
    let volume = AtomicVolume::in_directory(root, desk.clock());
    let note = volume.load_marker()?;
    let marker = note.and_then(|note| match VolumeMarker::parse(&note, &desk.driver_name) {
        Ok(marker) => Some(marker),
        Err(error) => {
            tracing::warn!(dir = %volume.dir().display(), error = format_error_chain(&error), "no marker");
            None
        }
    });
    Ok(ExistingMount { mount_id: id, volume, marker })
}

fn read_mount_content(found: &ExistingMount) -> Result<MountContent, PublishError> {
    let is_whole = found.volume.has_all_links()? == Some(true);
    let current = found.volume.current_generation()?.filter(|_| is_whole);
    let seen = current.as_ref().map(VolumeGeneration::as_str);
    Ok(classify_content(found.volume.has_no_content()?, seen, found.marker.as_ref()))
}

/// Makes a volume, fills it and mounts it on its place once it is whole.
pub(super) fn mount_new_volume(
    desk: &PublishContext,
    place: MountTarget,
    order: PublishRequest,
    supply: FetchedResponse,
    allowance: &dyn MemoryBudget,
) -> Result<MountedVolume, PublishFailure> {
    let (filling, contents) = supply.into_first_content();
    desk.check_size(&filling)?;
    claim_mount_memory(&place, &filling, allowance)?;
    desk.fail_point.reach_step(VolumeStep::MakeTarget);
    let target = place.create().map_err(|error| target_failure(&error.into()))?;
    ensure_not_mounted(&place)?;
    desk.fail_point.reach_step(VolumeStep::MakeMount);
    let lengths = filling.files.iter().map(|file| byte_count(file.content.len()));
    let shape = TmpfsOptions::with_capacity_for(lengths, order.group);
    let staged = if desk.staged_mounts {
        DetachedMount::create(place.path(), shape).map_err(|error| mount_failure(&error.into()))?
    } else {
        None
    };
    let Some(staged) = staged else {
        return mount_in_place(desk, place, order, (filling, contents), shape);
    };
    let root = staged.open().map_err(|error| mount_failure(&error.into()))?;
    let root = OpenDirectory::from_fd(root, place.path(), desk.fail_point.clone());
    let mut volume = AtomicVolume::in_directory(root, desk.clock());
    let noted = write_first_content(desk, &mut volume, &order, (filling, contents))?;
    ensure_not_mounted(&place)?;
    desk.fail_point.reach_step(VolumeStep::Attach);
    let mount = staged.attach(&target).map_err(|error| mount_failure(&error.into()))?;
    volume.set_mount(mount);
    finish_mount(place, volume, noted, order)
}

/// What the files of a filling take of the node's memory at most.
pub(super) fn max_files_size(filling: &ProviderResponse) -> u64 {
    let page = byte_count(rustix::param::page_size());
    let files = filling.files.iter().map(|file| (&file.path, byte_count(file.content.len())));
    max_generation_size(files, page)
}

/// Asks for the memory of a volume of which nothing is there yet.
fn claim_mount_memory(
    place: &MountTarget,
    filling: &ProviderResponse,
    allowance: &dyn MemoryBudget,
) -> Result<(), PublishFailure> {
    let needed = max_files_size(filling);
    let purpose = MemoryPurpose::Mount;
    let growth = GrowthRequest { used: 0, used_after_scrub: 0, needed, read_bytes: 0, purpose };
    allowance.claim(growth).map_err(|source| {
        write_failure(&PublishError::MemoryLimitExceeded { dir: place.path().to_owned(), source })
    })
}

/// Mounts are never stacked: a container sees the one that was topmost when it started. The look
/// at the place is as old as the question to the source, and another driver may have mounted there.
fn ensure_not_mounted(place: &MountTarget) -> Result<(), PublishFailure> {
    if place.mount_id().map_err(|error| target_failure(&error.into()))?.is_none() {
        return Ok(());
    }
    let message = format!(
        "somebody mounted on {} while the source of the volume was asked",
        place.path().display()
    );
    Err(PublishFailure::new(OutcomeCode::FailedToMount, message)
        .with_hint("see that one CSI driver of this name runs on the node; the kubelet asks again")
        .into_non_final())
}

/// The same where a file system must have a place before anything can be written into it. The
/// volume is seen empty for a moment, and a crash in it leaves it so; the marker tells.
fn mount_in_place(
    desk: &PublishContext,
    place: MountTarget,
    order: PublishRequest,
    filling: (ProviderResponse, ContentRecord),
    shape: TmpfsOptions,
) -> Result<MountedVolume, PublishFailure> {
    let mount = TmpfsMount::mount_or_adopt_with(place.path(), shape)
        .map_err(|error| mount_failure(&error.into()))?;
    let filled =
        AtomicVolume::open_with_fail_point(place.path(), desk.clock(), desk.fail_point.clone())
            .map_err(|error| mount_failure(&error))
            .and_then(|mut volume| {
                let noted = write_first_content(desk, &mut volume, &order, filling)?;
                Ok((volume, noted))
            });
    // Dropped before it is kept, the mount goes away again.
    let (mut volume, noted) = filled?;
    let mut mount = mount;
    mount.persist();
    volume.set_mount(mount);
    desk.fail_point.reach_step(VolumeStep::Attach);
    finish_mount(place, volume, noted, order)
}

fn finish_mount(
    place: MountTarget,
    volume: AtomicVolume,
    (marker, clock): (VolumeMarker, PollHistory),
    order: PublishRequest,
) -> Result<MountedVolume, PublishFailure> {
    let lost = |message: String| PublishFailure::new(OutcomeCode::FailedToMount, message);
    let id = place.mount_id().map_err(|error| target_failure(&error.into()))?;
    let id = id.ok_or_else(|| lost(format!("{} is no mount", place.path().display())))?;
    let mut mounted = MountedVolume::new(place, id, volume, marker, Some(order));
    mounted.history = clock;
    Ok(mounted)
}

/// What became of a mounted volume that was given its next content.
#[derive(Debug)]
pub(super) struct ContentUpdate {
    pub(super) published: PublishOutcome,
    /// Why older credentials were not taken.
    pub(super) older_rejection: Option<String>,
}

/// Gives a mounted volume its next content.
pub(super) fn update_content(
    desk: &PublishContext,
    mounted: &mut MountedVolume,
    supply: FetchedResponse,
    allowance: &dyn MemoryBudget,
) -> Result<ContentUpdate, PublishFailure> {
    let (filling, contents) = supply.without_older_credentials(mounted)?;
    desk.check_size(&filling)?;
    let order = mounted.request.clone();
    let shape = TmpfsOptions::with_capacity_for([], order.group);
    mounted
        .volume
        .apply_root_attributes(shape.mode(), order.group)
        .map_err(|error| write_failure(&error))?;
    let mut published = write_payload(&mut mounted.volume, &order, filling, Some(allowance))
        .inspect_err(|_| mounted.recheck_generation())?;
    if std::mem::take(&mut mounted.has_unreported_swap) {
        published.change = VolumeChange::Content;
    }
    let refusal = contents.older_rejection.clone();
    // Readers see it from now on, whatever becomes of the note.
    for older in &contents.accepted_older {
        let by = ReadRequester::new(&order.pod, &order.class_name);
        let (object, version) = (older.id.clone(), older.version.clone());
        desk.audit.record(AuditEvent::OlderAccepted { by, object, version });
    }
    published.generation.as_str().clone_into(&mut mounted.visible_generation);
    contents.apply_to(&order, &published, &mut mounted.marker, &mut mounted.history);
    mounted.has_unreported_swap = published.change == VolumeChange::Content;
    write_marker(desk, &mounted.volume, &mounted.marker)?;
    mounted.has_unreported_swap = false;
    Ok(ContentUpdate { published, older_rejection: refusal })
}

fn write_first_content(
    desk: &PublishContext,
    volume: &mut AtomicVolume,
    order: &PublishRequest,
    (filling, contents): (ProviderResponse, ContentRecord),
) -> Result<(VolumeMarker, PollHistory), PublishFailure> {
    // Its room was claimed before the mount was made.
    let published = write_payload(volume, order, filling, None)?;
    let mut marker = VolumeMarker::uncertified_for(order, desk.shared_clock.now());
    let mut clock = PollHistory::default();
    contents.apply_to(order, &published, &mut marker, &mut clock);
    write_marker(desk, volume, &marker)?;
    Ok((marker, clock))
}

fn write_payload(
    volume: &mut AtomicVolume,
    order: &PublishRequest,
    filling: ProviderResponse,
    allowance: Option<&dyn MemoryBudget>,
) -> Result<PublishOutcome, PublishFailure> {
    volume
        .publish_with_budget(&filling.file_entries(order.group), allowance)
        .map_err(|error| write_failure(&error))
}

/// Notes beside the files what is known about them.
pub(super) fn write_marker(
    desk: &PublishContext,
    volume: &AtomicVolume,
    marker: &VolumeMarker,
) -> Result<(), PublishFailure> {
    let text = marker.to_json(&desk.driver_name).map_err(|error| {
        PublishFailure::new(OutcomeCode::FileWriteError, format_error_chain(&error))
    })?;
    volume.write_marker(&text).map_err(|error| write_failure(&error))
}

/// Takes away whatever of ours is at a place. What is not ours stays, and so does the directory
/// that holds it.
pub(super) fn remove_volume(
    desk: &PublishContext,
    place: &MountTarget,
) -> Result<(), PublishFailure> {
    for layer in 0..MAX_MOUNT_LAYERS {
        let standing = match place.state(&desk.fail_point) {
            Ok(standing) => standing,
            Err(error) => return Err(target_failure(&error.into()).with_grpc_code(Code::Internal)),
        };
        match standing {
            TargetState::Absent => return Ok(()),
            // The kubelet removes what is left of its directory itself; nobody follows a link.
            TargetState::Symlink | TargetState::File => {
                let target = place.path().display();
                tracing::warn!(%target, "no volume stands here; what does was left alone");
                return Ok(());
            }
            TargetState::Directory => {
                return remove_target_directory(desk, place, layer > 0);
            }
            TargetState::DeadMount | TargetState::Mounted { in_memory: false, .. } => {
                desk.fail_point.reach_step(VolumeStep::Unmount);
                place.unmount_layer().map_err(|error| {
                    target_failure(&error.into()).with_grpc_code(Code::Internal)
                })?;
            }
            TargetState::Mounted { root, in_memory: true, .. } => {
                // The memory goes with the mount; emptying is for those who hold it open.
                if let Err(error) = AtomicVolume::in_directory(root, desk.clock()).remove_content()
                {
                    let (target, error) = (place.path().display(), format_error_chain(&error));
                    tracing::warn!(%target, error, "a volume is unmounted without being emptied");
                }
                desk.fail_point.reach_step(VolumeStep::Unmount);
                place.unmount_layer().map_err(|error| {
                    target_failure(&error.into()).with_grpc_code(Code::Internal)
                })?;
            }
        }
    }
    let message = format!("more than {MAX_MOUNT_LAYERS} mounts lie on {}", place.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message)
        .with_grpc_code(Code::Internal))
}

/// Nothing is mounted (any more): what is ours in the directory goes, then the directory.
fn remove_target_directory(
    desk: &PublishContext,
    place: &MountTarget,
    was_mounted: bool,
) -> Result<(), PublishFailure> {
    let empty = || -> Result<(), PublishError> {
        if !was_mounted && let Some(root) = place.open_directory(&desk.fail_point)? {
            AtomicVolume::in_directory(root, desk.clock()).remove_content()?;
        }
        desk.fail_point.reach_step(VolumeStep::RemoveTarget);
        Ok(place.remove_if_empty()?)
    };
    empty().map_err(|error| target_failure(&error).with_grpc_code(Code::Internal))
}

impl PublishContext {
    fn check_size(&self, filling: &ProviderResponse) -> Result<(), PublishFailure> {
        let lengths = filling.files.iter().map(|file| byte_count(file.content.len()));
        let bytes = lengths.fold(0, u64::saturating_add);
        let (files, limit) = (filling.files.len(), self.content_limit);
        let message = if bytes > limit {
            format!(
                "the {files} files have {bytes} bytes together, and a volume takes {limit} at most"
            )
        } else if files > MAX_FILES {
            format!("there are {files} files, and a volume takes {MAX_FILES} at most")
        } else {
            return Ok(());
        };
        Err(PublishFailure::new(OutcomeCode::SecretProviderClassInvalid, message)
            .with_hint("ask for fewer objects in one SecretProviderClass"))
    }

    fn clock(&self) -> SharedClock {
        SharedClock::clone(&self.shared_clock)
    }
}

fn target_failure(error: &PublishError) -> PublishFailure {
    PublishFailure::from_publish_error(OutcomeCode::FailedToEnsureMountPoint, error)
}

fn mount_failure(error: &PublishError) -> PublishFailure {
    PublishFailure::from_publish_error(OutcomeCode::FailedToMount, error)
}

fn write_failure(error: &PublishError) -> PublishFailure {
    PublishFailure::from_publish_error(OutcomeCode::FileWriteError, error)
}

fn byte_count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Nobody stacks more mounts on one place in good faith.
const MAX_MOUNT_LAYERS: usize = 64;
