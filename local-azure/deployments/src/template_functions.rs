//! The functions `concat`, `format` and `guid`, and checks of arguments. Error texts are sentences.
//!
//! Reference: "String functions for ARM templates" and "Array functions for ARM templates".

use serde_json::Value;
use uuid::{Uuid, uuid};

use super::composite_format::format_composite;
use super::expression::TemplateFunction;

/// `concat`: joins strings, integers and booleans to a string, or arrays to an array.
pub(super) fn concat(arguments: Vec<Value>) -> Result<Value, String> {
    let invalid = |problem: &str| {
        format!(
            "Unable to evaluate template language function 'concat': {problem} Please see https://aka.ms/arm-functions/#concat for usage details."
        )
    };
    let arrays = arguments.iter().filter(|argument| argument.is_array()).count();
    if arrays != 0 && arrays != arguments.len() {
        return Err(invalid("either all or none of the parameters must be an array."));
    }
    if arrays != 0 {
        let items = arguments.into_iter().flat_map(|argument| match argument {
            Value::Array(items) => items,
            other => vec![other],
        });
        return Ok(Value::Array(items.collect()));
    }
    let mut text = String::new();
    for argument in &arguments {
        match argument {
            Value::String(part) => text.push_str(part),
            Value::Number(number) if number.is_i64() => text.push_str(&number.to_string()),
            Value::Bool(true) => text.push_str("True"),
            Value::Bool(false) => text.push_str("False"),
            _ => return Err(invalid("the parameters must be strings, integers or arrays.")),
        }
    }
    Ok(Value::from(text))
}

/// `format`: replaces the placeholders of the first argument with the others.
pub(super) fn format_arguments(arguments: Vec<Value>) -> Result<Value, String> {
    let invalid = |problem: String| {
        format!(
            "Unable to evaluate template language function 'format': {problem} Please see https://aka.ms/arm-functions/#format for usage details."
        )
    };
    let Some((Value::String(format), values)) = arguments.split_first() else {
        return Err(invalid("the first parameter must be a string.".to_owned()));
    };
    format_composite(format, values).map(Value::from).map_err(invalid)
}

/// The namespace of the name-based UUIDs that `guid` returns.
const GUID_NAMESPACE: Uuid = uuid!("11fb06fb-712d-4ddd-98c7-e71bbd588830");

/// `guid`: a name-based UUID (version 5) of the arguments, joined with `-`. Reference: "String functions for
/// Bicep", guid.
pub(super) fn guid(arguments: Vec<Value>) -> Result<Value, String> {
    let texts = arguments
        .into_iter()
        .map(|argument| string_argument(TemplateFunction::Guid, argument))
        .collect::<Result<Vec<_>, _>>()?;
    let id = Uuid::new_v5(&GUID_NAMESPACE, texts.join("-").as_bytes());
    Ok(Value::from(id.to_string()))
}

/// Returns the argument of `function`, which must be a string.
pub(super) fn string_argument(
    function: TemplateFunction,
    argument: Value,
) -> Result<String, String> {
    match argument {
        Value::String(text) => Ok(text),
        _ => Err(format!(
            "Unable to evaluate template language function '{}': all function arguments must be string literals. Please see https://aka.ms/arm-functions for usage details.",
            function.name()
        )),
    }
}
