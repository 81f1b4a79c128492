//! The process on a node: its sockets, in the order in which they may appear and have to go.
//!
//! The CSI socket and the provider's socket listen first. When they do and every other part is
//! ready, the registration socket appears and the kubelet comes. At the end the registration socket
//! goes first, calls in flight are answered, and mounts stay: they belong to the pods.

mod error;
mod health;
mod shutdown;
mod socket_server;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lanyard_clock::SharedClock;
use lanyard_grpc::csi::identity_server::IdentityServer;
use lanyard_grpc::csi::node_server::NodeServer as CsiNodeServer;
use lanyard_grpc::provider::csi_driver_provider_server::CsiDriverProviderServer;
use lanyard_grpc::registration::registration_server::RegistrationServer;
use lanyard_telemetry::{LivenessProbe, Readiness, ReadinessGate};
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic_health::server::health_reporter;

pub use self::error::NodeServeError;
use self::shutdown::{ShutdownSignal, ShutdownTrigger};
use self::socket_server::SocketServer;
use crate::csi::{CsiIdentityService, CsiNodeService, DriverName};
use crate::metrics::NodeMetrics;
use crate::provider::{ProviderServer, hold_memory_until_sent};
use crate::publish_request::VolumeRequestParser;
use crate::publisher::Publisher;
use crate::registration::{RegistrationService, RegistrationSettings};

/// What a node is told once.
#[derive(Debug, Clone)]
pub struct NodePluginServerSettings {
    /// The name of the CSI driver.
    pub driver: DriverName,
    /// The version that the driver says it has.
    pub version: String,
    /// The node's name.
    pub node_id: String,
    /// The kubelet's directory: targets lie below it.
    pub kubelet_dir: PathBuf,
    /// Where the kubelet's calls come in.
    pub csi_socket: PathBuf,
    /// How the kubelet finds the driver; nothing where somebody else registers it.
    pub registration: Option<RegistrationSettings>,
    /// How long calls in flight may take when the process ends, those of all sockets together.
    pub drain: Duration,
}

/// What a node works with.
#[derive(Debug)]
pub struct NodePluginServerParts {
    /// Makes volumes.
    pub publisher: Publisher,
    /// Our provider and where other people's drivers find it, if they shall.
    pub provider: Option<(PathBuf, ProviderServer)>,
    /// Counts.
    pub metrics: NodeMetrics,
    /// The gates of the other parts; the server adds those of its sockets and of its registration.
    pub readiness: Readiness,
    /// Time.
    pub clock: SharedClock,
}

/// The sockets of a node.
#[derive(Debug)]
pub struct NodePluginServer {
    settings: NodePluginServerSettings,
    parts: NodePluginServerParts,
    registration_gate: ReadinessGate,
    csi_gate: ReadinessGate,
    #[cfg(feature = "sanity")]
    test_controller: bool,
}

impl NodePluginServer {
    /// A node that does not serve yet, and is not ready for that reason.
    pub fn new(settings: NodePluginServerSettings, parts: NodePluginServerParts) -> Self {
        parts.metrics.watch_volumes(&parts.publisher);
        let registration_gate =
            parts.readiness.add_gate("registration", "the kubelet did not come yet");
        if settings.registration.is_none() {
            registration_gate.open();
        }
        let csi_gate = parts.readiness.add_gate("csi socket", "does not listen yet");
        Self {
            settings,
            parts,
            registration_gate,
            csi_gate,
            #[cfg(feature = "sanity")]
            test_controller: false,
        }
    }

    /// Adds what csi-sanity needs for its specs of whole lives of volumes, where `wanted`: a
    /// controller that makes nothing, and volumes that may be writable.
    #[cfg(feature = "sanity")]
    #[must_use]
    pub fn with_test_controller(self, wanted: bool) -> Self {
        Self { test_controller: wanted, ..self }
    }

    /// Whether the process works at all: it answers a call on its CSI socket within `limit`, or
    /// knows why nobody can call it there. Needs a tokio runtime.
    pub fn liveness(&self, limit: Duration) -> LivenessProbe {
        let clock = SharedClock::clone(&self.parts.clock);
        health::liveness(&self.settings.csi_socket, self.csi_gate.clone(), limit, clock)
    }

    /// Serves until `end`, and then until the calls in flight are answered.
    ///
    /// # Errors
    ///
    /// Where a socket can never be bound, where a server fails, and where the kubelet refuses the
    /// driver. Everything is ended in order in those cases too.
    pub async fn run(self, end: impl Future<Output = ()> + Send) -> Result<(), NodeServeError> {
        let (serving, registering) = (ShutdownTrigger::default(), ShutdownTrigger::default());
        let (clock, drain) = (SharedClock::clone(&self.parts.clock), self.settings.drain);
        let (reporter, health) = health_reporter();
        let mut registrar = JoinSet::new();
        if let Some(settings) = &self.settings.registration {
            registrar.spawn(self.serve_registration(settings, registering.subscribe()));
        }
        let csi = self.csi_routes().add_service(health.clone());
        let csi_door = self.socket_server_with_gate(
            &self.settings.csi_socket,
            self.csi_gate.clone(),
            serving.subscribe(),
        );
        let provider_door = self
            .parts
            .provider
            .as_ref()
            .map(|(path, _)| self.socket_server("provider socket", path, serving.subscribe()));
        let mut doors = JoinSet::new();
        doors.spawn(csi_door.serve_until_shutdown(csi));
        if let Some((door, (_, provider))) = provider_door.zip(self.parts.provider) {
            let provider =
                CsiDriverProviderServer::new(provider).max_decoding_message_size(MAX_REQUEST_BYTES);
            let routes = Routes::new(provider).add_service(health).into_axum_router();
            let routes = routes.layer(axum::middleware::map_response(hold_memory_until_sent));
            doors.spawn(door.serve_until_shutdown(Routes::from(routes)));
        }
        let outcome = tokio::select! {
            () = end => Ok(()),
            Some(ended) = registrar.join_next() => ended.map_err(NodeServeError::from).flatten(),
            Some(ended) = doors.join_next() => ended.map_err(NodeServeError::from).flatten(),
            () = health::report_health(reporter, &self.registration_gate) => Ok(()),
        };
        // One for all: what the kubelet still asks of the registration is taken from the rest.
        let deadline = clock.monotonic().saturating_add(drain);
        registering.trigger(deadline);
        let unregistered = join_all_tasks(registrar).await;
        serving.trigger(deadline);
        let drained = join_all_tasks(doors).await;
        outcome.and(unregistered).and(drained)
    }

    fn csi_routes(&self) -> Routes {
        let Self { settings, parts, registration_gate: registration, .. } = self;
        let identity = CsiIdentityService::new(
            settings.driver.clone(),
            settings.version.clone(),
            registration.clone(),
        );
        #[cfg(feature = "sanity")]
        let identity = if self.test_controller { identity.with_controller() } else { identity };
        let rules = VolumeRequestParser::new(&settings.kubelet_dir);
        #[cfg(feature = "sanity")]
        let rules = rules.with_writable(self.test_controller);
        let node = CsiNodeService::new(
            parts.publisher.clone(),
            rules,
            settings.node_id.clone(),
            parts.metrics.clone(),
        );
        let node = CsiNodeServer::new(node).max_decoding_message_size(MAX_REQUEST_BYTES);
        let routes = Routes::new(IdentityServer::new(identity)).add_service(node);
        #[cfg(feature = "sanity")]
        let routes = if self.test_controller {
            use lanyard_grpc::csi::controller_server::ControllerServer;
            routes.add_service(ControllerServer::new(crate::csi::EchoController::default()))
        } else {
            routes
        };
        routes
    }

    fn socket_server(
        &self,
        name: &'static str,
        path: &Path,
        ending: ShutdownSignal,
    ) -> SocketServer {
        let gate = self.parts.readiness.add_gate(name, "does not listen yet");
        self.socket_server_with_gate(path, gate, ending)
    }

    fn socket_server_with_gate(
        &self,
        path: &Path,
        gate: ReadinessGate,
        ending: ShutdownSignal,
    ) -> SocketServer {
        SocketServer {
            path: path.to_owned(),
            gate,
            opens_gate: true,
            shutdown: ending,
            metrics: self.parts.metrics.clone(),
            clock: SharedClock::clone(&self.parts.clock),
        }
    }

    /// Shows the driver to the kubelet once everything else is ready, and as long as the kubelet
    /// wants it. Whatever is amiss later, the driver stays registered: it says so itself to those
    /// who ask for volumes, and running pods have theirs.
    fn serve_registration(
        &self,
        settings: &RegistrationSettings,
        ending: ShutdownSignal,
    ) -> impl Future<Output = Result<(), NodeServeError>> + Send + use<> {
        let gate = self.registration_gate.clone();
        let driver = self.settings.driver.clone();
        let socket = settings.socket(&driver);
        let service = RegistrationService::new(driver, &settings.endpoint, gate.clone());
        let mut door = self.socket_server_with_gate(&socket, gate.clone(), ending.clone());
        // The kubelet opens the gate.
        door.opens_gate = false;
        async move {
            tokio::select! {
                _ = ending.wait() => return Ok(()),
                () = gate.wait_until_others_open() => {}
            }
            let routes = Routes::new(RegistrationServer::new(service.clone()));
            tokio::select! {
                ended = door.serve_until_shutdown(routes) => ended,
                refused = service.wait_for_rejection() => Err(NodeServeError::RegistrationRejected(refused)),
            }
        }
    }
}

/// The end of every task; the first failure counts.
async fn join_all_tasks(
    mut tasks: JoinSet<Result<(), NodeServeError>>,
) -> Result<(), NodeServeError> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        outcome = outcome.and(ended.map_err(NodeServeError::from).flatten());
    }
    outcome
}

/// The largest request: tokens of many audiences and all of a volume's attributes are far smaller.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
