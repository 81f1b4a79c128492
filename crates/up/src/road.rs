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

use crate::control::Control;
use crate::hops::{self, Arrived};
use crate::options::Options;
use crate::readers::Readers;
use crate::report::{ComponentReport, Report, RotationReport};
use crate::roadbed::{RoadError, Roadbed};
use crate::rotate;
use crate::walk::Walk;

/// How often the volumes are compared with the vault while everything stays up.
const REFRESH_EVERY: Duration = Duration::from_secs(10);

/// The whole road, with the local Azure at its end.
#[derive(Debug)]
pub struct Road {
    bed: Arc<Roadbed>,
    emulator: Emulator,
    components: Vec<ComponentReport>,
    rotation: Vec<RotationReport>,
    readers: Option<Readers>,
    arrived: BTreeMap<Component, Arrived>,
    walkers: JoinSet<(Component, ComponentReport, Option<Arrived>)>,
}

impl Road {
    /// Starts the local Azure with the world of the cluster, and builds the way to it.
    pub async fn open(options: Options, clock: SharedClock) -> Result<Self, RoadError> {
        let (bed, emulator) = Roadbed::build(options, clock).await?;
        Ok(Self {
            bed: Arc::new(bed),
            emulator,
            components: Vec::new(),
            rotation: Vec::new(),
            readers: None,
            arrived: BTreeMap::new(),
            walkers: JoinSet::new(),
        })
    }

    /// Takes every component down the road, all at once.
    pub async fn walk(&mut self) {
        for (component, _) in self.bed.azure.cluster.components() {
            let bed = Arc::clone(&self.bed);
            self.walkers.spawn(async move {
                let mut walk = Walk::new(component, Arc::clone(&bed.azure.clock));
                let mut arrived = None;
                // Where the walk stopped is in its report.
                let _stopped = hops::walk_component(&bed, component, &mut walk, &mut arrived).await;
                (component, walk.finish(), arrived)
            });
        }
        let mut reports = BTreeMap::new();
        while let Some(joined) = self.walkers.join_next().await {
            match joined {
                Ok((component, report, arrived)) => {
                    reports.insert(component, report);
                    self.arrived.extend(arrived.map(|arrived| (component, arrived)));
                }
                Err(error) => tracing::error!(%error, "the task of a component panicked"),
            }
        }
        let panicked =
            |component| Walk::new(component, Arc::clone(&self.bed.azure.clock)).panicked();
        self.components = self
            .bed
            .azure
            .cluster
            .components()
            .map(|(component, _)| reports.remove(&component).unwrap_or_else(|| panicked(component)))
            .collect();
    }

    /// Issues a new certificate for every component that arrived, and measures how soon each new
    /// key is in use, while reader threads watch for torn and missing files.
    pub async fn rotate(&mut self) {
        let control = Control::new(self.emulator.address());
        let bed = Arc::clone(&self.bed);
        let (rotation, readers) = match control {
            Ok(control) => rotate::rotate_all(&bed, &control, &mut self.arrived).await,
            Err(error) => {
                let components = self.arrived.keys().copied();
                (RotationReport::without_control(components, &error), Readers::default())
            }
        };
        self.rotation = rotation;
        self.readers = Some(readers);
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.components.clone(), self.rotation.clone());
        report.ok &= self.readers.is_none_or(Readers::saw_whole_files_only);
        report
    }

    /// What the reader threads saw, if there was a rotation.
    pub const fn readers(&self) -> Option<Readers> {
        self.readers
    }

    /// Keeps the volumes in step with the vault. It ends only by being dropped.
    pub async fn keep_fresh(&mut self) {
        loop {
            self.bed.azure.clock.sleep(REFRESH_EVERY).await;
            for (component, arrived) in &mut self.arrived {
                if let Err(failure) = rotate::refresh(&self.bed, *component, arrived).await {
                    let (detail, hint) = (&failure.detail, &failure.hint);
                    tracing::warn!(%component, detail, hint, "the volume was not refreshed");
                }
            }
        }
    }

    /// The directory below which the volumes are.
    pub fn directory(&self) -> &Path {
        self.bed.directory.volumes()
    }

    /// A directory that only this user can enter, removed at the end of the run.
    pub fn private_directory(&self) -> &Path {
        self.bed.directory.private()
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
    pub async fn close(mut self) -> Result<(), RoadError> {
        // Interrupted walkers hold volumes and the run directory until they are gone.
        self.walkers.shutdown().await;
        // An open file of a volume keeps its mount busy.
        drop(self.arrived);
        self.emulator.shutdown().await;
        Arc::into_inner(self.bed).map_or(Ok(()), |bed| Ok(bed.directory.close()?))
    }
}
