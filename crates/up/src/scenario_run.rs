//! A scenario run: starts the local Azure, runs the hops, refreshes the volumes, and removes everything.

use std::collections::BTreeMap;
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
use crate::run_context::RunContext;
use crate::scenario_run_error::ScenarioRunError;

/// How often the volumes are refreshed from the vault while `lanyard up` keeps running.
const REFRESH_INTERVAL: Duration = Duration::from_secs(10);

/// A run of the hops (steps of the identity flow, see [`Hop`]) of all components of one HostedCluster
/// against a local Azure, and of one rotation.
///
/// [`Hop`]: lanyard_vocabulary::Hop
#[derive(Debug)]
pub struct ScenarioRun {
    context: Arc<RunContext>,
    emulator: Emulator,
    components: Vec<ComponentReport>,
    rotation: Vec<RotationReport>,
    /// What the threads that read the mounted files during the rotation saw; `None` without a rotation.
    reader_counts: Option<ReaderCounts>,
    mounted: BTreeMap<Component, MountedComponent>,
    /// One task per component, which runs its hops.
    component_tasks: JoinSet<(Component, ComponentReport, Option<MountedComponent>)>,
}

impl ScenarioRun {
    /// Starts the local Azure for the cluster and builds the run's context.
    pub async fn start(options: Options, clock: SharedClock) -> Result<Self, ScenarioRunError> {
        let (context, emulator) = RunContext::start(options, clock).await?;
        Ok(Self {
            context: Arc::new(context),
            emulator,
            components: Vec::new(),
            rotation: Vec::new(),
            reader_counts: None,
            mounted: BTreeMap::new(),
            component_tasks: JoinSet::new(),
        })
    }

    /// Runs the hops of all components concurrently.
    pub async fn run_hops(&mut self) {
        for (component, _) in self.context.azure.cluster.running_components() {
            let context = Arc::clone(&self.context);
            self.component_tasks.spawn(async move {
                let mut recorder = HopRecorder::new(component, Arc::clone(&context.azure.clock));
                let mut mounted = None;
                // The report contains the failed hop.
                let _stopped =
                    hops::run_component_hops(&context, component, &mut recorder, &mut mounted)
                        .await;
                (component, recorder.into_report(), mounted)
            });
        }
        let mut reports = BTreeMap::new();
        while let Some(joined) = self.component_tasks.join_next().await {
            match joined {
                Ok((component, report, mounted)) => {
                    reports.insert(component, report);
                    self.mounted.extend(mounted.map(|mounted| (component, mounted)));
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

    /// Issues a new certificate for every mounted component and measures how soon each new key is in use,
    /// while reader threads check for torn and missing files.
    pub async fn rotate_certificates(&mut self) {
        let control = AzureControlClient::new(self.emulator.address());
        let context = Arc::clone(&self.context);
        let (rotation, readers) = match control {
            Ok(control) => {
                let (mounted, before) = (&mut self.mounted, &self.components);
                rotate::rotate_all_components(&context, &control, mounted, before).await
            }
            Err(error) => {
                let components = self.mounted.keys().copied();
                (RotationReport::all_failed(components, &error), ReaderCounts::default())
            }
        };
        self.rotation = rotation;
        self.reader_counts = Some(readers);
    }

    /// The report of everything that has run so far.
    pub fn report(&self) -> ScenarioReport {
        let mut report = ScenarioReport::new(self.components.clone(), self.rotation.clone());
        report.ok &= self.reader_counts.is_none_or(ReaderCounts::read_only_whole_files);
        report
    }

    /// What the threads that read the mounted files during the rotation saw; `None` without a rotation.
    pub const fn reader_counts(&self) -> Option<ReaderCounts> {
        self.reader_counts
    }

    /// Refreshes the volumes from the vault until the future is dropped.
    pub async fn refresh_until_dropped(&mut self) {
        loop {
            self.context.azure.clock.sleep(REFRESH_INTERVAL).await;
            for (component, mounted) in &mut self.mounted {
                if let Err(failure) =
                    rotate::refresh_volumes(&self.context, *component, mounted).await
                {
                    let (detail, hint) = (&failure.detail, &failure.hint);
                    tracing::warn!(%component, detail, hint, "could not refresh the volume");
                }
            }
        }
    }

    /// The parent directory of all volumes.
    pub fn volumes_directory(&self) -> &Path {
        self.context.directory.volumes_directory()
    }

    /// A directory that only this user can enter. The run removes it at its end.
    pub fn private_directory(&self) -> &Path {
        self.context.directory.private_directory()
    }

    /// The local Azure.
    pub const fn local_azure(&self) -> &Emulator {
        &self.emulator
    }

    /// Removes the volumes and stops the local Azure.
    pub async fn close(mut self) -> Result<(), ScenarioRunError> {
        // Cancelled component tasks hold volumes and the run directory until they end.
        self.component_tasks.shutdown().await;
        // An open file in a volume keeps the mount busy.
        drop(self.mounted);
        self.emulator.shutdown().await;
        Arc::into_inner(self.context).map_or(Ok(()), |context| Ok(context.directory.close()?))
    }
}
