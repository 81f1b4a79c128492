//! The form of a request to the token service.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lanyard_emulator_state::request::ServiceRequest;
use lanyard_emulator_state::sign_ins::sign_in_state::RequestedScope;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::error::TokenServiceError;
use super::token_resource::missing_parameter_error;
use crate::token_service::discovery::EndpointVersion;

/// The fields of a form and of the `Authorization` header.
pub(super) struct ClientTokenForm(HashMap<String, String>);

impl ClientTokenForm {
    /// The `resource` or `scope` of the request; `None` without one.
    pub(super) fn requested_scope(&self, version: EndpointVersion) -> Option<RequestedScope> {
        match version {
            EndpointVersion::V1 => {
                self.field("resource").map(|text| RequestedScope::Resource(text.to_owned()))
            }
            EndpointVersion::V2 => {
                self.field("scope").map(|text| RequestedScope::Scope(text.to_owned()))
            }
        }
    }

    /// Like [`Self::requested_scope`], or the error for the missing parameter.
    pub(super) fn require_scope(
        &self,
        version: EndpointVersion,
    ) -> Result<RequestedScope, TokenServiceError> {
        self.requested_scope(version).ok_or_else(|| {
            missing_parameter_error(match version {
                EndpointVersion::V1 => "resource",
                EndpointVersion::V2 => "scope",
            })
        })
    }

    pub(super) fn from_request(request: &ServiceRequest) -> Self {
        let mut fields = HashMap::new();
        for (name, value) in request.parse_form_body() {
            fields.entry(name).or_insert(value);
        }
        if let Some((client, secret)) =
            request.header("authorization").and_then(parse_basic_credentials)
        {
            fields.entry("client_id".to_owned()).or_insert(client);
            fields.entry("client_secret".to_owned()).or_insert(secret);
        }
        Self(fields)
    }

    /// The parameters of the query and of the form; the form takes precedence.
    pub(super) fn from_query_and_form(request: &ServiceRequest) -> Self {
        let mut form = Self::from_request(request);
        for (name, value) in &request.query {
            form.0.entry(name.clone()).or_insert_with(|| value.clone());
        }
        form
    }

    /// The value of a field; `None` if it is missing or empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, TokenServiceError> {
        self.field(name).ok_or_else(|| missing_parameter_error(name))
    }

    /// Whether the client presents a credential.
    pub(super) fn has_client_credential(&self) -> bool {
        self.field("client_secret").or(self.field("client_assertion")).is_some()
    }

    /// The capabilities of the client in `claims`, such as `CP1` for continuous access evaluation.
    pub(super) fn client_capabilities(&self) -> Vec<String> {
        let claims = self.field("claims").and_then(|text| serde_json::from_str::<Value>(text).ok());
        let values = claims
            .and_then(|claims| claims["access_token"]["xms_cc"]["values"].as_array().cloned());
        let values = values.into_iter().flatten();
        values.filter_map(|value| value.as_str().map(ToOwned::to_owned)).collect()
    }
}

/// Client id and secret of HTTP Basic, which are form-encoded before they are joined (RFC 6749, 2.3.1).
fn parse_basic_credentials(header: &str) -> Option<(String, String)> {
    let (scheme, text) = header.split_once(' ')?;
    let text =
        scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(text.trim()).ok())??;
    let text = String::from_utf8(text).ok()?;
    let (client, secret) = text.split_once(':')?;
    let decoded = |part: &str| {
        let spaced = part.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    Some((decoded(client), decoded(secret)))
}
