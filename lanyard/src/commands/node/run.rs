//! The node plugin, put together.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{SharedClock, SystemClock};
use lanyard_node::audit::{AuditSink, AuditTrail};
use lanyard_node::policy::ReloadablePolicy;
use lanyard_node::rotation::Rotator;
use lanyard_node::{
    MemoryAccount, MeteredProvider, MeteredReporter, NodeKubernetesApi, NodeMetrics,
    NodePluginServer, NodePluginServerParts, NodePluginServerSettings, PodOverrides, Provider,
    ProviderRegistry, ProviderServer, Publisher, PublisherParts, PublisherSettings, SecretSync,
    SecretSyncHealth, SocketProviderSettings, SocketProviders,
};
use lanyard_telemetry::{
    BoundListener, BuildInfo, ListenAddress, LivenessProbe, MetricsPage, ProcessMetrics, Readiness,
    ReadinessGate, ReadinessWarnings, health_routes, metrics_routes,
};
use lanyard_vocabulary::format_error_chain;

use super::azure_provider;
use super::flags::{AzureProviderKind, NodeArgs, PolicyArgs, ProviderArgs};
use super::kubernetes::{self, KubernetesOpenContext, NodeKubernetes};
use super::settings::NodeSettings;
use super::supervised_tasks::{SupervisedTaskError, SupervisedTasks};
use super::volume_writer_lock::VolumeWriterLock;
use crate::exit::{CommandError, CommandExit, CommandResult};
use crate::settings::ProcessEnvironment;
use crate::signals::TerminationSignals;

/// Serves until a supervisor asks for the end.
pub(super) async fn run(args: NodeArgs, environment: ProcessEnvironment) -> CommandResult {
    let settings = NodeSettings::resolve(&args)?;
    let mut signals = TerminationSignals::listen()?;
    warn_about_flags(&args, &settings);
    let clock = clock(&environment)?;
    let readiness = Readiness::default();
    let metrics = NodeMetrics::new(SharedClock::clone(&clock));
    let mut beside = SupervisedTasks::default();
    let pages = tokio::select! {
        pages = NodeHttpEndpoints::bind(&args, &settings, &clock) => pages?,
        _ = signals.wait() => return Ok(CommandExit::Success),
    };

    let surroundings = KubernetesOpenContext {
        environment: &environment,
        readiness: &readiness,
        metrics: &metrics,
    };
    let cluster = NodeKubernetes::open(&args, &settings, &surroundings, &clock).await?;
    let (policy, audit) = open_policy_and_audit(&args.policy, &metrics, &clock)?;
    let before =
        azure_provider::ProviderHooks { policy: &policy, audit: &audit, metrics: &metrics };
    let publisher_settings =
        PublisherSettings { audit: audit.clone(), ..publisher_settings(&settings, &environment)? };
    let memory = publisher_settings.memory.clone();
    let azure = built_in_provider(&args, &environment, &before, (&memory, &clock))?;
    let sockets =
        Arc::new(SocketProviders::new(socket_settings(&args.providers), Arc::clone(&clock)));
    let registry =
        ProviderRegistry::new(azure.clone(), Arc::clone(&sockets), pod_overrides(&args.providers));
    let provider = Arc::new(MeteredProvider::new(Arc::new(registry), metrics.clone()));
    let parts = PublisherParts {
        classes: Arc::clone(&cluster.classes),
        provider,
        reporter: Arc::new(MeteredReporter::new(Arc::clone(&cluster.reporter), metrics.clone())),
        clock: Arc::clone(&clock),
    };
    let publisher = Publisher::new(publisher_settings, parts);
    let served = args.providers.provider_socket.clone().zip(azure);
    let provider =
        served.map(|(path, it)| (path, ProviderServer::new(it, memory, Arc::clone(&clock))));
    let claimed = settings.volume_writer_lock_file();
    let drain = settings.server.drain;
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
    let remarks = health_warnings(&policy, settings.memory_warning, cluster.sync.as_ref());
    let ready = (readiness.clone(), remarks);
    pages.spawn_servers(&mut beside, health, ready, &metrics, &clock);

    let gate = readiness.add_gate("volumes", "not looked at yet");
    tokio::select! {
        claim = VolumeWriterLock::acquire(&claimed, &gate, &clock) => claim.hold_until_exit(),
        _ = signals.wait() => {
            beside.shut_down(drain, &clock).await;
            audit.flush();
            return Ok(CommandExit::Success);
        }
        part = beside.next_failure() => return Err(part.into_command_error()),
    }
    recover_volumes(&publisher).await?;
    let rotator = Rotator::new(
        Arc::new(publisher),
        cluster.classes,
        kubernetes::count_notices_only(&cluster.reporter, &metrics),
        Arc::clone(&clock),
        settings.rotator,
    );
    beside.spawn("the rotation", rotator.run(beside.shutdown_signal()));
    spawn_kubernetes_tasks(&mut beside, cluster.api, cluster.sync, &clock);
    spawn_provider_health_checks(&mut beside, &args.providers, sockets);
    if args.policy.policy_file.is_some() {
        spawn_policy_watch(&mut beside, policy, &audit, &clock);
    }
    let ended = serve_until_stopped(server, signals, beside, (drain, &clock)).await;
    // It blocks until the last lines are written, and nothing else is to be done here.
    audit.flush();
    ended
}

/// The server of the CSI socket. Builds with the feature `sanity` can add the controller for csi-sanity.
#[cfg_attr(
    not(feature = "sanity"),
    expect(
        unused_variables,
        reason = "only the controller for csi-sanity is switched by a variable"
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

/// Our own provider, unless another one has its socket.
fn built_in_provider(
    args: &NodeArgs,
    environment: &ProcessEnvironment,
    before: &azure_provider::ProviderHooks<'_>,
    (memory, clock): (&MemoryAccount, &SharedClock),
) -> Result<Option<Arc<dyn Provider>>, CommandError> {
    match args.providers.azure_provider {
        AzureProviderKind::Socket => Ok(None),
        AzureProviderKind::BuiltIn => {
            azure_provider::build_provider(args, environment, before, (memory, clock)).map(Some)
        }
    }
}

/// Tells what is odd about the flags though they can be obeyed.
fn warn_about_flags(args: &NodeArgs, settings: &NodeSettings) {
    for flag in args.ignored.given_flags() {
        tracing::warn!(flag, "this flag has no effect here");
    }
    if let Some(remark) = &settings.memory_warning {
        tracing::warn!("{remark}");
    }
}

/// Serves until the end is asked for or a part broke. From then on everything together may take
/// `drain`: what is at work on a volume then is found by the next process.
async fn serve_until_stopped(
    server: NodePluginServer,
    mut signals: TerminationSignals,
    mut beside: SupervisedTasks,
    (drain, clock): (Duration, &SharedClock),
) -> CommandResult {
    let (mut broken, mut began) = (None, None);
    let end = async {
        tokio::select! {
            end = signals.wait() => tracing::info!(?end, "ending; mounted volumes stay"),
            part = beside.next_failure() => {
                let error: &dyn std::error::Error = &part;
                tracing::error!(error, "ending, so that the process is started anew");
                broken = Some(part);
            }
        }
        began = Some(clock.monotonic());
    };
    let outcome = server.run(end).await;
    let spent = began.map(|began| clock.monotonic().saturating_sub(began)).unwrap_or_default();
    beside.shut_down(drain.saturating_sub(spent).max(MINIMUM_SHUTDOWN_TIME), clock).await;
    outcome.map_err(|error| {
        CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
    })?;
    if began.is_none() {
        broken = Some(SupervisedTaskError::Stopped { part: "what serves the sockets" });
    }
    broken.map_or(Ok(CommandExit::Success), |part| Err(part.into_command_error()))
}

/// What the parts beside the sockets may take to end when the calls in flight took all the time.
const MINIMUM_SHUTDOWN_TIME: Duration = Duration::from_secs(2);

/// Opens the gate of the API as soon as it answers, and keeps Secrets in step.
fn spawn_kubernetes_tasks(
    beside: &mut SupervisedTasks,
    api: Option<(NodeKubernetesApi, ReadinessGate)>,
    sync: Option<SecretSync>,
    clock: &SharedClock,
) {
    if let Some((api, gate)) = api {
        let reached = kubernetes::wait_for_api(api, gate, Arc::clone(clock));
        beside.spawn_once("the first question to the Kubernetes API", reached);
    }
    if let Some(sync) = sync {
        beside.spawn_cancellable("the synchronization of Secrets", sync.run());
    }
}

fn spawn_policy_watch(
    beside: &mut SupervisedTasks,
    policy: Arc<ReloadablePolicy>,
    audit: &AuditTrail,
    clock: &SharedClock,
) {
    let following = policy.watch_file(Arc::clone(clock), audit.clone());
    beside.spawn_cancellable("the watch of the policy file", following);
}

fn spawn_provider_health_checks(
    beside: &mut SupervisedTasks,
    args: &ProviderArgs,
    sockets: Arc<SocketProviders>,
) {
    if args.provider_health_check.0 {
        let interval = args.provider_health_check_interval.0;
        let watching = async move { sockets.watch_health(interval).await };
        beside.spawn_cancellable("the health check of the providers", watching);
    }
}

/// The pages for monitoring systems and for the kubelet's probes.
struct NodeHttpEndpoints {
    metrics: Option<BoundListener>,
    health: Option<BoundListener>,
}

impl NodeHttpEndpoints {
    /// Binds the pages, as soon as nobody else has their ports: on the network of the host the
    /// process before this one has them until it has answered its last call.
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
        let mut is_told = false;
        loop {
            match BoundListener::bind(address).await {
                Err(error) if error.source.kind() == io::ErrorKind::AddrInUse => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(
                            hint = error.hint(),
                            "{}; trying again",
                            format_error_chain(&error)
                        );
                    }
                    clock.sleep(BIND_RETRY_INTERVAL).await;
                }
                bound => {
                    return bound.map_err(|error| {
                        CommandError::unavailable(format_error_chain(&error))
                            .with_hint(error.hint())
                    });
                }
            }
        }
    }

    fn spawn_servers(
        self,
        beside: &mut SupervisedTasks,
        (liveness, path): (LivenessProbe, &str),
        (readiness, remarks): (Readiness, ReadinessWarnings),
        metrics: &NodeMetrics,
        clock: &SharedClock,
    ) {
        let page = MetricsPage::build(|registry| {
            metrics.register(registry);
            ProcessMetrics.register(registry);
            BuildInfo { version: env!("CARGO_PKG_VERSION") }.register(registry);
        });
        let health = health_routes(path, liveness, readiness, remarks);
        let pages = [
            ("the metrics page", self.metrics, metrics_routes(page)),
            ("the health page", self.health, health),
        ];
        for (part, listening, routes) in pages {
            let Some(listening) = listening else { continue };
            tracing::info!(address = %listening.address(), "serving {part}");
            beside.spawn_fallible(
                part,
                listening.serve(routes, Arc::clone(clock), beside.shutdown_signal()),
            );
        }
    }
}

/// How soon it is noticed that a port is free.
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
            AuditTrail::open(&sink, Arc::clone(clock)).map_err(|error| {
                CommandError::unavailable(format_error_chain(&error)).with_hint(error.hint())
            })?
        }
    };
    let keeper = Arc::new(keeper);
    metrics.watch_policy(Arc::clone(&keeper));
    Ok((keeper, audit))
}

/// What is amiss though volumes are served.
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

/// The additional directories are searched first, as upstream does.
fn socket_settings(args: &ProviderArgs) -> SocketProviderSettings {
    let mut directories = args.additional_provider_volume_paths.clone();
    directories.retain(|directory| !directory.as_os_str().is_empty());
    directories.push(args.provider_volume.clone());
    SocketProviderSettings { directories, max_response_bytes: args.max_call_recv_msg_size }
}

const fn pod_overrides(args: &ProviderArgs) -> PodOverrides {
    if args.pod_overrides_parameters.0 { PodOverrides::Allowed } else { PodOverrides::Refused }
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unnecessary_wraps, reason = "what is added for the crash matrix can be misspelt")]
fn clock(_environment: &ProcessEnvironment) -> Result<SharedClock, CommandError> {
    Ok(SystemClock::shared())
}

#[cfg(feature = "crash-points")]
fn clock(environment: &ProcessEnvironment) -> Result<SharedClock, CommandError> {
    let Some(seconds) = &environment.clock_ahead else { return Ok(SystemClock::shared()) };
    let seconds = seconds.parse().map_err(|error: std::num::ParseIntError| {
        CommandError::invalid_input("LANYARD_CLOCK_AHEAD").with_cause(&error)
    })?;
    let ahead = Duration::from_secs(seconds);
    Ok(Arc::new(super::offset_clock::OffsetClock { clock: SystemClock::shared(), offset: ahead }))
}

#[cfg_attr(
    not(feature = "crash-points"),
    expect(clippy::unnecessary_wraps, unused_variables, reason = "a crash point can be misspelt")
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
        publisher.crash_at = Some(point.parse().map_err(|error| {
            let error: lanyard_node::ParseCrashPointError = error;
            CommandError::invalid_input("LANYARD_CRASH_AT").with_cause(&error)
        })?);
    }
    Ok(publisher)
}

/// Goes on with what an earlier process mounted.
async fn recover_volumes(publisher: &Publisher) -> Result<(), CommandError> {
    let recovered = publisher
        .recover()
        .await
        .map_err(|failure| CommandError::unavailable(failure.message).with_hint(failure.hint))?;
    for (target, failure) in &recovered.problems {
        tracing::warn!(target_path = %target.display(), code = %failure.code, "{failure}");
    }
    tracing::info!(volumes = recovered.volumes, "went on with mounted volumes");
    Ok(())
}

#[cfg(test)]
mod tests;
