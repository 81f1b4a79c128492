//! The sign-in of the Azure CLI.

use std::borrow::Cow;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::time::OffsetDateTime;
use lanyard_clock::{ErrorHint, SharedClock};
use serde::Deserialize;
use tokio::process::Command;
use tokio::sync::Mutex;

/// How long one call of `az` may take. It starts a Python interpreter and may request a token.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// A cached token is replaced when it is valid for less than this.
const RENEW_BEFORE: i64 = 300;

/// Uses the account that is signed in to the Azure CLI (`az login`).
///
/// Each token comes from `az account get-access-token`; it is cached until five minutes before it expires.
#[derive(Debug)]
pub struct AzureCliCredential {
    program: OsString,
    tenant: Option<String>,
    clock: SharedClock,
    cached: Mutex<Vec<(String, AccessToken)>>,
}

/// The Azure CLI did not answer with the requested value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AzureCliError {
    /// The program is not installed.
    #[error("the program `az` cannot be started")]
    NotInstalled(#[source] std::io::Error),
    /// The program did not end in time.
    #[error("`az` did not answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// The program reported an error.
    #[error("`az` failed: {message}")]
    Failed {
        /// The first line of the error.
        message: String,
    },
    /// The output is not the expected JSON document.
    #[error("the output of `az` cannot be read")]
    Unreadable(#[source] serde_json::Error),
}

impl ErrorHint for AzureCliError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::NotInstalled(_) => "install the Azure CLI, or sign in with --azure-creds",
            Self::TimedOut => "run `az account show` to see what `az` waits for",
            Self::Failed { .. } => "run `az login`",
            Self::Unreadable(_) => "update the Azure CLI",
        }))
    }
}

/// The default subscription of the Azure CLI.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AzureCliSubscription {
    /// The id of the subscription.
    pub id: String,
    /// The id of its tenant.
    pub tenant_id: String,
}

#[derive(Deserialize)]
struct CliToken {
    #[serde(rename = "accessToken")]
    access_token: String,
    /// Seconds since the epoch; the field `expiresOn` is in local time.
    expires_on: i64,
}

impl AzureCliCredential {
    /// Creates a credential that runs `program`, usually `az`. `tenant` selects a tenant of the account.
    pub fn new(
        program: impl Into<OsString>,
        tenant: Option<String>,
        clock: SharedClock,
    ) -> Arc<Self> {
        Arc::new(Self { program: program.into(), tenant, clock, cached: Mutex::default() })
    }

    /// The subscription that the account uses by default.
    ///
    /// # Errors
    ///
    /// [`AzureCliError`] if `az` is not installed or has no account signed in.
    pub async fn default_subscription(&self) -> Result<AzureCliSubscription, AzureCliError> {
        let output = self.call(&["account", "show", "--output", "json"]).await?;
        serde_json::from_slice(&output).map_err(AzureCliError::Unreadable)
    }

    async fn fetch(&self, scope: &str) -> Result<AccessToken, AzureCliError> {
        let mut arguments =
            vec!["account", "get-access-token", "--output", "json", "--scope", scope];
        if let Some(tenant) = &self.tenant {
            arguments.extend(["--tenant", tenant.as_str()]);
        }
        let output = self.call(&arguments).await?;
        let token: CliToken = serde_json::from_slice(&output).map_err(AzureCliError::Unreadable)?;
        let expires = OffsetDateTime::from_unix_timestamp(token.expires_on)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        Ok(AccessToken::new(token.access_token, expires))
    }

    async fn call(&self, arguments: &[&str]) -> Result<Vec<u8>, AzureCliError> {
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::select! {
            output = command.output() => output.map_err(AzureCliError::NotInstalled)?,
            () = self.clock.sleep(CALL_TIMEOUT) => return Err(AzureCliError::TimedOut),
        };
        if output.status.success() {
            return Ok(output.stdout);
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let message = line.map_or_else(|| output.status.to_string(), str::to_owned);
        Err(AzureCliError::Failed { message })
    }
}

#[async_trait]
impl TokenCredential for AzureCliCredential {
    async fn get_token(
        &self,
        scopes: &[&str],
        _options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let scope = scopes.join(" ");
        let mut cached = self.cached.lock().await;
        let now = self.clock.now().as_second();
        cached.retain(|(_, token)| token.expires_on.unix_timestamp() - now > RENEW_BEFORE);
        if let Some((_, token)) = cached.iter().find(|(known, _)| *known == scope) {
            return Ok(token.clone());
        }
        let token = self
            .fetch(&scope)
            .await
            .map_err(|error| azure_core::Error::new(ErrorKind::Credential, error))?;
        cached.push((scope, token.clone()));
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use lanyard_clock::SystemClock;

    use super::*;

    /// A program that behaves like `az` and counts its calls.
    fn fake_az(script: &str) -> (tempfile::TempDir, Arc<AzureCliCredential>) {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("az");
        let text =
            format!("#!/bin/sh\necho \"$@\" >> {}/calls\n{script}", directory.path().display());
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let credential =
            AzureCliCredential::new(program, Some("t".to_owned()), SystemClock::shared());
        (directory, credential)
    }

    #[tokio::test]
    async fn token_of_the_cli_is_cached() {
        let (directory, credential) =
            fake_az(r#"echo '{"accessToken": "planted", "expires_on": 4102444800}'"#);
        for _ in 0..2 {
            let token = credential.get_token(&["https://x/.default"], None).await.unwrap();
            assert_eq!(token.token.secret(), "planted");
        }
        let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
        assert_eq!(
            calls,
            "account get-access-token --output json --scope https://x/.default --tenant t\n"
        );
        assert!(!format!("{credential:?}").contains("planted"));
    }

    #[tokio::test]
    async fn error_of_the_cli_is_shown_with_the_next_step() {
        let (_directory, credential) =
            fake_az("echo 'ERROR: Please run az login to setup account.' >&2; exit 1");
        let error = credential.default_subscription().await.unwrap_err();
        assert_eq!(error.to_string(), "`az` failed: ERROR: Please run az login to setup account.");
        assert_eq!(error.hint().as_deref(), Some("run `az login`"));
        let missing = AzureCliCredential::new("/nowhere/az", None, SystemClock::shared());
        let error = missing.default_subscription().await.unwrap_err();
        assert!(matches!(error, AzureCliError::NotInstalled(_)), "{error:?}");
    }
}
