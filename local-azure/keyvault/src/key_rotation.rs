//! Rotation of keys: by request, and by a policy on the emulated time.

use http::StatusCode;
use jiff::Timestamp;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use lanyard_emulator_state::vaults::key_content::{
    KeyContent, push_rotated_version, rotated_key_type,
};
use lanyard_emulator_state::vaults::key_rotation_policy::{
    IsoDuration, KeyRotationPolicy, RotationTrigger, SHORTEST_INTERVAL_DAYS,
};
use lanyard_emulator_state::vaults::object_kind::{
    GET_ROTATION_POLICY, KeyVaultObjectKind, ROTATE_KEY, SET_ROTATION_POLICY,
};
use lanyard_emulator_state::vaults::object_store::{StoredObjectAttributes, StoredVaultObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::access::{authorize_call, authorized_vault_mut};
use super::api_version::VersionedFeature;
use super::error::internal_error_reply;
use super::object_errors::{object_error_reply, store_error_reply};
use super::objects::{changed_version_reply, reject_managed};
use super::request_body::{bad_parameter_reply, parse_body};
use super::stored_object::{StoredObject, object_id};
use super::vault_view::{VaultMut, VaultRef, VaultView};

/// The shortest lifetime of a key version, in days.
const SHORTEST_EXPIRY_DAYS: i32 = 28;

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
    let key = call.new_key(key_type, internal_error_reply)?;
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

/// Returns a key's rotation policy. Azure publishes an event 30 days before expiry unless the
/// policy sets another time.
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
    actions.push(notify(policy.notify_before_expiry.as_ref().map_or("P30D", |time| time.as_str())));
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
