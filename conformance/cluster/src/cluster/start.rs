//! Starting a cluster, or what is missing of it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use lanyard_clock::{Clock, SharedClock};
use serde_json::Value;

use super::{Cluster, Outcome, is_ours, layout_of, load_plan, lock, teardown};
use crate::api::Api;
use crate::component::Component;
use crate::configuration;
use crate::error::ClusterError;
use crate::identity::{self, Credential, Identities};
use crate::launch::kubeconfig_of;
use crate::layout::Layout;
use crate::plan::{Options, Plan, Site};
use crate::ports::Ports;
use crate::processes;
use crate::readiness;

pub(super) async fn up(
    options: Options,
    clock: SharedClock,
) -> Result<(Cluster, Outcome), ClusterError> {
    let begin = clock.monotonic();
    if !rustix::process::geteuid().is_root() {
        return Err(ClusterError::NotRoot);
    }
    let programs = options
        .programs
        .canonicalize()
        .map_err(|_absent| ClusterError::NoProgram(options.programs.clone()))?;
    let options = Options { programs, ..options };
    let layout = layout_of(&options.directory)?;
    make_private(layout.root())?;
    if !is_ours(&layout) {
        return Err(ClusterError::ForeignDirectory(layout.root().to_path_buf()));
    }
    let held = lock(&layout)?;
    let plan = match load_plan(&layout)? {
        Some(plan) => plan,
        None => prepare(&layout, &options, &*clock).await?,
    };
    if let Some(option) = plan.contradiction(&options) {
        return Err(ClusterError::OtherOptions { path: layout.root().to_path_buf(), option });
    }
    let api = Api::open(&layout)?;
    let cluster = Cluster { layout, plan, api, clock };
    let started = cluster.boot().await?;
    drop(held);
    let elapsed = cluster.clock.monotonic().saturating_sub(begin);
    Ok((cluster, Outcome { started, elapsed }))
}

impl Cluster {
    /// Starts what does not run, in an order in which each finds what it needs.
    async fn boot(&self) -> Result<Vec<Component>, ClusterError> {
        let missing: Vec<Component> = Component::ALL
            .into_iter()
            .filter(|it| processes::running(&self.layout, *it).is_none())
            .collect();
        // These two need nothing; importing images takes as long as the API server needs.
        let containers = async {
            self.start(Component::Containerd).await?;
            if missing.is_empty() { Ok(()) } else { self.load_images().await }
        };
        let control_plane = async {
            self.start(Component::Etcd).await?;
            self.start(Component::KubeApiserver).await?;
            tokio::try_join!(
                self.start(Component::KubeControllerManager),
                self.start(Component::KubeScheduler),
            )
            .map(drop)
        };
        tokio::try_join!(containers, control_plane)?;
        self.start(Component::Kubelet).await?;
        readiness::wait_usable(self.site(), &self.api, &*self.clock).await?;
        Ok(missing)
    }

    async fn load_images(&self) -> Result<(), ClusterError> {
        let directory = self.plan.program("images");
        let entries = fs::read_dir(&directory).map_err(ClusterError::file("list", &directory))?;
        for entry in entries {
            let archive = entry.map_err(ClusterError::file("list", &directory))?.path();
            if archive.extension().is_some_and(|it| it == "tar") {
                self.load(&archive).await?;
            }
        }
        Ok(())
    }
}

/// Makes everything that the components read. The plan is written last: without it the next
/// start begins anew.
async fn prepare(
    layout: &Layout,
    options: &Options,
    clock: &dyn Clock,
) -> Result<Plan, ClusterError> {
    teardown::clear(layout, clock).await?;
    let plan = Plan::new(options, Ports::choose()?);
    for directory in layout.directories() {
        make_private(&directory)?;
    }
    let identities = Identities::generate(clock.now())?;
    let service_account_key = match &options.service_account_key {
        Some(path) => fs::read_to_string(path).map_err(ClusterError::file("read", path))?,
        None => identity::service_account_key()?,
    };
    write_private(&layout.identity("service-account.key"), service_account_key.as_bytes())?;
    write_identities(layout, &identities)?;
    write_configuration(Site { plan: &plan, layout }, &identities)?;
    write_json(
        &layout.plan(),
        &serde_json::to_value(&plan).map_err(|source| ClusterError::Record {
            path: layout.plan(),
            what: "the plan of a cluster",
            source,
        })?,
    )?;
    Ok(plan)
}

fn write_identities(layout: &Layout, identities: &Identities) -> Result<(), ClusterError> {
    write_private(&layout.identity("ca.crt"), identities.authority.as_bytes())?;
    let files = [
        ("serving", &identities.serving),
        ("kube-apiserver", &identities.api_server),
        ("administrator", &identities.administrator),
    ];
    for (name, Credential { certificate, key, .. }) in files {
        write_private(&layout.identity(&format!("{name}.crt")), certificate.as_bytes())?;
        write_private(&layout.identity(&format!("{name}.key")), key.as_bytes())?;
    }
    Ok(())
}

fn write_configuration(site: Site<'_>, identities: &Identities) -> Result<(), ClusterError> {
    let Site { plan, layout } = site;
    let containerd = layout.configuration(configuration::CONTAINERD);
    write_private(&containerd, configuration::containerd(site).as_bytes())?;
    let network = layout.configuration(configuration::NETWORK);
    write_json(&network, &configuration::network(site))?;
    let kubelet = layout.configuration(configuration::KUBELET);
    write_json(&kubelet, &configuration::kubelet(site))?;
    let users = [
        (kubeconfig_of(site, Component::KubeControllerManager), &identities.controller_manager),
        (kubeconfig_of(site, Component::KubeScheduler), &identities.scheduler),
        (kubeconfig_of(site, Component::Kubelet), &identities.kubelet),
        (layout.kubeconfig(), &identities.administrator),
    ];
    users.into_iter().try_for_each(|(path, user)| {
        write_json(&path, &configuration::kubeconfig(plan, &identities.authority, user))
    })
}

fn make_private(directory: &Path) -> Result<(), ClusterError> {
    // Pods look up paths below the kubelet's directory as other users, so it may be passed
    // through, but not listed.
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o711);
    builder.create(directory).map_err(ClusterError::file("create", directory))
}

fn write_json(path: &Path, value: &Value) -> Result<(), ClusterError> {
    write_private(path, format!("{value:#}\n").as_bytes())
}

/// Writes a file that only its owner reads, whole or not at all.
fn write_private(path: &Path, content: &[u8]) -> Result<(), ClusterError> {
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
