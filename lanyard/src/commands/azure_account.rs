//! The sign-in of the commands that read and change Azure resources.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use azure_core::credentials::TokenCredential;
use lanyard_azure::{ArmClient, AzureTransport, CallerIdentity, GraphClient};
use lanyard_changes::AzureAccess;
use lanyard_clock::{ErrorHint as _, SharedClock};
use lanyard_credential::identity::{Authority, ClientId, TenantId};
use lanyard_credential::secret::SecretText;
use lanyard_credential::{
    AzureCliCredential, AzureCliError, ChainLink, ChainLinkState, ClientCertificateCredential,
    ClientSecretCredential, CredentialChain, FederatedTokenCredential, FederatedTokenSettings,
    ManagedIdentityCredential, ManagedIdentityId, ManagedIdentitySettings,
    ManagedIdentityTransport, RetrySettings, TokenError, TokenTransport, TokenTransportOptions,
};
use lanyard_infra::AzureCredentialsFile;
use lanyard_vocabulary::{Cloud, SubscriptionId, format_error_chain};

use lanyard_vocabulary::cloud::CloudEndpoints;

use super::azure_transport;
use crate::exit::CommandError;
use crate::settings::ProcessEnvironment;

/// The account flags of all infrastructure commands.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Azure account")]
pub(crate) struct AccountArgs {
    /// A JSON or YAML file with `subscriptionId`, and optionally `tenantId`, `clientId` and `clientSecret`.
    /// Without a secret, the environment, workload identity, managed identity or Azure CLI signs in, in this order
    #[arg(long, value_name = "FILE")]
    pub(crate) azure_creds: Option<PathBuf>,
    /// The Azure cloud
    #[arg(long, default_value = "AzurePublicCloud", value_parser = parse_cloud, value_name = "CLOUD")]
    pub(crate) cloud: Cloud,
    /// The id of the subscription [default: from --azure-creds, `AZURE_SUBSCRIPTION_ID` or the Azure CLI]
    #[arg(long, value_name = "ID")]
    pub(crate) subscription: Option<SubscriptionId>,
}

pub(in crate::commands) fn parse_cloud(text: &str) -> Result<Cloud, String> {
    let found = Cloud::parse_provider_name(text).filter(|cloud| cloud.endpoints().is_some());
    found.ok_or_else(|| {
        let known = Cloud::ALL.into_iter().filter(|cloud| cloud.endpoints().is_some());
        format!("give one of {}", known.map(Cloud::name).collect::<Vec<_>>().join(", "))
    })
}

/// A signed-in Azure account.
#[derive(Debug)]
pub(crate) struct AzureAccount {
    pub(crate) endpoints: &'static CloudEndpoints,
    pub(crate) subscription: SubscriptionId,
    pub(crate) credential: Arc<dyn TokenCredential>,
    pub(crate) transport: AzureTransport,
    pub(crate) arm: ArmClient,
    /// The token service.
    pub(crate) authority: Authority,
    /// The HTTP client of token requests.
    pub(crate) tokens: TokenTransport,
}

impl AzureAccount {
    /// Access to the resources of the account. A roll-back through it creates no role assignment again.
    pub(crate) fn access(&self) -> AzureAccess {
        AzureAccess::new(self.arm.clone(), self.graph())
    }

    /// Signs in, and requests a token for Azure Resource Manager, so that a wrong account is reported first.
    pub(crate) async fn sign_in(
        args: &AccountArgs,
        environment: &ProcessEnvironment,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let Some(endpoints) = args.cloud.endpoints() else {
            return Err(CommandError::invalid_input(format!(
                "--cloud: `{}` has no endpoints",
                args.cloud
            )));
        };
        let file = args.azure_creds.as_deref().map(read_credentials_file).transpose()?;
        let settings = azure_transport::transport_settings(environment)?;
        let transport = azure_transport::build_transport(&settings, clock)?;
        let sign_in =
            SignIn { endpoints, environment, clock, transport: &transport, file: file.as_ref() };
        let cli = sign_in.azure_cli();
        let credential = sign_in.credential(&cli)?;
        let scope = ArmClient::scope(endpoints);
        credential.get_token(&[&scope], None).await.map_err(|error| sign_in_error(&error))?;
        let subscription = sign_in.subscription(args, &cli).await?;
        let arm = ArmClient::new(endpoints, Arc::clone(&credential), &transport);
        let (authority, tokens) = (sign_in.authority()?, sign_in.token_transport());
        Ok(Self { endpoints, subscription, credential, transport, arm, authority, tokens })
    }

    /// The signed-in identity, from its token for Azure Resource Manager.
    pub(crate) async fn caller(&self) -> Result<CallerIdentity, CommandError> {
        self.caller_for(&ArmClient::scope(self.endpoints)).await
    }

    /// The signed-in identity, from its token for Microsoft Graph.
    pub(crate) async fn graph_caller(&self) -> Result<CallerIdentity, CommandError> {
        self.caller_for(&format!("{}/.default", self.endpoints.graph_url())).await
    }

    async fn caller_for(&self, scope: &str) -> Result<CallerIdentity, CommandError> {
        let token = self.credential.get_token(&[scope], None).await;
        let token = token.map_err(|error| sign_in_error(&error))?;
        CallerIdentity::of_token(token.token.secret()).ok_or_else(|| {
            CommandError::unavailable("the token does not name the signed-in identity")
                .with_hint("sign in with an account of Entra ID")
        })
    }

    /// A client of Microsoft Graph.
    pub(crate) fn graph(&self) -> GraphClient {
        GraphClient::new(self.endpoints, Arc::clone(&self.credential), &self.transport)
    }
}

/// Reads the file of --azure-creds.
pub(in crate::commands) fn read_credentials_file(
    path: &Path,
) -> Result<AzureCredentialsFile, CommandError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CommandError::invalid_input(format!("--azure-creds: {} cannot be read", path.display()))
            .with_cause(&error)
    })?;
    AzureCredentialsFile::parse(&text).map_err(|error| {
        CommandError::invalid_input(format!("--azure-creds: {}", path.display()))
            .with_cause(&error)
            .with_hint_of(&error)
    })
}

fn sign_in_error(error: &azure_core::Error) -> CommandError {
    let hint = TokenError::of(error).and_then(TokenError::hint).unwrap_or_else(|| {
        "run `az login`, set AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or give --azure-creds".into()
    });
    CommandError::unavailable("signing in to Azure failed").with_cause(error).with_hint(hint)
}

/// What the credentials are made from.
struct SignIn<'a> {
    endpoints: &'static CloudEndpoints,
    environment: &'a ProcessEnvironment,
    clock: &'a SharedClock,
    transport: &'a AzureTransport,
    file: Option<&'a AzureCredentialsFile>,
}

impl SignIn<'_> {
    /// The client secret of the file alone, or the chain of credentials.
    fn credential(
        &self,
        cli: &Arc<AzureCliCredential>,
    ) -> Result<Arc<dyn TokenCredential>, CommandError> {
        if let Some(file) = self.file
            && let (Some(secret), Some(tenant), Some(client)) =
                (&file.client_secret, &file.tenant, &file.client)
        {
            let tenant = parse_identity::<TenantId>("tenantId", tenant.as_str())?;
            let client = parse_identity::<ClientId>("clientId", &client.to_string())?;
            let secret = SecretText::from(secret.secret());
            let authority = self.authority()?;
            let tokens = self.token_transport();
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
        let tenant = self.file.and_then(|file| file.tenant.as_ref()).map(ToString::to_string);
        AzureCliCredential::new(OsString::from("az"), tenant, SharedClock::clone(self.clock))
    }

    /// The authority of the cloud; `AZURE_AUTHORITY_HOST` replaces that of the public cloud, as in the SDKs.
    fn authority(&self) -> Result<Authority, CommandError> {
        let url = self.endpoints.authority_url();
        let chosen = match &self.environment.azure_authority_host {
            Some(host) if self.endpoints == &lanyard_vocabulary::cloud::PUBLIC => host,
            _ => &url,
        };
        parse_identity("AZURE_AUTHORITY_HOST", chosen)
    }

    fn token_options(&self) -> TokenTransportOptions {
        let mut options = TokenTransportOptions::default();
        options.clock = SharedClock::clone(self.clock);
        options
    }

    fn token_transport(&self) -> TokenTransport {
        let mut options = self.token_options();
        options.client.transport = Some(self.transport.without_rate_limit());
        TokenTransport::new(options)
    }

    /// The application of the variables `AZURE_CLIENT_ID` and `AZURE_TENANT_ID` with its secret or certificate.
    fn environment_link(&self) -> Result<ChainLinkState, CommandError> {
        let ProcessEnvironment { azure_client_id, azure_tenant_id, .. } = self.environment;
        let absent = |text: &str| Ok(ChainLinkState::Absent(text.to_owned()));
        let (Some(client), Some(tenant)) = (azure_client_id, azure_tenant_id) else {
            return absent("AZURE_CLIENT_ID or AZURE_TENANT_ID is not set");
        };
        let secret = secret_variable("AZURE_CLIENT_SECRET");
        let certificate = &self.environment.azure_client_certificate_path;
        if secret.is_none() && certificate.is_none() {
            return absent("neither AZURE_CLIENT_SECRET nor AZURE_CLIENT_CERTIFICATE_PATH is set");
        }
        let tenant = parse_identity::<TenantId>("AZURE_TENANT_ID", tenant)?;
        let client = parse_identity::<ClientId>("AZURE_CLIENT_ID", client)?;
        let authority = self.authority()?;
        let tokens = self.token_transport();
        let credential: Arc<dyn TokenCredential> = match (secret, certificate) {
            (Some(secret), _) => {
                ClientSecretCredential::new(&tenant, client, &authority, secret, &tokens)
            }
            (None, Some(path)) => {
                let failed = |error: &dyn std::error::Error| {
                    let path = path.display();
                    CommandError::invalid_input(format!("AZURE_CLIENT_CERTIFICATE_PATH: {path}"))
                        .with_cause(error)
                };
                let content = std::fs::read(path).map_err(|error| failed(&error))?;
                let password = secret_variable("AZURE_CLIENT_CERTIFICATE_PASSWORD");
                let password = password.as_ref();
                ClientCertificateCredential::new(
                    &tenant, client, &authority, &content, password, &tokens,
                )
                .map_err(|error| failed(&error))?
            }
            (None, None) => return absent("no secret is set"),
        };
        Ok(ChainLinkState::Configured(credential))
    }

    fn workload_identity(&self) -> ChainLinkState {
        let environment = self.environment;
        if environment.azure_federated_token_file.is_none() {
            return ChainLinkState::Absent("AZURE_FEDERATED_TOKEN_FILE is not set".to_owned());
        }
        let mut settings = FederatedTokenSettings::default();
        settings.client_id.clone_from(&environment.azure_client_id);
        settings.tenant_id.clone_from(&environment.azure_tenant_id);
        settings.token_file.clone_from(&environment.azure_federated_token_file);
        settings.authority_host.clone_from(&environment.azure_authority_host);
        match FederatedTokenCredential::from_settings(settings, self.token_transport()) {
            Ok(credential) => ChainLinkState::Configured(credential),
            Err(error) => ChainLinkState::Absent(format_error_chain(&error)),
        }
    }

    /// The managed identity of the machine. One request shows whether it has one.
    fn managed_identity(&self) -> Result<ChainLinkState, CommandError> {
        let mut options = self.token_options();
        let mut retry = RetrySettings::default();
        retry.attempts = 1;
        retry.attempt_timeout = PROBE_TIMEOUT;
        options.retry = Some(retry);
        let unavailable = |error: &dyn std::error::Error| {
            CommandError::unavailable("the HTTP client cannot be built").with_cause(error)
        };
        let transport =
            ManagedIdentityTransport::new(options).map_err(|error| unavailable(&error))?;
        let mut settings = ManagedIdentitySettings::default();
        let client = self.environment.azure_client_id.as_deref();
        settings.identity = client.map(|id| ManagedIdentityId::ClientId(id.to_owned()));
        settings.imds_host.clone_from(&self.environment.managed_identity_host);
        Ok(match ManagedIdentityCredential::with_shared_transport(settings, &transport) {
            Ok(credential) => ChainLinkState::Possible(credential),
            Err(error) => ChainLinkState::Absent(format_error_chain(&error)),
        })
    }

    /// The subscription of the command: flag, file, variable, then the Azure CLI.
    async fn subscription(
        &self,
        args: &AccountArgs,
        cli: &AzureCliCredential,
    ) -> Result<SubscriptionId, CommandError> {
        let given = args.subscription.clone().or_else(|| Some(self.file?.subscription.clone()));
        if let Some(subscription) = given {
            return Ok(subscription);
        }
        if let Some(text) = &self.environment.azure_subscription_id {
            return parse_identity("AZURE_SUBSCRIPTION_ID", text);
        }
        let found = cli.default_subscription().await.map_err(|error| no_subscription(&error))?;
        parse_identity("the default subscription of the Azure CLI", &found.id)
    }
}

/// How long the first request to the instance metadata service may take. On machines outside of Azure, its
/// address does not answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

fn no_subscription(error: &AzureCliError) -> CommandError {
    CommandError::invalid_input("no subscription is given, and the Azure CLI names none")
        .with_cause(error)
        .with_hint("give --subscription, or set AZURE_SUBSCRIPTION_ID")
}

fn secret_variable(name: &str) -> Option<SecretText> {
    let text = ProcessEnvironment::read_variable(name)?.into_string().ok()?;
    (!text.is_empty()).then(|| SecretText::from(text))
}

fn parse_identity<T: std::str::FromStr<Err: std::error::Error>>(
    name: &str,
    text: &str,
) -> Result<T, CommandError> {
    text.parse().map_err(|error: T::Err| {
        CommandError::invalid_input(format!("{name} is invalid")).with_cause(&error)
    })
}
