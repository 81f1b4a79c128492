//! Plans a publish from the state of the target. Pure functions.

use crate::marker::VolumeMarker;

/// The state of a target, as probed before a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountProbe {
    /// The target is absent, or a directory on which nothing is mounted.
    Unmounted,
    /// The target or a directory above it is a symbolic link.
    Symlink,
    /// The target is a file.
    File,
    /// A mount that cannot be read.
    Unreadable,
    /// A mount that is not a tmpfs.
    NotTmpfs,
    Tmpfs {
        /// The number of mounts that are stacked at the target.
        layers: usize,
        /// The content of the topmost mount.
        content: MountContentState,
    },
}

/// Whether a mounted volume has content, and who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountContentState {
    /// No readable file.
    Empty,
    /// Files of another program, or this layout with a missing part.
    Foreign,
    /// `..data` points to a generation and all links of the volume lead into it, but no marker
    /// certifies it: another driver wrote it, or the process died between the swap and the marker.
    Uncertified,
    /// Like `Uncertified`, and the marker certifies the generation.
    Certified,
}

/// The action of a publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublishPlan {
    /// Write a volume and mount it once it is complete.
    Mount,
    /// Unmount the topmost mount, which is unusable, and probe the target again.
    RemoveTopLayer,
    /// Fill the mounted volume. No publish has succeeded for it yet, so the kubelet sees errors.
    FillExisting,
    /// Keep the mounted volume, which is complete. A pod may use it: it is never unmounted, and the
    /// kubelet does not see refresh errors.
    KeepMounted {
        /// Whether the marker certifies the content. If not, a refresh is due at once.
        certified: bool,
    },
    /// Change nothing and fail.
    Refuse(TargetObstacle),
}

/// What blocks the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetObstacle {
    Symlink,
    File,
    NotTmpfs,
}

/// Classifies content by the complete generation that readers see and by the marker.
pub(super) fn classify_content(
    is_empty: bool,
    visible: Option<&str>,
    marker: Option<&VolumeMarker>,
) -> MountContentState {
    match (visible, marker) {
        (Some(visible), Some(marker)) if marker.generation == visible => {
            MountContentState::Certified
        }
        (Some(_), _) => MountContentState::Uncertified,
        (None, _) if is_empty => MountContentState::Empty,
        (None, _) => MountContentState::Foreign,
    }
}

/// Plans a publish.
///
/// A container sees the mount that was topmost when it started for as long as it runs. So a mount
/// with readable content is never unmounted. An unreadable mount, or an empty one above another,
/// is: no pod can use it, and it hides the mount below.
pub(super) const fn plan_publish(probe: MountProbe) -> PublishPlan {
    match probe {
        MountProbe::Unmounted => PublishPlan::Mount,
        MountProbe::Symlink => PublishPlan::Refuse(TargetObstacle::Symlink),
        MountProbe::File => PublishPlan::Refuse(TargetObstacle::File),
        MountProbe::NotTmpfs => PublishPlan::Refuse(TargetObstacle::NotTmpfs),
        MountProbe::Unreadable
        | MountProbe::Tmpfs { layers: 2.., content: MountContentState::Empty } => {
            PublishPlan::RemoveTopLayer
        }
        MountProbe::Tmpfs {
            content: MountContentState::Empty | MountContentState::Foreign,
            ..
        } => PublishPlan::FillExisting,
        MountProbe::Tmpfs { content: MountContentState::Uncertified, .. } => {
            PublishPlan::KeepMounted { certified: false }
        }
        MountProbe::Tmpfs { content: MountContentState::Certified, .. } => {
            PublishPlan::KeepMounted { certified: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_CONTENTS: [MountContentState; 4] = [
        MountContentState::Empty,
        MountContentState::Foreign,
        MountContentState::Uncertified,
        MountContentState::Certified,
    ];

    #[test]
    fn only_a_mounted_generation_is_planned_as_kept() {
        let unmounted = [
            MountProbe::Unmounted,
            MountProbe::Symlink,
            MountProbe::File,
            MountProbe::Unreadable,
            MountProbe::NotTmpfs,
        ];
        for probe in unmounted {
            assert!(
                !matches!(
                    plan_publish(probe),
                    PublishPlan::KeepMounted { .. } | PublishPlan::FillExisting
                ),
                "{probe:?}"
            );
        }
        for (layers, content) in [1, 2, 3].iter().flat_map(|n| ALL_CONTENTS.map(|c| (*n, c))) {
            let is_whole =
                matches!(content, MountContentState::Uncertified | MountContentState::Certified);
            let plan = plan_publish(MountProbe::Tmpfs { layers, content });
            assert_eq!(
                matches!(plan, PublishPlan::KeepMounted { .. }),
                is_whole,
                "{layers} {content:?}"
            );
        }
    }

    #[test]
    fn only_unreadable_or_empty_top_layers_are_unmounted() {
        assert_eq!(plan_publish(MountProbe::Unreadable), PublishPlan::RemoveTopLayer);
        for (layers, content) in [1, 2, 3].iter().flat_map(|n| ALL_CONTENTS.map(|c| (*n, c))) {
            let uncovers =
                plan_publish(MountProbe::Tmpfs { layers, content }) == PublishPlan::RemoveTopLayer;
            assert_eq!(
                uncovers,
                layers > 1 && content == MountContentState::Empty,
                "{layers} {content:?}"
            );
        }
    }

    #[test]
    fn symlink_file_or_foreign_mount_at_target_is_refused() {
        for (probe, obstacle) in [
            (MountProbe::Symlink, TargetObstacle::Symlink),
            (MountProbe::File, TargetObstacle::File),
            (MountProbe::NotTmpfs, TargetObstacle::NotTmpfs),
        ] {
            assert_eq!(plan_publish(probe), PublishPlan::Refuse(obstacle));
        }
    }

    #[test]
    fn a_marker_certifies_the_generation_that_it_names_and_no_other() {
        let marker: VolumeMarker =
            super::super::fixture::marker_with_generation("..2026_11_21_12_00_00.2");
        let content = |current| classify_content(false, current, Some(&marker));
        assert_eq!(content(Some("..2026_11_21_12_00_00.2")), MountContentState::Certified);
        assert_eq!(content(Some("..2026_11_21_12_00_00.3")), MountContentState::Uncertified);
        assert_eq!(content(None), MountContentState::Foreign);
        assert_eq!(classify_content(true, None, Some(&marker)), MountContentState::Empty);
        assert_eq!(classify_content(false, Some("..x.1"), None), MountContentState::Uncertified);
    }
}
