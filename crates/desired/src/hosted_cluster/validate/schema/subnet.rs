//! The rules of `subnetID`.
//!
//! The schema's patterns are not anchored, so they accept nearly any text. Values that only the
//! anchored patterns reject are lints.

use lanyard_api::crd_definitions::validation_messages;

use crate::hosted_cluster::validate::azure_field;
use crate::hosted_cluster::validate::checker::{FieldChecker, matches_resource_id_form};

const SUBNET_ID_FORM: &str =
    "/subscriptions/*/resourceGroups/*/providers/Microsoft.Network/virtualNetworks/*/subnets/*";

/// The rules for one of the names in a subnet id: of the resource group, the virtual network or the subnet.
struct SubnetIdName {
    position: usize,
    resource_name: &'static str,
    characters: &'static str,
    lengths: std::ops::RangeInclusive<usize>,
    forbidden_ends: &'static [char],
    shape_message: &'static str,
    end_message: &'static str,
}

const SUBNET_ID_NAMES: [SubnetIdName; 3] = [
    SubnetIdName {
        position: 4,
        resource_name: "resource group",
        characters: "-_().",
        lengths: 1..=90,
        forbidden_ends: &['.'],
        shape_message: validation_messages::SUBNET_GROUP,
        end_message: validation_messages::SUBNET_GROUP_END,
    },
    SubnetIdName {
        position: 8,
        resource_name: "virtual network",
        characters: "-_.",
        lengths: 2..=64,
        forbidden_ends: &['.', '-'],
        shape_message: validation_messages::SUBNET_VNET,
        end_message: validation_messages::SUBNET_VNET_END,
    },
    SubnetIdName {
        position: 10,
        resource_name: "subnet",
        characters: "-_.",
        lengths: 1..=80,
        forbidden_ends: &['.', '-'],
        shape_message: validation_messages::SUBNET_NAME,
        end_message: validation_messages::SUBNET_NAME_END,
    },
];

impl SubnetIdName {
    fn allows_character(&self, c: char) -> bool {
        c.is_ascii_alphanumeric() || self.characters.contains(c)
    }

    /// Returns whether the CRD schema accepts `text` as this name: its pattern, which is not anchored, matches
    /// anywhere in it.
    fn matches_schema_pattern(&self, text: &str) -> bool {
        let shortest = *self.lengths.start();
        text.split(|c| !self.allows_character(c)).any(|run| {
            let run = match self.position {
                10 => run.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()),
                _ => run,
            };
            run.len() >= shortest
        })
    }

    /// Returns whether Azure accepts `text` as this name: the pattern matches all of it.
    fn is_valid_azure_name(&self, text: &str) -> bool {
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric()) || self.position != 10;
        self.lengths.contains(&text.len())
            && text.chars().all(|c| self.allows_character(c))
            && begins
    }
}

pub(super) fn check_subnet_id(checker: &mut FieldChecker, value: Option<&String>) {
    let field = azure_field("subnetID");
    let Some(text) = checker.check_text(&field, value, 1..=355) else { return };
    checker.check_rule(
        &field,
        matches_resource_id_form(text, SUBNET_ID_FORM),
        validation_messages::SUBNET_FORMAT,
    );
    let parts: Vec<_> = text.split('/').collect();
    if parts.len() != 11 {
        return;
    }
    for segment in &SUBNET_ID_NAMES {
        let part = parts[segment.position];
        checker.check_rule(&field, segment.matches_schema_pattern(part), segment.shape_message);
        checker.check_rule(&field, !part.ends_with(segment.forbidden_ends), segment.end_message);
    }
}

/// Returns the parts of a subnet id that the schema accepts and Azure rejects, each with the
/// resource that it should name.
pub(in crate::hosted_cluster::validate) fn invalid_subnet_id_names(
    id: &str,
) -> Vec<(String, &'static str)> {
    let parts: Vec<_> = id.split('/').collect();
    let misnamed = |segment: &SubnetIdName| {
        let part = *parts.get(segment.position)?;
        (!segment.is_valid_azure_name(part)).then(|| (part.to_owned(), segment.resource_name))
    };
    SUBNET_ID_NAMES.iter().filter_map(misnamed).collect()
}
