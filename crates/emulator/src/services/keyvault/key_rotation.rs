//! Rotation of keys: by request, and by a policy on the emulated time.

use http::StatusCode;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::access::{
    VaultMut, VaultRef, VaultView, authorize_call, authorized_vault_mut, object_error_reply,
    store_error_reply,
};
use super::api_version::VersionedFeature;
use super::keys::{KeyContent, key_generation_error_reply};
use super::object_kind::{
    GET_ROTATION_POLICY, KeyVaultObjectKind, ROTATE_KEY, SET_ROTATION_POLICY,
};
use super::object_store::{StoredObjectAttributes, StoredObjectVersion, StoredVaultObject};
use super::objects::{StoredObject, changed_version_reply, object_id, reject_managed};
use super::request_body::{bad_parameter_reply, parse_body};
use crate::keys::{AsymmetricKey, AsymmetricKeyType};
use crate::operation_context::OperationContext;
use crate::request::ServiceReply;

/// The shortest lifetime of a version, in days.
const SHORTEST_EXPIRY_DAYS: i32 = 28;
/// The shortest time between creation and rotation, and between an action and expiry, in days.
const SHORTEST_INTERVAL_DAYS: i32 = 7;
/// The longest duration in a policy: longer than any that clients use, and far from the end of the calendar.
const LONGEST_YEARS: i32 = 100;

/// An ISO 8601 duration in its original form, such as `P90D`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct IsoDuration(String);

/// Errors of parsing an ISO 8601 duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseIsoDurationError {
    #[error("`{0}` is not a duration of ISO 8601 such as `P90D`")]
    Malformed(String),
    #[error("`{0}` is longer than {LONGEST_YEARS} years")]
    TooLong(String),
}

impl TryFrom<String> for IsoDuration {
    type Error = ParseIsoDurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        match text.parse::<Span>() {
            Ok(span) if span.is_positive() && text.starts_with('P') => {}
            _ => return Err(ParseIsoDurationError::Malformed(text)),
        }
        let duration = Self(text);
        match duration.after_1970() {
            Some(end) if time_after_1970(Span::new().years(LONGEST_YEARS)) >= Some(end) => {
                Ok(duration)
            }
            _ => Err(ParseIsoDurationError::TooLong(duration.0)),
        }
    }
}

impl From<IsoDuration> for String {
    fn from(duration: IsoDuration) -> Self {
        duration.0
    }
}

impl IsoDuration {
    fn span(&self) -> Span {
        self.0.parse().unwrap_or_default()
    }

    /// The time after `start` by the calendar in UTC.
    fn after(&self, start: Timestamp) -> Option<Timestamp> {
        let end = start.to_zoned(TimeZone::UTC).checked_add(self.span()).ok()?;
        Some(end.timestamp())
    }

    /// The time before `end` by the calendar in UTC.
    fn before(&self, end: Timestamp) -> Option<Timestamp> {
        let start = end.to_zoned(TimeZone::UTC).checked_sub(self.span()).ok()?;
        Some(start.timestamp())
    }

    /// The time after the start of 1970, by which durations are compared.
    fn after_1970(&self) -> Option<Timestamp> {
        self.after(Timestamp::UNIX_EPOCH)
    }

    /// Whether the duration is at least that many days, counted from the start of 1970.
    fn is_at_least_days(&self, days: i32) -> bool {
        self.after_1970() >= time_after_1970(Span::new().days(days))
    }
}

fn time_after_1970(span: Span) -> Option<Timestamp> {
    let start = Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC);
    start.checked_add(span).ok().map(|end| end.timestamp())
}

/// When a policy rotates a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum RotationTrigger {
    TimeAfterCreate(IsoDuration),
    TimeBeforeExpiry(IsoDuration),
}

impl RotationTrigger {
    /// Rejects a trigger that rotates a version of this lifetime too soon after its creation or too late before
    /// its expiry.
    fn check(&self, expiry: Option<&IsoDuration>) -> Result<(), String> {
        let Some(expiry) = expiry else { return Ok(()) };
        let interval = Span::new().days(SHORTEST_INTERVAL_DAYS);
        let end = expiry.after_1970().unwrap_or(Timestamp::MAX).to_zoned(TimeZone::UTC);
        let latest = end.checked_sub(interval).ok().map(|latest| latest.timestamp());
        let (field, time, rule) = match self {
            Self::TimeAfterCreate(time) => ("timeAfterCreate", time, "before expiry"),
            Self::TimeBeforeExpiry(time) => ("timeBeforeExpiry", time, "after creation"),
        };
        if time.after_1970() <= latest {
            return Ok(());
        }
        Err(format!(
            "`{field}` `{}` does not rotate a key with the `expiryTime` `{}` at least \
             {SHORTEST_INTERVAL_DAYS} days {rule}",
            time.0, expiry.0
        ))
    }
}

/// The rotation policy of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeyRotationPolicy {
    rotate: Option<RotationTrigger>,
    /// How long before expiry Azure would publish an event.
    notify_before_expiry: Option<IsoDuration>,
    /// The lifetime of new versions.
    expiry: Option<IsoDuration>,
    created: Timestamp,
    updated: Timestamp,
}

impl KeyRotationPolicy {
    /// The expiry of a version that is created at a time.
    pub(super) fn expiry_after(&self, created: Timestamp) -> Option<Timestamp> {
        self.expiry.as_ref()?.after(created)
    }

    /// When the key with this latest version is rotated.
    pub(super) fn next_rotation(&self, latest: StoredObjectAttributes) -> Option<Timestamp> {
        match self.rotate.as_ref()? {
            RotationTrigger::TimeAfterCreate(time) => time.after(latest.created),
            RotationTrigger::TimeBeforeExpiry(time) => time.before(latest.expires?),
        }
    }

    /// The attributes of the version that exists at `now`, if the policy creates versions from `first` on.
    /// Versions that were due in between are omitted.
    pub(super) fn attributes_at(&self, first: Timestamp, now: Timestamp) -> StoredObjectAttributes {
        let version_at = |created| {
            let mut attributes = StoredObjectAttributes::new(created);
            attributes.expires = self.expiry_after(created);
            attributes
        };
        let mut current = version_at(first);
        while let Some(next) = self.next_rotation(current)
            && next <= now
            && next > current.created
        {
            current = version_at(next);
        }
        current
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RotationPolicyBody {
    lifetime_actions: Option<Vec<LifetimeActionBody>>,
    attributes: Option<PolicyAttributesBody>,
}

#[derive(Deserialize)]
struct LifetimeActionBody {
    trigger: Option<TriggerBody>,
    action: Option<ActionBody>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct TriggerBody {
    time_after_create: Option<String>,
    time_before_expiry: Option<String>,
}

#[derive(Deserialize)]
struct ActionBody {
    #[serde(rename = "type")]
    kind: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyAttributesBody {
    expiry_time: Option<String>,
}

impl RotationPolicyBody {
    fn into_policy(
        self,
        previous: Option<&KeyRotationPolicy>,
        now: Timestamp,
    ) -> Result<KeyRotationPolicy, String> {
        let expiry = self.attributes.and_then(|attributes| attributes.expiry_time);
        let expiry = parse_duration("attributes.expiryTime", expiry, SHORTEST_EXPIRY_DAYS)?;
        let (mut rotate, mut notify) = (None, None);
        for LifetimeActionBody { trigger, action } in self.lifetime_actions.unwrap_or_default() {
            let trigger = trigger.unwrap_or_default();
            let days = SHORTEST_INTERVAL_DAYS;
            let after = parse_duration("timeAfterCreate", trigger.time_after_create, days)?;
            let before = parse_duration("timeBeforeExpiry", trigger.time_before_expiry, days)?;
            if before.is_some() && expiry.is_none() {
                return Err("`timeBeforeExpiry` needs `attributes.expiryTime`".to_owned());
            }
            let kind = action.and_then(|action| action.kind).unwrap_or_default();
            if kind.eq_ignore_ascii_case("rotate") && rotate.is_none() {
                rotate = Some(match (after, before) {
                    (Some(time), None) => RotationTrigger::TimeAfterCreate(time),
                    (None, Some(time)) => RotationTrigger::TimeBeforeExpiry(time),
                    _ => return Err("an action has one trigger".to_owned()),
                });
            } else if kind.eq_ignore_ascii_case("notify") && notify.is_none() {
                notify = Some(match (after, before) {
                    (None, Some(time)) => time,
                    _ => return Err("the trigger of `Notify` is `timeBeforeExpiry`".to_owned()),
                });
            } else {
                let rule = "each of `Rotate` and `Notify` at most once";
                return Err(format!(
                    "`lifetimeActions` has the action `{kind}`, but permits {rule}"
                ));
            }
        }
        if let Some(trigger) = &rotate {
            trigger.check(expiry.as_ref())?;
        }
        Ok(KeyRotationPolicy {
            rotate,
            notify_before_expiry: notify,
            expiry,
            created: previous.map_or(now, |previous| previous.created),
            updated: now,
        })
    }
}

fn parse_duration(
    field: &str,
    text: Option<String>,
    least_days: i32,
) -> Result<Option<IsoDuration>, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let duration = IsoDuration::try_from(text).map_err(|error| format!("`{field}`: {error}"))?;
    if !duration.is_at_least_days(least_days) {
        return Err(format!("`{field}` is shorter than {least_days} days"));
    }
    Ok(Some(duration))
}

/// `GET /keys/{name}/rotationpolicy`.
pub(super) fn get_rotation_policy(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let reference @ VaultRef { vault, vaults, api, .. } =
        authorize_call(call, GET_ROTATION_POLICY)?;
    api.require(VersionedFeature::KeyRotation)?;
    let found =
        vaults.keys.object(&vault.host, name).map(|object| policy_json(reference.view(), object));
    match found {
        Ok(policy) => Ok(ServiceReply::json(StatusCode::OK, &policy)),
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Key, call)),
    }
}

/// `PUT /keys/{name}/rotationpolicy`.
pub(super) fn set_rotation_policy(
    call: &mut OperationContext<'_>,
) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, api, .. } = authorize_call(call, SET_ROTATION_POLICY)?;
    api.require(VersionedFeature::KeyRotation)?;
    let previous = vaults
        .keys
        .object(&vault.host, name)
        .map(|object| (KeyContent::is_managed(object), object.details.rotation.clone()));
    let (is_managed, previous) =
        previous.map_err(|problem| store_error_reply(problem, KeyVaultObjectKind::Key, call))?;
    reject_managed::<KeyContent>(is_managed, name)?;
    let body: RotationPolicyBody = parse_body(call)?;
    let policy = body.into_policy(previous.as_ref(), call.now).map_err(bad_parameter_reply)?;
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let host = &requested.vault.host;
    let changed = vaults
        .keys
        .change_object(host, name, |object| object.details.rotation = Some(policy))
        .and_then(|()| vaults.keys.object(host, name));
    match changed {
        Ok(object) => {
            let view = requested.view();
            Ok(ServiceReply::json(StatusCode::OK, &policy_json(view, object)))
        }
        Err(problem) => Err(store_error_reply(problem, KeyVaultObjectKind::Key, call)),
    }
}

/// `POST /keys/{name}/rotate`: a new version with a new key of the same type.
pub(super) fn rotate_key(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let name = call.path_parameter("name");
    let VaultRef { vault, vaults, api, .. } = authorize_call(call, ROTATE_KEY)?;
    api.require(VersionedFeature::KeyRotation)?;
    let found = vaults.keys.object(&vault.host, name).map(|object| {
        let rotation = object.details.rotation.clone();
        (KeyContent::is_managed(object), rotated_key_type(object), rotation)
    });
    let (is_managed, key_type, policy) =
        found.map_err(|problem| store_error_reply(problem, KeyVaultObjectKind::Key, call))?;
    reject_managed::<KeyContent>(is_managed, name)?;
    let key_type = key_type
        .ok_or_else(|| bad_parameter_reply("a key of this size cannot be rotated".to_owned()))?;
    let key = call.new_key(key_type, key_generation_error_reply)?;
    let mut attributes = StoredObjectAttributes::new(call.now);
    attributes.expires = policy.and_then(|policy| policy.expiry_after(call.now));
    let id = call.ids.next_hex32();
    let VaultMut { vaults, requested } = authorized_vault_mut(call)?;
    let rotated = vaults.keys.change_object(&requested.vault.host, name, |object| {
        push_rotated_version(object, id, key, attributes);
    });
    rotated.map_err(|problem| object_error_reply(problem, KeyContent::KIND, name, None))?;
    let reference = requested.with_store(vaults);
    changed_version_reply::<KeyContent>(reference, name, None)
}

/// The type of the next version's key; `None` for an imported key of a size that vaults do not generate.
pub(super) fn rotated_key_type(
    object: &StoredVaultObject<KeyContent>,
) -> Option<AsymmetricKeyType> {
    object.latest()?.content.key.key_type().ok()
}

/// Adds a version with a new key, and the operations and tags of the version before.
pub(super) fn push_rotated_version(
    object: &mut StoredVaultObject<KeyContent>,
    id: String,
    key: AsymmetricKey,
    attributes: StoredObjectAttributes,
) {
    let (operations, tags) = object
        .latest()
        .map(|latest| (latest.content.operations.clone(), latest.tags.clone()))
        .unwrap_or_default();
    let content = KeyContent { key, managed: false, operations };
    object.versions.push(StoredObjectVersion { id, attributes, tags, content });
}

/// The policy of a key. Azure publishes an event 30 days before expiry unless the policy sets another time.
fn policy_json(view: VaultView<'_>, object: &StoredVaultObject<KeyContent>) -> Value {
    let id = format!("{}/rotationpolicy", object_id::<KeyContent>(view, &object.name));
    let notify = |time: &str| json!({ "trigger": { "timeBeforeExpiry": time }, "action": { "type": "Notify" } });
    let Some(policy) = &object.details.rotation else {
        return json!({ "id": id, "lifetimeActions": [notify("P30D")], "attributes": {} });
    };
    let mut actions = Vec::new();
    if let Some(trigger) = &policy.rotate {
        actions.push(json!({ "trigger": trigger, "action": { "type": "Rotate" } }));
    }
    actions.push(notify(policy.notify_before_expiry.as_ref().map_or("P30D", |time| &time.0)));
    let mut attributes = json!({
        "created": policy.created.as_second(),
        "updated": policy.updated.as_second(),
    });
    if let Some(expiry) = &policy.expiry {
        attributes["expiryTime"] = json!(expiry);
    }
    json!({ "id": id, "lifetimeActions": actions, "attributes": attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(value: Value) -> Result<KeyRotationPolicy, String> {
        let body: RotationPolicyBody = serde_json::from_value(value).unwrap();
        body.into_policy(None, Timestamp::UNIX_EPOCH)
    }

    fn rotate(trigger: Value, expiry: Option<&str>) -> Value {
        json!({
            "lifetimeActions": [{ "trigger": trigger, "action": { "type": "rotate" } }],
            "attributes": { "expiryTime": expiry },
        })
    }

    #[test]
    fn versions_that_were_due_in_between_are_omitted() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let start = time("2026-01-31T00:00:00Z");
        for (trigger, expiry, now, created, expires) in [
            (json!({ "timeAfterCreate": "P1M" }), None, "2026-04-01", "2026-03-28", None),
            (
                json!({ "timeBeforeExpiry": "P30D" }),
                Some("P2Y"),
                "2028-01-01",
                "2028-01-01",
                Some("2030-01-01"),
            ),
        ] {
            let policy = policy(rotate(trigger, expiry)).unwrap();
            let mut attributes = StoredObjectAttributes::new(start);
            attributes.expires = policy.expiry_after(start);
            let first = policy.next_rotation(attributes).unwrap();
            let now = time(&format!("{now}T00:00:00Z"));
            let current = policy.attributes_at(first, now);
            assert_eq!(current.created, time(&format!("{created}T00:00:00Z")));
            let expires = expires.map(|day| time(&format!("{day}T00:00:00Z")));
            assert_eq!(current.expires, expires);
            assert!(policy.next_rotation(current).unwrap() > now);
        }
    }

    #[test]
    fn policies_that_azure_rejects_are_rejected() {
        for (trigger, expiry) in [
            (json!({}), Some("P90D")),
            (json!({ "timeAfterCreate": "P6D" }), None),
            (json!({ "timeAfterCreate": "90 days" }), None),
            (json!({ "timeAfterCreate": "-P90D" }), None),
            (json!({ "timeAfterCreate": "P90D", "timeBeforeExpiry": "P30D" }), Some("P1Y")),
            (json!({ "timeBeforeExpiry": "P30D" }), None),
            (json!({ "timeAfterCreate": "P90D" }), Some("P27D")),
            (json!({ "timeAfterCreate": "P24D" }), Some("P30D")),
            (json!({ "timeAfterCreate": "P30D" }), Some("P30D")),
            (json!({ "timeBeforeExpiry": "P24D" }), Some("P30D")),
            (json!({ "timeBeforeExpiry": "P1Y" }), Some("P30D")),
        ] {
            assert!(policy(rotate(trigger.clone(), expiry)).is_err(), "{trigger} {expiry:?}");
        }
        let mut twice = rotate(json!({ "timeAfterCreate": "P90D" }), None);
        let action = twice["lifetimeActions"][0].clone();
        twice["lifetimeActions"].as_array_mut().unwrap().push(action);
        assert!(policy(twice).is_err());
        assert!(policy(json!({ "attributes": { "expiryTime": "PT672H" } })).is_ok());
        for trigger in ["timeAfterCreate", "timeBeforeExpiry"] {
            assert!(policy(rotate(json!({ trigger: "P23D" }), Some("P30D"))).is_ok(), "{trigger}");
        }
    }

    #[test]
    fn error_of_a_duration_names_the_limit_that_it_exceeds() {
        for (expiry, expected) in [
            ("P27D", "`attributes.expiryTime` is shorter than 28 days"),
            ("P101Y", "`attributes.expiryTime`: `P101Y` is longer than 100 years"),
            ("P7990Y", "`attributes.expiryTime`: `P7990Y` is longer than 100 years"),
            ("P9999Y", "`attributes.expiryTime`: `P9999Y` is longer than 100 years"),
        ] {
            let rejected = policy(json!({ "attributes": { "expiryTime": expiry } }));
            assert_eq!(rejected.unwrap_err(), expected);
        }
        assert!(policy(json!({ "attributes": { "expiryTime": "P100Y" } })).is_ok());
    }
}
