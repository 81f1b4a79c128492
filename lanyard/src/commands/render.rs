//! `lanyard render`: prints the objects that a HostedCluster needs.

use std::fs::{self, Permissions};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use lanyard_api::HostedCluster;
use lanyard_desired::hosted_cluster::key_rotation::lint_private_rotation;
use lanyard_desired::hosted_cluster::kms_api_version::KmsApiVersion;
use lanyard_desired::objects::{
    ControlPlaneOwner, OperatorMode, VolumeRefresh, unrendered_objects,
};
use lanyard_desired::{
    DesiredObjectInputs, ParsedHostedCluster, RenderContext, RenderedFile, WorkloadTemplates,
    desired_objects, desired_state, render_deployment_patches, render_objects,
};
use lanyard_vocabulary::EntraClientId;

use super::azure_resources::output_files::write_file;
use super::go_bool::GoBool;
use super::hosted_cluster;
use super::problem_text::problem_line;
use super::workloads::WorkloadArgs;
use crate::exit::{CommandError, CommandExit, CommandResult, ExternalResult as _, ResultExt as _};
use crate::output;

const EXAMPLE: &str = "\
Examples:
  lanyard render -f hostedcluster.yaml --output-dir objects
  lanyard render --vault-reader 7f1c6b0e-52d9-4a38-8e4f-b60d93a1c275 | kubectl diff -f -";

/// Print the objects that a HostedCluster needs
///
/// The namespace of the control plane, the HostedControlPlane, nine SecretProviderClasses, the cloud
/// configurations, the configuration of the network controller, the encryption keys, the AzureCluster with its
/// AzureClusterIdentity, and a Deployment for each component: the objects that `lanyard operator` writes. The
/// output depends only on the HostedCluster and the flags, so it can be reviewed and compared. An object that
/// cannot be rendered is named and left out, and the command ends with 1.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLE)]
pub(crate) struct Args {
    /// The HostedCluster; `-` reads standard input [default: the built-in example]
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Write one file per object into this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
    /// The managed identity of the management cluster's nodes that reads the vault
    #[arg(long, env = "ARO_HCP_KEY_VAULT_USER_CLIENT_ID", value_name = "CLIENT-ID")]
    vault_reader: Option<EntraClientId>,
    #[command(flatten)]
    workloads: WorkloadArgs,
    /// Whether mounted volumes are updated when the vault changes, as for `lanyard operator`
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", value_name = "BOOL")]
    rotation: GoBool,
    /// The address of the Service `private-router`, which the operator reads from the cluster: without it,
    /// the objects contain no route to a key in a private vault, and no canary call to it
    #[arg(long, value_name = "ADDRESS")]
    private_router: Option<IpAddr>,
    /// The uid of the HostedControlPlane that owns the objects; without it, the objects have no owner
    /// reference
    #[arg(long, value_name = "UID")]
    owner_uid: Option<String>,
    /// Print patches with volumes, mounts and variables instead, for deployments that another tool creates
    #[arg(long, conflicts_with_all = ["WorkloadArgs", "owner_uid", "private_router"])]
    patches: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let ParsedHostedCluster { wire, hosted_cluster: cluster, object_errors, .. } =
        hosted_cluster::load_parsed(args.file.as_deref())?;
    if args.vault_reader.is_none() {
        output::print_stderr(
            "lint: no --vault-reader: the classes name no identity, so the node's own is used",
        );
    }
    let is_private = cluster.encryption.as_ref().is_some_and(|it| it.is_private_access);
    if is_private && args.private_router.is_none() && !args.patches {
        output::print_stderr(
            "lint: no --private-router: the route to the key's private vault and the canary's call \
             are omitted",
        );
    }
    let files = if args.patches {
        let names = RenderContext { vault_reader: args.vault_reader, ..RenderContext::default() };
        render_deployment_patches(&desired_state(&cluster, &names))
    } else {
        let templates = args.workloads.load_templates()?;
        let lints = templates.lint_vault_reader(args.vault_reader).into_iter();
        let encryption = cluster.encryption.as_ref();
        let lints = lints.chain(encryption.and_then(|_| templates.lint_encryption_flags()));
        let route = args.private_router.and_then(|_| lint_private_rotation(&cluster, &wire));
        for lint in lints.chain(route) {
            output::print_stderr(&problem_line(&lint));
        }
        let inputs = render_inputs(args, &wire, &templates);
        for key in unrendered_objects(&cluster, &inputs) {
            output::print_stderr(&format!("error: {key} cannot be rendered"));
        }
        render_objects(&desired_objects(&cluster, &inputs))
    };
    let files = files.or_invalid("an object cannot be written as YAML")?;
    match &args.output_dir {
        None => {
            let documents: Vec<_> = files.iter().map(|file| file.text.as_str()).collect();
            output::print_stdout(&documents.join("---\n"))?;
        }
        Some(directory) => {
            write_files(directory, &files)?;
            let count = output::counted(files.len(), "file");
            output::print_stderr(&format!("{count} in {}", directory.display()));
        }
    }
    // The rendering is incomplete.
    let is_complete = args.patches || object_errors.is_empty();
    Ok(if is_complete { CommandExit::Success } else { CommandExit::Failed })
}

fn render_inputs<'a>(
    args: &Args,
    wire: &'a HostedCluster,
    templates: &'a WorkloadTemplates,
) -> DesiredObjectInputs<'a> {
    DesiredObjectInputs {
        wire,
        mode: OperatorMode::All,
        owner: args
            .owner_uid
            .clone()
            .map_or(ControlPlaneOwner::WithoutUid, ControlPlaneOwner::Known),
        vault_reader: args.vault_reader,
        templates,
        refresh: if args.rotation.0 { VolumeRefresh::Polled } else { VolumeRefresh::AtMount },
        private_router: args.private_router,
        control_plane_endpoint: None,
        kms_api_version: KmsApiVersion::default(),
    }
}

fn write_files(directory: &Path, files: &[RenderedFile]) -> Result<(), CommandError> {
    fs::create_dir_all(directory)
        .or_unavailable(format_args!("cannot create {}", directory.display()))
        .hint("choose another directory with --output-dir")?;
    // Replaces a symbolic link instead of writing to its target.
    let permissions = Permissions::from_mode(0o644);
    files.iter().try_for_each(|file| {
        write_file(&directory.join(&file.name), &file.text, permissions.clone())
    })
}
