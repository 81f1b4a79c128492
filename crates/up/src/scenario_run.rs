//! The road: built, walked, kept fresh, cleared away.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_emulator::Emulator;
use lanyard_vocabulary::Component;
use tokio::task::JoinSet;

use crate::control_api::AzureControlClient;
use crate::hop_recorder::HopRecorder;
use crate::hops::{self, MountedComponent};
use crate::options::Options;
use crate::reader_threads::ReaderCounts;
use crate::report::{ComponentReport, RotationReport, ScenarioReport};
use crate::rotate;
use crate::run_context::{RunContext, ScenarioRunError};

/// How often the volumes are compared with the vault while everything stays up.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// The whole road, with the local Azure at its end.
#[derive(Debug)]
pub struct ScenarioRun {
    context: Arc<RunContext>,
    emulator: Emulator,
    components: Vec<ComponentReport>,
    rotation: Vec<RotationReport>,
    reader_counts: Option<ReaderCounts>,
    mounted: BTreeMap<Component, MountedComponent>,
    hop_tasks: JoinSet<(Component, ComponentReport, Option<MountedComponent>)>,
}

impl ScenarioRun {
    /// Starts the local Azure with the world of the cluster, and builds the way to it.
    pub async fn start(options: Options, clock: SharedClock) -> Result<Self, ScenarioRunError> {
        let (bed, emulator) = RunContext::start(options, clock).await?;
        Ok(Self {
            context: Arc::new(bed),
            emulator,
            components: Vec::new(),
            rotation: Vec::new(),
            reader_counts: None,
            mounted: BTreeMap::new(),
            hop_tasks: JoinSet::new(),
        })
    }

    /// Takes every component down the road, all at once.
    pub async fn run_hops(&mut self) {
        for (component, _) in self.context.azure.cluster.running_components() {
            let bed = Arc::clone(&self.context);
            self.hop_tasks.spawn(async move {
                let mut walk = HopRecorder::new(component, Arc::clone(&bed.azure.clock));
                let mut arrived = None;
                // Where the walk stopped is in its report.
                let _stopped =
                    hops::run_component_hops(&bed, component, &mut walk, &mut arrived).await;
                (component, walk.into_report(), arrived)
            });
        }
        let mut reports = BTreeMap::new();
        while let Some(joined) = self.hop_tasks.join_next().await {
            match joined {
                Ok((component, report, arrived)) => {
                    reports.insert(component, report);
                    self.mounted.extend(arrived.map(|arrived| (component, arrived)));
                }
                Err(error) => tracing::error!(%error, "the task of a component panicked"),
            }
        }
        let panicked = |component| {
            HopRecorder::new(component, Arc::clone(&self.context.azure.clock)).panicked_report()
        };
        self.components = self
            .context
            .azure
            .cluster
            .running_components()
            .map(|(component, _)| reports.remove(&component).unwrap_or_else(|| panicked(component)))
            .collect();
    }

    /// Issues a new certificate for every component that arrived, and measures how soon each new
    /// key is in use, while reader threads watch for torn and missing files.
    pub async fn rotate_certificates(&mut self) {
        let control = AzureControlClient::new(self.emulator.address());
        let bed = Arc::clone(&self.context);
        let (rotation, readers) = match control {
            Ok(control) => rotate::rotate_all_components(&bed, &control, &mut self.mounted).await,
            Err(error) => {
                let components = self.mounted.keys().copied();
                (RotationReport::all_failed(components, &error), ReaderCounts::default())
            }
        };
        self.rotation = rotation;
        self.reader_counts = Some(readers);
    }

    /// What happened so far.
    pub fn report(&self) -> ScenarioReport {
        let mut report = ScenarioReport::new(self.components.clone(), self.rotation.clone());
        report.ok &= self.reader_counts.is_none_or(ReaderCounts::read_only_whole_files);
        report
    }

    /// What the reader threads saw, if there was a rotation.
    pub const fn reader_counts(&self) -> Option<ReaderCounts> {
        self.reader_counts
    }

    /// Keeps the volumes in step with the vault. It ends only by being dropped.
    pub async fn refresh_until_dropped(&mut self) {
        loop {
            self.context.azure.clock.sleep(REFRESH_INTERVAL).await;
            for (component, arrived) in &mut self.mounted {
                if let Err(failure) =
                    rotate::refresh_volumes(&self.context, *component, arrived).await
                {
                    let (detail, hint) = (&failure.detail, &failure.hint);
                    tracing::warn!(%component, detail, hint, "the volume was not refreshed");
                }
            }
        }
    }

    /// The directory below which the volumes are.
    pub fn volumes_directory(&self) -> &Path {
        self.context.directory.volumes_directory()
    }

    /// A directory that only this user can enter, removed at the end of the run.
    pub fn private_directory(&self) -> &Path {
        self.context.directory.private_directory()
    }

    /// Where the local Azure listens.
    pub const fn address(&self) -> SocketAddr {
        self.emulator.address()
    }

    /// The certificate that clients of the local Azure have to trust, in PEM.
    pub fn ca_pem(&self) -> &str {
        self.emulator.ca_pem()
    }

    /// Removes the volumes and stops the local Azure.
    pub async fn close(mut self) -> Result<(), ScenarioRunError> {
        // Interrupted walkers hold volumes and the run directory until they are gone.
        self.hop_tasks.shutdown().await;
        // An open file of a volume keeps its mount busy.
        drop(self.mounted);
        self.emulator.shutdown().await;
        Arc::into_inner(self.context).map_or(Ok(()), |bed| Ok(bed.directory.close()?))
    }
}
