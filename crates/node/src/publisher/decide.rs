//! What to do about a volume, from what stands at its place. Pure.

use crate::marker::Marker;

/// What stands at the place of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Nothing, or a directory in which nothing is mounted.
    Unmounted,
    /// A symbolic link, or one on the way.
    Link,
    /// Something that is no directory.
    File,
    /// A mount that cannot be read.
    Dead,
    /// A mount that is not in memory.
    Elsewhere,
    /// A tmpfs.
    Memory {
        /// How many mounts lie on one another.
        layers: usize,
        /// What is in the topmost.
        content: Content,
    },
}

/// What is in a mounted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing that anybody could read.
    Blank,
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
pub(super) enum Plan {
    /// Fill a volume and mount it once it is whole.
    Mount,
    /// Take the topmost mount away, which is of no use to anybody, and look again.
    Uncover,
    /// Fill the volume that is mounted. Nobody was told yet that it is whole, so errors are told.
    Complete,
    /// The volume is whole. A pod may be running on it: it is never unmounted, and errors are
    /// masked.
    Keep {
        /// Whether it is known what it holds. If not, it is looked at now, whatever the time.
        certified: bool,
    },
    /// Touch nothing.
    Refuse(Obstacle),
}

/// What stands in the place of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    Link,
    File,
    Elsewhere,
}

/// What is in a volume, by the generation that readers see in it, whole, and its marker.
pub(super) fn content_of(blank: bool, seen: Option<&str>, marker: Option<&Marker>) -> Content {
    match (seen, marker) {
        (Some(seen), Some(marker)) if marker.generation == seen => Content::Certified,
        (Some(_), _) => Content::Uncertified,
        (None, _) if blank => Content::Blank,
        (None, _) => Content::Foreign,
    }
}

/// Decides.
///
/// A container sees the mount that was topmost when it started, for as long as it lives. So a mount
/// in which something can be read is never taken away; one that is blank or dead above another is,
/// because nobody can use it and it hides what is below.
pub(super) const fn decide(seen: Seen) -> Plan {
    match seen {
        Seen::Unmounted => Plan::Mount,
        Seen::Link => Plan::Refuse(Obstacle::Link),
        Seen::File => Plan::Refuse(Obstacle::File),
        Seen::Elsewhere => Plan::Refuse(Obstacle::Elsewhere),
        Seen::Dead | Seen::Memory { layers: 2.., content: Content::Blank } => Plan::Uncover,
        Seen::Memory { content: Content::Blank | Content::Foreign, .. } => Plan::Complete,
        Seen::Memory { content: Content::Uncertified, .. } => Plan::Keep { certified: false },
        Seen::Memory { content: Content::Certified, .. } => Plan::Keep { certified: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTENTS: [Content; 4] =
        [Content::Blank, Content::Foreign, Content::Uncertified, Content::Certified];

    #[test]
    fn a_volume_is_called_whole_only_where_a_generation_is_mounted() {
        let unmounted = [Seen::Unmounted, Seen::Link, Seen::File, Seen::Dead, Seen::Elsewhere];
        for seen in unmounted {
            assert!(!matches!(decide(seen), Plan::Keep { .. } | Plan::Complete), "{seen:?}");
        }
        for (layers, content) in [1, 2, 3].iter().flat_map(|n| CONTENTS.map(|c| (*n, c))) {
            let is_whole = matches!(content, Content::Uncertified | Content::Certified);
            let plan = decide(Seen::Memory { layers, content });
            assert_eq!(matches!(plan, Plan::Keep { .. }), is_whole, "{layers} {content:?}");
        }
    }

    #[test]
    fn only_what_nobody_can_read_is_unmounted() {
        assert_eq!(decide(Seen::Dead), Plan::Uncover);
        for (layers, content) in [1, 2, 3].iter().flat_map(|n| CONTENTS.map(|c| (*n, c))) {
            let uncovers = decide(Seen::Memory { layers, content }) == Plan::Uncover;
            assert_eq!(uncovers, layers > 1 && content == Content::Blank, "{layers} {content:?}");
        }
    }

    #[test]
    fn what_is_planted_in_the_place_of_a_volume_is_not_touched() {
        for (seen, obstacle) in [
            (Seen::Link, Obstacle::Link),
            (Seen::File, Obstacle::File),
            (Seen::Elsewhere, Obstacle::Elsewhere),
        ] {
            assert_eq!(decide(seen), Plan::Refuse(obstacle));
        }
    }

    #[test]
    fn a_marker_certifies_the_generation_that_it_names_and_no_other() {
        let marker: Marker = super::super::fixture::marker("..2026_11_21_12_00_00.2");
        let content = |current| content_of(false, current, Some(&marker));
        assert_eq!(content(Some("..2026_11_21_12_00_00.2")), Content::Certified);
        assert_eq!(content(Some("..2026_11_21_12_00_00.3")), Content::Uncertified);
        assert_eq!(content(None), Content::Foreign);
        assert_eq!(content_of(true, None, Some(&marker)), Content::Blank);
        assert_eq!(content_of(false, Some("..x.1"), None), Content::Uncertified);
    }
}
