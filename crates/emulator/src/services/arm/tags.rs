//! Tags of resources and resource groups.
//!
//! Reference: "Use tags to organize your Azure resources", section on limitations.

use serde_json::Value;

use super::error::bad_request;
use crate::request::ServiceReply;

/// The greatest number of tags of a resource.
const MOST_TAGS: usize = 50;
/// The greatest length of a name, in characters.
const MOST_NAME_CHARACTERS: usize = 512;
/// The greatest length of a value, in characters.
const MOST_VALUE_CHARACTERS: usize = 256;
/// The characters that no name contains.
const FORBIDDEN_IN_NAMES: &str = "<>%&\\?/";

/// Rejects tags that Azure does not accept. Absent tags are valid.
pub(super) fn require_valid_tags(tags: Option<&Value>) -> Result<(), ServiceReply> {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn tags_have_limits_of_number_length_and_characters() {
        let many: serde_json::Map<_, _> =
            (0..51).map(|n| (format!("tag-{n}"), json!("value"))).collect();
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
