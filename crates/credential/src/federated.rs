//! The credential of a federated token: it exchanges a token of another issuer, for example a Kubernetes
//! service account token, for a token of Entra (workload identity federation).

mod in_memory;
mod token_file;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanyard_clock::ErrorHint;
use parking_lot::Mutex;

pub use self::in_memory::InMemoryTokenCredential;
use self::token_file::{FederatedToken, TokenFile};
use crate::entra::error::EntraError;
use crate::entra::exchange::exchange;
use crate::entra::request::ClientAuthentication;
use crate::identity::{
    Authority, ClientId, EntraApplication, ParseAuthorityError, ParseIdError, TenantId,
};
use crate::token::engine::TokenEngine;
use crate::token::engine_credential::engine_credential;
use crate::token::error::TokenError;
use crate::token::request::TokenKey;
use crate::token::source::{IssuedToken, TokenSource};
use crate::transport::sender::TokenTransport;

/// The values of the environment variables that the workload identity webhook sets. The program reads them
/// and passes them in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FederatedTokenSettings {
    /// `AZURE_CLIENT_ID`.
    pub client_id: Option<String>,
    /// `AZURE_TENANT_ID`.
    pub tenant_id: Option<String>,
    /// `AZURE_FEDERATED_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// `AZURE_AUTHORITY_HOST`; defaults to the public cloud.
    pub authority_host: Option<String>,
}

/// All problems of a [`FederatedTokenSettings`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("workload identity is not configured: {}", join_problems(problems))]
pub struct FederatedTokenSettingsError {
    /// One entry for each missing or malformed variable.
    pub problems: Vec<FederatedTokenSettingProblem>,
}

/// The problem of one variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FederatedTokenSettingProblem {
    /// The variable is absent or empty.
    #[error("{variable} is not set")]
    Missing {
        /// The name of the variable.
        variable: &'static str,
    },
    /// The value of the variable is not an id.
    #[error("{variable} is malformed ({problem})")]
    Id {
        /// The name of the variable.
        variable: &'static str,
        /// The parse error.
        problem: ParseIdError,
    },
    /// The value of the variable is not an authority.
    #[error("{variable} is malformed ({problem})")]
    Authority {
        /// The name of the variable.
        variable: &'static str,
        /// The parse error.
        problem: ParseAuthorityError,
    },
}

impl ErrorHint for FederatedTokenSettingsError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(
            "the workload identity webhook sets these variables: check the pod's label \
         azure.workload.identity/use, the annotation azure.workload.identity/client-id of its \
         service account, and that the pod was created after the webhook was installed",
        ))
    }
}

/// Exchanges a federated token that Kubernetes projects into a file.
///
/// The credential reads the file for every exchange, that is once per scope and refresh: it uses a rotated
/// token immediately and caches no stale copy.
///
/// For the first ten minutes it treats "no matching federated credential" as transient: Entra needs some time
/// to replicate a new federated credential.
#[derive(Debug)]
pub struct FederatedTokenCredential {
    engine: TokenEngine<FederatedTokenSource<TokenFile>>,
}

impl FederatedTokenCredential {
    /// Creates a credential from the values of environment variables. It reads the file when a token is first
    /// requested, so the file may appear after the process has started.
    ///
    /// # Errors
    ///
    /// Returns a [`FederatedTokenSettingsError`] that lists every missing or malformed variable.
    pub fn from_settings(
        settings: FederatedTokenSettings,
        transport: TokenTransport,
    ) -> Result<Arc<Self>, FederatedTokenSettingsError> {
        let identity = ResolvedFederatedSettings::parse(settings)?;
        Ok(Self::new(
            identity.tenant,
            identity.client,
            &identity.authority,
            identity.file,
            transport,
        ))
    }

    /// Creates a credential for `client` in `tenant` with the token in the file `token_file`.
    pub fn new(
        tenant: TenantId,
        client: ClientId,
        authority: &Authority,
        token_file: impl Into<PathBuf>,
        transport: TokenTransport,
    ) -> Arc<Self> {
        let file = TokenFile::new(token_file.into());
        let source = FederatedTokenSource::new(file, tenant, client, authority, &transport);
        Arc::new(Self { engine: TokenEngine::new(source, &transport) })
    }

    /// The path of the federated token file.
    pub fn token_file(&self) -> &Path {
        self.engine.source().provider.path()
    }
}

engine_credential!(FederatedTokenCredential, cached_token, health, is_ready);

/// Validated settings.
struct ResolvedFederatedSettings {
    tenant: TenantId,
    client: ClientId,
    authority: Authority,
    file: PathBuf,
}

impl ResolvedFederatedSettings {
    fn parse(settings: FederatedTokenSettings) -> Result<Self, FederatedTokenSettingsError> {
        use FederatedTokenSettingProblem as Problem;
        let mut problems = Vec::new();
        let client = parse_id("AZURE_CLIENT_ID", settings.client_id.as_deref());
        let tenant = parse_id("AZURE_TENANT_ID", settings.tenant_id.as_deref());
        let file = settings.token_file.filter(|path| !path.as_os_str().is_empty());
        let file = file.ok_or(Problem::Missing { variable: token_file::VARIABLE });
        let host = settings.authority_host.as_deref().map(str::trim);
        let authority =
            host.filter(|host| !host.is_empty()).unwrap_or(PUBLIC_CLOUD_AUTHORITY).parse();
        let authority = authority
            .map_err(|problem| Problem::Authority { variable: "AZURE_AUTHORITY_HOST", problem });
        let mut note = |problem| problems.push(problem);
        let client = client.map_err(&mut note).ok();
        let tenant = tenant.map_err(&mut note).ok();
        let file = file.map_err(&mut note).ok();
        let authority = authority.map_err(&mut note).ok();
        match (tenant, client, authority, file) {
            (Some(tenant), Some(client), Some(authority), Some(file)) => {
                Ok(Self { tenant, client, authority, file })
            }
            _ => Err(FederatedTokenSettingsError { problems }),
        }
    }
}

/// A source of federated tokens for the exchange.
#[async_trait]
trait FederatedTokenProvider: std::fmt::Debug + Send + Sync + 'static {
    /// Returns the current token; `transport` supplies the clock.
    async fn load(&self, transport: &TokenTransport) -> Result<Arc<FederatedToken>, TokenError>;

    /// Notifies the provider that Entra rejected the token.
    fn record_rejection(&self, _token: &Arc<FederatedToken>) {}
}

#[derive(Debug)]
struct FederatedTokenSource<O> {
    application: EntraApplication,
    provider: O,
    transport: TokenTransport,
    /// When Entra first reported that no federated credential matches, in monotonic time.
    unmatched_since: Mutex<Option<Duration>>,
}

#[async_trait]
impl<O: FederatedTokenProvider> TokenSource for FederatedTokenSource<O> {
    async fn fetch_token(&self, key: &TokenKey) -> Result<IssuedToken, TokenError> {
        let mut token = self.provider.load(&self.transport).await?;
        let mut outcome = self.exchange(&token, key).await;
        if is_assertion_rejected(&outcome) {
            self.provider.record_rejection(&token);
            // The token may have rotated between the read and Entra's check.
            let repeated = self.provider.load(&self.transport).await?;
            if !repeated.is_same(&token) {
                token = repeated;
                outcome = self.exchange(&token, key).await;
                if is_assertion_rejected(&outcome) {
                    self.provider.record_rejection(&token);
                }
            }
        }
        if outcome.is_ok() {
            *self.unmatched_since.lock() = None;
        }
        outcome.map_err(|error| self.add_token_details(error, &token))
    }
}

impl<O: FederatedTokenProvider> FederatedTokenSource<O> {
    fn new(
        provider: O,
        tenant: TenantId,
        client: ClientId,
        authority: &Authority,
        transport: &TokenTransport,
    ) -> Self {
        Self {
            application: EntraApplication::new(tenant, client, authority.clone()),
            provider,
            transport: transport.clone(),
            unmatched_since: Mutex::default(),
        }
    }

    async fn exchange(
        &self,
        token: &FederatedToken,
        key: &TokenKey,
    ) -> Result<IssuedToken, TokenError> {
        let authentication = ClientAuthentication::Assertion(token.text());
        exchange(&self.application, authentication, key, 0, &self.transport).await
    }

    /// Adds the token's claims to the error if its cause may be a mismatch with the federated credential.
    fn add_token_details(&self, error: TokenError, token: &FederatedToken) -> TokenError {
        let TokenError::Refused(entra_error) = &error else { return error };
        if !is_assertion_error(entra_error) {
            return error;
        }
        let remark = token.describe(self.transport.clock().now());
        let mut explained = EntraError::clone(entra_error).with_detail(remark);
        if self.may_be_propagating(entra_error) {
            explained = explained.mark_transient();
        }
        TokenError::Refused(Arc::new(explained))
    }

    /// Whether the error may be caused by the replication of a new federated credential. The engine's failure
    /// back-off slows down repeated requests.
    fn may_be_propagating(&self, error: &EntraError) -> bool {
        if !error.code().is_some_and(|code| UNMATCHED_CODES.contains(&code)) {
            return false;
        }
        let now = self.transport.clock().monotonic();
        let since = *self.unmatched_since.lock().get_or_insert(now);
        now.saturating_sub(since) < PROPAGATION_WINDOW
    }
}

fn is_assertion_rejected(outcome: &Result<IssuedToken, TokenError>) -> bool {
    matches!(outcome, Err(TokenError::Refused(error)) if is_assertion_error(error))
}

fn is_assertion_error(error: &EntraError) -> bool {
    error.is_invalid_client() || error.code().is_some_and(|code| FEDERATION_CODES.contains(&code))
}

fn parse_id<T: std::str::FromStr<Err = ParseIdError>>(
    variable: &'static str,
    text: Option<&str>,
) -> Result<T, FederatedTokenSettingProblem> {
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    let text = text.ok_or(FederatedTokenSettingProblem::Missing { variable })?;
    text.parse().map_err(|problem| FederatedTokenSettingProblem::Id { variable, problem })
}

fn join_problems(problems: &[FederatedTokenSettingProblem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The codes that Entra uses for "no federated credential matches".
const FEDERATION_CODES: [u32; 7] =
    [70_021, 700_211, 700_212, 700_213, 7_002_137, 7_002_138, 700_024];
/// The codes of those that also occur right after a federated credential was created. A subject in the wrong
/// case (7002137, 7002138) was compared with a known credential and is therefore not among them.
const UNMATCHED_CODES: [u32; 4] = [70_021, 700_211, 700_212, 700_213];
/// The assumed maximum replication time of a new federated credential. Entra's documentation names some
/// minutes, and more if an earlier response is cached.
const PROPAGATION_WINDOW: Duration = Duration::from_mins(10);
const PUBLIC_CLOUD_AUTHORITY: &str = "https://login.microsoftonline.com/";

#[cfg(test)]
mod tests;
