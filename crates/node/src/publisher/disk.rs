//! The blocking file system and mount operations of the publisher.

use lanyard_api::objects::MAX_FILES;
use lanyard_clock::SharedClock;
use lanyard_provider::ProviderResponse;
use lanyard_vocabulary::{OutcomeCode, format_error_chain};
use lanyard_volume::{
    AtomicVolume, DetachedMount, FailPoint, GrowthRequest, MemoryBudget, MemoryPurpose,
    OpenDirectory, PublishError, PublishOutcome, TmpfsMount, TmpfsOptions, VolumeChange,
    VolumeGeneration, VolumeStep, max_generation_size,
};
use tonic::Code;

use super::failure::PublishFailure;
use super::fetched_response::{ContentRecord, FetchedResponse};
use super::mount_target::{MountId, MountTarget, TargetState};
use super::mounted_volume::MountedVolume;
use super::publish_plan::{
    MountContentState, MountProbe, PublishPlan, classify_content, plan_publish,
};
use crate::audit::{AuditEvent, AuditTrail, ReadRequester};
use crate::marker::VolumeMarker;
use crate::publish_request::PublishRequest;
use crate::rotation::PollHistory;

/// The settings and shared services of the mount operations.
#[derive(Debug, Clone)]
pub(super) struct PublishContext {
    pub(super) shared_clock: SharedClock,
    pub(super) fail_point: FailPoint,
    pub(super) driver_name: String,
    /// The maximum total size of the files of one volume, in bytes.
    pub(super) content_limit: u64,
    /// Whether a volume is written before it is mounted, if the kernel supports it.
    pub(super) staged_mounts: bool,
    /// The audit trail. It records accepted older credentials.
    pub(super) audit: AuditTrail,
}

/// The outcome of inspecting a target.
#[derive(Debug)]
pub(super) struct TargetInspection {
    pub(super) plan: PublishPlan,
    pub(super) existing: Option<ExistingMount>,
}

/// A tmpfs that is mounted at a target already.
#[derive(Debug)]
pub(super) struct ExistingMount {
    mount_id: MountId,
    volume: AtomicVolume,
    marker: Option<VolumeMarker>,
}

impl ExistingMount {
    /// The mounted volume, or `None` if there is neither a marker nor a publish request.
    pub(super) fn into_mounted_volume(
        self,
        context: &PublishContext,
        target: MountTarget,
        request: Option<PublishRequest>,
    ) -> Option<MountedVolume> {
        let Self { mount_id: id, mut volume, marker } = self;
        let mount = TmpfsMount::adopted(target.path());
        // The other driver keeps operating on its volume until the kubelet requests the volume from
        // this driver.
        if marker.is_none() && request.is_some() {
            context.fail_point.reach_step(VolumeStep::HardenMount);
            if let Err(error) = mount.harden() {
                let error = format_error_chain(&error);
                tracing::warn!(error, "could not set the mount options of an adopted volume");
            }
        }
        volume.set_mount(mount);
        let now = context.shared_clock.now();
        let visible = volume.current_generation().ok().flatten();
        let visible = visible.map(|visible| visible.as_str().to_owned()).unwrap_or_default();
        let marker = match (marker, &request) {
            (Some(marker), _) if marker.generation == visible => marker,
            (Some(marker), _) => marker.into_uncertified(),
            (None, Some(request)) => VolumeMarker::uncertified_for(request, now),
            (None, None) => return None,
        };
        let is_other = request.as_ref().is_some_and(|request| !marker.matches_request(request));
        let record = marker.poll_record.clone().filter(|_| !is_other);
        let mut mounted = MountedVolume::new(target, id, volume, marker, request);
        mounted.visible_generation = visible;
        if record.is_some() {
            mounted.history = PollHistory::restored(record, now);
        }
        Some(mounted)
    }
}

/// Inspects a target and unmounts empty or unreadable layers that hide a volume.
pub(super) fn inspect_target(
    context: &PublishContext,
    target: &MountTarget,
) -> Result<TargetInspection, PublishFailure> {
    for _ in 0..MAX_MOUNT_LAYERS {
        let (probe, existing) = probe_target(context, target)?;
        let plan = plan_publish(probe);
        if plan != PublishPlan::RemoveTopLayer {
            return Ok(TargetInspection { plan, existing });
        }
        drop(existing);
        tracing::warn!(target_path = %target.path().display(), ?probe, "unmounting an empty or unreadable mount");
        target.unmount_layer().map_err(|error| target_failure(&error.into()))?;
    }
    let message =
        format!("more than {MAX_MOUNT_LAYERS} mounts are stacked on {}", target.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message))
}

/// Inspects a target without changing it.
pub(super) fn inspect_target_read_only(
    context: &PublishContext,
    target: &MountTarget,
) -> Result<TargetInspection, PublishFailure> {
    let (probe, existing) = probe_target(context, target)?;
    Ok(TargetInspection { plan: plan_publish(probe), existing })
}

fn probe_target(
    context: &PublishContext,
    target: &MountTarget,
) -> Result<(MountProbe, Option<ExistingMount>), PublishFailure> {
    let state = target.state(&context.fail_point).map_err(|error| target_failure(&error.into()))?;
    Ok(match state {
        TargetState::Absent | TargetState::Directory => (MountProbe::Unmounted, None),
        TargetState::Symlink => (MountProbe::Symlink, None),
        TargetState::File => (MountProbe::File, None),
        TargetState::DeadMount => (MountProbe::Unreadable, None),
        TargetState::Mounted { in_memory: false, .. } => (MountProbe::NotTmpfs, None),
        TargetState::Mounted { root, id, layers, in_memory: true } => {
            let existing =
                open_existing_mount(context, root, id).map_err(|error| target_failure(&error))?;
            let content =
                classify_existing_mount(&existing).map_err(|error| target_failure(&error))?;
            (MountProbe::Tmpfs { layers, content }, Some(existing))
        }
    })
}

/// Opens a mounted volume and reads its marker. Ignores an invalid marker.
fn open_existing_mount(
    context: &PublishContext,
    root: OpenDirectory,
    id: MountId,
) -> Result<ExistingMount, PublishError> {
    let volume = AtomicVolume::in_directory(root, context.clock());
    let marker_json = volume.load_marker()?;
    let marker = marker_json.and_then(|marker_json| match VolumeMarker::parse(&marker_json, &context.driver_name) {
        Ok(marker) => Some(marker),
        Err(error) => {
            tracing::warn!(dir = %volume.dir().display(), error = format_error_chain(&error), "ignoring an invalid volume marker");
            None
        }
    });
    Ok(ExistingMount { mount_id: id, volume, marker })
}

/// Classifies the content of an existing mount by its links, its current generation and its
/// marker. Does not read the files.
fn classify_existing_mount(existing: &ExistingMount) -> Result<MountContentState, PublishError> {
    let is_whole = existing.volume.has_all_links()? == Some(true);
    let current = existing.volume.current_generation()?.filter(|_| is_whole);
    let visible = current.as_ref().map(VolumeGeneration::as_str);
    Ok(classify_content(existing.volume.has_no_content()?, visible, existing.marker.as_ref()))
}

/// Creates a volume, writes its first content and mounts it at the target once it is complete.
pub(super) fn mount_new_volume(
    context: &PublishContext,
    target: MountTarget,
    request: PublishRequest,
    fetched: FetchedResponse,
    budget: &dyn MemoryBudget,
) -> Result<MountedVolume, PublishFailure> {
    let (response, contents) = fetched.into_first_content();
    context.check_size(&response)?;
    claim_mount_memory(&target, &response, budget)?;
    context.fail_point.reach_step(VolumeStep::MakeTarget);
    let target_dir = target.create().map_err(|error| target_failure(&error.into()))?;
    ensure_not_mounted(&target)?;
    context.fail_point.reach_step(VolumeStep::MakeMount);
    let lengths = response.files.iter().map(|file| byte_count(file.content.len()));
    let options = TmpfsOptions::with_capacity_for(lengths, request.group);
    let staged = if context.staged_mounts {
        DetachedMount::create(target.path(), options)
            .map_err(|error| mount_failure(&error.into()))?
    } else {
        None
    };
    let Some(staged) = staged else {
        return mount_in_place(context, target, request, (response, contents), options);
    };
    let root = staged.open().map_err(|error| mount_failure(&error.into()))?;
    let root = OpenDirectory::from_fd(root, target.path(), context.fail_point.clone());
    let mut volume = AtomicVolume::in_directory(root, context.clock());
    let record = write_first_content(context, &mut volume, &request, (response, contents))?;
    ensure_not_mounted(&target)?;
    context.fail_point.reach_step(VolumeStep::Attach);
    let mount = staged.attach(&target_dir).map_err(|error| mount_failure(&error.into()))?;
    volume.set_mount(mount);
    finish_mount(target, volume, record, request)
}

/// The most node memory that the files of a response need in a volume.
pub(super) fn max_files_size(response: &ProviderResponse) -> u64 {
    let page = byte_count(rustix::param::page_size());
    let files = response.files.iter().map(|file| (&file.path, byte_count(file.content.len())));
    max_generation_size(files, page)
}

/// Claims the memory of a volume that does not exist yet.
fn claim_mount_memory(
    target: &MountTarget,
    response: &ProviderResponse,
    budget: &dyn MemoryBudget,
) -> Result<(), PublishFailure> {
    let needed = max_files_size(response);
    let purpose = MemoryPurpose::Mount;
    let growth = GrowthRequest { used: 0, used_after_scrub: 0, needed, read_bytes: 0, purpose };
    budget.claim(growth).map_err(|source| {
        write_failure(&PublishError::MemoryLimitExceeded { dir: target.path().to_owned(), source })
    })
}

/// Fails if something is mounted at the target. Mounts are never stacked: a container sees the
/// mount that was topmost when it started. The target was inspected before the fetch, and another
/// driver may have mounted there since.
fn ensure_not_mounted(target: &MountTarget) -> Result<(), PublishFailure> {
    if target.mount_id().map_err(|error| target_failure(&error.into()))?.is_none() {
        return Ok(());
    }
    let message = format!(
        "another process mounted on {} while the content was fetched",
        target.path().display()
    );
    Err(PublishFailure::new(OutcomeCode::FailedToMount, message)
        .with_hint(
            "check that only one CSI driver with this name runs on the node; the kubelet retries",
        )
        .into_non_final())
}

/// Like `mount_new_volume` where a file system needs a mount point before files can be written into
/// it. Readers see an empty volume for a moment. After a crash in that moment the volume stays
/// empty, and the missing marker shows it.
fn mount_in_place(
    context: &PublishContext,
    target: MountTarget,
    request: PublishRequest,
    response: (ProviderResponse, ContentRecord),
    options: TmpfsOptions,
) -> Result<MountedVolume, PublishFailure> {
    let mount = TmpfsMount::mount_or_adopt_with(target.path(), options)
        .map_err(|error| mount_failure(&error.into()))?;
    let filled = AtomicVolume::open_with_fail_point(
        target.path(),
        context.clock(),
        context.fail_point.clone(),
    )
    .map_err(|error| mount_failure(&error))
    .and_then(|mut volume| {
        let record = write_first_content(context, &mut volume, &request, response)?;
        Ok((volume, record))
    });
    // If `mount` is dropped before `persist`, it unmounts.
    let (mut volume, record) = filled?;
    let mut mount = mount;
    mount.persist();
    volume.set_mount(mount);
    context.fail_point.reach_step(VolumeStep::Attach);
    finish_mount(target, volume, record, request)
}

fn finish_mount(
    target: MountTarget,
    volume: AtomicVolume,
    (marker, clock): (VolumeMarker, PollHistory),
    request: PublishRequest,
) -> Result<MountedVolume, PublishFailure> {
    let lost = |message: String| PublishFailure::new(OutcomeCode::FailedToMount, message);
    let id = target.mount_id().map_err(|error| target_failure(&error.into()))?;
    let id = id.ok_or_else(|| lost(format!("{} is not a mount point", target.path().display())))?;
    let mut mounted = MountedVolume::new(target, id, volume, marker, Some(request));
    mounted.history = clock;
    Ok(mounted)
}

/// The outcome of an update of a mounted volume.
#[derive(Debug)]
pub(super) struct ContentUpdate {
    pub(super) published: PublishOutcome,
    /// Why older credentials were rejected.
    pub(super) older_rejection: Option<String>,
}

/// Writes the next content into a mounted volume.
pub(super) fn update_content(
    context: &PublishContext,
    mounted: &mut MountedVolume,
    fetched: FetchedResponse,
    budget: &dyn MemoryBudget,
) -> Result<ContentUpdate, PublishFailure> {
    let (response, contents) = fetched.without_older_credentials(mounted)?;
    context.check_size(&response)?;
    let request = mounted.request.clone();
    let options = TmpfsOptions::with_capacity_for([], request.group);
    mounted
        .volume
        .apply_root_attributes(options.mode(), request.group)
        .map_err(|error| write_failure(&error))?;
    let mut published = write_payload(&mut mounted.volume, &request, response, Some(budget))
        .inspect_err(|_| mounted.recheck_generation())?;
    if std::mem::take(&mut mounted.has_unreported_swap) {
        published.change = VolumeChange::Content;
    }
    let older_rejection = contents.older_rejection.clone();
    // Readers see the content from now on, even if the marker write fails.
    for older in &contents.accepted_older {
        let by = ReadRequester::new(&request.pod, &request.class_name);
        let (object, version) = (older.id.clone(), older.version.clone());
        context.audit.record(AuditEvent::OlderAccepted { by, object, version });
    }
    published.generation.as_str().clone_into(&mut mounted.visible_generation);
    contents.apply_to(&request, &published, &mut mounted.marker, &mut mounted.history);
    mounted.has_unreported_swap = published.change == VolumeChange::Content;
    write_marker(context, &mounted.volume, &mounted.marker)?;
    mounted.has_unreported_swap = false;
    Ok(ContentUpdate { published, older_rejection })
}

fn write_first_content(
    context: &PublishContext,
    volume: &mut AtomicVolume,
    request: &PublishRequest,
    (response, contents): (ProviderResponse, ContentRecord),
) -> Result<(VolumeMarker, PollHistory), PublishFailure> {
    // `claim_mount_memory` claimed the memory before the mount was created.
    let published = write_payload(volume, request, response, None)?;
    let mut marker = VolumeMarker::uncertified_for(request, context.shared_clock.now());
    let mut clock = PollHistory::default();
    contents.apply_to(request, &published, &mut marker, &mut clock);
    write_marker(context, volume, &marker)?;
    Ok((marker, clock))
}

fn write_payload(
    volume: &mut AtomicVolume,
    request: &PublishRequest,
    response: ProviderResponse,
    budget: Option<&dyn MemoryBudget>,
) -> Result<PublishOutcome, PublishFailure> {
    volume
        .publish_with_budget(&response.file_entries(request.group), budget)
        .map_err(|error| write_failure(&error))
}

/// Writes the marker into the volume.
pub(super) fn write_marker(
    context: &PublishContext,
    volume: &AtomicVolume,
    marker: &VolumeMarker,
) -> Result<(), PublishFailure> {
    let text = marker.to_json(&context.driver_name).map_err(|error| {
        PublishFailure::new(OutcomeCode::FileWriteError, format_error_chain(&error))
    })?;
    volume.write_marker(&text).map_err(|error| write_failure(&error))
}

/// Unmounts and removes the volume at a target, with all that is in its directory.
pub(super) fn remove_volume(
    context: &PublishContext,
    target: &MountTarget,
) -> Result<(), PublishFailure> {
    for layer in 0..MAX_MOUNT_LAYERS {
        let state = match target.state(&context.fail_point) {
            Ok(state) => state,
            Err(error) => return Err(target_failure(&error.into()).with_grpc_code(Code::Internal)),
        };
        match state {
            TargetState::Absent => return Ok(()),
            // The kubelet removes what remains of its directory. No call follows a link.
            TargetState::Symlink | TargetState::File => {
                let target = target.path().display();
                tracing::warn!(%target, "the target is a symbolic link or a file; leaving it in place");
                return Ok(());
            }
            TargetState::Directory => {
                return remove_target_directory(context, target, layer > 0);
            }
            TargetState::DeadMount | TargetState::Mounted { in_memory: false, .. } => {
                context.fail_point.reach_step(VolumeStep::Unmount);
                target.unmount_layer().map_err(|error| {
                    target_failure(&error.into()).with_grpc_code(Code::Internal)
                })?;
            }
            TargetState::Mounted { root, in_memory: true, .. } => {
                // The unmount frees the memory. Truncating the files is for processes that have
                // them open.
                if let Err(error) =
                    AtomicVolume::in_directory(root, context.clock()).remove_content()
                {
                    let (target, error) = (target.path().display(), format_error_chain(&error));
                    tracing::warn!(%target, error, "could not truncate the volume's files; unmounting it anyway");
                }
                context.fail_point.reach_step(VolumeStep::Unmount);
                target.unmount_layer().map_err(|error| {
                    target_failure(&error.into()).with_grpc_code(Code::Internal)
                })?;
            }
        }
    }
    let message =
        format!("more than {MAX_MOUNT_LAYERS} mounts are stacked on {}", target.path().display());
    Err(PublishFailure::new(OutcomeCode::FailedToEnsureMountPoint, message)
        .with_grpc_code(Code::Internal))
}

/// Removes the files of this driver from the directory, which has no mount (any more), and then the directory
/// with all that other programs left in it.
fn remove_target_directory(
    context: &PublishContext,
    target: &MountTarget,
    was_mounted: bool,
) -> Result<(), PublishFailure> {
    let empty = || -> Result<(), PublishError> {
        if !was_mounted && let Some(root) = target.open_directory(&context.fail_point)? {
            AtomicVolume::in_directory(root, context.clock()).remove_content()?;
        }
        context.fail_point.reach_step(VolumeStep::RemoveTarget);
        Ok(target.remove(&context.fail_point)?)
    };
    empty().map_err(|error| target_failure(&error).with_grpc_code(Code::Internal))
}

impl PublishContext {
    fn check_size(&self, response: &ProviderResponse) -> Result<(), PublishFailure> {
        let lengths = response.files.iter().map(|file| byte_count(file.content.len()));
        let bytes = lengths.fold(0, u64::saturating_add);
        let (files, limit) = (response.files.len(), self.content_limit);
        let message = if bytes > limit {
            format!(
                "the {files} files have {bytes} bytes in total, and the limit of a volume is {limit}"
            )
        } else if files > MAX_FILES {
            format!("there are {files} files, and the limit of a volume is {MAX_FILES}")
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

/// A legitimate target never has more stacked mounts.
const MAX_MOUNT_LAYERS: usize = 64;
