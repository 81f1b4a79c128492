//! The steps of what is done to a volume: where a crash may fall.
//!
//! The list is what the crash matrix runs over: a process that is killed at any of these steps must
//! leave a node that the next process mends. Every call of the system that makes or takes away
//! what readers see stands behind one of them; where one step is a loop (files, links, generations),
//! it is reached before each turn of it. Left out is what changes no content and is repeated until
//! it is so: modes and groups, generations that a crash left unfinished, and useless mounts that are
//! uncovered.

use std::fmt;

use VolumeOperation::{AdoptMount, Publish, Rotate, Scrub, Unpublish};

/// What is done to a volume. The kubelet asks for it, except for a scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeOperation {
    /// Fill and mount a volume that is not mounted.
    Publish,
    /// Give a mounted volume newer content.
    Rotate,
    /// Empty what has retired long enough ago.
    Scrub,
    /// Go on with a volume that another driver mounted, and give it newer content.
    AdoptMount,
    /// Take a volume away.
    Unpublish,
}

impl VolumeOperation {
    /// All that can be asked.
    pub const ALL: [Self; 5] = [Publish, Rotate, Scrub, AdoptMount, Unpublish];

    /// The steps that it takes, in their order.
    pub fn steps(self) -> impl Iterator<Item = VolumeStep> {
        VolumeStep::ALL.iter().copied().filter(move |step| step.operations().contains(&self))
    }
}

macro_rules! steps {
    ($($variant:ident, $name:literal, [$($operation:ident),*], $what:literal;)*) => {
        /// One step: the process may die right before it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum VolumeStep {
            $(#[doc = $what] $variant,)*
        }

        impl VolumeStep {
            /// Every step, in the order in which they are taken.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is a step of.
            pub const fn operations(self) -> &'static [VolumeOperation] {
                match self { $(Self::$variant => &[$($operation),*],)* }
            }
        }
    };
}

steps! {
    HardenMount, "harden", [AdoptMount], "The mount of another driver gets the options of ours.";
    Fetch, "fill", [Publish, Rotate, AdoptMount], "The provider is asked.";
    MakeTarget, "make-target", [Publish], "The directory of the volume is made.";
    MakeMount, "make-mount", [Publish], "The memory file system is made, mounted nowhere yet.";
    GrowMount, "grow", [Rotate, AdoptMount], "The memory file system is given more room.";
    MakeGeneration, "make-generation", [Publish, Rotate, AdoptMount],
        "The directory of the next generation is made.";
    WriteFiles, "write-files", [Publish, Rotate, AdoptMount], "One of its files is written.";
    FlushGeneration, "flush-generation", [Publish, Rotate, AdoptMount], "It is flushed.";
    MakeLinks, "make-links", [Publish, Rotate, AdoptMount], "Links to files that are new are made.";
    PrepareSwap, "prepare-swap", [Publish, Rotate, AdoptMount], "The next `..data` is made beside the current.";
    Swap, "swap", [Publish, Rotate, AdoptMount], "The next `..data` is moved over the current.";
    FlushSwap, "flush-swap", [Publish, Rotate, AdoptMount], "The swap is flushed.";
    UpdateLinks, "settle-links", [Publish, Rotate, AdoptMount], "Links that lead nowhere now are removed.";
    NotifyWatchers, "tell-watchers", [Rotate, AdoptMount], "Who watches a retired file is told.";
    WriteMarker, "write-marker", [Publish, Rotate, AdoptMount], "The next marker is written.";
    ReplaceMarker, "replace-marker", [Publish, Rotate, AdoptMount], "It is moved over the current one.";
    Attach, "attach", [Publish], "The whole volume is mounted on its target.";
    Report, "report", [Publish, Rotate, AdoptMount], "The pod status is told.";
    Reply, "answer", [Publish, Rotate, AdoptMount, Unpublish], "The kubelet is answered.";
    EmptyRetired, "empty-retired", [Scrub], "One file of a retired generation is emptied.";
    RemoveData, "remove-data", [Unpublish], "`..data` is removed: there is no volume any more.";
    RemoveLinks, "remove-links", [Unpublish], "One of the links that led through it is removed.";
    RemoveMarker, "remove-marker", [Unpublish], "The marker is removed.";
    RemoveGenerations, "remove-generations", [Unpublish], "The files of one generation are emptied and removed.";
    Unmount, "unmount", [Unpublish], "The memory file system is unmounted.";
    RemoveTarget, "remove-target", [Unpublish], "The directory of the volume is removed.";
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
        for work in VolumeOperation::ALL {
            let (steps, answers) =
                (work.steps(), work.steps().filter(|it| *it == VolumeStep::Reply));
            let expected = if work == Scrub { (1, 0) } else { (7, 1) };
            assert!(steps.count() >= expected.0, "{work:?}");
            assert_eq!(answers.count(), expected.1, "{work:?}");
        }
    }
}
