//! The rules of `subnetID`.
//!
//! The schema's patterns are not anchored, so they take nearly everything; what they mean to say
//! is a lint of ours.

use lanyard_api::definitions::message;

use crate::hosted_cluster::validate::checker::{Checker, has_form};
use crate::hosted_cluster::validate::path;

const FORM: &str =
    "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/virtualNetworks/*/subnets/*";

/// A name in a subnet id: where it is, what it is made of and what it must not end with.
struct Segment {
    position: usize,
    what: &'static str,
    characters: &'static str,
    lengths: std::ops::RangeInclusive<usize>,
    forbidden_ends: &'static [char],
    shape_message: &'static str,
    end_message: &'static str,
}

const SEGMENTS: [Segment; 3] = [
    Segment {
        position: 4,
        what: "resource group",
        characters: "-_().",
        lengths: 1..=90,
        forbidden_ends: &['.'],
        shape_message: message::SUBNET_GROUP,
        end_message: message::SUBNET_GROUP_END,
    },
    Segment {
        position: 8,
        what: "virtual network",
        characters: "-_.",
        lengths: 2..=64,
        forbidden_ends: &['.', '-'],
        shape_message: message::SUBNET_VNET,
        end_message: message::SUBNET_VNET_END,
    },
    Segment {
        position: 10,
        what: "subnet",
        characters: "-_.",
        lengths: 1..=80,
        forbidden_ends: &['.', '-'],
        shape_message: message::SUBNET_NAME,
        end_message: message::SUBNET_NAME_END,
    },
];

impl Segment {
    fn valid(&self, c: char) -> bool {
        c.is_ascii_alphanumeric() || self.characters.contains(c)
    }

    /// The schema's pattern, which is searched for anywhere in the text.
    fn found_in(&self, text: &str) -> bool {
        let shortest = *self.lengths.start();
        text.split(|c| !self.valid(c)).any(|run| {
            let run = match self.position {
                10 => run.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()),
                _ => run,
            };
            run.len() >= shortest
        })
    }

    /// What the pattern means: the whole text, and not a part of it.
    fn is(&self, text: &str) -> bool {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric()) || self.position != 10;
        self.lengths.contains(&text.len()) && text.chars().all(|c| self.valid(c)) && begins
    }
}

pub(super) fn subnet(checker: &mut Checker, value: Option<&String>) {
    let field = path("subnetID");
    let Some(text) = checker.text(&field, value, 1..=355) else { return };
    checker.rule(&field, has_form(text, FORM), message::SUBNET_FORMAT);
    let parts: Vec<_> = text.split('/').collect();
    if parts.len() != 11 {
        return;
    }
    for segment in &SEGMENTS {
        let part = parts[segment.position];
        checker.rule(&field, segment.found_in(part), segment.shape_message);
        checker.rule(&field, !part.ends_with(segment.forbidden_ends), segment.end_message);
    }
}

/// The parts of a subnet id that the schema takes and Azure does not, and what each should name.
pub(in crate::hosted_cluster::validate) fn misnamed_parts(id: &str) -> Vec<(String, &'static str)> {
    let parts: Vec<_> = id.split('/').collect();
    let misnamed = |segment: &Segment| {
        let part = *parts.get(segment.position)?;
        (!segment.is(part)).then(|| (part.to_owned(), segment.what))
    };
    SEGMENTS.iter().filter_map(misnamed).collect()
}
