//! Starts a cluster, or its missing components.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use lanyard_clock::{Clock, SharedClock};
use serde_json::Value;

use super::{
    ClusterStartOutcome, LocalCluster, is_cluster_directory, load_plan, lock_cluster,
    resolve_layout, teardown,
};
use crate::certificates::{self, CertificateWithKey, ClusterCertificates};
use crate::component::ClusterComponent;
use crate::component_command::component_kubeconfig_path;
use crate::configuration;
use crate::error::ClusterError;
use crate::http_client::ClusterHttpClient;
use crate::layout::ClusterLayout;
use crate::plan::{ClusterContext, LocalClusterPlan, Options};
use crate::ports::ClusterPorts;
use crate::processes;
use crate::readiness;

pub(super) async fn up(
    options: Options,
    clock: SharedClock,
) -> Result<(LocalCluster, ClusterStartOutcome), ClusterError> {
    let begin = clock.monotonic();
    if !rustix::process::geteuid().is_root() {
        return Err(ClusterError::NotRoot);
    }
    let programs = options
        .programs
        .canonicalize()
        .map_err(|_absent| ClusterError::MissingProgram(options.programs.clone()))?;
    let options = Options { programs, ..options };
    let layout = resolve_layout(&options.directory)?;
    create_private_directory(layout.root())?;
    if !is_cluster_directory(&layout) {
        return Err(ClusterError::NotAClusterDirectory(layout.root().to_path_buf()));
    }
    let held = lock_cluster(&layout)?;
    let plan = match load_plan(&layout)? {
        Some(plan) => plan,
        None => prepare_directory(&layout, &options, &*clock).await?,
    };
    if let Some(option) = plan.conflicting_option(&options) {
        return Err(ClusterError::ConflictingOptions { path: layout.root().to_path_buf(), option });
    }
    let api = ClusterHttpClient::connect_as_administrator(&layout)?;
    let cluster = LocalCluster { layout, plan, http_client: api, clock };
    let started = cluster.start_missing_components().await?;
    drop(held);
    let elapsed = cluster.clock.monotonic().saturating_sub(begin);
    Ok((cluster, ClusterStartOutcome { started, elapsed }))
}

impl LocalCluster {
    /// Starts the components that do not run, in the order of their dependencies.
    async fn start_missing_components(&self) -> Result<Vec<ClusterComponent>, ClusterError> {
        let missing: Vec<ClusterComponent> = ClusterComponent::ALL
            .into_iter()
            .filter(|it| processes::recorded_process(&self.layout, *it).is_none())
            .collect();
        // containerd and etcd depend on nothing. Importing images takes as long as the API server's start.
        let containers = async {
            self.start(ClusterComponent::Containerd).await?;
            if missing.is_empty() { Ok(()) } else { self.load_images().await }
        };
        let control_plane = async {
            self.start(ClusterComponent::Etcd).await?;
            self.start(ClusterComponent::KubeApiserver).await?;
            tokio::try_join!(
                self.start(ClusterComponent::KubeControllerManager),
                self.start(ClusterComponent::KubeScheduler),
            )
            .map(drop)
        };
        tokio::try_join!(containers, control_plane)?;
        self.start(ClusterComponent::Kubelet).await?;
        readiness::wait_until_pods_can_run(self.context(), &self.http_client, &*self.clock).await?;
        Ok(missing)
    }

    async fn load_images(&self) -> Result<(), ClusterError> {
        let directory = self.plan.program_path("images");
        let entries = fs::read_dir(&directory).map_err(ClusterError::file("list", &directory))?;
        for entry in entries {
            let archive = entry.map_err(ClusterError::file("list", &directory))?.path();
            if archive.extension().is_some_and(|it| it == "tar") {
                self.load_image_archive(&archive).await?;
            }
        }
        Ok(())
    }
}

/// Writes all files that the components read. The plan is written last: without it, the next start begins
/// from scratch.
async fn prepare_directory(
    layout: &ClusterLayout,
    options: &Options,
    clock: &dyn Clock,
) -> Result<LocalClusterPlan, ClusterError> {
    teardown::remove_all_but_lock(layout, clock).await?;
    let plan = LocalClusterPlan::new(options, ClusterPorts::choose()?);
    for directory in layout.required_directories() {
        create_private_directory(&directory)?;
    }
    let identities = ClusterCertificates::generate(clock.now())?;
    let service_account_key = match &options.service_account_key {
        Some(path) => fs::read_to_string(path).map_err(ClusterError::file("read", path))?,
        None => certificates::generate_service_account_key()?,
    };
    write_private_file(
        &layout.certificate_file("service-account.key"),
        service_account_key.as_bytes(),
    )?;
    write_certificates(layout, &identities)?;
    write_configuration(ClusterContext { plan: &plan, layout }, &identities)?;
    write_json(
        &layout.plan_file(),
        &serde_json::to_value(&plan).map_err(|source| ClusterError::InvalidRecord {
            path: layout.plan_file(),
            what: "the plan of a cluster",
            source,
        })?,
    )?;
    Ok(plan)
}

fn write_certificates(
    layout: &ClusterLayout,
    identities: &ClusterCertificates,
) -> Result<(), ClusterError> {
    write_private_file(&layout.certificate_file("ca.crt"), identities.authority.as_bytes())?;
    let files = [
        ("serving", &identities.serving),
        ("kube-apiserver", &identities.api_server),
        ("administrator", &identities.administrator),
    ];
    for (name, CertificateWithKey { certificate, key, .. }) in files {
        write_private_file(
            &layout.certificate_file(&format!("{name}.crt")),
            certificate.as_bytes(),
        )?;
        write_private_file(&layout.certificate_file(&format!("{name}.key")), key.as_bytes())?;
    }
    Ok(())
}

fn write_configuration(
    context: ClusterContext<'_>,
    identities: &ClusterCertificates,
) -> Result<(), ClusterError> {
    let ClusterContext { plan, layout } = context;
    let containerd = layout.configuration_file(configuration::CONTAINERD_FILE);
    write_private_file(&containerd, configuration::containerd_config(context).as_bytes())?;
    let network = layout.configuration_file(configuration::CNI_FILE);
    write_json(&network, &configuration::cni_config(context))?;
    let kubelet = layout.configuration_file(configuration::KUBELET_FILE);
    write_json(&kubelet, &configuration::kubelet_config(context))?;
    let users = [
        (
            component_kubeconfig_path(context, ClusterComponent::KubeControllerManager),
            &identities.controller_manager,
        ),
        (
            component_kubeconfig_path(context, ClusterComponent::KubeScheduler),
            &identities.scheduler,
        ),
        (component_kubeconfig_path(context, ClusterComponent::Kubelet), &identities.kubelet),
        (layout.kubeconfig_path(), &identities.administrator),
    ];
    users.into_iter().try_for_each(|(path, user)| {
        write_json(&path, &configuration::render_kubeconfig(plan, &identities.authority, user))
    })
}

fn create_private_directory(directory: &Path) -> Result<(), ClusterError> {
    // Pods access paths below the kubelet's directory as other users, so they may pass through it but not
    // list it.
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o711);
    builder.create(directory).map_err(ClusterError::file("create", directory))
}

fn write_json(path: &Path, value: &Value) -> Result<(), ClusterError> {
    write_private_file(path, format!("{value:#}\n").as_bytes())
}

/// Writes a file that only its owner can read, by writing a temporary file and renaming it.
fn write_private_file(path: &Path, content: &[u8]) -> Result<(), ClusterError> {
    use std::io::Write as _;
    let mut half = path.as_os_str().to_os_string();
    half.push(".half");
    let half = Path::new(&half);
    let mut options = fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
        .open(half)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| fs::rename(half, path))
        .map_err(ClusterError::file("write", path))
}
