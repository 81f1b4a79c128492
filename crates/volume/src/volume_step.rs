//! The steps of volume operations, before each of which a crash test can kill the process.
//!
//! The crash matrix runs over this list: after a kill at any step, the next process must be able to
//! recover the node. A step precedes every system call that creates or removes something that
//! readers see. A step inside a loop (files, links, generations) is reached in each iteration. The
//! list omits work that does not change content and is repeated until it succeeds: modes and
//! groups, removal of abandoned generations, and unmounting of empty or unreadable layers.

use std::fmt;

use VolumeOperation::{AdoptMount, Publish, Rotate, Scrub, Unpublish};

/// An operation on a volume. The kubelet requests each of them except a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeOperation {
    /// Write and mount a volume that is not mounted.
    Publish,
    /// Update the content of a mounted volume.
    Rotate,
    /// Truncate the files of retired generations.
    Scrub,
    /// Adopt a volume that another driver mounted, and update its content.
    AdoptMount,
    /// Remove a volume.
    Unpublish,
}

impl VolumeOperation {
    /// All operations.
    pub const ALL: [Self; 5] = [Publish, Rotate, Scrub, AdoptMount, Unpublish];

    /// The steps of this operation, in the order in which they run.
    pub fn steps(self) -> impl Iterator<Item = VolumeStep> {
        VolumeStep::ALL.iter().copied().filter(move |step| step.operations().contains(&self))
    }
}

macro_rules! steps {
    ($($variant:ident, $name:literal, [$($operation:ident),*], $what:literal;)*) => {
        /// A step of a volume operation (publish, rotate, scrub, adopt, unpublish), before which a crash test can
        /// kill the process.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum VolumeStep {
            $(#[doc = $what] $variant,)*
        }

        impl VolumeStep {
            /// All steps, in the order in which they run.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name of the step in a crash point (`<step>#<n>`) and in the log, such as `write-files`. Names never
            /// change, because crash tests refer to them.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The operations that contain this step.
            pub const fn operations(self) -> &'static [VolumeOperation] {
                match self { $(Self::$variant => &[$($operation),*],)* }
            }
        }
    };
}

steps! {
    HardenMount, "harden", [AdoptMount], "Set the mount options of a volume that another driver mounted.";
    Fetch, "fill", [Publish, Rotate, AdoptMount], "Ask the provider for the content.";
    MakeTarget, "make-target", [Publish], "Create the target directory.";
    MakeMount, "make-mount", [Publish], "Create the tmpfs, not mounted yet.";
    GrowMount, "grow", [Rotate, AdoptMount], "Grow the tmpfs.";
    MakeGeneration, "make-generation", [Publish, Rotate, AdoptMount],
        "Create the directory of the next generation.";
    WriteFiles, "write-files", [Publish, Rotate, AdoptMount], "Write a file of the next generation.";
    FlushGeneration, "flush-generation", [Publish, Rotate, AdoptMount], "Flush the next generation.";
    MakeLinks, "make-links", [Publish, Rotate, AdoptMount], "Create the links to new files.";
    PrepareSwap, "prepare-swap", [Publish, Rotate, AdoptMount], "Create the next `..data` link under a temporary name.";
    Swap, "swap", [Publish, Rotate, AdoptMount], "Rename the next `..data` link over the current one.";
    FlushSwap, "flush-swap", [Publish, Rotate, AdoptMount], "Flush the rename.";
    UpdateLinks, "settle-links", [Publish, Rotate, AdoptMount], "Replace and remove the links that no longer have a file.";
    NotifyWatchers, "tell-watchers", [Rotate, AdoptMount], "Trigger the file watches on retired generations.";
    WriteMarker, "write-marker", [Publish, Rotate, AdoptMount], "Write the next marker under a temporary name.";
    ReplaceMarker, "replace-marker", [Publish, Rotate, AdoptMount], "Rename the next marker over the current one.";
    Attach, "attach", [Publish], "Mount the complete volume on its target.";
    Report, "report", [Publish, Rotate, AdoptMount], "Write the pod status.";
    Reply, "answer", [Publish, Rotate, AdoptMount, Unpublish], "Reply to the kubelet.";
    EmptyRetired, "empty-retired", [Scrub], "Truncate a file of a retired generation.";
    RemoveData, "remove-data", [Unpublish], "Remove `..data`; from then on there is no volume.";
    RemoveLinks, "remove-links", [Unpublish], "Remove a link through `..data`.";
    RemoveMarker, "remove-marker", [Unpublish], "Remove the marker.";
    RemoveGenerations, "remove-generations", [Unpublish], "Truncate and remove the files of a generation.";
    Unmount, "unmount", [Unpublish], "Unmount the tmpfs.";
    RemoveTarget, "remove-target", [Unpublish], "Remove the target directory.";
}

impl fmt::Display for VolumeStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_names_are_distinct_and_operations_have_steps_and_an_answer() {
        let mut names: Vec<_> = VolumeStep::ALL.iter().map(|step| step.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), VolumeStep::ALL.len());
        for operation in VolumeOperation::ALL {
            let (steps, replies) =
                (operation.steps(), operation.steps().filter(|it| *it == VolumeStep::Reply));
            let expected = if operation == Scrub { (1, 0) } else { (7, 1) };
            assert!(steps.count() >= expected.0, "{operation:?}");
            assert_eq!(replies.count(), expected.1, "{operation:?}");
        }
    }
}
