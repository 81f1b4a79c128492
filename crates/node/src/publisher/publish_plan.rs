//! What to do about a volume, from what stands at its place. Pure.

use crate::marker::VolumeMarker;

/// What stands at the place of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountProbe {
    /// Nothing, or a directory in which nothing is mounted.
    Unmounted,
    /// A symbolic link, or one on the way.
    Symlink,
    /// Something that is no directory.
    File,
    /// A mount that cannot be read.
    Unreadable,
    /// A mount that is not in memory.
    NotTmpfs,
    /// A tmpfs.
    Tmpfs {
        /// How many mounts lie on one another.
        layers: usize,
        /// What is in the topmost.
        content: MountContent,
    },
}

/// What is in a mounted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountContent {
    /// Nothing that anybody could read.
    Empty,
    /// Files of somebody else, or our layout with something missing.
    Foreign,
    /// `..data` leads to a generation, and all its names lead into it, but no marker certifies it: it is the work of another
    /// driver, or the process died between the swap and the marker.
    Uncertified,
    /// The same, and the marker certifies the generation.
    Certified,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublishPlan {
    /// Fill a volume and mount it once it is whole.
    Mount,
    /// Take the topmost mount away, which is of no use to anybody, and look again.
    RemoveTopLayer,
    /// Fill the volume that is mounted. Nobody was told yet that it is whole, so errors are told.
    FillExisting,
    /// The volume is whole. A pod may be running on it: it is never unmounted, and errors are
    /// masked.
    KeepMounted {
        /// Whether it is known what it holds. If not, it is looked at now, whatever the time.
        certified: bool,
    },
    /// Touch nothing.
    Refuse(TargetObstacle),
}

/// What stands in the place of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetObstacle {
    Symlink,
    File,
    NotTmpfs,
}

/// What is in a volume, by the generation that readers see in it, whole, and its marker.
pub(super) fn classify_content(
    blank: bool,
    seen: Option<&str>,
    marker: Option<&VolumeMarker>,
) -> MountContent {
    match (seen, marker) {
        (Some(seen), Some(marker)) if marker.generation == seen => MountContent::Certified,
        (Some(_), _) => MountContent::Uncertified,
        (None, _) if blank => MountContent::Empty,
        (None, _) => MountContent::Foreign,
    }
}

/// Decides.
///
/// A container sees the mount that was topmost when it started, for as long as it lives. So a mount
/// in which something can be read is never taken away; one that is blank or dead above another is,
/// because nobody can use it and it hides what is below.
pub(super) const fn plan_publish(seen: MountProbe) -> PublishPlan {
    match seen {
        MountProbe::Unmounted => PublishPlan::Mount,
        MountProbe::Symlink => PublishPlan::Refuse(TargetObstacle::Symlink),
        MountProbe::File => PublishPlan::Refuse(TargetObstacle::File),
        MountProbe::NotTmpfs => PublishPlan::Refuse(TargetObstacle::NotTmpfs),
        MountProbe::Unreadable
        | MountProbe::Tmpfs { layers: 2.., content: MountContent::Empty } => {
            PublishPlan::RemoveTopLayer
        }
        MountProbe::Tmpfs { content: MountContent::Empty | MountContent::Foreign, .. } => {
            PublishPlan::FillExisting
        }
        MountProbe::Tmpfs { content: MountContent::Uncertified, .. } => {
            PublishPlan::KeepMounted { certified: false }
        }
        MountProbe::Tmpfs { content: MountContent::Certified, .. } => {
            PublishPlan::KeepMounted { certified: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_CONTENTS: [MountContent; 4] = [
        MountContent::Empty,
        MountContent::Foreign,
        MountContent::Uncertified,
        MountContent::Certified,
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
        for seen in unmounted {
            assert!(
                !matches!(
                    plan_publish(seen),
                    PublishPlan::KeepMounted { .. } | PublishPlan::FillExisting
                ),
                "{seen:?}"
            );
        }
        for (layers, content) in [1, 2, 3].iter().flat_map(|n| ALL_CONTENTS.map(|c| (*n, c))) {
            let is_whole = matches!(content, MountContent::Uncertified | MountContent::Certified);
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
                layers > 1 && content == MountContent::Empty,
                "{layers} {content:?}"
            );
        }
    }

    #[test]
    fn symlink_file_or_foreign_mount_at_target_is_refused() {
        for (seen, obstacle) in [
            (MountProbe::Symlink, TargetObstacle::Symlink),
            (MountProbe::File, TargetObstacle::File),
            (MountProbe::NotTmpfs, TargetObstacle::NotTmpfs),
        ] {
            assert_eq!(plan_publish(seen), PublishPlan::Refuse(obstacle));
        }
    }

    #[test]
    fn a_marker_certifies_the_generation_that_it_names_and_no_other() {
        let marker: VolumeMarker =
            super::super::fixture::marker_with_generation("..2026_11_21_12_00_00.2");
        let content = |current| classify_content(false, current, Some(&marker));
        assert_eq!(content(Some("..2026_11_21_12_00_00.2")), MountContent::Certified);
        assert_eq!(content(Some("..2026_11_21_12_00_00.3")), MountContent::Uncertified);
        assert_eq!(content(None), MountContent::Foreign);
        assert_eq!(classify_content(true, None, Some(&marker)), MountContent::Empty);
        assert_eq!(classify_content(false, Some("..x.1"), None), MountContent::Uncertified);
    }
}
