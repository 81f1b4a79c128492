//! The flags that several commands of ccoctl share.

use std::path::PathBuf;

use lanyard_azure::ResourceTags;
use lanyard_changes::RunSummary;
use lanyard_clock::SharedClock;
use lanyard_federation::{IssuerUrl, OutputFile, SigningPublicKey, webhook_secret_file};
use lanyard_infra::{CcoctlOwner, stacks};
use lanyard_vocabulary::{Cloud, EntraTenantId, SubscriptionId};

use crate::commands::azure_account::{AccountArgs, AzureAccount, parse_cloud};
use crate::commands::azure_resources::shared_stack::{SharedRunArgs, SharedStack};
use crate::commands::create::infra::parse_tag;
use crate::commands::issuer::{IssuerNames, IssuerRequest, create_issuer, issuer_documents};
use crate::exit::CommandError;
use crate::output::OutputArgs;
use crate::settings::ProcessEnvironment;

/// The flags that name the owner of the resources.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct OwnerArgs {
    /// The name of the owner, in the tag of all resources and at the beginning of the names of the identities
    #[arg(long, value_name = "NAME")]
    pub(super) name: String,
    /// The id of the subscription
    #[arg(long, value_name = "ID")]
    pub(super) subscription_id: SubscriptionId,
    /// The resource group of the issuer and the identities [default: NAME-oidc]
    #[arg(long, value_name = "NAME")]
    oidc_resource_group_name: Option<String>,
    /// The Azure cloud
    #[arg(long, default_value = "AzurePublicCloud", value_parser = parse_cloud, value_name = "CLOUD")]
    pub(super) cloud: Cloud,
}

impl OwnerArgs {
    pub(super) fn owner(&self) -> CcoctlOwner {
        CcoctlOwner::new(&*self.name)
    }

    pub(super) fn oidc_group(&self) -> String {
        self.oidc_resource_group_name.clone().unwrap_or_else(|| format!("{}-oidc", self.name))
    }

    pub(super) async fn sign_in(
        &self,
        environment: &ProcessEnvironment,
        clock: &SharedClock,
    ) -> Result<AzureAccount, CommandError> {
        let account = AccountArgs {
            azure_creds: None,
            cloud: self.cloud,
            subscription: Some(self.subscription_id.clone()),
        };
        AzureAccount::sign_in(&account, environment, clock).await
    }

    /// The resources of the owner.
    pub(super) fn stack<'a>(
        &'a self,
        account: &'a AzureAccount,
        environment: &'a ProcessEnvironment,
    ) -> SharedStack<'a> {
        let stack = stacks::CCOCTL;
        SharedStack { account, name: &self.name, stack, environment }
    }
}

/// The flags of the commands that create resources.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    pub(super) owner: OwnerArgs,
    /// The region of all resources
    #[arg(long, value_name = "REGION")]
    pub(super) region: String,
    /// Tags of groups, storage account and identities; may be repeated or separated by commas
    #[arg(long, value_delimiter = ',', value_parser = parse_tag, value_name = "KEY=VALUE")]
    user_tags: Vec<(String, String)>,
    /// The directory of the files
    #[arg(long, default_value = ".", value_name = "DIR")]
    pub(super) output_dir: PathBuf,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    pub(super) run: SharedRunArgs,
}

impl CreateArgs {
    pub(super) fn tags(&self) -> ResourceTags {
        self.user_tags.iter().cloned().collect()
    }
}

/// The flags of the issuer.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct IssuerArgs {
    /// The tenant, for the Secret of the pod identity webhook. The signed-in identity must be in it
    #[arg(long, value_name = "ID")]
    tenant_id: EntraTenantId,
    /// The storage account: 3 to 24 lower-case letters and digits, unique in the cloud [default: the name]
    #[arg(long, value_name = "NAME")]
    storage_account_name: Option<String>,
    /// The blob container: 3 to 63 lower-case letters, digits and single dashes [default: the name]
    #[arg(long, value_name = "NAME")]
    blob_container_name: Option<String>,
}

impl IssuerArgs {
    pub(super) fn names(&self, owner: &OwnerArgs) -> Result<IssuerNames, CommandError> {
        let (account, container) = (&self.storage_account_name, &self.blob_container_name);
        IssuerNames::parse(&owner.name, account.as_deref(), container.as_deref())
    }

    /// The URL of the issuer.
    pub(super) fn issuer(&self, owner: &OwnerArgs) -> Result<IssuerUrl, CommandError> {
        let endpoints = owner.cloud.endpoints().ok_or_else(|| {
            CommandError::invalid_input(format!("--cloud: `{}` has no endpoints", owner.cloud))
        })?;
        self.names(owner)?.issuer(endpoints)
    }

    /// The documents and the manifests of the issuer.
    pub(super) fn files(
        &self,
        issuer: &IssuerUrl,
        key: &SigningPublicKey,
    ) -> Result<Vec<OutputFile>, CommandError> {
        let mut files = issuer_documents(issuer, key)?;
        files.push(webhook_secret_file(&self.tenant_id));
        Ok(files)
    }

    /// Creates the issuer; see [`create_issuer`].
    pub(super) async fn create(
        &self,
        create: &CreateArgs,
        stack: &SharedStack<'_>,
        key: &SigningPublicKey,
        clock: &SharedClock,
    ) -> Result<Option<RunSummary>, CommandError> {
        self.check_tenant(stack.account).await?;
        let request = IssuerRequest {
            location: create.region.clone(),
            resource_group: create.owner.oidc_group(),
            names: self.names(&create.owner)?,
            issuer: self.issuer(&create.owner)?,
            tags: create.tags(),
        };
        create_issuer(stack, request, key, &create.run, clock).await
    }

    async fn check_tenant(&self, account: &AzureAccount) -> Result<(), CommandError> {
        let found = account.caller().await?.tenant;
        let is_id = |tenant: &EntraTenantId| tenant.as_str().parse::<uuid::Uuid>().is_ok();
        // A domain of the tenant cannot be compared with the id in the token.
        if !is_id(&self.tenant_id) || found.as_str().eq_ignore_ascii_case(self.tenant_id.as_str()) {
            return Ok(());
        }
        Err(CommandError::invalid_input(format!(
            "--tenant-id: the signed-in identity is in the tenant `{found}`, not in `{}`",
            self.tenant_id
        ))
        .with_hint("correct the flag, or sign in with `az login --tenant`"))
    }
}
