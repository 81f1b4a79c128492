//! Tags of resources and resource groups.
//!
//! Reference: "Use tags to organize your Azure resources", section on limitations.

use http::StatusCode;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_core::operations::ServiceOperation;
use lanyard_emulator_state::authorization::AccessScope;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Map, Value, json};

use super::access::{authorize_call, empty_reply, json_body, json_reply};
use super::error::{ArmServiceError, bad_request};
use super::request_scopes::extension_scope;

pub(super) const OPERATIONS: &[ServiceOperation] = &[
    full!("Tags_GetAtScope", GET, "/{*scope}/providers/Microsoft.Resources/tags/default", get_tags),
    full!(
        "Tags_CreateOrUpdateAtScope",
        PUT,
        "/{*scope}/providers/Microsoft.Resources/tags/default",
        put_tags
    ),
    full!(
        "Tags_UpdateAtScope",
        PATCH,
        "/{*scope}/providers/Microsoft.Resources/tags/default",
        patch_tags
    ),
    full!(
        "Tags_DeleteAtScope",
        DELETE,
        "/{*scope}/providers/Microsoft.Resources/tags/default",
        delete_tags
    ),
];

/// The greatest number of tags of a resource.
const MOST_TAGS: usize = 50;
/// The greatest length of a tag's name, in characters.
const MOST_NAME_CHARACTERS: usize = 512;
/// The greatest length of a tag's value, in characters.
const MOST_VALUE_CHARACTERS: usize = 256;
/// The characters that the name of a tag must not contain.
const FORBIDDEN_IN_NAMES: &str = "<>%&\\?/";

fn get_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = authorized_scope(call, "read")?;
    tags_reply(call, &scope)
}

fn put_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = authorized_scope(call, "write")?;
    let tags = given_tags(call)?;
    store_tags(call, &scope, tags)?;
    tags_reply(call, &scope)
}

/// `PATCH` with the operation `Merge`, `Replace` or `Delete`.
fn patch_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = authorized_scope(call, "write")?;
    let given = given_tags(call)?;
    let operation = json_body(call)?.get("operation").and_then(Value::as_str).map(str::to_owned);
    let mut tags = stored_tags(call, &scope)?;
    match operation.as_deref() {
        Some("Replace") => tags = given,
        Some("Merge") => {
            for (name, value) in given {
                tags.retain(|known, _| !known.eq_ignore_ascii_case(&name));
                tags.insert(name, value);
            }
        }
        Some("Delete") => tags.retain(|known, value| {
            !given.iter().any(|(name, given)| known.eq_ignore_ascii_case(name) && value == given)
        }),
        _ => {
            let message = "`operation` is not one of Merge, Replace and Delete.";
            return Err(bad_request("InvalidRequestContent", message));
        }
    }
    store_tags(call, &scope, tags)?;
    tags_reply(call, &scope)
}

fn delete_tags(call: &mut OperationContext<'_>) -> Result<ServiceReply, ServiceReply> {
    let scope = authorized_scope(call, "delete")?;
    store_tags(call, &scope, Map::new())?;
    Ok(empty_reply(call, StatusCode::OK))
}

fn authorized_scope(
    call: &mut OperationContext<'_>,
    verb: &str,
) -> Result<AccessScope, ServiceReply> {
    let scope = extension_scope(call)?;
    authorize_call(call, &format!("Microsoft.Resources/tags/{verb}"), &scope)?;
    Ok(scope)
}

fn given_tags(call: &OperationContext<'_>) -> Result<Map<String, Value>, ServiceReply> {
    let mut body = json_body(call)?;
    let tags = body.pointer_mut("/properties/tags").map(Value::take);
    require_valid_tags(tags.as_ref())?;
    Ok(match tags {
        Some(Value::Object(tags)) => tags,
        _ => Map::new(),
    })
}

fn stored_tags(
    call: &OperationContext<'_>,
    scope: &AccessScope,
) -> Result<Map<String, Value>, ServiceReply> {
    let Some(resource) = call.azure().resources.resource(scope) else {
        return Err(ArmServiceError::ResourceNotFound(scope).to_reply());
    };
    Ok(match resource.body.get("tags") {
        Some(Value::Object(tags)) => tags.clone(),
        _ => Map::new(),
    })
}

fn store_tags(
    call: &mut OperationContext<'_>,
    scope: &AccessScope,
    tags: Map<String, Value>,
) -> Result<(), ServiceReply> {
    stored_tags(call, scope)?;
    require_valid_tags(Some(&Value::Object(tags.clone())))?;
    let now = call.now;
    if let Some(resource) = call.azure_mut().resources.resource_mut(scope) {
        if tags.is_empty() {
            resource.body.remove("tags");
        } else {
            resource.body.insert("tags".to_owned(), Value::Object(tags));
        }
        resource.changed = now;
    }
    Ok(())
}

fn tags_reply(
    call: &OperationContext<'_>,
    scope: &AccessScope,
) -> Result<ServiceReply, ServiceReply> {
    let wire = json!({
        "id": format!("{scope}/providers/Microsoft.Resources/tags/default"),
        "name": "default",
        "type": "Microsoft.Resources/tags",
        "properties": { "tags": stored_tags(call, scope)? },
    });
    Ok(json_reply(call, StatusCode::OK, &wire))
}

/// Rejects tags that Azure does not accept. Absent tags are valid.
pub fn require_valid_tags(tags: Option<&Value>) -> Result<(), ServiceReply> {
    let tags = match tags {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(tags)) => tags,
        Some(_) => {
            return Err(bad_request("InvalidRequestContent", "`tags` is not a JSON object."));
        }
    };
    if tags.len() > MOST_TAGS {
        let message = format!("A resource has at most {MOST_TAGS} tags; {} are given.", tags.len());
        return Err(bad_request("TooManyTags", message));
    }
    for (name, value) in tags {
        if name.is_empty() || name.chars().count() > MOST_NAME_CHARACTERS {
            return Err(bad_request(
                "InvalidTagName",
                format!("The tag name '{name}' has not 1 to {MOST_NAME_CHARACTERS} characters."),
            ));
        }
        if let Some(character) = name.chars().find(|c| FORBIDDEN_IN_NAMES.contains(*c)) {
            return Err(bad_request(
                "InvalidTagNameCharacters",
                format!("The tag name '{name}' contains the invalid character '{character}'."),
            ));
        }
        match value {
            Value::Null => {}
            Value::String(value) if value.chars().count() <= MOST_VALUE_CHARACTERS => {}
            Value::String(_) => {
                return Err(bad_request(
                    "InvalidTagValueLength",
                    format!(
                        "The value of the tag '{name}' has more than {MOST_VALUE_CHARACTERS} \
                         characters."
                    ),
                ));
            }
            _ => {
                let message = format!("The value of the tag '{name}' is not a string.");
                return Err(bad_request("InvalidRequestContent", message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_limits_of_number_length_and_characters() {
        let many: Map<_, _> = (0..51).map(|n| (format!("tag-{n}"), json!("value"))).collect();
        let cases = [
            (json!({}), true),
            (json!({ "a": "b", "empty": "" }), true),
            (json!({ "a": "v".repeat(256) }), true),
            (json!({ "a": "v".repeat(257) }), false),
            (json!({ "a/b": "c" }), false),
            (json!({ "": "c" }), false),
            (json!({ "a": 1 }), false),
            (json!(["a"]), false),
            (Value::Object(many), false),
        ];
        for (tags, valid) in cases {
            assert_eq!(require_valid_tags(Some(&tags)).is_ok(), valid, "{tags}");
        }
        assert!(require_valid_tags(None).is_ok());
    }
}
