//! Resource types as data: names, regions, api-versions, and the checks of writes and deletions.
//!
//! Reference: "Naming rules and restrictions for Azure resources"; the api-versions that the resource
//! providers list under `/subscriptions/{id}/providers/{namespace}`.

use http::StatusCode;
use jiff::Timestamp;
use jiff::civil::Date;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::azure_state::AzureState;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::resources::resource_store::{ArmResource, ArmResourceStore};
use serde_json::Value;

use super::error::bad_request;
use super::resource_change::{ResourceDeletion, ResourceWrite};

/// The type of user-assigned managed identities.
pub(crate) const USER_ASSIGNED_IDENTITIES: &str =
    "Microsoft.ManagedIdentity/userAssignedIdentities";

/// A resource type that clients can write.
#[derive(Debug)]
pub struct ResourceType {
    /// The type, such as `Microsoft.Network/virtualNetworks/subnets`.
    pub name: &'static str,
    pub naming: NamingRule,
    pub region: RegionRule,
    /// The oldest api-version of the type.
    pub oldest_api_version: &'static str,
    /// Validates and completes the body, which has `properties` and passed the common checks.
    pub prepare: fn(&mut ResourceWrite<'_, '_>) -> Result<(), ServiceReply>,
    /// Rejects the deletion of a resource in use.
    pub check_deletion: fn(&ResourceDeletion<'_>) -> Result<(), ServiceReply>,
    /// Releases the state outside of a removed resource. Returns the ids of the resources that
    /// Azure removes with it.
    pub release: fn(&mut AzureState, &ArmResource, Timestamp) -> Vec<AccessScope>,
    /// Renders a resource, if replies differ from the stored resource.
    pub render: Option<fn(&ArmResourceStore, &ArmResource) -> Value>,
    /// JSON pointers to the URLs of the data plane in replies, and to objects with such URLs. They are stored
    /// without the port, which depends on the listener.
    pub endpoints: &'static [&'static str],
    /// Whether the properties have a `provisioningState`.
    pub has_provisioning_state: bool,
    /// Whether Azure completes writes and deletions after its reply. The delay itself is a setting.
    pub long_running: bool,
    /// The status of the reply to a creation. Clients reject statuses that the specification of their type does
    /// not list.
    pub creation_status: StatusCode,
    /// The status of the reply to a completed deletion.
    pub deletion_status: StatusCode,
}

impl ResourceType {
    /// A type with a region whose operations are long-running, without checks of its own.
    pub const fn regional(
        name: &'static str,
        naming: NamingRule,
        oldest_api_version: &'static str,
    ) -> Self {
        Self {
            name,
            naming,
            region: RegionRule::Regional,
            oldest_api_version,
            prepare: |_| Ok(()),
            check_deletion: |_| Ok(()),
            release: |_, _, _| Vec::new(),
            render: None,
            endpoints: &[],
            has_provisioning_state: true,
            long_running: true,
            creation_status: StatusCode::CREATED,
            deletion_status: StatusCode::OK,
        }
    }

    /// Like [`Self::regional`], for a child resource, which has no region of its own.
    pub const fn child(
        name: &'static str,
        naming: NamingRule,
        oldest_api_version: &'static str,
    ) -> Self {
        Self { region: RegionRule::None, ..Self::regional(name, naming, oldest_api_version) }
    }

    /// The namespace, such as `Microsoft.Network`.
    pub(super) fn namespace(&self) -> &'static str {
        self.name.split_once('/').map_or(self.name, |(namespace, _)| namespace)
    }
}

/// The rule for `location` of the resources of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionRule {
    /// A required region, which cannot change.
    Regional,
    /// `location` is always `global`.
    Global,
    /// There is no `location`: child and extension resources.
    None,
}

/// The characters that a name may start or end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameEdge {
    Any,
    Letter,
    Alphanumeric,
    AlphanumericOrUnderscore,
}

impl NameEdge {
    fn permits(self, character: char) -> bool {
        match self {
            Self::Any => true,
            Self::Letter => character.is_ascii_alphabetic(),
            Self::Alphanumeric => character.is_ascii_alphanumeric(),
            Self::AlphanumericOrUnderscore => character.is_ascii_alphanumeric() || character == '_',
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Any => "any of its characters",
            Self::Letter => "a letter",
            Self::Alphanumeric => "a letter or digit",
            Self::AlphanumericOrUnderscore => "a letter, a digit or `_`",
        }
    }
}

/// The rule for the names of the resources of a type.
#[derive(Debug, Clone, Copy)]
pub struct NamingRule {
    /// The least and the greatest number of characters.
    pub length: (usize, usize),
    /// The characters besides ASCII letters and digits.
    pub punctuation: &'static str,
    /// Whether letters must be in lower case.
    pub lower_case: bool,
    pub first: NameEdge,
    pub last: NameEdge,
    /// A text that no name may contain; empty if there is none.
    pub forbidden: &'static str,
}

impl NamingRule {
    /// Up to `most` letters, digits and `-`, `_`, `.`; most network resources have this rule.
    pub const fn word(most: usize) -> Self {
        Self {
            length: (1, most),
            punctuation: "-_.",
            lower_case: false,
            first: NameEdge::Alphanumeric,
            last: NameEdge::AlphanumericOrUnderscore,
            forbidden: "",
        }
    }

    /// Checks a name. The error text describes the rule.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let (least, most) = self.length;
        let is_permitted = |character: char| {
            let letter = character.is_ascii_alphanumeric()
                && !(self.lower_case && character.is_ascii_uppercase());
            letter || self.punctuation.contains(character)
        };
        let valid = (least..=most).contains(&name.chars().count())
            && name.chars().all(is_permitted)
            && name.chars().next().is_some_and(|first| self.first.permits(first))
            && name.chars().next_back().is_some_and(|last| self.last.permits(last))
            && (self.forbidden.is_empty() || !name.contains(self.forbidden));
        if valid { Ok(()) } else { Err(self.description()) }
    }

    fn description(&self) -> String {
        let (least, most) = self.length;
        let letters = if self.lower_case { "lower-case letters" } else { "letters" };
        let mut text = format!("The name has {least} to {most} characters: {letters}, digits");
        for character in self.punctuation.chars() {
            text.push_str(", `");
            text.push(character);
            text.push('`');
        }
        let (first, last) = (self.first.description(), self.last.description());
        let forbidden = match self.forbidden {
            "" => String::new(),
            text => format!(", and does not contain `{text}`"),
        };
        format!("{text}. It starts with {first} and ends with {last}{forbidden}.")
    }
}

/// Rejects an api-version that is older than the oldest one of the type. Also rejects one that is
/// dated after `today`, because Azure has not published it.
pub(super) fn require_known_api_version(
    resource_type: &str,
    oldest: &str,
    version: &str,
    today: Timestamp,
) -> Result<(), ServiceReply> {
    let date = |text: &str| text.get(..10).and_then(|date| date.parse::<Date>().ok());
    // One day of tolerance for time zones.
    let latest = today.to_zoned(jiff::tz::TimeZone::UTC).date().tomorrow();
    let (Some(requested), Some(oldest_date), Ok(latest)) = (date(version), date(oldest), latest)
    else {
        return Ok(());
    };
    if (oldest_date..=latest).contains(&requested) {
        return Ok(());
    }
    let (namespace, kind) = resource_type.split_once('/').unwrap_or((resource_type, ""));
    Err(bad_request(
        "NoRegisteredProviderFound",
        format!(
            "No registered resource provider found for API version '{version}' for type '{kind}' of \
             '{namespace}'. The supported api-versions start with '{oldest}'."
        ),
    ))
}

/// Returns the name of the resource with the id.
pub fn resource_name(id: &AccessScope) -> &str {
    id.as_str().rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_by_length_characters_and_ends() {
        let rule = NamingRule { length: (3, 8), forbidden: "--", ..NamingRule::word(8) };
        for good in ["abc", "a-b", "A.b_", "12345678"] {
            assert_eq!(rule.check(good), Ok(()), "{good}");
        }
        for bad in ["", "ab", "123456789", "-ab", "ab-", "a b", "a--b", "äbc", "a/b"] {
            assert!(rule.check(bad).is_err(), "{bad}");
        }
        let lower = NamingRule { lower_case: true, ..rule };
        assert!(lower.check("Abc").is_err());
        assert_eq!(
            lower.check("Abc").unwrap_err(),
            "The name has 3 to 8 characters: lower-case letters, digits, `-`, `_`, `.`. It starts with \
             a letter or digit and ends with a letter, a digit or `_`, and does not contain `--`."
        );
    }

    #[test]
    fn api_versions_before_the_type_and_after_today_are_rejected() {
        let today: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let check = |version| require_known_api_version("A.B/c", "2015-06-15", version, today);
        for good in ["2015-06-15", "2026-11-24", "2024-01-01-preview"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["2015-06-14", "2026-11-25", "2099-12-31-preview"] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
