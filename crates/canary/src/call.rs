//! The granted call: an Azure operation that a component's role allows.

use azure_core::http::Method;
use lanyard_azure::{AuthenticatedClient, AzureCallError};
use lanyard_desired::proof::ExpectedAuthorization;
use lanyard_vocabulary::cloud::CloudEndpoints;
use url::Url;

use crate::metrics::CallResult;
use crate::proof_error::{ProofError, THROTTLED_CODE};

/// A read-only request (GET or HEAD) to Azure Resource Manager or a vault of one cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedCall {
    method: Method,
    url: Url,
    scope: String,
}

/// A line that does not describe a call that a canary may make.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseCallError {
    /// The line does not consist of a method and a URL.
    #[error("`{line}` does not have the form `METHOD URL`")]
    Form { line: String },
    /// The method is neither GET nor HEAD, so it may change something.
    #[error("a canary makes only GET and HEAD requests, not {method}")]
    Method { method: String },
    /// The URL is malformed, is not https, or contains a user, a password or a fragment.
    #[error("`{url}` is not an https URL without user and fragment")]
    Url { url: String },
    /// The URL has no `api-version` parameter.
    #[error("`{url}` has no `api-version` parameter")]
    NoVersion { url: String },
    /// The host is no Azure service of this cloud that the canary can get tokens for.
    #[error("`{host}` is neither Azure Resource Manager nor a vault of this cloud")]
    Host { host: String },
}

impl GrantedCall {
    /// Parses `METHOD URL`. The host determines the scope of the token: Azure Resource Manager, a
    /// vault or a managed HSM of the cloud with these endpoints.
    ///
    /// # Errors
    ///
    /// [`ParseCallError`] describes the first problem of the line.
    pub fn parse(line: &str, endpoints: &CloudEndpoints) -> Result<Self, ParseCallError> {
        let mut words = line.split_whitespace();
        let (Some(method), Some(address), None) = (words.next(), words.next(), words.next()) else {
            return Err(ParseCallError::Form { line: line.to_owned() });
        };
        // Only safe methods (RFC 9110, 9.2.1): a canary changes nothing, whatever its role allows.
        let method = match method {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            other => return Err(ParseCallError::Method { method: other.to_owned() }),
        };
        let url =
            parse_url(address).ok_or_else(|| ParseCallError::Url { url: address.to_owned() })?;
        if !url.query_pairs().any(|(name, value)| name == "api-version" && !value.is_empty()) {
            return Err(ParseCallError::NoVersion { url: address.to_owned() });
        }
        let scope = AuthenticatedClient::scope_in_cloud(&url, endpoints).ok_or_else(|| {
            ParseCallError::Host { host: url.host_str().unwrap_or_default().to_owned() }
        })?;
        Ok(Self { method, url, scope })
    }

    /// The scope of the token for the call.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// Makes the call. Succeeds if the response proves that the role allows it.
    pub(crate) async fn send_request(
        &self,
        caller: &AuthenticatedClient,
    ) -> Result<(), AzureCallError> {
        match caller.send(self.method, &self.url, None).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let (status, code) = (error.status().unwrap_or_default(), error.code());
                let granted =
                    ExpectedAuthorization::Granted.is_met_by(status, code.unwrap_or_default());
                if granted { Ok(()) } else { Err(error) }
            }
        }
    }

    /// The method, host and path of the call, for messages.
    pub(crate) fn describe_target(&self) -> String {
        format!("{} {}{}", self.method, self.url.host_str().unwrap_or_default(), self.url.path())
    }
}

/// Parses an https URL without user, password and fragment.
pub(crate) fn parse_url(text: &str) -> Option<Url> {
    let url: Url = text.parse().ok()?;
    let is_plain =
        url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (url.scheme() == "https" && url.host_str().is_some() && is_plain).then_some(url)
}

/// The result of a granted call, for the report and for metrics.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    pub(crate) outcome: Result<(), ProofError>,
    pub(crate) result: CallResult,
}

impl CallOutcome {
    pub(crate) fn from_result(answer: Result<(), AzureCallError>) -> Self {
        let Err(error) = answer else {
            return Self { outcome: Ok(()), result: CallResult::Granted };
        };
        let proof_error = ProofError::of_call(&error);
        let result = match &error {
            AzureCallError::Token { .. } => CallResult::NoToken,
            AzureCallError::Unauthorized { .. } => CallResult::Unauthenticated,
            AzureCallError::Forbidden { .. } => CallResult::Refused,
            _ if proof_error.code == THROTTLED_CODE => CallResult::Throttled,
            AzureCallError::Unreachable { .. } => CallResult::Unreachable,
            _ => CallResult::Failed,
        };
        Self { outcome: Err(proof_error), result }
    }

    pub(crate) fn timed_out(error: ProofError) -> Self {
        Self { outcome: Err(error), result: CallResult::Unreachable }
    }
}

#[cfg(test)]
mod tests {
    use lanyard_vocabulary::Cloud;

    use super::*;

    fn parse(line: &str) -> Result<GrantedCall, ParseCallError> {
        GrantedCall::parse(line, Cloud::Public.endpoints().unwrap())
    }

    #[test]
    fn the_scope_follows_from_the_host() {
        let cases = [
            (
                "GET https://management.azure.com/subscriptions/s?api-version=2021-04-01",
                "https://management.core.windows.net//.default",
            ),
            (
                "GET  https://kv.vault.azure.net/keys/k?api-version=7.4",
                "https://vault.azure.net/.default",
            ),
            (
                "HEAD https://hsm.managedhsm.azure.net/keys/k?api-version=7.4",
                "https://managedhsm.azure.net/.default",
            ),
        ];
        for (line, scope) in cases {
            assert_eq!(parse(line).unwrap().scope(), scope, "{line}");
        }
    }

    #[test]
    fn unsupported_calls_are_rejected_with_reason() {
        let cases = [
            ("https://management.azure.com/?api-version=1", "METHOD URL"),
            ("GET https://management.azure.com/ x", "METHOD URL"),
            ("DELETE https://management.azure.com/x?api-version=1", "DELETE"),
            ("post https://management.azure.com/x?api-version=1", "post"),
            ("GET http://management.azure.com/x?api-version=1", "https"),
            ("GET https://user:pw@management.azure.com/x?api-version=1", "user"),
            ("GET https://management.azure.com/x", "api-version"),
            ("GET https://management.azure.com/x?api-version=", "api-version"),
            ("GET https://management.usgovcloudapi.net/x?api-version=1", "this cloud"),
            ("GET https://evilvault.azure.net/x?api-version=1", "this cloud"),
            ("GET https://example.com/x?api-version=1", "this cloud"),
        ];
        for (line, expected) in cases {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
