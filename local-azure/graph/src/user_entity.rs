//! Users as resources of Microsoft Graph: their properties and their JSON.

use lanyard_emulator_state::directory::{EntraDirectory, User};
use serde_json::{Map, Value, json};

use super::entity::{GraphEntity, time_text};
use super::filter::{FilterTarget, FilterValue, FilterableProperty};
use super::schema::{GraphProperty, PropertyKind, properties, with_defaults};

/// The name of the type in messages.
pub(super) const USER: &str = "User";

/// The properties of a user. Reads contain a few of them only, unless `$select` names more.
pub(super) const USER_PROPERTIES: &[GraphProperty] = &[
    GraphProperty::read_only("id", PropertyKind::Text),
    GraphProperty::read_only("deletedDateTime", PropertyKind::Text).only_on_select(),
    GraphProperty::managed("accountEnabled", PropertyKind::Boolean).only_on_select(),
    GraphProperty::writable("ageGroup", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("businessPhones", PropertyKind::TextList),
    GraphProperty::writable("city", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("companyName", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("country", PropertyKind::Text).only_on_select(),
    GraphProperty::read_only("createdDateTime", PropertyKind::Text).only_on_select(),
    GraphProperty::read_only("creationType", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("department", PropertyKind::Text).only_on_select(),
    GraphProperty::managed("displayName", PropertyKind::Text),
    GraphProperty::writable("employeeId", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("employeeType", PropertyKind::Text).only_on_select(),
    GraphProperty::read_only("externalUserState", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("faxNumber", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("givenName", PropertyKind::Text),
    GraphProperty::writable("jobTitle", PropertyKind::Text),
    GraphProperty::writable("mail", PropertyKind::Text),
    GraphProperty::writable("mailNickname", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("mobilePhone", PropertyKind::Text),
    GraphProperty::writable("officeLocation", PropertyKind::Text),
    GraphProperty::writable("onPremisesImmutableId", PropertyKind::Text).only_on_select(),
    GraphProperty::read_only("onPremisesSyncEnabled", PropertyKind::Boolean).only_on_select(),
    GraphProperty::writable("otherMails", PropertyKind::TextList).only_on_select(),
    GraphProperty::writable("passwordPolicies", PropertyKind::Text).only_on_select(),
    GraphProperty::managed("passwordProfile", PropertyKind::Object).only_on_select(),
    GraphProperty::writable("postalCode", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("preferredLanguage", PropertyKind::Text),
    GraphProperty::read_only("proxyAddresses", PropertyKind::TextList).only_on_select(),
    GraphProperty::writable("showInAddressList", PropertyKind::Boolean).only_on_select(),
    GraphProperty::writable("state", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("streetAddress", PropertyKind::Text).only_on_select(),
    GraphProperty::writable("surname", PropertyKind::Text),
    GraphProperty::writable("usageLocation", PropertyKind::Text).only_on_select(),
    GraphProperty::managed("userPrincipalName", PropertyKind::Text),
    GraphProperty::writable("userType", PropertyKind::OneOf(&["Member", "Guest"])).only_on_select(),
];

impl GraphEntity for User {
    const TARGET: FilterTarget = FilterTarget {
        resource: USER,
        type_name: "user",
        properties: &[
            FilterableProperty::text("id"),
            FilterableProperty::text("userPrincipalName"),
            FilterableProperty::text("displayName"),
            FilterableProperty::text("mail"),
            FilterableProperty::text("mailNickname"),
            FilterableProperty::text("givenName"),
            FilterableProperty::text("surname"),
            FilterableProperty::text("jobTitle"),
            FilterableProperty::text("department"),
            FilterableProperty::text("employeeId"),
            FilterableProperty::text("onPremisesImmutableId"),
            FilterableProperty::text("userType"),
            FilterableProperty::boolean("accountEnabled"),
            FilterableProperty::time("createdDateTime"),
            FilterableProperty::text_list("otherMails"),
            FilterableProperty::text_list("proxyAddresses"),
        ],
    };
    const PROPERTIES: &'static [GraphProperty] = USER_PROPERTIES;
    const SORTABLE: &'static [&'static str] = &["displayName", "userPrincipalName"];

    fn id(&self) -> String {
        self.object_id.to_string()
    }

    fn filter_value<'a>(
        &'a self,
        _directory: &'a EntraDirectory,
        property: &str,
    ) -> FilterValue<'a> {
        match property {
            "userPrincipalName" => FilterValue::text(&self.principal_name),
            "displayName" => FilterValue::text(&self.display_name),
            "accountEnabled" => FilterValue::Boolean(self.enabled),
            "createdDateTime" => FilterValue::Time(self.created),
            other => FilterValue::stored(&self.properties, USER_PROPERTIES, other),
        }
    }

    fn to_json(&self, _directory: &EntraDirectory) -> Map<String, Value> {
        let mut json = with_defaults(USER_PROPERTIES, &self.properties);
        json.extend(properties([
            ("id", json!(self.object_id)),
            ("accountEnabled", json!(self.enabled)),
            ("createdDateTime", json!(time_text(self.created))),
            ("displayName", json!(self.display_name)),
            ("userPrincipalName", json!(self.principal_name)),
        ]));
        json
    }

    fn expand(&self, directory: &EntraDirectory, relationship: &str) -> Option<Value> {
        match relationship {
            "memberOf" => Some(super::object_json::groups_json(directory, self.object_id)),
            "appRoleAssignments" => {
                Some(super::app_role_assignments::assignments_json(directory, self.object_id))
            }
            "manager" => Some(Value::Null),
            _ => None,
        }
    }
}
