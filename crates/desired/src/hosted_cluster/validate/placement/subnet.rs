//! The rules of `subnetID`.
//!
//! The schema's patterns are not anchored, so they take nearly everything; what they mean to say
//! is a lint here.

use lanyard_vocabulary::ArmResourceId;

use crate::hosted_cluster::validate::schema::Checker;

/// The message of the schema names another field; it is kept, for those who look for it.
const FORMAT: &str = "encryptionSetID must be in the format `/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/Microsoft.Network/virtualNetworks/{vnetName}/subnets/{subnetName}`";

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
        shape_message: "The resourceGroupName should be between 1 and 90 characters, consisting only of alphanumeric characters, hyphens, underscores, periods and parenthesis",
        end_message: "the resourceGroupName in the subnetID must not end with a period (.) character",
    },
    Segment {
        position: 8,
        what: "virtual network",
        characters: "-_.",
        lengths: 2..=64,
        forbidden_ends: &['.', '-'],
        shape_message: "The vnetName should be between 2 and 64 characters, consisting only of alphanumeric characters, hyphens, underscores and periods",
        end_message: "the vnetName in the subnetID must not end with either a period (.) or hyphen (-) character",
    },
    Segment {
        position: 10,
        what: "subnet",
        characters: "-_.",
        lengths: 1..=80,
        forbidden_ends: &['.', '-'],
        shape_message: "The subnetName should be between 1 and 80 characters, consisting only of alphanumeric characters, hyphens and underscores and must start with an alphanumeric character",
        end_message: "the subnetName in the subnetID must not end with a period (.) or hyphen (-) character",
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

pub(super) fn subnet(checker: &mut Checker, value: Option<&String>) -> Option<ArmResourceId> {
    check(checker, &super::path("subnetID"), value)
}

/// Checks a subnet id at any place.
pub(super) fn check(
    checker: &mut Checker,
    field: &str,
    value: Option<&String>,
) -> Option<ArmResourceId> {
    let text = checker.text(field, value, 1..=355)?;
    let parts: Vec<_> = text.split('/').collect();
    let words = [
        (0, ""),
        (1, "subscriptions"),
        (3, "resourceGroups"),
        (5, "providers"),
        (6, "Microsoft.Network"),
        (7, "virtualNetworks"),
        (9, "subnets"),
    ];
    let shaped = parts.len() == 11 && words.iter().all(|(place, word)| parts[*place] == *word);
    if !checker.rule(field, shaped, FORMAT) {
        return None;
    }
    let mut holds = true;
    for segment in &SEGMENTS {
        let part = parts[segment.position];
        let found = checker.rule(field, segment.found_in(part), segment.shape_message);
        let ends = !part.ends_with(segment.forbidden_ends);
        let ends = checker.rule(field, ends, segment.end_message);
        if found && ends && !segment.is(part) {
            checker.problems.lint(
                field,
                format!(
                    "`{part}` is not the name of a {}; the API takes it, and Azure will not",
                    segment.what
                ),
                "copy the id from `az network vnet subnet show`",
            );
        }
        holds &= found && ends;
    }
    checker.expect_uuid(field, parts[2]);
    if holds { checker.parsed(field, text) } else { None }
}
