//! The road by way of a Kubernetes API: built, walked, rotated on, cleared away.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_canary::CanaryParts;
use lanyard_clock::SharedClock;
use lanyard_credential::{
    ReloadingCertificateCredential, ReloadingCertificateOptions, TokenTransport,
};
use lanyard_desired::objects::cluster_label;
use lanyard_desired::templates::WorkloadTemplates;
use lanyard_emulator::Emulator;
use lanyard_kubelet::{DriverObject, Kubelet, OpaqueTokens, Settings};
use lanyard_kubernetes::{KubernetesApi, UserAgent};
use lanyard_operator::{ClusterKey, Operator, OperatorSettings};
use lanyard_telemetry::Readiness;
use lanyard_vocabulary::{Component, Hop};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::KubernetesOptions;
use super::api_server::{ApiServer, UP};
use super::board::{Board, Rooms};
use super::directory::{self, KubeletDirectory};
use super::error::KubernetesRoadError;
use super::node_plugin::{self, DRIVER, NodeSite, ended};
use super::operated::find_operator;
use super::pods::{Marks, PodsParts};
use super::rotation;
use super::sightings::Sightings;
use super::site::Site;
use super::watched::Watched;
use crate::azure_end::AzureEnd;
use crate::closed::Closed;
use crate::control::Control;
use crate::hops;
use crate::options::Options;
use crate::readers::{ReaderLoop, Readers};
use crate::report::{
    ComponentReport, Failure, HopReport, Report, RoadName, RotationReport, ServerFacts,
};
use crate::roadbed::RoadError;

/// The road by way of a Kubernetes API, with the local Azure at its end.
#[derive(Debug)]
pub struct KubernetesRoad {
    azure: AzureEnd,
    emulator: Emulator,
    server: ApiServer,
    site: Site,
    options: KubernetesOptions,
    kubelet: Kubelet,
    board: Option<Board>,
    /// Ends the operator and the pods.
    end: watch::Sender<bool>,
    /// Ends the kubelet and the node plugin, last of all.
    end_of_node: watch::Sender<bool>,
    parts: JoinSet<()>,
    node_parts: JoinSet<()>,
    /// What only looks and beats, and can be dropped at any moment.
    watches: JoinSet<()>,
    components: Vec<ComponentReport>,
    rotation: Vec<RotationReport>,
    readers: Option<Readers>,
    /// Last of all: what mounts there ends before it.
    directory: KubeletDirectory,
}

impl KubernetesRoad {
    /// Starts the local Azure and the API server, or finds it. Nothing is made there yet: dropped,
    /// this leaves nothing.
    ///
    /// # Errors
    ///
    /// Where a part cannot start, or the server of others is none for trials: on another machine,
    /// or looked after by somebody else.
    pub async fn open(
        options: Options,
        kubernetes: KubernetesOptions,
        clock: SharedClock,
    ) -> Result<Self, RoadError> {
        let cluster = &options.cluster;
        let place = ApiServer::check(&kubernetes.server, || Site::wanted(cluster)).await?;
        let chosen = options.directory.as_deref();
        directory::clear_abandoned(&std::env::temp_dir(), chosen, &clock).await;
        let directory = KubeletDirectory::make(chosen)?;
        let (azure, emulator) = AzureEnd::start(options, Arc::clone(&clock)).await?;
        let server = ApiServer::open(place, &clock).await?;
        let api = server.connect(UP, &clock).await?;
        if !server.is_own()
            && let Some(by) = find_operator(&api).await.map_err(KubernetesRoadError::from)?
        {
            let server = server.url().to_owned();
            return Err(KubernetesRoadError::Operated { server, by }.into());
        }
        let site = Site::new(api, &azure.cluster, &kubernetes.hosted_cluster)?;
        let settings = Settings { node_name: site.node(), ..Settings::default() };
        let tokens = Arc::new(OpaqueTokens);
        let kubelet = Kubelet::with(directory.path(), Arc::clone(&clock), settings, tokens);
        kubelet.apply(DriverObject::new(DRIVER));
        Ok(Self {
            azure,
            emulator,
            server,
            site,
            options: kubernetes,
            directory,
            kubelet,
            board: None,
            end: watch::Sender::new(false),
            end_of_node: watch::Sender::new(false),
            parts: JoinSet::new(),
            node_parts: JoinSet::new(),
            watches: JoinSet::new(),
            components: Vec::new(),
            rotation: Vec::new(),
            readers: None,
        })
    }

    /// Makes the HostedCluster and follows what becomes of it, until every component has settled.
    ///
    /// # Errors
    ///
    /// Where the server does not take what is made there, or a part cannot be built. What is
    /// wrong with a component is in the report.
    pub async fn walk(&mut self) -> Result<(), RoadError> {
        self.site.make_ground().await?;
        // First of all: nobody may look after one of this name that is somebody else's.
        self.site.make_cluster(self.server.url()).await?;
        let mut sightings = Sightings::begin(self.azure.clock.monotonic());
        let board = self.begin().await?;
        let components: Vec<_> = self.components().collect();
        self.watch(&board, &components, &mut sightings).await;
        let mut reports = Vec::new();
        for component in components {
            reports.push(self.conclude(&board, component, &sightings).await);
        }
        self.components = reports;
        Ok(())
    }

    /// Issues a new certificate for every component, while reader threads watch the mounted files
    /// for torn and missing ones.
    pub async fn rotate(&mut self) {
        let Some(board) = self.board.clone() else { return };
        let components: Vec<_> = self.components().collect();
        let watched = self.watched(&board);
        // What never arrived has no file that could be torn.
        let proven = components.iter().copied();
        let proven: Vec<_> = proven.filter(|it| watched.thumbprint(*it).is_some()).collect();
        let readers = ReaderLoop::start(&watched.files(&proven));
        let rotation = match Control::new(self.emulator.address()) {
            Ok(control) => rotation::rotate_all(&watched, &control, &components).await,
            Err(error) => RotationReport::without_control(components, &error),
        };
        self.rotation = rotation;
        self.readers = Some(readers.finish());
    }

    /// What happened so far.
    pub fn report(&self) -> Report {
        let mut report = Report::new(self.components.clone(), self.rotation.clone());
        report.ok &= self.readers.is_none_or(Readers::saw_whole_files_only);
        report.road = RoadName::Kubernetes;
        report.server = Some(ServerFacts {
            url: self.server.url().to_owned(),
            version: self.server.version().to_owned(),
            own: self.server.is_own(),
            node: self.site.node(),
            hosted_cluster: format!("{}/{}", self.azure.cluster.namespace, self.azure.cluster.name),
        });
        report
    }

    /// What the reader threads saw, if there was a rotation.
    pub const fn readers(&self) -> Option<Readers> {
        self.readers
    }

    /// Where the volumes are mounted: the directory of the stand-in kubelet.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file with which people reach the API server.
    pub fn kubeconfig(&self) -> &Path {
        self.server.kubeconfig()
    }

    /// Where the local Azure listens.
    pub const fn address(&self) -> SocketAddr {
        self.emulator.address()
    }

    /// The certificate that clients of the local Azure have to trust, in PEM.
    pub fn ca_pem(&self) -> &str {
        self.emulator.ca_pem()
    }

    /// What was made so far on a server of others, and is taken away at the end: the server, and a
    /// name of each thing.
    pub fn made_there(&self) -> Option<(&str, Vec<String>)> {
        let made = self.site.made();
        (!self.server.is_own() && !made.is_empty()).then(|| (self.server.url(), made))
    }

    /// Takes everything away: on a server of others what was made there, the volumes, the servers.
    /// Once `hurry` says so the server of others is not waited for any more: what has not gone stays
    /// there, and is told.
    pub async fn close(mut self, hurry: watch::Receiver<bool>) -> Closed {
        let clock = Arc::clone(&self.azure.clock);
        let mut closed = Closed::default();
        if !self.server.is_own() {
            let over = within(&clock, SERVER_END, ended(hurry.clone()));
            let leaving = self.site.leave(over).await;
            closed.stays = self.site.staying(&leaving);
            let left = self.site.left_behind(&leaving, self.server.url());
            closed.left.extend(left.map(RoadError::from));
        }
        let wait = Wait { clock: &clock, hurry };
        self.end.send_replace(true);
        wait.until(PARTS_END, join(&mut self.parts)).await;
        self.parts.shutdown().await;
        wait.until(VOLUMES_END, self.unmounted()).await;
        self.end_of_node.send_replace(true);
        wait.until(PARTS_END, join(&mut self.node_parts)).await;
        self.node_parts.shutdown().await;
        self.watches.shutdown().await;
        self.emulator.shutdown().await;
        if let Err(error) = self.directory.close() {
            closed.left.push(error.into());
        }
        closed
    }

    fn components(&self) -> impl Iterator<Item = Component> + use<> {
        let components: Vec<_> =
            self.azure.cluster.components().map(|(component, _)| component).collect();
        components.into_iter()
    }

    /// Makes our node and starts every part.
    async fn begin(&mut self) -> Result<Board, RoadError> {
        self.site.make_node().await?;
        let clock = Arc::clone(&self.azure.clock);
        let api = self.server.connect(UP, &clock).await?;
        let namespace = self.azure.cluster.control_plane_namespace();
        let rooms = Rooms { cluster: &self.azure.cluster.namespace, control_plane: &namespace };
        let board = Board::watch(&api, rooms, &mut self.watches);
        self.begin_node(&clock).await?;
        let transport = self.azure.transport_with(CanaryParts::RETRY)?;
        let mut options = self.azure.token_options(Some(transport.unpaced()));
        options.retry = Some(CanaryParts::token_retry());
        let cluster = cluster_label(&self.azure.cluster.name);
        let marks = Marks { cluster, run: self.site.run().to_owned(), node: self.site.node() };
        let pods = PodsParts {
            api,
            canary_api: self.server.connect(CANARY, &clock).await?,
            board: board.clone(),
            kubelet: self.kubelet.clone(),
            directory: self.directory.path().to_owned(),
            namespace,
            marks,
            transport,
            token_transport: TokenTransport::new(options),
            read_canary: self.options.read_canary,
        };
        self.parts.spawn(pods.run(self.end.subscribe()));
        let api = self.server.connect(OPERATOR, &clock).await?;
        self.begin_operator(api);
        self.board = Some(board.clone());
        Ok(board)
    }

    async fn begin_node(&mut self, clock: &SharedClock) -> Result<(), RoadError> {
        let node = self.site.node();
        let site = NodeSite {
            kubelet: self.directory.path(),
            node: &node,
            imds: self.emulator.proxy_url(),
        };
        let api = self.server.connect(NODE, clock).await?;
        let end = self.end_of_node.subscribe();
        node_plugin::start(&site, &self.azure, api, &end, &mut self.node_parts)?;
        let (kubelet, end) = (self.kubelet.clone(), self.end_of_node.subscribe());
        self.node_parts.spawn(async move { kubelet.run(ended(end)).await });
        let (site, clock) = (self.site.clone(), Arc::clone(clock));
        self.watches.spawn(async move {
            loop {
                if let Err(error) = site.beat().await {
                    tracing::debug!(%error, "the node could not say that it lives");
                }
                clock.sleep(BEAT_EVERY).await;
            }
        });
        Ok(())
    }

    fn begin_operator(&mut self, api: KubernetesApi) {
        let mut templates = WorkloadTemplates::default();
        CANARY_INTERVAL.clone_into(&mut templates.canary.interval);
        // No other controller is to make pods of them, and ours go wherever they are sent.
        templates.canary.paused = true;
        let tolerations = json!([{"operator": "Exists"}]);
        templates.canary.placement.insert("tolerations".to_owned(), tolerations);
        let settings = OperatorSettings {
            workers: WORKERS,
            vault_reader: Some(self.azure.reader_client_id),
            templates: Arc::new(templates),
            instance: self.site.node(),
            ..OperatorSettings::default()
        };
        let cluster = &self.azure.cluster;
        let key = ClusterKey::of(&cluster.namespace, &cluster.name);
        let operator = Operator::new(api, settings, &Readiness::default()).only_for(key);
        self.parts.spawn(operator.run(ended(self.end.subscribe())));
    }

    fn watched<'a>(&'a self, board: &'a Board) -> Watched<'a> {
        let (azure, kubelet) = (&self.azure, &self.kubelet);
        Watched { azure, kubelet, board, server: self.server.url() }
    }

    /// Looks at the board until every component has settled, or for as long as anybody waits.
    async fn watch(&self, board: &Board, components: &[Component], sightings: &mut Sightings) {
        let clock = &self.azure.clock;
        let began = clock.monotonic();
        let mut changes = board.changes();
        loop {
            let told = self.watched(board);
            for component in components {
                sightings.see(*component, told.account(*component), clock.monotonic());
            }
            if components.iter().all(|component| sightings.is_settled(*component)) {
                return;
            }
            let spent = clock.monotonic().saturating_sub(began);
            let Some(rest) = PATIENCE.checked_sub(spent).filter(|rest| !rest.is_zero()) else {
                return;
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = clock.sleep(rest) => {}
            }
        }
    }

    /// The report of one component, with the one call that nobody else makes.
    async fn conclude(
        &self,
        board: &Board,
        component: Component,
        sightings: &Sightings,
    ) -> ComponentReport {
        let account = sightings.account(component);
        if let Some(failure) = account.failure {
            return sightings.report(component, Some(failure), None);
        }
        let watched = self.watched(board);
        if !account.is_settled {
            let failure = watched.overdue(component, &account, PATIENCE);
            return sightings.report(component, Some(failure), None);
        }
        let clock = &self.azure.clock;
        let began = clock.monotonic();
        let refused = self.refused(&watched, component).await;
        let took = clock.monotonic().saturating_sub(began);
        let refused = match refused {
            Ok(detail) => HopReport::good(Hop::Refused, took, detail),
            Err(failure) => HopReport::failed(Hop::Refused, took, failure),
        };
        sightings.report(component, None, Some(refused))
    }

    /// The call that must be refused, with the mounted file of the component.
    async fn refused(
        &self,
        watched: &Watched<'_>,
        component: Component,
    ) -> Result<String, Failure> {
        let Some(file) = watched.files(&[component]).pop() else {
            return Err(Failure::new("there is no mounted file", "see the hop `file`"));
        };
        let mut options = ReloadingCertificateOptions::default();
        options.transport = self.azure.token_transport.clone();
        let credential = ReloadingCertificateCredential::open(&file, options)
            .await
            .map_err(|error| Failure::of(&error, error.hint()))?;
        let proofs = self.azure.proofs(component);
        let refused = proofs.map(|proofs| &proofs.refused);
        Ok(hops::prove(&self.azure, &credential, refused).await?.detail)
    }

    async fn unmounted(&self) {
        while self.kubelet.volumes() > 0 {
            self.azure.clock.sleep(LOOK_EVERY).await;
        }
    }
}

/// How local work is waited for at the end.
struct Wait<'a> {
    clock: &'a SharedClock,
    hurry: watch::Receiver<bool>,
}

impl Wait<'_> {
    /// Waits for work, but not for ever. Even in a hurry what is under way gets a moment: a mount that
    /// is half made or half taken away is nobody's.
    async fn until(&self, patience: Duration, work: impl Future<Output = ()>) {
        let hurried = async {
            ended(self.hurry.clone()).await;
            self.clock.sleep(HURRIED_END).await;
        };
        tokio::select! {
            () = within(self.clock, patience, work) => {}
            () = hurried => {}
        }
    }
}

/// Waits for work, but not for ever.
async fn within(clock: &SharedClock, patience: Duration, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = clock.sleep(patience) => {}
    }
}

async fn join(parts: &mut JoinSet<()>) {
    while parts.join_next().await.is_some() {}
}

const OPERATOR: UserAgent =
    UserAgent::from_static(concat!("lanyard-operator/", env!("CARGO_PKG_VERSION")));
const NODE: UserAgent = UserAgent::from_static(concat!("lanyard-node/", env!("CARGO_PKG_VERSION")));
const CANARY: UserAgent =
    UserAgent::from_static(concat!("lanyard-canary/", env!("CARGO_PKG_VERSION")));

/// How long the components may take to settle.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a server of others may take to let go of what was made there.
const SERVER_END: Duration = Duration::from_secs(90);
/// How long anything here may take once somebody is in a hurry.
const HURRIED_END: Duration = Duration::from_secs(3);
/// How long volumes may take to be unmounted.
const VOLUMES_END: Duration = Duration::from_secs(20);
/// How long parts may take to end.
const PARTS_END: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// As the kubelet does; controllers give a node 40 s and more.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// How often a canary makes its call.
const CANARY_INTERVAL: &str = "5s";
const WORKERS: usize = 4;
