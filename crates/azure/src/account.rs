//! The sign-in of an Azure account.

use std::borrow::Cow;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::{Secret, TokenCredential};
use lanyard_clock::{ErrorHint, SharedClock};
use lanyard_credential::identity::{Authority, ClientId, TenantId};
use lanyard_credential::secret::SecretText;
use lanyard_credential::{
    AzureCliCredential, AzureCliError, ChainLink, ChainLinkState, ClientCertificateCredential,
    ClientSecretCredential, CredentialChain, FederatedTokenCredential, FederatedTokenSettings,
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentitySettingsError, ManagedIdentityTransport, RetrySettings, TokenError,
    TokenTransport, TokenTransportOptions,
};
use lanyard_vocabulary::cloud::{CloudEndpoints, PUBLIC};
use lanyard_vocabulary::{SubscriptionId, format_error_chain};

use crate::arm_client::ArmClient;
use crate::azure_credentials_file::AzureCredentialsFile;
use crate::caller_identity::CallerIdentity;
use crate::graph_client::GraphClient;
use crate::transport::AzureTransport;

/// A signed-in Azure account.
#[derive(Debug)]
pub struct AzureAccount {
    /// The endpoints of the cloud.
    pub endpoints: &'static CloudEndpoints,
    /// The subscription of the command.
    pub subscription: SubscriptionId,
    /// The credential of the account.
    pub credential: Arc<dyn TokenCredential>,
    /// The transport of all requests.
    pub transport: AzureTransport,
    /// The client of Azure Resource Manager.
    pub arm: ArmClient,
    /// The token service.
    pub authority: Authority,
    /// The HTTP client of token requests.
    pub tokens: TokenTransport,
}

/// The inputs of a sign-in.
#[derive(Debug, Default)]
pub struct AccountSources {
    /// The file of `--azure-creds`.
    pub file: Option<AzureCredentialsFile>,
    /// The subscription of `--subscription`.
    pub subscription: Option<SubscriptionId>,
    /// `AZURE_SUBSCRIPTION_ID`.
    pub subscription_variable: Option<String>,
    /// `AZURE_CLIENT_ID`, `AZURE_TENANT_ID`, `AZURE_FEDERATED_TOKEN_FILE` and `AZURE_AUTHORITY_HOST`. The authority
    /// replaces that of the public cloud, as in the SDKs.
    pub variables: FederatedTokenSettings,
    /// `AZURE_CLIENT_SECRET`.
    pub client_secret: Option<Secret>,
    /// `AZURE_CLIENT_CERTIFICATE_PATH`.
    pub certificate_path: Option<PathBuf>,
    /// `AZURE_CLIENT_CERTIFICATE_PASSWORD`.
    pub certificate_password: Option<SecretText>,
    /// `AZURE_POD_IDENTITY_AUTHORITY_HOST`.
    pub managed_identity_host: Option<String>,
}

/// The account cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// An input has another form than expected.
    #[error("{name} is invalid")]
    Invalid {
        /// The name of the input.
        name: &'static str,
        /// The problem.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The certificate of the application cannot be used.
    #[error("AZURE_CLIENT_CERTIFICATE_PATH: {}", path.display())]
    Certificate {
        /// The file of the certificate.
        path: PathBuf,
        /// The problem.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The client of the instance metadata service cannot be built.
    #[error("the HTTP client cannot be built")]
    HttpClient(#[source] ManagedIdentitySettingsError),
    /// There is no token.
    #[error("signing in to Azure failed")]
    Token(#[source] azure_core::Error),
    /// The token does not name its identity.
    #[error("the token does not name the signed-in identity")]
    UnnamedIdentity,
    /// No input and not the Azure CLI names the subscription.
    #[error("no subscription is given, and the Azure CLI names none")]
    NoSubscription(#[source] AzureCliError),
}

impl ErrorHint for AccountError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Token(error) => {
                TokenError::of(error).and_then(TokenError::hint).or(Some(SIGN_IN_HINT.into()))
            }
            Self::UnnamedIdentity => Some("sign in with an account of Entra ID".into()),
            Self::NoSubscription(_) => {
                Some("give --subscription, or set AZURE_SUBSCRIPTION_ID".into())
            }
            Self::Invalid { .. } | Self::Certificate { .. } | Self::HttpClient(_) => None,
        }
    }

    fn is_invalid_input(&self) -> bool {
        matches!(self, Self::Invalid { .. } | Self::Certificate { .. } | Self::NoSubscription(_))
    }
}

const SIGN_IN_HINT: &str = "run `az login`, set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or give --azure-creds";

impl AzureAccount {
    /// Signs in, and requests a token for Azure Resource Manager, so that a wrong account is reported first.
    ///
    /// # Errors
    ///
    /// [`AccountError`] if an input is invalid, or there is no token or no subscription.
    pub async fn sign_in(
        endpoints: &'static CloudEndpoints,
        sources: AccountSources,
        transport: AzureTransport,
        clock: &SharedClock,
    ) -> Result<Self, AccountError> {
        let sign_in = SignIn { endpoints, sources: &sources, clock, transport: &transport };
        let cli = sign_in.azure_cli();
        let credential = sign_in.credential(&cli)?;
        let scope = ArmClient::scope(endpoints);
        credential.get_token(&[&scope], None).await.map_err(AccountError::Token)?;
        let subscription = sign_in.subscription(&cli).await?;
        let arm = ArmClient::new(endpoints, Arc::clone(&credential), &transport);
        let (authority, tokens) = (sign_in.authority()?, sign_in.token_transport());
        Ok(Self { endpoints, subscription, credential, transport, arm, authority, tokens })
    }

    /// The signed-in identity, from its token for Azure Resource Manager.
    ///
    /// # Errors
    ///
    /// [`AccountError::Token`] and [`AccountError::UnnamedIdentity`].
    pub async fn caller(&self) -> Result<CallerIdentity, AccountError> {
        self.caller_for(&ArmClient::scope(self.endpoints)).await
    }

    /// The signed-in identity, from its token for Microsoft Graph.
    ///
    /// # Errors
    ///
    /// As [`AzureAccount::caller`].
    pub async fn graph_caller(&self) -> Result<CallerIdentity, AccountError> {
        self.caller_for(&format!("{}/.default", self.endpoints.graph_url())).await
    }

    async fn caller_for(&self, scope: &str) -> Result<CallerIdentity, AccountError> {
        let token = self.credential.get_token(&[scope], None).await.map_err(AccountError::Token)?;
        CallerIdentity::of_token(token.token.secret()).ok_or(AccountError::UnnamedIdentity)
    }

    /// A client of Microsoft Graph.
    pub fn graph(&self) -> GraphClient {
        GraphClient::new(self.endpoints, Arc::clone(&self.credential), &self.transport)
    }
}

/// The parts that the credentials are made from.
struct SignIn<'a> {
    endpoints: &'static CloudEndpoints,
    sources: &'a AccountSources,
    clock: &'a SharedClock,
    transport: &'a AzureTransport,
}

impl SignIn<'_> {
    /// The client secret of the file alone, or the chain of credentials.
    fn credential(
        &self,
        cli: &Arc<AzureCliCredential>,
    ) -> Result<Arc<dyn TokenCredential>, AccountError> {
        if let Some(file) = &self.sources.file
            && let (Some(secret), Some(tenant), Some(client)) =
                (&file.client_secret, &file.tenant, &file.client)
        {
            let tenant = parse_identity::<TenantId>("tenantId", tenant.as_str())?;
            let client = parse_identity::<ClientId>("clientId", &client.to_string())?;
            let secret = SecretText::from(secret.secret());
            let (authority, tokens) = (self.authority()?, self.token_transport());
            return Ok(ClientSecretCredential::new(&tenant, client, &authority, secret, &tokens));
        }
        let (managed_identity, azure_cli) = (self.managed_identity()?, Arc::clone(cli));
        Ok(CredentialChain::new(vec![
            ChainLink { name: "environment", state: self.environment_link()? },
            ChainLink { name: "workload identity", state: self.workload_identity() },
            ChainLink { name: "managed identity", state: managed_identity },
            ChainLink { name: "Azure CLI", state: ChainLinkState::Possible(azure_cli) },
        ]))
    }

    fn azure_cli(&self) -> Arc<AzureCliCredential> {
        let tenant = self.sources.file.as_ref().and_then(|file| file.tenant.as_ref());
        let tenant = tenant.map(ToString::to_string);
        AzureCliCredential::new(OsString::from("az"), tenant, SharedClock::clone(self.clock))
    }

    /// The authority of the cloud, or that of the environment in the public cloud.
    fn authority(&self) -> Result<Authority, AccountError> {
        let url = self.endpoints.authority_url();
        let chosen = match &self.sources.variables.authority_host {
            Some(host) if self.endpoints == &PUBLIC => host,
            _ => &url,
        };
        parse_identity("AZURE_AUTHORITY_HOST", chosen)
    }

    fn token_transport(&self) -> TokenTransport {
        let transport = Some(self.transport.without_rate_limit());
        TokenTransport::new(TokenTransportOptions::new(transport, self.clock))
    }

    /// The application of the variables `AZURE_CLIENT_ID` and `AZURE_TENANT_ID` with its secret or certificate.
    fn environment_link(&self) -> Result<ChainLinkState, AccountError> {
        let absent = |text: &str| Ok(ChainLinkState::Absent(text.to_owned()));
        let variables = &self.sources.variables;
        let (Some(client), Some(tenant)) = (&variables.client_id, &variables.tenant_id) else {
            return absent("AZURE_CLIENT_ID or AZURE_TENANT_ID is not set");
        };
        let AccountSources { client_secret, certificate_path, .. } = self.sources;
        if client_secret.is_none() && certificate_path.is_none() {
            return absent("neither AZURE_CLIENT_SECRET nor AZURE_CLIENT_CERTIFICATE_PATH is set");
        }
        let tenant = parse_identity::<TenantId>("AZURE_TENANT_ID", tenant)?;
        let client = parse_identity::<ClientId>("AZURE_CLIENT_ID", client)?;
        let (authority, tokens) = (self.authority()?, self.token_transport());
        let credential: Arc<dyn TokenCredential> = match (client_secret, certificate_path) {
            (Some(secret), _) => {
                let secret = SecretText::from(secret.secret());
                ClientSecretCredential::new(&tenant, client, &authority, secret, &tokens)
            }
            (None, Some(path)) => {
                let failed = |source| AccountError::Certificate { path: path.clone(), source };
                let content = std::fs::read(path).map_err(|error| failed(error.into()))?;
                let password = self.sources.certificate_password.as_ref();
                ClientCertificateCredential::new(
                    &tenant, client, &authority, &content, password, &tokens,
                )
                .map_err(|error| failed(error.into()))?
            }
            (None, None) => return absent("no secret is set"),
        };
        Ok(ChainLinkState::Configured(credential))
    }

    fn workload_identity(&self) -> ChainLinkState {
        let settings = &self.sources.variables;
        if settings.token_file.is_none() {
            return ChainLinkState::Absent("AZURE_FEDERATED_TOKEN_FILE is not set".to_owned());
        }
        match FederatedTokenCredential::from_settings(settings.clone(), self.token_transport()) {
            Ok(credential) => ChainLinkState::Configured(credential),
            Err(error) => ChainLinkState::Absent(format_error_chain(&error)),
        }
    }

    /// The managed identity of the machine. One request shows whether it has one.
    fn managed_identity(&self) -> Result<ChainLinkState, AccountError> {
        let mut options = TokenTransportOptions::new(None, self.clock);
        let mut retry = RetrySettings::default();
        retry.attempts = 1;
        retry.attempt_timeout = PROBE_TIMEOUT;
        options.retry = Some(retry);
        let transport = ManagedIdentityTransport::new(options).map_err(AccountError::HttpClient)?;
        let mut settings = ManagedIdentitySettings::default();
        settings.identity =
            self.sources.variables.client_id.clone().map(ManagedIdentityId::ClientId);
        settings.imds_host.clone_from(&self.sources.managed_identity_host);
        Ok(match ManagedIdentityCredential::with_shared_transport(settings, &transport) {
            Ok(credential) => ChainLinkState::Possible(credential),
            Err(error) => ChainLinkState::Absent(format_error_chain(&error)),
        })
    }

    /// The subscription of the command: flag, file, variable, then the Azure CLI.
    async fn subscription(&self, cli: &AzureCliCredential) -> Result<SubscriptionId, AccountError> {
        let AccountSources { file, subscription, subscription_variable, .. } = self.sources;
        let given = subscription.as_ref().or_else(|| Some(&file.as_ref()?.subscription));
        if let Some(subscription) = given {
            return Ok(subscription.clone());
        }
        if let Some(text) = subscription_variable {
            return parse_identity("AZURE_SUBSCRIPTION_ID", text);
        }
        let found = cli.default_subscription().await.map_err(AccountError::NoSubscription)?;
        parse_identity("the default subscription of the Azure CLI", &found.id)
    }
}

/// How long the first request to the instance metadata service may take. On machines outside of Azure, its
/// address does not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

fn parse_identity<T: FromStr<Err: Error + Send + Sync + 'static>>(
    name: &'static str,
    text: &str,
) -> Result<T, AccountError> {
    text.parse().map_err(|error: T::Err| AccountError::Invalid { name, source: error.into() })
}
