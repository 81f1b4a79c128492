//! The file of `--azure-creds`: the subscription, and optionally an application that signs in.

use std::borrow::Cow;
use std::fmt;

use azure_core::credentials::Secret;
use lanyard_clock::ErrorHint;
use lanyard_vocabulary::{EntraClientId, EntraTenantId, SubscriptionId};
use serde::Deserialize;

/// The content of the credentials file.
#[derive(Debug, Clone)]
pub struct AzureCredentialsFile {
    /// The subscription of all resources.
    pub subscription: SubscriptionId,
    /// The tenant of the signed-in identity.
    pub tenant: Option<EntraTenantId>,
    /// The application or managed identity that signs in.
    pub client: Option<EntraClientId>,
    /// The client secret of the application. Without it, the credentials of the environment sign in.
    pub client_secret: Option<Secret>,
}

/// The credentials file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AzureCredentialsFileError {
    /// The text is neither YAML nor JSON, or has other fields than expected.
    #[error("the file is not a credentials file: {0}")]
    Syntax(String),
    /// The values of some fields cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<CredentialsFieldProblem>),
}

impl ErrorHint for AzureCredentialsFileError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "write the fields `subscriptionId`, `tenantId`, `clientId` and `clientSecret`; only the first is required",
        ))
    }
}

/// The problem of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialsFieldProblem {
    field: &'static str,
    problem: String,
}

impl fmt::Display for CredentialsFieldProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` {}", self.field, self.problem)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CredentialsFields {
    subscription_id: Option<String>,
    tenant_id: Option<String>,
    client_id: Option<String>,
    client_secret: Option<Secret>,
}

impl AzureCredentialsFile {
    /// Parses JSON or YAML.
    ///
    /// HyperShift accepts a file without a subscription, and signs in with other credentials if the secret is
    /// empty; both are errors here.
    ///
    /// # Errors
    ///
    /// [`AzureCredentialsFileError`] names every field with a problem. It never contains the secret.
    pub fn parse(text: &str) -> Result<Self, AzureCredentialsFileError> {
        let fields: CredentialsFields = serde_saphyr::from_str(text)
            .map_err(|error| AzureCredentialsFileError::Syntax(first_line(&error.to_string())))?;
        let mut problems = Vec::new();
        let subscription = required(&mut problems, "subscriptionId", fields.subscription_id);
        let tenant = parsed(&mut problems, "tenantId", fields.tenant_id);
        let client = parsed(&mut problems, "clientId", fields.client_id);
        if let Some(secret) = &fields.client_secret {
            if secret.secret().is_empty() {
                problems
                    .push(problem("clientSecret", "is empty; remove it to use other credentials"));
            }
            for (field, is_missing) in
                [("tenantId", tenant.is_none()), ("clientId", client.is_none())]
            {
                if is_missing && !problems.iter().any(|it| it.field == field) {
                    problems.push(problem(field, "is required with `clientSecret`"));
                }
            }
        }
        match subscription {
            Some(subscription) if problems.is_empty() => {
                Ok(Self { subscription, tenant, client, client_secret: fields.client_secret })
            }
            _ => Err(AzureCredentialsFileError::Fields(problems)),
        }
    }
}

/// The parser quotes the source behind its message, where a secret may be.
fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn problem(field: &'static str, problem: impl Into<String>) -> CredentialsFieldProblem {
    CredentialsFieldProblem { field, problem: problem.into() }
}

fn parsed<T: std::str::FromStr>(
    problems: &mut Vec<CredentialsFieldProblem>,
    field: &'static str,
    text: Option<String>,
) -> Option<T> {
    // The error would repeat the value, which may be a secret in the wrong field.
    let value = text?.parse().ok();
    if value.is_none() {
        problems.push(problem(field, "is not a valid id"));
    }
    value
}

fn required<T: std::str::FromStr>(
    problems: &mut Vec<CredentialsFieldProblem>,
    field: &'static str,
    text: Option<String>,
) -> Option<T> {
    if text.is_none() {
        problems.push(problem(field, "is missing"));
    }
    parsed(problems, field, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "11111111-1111-1111-1111-111111111111";

    #[test]
    fn json_and_yaml_are_accepted() {
        let json = format!(
            r#"{{"subscriptionId": "{ID}", "tenantId": "{ID}", "clientId": "{ID}", "clientSecret": "s"}}"#
        );
        let file = AzureCredentialsFile::parse(&json).unwrap();
        assert_eq!(file.client_secret.unwrap().secret(), "s");
        let file = AzureCredentialsFile::parse(&format!("subscriptionId: {ID}\n")).unwrap();
        assert!(file.client_secret.is_none() && file.tenant.is_none());
    }

    #[test]
    fn every_problem_is_named_and_the_secret_is_not_shown() {
        for (text, expected) in [
            ("{}".to_owned(), "`subscriptionId` is missing"),
            (
                format!("{{subscriptionId: {ID}, clientSecret: planted}}"),
                "`tenantId` is required with `clientSecret`; `clientId` is required with `clientSecret`",
            ),
            (
                format!(
                    "{{subscriptionId: {ID}, tenantId: {ID}, clientId: {ID}, clientSecret: ''}}"
                ),
                "`clientSecret` is empty; remove it to use other credentials",
            ),
        ] {
            let error = AzureCredentialsFile::parse(&text).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        for text in [
            "clientSecret: planted\nclientsecret: planted",
            "- planted",
            "{clientId: x, clientSecret: [planted]}",
            "{subscriptionId: planted secret!, tenantId: planted, clientId: planted}",
            "planted",
        ] {
            let error = AzureCredentialsFile::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("planted"), "{error:?}");
        }
    }
}
