//! Assembles and runs the node plugin.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{ErrorHint as _, SharedClock, SystemClock};
use lanyard_node::audit::{AuditSink, AuditTrail};
use lanyard_node::policy::ReloadablePolicy;
use lanyard_node::rotation::Rotator;
use lanyard_node::{
    MemoryAccount, MeteredProvider, MeteredReporter, NodeKubernetesApi, NodeMetrics,
    NodePluginServer, NodePluginServerParts, NodePluginServerSettings, PodOverrides,
    ProviderRegistry, ProviderServer, Publisher, PublisherParts, PublisherSettings, SecretSync,
    SecretSyncHealth, SocketProviderSettings, SocketProviders,
};
use lanyard_provider::Provider;
use lanyard_telemetry::{
    BoundListener, BuildInfo, ListenAddress, LivenessProbe, MetricsPage, ProcessMetrics, Readiness,
    ReadinessGate, ReadinessWarnings, health_routes, metrics_routes,
};
use lanyard_vocabulary::format_error_chain;

use super::azure_provider::{self, ProviderControls};
use super::flags::{AzureProviderKind, NodeArgs, PolicyArgs, ProviderArgs};
use super::kubernetes::{self, KubernetesOpenContext, NodeKubernetes};
use super::settings::NodeSettings;
use super::supervised_tasks::{SupervisedTaskError, SupervisedTasks};
use super::volume_writer_lock::VolumeWriterLock;
#[cfg(feature = "crash-points")]
use crate::exit::ExternalResult as _;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Serves until a termination signal.
pub(super) async fn run(args: NodeArgs, environment: ProcessEnvironment) -> CommandResult {
    let settings = NodeSettings::resolve(&args)?;
    let mut signals = TerminationSignals::listen()?;
    warn_about_flags(&args, &settings);
    let clock = build_clock(&environment)?;
    let readiness = Readiness::default();
    let metrics = NodeMetrics::new(SharedClock::clone(&clock));
    let mut tasks = SupervisedTasks::default();
    let http_endpoints = tokio::select! {
        http_endpoints = NodeHttpEndpoints::bind(&args, &settings, &clock) => http_endpoints?,
        _ = signals.wait() => return Ok(CommandExit::Success),
    };

    let open_context = KubernetesOpenContext {
        environment: &environment,
        readiness: &readiness,
        metrics: &metrics,
    };
    let (policy, audit) = open_policy_and_audit(&args.policy, &metrics, &clock)?;
    let cluster = NodeKubernetes::open(&args, &settings, &open_context, &clock).await?;
    let controls = ProviderControls { policy: &policy, audit: &audit, metrics: &metrics };
    let NodePublisher { publisher, azure, sockets, memory } =
        build_publisher(&args, (&settings, &environment), &controls, &cluster, &clock)?;
    let served = args.providers.provider_socket.clone().zip(azure);
    let provider =
        served.map(|(path, it)| (path, ProviderServer::new(it, memory, Arc::clone(&clock))));
    let (lock_file, drain) = (settings.volume_writer_lock_file(), settings.server.drain);
    let parts = NodePluginServerParts {
        publisher: publisher.clone(),
        provider,
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        clock: Arc::clone(&clock),
    };
    let server = build_server(settings.server, parts, &environment);
    let liveness = server.liveness(settings.health_timeout);
    let health = (liveness, settings.health_path.as_str());
    let warnings = health_warnings(&policy, settings.memory_warning, cluster.sync.as_ref());
    let readiness_page = (readiness.clone(), warnings);
    http_endpoints.spawn_servers(&mut tasks, health, readiness_page, &metrics, &clock);

    let gate = readiness.add_gate("volumes", "not recovered yet");
    tokio::select! {
        lock = VolumeWriterLock::acquire(&lock_file, &gate, &clock) => lock.hold_until_exit(),
        _ = signals.wait() => {
            tasks.shut_down(drain, &clock).await;
            audit.flush();
            return Ok(CommandExit::Success);
        }
        failure = tasks.next_failure() => return Err(failure.into_command_error()),
    }
    recover_volumes(&publisher).await?;
    let rotator = Rotator::new(
        Arc::new(publisher),
        cluster.classes,
        kubernetes::count_notices_only(&cluster.reporter, &metrics),
        Arc::clone(&clock),
        settings.rotator,
    );
    tasks.spawn("the rotation", rotator.run(tasks.shutdown_signal()));
    spawn_kubernetes_tasks(&mut tasks, cluster.api, cluster.sync, &clock);
    spawn_provider_health_checks(&mut tasks, &args.providers, sockets);
    if args.policy.policy_file.is_some() {
        spawn_policy_watch(&mut tasks, policy, &audit, &clock);
    }
    let ended = serve_until_stopped(server, signals, tasks, (drain, &clock)).await;
    // Blocks until the last records are written; no other work is left at this point.
    audit.flush();
    ended
}

/// The publisher with its providers.
struct NodePublisher {
    publisher: Publisher,
    /// The built-in provider; `None` if the flags select a provider `azure` in another process.
    azure: Option<Arc<dyn Provider>>,
    /// The providers in other processes.
    sockets: Arc<SocketProviders>,
    /// The memory account that the volumes and the built-in provider share.
    memory: MemoryAccount,
}

fn build_publisher(
    args: &NodeArgs,
    (settings, environment): (&NodeSettings, &ProcessEnvironment),
    controls: &ProviderControls<'_>,
    cluster: &NodeKubernetes,
    clock: &SharedClock,
) -> Result<NodePublisher, CommandError> {
    let ProviderControls { audit, metrics, .. } = *controls;
    let publisher_settings =
        PublisherSettings { audit: audit.clone(), ..publisher_settings(settings, environment)? };
    let memory = publisher_settings.memory.clone();
    let azure = built_in_provider(args, environment, controls, (&memory, clock))?;
    let sockets =
        Arc::new(SocketProviders::new(socket_settings(&args.providers), Arc::clone(clock)));
    let registry =
        ProviderRegistry::new(azure.clone(), Arc::clone(&sockets), pod_overrides(&args.providers));
    let parts = PublisherParts {
        classes: Arc::clone(&cluster.classes),
        provider: Arc::new(MeteredProvider::new(Arc::new(registry), metrics.clone())),
        reporter: Arc::new(MeteredReporter::new(Arc::clone(&cluster.reporter), metrics.clone())),
        clock: Arc::clone(clock),
    };
    let publisher = Publisher::new(publisher_settings, parts);
    Ok(NodePublisher { publisher, azure, sockets, memory })
}

/// Builds the server of the CSI socket. Builds with the feature `sanity` can add the controller service for
/// csi-sanity.
#[cfg_attr(
    not(feature = "sanity"),
    expect(
        unused_variables,
        reason = "only the controller service for csi-sanity reads the environment"
    )
)]
fn build_server(
    settings: NodePluginServerSettings,
    parts: NodePluginServerParts,
    environment: &ProcessEnvironment,
) -> NodePluginServer {
    let server = NodePluginServer::new(settings, parts);
    #[cfg(feature = "sanity")]
    let server = server.with_test_controller(environment.test_controller);
    server
}

/// Builds the built-in provider with its policy, audit trail and metrics. Returns `None` if the flags select a
/// provider `azure` in another process.
fn built_in_provider(
    args: &NodeArgs,
    environment: &ProcessEnvironment,
    controls: &ProviderControls<'_>,
    (memory, clock): (&MemoryAccount, &SharedClock),
) -> Result<Option<Arc<dyn Provider>>, CommandError> {
    match args.providers.azure_provider {
        AzureProviderKind::Socket => Ok(None),
        AzureProviderKind::BuiltIn => {
            azure_provider::build_provider(args, environment, controls, (memory, clock)).map(Some)
        }
    }
}

/// Logs warnings about flags that are valid but have no effect or an unexpected one.
fn warn_about_flags(args: &NodeArgs, settings: &NodeSettings) {
    for flag in args.ignored.given_flags() {
        tracing::warn!(flag, "this flag has no effect here");
    }
    if let Some(warning) = &settings.memory_warning {
        tracing::warn!("{warning}");
    }
}

/// Serves until a termination signal or the failure of a task. The shutdown may take `drain` in total; the
/// next process recovers volumes whose operations did not complete.
async fn serve_until_stopped(
    server: NodePluginServer,
    mut signals: TerminationSignals,
    mut tasks: SupervisedTasks,
    (drain, clock): (Duration, &SharedClock),
) -> CommandResult {
    let (mut failed_task, mut began) = (None, None);
    let end = async {
        tokio::select! {
            end = signals.wait() => tracing::info!(?end, "ending; mounted volumes stay"),
            failure = tasks.next_failure() => {
                let error: &dyn std::error::Error = &failure;
                tracing::error!(error, "ending, so that the kubelet restarts the process");
                failed_task = Some(failure);
            }
        }
        began = Some(clock.monotonic());
    };
    let outcome = server.run(end).await;
    let spent = began.map(|began| clock.monotonic().saturating_sub(began)).unwrap_or_default();
    tasks.shut_down(drain.saturating_sub(spent).max(MINIMUM_SHUTDOWN_TIME), clock).await;
    outcome?;
    if began.is_none() {
        failed_task = Some(SupervisedTaskError::Stopped { task: "the socket server" });
    }
    failed_task.map_or(Ok(CommandExit::Success), |failure| Err(failure.into_command_error()))
}

/// The minimum time for the tasks to shut down if the running calls used up the drain time.
const MINIMUM_SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Starts the tasks that open the API's readiness gate and synchronize Secrets.
fn spawn_kubernetes_tasks(
    tasks: &mut SupervisedTasks,
    api: Option<(NodeKubernetesApi, ReadinessGate)>,
    sync: Option<SecretSync>,
    clock: &SharedClock,
) {
    if let Some((api, gate)) = api {
        let reached = kubernetes::wait_for_api(api, gate, Arc::clone(clock));
        tasks.spawn_once("the first request to the Kubernetes API", reached);
    }
    if let Some(sync) = sync {
        tasks.spawn_cancellable("the synchronization of Secrets", sync.run());
    }
}

fn spawn_policy_watch(
    tasks: &mut SupervisedTasks,
    policy: Arc<ReloadablePolicy>,
    audit: &AuditTrail,
    clock: &SharedClock,
) {
    let following = policy.watch_file(Arc::clone(clock), audit.clone());
    tasks.spawn_cancellable("the watch of the policy file", following);
}

fn spawn_provider_health_checks(
    tasks: &mut SupervisedTasks,
    args: &ProviderArgs,
    sockets: Arc<SocketProviders>,
) {
    if args.provider_health_check.0 {
        let interval = args.provider_health_check_interval.0;
        let watching = async move { sockets.watch_health(interval).await };
        tasks.spawn_cancellable("the health check of the providers", watching);
    }
}

/// The HTTP endpoints for monitoring systems and for the kubelet's probes.
struct NodeHttpEndpoints {
    metrics: Option<BoundListener>,
    health: Option<BoundListener>,
}

impl NodeHttpEndpoints {
    /// Binds the ports, and waits while they are in use: in the host network, the previous process uses them
    /// until it has completed its last call.
    async fn bind(
        args: &NodeArgs,
        settings: &NodeSettings,
        clock: &SharedClock,
    ) -> Result<Self, CommandError> {
        let metrics = Self::bind_with_retry(args.http.metrics_addr, clock).await?;
        Ok(Self { metrics, health: Self::bind_with_retry(settings.health_address, clock).await? })
    }

    async fn bind_with_retry(
        address: ListenAddress,
        clock: &SharedClock,
    ) -> Result<Option<BoundListener>, CommandError> {
        let mut is_logged = false;
        loop {
            match BoundListener::bind(address).await {
                Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(
                            hint = error.hint().as_deref(),
                            "{}; trying again",
                            format_error_chain(&error)
                        );
                    }
                    clock.sleep(BIND_RETRY_INTERVAL).await;
                }
                bound => {
                    return bound.map_err(CommandError::from);
                }
            }
        }
    }

    fn spawn_servers(
        self,
        tasks: &mut SupervisedTasks,
        (liveness, path): (LivenessProbe, &str),
        (readiness, warnings): (Readiness, ReadinessWarnings),
        metrics: &NodeMetrics,
        clock: &SharedClock,
    ) {
        let page = MetricsPage::build(|registry| {
            metrics.register(registry);
            ProcessMetrics.register(registry);
            BuildInfo { version: env!("CARGO_PKG_VERSION") }.register(registry);
        });
        let health = health_routes(path, liveness, readiness, warnings);
        let endpoints = [
            ("the metrics endpoint", self.metrics, metrics_routes(page)),
            ("the health endpoint", self.health, health),
        ];
        for (name, listening, routes) in endpoints {
            let Some(listening) = listening else { continue };
            tracing::info!(address = %listening.address(), "serving {name}");
            tasks.spawn_fallible(
                name,
                listening.serve(routes, Arc::clone(clock), tasks.shutdown_signal()),
            );
        }
    }
}

/// How often binding a port in use is retried.
const BIND_RETRY_INTERVAL: Duration = Duration::from_secs(1);

fn open_policy_and_audit(
    args: &PolicyArgs,
    metrics: &NodeMetrics,
    clock: &SharedClock,
) -> Result<(Arc<ReloadablePolicy>, AuditTrail), CommandError> {
    let keeper = match &args.policy_file {
        None => ReloadablePolicy::without_file(),
        Some(path) => ReloadablePolicy::load(path).map_err(|error| {
            CommandError::invalid_input(format_error_chain(&error))
                .with_hint("`lanyard node policy suggest` writes one")
        })?,
    };
    let audit = match &args.audit_file {
        None => AuditTrail::without_output(Arc::clone(clock)),
        Some(path) => {
            let is_stdout = path == Path::new("-");
            let sink = if is_stdout { AuditSink::Stdout } else { AuditSink::File(path.clone()) };
            AuditTrail::open(&sink, Arc::clone(clock))?
        }
    };
    let keeper = Arc::new(keeper);
    metrics.watch_policy(Arc::clone(&keeper));
    Ok((keeper, audit))
}

/// The sources of warnings that do not affect readiness.
fn health_warnings(
    policy: &Arc<ReloadablePolicy>,
    memory: Option<String>,
    sync: Option<&SecretSync>,
) -> ReadinessWarnings {
    let (policy, sync) = (Arc::clone(policy), sync.map(SecretSync::health));
    ReadinessWarnings::default()
        .with_source("policy", move || policy.warning())
        .with_source("memory of volumes", move || memory.clone())
        .with_source("synchronized Secrets", move || {
            sync.as_ref().and_then(SecretSyncHealth::warning)
        })
}

/// Sets the socket directories. Additional directories are searched first, as upstream does.
fn socket_settings(args: &ProviderArgs) -> SocketProviderSettings {
    let mut directories = args.additional_provider_volume_paths.clone();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.push(args.provider_volume.clone());
    SocketProviderSettings { directories, max_response_bytes: args.max_call_recv_msg_size }
}

const fn pod_overrides(args: &ProviderArgs) -> PodOverrides {
    if args.pod_overrides_parameters.0 { PodOverrides::Allowed } else { PodOverrides::Refused }
}

/// The system clock. The variant with the feature `crash-points` adds the offset `LANYARD_CLOCK_AHEAD` from the
/// environment and fails if it is not a number.
#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unnecessary_wraps, reason = "the variant for crash tests can fail")]
fn build_clock(_environment: &ProcessEnvironment) -> Result<SharedClock, CommandError> {
    Ok(SystemClock::shared())
}

/// The system clock, ahead by `LANYARD_CLOCK_AHEAD` seconds.
#[cfg(feature = "crash-points")]
fn build_clock(environment: &ProcessEnvironment) -> Result<SharedClock, CommandError> {
    let Some(seconds) = &environment.clock_ahead else { return Ok(SystemClock::shared()) };
    let seconds = seconds.parse().or_invalid("LANYARD_CLOCK_AHEAD")?;
    let ahead = Duration::from_secs(seconds);
    Ok(Arc::new(super::offset_clock::OffsetClock { clock: SystemClock::shared(), offset: ahead }))
}

#[cfg_attr(
    not(feature = "crash-points"),
    expect(clippy::unnecessary_wraps, unused_variables, reason = "parsing a crash point can fail")
)]
fn publisher_settings(
    settings: &NodeSettings,
    environment: &ProcessEnvironment,
) -> Result<PublisherSettings, CommandError> {
    let NodeSettings { server, rotator, volume_content_limit, volumes_memory_limit, .. } = settings;
    let mut publisher = PublisherSettings::new(&server.kubelet_dir, server.driver.as_str());
    publisher.interval = rotator.interval;
    publisher.interval_bounds = rotator.interval_bounds;
    publisher.content_limit = *volume_content_limit;
    if let Some(limit) = volumes_memory_limit {
        publisher.memory = MemoryAccount::new(*limit);
    }
    #[cfg(feature = "crash-points")]
    if environment.mount_in_place {
        publisher.staged_mounts = false;
    }
    #[cfg(feature = "crash-points")]
    if let Some(point) = &environment.crash_at {
        publisher.crash_at = Some(point.parse().or_invalid("LANYARD_CRASH_AT")?);
    }
    Ok(publisher)
}

/// Recovers the volumes that an earlier process mounted.
async fn recover_volumes(publisher: &Publisher) -> Result<(), CommandError> {
    let recovered = publisher
        .recover()
        .await
        .map_err(|failure| CommandError::unavailable(failure.message).with_hint(failure.hint))?;
    for (target, failure) in &recovered.problems {
        tracing::warn!(target_path = %target.display(), code = %failure.code, "{failure}");
    }
    tracing::info!(volumes = recovered.volumes, "recovered mounted volumes");
    Ok(())
}

#[cfg(test)]
mod tests;
