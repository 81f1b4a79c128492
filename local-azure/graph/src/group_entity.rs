//! Groups as resources of Microsoft Graph: their properties and their JSON.

use lanyard_emulator_state::directory::{EntraDirectory, Group};
use serde_json::{Map, Value, json};

use super::entity::{GraphEntity, time_text};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::{GraphProperty, PropertyKind, properties, with_defaults};

/// The name of the type in messages.
pub(super) const GROUP: &str = "Group";

/// The properties of a group.
pub(super) const GROUP_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::read_only("deletedDateTime", PropertyKind::Text),
    GraphProperty::writable("classification", PropertyKind::Text),
    GraphProperty::read_only("createdDateTime", PropertyKind::Text),
    GraphProperty::read_only("creationOptions", PropertyKind::TextList),
    GraphProperty::writable("description", PropertyKind::Text),
    GraphProperty::managed("displayName", PropertyKind::Text),
    GraphProperty::read_only("expirationDateTime", PropertyKind::Text),
    GraphProperty::create_only("groupTypes", PropertyKind::TextList),
    GraphProperty::create_only("isAssignableToRole", PropertyKind::Boolean),
    GraphProperty::read_only("mail", PropertyKind::Text),
    GraphProperty::writable("mailEnabled", PropertyKind::BooleanOr(false)),
    GraphProperty::writable("mailNickname", PropertyKind::Text),
    GraphProperty::read_only("membershipRule", PropertyKind::Text),
    GraphProperty::read_only("membershipRuleProcessingState", PropertyKind::Text),
    GraphProperty::read_only("onPremisesDomainName", PropertyKind::Text),
    GraphProperty::read_only("onPremisesLastSyncDateTime", PropertyKind::Text),
    GraphProperty::read_only("onPremisesNetBiosName", PropertyKind::Text),
    GraphProperty::read_only("onPremisesSamAccountName", PropertyKind::Text),
    GraphProperty::read_only("onPremisesSecurityIdentifier", PropertyKind::Text),
    GraphProperty::read_only("onPremisesSyncEnabled", PropertyKind::Boolean),
    GraphProperty::writable("preferredDataLocation", PropertyKind::Text),
    GraphProperty::writable("preferredLanguage", PropertyKind::Text),
    GraphProperty::read_only("proxyAddresses", PropertyKind::TextList),
    GraphProperty::read_only("renewedDateTime", PropertyKind::Text),
    GraphProperty::read_only("resourceBehaviorOptions", PropertyKind::TextList),
    GraphProperty::read_only("resourceProvisioningOptions", PropertyKind::TextList),
    GraphProperty::writable("securityEnabled", PropertyKind::BooleanOr(true)),
    GraphProperty::read_only("securityIdentifier", PropertyKind::Text),
    GraphProperty::writable("theme", PropertyKind::Text),
    GraphProperty::create_only("uniqueName", PropertyKind::Text),
    GraphProperty::writable("visibility", PropertyKind::Text),
    GraphProperty::read_only("onPremisesProvisioningErrors", PropertyKind::ObjectList),
    GraphProperty::read_only("serviceProvisioningErrors", PropertyKind::ObjectList),
];

impl GraphEntity for Group {
    const TARGET: FilterTarget = FilterTarget {
        resource: GROUP,
        type_name: "group",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("displayName"),
            FilterableProperty::text("description").advanced(),
            FilterableProperty::text("mail"),
            FilterableProperty::text("mailNickname"),
            FilterableProperty::text("uniqueName"),
            FilterableProperty::text("securityIdentifier"),
            FilterableProperty::boolean("mailEnabled"),
            FilterableProperty::boolean("securityEnabled"),
            FilterableProperty::boolean("isAssignableToRole"),
            FilterableProperty::time("createdDateTime"),
            FilterableProperty::text_list("groupTypes"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = GROUP_PROPERTIES;

    fn id(&self) -> String {
        self.object_id.to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "displayName" => FilterValue::text(&self.display_name),
            "createdDateTime" => FilterValue::Time(self.created),
            "securityIdentifier" => FilterValue::text(security_identifier(self)),
            other => FilterValue::stored(&self.properties, GROUP_PROPERTIES, other),
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        let mut json = with_defaults(GROUP_PROPERTIES, &self.properties);
        let created = json!(time_text(self.created));
        json.extend(properties([
            ("id", json!(self.object_id)),
            ("createdDateTime", created.clone()),
            ("displayName", json!(self.display_name)),
            ("renewedDateTime", created),
            ("securityIdentifier", json!(security_identifier(self))),
        ]));
        json
    }

    fn expand(&self, directory: &EntraDirectory, relationship: &str) -> Option<Value> {
        match relationship {
            "owners" => Some(super::object_json::objects_json(directory, &self.owners)),
            "members" => {
                let members: Vec<_> = self.members.iter().copied().collect();
                Some(super::object_json::objects_json(directory, &members))
            }
            "memberOf" => Some(super::object_json::groups_json(directory, self.object_id)),
            _ => None,
        }
    }
}

/// The security identifier: `S-1-12-1-` and the four words of the object id, little endian.
fn security_identifier(group: &Group) -> String {
    let bytes = group.object_id.to_bytes_le();
    let words: Vec<_> = bytes
        .chunks_exact(4)
        .map(|chunk| {
            chunk.iter().rev().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte)).to_string()
        })
        .collect();
    format!("S-1-12-1-{}", words.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn security_identifier_is_that_of_entra() {
        // A group that Microsoft Graph created, with the identifier that it returned.
        let group = Group {
            object_id: "a3f6c606-38ec-42d7-8c0e-d4ecaf0d9d61".parse().unwrap(),
            tenant: lanyard_emulator::testing::TENANT.parse().unwrap(),
            display_name: "g".to_owned(),
            created: jiff::Timestamp::UNIX_EPOCH,
            members: std::collections::BTreeSet::new(),
            owners: Vec::new(),
            properties: Map::new(),
        };
        assert_eq!(
            security_identifier(&group),
            "S-1-12-1-2750858758-1121401068-3973320332-1637682607"
        );
    }
}
