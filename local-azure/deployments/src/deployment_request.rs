//! The body of a deployment request.
//!
//! Reference: Microsoft.Resources, Deployments - Create Or Update, 2025-04-01.

use http::StatusCode;
use jsonc_parser::{CollectOptions, ParseOptions};
use lanyard_emulator_arm::error::bad_request;
use lanyard_emulator_core::operation_context::OperationContext;
use lanyard_emulator_state::request::ServiceReply;
use serde_json::{Map, Value, json};

use super::template_error::{JsonPath, TemplateError};

/// The body of a deployment request.
pub(super) struct DeploymentRequest {
    pub(super) location: Option<String>,
    pub(super) tags: Option<Value>,
    /// `properties.template`.
    pub(super) template: Value,
    /// `properties.parameters`.
    pub(super) parameters: Map<String, Value>,
    /// The content of the reply to a what-if request.
    pub(super) what_if_format: WhatIfFormat,
    /// Whether to check the permissions for the resources before the deployment.
    pub(super) checks_permissions: bool,
}

/// The content of the reply to a what-if request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum WhatIfFormat {
    #[default]
    FullResourcePayloads,
    ResourceIdOnly,
}

impl DeploymentRequest {
    /// Parses the body of the request.
    pub(super) fn parse(call: &OperationContext<'_>) -> Result<Self, ServiceReply> {
        let Value::Object(body) = parse_body(&call.request.body)? else {
            return Err(malformed("The body is not a JSON object."));
        };
        let Some(Value::Object(properties)) = body.get("properties") else {
            return Err(malformed("Required property 'properties' not found in JSON."));
        };
        let mut request = Self {
            location: body.get("location").and_then(Value::as_str).map(str::to_owned),
            tags: body.get("tags").filter(|tags| !tags.is_null()).cloned(),
            template: Value::Null,
            parameters: Map::new(),
            what_if_format: WhatIfFormat::default(),
            checks_permissions: true,
        };
        let is_what_if = call.request.path.to_ascii_lowercase().ends_with("/whatif");
        for (name, value) in properties {
            if name == "whatIfSettings" && is_what_if {
                request.what_if_format = parse_what_if_format(value)?;
            } else if !value.is_null() {
                request.set_property(name, value)?;
            }
        }
        if !properties.contains_key("mode") {
            return Err(malformed("Required property 'mode' not found in JSON."));
        }
        if request.template.is_null() {
            return Err(malformed("Required property 'template' not found in JSON."));
        }
        Ok(request)
    }

    fn set_property(&mut self, name: &str, value: &Value) -> Result<(), ServiceReply> {
        let is_text = |text: &str| value.as_str().is_some_and(|it| it.eq_ignore_ascii_case(text));
        match name {
            "template" => self.template = value.clone(),
            "parameters" => match value {
                Value::Object(parameters) => self.parameters.clone_from(parameters),
                _ => return Err(malformed("'properties.parameters' is not an object.")),
            },
            "mode" if is_text("Incremental") => {}
            "mode" if is_text("Complete") => {
                return Err(not_implemented("the deployment mode 'Complete'"));
            }
            "validationLevel" if is_text("Provider") => {}
            "validationLevel" if is_text("ProviderNoRbac") || is_text("Template") => {
                self.checks_permissions = false;
            }
            "mode" | "validationLevel" => {
                return Err(malformed(&format!("'{value}' is no value of 'properties.{name}'.")));
            }
            "debugSetting" if value["detailLevel"].as_str().is_none_or(is_none_level) => {}
            // Only nested deployments have this property.
            "expressionEvaluationOptions" => {}
            "templateLink" | "parametersLink" => {
                return Err(not_implemented(&format!("linked templates ('properties.{name}')")));
            }
            "debugSetting"
            | "onErrorDeployment"
            | "externalInputs"
            | "externalInputDefinitions"
            | "extensionConfigs" => {
                return Err(not_implemented(&format!("'properties.{name}' of deployments")));
            }
            _ => {
                let path = JsonPath::deployment().member(name);
                let error = TemplateError::unknown_member(&path, name, "DeploymentProperties");
                return Err(template_error_reply(&error));
            }
        }
        Ok(())
    }
}

fn parse_what_if_format(settings: &Value) -> Result<WhatIfFormat, ServiceReply> {
    let format = &settings["resultFormat"];
    match format.as_str() {
        None if format.is_null() => Ok(WhatIfFormat::default()),
        Some(text) if text.eq_ignore_ascii_case("FullResourcePayloads") => {
            Ok(WhatIfFormat::FullResourcePayloads)
        }
        Some(text) if text.eq_ignore_ascii_case("ResourceIdOnly") => {
            Ok(WhatIfFormat::ResourceIdOnly)
        }
        _ => Err(malformed(&format!("'{format}' is no value of 'resultFormat'."))),
    }
}

fn is_none_level(level: &str) -> bool {
    level.eq_ignore_ascii_case("none")
}

/// Parses JSON as Azure does: with comments, trailing commas and unquoted names. The Azure CLI
/// sends the name `template` without quotes, and the template file with its comments.
fn parse_body(bytes: &[u8]) -> Result<Value, ServiceReply> {
    if let Ok(body) = serde_json::from_slice(bytes) {
        return Ok(body);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => return Err(malformed(&format!("The body is not UTF-8: {error}."))),
    };
    let options = ParseOptions {
        allow_comments: true,
        allow_loose_object_property_names: true,
        allow_trailing_commas: true,
        allow_missing_commas: false,
        allow_single_quoted_strings: true,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    match jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &options) {
        Ok(parsed) => Ok(parsed.value.map(Value::from).unwrap_or_default()),
        Err(error) => Err(malformed(&format!("{error}."))),
    }
}

fn malformed(problem: &str) -> ServiceReply {
    bad_request(
        "InvalidRequestContent",
        format!("The request content was invalid and could not be deserialized: '{problem}'."),
    )
}

/// The reply to a request with an element that the emulator does not implement.
pub(super) fn not_implemented(element: &str) -> ServiceReply {
    let message = format!("lanyard's local Azure does not implement {element}.");
    let error = json!({ "error": { "code": "NotImplementedByEmulator", "message": message } });
    ServiceReply::json(StatusCode::NOT_IMPLEMENTED, &error)
        .with_rejection_reason("operation not implemented")
}

/// The reply to an invalid template.
pub(super) fn template_error_reply(error: &TemplateError) -> ServiceReply {
    ServiceReply::json(StatusCode::BAD_REQUEST, &json!({ "error": error.to_json() }))
        .with_header("x-ms-failure-cause", "gateway")
        .with_rejection_reason(error.code.clone())
}
