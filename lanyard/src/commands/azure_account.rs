//! The flags of the sign-in, for the commands that read and change Azure resources.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use azure_core::credentials::Secret;
use lanyard_azure::{AccountSources, AzureCredentialsFile};
use lanyard_changes::AzureAccess;
use lanyard_clock::SharedClock;
use lanyard_credential::secret::SecretText;
use lanyard_vocabulary::{Cloud, SubscriptionId};

use super::azure_transport;
use crate::exit::{CommandError, ExternalResult as _, ResultExt as _};
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
pub(crate) struct AzureAccount(lanyard_azure::AzureAccount);

impl Deref for AzureAccount {
    type Target = lanyard_azure::AzureAccount;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl AzureAccount {
    /// Access to the resources of the account. A roll-back through it creates no role assignment again.
    pub(crate) fn access(&self) -> AzureAccess {
        AzureAccess::new(self.arm.clone(), self.graph())
    }

    /// Signs in with the account of the flags and of the environment.
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
        let sources = AccountSources {
            file: args.azure_creds.as_deref().map(read_credentials_file).transpose()?,
            subscription: args.subscription.clone(),
            subscription_variable: environment.azure_subscription_id.clone(),
            variables: environment.workload_identity(),
            client_secret: secret_variable("AZURE_CLIENT_SECRET").map(Secret::new),
            certificate_path: environment.azure_client_certificate_path.clone(),
            certificate_password: secret_variable("AZURE_CLIENT_CERTIFICATE_PASSWORD")
                .map(SecretText::from),
            managed_identity_host: environment.managed_identity_host.clone(),
        };
        let settings = azure_transport::transport_settings(environment)?;
        let transport = azure_transport::build_transport(&settings, clock)?;
        let account = lanyard_azure::AzureAccount::sign_in(endpoints, sources, transport, clock);
        Ok(Self(account.await?))
    }
}

/// Reads the file of --azure-creds.
pub(in crate::commands) fn read_credentials_file(
    path: &Path,
) -> Result<AzureCredentialsFile, CommandError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .or_invalid(format_args!("--azure-creds: {shown} cannot be read"))?;
    AzureCredentialsFile::parse(&text)
        .context(format_args!("--azure-creds: {shown}"))
        .mark_invalid()
}

fn secret_variable(name: &str) -> Option<String> {
    let text = ProcessEnvironment::read_variable(name)?.into_string().ok()?;
    Some(text).filter(|text| !text.is_empty())
}
