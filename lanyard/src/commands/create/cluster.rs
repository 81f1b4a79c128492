//! `lanyard create cluster azure`: creates a hosted cluster and its infrastructure.

mod flags;
mod infra_id;
mod infrastructure;
mod object_writer;
mod secret_files;

use std::path::PathBuf;

use lanyard_changes::RunSummary;
use lanyard_clock::SystemClock;
use lanyard_infra::manifests::{
    ClusterAccount, ClusterManifests, ClusterOptions, HostedClusterParameters, SecretInputs,
};
use lanyard_infra::{ClusterIdentities, InfraOutput};
use serde::Serialize;

use self::flags::{ClusterFlags, NodePoolFlags, PlatformFlags, RenderFlags};
use self::infrastructure::{InfrastructureFile, NewInfrastructure};
use self::object_writer::{AcceptedObjects, AppliedObject, applied_text};
use self::secret_files::SecretFlags;
use crate::commands::azure_account::AccountArgs;
use crate::commands::azure_resources::RunArgs;
use crate::commands::cluster_objects::{ClusterObjects, validate_hosted_cluster};
use crate::commands::kubectl::ApiServerArgs;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::output::{self, CliOutputFormat, OutputArgs};
use crate::settings::ProcessEnvironment;

const EXAMPLE: &str = "\
Examples:
  lanyard create cluster azure --name harbour --base-domain example.com \\
    --azure-creds creds.json --pull-secret pull-secret.json \\
    --release-image quay.io/openshift-release-dev/ocp-release:4.22.1-multi \\
    --node-pool-replicas 2 --workload-identities-file iam.json \\
    --oidc-issuer-url https://account.blob.core.windows.net/container \\
    --sa-token-issuer-private-key-path serviceaccount-signer.private \\
    --assign-identity-roles --dns-zone-rg-name dns

  lanyard create cluster azure --name harbour --infra-json infra.yaml \\
    --azure-creds creds.json --pull-secret pull-secret.json \\
    --release-image quay.io/openshift-release-dev/ocp-release:4.22.1-multi --render";

/// Create a hosted cluster and its infrastructure in Azure
///
/// Creates or changes the infrastructure as `lanyard create infra azure` does, or reads its output with
/// --infra-json. Then applies the namespace, the Secrets, the HostedCluster and the NodePools to the cluster of
/// the kubeconfig.
///
/// All checks come before the first write in Azure: of the flags, of the HostedCluster against the rules of its API,
/// of the objects by the API server (a dry run), and of the plan. Run the command with the same flags and --infra-id
/// to continue after an interruption. A second run with the same flags changes nothing.
///
/// --render prints the objects instead of applying them. The Azure resources are created nevertheless, unless
/// --infra-json is given.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    platform: PlatformFlags,
    #[command(flatten)]
    secrets: SecretFlags,
    #[command(flatten)]
    node_pools: NodePoolFlags,
    /// Read the infrastructure from this file, the output of `create infra azure`, instead of creating it
    #[arg(long, value_name = "FILE")]
    infra_json: Option<PathBuf>,
    #[command(flatten)]
    render: RenderFlags,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    server: ApiServerArgs,
    #[command(flatten)]
    account: AccountArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// The result of the command as a document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterSummary {
    #[serde(skip_serializing_if = "Option::is_none")]
    infrastructure: Option<RunSummary>,
    objects: Vec<AppliedObject>,
}

pub(crate) async fn run(args: Args, environment: ProcessEnvironment) -> CommandResult {
    args.check_flags()?;
    let options = args.checked_options()?;
    let Some(path) = &args.infra_json else {
        args.check_configuration()?;
        return args.create_infrastructure(options, &environment).await;
    };
    let file = InfrastructureFile::read(path, &args, &environment)?;
    let parameters = parameters(options, file.account, file.infra, file.identities)?;
    let manifests = checked_manifests(&parameters, args.secrets.read()?)?;
    let objects = args.connect(&environment).await?;
    let accepted = accepted_objects(objects.as_ref(), &manifests).await?;
    args.finish(accepted, &manifests, None).await
}

impl Args {
    /// Connects to the API server and checks its kinds; `None` if the objects are only printed.
    async fn connect(
        &self,
        environment: &ProcessEnvironment,
    ) -> Result<Option<ClusterObjects>, CommandError> {
        if self.render.is_render() {
            return Ok(None);
        }
        let (name, namespace) = (&self.cluster.name, &self.cluster.namespace);
        let objects = ClusterObjects::connect(&self.server, environment, name, namespace).await?;
        objects.check_kinds().await?;
        Ok(Some(objects))
    }

    /// Creates the infrastructure and the objects.
    async fn create_infrastructure(
        &self,
        options: ClusterOptions,
        environment: &ProcessEnvironment,
    ) -> CommandResult {
        let secrets = self.secrets.read()?;
        let objects = self.connect(environment).await?;
        let clock = SystemClock::shared();
        let new = NewInfrastructure::prepare(self, objects.as_ref(), environment, &clock).await?;
        let target = new.target(&self.run, environment, &clock).await?;
        let infra = infrastructure::parse_output(&target)?;
        let identities = infra.identities.clone().ok_or_else(infrastructure::no_identities)?;
        let parameters = parameters(options, new.cluster_account(), infra, identities)?;
        let manifests = checked_manifests(&parameters, secrets)?;
        let accepted = accepted_objects(objects.as_ref(), &manifests).await?;
        let Some(summary) = infrastructure::apply(&target, &new.account, &self.run, &clock).await?
        else {
            return Ok(CommandExit::Failed);
        };
        if !summary.succeeded() {
            self.print_summary(&ClusterSummary {
                infrastructure: Some(summary),
                objects: Vec::new(),
            })?;
            output::print_stderr(&new.continue_hint());
            return Ok(CommandExit::Failed);
        }
        let finished = self.finish(accepted, &manifests, Some(summary)).await;
        finished.inspect_err(|_| output::print_stderr(&new.continue_hint()))
    }

    /// Prints or applies the objects.
    async fn finish(
        &self,
        accepted: Option<AcceptedObjects<'_>>,
        manifests: &ClusterManifests,
        infrastructure: Option<RunSummary>,
    ) -> CommandResult {
        let objects = match accepted {
            Some(accepted) => accepted.apply().await?,
            None => Vec::new(),
        };
        let summary = ClusterSummary { infrastructure, objects };
        if !summary.is_empty() {
            self.print_summary(&summary)?;
        }
        if self.render.is_render() {
            self.render.write(manifests)?;
        }
        Ok(CommandExit::Success)
    }

    /// Prints the result, to standard error if standard output is for the objects.
    fn print_summary(&self, summary: &ClusterSummary) -> Result<(), CommandError> {
        let format = self.output.format;
        if !self.render.is_render() {
            return output::print_value(summary, format, |line_width| summary.to_text(line_width));
        }
        let text = match format {
            CliOutputFormat::Table => {
                let line_width = output::stderr_width();
                output::fit_lines(&summary.to_text(line_width), line_width)
            }
            format => output::serialize_document(summary, format),
        };
        output::print_stderr(text.trim_end());
        Ok(())
    }
}

fn parameters(
    options: ClusterOptions,
    account: ClusterAccount,
    infra: InfraOutput,
    identities: ClusterIdentities,
) -> Result<HostedClusterParameters, CommandError> {
    HostedClusterParameters::new(options, account, infra, identities)
        .map_err(|problems| CommandError::invalid_input(problems.to_string()))
}

/// Renders the objects, and checks the HostedCluster.
fn checked_manifests(
    parameters: &HostedClusterParameters,
    secrets: SecretInputs,
) -> Result<ClusterManifests, CommandError> {
    let manifests = parameters.manifests(secrets);
    validate_hosted_cluster(&manifests.hosted_cluster)?;
    Ok(manifests)
}

/// Checks the objects with the API server; `None` if they are only printed.
async fn accepted_objects<'a>(
    objects: Option<&'a ClusterObjects>,
    manifests: &'a ClusterManifests,
) -> Result<Option<AcceptedObjects<'a>>, CommandError> {
    match objects {
        Some(objects) => AcceptedObjects::check(objects, manifests).await.map(Some),
        None => Ok(None),
    }
}

impl ClusterSummary {
    /// Whether there is nothing to print: the objects are printed, and their infrastructure comes from a file.
    const fn is_empty(&self) -> bool {
        self.infrastructure.is_none() && self.objects.is_empty()
    }

    fn to_text(&self, line_width: Option<usize>) -> String {
        let infrastructure = self.infrastructure.iter().map(ToString::to_string);
        let objects = (!self.objects.is_empty()).then(|| applied_text(&self.objects, line_width));
        infrastructure.chain(objects).collect::<Vec<_>>().join("\n")
    }
}
