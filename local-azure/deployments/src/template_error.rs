//! Errors of templates, with the codes and messages of Azure Resource Manager.
//!
//! Reference: "Resolve errors for invalid template" and "Troubleshoot common Azure deployment errors".

use std::borrow::Cow;
use std::fmt;

use serde_json::{Value, json};

/// A position in the body of a request, such as `properties.template.resources[0].name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonPath(String);

impl JsonPath {
    /// The position of the properties of a deployment.
    pub(super) fn deployment() -> Self {
        Self("properties".to_owned())
    }

    /// The position of the template in a deployment.
    pub(super) fn template() -> Self {
        Self("properties.template".to_owned())
    }

    /// The position of the parameter values in a deployment.
    pub(super) fn parameter_values() -> Self {
        Self("properties.parameters".to_owned())
    }

    /// Returns the position of the member `name` of the object at this position.
    pub(super) fn member(&self, name: &str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
        if !name.is_empty() && name.chars().all(plain) {
            Self(format!("{}.{name}", self.0))
        } else {
            Self(format!("{}['{name}']", self.0))
        }
    }

    /// Returns the position of the item at `index` of the array at this position.
    pub(super) fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The reason why a template cannot be deployed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub(super) struct TemplateError {
    /// The code, such as `InvalidTemplate`.
    pub(super) code: Cow<'static, str>,
    /// The message, which never contains the value of a secure parameter.
    pub(super) message: String,
    /// The position of the error in the request.
    pub(super) path: JsonPath,
}

impl TemplateError {
    /// The request body is not a template: `InvalidRequestContent`. `problem` is a full sentence.
    pub(super) fn malformed(path: &JsonPath, problem: impl fmt::Display) -> Self {
        let message = format!(
            "The request content was invalid and could not be deserialized: '{problem} Path '{path}'.'."
        );
        Self { code: "InvalidRequestContent".into(), message, path: path.clone() }
    }

    /// A member that objects of type `owner` do not have: `InvalidRequestContent`.
    pub(super) fn unknown_member(path: &JsonPath, name: &str, owner: &str) -> Self {
        let problem = format!("Could not find member '{name}' on object of type '{owner}'.");
        Self::malformed(path, problem)
    }

    /// The template is not valid: `InvalidTemplate`. `problem` is a full sentence.
    pub(super) fn invalid(path: &JsonPath, problem: impl fmt::Display) -> Self {
        let message = format!("Deployment template validation failed: '{problem}'.");
        Self { code: "InvalidTemplate".into(), message, path: path.clone() }
    }

    /// A text does not have the syntax of an expression: `InvalidTemplate`.
    pub(super) fn malformed_expression(path: &JsonPath, problem: impl fmt::Display) -> Self {
        let message = format!(
            "Deployment template language expression evaluation failed: '{problem}'. Please see https://aka.ms/arm-functions for usage details."
        );
        Self { code: "InvalidTemplate".into(), message, path: path.clone() }
    }

    /// An element of the template language that Azure has and the emulator does not implement:
    /// `InvalidTemplate`. `supported` names the elements that are implemented.
    pub(super) fn unsupported(path: &JsonPath, element: &str, supported: &str) -> Self {
        let problem = format!(
            "The local Azure does not implement {element} at '{path}'. Implemented: {supported}."
        );
        Self::invalid(path, problem)
    }

    /// A template exceeds a limit: `InvalidTemplate`. `items` names what is limited. Reference:
    /// "ARM template best practices", template limits.
    pub(super) fn limit(path: &JsonPath, items: &str, limit: usize, actual: usize) -> Self {
        let problem = format!(
            "The number of template {items} limit exceeded. Limit: '{limit}' and actual: '{actual}'. Please see https://aka.ms/arm-syntax for usage details."
        );
        Self::invalid(path, problem)
    }

    /// Returns the error object for a reply.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if self.code == "InvalidTemplate" {
            // Azure counts lines of the request body; 0 means unknown.
            let info = json!({ "lineNumber": 0, "linePosition": 0, "path": self.path.to_string() });
            error["additionalInfo"] = json!([{ "type": "TemplateViolation", "info": info }]);
        }
        error
    }
}

/// A template language expression could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvaluationError {
    /// The expression at `path`. The caller adds the element of the template that contains it.
    Expression {
        path: JsonPath,
        /// A full sentence.
        message: String,
    },
    /// An error that already names the element of the template.
    Template(TemplateError),
}

impl EvaluationError {
    /// The expression at `path` is not valid.
    pub(super) fn at(path: &JsonPath, message: impl Into<String>) -> Self {
        Self::Expression { path: path.clone(), message: message.into() }
    }

    /// Returns the validation error for the template element `owner`, such as `variable 'name'`.
    pub(super) fn in_element(self, owner: impl fmt::Display) -> TemplateError {
        match self {
            Self::Expression { path, message } => TemplateError::invalid(
                &path,
                format!("The template {owner} at '{path}' is not valid: {message}"),
            ),
            Self::Template(error) => error,
        }
    }
}

impl From<TemplateError> for EvaluationError {
    fn from(error: TemplateError) -> Self {
        Self::Template(error)
    }
}
