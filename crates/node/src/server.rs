//! The node plugin's server: its sockets, and the order of their start and shutdown.
//!
//! The CSI socket and the provider socket listen first. Once they listen and every other component is ready,
//! the server creates the registration socket, and the kubelet registers the driver. At shutdown the server
//! removes the registration socket first and then drains the calls in flight. Mounts remain, because they
//! belong to the pods.

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

/// Settings of a [`NodePluginServer`], fixed for its lifetime.
#[derive(Debug, Clone)]
pub struct NodePluginServerSettings {
    /// The name of the CSI driver.
    pub driver: DriverName,
    /// The version that the driver reports.
    pub version: String,
    /// The node's name.
    pub node_id: String,
    /// The kubelet's root directory. Every target path is below it.
    pub kubelet_dir: PathBuf,
    /// The path of the CSI socket, on which the kubelet calls the driver.
    pub csi_socket: PathBuf,
    /// Where the kubelet finds the driver; `None` if another process registers it.
    pub registration: Option<RegistrationSettings>,
    /// The drain period at shutdown, shared by the calls in flight of all sockets.
    pub drain: Duration,
}

/// The components that a [`NodePluginServer`] serves.
#[derive(Debug)]
pub struct NodePluginServerParts {
    /// Publishes and unpublishes volumes.
    pub publisher: Publisher,
    /// The built-in provider and the socket on which it serves other drivers, if enabled.
    pub provider: Option<(PathBuf, ProviderServer)>,
    /// The metrics of the node plugin.
    pub metrics: NodeMetrics,
    /// The gates of the other components. The server adds gates for its sockets and its registration.
    pub readiness: Readiness,
    pub clock: SharedClock,
}

/// Serves the sockets of a node plugin.
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
    /// Creates a server that is not ready until it serves.
    pub fn new(settings: NodePluginServerSettings, parts: NodePluginServerParts) -> Self {
        parts.metrics.watch_volumes(&parts.publisher);
        let registration_gate = parts
            .readiness
            .add_gate("registration", "the kubelet has not registered the driver yet");
        if settings.registration.is_none() {
            registration_gate.open();
        }
        let csi_gate = parts.readiness.add_gate("csi socket", "not listening yet");
        Self {
            settings,
            parts,
            registration_gate,
            csi_gate,
            #[cfg(feature = "sanity")]
            test_controller: false,
        }
    }

    /// If `wanted`, adds the features that csi-sanity needs to test full volume life cycles: a controller
    /// that creates nothing, and writable volumes.
    #[cfg(feature = "sanity")]
    #[must_use]
    pub fn with_test_controller(self, wanted: bool) -> Self {
        Self { test_controller: wanted, ..self }
    }

    /// Returns a liveness probe: it succeeds if the process answers a call on its CSI socket within `limit`,
    /// or knows why the socket is closed. Needs a tokio runtime.
    pub fn liveness(&self, limit: Duration) -> LivenessProbe {
        let clock = SharedClock::clone(&self.parts.clock);
        health::liveness(&self.settings.csi_socket, self.csi_gate.clone(), limit, clock)
    }

    /// Serves until `end` completes, then drains the calls in flight.
    ///
    /// # Errors
    ///
    /// Returns an error if a socket can never be bound, a server fails, or the kubelet rejects the driver.
    /// The server shuts down in order in these cases too.
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
        if let Some((server, (_, provider))) = provider_door.zip(self.parts.provider) {
            let provider =
                CsiDriverProviderServer::new(provider).max_decoding_message_size(MAX_REQUEST_BYTES);
            let routes = Routes::new(provider).add_service(health).into_axum_router();
            let routes = routes.layer(axum::middleware::map_response(hold_memory_until_sent));
            doors.spawn(server.serve_until_shutdown(Routes::from(routes)));
        }
        let outcome = tokio::select! {
            () = end => Ok(()),
            Some(ended) = registrar.join_next() => ended.map_err(NodeServeError::from).flatten(),
            Some(ended) = doors.join_next() => ended.map_err(NodeServeError::from).flatten(),
            () = health::report_health(reporter, &self.registration_gate) => Ok(()),
        };
        // One deadline for all sockets: time spent on draining the registration socket is not available to
        // the others.
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
        let gate = self.parts.readiness.add_gate(name, "not listening yet");
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

    /// Serves the registration socket once everything else is ready, until the kubelet rejects the driver.
    /// The driver stays registered when another component fails later: it reports the failure in its answers,
    /// and running pods keep their volumes.
    fn serve_registration(
        &self,
        settings: &RegistrationSettings,
        ending: ShutdownSignal,
    ) -> impl Future<Output = Result<(), NodeServeError>> + Send + use<> {
        let gate = self.registration_gate.clone();
        let driver = self.settings.driver.clone();
        let socket = settings.socket(&driver);
        let service = RegistrationService::new(driver, &settings.endpoint, gate.clone());
        let mut server = self.socket_server_with_gate(&socket, gate.clone(), ending.clone());
        // The kubelet opens this gate by registering the driver.
        server.opens_gate = false;
        async move {
            tokio::select! {
                _ = ending.wait() => return Ok(()),
                () = gate.wait_until_others_open() => {}
            }
            let routes = Routes::new(RegistrationServer::new(service.clone()));
            tokio::select! {
                ended = server.serve_until_shutdown(routes) => ended,
                refused = service.wait_for_rejection() => Err(NodeServeError::RegistrationRejected(refused)),
            }
        }
    }
}

/// Waits for every task and returns the first failure.
async fn join_all_tasks(
    mut tasks: JoinSet<Result<(), NodeServeError>>,
) -> Result<(), NodeServeError> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        outcome = outcome.and(ended.map_err(NodeServeError::from).flatten());
    }
    outcome
}

/// The maximum size of a request. Tokens of many audiences and all attributes of a volume are far smaller.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
